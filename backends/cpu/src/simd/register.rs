//! The Rust types of elements in registers.

use eutectic_ir::DType;

/// The Rust type of an element in a register of a tile program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// `f32`, also for narrower floats.
    F32,
    /// `f64`.
    F64,
    /// `i8`.
    I8,
    /// `u8`, also for truth values.
    U8,
    /// `i16`.
    I16,
    /// `u16`.
    U16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `u32`.
    U32,
}

impl Register {
    /// Returns the register type of an element type.
    pub const fn of(dtype: DType) -> Register {
        match dtype.register() {
            DType::F32 | DType::F16 | DType::Bf16 | DType::F8E5M2 | DType::F8E4M3 => Register::F32,
            DType::F64 => Register::F64,
            DType::I8 => Register::I8,
            DType::U8 | DType::Bool => Register::U8,
            DType::I16 => Register::I16,
            DType::U16 => Register::U16,
            DType::I32 => Register::I32,
            DType::I64 => Register::I64,
            DType::U32 => Register::U32,
        }
    }
}

/// Evaluates an expression in which `$name` is the register type of an element type, which is an integer or `bool`.
macro_rules! with_integer {
    ($dtype:expr, $name:ident => $body:expr) => {{
        use $crate::simd::register::Register;
        macro_rules! with {
            ($rust:ty) => {{
                type $name = $rust;
                $body
            }};
        }
        match Register::of($dtype) {
            Register::I8 => with!(i8),
            Register::U8 => with!(u8),
            Register::I16 => with!(i16),
            Register::U16 => with!(u16),
            Register::I32 => with!(i32),
            Register::I64 => with!(i64),
            Register::U32 => with!(u32),
            Register::F32 | Register::F64 => unreachable!("the element type is an integer or `bool`"),
        }
    }};
}

/// Evaluates an expression in which `$name` is the register type of an element type.
macro_rules! with_register {
    ($dtype:expr, $name:ident => $body:expr) => {{
        use $crate::simd::register::{Register, with_integer};
        macro_rules! with_float {
            ($rust:ty) => {{
                type $name = $rust;
                $body
            }};
        }
        match Register::of($dtype) {
            Register::F32 => with_float!(f32),
            Register::F64 => with_float!(f64),
            _ => with_integer!($dtype, $name => $body),
        }
    }};
}

/// Calls a macro with all integer register types.
macro_rules! integer_types {
    ($macro:ident) => {
        $macro!(i8, u8, i16, u16, i32, i64, u32);
    };
}

pub(crate) use {integer_types, with_integer, with_register};
