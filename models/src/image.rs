//! Images as models take them: read from PNG or JPEG, resized, normalised and padded; and masks brought back to the image's size.

use std::path::{Path, PathBuf};

use eutectic_ir::Tensor;
use image::{ImageReader, RgbImage, imageops};

/// An image that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct ImageError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// What a model expects of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preprocessing {
    /// Whether the sides keep their ratio; then zeros fill up what is left below or to the right, after normalising.
    pub keeps_ratio: bool,
    /// What is subtracted from the colours, which are in 0..=255.
    pub mean: [f64; 3],
    /// What they are divided by then.
    pub deviation: [f64; 3],
}

/// Preprocessing of SAM: mean and deviation of ImageNet.
pub const SAM: Preprocessing =
    Preprocessing { keeps_ratio: true, mean: [123.675, 116.28, 103.53], deviation: [58.395, 57.12, 57.375] };

/// Preprocessing of SAM 3.
pub const SAM3: Preprocessing = Preprocessing { keeps_ratio: false, mean: [127.5; 3], deviation: [127.5; 3] };

/// An image ready for a model.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// `f32[1 3 H W]`.
    pub pixels: Tensor,
    /// Rows and columns of the image as it was.
    pub original: [usize; 2],
    /// Rows and columns of the part of the pixels that shows the image.
    pub resized: [usize; 2],
}

/// Reads a PNG or JPEG file; transparency is dropped.
///
/// # Errors
/// When it cannot be read, or is no such file, or a damaged one.
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
    /// The image at the size of a model's input, with `sides` rows and columns. Resizing is bilinear, with the filter widened where it
    /// shrinks (antialiased), and rounds to whole colours, as Pillow and torchvision do.
    pub fn apply(&self, image: &RgbImage, sides: [usize; 2]) -> Prepared {
        let original = [image.height() as usize, image.width() as usize];
        let resized = if self.keeps_ratio { fitted(original, sides) } else { sides };
        // One axis after the other, because the reference rounds after each.
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
        let pixels = Tensor::from_f32(&[1, 3, sides[0], sides[1]], &pixels).expect("as many as the extents ask for");
        Prepared { pixels, original, resized }
    }
}

/// The largest size with the same ratio of the sides; at least one pixel each way.
fn fitted(original: [usize; 2], sides: [usize; 2]) -> [usize; 2] {
    let scale = (0..2).map(|n| sides[n] as f64 / original[n] as f64).fold(f64::INFINITY, f64::min);
    [0, 1].map(|n| ((original[n] as f64 * scale + 0.5) as usize).clamp(1, sides[n]))
}

impl Prepared {
    /// Where a point of the original image is in the pixels, x before y.
    pub fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let scaled = |at: f64, n: usize| at * self.resized[n] as f64 / self.original[n] as f64;
        [scaled(x, 1), scaled(y, 0)]
    }

    /// A mask of a model, in some fraction of the pixels' size, at the size of the original image: scaled up, cropped to what shows the image, and
    /// scaled again, bilinearly.
    pub fn unprepare(&self, mask: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
        let [height, width] = [2, 3].map(|axis| self.pixels.dims()[axis]);
        let whole = scaled(mask, [rows, columns], [height, width]);
        let kept = whole.chunks(width).take(self.resized[0]).flat_map(|row| &row[..self.resized[1]]);
        scaled(&kept.copied().collect::<Vec<_>>(), self.resized, self.original)
    }

    /// The part of the pixels' size that shows the image, of a grid of that many rows and columns; at least one each way.
    pub fn shown(&self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let share = |n: usize, of: usize| (self.resized[n] * of).div_ceil(self.pixels.dims()[n + 2]).clamp(1, of);
        [share(0, rows), share(1, columns)]
    }
}

/// Bilinear scaling with half-pixel centres and no antialiasing, as torch's `interpolate`.
pub fn scaled(image: &[f32], from: [usize; 2], to: [usize; 2]) -> Vec<f32> {
    // For each new row or column, the two old ones that it lies between, and the share of the second.
    let places = |n: usize| -> Vec<(usize, usize, f32)> {
        let place = |o: usize| {
            let at = ((o as f64 + 0.5) * from[n] as f64 / to[n] as f64 - 0.5).max(0.0);
            let below = (at as usize).min(from[n] - 1);
            (below, (below + 1).min(from[n] - 1), (at - below as f64) as f32)
        };
        (0..to[n]).map(place).collect()
    };
    let (rows, columns) = (places(0), places(1));
    let between = |a: f32, b: f32, share: f32| a * (1.0 - share) + b * share;
    let row = |&(above, below, down): &(usize, usize, f32)| {
        let line = |y: usize, &(left, right, across): &(usize, usize, f32)| {
            between(image[y * from[1] + left], image[y * from[1] + right], across)
        };
        columns.iter().map(|x| between(line(above, x), line(below, x), down)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(row).collect()
}
