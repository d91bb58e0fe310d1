//! Maps the tensors of a safetensors file or of a torch checkpoint into memory, and matches them with a program's
//! parameters.

mod file;
mod pickle;
mod safetensors;
mod torch;

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use eutectic_ir::{Tensor, Type};
use memmap2::Mmap;

use self::file::FileTensor;
pub(crate) use self::file::Mapped;

/// The tensors of a file by name. The file stays mapped as long as one of its tensors exists. It must not be truncated
/// during that time: a read beyond the end of a mapped file raises SIGBUS, which ends the process.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    tensors: BTreeMap<String, Entry>,
}

/// A tensor under its current name.
#[derive(Debug)]
struct Entry {
    /// The name in the file. It differs if the tensor was renamed.
    spelled: String,
    stored: FileTensor,
}

/// The values of a program's parameters.
#[derive(Clone, Debug)]
pub struct BoundParams {
    /// The value of each parameter.
    pub tensors: BTreeMap<String, Tensor>,
    /// The parameters that were widened from a narrower float type, with the type in the file. Widening changes no
    /// value.
    pub widened: Vec<(String, Type)>,
}

/// The reason why weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is damaged or has an unknown format.
    #[error("{}: not a valid {format}: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that was assumed.
        format: &'static str,
        /// The error.
        problem: String,
    },
    /// The tensors of the file are not those that the program's parameters need.
    #[error("{}: the tensors do not fit the model:{}", .path.display(), list(.problems))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All differences: missing tensors first, then tensors of another type, then extra ones.
        problems: Vec<Misfit>,
    },
}

/// A difference between a file and a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The program has a parameter for which the file has no tensor.
    Missing {
        /// The parameter's name.
        name: String,
        /// The parameter's type.
        expected: Type,
    },
    /// The file's tensor has another type than the parameter, and widening its float type would not give that type.
    Wrong {
        /// The parameter's name.
        name: String,
        /// The parameter's type.
        expected: Type,
        /// The tensor's type in the file.
        found: String,
    },
    /// The file has a tensor for which the program has no parameter.
    Extra {
        /// The tensor's name.
        name: String,
        /// The tensor's type in the file.
        found: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Missing { name, expected } => write!(f, "{name}: missing, expected {expected}"),
            Misfit::Wrong { name, expected, found } => write!(f, "{name}: expected {expected}, found {found}"),
            Misfit::Extra { name, found } => write!(f, "{name}: {found} is not part of the model"),
        }
    }
}

/// The largest number of listed differences of each kind.
const LISTED: usize = 12;

/// Lists the first differences of each kind. Missing names next to extra names show the user which model the file is
/// for.
fn list(problems: &[Misfit]) -> String {
    let kinds = problems.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b));
    let kind = |same: &[Misfit]| {
        let shown: String = same.iter().take(LISTED).map(|p| format!("\n  {p}")).collect();
        let rest = same.len().saturating_sub(LISTED);
        shown + &if rest > 0 { format!("\n  … and {rest} more of these") } else { String::new() }
    };
    kinds.map(kind).collect()
}

impl Weights {
    /// Maps a safetensors file, or a checkpoint of `torch.save`, and lists its tensors without reading their elements.
    /// Code in a checkpoint is not executed.
    ///
    /// # Errors
    /// If the file cannot be opened, is truncated or damaged, or contains objects other than tensors. Damage within the
    /// elements of a tensor is not detected.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, WeightsError> {
        let path = path.as_ref().to_path_buf();
        let io = |source| WeightsError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: this process only reads the map. It cannot prevent other processes from truncating the file, so the
        // documentation of `Weights` forbids that.
        let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(io)?);
        let (format, tensors) = if torch::is_archive(&map) {
            ("torch checkpoint", torch::tensors(&map))
        } else if torch::is_bare_pickle(&map) {
            ("torch checkpoint", Err(torch::BARE.into()))
        } else {
            ("safetensors file", safetensors::tensors(&map))
        };
        let entry = |(name, stored): (String, _)| (name.clone(), Entry { spelled: name, stored });
        match tensors {
            Ok(tensors) => Ok(Weights { path, tensors: tensors.into_iter().map(entry).collect() }),
            Err(problem) => Err(WeightsError::Format { path, format, problem }),
        }
    }

    /// Renames the tensors. `rename` returns the new name of a tensor and a rank, or `None` to drop the tensor. If
    /// several tensors get one name, that with the lowest rank stays.
    pub fn renamed(self, rename: impl Fn(&str) -> Option<(usize, String)>) -> Weights {
        let mut ranked = BTreeMap::<String, (usize, Entry)>::new();
        for (name, entry) in self.tensors {
            let Some((rank, name)) = rename(&name) else { continue };
            if ranked.get(&name).is_none_or(|(best, _)| rank < *best) {
                ranked.insert(name, (rank, entry));
            }
        }
        Weights { path: self.path, tensors: ranked.into_iter().map(|(name, (_, entry))| (name, entry)).collect() }
    }

    /// Replaces a tensor by the tensors that `parts` returns. The tensor stays if `parts` returns `None`.
    pub fn replace(&mut self, name: &str, parts: impl FnOnce(&Tensor) -> Option<Vec<(String, Tensor)>>) {
        let Some(parts) = self.get(name).and_then(parts) else { return };
        let Some(Entry { spelled, .. }) = self.tensors.remove(name) else { return };
        for (name, tensor) in parts {
            self.tensors.insert(name, Entry { spelled: spelled.clone(), stored: FileTensor::Usable(tensor) });
        }
    }

    /// Returns the names of all tensors, sorted, with the types in the file.
    pub fn names(&self) -> impl Iterator<Item = (&str, String)> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), entry.stored.to_string()))
    }

    /// Returns a tensor. Returns `None` if the file lacks it, or if programs do not have its element type.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        match &self.tensors.get(name)?.stored {
            FileTensor::Usable(tensor) => Some(tensor),
            FileTensor::Foreign(_) => None,
        }
    }

    /// Returns the values of parameters. Widens a tensor of a narrower float type to the parameter's type, for example
    /// `f16` to `f32`, which changes no value. Other conversions are errors.
    ///
    /// Tensors without a parameter are errors, unless their name matches one of the patterns `ignored`. A `*` at the
    /// start or the end of a pattern matches any text.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`] with all tensors that are missing, wrong or extra.
    pub fn bind<'a>(
        &self,
        params: impl IntoIterator<Item = (&'a str, &'a Type)>,
        ignored: &[&str],
    ) -> Result<BoundParams, WeightsError> {
        let mut bound = BoundParams { tensors: BTreeMap::new(), widened: Vec::new() };
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        let mut unused: BTreeMap<&str, &Entry> = self.tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
        for (name, expected) in params {
            unused.remove(name);
            match self.tensors.get(name) {
                None => missing.push(Misfit::Missing { name: name.into(), expected: expected.clone() }),
                Some(Entry { stored: FileTensor::Usable(tensor), .. }) if tensor.ty() == *expected => {
                    bound.tensors.insert(name.into(), tensor.clone());
                }
                Some(Entry { stored, spelled }) => match stored.widened(expected) {
                    Some((narrow, tensor)) => {
                        bound.widened.push((name.into(), narrow));
                        bound.tensors.insert(name.into(), tensor);
                    }
                    None => {
                        let found = stored.to_string();
                        wrong.push(Misfit::Wrong { name: spelled.clone(), expected: expected.clone(), found });
                    }
                },
            }
        }
        let extra = unused.into_iter().filter(|(name, _)| !ignored.iter().any(|pattern| matches(pattern, name)));
        let extra = extra.map(|(_, e)| Misfit::Extra { name: e.spelled.clone(), found: e.stored.to_string() });
        let problems: Vec<_> = missing.into_iter().chain(wrong).chain(extra).collect();
        if problems.is_empty() { Ok(bound) } else { Err(WeightsError::Mismatch { path: self.path.clone(), problems }) }
    }
}

/// Returns whether a name matches a pattern with `*` at its start or its end.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}
