//! Runs printed kernels on the host, through a shim, against the reference. No GPU is needed.

#[expect(dead_code, reason = "what is measured is too large for the host")]
mod cases;
mod host;

use std::sync::Arc;

use eutectic::{Compiler, DType, Strategy};
use eutectic_backend::{Contraction, Instr, axes::FEW};
use eutectic_checker::run::check;
use eutectic_conformance::{device::Device, program::programs, suites::SUITES};
use eutectic_cuda::kernels;
use eutectic_gpu::{Gpu, device::DeviceShape};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

/// Checks `count` random programs of at most `steps` ops.
fn sweep(count: u32, steps: usize, seed: u64) {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let config = Config {
        cases: count,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 40,
        ..Config::default()
    };
    let strategies = [Strategy::Local, Strategy::Greedy, Strategy::Unfused];
    let result = TestRunner::new(config).run(&programs(steps), |case| {
        let compiler = compiler.clone().with_strategy(strategies[(case.seed % 3) as usize]);
        let fail = |what: String| TestCaseError::fail(what);
        check(&compiler, &case.graph, case.seed)
            .map_err(|e| fail(e.to_string()))?
            .map_err(|differences| fail(format!("{differences:#?}")))
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn random_programs() {
    sweep(6, 9, 0);
}

#[test]
#[ignore = "takes minutes: `cargo test -p eutectic-cuda --test on_host -- --ignored many`"]
fn many_random_programs() {
    sweep(60, 12, 1);
}

#[test]
fn cases() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let mut wrong = Vec::new();
    for case in cases::SMALL {
        match check(&compiler, &cases::graph(*case), 1) {
            Ok(Ok(())) => {}
            Ok(Err(differences)) => wrong.push(format!("{}: {:?}", case.0, differences[0])),
            Err(error) => wrong.push(format!("{}: {error}", case.0)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn types_without_a_name_in_the_language_are_refused_by_name() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    for dtype in [DType::F8E5M2, DType::F8E4M3, DType::I16, DType::U16] {
        let text = format!("(input x {dtype}[6]) (output y (cast x :to f32))");
        let error = compiler.compile(&cases::graph(("lacking", &text))).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot use {dtype} because the device does not have it")), "{error}");
    }
}

#[test]
fn epilogues_of_the_library() {
    let linear = |act: &str, more: &str| {
        format!(
            "(input x f16[64 64]) (param w f16[64 64]) (param b f16[64]) (input r f16[64 64]) \
             (let s (linear x w b :act {act})) {more}"
        )
    };
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    for (act, more, has) in [
        ("none", "(output y s)", true),
        ("gelu-tanh", "(output y s)", true),
        ("none", "(output y (add r s))", true),
        // The library lacks these epilogues: its relu turns NaN into 0, its gelu uses tanh, and it adds nothing after an
        // activation.
        ("relu", "(output y s)", false),
        ("gelu-erf", "(output y s)", false),
        ("gelu-tanh", "(output y (add r s))", false),
        ("none", "(output y s) (output z (exp s))", false),
    ] {
        let program = compiler.plan(&cases::graph(("epilogue", &linear(act, more)))).unwrap().lowered.program;
        let ways = program.kernels.iter().flat_map(|kernel| kernels::products(&host::SHAPE, kernel));
        let names: Vec<_> = ways.map(|way| way.name).filter(|name| name.starts_with("library")).collect();
        assert_eq!(names, [if has { "library" } else { "library and map" }], "{act}: {more}");
    }
}

/// Products of few rows read weights that are contiguous along the depth. The load program transposes a parameter for
/// this.
#[test]
fn weights_of_few_rows_lie_along_the_sums() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    for (rows, along) in [(1, true), (FEW, true), (FEW + 1, false)] {
        let text = format!("(input x f16[{rows} 2048]) (param w f16[2048 1024]) (output y (matmul x w))");
        let program = compiler.plan(&cases::graph(("few rows", &text))).unwrap().lowered.program;
        let [step] = program.run.as_slice() else { panic!("{rows} rows: {} kernels", program.run.len()) };
        let Some(Contraction { rhs, axes, .. }) = program.kernels[step.kernel].contraction() else {
            panic!("no product")
        };
        let Instr::Load(load) = &rhs.instrs[rhs.results[0]] else { panic!("the operand is computed") };
        let strides = load.at.affine(rhs.domain.len()).unwrap();
        assert_eq!(strides[axes.depth - 1] == 1, along, "{rows} rows: {strides:?}");
    }
}

/// Weights that are decoded on the fly are transposed once, in their storage type.
#[test]
fn decoded_weights_of_few_rows_lie_along_the_depth() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let scaled = "(param s f32[4096]) (output y (matmul x (mul (cast w :to f32) s)))";
    let plain = "(output y (matmul x (cast w :to f32)))";
    for (stored, rest) in [("i8", scaled), ("u8", plain), ("f16", plain)] {
        let text = format!("(input x f32[1 4096]) (param w {stored}[4096 4096]) {rest}");
        let program = compiler.plan(&cases::graph(("decoded", &text))).unwrap().lowered.program;
        let [step] = program.run.as_slice() else { panic!("{stored}: {} kernels", program.run.len()) };
        let kernel = &program.kernels[step.kernel];
        let Some(Contraction { rhs, axes, .. }) = kernel.contraction() else { panic!("{stored}: no product") };
        let weights =
            rhs.instrs.iter().find_map(|i| if let Instr::Load(load) = i { Some(load) } else { None }).unwrap();
        assert_eq!(weights.at.affine(rhs.domain.len()).unwrap()[axes.depth - 1], 1, "{stored}");
        assert_eq!(kernel.slots[weights.slot].0.name(), stored);
    }
}

/// The first candidate is the schedule that is printed, and its price is the kernel's price.
#[test]
fn the_first_candidate_is_printed() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let mut several = 0;
    for case in [cases::PRODUCTS, cases::ATTENTIONS].concat() {
        for kernel in compiler.plan(&cases::graph(case)).unwrap().lowered.program.kernels {
            let candidates = compiler.backend().candidates(&kernel, &[]).unwrap_or_else(|why| panic!("{why:?}"));
            assert_eq!(candidates[0].cost, compiler.backend().cost(&kernel), "{}", case.0);
            let ways = kernels::ways(&host::SHAPE, &kernel);
            let named = ways.into_iter().find(|way| way.name == candidates[0].name);
            if let Some(way) = named {
                assert_eq!(way.printed, kernels::print(&host::SHAPE, &kernel), "{}: {}", case.0, way.name);
                several += usize::from(candidates.len() > 1);
            }
        }
    }
    assert!(several > 20, "{several}");
}

/// A kernel may start before earlier kernels have ended, when its operands may be incomplete. Each kernel therefore
/// waits once, before it reads or writes.
#[test]
fn every_printed_kernel_waits() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let mut count = 0;
    let shape = DeviceShape { processors: 132, shared: 227 << 10, cluster: 8, ..*host::SHAPE };
    for case in [cases::SMALL, cases::PRODUCTS, cases::ATTENTIONS].concat() {
        for kernel in compiler.plan(&cases::graph(case)).unwrap().lowered.program.kernels {
            let ways = kernels::ways(&shape, &kernel).into_iter().filter_map(|way| Some((way.name, way.printed.ok()?)));
            let whole = kernels::print(&shape, &kernel).unwrap_or_else(|why| panic!("{why:?}"));
            for (name, launches) in ways.chain([("print".into(), whole)]) {
                for source in launches.iter().filter_map(|launch| launch.source()) {
                    let (_, entry) = source.rsplit_once("Slots slots = arguments;").unwrap();
                    let first = entry.trim_start().split(['(', '<']).next().unwrap_or_default();
                    // A kernel that takes the plain arguments calls `follow` itself.
                    let waits = |text: &str| text.contains("slots.follow();");
                    let body = || source.split_once(&format!(" {first}(Slots& slots")).map_or("", |(_, body)| body);
                    assert!(first == "slots.follow" || waits(body()), "{} {name}: {entry}", case.0);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 1000, "{count}");
}

/// A mask that hides tiles of scores is not stored as a tensor, because all of its elements would then be computed.
#[test]
fn hidden_tiles_are_left_out() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    for mask in ["causal", "window :window 100"] {
        let text = format!(
            "(input q f16[12 1024 64]) (input k f16[12 1024 64]) (input v f16[12 1024 64]) \
             (output y (sdpa q k v :scale 0.125 :mask {mask}))"
        );
        let program = compiler.plan(&cases::graph((mask, &text))).unwrap().lowered.program;
        let printed = program.kernels.iter().flat_map(|kernel| kernels::print(&host::SHAPE, kernel).unwrap());
        let sources: Vec<_> = printed.filter_map(|launch| launch.source().map(str::to_string)).collect();
        assert!(sources.iter().any(|source| source.contains("RANGES[]")), "{mask}: {} kernels", sources.len());
    }
}

/// Prefixes of the names of the schedules that are tried on the host: for each family, the largest and the smallest
/// tiles, with and without a split depth.
const WAYS: &[&str] = &[
    "library",
    "few, 16 columns in 1",
    "few, 128 columns in 1",
    "few, 8 columns in 2",
    "few, 64 columns in 2",
    "warpgroups 128×128 of 1 in 1",
    "warpgroups 128×192 of 1 in 1",
    "warpgroups 128×256 of 1 in 1",
    "warpgroups 64×64 of 1 in 2",
    "warpgroups 128×64 of 1 in 4",
    "warps 128×128 in 1",
    "warps 16×64 in 2",
    "fma 32×64 in 2",
    "direct",
];

#[test]
#[ignore = "takes minutes: `cargo test -p eutectic-cuda --test on_host -- --ignored ways`"]
fn ways_of_products() {
    let shape = *host::SHAPE;
    let compilers = WAYS.iter().map(|name| {
        let only = cases::only::Only { device: host::Host, shape, name: name.to_string() };
        (name, Compiler::new(Gpu::new(only)).unwrap())
    });
    let mut wrong = Vec::new();
    for (name, compiler) in compilers {
        for case in cases::PRODUCTS {
            let graph = cases::graph(*case);
            let program = compiler.plan(&graph).unwrap().lowered.program;
            let has = |kernel| kernels::products(&shape, kernel).iter().any(|way| way.name.starts_with(name));
            if !program.kernels.iter().any(has) {
                continue;
            }
            match check(&compiler, &graph, 1) {
                Ok(Ok(())) => {}
                Ok(Err(differences)) => wrong.push(format!("{name}: {}: {:?}", case.0, differences[0])),
                Err(error) => wrong.push(format!("{name}: {}: {error}", case.0)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sessions() {
    cases::sessions::check(|| Gpu::new(host::Host));
}

/// Runs suites that all backends share. Their programs are small enough for the shim.
fn suites(names: &[&str]) {
    let device = Device::new(vec![Arc::new(Gpu::new(host::Host))]).unwrap_or_else(|e| panic!("{e}"));
    for name in names {
        let (name, word) = name.split_once('/').unwrap_or((name, ""));
        let suite = SUITES.iter().find(|suite| suite.name == name).expect("there is such a suite");
        for verdict in suite.run(&device, word) {
            assert!(verdict.failure.is_none(), "{}: {}", verdict.name, verdict.failure.unwrap_or_default());
            assert_eq!(verdict.refused, 0, "{}: {:?}", verdict.name, verdict.why);
        }
    }
}

#[test]
fn one_program_serves_every_length() {
    suites(&["extents"]);
}

/// Checks rankings in one block and by several launches, together with other operations; also ordered stores, and
/// atomics of each size.
#[test]
fn rankings_and_stores_of_several_points() {
    suites(&["rankings/several_rankings", "rankings/ranked_rows", "rankings/first_elements", "scatters/many_updates"]);
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let ranked = |dtype: &str, shape: &str, order: &str| {
        format!("(input x {dtype}[{shape}]) (output y (ranking x :most 40 :descending {order}))")
    };
    // The programs are so large that no plan compares each element with each update.
    let scattered = |dtype: &str, op: &str| {
        format!(
            "(input x {dtype}[1 3000 3]) (input u {dtype}[1 9000 3]) (input i i32[1 9000 3]) (output y ({op} x u i))"
        )
    };
    let texts = [
        ranked("f16", "3 70", "true"),
        ranked("f64", "3 70", "false"),
        ranked("u8", "2 300", "true"),
        ranked("i64", "2 1030", "false"),
        scattered("f16", "scatter"),
        scattered("f64", "scatter-sum"),
        scattered("i64", "scatter-max"),
        scattered("i8", "scatter-sum"),
        scattered("u32", "scatter-prod"),
    ];
    for text in texts {
        let graph = cases::graph(("ranked", &text));
        let differences = check(&compiler, &graph, 1).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(differences.is_ok(), "{text}: {differences:#?}");
    }
}

/// Blocks combine many updates of few elements in shared memory, and other updates in global memory.
#[test]
fn few_elements_are_combined_in_shared_memory() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    for (elements, is_shared) in [(900, true), (30_000, false)] {
        let text = format!(
            "(input x f32[1 {elements} 1]) (input u f32[1 90000 1]) (input i i32[1 90000 1]) (output y (scatter-sum x u i))"
        );
        let program = compiler.plan(&cases::graph(("combined", &text))).unwrap().lowered.program;
        let printed = program.kernels.iter().flat_map(|kernel| kernels::print(&host::SHAPE, kernel).unwrap());
        let sources: Vec<_> = printed.filter_map(|launch| launch.source().map(str::to_string)).collect();
        assert!(sources.iter().any(|source| source.contains("combine<Sum>(s")), "{elements}: no store combines");
        let shared = sources.iter().any(|source| source.contains("combine<Sum>(left<"));
        assert_eq!(shared, is_shared, "{elements}");
    }
}

/// Random numbers have the same bits on all backends.
#[test]
fn random_numbers() {
    suites(&["random"]);
}

/// Threads exchange values of scans within warps and across warps, along rows and across rows. In some iterations,
/// threads have no elements.
#[test]
fn scans() {
    let compiler = Compiler::new(Gpu::new(host::Host)).unwrap();
    let texts = [
        "(input x f32[3 1]) (output y (scan-sum x))",
        "(input x f32[7 19]) (output y (scan-max x :exclusive true))",
        "(input x f32[2 64]) (output y (scan-sum x :reverse true))",
        "(input x f32[2 5000]) (output y (scan-sum x))",
        "(input x f32[1 4099]) (output y (scan-min x :reverse true :exclusive true))",
        "(input x i64[1 2100]) (output y (scan-prod x))",
        "(input x f16[2 3000]) (output y (scan-linear (tanh x) x))",
        "(input x f64[1 1030]) (output y (scan-linear (tanh x) x :reverse true :exclusive true))",
        "(input x f32[300 70]) (output y (scan-sum x :axis 0))",
        "(input x f32[37 5]) (output y (scan-linear (tanh x) x :axis 0 :reverse true))",
        "(input x f32[6 90]) (output y (softmax (scan-sum (exp (neg x))) :axis -1))",
        "(input x f32[6 90]) (output y (scan-sum (scan-max (neg x) :exclusive true)))",
    ];
    let mut wrong = Vec::new();
    for text in texts {
        match check(&compiler, &cases::graph(("scan", text)), 1) {
            Ok(Ok(())) => {}
            Ok(Err(differences)) => wrong.push(format!("{text}: {:?}", differences[0])),
            Err(error) => wrong.push(format!("{text}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn decoding_and_precision() {
    suites(&["decode", "precision", "ops/loads"]);
}
