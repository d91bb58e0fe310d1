//! Reads arrays of any library through DLPack (<https://dmlc.github.io/dlpack/latest/python_spec.html>).

use std::{ffi::CStr, ptr::NonNull};

use pyo3::{
    exceptions::PyTypeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{IntoPyDict, PyCapsule, PyDict},
};

use crate::error::{Result, told};

/// The supported major version of DLPack. The structures below are those of this version.
const MAJOR: u32 = 1;
const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// The device types whose memory the host can read: host memory, and host memory that CUDA or ROCm has pinned.
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

/// A view of an array in host memory.
pub struct View {
    /// The type code of the elements in DLPack, and their size in bits.
    pub element: (u8, u8),
    /// The extents.
    pub dims: Vec<usize>,
    /// The distance between neighbours along each axis, in elements.
    strides: Vec<isize>,
    /// The address of the first element. It is dangling if the array has no elements.
    data: NonNull<u8>,
    /// The capsule keeps the array's memory alive. It is not consumed, so the array still owns the memory.
    capsule: Py<PyCapsule>,
}

/// The bytes of a contiguous array, in row-major order.
pub struct Bytes {
    data: NonNull<u8>,
    len: usize,
    _capsule: Py<PyCapsule>,
}

// SAFETY: the capsule keeps the memory alive, and any thread may read it. The caller must not write to the array during
// a run, as with every NumPy function that releases the interpreter's lock.
unsafe impl Send for Bytes {}
// SAFETY: several threads may read the memory at the same time, because no thread writes to it during a run.
unsafe impl Sync for Bytes {}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `View::bytes` has checked that the array has this many contiguous bytes.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Bytes {
    /// Returns the bytes for writing.
    ///
    /// # Safety
    /// No other code may have access to the array.
    pub unsafe fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the array has this many contiguous bytes, and the caller ensures that no other code reads or writes
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl View {
    /// Returns a view of an array's memory.
    ///
    /// # Errors
    /// If `__dlpack__` raises an exception, if the memory is that of a device, or if the version of DLPack is not
    /// supported.
    pub fn of(array: &Bound<'_, PyAny>) -> Result<View> {
        let capsule = export(array)?.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        let tensor: *const RawTensor = if capsule.is_valid_checked(Some(VERSIONED)) {
            let managed = capsule.pointer_checked(Some(VERSIONED))?.cast::<RawVersioned>().as_ptr();
            // SAFETY: a capsule with this name contains this structure. The version is at the same offset in all
            // versions.
            let [major, minor] = unsafe { (*managed).version };
            if major != MAJOR {
                return Err(told(format_args!(
                    "it is exported by DLPack {major}.{minor}, and only version {MAJOR} is supported"
                )));
            }
            // SAFETY: a capsule with this name contains this structure, and its version is supported.
            unsafe { &raw const (*managed).tensor }
        } else {
            capsule.pointer_checked(Some(UNVERSIONED))?.cast().as_ptr()
        };
        // SAFETY: the structure lives as long as the capsule, which is not consumed.
        unsafe { View::read(&*tensor, capsule.unbind()) }
    }

    /// Returns a view of the memory that a structure of DLPack describes.
    ///
    /// # Safety
    /// The structure must be valid by DLPack's rules, and live as long as the capsule.
    unsafe fn read(tensor: &RawTensor, capsule: Py<PyCapsule>) -> Result<View> {
        if !HOSTS.contains(&tensor.device[0]) {
            let kind = tensor.device[0];
            return Err(told(format_args!(
                "it is in the memory of a device (kind {kind} of DLPack); copy it to host memory"
            )));
        }
        if tensor.element.lanes != 1 {
            return Err(told("its elements are vectors"));
        }
        let rank = usize::try_from(tensor.rank).unwrap_or(0);
        // SAFETY: a pointer that is not null points to as many numbers as there are axes.
        let list =
            |at: *const i64| (rank > 0 && !at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, rank) });
        let dims: Vec<usize> =
            list(tensor.dims).unwrap_or_default().iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
        let strides = match list(tensor.strides) {
            Some(strides) => strides.iter().map(|&n| n as isize).collect(),
            None => compact(&dims),
        };
        // SAFETY: the offset is within the array.
        let data = NonNull::new(unsafe { tensor.data.add(tensor.offset as usize) }).unwrap_or(NonNull::dangling());
        Ok(View { element: (tensor.element.code, tensor.element.bits), dims, strides, data, capsule })
    }

    /// Returns the bytes without a copy if the array is contiguous in row-major order, and otherwise gives the view
    /// back.
    pub fn bytes(self) -> Result<Bytes, View> {
        let count: usize = self.dims.iter().product();
        let dense = self.dims.iter().zip(self.strides.iter().zip(compact(&self.dims)));
        if count > 0 && dense.filter(|(extent, _)| **extent != 1).any(|(_, (stride, wanted))| *stride != wanted) {
            return Err(self);
        }
        Ok(Bytes { data: self.data, len: count * self.size(), _capsule: self.capsule })
    }

    /// Returns a copy of the bytes in row-major order.
    pub fn copied(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.dims.iter().product::<usize>() * self.size());
        // SAFETY: all elements that extents and strides determine are within the array.
        unsafe { copy(self.data.as_ptr(), self.size(), &self.dims, &self.strides, &mut bytes) };
        bytes
    }

    fn size(&self) -> usize {
        usize::from(self.element.1).div_ceil(8)
    }
}

/// Calls `__dlpack__` of an array. Retries without the argument for the version, which older libraries do not accept.
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

/// Returns the strides of a contiguous array in row-major order.
fn compact(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as isize;
    }
    strides
}

/// Appends the elements of an array in row-major order. `dims` and `strides` are those of the axes that remain.
///
/// # Safety
/// All elements that extents and strides determine must be within the array.
unsafe fn copy(from: *const u8, size: usize, dims: &[usize], strides: &[isize], to: &mut Vec<u8>) {
    let (Some((&extent, dims)), Some((&stride, inner))) = (dims.split_first(), strides.split_first()) else {
        // SAFETY: without axes, `from` is the address of an element.
        return to.extend_from_slice(unsafe { std::slice::from_raw_parts(from, size) });
    };
    if dims.is_empty() && stride == 1 {
        // SAFETY: `from` is the address of `extent` contiguous elements.
        return to.extend_from_slice(unsafe { std::slice::from_raw_parts(from, extent * size) });
    }
    for at in 0..extent as isize {
        // SAFETY: the part at each index of the axis is within the array.
        unsafe { copy(from.offset(at * stride * size as isize), size, dims, inner, to) };
    }
}
