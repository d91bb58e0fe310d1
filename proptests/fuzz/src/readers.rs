//! The readers, and the promise of each about the files that it accepts.

use std::{fs, io, path::PathBuf};

use eutectic_cpu::Costs;
use eutectic_ir::{Dim, Ops, lang::Source, text};
use eutectic_models::{
    BertConfig, Tokens, Weights, chat::Message, gguf::Gguf, image, language::LanguageModel, npy, onnx::Model,
};
use eutectic_rewrites::{RuleSet, read_graph};

use crate::checkpoint::checkpoint;

/// The format of a reader's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bytes without a known structure.
    Bytes,
    /// Words, numbers, strings and brackets.
    Text,
    /// Fields of a protocol buffer.
    Fields,
    /// A length of eight bytes, text of that length, then bytes.
    Headed,
    /// Ten bytes that end in a length of two bytes, then text of that length, then bytes.
    Array,
    /// An archive of files.
    Archive,
}

/// The outcome of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reader accepted it.
    Accepted,
    /// The reader refused it with a reason.
    Refused,
    /// The reader broke its promise.
    Wrong(String),
}

/// A temporary folder for files that are read from the disk.
pub struct Place {
    // `TempDir` removes the folder when it is dropped.
    folder: tempfile::TempDir,
}

impl Place {
    /// Returns a new temporary folder.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new() -> io::Result<Place> {
        Ok(Place { folder: tempfile::tempdir()? })
    }

    /// Returns the path of a file with this content.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).expect("the temporary folder can be written");
        path
    }
}

/// A reader.
#[derive(Clone, Copy)]
pub struct Reader {
    /// Its name.
    pub name: &'static str,
    /// The format of its files.
    pub form: Form,
    /// Reads a file.
    pub read: fn(&Place, &[u8]) -> Outcome,
}

/// All readers.
pub const READERS: &[Reader] = &[
    Reader { name: "graph", form: Form::Text, read: graph },
    Reader { name: "rules", form: Form::Text, read: rules },
    Reader { name: "onnx", form: Form::Fields, read: onnx },
    Reader { name: "safetensors", form: Form::Headed, read: weights },
    Reader { name: "checkpoint", form: Form::Archive, read: weights },
    Reader { name: "pickle", form: Form::Bytes, read: pickle },
    Reader { name: "costs", form: Form::Text, read: costs },
    Reader { name: "gpu-costs", form: Form::Text, read: gpu_costs },
    Reader { name: "npy", form: Form::Array, read: array },
    Reader { name: "config", form: Form::Text, read: config },
    Reader { name: "tokenizer", form: Form::Text, read: tokenizer },
    Reader { name: "gguf", form: Form::Bytes, read: gguf },
    Reader { name: "language", form: Form::Bytes, read: language },
    Reader { name: "image", form: Form::Bytes, read: picture },
];

/// Returns the outcome of a result. An error without a message is a broken promise.
fn ended<T, E: std::fmt::Display>(result: Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Accepted,
        Err(error) if error.to_string().trim().is_empty() => Outcome::Wrong("the error has no message".into()),
        Err(_) => Outcome::Refused,
    }
}

/// Refuses bytes that are not UTF-8, because readers of text take strings only.
fn utf8(bytes: &[u8], read: impl FnOnce(&str) -> Outcome) -> Outcome {
    std::str::from_utf8(bytes).map_or(Outcome::Refused, read)
}

/// Checks that a graph that was read prints as text that reads as the same graph.
fn graph(_: &Place, bytes: &[u8]) -> Outcome {
    utf8(bytes, |written| match read_graph(&Source::new("damaged.graph", written), &Ops::default()) {
        Err(errors) => ended(Err::<(), _>(errors)),
        Ok(graph) => {
            let printed = text::print(&graph, text::Style::default());
            match read_graph(&Source::new("printed.graph", printed.clone()), &Ops::default()) {
                Ok(again) if again == graph => Outcome::Accepted,
                // A NaN is never equal to itself.
                Ok(again) if text::print(&again, text::Style::default()) == printed => Outcome::Accepted,
                Ok(_) => Outcome::Wrong(format!("the graph prints as text that reads as another graph:\n{printed}")),
                Err(errors) => {
                    Outcome::Wrong(format!("the graph prints as text that does not read: {errors}\n{printed}"))
                }
            }
        }
    })
}

fn rules(_: &Place, bytes: &[u8]) -> Outcome {
    utf8(bytes, |text| ended(RuleSet::read(&[Source::new("damaged.rules", text)])))
}

/// Reads a model with every symbol bound to 2, and its parameters.
fn onnx(place: &Place, bytes: &[u8]) -> Outcome {
    let model = match Model::open(place.file("damaged.onnx", bytes)) {
        Ok(model) => model,
        Err(error) => return ended(Err::<(), _>(error)),
    };
    let shapes = model.symbols().into_iter().map(|name| (name, Dim::Known(2))).collect();
    let _ = (model.summary(), model.unknown_ops());
    ended(model.import(&shapes).and_then(|imported| imported.params()))
}

fn weights(place: &Place, bytes: &[u8]) -> Outcome {
    ended(Weights::open(place.file("damaged.bin", bytes)).map(|weights| {
        let names: Vec<String> = weights.names().map(|(name, _)| name.to_string()).collect();
        names.iter().filter_map(|name| weights.get(name)).map(|tensor| tensor.to_f64().len()).sum::<usize>()
    }))
}

/// Reads an archive like [`weights`], with the bytes of its list of tensors damaged.
fn pickle(place: &Place, bytes: &[u8]) -> Outcome {
    weights(place, &checkpoint(bytes))
}

fn costs(_: &Place, bytes: &[u8]) -> Outcome {
    utf8(bytes, |text| ended(Costs::default().over(text)))
}

fn gpu_costs(_: &Place, bytes: &[u8]) -> Outcome {
    utf8(bytes, |text| ended(eutectic_gpu::cost::Costs::read(text)))
}

/// Checks that an array that was read is written to a file that reads as the same array.
fn array(_: &Place, bytes: &[u8]) -> Outcome {
    match npy::read(bytes.to_vec()) {
        Err(error) => ended(Err::<(), _>(error)),
        Ok(tensor) => match npy::header(&tensor).and_then(|header| npy::read([&header, tensor.bytes()].concat())) {
            Ok(again) if again.ty() == tensor.ty() && again.bytes() == tensor.bytes() => Outcome::Accepted,
            other => Outcome::Wrong(format!("the written file reads as another array: {:?}", other.map(|t| t.ty()))),
        },
    }
}

fn config(place: &Place, bytes: &[u8]) -> Outcome {
    ended(BertConfig::open(place.file("config.json", bytes)))
}

fn tokenizer(place: &Place, bytes: &[u8]) -> Outcome {
    ended(
        Tokens::open(place.file("tokenizer.json", bytes), 64)
            .map(|tokens| tokens.encode("A cat, and another.").is_ok()),
    )
}

/// Decodes every tensor, and reads every value.
fn gguf(place: &Place, bytes: &[u8]) -> Outcome {
    ended(Gguf::open(place.file("damaged.gguf", bytes)).map(|file| {
        let arrays = file.metadata().values().filter_map(|value| value.array());
        let values: usize = arrays.map(|array| array.texts().count() + array.numbers().count()).sum();
        values + file.tensors().values().map(|tensor| tensor.decode().count()).sum::<usize>()
    }))
}

/// Reads a file like [`gguf`], and the other parts of a language model: a vocabulary, a template and a program.
fn language(place: &Place, bytes: &[u8]) -> Outcome {
    let model = LanguageModel::open(place.file("damaged.gguf", bytes));
    ended(model.map(|model| {
        let program = model.decoder(64).is_ok_and(|decoder| decoder.program(8).is_ok());
        let texts =
            [model.prompt("The cat, and 12 others.").is_ok(), model.chat_prompt(&[Message::new("user", "?")]).is_ok()];
        (program, texts)
    }))
}

fn picture(place: &Place, bytes: &[u8]) -> Outcome {
    ended(image::open(&place.file("damaged.png", bytes)))
}
