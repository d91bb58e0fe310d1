//! Reads the memory of arrays of any library by DLPack (<https://dmlc.github.io/dlpack/latest/python_spec.html>).

use std::{ffi::CStr, ptr::NonNull};

use pyo3::{
    exceptions::PyTypeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{IntoPyDict, PyCapsule, PyDict},
};

use crate::error::{Result, told};

/// The newest version of the layout below.
const MAJOR: u32 = 1;
const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// Kinds of memory that the processor reads: its own, and pages pinned by CUDA or ROCm.
const HOSTS: [i32; 3] = [1, 3, 11];

#[repr(C)]
struct RawTensor {
    data: *mut u8,
    device: [i32; 2],
    rank: i32,
    element: RawElement,
    dims: *const i64,
    strides: *const i64,
    offset: u64,
}

#[repr(C)]
struct RawElement {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct RawVersioned {
    version: [u32; 2],
    context: *mut u8,
    deleter: *const u8,
    flags: u64,
    tensor: RawTensor,
}

/// An array in the memory of the processor.
pub struct View {
    /// The kind of its elements, as DLPack numbers them, and their bits.
    pub element: (u8, u8),
    /// Extents.
    pub dims: Vec<usize>,
    /// From each element to the next one along each axis, in elements.
    strides: Vec<isize>,
    /// The first element; dangling where there is none.
    data: NonNull<u8>,
    /// Keeps the memory, for as long as it lives; the array is its owner, and nothing is taken over from it.
    capsule: Py<PyCapsule>,
}

/// Bytes of an array, row by row.
pub struct Bytes {
    data: NonNull<u8>,
    len: usize,
    _capsule: Py<PyCapsule>,
}

// SAFETY: the memory is that of an array that the capsule keeps, and threads may read it. That nobody writes to an array while a run reads
// it is up to the caller, as with every function of NumPy that lets other threads run.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `View::bytes` checked that so many bytes lie there.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Bytes {
    /// Returns the bytes for writing.
    ///
    /// # Safety
    /// Nobody else knows the array.
    pub unsafe fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for reading; that nobody else reads or writes is up to the caller.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl View {
    /// Asks an array for its memory.
    ///
    /// # Errors
    /// The exception that the array raises; when it is in the memory of a device, or of another version of DLPack.
    pub fn of(array: &Bound<'_, PyAny>) -> Result<View> {
        let capsule = export(array)?.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        let tensor: *const RawTensor = if capsule.is_valid_checked(Some(VERSIONED)) {
            let managed = capsule.pointer_checked(Some(VERSIONED))?.cast::<RawVersioned>().as_ptr();
            // SAFETY: a capsule of this name holds such a struct, whose version is in the same place in all versions.
            let [major, minor] = unsafe { (*managed).version };
            if major != MAJOR {
                return Err(told(format_args!("it is exported by DLPack {major}.{minor}, and only {MAJOR} is known")));
            }
            // SAFETY: as above, of this version.
            unsafe { &raw const (*managed).tensor }
        } else {
            capsule.pointer_checked(Some(UNVERSIONED))?.cast().as_ptr()
        };
        // SAFETY: the struct lives as long as the capsule, which nobody has consumed.
        unsafe { View::read(&*tensor, capsule.unbind()) }
    }

    /// # Safety
    /// The struct is as DLPack says, and lives while the capsule does.
    unsafe fn read(tensor: &RawTensor, capsule: Py<PyCapsule>) -> Result<View> {
        if !HOSTS.contains(&tensor.device[0]) {
            let kind = tensor.device[0];
            return Err(told(format_args!(
                "it is in the memory of a device (kind {kind} of DLPack); copy it to the processor"
            )));
        }
        if tensor.element.lanes != 1 {
            return Err(told("its elements are vectors"));
        }
        let rank = usize::try_from(tensor.rank).unwrap_or(0);
        // SAFETY: so many extents and strides lie there, where there are any.
        let list =
            |at: *const i64| (rank > 0 && !at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, rank) });
        let dims: Vec<usize> =
            list(tensor.dims).unwrap_or_default().iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
        let strides = match list(tensor.strides) {
            Some(strides) => strides.iter().map(|&n| n as isize).collect(),
            None => compact(&dims),
        };
        // SAFETY: the offset stays within the array.
        let data = NonNull::new(unsafe { tensor.data.add(tensor.offset as usize) }).unwrap_or(NonNull::dangling());
        Ok(View { element: (tensor.element.code, tensor.element.bits), dims, strides, data, capsule })
    }

    /// Returns the bytes where the array keeps them, if its elements lie row by row without gaps.
    pub fn bytes(self) -> Result<Bytes, View> {
        let count: usize = self.dims.iter().product();
        let dense = self.dims.iter().zip(self.strides.iter().zip(compact(&self.dims)));
        if count > 0 && dense.filter(|(extent, _)| **extent != 1).any(|(_, (stride, wanted))| *stride != wanted) {
            return Err(self);
        }
        Ok(Bytes { data: self.data, len: count * self.size(), _capsule: self.capsule })
    }

    /// Returns a copy of the bytes, row by row.
    pub fn copied(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.dims.iter().product::<usize>() * self.size());
        // SAFETY: all elements are within the array.
        unsafe { copy(self.data.as_ptr(), self.size(), &self.dims, &self.strides, &mut bytes) };
        bytes
    }

    fn size(&self) -> usize {
        usize::from(self.element.1).div_ceil(8)
    }
}

/// Calls `__dlpack__`; older libraries know no versions.
fn export<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static NEWEST: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = array.py();
    let method = array.getattr(intern!(py, "__dlpack__"))?;
    let newest = NEWEST.get_or_try_init(py, || [("max_version", (MAJOR, 0))].into_py_dict(py).map(Bound::unbind))?;
    match method.call((), Some(newest.bind(py))) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        exported => exported,
    }
}

/// The strides of elements that lie row by row.
fn compact(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as isize;
    }
    strides
}

/// Appends the elements of some axes, row by row.
///
/// # Safety
/// They lie where the strides say.
unsafe fn copy(from: *const u8, size: usize, dims: &[usize], strides: &[isize], to: &mut Vec<u8>) {
    let (Some((&extent, dims)), Some((&stride, inner))) = (dims.split_first(), strides.split_first()) else {
        // SAFETY: an element is there.
        return to.extend_from_slice(unsafe { std::slice::from_raw_parts(from, size) });
    };
    if dims.is_empty() && stride == 1 {
        // SAFETY: a row of elements is there.
        return to.extend_from_slice(unsafe { std::slice::from_raw_parts(from, extent * size) });
    }
    for at in 0..extent as isize {
        // SAFETY: so does each part.
        unsafe { copy(from.offset(at * stride * size as isize), size, dims, inner, to) };
    }
}
