//! Pictures of results: a mask over an image, or the principal components of an embedding next to it.

use std::{fmt::Display, io::Cursor, path::Path};

use ::image::{ImageFormat, Rgb, RgbImage, imageops};
use eutectic::engine::models::image::{self, Prepared, Preprocessing, scaled};

use crate::{
    fault::{Fault, input},
    output,
};

/// The colour of a mask. `RIM` is the colour of its outline.
const PAINT: [f32; 3] = [30.0, 144.0, 255.0];
const RIM: Rgb<u8> = Rgb([255, 255, 255]);

/// The original image, and its preparation for the model.
pub struct SeenImage {
    image: RgbImage,
    pub prepared: Prepared,
}

impl SeenImage {
    /// Reads an image, and prepares it for a model whose input has `sides` rows and columns.
    ///
    /// # Errors
    /// If the file is not a PNG or JPEG image.
    pub fn open(path: &Path, preprocessing: &Preprocessing, sides: [usize; 2]) -> Result<SeenImage, Fault> {
        let image = image::open(path).map_err(|e| input(e, "give a PNG or JPEG file"))?;
        Ok(SeenImage { prepared: preprocessing.apply(&image, sides), image })
    }

    /// Returns the numbers of columns and rows.
    pub fn size(&self) -> (u32, u32) {
        self.image.dimensions()
    }

    /// Writes the image with a mask over it. `logits` has a number for each pixel of the image.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_mask(&self, path: &Path, logits: &[f32]) -> Result<(), Fault> {
        write(path, &mask_over(&self.image, logits))
    }

    /// Writes the image next to the first three principal components of its embedding [channels rows columns].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_components(&self, path: &Path, embedding: &[f32], dims: [usize; 3]) -> Result<(), Fault> {
        write(path, &components_beside(&self.image, &self.prepared, embedding, dims))
    }
}

/// Draws a mask over an image: pixels with positive logits are painted, and the outline of the mask is white.
fn mask_over(image: &RgbImage, logits: &[f32]) -> RgbImage {
    let (width, height) = image.dimensions();
    let within = |x: u32, y: u32| logits[(y * width + x) as usize] > 0.0;
    RgbImage::from_fn(width, height, |x, y| {
        let colours = image.get_pixel(x, y).0;
        if !within(x, y) {
            return Rgb(colours);
        }
        let around = [(x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
        if around.into_iter().any(|(x, y)| x < width && y < height && !within(x, y)) {
            return RIM;
        }
        Rgb([0, 1, 2].map(|n| (0.5 * f32::from(colours[n]) + 0.5 * PAINT[n]) as u8))
    })
}

/// Draws the image, and next to it the first three principal components of an embedding [channels rows columns]. The
/// components are shown as colours and scaled to the size of the image. Padding is cropped.
fn components_beside(image: &RgbImage, prepared: &Prepared, embedding: &[f32], dims: [usize; 3]) -> RgbImage {
    let [channels, rows, columns] = dims;
    let shown = prepared.shown([rows, columns]);
    // Each row has the channels of one token that shows the image.
    let token = |(y, x): (usize, usize)| (0..channels).map(move |c| embedding[(c * rows + y) * columns + x]).collect();
    let tokens: Vec<Vec<f32>> = (0..shown[0]).flat_map(|y| (0..shown[1]).map(move |x| (y, x))).map(token).collect();
    let size = prepared.original;
    let planes: Vec<Vec<f32>> =
        principal(&tokens, 3).iter().map(|plane| scaled(&colours(plane), shown, size)).collect();
    let (width, height) = image.dimensions();
    let mut both = RgbImage::new(2 * width, height);
    imageops::replace(&mut both, image, 0, 0);
    for (n, pixel) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).enumerate() {
        both.put_pixel(width + pixel.0, pixel.1, Rgb([0, 1, 2].map(|c| planes[c][n] as u8)));
    }
    both
}

/// Scales numbers to colours from 0 to 255.
fn colours(plane: &[f32]) -> Vec<f32> {
    let (low, high) = plane.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), x| (l.min(*x), h.max(*x)));
    let range = (high - low).max(f32::MIN_POSITIVE);
    plane.iter().map(|x| (x - low) / range * 255.0).collect()
}

/// The number of iterations of the power method. It suffices for the precision of a picture.
const STEPS: usize = 60;

/// Returns the first `count` principal components of rows: a number for each row. It uses the power method with
/// deflation.
fn principal(rows: &[Vec<f32>], count: usize) -> Vec<Vec<f32>> {
    let width = rows.first().map_or(0, Vec::len);
    let mean: Vec<f64> =
        (0..width).map(|c| rows.iter().map(|r| f64::from(r[c])).sum::<f64>() / rows.len() as f64).collect();
    let mut rest: Vec<Vec<f64>> =
        rows.iter().map(|row| row.iter().zip(&mean).map(|(x, m)| f64::from(*x) - m).collect()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let component = |n: usize| {
        // The start is fixed, and unlikely to be orthogonal to a principal component.
        let mut axis: Vec<f64> = (0..width).map(|c| 1.0 + ((c * (n + 7)) % 13) as f64).collect();
        for _ in 0..STEPS {
            let mut next = vec![0.0; width];
            for row in &rest {
                let share = dot(row, &axis);
                next.iter_mut().zip(row).for_each(|(sum, x)| *sum += share * x);
            }
            let length = dot(&next, &next).sqrt().max(f64::MIN_POSITIVE);
            axis = next.into_iter().map(|x| x / length).collect();
        }
        let shares: Vec<f64> = rest.iter().map(|row| dot(row, &axis)).collect();
        for (row, share) in rest.iter_mut().zip(&shares) {
            row.iter_mut().zip(&axis).for_each(|(x, a)| *x -= share * a);
        }
        shares.into_iter().map(|x| x as f32).collect()
    };
    (0..count).map(component).collect()
}

fn write(path: &Path, picture: &RgbImage) -> Result<(), Fault> {
    let unwritable = |e: &dyn Display| Fault::input(format!("cannot write {}: {e}", path.display()));
    let format = ImageFormat::from_path(path).map_err(|e| unwritable(&e))?;
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).map_err(|e| unwritable(&e))?;
    output::write(path, &[bytes.get_ref()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_those_of_the_covariance() {
        // The rows vary mostly along (3, 4) / 5, and slightly along (4, -3) / 5.
        let along = [5.0, -5.0, 10.0, -10.0];
        let across = [0.5, 0.5, -0.5, -0.5];
        let rows: Vec<Vec<f32>> =
            along.iter().zip(across).map(|(a, b)| vec![7.0 + 0.6 * a + 0.8 * b, 0.8 * a - 0.6 * b]).collect();
        let found = principal(&rows, 2);
        for (found, wanted) in found.iter().zip([along, across]) {
            let sign = (found[0] * wanted[0]).signum();
            assert!(found.iter().zip(wanted).all(|(x, y)| (x * sign - y).abs() < 1e-4), "{found:?}");
        }
    }

    #[test]
    fn a_mask_is_painted_and_has_a_rim() {
        let image = RgbImage::from_pixel(5, 4, Rgb([200, 0, 100]));
        let logits: Vec<f32> = (0..20).map(|n| if n % 5 < 3 { 1.0 } else { -1.0 }).collect();
        let picture = mask_over(&image, &logits);
        assert_eq!([0, 2, 3].map(|x| picture.get_pixel(x, 1).0), [[115, 72, 177], [255; 3], [200, 0, 100]]);
    }
}
