//! Row-major offsets of elements in dense tensors: strides, offsets of coordinates, and shapes with equal offsets.

use super::Index;
use crate::{Dim, Shape};

/// Returns the row-major strides of a dense tensor.
pub fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// Returns the flat row-major offset of `at` in a tensor of extents `dims`.
pub fn flatten(at: &[Index], dims: &[usize]) -> Index {
    at.iter().zip(strides(dims)).fold(Index::default(), |sum, (i, s)| sum.plus_times(i, s as i64))
}

/// Returns the coordinates in `dims` of a flat row-major offset; the inverse of [`flatten`].
pub fn unflatten(offset: &Index, dims: &[usize], domain: &[usize]) -> Vec<Index> {
    let strides = strides(dims);
    (0..dims.len())
        .map(|i| match dims[i] {
            0 | 1 => Index::default(),
            d => {
                let quotient = offset.div(strides[i].max(1) as i64, domain);
                if i == 0 { quotient } else { quotient.modulo(d as i64, domain) }
            }
        })
        .collect()
}

/// Returns whether each element has the same row-major position in two shapes, for all lengths of extents at run
/// time. The buffers of both shapes have the strides of the greatest lengths. If the positions are equal, a reshape
/// moves no element.
///
/// Both shapes are divided into the shortest stretches of axes with equal numbers of elements. In each stretch, only
/// the outermost axis may vary, because its length does not affect the strides within the stretch.
pub fn same_places(a: &Shape, b: &Shape) -> bool {
    if !a.varies() && !b.varies() {
        return true;
    }
    let strip = |s: &Shape| s.iter().filter(|d| **d != Dim::Known(1)).cloned().collect::<Vec<_>>();
    let (a, b) = (strip(a), strip(b));
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let products = |dims: &[Dim]| -> Vec<Dim> {
            let next = |product: &mut Dim, d: &Dim| {
                *product = &*product * d;
                Some(product.clone())
            };
            dims.iter().scan(Dim::Known(1), next).collect()
        };
        let (p, q) = (products(&a[i..]), products(&b[j..]));
        let Some((m, n)) = p.iter().enumerate().find_map(|(m, x)| Some((m, q.iter().position(|y| x == y)?))) else {
            return false;
        };
        let inner_vary = a[i + 1..=i + m].iter().chain(&b[j + 1..=j + n]).any(Dim::varies);
        if inner_vary {
            return false;
        }
        (i, j) = (i + m + 1, j + n + 1);
    }
    i == a.len() && j == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_vary_stay_outermost() {
        let (s, two, six) = (Dim::between("S", 0, 8), Dim::Known(2), Dim::Known(6));
        let shape = |dims: &[&Dim]| dims.iter().map(|d| (*d).clone()).collect::<Shape>();
        let twice = &s * &two;
        assert!(same_places(&shape(&[&s, &two]), &shape(&[&twice])));
        assert!(!same_places(&shape(&[&two, &s]), &shape(&[&twice])));
        assert!(!same_places(&shape(&[&two, &s]), &shape(&[&s, &two])));
        // Axes are split and merged on both sides of an axis that varies.
        let merged = shape(&[&six, &s, &six]);
        assert!(same_places(&shape(&[&two, &Dim::Known(3), &s, &Dim::Known(1), &two, &Dim::Known(3)]), &merged));
        assert!(!same_places(&merged, &shape(&[&two, &s, &Dim::Known(18)])));
    }
}
