//! Adds ops on elements or along axes to random programs: conversions, arithmetic, comparisons, reductions and scans.

use eutectic_ir::{DType, NodeId};

use super::{EVERYWHERE, FLOATS, Generator};

impl Generator<'_> {
    /// Adds a conversion to an element type, mostly to a floating-point type.
    pub(super) fn conversion(&mut self) -> Option<NodeId> {
        let from = self.any();
        let to = if self.below(2) == 0 { self.pick(FLOATS) } else { self.pick(EVERYWHERE) };
        self.apply("cast", &[from], &[("to", to.into())])
    }

    /// Adds arithmetic on integers or a reduction of them, or converts a truth value to an integer.
    pub(super) fn whole(&mut self) -> Option<NodeId> {
        let n = self.other();
        if self.dtype(n) == DType::Bool {
            return self.apply("cast", &[n], &[("to", DType::I32.into())]);
        }
        match self.below(4) {
            0 => self.apply("neg", &[n], &[]),
            1 => {
                let op = self.pick(&["reduce-sum", "reduce-max", "reduce-min"]);
                let (axis, keep) = (self.below(self.dims(n).len()) as i64, self.below(2) == 0);
                self.apply(op, &[n], &[("axes", [axis].as_slice().into()), ("keep", keep.into())])
            }
            _ => {
                let op = self.pick(&["add", "sub", "mul", "max", "min", "div", "mod"]);
                let other = self.partner(n)?;
                self.apply(op, &[n, other], &[])
            }
        }
    }

    /// Adds a comparison, or an op on truth values.
    pub(super) fn truth(&mut self) -> Option<NodeId> {
        let n = self.any();
        if self.dtype(n) != DType::Bool {
            let op = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
            let other = self.partner(n)?;
            return self.apply(op, &[n, other], &[]);
        }
        match self.below(3) {
            0 => self.apply("not", &[n], &[]),
            1 => {
                let (a, b) = (self.partner(n)?, self.partner(n)?);
                self.apply("where", &[n, a, b], &[])
            }
            _ => {
                let op = self.pick(&["and", "or", "xor"]);
                let other = self.partner(n)?;
                self.apply(op, &[n, other], &[])
            }
        }
    }

    pub(super) fn unary(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["neg", "abs", "tanh", "sigmoid", "erf", "exp", "sqrt", "sin", "act", "log", "rsqrt"]);
        match op {
            "act" => {
                let kind = self.pick(&["relu", "gelu-erf", "gelu-tanh", "silu"]);
                self.apply("act", &[x], &[("kind", kind.into())])
            }
            // The operand is bounded first, so that the result stays in a range in which its error can be judged.
            "exp" => {
                let small = self.apply("tanh", &[x], &[])?;
                self.apply("exp", &[small], &[])
            }
            "sqrt" | "log" | "rsqrt" => {
                let size = self.apply("abs", &[x], &[])?;
                let half = self.graph.scalar(0.5, x).ok()?;
                let away = self.apply("add", &[size, half], &[])?;
                self.apply(op, &[away], &[])
            }
            op => self.apply(op, &[x], &[]),
        }
    }

    pub(super) fn binary(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["add", "sub", "mul", "max", "min", "div"]);
        let other = self.partner(x)?;
        if op == "div" {
            let size = self.apply("abs", &[other], &[])?;
            let one = self.graph.scalar(1.0, x).ok()?;
            let away = self.apply("add", &[size, one], &[])?;
            return self.apply("div", &[x, away], &[]);
        }
        if self.below(2) == 0 { self.apply(op, &[x, other], &[]) } else { self.apply(op, &[other, x], &[]) }
    }

    /// Returns an operand that broadcasts against `x`: a scalar, a row or another slice of parameters, or a value of
    /// the same type.
    pub(super) fn partner(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        match self.below(4) {
            0 => {
                let number = self.pick(&[0.0, 1.0, -1.0, 0.5, 2.0]);
                self.graph.scalar(number, x).ok()
            }
            1 => Some(self.param(x, &dims[dims.len().saturating_sub(1)..])),
            2 => {
                let mut dims = dims;
                let axis = self.below(dims.len());
                *dims.get_mut(axis)? = 1;
                Some(self.param(x, &dims))
            }
            _ => {
                let other = if self.is_float(x) { self.value() } else { self.other() };
                (self.graph.ty(other) == self.graph.ty(x)).then_some(other).or(Some(x))
            }
        }
    }

    pub(super) fn selection(&mut self, x: NodeId) -> Option<NodeId> {
        let other = self.partner(x)?;
        let op = self.pick(&["lt", "le", "gt", "ge"]);
        let condition = self.apply(op, &[x, other], &[])?;
        let a = self.partner(x)?;
        self.apply("where", &[condition, a, x], &[])
    }

    pub(super) fn reduction(&mut self, x: NodeId) -> Option<NodeId> {
        if self.below(4) == 0 {
            return self.scan(x);
        }
        let op = self.pick(&["reduce-sum", "reduce-max", "reduce-min", "reduce-mean"]);
        let rank = self.dims(x).len();
        let first = self.below(rank);
        let count = 1 + self.below(rank - first);
        let axes: Vec<i64> = (first..first + count).map(|a| a as i64).collect();
        let keep = self.below(2) == 0;
        self.apply(op, &[x], &[("axes", axes.as_slice().into()), ("keep", keep.into())])
    }

    /// Adds a scan along some axis. Factors of products and recurrences are at most 1, so that results stay in range.
    fn scan(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["scan-sum", "scan-prod", "scan-max", "scan-min", "scan-linear"]);
        let operands = match op {
            "scan-prod" => vec![self.apply("cos", &[x], &[])?],
            "scan-linear" => vec![self.apply("cos", &[x], &[])?, x],
            _ => vec![x],
        };
        let axis = self.below(self.dims(x).len());
        let [reverse, exclusive] = [self.below(2), self.below(2)].map(|n| n == 0);
        let attrs = [("axis", (axis as i64).into()), ("reverse", reverse.into()), ("exclusive", exclusive.into())];
        self.apply(op, &operands, &attrs)
    }
}
