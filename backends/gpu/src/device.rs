//! What a GPU offers to the runtime that all GPU backends share: memory, modules, and streams that work in order.

use std::{any::Any, time::Duration};

use eutectic_backend::{
    BackendError, Cost, Kernel, Limits, Memory,
    fit::{Fitted, Measured},
};

use crate::launch::Launch;

/// What schedules depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceShape {
    /// Processors that run blocks independently.
    pub processors: usize,
    /// Most threads of a block: a power of two, of at least 128.
    pub threads: usize,
    /// Most threads of a block whose rows lie side by side: a power of two, no more than `threads`.
    pub column_threads: usize,
    /// Most bytes of shared memory of a block.
    pub shared: usize,
    /// Most bytes that a kernel may have for itself, as one buffer.
    pub workspace: usize,
    /// Most blocks of a cluster, which see each other's shared memory; 0 where there are none, nor matrix units that read shared memory.
    pub cluster: usize,
    /// Operations from which on a library's product is worth a launch of its own; none where there is no library.
    pub library: Option<f64>,
}

/// Most bytes of statically sized shared memory of a block, on devices that have more.
const STATIC: usize = 48 << 10;

impl DeviceShape {
    /// Returns the bytes of shared memory that a kernel may declare with a size in its text.
    pub fn static_shared(&self) -> usize {
        self.shared.min(STATIC)
    }
}

#[cfg(test)]
impl DeviceShape {
    /// An H200's, without clusters.
    pub const OF_TESTS: DeviceShape = DeviceShape {
        processors: 132,
        threads: 1024,
        column_threads: 512,
        shared: 48 << 10,
        workspace: 1 << 20,
        cluster: 0,
        library: None,
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

    /// As [`eutectic_backend::Backend::name`].
    fn name(&self) -> &str;

    /// As [`eutectic_backend::Backend::describe`].
    fn describe(&self) -> String;

    /// As [`eutectic_backend::Backend::limits`].
    fn limits(&self) -> Limits;

    /// Prints a kernel: what is launched for it, in order.
    ///
    /// # Errors
    /// Why it cannot be.
    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>>;

    /// As [`eutectic_backend::Backend::cost`].
    fn cost(&self, kernel: &Kernel) -> Cost;

    /// Returns the ways between which [`Device::print`] chooses, with the seconds that each is expected to take, the fastest first. Nothing where
    /// it has one way only.
    fn ways(&self, kernel: &Kernel) -> Vec<(String, f64)> {
        let _ = kernel;
        Vec::new()
    }

    /// As [`eutectic_backend::Backend::warm_up`].
    fn warm_up(&self) -> Duration {
        Duration::ZERO
    }

    /// As [`eutectic_backend::Backend::fit`].
    fn fit(&self, measured: &[Measured]) -> Option<Fitted> {
        let _ = measured;
        None
    }

    /// Compiles texts, in parallel.
    fn build(&self, launches: &[Launch]) -> Vec<Result<Self::Module, String>>;

    /// Memory, all zeros.
    ///
    /// # Errors
    /// When there is none left.
    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Self::Block, BackendError>;

    /// A queue of its own.
    ///
    /// # Errors
    /// When the device failed.
    fn stream(&self) -> Result<Self::Stream, BackendError>;
}

/// Memory of a device.
pub trait DeviceMemory: Any + Send + Sync {
    /// Where it starts, for kernels.
    fn address(&self) -> u64;

    /// Its size.
    fn bytes(&self) -> usize;

    /// Its bytes, if the host reaches them.
    fn host(&self) -> Option<&[u8]>;

    /// See [`DeviceMemory::host`].
    fn host_mut(&mut self) -> Option<&mut [u8]>;
}

/// A queue: what is put in is done in order.
pub trait Stream: Send {
    /// A compiled kernel of its device.
    type Module;
    /// Launches that were recorded.
    type Graph: Send;

    /// Copies bytes to the device; they may change as soon as this returns.
    ///
    /// # Errors
    /// When the device failed, as for all others.
    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError>;

    /// Waits, and copies bytes from the device.
    ///
    /// # Errors
    /// When the device failed.
    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError>;

    /// Copies on the device.
    ///
    /// # Errors
    /// When the device failed.
    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// When the device failed.
    fn launch(&mut self, module: &Self::Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError>;

    /// What is launched from now on waits for what was launched before. Streams that do so anyhow need not know.
    ///
    /// # Errors
    /// When the device failed.
    fn barrier(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Says that bytes will be downloaded once all that was put in is done, so that they can be fetched along with it.
    ///
    /// # Errors
    /// When the device failed.
    fn announce(&mut self, _from: u64, _bytes: usize) -> Result<(), BackendError> {
        Ok(())
    }

    /// Begins with what was put in, if the stream has kept it back.
    ///
    /// # Errors
    /// When the device failed.
    fn start(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Whether runs are recorded once and replayed; otherwise each launches its kernels one by one.
    fn records(&self) -> bool {
        true
    }

    /// From now on launches are recorded and not run.
    ///
    /// # Errors
    /// When the device failed.
    fn begin(&mut self) -> Result<(), BackendError>;

    /// What was recorded since [`Stream::begin`].
    ///
    /// # Errors
    /// When the device failed.
    fn end(&mut self) -> Result<Self::Graph, BackendError>;

    /// Runs what was recorded.
    ///
    /// # Errors
    /// When the device failed.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), BackendError>;

    /// Waits until everything is done.
    ///
    /// # Errors
    /// When the device failed.
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Notes the time on the device; [`Stream::seconds`] are those between two notes, once all is done.
    ///
    /// # Errors
    /// When the device failed.
    fn note(&mut self, n: usize) -> Result<(), BackendError>;

    /// See [`Stream::note`].
    ///
    /// # Errors
    /// When the device failed.
    fn seconds(&mut self, from: usize, to: usize) -> Result<f64, BackendError>;
}
