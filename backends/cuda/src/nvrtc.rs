//! Compiles kernels by NVRTC, which needs no GPU, and caches them on disk by text, architecture and version.

use std::{
    ffi::{CStr, CString},
    path::Path,
};

use cudarc::nvrtc::{result, sys};
use eutectic_backend::BackendError;
use eutectic_gpu::cache::Cache;

/// The text before each kernel. It includes instructions that some devices lack. Kernels for such devices do not call
/// them.
const INTRINSICS: &str = concat!(include_str!("text/intrinsics.cu"), include_str!("text/hopper.cu"));

/// The first version of NVRTC with options that omit unused features (textures, the runtime's functions). With them, an
/// empty kernel compiles in 24 ms instead of 33 ms.
const MINIMAL: (i32, i32) = (12, 4);

/// The compiler for an architecture, such as `sm_90a`.
pub struct Nvrtc {
    options: Vec<String>,
    /// The cache of compiled kernels, and the part of their names that does not depend on their text.
    cache: Option<(Cache, String)>,
}

/// Returns a description of the places where the loader searches for a library.
pub fn places(library: &str) -> Vec<String> {
    let names = cudarc::get_lib_name_candidates(library);
    vec![format!(
        "{} and {} other names, in the loader's path (LD_LIBRARY_PATH, ld.so.cache)",
        names[0],
        names.len() - 1
    )]
}

impl Nvrtc {
    /// Loads NVRTC for an architecture. `cache` is a folder, and `version` the driver's version.
    ///
    /// # Errors
    /// Returns an error if NVRTC is not installed.
    pub fn new(architecture: &str, cache: Option<&Path>, version: i32) -> Result<Nvrtc, BackendError> {
        // SAFETY: loading NVRTC runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            let what = "NVRTC, which compiles kernels and comes with the CUDA toolkit, is missing".into();
            return Err(BackendError::Missing { what, places: places("nvrtc") });
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers refer to live integers.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        let cache = cache.map(|folder| (Cache::new(folder), format!("{architecture} {version} {major}.{minor}")));
        // Warnings about unused functions would hide errors, so they are disabled.
        let mut options =
            vec![format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "--disable-warnings".into()];
        if (major, minor) >= MINIMAL {
            options.push("--minimal".into());
        }
        Ok(Nvrtc { options, cache })
    }

    /// Returns the machine code of a kernel, from the cache if possible.
    ///
    /// # Errors
    /// Returns the messages of NVRTC.
    pub fn compile(&self, text: &str) -> Result<Vec<u8>, String> {
        let Some((cache, key)) = &self.cache else { return self.compile_anew(text) };
        let name = Cache::name(&[key, INTRINSICS, text], "cubin");
        if let Some(code) = cache.read(&name) {
            return Ok(code);
        }
        let code = self.compile_anew(text)?;
        cache.write(&name, &code);
        Ok(code)
    }

    fn compile_anew(&self, text: &str) -> Result<Vec<u8>, String> {
        let source = CString::new([INTRINSICS, text].concat()).map_err(|e| e.to_string())?;
        let program = result::create_program(&source, Some(c"kernel.cu"))
            .map_err(|e| format!("NVRTC cannot create a program: {e:?}"))?;
        // SAFETY: the program was created above, and is destroyed last.
        unsafe {
            let compiled = result::compile_program(program, &self.options);
            let code = match compiled {
                Ok(()) => cubin(program),
                Err(error) => {
                    let log = result::get_program_log(program).unwrap_or_default();
                    let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
                    let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
                    Err(format!("NVRTC cannot compile a generated kernel, a defect of the backend: {error:?}\n{log}"))
                }
            };
            let _ = result::destroy_program(program);
            code
        }
    }
}

/// Returns the machine code of a program.
///
/// # Safety
/// The program must have been compiled.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the buffer has the size that NVRTC stated.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size)
            .result()
            .map_err(|e| format!("NVRTC cannot return machine code: {e:?}"))?;
        let mut code = vec![0_u8; size];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast())
            .result()
            .map_err(|e| format!("NVRTC cannot return machine code: {e:?}"))?;
        Ok(code)
    }
}
