//! Compiles all printed kernels by NVRTC if it is installed. No GPU is needed.

#[expect(dead_code, reason = "what runs is another test's")]
mod cases;
mod host;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use eutectic::Compiler;
use eutectic_backend::{Kernel, Program, Setup};
use eutectic_conformance::program::generate;
use eutectic_cuda::{kernels, nvrtc, open};
use eutectic_gpu::{Gpu, device::DeviceShape, launch::Launch};
use rayon::prelude::*;

/// The shape of an H100.
static SHAPE: LazyLock<DeviceShape> = LazyLock::new(|| DeviceShape {
    processors: 132,
    threads: 1024,
    column_threads: 512,
    shared: 227 << 10,
    workspace: usize::MAX,
    cluster: 8,
    library: None,
    rankings: eutectic_cuda::costs().rankings,
});

fn compile_all(name: &str, programs: impl Iterator<Item = Program>) {
    let print = |kernel: &Kernel| kernels::print(&SHAPE, kernel).unwrap_or_else(|why| panic!("{why:?}"));
    compile_launches(name, programs.flat_map(|program| program.kernels.iter().flat_map(print).collect::<Vec<_>>()));
}

fn compile_launches(name: &str, launches: impl Iterator<Item = Launch>) {
    let compiler = match nvrtc::Nvrtc::new("sm_90a", None, 0) {
        Ok(compiler) => compiler,
        Err(why) => return println!("skipped: {why}"),
    };
    let distinct: BTreeSet<_> =
        launches.filter(|l| !l.is_empty()).filter_map(|l| Some((l.source()?.to_string(), l.shared))).collect();
    // The texts are also written to target/tmp/printed, for inspection.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("printed").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for (n, (text, _)) in distinct.iter().enumerate() {
        std::fs::write(folder.join(format!("{n}.cu")), text).unwrap();
    }
    let wrong: Vec<_> = distinct
        .par_iter()
        .filter_map(|(text, shared)| {
            assert!(*shared <= SHAPE.shared, "{shared} bytes of shared memory");
            compiler.compile(text).err().map(|why| format!("{why}\n{text}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} kernels: {}", wrong.len(), wrong[0]);
}

/// Programs with large kernels.
const LARGE: &[cases::Case] = &[
    (
        "chain 4096×4096 f32",
        "(input x f32[4096 4096]) (input z f32[4096 4096]) (output y (act (add (mul x z) z) :kind gelu-erf))",
    ),
    (
        "residual, LayerNorm 4096×768 f32",
        "(input x f32[4096 768]) (input r f32[4096 768]) (param g f32[768]) (param b f32[768]) (let s (add x r)) (output s s) (output y (layernorm s g b :eps 1e-5))",
    ),
    (
        "LayerNorm 65536×1024 f32",
        "(input x f32[65536 1024]) (param g f32[1024]) (param b f32[1024]) (output y (layernorm x g b :eps 1e-5))",
    ),
    ("softmax 4096×768 f32", "(input x f32[4096 768]) (output y (softmax x :axis -1))"),
    ("softmax 65536×1024 f32", "(input x f32[65536 1024]) (output y (softmax x :axis -1))"),
    ("softmax 8×128256 f32", "(input x f32[8 128256]) (output y (softmax x :axis -1))"),
    ("sum of columns 8192×4096 f32", "(input x f32[8192 4096]) (output y (reduce-sum x :axes [0] :keep false))"),
    (
        "linear gelu 4096×768×3072 f32",
        "(input x f32[4096 768]) (param w f32[768 3072]) (param b f32[3072]) (output y (linear x w b :act gelu-erf))",
    ),
    (
        "linear gelu 4096×768×3072 f16",
        "(input x f16[4096 768]) (param w f16[768 3072]) (param b f16[3072]) (output y (linear x w b :act gelu-erf))",
    ),
    (
        "linear 128×384×1152 f32",
        "(input x f32[128 384]) (param w f32[384 1152]) (param b f32[1152]) (output y (linear x w b :act none))",
    ),
    (
        "linear 128×384×1152 f16",
        "(input x f16[128 384]) (param w f16[384 1152]) (param b f16[1152]) (output y (linear x w b :act none))",
    ),
    (
        "linear 1×2048×5632 f16",
        "(input x f16[1 2048]) (param w f16[2048 5632]) (param b f16[5632]) (output y (linear x w b :act none))",
    ),
    ("product 4096³ f32", "(input x f32[4096 4096]) (param w f32[4096 4096]) (output y (matmul x w))"),
    ("product 4096³ f16", "(input x f16[4096 4096]) (param w f16[4096 4096]) (output y (matmul x w))"),
    ("product 4096³ bf16", "(input x bf16[4096 4096]) (param w bf16[4096 4096]) (output y (matmul x w))"),
    (
        "attention 12×4096² d64 f16",
        "(input q f16[12 4096 64]) (input k f16[12 4096 64]) (input v f16[12 4096 64]) (output y (attention q k v :scale 0.125))",
    ),
    (
        "attention 12×4096² d64 f32",
        "(input q f32[12 4096 64]) (input k f32[12 4096 64]) (input v f32[12 4096 64]) (output y (attention q k v :scale 0.125))",
    ),
    (
        "attention 300×196² d64 f16",
        "(input q f16[300 196 64]) (input k f16[300 196 64]) (input v f16[300 196 64]) (output y (attention q k v :scale 0.125))",
    ),
    (
        "attention 32×1×8192 d128 f16",
        "(input q f16[32 1 128]) (input k f16[32 8192 128]) (input v f16[32 8192 128]) (output y (attention q k v :scale 0.088))",
    ),
    (
        "first 50 of 64×128256 f32",
        "(input x f32[64 128256]) (let rank (reshape (ranking x :most 50 :descending true) :shape [64 128256 1])) \
         (output v (scatter (expand (const f32[] { 0 }) :shape [64 50 1]) (reshape x :shape [64 128256 1]) rank)) \
         (output i (scatter (expand (const i64[] { 0 }) :shape [64 50 1]) (iota :shape [64 128256 1] :axis 1 :dtype i64) rank))",
    ),
    (
        "first 8 of 4096×128 f32",
        "(input x f32[4096 128]) (let rank (reshape (ranking x :most 8 :descending true) :shape [4096 128 1])) \
         (output v (scatter (expand (const f32[] { 0 }) :shape [4096 8 1]) (reshape x :shape [4096 128 1]) rank)) \
         (output i (scatter (expand (const i64[] { 0 }) :shape [4096 8 1]) (iota :shape [4096 128 1] :axis 1 :dtype i64) rank))",
    ),
    (
        "first 7 of 3×5000 f64",
        "(input x f64[3 5000]) (let rank (reshape (ranking x :most 7 :descending true) :shape [3 5000 1])) \
         (output v (scatter (expand (const f64[] { 0 }) :shape [3 7 1]) (reshape x :shape [3 5000 1]) rank)) \
         (output i (scatter (expand (const i64[] { 0 }) :shape [3 7 1]) (iota :shape [3 5000 1] :axis 1 :dtype i64) rank))",
    ),
];

#[test]
fn kernels_of_cases_compile() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let plan = |case: &cases::Case| compiler.plan(&cases::graph(*case)).unwrap().lowered.program;
    compile_all("cases", cases::SMALL.iter().chain(LARGE).chain(cases::ATTENTIONS).map(plan));
}

#[test]
fn ways_of_attention_compile() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let plan = |case: &cases::Case| compiler.plan(&cases::graph(*case)).unwrap().lowered.program;
    let of = |kernel: &Kernel| {
        let mut families = BTreeMap::new();
        for way in kernels::ways(&SHAPE, kernel) {
            families.entry(way.name.split(',').next().unwrap_or_default().to_string()).or_insert(way);
        }
        families.into_values().flat_map(|way| way.printed.unwrap_or_else(|why| panic!("{why:?}"))).collect::<Vec<_>>()
    };
    compile_launches(
        "attention",
        cases::ATTENTIONS.iter().flat_map(|case| plan(case).kernels).flat_map(|kernel| of(&kernel)),
    );
}

#[test]
fn ways_of_products_compile() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let plan = |case: &cases::Case| compiler.plan(&cases::graph(*case)).unwrap().lowered.program;
    let kernels = cases::PRODUCTS.iter().flat_map(|case| plan(case).kernels);
    let ways = kernels.flat_map(|kernel| kernels::products(&SHAPE, &kernel));
    // Schedules of other families compile in the tests of cases and programs.
    let families = ["warpgroups", "few"];
    let whole = ways.filter(|way| way.name.ends_with("in 1") && families.iter().any(|f| way.name.starts_with(f)));
    compile_launches("products", whole.flat_map(|way| way.printed.unwrap_or_else(|why| panic!("{why:?}"))));
}

#[test]
fn kernels_of_random_programs_compile() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let plan = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let decisions: Vec<u16> = (0..72).map(|_| random.u16(..)).collect();
        compiler.plan(&generate(&decisions)).ok().map(|planned| planned.lowered.program)
    };
    compile_all("random", (0..15).filter_map(plan));
}

#[test]
fn what_is_missing_is_named() {
    match open(&Setup::default()) {
        Ok(gpu) => assert!(gpu.describe().contains("processors"), "{}", gpu.describe()),
        Err(error) => {
            let error = error.to_string();
            let named = ["libcuda", "libnvrtc", "CUDA device"].iter().any(|name| error.contains(name));
            assert!(named, "it should name a library or the device: {error}");
        }
    }
}
