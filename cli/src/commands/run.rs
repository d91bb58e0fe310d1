//! `run`: continuations of prompts, embeddings of texts, masks and embeddings of images, or the outputs of a graph.

#[cfg_attr(not(feature = "vision"), path = "run/no_pictures.rs")]
mod picture;
#[cfg_attr(not(feature = "text"), path = "run/no_prompt.rs")]
mod prompt;
mod texts;
mod verify;
mod vision;

use std::{
    ffi::OsString,
    io::{Write, stdout},
    path::{Path, PathBuf},
};

use eutectic::{DType, Tensor, engine::ir::lang::sexp::suggestion};
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, print_json},
    fault::{Fault, input},
    files,
    format::Format,
    generation::GenerationArgs,
    inputs::InputFiles,
    npy, output,
    table::{faint, table, thousands},
    timing::progress,
    values::NamedTensors,
};

const EXAMPLES: &str = "\
Examples:
  # embeddings and cosine similarities
  eutectic run minilm --weights DIR --text \"a cat\" --text \"a kitten\"
  # all numbers
  eutectic run minilm --weights DIR --text \"a cat\" --format json
  # the continuation of a text by a language model, and its answer to a message
  eutectic run model.gguf --prompt \"The capital of France is\" --max-tokens 20
  eutectic run model.gguf --chat --prompt \"Who are you?\" --temperature 0.8
  # random parameters and inputs
  eutectic run model.graph --shape B=2 --seed 7
  eutectic run model.graph --input x=@x.npy --weights w.safetensors \\
      --output y.npy
  # the array says how large the batch is
  eutectic run model.onnx --input x=@x.npy --output y.npy
  eutectic run model.graph --param w=@w.npy --input x=@- \\
      --output - < x.npy > y.npy
  eutectic run sam --preset vit-b --weights sam_vit_b.pth --image photo.jpg \\
      --point 320,200 --out mask.png
  eutectic run sam --weights FOLDER --image photo.png --out embedding.npy
  # is the result that of the program as written, and if not, whose fault is it?
  eutectic run model.onnx --input x=@x.npy --rules my-rules --verify
  # random parameters
  eutectic run sam --preset vit-b --input pixels=@x.npy --output embedding.npy

FOLDER is as Hugging Face lays a model out (config.json, model.safetensors). DIR holds config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2; \
`models/scripts/fetch-minilm.sh DIR` puts them there.";

/// Runs a model on texts, or a graph on arrays
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    /// A text to embed (minilm); may be repeated
    #[arg(help_heading = None, long = "text", value_name = "TEXT", allow_hyphen_values = true)]
    texts: Vec<OsString>,
    /// The image that a model looks at: PNG or JPEG (sam)
    #[arg(help_heading = None, long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// A point of what a mask is wanted of, in pixels of the image from its top left; may be repeated (sam)
    #[arg(help_heading = None, long = "point", value_name = "X,Y", value_parser = point)]
    points: Vec<[f64; 2]>,
    /// Where the result goes: the numbers (*.npy), or a picture (*.png): the mask over the image, or the embedding's first three
    /// principal components beside it; may be repeated (sam)
    #[arg(help_heading = None, long = "out", value_name = "FILE.npy|FILE.png")]
    results: Vec<PathBuf>,
    /// Runs the program as written too, on the same inputs, and compares all results. Where they differ by more than rounding, names the
    /// rule and the first kernel that differs, with exit code 1
    #[arg(help_heading = None, long)]
    verify: bool,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputFiles,
    /// Where an output goes: the first one, or the one of that name; - for stdout, which then holds nothing else; may be repeated
    #[arg(help_heading = None, long = "output", value_name = "[NAME=]FILE.npy", value_parser = npy::target())]
    outputs: Vec<PathBuf>,
}

/// The prompt of a language model (*.gguf), and how it is continued.
#[derive(clap::Args)]
#[command(next_help_heading = "Generation")]
struct PromptArgs {
    /// The text that a language model continues, without the template of its conversations unless --chat is given; - for stdin (*.gguf).
    /// With --format json, an object with prompt_tokens and tokens (ids), text and stop
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Takes the prompt as a user's message, and writes it as the file's chat template says
    #[arg(long)]
    chat: bool,
    #[command(flatten)]
    generation: GenerationArgs,
}

impl PromptArgs {
    /// The options that are given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let own = [("--prompt", self.prompt.is_some()), ("--chat", self.chat)];
        own.into_iter().filter_map(|(flag, given)| given.then_some(flag)).chain(self.generation.given())
    }
}

/// How many numbers of a tensor a table shows.
const SHOWN: usize = 6;

/// Runs the command.
///
/// # Errors
/// When the program cannot be compiled or run, or a file cannot be read or written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let prompt = args.prompt.prompt.iter().map(|text| ("--prompt".into(), Path::new(text)));
    files::read_stdin_once(args.job.reads().chain(args.inputs.reads()).chain(prompt))?;
    let written = [("--output", &args.outputs), ("--out", &args.results)];
    let written = written.iter().flat_map(|(flag, paths)| {
        paths.iter().map(move |path| (format!("{flag} {}", path.display()), is_to_stdout(path)))
    });
    output::one_on_stdout(written.chain([args.job.json()]))?;
    if args.job.program.is_gguf() {
        return run_language_model(args);
    }
    if let Some(flag) = args.prompt.given().next() {
        let problem = format!("{flag}: {} is no language model", args.job.program.model.display());
        return Err(input(problem, "name a GGUF file, *.gguf"));
    }
    if args.job.program.vision().is_some() {
        return vision::run(args);
    }
    let for_images =
        [("--image", args.image.is_some()), ("--point", !args.points.is_empty()), ("--out", !args.results.is_empty())];
    if let Some((flag, _)) = for_images.iter().find(|(_, given)| *given) {
        let problem = format!("{flag}: {} takes no images", args.job.program.model.display());
        return Err(input(problem, "sam does; the outputs of other models go where --output says"));
    }
    if args.texts.is_empty() {
        return run_graph(args);
    }
    verify::takes_no_texts(args)?;
    texts::run(args)
}

fn run_language_model(args: &Args) -> Result<(), Fault> {
    let others = [
        ("--text", !args.texts.is_empty()),
        ("--image", args.image.is_some()),
        ("--point", !args.points.is_empty()),
        ("--out", !args.results.is_empty()),
        ("--output", !args.outputs.is_empty()),
        ("--input", !args.inputs.files.is_empty()),
        ("--verify", args.verify),
    ];
    let others = others.into_iter().filter_map(|(flag, given)| given.then_some(flag));
    let unfit: Vec<&str> = others.chain(args.job.program.for_other_models()).collect();
    let model = args.job.program.model.display();
    if !unfit.is_empty() {
        let help = "leave out the options of other models; a language model takes --prompt";
        return Err(input(format!("{}: {model} is a language model", unfit.join(", ")), help));
    }
    if args.prompt.prompt.is_none() {
        let help = "give a text, as in --prompt \"The capital of France is\"";
        return Err(input(format!("{model} continues texts, and no --prompt was given"), help));
    }
    prompt::run(args)
}

/// `X,Y`.
fn point(text: &str) -> Result<[f64; 2], String> {
    let number = |text: &str| text.trim().parse().ok().filter(|x: &f64| x.is_finite());
    let pair = text.split_once(',').and_then(|(x, y)| Some([number(x)?, number(y)?]));
    pair.ok_or("expected X,Y, as in 320,200".into())
}

fn run_graph(args: &Args) -> Result<(), Fault> {
    if args.job.program.published().is_some() && args.inputs.files.is_empty() && !args.job.program.random {
        let help = "give at least one, as in --text \"hello\"; --random runs the graph on random token ids";
        return Err(input(format!("{} embeds texts, and no --text was given", args.job.program.model.display()), help));
    }
    let compiler = args.job.compile.compiler()?;
    let given = args.inputs.read()?;
    let mut program = args.job.program.clone();
    program.infer(&given)?;
    let graph = program.graph()?;
    if args.verify {
        let (params, inputs) = (program.params(&graph)?, program.inputs(&graph, given)?);
        return verify::run(args, &compiler, &graph, &params, &inputs);
    }
    let files = output_files(args, graph.outputs())?;
    // What has no room here is refused before numbers are made for it.
    let bar = progress("compiling", None);
    let mut session = compiler.compile(&graph)?;
    drop(bar);
    let (params, source) = program.params(&graph)?;
    let inputs = program.inputs(&graph, given)?;
    let bar = progress("running", None);
    session.load_named(|name| params.get(name).cloned())?;
    let results = session.run_named(|name| inputs.get(name).cloned())?;
    drop(bar);
    for (at, path) in files {
        npy::write(&path, &results[at])?;
    }
    let named: Vec<(&str, &Tensor)> = graph.outputs().iter().map(|(name, _)| name.as_str()).zip(&results).collect();
    print_results(args, &named, &inputs, &source)
}

/// The most elements of an output that are written as JSON: each of them takes tens of bytes on the way.
const MOST_IN_JSON: usize = 1 << 26;

fn print_results(args: &Args, results: &[(&str, &Tensor)], inputs: &NamedTensors, source: &str) -> Result<(), Fault> {
    // An array on stdout stands alone.
    if args.outputs.iter().chain(&args.results).any(|path| is_to_stdout(path)) {
        return Ok(());
    }
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        if let Some((name, tensor)) = results.iter().find(|(_, tensor)| tensor.count() > MOST_IN_JSON) {
            let problem = format!("output `{name}` has {} elements; JSON takes {MOST_IN_JSON}", tensor.count());
            return Err(input(problem, "--output FILE.npy keeps them, and --format table shows some"));
        }
        let values = |t: &Tensor| match t.dtype() {
            DType::F64 => t.to_f64().into_iter().map(|x| number(x, json!(x))).collect(),
            float if float.is_float() => t.to_f64().into_iter().map(|x| number(x, json!(shortest(x as f32)))).collect(),
            _ => json!(t.to_i64()),
        };
        let outputs: Vec<_> = results
            .iter()
            .map(
                |(name, t)| json!({ "name": name, "type": t.ty().to_string(), "shape": t.dims(), "values": values(t) }),
            )
            .collect();
        return print_json(&mut out, &json!({ "parameters": source, "outputs": outputs }));
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| format!("{name} {}", tensor.ty())).collect();
    writeln!(out, "inputs      {}", inputs.join(", "))?;
    writeln!(out, "parameters  {source}")?;
    let mut table = table(&["output", "type", "values", ">smallest", ">largest"]);
    for (name, tensor) in results {
        let [values, low, high] = match tensor.dtype().is_float() {
            true => overview(elements(tensor, Tensor::to_f64), tensor.count(), decimal),
            false => overview(elements(tensor, Tensor::to_i64), tensor.count(), |n| n.to_string()),
        };
        table.add_row([name.to_string(), tensor.ty().to_string(), values, low, high]);
    }
    Ok(writeln!(out, "{table}")?)
}

/// The elements, without a copy of all of them.
fn elements<T>(tensor: &Tensor, of: impl Fn(&Tensor) -> Vec<T>) -> impl Iterator<Item = T> {
    /// So many are taken out at once.
    const PART: usize = 1 << 16;
    let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
    tensor.bytes().chunks(size * PART).flat_map(move |part| {
        let part = Tensor::new(dtype, &[part.len() / size], part.to_vec()).expect("whole elements");
        of(&part)
    })
}

/// The first of some numbers, the smallest and the largest: of none there is neither, and a NaN is both.
fn overview<T: PartialOrd + Copy>(
    numbers: impl Iterator<Item = T>,
    count: usize,
    show: fn(T) -> String,
) -> [String; 3] {
    let (mut first, mut ends): (Vec<String>, Option<(T, T)>) = (Vec::new(), None);
    let is_number = |x: T| x.partial_cmp(&x).is_some();
    for x in numbers {
        if first.len() < SHOWN {
            first.push(format!("{:>8}", show(x)));
        }
        ends = Some(match ends {
            Some((low, high)) if is_number(low) && is_number(x) => {
                (if x < low { x } else { low }, if x > high { x } else { high })
            }
            Some((low, _)) if !is_number(low) => (low, low),
            _ => (x, x),
        });
    }
    let rest = if count > SHOWN { faint(format!(" … {} in all", thousands(count))) } else { String::new() };
    let [low, high] = ends.map_or(["–".into(), "–".into()], |(low, high)| [show(low), show(high)]);
    [first.join(" ") + &rest, low, high]
}

/// A number with five decimals where these say something of it, else with an exponent.
fn decimal(x: f64) -> String {
    match x.abs() {
        size if size == 0.0 || (1e-4..1e7).contains(&size) || !x.is_finite() => format!("{x:.5}"),
        _ => format!("{x:.4e}"),
    }
}

/// A number of `f32` with no digits but those that tell it from its neighbours.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// A number, or what JSON has none for, in the words of Protocol Buffers' JSON: `"NaN"`, `"Infinity"`, `"-Infinity"`.
fn number(x: f64, finite: Value) -> Value {
    match x {
        _ if x.is_finite() => finite,
        _ if x.is_nan() => json!("NaN"),
        _ if x > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    }
}

/// Whether an output goes to stdout: `-`, or `NAME=-`.
fn is_to_stdout(path: &Path) -> bool {
    output::is_standard(path) || path.to_str().is_some_and(|text| text.ends_with("=-"))
}

/// Which output goes into which file.
fn output_files(args: &Args, outputs: &[(String, eutectic::NodeId)]) -> Result<Vec<(usize, PathBuf)>, Fault> {
    let file = |path: &PathBuf| {
        let named = path.to_str().and_then(|text| text.split_once('='));
        match named.map(|(name, file)| (outputs.iter().position(|(n, _)| n == name), file)) {
            Some((Some(at), file)) => Ok((at, file.into())),
            None if !outputs.is_empty() => Ok((0, path.clone())),
            _ => {
                let problem = format!("--output {}: there is no output of that name", path.display());
                let name = named.map_or("", |(name, _)| name);
                Err(input(problem, suggestion(name, "the outputs are", outputs.iter().map(|(name, _)| name.as_str()))))
            }
        }
    };
    args.outputs.iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_what_they_are() {
        assert_eq!(
            [0.5, 0.0, -1e-5, 9e29, 1234.5].map(decimal),
            ["0.50000", "0.00000", "-1.0000e-5", "9.0000e29", "1234.50000"]
        );
        let show = |numbers: &[f64]| overview(numbers.iter().copied(), numbers.len(), decimal);
        assert_eq!(show(&[2.0, -1.0])[1..], ["-1.00000", "2.00000"]);
        for nan in [[f64::NAN, 1.0, 2.0], [1.0, f64::NAN, 2.0], [1.0, 2.0, f64::NAN]] {
            assert_eq!(show(&nan)[1..], ["NaN", "NaN"]);
        }
        assert_eq!(show(&[]), ["", "–", "–"]);
        let whole = overview([i64::MAX, 3].into_iter(), 2, |n| n.to_string());
        assert_eq!(whole, ["9223372036854775807        3", "3", "9223372036854775807"]);
        assert_eq!(json!(shortest(0.1)).to_string(), "0.1");
    }
}
