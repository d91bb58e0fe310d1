//! `chat`: a conversation with a language model.

mod args;
#[cfg_attr(not(feature = "text"), path = "chat/no_talk.rs")]
mod talk;

pub use self::args::Args;
use crate::fault::Fault;

/// Runs the command.
///
/// # Errors
/// If the file is not a language model with a chat template, or stdin cannot be read.
pub fn run(args: &Args) -> Result<(), Fault> {
    talk::run(args)
}
