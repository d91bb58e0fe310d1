//! The `.npy` format of NumPy: dense, little-endian arrays
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>). Arrays in Fortran order are converted to
//! row-major order.

use std::ops::Range;

use eutectic_ir::{DType, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Returns the element types that the format supports, with their names.
fn types() -> impl Iterator<Item = (&'static str, DType)> {
    DType::ALL.into_iter().map(|dtype| (dtype.def().names.numpy, dtype)).filter(|(name, _)| !name.is_empty())
}

/// A byte range of a file that was read into memory. It is the storage of a tensor.
struct FilePart(Vec<u8>, Range<usize>);

impl AsRef<[u8]> for FilePart {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1.clone()]
    }
}

/// The reason why an array cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file is damaged. The field describes the defect.
    #[error("{0}")]
    Damaged(String),
    /// The format has no such element type.
    #[error("the .npy format has no element type {0}")]
    ElementType(DType),
    /// The header would be too long for the format, because the shape has too many axes.
    #[error("the .npy format cannot store {0} axes")]
    Axes(usize),
}

/// Reads a tensor from the bytes of a file.
///
/// # Errors
/// If the bytes are not a `.npy` file, or its element type is not supported.
pub fn read(bytes: Vec<u8>) -> Result<Tensor, NpyError> {
    parse(bytes).map_err(NpyError::Damaged)
}

fn parse(bytes: Vec<u8>) -> Result<Tensor, String> {
    if !bytes.starts_with(MAGIC) {
        return Err("it does not begin with \\x93NUMPY".into());
    }
    let short = || format!("it ends within its header, after {} bytes", bytes.len());
    let length = bytes.get(8..12).ok_or_else(short)?;
    let (at, length) = match bytes[6] {
        1 => (10, usize::from(u16::from_le_bytes([length[0], length[1]]))),
        2 | 3 => (12, u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize),
        version => return Err(format!("format version {version} is unknown; 1 to 3 are supported")),
    };
    let start = at + length;
    let header = std::str::from_utf8(bytes.get(at..start).ok_or_else(short)?).map_err(|e| e.to_string())?;
    let dtype = element_type(header)?;
    let columns_first = field(header, "fortran_order")?.starts_with("True");
    let dims = shape(header)?;
    let end = bytes.len();
    let data = FilePart(bytes, start..end);
    if dtype == DType::Bool && data.as_ref().iter().any(|b| *b > 1) {
        return Err("a Boolean is neither 0 nor 1".into());
    }
    if !columns_first {
        return Tensor::new(dtype, &dims, data).map_err(|e| e.to_string());
    }
    let backwards: Vec<usize> = dims.iter().rev().copied().collect();
    let given = Tensor::new(dtype, &backwards, data).map_err(|e| e.to_string())?;
    Tensor::new(dtype, &dims, rows_first(given.bytes(), dtype.size(), &dims)).map_err(|e| e.to_string())
}

/// Converts the elements from column-major to row-major order. `size` is the size of an element in bytes.
fn rows_first(bytes: &[u8], size: usize, dims: &[usize]) -> Vec<u8> {
    // The strides of an empty array could overflow, because a zero extent leaves the other extents unlimited.
    if bytes.is_empty() {
        return Vec::new();
    }
    let strides: Vec<usize> = dims
        .iter()
        .scan(size, |stride, &dim| {
            let this = *stride;
            *stride *= dim;
            Some(this)
        })
        .collect();
    let mut at = vec![0; dims.len()];
    let mut ordered = Vec::with_capacity(bytes.len());
    for _ in 0..bytes.len() / size {
        let from: usize = at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        ordered.extend_from_slice(&bytes[from..from + size]);
        for axis in (0..dims.len()).rev() {
            at[axis] += 1;
            if at[axis] < dims[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    ordered
}

/// Returns the text after `'name':` in the header, which is the text of a Python dictionary.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str, String> {
    let missing = || format!("its header has no {name:?}: {:?}", header.trim_end());
    let (_, rest) = header.split_once(&format!("'{name}'")).ok_or_else(missing)?;
    Ok(rest.trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start())
}

fn element_type(header: &str) -> Result<DType, String> {
    let text = field(header, "descr")?;
    let name = text.strip_prefix('\'').and_then(|t| t.split('\'').next()).unwrap_or(text);
    DType::of_format(name, |names| names.numpy).ok_or_else(|| {
        let names: Vec<_> = types().map(|(n, _)| n).collect();
        format!("it has elements of type {:?}; supported are {}", name.trim_end(), names.join(" "))
    })
}

fn shape(header: &str) -> Result<Vec<usize>, String> {
    let text = field(header, "shape")?;
    let inner = text.strip_prefix('(').and_then(|t| t.split_once(')')).map(|(inner, _)| inner);
    let dims =
        inner.ok_or_else(|| format!("its shape is not a tuple: {:?}", text.trim_end()))?.split(',').map(str::trim);
    let dims: Result<_, _> = dims.filter(|d| !d.is_empty()).map(str::parse).collect();
    dims.map_err(|_| format!("its shape has extents that are not numbers: {:?}", text.trim_end()))
}

/// Returns the bytes of a `.npy` file before the tensor's data.
///
/// # Errors
/// If the format lacks the element type, or the header would be too long.
pub fn header(tensor: &Tensor) -> Result<Vec<u8>, NpyError> {
    let (name, _) = types().find(|(_, dtype)| *dtype == tensor.dtype()).ok_or(NpyError::ElementType(tensor.dtype()))?;
    let dims: String = tensor.dims().iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // Spaces pad the header so that the data starts at a multiple of 64 bytes. A newline ends the header.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.push_str(&" ".repeat(length - 1 - header.len()));
    header.push('\n');
    let prefix = u16::try_from(length).map_err(|_| NpyError::Axes(tensor.dims().len()))?;
    Ok([MAGIC, &[1, 0], &prefix.to_le_bytes(), header.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_survive() {
        for dims in [vec![], vec![0], vec![3], vec![2, 1, 3]] {
            for dtype in types().map(|t| t.1) {
                let count: usize = dims.iter().product();
                let tensor = Tensor::from_i64(dtype, &dims, (0..count as i64).map(|i| i % 2));
                let header = header(&tensor).unwrap();
                assert_eq!(header.len() % 64, 0);
                let file = [&header, tensor.bytes()].concat();
                assert_eq!(read(file).unwrap(), tensor);
            }
        }
    }

    #[test]
    fn what_numpy_writes_is_read() {
        // numpy.save of numpy.arange(6, dtype="<i4").reshape(2, 3), version 1.0.
        let mut bytes = b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
        bytes.resize(127, b' ');
        bytes.push(b'\n');
        bytes.extend((0..6_i32).flat_map(i32::to_le_bytes));
        assert_eq!(parse(bytes).unwrap(), Tensor::from_i64(DType::I32, &[2, 3], 0..6));
    }

    #[test]
    fn columns_may_come_first() {
        // numpy.save of numpy.asfortranarray(numpy.arange(6, dtype="<i4").reshape(1, 2, 3)).
        let mut bytes = b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': True, 'shape': (1, 2, 3), }".to_vec();
        bytes.resize(127, b' ');
        bytes.push(b'\n');
        bytes.extend([0_i32, 3, 1, 4, 2, 5].into_iter().flat_map(i32::to_le_bytes));
        assert_eq!(parse(bytes).unwrap(), Tensor::from_i64(DType::I32, &[1, 2, 3], 0..6));
    }

    #[test]
    fn damage_is_an_error() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        let file = |header: &str| {
            let length = (header.len() as u16).to_le_bytes();
            [MAGIC, &[1, 0], &length, header.as_bytes(), &[0; 8]].concat()
        };
        assert!(parse(file(header)).is_ok());
        for end in 0..file(header).len() {
            assert!(parse(file(header)[..end].to_vec()).is_err(), "{end}");
        }
        for (from, to) in [("<f4", ">f4"), ("(2,)", "(3,)"), ("(2,)", "2"), ("(2,)", "(-2,)")] {
            assert!(parse(file(&header.replace(from, to))).is_err(), "{to}");
        }
        // The file is an empty array whose strides would overflow.
        let none = header.replace("False", "True").replace("(2,)", "(4294967296, 4294967296, 4294967296, 0)");
        let _ = parse(file(&none)[..10 + none.len()].to_vec());
        let huge = "(18446744073709551615, 18446744073709551615)";
        assert!(parse(file(&header.replace("(2,)", huge))).is_err());
    }
}
