//! Eutectic makes tensor programs fast by declarative graph rewriting. This crate is what other programs embed.
//!
//! Build or load a graph, compile it for a backend, run it:
//!
//! ```
//! use eutectic::{Compiler, Cpu, DType, Graph, Tensor, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut graph = Graph::new("gelu(x·w + b)");
//! let x = graph.input("x", Type::tensor(DType::F32, &[2, 3]))?;
//! let w = graph.param("w", Type::tensor(DType::F32, &[3, 4]))?;
//! let b = graph.param("b", Type::tensor(DType::F32, &[4]))?;
//! let y = graph.apply("linear", &[x, w, b], &[("act", "gelu-erf".into())])?;
//! graph.output("y", y)?;
//!
//! let mut session = Compiler::new(Cpu::default())?.compile(&graph)?;
//! session.load(&[Tensor::from_f32(&[3, 4], &[0.5; 12])?, Tensor::from_f32(&[4], &[0.0; 4])?])?;
//! let y = session.run(&[Tensor::from_f32(&[2, 3], &[1.0; 6])?])?;
//! assert!((y[0].to_f64()[0] - 1.399789).abs() < 1e-5); // gelu(1.5)
//! # Ok(())
//! # }
//! ```

mod backends;
mod compile;
mod error;
mod extents;
mod extract;
mod loaded;
mod ports;
mod round;
mod session;
mod text;
mod units;

pub use backends::{BACKENDS, Listed};
pub use compile::{Compiler, Options, Planned, StageTimes, packs, rules_of};
pub use error::Error;
pub use eutectic_backend::{Backend, DeviceBuffer, Memory, Port, Program, Setup};
pub use eutectic_cpu::{Cpu, CpuOptions};
pub use eutectic_ir::{DType, Dim, Graph, NodeId, Shape, Tensor, Type};
pub use eutectic_lowering::{SearchOptions, Strategy};
pub use eutectic_rewrites::RuleSet;
pub use loaded::Loaded;
pub use session::Session;
pub use text::TextEncoder;

/// The crates behind this one, for what the facade does not show.
pub mod engine {
    pub use eutectic_backend as backend;
    pub use eutectic_cpu as cpu;
    pub use eutectic_ir as ir;
    pub use eutectic_lowering as lowering;
    pub use eutectic_models as models;
    pub use eutectic_rewrites as rewrites;
}
