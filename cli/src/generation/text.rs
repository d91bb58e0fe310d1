//! Generates text and prints it.

use std::{
    io::{Write, stdout},
    ops::ControlFlow,
    path::Path,
};

use eutectic::{
    GenerateOptions, Generated, Generator, Stop,
    engine::models::{decoder::CacheType, language::LanguageModel, sampling::Sampling},
};
use serde_json::json;

use super::args::{Cache, GenerationArgs};
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
};

/// The default limit on generated tokens.
const MAX_TOKENS: usize = 256;

/// Returns the element type of the cache, `f16` by default.
pub fn cache(given: Option<Cache>) -> CacheType {
    match given {
        None => CacheType::default(),
        Some(Cache::F16) => CacheType::F16,
        Some(Cache::F32) => CacheType::F32,
    }
}

/// Returns the options for a generator.
///
/// # Errors
/// If options contradict each other or are out of range.
pub fn options(given: &GenerationArgs, seed: u64) -> Result<GenerateOptions, Fault> {
    let temperature = given.temperature.unwrap_or(0.0);
    if temperature == 0.0
        && let Some(flag) = given.of_random_choice().next()
    {
        let problem = format!("{flag} has no effect at temperature 0, which always chooses the most likely token");
        return Err(input(problem, "add --temperature with a number above 0, as in --temperature 0.8"));
    }
    let sampling = Sampling {
        temperature,
        top_k: given.top_k.unwrap_or(0),
        top_p: given.top_p.unwrap_or(1.0),
        min_p: given.min_p.unwrap_or(0.0),
        repeat_penalty: given.repeat_penalty.unwrap_or(1.0),
        seed,
    };
    let problems = sampling.problems();
    if !problems.is_empty() {
        return Err(input(problems.join("; "), "`eutectic run --help` explains each option"));
    }
    Ok(GenerateOptions { max_tokens: given.max_tokens.unwrap_or(MAX_TOKENS), sampling })
}

/// Opens a language model.
///
/// # Errors
/// If the file is not a supported language model.
pub fn open(path: &Path) -> Result<LanguageModel, Fault> {
    LanguageModel::open(path).map_err(|error| input(error, "name a complete GGUF file of a language model"))
}

/// Continues a prompt. Prints the text as it is generated, or JSON at the end.
///
/// # Errors
/// If the model cannot run, or stdout cannot be written.
pub fn print(
    generator: &mut Generator,
    prompt: &[u32],
    options: &GenerateOptions,
    format: Format,
) -> Result<Generated, Fault> {
    let mut out = stdout().lock();
    if format == Format::Json {
        let generated = generator.generate(prompt, options, |_| ControlFlow::Continue(()))?;
        print_json(&mut out, &as_json(prompt, &generated))?;
        return Ok(generated);
    }
    let mut written = Ok(());
    let generated = generator.generate(prompt, options, |piece| {
        written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    writeln!(out)?;
    Ok(generated)
}

/// Returns a generation as JSON.
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
