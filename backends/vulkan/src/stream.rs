//! Streams. Command buffers are submitted only when something waits, so that the copies and launches of a run are one
//! submission.

use std::{
    mem::take,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use ash::vk;
use eutectic_backend::BackendError;
use eutectic_gpu::{
    device::{DeviceMemory, Stream},
    launch::Launch,
};
use gpu_allocator::MemoryLocation;

use crate::{
    commands::{Commands, wait_for},
    errors::failed,
    memory::{LogicalDevice, Region, lock},
    module::Module,
};

/// The maximal number of bytes that are staged at once.
const STAGED: usize = 32 << 20;
/// The time for which the host polls the device before it sleeps. A sleeping thread wakes up 50 us late, which is the
/// run time of a small model.
const ASKING: Duration = Duration::from_millis(10);
/// The number of timestamps per query pool.
const NOTES: u32 = 4096;

/// Host memory through which copies pass.
#[derive(Default)]
struct Staging {
    region: Option<Region>,
    used: usize,
}

impl Staging {
    /// Reserves `bytes` bytes; `None` if there is no room before the next wait.
    fn take(
        &mut self,
        shared: &Arc<LogicalDevice>,
        bytes: usize,
        location: MemoryLocation,
    ) -> Result<Option<usize>, BackendError> {
        let size = self.region.as_ref().map_or(0, DeviceMemory::bytes);
        if self.used + bytes > size {
            if self.used > 0 {
                return Ok(None);
            }
            self.region = None;
            self.region = Some(Region::new(shared, bytes.max(2 * size).max(1 << 16), location)?);
        }
        let at = self.used;
        self.used += bytes.next_multiple_of(16);
        Ok(Some(at))
    }
}

/// A download that is copied together with the enqueued work.
struct Fetched {
    from: u64,
    bytes: usize,
    at: usize,
}

/// A stream of commands.
pub struct Queue {
    shared: Arc<LogicalDevice>,
    commands: Commands,
    /// The command buffer under construction.
    open: Option<vk::CommandBuffer>,
    /// Work since the last barrier: uploaded ranges of addresses, copies on the device, and launches.
    uploads: Vec<Range<u64>>,
    copied: bool,
    launched: bool,
    list: Vec<vk::CommandBuffer>,
    recorded: Option<(Commands, vk::CommandBuffer)>,
    fence: vk::Fence,
    running: bool,
    up: Staging,
    down: Staging,
    wanted: Vec<Fetched>,
    fetched: Vec<Fetched>,
    notes: Vec<vk::QueryPool>,
}

// SAFETY: only the thread that holds the queue uses its objects.
unsafe impl Send for Queue {}

/// Recorded launches.
pub struct Recording(Commands, vk::CommandBuffer);

// SAFETY: only the thread that holds the recording uses its objects.
unsafe impl Send for Recording {}

impl Queue {
    /// Creates a new stream.
    pub fn new(shared: &Arc<LogicalDevice>) -> Result<Queue, BackendError> {
        let commands = Commands::new(shared)?;
        // SAFETY: the device is alive.
        let fence = unsafe { shared.device.create_fence(&vk::FenceCreateInfo::default(), None) }
            .map_err(failed("making a fence"))?;
        Ok(Queue {
            shared: shared.clone(),
            commands,
            open: None,
            uploads: Vec::new(),
            copied: false,
            launched: false,
            list: Vec::new(),
            recorded: None,
            fence,
            running: false,
            up: Staging::default(),
            down: Staging::default(),
            wanted: Vec::new(),
            fetched: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Returns the open command buffer. Opens one if there is none.
    fn open(&mut self) -> Result<vk::CommandBuffer, BackendError> {
        if let Some(buffer) = self.open {
            return Ok(buffer);
        }
        if self.running {
            self.finish()?;
        }
        self.fetched.clear();
        let buffer = self.commands.begin(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
        self.open = Some(buffer);
        self.uploads.clear();
        (self.copied, self.launched) = (false, false);
        Ok(buffer)
    }

    /// Adds a barrier, at which later work waits for all earlier work.
    fn wait_for_all(&mut self, buffer: vk::CommandBuffer) {
        self.commands.all_to_all(buffer);
        self.uploads.clear();
        (self.copied, self.launched) = (false, false);
    }

    fn close(&mut self) -> Result<(), BackendError> {
        if let Some(buffer) = self.open.take() {
            // SAFETY: the buffer is being recorded.
            unsafe { self.shared.device.end_command_buffer(buffer) }.map_err(failed("recording commands"))?;
            self.list.push(buffer);
        }
        Ok(())
    }

    /// Submits the recorded commands.
    fn submit(&mut self) -> Result<(), BackendError> {
        if !self.wanted.is_empty() {
            let buffer = self.open()?;
            if self.copied || self.launched || !self.uploads.is_empty() {
                self.wait_for_all(buffer);
            }
            let region = self.down.region.as_ref().map_or(vk::Buffer::null(), |region| region.buffer);
            for fetched in &self.wanted {
                self.record_copy(
                    buffer,
                    self.shared.place(fetched.from, fetched.bytes as u64)?,
                    (region, fetched.at as u64),
                    fetched.bytes,
                );
            }
            let host = (vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ);
            wait_for(
                &self.shared.device,
                buffer,
                (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE),
                host,
            );
        }
        self.close()?;
        if self.list.is_empty() {
            return Ok(());
        }
        let list = take(&mut self.list);
        let info = [vk::SubmitInfo::default().command_buffers(&list)];
        // SAFETY: the buffers are recorded, and their resources live until the work has finished.
        unsafe { self.shared.device.queue_submit(*lock(&self.shared.queue), &info, self.fence) }
            .map_err(failed("submitting work"))?;
        let counts = &self.shared.counts;
        counts.submits.fetch_add(1, Ordering::Relaxed);
        counts.dispatches.fetch_add(self.commands.dispatches, Ordering::Relaxed);
        counts.barriers.fetch_add(self.commands.barriers, Ordering::Relaxed);
        counts.around_copies.fetch_add(self.commands.around_copies, Ordering::Relaxed);
        self.running = true;
        Ok(())
    }

    /// Waits for the submitted work.
    fn finish(&mut self) -> Result<(), BackendError> {
        if take(&mut self.running) {
            let device = &self.shared.device;
            // On a CPU device, polling takes time from the kernels.
            let is_processor = self.shared.found.kind == vk::PhysicalDeviceType::CPU;
            let asking = if is_processor { Duration::ZERO } else { ASKING };
            let start = Instant::now();
            // SAFETY: the fence was submitted.
            unsafe {
                while start.elapsed() < asking && device.get_fence_status(self.fence) == Ok(false) {
                    thread::yield_now();
                }
                device.wait_for_fences(&[self.fence], true, u64::MAX).map_err(failed("waiting for the device"))?;
                device.reset_fences(&[self.fence]).map_err(failed("waiting for the device"))?;
            }
            self.commands.reset()?;
            (self.up.used, self.down.used) = (0, 0);
            self.fetched = take(&mut self.wanted);
        }
        Ok(())
    }

    fn record_copy(
        &self,
        buffer: vk::CommandBuffer,
        (from, at): (vk::Buffer, u64),
        (to, to_at): (vk::Buffer, u64),
        bytes: usize,
    ) {
        let region = [vk::BufferCopy { src_offset: at, dst_offset: to_at, size: bytes as u64 }];
        // SAFETY: the ranges are within their buffers, as checked before.
        unsafe { self.shared.device.cmd_copy_buffer(buffer, from, to, &region) };
    }

    /// Fills a region with zeros, and waits.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    pub fn clear(&mut self, region: &Region) -> Result<(), BackendError> {
        let buffer = self.open()?;
        // SAFETY: the region's buffer is alive.
        unsafe { self.shared.device.cmd_fill_buffer(buffer, region.buffer, 0, vk::WHOLE_SIZE, 0) };
        self.wait()
    }
}

impl Stream for Queue {
    type Module = Module;
    type Graph = Recording;

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError> {
        for (n, part) in from.chunks(STAGED).enumerate() {
            self.open()?;
            let shared = self.shared.clone();
            let at = match self.up.take(&shared, part.len(), MemoryLocation::CpuToGpu)? {
                Some(at) => at,
                None => {
                    self.wait()?;
                    self.open()?;
                    self.up.take(&shared, part.len(), MemoryLocation::CpuToGpu)?.unwrap_or(0)
                }
            };
            let buffer = self.open()?;
            let Some(region) = &mut self.up.region else { continue };
            let staged = region.buffer;
            let Some(bytes) = region.host_mut() else { continue };
            bytes[at..at + part.len()].copy_from_slice(part);
            let start = to + (n * STAGED) as u64;
            let place = self.shared.place(start, part.len() as u64)?;
            let bytes = start..start + part.len() as u64;
            if self.copied || self.launched || self.uploads.iter().any(|u| u.start < bytes.end && bytes.start < u.end) {
                self.wait_for_all(buffer);
            }
            self.uploads.push(bytes);
            self.record_copy(buffer, (staged, at as u64), place, part.len());
        }
        Ok(())
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError> {
        self.wait()?;
        for (n, part) in to.chunks_mut(STAGED).enumerate() {
            let from = from + (n * STAGED) as u64;
            let is_it = |fetched: &&Fetched| fetched.from == from && fetched.bytes == part.len();
            if !self.fetched.iter().any(|fetched| is_it(&fetched)) {
                self.announce(from, part.len())?;
                self.wait()?;
            }
            let found = self.fetched.iter().find(is_it).map(|fetched| fetched.at);
            let bytes = self.down.region.as_ref().and_then(DeviceMemory::host);
            let (Some(at), Some(bytes)) = (found, bytes) else {
                return Err(BackendError::Device(
                    "Vulkan cannot download bytes because their copy is missing, a defect of the backend".into(),
                ));
            };
            part.copy_from_slice(&bytes[at..at + part.len()]);
        }
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        let buffer = self.open()?;
        if self.copied || self.launched || !self.uploads.is_empty() {
            self.wait_for_all(buffer);
        }
        self.copied = true;
        let [from, to] = [self.shared.place(from, bytes as u64)?, self.shared.place(to, bytes as u64)?];
        self.record_copy(buffer, from, to, bytes);
        Ok(())
    }

    fn launch(&mut self, module: &Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError> {
        if let Some((commands, buffer)) = &mut self.recorded {
            let buffer = *buffer;
            return commands.dispatch(buffer, module, launch, args);
        }
        let buffer = self.open()?;
        if self.copied || !self.uploads.is_empty() {
            self.wait_for_all(buffer);
        }
        self.launched = true;
        self.commands.dispatch(buffer, module, launch, args)
    }

    fn barrier(&mut self) -> Result<(), BackendError> {
        let (commands, buffer) = match &mut self.recorded {
            Some((commands, buffer)) => (commands, *buffer),
            None => {
                let buffer = self.open()?;
                (&mut self.commands, buffer)
            }
        };
        let compute = vk::PipelineStageFlags::COMPUTE_SHADER;
        let used = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::SHADER_READ;
        wait_for(&self.shared.device, buffer, (compute, vk::AccessFlags::SHADER_WRITE), (compute, used));
        commands.barriers += 1;
        Ok(())
    }

    fn announce(&mut self, from: u64, bytes: usize) -> Result<(), BackendError> {
        if bytes == 0 || bytes > STAGED {
            return Ok(());
        }
        self.open()?;
        let shared = self.shared.clone();
        // Without room, the bytes are downloaded separately.
        if let Some(at) = self.down.take(&shared, bytes, MemoryLocation::GpuToCpu)? {
            self.wanted.push(Fetched { from, bytes, at });
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), BackendError> {
        self.submit()
    }

    fn begin(&mut self) -> Result<(), BackendError> {
        let mut commands = Commands::new(&self.shared)?;
        let buffer = commands.begin(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE)?;
        self.recorded = Some((commands, buffer));
        Ok(())
    }

    fn end(&mut self) -> Result<Recording, BackendError> {
        let Some((commands, buffer)) = self.recorded.take() else {
            return Err(BackendError::Device(
                "Vulkan cannot end a recording because none was begun, a defect of the backend".into(),
            ));
        };
        // SAFETY: the buffer is being recorded.
        unsafe { self.shared.device.end_command_buffer(buffer) }.map_err(failed("recording commands"))?;
        Ok(Recording(commands, buffer))
    }

    fn replay(&mut self, graph: &Recording) -> Result<(), BackendError> {
        self.open()?;
        self.close()?;
        self.list.push(graph.1);
        self.commands.dispatches += graph.0.dispatches;
        self.commands.barriers += graph.0.barriers;
        self.commands.around_copies += graph.0.around_copies;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        if self.open.is_some() || !self.list.is_empty() {
            self.submit()?;
        }
        self.finish()
    }

    fn note(&mut self, n: usize) -> Result<(), BackendError> {
        if self.shared.found.clock.is_none() {
            return Ok(());
        }
        let (pool, n) = (n / NOTES as usize, n as u32 % NOTES);
        let shared = self.shared.clone();
        while self.notes.len() <= pool {
            let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(NOTES);
            // SAFETY: the device is alive.
            let made = unsafe { shared.device.create_query_pool(&info, None) }
                .map_err(failed("creating timestamp queries"))?;
            self.notes.push(made);
        }
        let buffer = self.open()?;
        let at = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the pool has a timestamp `n`, and no work in flight writes it.
        unsafe {
            shared.device.cmd_reset_query_pool(buffer, self.notes[pool], n, 1);
            shared.device.cmd_write_timestamp(buffer, at, self.notes[pool], n);
        }
        Ok(())
    }

    fn seconds(&mut self, from: usize, to: usize) -> Result<f64, BackendError> {
        let Some((period, bits)) = self.shared.found.clock else { return Ok(0.0) };
        let read = |n: usize| {
            let mut ticks = [0_u64];
            let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
            let Some(pool) = self.notes.get(n / NOTES as usize) else { return Ok(0) };
            // SAFETY: `note` wrote the timestamp.
            unsafe { self.shared.device.get_query_pool_results(*pool, n as u32 % NOTES, &mut ticks, flags) }
                .map(|()| ticks[0])
                .map_err(failed("reading the time"))
        };
        let ticks = read(to)?.wrapping_sub(read(from)?) & bits;
        Ok(ticks as f64 * f64::from(period) * 1e-9)
    }
}

impl Drop for Queue {
    /// Waits for running work. Unsubmitted work is dropped, because after a failure its memory may be freed.
    fn drop(&mut self) {
        let _ = self.finish();
        // SAFETY: no work is in flight.
        unsafe {
            self.shared.device.destroy_fence(self.fence, None);
            self.notes.iter().for_each(|pool| self.shared.device.destroy_query_pool(*pool, None));
        }
    }
}
