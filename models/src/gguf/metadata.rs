//! Metadata values of GGUF files. Arrays stay in the mapped file, so reading a damaged count allocates nothing.

use std::{fmt, ops::Range, sync::Arc};

use memmap2::Mmap;

/// A metadata value.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer of any width.
    Int(i128),
    /// A floating-point number of any width.
    Float(f64),
    /// A Boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of values of one kind.
    Array(Array),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The number of characters that messages quote from a string.
        const SHOWN: usize = 40;
        match self {
            Value::Int(n) => n.fmt(f),
            Value::Float(x) => x.fmt(f),
            Value::Bool(flag) => flag.fmt(f),
            Value::Text(text) if text.chars().nth(SHOWN).is_none() => write!(f, "{text:?}"),
            Value::Text(text) => write!(f, "{:?}…", text.chars().take(SHOWN).collect::<String>()),
            Value::Array(array) => write!(f, "a list of {} values", array.len()),
        }
    }
}

impl Value {
    /// Returns the value if it is an integer that fits in a `usize`.
    pub fn size(&self) -> Option<usize> {
        match self {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Returns the value if it is an integer or a floating-point number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// Returns the value if it is a Boolean.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Returns the value if it is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value if it is an array.
    pub fn array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// The kinds of metadata values. The fields of integers are their sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned(usize),
    Signed(usize),
    F32,
    F64,
    Bool,
    Text,
    Array,
}

impl Kind {
    pub(super) fn numbered(number: u32) -> Option<Kind> {
        const KINDS: [Kind; 13] = [
            Kind::Unsigned(1),
            Kind::Signed(1),
            Kind::Unsigned(2),
            Kind::Signed(2),
            Kind::Unsigned(4),
            Kind::Signed(4),
            Kind::F32,
            Kind::Bool,
            Kind::Text,
            Kind::Array,
            Kind::Unsigned(8),
            Kind::Signed(8),
            Kind::F64,
        ];
        KINDS.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the size of a value in bytes, if all values of the kind have the same size.
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            Kind::Unsigned(bytes) | Kind::Signed(bytes) => Some(bytes),
            Kind::F32 => Some(4),
            Kind::F64 => Some(8),
            Kind::Bool => Some(1),
            Kind::Text | Kind::Array => None,
        }
    }

    /// Reads a value of a fixed-size kind. `bytes` has exactly the size of the kind.
    pub(super) fn scalar(self, bytes: &[u8]) -> Option<Value> {
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        Some(match self {
            Kind::Unsigned(_) => Value::Int(bits.into()),
            Kind::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                Value::Int((((bits << unused) as i64) >> unused).into())
            }
            Kind::F32 => Value::Float(f32::from_bits(bits as u32).into()),
            Kind::F64 => Value::Float(f64::from_bits(bits)),
            Kind::Bool if bits > 1 => return None,
            Kind::Bool => Value::Bool(bits == 1),
            Kind::Text | Kind::Array => return None,
        })
    }
}

/// An array of values of one kind. They are decoded from the mapped file when they are read.
#[derive(Clone, Debug)]
pub struct Array {
    pub(super) kind: Kind,
    pub(super) count: usize,
    pub(super) map: Arc<Mmap>,
    pub(super) range: Range<usize>,
}

impl Array {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the array has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the values of an array of numbers. Arrays of strings return none.
    pub fn numbers(&self) -> impl Iterator<Item = f64> {
        let size = self.kind.bytes().unwrap_or(usize::MAX);
        let bytes = self.kind.bytes().map_or(&[][..], |_| &self.map[self.range.clone()]);
        bytes.chunks_exact(size).filter_map(|bytes| self.kind.scalar(bytes)?.number())
    }

    /// Returns the values of an array of strings. Arrays of numbers return none.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let mut rest = if self.kind == Kind::Text { &self.map[self.range.clone()] } else { &[] };
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<8>()?;
            let (text, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            rest = after;
            // The header's reader has checked that all strings are UTF-8.
            std::str::from_utf8(text).ok()
        })
    }
}
