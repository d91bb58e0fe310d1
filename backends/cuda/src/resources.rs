//! Owned driver resources: modules and memory, which are freed when they are dropped.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::{BackendError, Memory};
use eutectic_gpu::device::DeviceMemory;

use crate::library::PlannedProduct;

/// Returns a function that converts a driver error to an error that names the failed action.
pub fn failed(what: &'static str) -> impl Fn(result::DriverError) -> BackendError {
    move |error| {
        let why = error.error_string().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        BackendError::Device(format!("CUDA failed while {what}: {error:?} {why}"))
    }
}

/// The code of a launch.
pub enum Module {
    /// A compiled kernel.
    Kernel(CudaFunction),
    /// A product by the library.
    Product(Box<PlannedProduct>),
}

/// A compiled kernel.
pub struct CudaFunction {
    module: sys::CUmodule,
    function: sys::CUfunction,
    context: Arc<CudaContext>,
}

// SAFETY: the driver's functions on modules may be called from any thread.
unsafe impl Send for CudaFunction {}
// SAFETY: the driver's functions on modules may be called from any thread.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// Loads machine code with a kernel that takes `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// Returns the driver's message.
    pub fn load(context: &Arc<CudaContext>, code: &[u8], shared: usize) -> Result<CudaFunction, String> {
        let driver = |e: result::DriverError| format!("the driver cannot load a compiled kernel: {e}");
        context.bind_to_thread().map_err(driver)?;
        // SAFETY: the code is NVRTC's, directly or from the cache, and the driver checks its form.
        unsafe {
            let module = result::module::load_data(code.as_ptr().cast()).map_err(driver)?;
            let function = result::module::get_function(module, c"kernel".into()).map_err(driver)?;
            let kernel = CudaFunction { module, function, context: context.clone() };
            let dynamic = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            if shared > 48 << 10 {
                result::function::set_function_attribute(function, dynamic, shared as i32).map_err(driver)?;
            }
            Ok(kernel)
        }
    }

    /// Returns the handle of the kernel, for launches.
    pub fn function(&self) -> sys::CUfunction {
        self.function
    }
}

impl Drop for CudaFunction {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: no launch uses the module any more. Sessions hold the code, and wait for their streams before they
        // drop it.
        unsafe { _ = result::module::unload(self.module) };
    }
}

/// Device memory, or pinned host memory that the device reaches.
pub struct Region {
    at: u64,
    bytes: usize,
    memory: Memory,
    context: Arc<CudaContext>,
}

impl Region {
    /// Takes ownership of memory that the driver allocated.
    pub fn new(at: u64, bytes: usize, memory: Memory, context: &Arc<CudaContext>) -> Region {
        Region { at, bytes, memory, context: context.clone() }
    }
}

impl DeviceMemory for Region {
    fn address(&self) -> u64 {
        self.at
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn host(&self) -> Option<&[u8]> {
        // SAFETY: this is pinned memory of `bytes` bytes, with one address on host and device. Nobody else writes it
        // while it is borrowed.
        (self.memory == Memory::Host).then(|| unsafe { std::slice::from_raw_parts(self.at as *const u8, self.bytes) })
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: this is pinned memory of `bytes` bytes, and `self` is borrowed exclusively.
        (self.memory == Memory::Host).then(|| unsafe { std::slice::from_raw_parts_mut(self.at as *mut u8, self.bytes) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: the driver allocated this kind of memory, and its users have finished.
        unsafe {
            match self.memory {
                Memory::Device => _ = result::free_sync(self.at),
                Memory::Host => _ = result::free_host(self.at as *mut c_void),
            }
        }
    }
}
