//! The left operand of a product: as it lies, or read through an index map or evaluated, a part at a time.

use super::{matrix::Matrix, source::Source};

/// The left operand of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// A matrix as it lies.
    Plain(Matrix),
    /// Rows that are brought near part by part.
    Parts(Source<'a>),
}

impl From<Matrix> for Left<'_> {
    fn from(matrix: Matrix) -> Self {
        Left::Plain(matrix)
    }
}
