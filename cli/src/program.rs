//! The program that a command works on: a built-in model, an ONNX file or a graph in text form, with its parameters.

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
            BertConfig, BertOutput, Weights,
            bert::{self, IGNORED, bind},
            builtin::{self, BUILTINS, Builtin},
            decoder::{CHUNK, Decoder},
            gguf::Gguf,
            minilm,
            nn::Form,
            onnx::{self, ImportOptions, OnnxError},
            random_weights,
            vision::{Vision, VisionModel},
        },
    },
    read_graph,
};

use crate::{
    fault::{Fault, input},
    files, output,
    timing::progress,
    values::{NamedTensors, length, named_file, read_named, shape, whole},
};

/// Sentence embedding models whose files can be had, and how: they are not run with random weights unless that is asked for.
const PUBLISHED: &[(&str, &str)] = &[("minilm", minilm::HELP)];

/// Which program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program")]
pub struct ProgramArgs {
    /// A built-in model (demo, minilm, bert-base, sam, sam3, sam3-neck), an ONNX model (*.onnx), a language model (*.gguf), or a file with a graph in text form (- for stdin)
    #[arg(value_name = "MODEL|FILE", help_heading = None)]
    pub model: PathBuf,
    /// The size of a built-in model that has several; of sam: vit-b (the default), vit-l, vit-h
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Binds a symbolic dimension of a file's graph to a number, or to a range of which each run has one (seq=1..512); may be repeated
    #[arg(long, value_name = "NAME=N|A..B", value_parser = shape)]
    pub shape: Vec<(String, Dim)>,
    /// Texts or images of a built-in model's batch
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub batch: Option<usize>,
    /// Tokens of each text
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub seq: Option<usize>,
    /// The ops in which a built-in model is written
    #[arg(long, value_enum, default_value_t)]
    pub form: FormName,
    /// What a built-in model computes
    #[arg(long, value_enum, default_value_t)]
    pub result: ResultName,
    /// Where the parameters are: a directory with config.json and model.safetensors, or (for a graph file, or with --preset) a
    /// .safetensors file or a checkpoint of torch
    #[arg(long, value_name = "PATH", conflicts_with = "random")]
    pub weights: Option<PathBuf>,
    /// A parameter of the graph from a file, in place of what it is otherwise; may be repeated
    #[arg(long = "param", value_name = "NAME=@FILE.npy", value_parser = named_file)]
    pub params: Vec<(String, PathBuf)>,
    /// Random parameters, also for a model whose weights can be had
    #[arg(long)]
    pub random: bool,
    /// Where random parameters and inputs start from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    pub seed: u64,
    /// How often a loop of an ONNX file runs at most, where only a condition ends it, which depends on inputs
    #[arg(long, value_name = "N", default_value_t = onnx::MOST_TIMES, value_parser = whole::<usize>)]
    pub most_times: usize,
    /// Values that arrays fix when an ONNX file is imported.
    #[arg(skip)]
    pub decided: Decided,
    /// The ops that the files of rules declare.
    #[arg(skip)]
    pub ops: OnceCell<Ops>,
    /// What stdin gave, where the model is `-`: it can be read once only.
    #[arg(skip)]
    pub stdin: OnceCell<Vec<u8>>,
}

/// Values that arrays for inputs fix when an ONNX file is imported.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// The inputs with a default that are given.
    pub given: BTreeSet<String>,
    /// Values of inputs that may decide about shapes. They are compiled in where they do.
    pub known: NamedTensors,
}

/// In which ops a built-in model is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    /// linear, layernorm, attention: as people write models.
    #[default]
    Composite,
    /// matmul, add, exp, reductions: as exporters do.
    Primitive,
}

/// What a built-in model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultName {
    /// The hidden state after the last layer.
    #[default]
    Hidden,
    /// The mean of the hidden state over the tokens, at length 1.
    Embedding,
}

/// A built-in model that takes images, and the file that its parameters are in.
pub struct Opened {
    /// The model.
    pub model: VisionModel,
    weights: Option<(PathBuf, Weights)>,
}

/// Recognises files of other kinds by their first bytes; returns the kind, and what to do with such a file.
fn recognised(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    // Eight bytes hold the length of the JSON that follows them.
    let header = |bytes: &[u8]| {
        let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        Some(length <= bytes.len() as u64 && bytes.get(8) == Some(&b'{'))
    };
    if bytes.starts_with(b"GGUF") {
        return Some(("a language model in GGUF", "name it NAME.gguf, by which such files are told"));
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
    /// A program that is run on random numbers, as it stands.
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
        }
    }

    /// The files that are read, by what names them.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        let params = self.params.iter().map(|(name, path)| (format!("--param {name}"), path.as_path()));
        std::iter::once(("MODEL".into(), self.model.as_path())).chain(params)
    }

    /// Whether it is a model that is built in.
    pub fn is_built_in(&self) -> bool {
        self.builtin().is_some() || self.vision().is_some()
    }

    /// The built-in model of that name, if it is one.
    pub fn builtin(&self) -> Option<&'static Builtin> {
        builtin::named(self.model.to_str()?)
    }

    /// How to get the model's files, if it is a sentence embedding model.
    pub fn published(&self) -> Option<&'static str> {
        PUBLISHED.iter().find(|(name, _)| Path::new(name) == self.model).map(|(_, help)| *help)
    }

    /// The ops in which a built-in model is written.
    pub fn form(&self) -> Form {
        match self.form {
            FormName::Composite => Form::Composite,
            FormName::Primitive => Form::Primitive,
        }
    }

    /// The graph, its symbols bound.
    ///
    /// # Errors
    /// When there is no such model or file, the file holds no graph, or a symbol stays unbound.
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

    /// The kind of built-in model that takes images, if it is one.
    pub fn vision(&self) -> Option<Vision> {
        Vision::named(self.model.to_str()?)
    }

    /// Images of a batch.
    pub fn images(&self) -> usize {
        self.batch.unwrap_or(1)
    }

    /// The model that takes images, if it is one: from a preset, or as the folder of its weights says.
    ///
    /// # Errors
    /// When there is no such preset, or the files cannot be read or contradict the arguments.
    pub fn opened(&self) -> Result<Option<Opened>, Fault> {
        let Some(kind) = self.vision() else {
            return match &self.preset {
                None => Ok(None),
                Some(name) => {
                    let problem = format!("--preset {name}: {} comes in one size only", self.model.display());
                    Err(input(problem, "leave it out; sam has presets"))
                }
            };
        };
        let presets = kind.presets().join(", ");
        let for_texts = [("--seq", self.seq.is_some()), ("--shape", !self.shape.is_empty())];
        if let Some((flag, _)) = for_texts.iter().find(|(_, given)| *given) {
            let problem = format!("{flag}: {} takes images of the size that it was made for", kind.name());
            return Err(input(problem, "--batch sets the number of images"));
        }
        if self.batch == Some(0) {
            return Err(input("--batch 0: there is no image", "give at least one"));
        }
        let folder = self.weights.as_ref().filter(|path| path.is_dir());
        let mut model = match (folder, &self.preset) {
            (Some(folder), None) => kind.open(folder).map_err(|e| {
                input(
                    e,
                    format!("a folder as Hugging Face lays it out is wanted, or a file and one of --preset {presets}"),
                )
            })?,
            (Some(folder), Some(name)) => {
                let problem = format!("--preset {name}: {} says itself what the model is", folder.display());
                return Err(input(problem, "leave out --preset, or let --weights name the file in the folder"));
            }
            (None, None) if self.weights.is_some() => {
                let help = format!("add --preset, one of {presets}, or let --weights name a folder with config.json");
                return Err(input("--weights: a file does not say which model it is for", help));
            }
            (None, name) => {
                let name = name.as_deref().unwrap_or(kind.presets()[0]);
                let unknown = || {
                    let help = suggestion(name, "it has", kind.presets().iter().copied());
                    input(format!("--preset {name}: {} has none of that name", kind.name()), help)
                };
                kind.preset(name).ok_or_else(unknown)?
            }
        };
        let path = folder.map(|folder| folder.join("model.safetensors")).or(self.weights.clone());
        let weights = path.map(|path| {
            let weights = model.weights(&path).map_err(|e| self.unusable(e))?;
            Ok::<_, Fault>((path, weights))
        });
        Ok(Some(Opened { weights: weights.transpose()?, model }))
    }

    /// The parameters of a graph of a model that takes images, and where they come from; `ignored` are names in the file that
    /// the graph may do without.
    ///
    /// # Errors
    /// When the file's tensors do not fit.
    pub fn image_params(
        &self,
        opened: &Opened,
        graph: &Graph,
        ignored: &[&str],
    ) -> Result<(NamedTensors, String), Fault> {
        let Some((path, weights)) = &opened.weights else {
            let source = format!("random, from seed {}: the numbers mean nothing", self.seed);
            return Ok((self.random_params(graph), source));
        };
        let wanted = graph.named("param").map(|(name, id)| (name, graph.ty(id)));
        let bound = weights.bind(wanted, ignored).map_err(|e| self.unusable(e))?;
        Ok((bound.tensors, format!("from {}", path.display())))
    }

    fn built(&self, builtin: &Builtin) -> Result<Graph, Fault> {
        if let Some((name, _)) = self.shape.first() {
            let help = "give --batch and --seq; --shape is for graph files";
            return Err(input(format!("--shape {name}: {} is a built-in model", builtin.name), help));
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

    /// Texts and tokens of each.
    pub fn extents(&self, builtin: &Builtin) -> (usize, usize) {
        (self.batch.unwrap_or(builtin.batch), self.seq.unwrap_or(builtin.sequence))
    }

    /// The sizes of a built-in model: as its folder says, or as it was published.
    ///
    /// # Errors
    /// When the file in the folder cannot be read.
    pub fn config(&self, builtin: &Builtin) -> Result<BertConfig, Fault> {
        match &self.weights {
            Some(dir) => BertConfig::open(dir.join("config.json")).map_err(|e| self.unusable(e)),
            None => Ok((builtin.config)()),
        }
    }

    /// An error about the model's files, with the way to get right ones where there is one.
    fn unusable(&self, error: impl std::fmt::Display) -> Fault {
        match self.published() {
            Some(help) => input(error, help),
            None => input(error, "--weights takes what the model was trained to; --random needs no files"),
        }
    }

    /// Whether it is an ONNX file, by its name.
    pub fn is_onnx(&self) -> bool {
        self.model.extension().is_some_and(|e| e == "onnx")
    }

    /// Whether it is a GGUF file, by its name.
    pub fn is_gguf(&self) -> bool {
        Gguf::is_named(&self.model)
    }

    /// The options that are given and say nothing to a language model.
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

    /// The program by which a language model reads and continues texts; `--shape` fixes its extents `tokens` and `cached`, or bounds them.
    ///
    /// # Errors
    /// When the file holds no language model that can be built, or has no such extent.
    pub fn decoder(&self) -> Result<Graph, Fault> {
        let given = self.for_other_models().filter(|flag| *flag != "--shape").collect::<Vec<_>>().join(", ");
        if !given.is_empty() {
            let problem = format!("{given}: {} is a language model", self.model.display());
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
        // An array on which no shape depends stays an input.
        for name in known.keys() {
            let value = options.fixed.remove(name);
            match model.import_as(&options) {
                Ok(less) => imported = less,
                Err(_) => options.fixed.extend(value.map(|value| (name.clone(), value))),
            }
        }
        Ok(imported)
    }

    /// The numbers given for dimensions.
    ///
    /// # Errors
    /// When a dimension is given two numbers.
    fn shapes(&self) -> Result<BTreeMap<String, Dim>, Fault> {
        let mut shapes = BTreeMap::new();
        for (name, number) in &self.shape {
            if let Some(other) = shapes.insert(name.clone(), number.clone()).filter(|other| other != number) {
                let [other, number] = [&other, number].map(length);
                let problem = format!("--shape {name}: it is {other} in one place and {number} in another");
                return Err(input(problem, "give each dimension once"));
            }
        }
        Ok(shapes)
    }

    /// The dimensions of a file that have no number of their own, and its extents at run time.
    ///
    /// # Errors
    /// When there is no such file, or it holds no graph.
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
                Err(input(format!("{flag} is for built-in models, {} is a file", self.model.display()), help))
            }
            None => Ok(()),
        }
    }

    /// The text of a graph, from a file or from stdin.
    fn bytes(&self) -> Result<Vec<u8>, Fault> {
        if !output::is_standard(&self.model) {
            return files::read(&self.model).map_err(|e| {
                let known = BUILTINS.iter().map(|b| b.name).chain(Vision::ALL.into_iter().map(Vision::name));
                let guess = suggestion(&self.model.to_string_lossy(), "built-in models are", known);
                let help = format!("{guess}; anything else is the path of an ONNX model or a graph");
                let place = self.model.display();
                input(format!("no built-in model is named `{place}`, and as a file it cannot be read: {e}"), help)
            });
        }
        if let Some(bytes) = self.stdin.get() {
            return Ok(bytes.clone());
        }
        let read = files::read(&self.model);
        let bytes = read.map_err(|e| input(format!("stdin cannot be read: {e}"), "name a file instead"))?;
        Ok(self.stdin.get_or_init(|| bytes).clone())
    }

    fn ops(&self) -> Ops {
        self.ops.get().cloned().unwrap_or_default()
    }

    /// The graph of a file in text form; symbols stay open.
    pub fn parsed(&self) -> Result<Graph, Fault> {
        let place = self.model.display();
        let bytes = self.bytes()?;
        self.only_for_builtin()?;
        if self.is_gguf() {
            let help = "`eutectic run MODEL.gguf --prompt TEXT` continues a text, and `eutectic opt MODEL.gguf` shows the program that does";
            return Err(input(format!("{place}: a language model is no graph"), help));
        }
        if let Some((what, help)) = recognised(&bytes) {
            return Err(input(format!("{place}: this is {what}, and no graph in text form"), help));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            input(format!("{place}: not a graph in text form: {e}"), "a graph file is UTF-8 text: (graph \"name\" …)")
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
                return Err(input(format!("--shape {name}: {place} has no such dimension"), help));
            };
            let (least, most) = extent.bounds.unwrap_or_default();
            if !number.range().is_some_and(|(from, to)| least <= from && to <= most) {
                let problem = format!("--shape {name}={}: in {place}, {name} is {least} to {most}", length(number));
                return Err(input(problem, "give a number within these bounds, or leave it out"));
            }
        }
        let values = self.shapes()?;
        let open: Vec<_> = known.into_iter().filter(|name| !values.contains_key(*name)).collect();
        if !open.is_empty() {
            let flags: Vec<_> = open.iter().map(|name| format!("--shape {name}=N")).collect();
            let problem = format!("{place}: these dimensions have no number yet: {}", open.join(", "));
            return Err(input(problem, format!("add {}", flags.join(" "))));
        }
        graph.bind_dims(&values).map_err(|e| Fault::input(format!("{place}: {e}")))
    }

    /// The parameters that are given each in a file.
    ///
    /// # Errors
    /// When a file is no usable `.npy` file, or a name is there twice.
    pub fn given_params(&self) -> Result<NamedTensors, Fault> {
        read_named("--param", &self.params)
    }

    /// The parameters of the graph, and where they come from, in a few words.
    ///
    /// # Errors
    /// When the weights cannot be read or do not fit, or are missing for a model whose weights can be had.
    pub fn params(&self, graph: &Graph) -> Result<(NamedTensors, String), Fault> {
        let given = self.given_params()?;
        let types: BTreeMap<&str, &eutectic::Type> =
            graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
        for (name, value) in &given {
            let Some(ty) = types.get(name.as_str()) else {
                let help = suggestion(name, "the parameters are", types.keys().copied());
                return Err(input(format!("--param {name}: there is no parameter of that name"), help));
            };
            if value.ty() != **ty {
                let help = "give an array of exactly this element type and shape";
                return Err(input(format!("parameter `{name}` is {ty}, but {} was given", value.ty()), help));
            }
        }
        if !types.is_empty() && given.len() == types.len() {
            return Ok((given, "each from its file".into()));
        }
        let (mut params, mut source) = self.other_params(graph)?;
        if !given.is_empty() {
            source = format!("{source}; {} from files of their own", given.len());
        }
        params.extend(given);
        Ok((params, source))
    }

    fn other_params(&self, graph: &Graph) -> Result<(NamedTensors, String), Fault> {
        if let Some(opened) = self.opened()? {
            return self.image_params(&opened, graph, opened.model.ignored());
        }
        match &self.weights {
            Some(path) => {
                let file = if path.is_dir() { path.join("model.safetensors") } else { path.clone() };
                let weights = Weights::open(&file).map_err(|e| self.unusable(e))?;
                let wanted: Vec<_> = graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
                let ignored = if self.builtin().is_some() { IGNORED } else { &[] };
                let bound = weights.bind(wanted, ignored).map_err(|e| self.unusable(e))?;
                Ok((bound.tensors, format!("from {}", file.display())))
            }
            None if self.published().is_some() && !self.random => {
                Err(self.unusable(format!("{} needs --weights DIR, or --random", self.model.display())))
            }
            None if self.is_onnx() && !self.random => {
                let params = self.import()?.params().map_err(onnx_fault)?;
                Ok((params, format!("from {}", self.model.display())))
            }
            None => Ok((self.random_params(graph), format!("random, from seed {}", self.seed))),
        }
    }

    fn random_params(&self, graph: &Graph) -> NamedTensors {
        let _bar = progress("making random parameters", None);
        random_weights(graph, self.seed)
    }
}

/// An error about an ONNX file, with what to do about it.
pub fn onnx_fault(error: OnnxError) -> Fault {
    let help = match &error {
        OnnxError::Unbound { open, .. } => {
            format!("add {}", open.iter().map(|name| format!("--shape {name}=N")).collect::<Vec<_>>().join(" "))
        }
        OnnxError::NoSuchDim { known, .. } if known.is_empty() => "all its dimensions are numbers".into(),
        OnnxError::NoSuchDim { name, known, .. } => suggestion(name, "it has", known.iter().map(String::as_str)),
        OnnxError::Unsupported { .. } => "`eutectic inspect` shows what is in the file".into(),
        OnnxError::Tensors { .. } => {
            "external data lies beside the model, in its folder; --random needs no values".into()
        }
        _ => "name an .onnx file that is whole; onnx.checker says more".into(),
    };
    input(error, help)
}
