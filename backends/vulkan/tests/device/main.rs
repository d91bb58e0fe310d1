//! Tests the backend on the machine's device, or on lavapipe, under validation layers, which must have no messages.
//!
//! Without layers, nothing validates. Without a loader or device, these tests say so and pass. `.ci/run` installs them.

mod attention;
mod cache;
mod counts;
mod cycles;
mod failures;
mod features;
mod matrices;
mod suites;
mod wide;

use eutectic::{Backend, Compiler, Graph, Program, Tensor};
use eutectic_backend::{BackendError, Executable};
use eutectic_gpu::Gpu;
use eutectic_ir::{DType, lang::Source, text::parse};
use eutectic_vulkan::{Vulkan, VulkanOptions, on};
use std::{path::PathBuf, sync::Arc};

/// Returns a device without a cache, validated if there are layers; `None` if there is no device.
fn open(options: VulkanOptions) -> Option<Gpu<Vulkan>> {
    let watched = VulkanOptions { validation: true, ..options.clone() };
    let missing = |error: &BackendError| matches!(error, BackendError::Missing { .. });
    match on(&watched).or_else(|why| if missing(&why) { on(&options) } else { Err(why) }) {
        Ok(device) => Some(device),
        Err(BackendError::Missing { what, .. }) => {
            println!("left out: {what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns options of a device without a cache.
fn bare() -> VulkanOptions {
    VulkanOptions { cache: None, ..VulkanOptions::default() }
}

/// Returns the path of a folder of the checkout.
fn folder(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A program of two chains of ops that only their sum joins.
const CHAINS: &str = "(graph \"chains\" (input x f32[32 48]) (input z f32[32 48]) (param v f32[48 64]) (param w f32[48 64]) \
    (output y (add (softmax (matmul x v) :axis -1) (softmax (matmul z w) :axis -1))))";

fn graph(text: &str) -> Graph {
    parse(&Source::new("graph", text.to_string())).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Returns the program of a graph, planned by the embedded rules and the device's costs.
fn planned(graph: &Graph) -> Program {
    let planner = on(&bare()).unwrap_or_else(|e| panic!("{e}"));
    let compiler = Compiler::new(planner).unwrap_or_else(|e| panic!("{e}"));
    compiler.plan(graph).unwrap_or_else(|e| panic!("{e}")).lowered.program
}

/// Returns small numbers of a type. Integers are zeros and ones.
fn numbers(ty: &eutectic::Type) -> Tensor {
    let (dtype, dims) = (ty.dtype().expect("a tensor"), ty.dims().expect("of known extents"));
    let count = dims.iter().product::<usize>();
    let number = |i: usize| if dtype.is_float() { (i % 17) as f64 / 17.0 - 0.4 } else { (i % 2) as f64 };
    match dtype {
        DType::I64 => Tensor::from_i64(dtype, &dims, (0..count).map(|i| number(i) as i64)),
        _ => Tensor::from_f64(dtype, &dims, (0..count).map(number)),
    }
}

/// A compiled program with numbers to run it on.
struct Ready {
    executable: Arc<dyn Executable>,
    params: Vec<Tensor>,
    inputs: Vec<Tensor>,
    sizes: Vec<usize>,
}

impl Ready {
    fn new(backend: &dyn Backend, program: &Program) -> Ready {
        let all = |ports: &[(String, eutectic::Type)]| ports.iter().map(|(_, ty)| numbers(ty)).collect();
        Ready {
            executable: backend.compile(program).unwrap_or_else(|e| panic!("{e}")),
            params: all(&program.params),
            inputs: all(&program.inputs),
            sizes: program.outputs.iter().map(|(_, ty)| ty.bytes()).collect(),
        }
    }

    fn session(&self) -> Box<dyn eutectic_backend::Session> {
        let loaded = self.executable.clone().load(&self.params);
        loaded.and_then(|loaded| loaded.session()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn run(&self, session: &mut dyn eutectic_backend::Session) -> Vec<Vec<u8>> {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Tensor::bytes).collect();
        let mut outputs: Vec<Vec<u8>> = self.sizes.iter().map(|bytes| vec![0; *bytes]).collect();
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        session.run(&inputs, &mut slices).unwrap_or_else(|e| panic!("{e}"));
        outputs
    }
}
