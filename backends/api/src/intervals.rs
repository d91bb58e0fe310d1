//! Bounds the values of a body over a box of its domain by interval arithmetic. The bounds of an attention's bias show
//! which blocks of scores it hides.

use std::ops::Range;

use eutectic_ir::{Interval, index::Index, ops::Order};

use crate::body::{Body, Guard, Instr, ValueId};

/// The effect of a bias on a block of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The bias is −∞ at every score, so the kernel can skip the block.
    Hidden,
    /// The bias is 0 at every score.
    Plain,
    /// The bounds prove neither, so the kernel evaluates the bias at each score.
    Mixed,
}

/// The bias of an attention, prepared for finding blocks of scores that it hides.
pub struct Mask<'a> {
    instrs: &'a [Instr],
    result: ValueId,
    values: Vec<Interval>,
}

impl<'a> Mask<'a> {
    /// Prepares the bias that `instrs` compute; `results` has its value. Returns `None` if no instruction is a
    /// coordinate or a selection, because the bounds of loaded values then show no hidden block.
    pub fn new(instrs: &'a [Instr], results: &[ValueId]) -> Option<Mask<'a>> {
        let by_place = |i: &Instr| matches!(i, Instr::Coordinate { .. } | Instr::Select { .. });
        let result = *results.first()?;
        instrs.iter().any(by_place).then(|| Mask { instrs, result, values: Vec::new() })
    }

    /// Returns the effect of the bias on the scores in a box of the domain. `bounds` has a range for each axis; none
    /// may be empty.
    pub fn of(&mut self, bounds: &[Range<usize>]) -> Visibility {
        evaluate(self.instrs, bounds, &mut self.values);
        match self.values[self.result] {
            Interval { high: f64::NEG_INFINITY, .. } => Visibility::Hidden,
            value if value.is(0.0) => Visibility::Plain,
            _ => Visibility::Mixed,
        }
    }
}

/// Returns the interval of each value of a body over its whole domain.
pub fn ranges(body: &Body) -> Vec<Interval> {
    let (mut values, bounds) = (Vec::new(), body.domain.iter().map(|&n| 0..n).collect::<Vec<_>>());
    evaluate(&body.instrs, &bounds, &mut values);
    values
}

/// Computes the interval of each instruction's values over a box.
fn evaluate(instrs: &[Instr], bounds: &[Range<usize>], values: &mut Vec<Interval>) {
    values.clear();
    for instr in instrs {
        let value = match instr {
            Instr::Constant { value, dtype } => Interval::exact(value.get()).of(*dtype),
            Instr::Coordinate { index, dtype } => {
                let range = within(index, bounds);
                Interval::new(range.start as f64, (range.end - 1) as f64).of(*dtype)
            }
            Instr::Within { arg, from_end: false, .. } => values[*arg],
            Instr::Within { dtype, .. } => Interval::any(*dtype),
            Instr::Map { op, args, dtype, .. } => match *args.as_slice() {
                [a] => (op.def().interval)(&[values[a]], *dtype),
                [a, b] => (op.def().interval)(&[values[a], values[b]], *dtype),
                [a, b, c] => (op.def().interval)(&[values[a], values[b], values[c]], *dtype),
                _ => Interval::any(*dtype),
            },
            Instr::Select { pieces, fill, dtype } => {
                select(pieces, Interval::exact(fill.get()).of(*dtype), bounds, values)
            }
            Instr::Row { op, attrs, dtype, .. } => match Order::of(*op, attrs) {
                Some(order) => Interval::new(0.0, order.most as f64).of(*dtype),
                None => Interval::any(*dtype),
            },
            Instr::Load(_) | Instr::Anchor { .. } => Interval::any(instr.dtype()),
        };
        values.push(value);
    }
}

/// Returns the union of the intervals of all pieces that may apply in a box. Pieces after one that always applies do
/// not count, nor does the fill value.
fn select(pieces: &[(Vec<Guard>, ValueId)], fill: Interval, bounds: &[Range<usize>], values: &[Interval]) -> Interval {
    let mut all: Option<Interval> = None;
    let mut add = |value: Interval| all = Some(all.map_or(value, |all| all.or(value)));
    for (guards, value) in pieces {
        let ranges = || guards.iter().map(|(index, range)| (within(index, bounds), range));
        if ranges().any(|(at, range)| at.end <= range.start || at.start >= range.end) {
            continue;
        }
        add(values[*value]);
        if ranges().all(|(at, range)| at.start >= range.start && at.end <= range.end) {
            return all.unwrap_or(fill);
        }
    }
    add(fill);
    all.unwrap_or(fill)
}

/// Returns the range of the values of a map over a box.
fn within(index: &Index, bounds: &[Range<usize>]) -> Range<i64> {
    index.bounds(&|axis| bounds[axis].start as i64..bounds[axis].end as i64)
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{Attrs, DType, Op};

    use super::*;

    /// Returns the bias `where(keep, 0, −∞)` of 24 queries and 40 keys. `keep` adds the condition to the body, given
    /// the values of the query's number and of the key's number.
    fn mask(keep: impl Fn(&mut Body, ValueId, ValueId) -> ValueId) -> Body {
        let mut body = Body { domain: vec![24, 40], ..Body::default() };
        let int = |axis| Instr::Coordinate { index: Index::coord(axis), dtype: DType::I32 };
        let number = |value: f64| Instr::Constant { value: value.into(), dtype: DType::F32 };
        body.instrs = vec![int(0), int(1), number(0.0), number(f64::NEG_INFINITY)];
        let keep = keep(&mut body, 0, 1);
        let bias = map(&mut body, "where", &[keep, 2, 3], DType::F32);
        body.results = vec![bias];
        body
    }

    fn map(body: &mut Body, op: &str, args: &[ValueId], dtype: DType) -> ValueId {
        let op = Op::named(op).expect("the op table has this op");
        body.instrs.push(Instr::Map { op, attrs: Attrs::default(), args: args.to_vec(), dtype });
        body.instrs.len() - 1
    }

    fn constant(body: &mut Body, n: i64) -> ValueId {
        body.instrs.push(Instr::Constant { value: (n as f64).into(), dtype: DType::I32 });
        body.instrs.len() - 1
    }

    /// Evaluates the bias of a query and a key with the op table.
    fn at(nest: &Body, point: [usize; 2]) -> f64 {
        let mut values: Vec<(f64, DType)> = Vec::new();
        for instr in &nest.instrs {
            let value = match instr {
                Instr::Coordinate { index, .. } => index.eval(&point, &|_| 0) as f64,
                Instr::Constant { value, dtype } => value.tensor(*dtype).to_f64()[0],
                Instr::Map { op, attrs, args, dtype } => {
                    let args: Vec<_> = args.iter().map(|&a| values[a]).collect();
                    op.fold(attrs, &args, *dtype).expect("the op folds small numbers")
                }
                _ => unreachable!("masks have none"),
            };
            values.push((value, instr.dtype()));
        }
        values[nest.results[0]].0
    }

    #[test]
    fn blocks_of_usual_masks_are_told_apart_exactly_where_they_are_large_enough() {
        let causal = mask(|b, q, k| map(b, "le", &[k, q], DType::Bool));
        let window = mask(|b, q, k| {
            let size = constant(b, 7);
            let first = map(b, "sub", &[q, size], DType::I32);
            let (past, near) = (map(b, "le", &[k, q], DType::Bool), map(b, "gt", &[k, first], DType::Bool));
            map(b, "and", &[past, near], DType::Bool)
        });
        let diagonal = mask(|b, q, k| {
            let size = constant(b, 8);
            let (q, k) = (map(b, "div", &[q, size], DType::I32), map(b, "div", &[k, size], DType::I32));
            map(b, "eq", &[q, k], DType::Bool)
        });
        for nest in [causal, window, diagonal] {
            let mut of = Mask::new(&nest.instrs, &nest.results).expect("the bias depends on coordinates");
            let (mut hidden, mut plain) = (0, 0);
            for (q, k) in (0..6).flat_map(|q| (0..10).map(move |k| (4 * q, 4 * k))) {
                let all: Vec<f64> =
                    (q..q + 4).flat_map(|q| (k..k + 4).map(move |k| [q, k])).map(|p| at(&nest, p)).collect();
                let got = of.of(&[q..q + 4, k..k + 4]);
                let want = match () {
                    () if all.iter().all(|&x| x == f64::NEG_INFINITY) => Visibility::Hidden,
                    () if all.iter().all(|&x| x == 0.0) => Visibility::Plain,
                    () => Visibility::Mixed,
                };
                assert_eq!(got, want, "queries from {q}, keys from {k}");
                hidden += usize::from(got == Visibility::Hidden);
                plain += usize::from(got == Visibility::Plain);
            }
            assert!(hidden > 10 && plain > 0 || plain + hidden > 40, "{hidden} hidden, {plain} plain");
        }
    }
}
