//! The times of one of the settings that are compared.

use eutectic::Tensor;

use crate::{difference::LargestError, timing::Times};

/// The times of a setting.
pub struct Measured {
    /// The options that it adds to those of the command; empty for the command itself.
    pub options: String,
    /// The time of each turn.
    pub times: Times,
    pub kernels: Option<usize>,
    pub predicted: Option<f64>,
    /// The first output, where the setting ran in this process.
    pub first: Option<Tensor>,
}

impl Measured {
    /// Returns the largest difference of the first output from another one; `None` if they are of different types.
    pub fn difference(&self, base: &Measured) -> Option<LargestError> {
        let (mine, other) = (self.first.as_ref()?, base.first.as_ref()?);
        LargestError::of("the first output", mine, other).ok()
    }
}
