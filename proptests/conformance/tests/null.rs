//! Tests a backend that counts steps and computes nothing. It implements only the methods that planning and compiling
//! need.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eutectic::{Backend, Compiler, DType, Graph, Program, Tensor, Type};
use eutectic_backend::{BackendError, Cost, Executable, Kernel, Loaded};

/// A backend that counts the steps of the programs that it compiles.
#[derive(Default)]
struct Null {
    steps: Arc<AtomicUsize>,
}

/// The executable of a program.
struct Nothing;

impl Backend for Null {
    fn name(&self) -> &str {
        "null"
    }

    fn describe(&self) -> String {
        "computes nothing".into()
    }

    fn supports(&self, _: &Kernel) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn cost(&self, _: &Kernel) -> Cost {
        Cost { seconds: 1.0, ..Cost::default() }
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        self.steps.fetch_add(program.run.len(), Ordering::Relaxed);
        Ok(Arc::new(Nothing))
    }
}

impl Executable for Nothing {
    fn load(self: Arc<Self>, _: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError> {
        Err(BackendError::Device("the null backend computes nothing".into()))
    }
}

#[test]
fn kernels_are_counted() {
    let mut graph = Graph::new("two products");
    let x = graph.input("x", Type::tensor(DType::F32, &[4, 4])).unwrap();
    let y = graph.apply("exp", &[x], &[]).unwrap();
    let y = graph.apply("matmul", &[y, x], &[]).unwrap();
    let y = graph.apply("matmul", &[y, x], &[]).unwrap();
    graph.output("y", y).unwrap();
    let null = Null::default();
    let steps = null.steps.clone();
    let mut session = Compiler::new(null).unwrap().compile(&graph).unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 2);
    let error = session.load(&[]).unwrap_err().to_string();
    assert_eq!(error, "the null backend computes nothing");
}
