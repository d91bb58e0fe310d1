//! Parses values of arguments: numbers, and named arrays.

use std::{
    collections::BTreeMap,
    num::{IntErrorKind, ParseIntError},
    path::PathBuf,
    str::FromStr,
};

use eutectic::{Dim, Tensor};

use crate::{
    fault::{Fault, input},
    npy,
};

/// Tensors by name.
pub type NamedTensors = BTreeMap<String, Tensor>;

/// Parses an integer that is not negative.
///
/// # Errors
/// If it is not such an integer, or too large for its type.
pub fn whole<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|e: ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => {
            format!("it is too large for {} bits", 8 * size_of::<N>())
        }
        _ => "expected a whole number that is not negative, as in 8".into(),
    })
}

/// Parses `NAME=N`, or `NAME=A..B` for a run-time extent from A to B.
///
/// # Errors
/// If the text has another form.
pub fn shape(text: &str) -> Result<(String, Dim), String> {
    let (name, length) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected NAME=N, as in B=8")?;
    let number = |text: &str| text.parse::<i64>().ok().filter(|n| *n >= 0);
    let dim = match length.split_once("..") {
        None => number(length).map(Dim::Known),
        Some((least, most)) => {
            let bounds = number(least).zip(number(most)).filter(|(least, most)| least <= most);
            bounds.map(|(least, most)| Dim::between(name, least, most))
        }
    };
    let wanted = "expected NAME=N with a number that is not negative, or NAME=A..B with the least and the most";
    dim.map(|dim| (name.into(), dim)).ok_or(wanted.into())
}

/// Formats a dim as an argument of `--shape`.
pub fn length(dim: &Dim) -> String {
    match dim.range() {
        Some((least, most)) if dim.known().is_none() => format!("{least}..{most}"),
        _ => dim.to_string(),
    }
}

/// Parses a named file, `NAME=@FILE.npy`.
///
/// # Errors
/// If the text has another form.
pub fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once("=@") {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected NAME=@FILE.npy".into()),
    }
}

/// Reads the arrays of an option that may be repeated, by name.
///
/// # Errors
/// If a file is not a usable `.npy` file, or a name is given twice.
pub fn read_named(flag: &str, files: &[(String, PathBuf)]) -> Result<NamedTensors, Fault> {
    let mut tensors = NamedTensors::new();
    for (name, path) in files {
        if tensors.insert(name.clone(), npy::read(path)?).is_some() {
            return Err(input(format!("{flag} {name} is given twice"), "give each name once"));
        }
    }
    Ok(tensors)
}
