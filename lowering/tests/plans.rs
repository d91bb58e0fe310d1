//! Tests plans of small graphs: fusion, agreement with brute force, and the refusal of invalid plans.

mod support;

use eutectic_backend::{AnchorKernel, Instr};
use eutectic_ir::{DType, Graph, Type, eclasses::EClasses};
use eutectic_lowering::{Plan, PlanError, SearchOptions, Space, Strategy, build, search};
use support::{Roofline, graphs::random_graph};

fn found(graph: &Graph, strategy: Strategy) -> (EClasses, eutectic_lowering::Searched) {
    let classes = EClasses::of(graph);
    let space = Space::new(&classes, &Roofline);
    let searched = search(&space, &SearchOptions { strategy, ..SearchOptions::default() }).unwrap();
    (classes, searched)
}

/// Returns the kernel of a plan with one kernel.
fn only_kernel(classes: &EClasses, searched: &eutectic_lowering::Searched) -> eutectic_backend::Kernel {
    let [(kernel, _)] = &searched.priced.kernels[..] else { panic!("{} kernels", searched.priced.kernels.len()) };
    let built = build::kernel(classes, &searched.plan, kernel, &build::Positions::default(), usize::MAX);
    built.expect("it was priced").kernel
}

/// Adds softmax(x) over the last axis, in primitives.
fn softmax(g: &mut Graph, dims: &[usize]) {
    let x = g.input("x", Type::tensor(DType::F32, dims)).unwrap();
    let wide = |g: &mut Graph, v| {
        let shape: eutectic_ir::Shape = dims.iter().copied().collect();
        g.apply("expand", &[v], &[("shape", shape.into())]).unwrap()
    };
    let axes: eutectic_ir::Attr = [-1_i64].as_slice().into();
    let max = g.apply("reduce-max", &[x], &[("axes", axes.clone())]).unwrap();
    let max = wide(g, max);
    let shifted = g.apply("sub", &[x, max], &[]).unwrap();
    let e = g.apply("exp", &[shifted], &[]).unwrap();
    let sum = g.apply("reduce-sum", &[e], &[("axes", axes)]).unwrap();
    let sum = wide(g, sum);
    let y = g.apply("div", &[e, sum], &[]).unwrap();
    g.output("y", y).unwrap();
}

#[test]
fn primitive_softmax_is_one_row_group() {
    for dims in [vec![8, 33], vec![33], vec![2, 3, 5, 1]] {
        let mut g = Graph::new("softmax");
        softmax(&mut g, &dims);
        let (classes, searched) = found(&g, Strategy::Local);
        let kernel = only_kernel(&classes, &searched);
        // A row of one element has no axis.
        let axes = usize::from(dims.last() != Some(&1));
        assert_eq!(kernel.anchor, AnchorKernel::rows(axes));
        assert_eq!(kernel.body.instrs.iter().filter(|i| i.row().is_some()).count(), 2);
        assert_eq!(kernel.body.instrs.iter().filter(|i| matches!(i, Instr::Load(_))).count(), 1);
    }
}

#[test]
fn unfused_has_a_kernel_for_each_op() {
    let mut g = Graph::new("softmax");
    softmax(&mut g, &[8, 33]);
    let (_, searched) = found(&g, Strategy::Unfused);
    assert_eq!(searched.priced.kernels.len(), g.len() - 1);
}

#[test]
fn bias_and_activation_are_an_epilogue_through_a_head_split() {
    // gelu(reshape(x·w) transposed to heads) + r, stored in the layout of the transposed result.
    let mut g = Graph::new("epilogue");
    let x = g.input("x", Type::tensor(DType::F32, &[128, 384])).unwrap();
    let w = g.param("w", Type::tensor(DType::F32, &[384, 96])).unwrap();
    let r = g.input("r", Type::tensor(DType::F32, &[3, 128, 32])).unwrap();
    let y = g.apply("matmul", &[x, w], &[]).unwrap();
    let split: eutectic_ir::Shape = [128_usize, 3, 32].into_iter().collect();
    let y = g.apply("reshape", &[y], &[("shape", split.into())]).unwrap();
    let y = g.apply("transpose", &[y], &[("perm", [1_i64, 0, 2].as_slice().into())]).unwrap();
    let y = g.apply("act", &[y], &[("kind", "gelu-erf".into())]).unwrap();
    let y = g.apply("add", &[y, r], &[]).unwrap();
    g.output("y", y).unwrap();
    let (classes, searched) = found(&g, Strategy::Local);
    let kernel = only_kernel(&classes, &searched);
    // y\[h, s, d\] is at offset h·128·32 + s·32 + d. Column h·32 + d of the product is two axes.
    assert_eq!(kernel.body.domain, [128, 3, 32]);
    assert_eq!(kernel.stores[0].at.affine(3), Some(vec![32, 128 * 32, 1]));
}

#[test]
fn two_products_are_two_kernels_and_one_hosts_the_sum() {
    let mut g = Graph::new("sum");
    let x = g.input("x", Type::tensor(DType::F32, &[64, 64])).unwrap();
    let w = g.param("w", Type::tensor(DType::F32, &[64, 64])).unwrap();
    let a = g.apply("matmul", &[x, w], &[]).unwrap();
    let b = g.apply("matmul", &[a, x], &[]).unwrap();
    let y = g.apply("add", &[a, b], &[]).unwrap();
    g.output("y", y).unwrap();
    let (_, searched) = found(&g, Strategy::Local);
    assert_eq!(searched.priced.kernels.len(), 2);
}

#[test]
fn a_sum_and_its_norm_are_one_kernel_with_two_stores() {
    let mut g = Graph::new("residual");
    let dims = [16, 64];
    let x = g.input("x", Type::tensor(DType::F32, &dims)).unwrap();
    let r = g.input("r", Type::tensor(DType::F32, &dims)).unwrap();
    let sum = g.apply("add", &[x, r], &[]).unwrap();
    let squares = g.apply("mul", &[sum, sum], &[]).unwrap();
    let total = g.apply("reduce-sum", &[squares], &[("axes", [-1_i64].as_slice().into())]).unwrap();
    let scale = g.apply("rsqrt", &[total], &[]).unwrap();
    let shape: eutectic_ir::Shape = dims.into_iter().collect();
    let scale = g.apply("expand", &[scale], &[("shape", shape.into())]).unwrap();
    let y = g.apply("mul", &[sum, scale], &[]).unwrap();
    g.output("sum", sum).unwrap();
    g.output("y", y).unwrap();
    let (_, searched) = found(&g, Strategy::Local);
    assert_eq!(searched.priced.kernels.len(), 1);
    assert_eq!(searched.priced.kernels[0].0.stores.len(), 2);
}

#[test]
fn invalid_plans_are_refused() {
    let mut g = Graph::new("invalid");
    let x = g.input("x", Type::tensor(DType::F32, &[4, 4])).unwrap();
    let a = g.apply("matmul", &[x, x], &[]).unwrap();
    let b = g.apply("exp", &[a], &[]).unwrap();
    let c = g.apply("neg", &[a], &[]).unwrap();
    g.output("b", b).unwrap();
    g.output("c", c).unwrap();
    let (classes, searched) = found(&g, Strategy::Local);
    let a = a.0 as usize;
    let mut plan = searched.plan.clone();
    plan.stored[a] = false;
    plan.host = (0..plan.host.len()).collect();
    assert_eq!(plan.kernels(&classes), Err(PlanError::SharedAnchor(a, 2)));
    let mut plan = searched.plan.clone();
    plan.stored[a] = true;
    plan.host[a] = x.0 as usize;
    assert!(matches!(plan.kernels(&classes), Err(PlanError::NoHost(..))));
    let mut looped = classes.clone();
    looped.classes[a].nodes[0].operands[0] = b.0 as usize;
    assert!(matches!(searched.plan.kernels(&looped), Err(PlanError::CyclicChoice(_) | PlanError::CyclicKernels(_))));
}

#[test]
fn local_search_is_within_two_percent_of_exact() {
    let mut worst: f64 = 1.0;
    for seed in 0..60 {
        let g = random_graph(seed, 7, &[16, 64, 200]);
        let (_, exact) = found(&g, Strategy::Exact);
        let (_, local) = found(&g, Strategy::Local);
        worst = worst.max(local.priced.seconds / exact.priced.seconds);
        assert!(local.priced.seconds <= exact.priced.seconds * 1.02, "seed {seed}: {:?}", g);
    }
    assert!(worst >= 1.0);
}

#[test]
fn exact_search_ends_when_its_budget_is_used_up() {
    let g = random_graph(0, 7, &[16, 64, 200]);
    let classes = EClasses::of(&g);
    let under = |exact_limit| {
        let options = SearchOptions { strategy: Strategy::Exact, exact_limit, ..SearchOptions::default() };
        search(&Space::new(&classes, &Roofline), &options).unwrap()
    };
    let (all, few) = (under(usize::MAX), under(20));
    assert!(!all.cut_short && few.cut_short && few.tried < all.tried, "{} {}", few.tried, all.tried);
    assert!(few.priced.seconds >= all.priced.seconds);
}

#[test]
fn exact_search_agrees_with_brute_force() {
    for seed in 0..40 {
        let g = random_graph(seed, 5, &[16, 64, 200]);
        let (classes, exact) = found(&g, Strategy::Exact);
        let brute = brute_force(&classes);
        assert!(
            (exact.priced.seconds - brute).abs() <= brute * 1e-9,
            "seed {seed}: {} and {brute}",
            exact.priced.seconds
        );
    }
}

#[test]
fn deep_graphs_have_plans_and_the_work_of_the_search_grows_linearly() {
    // Counted as a tree, x + sin x doubles with each step.
    let work = |steps: usize| {
        let mut g = Graph::new("deep");
        let mut x = g.input("x", Type::tensor(DType::F32, &[64, 64])).unwrap();
        for _ in 0..steps {
            let sin = g.apply("sin", &[x], &[]).unwrap();
            x = g.apply("add", &[x, sin], &[]).unwrap();
        }
        g.output("y", x).unwrap();
        found(&g, Strategy::Local).1.work as f64
    };
    let growth = work(2_000) / work(1_000);
    assert!(growth < 2.2, "{growth}");
}

/// Returns the price of the cheapest plan with the given choices (one e-node per class), over every stored set and
/// every host.
fn brute_force(classes: &EClasses) -> f64 {
    let space = Space::new(classes, &Roofline);
    let n = classes.classes.len();
    let free: Vec<usize> = (0..n).filter(|&c| !space.is_given(c)).collect();
    let mut best = f64::INFINITY;
    for stored_bits in 0..1_u32 << free.len() {
        let mut stored = vec![false; n];
        for (bit, &class) in free.iter().enumerate() {
            stored[class] = stored_bits >> bit & 1 == 1;
        }
        if classes.outputs.iter().any(|&o| !stored[o]) {
            continue;
        }
        let members: Vec<usize> = free.iter().copied().filter(|&c| stored[c]).collect();
        // Try every assignment of leaders to stored classes. The validity check refuses wrong ones.
        let mut host: Vec<usize> = (0..n).collect();
        let total = members.len().pow(members.len() as u32);
        for code in 0..total {
            let mut rest = code;
            for &class in &members {
                host[class] = members[rest % members.len()];
                rest /= members.len();
            }
            if members.iter().any(|&c| host[host[c]] != host[c]) {
                continue;
            }
            let plan = Plan { choice: vec![0; n], stored: stored.clone(), host: host.clone() };
            if let Ok(priced) = space.price(&plan) {
                best = best.min(priced.seconds);
            }
        }
    }
    best
}
