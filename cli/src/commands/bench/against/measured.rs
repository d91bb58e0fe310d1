//! The measured times of one of the compared settings.

use eutectic::Tensor;

use crate::{difference::LargestError, timing::Times};

/// The measurements of a setting.
pub struct Measured {
    /// The options that the setting adds to those of the command. Empty for the command as it was given.
    pub options: String,
    /// The seconds of a run in each turn. In a turn, all settings run.
    pub times: Times,
    pub kernels: Option<usize>,
    pub predicted: Option<f64>,
    /// The first output, if the setting ran in this process.
    pub first: Option<Tensor>,
}

impl Measured {
    /// Returns the largest difference between the first outputs of two settings. `None` if they cannot be compared.
    pub fn difference(&self, base: &Measured) -> Option<LargestError> {
        let (mine, other) = (self.first.as_ref()?, base.first.as_ref()?);
        LargestError::of("the first output", mine, other).ok()
    }
}
