//! Defines the device interface that all GPU backends implement for the shared runtime: memory, modules, and in-order
//! streams.

use std::{any::Any, time::Duration};

use eutectic_backend::{
    BackendError, Cost, Kernel, Limits, Memory,
    costs::CostSheet,
    fit::{Fitted, Freedom, Measured},
};

use crate::{launch::Launch, ranking_costs::RankingCosts};

/// Properties of a device that schedules depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceShape {
    /// Processors that run blocks independently.
    pub processors: usize,
    /// The maximal number of threads of a block: a power of two, at least 128.
    pub threads: usize,
    /// The maximal number of threads per block in schedules where neighbouring threads process neighbouring rows. It is
    /// a power of two and at most `threads`.
    pub column_threads: usize,
    /// The maximal number of bytes of a block's shared memory.
    pub shared: usize,
    /// The maximal number of bytes of a kernel's scratch memory, which is one buffer.
    pub workspace: usize,
    /// The maximal number of blocks per cluster. The blocks of a cluster can read each other's shared memory. It is 0
    /// if the device has no clusters, or if its matrix units cannot read shared memory.
    pub cluster: usize,
    /// The number of operations from which on a product by the vendor's library is worth a separate launch; `None`
    /// without a library.
    pub library: Option<f64>,
    /// The cost coefficients of rankings.
    pub rankings: RankingCosts,
}

/// CUDA's limit on statically declared shared memory, in bytes per block. A kernel that needs more requests it at the
/// launch.
const STATIC: usize = 48 << 10;

impl DeviceShape {
    /// Returns the bytes of shared memory that a kernel may declare statically, with a size in its text.
    pub fn static_shared(&self) -> usize {
        self.shared.min(STATIC)
    }
}

#[cfg(test)]
impl DeviceShape {
    /// The shape of an H200 with its clusters disabled.
    pub const OF_TESTS: DeviceShape = DeviceShape {
        processors: 132,
        threads: 1024,
        column_threads: 512,
        shared: 48 << 10,
        workspace: 1 << 20,
        cluster: 0,
        library: None,
        rankings: RankingCosts::OF_TESTS,
    };
}

/// A GPU.
pub trait Device: Send + Sync + Sized + 'static {
    /// A compiled kernel.
    type Module: Send + Sync;
    /// Memory, freed when dropped.
    type Block: DeviceMemory;
    /// A queue of work.
    type Stream: Stream<Module = Self::Module>;

    /// Returns the name, as for [`eutectic_backend::Backend::name`].
    fn name(&self) -> &str;

    /// Describes the device, as for [`eutectic_backend::Backend::describe`].
    fn describe(&self) -> String;

    /// Returns the name of the device, as for [`eutectic_backend::Backend::device`].
    fn device(&self) -> String {
        self.describe()
    }

    /// Returns the cost coefficients; `None` for a device without any.
    fn costs(&self) -> Option<CostSheet> {
        None
    }

    /// Returns the limits, as for [`eutectic_backend::Backend::limits`].
    fn limits(&self) -> Limits;

    /// Prints a kernel. Returns its launches, in order.
    ///
    /// # Errors
    /// Returns the reasons why the kernel cannot be printed.
    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>>;

    /// Returns the price of a kernel, as for [`eutectic_backend::Backend::cost`].
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Returns the schedules among which [`Device::print`] chooses, each with its expected seconds, the fastest first.
    /// The list is empty if there is only one schedule.
    fn ways(&self, kernel: &Kernel) -> Vec<(String, f64)> {
        let _ = kernel;
        Vec::new()
    }

    /// Returns the warm-up time, as for [`eutectic_backend::Backend::warm_up`].
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }

    /// Fits the costs to measurements, as for [`eutectic_backend::Backend::fit`].
    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        let _ = (measured, freedom);
        None
    }

    /// Compiles texts, in parallel.
    fn build(&self, launches: &[Launch]) -> Vec<Result<Self::Module, String>>;

    /// Allocates memory filled with zeros.
    ///
    /// # Errors
    /// Returns an error if the device has too little free memory.
    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Self::Block, BackendError>;

    /// Creates a new queue of commands.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn stream(&self) -> Result<Self::Stream, BackendError>;
}

/// Memory of a device.
pub trait DeviceMemory: Any + Send + Sync {
    /// Returns the start address, as kernels receive it.
    fn address(&self) -> u64;

    /// Returns the size in bytes.
    fn bytes(&self) -> usize;

    /// Returns the bytes, if the host can access them.
    fn host(&self) -> Option<&[u8]>;

    /// Returns the bytes for writing, if the host can access them.
    fn host_mut(&mut self) -> Option<&mut [u8]>;
}

/// A queue of commands, which run in order.
pub trait Stream: Send {
    /// A compiled kernel of its device.
    type Module;
    /// A recorded sequence of launches.
    type Graph: Send;

    /// Copies bytes to the device. The caller may change the source as soon as the call returns.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError>;

    /// Waits for all enqueued work, and copies bytes from the device.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError>;

    /// Copies bytes from one address of the device to another.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn launch(&mut self, module: &Self::Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError>;

    /// Makes later launches wait for all earlier ones. Streams that always do so need not implement it.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn barrier(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Announces a download at the end of the enqueued work, so that the bytes can be copied together with it.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn announce(&mut self, _from: u64, _bytes: usize) -> Result<(), BackendError> {
        Ok(())
    }

    /// Starts the enqueued work, if the stream defers it.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn start(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Returns whether the stream supports recording. A run is then recorded once and replayed; otherwise each run
    /// launches its kernels one by one.
    fn records(&self) -> bool {
        true
    }

    /// Starts recording: later launches are recorded and do not run.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn begin(&mut self) -> Result<(), BackendError>;

    /// Ends recording, and returns the launches since [`Stream::begin`].
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn end(&mut self) -> Result<Self::Graph, BackendError>;

    /// Runs recorded commands.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), BackendError>;

    /// Waits until all enqueued work is done.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Enqueues a timestamp with the number `n`. After the work has finished, [`Stream::seconds`] returns the time
    /// between two timestamps.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn note(&mut self, n: usize) -> Result<(), BackendError>;

    /// Returns the seconds between the timestamps `from` and `to`, which [`Stream::note`] enqueued. The work must have
    /// finished.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    fn seconds(&mut self, from: usize, to: usize) -> Result<f64, BackendError>;
}
