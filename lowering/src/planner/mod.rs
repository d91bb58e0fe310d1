//! Chooses a plan: prices kernels, searches for a cheap plan, and reports on it.
//!
//! [`space`] prices a kernel by building it ([`crate::build`]) and asking the backend. The search ([`mod@search`])
//! moves from plan to plan, and the kernels of a plan follow from the classes that it stores (`kernels`). Kernels with
//! equal keys (`key`) share a price. [`report`] lists the kernels of a plan, and [`unjoined`] says why two of them were
//! not joined.
//!
//! ```text
//!             ┌────────── search: first choice → greedy → local (or exact) ──────────┐
//! EClasses ── Space                                                                   ├── Searched { plan, price }
//!             └── kernel_price: key → cached price, or build::kernel → Backend::cost ─┘       │
//!                                                                           report, unjoined ─┘
//! ```

mod kernels;
mod key;
mod rates;
pub mod report;
pub mod search;
pub mod space;
pub mod unjoined;
