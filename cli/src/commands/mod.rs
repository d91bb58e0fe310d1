//! The subcommands, one a file: its arguments and what it does.

pub mod ablate;
pub mod bench;
pub mod chat;
pub mod check;
pub mod completions;
pub mod demo;
pub mod devices;
pub mod explain;
pub mod inspect;
pub mod ops;
pub mod opt;
pub mod prove;
pub mod rules;
pub mod run;
pub mod tune;
pub mod why;
