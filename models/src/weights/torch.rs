//! Reads checkpoints of `torch.save`: a zip archive with a pickle, and a file for each storage of tensor elements.

use std::{collections::BTreeMap, io::Cursor, io::Read, ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor};
use memmap2::Mmap;
use zip::{CompressionMethod, ZipArchive};

use super::{
    file::{FileTensor, Mapped},
    pickle::{self, TensorView},
};

/// The message for a pickle outside of an archive.
pub(super) const BARE: &str = "it has the format of torch before version 1.6; load it in torch and save it again";

/// The limit on the size of a pickle in bytes. Pickles of models are far smaller, since they contain no elements.
const LARGEST: u64 = 1 << 28;

/// Returns whether the file starts like a zip archive.
pub(super) fn is_archive(map: &[u8]) -> bool {
    map.starts_with(b"PK\x03\x04")
}

/// Returns whether the file starts like a pickle.
pub(super) fn is_bare_pickle(map: &[u8]) -> bool {
    matches!(map, [0x80, 2..=5, b'}' | b'c' | b'(' | 0x8a | 0x95, ..])
}

/// Reads the archive's directory and its pickle. Returns the tensors by name.
///
/// # Errors
/// A description of the defect.
pub(super) fn tensors(map: &Arc<Mmap>) -> Result<BTreeMap<String, FileTensor>, String> {
    let mut archive = Archive::open(map)?;
    let pickle = archive.pickle()?;
    let mut result = BTreeMap::new();
    for (name, view) in pickle::tensors(&pickle)? {
        let stored = archive.tensor(&view).map_err(|e| format!("tensor `{name}`: {e}"))?;
        result.insert(name, stored);
    }
    Ok(result)
}

struct Archive<'a> {
    map: &'a Arc<Mmap>,
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// The folder in the archive that contains all files, with a slash at its end.
    folder: String,
}

impl<'a> Archive<'a> {
    fn open(map: &'a Arc<Mmap>) -> Result<Archive<'a>, String> {
        let zip = ZipArchive::new(Cursor::new(&map[..])).map_err(|e| format!("its archive: {e}"))?;
        let names = zip.file_names().filter_map(Result::ok);
        let folder = names.filter_map(|name| name.strip_suffix("data.pkl").map(String::from)).min_by_key(String::len);
        let folder = folder.ok_or("its archive has no data.pkl, so torch.save did not write it")?;
        let mut archive = Archive { map, zip, folder };
        let order = archive.bytes("byteorder", 16)?;
        match order.as_deref() {
            None | Some(b"little") => Ok(archive),
            Some(_) => Err("it is big-endian; save it on a little-endian machine".into()),
        }
    }

    fn pickle(&mut self) -> Result<Vec<u8>, String> {
        Ok(self.bytes("data.pkl", LARGEST)?.expect("`open` found the folder by its data.pkl"))
    }

    /// Returns the content of a file of the archive, or `None` if there is no such file.
    fn bytes(&mut self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, String> {
        let path = format!("{}{name}", self.folder);
        if self.zip.index_for_name(&path).is_none() {
            return Ok(None);
        }
        let mut file = self.zip.by_name(&path).map_err(|e| format!("its file {path}: {e}"))?;
        if file.size() > limit {
            return Err(format!("its file {path} has {} bytes, more than {limit}", file.size()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| format!("its file {path}: {e}"))?;
        Ok(Some(bytes))
    }

    /// Returns the byte range of a storage in the map.
    fn storage(&mut self, key: &str) -> Result<Range<usize>, String> {
        let path = format!("{}data/{key}", self.folder);
        let file = self.zip.by_name(&path).map_err(|e| format!("file {path}: {e}"))?;
        if file.compression() != CompressionMethod::Stored || file.encrypted() {
            return Err(format!("its file {path} is compressed; save it again with torch.save"));
        }
        let start = file.data_start().and_then(|start| usize::try_from(start).ok());
        let end = start.zip(usize::try_from(file.size()).ok()).and_then(|(start, size)| start.checked_add(size));
        let range = start.zip(end).filter(|(_, end)| *end <= self.map.len());
        range.map(|(start, end)| start..end).ok_or(format!("its file {path} ends after the archive"))
    }

    fn tensor(&mut self, view: &TensorView) -> Result<FileTensor, String> {
        let Some(dtype) = DType::of_format(view.storage.kind.as_str(), |names| names.torch) else {
            let dims: Vec<_> = view.dims.iter().map(usize::to_string).collect();
            return Ok(FileTensor::Foreign(format!("{}[{}]", view.storage.kind, dims.join(" "))));
        };
        let (storage, size) = (self.storage(&view.storage.key)?, dtype.size());
        let elements = storage.len() / size;
        let span = view.span().filter(|end| *end <= elements);
        let count = view.count().filter(|count| *count <= elements);
        let (Some(_), Some(count)) = (span, count) else {
            return Err(format!("it exceeds its storage of {elements} elements"));
        };
        let at = |element: usize| storage.start + element * size;
        let tensor = if view.is_contiguous() {
            let range = at(view.offset.min(elements - count))..at(view.offset.min(elements - count) + count);
            Tensor::new(dtype, &view.dims, Mapped { map: self.map.clone(), range })
        } else {
            let bytes = view.offsets().flat_map(|element| &self.map[at(element)..at(element + 1)]);
            Tensor::new(dtype, &view.dims, bytes.copied().collect::<Vec<u8>>())
        };
        FileTensor::usable(tensor.map_err(|e| e.to_string())?)
    }
}

impl TensorView {
    fn count(&self) -> Option<usize> {
        self.dims.iter().try_fold(1_usize, |n, d| n.checked_mul(*d))
    }

    /// Returns the end of the elements that the view reads, as an index into its storage.
    fn span(&self) -> Option<usize> {
        if self.dims.contains(&0) {
            return Some(0);
        }
        let steps = self.dims.iter().zip(&self.strides);
        let last = steps.map(|(d, s)| (d - 1).checked_mul(*s)).try_fold(self.offset, |n, step| n.checked_add(step?))?;
        last.checked_add(1)
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.dims.contains(&0)
            || self.dims.iter().zip(&self.strides).rev().all(|(dim, stride)| {
                let fits = *dim == 1 || *stride == expected;
                expected *= dim;
                fits
            })
    }

    /// Returns the indices into the storage of the view's elements, in row-major order.
    fn offsets(&self) -> impl Iterator<Item = usize> {
        let count = self.dims.iter().product::<usize>();
        (0..count).map(|n| {
            let axes = self.dims.iter().zip(&self.strides).rev();
            axes.fold((self.offset, n), |(at, rest), (dim, stride)| (at + rest % dim * stride, rest / dim)).0
        })
    }
}
