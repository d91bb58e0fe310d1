//! `run` of language models: prompts, and their continuations.

use std::{
    io::{Read, Write, stdin, stdout},
    ops::ControlFlow,
};

use eutectic::{
    GenerateOptions, Generated, Generator, Stop,
    engine::models::{chat::Message, language::LanguageModel, sampling::Sampling},
};
use serde_json::json;

use super::{Args, PromptArgs};
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    timing::progress,
};

/// Continues the prompt of the arguments.
///
/// # Errors
/// When the file is no language model that can be built, the numbers have no meaning, or there is no room for the prompt.
pub fn run(args: &Args) -> Result<(), Fault> {
    let options = options(args)?;
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

fn as_json(prompt: &[u32], generated: &Generated) -> serde_json::Value {
    let stop = match generated.stop {
        Stop::End => "end",
        Stop::Limit => "limit",
        Stop::Room => "room",
        Stop::Caller => "caller",
    };
    json!({
        "prompt_tokens": prompt,
        "tokens": generated.tokens,
        "text": generated.text,
        "stop": stop,
        "prompt_seconds": generated.prompt_time.as_secs_f64(),
        "token_seconds": generated.token_time.as_secs_f64(),
    })
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

fn options(args: &Args) -> Result<GenerateOptions, Fault> {
    let given = &args.prompt;
    let temperature = given.temperature.unwrap_or(0.0);
    if temperature == 0.0
        && let Some(flag) = given.of_random_choice().next()
    {
        let problem = format!("{flag}: the likeliest token is chosen, and no other takes part");
        return Err(input(problem, "add --temperature with a number above 0, as in --temperature 0.8"));
    }
    let sampling = Sampling {
        temperature,
        top_k: given.top_k.unwrap_or(0),
        top_p: given.top_p.unwrap_or(1.0),
        min_p: given.min_p.unwrap_or(0.0),
        repeat_penalty: given.repeat_penalty.unwrap_or(1.0),
        seed: args.job.program.seed,
    };
    let problems = sampling.problems();
    if !problems.is_empty() {
        return Err(input(problems.join("; "), "`eutectic run --help` says what each of them means"));
    }
    Ok(GenerateOptions { max_tokens: given.max_tokens.unwrap_or(MAX_TOKENS), sampling })
}

/// How many tokens are generated at most where no number is given.
pub const MAX_TOKENS: usize = 256;
