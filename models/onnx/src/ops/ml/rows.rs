//! Reads the features of classical models, and lists of numbers in attributes.

use eutectic_ir::{DType, Dim, NodeId};

use crate::{call::NodeCall, error::NodeError};

/// The features that a model receives, with a row for each sample.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The features [count width].
    pub x: NodeId,
    pub width: usize,
}

impl Rows {
    /// Reads the first input: a matrix, or a vector that counts as one row. Integers are cast to `f32`.
    pub fn read(c: &mut NodeCall<'_, '_>) -> Result<Rows, NodeError> {
        let x = c.input(0)?;
        let dims = c.shape(x);
        let width = match &dims[..] {
            [width] | [_, width] => c.fix(width),
            _ => {
                return Err(
                    format!("its features have extents {dims:?}; they must be [rows features] or [features]").into()
                );
            }
        };
        let count = if dims.len() == 2 { dims[0].clone() } else { Dim::Known(1) };
        let x = c.reshape(x, &[count, width.into()])?;
        let float = if c.dtype(x).is_float() { c.dtype(x) } else { DType::F32 };
        Ok(Rows { x: c.cast(x, float)?, width })
    }

    /// Returns the number of rows.
    pub fn count(&self, c: &NodeCall<'_, '_>) -> Dim {
        c.shape(self.x)[0].clone()
    }

    /// Reads the first input like [`Rows::read`], and casts it to `f32`.
    pub fn single(c: &mut NodeCall<'_, '_>) -> Result<Rows, NodeError> {
        let rows = Rows::read(c)?;
        Ok(Rows { x: c.cast(rows.x, DType::F32)?, ..rows })
    }

    /// Checks that rows have the width that the coefficients require.
    pub fn wanted(&self, width: usize) -> Result<(), NodeError> {
        match self.width == width {
            true => Ok(()),
            false => Err(format!("its rows have {} features, but its coefficients are for {width}", self.width).into()),
        }
    }
}

/// Returns the numbers of a required attribute.
pub(super) fn numbers(c: &NodeCall<'_, '_>, name: &str) -> Result<Vec<f64>, NodeError> {
    c.floats(name)?.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")))
}

/// Checks the length of a list.
pub(super) fn check_count(what: &str, given: usize, wanted: usize) -> Result<(), NodeError> {
    if given == wanted { Ok(()) } else { Err(format!("it has {given} {what}, but must have {wanted}").into()) }
}
