//! Implements a device of the shared runtime by Vulkan.

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ash::{ext, khr, vk};
use eutectic_backend::{
    BackendError, Body, Cost, Instr, Kernel, Limits, Memory, RowLimits, Setup,
    costs::CostSheet,
    fit::{Fitted, Freedom, Measured},
};
use eutectic_gpu::{
    cache::Cache,
    cost::{Costs, DeviceCosts},
    device::{Device, DeviceShape},
    launch::{Launch, Work},
};
use eutectic_ir::{DType, ops::Order};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use rayon::prelude::*;

use crate::{
    dialect::Wgsl,
    errors::failed,
    features::Features,
    instance::{BFLOAT16, Bfloat16Features, DeviceFeatures, VulkanInstance},
    kernels, library,
    memory::{LogicalDevice, Region, lock},
    module::Module,
    spirv,
    stream::Queue,
    words::FloatControl,
};

/// The name of the backend.
const NAME: &str = "vulkan";

/// Returns the embedded costs: those of lavapipe if the device is a processor, and otherwise those of an H200.
///
/// # Panics
/// This function never panics, because the files are embedded and a test reads them.
pub fn costs(is_processor: bool) -> Costs {
    let text = if is_processor { include_str!("../costs/lavapipe.toml") } else { include_str!("../costs/h200.toml") };
    Costs::read(text).expect("the embedded file is valid")
}

/// Options of the Vulkan backend.
#[derive(Clone, Debug)]
pub struct VulkanOptions {
    /// The number of the device, from 0. The fastest kinds of devices come first.
    pub ordinal: usize,
    /// The folder that caches the driver's compiled kernels between processes; without one, each process compiles them.
    pub cache: Option<PathBuf>,
    /// The costs; by default, those that are embedded for this kind of device.
    pub setup: Setup,
    /// Whether validation layers are enabled. [`Vulkan::messages`] returns their messages.
    pub validation: bool,
    /// The path of the loader's library; `None` for the one in the system's path.
    pub loader: Option<PathBuf>,
    /// The features and limits that the backend may use at most.
    pub most: Features,
    /// The number of processors that run blocks independently, which Vulkan does not report. `None` stands for the
    /// number that an extension reports, or a guess by the kind of device.
    pub processors: Option<usize>,
}

impl Default for VulkanOptions {
    /// Returns options for the fastest device, with a cache in the user's folder and without validation.
    fn default() -> VulkanOptions {
        let cache = std::env::home_dir().map(|home| home.join(".cache").join("eutectic").join("vulkan"));
        VulkanOptions {
            ordinal: 0,
            cache,
            setup: Setup::default(),
            validation: false,
            loader: None,
            most: Features::ALL,
            processors: None,
        }
    }
}

/// A Vulkan device.
pub struct Vulkan {
    shared: Arc<LogicalDevice>,
    dialect: Wgsl,
    shape: DeviceShape,
    costs: DeviceCosts,
    /// The cache of compiled kernels.
    cache: Option<Cache>,
    clearing: Mutex<Queue>,
}

/// The commands enqueued since the device was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Submissions to the queue.
    pub submits: usize,
    /// Submitted dispatches.
    pub dispatches: usize,
    /// Barriers between submitted dispatches.
    pub barriers: usize,
    /// Barriers around copies.
    pub around_copies: usize,
}

impl Vulkan {
    /// Opens a device.
    ///
    /// # Errors
    /// Returns an error if there is no loader, driver or such device, or if the device lacks a required feature.
    pub fn new(options: &VulkanOptions) -> Result<Vulkan, BackendError> {
        let loaded = VulkanInstance::new(options.loader.as_deref(), options.validation)?;
        let mut devices = loaded.devices(&options.most)?;
        if options.ordinal >= devices.len() {
            let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            return Err(BackendError::Device(format!(
                "Vulkan has no device {}; it has {}",
                options.ordinal,
                names.join(", ")
            )));
        }
        let found = devices.swap_remove(options.ordinal);
        let embedded = costs(found.kind == vk::PhysicalDeviceType::CPU);
        let costs = DeviceCosts::choose(&options.setup, NAME, &found.name, embedded)?;
        let shape = DeviceShape {
            processors: options.processors.unwrap_or(found.processors).max(1),
            threads: found.features.threads,
            // Summing 1,024 columns of 65,536 rows on an H200 reads 4.0 TB/s with this value, and 3.0 TB/s with half as
            // many threads.
            column_threads: found.features.threads,
            shared: found.features.shared,
            workspace: binding(&found),
            cluster: 0,
            library: None,
            rankings: costs.of.rankings,
        };
        let Features { subgroup, matrices, float_atomics, .. } = found.features;
        let dialect = Wgsl { subgroup, matrices, float_atomics };
        let cache = options.cache.as_deref().map(Cache::new);
        let known = cache.as_ref().and_then(|cache| cache.read(&pipelines(&found))).unwrap_or_default();
        let shared = Arc::new(logical(loaded, found, &known)?);
        let clearing = Mutex::new(Queue::new(&shared)?);
        Ok(Vulkan { shared, dialect, shape, costs, cache, clearing })
    }

    /// Returns the messages of validation layers since the last call.
    pub fn messages(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.loaded.messages))
    }

    /// Returns the commands enqueued since the device was opened.
    pub fn counted(&self) -> Counted {
        let counts = &self.shared.counts;
        let all = [&counts.submits, &counts.dispatches, &counts.barriers, &counts.around_copies];
        let [submits, dispatches, barriers, around_copies] = all.map(|count| count.load(Ordering::Relaxed));
        Counted { submits, dispatches, barriers, around_copies }
    }

    /// Returns the number of buffers that exist on the device.
    pub fn buffers(&self) -> usize {
        self.shared.table.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Closes the device. Returns the last messages of validation layers, such as on objects that were not destroyed
    /// before.
    pub fn close(self) -> Vec<String> {
        let messages = self.shared.loaded.messages.clone();
        drop(self);
        std::mem::take(&mut *lock(&messages))
    }

    fn module(&self, launch: &Launch) -> Result<Module, String> {
        let Work::Printed(text) = &launch.work else {
            return Err("cannot compute a product with a library because Vulkan has no matrix library".into());
        };
        let found = &self.shared.found;
        let code = spirv::cached(self.cache.as_ref(), text, &found.kept)?;
        let lacks = found.features.lacks().into_iter().find(|(dtype, _)| code.has(*dtype));
        match lacks {
            Some((dtype, feature)) => {
                Err(format!("cannot build a kernel with {dtype} because the device lacks {feature}"))
            }
            None => Module::new(&self.shared, code, launch.block),
        }
    }

    /// Returns the reasons why a kernel is refused.
    fn refusals(&self, kernel: &Kernel) -> Vec<String> {
        let has = |dtype| {
            kernel.slots.iter().any(|slot| slot.0 == dtype)
                || kernel.bodies().iter().any(|body| body.instrs.iter().any(|instr| instr.dtype() == dtype))
        };
        let lacks = self.shared.found.features.lacks().into_iter().filter(|(dtype, _)| has(*dtype));
        let lacks =
            lacks.map(|(dtype, feature)| format!("cannot compute in {dtype} because the device lacks {feature}"));
        // The sort keys of 64-bit floats are 64-bit integers.
        let lacks_keys = !self.shared.found.features.int64 && kernel.bodies().into_iter().any(ranks_wide_floats);
        let keys = lacks_keys.then(|| "cannot sort f64 because the device lacks shaderInt64".to_string());
        lacks.chain(keys).chain(kernels::supports(&self.dialect, kernel).err().into_iter().flatten()).collect()
    }
}

/// Returns whether a body ranks 64-bit floats.
fn ranks_wide_floats(body: &Body) -> bool {
    let is_wide = |arg: &usize| body.instrs[*arg].dtype() == DType::F64;
    let ranks = |instr: &Instr| match instr {
        Instr::Row { op, attrs, args, .. } => Order::of(*op, attrs).is_some() && args.iter().any(is_wide),
        _ => false,
    };
    body.instrs.iter().any(ranks)
}

/// Returns the maximal bytes of a buffer that a kernel can access. Kernels index elements by 32 bits.
fn binding(found: &DeviceFeatures) -> usize {
    found.features.binding.min(i32::MAX as usize) / 16 * 16
}

/// Returns the file name of the pipeline cache. Only one driver and device can use its contents.
fn pipelines(found: &DeviceFeatures) -> String {
    let identity: String = found.identity.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{identity}.pipelines")
}

/// Returns a logical device with one queue.
fn logical(loaded: VulkanInstance, found: DeviceFeatures, known: &[u8]) -> Result<LogicalDevice, BackendError> {
    let priorities = [1.0];
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(found.family).queue_priorities(&priorities)];
    let features =
        vk::PhysicalDeviceFeatures::default().shader_int64(found.features.int64).shader_float64(found.features.float64);
    let mut features13 = vk::PhysicalDeviceVulkan13Features::default()
        .maintenance4(true)
        .subgroup_size_control(found.features.subgroup.is_some())
        .compute_full_subgroups(found.features.subgroup.is_some());
    let units = found.features.matrices;
    let (f16, bf16) = (units.f16 && !units.emulated, units.bf16 && !units.emulated);
    let mut features12 = vk::PhysicalDeviceVulkan12Features::default()
        .vulkan_memory_model(f16 || bf16)
        .vulkan_memory_model_device_scope(f16 || bf16)
        .shader_float16(f16);
    let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
    let mut bfloat16 = Bfloat16Features::new(true);
    let mut atomics = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default().shader_buffer_float32_atomic_add(true);
    let mut extensions = Vec::new();
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_features(&features)
        .push_next(&mut features13)
        .push_next(&mut features12);
    if f16 || bf16 {
        extensions.push(khr::cooperative_matrix::NAME.as_ptr());
        info = info.push_next(&mut matrices);
    }
    if bf16 {
        extensions.push(BFLOAT16.as_ptr());
        info = info.push_next(&mut bfloat16);
    }
    if found.features.float_atomics {
        extensions.push(ext::shader_atomic_float::NAME.as_ptr());
        info = info.push_next(&mut atomics);
    }
    let info = info.enabled_extension_names(&extensions);
    // SAFETY: the device has these features and extensions.
    unsafe {
        let device =
            loaded.instance.create_device(found.physical, &info, None).map_err(failed("opening the device"))?;
        let queue = device.get_device_queue(found.family, 0);
        let info = vk::PipelineCacheCreateInfo::default().initial_data(known);
        let cache = device.create_pipeline_cache(&info, None).map_err(failed("creating a pipeline cache"))?;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: loaded.instance.clone(),
            device: device.clone(),
            physical_device: found.physical,
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        });
        let allocator = allocator
            .map_err(|why| BackendError::Device(format!("Vulkan failed while creating an allocator: {why}")))?;
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
        NAME
    }

    fn device(&self) -> String {
        self.shared.found.name.clone()
    }

    fn costs(&self) -> Option<CostSheet> {
        Some(self.costs.sheet())
    }

    fn describe(&self) -> String {
        let found = &self.shared.found;
        let features = &found.features;
        let lacks: String = features.lacks().iter().map(|(_, feature)| format!(", without {feature}")).collect();
        let subgroup = features.subgroup.map_or("none".into(), |size| size.to_string());
        let units: String = [DType::F16, DType::Bf16]
            .into_iter()
            .filter(|dtype| features.matrices.take(*dtype))
            .map(|dtype| format!(", matrix units of {dtype}"))
            .collect();
        let (name, driver, memory) = (&found.name, &found.driver, features.memory >> 30);
        let flushed = if self.limits().subnormals { "" } else { ", subnormal numbers are zero" };
        format!("{name} ({driver}), {memory} GiB, subgroups of {subgroup}{units}{lacks}{flushed}")
    }

    fn limits(&self) -> Limits {
        let features = &self.shared.found.features;
        Limits {
            alignment: features.alignment.max(64),
            binding: binding(&self.shared.found),
            capacity: features.memory,
            // Each buffer takes a binding. Three more are for the workspace, the lengths of a run and the fault report.
            arguments: (features.buffers - 3).min(64) * Limits::ARGUMENT,
            extent: i32::MAX as usize,
            dtypes: features.lacks().into_iter().fold(library::dtypes(), |all, (dtype, _)| all.without(dtype)),
            in_order: true,
            combined: library::combined(),
            rows: RowLimits::ANY,
            subnormals: self.shared.found.kept.contains(&(32, FloatControl::SUBNORMALS)),
            ..Limits::default()
        }
    }

    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
        let problems = self.refusals(kernel);
        if problems.is_empty() { kernels::print(&self.dialect, &self.shape, kernel) } else { Err(problems) }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if self.refusals(kernel).is_empty() { self.costs.of.cost(&self.shape, kernel) } else { Cost::IMPOSSIBLE }
    }

    fn ways(&self, kernel: &Kernel) -> Vec<(String, f64)> {
        kernels::expected(&self.dialect, &self.shape, kernel)
    }

    /// Returns the time in which a GPU raises its clock. Under Vulkan, an H100 or H200 runs at 345 MHz after idling,
    /// and reaches 1,980 MHz after 250 ms.
    fn warm_up(&self) -> Duration {
        if self.shared.found.kind == vk::PhysicalDeviceType::CPU { Duration::ZERO } else { Duration::from_millis(400) }
    }

    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        self.costs.of.fit(&self.shape, measured, freedom)
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
    /// Writes the driver's compiled pipelines to the cache.
    fn drop(&mut self) {
        let Some(cache) = &self.cache else { return };
        // SAFETY: the pipeline cache lives as long as the device.
        if let Ok(data) = unsafe { self.shared.device.get_pipeline_cache_data(self.shared.cache) } {
            cache.write(&pipelines(&self.shared.found), &data);
        }
    }
}
