//! CUDA as a device of the shared runtime: memory, modules, and streams whose launches are recorded as graphs.

use std::{path::PathBuf, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::{
    BackendError, Cost, Limits, Memory, RowLimits,
    fit::{Fitted, Measured},
};
use eutectic_gpu::{
    cost::Costs,
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

/// Operations from which on a product of its own launch is worth asking the library.
pub(crate) const WORTH_THE_LIBRARY: f64 = 5e7;
/// The first version of the driver whose graphs keep that a kernel may start before the one before it has ended.
const GRAPHS_OVERLAP: i32 = 12_030;

/// What things cost on an H200.
///
/// # Panics
/// Never: the file is part of the program, and a test reads it.
pub fn costs() -> Costs {
    Costs::read(include_str!("../costs/h200.toml")).expect("the embedded file is right")
}

/// What sizes a device with so many bytes of memory takes.
pub(crate) fn limits(capacity: usize) -> Limits {
    // Kernel parameters take 4 KiB; three of them are the runtime's own.
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

/// How to run on CUDA.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Which of the devices, from 0.
    pub ordinal: usize,
    /// Where compiled kernels are kept from process to process; none to compile them anew.
    pub cache: Option<PathBuf>,
    /// What things cost.
    pub costs: Costs,
    /// Whether kernels are launched one by one, each when the one before it has ended, in place of recorded runs: of every 64 runs that are
    /// recorded under compute-sanitizer, one fails.
    pub apart: bool,
}

impl Default for CudaOptions {
    /// The first device, a cache in the user's folder, the embedded costs.
    fn default() -> CudaOptions {
        let cache = std::env::home_dir().map(|home| home.join(".cache").join("eutectic").join("cuda"));
        CudaOptions { ordinal: 0, cache, costs: costs(), apart: false }
    }
}

/// A CUDA device.
pub struct Cuda {
    context: Arc<CudaContext>,
    compiler: nvrtc::Nvrtc,
    /// Or why it is not there.
    library: Result<Arc<Library>, String>,
    shape: DeviceShape,
    costs: Costs,
    name: String,
    bytes: usize,
    launching: Launching,
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
        let (major, minor) = context.compute_capability().map_err(failed("asking the device"))?;
        let shape = DeviceShape {
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            threads: 1024,
            // On an H200, sums of 1,024 columns of 65,536 rows read 4.0 TB/s so, and 3.4 with twice as many; of 768 columns of 4,096 rows they take
            // 3.6 us and 4.1.
            column_threads: 512,
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            workspace: usize::MAX,
            // Those of Hopper; later ones are others.
            cluster: if major == 9 { 8 } else { 0 },
            library: library.is_ok().then_some(WORTH_THE_LIBRARY),
        };
        if major < 8 {
            let why = format!("device {} is of compute capability {major}.{minor}; kernels need 8.0", options.ordinal);
            return Err(BackendError::Device(why));
        }
        let mut version = 0;
        // SAFETY: the number is there.
        unsafe { sys::cuDriverGetVersion(&mut version) };
        let architecture = format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let compiler = nvrtc::Nvrtc::new(&architecture, options.cache.as_deref(), version)?;
        let name = format!("{} ({architecture})", context.name().map_err(failed("asking the device"))?);
        let bytes = context.total_mem().map_err(failed("asking the device"))?;
        // Printed kernels wait for each other themselves where the processor can, and the driver can record that.
        let launching = match () {
            () if options.apart => Launching::Apart,
            () if major >= 9 && version >= GRAPHS_OVERLAP => Launching::Overlapping,
            () => Launching::Recorded,
        };
        Ok(Cuda { context, compiler, library, shape, costs: options.costs, name, bytes, launching })
    }

    /// What schedules depend on.
    pub fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    /// Bytes of its memory that nobody has.
    ///
    /// # Errors
    /// When the device failed.
    pub fn free(&self) -> Result<usize, BackendError> {
        self.enter()?;
        result::mem_get_info().map(|(free, _)| free).map_err(failed("asking for free memory"))
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
        "cuda"
    }

    fn describe(&self) -> String {
        let library = self.library.as_ref().map_or_else(String::clone, |_| "with cuBLASLt".into());
        format!("{}, {} processors, {} GiB, {library}", self.name, self.shape.processors, self.bytes >> 30)
    }

    fn limits(&self) -> Limits {
        limits(self.bytes)
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

    fn ways(&self, kernel: &eutectic_backend::Kernel) -> Vec<(String, f64)> {
        kernels::expected(&self.shape, kernel)
    }

    fn fit(&self, measured: &[Measured]) -> Option<Fitted> {
        self.costs.fit(&self.shape, measured)
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        launches.par_iter().map(|launch| self.module(launch)).collect()
    }

    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Region, BackendError> {
        self.enter()?;
        let size = bytes.max(16).next_multiple_of(16);
        let full = |e: result::DriverError| {
            BackendError::Memory(format!("no {size} bytes of memory are left on the device: {e}"))
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
