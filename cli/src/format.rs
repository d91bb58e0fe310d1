//! The output format of commands.

use clap::ValueEnum;

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON value, for programs.
    Json,
}
