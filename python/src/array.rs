//! Converts Python arrays to tensors, and results to NumPy arrays.

use eutectic::{DType, Tensor, Type};
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyTuple};

use crate::{
    dlpack::{Bytes, View},
    error::{Problem, Result, told},
};

/// The names of an element type in DLPack, NumPy and ml_dtypes.
struct Names {
    dtype: DType,
    /// The type code in DLPack.
    code: u8,
    /// The NumPy type with the same bits.
    numpy: &'static str,
    /// The type in the package ml_dtypes, if NumPy has none.
    ml_dtypes: Option<&'static str>,
}

const fn names(dtype: DType, code: u8, numpy: &'static str) -> Names {
    Names { dtype, code, numpy, ml_dtypes: None }
}

const fn bits(dtype: DType, code: u8, numpy: &'static str, ml_dtypes: &'static str) -> Names {
    Names { dtype, code, numpy, ml_dtypes: Some(ml_dtypes) }
}

const NAMES: [Names; DType::ALL.len()] = [
    names(DType::F32, 2, "float32"),
    names(DType::F64, 2, "float64"),
    names(DType::F16, 2, "float16"),
    bits(DType::Bf16, 4, "uint16", "bfloat16"),
    names(DType::I8, 0, "int8"),
    names(DType::U8, 1, "uint8"),
    names(DType::I32, 0, "int32"),
    names(DType::I64, 0, "int64"),
    names(DType::U32, 1, "uint32"),
    names(DType::Bool, 6, "bool"),
    bits(DType::F8E5M2, 12, "uint8", "float8_e5m2"),
    bits(DType::F8E4M3, 10, "uint8", "float8_e4m3fn"),
    names(DType::I16, 0, "int16"),
    names(DType::U16, 1, "uint16"),
];

// Code uses the number of an element type as the index of its row.
const _: () = {
    let mut at = 0;
    while at < NAMES.len() {
        assert!(NAMES[at].dtype as usize == at);
        at += 1;
    }
};

/// Whether a tensor shares the memory of an array or copies it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Shares the memory if the array is contiguous in row-major order, and copies it otherwise. The array must not
    /// change while the tensor exists.
    Borrow,
    /// Copies the memory.
    Copy,
}

/// Converts an array to a tensor. `what` names the array in errors.
///
/// # Errors
/// If the value is not an array, is not in host memory, or has an element type that programs do not have.
pub fn read(what: &str, value: &Bound<'_, PyAny>, take: Take) -> Result<Tensor> {
    tensor(value, take).map_err(|problem| match problem {
        Problem::Told(why) => told(format_args!("cannot read {what}: {why}")),
        Problem::Raised(error) => told(format_args!("cannot read {what}: {}", error.value(value.py()))),
    })
}

/// Reinterprets an array of bits as the element type `wanted`, if NumPy lacks that type.
pub fn as_wanted(tensor: Tensor, wanted: Option<DType>) -> Tensor {
    struct Bits(Tensor);
    impl AsRef<[u8]> for Bits {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }
    let Some(wanted) = wanted.map(|dtype| &NAMES[dtype as usize]) else { return tensor };
    let given = &NAMES[tensor.dtype() as usize];
    if given.numpy != wanted.numpy || given.ml_dtypes.is_some() || wanted.ml_dtypes.is_none() {
        return tensor;
    }
    Tensor::new(wanted.dtype, tensor.dims(), Bits(tensor.clone())).unwrap_or(tensor)
}

fn tensor(value: &Bound<'_, PyAny>, take: Take) -> Result<Tensor> {
    let (view, spelled) = view(value)?;
    let dtype = dtype(&view, spelled.as_deref())?;
    let dims = view.dims.clone();
    let tensor = match (take, view.bytes()) {
        (Take::Borrow, Ok(bytes)) if dtype != DType::Bool || bytes.as_ref().iter().all(|&b| b < 2) => {
            Tensor::new(dtype, &dims, bytes)
        }
        (_, bytes) => {
            let mut copy = bytes.map_or_else(|view| view.copied(), |bytes| bytes.as_ref().to_vec());
            if dtype == DType::Bool {
                // NumPy treats any nonzero byte as true, and tensors need 1.
                copy.iter_mut().for_each(|b| *b = u8::from(*b != 0));
            }
            Tensor::new(dtype, &dims, copy)
        }
    };
    tensor.map_err(told)
}

/// Returns a view of an array. An array that DLPack cannot export is first copied into one that it can export. The
/// second result is the name of the element type, if NumPy lacks that type.
fn view(value: &Bound<'_, PyAny>) -> Result<(View, Option<String>)> {
    match View::of(value) {
        Err(Problem::Raised(_)) => {
            let arrays = value.py().import("eutectic._arrays")?;
            let (array, spelled): (Bound<'_, PyAny>, Option<String>) =
                arrays.call_method1("plain", (value,))?.extract()?;
            Ok((View::of(&array)?, spelled))
        }
        view => Ok((view?, None)),
    }
}

fn dtype(view: &View, spelled: Option<&str>) -> Result<DType> {
    let (code, width) = view.element;
    let is_exported = |of: &&Names| match spelled {
        Some(name) => of.ml_dtypes == Some(name),
        None => of.code == code && of.dtype.def().bits == u32::from(width),
    };
    let found = NAMES.iter().find(is_exported).map(|of| of.dtype);
    found.ok_or_else(|| told(format_args!("programs have no element type for kind {code} of DLPack with {width} bits")))
}

/// A NumPy array for a result, with access to its memory.
pub struct NewArray {
    array: Py<PyAny>,
    bytes: Bytes,
}

impl NewArray {
    /// Creates an array of zeros with the extents and the element type of `ty`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn zeros(py: Python<'_>, ty: &Type) -> Result<NewArray> {
        static ZEROS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (Some(dtype), Some(dims)) = (ty.dtype(), ty.dims()) else {
            return Err(told(format_args!("cannot make an array of type {ty} because its extents are not known")));
        };
        let zeros = ZEROS.import(py, "numpy", "zeros")?;
        let NumpyType { stored, shown } = &types(py)?[dtype as usize];
        let array = zeros.call1((PyTuple::new(py, dims)?, stored))?;
        let bytes = View::of(&array)?.bytes().map_err(|_| told("cannot use a new array because it has gaps"))?;
        let array = match shown {
            Some(shown) => array.call_method1(intern!(py, "view"), (shown,))?,
            None => array,
        };
        Ok(NewArray { array: array.unbind(), bytes })
    }

    /// Creates an array with the elements of a tensor.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn of(py: Python<'_>, tensor: &Tensor) -> Result<Py<PyAny>> {
        let mut array = NewArray::zeros(py, &tensor.ty())?;
        array.bytes().copy_from_slice(tensor.bytes());
        Ok(array.finish())
    }

    /// Returns the memory of the array.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: no other code has the array before `finish` returns it.
        unsafe { self.bytes.as_mut() }
    }

    /// Returns the finished array.
    pub fn finish(self) -> Py<PyAny> {
        self.array
    }
}

/// The NumPy types that stand for an element type.
struct NumpyType {
    /// The type with the same bits.
    stored: Py<PyAny>,
    /// The type of results, if ml_dtypes has one and NumPy does not.
    shown: Option<Py<PyAny>>,
}

/// Returns the NumPy types of all element types, in the order of [`NAMES`].
fn types(py: Python<'_>) -> PyResult<&'static [NumpyType]> {
    static TYPES: PyOnceLock<Vec<NumpyType>> = PyOnceLock::new();
    let types = TYPES.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let ml_dtypes = py.import("ml_dtypes").ok();
        let of = |names: &Names| {
            let shown = ml_dtypes.as_ref().zip(names.ml_dtypes).map(|(package, name)| package.getattr(name));
            let dtype = |of: Bound<'_, PyAny>| numpy.call_method1("dtype", (of,)).map(Bound::unbind);
            let stored = dtype(numpy.getattr(names.numpy)?)?;
            Ok(NumpyType { stored, shown: shown.transpose()?.map(dtype).transpose()? })
        };
        NAMES.iter().map(of).collect::<PyResult<_>>()
    })?;
    Ok(types)
}
