//! The subcommands, one file each, with their arguments.

pub mod ablate;
pub mod bench;
pub mod chat;
pub mod check;
pub mod compare;
pub mod completions;
pub mod costs;
pub mod demo;
pub mod devices;
pub mod explain;
pub mod fmt;
pub mod inspect;
pub mod lsp;
pub mod ops;
pub mod opt;
pub mod pack;
pub mod prove;
pub mod rules;
pub mod run;
pub mod tune;
pub mod why;
