//! `run` of models that take texts: prints their embeddings, and the similarities of these.

use std::{
    ffi::OsString,
    io::{Write, stdout},
    path::Path,
};

use eutectic::Tensor;
use serde_json::json;

use super::{
    args::Args,
    results::{decimal, overview, shortest},
};
#[cfg(not(feature = "text"))]
use crate::fault::not_built;
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    npy,
    table::{Table, heading, table},
    timing::progress,
};

/// Embeds the texts of the arguments.
///
/// # Errors
/// If the model takes no texts, if a file or a text is invalid, or if this build has no tokenizer.
pub fn run(args: &Args) -> Result<(), Fault> {
    let texts = utf8(&args.texts)?;
    let model = args.job.program.model.display();
    let Some(help) = args.job.program.published() else {
        let help = "minilm does; a graph takes arrays: --input NAME=@FILE.npy";
        return Err(input(format!("--text does not apply to {model}, which takes no texts"), help));
    };
    let Some(dir) = &args.job.program.weights else {
        return Err(input("--text needs the model's files", format!("give --weights DIR; {help}")));
    };
    let bar = progress("compiling and running", None);
    let (name, embeddings) = embedded(args, dir, &texts)?;
    drop(bar);
    let width = embeddings.first().map_or(0, Vec::len);
    if let Some(path) = args.outputs.first() {
        let tensor = Tensor::from_f32(&[texts.len(), width], &embeddings.concat()).map_err(Fault::run)?;
        npy::write(path, &tensor)?;
    }
    let similarities: Vec<Vec<f64>> =
        embeddings.iter().map(|a| embeddings.iter().map(|b| dot(a, b)).collect()).collect();
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        let shortest = |e: &Vec<f32>| e.iter().map(|x| shortest(*x)).collect::<Vec<_>>();
        let row = |(text, e)| json!({ "text": text, "embedding": shortest(e) });
        let rows: Vec<_> = texts.iter().zip(&embeddings).map(row).collect();
        let value = json!({ "model": name, "embeddings": rows, "similarities": similarities });
        return print_json(&mut out, &value);
    }
    let mut table = table(&[">#", "text", "embedding"]);
    for (at, (text, embedding)) in texts.iter().zip(&embeddings).enumerate() {
        let numbers = embedding.iter().map(|x| f64::from(*x));
        let [numbers, ..] = overview(numbers, embedding.len(), decimal);
        table.add_row([(at + 1).to_string(), shortened(text), numbers]);
    }
    writeln!(out, "{table}")?;
    if texts.len() > 1 {
        writeln!(out, "\n{}\n{}", heading("cosine similarities"), similarity_table(&similarities))?;
    }
    Ok(())
}

/// Returns the name of the model, and an embedding of length 1 for each text.
#[cfg(feature = "text")]
fn embedded(args: &Args, dir: &Path, texts: &[String]) -> Result<(String, Vec<Vec<f32>>), Fault> {
    let encoder = eutectic::TextEncoder::open(dir, args.job.compile.compiler()?)?;
    let mut encoder = encoder.with_form(args.job.program.form());
    let embeddings = encoder.encode(texts)?;
    Ok((encoder.model().name().into(), embeddings))
}

#[cfg(not(feature = "text"))]
fn embedded(_: &Args, _: &Path, _: &[String]) -> Result<(String, Vec<Vec<f32>>), Fault> {
    Err(not_built("cannot embed texts because this build has no tokenizer", "text"))
}

fn similarity_table(similarities: &[Vec<f64>]) -> Table {
    let titles: Vec<String> =
        (0..=similarities.len()).map(|n| if n == 0 { ">".into() } else { format!(">{n}") }).collect();
    let mut table = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, row) in similarities.iter().enumerate() {
        let mut cells = vec![(at + 1).to_string()];
        cells.extend(row.iter().map(|s| format!("{s:.3}")));
        table.add_row(cells);
    }
    table
}

/// Returns the dot product of two embeddings. It is their cosine, because they have length 1.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// Converts the texts to strings. The error names a text that is not UTF-8.
fn utf8(texts: &[OsString]) -> Result<Vec<String>, Fault> {
    let text = |(at, text): (usize, &OsString)| {
        text.to_str().map(String::from).ok_or_else(|| {
            let bytes = text.as_encoded_bytes();
            let good = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), |t| t.len());
            let problem =
                format!("--text number {}: byte {} is not UTF-8: {}", at + 1, good + 1, text.to_string_lossy());
            input(problem, "give texts in UTF-8; iconv converts other encodings")
        })
    };
    texts.iter().enumerate().map(text).collect()
}

fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(48) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
