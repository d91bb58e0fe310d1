//! The C interface. `include/eutectic.h` documents each function and the ownership of its handles.
//!
//! A handle is a pointer to a box. A panic, which is a defect of the engine, is also returned as an error, because it
//! must not unwind into C.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use eutectic::{Compiler, DType, Dim, Listed, Model, ModelFile, Setup, Tensor, Type, packs, tuned_costs};

/// The number of each element type in the header.
const DTYPES: [(DType, i32); 12] = [
    (DType::Bool, 0),
    (DType::I8, 1),
    (DType::U8, 2),
    (DType::I32, 3),
    (DType::U32, 4),
    (DType::I64, 5),
    (DType::F16, 6),
    (DType::Bf16, 7),
    (DType::F32, 8),
    (DType::F64, 9),
    (DType::F8E5M2, 10),
    (DType::F8E4M3, 11),
];
/// The number for element types that the header does not have.
const OTHER: i32 = -1;

/// An `eutectic_tensor` of the header: an input of the caller, an output of a run, or a description without data.
#[repr(C)]
pub struct CTensor {
    name: *const c_char,
    dtype: i32,
    rank: usize,
    dims: *const i64,
    data: *const c_void,
    bytes: usize,
}

/// The options of a model.
#[derive(Default)]
pub struct COptions {
    backend: Option<String>,
    threads: Option<NonZeroUsize>,
    dims: BTreeMap<String, (i64, i64)>,
    /// The first error of a setter. It is reported when a model is opened.
    mistake: Option<String>,
}

/// A model, with descriptions of its inputs and outputs.
pub struct CModel {
    model: Model,
    inputs: Described,
    outputs: Described,
}

/// The outputs of a run.
pub struct CResults {
    described: Described,
    _tensors: Vec<Tensor>,
}

/// Tensors as C sees them, and the names and dims that they point to.
struct Described {
    tensors: Vec<CTensor>,
    _names: Vec<CString>,
    _dims: Vec<Vec<i64>>,
}

impl Described {
    fn new(of: impl Iterator<Item = (String, DType, Vec<i64>, *const c_void, usize)>) -> Described {
        let mut described = Described { tensors: Vec::new(), _names: Vec::new(), _dims: Vec::new() };
        for (name, dtype, dims, data, bytes) in of {
            let number = DTYPES.iter().find(|(known, _)| *known == dtype).map_or(OTHER, |(_, number)| *number);
            // A name that contains a zero byte cannot be a C string.
            let name = CString::new(name).unwrap_or_default();
            let tensor =
                CTensor { name: name.as_ptr(), dtype: number, rank: dims.len(), dims: dims.as_ptr(), data, bytes };
            described.tensors.push(tensor);
            described._names.push(name);
            described._dims.push(dims);
        }
        described
    }

    /// Describes the ports of a program. A run-time extent is −1.
    fn ports(ports: &[(String, Type)]) -> Described {
        Described::new(ports.iter().filter_map(|(name, ty)| {
            let (dtype, shape) = ty.as_tensor()?;
            let dims = shape.iter().map(|dim| if let Dim::Known(n) = dim { *n } else { -1 }).collect();
            Some((name.clone(), dtype, dims, ptr::null(), 0))
        }))
    }

    fn get(&self, at: usize) -> *const CTensor {
        self.tensors.get(at).map_or(ptr::null(), ptr::from_ref)
    }
}

/// Runs a fallible function. If it fails, returns `None` and writes the message to `error`, unless `error` is null.
///
/// # Safety
/// `error` is null, or points to a place for a pointer.
unsafe fn told<T>(error: *mut *mut c_char, run: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(format!("cannot continue because of a defect of the engine: {text}; report it, with the model"))
    });
    match result {
        Ok(value) => Some(value),
        Err(message) => {
            if !error.is_null() {
                let message = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
                // SAFETY: the caller guarantees that `error` points to a place for a pointer.
                unsafe { error.write(message.into_raw()) };
            }
            None
        }
    }
}

/// # Safety
/// `text` is null, or a string that ends with a zero byte.
unsafe fn string(what: &str, text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Err(format!("cannot read {what} because it is NULL; pass a string"));
    }
    // SAFETY: the caller guarantees this.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(ToString::to_string).map_err(|_| format!("cannot read {what} because it is not UTF-8"))
}

/// Changes options. An error is kept until a model is opened.
///
/// # Safety
/// `options` is null, or a handle of this library.
unsafe fn set(options: *mut COptions, change: impl FnOnce(&mut COptions) -> Result<(), String>) {
    // SAFETY: the caller guarantees this.
    if let Some(options) = unsafe { options.as_mut() }
        && let Err(mistake) = change(options)
    {
        options.mistake.get_or_insert(mistake);
    }
}

/// Returns the version.
#[unsafe(no_mangle)]
pub extern "C" fn eutectic_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Frees a message.
///
/// # Safety
/// `string` is null, or a message of this library that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: the caller promises that `told` created it.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// Creates options.
#[unsafe(no_mangle)]
pub extern "C" fn eutectic_options_new() -> *mut COptions {
    Box::into_raw(Box::default())
}

/// Frees options.
///
/// # Safety
/// `options` is null, or a handle that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_options_free(options: *mut COptions) {
    // SAFETY: the caller guarantees this.
    unsafe { free(options) };
}

/// # Safety
/// `handle` is null, or a box that has not been freed.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller guarantees this.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Names the backend.
///
/// # Safety
/// `options` is a handle; `name` is a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_options_set_backend(options: *mut COptions, name: *const c_char) {
    // SAFETY: the caller guarantees this.
    unsafe {
        set(options, |options| {
            options.backend = Some(string("the name of the backend", name)?);
            Ok(())
        });
    }
}

/// Sets the number of threads.
///
/// # Safety
/// `options` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_options_set_threads(options: *mut COptions, threads: usize) {
    // SAFETY: the caller guarantees this.
    unsafe {
        set(options, |options| {
            options.threads = NonZeroUsize::new(threads);
            Ok(())
        });
    }
}

/// Sets the length of a dimension, or its bounds.
///
/// # Safety
/// `options` is a handle; `name` is a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_options_set_dim(options: *mut COptions, name: *const c_char, least: i64, most: i64) {
    // SAFETY: the caller guarantees this.
    unsafe {
        set(options, |options| {
            let name = string("the name of a dimension", name)?;
            if !(0..=most).contains(&least) {
                return Err(format!(
                    "cannot set `{name}` to the range from {least} to {most}; give one length, or two lengths in \
                     ascending order"
                ));
            }
            options.dims.insert(name, (least, most));
            Ok(())
        });
    }
}

/// Opens a model.
///
/// # Safety
/// `path` is a string that ends with a zero byte; `options` is null or a handle; `error` is null or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_open(
    path: *const c_char,
    options: *const COptions,
    error: *mut *mut c_char,
) -> *mut CModel {
    let none = COptions::default();
    // SAFETY: the caller guarantees this.
    let opened = unsafe {
        told(error, || {
            let path = string("the path", path)?;
            opened(&path, options.as_ref().unwrap_or(&none))
        })
    };
    opened.map_or(ptr::null_mut(), |model| Box::into_raw(Box::new(model)))
}

fn opened(path: &str, options: &COptions) -> Result<CModel, String> {
    if let Some(mistake) = &options.mistake {
        return Err(mistake.clone());
    }
    let text = |e: eutectic::Error| e.to_string();
    let setup = Setup { threads: options.threads, tuned: tuned_costs(), ..Setup::default() };
    let backend = Listed::named(options.backend.as_deref().unwrap_or("cpu")).and_then(|listed| listed.open(&setup));
    let backend = backend.map_err(text)?;
    let rules = packs(&*backend).map_err(text)?;
    let file = options.dims.iter().fold(ModelFile::new(path), |file, (name, (least, most))| match least == most {
        true => file.dim(name, *least),
        false => file.dim_between(name, *least, *most),
    });
    let model = file.open(&Compiler::from_arc(backend, rules)).map_err(|e| e.to_string())?;
    let (inputs, outputs) = (Described::ports(model.inputs()), Described::ports(model.outputs()));
    Ok(CModel { model, inputs, outputs })
}

/// Frees a model.
///
/// # Safety
/// `model` is null, or a handle that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_model_free(model: *mut CModel) {
    // SAFETY: the caller guarantees this.
    unsafe { free(model) };
}

/// Returns the number of inputs.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_input_count(model: *const CModel) -> usize {
    // SAFETY: the caller guarantees this.
    unsafe { model.as_ref() }.map_or(0, |model| model.inputs.tensors.len())
}

/// Describes an input.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_input(model: *const CModel, at: usize) -> *const CTensor {
    // SAFETY: the caller guarantees this.
    unsafe { model.as_ref() }.map_or(ptr::null(), |model| model.inputs.get(at))
}

/// Returns the number of outputs.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_output_count(model: *const CModel) -> usize {
    // SAFETY: the caller guarantees this.
    unsafe { model.as_ref() }.map_or(0, |model| model.outputs.tensors.len())
}

/// Describes an output.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_output(model: *const CModel, at: usize) -> *const CTensor {
    // SAFETY: the caller guarantees this.
    unsafe { model.as_ref() }.map_or(ptr::null(), |model| model.outputs.get(at))
}

/// Runs a model once.
///
/// # Safety
/// `model` is a handle that no other thread uses at the same time. There are `count` inputs with valid names, dims and
/// data. `error` is null or points to space for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_run(
    model: *mut CModel,
    inputs: *const CTensor,
    count: usize,
    error: *mut *mut c_char,
) -> *mut CResults {
    // SAFETY: the caller guarantees this.
    let results = unsafe {
        told(error, || {
            let model = model.as_mut().ok_or("cannot run a model that is NULL; open one first")?;
            let inputs = if inputs.is_null() { &[][..] } else { slice::from_raw_parts(inputs, count) };
            let given = inputs.iter().map(|input| given(input)).collect::<Result<Vec<_>, String>>()?;
            let named: Vec<_> = given.iter().map(|(name, tensor)| (&**name, tensor.clone())).collect();
            let tensors = model.model.run(&named).map_err(|e| e.to_string())?;
            Ok(results(model.model.outputs(), tensors))
        })
    };
    results.map_or(ptr::null_mut(), |results| Box::into_raw(Box::new(results)))
}

/// Copies a tensor of the caller.
///
/// # Safety
/// Its name, dims and data are valid, or null.
unsafe fn given(input: &CTensor) -> Result<(String, Tensor), String> {
    // SAFETY: the caller guarantees this.
    let name = unsafe { string("the name of an input", input.name) }?;
    let fails = |why: &str| format!("cannot use the input `{name}` because {why}");
    let dtype = DTYPES.iter().find(|(_, number)| *number == input.dtype).map(|(dtype, _)| *dtype);
    let dtype = dtype
        .ok_or_else(|| fails(&format!("{} is not the number of an element type; see eutectic_dtype", input.dtype)))?;
    if input.rank > 0 && input.dims.is_null() || input.bytes > 0 && input.data.is_null() {
        return Err(fails("its dims or its data are NULL; pass both"));
    }
    // SAFETY: the caller guarantees this; neither is null.
    let dims = if input.rank == 0 { &[] } else { unsafe { slice::from_raw_parts(input.dims, input.rank) } };
    let dims: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims = dims.ok_or_else(|| fails("a dim is negative; give the lengths of this run"))?;
    // SAFETY: the caller guarantees this; the data are not null.
    let data =
        if input.bytes == 0 { &[] } else { unsafe { slice::from_raw_parts(input.data.cast::<u8>(), input.bytes) } };
    let tensor = Tensor::new(dtype, &dims, data.to_vec()).map_err(|e| fails(&e.to_string()))?;
    Ok((name, tensor))
}

fn results(ports: &[(String, Type)], tensors: Vec<Tensor>) -> CResults {
    let described = Described::new(ports.iter().zip(&tensors).map(|((name, _), tensor)| {
        let dims = tensor.dims().iter().map(|&dim| dim as i64).collect();
        (name.clone(), tensor.dtype(), dims, tensor.bytes().as_ptr().cast(), tensor.bytes().len())
    }));
    CResults { described, _tensors: tensors }
}

/// Frees the results of a run.
///
/// # Safety
/// `results` is null, or a handle that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_results_free(results: *mut CResults) {
    // SAFETY: the caller guarantees this.
    unsafe { free(results) };
}

/// Returns an output.
///
/// # Safety
/// `results` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_results_get(results: *const CResults, at: usize) -> *const CTensor {
    // SAFETY: the caller guarantees this.
    unsafe { results.as_ref() }.map_or(ptr::null(), |results| results.described.get(at))
}

/// Sets the states to zeros.
///
/// # Safety
/// `model` is a handle that no other thread uses at the same time. `error` is null or points to space for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eutectic_clear_states(model: *mut CModel, error: *mut *mut c_char) -> c_int {
    // SAFETY: the caller guarantees this.
    let cleared = unsafe {
        told(error, || {
            let model = model.as_mut();
            let model = model.ok_or("cannot clear the states of a model that is NULL; open a model first")?;
            let session = model.model.session();
            let names: Vec<String> = session.program().states.iter().map(|(name, _)| name.clone()).collect();
            for name in names {
                let port = session.state(&name).map_err(|e| e.to_string())?;
                session.clear(port).map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    };
    c_int::from(cleared.is_some())
}
