//! A Vulkan device as one of the shared runtime's.

use std::{
    collections::BTreeMap,
    fs,
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ash::vk;
use eutectic_backend::{BackendError, Cost, DTypes, Kernel, Limits, Memory};
use eutectic_gpu::{
    cost::Costs,
    device::{Device, DeviceShape},
    launch::{Launch, Work},
};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use rayon::prelude::*;

use crate::{
    dialect::Wgsl,
    errors::failed,
    instance::{DeviceFeatures, VulkanInstance},
    kernels,
    memory::{LogicalDevice, Region, lock},
    module::Module,
    spirv,
    stream::Queue,
};

/// What things cost on a device of a kind.
///
/// # Panics
/// Never: the files are part of the program, and a test reads them.
pub fn costs(is_processor: bool) -> Costs {
    let text = if is_processor { include_str!("../costs/lavapipe.toml") } else { include_str!("../costs/h200.toml") };
    Costs::read(text).expect("the embedded file is right")
}

/// How to run on Vulkan.
#[derive(Clone, Debug)]
pub struct VulkanOptions {
    /// Which of the devices, from 0, the fastest kind first.
    pub ordinal: usize,
    /// Where the driver's compiled kernels are kept from process to process; none to compile them anew.
    pub cache: Option<PathBuf>,
    /// What things cost; none for those of such a device.
    pub costs: Option<Costs>,
    /// Whether validation layers watch; [`Vulkan::messages`] is what they say.
    pub validation: bool,
}

impl Default for VulkanOptions {
    /// The fastest device, a cache in the user's folder, no validation.
    fn default() -> VulkanOptions {
        let cache = std::env::home_dir().map(|home| home.join(".cache").join("eutectic").join("vulkan"));
        VulkanOptions { ordinal: 0, cache, costs: None, validation: false }
    }
}

/// A Vulkan device.
pub struct Vulkan {
    shared: Arc<LogicalDevice>,
    dialect: Wgsl,
    shape: DeviceShape,
    costs: Costs,
    /// Where the driver's compiled kernels are kept.
    cache: Option<PathBuf>,
    clearing: Mutex<Queue>,
}

/// What was put into the queue since the device was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Submissions.
    pub submits: usize,
    /// Dispatches in them.
    pub dispatches: usize,
    /// Barriers between dispatches in them.
    pub barriers: usize,
}

impl Vulkan {
    /// Opens a device.
    ///
    /// # Errors
    /// When there is no loader, driver or such device, or what the device lacks.
    pub fn new(options: &VulkanOptions) -> Result<Vulkan, BackendError> {
        let loaded = VulkanInstance::new(options.validation)?;
        let mut devices = loaded.devices()?;
        if options.ordinal >= devices.len() {
            let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            return Err(BackendError::Device(format!(
                "Vulkan has no device {}; it has {}",
                options.ordinal,
                names.join(", ")
            )));
        }
        let found = devices.swap_remove(options.ordinal);
        let file = options.cache.as_ref().map(|folder| {
            let identity: String = found.identity.iter().map(|byte| format!("{byte:02x}")).collect();
            folder.join(format!("{identity}.pipelines"))
        });
        let costs = options.costs.unwrap_or_else(|| costs(found.kind == vk::PhysicalDeviceType::CPU));
        let shape = DeviceShape {
            processors: found.processors,
            shared: found.limits.max_compute_shared_memory_size as usize,
            cluster: 0,
            library: None,
        };
        let dialect = Wgsl { subgroup: found.subgroup };
        let known = file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let shared = Arc::new(logical(loaded, found, &known)?);
        let clearing = Mutex::new(Queue::new(&shared)?);
        Ok(Vulkan { shared, dialect, shape, costs, cache: file, clearing })
    }

    /// What validation layers said since they were asked last.
    pub fn messages(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.loaded.messages))
    }

    /// What was put into the queue since the device was opened.
    pub fn counted(&self) -> Counted {
        let counts = &self.shared.counts;
        let [submits, dispatches, barriers] =
            [&counts.submits, &counts.dispatches, &counts.barriers].map(|count| count.load(Ordering::Relaxed));
        Counted { submits, dispatches, barriers }
    }

    fn module(&self, launch: &Launch) -> Result<Module, String> {
        let Work::Printed(text) = &launch.work else { return Err("Vulkan has no library of products".into()) };
        let code = spirv::compile(text, &self.shared.found.kept)?;
        Module::new(&self.shared, code, launch.block)
    }

    /// Why kernels with some types are refused.
    fn refusals(&self, kernel: &Kernel) -> Vec<String> {
        let has = |dtype| {
            kernel.slots.iter().any(|slot| slot.0 == dtype)
                || kernel.bodies().iter().any(|body| body.instrs.iter().any(|instr| instr.dtype() == dtype))
        };
        let lacks = self.shared.found.lacks().into_iter().filter(|(dtype, _)| has(*dtype));
        let lacks = lacks.map(|(dtype, feature)| format!("{dtype}; the device lacks {feature}"));
        lacks.chain(kernels::supports(&self.dialect, kernel).err().into_iter().flatten()).collect()
    }
}

/// A logical device with one queue.
fn logical(loaded: VulkanInstance, found: DeviceFeatures, known: &[u8]) -> Result<LogicalDevice, BackendError> {
    let priorities = [1.0];
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(found.family).queue_priorities(&priorities)];
    let features = vk::PhysicalDeviceFeatures::default().shader_int64(found.wide).shader_float64(found.doubles);
    let mut features13 = vk::PhysicalDeviceVulkan13Features::default()
        .subgroup_size_control(found.subgroup.is_some())
        .compute_full_subgroups(found.subgroup.is_some());
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_features(&features)
        .push_next(&mut features13);
    // SAFETY: the features are those that the device has.
    unsafe {
        let device =
            loaded.instance.create_device(found.physical, &info, None).map_err(failed("opening the device"))?;
        let queue = device.get_device_queue(found.family, 0);
        let info = vk::PipelineCacheCreateInfo::default().initial_data(known);
        let cache = device.create_pipeline_cache(&info, None).map_err(failed("making a pipeline cache"))?;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: loaded.instance.clone(),
            device: device.clone(),
            physical_device: found.physical,
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        });
        let allocator = allocator.map_err(|why| BackendError::Device(format!("Vulkan: making an allocator: {why}")))?;
        Ok(LogicalDevice {
            loaded,
            found,
            device,
            queue: Mutex::new(queue),
            cache,
            counts: Default::default(),
            allocator: ManuallyDrop::new(Mutex::new(allocator)),
            table: RwLock::new(BTreeMap::new()),
            next: AtomicU64::new(256),
        })
    }
}

impl Device for Vulkan {
    type Module = Module;
    type Block = Region;
    type Stream = Queue;

    fn name(&self) -> &str {
        "vulkan"
    }

    fn describe(&self) -> String {
        let found = &self.shared.found;
        let lacks: String = found.lacks().iter().map(|(_, feature)| format!(", without {feature}")).collect();
        let subgroup = found.subgroup.map_or("none".into(), |size| size.to_string());
        format!("{} ({}), {} GiB, subgroups of {subgroup}{lacks}", found.name, found.driver, found.bytes >> 30)
    }

    fn limits(&self) -> Limits {
        let limits = &self.shared.found.limits;
        let lacks = self.shared.found.lacks();
        Limits {
            alignment: (limits.min_storage_buffer_offset_alignment as usize).max(64),
            // Kernels find elements by 32 bits.
            binding: (limits.max_storage_buffer_range as usize).min(i32::MAX as usize) / 16 * 16,
            capacity: self.shared.found.bytes,
            // One binding a buffer, beside the workspace and the report of faults.
            arguments: (limits.max_per_stage_descriptor_storage_buffers as usize - 2).min(64) * Limits::ARGUMENT,
            extent: i32::MAX as usize,
            dtypes: lacks.into_iter().fold(DTypes::ALL, |all, (dtype, _)| all.without(dtype)),
            ..Limits::default()
        }
    }

    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
        let problems = self.refusals(kernel);
        if problems.is_empty() { kernels::print(&self.dialect, &self.shape, kernel) } else { Err(problems) }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if self.refusals(kernel).is_empty() { self.costs.cost(&self.shape, kernel) } else { Cost::IMPOSSIBLE }
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        launches.par_iter().map(|launch| self.module(launch)).collect()
    }

    fn allocate(&self, bytes: usize, memory: Memory) -> Result<Region, BackendError> {
        let mut region = Region::new(&self.shared, bytes, Region::location(memory))?;
        match eutectic_gpu::device::DeviceMemory::host_mut(&mut region) {
            Some(bytes) => bytes.fill(0),
            None => lock(&self.clearing).clear(&region)?,
        }
        Ok(region)
    }

    fn stream(&self) -> Result<Queue, BackendError> {
        Queue::new(&self.shared)
    }
}

impl Drop for Vulkan {
    /// Keeps what the driver compiled. A cache that cannot be written makes the next start slower, and nothing else.
    fn drop(&mut self) {
        let Some(file) = &self.cache else { return };
        // SAFETY: the cache is there as long as the device.
        if let Ok(data) = unsafe { self.shared.device.get_pipeline_cache_data(self.shared.cache) } {
            let own = file.with_extension(std::process::id().to_string());
            let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
            let _ = folder.and_then(|()| fs::write(&own, data)).and_then(|()| fs::rename(&own, file));
        }
    }
}
