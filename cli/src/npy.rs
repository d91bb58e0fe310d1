//! Tensors from and to `.npy` files, and the standard streams.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use eutectic::{
    Tensor,
    engine::models::npy::{self, NpyError},
};

use crate::{
    fault::{Fault, input},
    files, output,
};

/// Reads a tensor.
///
/// # Errors
/// When the file cannot be read, is no `.npy` file, or holds what tensors cannot.
pub fn read(path: &Path) -> Result<Tensor, Fault> {
    let place = path.display();
    let bytes = files::read(path)
        .map_err(|e| input(format!("{place}: {e}"), "name a .npy file that can be read, or - for stdin"))?;
    npy::read(bytes).map_err(|problem| {
        input(
            format!("{place}: not a usable .npy file: {problem}"),
            "write it with numpy.save, as a dense array of a plain little-endian number type",
        )
    })
}

/// The parser of `[NAME=]FILE.npy`: a file that ends as those of another format do would not be what it says. Pipes and
/// devices, which end in nothing, take numbers all the same.
pub fn target() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let named = path.to_str().and_then(|text| text.split_once('='));
        let ending = Path::new(named.map_or(path.as_os_str(), |(_, file)| file.as_ref())).extension();
        match ending.filter(|ending| !ending.eq_ignore_ascii_case("npy")) {
            None => Ok(path),
            Some(ending) => {
                Err(format!("no .{} files are written: name a .npy file, or - for stdout", ending.to_string_lossy()))
            }
        }
    })
}

/// Writes a tensor.
///
/// # Errors
/// When the file cannot be written, or the format has no such element type.
pub fn write(path: &Path, tensor: &Tensor) -> Result<(), Fault> {
    let header = npy::header(tensor).map_err(|problem| {
        let help = match problem {
            NpyError::ElementType(_) => "let the graph cast its output to f32",
            _ => "let the graph reshape its output",
        };
        input(format!("{}: {problem}", path.display()), help)
    })?;
    output::write(path, &[&header, tensor.bytes()])
}
