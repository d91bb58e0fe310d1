//! Element types.

use std::{fmt, str::FromStr};

use crate::float::FloatFormat;

/// The type of one tensor element. A row of [`DTypeDef`] declares each.
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
    /// 8-bit float with 5 bits of exponent and infinities, for storage.
    F8E5M2,
    /// 8-bit float with 4 bits of exponent, one NaN for each sign and no infinities, for storage.
    F8E4M3,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
}

/// The kind of numbers that an element type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floating-point numbers of a format.
    Float(FloatFormat),
    /// Integers in two's complement.
    Int {
        /// Whether the type has negative integers.
        signed: bool,
    },
    /// Truth values, 0 and 1.
    Bool,
}

/// The names of an element type in file formats. An empty name, or 0 for ONNX, means that the format lacks the type.
#[derive(Clone, Copy, Debug)]
pub struct FormatNames {
    /// The type's text in the header of `.npy` files.
    pub numpy: &'static str,
    /// The prefix of the storage class in checkpoints of `torch.save`.
    pub torch: &'static str,
    /// The type in the header of safetensors files.
    pub safetensors: &'static str,
    /// The number in ONNX's `TensorProto.DataType`.
    pub onnx: i32,
}

/// The declaration of an element type.
#[derive(Clone, Copy, Debug)]
pub struct DTypeDef {
    /// The name in text: `f32`, `bf16`, `bool`, …
    pub name: &'static str,
    /// Bits of one element.
    pub bits: u32,
    /// The kind of numbers.
    pub kind: Kind,
    /// Whether ops compute with such elements. Elements of storage types are only moved, selected, compared and cast.
    pub computes: bool,
    /// The names in file formats.
    pub names: FormatNames,
}

const fn def(
    name: &'static str,
    bits: u32,
    kind: Kind,
    (numpy, torch, safetensors, onnx): (&'static str, &'static str, &'static str, i32),
) -> DTypeDef {
    DTypeDef { name, bits, kind, computes: true, names: FormatNames { numpy, torch, safetensors, onnx } }
}

/// Marks a type as one for storage only, with which ops do not compute.
const fn stored(def: DTypeDef) -> DTypeDef {
    DTypeDef { computes: false, ..def }
}

const SIGNED: Kind = Kind::Int { signed: true };
const UNSIGNED: Kind = Kind::Int { signed: false };

/// All element types with their declarations, in the order of [`DType`].
static TABLE: &[(DType, DTypeDef)] = &[
    (DType::F32, def("f32", 32, Kind::Float(FloatFormat::ieee(8, 23)), ("<f4", "Float", "F32", 1))),
    (DType::F64, def("f64", 64, Kind::Float(FloatFormat::ieee(11, 52)), ("<f8", "Double", "F64", 11))),
    (DType::F16, def("f16", 16, Kind::Float(FloatFormat::ieee(5, 10)), ("<f2", "Half", "F16", 10))),
    (DType::Bf16, def("bf16", 16, Kind::Float(FloatFormat::ieee(8, 7)), ("", "BFloat16", "BF16", 16))),
    (DType::I8, def("i8", 8, SIGNED, ("|i1", "Char", "I8", 3))),
    (DType::U8, def("u8", 8, UNSIGNED, ("|u1", "Byte", "U8", 2))),
    (DType::I32, def("i32", 32, SIGNED, ("<i4", "Int", "I32", 6))),
    (DType::I64, def("i64", 64, SIGNED, ("<i8", "Long", "I64", 7))),
    (DType::U32, def("u32", 32, UNSIGNED, ("<u4", "", "U32", 12))),
    (DType::Bool, def("bool", 8, Kind::Bool, ("|b1", "Bool", "BOOL", 9))),
    (DType::F8E5M2, stored(def("f8e5m2", 8, Kind::Float(FloatFormat::ieee(5, 2)), ("", "", "F8_E5M2", 19)))),
    (DType::F8E4M3, stored(def("f8e4m3", 8, Kind::Float(FloatFormat::finite(4, 3)), ("", "", "F8_E4M3", 17)))),
    (DType::I16, def("i16", 16, SIGNED, ("<i2", "Short", "I16", 5))),
    (DType::U16, def("u16", 16, UNSIGNED, ("<u2", "", "U16", 4))),
];

impl DType {
    /// Every element type, in the order of the enum.
    pub const ALL: [DType; TABLE.len()] = {
        let mut all = [DType::F32; TABLE.len()];
        let mut n = 0;
        while n < all.len() {
            all[n] = TABLE[n].0;
            assert!(all[n] as usize == n, "the table has the order of the enum");
            n += 1;
        }
        all
    };

    /// Returns the declaration of the type.
    pub const fn def(self) -> &'static DTypeDef {
        &TABLE[self as usize].1
    }

    /// Returns the bits of one element.
    pub const fn bits(self) -> u32 {
        self.def().bits
    }

    /// Returns the bytes of one element in memory.
    pub const fn size(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// Returns the format of a floating-point type.
    pub const fn float(self) -> Option<FloatFormat> {
        match self.def().kind {
            Kind::Float(format) => Some(format),
            Kind::Int { .. } | Kind::Bool => None,
        }
    }

    /// Returns whether this is one of the floating-point types.
    pub const fn is_float(self) -> bool {
        self.float().is_some()
    }

    /// Returns whether ops compute with elements of the type. Elements of other types are only moved, selected,
    /// compared and cast.
    pub const fn computes(self) -> bool {
        self.def().computes
    }

    /// Returns whether this is a floating-point type of 16 bits.
    pub const fn is_half(self) -> bool {
        self.is_float() && self.bits() == 16
    }

    /// Returns whether this is an integer type (`bool` is not).
    pub const fn is_int(self) -> bool {
        matches!(self.def().kind, Kind::Int { .. })
    }

    /// Returns the type in which elements are computed and sums are accumulated: `f32` for narrower floats, and the
    /// type itself for all others.
    pub const fn register(self) -> DType {
        if self.is_float() && self.bits() < 32 { DType::F32 } else { self }
    }

    /// Returns the bits of the significand including the implicit one; zero for integers and `bool`.
    pub const fn significand_bits(self) -> u32 {
        match self.float() {
            Some(format) => format.mantissa + 1,
            None => 0,
        }
    }

    /// Returns the unit roundoff of a floating type: half the distance from 1 to the next greater value; zero for
    /// other types.
    pub fn unit_roundoff(self) -> f64 {
        match self.significand_bits() {
            0 => 0.0,
            bits => (0.5_f64).powi(bits as i32),
        }
    }

    /// Returns the least and the greatest positive normal number of a floating type; zeros for other types.
    pub fn normal_range(self) -> (f64, f64) {
        self.float().map_or((0.0, 0.0), |format| (format.least_normal(), format.greatest()))
    }

    /// Returns the least and the greatest integer of an integer type or of `bool`; the range of `i64` for a floating
    /// type.
    pub const fn integers(self) -> (i64, i64) {
        match self.def().kind {
            Kind::Int { signed: true } => (i64::MIN >> (64 - self.bits()), i64::MAX >> (64 - self.bits())),
            Kind::Int { signed: false } => (0, (1 << self.bits()) - 1),
            Kind::Bool => (0, 1),
            Kind::Float(_) => (i64::MIN, i64::MAX),
        }
    }

    /// Returns the low bits of an integer, read as this type. A `bool` is 1 if the integer is not 0. A floating type
    /// returns the integer itself.
    pub const fn wrap(self, n: i64) -> i64 {
        let beyond = 64 - self.bits();
        match self.def().kind {
            Kind::Int { signed: true } => n << beyond >> beyond,
            Kind::Int { signed: false } => ((n as u64) << beyond >> beyond) as i64,
            Kind::Bool => (n != 0) as i64,
            Kind::Float(_) => n,
        }
    }

    /// Rounds a number to the nearest element of a floating type, and to the even one of two nearest. Other types
    /// return the number itself.
    pub fn rounded(self, x: f64) -> f64 {
        match self {
            DType::F64 => x,
            DType::F32 => f64::from(x as f32),
            _ => self.float().map_or(x, |format| format.decode(format.encode(x))),
        }
    }

    /// Returns the name used in text: `f32`, `bf16`, `bool`, …
    pub const fn name(self) -> &'static str {
        self.def().name
    }

    /// Returns the names of all element types.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DType::ALL.iter().map(|dtype| dtype.name())
    }

    /// Returns the element type with this name in the file format that `of` selects; see [`FormatNames`].
    pub fn of_format<N: PartialEq + Default>(name: N, of: impl Fn(&FormatNames) -> N) -> Option<DType> {
        (name != N::default()).then(|| DType::ALL.into_iter().find(|dtype| of(&dtype.def().names) == name)).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_facts_of_rust_types() {
        macro_rules! integers {
            ($($dtype:ident $rust:ty),*) => {$(
                let dtype = DType::$dtype;
                assert_eq!(dtype.size(), size_of::<$rust>());
                assert_eq!(dtype.integers(), (i64::from(<$rust>::MIN), i64::from(<$rust>::MAX)));
                for n in [0, 1, -1, 127, 128, 255, 256, -129, 32_767, 32_768, 65_536, -32_769, 1 << 31, (1 << 31) - 1, 1 << 32, i64::MIN, i64::MAX] {
                    assert_eq!(dtype.wrap(n), i64::from(n as $rust), "{n} in {dtype}");
                }
            )*};
        }
        integers!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64);
        assert_eq!((DType::Bool.integers(), DType::Bool.wrap(-2), DType::Bool.wrap(0)), ((0, 1), 1, 0));
        assert_eq!(DType::F32.normal_range(), (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)));
        assert_eq!(DType::F64.normal_range(), (f64::MIN_POSITIVE, f64::MAX));
        assert_eq!(DType::F16.normal_range(), (half::f16::MIN_POSITIVE.to_f64(), half::f16::MAX.to_f64()));
        assert_eq!(DType::Bf16.normal_range(), (half::bf16::MIN_POSITIVE.to_f64(), half::bf16::MAX.to_f64()));
        for (dtype, least) in [(DType::F32, f64::from(f32::from_bits(1))), (DType::F64, f64::from_bits(1))] {
            assert_eq!(dtype.float().unwrap().least(), least);
        }
        assert_eq!(DType::F32.unit_roundoff(), f64::from(f32::EPSILON) / 2.0);
    }

    #[test]
    fn names_and_bits_are_of_one_type_and_of_whole_bytes() {
        for dtype in DType::ALL {
            let def = dtype.def();
            assert_eq!(def.name.parse(), Ok(dtype));
            assert!(def.bits.is_multiple_of(8) && def.bits <= 64);
            // The reference interpreter computes integers in `i64`.
            assert!(def.kind != UNSIGNED || def.bits < 64);
            if let Some(format) = dtype.float() {
                assert_eq!(1 + format.exponent + format.mantissa, def.bits);
                assert!(format.exponent <= 11 && format.mantissa <= 52);
            }
            let named = |name: &'static str, of: fn(&FormatNames) -> &'static str| {
                assert!(name.is_empty() || DType::of_format(name, of) == Some(dtype), "{name}");
            };
            named(def.names.numpy, |names| names.numpy);
            named(def.names.torch, |names| names.torch);
            named(def.names.safetensors, |names| names.safetensors);
            assert!(def.names.onnx == 0 || DType::of_format(def.names.onnx, |names| names.onnx) == Some(dtype));
        }
    }

    #[test]
    fn types_of_storage_are_moved_and_cast_but_not_computed_with() {
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.computes()) {
            let mut graph = crate::Graph::new("storage");
            let x = graph.input("x", crate::Type::tensor(dtype, &[2, 3])).unwrap();
            let moved = graph.apply("transpose", &[x], &[("perm", [-1_i64, -2].as_slice().into())]).unwrap();
            graph.apply("cast", &[moved], &[("to", DType::F32.into())]).unwrap();
            graph.apply("eq", &[x, x], &[]).unwrap();
            for (op, operands) in
                [("add", vec![x, x]), ("exp", vec![x]), ("matmul", vec![moved, x]), ("scatter-sum", vec![x; 3])]
            {
                let why = graph.apply(op, &operands, &[]).unwrap_err().to_string();
                assert!(why.contains(dtype.name()), "{why}");
            }
        }
    }
}
