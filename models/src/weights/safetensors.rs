//! Reads the safetensors format: an eight-byte length, a JSON header (name → element type, shape, byte range), and the
//! bytes of all tensors (<https://github.com/huggingface/safetensors#format>).

use std::{collections::BTreeMap, sync::Arc};

use eutectic_ir::{DType, Tensor};
use memmap2::Mmap;
use safetensors::tensor::Metadata;

use super::file::{FileTensor, Mapped};

/// The number of bytes of the field that holds the header's length.
const PREFIX: usize = 8;

/// Reads the header and returns the tensors by name.
///
/// # Errors
/// A description of the defect.
pub(super) fn tensors(map: &Arc<Mmap>) -> Result<BTreeMap<String, FileTensor>, String> {
    let prefix = map.first_chunk::<PREFIX>().ok_or(format!("its {} bytes are too few for a header", map.len()))?;
    let length = u64::from_le_bytes(*prefix);
    let data = usize::try_from(length).ok().and_then(|n| n.checked_add(PREFIX)).filter(|&end| end <= map.len());
    let data = data.ok_or(format!("its header has a length of {length} bytes, but the file has {}", map.len()))?;
    // `Metadata` checks that byte ranges are in order, have no gaps and fit the shapes. The check that they end with
    // the file is here, because that of `SafeTensors::deserialize` can overflow.
    let header: Metadata = serde_json::from_slice(&map[PREFIX..data]).map_err(|e| format!("its header: {e}"))?;
    if header.data_len() != map.len() - data {
        return Err(format!(
            "its tensors take {} bytes, but the file has {} for them",
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
        let Some(dtype) = DType::of_format(&*info.dtype.to_string(), |names| names.safetensors) else {
            return Ok(FileTensor::Foreign(foreign()));
        };
        let range = data + info.data_offsets.0..data + info.data_offsets.1;
        let tensor = Tensor::new(dtype, &info.shape, Mapped { map: map.clone(), range }).map_err(|e| e.to_string());
        tensor.and_then(FileTensor::usable).map_err(|e| format!("tensor `{name}`: {e}"))
    };
    header.offset_keys().into_iter().map(|name| stored(&name).map(|s| (name, s))).collect()
}
