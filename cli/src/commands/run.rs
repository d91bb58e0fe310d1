//! `run`: continues prompts, embeds texts, computes masks and embeddings of images, or runs a graph.

mod args;
#[cfg_attr(not(feature = "vision"), path = "run/no_pictures.rs")]
mod picture;
#[cfg_attr(not(feature = "text"), path = "run/no_prompt.rs")]
mod prompt;
mod results;
mod texts;
pub mod verify;
mod vision;

use std::path::Path;

use eutectic::Tensor;

pub use self::args::Args;
use self::results::{is_to_stdout, output_files, print_results};
use crate::{
    fault::{Fault, input},
    files, npy, output,
    timing::progress,
};

/// Runs the command.
///
/// # Errors
/// If the program cannot be compiled or run, or a file cannot be read or written.
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
        let problem =
            format!("{flag} does not apply to {}, which is not a language model", args.job.program.model.display());
        return Err(input(problem, "name a GGUF file, *.gguf"));
    }
    if args.job.program.vision().is_some() {
        return vision::run(args);
    }
    let for_images =
        [("--image", args.image.is_some()), ("--point", !args.points.is_empty()), ("--out", !args.results.is_empty())];
    if let Some((flag, _)) = for_images.iter().find(|(_, given)| *given) {
        let problem = format!("{flag} does not apply to {}, which takes no images", args.job.program.model.display());
        return Err(input(problem, "use it with sam; --output FILE.npy writes the outputs of other models"));
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
        return Err(input(format!("{} does not apply to {model}, which is a language model", unfit.join(", ")), help));
    }
    if args.prompt.prompt.is_none() {
        let help = "give a text, as in --prompt \"The capital of France is\"";
        return Err(input(format!("{model} continues texts, but no --prompt was given"), help));
    }
    prompt::run(args)
}

fn run_graph(args: &Args) -> Result<(), Fault> {
    if args.job.program.published().is_some() && args.inputs.files.is_empty() && !args.job.program.random {
        let help = "give at least one, as in --text \"hello\"; --random runs the graph on random token ids";
        return Err(input(format!("{} embeds texts, but no --text was given", args.job.program.model.display()), help));
    }
    let compiler = args.job.compile.compiler_for(&args.job.program)?;
    let given = args.inputs.read()?;
    let mut program = args.job.program.clone();
    program.infer(&given)?;
    let graph = program.graph()?;
    let compiler = compiler.with_ops_of(&graph)?;
    if args.verify {
        let (params, inputs) = (program.params(&graph)?, program.inputs(&graph, given)?);
        return verify::run(args, &compiler, &graph, &params, &inputs);
    }
    let files = output_files(args, graph.outputs())?;
    // Compilation comes before random parameters are created, so that a program that does not fit in memory is refused
    // early.
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
