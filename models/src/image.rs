//! Prepares images for models (resizing, normalization, padding), and resizes predicted masks to the original image.
//! The feature `vision` adds the reader of image files.

#[cfg(feature = "vision")]
mod file;

use eutectic_ir::Tensor;

#[cfg(feature = "vision")]
pub use file::{ImageError, open};

/// The preprocessing of images for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preprocessing {
    /// Whether the aspect ratio is kept. If so, zeros fill the bottom or the right of the normalized image.
    pub keeps_ratio: bool,
    /// The mean of each colour channel, which is subtracted. Colours are numbers from 0 to 255.
    pub mean: [f64; 3],
    /// The standard deviation of each colour channel. It divides the centred colours.
    pub deviation: [f64; 3],
}

/// The preprocessing of SAM. Its means and deviations are those of ImageNet.
pub const SAM: Preprocessing =
    Preprocessing { keeps_ratio: true, mean: [123.675, 116.28, 103.53], deviation: [58.395, 57.12, 57.375] };

/// The preprocessing of SAM 3. It maps colours to numbers from −1 to 1.
pub const SAM3: Preprocessing = Preprocessing { keeps_ratio: false, mean: [127.5; 3], deviation: [127.5; 3] };

/// An image that has been resized, normalized and padded for a model.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The normalized colours: `f32[1 3 H W]`.
    pub pixels: Tensor,
    /// Rows and columns of the original image, in pixels.
    pub original: [usize; 2],
    /// Rows and columns of `pixels` that show the image. The remaining rows and columns are padding.
    pub resized: [usize; 2],
}

impl Prepared {
    /// Maps a point (x, y) of the original image to coordinates of `pixels`.
    pub fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let scaled = |at: f64, n: usize| at * self.resized[n] as f64 / self.original[n] as f64;
        [scaled(x, 1), scaled(y, 0)]
    }

    /// Resizes a predicted mask to the original image. The mask has fewer rows and columns than `pixels`. It is scaled
    /// up to the size of `pixels`, cropped to the rows and columns that show the image, and scaled to the original
    /// size. Both scalings are bilinear.
    pub fn unprepare(&self, mask: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
        let [height, width] = [2, 3].map(|axis| self.pixels.dims()[axis]);
        let whole = scaled(mask, [rows, columns], [height, width]);
        let kept = whole.chunks(width).take(self.resized[0]).flat_map(|row| &row[..self.resized[1]]);
        scaled(&kept.copied().collect::<Vec<_>>(), self.resized, self.original)
    }

    /// Returns the rows and columns of a coarser grid over `pixels` that show the image. At least one row and one
    /// column do.
    pub fn shown(&self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let share = |n: usize, of: usize| (self.resized[n] * of).div_ceil(self.pixels.dims()[n + 2]).clamp(1, of);
        [share(0, rows), share(1, columns)]
    }
}

/// Resizes an image bilinearly, with half-pixel centres and without antialiasing, as torch's `interpolate` does.
pub fn scaled(image: &[f32], from: [usize; 2], to: [usize; 2]) -> Vec<f32> {
    // For each output row or column: its two neighbours in the input, and the weight of the second one.
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
