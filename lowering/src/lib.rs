//! Lowers a saturated e-graph to a program.
//!
//! ```text
//! e-classes ── planner ── Plan ── build ── kernels ── program ── elision, join, memory ── Program ── loops::link
//!                │                  │
//!                └── prices ────────┘
//! ```
//!
//! A [`Plan`] selects the e-node that computes each class, the stored classes, and the kernel that stores each of them
//! ([`plan`]). The [planner] searches for a cheap plan. [`build`] turns a kernel of a plan into the description from
//! which backends print code. [`program`] assembles the plans of outlined blocks: it orders the steps, elides copies,
//! joins kernels and gives each buffer its [`memory`]. Graphs with [loops] are split at each loop, and the programs of
//! the parts are linked.

pub mod build;
pub mod copy;
mod domain;
mod elision;
mod join;
pub mod loops;
pub mod memory;
mod order;
pub mod plan;
pub mod planner;
pub mod print;
pub mod program;
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
