//! The suites of every backend, and small models.

use std::{path::Path, sync::Arc};

use eutectic_backend::Backend;
use eutectic_conformance::{
    device::Device,
    suites::{SUITES, Verdict, models, verdict},
};
use eutectic_vulkan::VulkanOptions;

use crate::{bare, folder, open};

/// Runs a function on a validated device. Its results must be right, and the layers must have no messages, even when
/// the device is closed.
pub fn passes(options: VulkanOptions, run: impl FnOnce(&Device) -> Vec<Verdict>) {
    let Some(vulkan) = open(options).map(Arc::new) else { return };
    let device = Device::new(vec![vulkan.clone() as Arc<dyn Backend>]).unwrap_or_else(|e| panic!("{e}"));
    let mut failed = Vec::new();
    for verdict in run(&device) {
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
    let vulkan = Arc::into_inner(vulkan).and_then(|gpu| gpu.into_device()).expect("nothing uses it any more");
    assert_eq!(vulkan.close(), Vec::<String>::new(), "validation layers have something to say");
}

/// Returns the checks of a suite whose names contain a word.
pub fn checks<'a>(suite: &'a str, word: &'a str) -> impl FnOnce(&Device) -> Vec<Verdict> + 'a {
    let suite = SUITES.iter().find(|of| of.name == suite).expect("there is such a suite");
    move |device| suite.run(device, word).collect()
}

/// Returns a model, from a folder of the checkout.
fn model(name: &'static str, check: fn(&Device, &Path), path: &'static str) -> impl FnOnce(&Device) -> Vec<Verdict> {
    move |device| match folder(path) {
        folder if folder.exists() => vec![verdict(name.into(), device, |device| check(device, &folder))],
        _ => {
            println!("left out: there is no {path}");
            Vec::new()
        }
    }
}

macro_rules! suites {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            passes(bare(), checks(stringify!($name), ""));
        }
    )* };
}

/// Defines the suites that take minutes on lavapipe.
macro_rules! long_suites {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        #[ignore = "takes minutes on lavapipe"]
        fn $name() {
            passes(bare(), checks(stringify!($name), ""));
        }
    )* };
}

suites!(ops, program, sessions, states, failures);
long_suites!(
    kernels, groups, products, codes, halves, windows, scatters, rankings, scans, random, extents, precision, decode,
    graphs, programs, rules
);

#[test]
fn bert() {
    passes(bare(), model("models/bert", models::bert, "models/golden"));
}

#[test]
#[ignore = "takes minutes on lavapipe"]
fn sam() {
    passes(bare(), model("models/sam", models::sam, "models/golden"));
}

#[test]
#[ignore = "takes minutes on lavapipe, and the model that models/scripts/fetch-minilm.sh fetches"]
fn minilm() {
    passes(bare(), model("models/sentences", models::sentences, "target/minilm"));
}
