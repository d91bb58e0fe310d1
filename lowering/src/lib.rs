//! From a saturated e-graph to a program.
//!
//! ```text
//! e-classes ── planner ── Plan ── build ── kernels ── program ── settle, join, memory ── Program ── loops::link
//!                │                  │
//!                └── prices ────────┘
//! ```
//!
//! A [`Plan`] says which e-node computes each class, which classes are stored, and which kernel stores them ([`plan`]). The
//! [planner] looks for a cheap plan. [`build`] turns a kernel of a plan into the description that backends print from.
//! [`program`] puts the plans of outlined blocks together: it orders the steps, leaves out copies, joins kernels and gives each buffer
//! its [`memory`]. Graphs with [loops] are cut at them, and the programs of the parts linked.

pub mod build;
pub mod copy;
mod domain;
mod join;
pub mod loops;
pub mod memory;
mod order;
pub mod plan;
pub mod planner;
pub mod print;
pub mod program;
mod settle;
mod walk;

pub use loops::{link, stages};
pub use plan::{Plan, PlanError};
pub use planner::{
    report,
    search::{self, SearchOptions, Searched, Strategy, search},
    space::{self, Refused, Space},
    unjoined,
};
pub use program::{Lowered, PlannedBlock, lower};

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod tests;
