//! Reads and writes tensors as `.npy` files, or on stdin and stdout.

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
/// If the file cannot be read, is not a `.npy` file, or has elements that tensors do not support.
pub fn read(path: &Path) -> Result<Tensor, Fault> {
    let place = path.display();
    let bytes =
        files::read(path).map_err(|e| input(format!("{place}: {e}"), "name a readable .npy file, or - for stdin"))?;
    npy::read(bytes).map_err(|problem| {
        input(
            format!("cannot read {place} as .npy: {problem}"),
            "write it with numpy.save, as a dense array of a plain little-endian number type",
        )
    })
}

/// Returns the parser of `[NAME=]FILE.npy`. It rejects extensions of other formats. Paths without an extension are
/// accepted, because they may be pipes or devices.
pub fn target() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let named = path.to_str().and_then(|text| text.split_once('='));
        let ending = Path::new(named.map_or(path.as_os_str(), |(_, file)| file.as_ref())).extension();
        match ending.filter(|ending| !ending.eq_ignore_ascii_case("npy")) {
            None => Ok(path),
            Some(ending) => {
                Err(format!("cannot write .{} files; name a .npy file, or - for stdout", ending.to_string_lossy()))
            }
        }
    })
}

/// Writes a tensor.
///
/// # Errors
/// If the file cannot be written, or if the format lacks the tensor's element type.
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
