//! CUDA as a device of the shared runtime: memory, modules, and streams whose launches are recorded as graphs.

use std::{path::PathBuf, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::{
    BackendError, Cost, Limits, Memory, RowLimits, Setup,
    costs::CostSheet,
    fit::{Fitted, Freedom, Measured},
};
use eutectic_gpu::{
    cost::{Costs, DeviceCosts},
    device::{Device, DeviceShape},
    launch::{Launch, Work},
};
use rayon::prelude::*;

use crate::{
    dialect::{combined, dtypes},
    kernels,
    library::{Library, PlannedProduct},
    nvrtc,
    resources::{CudaFunction, Module, Region, failed},
    stream::{Launching, Queue},
};

/// The name of the backend.
const NAME: &str = "cuda";
/// The number of operations from which on a product is worth a separate launch of the library.
pub(crate) const WORTH_THE_LIBRARY: f64 = 5e7;
/// The first driver version whose recorded graphs let a kernel start before the previous one has ended.
const GRAPHS_OVERLAP: i32 = 12_030;

/// Returns the embedded costs of an H200.
///
/// # Panics
/// This function never panics, because the file is embedded and a test reads it.
pub fn costs() -> Costs {
    Costs::read(include_str!("../costs/h200.toml")).expect("the embedded file is valid")
}

/// Returns the limits of a device with `capacity` bytes of memory.
pub(crate) fn limits(capacity: usize) -> Limits {
    // Kernel parameters take at most 4 KiB. The rest is for the runtime's three arguments.
    Limits {
        alignment: 256,
        capacity,
        arguments: 4000,
        dtypes: dtypes(),
        in_order: true,
        combined: combined(),
        rows: RowLimits::ANY,
        ..Limits::default()
    }
}

/// Options of the CUDA backend.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The number of the device, from 0.
    pub ordinal: usize,
    /// The folder that caches compiled kernels between processes; without one, each process compiles them.
    pub cache: Option<PathBuf>,
    /// The costs, and whether launches are serialized. Serialization works around compute-sanitizer, under which one of
    /// every 64 recorded runs fails.
    pub setup: Setup,
}

impl Default for CudaOptions {
    /// Returns options for the first device, with a cache in the user's folder and the embedded costs.
    fn default() -> CudaOptions {
        let cache = std::env::home_dir().map(|home| home.join(".cache").join("eutectic").join("cuda"));
        CudaOptions { ordinal: 0, cache, setup: Setup::default() }
    }
}

/// A CUDA device.
pub struct Cuda {
    context: Arc<CudaContext>,
    compiler: nvrtc::Nvrtc,
    /// cuBLASLt, or the reason why it is missing.
    library: Result<Arc<Library>, String>,
    shape: DeviceShape,
    costs: DeviceCosts,
    name: String,
    described: String,
    bytes: usize,
    launching: Launching,
}

impl Cuda {
    /// Opens a device.
    ///
    /// # Errors
    /// Returns an error if there is no such device, or if a library is missing. The error says where the library was
    /// searched.
    pub fn new(options: &CudaOptions) -> Result<Cuda, BackendError> {
        // SAFETY: loading the driver runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            let what = "the CUDA driver, which comes with NVIDIA's graphics driver, is missing".into();
            return Err(BackendError::Missing { what, places: nvrtc::places("cuda") });
        }
        let context = CudaContext::new(options.ordinal)
            .map_err(|e| BackendError::Device(format!("cannot open CUDA device {}: {e}", options.ordinal)))?;
        // SAFETY: no code relies on the events that cudarc records, because each session orders its own stream.
        // Capturing a stream fails with them.
        unsafe { context.disable_event_tracking() };
        let attribute = |which| context.attribute(which).map_err(failed("querying the device"));
        let library = Library::new().map(Arc::new);
        let name = context.name().map_err(failed("querying the device"))?;
        let costs = DeviceCosts::choose(&options.setup, NAME, &name, costs())?;
        use sys::CUdevice_attribute as Attribute;
        let (major, minor) = context.compute_capability().map_err(failed("querying the device"))?;
        let shape = DeviceShape {
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            threads: 1024,
            // On an H200, summing 1,024 columns of 65,536 rows reads 4.0 TB/s with this value, and 3.4 TB/s with 1,024
            // threads. Summing 768 columns of 4,096 rows takes 3.6 us instead of 4.1 us.
            column_threads: 512,
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            workspace: usize::MAX,
            // Kernels for clusters use instructions of Hopper (9.x), which later architectures lack.
            cluster: if major == 9 { 8 } else { 0 },
            library: library.is_ok().then_some(WORTH_THE_LIBRARY),
            rankings: costs.of.rankings,
        };
        if major < 8 {
            let why = format!(
                "cannot use CUDA device {} of compute capability {major}.{minor}; kernels need 8.0",
                options.ordinal
            );
            return Err(BackendError::Device(why));
        }
        let mut version = 0;
        // SAFETY: the pointer refers to a live integer.
        unsafe { sys::cuDriverGetVersion(&mut version) };
        let architecture = format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let compiler = nvrtc::Nvrtc::new(&architecture, options.cache.as_deref(), version)?;
        let described = format!("{name} ({architecture})");
        let bytes = context.total_mem().map_err(failed("querying the device"))?;
        // Printed kernels wait for each other on the device, if its architecture and the recorded graphs of its driver
        // support this.
        let launching = match () {
            () if options.setup.serialize_launches => Launching::Serialized,
            () if major >= 9 && version >= GRAPHS_OVERLAP => Launching::Overlapping,
            () => Launching::Recorded,
        };
        Ok(Cuda { context, compiler, library, shape, costs, name, described, bytes, launching })
    }

    /// Returns the properties that schedules depend on.
    pub fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    /// Returns the bytes of free memory.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    pub fn free(&self) -> Result<usize, BackendError> {
        self.enter()?;
        result::mem_get_info().map(|(free, _)| free).map_err(failed("querying free memory"))
    }

    fn enter(&self) -> Result<(), BackendError> {
        self.context.bind_to_thread().map_err(failed("entering the context"))
    }
}

impl Device for Cuda {
    type Module = Module;
    type Block = Region;
    type Stream = Queue;

    fn name(&self) -> &str {
        NAME
    }

    fn device(&self) -> String {
        self.name.clone()
    }

    fn costs(&self) -> Option<CostSheet> {
        Some(self.costs.sheet())
    }

    fn describe(&self) -> String {
        let library = self.library.as_ref().map_or_else(String::clone, |_| "with cuBLASLt".into());
        format!("{}, {} processors, {} GiB, {library}", self.described, self.shape.processors, self.bytes >> 30)
    }

    fn limits(&self) -> Limits {
        limits(self.bytes)
    }

    fn print(&self, kernel: &eutectic_backend::Kernel) -> Result<Vec<Launch>, Vec<String>> {
        kernels::print(&self.shape, kernel)
    }

    fn cost(&self, kernel: &eutectic_backend::Kernel) -> Cost {
        match kernels::supports(kernel) {
            Ok(()) => self.costs.of.cost(&self.shape, kernel),
            Err(_) => Cost::IMPOSSIBLE,
        }
    }

    fn ways(&self, kernel: &eutectic_backend::Kernel) -> Vec<(String, f64)> {
        kernels::expected(&self.shape, kernel)
    }

    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        self.costs.of.fit(&self.shape, measured, freedom)
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        launches.par_iter().map(|launch| self.module(launch)).collect()
    }

    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Region, BackendError> {
        self.enter()?;
        let size = bytes.max(16).next_multiple_of(16);
        let full = |e: result::DriverError| {
            BackendError::Memory(format!("cannot allocate {size} bytes of memory on the device: {e}"))
        };
        // SAFETY: the size is not zero, and memory is zeroed before it is returned.
        let at = unsafe {
            match memory {
                Memory::Device => {
                    let at = result::malloc_sync(size).map_err(full)?;
                    // Clearing does not block the host, and is not ordered with other streams, so it is waited for.
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
        Ok(Region::new(at, bytes, memory, &self.context))
    }

    fn stream(&self) -> Result<Queue, BackendError> {
        self.enter()?;
        Queue::new(&self.context, self.launching)
    }
}

impl Cuda {
    fn module(&self, launch: &Launch) -> Result<Module, String> {
        let text = match (&launch.work, &self.library) {
            (Work::Printed(text), _) => text,
            (Work::Product(product), Ok(library)) => {
                self.context.bind_to_thread().map_err(|e| e.to_string())?;
                return Ok(Module::Product(Box::new(PlannedProduct::new(library, product)?)));
            }
            (Work::Product(_), Err(why)) => return Err(why.clone()),
        };
        let code = self.compiler.compile(text)?;
        CudaFunction::load(&self.context, &code, launch.shared).map(Module::Kernel)
    }
}
