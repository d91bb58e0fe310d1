//! Reads inputs of a node whose elements the import needs, for example those that decide shapes.

use eutectic_ir::{Dim, NodeId, Tensor, attr::Number};

use super::{super::error::NodeError, NodeCall};

impl NodeCall<'_, '_> {
    /// Returns an input that decides shapes.
    ///
    /// # Errors
    /// If the input depends on the model's inputs.
    pub fn known(&self, at: usize) -> Result<Tensor, NodeError> {
        let input = self.input(at)?;
        self.evaluated(input)?.ok_or_else(|| {
            let name = self.node.input.get(at).map_or("", |n| n);
            if let Some(dims) = self.lengths(input) {
                return NodeError(format!(
                    "its input `{name}` is {dims:?}, and this op needs fixed numbers; give these dimensions numbers"
                ));
            }
            NodeError(format!(
                "its input `{name}` decides shapes, but depends on the model's inputs; give those a fixed value"
            ))
        })
    }

    /// Returns the integers of an input that decides shapes. They may depend on run-time extents, but not on other
    /// inputs of the model.
    pub fn known_dims(&self, at: usize) -> Result<Vec<Dim>, NodeError> {
        match self.lengths(self.input(at)?) {
            Some(dims) => Ok(dims),
            None => Ok(self.known_ints(at)?.into_iter().map(Dim::Known).collect()),
        }
    }

    /// Returns the integers of a small value that depends on nothing but constants and run-time extents.
    pub fn lengths(&self, id: NodeId) -> Option<Vec<Dim>> {
        self.importer.lengths(id)
    }

    /// Returns the elements of a value that does not depend on the model's inputs. They are correctly rounded, while
    /// kernels may approximate. So use them to decide how to import a node, and not as a constant of the program.
    pub fn value(&self, id: NodeId) -> Option<Tensor> {
        self.importer.value(id)
    }

    /// Returns the elements of a known value if every kernel computes exactly the same bits.
    pub fn exact_value(&self, id: NodeId) -> Option<Tensor> {
        self.importer.exact_value(id)
    }

    /// Returns the elements of a value, with the rounding of [`NodeCall::value`]. It also evaluates large values, which
    /// the importer does not track.
    pub fn evaluated(&self, id: NodeId) -> Result<Option<Tensor>, NodeError> {
        self.importer.evaluated(id)
    }

    /// Returns the integers of an input that decides shapes. Fails if [`NodeCall::known`] does.
    pub fn known_ints(&self, at: usize) -> Result<Vec<i64>, NodeError> {
        Ok(self.known(at)?.to_i64())
    }

    /// Returns a list of integers. Older op sets have it as an attribute, and newer ones as an input.
    pub fn list(&self, attr: &str, at: usize) -> Result<Option<Vec<i64>>, NodeError> {
        match self.optional(at) {
            Some(_) => Ok(Some(self.known_ints(at)?)),
            None => self.ints(attr),
        }
    }

    /// Returns a known input that has exactly one element.
    fn known_element(&self, at: usize) -> Result<Tensor, NodeError> {
        let value = self.known(at)?;
        match value.count() {
            1 => Ok(value),
            n => Err(NodeError(format!("its input {at} has {n} elements, but must have one"))),
        }
    }

    /// Returns the number in a known input of one element.
    pub fn known_number(&self, at: usize) -> Result<f64, NodeError> {
        Ok(self.known_element(at)?.to_f64()[0])
    }

    /// Returns the integer in a known input of one element. A float is truncated.
    pub fn known_int(&self, at: usize) -> Result<i64, NodeError> {
        Ok(self.known_element(at)?.to_i64()[0])
    }

    /// Returns the number in a known input of one element, without rounding an integer to a float.
    pub fn known_exactly(&self, at: usize) -> Result<Number, NodeError> {
        let value = self.known_element(at)?;
        Ok(if value.dtype().is_float() { value.to_f64()[0].into() } else { value.to_i64()[0].into() })
    }
}
