//! Owned driver resources: modules and memory, which are freed when they are dropped.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::{BackendError, Memory};
use eutectic_gpu::device::DeviceMemory;

use crate::library::PlannedProduct;

/// Returns a function that converts a driver error of an action.
pub fn failed(what: &'static str) -> impl Fn(result::DriverError) -> BackendError {
    move |error| {
        let why = error.error_string().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        BackendError::Device(format!("CUDA: {what}: {error:?} {why}"))
    }
}

/// The code of a launch.
pub enum Module {
    /// A compiled kernel.
    Kernel(CudaFunction),
    /// A product of the library's.
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
// SAFETY: as above.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// Loads machine code whose kernels take `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// The driver's message.
    pub fn load(context: &Arc<CudaContext>, code: &[u8], shared: usize) -> Result<CudaFunction, String> {
        let driver = |e: result::DriverError| format!("the driver cannot load a compiled kernel: {e}");
        context.bind_to_thread().map_err(driver)?;
        // SAFETY: the code is NVRTC's, or was when it was put into the cache; the driver checks its form.
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

    /// Returns its entry.
    pub fn function(&self) -> sys::CUfunction {
        self.function
    }
}

impl Drop for CudaFunction {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: nothing runs it any more: sessions wait for their streams, and they hold the code.
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
        // SAFETY: this is pinned memory of that size, with one address on host and device, and nobody else writes it
        // while it is borrowed.
        (self.memory == Memory::Host).then(|| unsafe { std::slice::from_raw_parts(self.at as *const u8, self.bytes) })
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above.
        (self.memory == Memory::Host).then(|| unsafe { std::slice::from_raw_parts_mut(self.at as *mut u8, self.bytes) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: the memory was allocated this way, and its users have finished.
        unsafe {
            match self.memory {
                Memory::Device => _ = result::free_sync(self.at),
                Memory::Host => _ = result::free_host(self.at as *mut c_void),
            }
        }
    }
}
