//! The interface between lowering and backends.
//!
//! A [`Kernel`] describes one launch: an anchor (such as a contraction), expressions over loads with index maps, and
//! stores. A [`Program`] has the kernels of a plan and the buffers between them. A [`Backend`] predicts the cost of
//! kernels and compiles programs. An [`Executable`] takes parameters, and any number of [`Session`]s run the resulting
//! [`Loaded`].
//!
//! ```text
//!                  cost, candidates
//! Kernel ──────────────────────────── Backend
//!   │                                    │ compile
//! Program { kernels, steps, buffers } ───┴── Executable ── load(params) ── Loaded ── session ── Session ── execute
//! ```
//!
//! [`anchors`] has the kinds of kernels, [`axes`] their normal form, and [`extents`] their meaning if extents are known
//! only at run time. The other modules are analyses for any backend: hidden scores of attention ([`intervals`],
//! [`scores`]), access patterns of index maps ([`reach`]), moved bytes ([`traffic`]), the order of computation
//! ([`order`], [`reductions`], [`unroll`]), elements that windows share ([`windows`]), accesses to slots ([`roles`]),
//! hazards between steps ([`hazards`]), and cost coefficients and their fits ([`costs`], [`fit`]).

pub mod anchors;
pub mod axes;
mod backend;
mod body;
mod check;
pub mod costs;
mod error;
pub mod extents;
pub mod fit;
pub mod grouped;
pub mod hazards;
pub mod intervals;
mod kernel;
mod limits;
pub mod order;
mod program;
pub mod reach;
pub mod reductions;
pub mod roles;
mod row_ops;
mod run;
pub mod scores;
mod setup;
pub mod traffic;
pub mod unroll;
pub mod windows;

pub use anchors::{
    AnchorCall, AnchorKernel, AnchorKind, Attention, AttentionAxes, Contraction, ContractionAxes, EmptyRow, ScoreForm,
};
pub use backend::{Backend, Candidate, Cost};
pub use body::{Body, Guard, Instr, Load, NO_CHECK, Slot, Store, ValueId};
pub use error::{BackendError, Refusal};
pub use kernel::Kernel;
pub use limits::{DTypes, Limits};
pub use program::{Buffer, BufferId, Exit, InPlace, Part, Place, Program, Step};
pub use row_ops::RowLimits;
pub use run::{DeviceBuffer, Executable, Input, Loaded, Memory, Output, Port, Session};
pub use setup::{CostFile, Setup, file_name};
