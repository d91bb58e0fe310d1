//! Compares attention with split keys and skipped tiles with the reference.

use eutectic::Compiler;
use eutectic_checker::run::check;
use eutectic_gpu::device::Device;
use eutectic_vulkan::{Features, VulkanOptions, on};

use crate::{bare, graph, open};

/// Few queries with many keys, masks that hide tiles, and more columns than a block has.
const CASES: &[&str] = &[
    "(input q f32[2 1 32]) (input k f32[2 700 32]) (input v f32[2 700 32]) (output y (sdpa q k v :scale 0.2 :mask none))",
    "(input q f32[3 60 20]) (input k f32[3 333 20]) (input v f32[3 333 20]) (output y (sdpa q k v :scale 0.2 :mask causal))",
    "(input q f32[2 150 16]) (input k f32[2 150 16]) (input v f32[2 150 16]) (output y (sdpa q k v :scale 0.2 :mask window :window 20))",
    "(input q f32[40 200 24]) (input k f32[40 200 24]) (input v f32[40 200 70]) (output y (attention q k v :scale 0.2))",
    "(input q bf16[4 200 32]) (input k bf16[2 200 32]) (input v bf16[2 200 32]) (output y (sdpa q k v :scale 0.2 :mask causal))",
    "(input q f32[2 9 32]) (input k f32[2 260 32]) (input v f32[2 260 32]) (input m bool[9 260]) (output y (sdpa q k v m :scale 0.2 :mask keep))",
];

#[test]
#[ignore = "takes a minute on lavapipe"]
fn hidden_tiles_and_parts_of_keys_change_no_result() {
    let few = Features { shared: 16 << 10, threads: 128, ..Features::ALL };
    for most in [Features::ALL, few] {
        let options = VulkanOptions { processors: Some(128), most, ..bare() };
        let Some(device) = open(options.clone()) else { return };
        let printer = on(&options).unwrap_or_else(|e| panic!("{e}"));
        let compiler = Compiler::new(device).unwrap_or_else(|e| panic!("{e}"));
        let (mut cut, mut hidden) = (0, 0);
        for (n, text) in CASES.iter().enumerate() {
            let graph = graph(&format!("(graph \"g\" {text})"));
            let right = check(&compiler, &graph, n as u64).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!(right.is_ok(), "{text}: {:?}", right.err().map(|all| all.into_iter().next()));
            let program = compiler.plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
            for kernel in program.kernels.iter().filter(|k| k.attention().is_some()) {
                let printed = printer.device().print(kernel).unwrap_or_else(|why| panic!("{why:?}"));
                cut += usize::from(printed.len() > 1);
                hidden += usize::from(printed[0].source().is_some_and(|source| source.contains("SEEN")));
            }
        }
        println!("{} programs: {cut} with keys in parts, {hidden} with hidden tiles", CASES.len());
        assert!(cut >= 2, "no keys are cut into parts");
    }
}
