//! `run` of language models: prompts, and their continuations.

use std::{
    io::{Read, Write, stdin, stdout},
    ops::ControlFlow,
};

use eutectic::{
    Generator,
    engine::models::{chat::Message, language::LanguageModel},
};

use super::{Args, PromptArgs};
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    generation::{as_json, options},
    timing::progress,
};

/// Continues the prompt of the arguments.
///
/// # Errors
/// When the file is no language model that can be built, the numbers have no meaning, or there is no room for the prompt.
pub fn run(args: &Args) -> Result<(), Fault> {
    let options = options(&args.prompt.generation, args.job.program.seed)?;
    let path = &args.job.program.model;
    let unusable = |error| input(error, "name a GGUF file of a language model that is whole");
    let model = LanguageModel::open(path).map_err(unusable)?;
    let text = text(&args.prompt)?;
    let prompt = match args.prompt.chat {
        true => model.chat_prompt(&[Message::new("user", text)]),
        false => model.prompt(&text),
    };
    let prompt = prompt.map_err(Fault::input)?;
    let (count, trained) = (prompt.len(), model.trained());
    if count > trained {
        let problem = format!("the prompt has {count} tokens, {} was trained for {trained}", path.display());
        return Err(input(problem, "give a shorter one"));
    }
    let bar = progress("compiling", None);
    let compiler = args.job.compile.compiler()?;
    let mut generator = Generator::new(model, &compiler, count.saturating_add(options.max_tokens))?;
    drop(bar);
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        let generated = generator.generate(&prompt, &options, |_| ControlFlow::Continue(()))?;
        return print_json(&mut out, &as_json(&prompt, &generated));
    }
    let mut written = Ok(());
    generator.generate(&prompt, &options, |piece| {
        written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    Ok(writeln!(out)?)
}

/// Returns the prompt: the argument, or the text of stdin.
fn text(args: &PromptArgs) -> Result<String, Fault> {
    let given = args.prompt.as_deref().unwrap_or_default();
    if given != "-" {
        return Ok(given.into());
    }
    let mut text = String::new();
    let read = stdin().lock().read_to_string(&mut text);
    read.map_err(|e| input(format!("--prompt -: stdin cannot be read: {e}"), "give text in UTF-8"))?;
    Ok(text)
}
