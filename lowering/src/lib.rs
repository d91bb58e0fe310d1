//! From a saturated e-graph to a program: the plan, its search, kernels, memory and schedule.
//!
//! A [`Plan`] says which e-node computes each class, which classes are stored, and which kernel stores them
//! ([`plan`]). [`build`] turns a kernel of a plan into the description that backends print from; [`space`] prices plans;
//! [`mod@search`] looks for a cheap one; [`program`] puts plans of outlined blocks together, with buffers from [`memory`].
//! Graphs with loops are cut at them ([`stages`]), and the programs of the parts linked ([`mod@link`]).

pub mod apart;
pub mod build;
pub mod copy;
mod domain;
mod join;
mod kernels;
mod key;
pub mod link;
pub mod memory;
mod order;
pub mod plan;
pub mod print;
pub mod program;
mod rates;
pub mod report;
pub mod search;
mod settle;
pub mod space;
pub mod stages;
mod walk;

pub use plan::{Plan, PlanError};
pub use program::{Lowered, PlannedBlock, lower};
pub use search::{SearchOptions, Searched, Strategy, search};
pub use space::{Refused, Space};

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod tests;
