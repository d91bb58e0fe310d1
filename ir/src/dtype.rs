//! Element types.

use std::{fmt, str::FromStr};

use half::{bf16, f16};

/// The type of one tensor element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 32-bit integer.
    U32,
    /// Truth value, one byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, in the order in which `Display` documents them.
    pub const ALL: [DType; 10] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::Bf16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::U32,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether this is one of the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
    }

    /// Whether this is an integer type (`bool` is not).
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::U32)
    }

    /// Bits of the significand with the implicit one; zero for integers and `bool`.
    pub const fn significand_bits(self) -> u32 {
        match self {
            DType::F32 => 24,
            DType::F64 => 53,
            DType::F16 => 11,
            DType::Bf16 => 8,
            _ => 0,
        }
    }

    /// Unit roundoff of a floating type: half the distance from 1 to the next value up; zero otherwise.
    pub fn unit_roundoff(self) -> f64 {
        match self.significand_bits() {
            0 => 0.0,
            bits => (0.5_f64).powi(bits as i32),
        }
    }

    /// The least and the greatest positive normal number of a floating type; zeros otherwise.
    pub fn normal_range(self) -> (f64, f64) {
        match self {
            DType::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
            DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
            DType::F16 => (f64::from(f16::MIN_POSITIVE), f64::from(f16::MAX)),
            DType::Bf16 => (f64::from(bf16::MIN_POSITIVE), f64::from(bf16::MAX)),
            _ => (0.0, 0.0),
        }
    }

    /// The name used in text: `f32`, `bf16`, `bool`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::Bool => "bool",
        }
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DType::ALL.iter().map(|dtype| dtype.name())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}
