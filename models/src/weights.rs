//! Weights: the tensors of a safetensors file or of a torch checkpoint. They are mapped into memory and matched with a
//! program's parameters.

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

/// The tensors of a file by name. The file stays mapped while one of its tensors exists. It must not be truncated
/// during that time. As with every memory map, a read would then end the process.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    tensors: BTreeMap<String, Entry>,
}

/// The tensor of a name.
#[derive(Debug)]
struct Entry {
    /// The name in the file, which may differ.
    spelled: String,
    stored: FileTensor,
}

/// Parameters with their values.
#[derive(Clone, Debug)]
pub struct BoundParams {
    /// The value of each parameter.
    pub tensors: BTreeMap<String, Tensor>,
    /// The parameters that were widened from a narrower float, with the type in the file. Widening is exact.
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
        /// The assumed format.
        format: &'static str,
        /// The error.
        problem: String,
    },
    /// The tensors of the file do not fit the parameters of the program.
    #[error("{}: the tensors do not fit the model:{}", .path.display(), list(.problems))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All differences: missing tensors first, then wrong ones, then extra ones.
        problems: Vec<Misfit>,
    },
}

/// A difference between a file and a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The program has this parameter, but the file has no such tensor.
    Missing {
        /// Its name.
        name: String,
        /// The parameter's type.
        expected: Type,
    },
    /// The types differ by more than a float that can be widened.
    Wrong {
        /// Its name.
        name: String,
        /// The parameter's type.
        expected: Type,
        /// The tensor's type, as the file has it.
        found: String,
    },
    /// The file has this tensor, but the program has no such parameter.
    Extra {
        /// Its name.
        name: String,
        /// The tensor's type, as the file has it.
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

/// The number of differences of each kind that are listed.
const LISTED: usize = 12;

/// Lists the first differences of each kind. Missing and extra names together show the kind of the file.
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
    /// Maps a safetensors file, or a checkpoint of `torch.save`, and lists its tensors. Their elements are not read
    /// yet. Nothing in a checkpoint is executed.
    ///
    /// # Errors
    /// If the file cannot be opened, is truncated or damaged, or contains objects other than tensors. A changed byte
    /// within a tensor is not detected.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, WeightsError> {
        let path = path.as_ref().to_path_buf();
        let io = |source| WeightsError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the map is only read. The process cannot prevent others from truncating the file; see the
        // documentation of the type.
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

    /// Renames the tensors. `rename` returns the new name and its rank. If new names are equal, the tensor with the
    /// lowest rank stays. Tensors without a new name are dropped.
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

    /// Replaces a tensor by the tensors that `parts` returns. If it returns none, the tensor stays.
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

    /// Returns a tensor, if the file has it and programs have its element type.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        match &self.tensors.get(name)?.stored {
            FileTensor::Usable(tensor) => Some(tensor),
            FileTensor::Foreign(_) => None,
        }
    }

    /// Returns the values of parameters. A float is widened if the parameter is a wider float, for example `f16` in the
    /// file and `f32` in the program. This is exact. All other conversions are refused.
    ///
    /// Tensors that are no parameter are an error, unless their name matches one of `ignored`. A `*` at the start or
    /// the end of a pattern matches any text.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`], which lists everything that is missing, wrong or extra.
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
