//! The model part that made a value.

use std::{fmt, sync::Arc};

/// The model part that made a value: `encoder.layer.3.attention`; empty for the top of the model.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(Arc<str>);

impl Origin {
    /// Returns the model part at `path`, with dots between its levels.
    pub fn new(path: impl Into<Arc<str>>) -> Origin {
        Origin(path.into())
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::new("")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0.is_empty() { "(top)" } else { &self.0 })
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
