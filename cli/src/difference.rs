//! The largest difference between a result and its reference.

use eutectic::Tensor;

use crate::fault::{Fault, input};

/// The largest difference between elements of a result and of a reference.
#[derive(Clone, Copy, Debug)]
pub struct LargestError {
    /// The largest absolute difference. It is infinite if two elements differ and one of them is NaN or infinite.
    pub absolute: f64,
    /// The absolute difference divided by the largest finite number of the reference.
    pub relative: f64,
}

impl LargestError {
    /// Compares a result with a reference. `name` is the result's name for messages.
    ///
    /// # Errors
    /// If their shapes differ.
    pub fn of(name: &str, result: &Tensor, reference: &Tensor) -> Result<LargestError, Fault> {
        if result.dims() != reference.dims() {
            let problem = format!("--reference has type {}, but {name} has type {}", reference.ty(), result.ty());
            return Err(input(problem, "give an array of the output's shape"));
        }
        let (got, want) = (result.to_f64(), reference.to_f64());
        if !result.dtype().is_float() && !reference.dtype().is_float() {
            let (whole, other) = (result.to_i64(), reference.to_i64());
            let differences = whole.iter().zip(&other).map(|(got, want)| got.abs_diff(*want));
            let absolute = differences.max().unwrap_or(0) as f64;
            let largest = other.iter().map(|n| n.unsigned_abs()).max().unwrap_or(0).max(1) as f64;
            return Ok(LargestError { absolute, relative: absolute / largest });
        }
        let differences = got.iter().zip(&want).map(|(got, want)| match (got - want).abs() {
            _ if got == want || got.is_nan() && want.is_nan() => 0.0,
            difference if difference.is_nan() => f64::INFINITY,
            difference => difference,
        });
        let absolute = differences.fold(0.0, f64::max);
        let largest = want.iter().filter(|x| x.is_finite()).fold(0.0_f64, |most, x| most.max(x.abs()));
        Ok(LargestError { absolute, relative: absolute / largest.max(f64::MIN_POSITIVE) })
    }
}

/// Parses a tolerance: an allowed difference as a share of the reference's largest number.
///
/// # Errors
/// If it is not a finite number that is at least 0.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|tolerance| *tolerance >= 0.0 && tolerance.is_finite());
    number.ok_or_else(|| "expected a share of the reference's largest number, as in 1e-4".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_differ_from_others() {
        let error = |got: &[f32], want: &[f32]| {
            let [got, want] = [got, want].map(|x| Tensor::from_f32(&[x.len()], x).expect("a tensor"));
            LargestError::of("y", &got, &want).map(|error| (error.absolute, error.relative)).ok()
        };
        assert_eq!(error(&[1.0, 4.0], &[1.5, -4.0]), Some((8.0, 2.0)));
        assert_eq!(error(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]).map(|e| e.0), Some(0.0));
        assert_eq!(error(&[f32::NAN], &[1.0]), Some((f64::INFINITY, f64::INFINITY)));
        assert_eq!(error(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(error(&[], &[]), Some((0.0, 0.0)));
        let whole = |n: i64| Tensor::from_values(&[1], &[n]).expect("a tensor");
        let error = LargestError::of("y", &whole((1 << 53) + 1), &whole(1 << 53));
        assert_eq!(error.map(|error| error.absolute).ok(), Some(1.0));
        assert!(tolerance("1e-4") == Ok(1e-4) && tolerance("-1").is_err() && tolerance("nan").is_err());
    }
}
