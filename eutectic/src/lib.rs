//! Eutectic makes tensor programs fast by declarative graph rewriting. Other programs embed this crate.
//!
//! # A graph
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
//!
//! # An ONNX file
//!
//! Requires the feature `onnx`. Open dimensions of the file get a number. The weights of the file become parameters.
//!
#![cfg_attr(feature = "onnx", doc = "```")]
#![cfg_attr(not(feature = "onnx"), doc = "```ignore")]
//! use eutectic::{Compiler, Cpu, ModelFile, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx/mlp-new.onnx");
//! let mut model = ModelFile::new(path).dim("batch", 2).open(&Compiler::new(Cpu::default())?)?;
//! let x = model.inputs()[0].0.clone();
//! let y = model.run(&[(&x, Tensor::from_f32(&[2, 12], &[1.0; 24])?)])?;
//! assert_eq!(y[0].dims(), [2, 5]);
//! # Ok(())
//! # }
//! ```
//!
//! # A text model
//!
//! Requires the feature `text`. A folder of Hugging Face contains `config.json`, `model.safetensors` and
//! `tokenizer.json`:
//!
#![cfg_attr(feature = "text", doc = "```")]
#![cfg_attr(not(feature = "text"), doc = "```ignore")]
//! use eutectic::{Compiler, Cpu, TextEncoder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/tiny-bert");
//! let mut encoder = TextEncoder::open(folder, Compiler::new(Cpu::default())?)?;
//! let embeddings = encoder.encode(&["A cat sat on the mat.", "Felines rest on rugs."])?;
//! let cosine: f32 = embeddings[0].iter().zip(&embeddings[1]).map(|(a, b)| a * b).sum();
//! assert!(cosine <= 1.0 + 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! # A language model
//!
//! Requires the feature `text`. A GGUF file contains the model, its vocabulary and its chat template:
//!
#![cfg_attr(feature = "text", doc = "```")]
#![cfg_attr(not(feature = "text"), doc = "```ignore")]
//! use std::ops::ControlFlow;
//!
//! use eutectic::{
//!     Compiler, Cpu, GenerateOptions, Generator,
//!     engine::models::{language::LanguageModel, sampling::Sampling},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/gguf/llama.gguf");
//! let mut generator = Generator::new(LanguageModel::open(path)?, &Compiler::new(Cpu::default())?, 64)?;
//! let prompt = generator.model().prompt("The cat and the hat")?;
//! let options = GenerateOptions { max_tokens: 8, sampling: Sampling::default() };
//! let generated = generator.generate(&prompt, &options, |piece| {
//!     print!("{piece}");
//!     ControlFlow::Continue(())
//! })?;
//! assert!(generated.tokens.len() <= 8);
//! # Ok(())
//! # }
//! ```
//!
//! # Arrays of `ndarray`
//!
//! With the feature `ndarray`. A view of a tensor has no copy, and neither has a tensor that is made of a row-major array:
//!
#![cfg_attr(feature = "ndarray", doc = "```")]
#![cfg_attr(not(feature = "ndarray"), doc = "```ignore")]
//! use eutectic::{Compiler, Cpu, DType, Graph, Tensor, Type};
//! use ndarray::array;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut graph = Graph::new("twice");
//! let x = graph.input("x", Type::tensor(DType::F32, &[2, 2]))?;
//! let y = graph.apply("add", &[x, x], &[])?;
//! graph.output("y", y)?;
//!
//! let mut session = Compiler::new(Cpu::default())?.compile(&graph)?;
//! let y = session.run(&[Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]])])?;
//! assert_eq!(y[0].view::<f32>()?, array![[2.0, 4.0], [6.0, 8.0]].into_dyn());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All features are off by default. Graphs, rules, plans and the CPU backend need none.
//!
//! | feature | adds |
//! |---|---|
//! | `models` | weights from files (safetensors, checkpoints of torch), and builders of models |
//! | `onnx` | the reader of ONNX files |
//! | `text` | tokens, text models from a folder, and language models from a GGUF file |
//! | `vision` | the reader of images (PNG, JPEG) for models that take them |
//! | `cuda`, `vulkan` | backends for GPUs |
//! | `full` | all of these |
//! | `ndarray` | [`Tensor`]s as arrays of the crate `ndarray`, and back; not in `full` |

mod backends;
mod calibrate;
mod compile;
mod error;
mod extents;
mod extract;
mod force;
#[cfg(feature = "text")]
mod generate;
mod loaded;
#[cfg(feature = "onnx")]
mod model;
pub mod noise;
mod open;
mod ports;
mod replan;
pub mod report;
mod session;
#[cfg(feature = "text")]
mod text;
mod units;
pub mod verify;

pub use backends::{BACKENDS, Listed};
pub use calibrate::{Calibration, calibrate};
pub use compile::{Compiler, Options, Planned, StageTimes, packs, rules_of};
pub use error::Error;
pub use eutectic_backend::{Backend, DeviceBuffer, Memory, Port, Program, Setup};
pub use eutectic_cpu::{Cpu, CpuOptions};
#[cfg(feature = "ndarray")]
pub use eutectic_ir::NoView;
pub use eutectic_ir::{DType, Dim, Graph, NodeId, Shape, Tensor, TensorElement, Type};
pub use eutectic_lowering::{SearchOptions, Strategy};
pub use eutectic_rewrites::{RuleSet, read_graph};
pub use force::{ForcedPlan, NotForced};
#[cfg(feature = "text")]
pub use generate::{GenerateOptions, Generated, Generator, Stop};
pub use loaded::Loaded;
#[cfg(feature = "onnx")]
pub use model::{Model, ModelError, ModelFile, open};
pub use open::tuned_costs;
pub use session::Session;
#[cfg(feature = "text")]
pub use text::TextEncoder;

/// The crates of the engine, for features that this crate does not expose.
pub mod engine {
    pub use eutectic_backend as backend;
    pub use eutectic_cpu as cpu;
    pub use eutectic_ir as ir;
    pub use eutectic_lowering as lowering;
    #[cfg(feature = "models")]
    pub use eutectic_models as models;
    pub use eutectic_rewrites as rewrites;
}
