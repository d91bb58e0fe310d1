//! Opens the loader and an instance, and finds usable devices.

use std::{
    ffi::{CStr, c_void},
    path::Path,
    sync::{Arc, Mutex},
};

use ash::{Entry, Instance, ext, khr, vk};
use eutectic_backend::BackendError;

use crate::{
    errors::failed,
    features::{Features, MatrixUnits},
    reported::Reported,
    words::FloatControl,
};

/// Messages of validation layers.
pub type Messages = Mutex<Vec<String>>;

/// A Vulkan instance with the messages of its validation layers.
pub struct VulkanInstance {
    pub entry: Entry,
    pub instance: Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    pub messages: Arc<Messages>,
}

/// A device with the properties and features that kernels use.
#[derive(Clone, Debug)]
pub struct DeviceFeatures {
    pub physical: vk::PhysicalDevice,
    pub name: String,
    pub kind: vk::PhysicalDeviceType,
    pub family: u32,
    pub processors: usize,
    /// The features that kernels are compiled for.
    pub features: Features,
    /// The number of threads of a subgroup, even if `features` excludes subgroups.
    pub subgroup: usize,
    /// The maximal bytes of one buffer.
    pub buffer: u64,
    pub driver: String,
    /// The UUID by which the driver identifies its pipeline caches.
    pub identity: [u8; vk::UUID_SIZE],
    pub kept: Vec<(u32, FloatControl)>,
    /// Nanoseconds per tick, and the valid bits of a timestamp; `None` if there is no clock.
    pub clock: Option<(f32, u64)>,
}

/// The name of an extension that ash does not know yet.
pub const BFLOAT16: &CStr = c"VK_KHR_shader_bfloat16";

/// The structure `VkPhysicalDeviceShaderBfloat16FeaturesKHR`.
#[repr(C)]
pub struct Bfloat16Features {
    s_type: vk::StructureType,
    next: *mut c_void,
    ty: vk::Bool32,
    dot_product: vk::Bool32,
    pub matrix: vk::Bool32,
}

impl Bfloat16Features {
    /// Returns the structure with or without matrices of `bf16`.
    pub fn new(matrix: bool) -> Bfloat16Features {
        let s_type = vk::StructureType::from_raw(1_000_141_000);
        let matrix = vk::Bool32::from(matrix);
        Bfloat16Features { s_type, next: std::ptr::null_mut(), ty: matrix, dot_product: vk::FALSE, matrix }
    }
}

// SAFETY: the structure has the header of Vulkan's structures, and extends features and devices.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for Bfloat16Features {}
// SAFETY: the structure has the header of Vulkan's structures, and extends features and devices.
unsafe impl vk::ExtendsDeviceCreateInfo for Bfloat16Features {}

unsafe extern "system" fn report(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the driver passes the pointer that it was given, which lives as long as the instance, and a string.
    unsafe {
        let messages = &*messages.cast::<Messages>();
        let text = (*data).message_as_c_str().map(CStr::to_string_lossy).unwrap_or_default();
        messages.lock().unwrap_or_else(|e| e.into_inner()).push(text.into_owned());
    }
    vk::FALSE
}

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

impl VulkanInstance {
    /// Opens the loader and an instance.
    ///
    /// # Errors
    /// Returns an error if there is no loader, no driver, or no validation layer although one is required.
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
            // SAFETY: the loader is open.
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
        // SAFETY: the names and structures outlive the call.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|why| BackendError::Missing {
            what: format!("no Vulkan driver can create an instance ({why})"),
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
            let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }
                .map_err(failed("registering for messages of layers"))?;
            loaded.messenger = Some((utils, messenger));
        }
        Ok(loaded)
    }

    /// Returns all usable devices, the fastest kind first. Their features and limits are at most those of `most`.
    ///
    /// # Errors
    /// Returns an error if no device is usable. The error lists the requirement that each device lacks.
    pub fn devices(&self, most: &Features) -> Result<Vec<DeviceFeatures>, BackendError> {
        // SAFETY: the instance is alive.
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
            return Err(BackendError::Missing { what: "no Vulkan device is suitable".into(), places: lacking });
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

    /// Returns a device, with features and limits at most those of `most`.
    ///
    /// # Errors
    /// Returns the device's name and the requirement that it lacks.
    fn look_at(&self, physical: vk::PhysicalDevice, most: &Features) -> Result<DeviceFeatures, String> {
        let reported = Reported::of(&self.instance, physical)?;
        let name = reported.name();
        let Some(family) = reported.family() else { return Err(format!("{name}, which has no queue for compute")) };
        let matrices = match reported.suits_matrices() && reported.has(khr::cooperative_matrix::NAME) {
            true => self.matrices(physical, reported.computes_float16(), reported.has(BFLOAT16)),
            false => MatrixUnits::default(),
        };
        let features = reported.features(matrices).within(most);
        if let Some(what) = features.too_little() {
            return Err(format!("{name}, which {what}"));
        }
        Ok(DeviceFeatures {
            physical,
            name,
            kind: reported.properties.device_type,
            family: family as u32,
            processors: reported.processors(),
            features,
            subgroup: reported.subgroup(),
            buffer: reported.buffer(),
            driver: reported.driver(),
            identity: reported.properties.pipeline_cache_uuid,
            kept: reported.kept_of_floats(),
            clock: reported.clock(family),
        })
    }

    /// Returns the matrix units of a device that has the extension for them.
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
        // SAFETY: all devices hold this instance, so none exists any more.
        unsafe {
            if let Some((utils, messenger)) = self.messenger.take() {
                utils.destroy_debug_utils_messenger(messenger, None);
            }
            self.instance.destroy_instance(None);
        }
    }
}
