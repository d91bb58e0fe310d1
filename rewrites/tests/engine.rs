//! Tests the engine on small programs: the rules that fire, their results, and that runs repeat.

use eutectic_ir::{Attr, DType, Graph, NodeId, Tensor, Type, eclasses::EClasses, lang::Source, text};
use eutectic_rewrites::{Choice, Options, Rewritten, RuleSet, Stop, optimize};

fn rules() -> RuleSet {
    let text = include_str!("rules/basic.rules");
    match RuleSet::read(&[Source::new("basic.rules", text)]) {
        Ok(rules) => rules,
        Err(errors) => panic!("{:?}", miette::Report::new(errors)),
    }
}

fn run(graph: &Graph) -> Rewritten {
    let rewritten = optimize(graph, &rules(), &Options::default()).unwrap();
    assert!(rewritten.phases.iter().all(|p| p.stop == Stop::Saturated), "{:?}", rewritten.phases);
    rewritten
}

fn f32s(dims: &[usize]) -> Type {
    Type::tensor(DType::F32, dims)
}

fn ops(classes: &EClasses, class: usize) -> Vec<&'static str> {
    classes.classes[class].nodes.iter().map(|n| n.op.name()).collect()
}

struct Build {
    graph: Graph,
}

impl Build {
    fn new() -> Build {
        Build { graph: Graph::new("test") }
    }

    fn input(&mut self, name: &str, dims: &[usize]) -> NodeId {
        self.graph.input(name, f32s(dims)).unwrap()
    }

    fn param(&mut self, name: &str, dims: &[usize]) -> NodeId {
        self.graph.param(name, f32s(dims)).unwrap()
    }

    fn op(&mut self, op: &str, operands: &[NodeId], attrs: &[(&str, Attr)]) -> NodeId {
        self.graph.apply(op, operands, attrs).unwrap()
    }

    fn number(&mut self, x: f64) -> NodeId {
        self.graph.constant(Tensor::from_f64(DType::F32, &[], [x])).unwrap()
    }

    fn linear(&mut self, x: NodeId, name: &str, k: usize, n: usize) -> NodeId {
        let (w, b) = (self.param(&format!("{name}.w"), &[k, n]), self.param(&format!("{name}.b"), &[n]));
        let product = self.op("matmul", &[x, w], &[]);
        self.op("add", &[b, product], &[])
    }
}

#[test]
fn primitives_become_one_linear_with_activation() {
    let mut b = Build::new();
    let x = b.input("x", &[2, 7, 16]);
    let y = b.linear(x, "up", 16, 24);
    let half = b.number(0.5);
    let root = b.number(std::f64::consts::SQRT_2);
    let one = b.number(1.0);
    let scaled = b.op("div", &[y, root], &[]);
    let erf = b.op("erf", &[scaled], &[]);
    let sum = b.op("add", &[one, erf], &[]);
    let halved = b.op("mul", &[half, y], &[]);
    let gelu = b.op("mul", &[sum, halved], &[]);
    b.graph.output("y", gelu).unwrap();
    let done = run(&b.graph);
    let output = done.classes.outputs[0];
    assert!(ops(&done.classes, output).contains(&"linear"), "{:?}", done.classes.classes[output]);
    let at = done.classes.classes[output].nodes.iter().position(|n| n.op.name() == "linear").unwrap();
    assert_eq!(done.classes.classes[output].nodes[at].attrs[0].word(), Some("gelu-erf"));
    let steps: Vec<_> = done.explain(output, at).iter().map(|s| s.rule.to_string()).collect();
    assert!(steps.iter().any(|s| s == "fuse/gelu-erf") && steps.last().unwrap() == "fuse/linear-act", "{steps:?}");
}

#[test]
fn packs_projections_of_one_value() {
    let mut b = Build::new();
    let x = b.input("x", &[5, 16]);
    for (name, n) in [("q", 8), ("k", 4), ("v", 4)] {
        let y = b.linear(x, name, 16, n);
        b.graph.output(name, y).unwrap();
    }
    let done = run(&b.graph);
    let sliced: Vec<_> = done
        .classes
        .outputs
        .iter()
        .map(|o| done.classes.classes[*o].nodes.iter().find(|n| n.op.name() == "slice").unwrap().clone())
        .collect();
    assert!(sliced.iter().all(|n| n.operands == sliced[0].operands));
    assert_eq!(sliced.iter().map(|n| n.attrs[1].int().unwrap()).collect::<Vec<_>>(), [0, 8, 12]);
    let packing = done.classes.bundles.iter().filter(|b| b.rule == "fuse/shared-operand-linears");
    let flipped: Vec<_> = packing.flat_map(|b| &b.choices).map(|choice| choice.class).collect();
    assert!(done.classes.outputs.iter().all(|o| flipped.contains(o)), "{:?}", done.classes.bundles);
}

#[test]
fn joins_roots_through_what_they_share() {
    let mut b = Build::new();
    let (x, r) = (b.input("x", &[3, 8]), b.input("r", &[3, 8]));
    let (g, beta) = (b.param("g", &[8]), b.param("b", &[8]));
    let sum = b.op("add", &[x, r], &[]);
    let norm = b.op("layernorm", &[sum, g, beta], &[("eps", 1e-5.into())]);
    b.graph.output("sum", sum).unwrap();
    b.graph.output("norm", norm).unwrap();
    let done = run(&b.graph);
    for output in &done.classes.outputs {
        assert!(ops(&done.classes, *output).contains(&"get"));
    }
    let made = done.classes.classes.iter().flat_map(|c| &c.nodes).filter(|n| n.op.name() == "add-layernorm").count();
    assert_eq!(made, 1, "the two ways round of the sum are one");
    assert!(done.classes.bundles.iter().any(|b| b.rule == "fuse/add-layernorm" && b.choices.len() == 2));
}

#[test]
fn numbers_are_seen_through_expands_and_folded() {
    let mut b = Build::new();
    let x = b.input("x", &[4, 10]);
    let sum = b.op("reduce-sum", &[x], &[("axes", (&[-1_i64][..]).into()), ("keep", true.into())]);
    let ten = b.number(10.0);
    let mean = b.op("div", &[sum, ten], &[]);
    b.graph.output("mean", mean).unwrap();
    let (two, three) = (b.number(2.0), b.number(3.0));
    let doubled = b.op("mul", &[two, x], &[]);
    let scaled = b.op("mul", &[doubled, three], &[]);
    b.graph.output("scaled", scaled).unwrap();
    let done = run(&b.graph);
    assert!(ops(&done.classes, done.classes.outputs[0]).contains(&"reduce-mean"));
    let six = done.classes.classes[done.classes.outputs[1]]
        .nodes
        .iter()
        .any(|n| n.operands.iter().any(|o| done.classes.classes[*o].scalar == Some(6.0)));
    assert!(six);
}

#[test]
fn dims_are_solved_and_views_compose() {
    let mut b = Build::new();
    let p = b.input("p", &[3, 12]);
    let y = b.op("glu", &[p], &[("gate", "second".into())]);
    b.graph.output("y", y).unwrap();
    let x = b.input("x", &[2, 3, 4]);
    let t = b.op("transpose", &[x], &[("perm", (&[1_i64, 2, 0][..]).into())]);
    let t = b.op("transpose", &[t], &[("perm", (&[1_i64, 0, 2][..]).into())]);
    b.graph.output("t", t).unwrap();
    let done = run(&b.graph);
    assert!(ops(&done.classes, done.classes.outputs[0]).contains(&"mul"));
    let composed =
        done.classes.classes[done.classes.outputs[1]].nodes.iter().any(|n| n.attrs[0].ints() == Some(&[-1, -2, -3]));
    assert!(composed, "{:?}", done.classes.classes[done.classes.outputs[1]]);
}

#[test]
fn association_is_bounded_and_must_gain() {
    let mut b = Build::new();
    let x = b.input("x", &[64, 8]);
    let (w, v) = (b.param("w", &[8, 4]), b.param("v", &[4, 8]));
    let xw = b.op("matmul", &[x, w], &[]);
    let y = b.op("matmul", &[xw, v], &[]);
    b.graph.output("y", y).unwrap();
    // The flops are equal: 64·4·8·2·2, and 64·8·8·2 with a product of constants. The second form has fewer elements.
    let done = run(&b.graph);
    let rule = done.statistics.iter().find(|s| &*s.name == "algebra/matmul-associate").unwrap();
    assert_eq!((rule.matches, rule.changes), (1, 1));
}

#[test]
fn a_program_without_a_legal_form_is_refused() {
    let mut b = Build::new();
    let (x, y) = (b.input("x", &[3, 8]), b.input("y", &[8]));
    let z = b.op("pow", &[x, y], &[]);
    b.graph.output("z", z).unwrap();
    let error = optimize(&b.graph, &rules(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("pow(f32[3 8], f32[8])"), "{error}");
}

#[test]
fn the_order_of_rule_files_does_not_matter() {
    let mut b = Build::new();
    let x = b.input("x", &[2, 5, 16]);
    for (name, n) in [("q", 8), ("k", 4), ("v", 4)] {
        let y = b.linear(x, name, 16, n);
        let z = b.op("add", &[y, y], &[]);
        b.graph.output(name, z).unwrap();
    }
    let mut rules: Vec<&str> = include_str!("rules/basic.rules").split("\n\n").collect();
    let mut shown = Vec::new();
    for _ in 0..2 {
        let sources: Vec<_> = rules.iter().map(|r| Source::new("part.rules", *r)).collect();
        let done = optimize(&b.graph, &RuleSet::read(&sources).unwrap(), &Options::default()).unwrap();
        shown.push(format!("{:?}", done.classes));
        rules.reverse();
    }
    assert_eq!(shown[0], shown[1]);
}

#[test]
fn a_rule_from_a_directory_fires() {
    let directory = std::env::temp_dir().join(format!("eutectic-rules-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let text = ";; max(x, 0)\n(rule mine/relu (forall (F float) (?x F[A..])) (=> (max ?x 0.0) (act ?x :kind relu)) (eq exact))";
    std::fs::write(directory.join("mine.rules"), text).unwrap();
    let loaded = RuleSet::load(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    let all = rules().and(loaded.unwrap()).unwrap();
    let mut b = Build::new();
    let x = b.input("x", &[4]);
    let zero = b.number(0.0);
    let y = b.op("max", &[zero, x], &[]);
    b.graph.output("y", y).unwrap();
    let done = optimize(&b.graph, &all, &Options::default()).unwrap();
    assert!(ops(&done.classes, done.classes.outputs[0]).contains(&"act"));
}

#[test]
fn a_match_that_breaks_types_is_refused_with_the_reason() {
    // The rule is correct for the extents of samples, but wrong for larger extents.
    let text = ";; not so\n(rule mine/cut (forall (F float) (?x F[B.. D]))\n\
                (=> (neg (neg ?x)) (slice ?x :axis -1 :at 0 :len (min D 40))) (eq exact))";
    let rules = RuleSet::read(&[Source::new("mine.rules", text)]).unwrap();
    let mut b = Build::new();
    let x = b.input("x", &[3, 64]);
    let y = b.op("neg", &[x], &[]);
    let y = b.op("neg", &[y], &[]);
    b.graph.output("y", y).unwrap();
    let done = optimize(&b.graph, &rules, &Options::default()).unwrap();
    assert!(ops(&done.classes, done.classes.outputs[0]) == ["neg"]);
    let cut = done.statistics.iter().find(|one| &*one.name == "mine/cut").unwrap();
    let refusal = cut.refusal.as_deref().unwrap_or_default();
    assert!(cut.refused == 1 && refusal.contains("f32[3 64]") && refusal.contains("f32[3 40]"), "{refusal}");
}

#[test]
fn limits_stop_a_run_and_say_so() {
    let mut b = Build::new();
    let x = b.input("x", &[2, 7, 16]);
    let y = b.linear(x, "up", 16, 24);
    b.graph.output("y", y).unwrap();
    let limits = eutectic_rewrites::EngineLimits { iterations: 1, ..Default::default() };
    let done = optimize(&b.graph, &rules(), &Options { limits, ..Options::default() }).unwrap();
    assert!(done.phases.iter().any(|p| p.stop == Stop::Iterations));
}

#[test]
fn a_number_that_the_type_does_not_hold_is_not_made() {
    let forms = |dtype, factor| {
        let mut graph = Graph::new("(x·c)·c");
        let x = graph.input("x", Type::tensor(dtype, &[2])).unwrap();
        let c = graph.constant(Tensor::from_f64(dtype, &[], [factor])).unwrap();
        let y = graph.apply("mul", &[x, c], &[]).unwrap();
        let y = graph.apply("mul", &[y, c], &[]).unwrap();
        graph.output("y", y).unwrap();
        let done =
            optimize(&graph, &RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap(), &Options::default())
                .unwrap();
        ops(&done.classes, done.classes.outputs[0])
    };
    assert_eq!(forms(DType::F32, 1e4), ["mul", "mul"]);
    // 10⁸ is ∞ in f16, and 0·∞ is NaN.
    assert_eq!(forms(DType::F16, 1e4), ["mul"]);
    // 10⁻⁶⁰ is 0 in f32, but the product of x = 10³⁰ with both factors is not.
    assert_eq!(forms(DType::F32, 1e-30), ["mul"]);
}

#[test]
fn numbers_of_exact_rules_are_matched_to_the_bit() {
    let product = |factor| {
        let mut graph = Graph::new("x·c");
        let x = graph.input("x", Type::tensor(DType::Bf16, &[2])).unwrap();
        let c = graph.constant(Tensor::from_f64(DType::Bf16, &[], [factor])).unwrap();
        let y = graph.apply("mul", &[x, c], &[]).unwrap();
        graph.output("y", y).unwrap();
        let done =
            optimize(&graph, &RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap(), &Options::default())
                .unwrap();
        ops(&done.classes, done.classes.outputs[0])
    };
    assert!(product(1.0).contains(&"input"));
    // This is the next bf16 number after 1.
    assert!(product(1.0078125).iter().all(|op| *op == "mul"));
}

#[test]
fn scales_that_almost_cancel_come_to_rest() {
    // These are the factors of Gemma's models. c² / 128 is 1 in one order of rounding, and differs from 1 in another.
    for (columns, scale) in [(128, 11.313708), (640, 25.298221), (1152, 33.941125)] {
        let mut b = Build::new();
        let x = b.input("x", &[4, columns]);
        let c = b.number(scale);
        let y = b.op("mul", &[x, c], &[]);
        let two = b.number(2.0);
        let square = b.op("pow", &[y, two], &[]);
        let mean = b.op("reduce-mean", &[square], &[("axes", [-1][..].into()), ("keep", true.into())]);
        let eps = b.number(1e-6);
        let sum = b.op("add", &[mean, eps], &[]);
        let root = b.op("sqrt", &[sum], &[]);
        let inverse = b.op("reciprocal", &[root], &[]);
        let z = b.op("mul", &[y, inverse], &[]);
        b.graph.output("z", z).unwrap();
        let done =
            optimize(&b.graph, &RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap(), &Options::default())
                .unwrap();
        assert!(done.phases.iter().all(|p| p.stop == Stop::Saturated), "{columns}: {:?}", done.phases);
        let matches: usize = done.phases.iter().map(|p| p.matches).sum();
        assert!(matches < 1000, "{columns}: {matches}");
    }
}

/// Positions are clamped, shifted if they are negative, and read for each head. Without normal forms, each op has a
/// form for each order and each shape of its operands, and an op on two such results has a form for each pair.
#[test]
fn forms_of_operands_do_not_multiply() {
    let text = "(graph \"positions\"
        (input u i64[64 64])
        (let v (reshape u :shape [1 64 64]))
        (let w (reshape v :shape [1 1 64 64]))
        (const none i64[] { 0 })
        (const half i64[] { 128 })
        (const most i64[] { 255 })
        (let clamped (min (max (add w half) none) most))
        (let x (expand clamped :shape [1 4 64 64]))
        (output y (where (lt x none) (add x half) x)))";
    let graph = text::parse(&Source::new("positions", text)).unwrap();
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    let done = optimize(&graph, &rules, &Options::default()).unwrap();
    assert!(done.phases.iter().all(|p| p.stop == Stop::Saturated && p.nodes < 100), "{:?}", done.phases);
}

/// Compares the forms of floor((x·a)·b), of exp((x·a)·b), and of a program with both.
#[test]
fn observed_values_keep_their_rounding() {
    let product = |graph: &mut Graph, x, of: &str| {
        let numbers = [0.3, 0.7].map(|n| graph.constant(Tensor::from_f64(DType::F32, &[], [n])).unwrap());
        let y = numbers.iter().fold(x, |y, c| graph.apply("mul", &[y, *c], &[]).unwrap());
        let z = graph.apply(of, &[y], &[]).unwrap();
        graph.output(of, z).unwrap();
        y
    };
    let forms = |ops_of: &[&str]| {
        let mut graph = Graph::new("(x·a)·b");
        let x = graph.input("x", Type::tensor(DType::F32, &[2])).unwrap();
        let y = ops_of.iter().map(|of| product(&mut graph, x, of)).last().unwrap();
        let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
        let done = optimize(&graph, &rules, &Options::default()).unwrap();
        let class = &done.classes.classes[done.class(y).unwrap()];
        (class.nodes.len(), class.observer.map(|op| op.name()))
    };
    assert_eq!(forms(&["exp"]), (2, None));
    assert_eq!(forms(&["floor"]), (1, Some("floor")));
    // `floor` and `exp` read the same value.
    assert_eq!(forms(&["floor", "exp"]), (1, Some("floor")));
}

/// (x·1·a)·b and (x·a)·b become equal by the exact rule x·1 = x. `floor` observes the rounding of the first product
/// only. The forms that other rules find for the second product must not be added to the class of the first.
#[test]
fn values_that_turn_out_to_be_equal_stay_two_where_one_is_observed() {
    let mut graph = Graph::new("two quotients");
    let x = graph.input("x", Type::tensor(DType::F32, &[2])).unwrap();
    let [one, a, b] = [1.0, 0.3, 0.7].map(|n| graph.constant(Tensor::from_f64(DType::F32, &[], [n])).unwrap());
    let same = graph.apply("mul", &[x, one], &[]).unwrap();
    let [seen, free] = [same, x].map(|x| {
        let y = graph.apply("mul", &[x, a], &[]).unwrap();
        graph.apply("mul", &[y, b], &[]).unwrap()
    });
    let y = graph.apply("floor", &[seen], &[]).unwrap();
    graph.output("y", y).unwrap();
    graph.output("z", free).unwrap();
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    let done = optimize(&graph, &rules, &Options::default()).unwrap();
    let forms = |node| done.classes.classes[done.class(node).unwrap()].nodes.len();
    assert_eq!((forms(seen), forms(free)), (1, 2));
}

/// The rule for broadcasts makes a comparison of expanded values. The new values are observed too.
#[test]
fn what_a_rule_makes_for_a_comparison_is_observed() {
    for of in ["ge", "lt", "eq", "mod"] {
        let mut graph = Graph::new("a product and a row");
        let x = graph.input("x", Type::tensor(DType::F32, &[4])).unwrap();
        let row = graph.input("row", Type::tensor(DType::F32, &[1])).unwrap();
        let numbers = [0.1, 7.0].map(|n| graph.constant(Tensor::from_f64(DType::F32, &[], [n])).unwrap());
        let y = numbers.iter().fold(x, |y, c| graph.apply("mul", &[y, *c], &[]).unwrap());
        let z = graph.apply(of, &[y, row], &[]).unwrap();
        graph.output("z", z).unwrap();
        let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
        let done = optimize(&graph, &rules, &Options::default()).unwrap();
        let products = done.classes.classes.iter().filter(|class| class.nodes.iter().any(|n| n.op.name() == "mul"));
        let free = products.filter(|class| class.observer.is_none()).count();
        assert_eq!(free, 0, "`{of}` reads these products, but rules treat them as unobserved");
    }
}

/// Rules replace `scatter-sum`, `scatter-prod` and means by pointwise ops. If an op observes the result of the replaced
/// op, it observes the results of the pointwise ops too.
#[test]
fn ops_that_replace_an_observed_sum_are_observed() {
    for of in ["scatter-sum", "scatter-prod"] {
        let mut graph = Graph::new("a sum by index");
        let x = graph.input("x", Type::tensor(DType::F16, &[1, 3, 1])).unwrap();
        let at = graph.input("at", Type::tensor(DType::I64, &[1, 1, 1])).unwrap();
        let part = graph.input("part", Type::tensor(DType::F16, &[1, 1, 1])).unwrap();
        let y = graph.apply(of, &[x, part, at], &[]).unwrap();
        let z = graph.apply("floor", &[y], &[]).unwrap();
        graph.output("z", z).unwrap();
        let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
        let done = optimize(&graph, &rules, &Options::default()).unwrap();
        let class = &done.classes.classes[done.class(y).unwrap()];
        assert!(class.nodes.len() > 1, "no rule applies to `{of}`");
        assert_eq!(class.observer.map(|op| op.name()), Some("floor"), "{of}");
    }
}
