//! Compiles a graph once and runs it in two threads that share its weights: `cargo run -p eutectic --example embed`.

use std::{error::Error, thread};

use eutectic::{Compiler, Cpu, DType, Graph, Tensor, Type};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut graph = Graph::new("relu(x·w + b)");
    let x = graph.input("x", Type::tensor(DType::F32, &[1, 3]))?;
    let w = graph.param("w", Type::tensor(DType::F32, &[3, 4]))?;
    let b = graph.param("b", Type::tensor(DType::F32, &[4]))?;
    let y = graph.apply("linear", &[x, w, b], &[("act", "relu".into())])?;
    graph.output("y", y)?;

    let (planned, mut session) = Compiler::new(Cpu::default())?.compile_planned(&graph)?;
    println!("{} kernel", planned.lowered.program.kernels.len());

    let weights = [-3.0, 2.0, -1.0, 4.0, 1.0, -2.0, 3.0, 0.0, -3.0, 2.0, -1.0, 4.0];
    session.load(&[Tensor::from_f32(&[3, 4], &weights)?, Tensor::from_f32(&[4], &[-3.0, 2.0, -1.0, 4.0])?])?;

    // Weights are in memory once; each session has its own buffers.
    let loaded = session.loaded()?.clone();
    let run = |row: [f32; 3]| -> Result<Vec<f64>, Box<dyn Error + Send + Sync>> {
        let y = loaded.session()?.run(&[Tensor::from_f32(&[1, 3], &row)?])?;
        Ok(y[0].to_f64())
    };
    thread::scope(|scope| {
        let threads = [[-3.0, 2.0, -1.0], [4.0, 1.0, -2.0]].map(|row| scope.spawn(move || run(row)));
        for thread in threads {
            println!("y = {:?}", thread.join().expect("a run does not panic")?);
        }
        Ok(())
    })
}
