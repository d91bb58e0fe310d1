//! Reads messages from stdin and prints the answers.

use std::io::{BufRead, IsTerminal, stdin};

use eutectic::{GenerateOptions, Generator, engine::models::chat::Message};

use super::args::Args;
use crate::{
    fault::{Fault, input},
    format::Format,
    generation::{cache, open, options, print},
    timing::progress,
};

/// Answers each line of stdin.
///
/// # Errors
/// If the file is not a language model with a chat template, options are invalid, or the conversation is full.
pub fn run(args: &Args) -> Result<(), Fault> {
    let options = options(&args.generation, args.seed)?;
    let model = open(&args.model)?;
    let mut messages: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    // The template is applied before the model is compiled, so that its errors come early.
    let first = [messages.clone(), vec![Message::new("user", "")]].concat();
    model.chat_prompt(&first).map_err(Fault::input)?;
    let bar = progress("compiling", None);
    let (compiler, cache) = (args.compile.compiler()?, cache(args.generation.cache));
    let mut generator = Generator::with_cache(model, &compiler, args.context, cache)?;
    drop(bar);
    let is_asked = args.format == Format::Table && stdin().is_terminal();
    let mut lines = stdin().lock().lines();
    loop {
        if is_asked {
            eprint!("> ");
        }
        let Some(line) = lines.next() else { return Ok(()) };
        let line = line.map_err(|e| input(format!("cannot read stdin: {e}"), "give text in UTF-8"))?;
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::new("user", line));
        let answer = answer(&mut generator, &messages, &options, args.format)?;
        messages.push(Message::new("assistant", answer));
    }
}

/// Prints the answer to the last message, and returns it.
fn answer(
    generator: &mut Generator,
    messages: &[Message],
    options: &GenerateOptions,
    format: Format,
) -> Result<String, Fault> {
    let prompt = generator.model().chat_prompt(messages).map_err(Fault::input)?;
    if prompt.len() > generator.room() {
        let problem =
            format!("the conversation has {} tokens, but there is room for {}", prompt.len(), generator.room());
        return Err(input(problem, "start another one, or give a larger --context"));
    }
    Ok(print(generator, &prompt, options, format)?.text)
}
