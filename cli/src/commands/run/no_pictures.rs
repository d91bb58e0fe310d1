//! Images in a build without the feature `vision`. Every use is an error that names the feature.

use std::{convert::Infallible, path::Path};

use eutectic::engine::models::image::{Prepared, Preprocessing};

use crate::fault::{Fault, not_built};

/// An image that was read, which cannot exist in this build.
pub struct SeenImage {
    pub prepared: Prepared,
    none: Infallible,
}

impl SeenImage {
    /// Fails with an error that names the feature `vision`, which reads images.
    ///
    /// # Errors
    /// Always.
    pub fn open(path: &Path, _: &Preprocessing, _: [usize; 2]) -> Result<SeenImage, Fault> {
        Err(not_built(
            format!("cannot read the image {} because this build has no image reader", path.display()),
            "vision",
        ))
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
