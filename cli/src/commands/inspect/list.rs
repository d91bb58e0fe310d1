//! Lines under a heading.

use std::io::Write;

use crate::{
    fault::Fault,
    table::{heading, plain},
};

/// Prints lines under a heading, if there are any.
///
/// # Errors
/// If they cannot be written.
pub fn list(out: &mut dyn Write, title: &str, lines: &[String]) -> Result<(), Fault> {
    if !lines.is_empty() {
        writeln!(out, "\n{}", heading(title))?;
    }
    Ok(lines.iter().try_for_each(|line| writeln!(out, "{}", plain(line)))?)
}
