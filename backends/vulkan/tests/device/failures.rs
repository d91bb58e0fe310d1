//! Checks that a missing requirement is an error which says where it was searched, and that the process survives.

use std::{path::PathBuf, process::Command};

use eutectic_backend::BackendError;
use eutectic_vulkan::{VulkanOptions, on};

use crate::{bare, open};

#[test]
fn a_loader_that_is_not_there_is_named() {
    let nowhere = PathBuf::from("/nowhere/libvulkan.so.1");
    match on(&VulkanOptions { loader: Some(nowhere), ..bare() }).map(|_| ()) {
        Err(BackendError::Missing { what, places }) => {
            assert!(what.contains("loader") && places == ["/nowhere/libvulkan.so.1"], "{what} {places:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_those_that_are() {
    if open(bare()).is_none() {
        return;
    }
    let error = on(&VulkanOptions { ordinal: 99, ..bare() }).map(|_| ()).expect_err("nobody has so many").to_string();
    assert!(error.contains("no device 99; it has "), "{error}");
}

#[test]
fn a_machine_without_drivers_is_told_where_they_are_looked_for() {
    let mut itself = Command::new(std::env::current_exe().expect("it runs"));
    itself.args(["--exact", "failures::in_a_process_without_drivers", "--ignored", "--nocapture"]);
    itself.env("VK_DRIVER_FILES", "/nowhere.json").env("VK_ICD_FILENAMES", "/nowhere.json");
    let output = itself.output().expect("it runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn in_a_process_without_drivers() {
    if std::env::var_os("VK_DRIVER_FILES").is_none_or(|files| files != "/nowhere.json") {
        return;
    }
    for _ in 0..3 {
        match on(&bare()).map(|_| ()) {
            Err(BackendError::Missing { what, places }) => {
                assert!(what.contains("Vulkan"), "{what}");
                assert!(
                    places.iter().any(|place| place.contains("/usr/share/vulkan/icd.d") || place.contains("libvulkan"))
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
