//! Tests that a backend's answers about a kernel agree: a supported kernel has a finite cost and compiles, and any
//! other does not. Programs are planned within the backend's limits, and without kernels that its compiler refuses.

use std::{hash::BuildHasher, sync::Arc};

use eutectic::{Backend, Compiler, Cpu, CpuOptions, DType, Error, Graph, Program, RuleSet, Strategy, Type, packs};
use eutectic_backend::{BackendError, Cost, DTypes, Executable, Instr, Kernel, Limits, Place, Refusal, RowLimits};
use eutectic_checker::run::check;
use eutectic_conformance::{
    device::program,
    kernels::Random,
    program::{Case, programs},
};
use eutectic_ir::Origin;
use eutectic_rewrites::Choice;
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

/// The CPU backend with limits. It refuses to compile some kernels, which the seed selects.
struct Fussy {
    cpu: Cpu,
    limits: Limits,
    /// The percentage of refused kernels, among those with more than one computing instruction.
    share: u64,
    seed: u64,
}

impl Fussy {
    fn new(limits: Limits, share: u64, seed: u64) -> Fussy {
        Fussy { cpu: Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() }), limits, share, seed }
    }

    fn refuses(&self, kernel: &Kernel) -> bool {
        let computes = |instr: &&Instr| matches!(instr, Instr::Anchor { .. } | Instr::Map { .. } | Instr::Row { .. });
        let instrs = kernel.bodies().into_iter().flat_map(|body| &body.instrs).filter(computes).count();
        let hash = rustc_hash::FxBuildHasher.hash_one((kernel, self.seed));
        instrs > 1 && (hash >> 32) % 100 < self.share
    }
}

impl Backend for Fussy {
    fn name(&self) -> &str {
        "fussy"
    }

    fn describe(&self) -> String {
        format!("{}, within {:?}", self.cpu.describe(), self.limits)
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        self.cpu.supports(kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        let cost = self.cpu.cost(kernel);
        let supported = self.cpu.supports(kernel);
        assert_eq!(cost.seconds.is_finite(), supported.is_ok(), "{supported:?}: {kernel:#?}");
        let compiled = self.cpu.compile(&program(kernel)).map(drop);
        assert_eq!(compiled.is_ok(), supported.is_ok(), "{supported:?}, but {compiled:?}: {kernel:#?}");
        cost
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        for kernel in &program.kernels {
            assert_eq!(self.limits.exceeded(kernel), [""; 0], "{kernel:#?}");
        }
        let starts = program.buffers.iter().filter_map(|buffer| match buffer.place {
            Place::Arena(at) | Place::Loaded(at) => Some(at),
            _ => None,
        });
        starts.for_each(|at| assert!(at.is_multiple_of(self.limits.alignment), "{at}"));
        assert!(program.arena_bytes + program.load_bytes <= self.limits.capacity);
        let refused = program.kernels.iter().enumerate().filter(|(_, kernel)| self.refuses(kernel));
        let why = || "its compiler does not like it".to_string();
        let refusal = |(n, _)| Refusal { kernel: Some(n), origin: Origin::default(), why: why() };
        let problems: Vec<Refusal> = refused.map(refusal).collect();
        match problems.is_empty() {
            true => self.cpu.compile(program),
            false => Err(BackendError::Unsupported { backend: "fussy".into(), problems }),
        }
    }
}

/// Returns random limits, from small ones to none.
fn limits(random: &mut Random) -> Limits {
    let any_part = random.below(2) == 0;
    let mut one = |of: &[usize]| random.pick(&[of, &[usize::MAX; 3]].concat());
    let mut limits = Limits {
        any_part,
        alignment: 64,
        rank: one(&[1, 2, 3]),
        extent: one(&[64, 1 << 12]),
        loads: one(&[1, 2, 4]),
        stores: one(&[1, 2]),
        instrs: one(&[4, 8, 24]).min(256),
        arguments: one(&[16, 24, 40]),
        binding: one(&[1 << 10, 1 << 14]),
        capacity: one(&[1 << 12, 1 << 16]),
        rows: match one(&[0, 8]) {
            0 => RowLimits::REDUCTIONS,
            8 => RowLimits::and(&[("ranking", 8)]),
            _ => RowLimits::ANY,
        },
        dtypes: DTypes::ALL,
        in_order: any_part,
        combined: DTypes::of([DType::F32, DType::I64]),
        subnormals: true,
    };
    limits.alignment = random.pick(&[1, 8, 64, 256, 4096]);
    if random.below(4) == 0 {
        limits.dtypes = limits.dtypes.without(random.pick(&DType::ALL));
    }
    limits
}

#[derive(Default)]
struct Counts {
    right: usize,
    refused: usize,
}

/// Plans and runs a program on a backend. A refusal must come before the run, and give reasons.
fn try_on(backend: Fussy, rules: &RuleSet, case: &Case, counts: &mut Counts) -> Result<(), TestCaseError> {
    let what = backend.describe();
    let compiler = Compiler::from_backend(backend, rules.clone());
    match check(&compiler, &case.graph, case.seed) {
        Ok(Ok(())) => counts.right += 1,
        Ok(Err(differences)) => return Err(TestCaseError::fail(format!("{what}: {differences:#?}"))),
        Err(Error::Unsupported { problems, .. }) if !problems.is_empty() => counts.refused += 1,
        Err(Error::Memory { needed, capacity, .. }) if needed > capacity => counts.refused += 1,
        Err(error) => return Err(TestCaseError::fail(format!("{what}: {error}"))),
    }
    Ok(())
}

fn each(count: u32, mut of: impl FnMut(&Case, &mut Counts) -> Result<(), TestCaseError>) -> Counts {
    let config = Config { cases: count, rng_seed: RngSeed::Fixed(17), failure_persistence: None, ..Config::default() };
    let counts = std::cell::RefCell::new((Counts::default(), &mut of));
    let run = |case: Case| {
        let (counts, of) = &mut *counts.borrow_mut();
        of(&case, counts)
    };
    TestRunner::new(config).run(&programs(9), run).unwrap_or_else(|failure| panic!("{failure}"));
    counts.into_inner().0
}

fn rules() -> RuleSet {
    packs(&Cpu::default()).unwrap().choose(&Choice::default()).unwrap()
}

#[test]
fn programs_are_planned_within_limits_or_refused_before() {
    let rules = rules();
    let counts = each(400, |case, counts| {
        let limits = limits(&mut Random(case.seed));
        try_on(Fussy::new(limits, 0, 0), &rules, case, counts)
    });
    // Both outcomes must occur.
    assert!(counts.right > 60 && counts.refused > 60, "{} right, {} refused", counts.right, counts.refused);
}

#[test]
fn programs_with_refused_kernels_are_planned_in_another_way() {
    let rules = rules();
    for share in [10, 40] {
        let counts =
            each(100, |case, counts| try_on(Fussy::new(Limits::default(), share, case.seed), &rules, case, counts));
        assert!(counts.right > 80, "of 100 programs, with {share} % of kernels refused: {}", counts.right);
    }
}

/// The compiler of this backend refuses all kernels. The error must name refusals.
#[test]
fn kernels_that_no_plan_can_avoid_are_named() {
    let mut graph = Graph::new("wide");
    let x = graph.input("x", Type::tensor(DType::F32, &[4, 4])).unwrap();
    let y = graph.apply("softmax", &[x], &[("axis", (-1_i64).into())]).unwrap();
    graph.output("y", y).unwrap();
    struct Never(Cpu);
    impl Backend for Never {
        fn name(&self) -> &str {
            "never"
        }
        fn describe(&self) -> String {
            "compiles nothing".into()
        }
        fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
            self.0.supports(kernel)
        }
        fn cost(&self, kernel: &Kernel) -> Cost {
            self.0.cost(kernel)
        }
        fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
            let refusal =
                |n| Refusal { kernel: Some(n), origin: Origin::new("there"), why: format!("kernel {n} is not for it") };
            let problems = (0..program.kernels.len()).map(refusal).collect();
            Err(BackendError::Unsupported { backend: "never".into(), problems })
        }
    }
    for strategy in [Strategy::Local, Strategy::Unfused] {
        let compiler = Compiler::new(Never(Cpu::default())).unwrap().with_strategy(strategy);
        let error = compiler.compile(&graph).err().expect("the backend compiles nothing").to_string();
        assert!(error.contains("is not for it"), "{error}");
    }
}

/// Plans a transpose of nine axes that cannot be merged.
#[test]
fn many_axes_are_planned_or_refused_before() {
    let mut graph = Graph::new("transpose");
    let x = graph.input("x", Type::tensor(DType::F32, &[2; 9])).unwrap();
    let perm: Vec<i64> = vec![-2, -9, -4, -6, -8, -1, -3, -7, -5];
    let y = graph.apply("transpose", &[x], &[("perm", perm.as_slice().into())]).unwrap();
    graph.output("y", y).unwrap();
    let compiler = Compiler::new(Cpu::default()).unwrap();
    match compiler.plan(&graph) {
        Ok(planned) => {
            compiler.build(&planned).unwrap();
            check(&compiler, &graph, 1).unwrap().unwrap();
        }
        Err(Error::Unsupported { problems, .. }) => assert!(problems[0].contains("axes"), "{problems:?}"),
        Err(error) => panic!("{error}"),
    }
}
