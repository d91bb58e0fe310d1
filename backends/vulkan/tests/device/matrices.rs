//! Compares products and attention on emulated matrix units with the reference. This tests everything except the units
//! themselves.

use eutectic::Compiler;
use eutectic_backend::{
    Setup,
    costs::{CostSheet, print},
};
use eutectic_checker::run::check;
use eutectic_gpu::device::Device;
use eutectic_vulkan::{Features, MatrixUnits, VulkanOptions, costs, on};

use crate::{bare, graph, open};

/// Extents that are no multiples of a tile's, operands contiguous along either axis or none, batches, epilogues,
/// computed operands, and long sums of few results.
const CASES: &[&str] = &[
    "(input x f16[33 70]) (input w f16[70 41]) (output y (matmul x w))",
    "(input x bf16[130 64]) (param w bf16[64 136]) (output y (matmul x w))",
    "(input x f16[64 96]) (param w f16[80 96]) (output y (matmul x (transpose w :perm [1 0])))",
    "(input x bf16[96 70]) (param w bf16[96 24]) (output y (matmul (transpose x :perm [1 0]) w))",
    "(input x f16[3 20 36]) (input w f16[3 36 12]) (output y (matmul x w))",
    "(input x f16[9 1200]) (param w f16[1200 48]) (output y (matmul x w))",
    "(input x f16[72 64]) (param w f16[64 72]) (param b f16[72]) (input r f16[72 72]) (output y (add (linear x w b :act gelu-erf) r))",
    "(input x bf16[40 48]) (param w bf16[48 56]) (output y (matmul (neg x) (abs w)))",
    "(input x f16[2 8 9 9]) (param w f16[16 8 3 3]) (output y (conv x w :before [1 1] :after [1 1]))",
    "(input x f16[1 7]) (param w f16[7 1]) (output y (matmul x w))",
];

/// Few and many queries, split keys, masks, and depths and columns that are no multiple of a fragment's.
const ATTENTIONS: &[&str] = &[
    "(input q f16[2 70 32]) (input k f16[2 150 32]) (input v f16[2 150 32]) (output y (sdpa q k v :scale 0.2 :mask none))",
    "(input q bf16[3 60 20]) (input k bf16[3 333 20]) (input v bf16[3 333 24]) (output y (sdpa q k v :scale 0.2 :mask causal))",
    "(input q f16[2 6 32]) (input k f16[2 700 32]) (input v f16[2 700 32]) (output y (sdpa q k v :scale 2.5 :mask none))",
    "(input q f16[2 150 16]) (input k f16[2 150 16]) (input v f16[2 150 16]) (output y (sdpa q k v :scale 0.2 :mask window :window 20))",
    "(input q f16[2 20 64]) (input k f16[2 100 64]) (input v f16[2 100 136]) (input m f16[100]) (output y (sdpa q k v m :scale 3.0 :mask additive))",
    "(input q f16[2 9 56]) (input k f16[2 260 56]) (input v f16[2 260 56]) (input m bool[9 260]) (output y (sdpa q k v m :scale 0.2 :mask keep))",
];

#[test]
fn products_on_matrix_units() {
    let in_parts = right_on_units(CASES, 128);
    assert!(in_parts != Some(0), "none is cut into parts of the depth");
    // On one processor, this case uses the largest tile.
    right_on_units(&CASES[1..2], 1);
}

#[test]
#[ignore = "takes minutes on lavapipe"]
fn attention_on_matrix_units() {
    let in_parts = right_on_units(ATTENTIONS, 128);
    assert!(in_parts != Some(0), "none is cut into parts of the keys");
}

/// Checks cases on a device with `processors` processors. Returns the number of cases with splits; `None` if there is
/// no device.
fn right_on_units(cases: &[&str], processors: usize) -> Option<usize> {
    // Little shared memory selects small tiles, which lavapipe compiles faster.
    let most = Features { matrices: MatrixUnits::EMULATED, shared: 25 << 10, ..Features::ALL };
    let sheet = CostSheet { coefficients: costs(false).coefficients(), lists: Vec::new(), provenance: None };
    let setup = Setup { costs: Some(print(&sheet)), ..Setup::default() };
    let options = VulkanOptions { most, processors: Some(processors), setup, ..bare() };
    let device = open(options.clone())?;
    let printer = on(&options).unwrap_or_else(|e| panic!("{e}"));
    let compiler = Compiler::new(device).unwrap_or_else(|e| panic!("{e}"));
    let (mut on_units, mut in_parts) = (0, 0);
    for (n, text) in cases.iter().enumerate() {
        let graph = graph(&format!("(graph \"g\" {text})"));
        let right = check(&compiler, &graph, n as u64).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(right.is_ok(), "{text}: {:?}", right.err().map(|all| all.into_iter().next()));
        for kernel in &compiler.plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program.kernels {
            let printed = printer.device().print(kernel).unwrap_or_else(|why| panic!("{why:?}"));
            let speaks = printed[0].source().is_some_and(|source| source.contains("half_at"));
            on_units += usize::from(speaks);
            in_parts += usize::from(speaks && printed.len() > 1);
        }
    }
    println!("{processors} processors: {on_units} kernels on units, {in_parts} in parts");
    assert!(on_units >= cases.len(), "{on_units} of {}", cases.len());
    Some(in_parts)
}
