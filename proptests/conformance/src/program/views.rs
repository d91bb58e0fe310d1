//! Adds views and gathers, which need no arithmetic, to random programs.

use eutectic_ir::{Attr, DType, NodeId, Shape};

use super::Generator;

impl Generator<'_> {
    pub(super) fn shape_view(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        match self.below(3) {
            0 => {
                let mut perm: Vec<i64> = (0..dims.len() as i64).collect();
                for i in (1..perm.len()).rev() {
                    let j = self.below(i + 1);
                    perm.swap(i, j);
                }
                self.apply("transpose", &[x], &[("perm", perm.as_slice().into())])
            }
            1 => {
                // Merges two axes, splits one, or inserts an axis of extent 1.
                let mut shape = dims.clone();
                let axis = self.below(dims.len());
                let by = self.pick(&[2, 3, 5]);
                if axis + 1 < shape.len() {
                    let merged = shape[axis] * shape[axis + 1];
                    shape.splice(axis..axis + 2, [merged]);
                } else if shape.get(axis)?.is_multiple_of(by) {
                    shape.splice(axis..=axis, [by, dims[axis] / by]);
                } else {
                    shape.insert(axis, 1);
                }
                self.apply("reshape", &[x], &[("shape", shape.into_iter().collect::<Shape>().into())])
            }
            _ => {
                let mut shape = dims;
                shape.insert(0, 2);
                self.apply("expand", &[x], &[("shape", shape.into_iter().collect::<Shape>().into())])
            }
        }
    }

    pub(super) fn part_view(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let axis = self.below(dims.len());
        let extent = *dims.get(axis)?;
        let axis = ("axis", Attr::Int(axis as i64));
        match self.below(4) {
            3 => {
                let (size, stride, dilation) = (1 + self.below(3), 1 + self.below(3), 1 + self.below(2));
                let number = |n: usize| Attr::Int(n as i64);
                let attrs = [axis, ("size", number(size)), ("stride", number(stride)), ("dilation", number(dilation))];
                self.apply("window", &[x], &attrs)
            }
            0 => {
                let at = self.below(extent);
                let len = 1 + self.below(extent - at);
                self.apply("slice", &[x], &[axis, ("at", (at as i64).into()), ("len", (len as i64).into())])
            }
            1 => {
                let (before, after) = (self.below(3) as i64, self.below(3) as i64);
                let value = if self.dtype(x).is_float() { 0.5 } else { 1.0 };
                self.apply(
                    "pad",
                    &[x],
                    &[axis, ("before", before.into()), ("after", after.into()), ("value", value.into())],
                )
            }
            _ => {
                let other = if self.is_float(x) { self.value() } else { self.other() };
                self.apply("concat", &[x, other], std::slice::from_ref(&axis))
                    .or_else(|| self.apply("concat", &[x, x], &[axis]))
            }
        }
    }

    pub(super) fn gather(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let axis = self.below(dims.len());
        let extent = *dims.get(axis).filter(|&&n| n > 0)? as i64;
        let count = self.extent();
        let ids: Vec<i64> = (0..count).map(|_| self.below(extent as usize) as i64).collect();
        let ids = self.graph.constant(eutectic_ir::Tensor::from_i64(DType::I64, &[count], ids)).ok()?;
        self.apply("gather", &[x, ids], &[("axis", (axis as i64).into())])
    }
}
