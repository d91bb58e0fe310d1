//! Compares plans with the program as written. Right plans pass. Wrong rules and wrong kernels are named.

use std::{collections::BTreeMap, sync::Arc};

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph, RuleSet, Tensor,
    engine::{
        backend::{Backend, BackendError, Cost, Executable, Instr, Kernel, Limits, Program},
        ir::{DType, Op, lang::Source, text},
        rewrites::{Choice, Fp},
    },
    packs,
    verify::{Cause, Checked, Element, Judge, Precision, Verified},
};

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })
}

/// Parses a graph in which `<2.0>` stands for a constant.
fn graph(text: &str) -> Graph {
    let text = text.replace('<', "(const f32[] { ").replace('>', " })");
    text::parse(&Source::new("test", text)).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Returns the packs, plus these rules of `proptests/tests/wrong`.
fn with_wrong(names: &[&str], fp: Fp) -> Compiler {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../proptests/tests/wrong");
    let wrong = RuleSet::load(directory.as_ref()).unwrap();
    let only: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let wrong = match only.is_empty() {
        true => RuleSet::default(),
        false => wrong.choose(&Choice { only, fp: Fp::Fast, ..Choice::default() }).unwrap(),
    };
    let rules = packs(&cpu()).unwrap().choose(&Choice { fp, ..Choice::default() }).unwrap();
    Compiler::from_backend(cpu(), rules.and(wrong).unwrap())
}

fn right() -> Compiler {
    with_wrong(&[], Fp::Reassoc)
}

/// Returns numbers between −1 and 1 with full significands, or integers below 4.
fn values(graph: &Graph) -> BTreeMap<String, Tensor> {
    let named = ["input", "param"].into_iter().flat_map(|kind| graph.named(kind));
    let value = |(seed, (name, id)): (usize, (&str, eutectic::NodeId))| {
        let ty = graph.ty(id);
        let (dtype, dims) = (ty.dtype().unwrap(), ty.capacity().unwrap());
        let mut random = random_numbers(seed as u64 + 1);
        let numbers: Vec<f64> = (0..ty.count()).map(|_| random()).collect();
        let tensor = match dtype.is_float() {
            true => Tensor::from_f64(dtype, &dims, numbers),
            false => Tensor::from_i64(dtype, &dims, numbers.into_iter().map(|x| (x.abs() * 4.0) as i64)),
        };
        (name.to_string(), tensor)
    };
    named.enumerate().map(value).collect()
}

fn random_numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

fn verify(compiler: &Compiler, graph: &Graph) -> Verified {
    let values = values(graph);
    compiler.verify(graph, |name| values.get(name).cloned(), Checked::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn passes(compiler: &Compiler, graph: &Graph, judge: Judge) -> Verified {
    let verified = verify(compiler, graph);
    assert!(verified.is_right(), "{}: {:?}\n{:?}", graph.name, verified.results, verified.blame);
    assert_eq!(verified.judge, judge, "{}", graph.name);
    assert!(verified.blame.is_none());
    verified
}

/// Asserts that the report names the rule, alone or with others that it needs, and a kernel that stores another value.
#[track_caller]
fn names(rule: &str, graph: &Graph) -> Verified {
    let verified = verify(&with_wrong(&[rule], Fp::Reassoc), graph);
    assert!(!verified.is_right(), "{rule} changes nothing of {}", graph.name);
    let blame = verified.blame.as_ref().unwrap();
    match &blame.cause {
        Cause::Rules(sets) => assert_eq!(*sets, [[rule]], "{}", graph.name),
        cause => panic!("{rule} in {}: {cause:?}", graph.name),
    }
    let kernel = blame.kernel.as_ref().expect("the first kernel that differs");
    assert!(kernel.difference.apart > kernel.difference.allowed);
    verified
}

const NETWORK: &str = r#"
    (graph "network"
      (input x f32[3 12])
      (param w f32[12 24])
      (param b f32[24])
      (param v f32[24 5])
      (let h (act (add (matmul x w) b) :kind gelu-erf))
      (let y (matmul h v))
      (output y (softmax y :axis -1))
      (output best (ranking y :most 1 :descending true)))"#;

/// Returns the text of a graph of rows `x` and square weights `w` and `v`.
fn two_weights(name: &str, rows: usize, width: usize, layers: &str) -> String {
    let weight = |name: &str| format!("(param {name} f32[{width} {width}])");
    format!("(graph \"{name}\" (input x f32[{rows} {width}]) {} {} {layers})", weight("w"), weight("v"))
}

#[test]
fn a_right_plan_passes() {
    let verified = passes(&right(), &graph(NETWORK), Judge::Bound);
    let names: Vec<_> = verified.results.iter().map(|r| (r.name.as_str(), r.state)).collect();
    assert_eq!(names, [("y", false), ("best", false)]);
    assert!(verified.results.iter().all(|r| r.comparison.open == 0 && r.comparison.elements == r.value.count()));
}

#[test]
fn a_large_program_is_judged_by_disturbed_inputs() {
    let layers = "(let h (act (matmul x w) :kind silu)) (output y (softmax (add x (matmul h v)) :axis -1))";
    let text = two_weights("large", 256, 320, layers);
    let verified = passes(&right(), &graph(&text), Judge::Disturbed);
    assert_eq!(verified.results[0].comparison.bounded, 0);
    let wrong = text.replace("(softmax (add x (matmul h v)) :axis -1)", "(act (mul (matmul h v) <-2.0>) :kind relu)");
    names("wrong/relu-scale", &graph(&wrong));
}

#[test]
fn wrong_rules_are_named() {
    for (rule, text) in [
        ("wrong/sqrt-square", "(input x f32[4 9]) (output y (sqrt (mul x x)))"),
        ("wrong/norms-softmax-of-sum", "(input x f32[3 8]) (input b f32[3 8]) (output y (softmax (add x b) :axis -1))"),
        ("wrong/int-div-mul", "(input x i64[9]) (let z (add x (const i64[] { 1 }))) (output y (mul (div x z) z))"),
    ] {
        names(rule, &graph(&format!("(graph \"{rule}\" {text})")));
    }
}

#[test]
fn the_rule_is_found_in_a_network_and_its_kernel_is_the_first_that_differs() {
    // The error is in the middle layer, after kernels that are right.
    let layers = r#"
          (let a (tanh (matmul x w)))
          (let b (softmax (mul a <2.0>) :axis -1))
          (output y (matmul b v))
          (output z (reduce-sum a :axes [-1] :keep false))"#;
    let text = two_weights("layers", 4, 16, layers);
    let verified = names("wrong/norms-softmax-of-scaled", &graph(&text));
    let kernel = verified.blame.unwrap().kernel.unwrap();
    assert!(["softmax", "matmul"].contains(&kernel.op.as_str()), "{}", kernel.op);
    assert!(verified.results[1].comparison.is_right() && !verified.results[0].comparison.is_right());
}

#[test]
fn what_is_not_finite_agrees() {
    let text = r#"
        (graph "limits"
          (input x f32[5])
          (output logs (log x))
          (output inverse (div <1.0> x))
          (output largest (reduce-max x :axes [-1] :keep false)))"#;
    let x = Tensor::from_f32(&[5], &[-1.0, 0.0, f32::INFINITY, f32::NAN, 0.3]).unwrap();
    let verified = right().verify(&graph(text), |_| Some(x.clone()), Checked::default()).unwrap();
    assert!(verified.is_right(), "{:?}", verified.results);
    assert!(verified.results.iter().all(|r| r.comparison.open == 0));
}

#[test]
fn whole_numbers_are_exact() {
    let text = r#"
        (graph "whole"
          (input x i64[3 6])
          (output y (mul (add x (const i64[] { 7 })) x))
          (output z (cast (div (cast x :to f32) <7.0>) :to i64)))"#;
    passes(&with_wrong(&[], Fp::Exact), &graph(text), Judge::Bound);
    let verified = verify(
        &with_wrong(&["wrong/int-div-mul"], Fp::Reassoc),
        &graph("(graph \"g\" (input x i64[9]) (let z (add x (const i64[] { 1 }))) (output y (mul (div x z) z)))"),
    );
    let largest = verified.results[0].comparison.largest.as_ref().unwrap();
    assert!(matches!((largest.got, largest.want), (Element::Whole(a), Element::Whole(b)) if a > b));
}

#[test]
fn states_are_compared_too() {
    let text = |value: &str| {
        format!(
            r#"
        (graph "step"
          (input key f32[2 1 8])
          (input at i64[])
          (state keys f32[2 6 8])
          (let new {value})
          (let all (update-slice keys new at :axis -2))
          (update keys all)
          (output largest (reduce-max all :axes [-2] :keep false)))"#
        )
    };
    let verified = passes(&right(), &graph(&text("key")), Judge::Bound);
    assert_eq!((verified.results[1].name.as_str(), verified.results[1].state), ("keys", true));
    let verified = names("wrong/sqrt-square", &graph(&text("(sqrt (mul key key))")));
    assert!(!verified.results[1].comparison.is_right());
}

/// Returns five iterations of h' = tanh(x + h·r). The loop stacks the expression `stacked` of h.
fn looped(stacked: &str) -> Graph {
    let body = graph(&format!(
        r#"(graph "body" (input h f32[2 6]) (input x f32[2 6]) (input r f32[6 6])
             (let next (tanh (add x (matmul h r))))
             (output next next)
             (output seen {stacked}))"#
    ));
    let mut g = graph(r#"(graph "loop" (input x f32[5 2 6]) (input start f32[2 6]) (param r f32[6 6]))"#);
    let named = |kind: &str, name: &str| g.named(kind).find(|(known, _)| *known == name).unwrap().1;
    let given = [named("input", "start"), named("input", "x"), named("param", "r")];
    let attrs = [
        ("body", eutectic::engine::ir::Attr::Graph(body.into())),
        ("times", 5_i64.into()),
        ("carried", 1_i64.into()),
        ("scanned", 1_i64.into()),
    ];
    let all = g.apply("loop", &given, &attrs).unwrap();
    for (at, name) in ["last", "seen"].into_iter().enumerate() {
        let one = g.get(all, at as i64).unwrap();
        let one = g.neg(one).unwrap();
        g.output(name, one).unwrap();
    }
    g
}

#[test]
fn loops_are_followed() {
    passes(&right(), &looped("(act (mul next <3.0>) :kind relu)"), Judge::Bound);
    let verified = names("wrong/sqrt-square", &looped("(sqrt (mul next next))"));
    let kernel = verified.blame.unwrap().kernel.unwrap();
    assert_eq!((kernel.op.as_str(), kernel.time), ("sqrt", 0));
}

#[test]
fn extents_at_run_time_are_those_of_the_inputs() {
    let text = r#"
        (graph "attend"
          (dim S :least 1 :most 32)
          (input query f32[2 3 8])
          (input keys f32[2 S 8])
          (input values f32[2 S 8])
          (output mixed (sdpa query keys values :scale 0.35 :mask none)))"#;
    let g = graph(text);
    let mut all = values(&g);
    for name in ["keys", "values"] {
        let x: Vec<f64> = all[name].to_f64().into_iter().take(2 * 5 * 8).collect();
        all.insert(name.into(), Tensor::from_f64(DType::F32, &[2, 5, 8], x));
    }
    let verified = right().verify(&g, |name| all.get(name).cloned(), Checked::default()).unwrap();
    assert!(verified.is_right() && verified.judge == Judge::Disturbed);
}

#[test]
fn a_precision_that_was_asked_for_is_allowed() {
    let g = graph(NETWORK);
    let values = values(&g);
    let choice = Choice { precision: Precision::Bf16, ..Choice::default() };
    let compiler = Compiler::from_backend(cpu(), packs(&cpu()).unwrap().choose(&choice).unwrap());
    let verified = |precision| {
        let checked = Checked { precision, exact: false };
        compiler.verify(&g, |name| values.get(name).cloned(), checked).unwrap()
    };
    assert!(verified(Precision::Bf16).is_right());
}

#[test]
fn a_cast_to_a_narrower_type_is_rounding_unless_every_bit_is_promised() {
    let g = graph("(graph \"casts\" (input x f32[5]) (output y (cast (cast x :to f16) :to f32)))");
    let values = values(&g);
    let compiler = with_wrong(&["wrong/cast-there-and-back"], Fp::Exact);
    let verified = |exact| {
        let checked = Checked { exact, ..Checked::default() };
        compiler.verify(&g, |name| values.get(name).cloned(), checked).unwrap()
    };
    assert!(verified(false).is_right());
    let strict = verified(true);
    assert_eq!(strict.blame.unwrap().cause, Cause::Rules(vec![vec!["wrong/cast-there-and-back".into()]]));
}

/// A backend that negates products whose result has a given number of columns.
struct WrongProducts {
    cpu: Cpu,
    columns: usize,
}

impl Backend for WrongProducts {
    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn describe(&self) -> String {
        self.cpu.describe()
    }

    fn limits(&self) -> Limits {
        self.cpu.limits()
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        self.cpu.supports(kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        self.cpu.cost(kernel)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        let mut program = program.clone();
        let is_product = |k: &&mut Kernel| k.contraction().is_some();
        for kernel in program.kernels.iter_mut().filter(is_product) {
            if kernel.body.domain.last() != Some(&self.columns) {
                continue;
            }
            for store in &mut kernel.stores {
                let dtype = kernel.body.instrs[store.value].dtype();
                let op = Op::named("neg").unwrap();
                let args = vec![store.value];
                kernel.body.instrs.push(Instr::Map { op, attrs: Default::default(), args, dtype });
                store.value = kernel.body.instrs.len() - 1;
            }
        }
        self.cpu.compile(&program)
    }
}

#[test]
fn a_wrong_kernel_is_named_and_no_rule() {
    let compiler = |columns| {
        let rules = packs(&cpu()).unwrap().choose(&Choice::default()).unwrap();
        Compiler::from_backend(WrongProducts { cpu: cpu(), columns }, rules)
    };
    let g = graph(NETWORK);
    passes(&compiler(7), &g, Judge::Bound);
    let blame = verify(&compiler(24), &g).blame.unwrap();
    assert_eq!(blame.cause, Cause::Kernels);
    assert_eq!((blame.kernel.as_ref().unwrap().op.as_str()), "act");
    let blame = verify(&compiler(5), &g).blame.unwrap();
    assert_eq!(blame.cause, Cause::Kernels);
    assert_eq!((blame.kernel.as_ref().unwrap().op.as_str()), "matmul");
}

#[test]
fn what_cannot_be_run_is_an_error() {
    let g = graph("(graph \"g\" (input x f32[4 3]) (input at i64[2]) (output y (gather x at :axis -2)))");
    let x = Tensor::from_f32(&[4, 3], &[0.5; 12]).unwrap();
    let ids = |n: i64| Tensor::from_i64(DType::I64, &[2], [0, n]);
    let run =
        |n: i64| right().verify(&g, |name| Some(if name == "x" { x.clone() } else { ids(n) }), Checked::default());
    assert!(run(3).unwrap().is_right());
    assert!(run(4).unwrap_err().to_string().contains("out of range"));
    let missing = right().verify(&g, |name| (name == "x").then(|| x.clone()), Checked::default());
    assert!(missing.unwrap_err().to_string().contains("`at` i64[2] has no value"));
}
