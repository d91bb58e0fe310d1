//! Fourier transforms as matrix products with constants. The method depends on the length n:
//!
//! - n ≤ 64, or a prime n ≤ 1024: one matrix product;
//! - any other n that is not prime: a transform for each of two factors (Cooley and Tukey, "An Algorithm for the
//!   Machine Calculation of Complex Fourier Series", 1965);
//! - a larger prime: a convolution of composite length (Bluestein, "A Linear Filtering Approach to the Computation of
//!   Discrete Fourier Transform", 1970).
//!
//! Complex numbers are pairs of reals on the last axis. So a complex dot product of n terms is a real one of 2n terms.
//!
//! Error bound: let u be the unit roundoff. A stage of length f sums 2f products with factors of magnitude at most 1,
//! rounds once, and multiplies by twiddle factors. To first order, each result differs from the exact one by at most
//! √2·u·Σ(2f + 4)·Σ|xᵢ|, where the first sum is over the stages. Bluestein's method has at most four times the error of
//! a transform of its longer length.

use std::f64::consts::TAU;

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
    slicing,
};

pub(super) const OPS: &[OpRow] = &[
    one("DFT", 17, |c| {
        let axis = c.int_or("axis", 1)?;
        dft(c, axis)
    }),
    one("DFT", 20, |c| {
        let axis = if c.optional(2).is_some() { c.known_int(2)? } else { -2 };
        dft(c, axis)
    }),
    one("STFT", 17, stft),
    one("HannWindow", 17, |c| window(c, &[0.5, -0.5])),
    one("HammingWindow", 17, |c| window(c, &[25.0 / 46.0, -21.0 / 46.0])),
    one("BlackmanWindow", 17, |c| window(c, &[0.42, -0.5, 0.08])),
    one("MelWeightMatrix", 17, mel_weights),
];

/// The largest composite length that is transformed by one matrix product.
const SMALL: usize = 64;

/// The largest prime length that is transformed by one matrix product.
const LARGEST_PRIME: usize = 1024;

/// The largest supported length. The import computes constants of that length.
const LONGEST: usize = 1 << 24;

fn length_of(n: f64) -> Result<usize, NodeError> {
    if (1.0..=LONGEST as f64).contains(&n) {
        Ok(n as usize)
    } else {
        Err(format!("its transform has {n} elements; lengths from 1 to {LONGEST} are supported").into())
    }
}

/// Imports `DFT` of x [.. n .. c], where c is 1 for real and 2 for complex signals. The signal is cropped to
/// `dft_length`, or padded with zeros to it.
fn dft(c: &mut NodeCall<'_, '_>, axis: i64) -> NodeResult {
    let x = c.input(0)?;
    let rank = c.rank(x);
    let axis = c.axis(axis, rank)?;
    if axis + 1 >= rank {
        return Err(
            format!("its axis {axis} of {rank} has the real and imaginary parts, and cannot be transformed").into()
        );
    }
    let (inverse, one_sided) = (c.flag("inverse")?, c.flag("onesided")?);
    let extent = c.dims(x)[axis];
    let length = match c.optional(1) {
        Some(_) => c.known_number(1)?,
        None if inverse && one_sided => 2.0 * (extent as f64 - 1.0),
        None => extent as f64,
    };
    let length = length_of(length)?;
    // The transformed axis moves next to the axis of real and imaginary parts, and moves back after the transform.
    let mut order: Vec<usize> = (0..rank).filter(|&a| a != axis).collect();
    order.insert(rank - 2, axis);
    let x = c.transpose(x, &order)?;
    let given = if inverse && one_sided { length / 2 + 1 } else { length };
    let kept = extent.min(given);
    let x = c.slice(x, rank - 2, 0, kept)?;
    let x = slicing::zeros_around(c, x, rank - 2, [0, given - kept])?;
    let result = match (inverse, one_sided) {
        (true, true) => real_inverse(c, x, length)?,
        (_, one_sided) => along(c, x, inverse, if one_sided { length / 2 + 1 } else { length })?,
    };
    let mut back: Vec<usize> = (0..rank - 2).collect();
    back.insert(axis, rank - 2);
    back.push(rank - 1);
    c.transpose(result, &back)
}

/// Computes the real signal of length N whose spectrum has the first N/2 + 1 elements x [.. N/2 + 1 c]. The remaining
/// elements of the spectrum are the conjugates of x in reverse order.
fn real_inverse(c: &mut NodeCall<'_, '_>, x: NodeId, length: usize) -> NodeResult {
    let (x, last) = (complex(c, x)?, c.rank(x) - 1);
    let rest = length - (length / 2 + 1);
    let spectrum = match rest {
        0 => x,
        _ => {
            let mirrored = c.slice_by(x, last - 1, rest as i64, rest, -1)?;
            let sign = c.constant(Tensor::from_f64(c.dtype(x), &[2], [1.0, -1.0]))?;
            let mirrored = c.apply("mul", [mirrored, sign])?;
            c.concat(&[x, mirrored], last - 1)?
        }
    };
    let signal = along(c, spectrum, true, length)?;
    c.slice(signal, last, 0, 1)
}

/// Makes a real signal complex, with imaginary parts of 0.
fn complex(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    let last = c.rank(x) - 1;
    match c.dims(x)[last] {
        1 => slicing::zeros_around(c, x, last, [0, 1]),
        _ => Ok(x),
    }
}

/// Returns the first `keep` elements of the transform of x [.. n c]. Computes in `f32`, or in `f64` for `f64` input.
fn along(c: &mut NodeCall<'_, '_>, x: NodeId, inverse: bool, keep: usize) -> NodeResult {
    let (dims, dtype) = (c.dims(x), c.dtype(x));
    let [.., n, parts] = dims[..] else {
        return Err("its signal has fewer than two axes; the last axis must have the real and imaginary parts".into());
    };
    if !matches!(parts, 1 | 2) {
        return Err(format!("its last axis has {parts} elements, but must have 1 (real) or 2 (complex)").into());
    }
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let rows = dims[..dims.len() - 2].iter().product();
    let x = c.cast(x, wide)?;
    let x = c.reshape(x, &[rows, n, parts])?;
    let mut y = transform(c, x, if inverse { 1.0 } else { -1.0 }, keep)?;
    if inverse {
        y = c.with("mul", y, 1.0 / n as f64)?;
    }
    let y = c.reshape(y, &[&dims[..dims.len() - 2], &[keep, 2]].concat())?;
    c.cast(y, dtype)
}

/// Returns the first `keep` of Σ x[j]·e^(sign·2πi·jk/n) for x [rows n c], as [rows keep 2].
fn transform(c: &mut NodeCall<'_, '_>, x: NodeId, sign: f64, keep: usize) -> NodeResult {
    let (dims, dtype) = (c.dims(x), c.dtype(x));
    let (rows, n, parts) = (dims[0], dims[1], dims[2]);
    let root = (1..=n.isqrt()).rev().find(|a| n.is_multiple_of(*a)).unwrap_or(1);
    if n <= SMALL || root == 1 && n <= LARGEST_PRIME {
        let flat = c.reshape(x, &[rows, n * parts])?;
        let matrix = c.constant(Tensor::from_f64(dtype, &[n * parts, keep * 2], matrix(n, parts, sign, keep)))?;
        let product = c.apply("matmul", [flat, matrix])?;
        return c.reshape(product, &[rows, keep, 2]);
    }
    if root == 1 {
        return bluestein(c, x, sign, keep);
    }
    // With n = A·B, j = a·B + b and k = l + A·m: transforms over a, multiplies by twiddle factors, and transforms over
    // b.
    let (a, b) = (root, n / root);
    let x = c.reshape(x, &[rows, a, b, parts])?;
    let x = c.transpose(x, &[0, 2, 1, 3])?;
    let x = c.reshape(x, &[rows * b, a, parts])?;
    let y = transform(c, x, sign, a)?;
    let y = c.reshape(y, &[rows, b, a, 2])?;
    let angles: Vec<(usize, usize)> = (0..b).flat_map(|j| (0..a).map(move |l| (j * l, n))).collect();
    let y = turned(c, y, &[b, a], &angles, sign)?;
    let y = c.transpose(y, &[0, 2, 1, 3])?;
    let y = c.reshape(y, &[rows * a, b, 2])?;
    let kept = keep.div_ceil(a);
    let z = transform(c, y, sign, kept)?;
    let z = c.reshape(z, &[rows, a, kept, 2])?;
    let z = c.transpose(z, &[0, 2, 1, 3])?;
    let z = c.reshape(z, &[rows, kept * a, 2])?;
    c.slice(z, 1, 0, keep)
}

/// Returns the real and imaginary part of e^(sign·2πi·j/n).
fn unit(j: usize, n: usize, sign: f64) -> [f64; 2] {
    let (sin, cos) = (TAU * ((j % n) as f64 / n as f64)).sin_cos();
    [cos, sign * sin]
}

/// Returns the matrix of the transform, which maps pairs of reals to pairs of reals.
fn matrix(n: usize, parts: usize, sign: f64, keep: usize) -> Vec<f64> {
    let row = |(j, part): (usize, usize)| {
        (0..keep).flat_map(move |k| {
            let [re, im] = unit(j * k, n, sign);
            if part == 0 { [re, im] } else { [-im, re] }
        })
    };
    (0..n).flat_map(|j| (0..parts).map(move |part| (j, part))).flat_map(row).collect()
}

/// Multiplies each element of x [.. dims.. 2] by e^(sign·2πi·j/n). `angles` has the pair (j, n) of each element of
/// `dims`.
fn turned(c: &mut NodeCall<'_, '_>, x: NodeId, dims: &[usize], angles: &[(usize, usize)], sign: f64) -> NodeResult {
    let dims = [dims, &[2]].concat();
    let factors: Vec<[f64; 2]> = angles.iter().map(|&(j, n)| unit(j, n, sign)).collect();
    let same = factors.iter().flat_map(|&[re, _]| [re, re]);
    let other = factors.iter().flat_map(|&[_, im]| [-im, im]);
    times(c, x, Tensor::from_f64(c.dtype(x), &dims, same), Tensor::from_f64(c.dtype(x), &dims, other))
}

/// Computes x·same + swap(x)·other, where `swap` exchanges real and imaginary parts. This is a complex product.
fn times(c: &mut NodeCall<'_, '_>, x: NodeId, same: Tensor, other: Tensor) -> NodeResult {
    let (same, other) = (c.constant(same)?, c.constant(other)?);
    let exchanged = c.slice_by(x, c.rank(x) - 1, 1, 2, -1)?;
    let (straight, across) = (c.apply("mul", [x, same])?, c.apply("mul", [exchanged, other])?);
    c.apply("add", [straight, across])
}

/// Applies Bluestein's method, which follows from jk = (j² + k² − (k − j)²)/2. It multiplies element j by the chirp
/// e^(sign·2πi·j²/2n), convolves with the conjugate chirp, and multiplies element k by the chirp of k.
fn bluestein(c: &mut NodeCall<'_, '_>, x: NodeId, sign: f64, keep: usize) -> NodeResult {
    let (n, dtype) = (c.dims(x)[1], c.dtype(x));
    let longer = (2 * n - 1).next_power_of_two();
    // The angle depends only on j² modulo 2n.
    let square = |j: usize| ((j as u64 * j as u64 % (2 * n as u64)) as usize, 2 * n);
    let x = complex(c, x)?;
    let turned_in = turned(c, x, &[n], &(0..n).map(square).collect::<Vec<_>>(), sign)?;
    let padded = slicing::zeros_around(c, turned_in, 1, [0, longer - n])?;
    let spectrum = transform(c, padded, -1.0, longer)?;
    let chirp: Vec<[f64; 2]> = (0..longer)
        .map(|j| match j.min(longer - j) {
            j if j < n => unit(square(j).0, 2 * n, -sign),
            _ => [0.0, 0.0],
        })
        .collect();
    let of_chirp = spectrum_of(&chirp);
    let same = of_chirp.iter().flat_map(|&[re, _]| [re, re]);
    let other = of_chirp.iter().flat_map(|&[_, im]| [-im, im]);
    let (same, other) = (Tensor::from_f64(dtype, &[longer, 2], same), Tensor::from_f64(dtype, &[longer, 2], other));
    let product = times(c, spectrum, same, other)?;
    let convolved = transform(c, product, 1.0, keep)?;
    let scaled = c.with("mul", convolved, 1.0 / longer as f64)?;
    turned(c, scaled, &[keep], &(0..keep).map(square).collect::<Vec<_>>(), sign)
}

/// Computes the forward transform of known numbers. Their count is a power of two.
fn spectrum_of(x: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let n = x.len();
    if n == 1 {
        return x.to_vec();
    }
    let half = |odd: usize| spectrum_of(&x.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>());
    let (even, odd) = (half(0), half(1));
    let of = |k: usize| {
        let ([re, im], [a, b]) = (unit(k, n, -1.0), odd[k % (n / 2)]);
        let [c, d] = even[k % (n / 2)];
        [c + re * a - im * b, d + re * b + im * a]
    };
    (0..n).map(of).collect()
}

/// Imports `STFT`. It splits a signal [batch n c] into frames, `frame_step` elements apart. Each frame is multiplied by
/// the window and transformed.
fn stft(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let mut x = c.input(0)?;
    if let [batch, n] = c.dims(x)[..] {
        x = c.reshape(x, &[batch, n, 1])?;
    }
    let [batch, n, parts] = c.dims(x)[..] else {
        return Err("its signal does not have the axes [batch, length, parts]".into());
    };
    let window = c.optional(2);
    let size = match (c.optional(3), window) {
        (Some(_), _) => c.known_number(3)?,
        (None, Some(window)) => c.dims(window).iter().product::<usize>() as f64,
        (None, None) => n as f64,
    };
    let (size, step) = (length_of(size)?, length_of(c.known_number(1)?)?);
    if size > n {
        return Err(format!("its frames of {size} elements do not fit a signal of {n}").into());
    }
    let keep = match c.int_or("onesided", 1)? {
        0 => size,
        _ if parts == 1 => size / 2 + 1,
        _ => return Err("its `onesided` is 1, which needs a real signal, but its signal is complex".into()),
    };
    let attrs = [("axis", 1.into()), ("size", (size as i64).into()), ("stride", (step as i64).into())];
    let mut frames = c.op("window", &[x], &attrs)?;
    if let Some(window) = window {
        let weights = c.reshape(window, &[size, 1])?;
        frames = c.apply("mul", [frames, weights])?;
    }
    let count = (n - size) / step + 1;
    let frames = c.reshape(frames, &[batch, count, size, parts])?;
    along(c, frames, false, keep)
}

/// Computes the window Σ aₖ·cos(2πjk/N). N is the size of a periodic window, and the size − 1 of a symmetric one.
fn window(c: &mut NodeCall<'_, '_>, cosines: &[f64]) -> NodeResult {
    let size = length_of(c.known_number(0)?)?;
    let dtype = c.dtype_attr("output_datatype")?.unwrap_or(DType::F32);
    let period = if c.int_or("periodic", 1)? != 0 { size } else { (size - 1).max(1) };
    let value = |j: usize| {
        let term = |(k, a): (usize, &f64)| a * unit(j * k, period, 1.0)[0];
        cosines.iter().enumerate().map(term).sum::<f64>()
    };
    c.constant(Tensor::from_f64(dtype, &[size], (0..size).map(value)))
}

/// Returns a matrix [bins bands] of triangular filters. Their centres are equidistant on the mel scale, 2595·log₁₀(1 +
/// f/700).
fn mel_weights(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (bands, length) = (length_of(c.known_number(0)?)?, length_of(c.known_number(1)?)?);
    let [rate, low, high] = [c.known_number(2)?, c.known_number(3)?, c.known_number(4)?];
    let bins = length / 2 + 1;
    let mel = |f: f64| 2595.0 * (f / 700.0).ln_1p() / 10_f64.ln();
    let step = (mel(high) - mel(low)) / (bands as f64 + 2.0);
    let edge = |i: usize| {
        let f = 700.0 * ((i as f64 * step + mel(low)) / 2595.0 * 10_f64.ln()).exp_m1();
        ((length as f64 + 1.0) * f / rate).floor()
    };
    let edges: Vec<f64> = (0..bands + 2).map(edge).collect();
    if !edges.iter().all(|e| (0.0..bins as f64).contains(e)) || edges.windows(2).any(|e| e[0] > e[1]) {
        return Err(format!("its bands from {low} to {high} Hz do not fit {bins} bins at {rate} Hz").into());
    }
    let weight = |bin: usize, band: usize| {
        let (bin, [left, top, right]) = (bin as f64, [edges[band], edges[band + 1], edges[band + 2]]);
        if (top..right).contains(&bin) && right > top {
            (right - bin) / (right - top)
        } else if left == top {
            f64::from(u8::from(bin == top))
        } else if (left..=top).contains(&bin) {
            (bin - left) / (top - left)
        } else {
            0.0
        }
    };
    let dtype = c.dtype_attr("output_datatype")?.unwrap_or(DType::F32);
    let values = (0..bins).flat_map(|bin| (0..bands).map(move |band| (bin, band))).map(|(bin, band)| weight(bin, band));
    c.constant(Tensor::from_f64(dtype, &[bins, bands], values))
}
