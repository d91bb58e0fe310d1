//! The program of a command: a built-in model, an ONNX file or a graph in text form, with its parameters.

mod images;
mod params;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use eutectic::{
    Dim, Graph,
    engine::{
        ir::{
            GraphError, Ops,
            lang::{Source, sexp::suggestion},
        },
        models::{
            BertConfig, BertOutput,
            bert::{self, bind},
            builtin::{self, BUILTINS, Builtin},
            decoder::{CHUNK, Decoder},
            gguf::Gguf,
            minilm,
            nn::Form,
            onnx::{self, ImportOptions, OnnxError},
            vision::Vision,
        },
    },
    read_graph,
};
use indicatif::ProgressBar;

pub use self::images::Opened;
use crate::{
    fault::{Fault, input},
    files, output,
    timing::progress,
    values::{NamedTensors, length, named_file, shape, whole},
};

/// Sentence embedding models whose weights can be downloaded, with instructions for that. They get random weights only
/// if the user asks for them.
const PUBLISHED: &[(&str, &str)] = &[("minilm", minilm::HELP)];

/// The choice of a program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program")]
pub struct ProgramArgs {
    /// A built-in model (demo, minilm, bert-base, sam, sam3, sam3-neck), an ONNX model (*.onnx), a language model
    /// (*.gguf), or a file with a graph in text form (- for stdin)
    #[arg(value_name = "MODEL|FILE", help_heading = None)]
    pub model: PathBuf,
    /// The size of a built-in model that has several; for sam: vit-b (the default), vit-l, vit-h
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Sets a dimension of a file's graph to a number, or to a range from which each run chooses (seq=1..512); may be
    /// repeated
    #[arg(long, value_name = "NAME=N|A..B", value_parser = shape)]
    pub shape: Vec<(String, Dim)>,
    /// The number of texts or images of a built-in model
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub batch: Option<usize>,
    /// The number of tokens of each text
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub seq: Option<usize>,
    /// The form of a built-in model's ops
    #[arg(long, value_enum, default_value_t)]
    pub form: FormName,
    /// The result of a built-in model
    #[arg(long, value_enum, default_value_t)]
    pub result: ResultName,
    /// The parameters: a directory with config.json and model.safetensors, or (for a graph file, or with --preset) a
    /// .safetensors file or a checkpoint of torch
    #[arg(long, value_name = "PATH", conflicts_with = "random")]
    pub weights: Option<PathBuf>,
    /// A parameter from a file, which replaces its other value; may be repeated
    #[arg(long = "param", value_name = "NAME=@FILE.npy", value_parser = named_file)]
    pub params: Vec<(String, PathBuf)>,
    /// Uses random parameters, even if the weights of the model can be downloaded
    #[arg(long)]
    pub random: bool,
    /// The seed of random parameters and inputs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    pub seed: u64,
    /// The limit on iterations of a loop in an ONNX file, if only a condition that depends on inputs ends it
    #[arg(long, value_name = "N", default_value_t = onnx::MOST_TIMES, value_parser = whole::<usize>)]
    pub most_times: usize,
    /// The values that given arrays decide when an ONNX file is imported.
    #[arg(skip)]
    pub decided: Decided,
    /// The ops that the user's rules declare.
    #[arg(skip)]
    pub ops: OnceCell<Ops>,
    /// The contents of stdin if the model is `-`. They are kept because stdin can be read only once.
    #[arg(skip)]
    pub stdin: OnceCell<Vec<u8>>,
    /// Whether the command processes many programs and shows their progress itself. A second progress bar would garble
    /// the first one.
    #[arg(skip)]
    pub one_of_many: bool,
}

/// The values that given arrays decide when an ONNX file is imported.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// The inputs with a default value that receive a given value instead.
    pub given: BTreeSet<String>,
    /// The values of inputs that may decide shapes. An input that does becomes a constant.
    pub known: NamedTensors,
}

/// The form of a built-in model's ops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    /// linear, layernorm and attention, as in hand-written models
    #[default]
    Composite,
    /// matmul, add, exp and reductions, as in exported models
    Primitive,
}

/// The result of a built-in model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultName {
    /// The hidden state after the last layer
    #[default]
    Hidden,
    /// The mean of the hidden state over the tokens, scaled to length 1
    Embedding,
}

/// Recognizes other kinds of files by their first bytes. Returns the kind, and help for the user.
fn recognised(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    // A safetensors file begins with the length of its JSON header in eight bytes.
    let header = |bytes: &[u8]| {
        let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        Some(length <= bytes.len() as u64 && bytes.get(8) == Some(&b'{'))
    };
    if bytes.starts_with(b"GGUF") {
        return Some(("a language model in GGUF", "name it NAME.gguf, because the extension selects the format"));
    }
    if bytes.starts_with(b"PK\x03\x04") {
        let help =
            "export the model as ONNX; --weights takes the parameters of a checkpoint for a graph or a built-in model";
        return Some(("a checkpoint of torch, or another archive", help));
    }
    if header(bytes) == Some(true) {
        let help = "--weights takes such a file, for a graph or a built-in model";
        return Some(("a file of weights in safetensors", help));
    }
    None
}

impl ProgramArgs {
    /// Shows a progress bar for an activity, unless the program is one of many.
    pub fn progress(&self, what: &'static str) -> ProgressBar {
        if self.one_of_many { ProgressBar::hidden() } else { progress(what, None) }
    }

    /// Returns one of many programs, with default options and random parameters.
    pub fn random(model: PathBuf) -> ProgramArgs {
        let (form, result) = (FormName::default(), ResultName::default());
        ProgramArgs {
            model,
            preset: None,
            shape: Vec::new(),
            batch: None,
            seq: None,
            form,
            result,
            weights: None,
            params: Vec::new(),
            random: true,
            seed: 1,
            most_times: onnx::MOST_TIMES,
            decided: Decided::default(),
            ops: OnceCell::new(),
            stdin: OnceCell::new(),
            one_of_many: true,
        }
    }

    /// Returns the files that the command reads, each with the argument that names it.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        let params = self.params.iter().map(|(name, path)| (format!("--param {name}"), path.as_path()));
        std::iter::once(("MODEL".into(), self.model.as_path())).chain(params)
    }

    /// Returns whether the program is a built-in model.
    pub fn is_built_in(&self) -> bool {
        self.builtin().is_some() || self.vision().is_some()
    }

    /// Returns the built-in text model of that name, or `None` for other programs.
    pub fn builtin(&self) -> Option<&'static Builtin> {
        builtin::named(self.model.to_str()?)
    }

    /// Returns the instructions to get the files of a sentence embedding model.
    pub fn published(&self) -> Option<&'static str> {
        PUBLISHED.iter().find(|(name, _)| Path::new(name) == self.model).map(|(_, help)| *help)
    }

    /// Returns the form of a built-in model's ops.
    pub fn form(&self) -> Form {
        match self.form {
            FormName::Composite => Form::Composite,
            FormName::Primitive => Form::Primitive,
        }
    }

    /// Returns the graph of the program, with a number for each symbol.
    ///
    /// # Errors
    /// If there is no such model or file, if the file has no graph, or if a symbol has no number.
    pub fn graph(&self) -> Result<Graph, Fault> {
        let graph = match (self.builtin(), self.opened()?) {
            (Some(builtin), _) => self.built(builtin)?,
            (_, Some(opened)) => opened.model.graph(self.form(), self.images()).map_err(Fault::input)?,
            _ if self.is_onnx() => {
                let imported = self.import()?;
                imported.warnings().iter().for_each(|warning| output::warn(warning));
                let is_input = |name: &str| imported.graph.named("input").any(|(input, _)| input == name);
                for name in self.decided.known.keys().filter(|name| !is_input(name)) {
                    output::warn(&format!(
                        "shapes depend on `{name}`: the program is compiled for the value that was given"
                    ));
                }
                imported.graph
            }
            _ => self.read()?,
        };
        let unfit = |e: GraphError| input(format!("{}: {}", self.model.display(), e.problem), e.help);
        graph.fits().and_then(|()| graph.computes()).map_err(unfit)?;
        Ok(graph)
    }

    fn built(&self, builtin: &Builtin) -> Result<Graph, Fault> {
        if let Some((name, _)) = self.shape.first() {
            let help = "give --batch and --seq instead";
            return Err(input(format!("--shape {name} is for files, but {} is a built-in model", builtin.name), help));
        }
        let config = self.config(builtin)?;
        let output = match self.result {
            ResultName::Hidden => BertOutput::LastHiddenState,
            ResultName::Embedding => BertOutput::SentenceEmbedding,
        };
        let graph = bert::graph(builtin.name, &config, self.form(), &[output]).map_err(Fault::input)?;
        let (batch, seq) = self.extents(builtin);
        bind(&graph, &config, batch, seq).map_err(Fault::input)
    }

    /// Returns the number of texts, and the number of tokens of each text.
    pub fn extents(&self, builtin: &Builtin) -> (usize, usize) {
        (self.batch.unwrap_or(builtin.batch), self.seq.unwrap_or(builtin.sequence))
    }

    /// Returns the sizes of a built-in model: those in the folder of its weights, or the published ones.
    ///
    /// # Errors
    /// If the file in the folder cannot be read.
    pub fn config(&self, builtin: &Builtin) -> Result<BertConfig, Fault> {
        match &self.weights {
            Some(dir) => BertConfig::open(dir.join("config.json")).map_err(|e| self.unusable(e)),
            None => Ok((builtin.config)()),
        }
    }

    /// Returns an error about the files of a model. The help says how to get valid ones.
    fn unusable(&self, error: impl std::fmt::Display) -> Fault {
        match self.published() {
            Some(help) => input(error, help),
            None => input(error, "--weights names trained weights; --random needs no files"),
        }
    }

    /// Returns whether the path of the program ends in `.onnx`.
    pub fn is_onnx(&self) -> bool {
        self.model.extension().is_some_and(|e| e == "onnx")
    }

    /// Returns whether the path of the program ends in `.gguf`.
    pub fn is_gguf(&self) -> bool {
        Gguf::is_named(&self.model)
    }

    /// Returns the names of the given options that do not apply to a language model.
    pub fn for_other_models(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("--preset", self.preset.is_some()),
            ("--shape", !self.shape.is_empty()),
            ("--batch", self.batch.is_some()),
            ("--seq", self.seq.is_some()),
            ("--weights", self.weights.is_some()),
            ("--param", !self.params.is_empty()),
            ("--random", self.random),
        ];
        flags.into_iter().filter_map(|(flag, given)| given.then_some(flag))
    }

    /// Returns the program of a language model. `--shape` sets the extents `tokens` and `cached`, or limits them.
    ///
    /// # Errors
    /// If the file is not a supported language model, or if `--shape` names another extent.
    pub fn decoder(&self) -> Result<Graph, Fault> {
        let given = self.for_other_models().filter(|flag| *flag != "--shape").collect::<Vec<_>>().join(", ");
        if !given.is_empty() {
            let problem = format!("{given} does not apply to the language model {}", self.model.display());
            return Err(input(problem, "leave them out; --shape tokens=N and --shape cached=N set its extents"));
        }
        let gguf = Gguf::open(&self.model).map_err(Fault::input)?;
        let decoder = Decoder::new(&gguf, None).map_err(Fault::input)?;
        self.bind(&decoder.program(CHUNK).map_err(Fault::input)?)
    }

    fn import(&self) -> Result<onnx::Imported, Fault> {
        self.only_for_builtin()?;
        let model = onnx::Model::open(&self.model).map_err(onnx_fault)?;
        let Decided { given, known } = &self.decided;
        let (shapes, most_times) = (self.shapes()?, self.most_times);
        let mut options =
            ImportOptions { shapes, given: given.clone(), most_times, ops: self.ops(), ..ImportOptions::default() };
        let first = match model.import_as(&options) {
            Err(error @ OnnxError::Unsupported { .. }) if !known.is_empty() => error,
            result => return result.map_err(onnx_fault),
        };
        options.fixed.clone_from(known);
        let mut imported = model.import_as(&options).map_err(|_| onnx_fault(first))?;
        // If the import succeeds without the value of an input, that value decides no shape, and the input stays an
        // input.
        for name in known.keys() {
            let value = options.fixed.remove(name);
            match model.import_as(&options) {
                Ok(less) => imported = less,
                Err(_) => options.fixed.extend(value.map(|value| (name.clone(), value))),
            }
        }
        Ok(imported)
    }

    /// Returns the dims that `--shape` gives, by name.
    ///
    /// # Errors
    /// If `--shape` gives a dimension two different extents.
    fn shapes(&self) -> Result<BTreeMap<String, Dim>, Fault> {
        let mut shapes = BTreeMap::new();
        for (name, number) in &self.shape {
            if let Some(other) = shapes.insert(name.clone(), number.clone()).filter(|other| other != number) {
                let [other, number] = [&other, number].map(length);
                let problem = format!("cannot set {name} to both {other} and {number} (--shape)");
                return Err(input(problem, "give each dimension once"));
            }
        }
        Ok(shapes)
    }

    /// Returns the names of a file's dimensions without a number, and of its run-time extents.
    ///
    /// # Errors
    /// If there is no such file, or if it has no graph.
    pub fn symbols(&self) -> Result<Vec<String>, Fault> {
        if self.is_onnx() {
            return Ok(onnx::Model::open(&self.model).map_err(onnx_fault)?.symbols());
        }
        let graph = self.parsed()?;
        let extents = graph.extents().into_iter().map(|extent| extent.name);
        Ok(graph.symbols().into_iter().chain(extents).map(|name| name.to_string()).collect())
    }

    fn only_for_builtin(&self) -> Result<(), Fault> {
        let flags = [("--batch", self.batch.is_some()), ("--seq", self.seq.is_some())];
        match flags.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                let help = "bind the graph's own symbols with --shape NAME=N";
                Err(input(format!("{flag} is for built-in models, but {} is a file", self.model.display()), help))
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes of the file, or of stdin.
    fn bytes(&self) -> Result<Vec<u8>, Fault> {
        if !output::is_standard(&self.model) {
            return files::read(&self.model).map_err(|e| {
                let known = BUILTINS.iter().map(|b| b.name).chain(Vision::ALL.into_iter().map(Vision::name));
                let guess = suggestion(&self.model.to_string_lossy(), "built-in models are", known);
                let help = format!("{guess}; anything else is the path of an ONNX model or a graph");
                let place = self.model.display();
                input(
                    format!("no built-in model is named `{place}`, and there is no readable file of that name: {e}"),
                    help,
                )
            });
        }
        if let Some(bytes) = self.stdin.get() {
            return Ok(bytes.clone());
        }
        let read = files::read(&self.model);
        let bytes = read.map_err(|e| input(format!("cannot read stdin: {e}"), "name a file instead"))?;
        Ok(self.stdin.get_or_init(|| bytes).clone())
    }

    fn ops(&self) -> Ops {
        self.ops.get().cloned().unwrap_or_default()
    }

    /// Returns the graph of a file in text form. Its symbols have no numbers yet.
    pub fn parsed(&self) -> Result<Graph, Fault> {
        let place = self.model.display();
        let bytes = self.bytes()?;
        self.only_for_builtin()?;
        if self.is_gguf() {
            let help = "`eutectic run MODEL.gguf --prompt TEXT` continues a text, and `eutectic opt MODEL.gguf` shows the program that does";
            return Err(input(format!("{place} is a language model, not a graph"), help));
        }
        if let Some((what, help)) = recognised(&bytes) {
            return Err(input(format!("{place} is {what}, not a graph in text form"), help));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            input(
                format!("cannot read {place} as a graph in text form: {e}"),
                "a graph file is UTF-8 text: (graph \"name\" …)",
            )
        })?;
        read_graph(&Source::new(place.to_string(), text), &self.ops()).map_err(|e| Fault::Input(e.into()))
    }

    fn read(&self) -> Result<Graph, Fault> {
        self.bind(&self.parsed()?)
    }

    fn bind(&self, graph: &Graph) -> Result<Graph, Fault> {
        let place = self.model.display();
        let (symbols, extents) = (graph.symbols(), graph.extents());
        let known: Vec<&str> = symbols.iter().map(|s| &**s).collect();
        for (name, number) in self.shape.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            let Some(extent) = extents.iter().find(|extent| *extent.name == **name) else {
                let help = suggestion(name, "it has", known.iter().copied().chain(extents.iter().map(|e| &*e.name)));
                return Err(input(format!("--shape {name}: {place} has no dimension of that name"), help));
            };
            let (least, most) = extent.bounds.unwrap_or_default();
            if !number.range().is_some_and(|(from, to)| least <= from && to <= most) {
                let problem = format!(
                    "cannot set --shape {name}={} because in {place}, {name} is {least} to {most}",
                    length(number)
                );
                return Err(input(problem, "give a number within these bounds, or leave it out"));
            }
        }
        let values = self.shapes()?;
        let open: Vec<_> = known.into_iter().filter(|name| !values.contains_key(*name)).collect();
        if !open.is_empty() {
            let flags: Vec<_> = open.iter().map(|name| format!("--shape {name}=N")).collect();
            let problem = format!("{place}: these dimensions have no number: {}", open.join(", "));
            return Err(input(problem, format!("add {}", flags.join(" "))));
        }
        graph.bind_dims(&values).map_err(|e| Fault::input(format!("{place}: {e}")))
    }
}

/// Adds help to an error about an ONNX file.
pub fn onnx_fault(error: OnnxError) -> Fault {
    let help = match &error {
        OnnxError::Unbound { open, .. } => {
            format!("add {}", open.iter().map(|name| format!("--shape {name}=N")).collect::<Vec<_>>().join(" "))
        }
        OnnxError::NoSuchDim { known, .. } if known.is_empty() => "all its dimensions are numbers".into(),
        OnnxError::NoSuchDim { name, known, .. } => suggestion(name, "it has", known.iter().map(String::as_str)),
        OnnxError::Unsupported { .. } => "`eutectic inspect` shows the contents of the file".into(),
        OnnxError::Tensors { .. } => "put external data into the model's folder, or use --random".into(),
        _ => "name a complete .onnx file; onnx.checker shows details".into(),
    };
    input(error, help)
}
