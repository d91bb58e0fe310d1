//! All suites on the device that is there, lavapipe where there is no other, with validation layers on; they have nothing to say.
//!
//! Where there is no layer, nothing watches; where there is no loader or device, these tests say so and pass. `.ci/run` installs them.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError};
use eutectic_conformance::{device::Device, suites::SUITES};
use eutectic_gpu::Gpu;
use eutectic_vulkan::{Vulkan, VulkanOptions, on};

fn open() -> Option<Arc<Gpu<Vulkan>>> {
    let options = |validation| VulkanOptions { validation, cache: None, ..VulkanOptions::default() };
    let missing = |error: &BackendError| matches!(error, BackendError::Missing { .. });
    match on(&options(true)).or_else(|why| if missing(&why) { on(&options(false)) } else { Err(why) }) {
        Ok(device) => Some(Arc::new(device)),
        Err(BackendError::Missing { what, .. }) => {
            println!("left out: {what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn passes(suite: &str) {
    let Some(vulkan) = open() else { return };
    let device = Device::new(vec![vulkan.clone() as Arc<dyn Backend>]).unwrap_or_else(|e| panic!("{e}"));
    let suite = SUITES.iter().find(|of| of.name == suite).expect("there is such a suite");
    let mut failed = Vec::new();
    for verdict in suite.run(&device, "") {
        let time = verdict.time.as_secs_f64();
        println!(
            "{}: {} right, {} refused, {time:.1} s, {:?}",
            verdict.name, verdict.judged, verdict.refused, verdict.why
        );
        if let Some(failure) = verdict.failure {
            let failure: String = failure.chars().take(1500).collect();
            println!("FAILED {}: {failure}", verdict.name);
            failed.push(verdict.name);
        }
    }
    drop(device);
    assert!(failed.is_empty(), "wrong: {}", failed.join(", "));
    assert_eq!(vulkan.device().messages(), Vec::<String>::new(), "validation layers have something to say");
}

macro_rules! suites {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            passes(stringify!($name));
        }
    )* };
}

/// Those that take minutes on lavapipe.
macro_rules! long_suites {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        #[ignore = "takes minutes on lavapipe"]
        fn $name() {
            passes(stringify!($name));
        }
    )* };
}

long_suites!(kernels, groups, products, halves, windows, graphs, programs);
suites!(ops, program, sessions, states);
