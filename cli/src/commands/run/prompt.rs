//! `run` of language models: continues a prompt.

use std::io::{Read, stdin};

use eutectic::{Generator, engine::models::chat::Message};

use super::args::{Args, PromptArgs};
use crate::{
    fault::{Fault, input},
    generation::{cache, open, options, print},
    timing::progress,
};

/// Continues the prompt of the arguments.
///
/// # Errors
/// If the file is not a supported language model, options are invalid, or the prompt is too long.
pub fn run(args: &Args) -> Result<(), Fault> {
    let options = options(&args.prompt.generation, args.job.program.seed)?;
    let path = &args.job.program.model;
    let model = open(path)?;
    let text = text(&args.prompt)?;
    let prompt = match args.prompt.chat {
        true => model.chat_prompt(&[Message::new("user", text)]),
        false => model.prompt(&text),
    };
    let prompt = prompt.map_err(Fault::input)?;
    let (count, trained) = (prompt.len(), model.trained());
    if count > trained {
        let problem = format!("the prompt has {count} tokens, but {} was trained for {trained}", path.display());
        return Err(input(problem, "give a shorter prompt"));
    }
    let bar = progress("compiling", None);
    let compiler = args.job.compile.compiler()?;
    let (room, cache) = (count.saturating_add(options.max_tokens), cache(args.prompt.generation.cache));
    let mut generator = Generator::with_cache(model, &compiler, room, cache)?;
    drop(bar);
    print(&mut generator, &prompt, &options, args.job.format)?;
    Ok(())
}

/// Returns the prompt: the text of the argument, or that of stdin for `-`.
fn text(args: &PromptArgs) -> Result<String, Fault> {
    let given = args.prompt.as_deref().unwrap_or_default();
    if given != "-" {
        return Ok(given.into());
    }
    let mut text = String::new();
    let read = stdin().lock().read_to_string(&mut text);
    read.map_err(|e| input(format!("cannot read stdin (--prompt -): {e}"), "give text in UTF-8"))?;
    Ok(text)
}
