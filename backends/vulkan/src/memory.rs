//! Memory: buffers in blocks that an allocator divides. Numbers serve as addresses.
//!
//! Kernels access buffers by descriptors, so an address only identifies a buffer and an offset in it. Each buffer has a
//! separate range of numbers.

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize},
    },
};

use ash::vk;
use eutectic_backend::{BackendError, Memory};
use eutectic_gpu::device::DeviceMemory;
use gpu_allocator::{
    MemoryLocation,
    vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator},
};

use crate::{
    errors::failed,
    instance::{DeviceFeatures, VulkanInstance},
};

/// The number of unused addresses between buffers, and the alignment of addresses.
const APART: u64 = 256;

/// Counts of a device's operations, for tests and reports.
#[derive(Debug, Default)]
pub struct Counts {
    /// Submissions to the queue.
    pub submits: AtomicUsize,
    /// Submitted dispatches.
    pub dispatches: AtomicUsize,
    /// Barriers between submitted dispatches.
    pub barriers: AtomicUsize,
    /// Barriers around copies.
    pub around_copies: AtomicUsize,
}

/// A logical device with everything that its objects share.
pub struct LogicalDevice {
    pub loaded: VulkanInstance,
    pub found: DeviceFeatures,
    pub device: ash::Device,
    pub queue: Mutex<vk::Queue>,
    pub cache: vk::PipelineCache,
    pub counts: Counts,
    pub allocator: ManuallyDrop<Mutex<Allocator>>,
    pub table: RwLock<BTreeMap<u64, (vk::Buffer, u64)>>,
    pub next: AtomicU64,
}

/// Locks a mutex, even if a thread panicked while it held the lock. The contents change in single steps, so they are
/// valid.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogicalDevice {
    /// Returns the buffer of an address, and the offset in it.
    ///
    /// # Errors
    /// Returns an error if no buffer contains these bytes, which is a defect of the backend.
    pub fn place(&self, address: u64, bytes: u64) -> Result<(vk::Buffer, u64), BackendError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.range(..=address).next_back();
        match found {
            Some((start, (buffer, size))) if address - start + bytes <= *size => Ok((*buffer, address - start)),
            _ => Err(BackendError::Device(format!(
                "Vulkan cannot access {bytes} bytes at {address:#x} because no buffer contains them, a defect of the backend"
            ))),
        }
    }
}

impl Drop for LogicalDevice {
    fn drop(&mut self) {
        // SAFETY: every object of the device holds this struct, so none exists any more.
        unsafe {
            let _ = self.device.device_wait_idle();
            ManuallyDrop::drop(&mut self.allocator);
            self.device.destroy_pipeline_cache(self.cache, None);
            self.device.destroy_device(None);
        }
    }
}

/// A buffer with its memory.
pub struct Region {
    pub buffer: vk::Buffer,
    address: u64,
    bytes: usize,
    allocation: Option<Allocation>,
    is_host: bool,
    shared: Arc<LogicalDevice>,
}

impl Region {
    /// Allocates `bytes` bytes without clearing them.
    ///
    /// # Errors
    /// Returns an error if there is too little free memory.
    pub fn new(shared: &Arc<LogicalDevice>, bytes: usize, location: MemoryLocation) -> Result<Region, BackendError> {
        let size = bytes.max(16).next_multiple_of(16) as u64;
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let most = shared.found.buffer;
        let full = |why: String| {
            BackendError::Memory(format!(
                "cannot allocate {size} bytes of memory on the device, which has {} bytes: {why}",
                shared.found.features.memory
            ))
        };
        if size > most {
            return Err(full(format!("the maximum for one buffer is {most}")));
        }
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: the device is alive, and the buffer is bound to the memory that was allocated for it.
        let (buffer, allocation) = unsafe {
            let buffer = shared.device.create_buffer(&info, None).map_err(|why| full(why.to_string()))?;
            let requirements = shared.device.get_buffer_memory_requirements(buffer);
            let wanted = AllocationCreateDesc {
                name: "eutectic",
                requirements,
                location,
                linear: true,
                allocation_scheme: AllocationScheme::GpuAllocatorManaged,
            };
            let allocated = lock(&shared.allocator).allocate(&wanted);
            let bound = allocated.map_err(|why| full(why.to_string()));
            let bound = bound.and_then(|allocation| {
                let bound = shared.device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset());
                bound.map_err(failed("binding memory")).map(|()| allocation)
            });
            match bound {
                Ok(allocation) => (buffer, allocation),
                Err(error) => {
                    shared.device.destroy_buffer(buffer, None);
                    return Err(error);
                }
            }
        };
        let address = shared.next.fetch_add(size.next_multiple_of(APART) + APART, std::sync::atomic::Ordering::Relaxed);
        shared.table.write().unwrap_or_else(PoisonError::into_inner).insert(address, (buffer, size));
        let is_host = location != MemoryLocation::GpuOnly;
        Ok(Region { buffer, address, bytes, allocation: Some(allocation), is_host, shared: shared.clone() })
    }

    /// Returns the allocator's location for a kind of memory.
    pub fn location(memory: Memory) -> MemoryLocation {
        match memory {
            Memory::Device => MemoryLocation::GpuOnly,
            Memory::Host => MemoryLocation::GpuToCpu,
        }
    }
}

impl DeviceMemory for Region {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn host(&self) -> Option<&[u8]> {
        let bytes = self.allocation.as_ref().filter(|_| self.is_host)?.mapped_slice()?;
        Some(&bytes[..self.bytes])
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.allocation.as_mut().filter(|_| self.is_host)?.mapped_slice_mut()?;
        Some(&mut bytes[..self.bytes])
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.shared.table.write().unwrap_or_else(PoisonError::into_inner).remove(&self.address);
        // SAFETY: no work uses the buffer any more.
        unsafe { self.shared.device.destroy_buffer(self.buffer, None) };
        if let Some(allocation) = self.allocation.take() {
            let _ = lock(&self.shared.allocator).free(allocation);
        }
    }
}
