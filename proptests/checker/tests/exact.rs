//! `--fp exact` forbids changes of roundings, not ops: a program that has a plan with rules that round also has a plan
//! without them.

use eutectic::{Compiler, Cpu, CpuOptions, DType, Graph, RuleSet};
use eutectic_ir::{Attr, Class, Op, Type};
use eutectic_rewrites::{Choice, Fp};

/// Returns a graph that applies the op to inputs. All floating inputs have the type `dtype`.
fn alone(op: Op, dtype: DType) -> Option<Graph> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..400).find_map(|_| {
        let (attrs, types) = op.sample(&mut |n| random.usize(..n))?;
        let fits = |ty: &Type| ty.dtype().is_none_or(|d| !d.is_float() || d == dtype) && ty.count() > 0;
        if !types.iter().all(fits) {
            return None;
        }
        let mut graph = Graph::new(op.name());
        let operands: Vec<_> = types
            .iter()
            .enumerate()
            .map(|(at, ty)| graph.input(&format!("x{at}"), ty.clone()))
            .collect::<Result<_, _>>()
            .ok()?;
        let named: Vec<(&str, Attr)> = op.def().attrs.iter().map(|a| a.name).zip(attrs).collect();
        let result = graph.apply(op.name(), &operands, &named).ok()?;
        match graph.ty(result).clone() {
            Type::Tensor(..) => graph.output("y", result).ok()?,
            Type::Tuple(parts) => {
                for at in 0..parts.len() {
                    let part = graph.get(result, at as i64).ok()?;
                    graph.output(&format!("y{at}"), part).ok()?;
                }
            }
        }
        Some(graph)
    })
}

#[test]
fn every_op_that_compiles_with_rounding_rules_compiles_with_exact_rules() {
    let compiler = |fp| {
        let rules = RuleSet::embedded().unwrap().choose(&Choice { fp, ..Choice::default() }).unwrap();
        let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        Compiler::new(cpu).unwrap().with_rules(rules)
    };
    let (exact, reassoc) = (compiler(Fp::Exact), compiler(Fp::Reassoc));
    let mut compiled = 0;
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for op in Op::all().filter(|op| !matches!(op.def().class, Class::Leaf(_) | Class::Project | Class::Loop)) {
            let Some(graph) = alone(op, dtype) else { continue };
            if reassoc.plan(&graph).is_ok() {
                compiled += 1;
                let plan = exact.plan(&graph);
                assert!(plan.is_ok(), "{op} of {dtype}: {}", plan.err().map(|e| e.to_string()).unwrap_or_default());
            }
        }
    }
    assert!(compiled > 120, "{compiled}");
}
