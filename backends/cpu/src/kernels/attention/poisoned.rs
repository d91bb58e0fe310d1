//! Recomputes rows of attention that a value under a mask made NaN. The weight of a hidden key is 0, but its product
//! with NaN or an infinity is NaN.

use super::Attention;
use crate::{
    gemm::{
        matrix::{Matrix, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    runtime::thunk::ThunkContext,
    simd::softmax::AttentionElement,
};

impl<T: AttentionElement + ProductElement> Attention<T> {
    /// Computes the output of one query again, and reads no value that the bias hides.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply. Scratch memory must have the bytes that the
    /// thunk states. `query` must be the row of the query with the number `place`. Keys and values that are evaluated
    /// in tasks are overwritten.
    #[cold]
    pub(super) unsafe fn attend_again(
        &self,
        launch: &ThunkContext<'_>,
        point: &[usize],
        (place, query): (usize, Matrix),
        out: &mut [T],
        scratch: *mut u8,
    ) {
        let Some(bias) = &self.bias else { return };
        let (mut largest, mut sum) = (T::of(f64::NEG_INFINITY), T::of(0.0));
        out.fill(T::of(0.0));
        let mut biases = vec![T::of(0.0); self.key_block];
        let mut row = vec![T::of(0.0); self.columns];
        for from in (0..self.keys).step_by(self.key_block.max(1)) {
            let keys = self.key_block.min(self.keys - from);
            // SAFETY: passed on from the caller; a row of scores fits into the room of a strip.
            unsafe {
                let [key, value] = self.pack(launch, point, (1, Stretch::new(from, keys), None), scratch);
                let products = scratch.add(self.layout.products);
                let weights = Matrix { at: scratch.add(self.layout.scores), rows: keys as isize, columns: 1 };
                let extents = Extents { m: 1, n: keys, k: self.depth };
                self.blockings[0].run(extents, weights, (query.into(), key), SumFinish::scaled(self.scale), products);
                let scores = std::slice::from_raw_parts_mut(weights.at.cast::<T>(), keys);
                self.softmax.cap(scores);
                let biases = &mut biases[..keys];
                biases.fill(T::of(0.0));
                bias.add(launch, point, (place..place + 1, from..from + keys), biases, &self.softmax, scratch);
                self.softmax.add(scores, biases);
                let correction = self.softmax.step(scores, &mut largest, &mut sum);
                self.softmax.scale(out, correction);
                let seen = scores.iter().enumerate().filter(|(key, _)| !is_hidden(biases[*key]));
                for (key, &weight) in seen {
                    add_product(out, weight, self.value_row(value, key, &mut row));
                }
            }
        }
        self.softmax.scale(out, T::of(1.0).over(sum));
    }
}

impl<T: AttentionElement + ProductElement> Attention<T> {
    /// Returns the row of a key's values. If its type is narrower, it is widened into `room`.
    ///
    /// # Safety
    /// The values must be valid for the key. A row in `room` is valid until the next call.
    unsafe fn value_row(&self, values: Right<'_>, key: usize, room: &mut [T]) -> Matrix {
        match (values, &self.blockings[1].short) {
            (Right::Strided(values), _) => Matrix { at: values.row::<T>(key), ..values },
            (Right::Short(values), Some(short)) => {
                let from = values.at.wrapping_offset(key as isize * values.rows * short.dtype().size() as isize);
                // SAFETY: passed on from the caller. The columns of these rows are contiguous.
                unsafe { short.widen(from, room.as_mut_ptr(), room.len()) };
                Matrix { at: room.as_mut_ptr().cast(), rows: 0, columns: 1 }
            }
            _ => unreachable!("one query's values are not packed"),
        }
    }
}

fn is_hidden<T: AttentionElement>(bias: T) -> bool {
    bias == T::of(f64::NEG_INFINITY)
}

/// Adds a row of values times its weight.
///
/// # Safety
/// The row must have as many columns as `out`.
unsafe fn add_product<T: AttentionElement>(out: &mut [T], weight: T, row: Matrix) {
    for (column, x) in out.iter_mut().enumerate() {
        // SAFETY: passed on from the caller.
        let value = unsafe { *row.at.cast::<T>().offset(column as isize * row.columns) };
        *x = x.plus(weight.times(value));
    }
}
