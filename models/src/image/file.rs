//! Reads PNG and JPEG files, and converts images to model inputs.

use std::path::{Path, PathBuf};

use eutectic_ir::Tensor;
use image::{ImageReader, RgbImage, imageops};

use super::{Prepared, Preprocessing};

/// The reason why an image file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct ImageError {
    /// The file.
    pub path: PathBuf,
    /// The defect, or the system's error.
    pub problem: String,
}

/// Reads a PNG or JPEG file. Drops its alpha channel.
///
/// # Errors
/// If the file cannot be read, is damaged, or has another format.
pub fn open(path: &Path) -> Result<RgbImage, ImageError> {
    let wrong = |problem: String| ImageError { path: path.into(), problem };
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let image = reader.map_err(|e| wrong(e.to_string()))?.decode();
    let image = image.map_err(|e| wrong(format!("not a usable PNG or JPEG image: {e}")))?.to_rgb8();
    match image.dimensions() {
        (0, _) | (_, 0) => Err(wrong("it has no pixels".into())),
        _ => Ok(image),
    }
}

impl Preprocessing {
    /// Resizes the image to a model's input with `sides` rows and columns. Resizing is bilinear and antialiased, and
    /// rounds to integer colours, as Pillow and torchvision do.
    pub fn apply(&self, image: &RgbImage, sides: [usize; 2]) -> Prepared {
        let original = [image.height() as usize, image.width() as usize];
        let resized = if self.keeps_ratio { fitted(original, sides) } else { sides };
        // Each axis is resized in its own pass, because the references round to integers after each pass.
        let (rows, columns) = (resized[0] as u32, resized[1] as u32);
        let narrow = imageops::resize(image, columns, image.height(), imageops::FilterType::Triangle);
        let small = imageops::resize(&narrow, columns, rows, imageops::FilterType::Triangle);
        let mut pixels = vec![0.0_f32; 3 * sides[0] * sides[1]];
        for (x, y, colours) in small.enumerate_pixels() {
            for (channel, colour) in colours.0.into_iter().enumerate() {
                let at = (channel * sides[0] + y as usize) * sides[1] + x as usize;
                pixels[at] = ((f64::from(colour) - self.mean[channel]) / self.deviation[channel]) as f32;
            }
        }
        let pixels =
            Tensor::from_f32(&[1, 3, sides[0], sides[1]], &pixels).expect("there is one number for each element");
        Prepared { pixels, original, resized }
    }
}

/// Returns the largest extents with the original aspect ratio that fit in `sides`. Both are at least one pixel.
fn fitted(original: [usize; 2], sides: [usize; 2]) -> [usize; 2] {
    let scale = (0..2).map(|n| sides[n] as f64 / original[n] as f64).fold(f64::INFINITY, f64::min);
    [0, 1].map(|n| ((original[n] as f64 * scale + 0.5) as usize).clamp(1, sides[n]))
}
