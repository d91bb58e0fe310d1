//! The left operand of a product: a strided matrix, or an operand that is gathered or evaluated one block of rows at a
//! time.

use super::{matrix::Matrix, source::RowSource};

/// The left operand of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// A strided matrix.
    Strided(Matrix),
    /// An operand that is gathered or evaluated, one block of rows and terms at a time.
    Blocks(RowSource<'a>),
}

impl From<Matrix> for Left<'_> {
    fn from(matrix: Matrix) -> Self {
        Left::Strided(matrix)
    }
}
