//! Compiled kernels, as Vulkan's pipelines.

use std::sync::Arc;

use ash::vk;

use crate::{
    memory::LogicalDevice,
    spirv::{Binding, Spirv},
};

/// A kernel that can be dispatched.
pub struct Module {
    pub pipeline: vk::Pipeline,
    pub layout: vk::PipelineLayout,
    pub set: vk::DescriptorSetLayout,
    pub bindings: Vec<Binding>,
    /// Whether the kernel takes the step's number.
    pub arguments: bool,
    shared: Arc<LogicalDevice>,
}

impl Module {
    /// Creates a module from compiled text, with blocks of `block` threads.
    ///
    /// # Errors
    /// Returns the driver's message.
    pub fn new(shared: &Arc<LogicalDevice>, code: Spirv, block: usize) -> Result<Module, String> {
        let driver = |e: vk::Result| format!("the driver cannot load a compiled kernel: {e:?}");
        let device = &shared.device;
        let binding = |binding: &Binding| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(binding.number)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = code.bindings.iter().map(binding).collect();
        let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: each object is created from the ones before it. On failure, dropping the module destroys those that
        // exist.
        unsafe {
            let set = device.create_descriptor_set_layout(&set, None).map_err(driver)?;
            let mut module = Module {
                pipeline: vk::Pipeline::null(),
                layout: vk::PipelineLayout::null(),
                set,
                bindings: code.bindings,
                arguments: code.arguments,
                shared: shared.clone(),
            };
            let ranges = [vk::PushConstantRange { stage_flags: vk::ShaderStageFlags::COMPUTE, offset: 0, size: 4 }];
            let (sets, ranges) = ([set], if module.arguments { &ranges[..] } else { &[] });
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(ranges);
            module.layout = device.create_pipeline_layout(&layout, None).map_err(driver)?;
            let shader = vk::ShaderModuleCreateInfo::default().code(&code.words);
            let shader = device.create_shader_module(&shader, None).map_err(driver)?;
            let found = &shared.found;
            let subgroup = found.features.subgroup.map(|_| found.subgroup).filter(|size| block.is_multiple_of(*size));
            let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
                .required_subgroup_size(subgroup.unwrap_or(0) as u32);
            let mut stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(shader)
                .name(c"main");
            if subgroup.is_some() {
                stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS).push_next(&mut size);
            }
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(module.layout);
            let pipelines = device.create_compute_pipelines(shared.cache, &[info], None);
            device.destroy_shader_module(shader, None);
            module.pipeline = pipelines.map_err(|(_, error)| driver(error))?[0];
            Ok(module)
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let device = &self.shared.device;
        // SAFETY: no dispatch uses the module any more. Sessions hold the code, and wait for their streams before they
        // drop it.
        unsafe {
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set, None);
        }
    }
}
