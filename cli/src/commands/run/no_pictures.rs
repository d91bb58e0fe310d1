//! Images in a build without the feature `vision`: there is none, and whoever asks for one is told why.

use std::{convert::Infallible, path::Path};

use eutectic::engine::models::image::{Prepared, Preprocessing};

use crate::fault::{Fault, not_built};

/// An image that was read: none can be.
pub struct SeenImage {
    pub prepared: Prepared,
    none: Infallible,
}

impl SeenImage {
    /// Says which feature reads images.
    ///
    /// # Errors
    /// Always.
    pub fn open(path: &Path, _: &Preprocessing, _: [usize; 2]) -> Result<SeenImage, Fault> {
        Err(not_built(format!("--image {}: this build reads no images", path.display()), "vision"))
    }

    pub fn size(&self) -> (u32, u32) {
        match self.none {}
    }

    pub fn write_mask(&self, _: &Path, _: &[f32]) -> Result<(), Fault> {
        match self.none {}
    }

    pub fn write_components(&self, _: &Path, _: &[f32], _: [usize; 3]) -> Result<(), Fault> {
        match self.none {}
    }
}
