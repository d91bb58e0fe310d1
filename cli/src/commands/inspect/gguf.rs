//! The contents of a GGUF file, and what the model needs that is not supported.

use std::{
    collections::BTreeMap,
    io::{Write, stdout},
    path::Path,
};

use eutectic::engine::models::{
    decoder::{Decoder, DecoderConfig},
    gguf::{Gguf, GgufError},
};
use serde_json::json;

use super::list::list;
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    table::{bytes, count, heading, plain, table, thousands},
};

/// Tensors of one format: their number and bytes.
type Formats = BTreeMap<&'static str, (usize, usize)>;

/// Shows the contents of a file.
///
/// # Errors
/// If the file is damaged or cannot be read.
pub fn run(path: &Path, format: Format) -> Result<(), Fault> {
    let gguf = Gguf::open(path).map_err(|error| match &error {
        GgufError::Formats { .. } => input(error, "quantize the model to a supported format"),
        _ => input(error, "name a complete GGUF file"),
    })?;
    let mut formats = Formats::new();
    for tensor in gguf.tensors().values() {
        let (tensors, size) = formats.entry(tensor.format.name).or_default();
        *tensors += 1;
        *size += tensor.bytes();
    }
    let (decoder, unsupported) = match Decoder::new(&gguf, None) {
        Ok(decoder) => (Some(decoder), Vec::new()),
        Err(error) => (None, error.problems),
    };
    let mut out = stdout().lock();
    if format == Format::Json {
        return print_json(&mut out, &as_json(&gguf, &formats, decoder.as_ref(), &unsupported));
    }
    print(&mut out, &gguf, &formats, decoder.as_ref())?;
    list(&mut out, "not supported", &unsupported)
}

/// Returns the number of elements of all tensors.
fn elements(gguf: &Gguf) -> usize {
    gguf.tensors().values().map(|tensor| tensor.dims.iter().product::<usize>()).sum()
}

fn print(out: &mut dyn Write, gguf: &Gguf, formats: &Formats, decoder: Option<&Decoder>) -> Result<(), Fault> {
    let text = |key: &str| plain(gguf.text(key).unwrap_or("not named"));
    writeln!(out, "{}", heading(gguf.path().display()))?;
    writeln!(out, "architecture  {}", text("general.architecture"))?;
    writeln!(out, "name          {}", text("general.name"))?;
    writeln!(
        out,
        "tokenizer     {} {}",
        text("tokenizer.ggml.model"),
        plain(gguf.text("tokenizer.ggml.pre").unwrap_or(""))
    )?;
    if let Some(decoder) = decoder {
        let DecoderConfig { layers, width, heads, groups, trained, vocabulary, experts, .. } = decoder.config();
        writeln!(out, "layers        {layers} of width {width}, {heads} heads of queries, {groups} of keys")?;
        if experts.count > 0 {
            let routed = decoder.config().routed_layers();
            writeln!(out, "experts       {} of {} in {routed} layers", experts.used, experts.count)?;
        }
        writeln!(out, "context       {} tokens", thousands(*trained))?;
        writeln!(out, "vocabulary    {} tokens", thousands(*vocabulary))?;
        writeln!(out, "token reads   {} of weights", bytes(decoder.read_bytes(0) as f64))?;
    }
    let size: usize = formats.values().map(|(_, size)| size).sum();
    let (tensors, numbers) = (thousands(gguf.tensors().len()), count(elements(gguf) as f64));
    writeln!(out, "weights       {tensors} tensors, {numbers} numbers, {}", bytes(size as f64))?;
    let mut rows = table(&["format", ">tensors", ">bytes"]);
    for (name, (tensors, size)) in formats {
        rows.add_row([(*name).into(), thousands(*tensors), bytes(*size as f64)]);
    }
    Ok(writeln!(out, "{rows}")?)
}

fn as_json(gguf: &Gguf, formats: &Formats, decoder: Option<&Decoder>, unsupported: &[String]) -> serde_json::Value {
    let formats: BTreeMap<_, _> =
        formats.iter().map(|(name, (tensors, size))| (*name, json!({ "tensors": tensors, "bytes": size }))).collect();
    let sizes = decoder.map(|decoder| {
        let config = decoder.config();
        json!({
            "layers": config.layers,
            "width": config.width,
            "heads": config.heads,
            "key_heads": config.groups,
            "context": config.trained,
            "vocabulary": config.vocabulary,
            "experts": config.experts.count,
            "experts_of_a_token": config.experts.used,
            "bytes_of_a_token": decoder.read_bytes(0),
        })
    });
    json!({
        "architecture": gguf.text("general.architecture"),
        "name": gguf.text("general.name"),
        "tokenizer": gguf.text("tokenizer.ggml.model"),
        "tensors": gguf.tensors().len(),
        "elements": elements(gguf),
        "formats": formats,
        "model": sizes,
        "unsupported": unsupported,
    })
}
