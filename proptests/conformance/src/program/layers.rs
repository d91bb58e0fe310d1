//! Adds layers of models to random programs: products, norms, attention, convolutions and pooling.

use eutectic_ir::{Attr, NodeId, Shape};

use super::Generator;

impl Generator<'_> {
    pub(super) fn product(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let columns = self.extent();
        let depth = *dims.last()?;
        match self.below(3) {
            0 => {
                let w = self.param(x, &[depth, columns]);
                self.apply("matmul", &[x, w], &[])
            }
            1 => {
                let (w, b) = (self.param(x, &[depth, columns]), self.param(x, &[columns]));
                let act = self.pick(&["none", "relu", "gelu-erf"]);
                self.apply("linear", &[x, w, b], &[("act", act.into())])
            }
            _ => {
                let mut perm: Vec<i64> = (0..dims.len() as i64).collect();
                let last = perm.len();
                perm.get(last.checked_sub(2)?)?;
                perm.swap(last - 2, last - 1);
                let turned = self.apply("transpose", &[x], &[("perm", perm.as_slice().into())])?;
                self.apply("matmul", &[x, turned], &[])
            }
        }
    }

    /// Adds a gated linear unit, or a product with an adapter of low rank.
    pub(super) fn gated(&mut self, x: NodeId) -> Option<NodeId> {
        let depth = *self.dims(x).last()?;
        if depth.is_multiple_of(2) && self.below(2) == 0 {
            let (gate, act) = (self.pick(&["first", "second"]), self.pick(&["silu", "gelu-erf", "sigmoid"]));
            return self.apply("glu", &[x], &[("gate", gate.into()), ("act", act.into())]);
        }
        let (columns, rank) = (self.extent(), self.pick(&[1, 2, 5]));
        let (w, a, b) =
            (self.param(x, &[depth, columns]), self.param(x, &[depth, rank]), self.param(x, &[rank, columns]));
        self.apply("lora", &[x, w, a, b], &[("scale", 0.5.into())])
    }

    pub(super) fn norm(&mut self, x: NodeId) -> Option<NodeId> {
        let depth = *self.dims(x).last()?;
        let eps = ("eps", Attr::from(0.01));
        match self.below(4) {
            0 => self.apply("softmax", &[x], &[("axis", (-1_i64).into())]),
            1 => {
                let (g, b) = (self.param(x, &[depth]), self.param(x, &[depth]));
                let given = 2 + self.below(2);
                self.apply("layernorm", &[x, g, b][..given], &[eps])
            }
            2 => {
                let g = self.param(x, &[depth]);
                self.apply("rmsnorm", &[x, g], &[eps])
            }
            _ => {
                let (g, b) = (self.param(x, &[depth]), self.param(x, &[depth]));
                let r = self.partner(x).filter(|r| self.dims(*r) == self.dims(x)).unwrap_or(x);
                let both = self.apply("add-layernorm", &[x, r, g, b], &[eps])?;
                let at = self.below(2) as i64;
                self.apply("get", &[both], &[("index", at.into())])
            }
        }
    }

    pub(super) fn attention(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [.., rows, depth] = dims.as_slice() else { return None };
        let (rows, depth) = (*rows, *depth);
        if rows * depth == 0 {
            return None;
        }
        let keys = self.extent();
        let width = self.extent();
        let heads = 1 + self.below(2);
        let q = self.apply(
            "reshape",
            &[x],
            &[(
                "shape",
                [dims.iter().product::<usize>() / rows / depth, rows, depth].into_iter().collect::<Shape>().into(),
            )],
        )?;
        let batch = self.dims(q)[0];
        if !batch.is_multiple_of(heads) {
            return None;
        }
        let k = self.param(x, &[batch / heads, keys, depth]);
        let v = self.param(x, &[batch / heads, keys, width]);
        let kind = self.pick(&["none", "causal", "window", "keep", "additive"]);
        let mut operands = vec![q, k, v];
        if kind == "additive" {
            operands.push(self.param(x, &[1, keys]));
        } else if kind == "keep" {
            let weights = self.param(x, &[rows, keys]);
            let zero = self.graph.scalar(0.0, x).ok()?;
            operands.push(self.apply("lt", &[weights, zero], &[])?);
        }
        let window = if kind == "window" { 3 } else { 0 };
        let softcap = self.pick(&[0.0, 2.0]);
        self.apply(
            "sdpa",
            &operands,
            &[("scale", 0.3.into()), ("mask", kind.into()), ("window", Attr::Int(window)), ("softcap", softcap.into())],
        )
    }

    /// Adds a rotary embedding, or self-attention with one to three heads.
    pub(super) fn heads(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [.., rows, depth] = dims.as_slice() else { return None };
        let (rows, depth) = (*rows, *depth);
        if self.below(2) == 0 {
            let pairs = self.below(depth / 2 + 1);
            let (cos, sin) = (self.param(x, &[rows, pairs]), self.param(x, &[rows, pairs]));
            let style = self.pick(&["half", "adjacent"]);
            return self.apply("rope", &[x, cos, sin], &[("style", style.into())]);
        }
        let heads = [3, 2].into_iter().find(|n| depth.is_multiple_of(*n)).unwrap_or(1) as i64;
        let mask = self.pick(&["none", "causal", "window"]);
        let attrs = [
            ("heads", heads.into()),
            ("kv-heads", heads.into()),
            ("scale", 0.4.into()),
            ("mask", mask.into()),
            ("window", Attr::Int(if mask == "window" { 2 } else { 0 })),
        ];
        self.apply("mha", &[x, x, x], &attrs)
    }

    /// Reshapes a value to images, and adds a convolution, a pooling or a norm of channels.
    pub(super) fn image(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [outer @ .., rows, columns] = dims.as_slice() else { return None };
        let channels: usize = outer.iter().product();
        let (rows, columns) = (*rows, *columns);
        let batch = if channels.is_multiple_of(2) { 1 + self.below(2) } else { 1 };
        let channels = channels / batch;
        let shape = [batch, channels, rows, columns].into_iter().collect::<Shape>();
        let x = self.apply("reshape", &[x], &[("shape", shape.into())])?;
        let mut pair = |from: &[i64]| Attr::from([self.pick(from), self.pick(from)].as_slice());
        let size = pair(&[1, 2, 3]);
        let stride = ("stride", pair(&[1, 1, 2, 3]));
        let dilation = ("dilation", pair(&[1, 1, 2]));
        let edges = [("before", pair(&[0, 0, 1, 2])), ("after", pair(&[0, 0, 1]))];
        let [before, after] = edges;
        let taps: Vec<usize> = size.ints()?.iter().map(|&n| n as usize).collect();
        let eps = ("eps", Attr::from(0.01));
        match self.below(6) {
            0 | 1 => {
                let groups =
                    if channels.is_multiple_of(2) && channels > 0 { self.pick(&[1, 1, 2, channels]) } else { 1 };
                let results = groups * (1 + self.below(3)) * self.pick(&[1, 1, 8]);
                let w = self.param(x, &[results, channels / groups, taps[0], taps[1]]);
                let mut operands = vec![x, w];
                if self.below(2) == 0 {
                    operands.push(self.param(x, &[results]));
                }
                let groups = ("groups", Attr::Int(groups as i64));
                self.apply("conv", &operands, &[stride, dilation, before, after, groups])
            }
            2 => {
                let w = self.param(x, &[channels, 2, taps[0], taps[1]]);
                self.apply("conv-transpose", &[x, w], &[stride, dilation])
            }
            3 => {
                let size = ("size", size);
                if self.below(2) == 0 {
                    // There is no padding, because the maximum of a window that is completely in the padding is −∞.
                    return self.apply("max-pool", &[x], &[size, stride, dilation]);
                }
                let over = ("over", self.pick(&["window", "inside"]).into());
                self.apply("average-pool", &[x], &[size, stride, before, after, over])
            }
            4 => {
                let operands = [x, self.param(x, &[channels]), self.param(x, &[channels]), self.param(x, &[channels])];
                let variance = self.param(x, &[channels]);
                let variance = self.apply("abs", &[variance], &[])?;
                self.apply("batch-norm", &[operands.as_slice(), &[variance]].concat(), &[eps])
            }
            _ => {
                let (g, b) = (self.param(x, &[channels]), self.param(x, &[channels]));
                let groups = if channels.is_multiple_of(2) { 1 + self.below(2) } else { 1 };
                self.apply("group-norm", &[x, g, b], &[("groups", Attr::Int(groups as i64)), eps])
            }
        }
    }
}
