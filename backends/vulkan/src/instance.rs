//! The loader, an instance, and which of its devices suits.

use std::{
    ffi::{CStr, c_void},
    path::Path,
    sync::{Arc, Mutex},
};

use ash::{Entry, Instance, ext, khr, nv, vk};
use eutectic_backend::BackendError;

use crate::{
    errors::failed,
    features::{Features, MatrixUnits},
    words::FloatControl,
};

/// What validation layers said.
pub type Messages = Mutex<Vec<String>>;

/// An instance.
pub struct VulkanInstance {
    pub entry: Entry,
    pub instance: Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    pub messages: Arc<Messages>,
}

/// What a device has of what kernels ask for.
#[derive(Clone, Debug)]
pub struct DeviceFeatures {
    pub physical: vk::PhysicalDevice,
    pub name: String,
    pub kind: vk::PhysicalDeviceType,
    pub family: u32,
    pub processors: usize,
    /// What kernels are made for.
    pub features: Features,
    /// Threads of a subgroup, whatever kernels are made for.
    pub subgroup: usize,
    /// Bytes of one buffer at most.
    pub buffer: u64,
    pub driver: String,
    /// By which the pipeline cache is told from those of other drivers.
    pub identity: [u8; vk::UUID_SIZE],
    pub kept: Vec<(u32, FloatControl)>,
    /// Nanoseconds of a tick, and which bits of a time count; none where there is no clock.
    pub clock: Option<(f32, u64)>,
}

/// `VK_KHR_shader_bfloat16`, which is younger than ash.
pub const BFLOAT16: &CStr = c"VK_KHR_shader_bfloat16";

/// `VkPhysicalDeviceShaderBfloat16FeaturesKHR`.
#[repr(C)]
pub struct Bfloat16Features {
    s_type: vk::StructureType,
    next: *mut c_void,
    ty: vk::Bool32,
    dot_product: vk::Bool32,
    pub matrix: vk::Bool32,
}

impl Bfloat16Features {
    /// Matrices of `bf16`, or none.
    pub fn new(matrix: bool) -> Bfloat16Features {
        let s_type = vk::StructureType::from_raw(1_000_141_000);
        let matrix = vk::Bool32::from(matrix);
        Bfloat16Features { s_type, next: std::ptr::null_mut(), ty: matrix, dot_product: vk::FALSE, matrix }
    }
}

// SAFETY: it begins as all such structures do, and is one of those that features and devices are extended by.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for Bfloat16Features {}
// SAFETY: likewise.
unsafe impl vk::ExtendsDeviceCreateInfo for Bfloat16Features {}

unsafe extern "system" fn report(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the driver gives what it was given, which lives as long as the instance, and a text.
    unsafe {
        let messages = &*messages.cast::<Messages>();
        let text = (*data).message_as_c_str().map(CStr::to_string_lossy).unwrap_or_default();
        messages.lock().unwrap_or_else(|e| e.into_inner()).push(text.into_owned());
    }
    vk::FALSE
}

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

impl VulkanInstance {
    /// Opens the loader.
    ///
    /// # Errors
    /// When there is no loader, no validation layer where it is asked for, or no driver.
    pub fn new(loader: Option<&Path>, validation: bool) -> Result<VulkanInstance, BackendError> {
        // SAFETY: loading the loader runs no code of ours.
        let entry = unsafe { loader.map_or_else(|| Entry::load(), |path| Entry::load_from(path)) };
        let entry = entry.map_err(|why| BackendError::Missing {
            what: format!(
                "the Vulkan loader (Debian: libvulkan1, and a driver such as mesa-vulkan-drivers) is missing ({why})"
            ),
            places: vec![match loader {
                Some(path) => path.display().to_string(),
                None => "libvulkan.so.1 in the loader's path (LD_LIBRARY_PATH, ld.so.cache)".into(),
            }],
        })?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3).application_name(c"eutectic");
        let (mut layers, mut extensions) = (Vec::new(), Vec::new());
        if validation {
            // SAFETY: the loader is there.
            let there = unsafe { entry.enumerate_instance_layer_properties() }.map_err(failed("listing layers"))?;
            if !there.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION)) {
                let what = "the validation layer (Debian: vulkan-validationlayers) is missing".into();
                return Err(BackendError::Missing {
                    what,
                    places: vec!["the loader's explicit layers (VK_LAYER_PATH)".into()],
                });
            }
            layers.push(VALIDATION.as_ptr());
            extensions.push(ext::debug_utils::NAME.as_ptr());
        }
        let more = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut checks = vk::ValidationFeaturesEXT::default().enabled_validation_features(&more);
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&extensions);
        if validation {
            info = info.push_next(&mut checks);
        }
        // SAFETY: names and structures live until it returns.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|why| BackendError::Missing {
            what: format!("no Vulkan driver takes an instance ({why})"),
            places: vec!["the drivers' manifests (/usr/share/vulkan/icd.d, /etc/vulkan/icd.d, VK_DRIVER_FILES)".into()],
        })?;
        let mut loaded = VulkanInstance { entry, instance, messenger: None, messages: Arc::default() };
        if validation {
            let utils = ext::debug_utils::Instance::new(&loaded.entry, &loaded.instance);
            let severity =
                vk::DebugUtilsMessageSeverityFlagsEXT::WARNING | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR;
            let kinds = vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION | vk::DebugUtilsMessageTypeFlagsEXT::GENERAL;
            let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
                .message_severity(severity)
                .message_type(kinds)
                .pfn_user_callback(Some(report))
                .user_data((&raw const *loaded.messages).cast_mut().cast());
            // SAFETY: the list lives as long as the instance.
            let messenger =
                unsafe { utils.create_debug_utils_messenger(&info, None) }.map_err(failed("listening to layers"))?;
            loaded.messenger = Some((utils, messenger));
        }
        Ok(loaded)
    }

    /// All devices that programs run on, the fastest kind first, of which at most so much is used; or why there is none.
    ///
    /// # Errors
    /// What each device lacks.
    pub fn devices(&self, most: &Features) -> Result<Vec<DeviceFeatures>, BackendError> {
        // SAFETY: the instance is there.
        let physical = unsafe { self.instance.enumerate_physical_devices() }.map_err(failed("listing devices"))?;
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        for device in physical {
            match self.look_at(device, most) {
                Ok(device) => found.push(device),
                Err(why) => lacking.push(why),
            }
        }
        if found.is_empty() {
            lacking.push("the drivers' manifests (/usr/share/vulkan/icd.d, /etc/vulkan/icd.d, VK_DRIVER_FILES)".into());
            return Err(BackendError::Missing { what: "no Vulkan device suits".into(), places: lacking });
        }
        let rank = |kind| match kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => 0,
            vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
            vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
            _ => 3,
        };
        found.sort_by_key(|device| rank(device.kind));
        Ok(found)
    }

    fn look_at(&self, physical: vk::PhysicalDevice, most: &Features) -> Result<DeviceFeatures, String> {
        let mut subgroups = vk::PhysicalDeviceSubgroupProperties::default();
        let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        let mut floats = vk::PhysicalDeviceFloatControlsProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut memories = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut buffers = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut features13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut features12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut of_nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut atomics = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default();
        // SAFETY: the device is one of the instance's.
        let extensions = unsafe { self.instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
        let has = |name: &CStr| extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name));
        // SAFETY: the structures are those that the device's version and its extensions have.
        let (properties, features, queues, memory) = unsafe {
            let version = self.instance.get_physical_device_properties(physical).api_version;
            if version < vk::API_VERSION_1_3 {
                let name = self.instance.get_physical_device_properties(physical);
                let name = name.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
                return Err(format!("{name}, which is of an older version than Vulkan 1.3"));
            }
            let mut properties = vk::PhysicalDeviceProperties2::default()
                .push_next(&mut subgroups)
                .push_next(&mut sizes)
                .push_next(&mut floats)
                .push_next(&mut driver)
                .push_next(&mut memories)
                .push_next(&mut buffers);
            if has(nv::shader_sm_builtins::NAME) {
                properties = properties.push_next(&mut of_nvidia);
            }
            self.instance.get_physical_device_properties2(physical, &mut properties);
            let mut features =
                vk::PhysicalDeviceFeatures2::default().push_next(&mut features13).push_next(&mut features12);
            if has(ext::shader_atomic_float::NAME) {
                features = features.push_next(&mut atomics);
            }
            self.instance.get_physical_device_features2(physical, &mut features);
            let (properties, features) = (properties.properties, features.features);
            (
                properties,
                features,
                self.instance.get_physical_device_queue_family_properties(physical),
                self.instance.get_physical_device_memory_properties(physical),
            )
        };
        let name = properties.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
        let family = queues.iter().position(|queue| queue.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let Some(family) = family else { return Err(format!("{name}, which has no queue for compute")) };
        let limits = properties.limits;
        let local =
            memory.memory_heaps_as_slice().iter().filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let shuffles = subgroups.supported_operations.contains(vk::SubgroupFeatureFlags::SHUFFLE)
            && subgroups.supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
            && features13.compute_full_subgroups == vk::TRUE
            && features13.subgroup_size_control == vk::TRUE
            && sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE);
        let subgroup = subgroups.subgroup_size as usize;
        let by_subgroups =
            if shuffles { subgroup * sizes.max_compute_workgroup_subgroups as usize } else { usize::MAX };
        let threads = limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]) as usize;
        let buffers_of_kernel =
            limits.max_per_stage_descriptor_storage_buffers.min(limits.max_descriptor_set_storage_buffers);
        let votes = subgroups.supported_operations.contains(vk::SubgroupFeatureFlags::VOTE);
        let memory_model =
            features12.vulkan_memory_model == vk::TRUE && features12.vulkan_memory_model_device_scope == vk::TRUE;
        let float16 = features12.shader_float16 == vk::TRUE;
        let features = Features {
            int64: features.shader_int64 == vk::TRUE,
            float64: features.shader_float64 == vk::TRUE,
            float_atomics: atomics.shader_buffer_float32_atomic_add == vk::TRUE,
            subgroup: shuffles.then_some(subgroup),
            matrices: match shuffles && votes && memory_model && has(khr::cooperative_matrix::NAME) {
                true => self.matrices(physical, float16, has(BFLOAT16)),
                false => MatrixUnits::default(),
            },
            threads: 1 << threads.min(by_subgroups).clamp(1, 1024).ilog2(),
            shared: limits.max_compute_shared_memory_size as usize,
            blocks: [0, 1].map(|axis| limits.max_compute_work_group_count[axis] as usize),
            buffers: buffers_of_kernel as usize,
            binding: limits.max_storage_buffer_range as usize,
            alignment: limits.min_storage_buffer_offset_alignment as usize,
            memory: local.map(|heap| heap.size as usize).max().unwrap_or(0),
        };
        let features = features.within(most);
        if let Some(what) = features.too_little() {
            return Err(format!("{name}, which {what}"));
        }
        // Vulkan itself does not say how many processors there are.
        let processors = match of_nvidia.shader_sm_count as usize {
            0 if properties.device_type == vk::PhysicalDeviceType::CPU => 4,
            0 => 64,
            count => count,
        };
        Ok(DeviceFeatures {
            physical,
            kind: properties.device_type,
            family: family as u32,
            processors,
            features,
            subgroup,
            buffer: buffers.max_buffer_size.min(memories.max_memory_allocation_size),
            driver: driver.driver_info_as_c_str().unwrap_or_default().to_string_lossy().into_owned(),
            identity: properties.pipeline_cache_uuid,
            kept: kept_of_floats(&floats),
            clock: match queues[family].timestamp_valid_bits {
                bits @ 1.. if limits.timestamp_period > 0.0 => {
                    Some((limits.timestamp_period, u64::MAX >> (64 - bits.min(64))))
                }
                _ => None,
            },
            name,
        })
    }

    /// The matrix units of a device that has the extension.
    fn matrices(&self, physical: vk::PhysicalDevice, float16: bool, bfloat16: bool) -> MatrixUnits {
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut short = Bfloat16Features::new(false);
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut matrix);
        if bfloat16 {
            features = features.push_next(&mut short);
        }
        let units = khr::cooperative_matrix::Instance::new(&self.entry, &self.instance);
        // SAFETY: the device has the extensions.
        let sizes = unsafe {
            self.instance.get_physical_device_features2(physical, &mut features);
            units.get_physical_device_cooperative_matrix_properties(physical).unwrap_or_default()
        };
        let has = |operand: vk::ComponentTypeKHR| {
            sizes.iter().any(|size| {
                [size.m_size, size.n_size, size.k_size] == [16; 3]
                    && [size.a_type, size.b_type] == [operand; 2]
                    && [size.c_type, size.result_type] == [vk::ComponentTypeKHR::FLOAT32; 2]
                    && size.scope == vk::ScopeKHR::SUBGROUP
            })
        };
        let is_there = matrix.cooperative_matrix == vk::TRUE;
        MatrixUnits {
            f16: is_there && float16 && has(vk::ComponentTypeKHR::FLOAT16),
            bf16: is_there && short.matrix == vk::TRUE && has(vk::ComponentTypeKHR::from_raw(1_000_141_000)),
            emulated: false,
        }
    }
}

impl Drop for VulkanInstance {
    fn drop(&mut self) {
        // SAFETY: devices are gone, for they hold this.
        unsafe {
            if let Some((utils, messenger)) = self.messenger.take() {
                utils.destroy_debug_utils_messenger(messenger, None);
            }
            self.instance.destroy_instance(None);
        }
    }
}

/// What a device keeps of floats of each width, if it is told to.
fn kept_of_floats(has: &vk::PhysicalDeviceFloatControlsProperties<'_>) -> Vec<(u32, FloatControl)> {
    // Some keep subnormals of all widths, or of none.
    let apart = has.denorm_behavior_independence != vk::ShaderFloatControlsIndependence::NONE;
    let all = [
        (16, FloatControl::SIGNED_ZEROS_INFINITIES_NAN, has.shader_signed_zero_inf_nan_preserve_float16 == vk::TRUE),
        (32, FloatControl::SIGNED_ZEROS_INFINITIES_NAN, has.shader_signed_zero_inf_nan_preserve_float32 == vk::TRUE),
        (64, FloatControl::SIGNED_ZEROS_INFINITIES_NAN, has.shader_signed_zero_inf_nan_preserve_float64 == vk::TRUE),
        (32, FloatControl::SUBNORMALS, apart && has.shader_denorm_preserve_float32 == vk::TRUE),
    ];
    all.into_iter().filter(|(.., is_kept)| *is_kept).map(|(width, control, _)| (width, control)).collect()
}
