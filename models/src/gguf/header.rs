//! Reads the header of a GGUF file: the metadata and the list of tensors. Every length is compared with the rest of the
//! file before it is used, so a damaged file cannot cause a huge allocation.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use memmap2::Mmap;

use super::{
    format,
    metadata::{Array, Kind, Value},
};

const DAMAGED: &str = "the file is damaged or was not downloaded whole: get it again";
const OTHER: &str = "convert the model to GGUF of version 3, little-endian";

/// A defect of a file: its offset in bytes, its description, and a remedy for the user.
pub(super) struct Problem {
    pub at: usize,
    pub problem: String,
    pub remedy: &'static str,
}

/// The contents of a header.
pub(super) struct Header {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<Stored>,
}

/// An entry in the list of tensors, with the byte range of its data.
pub(super) struct Stored {
    pub name: String,
    /// The extents, outermost axis first.
    pub dims: Vec<usize>,
    /// The number of the tensor's format in GGUF files.
    pub format: u32,
    /// The bytes of the tensor in the file. The range is empty if the format is unknown.
    pub range: Range<usize>,
}

type Read<T> = Result<T, Problem>;

/// Reads the header of a mapped file.
pub(super) fn read(map: &Arc<Mmap>) -> Read<Header> {
    let mut cursor = Cursor { map, at: 0 };
    let [tensor_count, metadata_count] = cursor.start()?;
    let mut metadata = BTreeMap::new();
    for _ in 0..metadata_count {
        let at = cursor.at;
        let key = cursor.text("the key of a value")?.to_string();
        let value = cursor.value(&key)?;
        if metadata.contains_key(&key) {
            return Err(Problem { at, problem: format!("the key `{key}` appears twice"), remedy: DAMAGED });
        }
        metadata.insert(key, value);
    }
    let alignment = cursor.alignment(&metadata)?;
    let mut listed = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..tensor_count {
        let entry = cursor.entry()?;
        if !names.insert(entry.name.clone()) {
            let problem = format!("the tensor `{}` is listed twice", entry.name);
            return Err(Problem { at: entry.at, problem, remedy: DAMAGED });
        }
        listed.push(entry);
    }
    let data = cursor
        .at
        .checked_next_multiple_of(alignment)
        .ok_or_else(|| cursor.problem("the place of the data exceeds the address space"))?;
    let tensors = listed.into_iter().map(|entry| entry.placed(map, data, alignment)).collect::<Read<_>>()?;
    Ok(Header { metadata, tensors })
}

struct Cursor<'a> {
    map: &'a Arc<Mmap>,
    at: usize,
}

/// An entry of the list of tensors, before its offset is checked and its byte range is known.
struct Entry {
    at: usize,
    name: String,
    dims: Vec<usize>,
    format: u32,
    offset: u64,
}

impl<'a> Cursor<'a> {
    fn problem(&self, problem: impl Into<String>) -> Problem {
        Problem { at: self.at, problem: problem.into(), remedy: DAMAGED }
    }

    fn take(&mut self, bytes: usize, what: &str) -> Read<&'a [u8]> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.map.len());
        let end = end.ok_or_else(|| {
            let left = self.map.len() - self.at;
            self.problem(format!("cannot read {what} because it takes {bytes} bytes and {left} are left"))
        })?;
        let taken = &self.map[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Read<u32> {
        Ok(u32::from_le_bytes(self.take(4, what)?.try_into().expect("the slice has four bytes")))
    }

    fn u64(&mut self, what: &str) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8, what)?.try_into().expect("the slice has eight bytes")))
    }

    /// Reads a 64-bit length. Fails if it exceeds the address space.
    fn length(&mut self, what: &str) -> Read<usize> {
        let length = self.u64(what)?;
        usize::try_from(length)
            .map_err(|_| self.problem(format!("{what} is {length}, which exceeds the address space")))
    }

    fn text(&mut self, what: &str) -> Read<&'a str> {
        let length = self.length(what)?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        let invalid = |_| Problem { at, problem: format!("{what} is not UTF-8"), remedy: DAMAGED };
        std::str::from_utf8(bytes).map_err(invalid)
    }

    /// Reads the magic number and the version. Returns the number of tensors and the number of metadata values.
    fn start(&mut self) -> Read<[u64; 2]> {
        let magic = self.take(4, "the magic number")?;
        if magic != b"GGUF" {
            let problem = format!("the file begins with {magic:02x?} instead of `GGUF`");
            return Err(Problem { at: 0, problem, remedy: OTHER });
        }
        let version = self.u32("the version")?;
        if !matches!(version, 2 | 3) {
            let problem = match version.swap_bytes() {
                2 | 3 => "the file is big-endian".into(),
                _ => format!("the version is {version}; versions 2 and 3 are supported"),
            };
            return Err(Problem { at: 4, problem, remedy: OTHER });
        }
        Ok([self.u64("the number of tensors")?, self.u64("the number of values")?])
    }

    fn kind(&mut self, key: &str) -> Read<Kind> {
        let number = self.u32("the kind of a value")?;
        Kind::numbered(number)
            .ok_or_else(|| self.problem(format!("the value of `{key}` has the unknown kind {number}")))
    }

    fn value(&mut self, key: &str) -> Read<Value> {
        match self.kind(key)? {
            Kind::Text => Ok(Value::Text(self.text(key)?.into())),
            Kind::Array => self.array(key),
            kind => self.scalar(kind, key),
        }
    }

    fn scalar(&mut self, kind: Kind, key: &str) -> Read<Value> {
        let bytes = self.take(kind.bytes().unwrap_or_default(), key)?;
        kind.scalar(bytes).ok_or_else(|| self.problem(format!("the Boolean `{key}` is neither 0 nor 1")))
    }

    fn array(&mut self, key: &str) -> Read<Value> {
        let kind = self.kind(key)?;
        let count = self.length(key)?;
        let from = self.at;
        match (kind, kind.bytes()) {
            (Kind::Array, _) => {
                let problem = format!("`{key}` is an array of arrays");
                return Err(Problem { at: from, problem, remedy: "write its values as one array" });
            }
            (Kind::Bool, _) => {
                for _ in 0..count {
                    self.scalar(kind, key)?;
                }
            }
            (_, Some(size)) => {
                let bytes = count.checked_mul(size).ok_or_else(|| {
                    self.problem(format!("`{key}` has {count} values, which exceed the address space"))
                })?;
                self.take(bytes, key)?;
            }
            (_, None) => {
                for _ in 0..count {
                    self.text(key)?;
                }
            }
        }
        Ok(Value::Array(Array { kind, count, map: self.map.clone(), range: from..self.at }))
    }

    fn alignment(&self, metadata: &BTreeMap<String, Value>) -> Read<usize> {
        /// The alignment of tensor data in bytes if the file states none.
        const USUAL: usize = 32;
        match metadata.get("general.alignment") {
            None => Ok(USUAL),
            Some(value) => value
                .size()
                .filter(|n| n.is_power_of_two())
                .ok_or_else(|| self.problem(format!("`general.alignment` is {value}, not a power of two"))),
        }
    }

    fn entry(&mut self) -> Read<Entry> {
        let at = self.at;
        let name = self.text("the name of a tensor")?.to_string();
        let rank = self.u32("the rank of a tensor")?;
        /// The largest number of axes of a tensor in ggml.
        const MOST_AXES: u32 = 4;
        if rank > MOST_AXES {
            return Err(self.problem(format!("the tensor `{name}` has {rank} axes; at most {MOST_AXES} are allowed")));
        }
        let mut dims = (0..rank).map(|_| self.length("an extent of a tensor")).collect::<Read<Vec<_>>>()?;
        dims.reverse();
        let format = self.u32("the format of a tensor")?;
        let offset = self.u64("the place of a tensor")?;
        Ok(Entry { at, name, dims, format, offset })
    }
}

impl Entry {
    /// Computes the byte range of the tensor's data. `data` is the offset of the data section in the file.
    fn placed(self, map: &Mmap, data: usize, alignment: usize) -> Read<Stored> {
        let Entry { at, name, dims, format, offset } = self;
        let problem =
            |problem: String| Problem { at, problem: format!("the tensor `{name}` {problem}"), remedy: DAMAGED };
        let Some(known) = format::named(format) else {
            return Ok(Stored { name, dims, format, range: 0..0 });
        };
        let count = dims.iter().try_fold(1_usize, |all, n| all.checked_mul(*n));
        let count = count.ok_or_else(|| problem(format!("has extents {dims:?}, which exceed the address space")))?;
        let row = dims.last().copied().unwrap_or(1);
        if !row.is_multiple_of(known.block) {
            return Err(problem(format!(
                "has rows of {row} elements, but blocks of {} have {}",
                known.name, known.block
            )));
        }
        let start = usize::try_from(offset).ok().filter(|offset| offset.is_multiple_of(alignment));
        let start = start.and_then(|offset| data.checked_add(offset));
        let start = start.ok_or_else(|| problem(format!("begins at {offset}, not a multiple of {alignment}")))?;
        let end = (count / known.block).checked_mul(known.bytes).and_then(|bytes| start.checked_add(bytes));
        let end = end.filter(|end| *end <= map.len());
        let end =
            end.ok_or_else(|| problem(format!("begins at byte {start} and ends after the file's {}", map.len())))?;
        Ok(Stored { name, dims, format, range: start..end })
    }
}
