//! CUDA as a device of the shared runtime: memory, modules, and streams whose launches are recorded as graphs.

use std::{ffi::c_void, path::PathBuf, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::{BackendError, Cost, Limits, Memory};
use eutectic_gpu::{
    cost::Costs,
    device::{Block, Device, Shape},
    launch::{Launch, Work},
};
use rayon::prelude::*;

use crate::{
    kernels,
    library::{Library, Planned},
    nvrtc,
    stream::Queue,
};

/// Operations from which on a product of its own launch is worth asking the library.
const WORTH_THE_LIBRARY: f64 = 5e8;

/// What things cost on an H100.
///
/// # Panics
/// Never: the file is part of the program, and a test reads it.
pub fn costs() -> Costs {
    Costs::read(include_str!("../costs/h100.toml")).expect("the embedded file is right")
}

/// How to run on CUDA.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Which of the devices, from 0.
    pub ordinal: usize,
    /// Where compiled kernels are kept from process to process; none to compile them anew.
    pub cache: Option<PathBuf>,
    /// What things cost.
    pub costs: Costs,
}

impl Default for CudaOptions {
    /// The first device, a cache in the user's folder, the embedded costs.
    fn default() -> CudaOptions {
        let cache = std::env::home_dir().map(|home| home.join(".cache").join("eutectic").join("cuda"));
        CudaOptions { ordinal: 0, cache, costs: costs() }
    }
}

/// A CUDA device.
pub struct Cuda {
    context: Arc<CudaContext>,
    compiler: nvrtc::Compiler,
    /// Or why it is not there.
    library: Result<Arc<Library>, String>,
    shape: Shape,
    costs: Costs,
    name: String,
    bytes: usize,
}

impl Cuda {
    /// Opens a device.
    ///
    /// # Errors
    /// The library that is missing and where it was looked for, or that there is no such device.
    pub fn new(options: &CudaOptions) -> Result<Cuda, BackendError> {
        // SAFETY: loading the driver runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            let what = "the CUDA driver, which comes with NVIDIA's graphics driver, is missing".into();
            return Err(BackendError::Missing { what, places: nvrtc::places("cuda") });
        }
        let context = CudaContext::new(options.ordinal)
            .map_err(|e| BackendError::Device(format!("CUDA has no device {}: {e}", options.ordinal)))?;
        // SAFETY: nothing here relies on events that cudarc records: each session orders its own stream. Capturing fails with them.
        unsafe { context.disable_event_tracking() };
        let attribute = |which| context.attribute(which).map_err(failed("asking the device"));
        let library = Library::new().map(Arc::new);
        use sys::CUdevice_attribute as Attribute;
        let shape = Shape {
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            library: library.is_ok().then_some(WORTH_THE_LIBRARY),
        };
        let (major, minor) = context.compute_capability().map_err(failed("asking the device"))?;
        if major < 8 {
            let why = format!("device {} is of compute capability {major}.{minor}; kernels need 8.0", options.ordinal);
            return Err(BackendError::Device(why));
        }
        let mut version = 0;
        // SAFETY: the number is there.
        unsafe { sys::cuDriverGetVersion(&mut version) };
        let architecture = format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let compiler = nvrtc::Compiler::new(&architecture, options.cache.as_deref(), version)?;
        let name = format!("{} ({architecture})", context.name().map_err(failed("asking the device"))?);
        let bytes = context.total_mem().map_err(failed("asking the device"))?;
        Ok(Cuda { context, compiler, library, shape, costs: options.costs, name, bytes })
    }

    fn enter(&self) -> Result<(), BackendError> {
        self.context.bind_to_thread().map_err(failed("entering the context"))
    }
}

/// What the driver says that went wrong.
pub fn failed(what: &'static str) -> impl Fn(result::DriverError) -> BackendError {
    move |error| {
        let why = error.error_string().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        BackendError::Device(format!("CUDA: {what}: {error:?} {why}"))
    }
}

/// What is launched.
pub enum Module {
    /// A compiled kernel.
    Kernel(Kernel),
    /// A product of the library's.
    Product(Box<Planned>),
}

/// A compiled kernel.
pub struct Kernel {
    module: sys::CUmodule,
    function: sys::CUfunction,
    context: Arc<CudaContext>,
}

// SAFETY: the driver's functions on modules may be called from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Its entry.
    pub fn function(&self) -> sys::CUfunction {
        self.function
    }
}

impl Drop for Kernel {
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

impl Block for Region {
    fn address(&self) -> u64 {
        self.at
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn host(&self) -> Option<&[u8]> {
        // SAFETY: pinned memory of that size, at one address on both sides, written by nobody else while it is borrowed.
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
        // SAFETY: it was allocated so, and whoever drops it has waited.
        unsafe {
            match self.memory {
                Memory::Device => _ = result::free_sync(self.at),
                Memory::Host => _ = result::free_host(self.at as *mut c_void),
            }
        }
    }
}

impl Device for Cuda {
    type Module = Module;
    type Block = Region;
    type Stream = Queue;

    fn name(&self) -> &str {
        "cuda"
    }

    fn describe(&self) -> String {
        let library = self.library.as_ref().map_or_else(String::clone, |_| "with cuBLASLt".into());
        format!("{}, {} processors, {} GiB, {library}", self.name, self.shape.processors, self.bytes >> 30)
    }

    fn limits(&self) -> Limits {
        // Kernel parameters take 4 KiB; three of them are the runtime's own.
        Limits { alignment: 256, capacity: self.bytes, arguments: 4000, ..Limits::default() }
    }

    fn print(&self, kernel: &eutectic_backend::Kernel) -> Result<Vec<Launch>, Vec<String>> {
        kernels::print(&self.shape, kernel)
    }

    fn cost(&self, kernel: &eutectic_backend::Kernel) -> Cost {
        match kernels::supports(kernel) {
            Ok(()) => self.costs.cost(&self.shape, kernel),
            Err(_) => Cost::IMPOSSIBLE,
        }
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        launches.par_iter().map(|launch| self.module(launch)).collect()
    }

    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Region, BackendError> {
        self.enter()?;
        let size = bytes.max(16).next_multiple_of(16);
        let full = |e: result::DriverError| {
            BackendError::Device(format!("no {size} bytes of memory are left on the device: {e}"))
        };
        // SAFETY: the size is not zero; memory is zeroed before anybody has it.
        let at = unsafe {
            match memory {
                Memory::Device => {
                    let at = result::malloc_sync(size).map_err(full)?;
                    // Clearing is asynchronous to the host, and not ordered with what other streams do.
                    let cleared = result::memset_d8_sync(at, 0, size);
                    cleared
                        .and_then(|()| result::stream::synchronize(result::stream::null()))
                        .map_err(failed("clearing memory"))?;
                    at
                }
                Memory::Host => {
                    let at = result::malloc_host(size, 0).map_err(full)?;
                    at.cast::<u8>().write_bytes(0, size);
                    at as u64
                }
            }
        };
        Ok(Region { at, bytes, memory, context: self.context.clone() })
    }

    fn stream(&self) -> Result<Queue, BackendError> {
        self.enter()?;
        Queue::new(&self.context)
    }
}

impl Cuda {
    fn module(&self, launch: &Launch) -> Result<Module, String> {
        let text = match (&launch.work, &self.library) {
            (Work::Printed(text), _) => text,
            (Work::Product(product), Ok(library)) => {
                self.context.bind_to_thread().map_err(|e| e.to_string())?;
                return Ok(Module::Product(Box::new(Planned::new(library, product)?)));
            }
            (Work::Product(_), Err(why)) => return Err(why.clone()),
        };
        let code = self.compiler.compile(text)?;
        let driver = |e: result::DriverError| format!("the driver does not take a compiled kernel: {e}");
        self.context.bind_to_thread().map_err(driver)?;
        // SAFETY: the code is NVRTC's, or was when it was put into the cache; the driver checks its form.
        unsafe {
            let module = result::module::load_data(code.as_ptr().cast()).map_err(driver)?;
            let function = result::module::get_function(module, c"kernel".into()).map_err(driver)?;
            let kernel = Kernel { module, function, context: self.context.clone() };
            let dynamic = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            if launch.shared > 48 << 10 {
                result::function::set_function_attribute(function, dynamic, launch.shared as i32).map_err(driver)?;
            }
            Ok(Module::Kernel(kernel))
        }
    }
}
