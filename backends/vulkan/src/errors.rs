//! Converts Vulkan's errors.

use ash::vk;
use eutectic_backend::BackendError;

/// Returns a function that converts a Vulkan error to an error that names the failed action.
pub fn failed(what: &'static str) -> impl Fn(vk::Result) -> BackendError {
    move |error| {
        let why = match error {
            vk::Result::ERROR_DEVICE_LOST => {
                "cannot use the device because its driver reset it, or it was removed; open the backend again"
                    .to_string()
            }
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => "no memory is left on the device".into(),
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => "no memory is left on the host".into(),
            other => format!("{other:?}"),
        };
        BackendError::Device(format!("Vulkan failed while {what}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_is_full_is_said() {
        let said = |error| failed("submitting work")(error).to_string();
        assert!(said(vk::Result::ERROR_DEVICE_LOST).contains("submitting work: cannot use the device because"));
        assert!(said(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY).contains("no memory is left on the device"));
        assert!(said(vk::Result::ERROR_OUT_OF_HOST_MEMORY).contains("no memory is left on the host"));
    }
}
