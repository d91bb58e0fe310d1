//! Tests that rules of a backend replace a feature that the backend lacks.

use std::sync::Arc;

use eutectic::{Backend, Compiler, DType, Graph, Program, RuleSet, Tensor, Type};
use eutectic_backend::{BackendError, Body, Cost, Executable, Instr, Kernel};
use eutectic_conformance::naive::Naive;
use eutectic_rewrites::Choice;

/// A device without 64-bit integers. If a program converts a loaded 64-bit integer to `i32`, the device reads its low
/// half.
struct Narrow;

/// Returns whether a body computes with 64-bit integers, other than to convert loaded values.
fn is_wide(body: &Body) -> bool {
    let converted = |value: usize| {
        let users = body.instrs.iter().filter(|instr| instr.args().contains(&value));
        let to_i32 = |instr: &Instr| matches!(instr, Instr::Map { op, dtype: DType::I32, .. } if op.name() == "cast");
        users.into_iter().all(to_i32) && !body.results.contains(&value)
    };
    let wide = |(value, instr): (usize, &Instr)| {
        instr.dtype() == DType::I64 && !(matches!(instr, Instr::Load(_)) && converted(value))
    };
    body.instrs.iter().enumerate().any(wide)
}

impl Backend for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    fn describe(&self) -> String {
        "point by point, without 64-bit integers".into()
    }

    fn rules(&self) -> &[(&str, &str)] {
        &[("ids.rules", include_str!("narrow/ids.rules"))]
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        let stored = kernel.stores.iter().any(|store| kernel.slots[store.slot].0 == DType::I64);
        match stored || kernel.bodies().into_iter().any(is_wide) {
            true => Err(vec!["it has no 64-bit integers".into()]),
            false => Ok(()),
        }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if self.supports(kernel).is_ok() { Naive.cost(kernel) } else { Cost::IMPOSSIBLE }
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Naive.compile(program)
    }
}

fn lookup() -> Graph {
    let mut graph = Graph::new("lookup");
    let ids = graph.input("ids", Type::tensor(DType::I64, &[2, 3])).unwrap();
    let table = graph.param("table", Type::tensor(DType::F32, &[5, 2])).unwrap();
    let rows = graph.gather(table, ids, 0).unwrap();
    let y = graph.neg(rows).unwrap();
    graph.output("y", y).unwrap();
    graph
}

#[test]
fn a_backend_without_64_bit_integers_looks_rows_up_by_32_bit_ids() {
    let compiler = Compiler::new(Narrow).unwrap();
    let rule = compiler.rules().get("narrow/gather-ids").expect("the backend's rules are among the compiler's");
    assert_eq!(rule.place(), "narrow/rules/ids.rules:4");
    let mut session = compiler.compile(&lookup()).unwrap();
    session.load(&[Tensor::from_f64(DType::F32, &[5, 2], (0..10).map(f64::from))]).unwrap();
    let y = session.run(&[Tensor::from_i64(DType::I64, &[2, 3], [4, 0, 2, 2, 1, 3])]).unwrap();
    let rows = [4, 0, 2, 2, 1, 3].iter().flat_map(|row| [-2.0 * f64::from(*row), -2.0 * f64::from(*row) - 1.0]);
    assert_eq!(y[0].to_f64(), rows.collect::<Vec<_>>());
}

#[test]
fn without_its_rules_the_backend_refuses_64_bit_ids() {
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    let error = Compiler::from_backend(Narrow, rules).compile(&lookup()).err().expect("64-bit ids fail").to_string();
    assert!(error.contains("64-bit"), "{error}");
}
