//! Host tensors: the values of constants, and the inputs of programs.

use std::{borrow::Cow, fmt, hash, sync::Arc};

use crate::{DType, FloatFormat, Type, dtype::Kind, round::of_integer};

/// A dense row-major tensor in host memory, cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    dims: Arc<[usize]>,
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

/// The error of a tensor whose number of bytes is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{dtype}[{dims}] needs {expected} bytes, but {got} are given", dims = dims.iter().map(usize::to_string).collect::<Vec<_>>().join(" "))]
pub struct WrongSize {
    /// The requested element type.
    pub dtype: DType,
    /// The requested extents.
    pub dims: Vec<usize>,
    /// The bytes that type and extents require.
    pub expected: usize,
    /// The number of given bytes.
    pub got: usize,
}

#[cfg(target_endian = "big")]
compile_error!("tensors are views of little-endian memory, and numbers of this target are big-endian");

/// A numeric type of Rust that corresponds to an element type.
///
/// Elements are little-endian in memory, so the target machine must be little-endian too.
pub trait TensorElement: bytemuck::Pod {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! tensor_elements {
    ($($rust:ty: $dtype:ident),*) => {
        $(
            impl TensorElement for $rust {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

tensor_elements!(f32: F32, f64: F64, half::f16: F16, half::bf16: Bf16, i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64);

impl Tensor {
    /// Returns a tensor over little-endian bytes, which may be a memory-mapped file. The address need not be aligned.
    ///
    /// # Errors
    /// If the number of bytes is not the one that element type and extents require.
    pub fn new(
        dtype: DType,
        dims: &[usize],
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Tensor, WrongSize> {
        let got = bytes.as_ref().len();
        let expected = dims.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
        if got == expected {
            Ok(Tensor { dtype, dims: dims.into(), bytes: Arc::new(bytes) })
        } else {
            Err(WrongSize { dtype, dims: dims.to_vec(), expected, got })
        }
    }

    /// Returns a tensor of numbers. Each is rounded to a floating type, or truncated and clamped to an integer type.
    ///
    /// # Panics
    /// If the number of values is not the product of the extents. Callers compute both, so a user's input cannot
    /// cause it.
    pub fn from_f64(dtype: DType, dims: &[usize], values: impl IntoIterator<Item = f64>) -> Tensor {
        let mut bytes = Vec::new();
        let values = values.into_iter();
        match (dtype, dtype.def().kind) {
            (DType::F32, _) => values.for_each(|x| bytes.extend((x as f32).to_le_bytes())),
            (DType::F64, _) => values.for_each(|x| bytes.extend(x.to_le_bytes())),
            (_, Kind::Float(format)) => {
                values.for_each(|x| bytes.extend(&format.encode(x).to_le_bytes()[..dtype.size()]));
            }
            (_, Kind::Int { .. }) => {
                let (least, most) = dtype.integers();
                values.for_each(|x| bytes.extend(&(x as i64).clamp(least, most).to_le_bytes()[..dtype.size()]));
            }
            (_, Kind::Bool) => bytes.extend(values.map(|x| u8::from(x != 0.0))),
        }
        Tensor::new(dtype, dims, bytes).expect("there is a value for each element")
    }

    /// Returns a tensor of integers. Each is wrapped to an integer type, rounded once to a floating type, or 1 in
    /// `bool` if it is not 0.
    ///
    /// # Panics
    /// If the number of values is not the product of the extents.
    pub fn from_i64(dtype: DType, dims: &[usize], values: impl IntoIterator<Item = i64>) -> Tensor {
        if dtype.is_float() {
            return Tensor::from_f64(dtype, dims, values.into_iter().map(|n| of_integer(n, dtype)));
        }
        let mut bytes = Vec::new();
        for n in values {
            bytes.extend(&dtype.wrap(n).to_le_bytes()[..dtype.size()]);
        }
        Tensor::new(dtype, dims, bytes).expect("there is a value for each element")
    }

    /// Returns an `f32` tensor.
    ///
    /// # Errors
    /// If the number of values is not the product of the extents.
    pub fn from_f32(dims: &[usize], values: &[f32]) -> Result<Tensor, WrongSize> {
        Tensor::from_values(dims, values)
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the type.
    pub fn ty(&self) -> Type {
        Type::tensor(self.dtype, &self.dims)
    }

    /// Returns the bytes of the elements, little-endian and row-major.
    pub fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Returns the elements as numbers of Rust; `None` if `T` is not the element type. It copies them only if the
    /// memory is not aligned for `T`. Results of programs are aligned.
    ///
    /// ```
    /// use eutectic_ir::{DType, Tensor};
    ///
    /// let x = Tensor::from_f32(&[2], &[1.0, 2.5]).unwrap();
    /// assert_eq!(*x.values::<f32>().unwrap(), [1.0, 2.5]);
    /// assert!(x.values::<f64>().is_none());
    /// ```
    pub fn values<T: TensorElement>(&self) -> Option<Cow<'_, [T]>> {
        if T::DTYPE != self.dtype {
            return None;
        }
        let bytes = self.bytes();
        let copied = || bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect::<Vec<T>>();
        Some(bytemuck::try_cast_slice(bytes).map_or_else(|_| Cow::Owned(copied()), Cow::Borrowed))
    }

    /// Returns a tensor of numbers of a Rust type.
    ///
    /// # Errors
    /// If the number of values is not the product of the extents.
    pub fn from_values<T: TensorElement>(dims: &[usize], values: &[T]) -> Result<Tensor, WrongSize> {
        Tensor::new(T::DTYPE, dims, bytemuck::cast_slice::<T, u8>(values).to_vec())
    }

    /// Returns the elements as `f64`. An `i64` beyond 2⁵³ is rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        if self.dtype.is_float() { self.floats() } else { self.to_i64().into_iter().map(|n| n as f64).collect() }
    }

    /// Returns the elements of an integer or `bool` tensor. Floats are truncated and clamped to `i64`.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype.float() {
            Some(_) => self.floats().into_iter().map(|x| x as i64).collect(),
            None => elements(self.bytes(), self.dtype, |n| self.dtype.wrap(n as i64)),
        }
    }

    fn floats(&self) -> Vec<f64> {
        let b = self.bytes();
        match (self.dtype, self.dtype.float()) {
            (DType::F32, _) => words(b).map(|w| f64::from(f32::from_le_bytes(w))).collect(),
            (DType::F64, _) => words(b).map(f64::from_le_bytes).collect(),
            (_, Some(format)) => elements(b, self.dtype, |bits| format.decode(bits)),
            (_, None) => unreachable!("only elements of floating types are read here"),
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).map(|w| w.try_into().expect("each chunk has N bytes"))
}

/// Applies a function to the bits of each element.
fn elements<T>(bytes: &[u8], dtype: DType, read: impl Fn(u64) -> T) -> Vec<T> {
    match dtype.size() {
        1 => bytes.iter().map(|&bits| read(bits.into())).collect(),
        2 => words(bytes).map(|w| read(u16::from_le_bytes(w).into())).collect(),
        4 => words(bytes).map(|w| read(u32::from_le_bytes(w).into())).collect(),
        8 => words(bytes).map(|w| read(u64::from_le_bytes(w))).collect(),
        size => unreachable!("elements of {size} bytes"),
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Tensor {}

impl PartialOrd for Tensor {
    fn partial_cmp(&self, other: &Tensor) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tensor {
    fn cmp(&self, other: &Tensor) -> std::cmp::Ordering {
        (self.dtype, &self.dims).cmp(&(other.dtype, &other.dims)).then_with(|| {
            if Arc::ptr_eq(&self.bytes, &other.bytes) {
                std::cmp::Ordering::Equal
            } else {
                self.bytes().cmp(other.bytes())
            }
        })
    }
}

impl hash::Hash for Tensor {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.dims.hash(state);
        self.bytes().hash(state);
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Tensor {
    /// Prints the type and the elements. A float prints as the shortest text that reads back as the same value, and
    /// an unusual NaN prints its bits. `...` stands for repetitions of the last element.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{", self.ty())?;
        let elements: Vec<_> = self.bytes().chunks_exact(self.dtype.size()).collect();
        let repeated = elements.iter().rev().take_while(|e| Some(*e) == elements.last()).count();
        let shown = elements.len() - if repeated > 4 { repeated - 1 } else { 0 };
        for element in &elements[..shown] {
            f.write_str(" ")?;
            write_element(f, self.dtype, element)?;
        }
        f.write_str(if shown < elements.len() { " ... }" } else { " }" })
    }
}

/// Returns the bytes of the NaN that prints as `nan`.
fn usual_nan(dtype: DType) -> Vec<u8> {
    Tensor::from_f64(dtype, &[], [f64::NAN]).bytes().to_vec()
}

fn write_element(f: &mut fmt::Formatter<'_>, dtype: DType, element: &[u8]) -> fmt::Result {
    let one = Tensor::new(dtype, &[], element.to_vec()).expect("the slice has the bytes of one element");
    if !dtype.is_float() {
        return write!(f, "{}", one.to_i64()[0]);
    }
    let value = one.to_f64()[0];
    match dtype {
        _ if value.is_nan() && element != usual_nan(dtype) => {
            f.write_str("nan:")?;
            element.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
        DType::F64 => write!(f, "{value:?}"),
        // Elements of shorter types are exact in f32.
        _ => write!(f, "{:?}", value as f32),
    }
}

/// Returns the bytes of the floating-point element that is nearest to a number in text.
fn read_float(dtype: DType, format: FloatFormat, text: &str) -> Option<Vec<u8>> {
    let bits = match dtype {
        DType::F32 => text.parse::<f32>().ok()?.to_bits().into(),
        _ => format.encode(text.parse().ok()?),
    };
    Some(bits.to_le_bytes()[..dtype.size()].to_vec())
}

impl Tensor {
    /// Returns the bytes of an element in the syntax of [`Tensor`]'s `Display`; `None` if the type cannot represent
    /// it.
    pub(crate) fn element_bytes(dtype: DType, text: &str) -> Option<Vec<u8>> {
        if let Some(bits) = text.strip_prefix("nan:") {
            let bits = u64::from_str_radix(bits, 16).ok()?.to_le_bytes();
            let nan = Tensor::new(dtype, &[], bits[..dtype.size()].to_vec()).ok()?;
            let fits = bits[dtype.size()..].iter().all(|&b| b == 0);
            return (fits && dtype.is_float() && nan.to_f64()[0].is_nan()).then(|| nan.bytes().to_vec());
        }
        if text.eq_ignore_ascii_case("nan") {
            return dtype.is_float().then(|| usual_nan(dtype));
        }
        if let Some(format) = dtype.float() {
            return read_float(dtype, format, text);
        }
        let n = match text {
            "true" => 1,
            "false" => 0,
            number => number.parse::<i64>().ok()?,
        };
        let one = Tensor::from_i64(dtype, &[], [n]);
        (one.to_i64()[0] == n).then(|| one.bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without the first one, so that no element is aligned.
    struct Unaligned(Vec<u8>);

    impl AsRef<[u8]> for Unaligned {
        fn as_ref(&self) -> &[u8] {
            &self.0[1..]
        }
    }

    #[test]
    fn values_are_those_of_the_bytes_at_any_address() {
        for n in [0, 1, 5] {
            let values: Vec<i64> = (0..n).map(|n| n * 7 - 3).collect();
            let tensor = Tensor::from_values(&[values.len()], &values).unwrap();
            assert_eq!(*tensor.values::<i64>().unwrap(), values);
            let bytes = [&[0], tensor.bytes()].concat();
            let unaligned = Tensor::new(DType::I64, &[values.len()], Unaligned(bytes)).unwrap();
            assert_eq!(*unaligned.values::<i64>().unwrap(), values);
            assert!(tensor.values::<f64>().is_none());
        }
        let half = Tensor::from_f64(DType::F16, &[2], [0.5, -2.0]);
        assert_eq!(*half.values::<half::f16>().unwrap(), [half::f16::from_f32(0.5), half::f16::from_f32(-2.0)]);
        assert!(Tensor::from_values::<u8>(&[3], &[1, 2]).is_err());
    }
}
