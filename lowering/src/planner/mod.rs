//! Chooses a plan: the space of all plans with their prices, the search for a cheap one, and reports on it.
//!
//! [`space`] prices a kernel by building it ([`crate::build`]) and asking the backend. The search ([`mod@search`]) moves from plan to plan, and
//! the kernels of a plan follow from what it stores (`kernels`). Kernels with equal keys (`key`) share a price. [`report`] lists the kernels of
//! a plan, and [`unjoined`] says why two of them were not joined.

mod kernels;
mod key;
mod rates;
pub mod report;
pub mod search;
pub mod space;
pub mod unjoined;
