//! Recording: command buffers of one pool, dispatches with their descriptors, and barriers.

use std::sync::Arc;

use ash::vk;
use eutectic_backend::BackendError;
use eutectic_gpu::launch::Launch;

use crate::{errors::failed, memory::LogicalDevice, module::Module};

/// The number of descriptor sets per pool.
const SETS: u32 = 64;

/// Command buffers of one pool, and the descriptor sets that they bind.
pub struct Commands {
    shared: Arc<LogicalDevice>,
    pool: vk::CommandPool,
    buffers: Vec<vk::CommandBuffer>,
    used: usize,
    sets: Vec<vk::DescriptorPool>,
    full: usize,
    pub dispatches: usize,
    /// The number of barriers between dispatches, and of barriers around copies.
    pub barriers: usize,
    pub around_copies: usize,
}

impl Commands {
    pub fn new(shared: &Arc<LogicalDevice>) -> Result<Commands, BackendError> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(shared.found.family);
        // SAFETY: the device is alive.
        let pool = unsafe { shared.device.create_command_pool(&info, None) }.map_err(failed("making commands"))?;
        Ok(Commands {
            shared: shared.clone(),
            pool,
            buffers: Vec::new(),
            used: 0,
            sets: Vec::new(),
            full: 0,
            dispatches: 0,
            barriers: 0,
            around_copies: 0,
        })
    }

    /// Starts recording a command buffer. Its work waits for all work that was submitted before it.
    pub fn begin(&mut self, usage: vk::CommandBufferUsageFlags) -> Result<vk::CommandBuffer, BackendError> {
        let device = &self.shared.device;
        // SAFETY: only this object uses the pool.
        unsafe {
            if self.used == self.buffers.len() {
                let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
                let made = device.allocate_command_buffers(&info).map_err(failed("making commands"))?;
                self.buffers.extend(made);
            }
            let buffer = self.buffers[self.used];
            let info = vk::CommandBufferBeginInfo::default().flags(usage);
            device.begin_command_buffer(buffer, &info).map_err(failed("recording commands"))?;
            self.used += 1;
            self.all_to_all(buffer);
            Ok(buffer)
        }
    }

    /// Adds a barrier, at which all later work waits for all earlier work.
    pub fn all_to_all(&mut self, buffer: vk::CommandBuffer) {
        let written = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let used = written | vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
        wait_for(&self.shared.device, buffer, (WORK, written), (WORK, used));
        self.around_copies += 1;
    }

    /// Returns a descriptor set for a module.
    fn set(&mut self, module: &Module) -> Result<vk::DescriptorSet, BackendError> {
        let device = &self.shared.device;
        loop {
            if self.full == self.sets.len() {
                let sizes =
                    [vk::DescriptorPoolSize { ty: vk::DescriptorType::STORAGE_BUFFER, descriptor_count: SETS * 8 }];
                let info = vk::DescriptorPoolCreateInfo::default().max_sets(SETS).pool_sizes(&sizes);
                // SAFETY: the device is alive.
                let pool =
                    unsafe { device.create_descriptor_pool(&info, None) }.map_err(failed("making descriptors"))?;
                self.sets.push(pool);
            }
            let layouts = [module.set];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.sets[self.full]).set_layouts(&layouts);
            // SAFETY: only this object uses the pool.
            match unsafe { device.allocate_descriptor_sets(&info) } {
                Ok(sets) => return Ok(sets[0]),
                Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL)
                    if self.full < self.sets.len() =>
                {
                    self.full += 1;
                }
                Err(error) => return Err(failed("making descriptors")(error)),
            }
        }
    }

    /// Records a dispatch.
    pub fn dispatch(
        &mut self,
        buffer: vk::CommandBuffer,
        module: &Module,
        launch: &Launch,
        args: &[u64],
    ) -> Result<(), BackendError> {
        let set = self.set(module)?;
        let alignment = self.shared.found.features.alignment as u64;
        let mut places = Vec::with_capacity(module.bindings.len());
        for binding in &module.bindings {
            let (buffer, offset) = self.shared.place(args[binding.argument], binding.bytes)?;
            if offset % alignment != 0 {
                return Err(BackendError::Device(format!(
                    "Vulkan cannot bind a buffer at byte {offset} because it is no multiple of {alignment}, a defect of the backend"
                )));
            }
            places.push([vk::DescriptorBufferInfo { buffer, offset, range: binding.bytes }]);
        }
        let mut writes = Vec::with_capacity(places.len());
        for (binding, place) in module.bindings.iter().zip(&places) {
            let write = vk::WriteDescriptorSet::default().dst_set(set).dst_binding(binding.number);
            writes.push(write.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).buffer_info(place));
        }
        let most = self.shared.found.features.blocks;
        // Kernels compute a block's number from both axes, and skip surplus blocks.
        let blocks = launch.grid.iter().product::<usize>();
        let x = blocks.min(most[0]);
        let y = blocks.div_ceil(x);
        if y > most[1] {
            return Err(BackendError::Device(format!(
                "Vulkan cannot run a kernel of {blocks} blocks because the device supports at most {} × {}",
                most[0], most[1]
            )));
        }
        let device = &self.shared.device;
        // SAFETY: the set's bindings match the pipeline's, and are within their buffers.
        unsafe {
            device.update_descriptor_sets(&writes, &[]);
            device.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, module.pipeline);
            device.cmd_bind_descriptor_sets(buffer, vk::PipelineBindPoint::COMPUTE, module.layout, 0, &[set], &[]);
            if module.arguments {
                let number = (args[2] as u32).to_le_bytes();
                device.cmd_push_constants(buffer, module.layout, vk::ShaderStageFlags::COMPUTE, 0, &number);
            }
            device.cmd_dispatch(buffer, x as u32, y as u32, 1);
        }
        self.dispatches += 1;
        Ok(())
    }

    /// Discards the recorded commands.
    pub fn reset(&mut self) -> Result<(), BackendError> {
        let device = &self.shared.device;
        // SAFETY: none of the pool's command buffers runs.
        unsafe {
            device
                .reset_command_pool(self.pool, vk::CommandPoolResetFlags::empty())
                .map_err(failed("resetting commands"))?;
            for pool in &self.sets {
                device
                    .reset_descriptor_pool(*pool, vk::DescriptorPoolResetFlags::empty())
                    .map_err(failed("resetting descriptors"))?;
            }
        }
        (self.used, self.full) = (0, 0);
        (self.dispatches, self.barriers, self.around_copies) = (0, 0, 0);
        Ok(())
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: no work uses the pools any more.
        unsafe {
            self.sets.iter().for_each(|pool| self.shared.device.destroy_descriptor_pool(*pool, None));
            self.shared.device.destroy_command_pool(self.pool, None);
        }
    }
}

const WORK: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(
    vk::PipelineStageFlags::COMPUTE_SHADER.as_raw() | vk::PipelineStageFlags::TRANSFER.as_raw(),
);

/// Adds a barrier. Later work of stage `to`, which uses memory, waits for earlier work of stage `from`, which wrote it.
pub fn wait_for(
    device: &ash::Device,
    buffer: vk::CommandBuffer,
    (from, written): (vk::PipelineStageFlags, vk::AccessFlags),
    (to, used): (vk::PipelineStageFlags, vk::AccessFlags),
) {
    let barrier = [vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(used)];
    // SAFETY: the buffer is being recorded.
    unsafe { device.cmd_pipeline_barrier(buffer, from, to, vk::DependencyFlags::empty(), &barrier, &[], &[]) };
}
