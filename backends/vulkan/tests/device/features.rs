//! Tests devices with fewer features: each missing feature has a fallback, or a refusal that names it.

use eutectic_backend::Backend;
use eutectic_conformance::suites::SUITES;
use eutectic_vulkan::{Features, VulkanOptions};

use crate::{
    bare, graph, open,
    suites::{checks, passes},
};

fn lowered(most: Features) -> VulkanOptions {
    VulkanOptions { most, ..bare() }
}

/// Returns options with many processors, for which schedules use other tiles and split sums and keys.
fn wide() -> VulkanOptions {
    VulkanOptions { processors: Some(128), ..bare() }
}

/// The features of devices with less than lavapipe.
const DEVICES: [Features; 3] = [
    Features::LEAST,
    // Threads exchange values within a part of a subgroup, and grids have more than one axis.
    Features { subgroup: Some(4), blocks: [3, 65535], ..Features::ALL },
    Features { float64: false, threads: 256, alignment: 64, ..Features::ALL },
];

#[test]
fn programs_run_on_devices_that_have_less() {
    for options in DEVICES.map(lowered).into_iter().chain([wide()]) {
        for suite in ["sessions", "program"] {
            passes(options.clone(), checks(suite, ""));
        }
        // The suite `states` needs 64-bit integers.
        if options.most.int64 {
            passes(options, checks("states", ""));
        }
    }
}

#[test]
fn few_long_rows_are_shared_by_blocks() {
    passes(wide(), checks("kernels", "rows"));
}

/// A grid of two axes may have more blocks than a sort has tiles. The surplus blocks move nothing.
#[test]
#[ignore = "takes minutes on lavapipe"]
fn very_long_rows_are_ranked_by_grids_of_two_axes() {
    let folded = Features { blocks: [3, 65535], ..Features::ALL };
    passes(lowered(folded), checks("rankings", "very_long_rows_are_ranked"));
}

/// On all of [`DEVICES`], a block has memory for rows of at least 1,736 elements.
#[test]
fn rows_are_ranked_on_devices_that_have_less() {
    for options in DEVICES.map(lowered) {
        passes(options.clone(), checks("rankings", "ranked_rows_are_stored_in_order"));
        // Ids that only guards bound are computed in 64 bits.
        if options.most.int64 {
            passes(options, checks("scatters", "kernels_write_in_order"));
        }
    }
}

#[test]
#[ignore = "takes minutes on lavapipe"]
fn all_suites_on_devices_that_have_less() {
    for options in DEVICES.map(lowered).into_iter().chain([wide()]) {
        println!("{:?}, {:?} processors", options.most, options.processors);
        for suite in SUITES.iter().filter(|suite| suite.name != "rules") {
            passes(options.clone(), checks(suite.name, ""));
        }
    }
}

#[test]
fn what_is_lacking_is_named() {
    let Some(device) = open(lowered(Features::LEAST)) else { return };
    let said = device.describe();
    assert!(said.contains("without shaderInt64") && said.contains("subgroups of none"), "{said}");
    let compiler = eutectic::Compiler::new(device).unwrap_or_else(|e| panic!("{e}"));
    let refused = |text: &str, what: &str| {
        let error = compiler.compile(&graph(text)).map(|_| ()).expect_err("it lacks something").to_string();
        assert!(error.contains(what), "{error}");
    };
    refused("(graph \"g\" (input x i64[6]) (output y (add x x)))", "shaderInt64");
    refused("(graph \"g\" (input x f64[6]) (output y (add x x)))", "shaderFloat64");
    for dtype in ["f8e5m2", "f8e4m3", "i16", "u16"] {
        let text = format!("(graph \"g\" (input x {dtype}[6]) (output y (cast x :to f32)))");
        refused(&text, &format!("cannot use {dtype} because the device does not have it"));
    }
    // The input takes 160 MiB in one buffer.
    refused(
        "(graph \"g\" (input x f32[41943040]) (output y (neg x)))",
        "bytes of one buffer because the device supports at most 134217728",
    );
}

#[test]
fn a_device_that_has_too_little_is_not_opened() {
    let options = lowered(Features { buffers: 4, ..Features::ALL });
    let error = eutectic_vulkan::on(&options).map(|_| ()).expect_err("kernels take more").to_string();
    let named = error.contains("which has 4 storage buffers of a stage; kernels take 8");
    assert!(named || error.contains("missing"), "{error}");
}
