//! The left operand of a product: strided, or gathered or evaluated block by block of rows.

use super::{matrix::Matrix, source::RowSource};

/// The left operand of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// A strided matrix.
    Strided(Matrix),
    /// Gathered or evaluated, a block of rows and terms at a time.
    Blocks(RowSource<'a>),
}

impl From<Matrix> for Left<'_> {
    fn from(matrix: Matrix) -> Self {
        Left::Strided(matrix)
    }
}
