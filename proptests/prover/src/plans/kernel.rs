//! The semantics of a kernel: the value of its result at a point of its domain, as its bodies, its index maps and the
//! definition of its anchor give it.

use std::{ops::Range, rc::Rc};

use eutectic_backend::{Body, Guard, Instr, Kernel, ValueId};
use eutectic_ir::{
    Attr,
    attr::Number,
    index::{ANYTHING, Atom as Part, Index},
    ops::{Reduction, RowOp},
};
use eutectic_lowering::build::KernelOfClasses;

use super::memory::{Memory, extent, unflattened};
use crate::{
    call::{Call, Case, reduce},
    facts::{Res, stop},
    integers,
    ops::{self, Head},
    scope::literal,
    shape::{Item, Tensor},
    side::fitted,
    term::{Poly, T, Term, Ty, apply, choose, num, product},
};

/// An evaluator of a kernel.
pub struct Reader<'a> {
    case: &'a Rc<Case>,
    built: &'a KernelOfClasses,
    kernel: &'a Kernel,
    memory: &'a Memory<'a>,
}

/// Returns the place of a group's first axis in a domain of this layout.
fn place(layout: &[usize], groups: &[usize], group: usize) -> Option<usize> {
    let at = layout.iter().position(|&g| g == group)?;
    Some(layout[..at].iter().map(|&g| groups[g]).sum())
}

/// Makes a constant. Integers that no float represents stay integers.
fn constant(n: Number) -> T {
    n.float().map_or_else(|| Rc::new(Term::Index(Poly::int(i128::from(n.int())))), num)
}

/// Returns the value of a float attribute.
fn float(attrs: &[Attr], n: usize) -> T {
    num(attrs.get(n).and_then(Attr::float).unwrap_or_default())
}

impl<'a> Reader<'a> {
    /// Makes an evaluator of a kernel.
    pub fn new(case: &'a Rc<Case>, built: &'a KernelOfClasses, memory: &'a Memory<'a>) -> Reader<'a> {
        Reader { case, built, kernel: &built.kernel, memory }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &'a Kernel {
        self.kernel
    }

    /// Returns the extents of a body's axes.
    fn extents(&self, body: &Body) -> Vec<Poly> {
        let of = |(axis, most): (usize, &usize)| match body.lengths.iter().find(|(a, _)| *a == axis) {
            Some((_, dim)) => extent(self.case, dim),
            None => Poly::int(*most as i128),
        };
        body.domain.iter().enumerate().map(of).collect()
    }

    /// Evaluates an index map at a point.
    pub fn index(&self, body: &Body, index: &Index, at: &[Poly]) -> Res<Poly> {
        let mut sum = Poly::int(i128::from(index.constant));
        for (part, c) in &index.terms {
            let of = match part {
                Part::Coord(n) => {
                    at.get(*n).cloned().map_or_else(|| stop("an index map uses a missing coordinate"), Ok)?
                }
                Part::Div(of, by) => self.case.facts.divided(&self.index(body, of, at)?, &Poly::int(i128::from(*by))).0,
                Part::Mod(of, by) => self.case.facts.divided(&self.index(body, of, at)?, &Poly::int(i128::from(*by))).1,
                Part::Value(id) => integers::id(&self.case.facts, self.value(body, *id, at)?),
                Part::Extent(dim) => extent(self.case, dim),
            };
            sum = sum.plus_times(&of, i128::from(*c));
        }
        Ok(sum)
    }

    /// Returns the guards as polynomials that are at least 0.
    pub fn conditions(&self, body: &Body, guards: &[Guard], at: &[Poly]) -> Res<Vec<Poly>> {
        let mut all = Vec::new();
        for (index, Range { start, end }) in guards {
            let p = self.index(body, index, at)?;
            if *start > ANYTHING.start {
                all.push(&p - &Poly::int(i128::from(*start)));
            }
            if *end < ANYTHING.end {
                all.push(&Poly::int(i128::from(*end) - 1) - &p);
            }
        }
        Ok(all)
    }

    /// Evaluates a value of a body at a point.
    pub fn value(&self, body: &Body, id: ValueId, at: &[Poly]) -> Res<T> {
        self.case.step(1)?;
        let instr = &body.instrs[id];
        let ty = Ty::fixed(instr.dtype());
        Ok(match instr {
            Instr::Anchor { .. } => self.anchor(&ty, at)?,
            Instr::Load(load) => {
                let conditions = self.conditions(body, &load.guards, at)?;
                let flat = self.case.facts.assume(conditions, || self.index(body, &load.at, at))?;
                self.memory.element(self.built.classes[load.slot], &ty, flat)?
            }
            Instr::Constant { value, .. } => constant(*value),
            Instr::Coordinate { index, dtype } => {
                let index = Rc::new(Term::Index(self.index(body, index, at)?));
                if *dtype == eutectic_ir::DType::I64 { index } else { apply("wrap", &ty, vec![index]) }
            }
            Instr::Within { arg, extent, from_end, check, .. } => {
                let id = self.value(body, *arg, at)?;
                let asked = self.built.checks.get(*check).map(|class| self.memory.class(*class));
                match asked.and_then(|class| class.nodes.iter().find(|node| node.op.def().ids.is_some())) {
                    Some(node) => apply(&format!("checked {:?}", node.attrs), &ty, vec![id]),
                    None if *from_end => {
                        return stop(format!("ids of {extent} that count from the end are unsupported"));
                    }
                    None => id,
                }
            }
            Instr::Map { op, attrs, args, .. } => {
                let args = args.iter().map(|a| self.value(body, *a, at)).collect::<Res<Vec<_>>>()?;
                self.pointwise(op.name(), attrs, &ty, args)
            }
            Instr::Row { op, attrs, args, .. } => self.row(body, (*op, attrs), args, at)?,
            Instr::Select { pieces, fill, .. } => self.select(body, pieces, constant(*fill), at)?,
        })
    }

    fn pointwise(&self, op: &str, attrs: &[Attr], ty: &Ty, args: Vec<T>) -> T {
        match op {
            "act" => apply(&format!("act {}", attrs.first().and_then(Attr::word).unwrap_or_default()), ty, args),
            "clamp" => {
                let least = apply("max", ty, vec![args[0].clone(), float(attrs, 0)]);
                apply("min", ty, vec![least, float(attrs, 1)])
            }
            op => apply(op, ty, args),
        }
    }

    fn select(&self, body: &Body, pieces: &[(Vec<Guard>, ValueId)], fill: T, at: &[Poly]) -> Res<T> {
        let Some(((guards, value), rest)) = pieces.split_first() else { return Ok(fill) };
        let facts = &self.case.facts;
        let conditions = self.conditions(body, guards, at)?;
        if conditions.iter().any(|p| facts.nonneg(&(&Poly::int(-1) - p))) {
            return self.select(body, rest, fill, at);
        }
        let open: Vec<Poly> = conditions.iter().filter(|p| !facts.nonneg(p)).cloned().collect();
        let then = facts.assume(conditions, || self.value(body, *value, at))?;
        if open.is_empty() {
            return Ok(then);
        }
        // If the first piece has a single condition, the other pieces are evaluated under its negation.
        let not: Vec<Poly> = if let [p] = open.as_slice() { vec![&Poly::int(-1) - p] } else { Vec::new() };
        let otherwise = facts.assume(not, || self.select(body, rest, fill, at))?;
        Ok(choose(open, then, otherwise))
    }

    /// Evaluates a row operation by the semantics of its op, on tensors with the axes of the row.
    fn row(&self, body: &Body, (op, attrs): (eutectic_ir::Op, &[Attr]), args: &[ValueId], at: &[Poly]) -> Res<T> {
        let axes = self.kernel.row_axes().unwrap_or(0);
        let (outer, inner) = at.split_at(at.len() - axes);
        let extents = self.extents(body).split_off(outer.len());
        let shape: Vec<Item> = extents.iter().cloned().map(Item::axis).collect();
        let Some(semantics) = ops::semantics(op) else { return stop(format!("op `{op}` has no semantics yet")) };
        if axes != 1 && !op.row().is_some_and(RowOp::is_per_row) {
            return stop(format!("`{op}` along several axes is unsupported"));
        }
        let value = |n: usize, index: &[Poly]| self.value(body, args[n], &[outer, index].concat());
        let fresh: Vec<(u32, Poly)> = extents.iter().map(|e| (self.case.facts.index(e), e.clone())).collect();
        let vars: Vec<Poly> = fresh.iter().map(|(v, _)| Poly::var(*v)).collect();
        let tensors = (0..args.len()).map(|n| {
            let there: Vec<Poly> = extents.iter().map(|e| e - &Poly::int(1)).collect();
            let of = self.case.facts.assume(there, || value(n, &vars))?;
            let (case, ids) = (Rc::clone(self.case), fresh.iter().map(|(v, _)| *v).collect::<Vec<_>>());
            let ty = Ty::fixed(body.instrs[args[n]].dtype());
            Ok(Tensor::new(ty, shape.clone(), move |index| {
                crate::bind::with(&case.facts, &of, &ids.iter().copied().zip(index.iter().cloned()).collect())
            }))
        });
        let args = tensors.collect::<Res<Vec<_>>>()?;
        let on = args.first().map(|a| a.shape.clone());
        let attrs = op.def().attrs.iter().zip(attrs).map(|(def, attr)| match literal(attr) {
            // The operation reduces all axes of the row.
            Some(_) if def.name == "axes" => {
                Ok(crate::call::Value::Axes((1..=axes as i128).rev().map(Poly::int).collect()))
            }
            Some(value) => fitted(def.kind, value, on.as_ref()),
            None => stop(format!("the value of the attribute `{}` of `{op}` is unsupported", def.name)),
        });
        let attrs = attrs.collect::<Res<Vec<_>>>()?;
        let call = Call { case: Rc::clone(self.case), op: op.name(), attrs, args };
        let result = semantics(&call)?.remove(0);
        // A result with one value per row has axes of extent 1.
        let index: Vec<Poly> = result
            .shape
            .iter()
            .enumerate()
            .map(|(n, item)| if item.is_one() { Poly::zero() } else { inner.get(n).cloned().unwrap_or_default() })
            .collect();
        (result.at)(&index)
    }

    /// Evaluates the anchor's result at a point, by its definition.
    fn anchor(&self, ty: &Ty, at: &[Poly]) -> Res<T> {
        let groups = self.kernel.groups();
        let of = |group: usize, layout: &[usize], at: &[Poly]| -> Vec<Poly> {
            let first = place(layout, &groups, group).unwrap_or(0);
            at.get(first..first + groups[group]).map_or_else(Vec::new, <[Poly]>::to_vec)
        };
        let own = self.kernel.anchor.def().results[0].layout;
        let operand = |n: usize, parts: &[(usize, &[Poly])]| -> Res<T> {
            let body = &self.kernel.anchor.operands[n];
            let layout = self.kernel.anchor.def().operands[n].layout;
            let at: Vec<Poly> = layout
                .iter()
                .flat_map(|group| parts.iter().find(|(g, _)| g == group).map_or(&[][..], |(_, at)| at).to_vec())
                .collect();
            self.value(body, body.results[0], &at)
        };
        let extents = |n: usize, group: usize| -> Vec<Poly> {
            let body = &self.kernel.anchor.operands[n];
            let layout = self.kernel.anchor.def().operands[n].layout;
            let first = place(layout, &groups, group).unwrap_or(0);
            self.extents(body).get(first..first + groups[group]).map_or_else(Vec::new, <[Poly]>::to_vec)
        };
        match self.kernel.kind() {
            "matmul" => {
                let (batch, rows, columns) = (of(0, own, at), of(1, own, at), of(2, own, at));
                let sum = reduce(self.case, Reduction::Sum, ty, &extents(0, 3), |k| {
                    let x = operand(0, &[(0, &batch), (1, &rows), (3, k)])?;
                    let y = operand(1, &[(0, &batch), (3, k), (2, &columns)])?;
                    Ok(apply("mul", ty, vec![x, y]))
                })?;
                Ok(apply("round matmul", ty, vec![sum]))
            }
            "attention" => {
                let (batch, queries, columns) = (of(0, own, at), of(1, own, at), of(4, own, at));
                let attrs = &self.kernel.anchor.attrs;
                let (keys, depth) = (extents(1, 2), extents(0, 3));
                // A group of several axes counts as one axis in row-major order.
                let of_key = |j: &Poly| unflattened(self.case, j, &keys);
                let of_depth = |d: &Poly| unflattened(self.case, d, &depth);
                let bias = |j: &Poly| operand(3, &[(0, &batch), (1, &queries), (2, &of_key(j))]);
                let (scale, softcap) = (float(attrs, 0), float(attrs, 1));
                let head = Head {
                    case: self.case,
                    ty,
                    op: "attention",
                    depth: product(&depth),
                    keys: product(&keys),
                    query: &|d| operand(0, &[(0, &batch), (1, &queries), (3, &of_depth(d))]),
                    key: &|j, d| operand(1, &[(0, &batch), (2, &of_key(j)), (3, &of_depth(d))]),
                    value: &|j| operand(2, &[(0, &batch), (2, &of_key(j)), (4, &columns)]),
                    bias: if self.kernel.anchor.operands.len() > 3 { Some(&bias) } else { None },
                    scale: &scale,
                    softcap: &softcap,
                    empty: attrs.get(2).and_then(Attr::word).unwrap_or("nan"),
                };
                Ok(apply("round attention", ty, vec![head.attend()?]))
            }
            other => stop(format!("the anchor `{other}` has no semantics yet")),
        }
    }
}
