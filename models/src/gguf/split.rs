//! Reads models that are split into several files, named `NAME-00001-of-00003.gguf` and so on.

use std::path::{Path, PathBuf};

use super::{error::GgufError, metadata::Value, part::Part};

/// Opens all files of a split model. Returns the metadata of the first file and the tensors of all files. Returns
/// `opened`, the file at `path`, if the model is not split.
pub(super) fn whole(path: &Path, opened: Part) -> Result<Part, GgufError> {
    let size = |key: &str| opened.metadata.get(key).and_then(Value::size);
    let fault = |problem: String, remedy| GgufError::Split { path: path.into(), problem, remedy };
    let (count, expected) = (size("split.count").unwrap_or(1), size("split.tensors.count"));
    if count <= 1 {
        return Ok(opened);
    }
    let paths = siblings(path, count).ok_or_else(|| {
        let problem = format!("it has {count} files, and its name does not end in -00001-of-{count:05}.gguf");
        fault(problem, "give the files their original names")
    })?;
    let mut all: Option<Part> = None;
    for (number, other) in paths.iter().enumerate() {
        let part = Part::open(other)?;
        let place = part.metadata.get("split.no").and_then(Value::size);
        if place != Some(number) {
            let place = place.map_or("missing".into(), |place| place.to_string());
            let problem = format!("`split.no` in {} is {place}, but must be {number}", other.display());
            return Err(fault(problem, "give the files their original names"));
        }
        match &mut all {
            None => all = Some(part),
            Some(all) => {
                for (name, tensor) in part.tensors {
                    if all.tensors.insert(name.clone(), tensor).is_some() {
                        let problem = format!("two files have the tensor `{name}`");
                        return Err(fault(problem, "download the files again"));
                    }
                }
            }
        }
    }
    let all = all.expect("there is more than one file");
    match expected {
        Some(expected) if expected != all.tensors.len() => {
            let problem = format!("its files have {} tensors, but its metadata states {expected}", all.tensors.len());
            Err(fault(problem, "download the files again"))
        }
        _ => Ok(all),
    }
}

/// Returns the paths of all files of a split model. `path` is one of them, and `count` their number.
fn siblings(path: &Path, count: usize) -> Option<Vec<PathBuf>> {
    /// The largest number that fits in the five digits of these file names.
    const MOST: usize = 99_999;
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-of-{count:05}.gguf")).filter(|_| count <= MOST)?;
    let (stem, number) = stem.rsplit_once('-')?;
    let own = number.parse::<usize>().ok().filter(|n| number.len() == 5 && (1..=count).contains(n));
    own?;
    Some((1..=count).map(|n| path.with_file_name(format!("{stem}-{n:05}-of-{count:05}.gguf"))).collect())
}
