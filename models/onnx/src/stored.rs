//! Tensors of ONNX files. Their bytes are part of the mapped file, or of a mapped file of external data.

use std::path::{Component, Path, PathBuf};

use eutectic_ir::{DType, Tensor, Type, dtype::Kind};
use prost::{Message, bytes::Bytes};

use super::{
    error::OnnxError,
    folder::Folder,
    proto::{
        TensorProto,
        tensor_proto::{DataLocation, DataType},
    },
    types::dtype,
};

/// An integer type that files store with several elements per byte. The first element has the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The number of bits per element, a divisor of 8.
    pub bits: u32,
    pub signed: bool,
}

impl Packed {
    /// Returns the number of bytes that this number of packed elements takes.
    pub fn bytes(self, elements: usize) -> usize {
        elements.div_ceil(self.in_byte())
    }

    /// Returns the least and the greatest number of the type.
    pub fn limits(self) -> (i64, i64) {
        let half = 1 << (self.bits - 1);
        if self.signed { (-half, half - 1) } else { (0, 2 * half - 1) }
    }

    /// Returns the number of elements per byte.
    pub fn in_byte(self) -> usize {
        (8 / self.bits) as usize
    }
}

/// A tensor of a file. Its elements are read when they are needed.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    dtype: DType,
    dims: Vec<usize>,
    data: ValueSource,
    /// The packed type and the extents, if elements have fewer than 8 bits.
    packed: Option<(Packed, Vec<usize>)>,
}

/// The location of the elements.
#[derive(Clone, Debug)]
enum ValueSource {
    /// Bytes of the model file.
    Inside(Bytes),
    /// A range of a file of external data.
    External(External),
}

/// A byte range of a file of external data.
#[derive(Clone, Debug)]
struct External {
    /// The folder that contains the model file.
    folder: Folder,
    /// The path of the file, relative to the folder.
    location: PathBuf,
    /// The offset of the first element in bytes.
    offset: usize,
}

impl StoredTensor {
    /// Reads the description of a tensor. `folder` is the folder of the model. External data is not opened yet. If
    /// elements have fewer than 8 bits, the result is a tensor of their packed bytes, and [`StoredTensor::packed`]
    /// describes the elements.
    ///
    /// # Errors
    /// If the element type is not supported, if the number of elements is not that of the extents, or if the path of
    /// external data leads out of the folder.
    pub(super) fn read(proto: &TensorProto, folder: &Folder) -> Result<StoredTensor, String> {
        let mut dims: Vec<usize> = proto
            .dims
            .iter()
            .map(|&n| usize::try_from(n).map_err(|_| format!("its extent {n} is negative")))
            .collect::<Result<_, _>>()?;
        let (dtype, packed) = match packed(proto.data_type()) {
            Some(packed) => (DType::U8, Some(packed)),
            None => (dtype(proto.data_type())?, None),
        };
        let packed = packed.map(|packed| {
            let elements =
                dims.iter().try_fold(1_usize, |all, &n| all.checked_mul(n)).ok_or("it has too many elements")?;
            Ok::<_, String>((packed, std::mem::replace(&mut dims, vec![packed.bytes(elements)])))
        });
        let packed = packed.transpose()?;
        if proto.segment.is_some() {
            return Err("it is stored in segments, which are not supported".into());
        }
        let data = if proto.data_location() == DataLocation::External {
            ValueSource::External(External::read(proto, dtype, &dims, folder)?)
        } else {
            ValueSource::Inside(match &proto.raw_data {
                Some(raw) => raw.clone(),
                None => typed(proto, dtype)?.into(),
            })
        };
        let stored = StoredTensor { dtype, dims, data, packed };
        if let ValueSource::Inside(bytes) = &stored.data {
            stored.over(bytes.clone())?;
        }
        Ok(stored)
    }

    /// Reads the description of a tensor whose elements are not packed, like [`StoredTensor::read`].
    ///
    /// # Errors
    /// In the cases of [`StoredTensor::read`], and if elements have fewer than 8 bits.
    pub(super) fn read_plain(proto: &TensorProto, folder: &Folder) -> Result<StoredTensor, String> {
        dtype(proto.data_type())?;
        StoredTensor::read(proto, folder)
    }

    /// Returns the packed type and the extents, if elements have fewer than 8 bits.
    pub(super) fn packed(&self) -> Option<(Packed, &[usize])> {
        self.packed.as_ref().map(|(packed, dims)| (*packed, dims.as_slice()))
    }

    /// Returns the type of the tensor. If elements are packed, this is the type of their bytes.
    pub fn ty(&self) -> Type {
        Type::tensor(self.dtype, &self.dims)
    }

    /// Reads the elements.
    ///
    /// # Errors
    /// If external data cannot be mapped, is outside of the model's folder, or is too short. Also if a Boolean is
    /// neither 0 nor 1.
    pub fn tensor(&self) -> Result<Tensor, String> {
        match &self.data {
            ValueSource::Inside(bytes) => self.over(bytes.clone()),
            ValueSource::External(external) => self.over(external.bytes(self.ty().bytes())?),
        }
    }

    fn over(&self, bytes: Bytes) -> Result<Tensor, String> {
        let tensor = Tensor::new(self.dtype, &self.dims, bytes).map_err(|e| e.to_string())?;
        if self.dtype == DType::Bool && tensor.bytes().iter().any(|b| *b > 1) {
            return Err("it has a Boolean that is neither 0 nor 1".into());
        }
        Ok(tensor)
    }
}

impl External {
    fn read(proto: &TensorProto, dtype: DType, dims: &[usize], folder: &Folder) -> Result<External, String> {
        let entry = |key: &str| proto.external_data.iter().find(|e| e.key() == key).map(|e| e.value());
        let location = PathBuf::from(entry("location").ok_or("it has external data without a `location`")?);
        let inside = location.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !inside || location.as_os_str().is_empty() {
            return Err(format!(
                "its external data `{}` is outside of the model's folder; move the file there",
                location.display()
            ));
        }
        let number = |key| {
            entry(key).map(|n| {
                n.parse::<usize>()
                    .map_err(|_| format!("the {key} of its external data is `{n}`, not a number of bytes"))
            })
        };
        let offset = number("offset").transpose()?.unwrap_or(0);
        let size = Type::tensor(dtype, dims).bytes();
        match number("length").transpose()? {
            // Some writers omit the length of external data, and others store 0. The type determines the number of
            // bytes then.
            Some(length) if length != size && length != 0 => {
                Err(format!("its type needs {size} bytes, but its external data has a length of {length}"))
            }
            _ => Ok(External { folder: folder.clone(), location, offset }),
        }
    }

    fn bytes(&self, length: usize) -> Result<Bytes, String> {
        let shown = self.location.display();
        let map = self.folder.map(&self.location).map_err(|why| format!("its external data `{shown}`: {why}"))?;
        match self.offset.checked_add(length).filter(|&end| end <= map.len()) {
            Some(end) => Ok(map.slice(self.offset..end)),
            None => Err(format!(
                "its external data `{shown}` has {} bytes, but the tensor needs {length} from offset {}",
                map.len(),
                self.offset
            )),
        }
    }
}

impl From<Tensor> for StoredTensor {
    /// Creates a tensor that is not stored in a file.
    fn from(tensor: Tensor) -> StoredTensor {
        let bytes = Bytes::copy_from_slice(tensor.bytes());
        StoredTensor {
            dtype: tensor.dtype(),
            dims: tensor.dims().to_vec(),
            data: ValueSource::Inside(bytes),
            packed: None,
        }
    }
}

/// Reads a file that contains one tensor, like those of ONNX's test data.
///
/// # Errors
/// If the file cannot be read, or if its element type is not supported.
pub fn read_tensor(path: impl AsRef<Path>) -> Result<Tensor, OnnxError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| OnnxError::Io { path: path.into(), source })?;
    let proto = TensorProto::decode(Bytes::from(bytes)).map_err(|e| e.to_string());
    let tensor = proto.and_then(|proto| StoredTensor::read_plain(&proto, &Folder::of(path))?.tensor());
    tensor.map_err(|problem| OnnxError::Format { path: path.into(), problem })
}

/// Returns the packed type with this ONNX number. Returns `None` if its elements have 8 bits or more.
fn packed(code: i32) -> Option<Packed> {
    let (bits, signed) = match DataType::try_from(code).ok()? {
        DataType::Uint4 => (4, false),
        DataType::Int4 => (4, true),
        DataType::Uint2 => (2, false),
        DataType::Int2 => (2, true),
        _ => return None,
    };
    Some(Packed { bits, signed })
}

/// Returns the bytes of elements that the file lists as protobuf numbers instead of bytes.
fn typed(proto: &TensorProto, dtype: DType) -> Result<Vec<u8>, String> {
    Ok(match (dtype.def().kind, dtype.bits()) {
        (Kind::Float(_), 32) => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        (Kind::Float(_), 64) => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        (Kind::Int { signed: true }, 64) => proto.int64_data.iter().flat_map(|n| n.to_le_bytes()).collect(),
        (Kind::Int { signed: false }, 32 | 64) => {
            proto.uint64_data.iter().flat_map(|n| n.to_le_bytes().into_iter().take(dtype.size())).collect()
        }
        // The file lists 16-bit floats as integers that have their bits.
        _ => proto.int32_data.iter().flat_map(|n| n.to_le_bytes().into_iter().take(dtype.size())).collect(),
    })
}
