//! What lowering hands to a backend, and what a backend answers.
//!
//! A [`Kernel`] describes one launch: an anchor, expressions over loads with index maps, and stores. A [`Program`] is the
//! kernels of a plan with the buffers between them. A [`Backend`] says what a kernel costs and compiles programs; an
//! [`Executable`] takes parameters, and what is [`Loaded`] is run by any number of [`Session`]s. [`anchors`] has the kinds of kernels, [`axes`] their normal form, [`extents`] what they are at the lengths of a run.
//!
//! What any backend can find out about a kernel is here too: what masks hide ([`intervals`], [`scores`]), how maps reach over a domain
//! ([`reach`]), what is moved ([`traffic`]), in which order to compute ([`order`], [`reductions`], [`unroll`]), which elements windows share ([`windows`]), what slots are for ([`roles`]), which steps wait for which ([`hazards`]), and coefficients of cost models
//! ([`fit`]).

pub mod anchors;
pub mod axes;
mod backend;
mod body;
mod check;
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
pub use setup::Setup;
