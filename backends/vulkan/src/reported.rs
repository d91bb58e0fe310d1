//! The properties, features and limits that a driver reports of a device.

use std::ffi::CStr;

use ash::{Instance, ext, nv, vk};

use crate::{
    features::{Features, MatrixUnits},
    words::FloatControl,
};

/// The answers of a driver about a device. Structures of extensions that the device lacks are zeros. The structures'
/// pointers to each other are not valid.
pub struct Reported {
    pub properties: vk::PhysicalDeviceProperties,
    pub queues: Vec<vk::QueueFamilyProperties>,
    extensions: Vec<vk::ExtensionProperties>,
    memory: vk::PhysicalDeviceMemoryProperties,
    subgroups: vk::PhysicalDeviceSubgroupProperties<'static>,
    sizes: vk::PhysicalDeviceSubgroupSizeControlProperties<'static>,
    floats: vk::PhysicalDeviceFloatControlsProperties<'static>,
    driver: vk::PhysicalDeviceDriverProperties<'static>,
    memories: vk::PhysicalDeviceMaintenance3Properties<'static>,
    buffers: vk::PhysicalDeviceMaintenance4Properties<'static>,
    of_nvidia: vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>,
    features: vk::PhysicalDeviceFeatures,
    features12: vk::PhysicalDeviceVulkan12Features<'static>,
    features13: vk::PhysicalDeviceVulkan13Features<'static>,
    atomics: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
}

impl Reported {
    /// Queries the driver about a device of an instance.
    ///
    /// # Errors
    /// Returns an error if the device supports only versions before Vulkan 1.3. The error names the device.
    pub fn of(instance: &Instance, physical: vk::PhysicalDevice) -> Result<Reported, String> {
        // SAFETY: the device belongs to the instance.
        let (properties, extensions, queues, memory) = unsafe {
            (
                instance.get_physical_device_properties(physical),
                instance.enumerate_device_extension_properties(physical).unwrap_or_default(),
                instance.get_physical_device_queue_family_properties(physical),
                instance.get_physical_device_memory_properties(physical),
            )
        };
        let mut reported = Reported {
            properties,
            queues,
            extensions,
            memory,
            subgroups: Default::default(),
            sizes: Default::default(),
            floats: Default::default(),
            driver: Default::default(),
            memories: Default::default(),
            buffers: Default::default(),
            of_nvidia: Default::default(),
            features: Default::default(),
            features12: Default::default(),
            features13: Default::default(),
            atomics: Default::default(),
        };
        if properties.api_version < vk::API_VERSION_1_3 {
            return Err(format!("{}, which supports only versions before Vulkan 1.3", reported.name()));
        }
        let counts_processors = reported.has(nv::shader_sm_builtins::NAME);
        let has_atomics = reported.has(ext::shader_atomic_float::NAME);
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut reported.subgroups)
            .push_next(&mut reported.sizes)
            .push_next(&mut reported.floats)
            .push_next(&mut reported.driver)
            .push_next(&mut reported.memories)
            .push_next(&mut reported.buffers);
        if counts_processors {
            properties = properties.push_next(&mut reported.of_nvidia);
        }
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut reported.features13)
            .push_next(&mut reported.features12);
        if has_atomics {
            features = features.push_next(&mut reported.atomics);
        }
        // SAFETY: the version and the extensions of the device define these structures.
        unsafe {
            instance.get_physical_device_properties2(physical, &mut properties);
            instance.get_physical_device_features2(physical, &mut features);
        }
        reported.features = features.features;
        Ok(reported)
    }

    /// Returns the name of the device.
    pub fn name(&self) -> String {
        self.properties.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns whether the device has an extension.
    pub fn has(&self, extension: &CStr) -> bool {
        self.extensions.iter().any(|has| has.extension_name_as_c_str() == Ok(extension))
    }

    /// Returns the number of the first queue family with compute.
    pub fn family(&self) -> Option<usize> {
        self.queues.iter().position(|queue| queue.queue_flags.contains(vk::QueueFlags::COMPUTE))
    }

    /// Returns the number of threads of a subgroup.
    pub fn subgroup(&self) -> usize {
        self.subgroups.subgroup_size as usize
    }

    /// Returns whether threads can exchange values in registers, in blocks of whole subgroups.
    fn shuffles(&self) -> bool {
        self.subgroups.supported_operations.contains(vk::SubgroupFeatureFlags::SHUFFLE)
            && self.subgroups.supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
            && self.features13.compute_full_subgroups == vk::TRUE
            && self.features13.subgroup_size_control == vk::TRUE
            && self.sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE)
    }

    /// Returns whether the device has all features for kernels on matrix units, except for the units themselves.
    pub fn suits_matrices(&self) -> bool {
        self.shuffles()
            && self.subgroups.supported_operations.contains(vk::SubgroupFeatureFlags::VOTE)
            && self.features12.vulkan_memory_model == vk::TRUE
            && self.features12.vulkan_memory_model_device_scope == vk::TRUE
    }

    /// Returns whether kernels can compute in 16-bit floats.
    pub fn computes_float16(&self) -> bool {
        self.features12.shader_float16 == vk::TRUE
    }

    /// Returns the features that kernels are compiled for, with these matrix units.
    pub fn features(&self, matrices: MatrixUnits) -> Features {
        let limits = &self.properties.limits;
        let heaps = self.memory.memory_heaps_as_slice().iter();
        let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let by_subgroups = match self.shuffles() {
            true => self.subgroup() * self.sizes.max_compute_workgroup_subgroups as usize,
            false => usize::MAX,
        };
        let threads = limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]) as usize;
        let buffers = limits.max_per_stage_descriptor_storage_buffers.min(limits.max_descriptor_set_storage_buffers);
        Features {
            int64: self.features.shader_int64 == vk::TRUE,
            float64: self.features.shader_float64 == vk::TRUE,
            float_atomics: self.atomics.shader_buffer_float32_atomic_add == vk::TRUE,
            subgroup: self.shuffles().then_some(self.subgroup()),
            matrices,
            threads: 1 << threads.min(by_subgroups).clamp(1, 1024).ilog2(),
            shared: limits.max_compute_shared_memory_size as usize,
            blocks: [0, 1].map(|axis| limits.max_compute_work_group_count[axis] as usize),
            buffers: buffers as usize,
            binding: limits.max_storage_buffer_range as usize,
            alignment: limits.min_storage_buffer_offset_alignment as usize,
            memory: local.map(|heap| heap.size as usize).max().unwrap_or(0),
        }
    }

    /// Returns the number of processors, or a guess if no extension reports it.
    pub fn processors(&self) -> usize {
        match self.of_nvidia.shader_sm_count as usize {
            0 if self.properties.device_type == vk::PhysicalDeviceType::CPU => 4,
            0 => 64,
            count => count,
        }
    }

    /// Returns the maximal bytes of one buffer.
    pub fn buffer(&self) -> u64 {
        self.buffers.max_buffer_size.min(self.memories.max_memory_allocation_size)
    }

    /// Returns the driver's name and version as text.
    pub fn driver(&self) -> String {
        self.driver.driver_info_as_c_str().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the clock of a queue family: nanoseconds per tick, and the valid bits of a timestamp; `None` if there is
    /// no clock.
    pub fn clock(&self, family: usize) -> Option<(f32, u64)> {
        let period = self.properties.limits.timestamp_period;
        match self.queues[family].timestamp_valid_bits {
            bits @ 1.. if period > 0.0 => Some((period, u64::MAX >> (64 - bits.min(64)))),
            _ => None,
        }
    }

    /// Returns, for each width of floats, the special values that the device can preserve.
    pub fn kept_of_floats(&self) -> Vec<(u32, FloatControl)> {
        let has = &self.floats;
        // Some devices preserve the subnormals of either all widths or none. On these, 32 bits alone cannot be requested.
        let independent = has.denorm_behavior_independence != vk::ShaderFloatControlsIndependence::NONE;
        let special = FloatControl::SIGNED_ZEROS_INFINITIES_NAN;
        let all = [
            (16, special, has.shader_signed_zero_inf_nan_preserve_float16 == vk::TRUE),
            (32, special, has.shader_signed_zero_inf_nan_preserve_float32 == vk::TRUE),
            (64, special, has.shader_signed_zero_inf_nan_preserve_float64 == vk::TRUE),
            (32, FloatControl::SUBNORMALS, independent && has.shader_denorm_preserve_float32 == vk::TRUE),
        ];
        all.into_iter().filter(|(.., is_kept)| *is_kept).map(|(width, control, _)| (width, control)).collect()
    }
}
