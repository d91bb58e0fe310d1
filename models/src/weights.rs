//! Weights: the tensors of a safetensors file, mapped into memory and matched with a program's parameters.
//!
//! The format is an eight-byte length, a JSON header (name → element type, shape, byte range) and the bytes:
//! <https://github.com/huggingface/safetensors#format>.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use eutectic_ir::{DType, Tensor, Type};
use memmap2::Mmap;
use safetensors::{Dtype, tensor::Metadata};

/// Bytes of the header's length.
const PREFIX: usize = 8;

/// The tensors of a file by name. The file stays mapped as long as one of its tensors lives; it must not be truncated
/// meanwhile (as with every memory map, reading would then end the process).
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

/// A tensor of the file.
#[derive(Debug)]
enum Stored {
    /// Of an element type that programs have.
    Usable(Tensor),
    /// Of another one; described as `F8_E4M3[384 384]`.
    Foreign(String),
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stored::Usable(tensor) => tensor.ty().fmt(f),
            Stored::Foreign(text) => f.write_str(text),
        }
    }
}

/// Part of a memory map.
struct Mapped {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

/// Parameters with their values.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The value of each parameter.
    pub tensors: BTreeMap<String, Tensor>,
    /// The parameters that were widened from a narrower float, with the type in the file; nothing is rounded by that.
    pub widened: Vec<(String, Type)>,
}

/// Why weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no safetensors file, or a damaged one.
    #[error("{}: not a valid safetensors file: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The file's tensors are not the program's parameters.
    #[error("{}: the tensors do not fit the model:{}", .path.display(), list(.problems))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Everything that does not fit: missing ones first, then wrong ones, then extra ones.
        problems: Vec<Misfit>,
    },
}

/// One tensor that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The program has such a parameter, the file has no such tensor.
    Missing {
        /// Its name.
        name: String,
        /// The parameter's type.
        expected: Type,
    },
    /// The types differ, and not only by a float that can be widened.
    Wrong {
        /// Its name.
        name: String,
        /// The parameter's type.
        expected: Type,
        /// The tensor's type, as the file has it.
        found: String,
    },
    /// The file has such a tensor, the program has no such parameter.
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

/// How many tensors of one kind of misfit are listed.
const LISTED: usize = 12;

/// The first of each kind: missing names and extra ones side by side show what a file is.
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
    /// Maps a safetensors file and checks its header; no tensor is read yet.
    ///
    /// # Errors
    /// When it cannot be opened, or is truncated or damaged. (A changed byte within a tensor cannot be noticed: the
    /// format has no checksum.)
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, WeightsError> {
        let path = path.as_ref().to_path_buf();
        let io = |source| WeightsError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the map is only read. That nobody truncates the file meanwhile cannot be enforced; see the type's docs.
        let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(io)?);
        match tensors(&map) {
            Ok(tensors) => Ok(Weights { path, tensors }),
            Err(problem) => Err(WeightsError::Format { path, problem }),
        }
    }

    /// The names of all tensors, sorted, with the types as the file has them.
    pub fn names(&self) -> impl Iterator<Item = (&str, String)> {
        self.tensors.iter().map(|(name, stored)| (name.as_str(), stored.to_string()))
    }

    /// One tensor, if the file has it and its element type is one that programs have.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        match self.tensors.get(name)? {
            Stored::Usable(tensor) => Some(tensor),
            Stored::Foreign(_) => None,
        }
    }

    /// The values of parameters. A float is widened where the parameter is a wider one (f16 or bf16 in
    /// the file, f32 in the program): that is exact. All other conversions are refused.
    ///
    /// Tensors that no parameter asks for are an error, unless their name matches one of `ignored`, where a `*` at the
    /// start or the end stands for anything.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`] with everything that is missing, wrong or extra.
    pub fn bind<'a>(
        &self,
        params: impl IntoIterator<Item = (&'a str, &'a Type)>,
        ignored: &[&str],
    ) -> Result<Bound, WeightsError> {
        let mut bound = Bound { tensors: BTreeMap::new(), widened: Vec::new() };
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        let mut unused: BTreeMap<&str, &Stored> = self.tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
        for (name, expected) in params {
            unused.remove(name);
            match self.tensors.get(name) {
                None => missing.push(Misfit::Missing { name: name.into(), expected: expected.clone() }),
                Some(Stored::Usable(tensor)) if tensor.ty() == *expected => {
                    bound.tensors.insert(name.into(), tensor.clone());
                }
                Some(stored) => match stored.widened(expected) {
                    Some((narrow, tensor)) => {
                        bound.widened.push((name.into(), narrow));
                        bound.tensors.insert(name.into(), tensor);
                    }
                    None => {
                        let found = stored.to_string();
                        wrong.push(Misfit::Wrong { name: name.into(), expected: expected.clone(), found });
                    }
                },
            }
        }
        let extra = unused.into_iter().filter(|(name, _)| !ignored.iter().any(|pattern| matches(pattern, name)));
        let extra = extra.map(|(name, found)| Misfit::Extra { name: name.into(), found: found.to_string() });
        let problems: Vec<_> = missing.into_iter().chain(wrong).chain(extra).collect();
        if problems.is_empty() { Ok(bound) } else { Err(WeightsError::Mismatch { path: self.path.clone(), problems }) }
    }
}

impl Stored {
    /// The type in the file and the tensor in the wider float type that is asked for, where only that differs.
    fn widened(&self, wanted: &Type) -> Option<(Type, Tensor)> {
        let (Stored::Usable(tensor), Some((to, _))) = (self, wanted.as_tensor()) else {
            return None;
        };
        let exact = matches!(
            (tensor.dtype(), to),
            (DType::F16 | DType::Bf16, DType::F32 | DType::F64) | (DType::F32, DType::F64)
        );
        (exact && wanted.dims().as_deref() == Some(tensor.dims()))
            .then(|| (tensor.ty(), Tensor::from_f64(to, tensor.dims(), tensor.to_f64())))
    }
}

/// Whether a name fits a pattern with `*` at its start or its end.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

/// Reads the header; what is wrong with it otherwise.
fn tensors(map: &Arc<Mmap>) -> Result<BTreeMap<String, Stored>, String> {
    let prefix = map.first_chunk::<PREFIX>().ok_or(format!("{} bytes are too few for a header", map.len()))?;
    let length = u64::from_le_bytes(*prefix);
    let data = usize::try_from(length).ok().and_then(|n| n.checked_add(PREFIX)).filter(|&end| end <= map.len());
    let data = data.ok_or(format!("its header would take {length} bytes, the file has {}", map.len()))?;
    // The offsets' order, that they meet without a gap and that they fit the shapes is checked in `Metadata`. That
    // they end with the file is checked here, as `SafeTensors::deserialize` adds sizes there without looking.
    let header: Metadata = serde_json::from_slice(&map[PREFIX..data]).map_err(|e| format!("its header: {e}"))?;
    if header.data_len() != map.len() - data {
        return Err(format!(
            "its tensors take {} bytes, the file has {} for them",
            header.data_len(),
            map.len() - data
        ));
    }
    let stored = |name: &str| {
        let info = header.info(name).expect("the names come from this header");
        let foreign = || {
            let dims: Vec<_> = info.shape.iter().map(usize::to_string).collect();
            format!("{}[{}]", info.dtype, dims.join(" "))
        };
        let Some(dtype) = dtype(info.dtype) else {
            return Ok(Stored::Foreign(foreign()));
        };
        let range = data + info.data_offsets.0..data + info.data_offsets.1;
        let tensor = Tensor::new(dtype, &info.shape, Mapped { map: map.clone(), range })
            .map_err(|e| format!("tensor `{name}`: {e}"))?;
        if dtype == DType::Bool && tensor.bytes().iter().any(|&b| b > 1) {
            return Err(format!("tensor `{name}`: {} holds a byte that is neither 0 nor 1", tensor.ty()));
        }
        Ok(Stored::Usable(tensor))
    };
    header.offset_keys().into_iter().map(|name| stored(&name).map(|s| (name, s))).collect()
}

/// The element type of ours, if there is one.
fn dtype(of: Dtype) -> Option<DType> {
    Some(match of {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U32 => DType::U32,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}
