//! Loops that end by a condition, compiled and run, compared with manual iteration. One backend skips the remaining
//! iterations, the other one does not.

use std::sync::Arc;

use eutectic::{Compiler, Cpu, CpuOptions, Graph, Tensor};
use eutectic_backend::{Backend, BackendError, Cost, Executable, Kernel, Limits, Program};
use eutectic_ir::{Attr, DType, NodeId, Type, graph::SubGraph, interpret};

const F: DType = DType::F32;

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })
}

/// The CPU backend with a change: it runs all iterations.
struct Stubborn(Cpu);

impl Backend for Stubborn {
    fn name(&self) -> &str {
        "stubborn"
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        self.0.supports(kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        self.0.cost(kernel)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        assert!(program.problems().is_empty(), "{:?}", program.problems());
        self.0.compile(&Program { exits: Vec::new(), ..program.clone() })
    }
}

fn of(g: &mut Graph, op: &str, operands: &[NodeId]) -> NodeId {
    g.apply(op, operands, &[]).unwrap()
}

/// Returns the body v' = 2·v + table[n], n' = n + 1, which continues while the maximum of v' is below a limit.
fn body(width: usize, table: usize) -> Graph {
    let mut g = Graph::new("step");
    let going = g.input("going", Type::tensor(DType::Bool, &[])).unwrap();
    let n = g.input("n", Type::tensor(DType::I64, &[])).unwrap();
    let v = g.input("v", Type::tensor(F, &[width])).unwrap();
    let limit = g.input("limit", Type::tensor(F, &[])).unwrap();
    let rows = g.input("table", Type::tensor(F, &[table])).unwrap();
    let row = g.apply("gather", &[rows, n], &[("axis", 0.into())]).unwrap();
    let double = of(&mut g, "add", &[v, v]);
    let next = of(&mut g, "add", &[double, row]);
    let one = g.constant(Tensor::from_i64(DType::I64, &[], [1])).unwrap();
    let count = of(&mut g, "add", &[n, one]);
    let largest = g.apply("reduce-max", &[next], &[("axes", [0_i64][..].into()), ("keep", false.into())]).unwrap();
    let below = of(&mut g, "lt", &[largest, limit]);
    let on = of(&mut g, "and", &[going, below]);
    for (name, value) in [("on", on), ("count", count), ("next", next)] {
        g.output(name, value).unwrap();
    }
    g
}

fn looped(width: usize, table: usize, times: usize) -> Graph {
    let mut g = Graph::new(format!("at most {times} times {width}"));
    let going = g.input("going", Type::tensor(DType::Bool, &[])).unwrap();
    let v = g.input("v", Type::tensor(F, &[width])).unwrap();
    let limit = g.input("limit", Type::tensor(F, &[])).unwrap();
    let rows = g.input("table", Type::tensor(F, &[table])).unwrap();
    let zero = g.constant(Tensor::from_i64(DType::I64, &[], [0])).unwrap();
    let attrs = [
        ("body", Attr::Graph(SubGraph::from(body(width, table)))),
        ("times", (times as i64).into()),
        ("carried", 3.into()),
        ("while", 0.into()),
    ];
    let all = g.apply("loop", &[going, zero, v, limit, rows], &attrs).unwrap();
    for (at, name) in ["going", "count", "v"].into_iter().enumerate() {
        let value = g.get(all, at as i64).unwrap();
        g.output(name, value).unwrap();
    }
    // An op after the loop.
    let last = g.get(all, 2).unwrap();
    let twice = of(&mut g, "add", &[last, last]);
    g.output("twice", twice).unwrap();
    g
}

#[test]
fn a_condition_ends_a_loop() {
    let compilers = [Compiler::new(cpu()).unwrap(), Compiler::new(Stubborn(cpu())).unwrap()];
    for (width, table, times) in [(1, 1, 1), (3, 5, 40), (17, 9, 9), (2, 4, 0)] {
        let graph = looped(width, table, times);
        assert!(graph.verify().is_ok());
        let mut sessions: Vec<_> = compilers.iter().map(|compiler| compiler.compile(&graph).unwrap()).collect();
        sessions.iter_mut().for_each(|session| session.load(&[]).unwrap());
        let rows: Vec<f64> = (0..table).map(|i| (i % 3) as f64 - 1.0).collect();
        // Each iteration that runs reads a row of the table. Skipped iterations must not read beyond the table.
        for (going, limit) in [(true, 6.0), (false, 6.0), (true, 0.5), (true, 1e3), (true, f64::NAN), (true, 6.0)] {
            let start: Vec<f64> = (0..width).map(|i| 1.0 - (i % 4) as f64 * 0.25).collect();
            let (mut v, mut n, mut on) = (start.clone(), 0, going);
            while on && n < times {
                if n == table {
                    break;
                }
                v.iter_mut().for_each(|x| *x = 2.0 * *x + rows[n]);
                n += 1;
                on = v.iter().copied().fold(f64::NEG_INFINITY, f64::max) < limit;
            }
            if on && n < times {
                // This case would read beyond the table.
                continue;
            }
            let given = |name: &str| {
                Some(match name {
                    "going" => Tensor::from_i64(DType::Bool, &[], [i64::from(going)]),
                    "v" => Tensor::from_f64(F, &[width], start.iter().copied()),
                    "limit" => Tensor::from_f64(F, &[], [limit]),
                    _ => Tensor::from_f64(F, &[table], rows.iter().copied()),
                })
            };
            let twice: Vec<f64> = v.iter().map(|x| 2.0 * x).collect();
            let check = |results: Vec<Tensor>, who: &str| {
                let at = format!("{who}: {}, {limit}", graph.name);
                assert_eq!((results[0].to_i64(), results[1].to_i64()), (vec![i64::from(on)], vec![n as i64]), "{at}");
                assert_eq!((results[2].to_f64(), results[3].to_f64()), (v.clone(), twice.clone()), "{at}");
            };
            check(interpret::<f64>(&graph, &given).unwrap().iter().map(|x| x.to_tensor()).collect(), "interpreter");
            for (session, who) in sessions.iter_mut().zip(["with exits", "without"]) {
                check(session.run_named(given).unwrap(), who);
            }
        }
    }
}

#[test]
fn steps_behind_the_end_are_passed_over() {
    let (graph, compiler) = (looped(4, 3, 5000), Compiler::new(cpu()).unwrap());
    let program = compiler.plan(&graph).unwrap().lowered.program;
    assert!(program.problems().is_empty(), "{:?}", program.problems());
    assert_eq!(program.exits.len(), 5000);
    assert!(program.exits.iter().all(|exit| exit.to == program.exits[0].to && exit.before < exit.to));
}

#[test]
fn conditions_that_are_none_are_refused() {
    let refused = |condition: i64, more: bool| {
        let mut body = body(2, 2);
        if more {
            let v = body.outputs()[2].1;
            body.output("collected", v).unwrap();
        }
        let mut g = Graph::new("wrong");
        let types: Vec<Type> = body.named("input").map(|(_, id)| body.ty(id).clone()).collect();
        let given: Vec<NodeId> =
            types.into_iter().enumerate().map(|(at, ty)| g.input(&format!("x{at}"), ty).unwrap()).collect();
        let attrs = [
            ("body", Attr::Graph(SubGraph::from(body))),
            ("times", 3.into()),
            ("carried", 3.into()),
            ("while", condition.into()),
        ];
        g.apply("loop", &given, &attrs).unwrap_err().to_string()
    };
    assert!(refused(2, false).contains("`while` is 2, but `"), "{}", refused(2, false));
    assert!(refused(4, false).contains("no carried truth value"), "{}", refused(4, false));
    assert!(refused(-2, false).contains("the index of a carried value"), "{}", refused(-2, false));
    assert!(refused(0, true).contains("an output of each iteration"), "{}", refused(0, true));
}
