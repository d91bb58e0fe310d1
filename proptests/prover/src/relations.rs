//! Evaluates the `where` relations of a rule: they bind variables and add facts.

use std::rc::Rc;

use eutectic_ir::lang::{
    DimPattern, DimsPattern, RelationCall,
    relation::RelationArg,
    typing::{DimsItem, VarId},
};
use eutectic_rewrites::rule::{AttrVariable, VariableKind};

use crate::{
    call::{Perm, Value},
    facts::{Res, stop},
    scope::Scope,
    shape::{Item, Shape, count, find, sequence},
    term::{Poly, Ty},
};

impl Scope<'_> {
    /// Evaluates the relations of the rule: binds the variables that they determine, and records facts.
    pub fn relations(&mut self) -> Res<()> {
        // Relations that bind variables come before those that only compare.
        let rule = self.rule;
        let (binding, asking): (Vec<_>, Vec<_>) =
            rule.relations.iter().map(|(call, _)| call).partition(|call| call.relation.name != "at-most");
        for call in binding.into_iter().chain(asking) {
            self.relation(call)?;
        }
        for variable in &rule.variables {
            if let (Some((least, _)), VariableKind::Tensor { .. }) = (variable.domain, &variable.kind)
                && least >= 0.0
            {
                self.case.positive.borrow_mut().push(variable.name.as_str().into());
            }
            if let (Some((least, _)), VariableKind::Number(_)) = (variable.domain, &variable.kind)
                && least >= 0.0
            {
                self.note_number(&variable.name, "positive");
            }
        }
        for variable in &rule.variables {
            if let VariableKind::Attr(slot, AttrVariable::Perm) = variable.kind {
                self.attrs
                    .entry(slot)
                    .or_insert_with(|| Value::Perm(Perm::Named(variable.name.as_str().into(), Vec::new())));
            }
        }
        for (_, ty, _) in rule.tensors() {
            for item in self.shape(&ty.dims)? {
                self.case.facts.note(item.extent);
            }
        }
        Ok(())
    }

    fn note_number(&self, name: &str, property: &str) {
        self.case.numbers.borrow_mut().entry(name.into()).or_default().push(property.into());
    }

    fn relation(&mut self, call: &RelationCall) -> Res<()> {
        // These may be ignored: a proof with fewer facts is still a proof.
        if call.negated || call.relation.name == "divides" {
            return Ok(());
        }
        let one = Poly::int(1);
        let facts = |scope: &Scope<'_>, all: Vec<Poly>| all.into_iter().for_each(|p| scope.case.facts.note(p));
        match (call.relation.name, call.args.as_slice()) {
            ("positive" | "nonzero" | "hides" | "inverts" | "whole" | "between", [RelationArg::Attr(slot), ..]) => {
                let name = self.name(*slot).to_string();
                self.note_number(&name, call.relation.name);
            }
            ("count", [a, RelationArg::Dim(n)]) => {
                let elements = count(&self.arg_shape(a)?);
                self.equal_dims(n, elements)?;
            }
            ("same-count", [RelationArg::Dims(a), RelationArg::Dims(c)]) => {
                let elements = count(&self.shape(a)?);
                match c.0.as_slice() {
                    [DimsItem::Many(slot)] if self.sequences[slot].len() == 1 => {
                        self.sequences.get_mut(slot).expect("each sequence variable has axes")[0].extent = elements;
                    }
                    _ => return stop("the relation `same-count` of these shapes is unsupported"),
                }
            }
            ("equal", [RelationArg::Attr(slot), RelationArg::Dim(p)]) => {
                let value = self.dim(p)?;
                self.attrs.insert(*slot, Value::Int(value));
            }
            ("equal", [RelationArg::Dim(a), RelationArg::Dim(b)]) => {
                let value = self.dim(b)?;
                self.equal_dims(a, value)?;
            }
            ("at-most", [a, b]) => {
                let (a, b) = (self.arg_int(a)?, self.arg_int(b)?);
                self.case.facts.note(&b - &a);
            }
            ("windows", [l, b, a, p, s, d, RelationArg::Dim(n)]) => {
                let of = |arg: &RelationArg| self.arg_int(arg);
                let (l, b, a, p, s, d) = (of(l)?, of(b)?, of(a)?, of(p)?, of(s)?, of(d)?);
                let room = &(&(&l + &b) + &a) - &(&(&d * &(&p - &one)) + &one);
                facts(self, vec![b, a, &p - &one, &s - &one, &d - &one, room.clone()]);
                let (steps, rest) = self.case.facts.divided(&room, &s);
                facts(self, vec![&(&s - &one) - &rest]);
                self.equal_dims(n, &steps + &one)?;
            }
            ("extent", [a, axis, RelationArg::Dim(n)]) => {
                let shape = self.arg_shape(a)?;
                let at = find(&shape, &self.arg_axis(axis)?)?;
                self.equal_dims(n, shape[at].extent.clone())?;
            }
            ("slice", [a, axis, at, len, step, RelationArg::Dims(c)]) => {
                let mut shape = self.arg_shape(a)?;
                let place = find(&shape, &self.arg_axis(axis)?)?;
                let (at, len, step) = (self.arg_int(at)?, self.arg_int(len)?, self.arg_int(step)?);
                facts(self, vec![at.clone(), len.clone()]);
                if step == one {
                    facts(self, vec![&(&shape[place].extent - &at) - &len]);
                }
                shape[place].extent = len;
                self.unify(c, shape)?;
            }
            ("pad", [a, axis, before, after, RelationArg::Dims(c)]) => {
                let mut shape = self.arg_shape(a)?;
                let place = find(&shape, &self.arg_axis(axis)?)?;
                let (before, after) = (self.arg_int(before)?, self.arg_int(after)?);
                facts(self, vec![before.clone(), after.clone()]);
                shape[place].extent = &(&shape[place].extent + &before) + &after;
                self.unify(c, shape)?;
            }
            ("window", [a, axis, size, stride, dilation, RelationArg::Dims(c)]) => {
                let mut shape = self.arg_shape(a)?;
                let place = find(&shape, &self.arg_axis(axis)?)?;
                let (size, stride, dilation) = (self.arg_int(size)?, self.arg_int(stride)?, self.arg_int(dilation)?);
                let room = &shape[place].extent - &(&(&dilation * &(&size - &one)) + &one);
                facts(self, vec![&size - &one, &stride - &one, &dilation - &one, room.clone()]);
                let (steps, _) = self.case.facts.divided(&room, &stride);
                shape[place].extent = &steps + &one;
                shape.insert(place + 1, Item::axis(size));
                self.unify(c, shape)?;
            }
            ("broadcasts-to", [a, b]) => {
                let pair = (self.arg_shape(a)?, self.arg_shape(b)?);
                self.case.broadcasts.borrow_mut().push(pair);
            }
            ("broadcast", [a, b, c]) => {
                let (a, b, c) = (self.arg_shape(a)?, self.arg_shape(b)?, self.arg_shape(c)?);
                self.case.broadcasts.borrow_mut().extend([(a, c.clone()), (b, c)]);
            }
            ("matrix-transpose", [a, RelationArg::Attr(p)]) => {
                let shape = self.arg_shape(a)?;
                self.swap(&shape, 1, 2, *p)?;
            }
            ("swap", [a, x, y, RelationArg::Attr(p)]) => {
                let shape = self.arg_shape(a)?;
                let known =
                    |arg: &RelationArg| self.arg_int(arg).map(|n| n.known().unwrap_or(0).unsigned_abs() as usize);
                let (x, y) = (known(x)?, known(y)?);
                self.swap(&shape, x, y, *p)?;
            }
            ("identity", [RelationArg::Attr(p)]) => {
                self.attrs.insert(*p, Value::Perm(Perm::Items(vec![0])));
            }
            ("axis-last", [a, axis, RelationArg::Attr(p)]) => {
                let shape = self.arg_shape(a)?;
                let place = find(&shape, &self.arg_axis(axis)?)?;
                let order = (0..shape.len()).filter(|n| *n != place).chain([place]).collect();
                self.attrs.insert(*p, Value::Perm(Perm::Items(order)));
            }
            ("moved", [RelationArg::Attr(p), axis, from]) => self.moved(*p, axis, from)?,
            ("single", [axis, RelationArg::Attr(axes)]) => {
                let axis = self.arg_axis(axis)?;
                self.attrs.insert(*axes, Value::Axes(vec![axis]));
            }
            ("mask", [..]) => self.mask(call)?,
            (name, _) => return stop(format!("the relation `{name}` is unsupported")),
        }
        Ok(())
    }

    /// Binds the element type of a mask, which the kind of the mask determines. The attribute `window` is 0 unless that
    /// kind is `window`.
    fn mask(&mut self, call: &RelationCall) -> Res<()> {
        let [RelationArg::Attr(mask), RelationArg::Attr(window), RelationArg::DType(m), RelationArg::DType(f)] =
            call.args.as_slice()
        else {
            return stop("the relation `mask` of these arguments is unsupported");
        };
        let Some(Value::Word(word)) = self.attrs.get(mask).cloned() else {
            return stop("the kind of a mask is unknown");
        };
        let ty = if &*word == "keep" { Ty::bool() } else { self.types[f].clone() };
        self.types.insert(*m, ty);
        if &*word != "window" {
            self.attrs.insert(*window, Value::Int(Poly::zero()));
        }
        Ok(())
    }

    fn swap(&mut self, shape: &Shape, x: usize, y: usize, p: VarId) -> Res<()> {
        let n = shape.len();
        if x.max(y) > n || [x, y].iter().any(|k| *k == 0 || shape[n - k].rank.is_some()) {
            return stop("a swap of axes inside a sequence is unsupported");
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.swap(n - x, n - y);
        self.attrs.insert(p, Value::Perm(Perm::Items(order)));
        Ok(())
    }

    fn moved(&mut self, p: VarId, axis: &RelationArg, from: &RelationArg) -> Res<()> {
        let name: Rc<str> = self.name(p).into();
        let before = self.arg_axis(from)?;
        let after = match axis {
            RelationArg::Attr(slot) => {
                let after = &Poly::size(&format!("rank {name} behind")) + &Poly::int(1);
                self.attrs.insert(*slot, Value::Axis(after.clone()));
                after
            }
            other => self.arg_axis(other)?,
        };
        self.attrs.insert(p, Value::Perm(Perm::Named(name, vec![(after, before)])));
        Ok(())
    }

    /// Equates an expression over dims with a value. If the expression is an unbound variable, binds the variable to
    /// the value.
    fn equal_dims(&mut self, pattern: &DimPattern, value: Poly) -> Res<()> {
        if let DimPattern::Var(slot) = pattern
            && self.dims.get(slot) == Some(&Poly::size(self.name(*slot)))
        {
            self.dims.insert(*slot, value);
            return Ok(());
        }
        let own = self.dim(pattern)?;
        self.equate(own, value)
    }

    fn equate(&mut self, a: Poly, b: Poly) -> Res<()> {
        if a == b {
            return Ok(());
        }
        // If one value is the symbol for the number of elements of a sequence, the sequence gets the other value.
        for sequence in self.sequences.values_mut() {
            if let [item] = sequence.as_mut_slice()
                && [&a, &b].contains(&&item.extent)
                && item.rank.is_some()
            {
                item.extent = if item.extent == a { b } else { a };
                return Ok(());
            }
        }
        self.case.facts.note(&a - &b);
        self.case.facts.note(&b - &a);
        Ok(())
    }

    /// Binds the only sequence variable of a pattern to the axes of a shape that remain for it after the other items.
    /// Equates those items with their axes.
    fn unify(&mut self, pattern: &DimsPattern, shape: Shape) -> Res<()> {
        let fixed = pattern.0.iter().filter(|i| matches!(i, DimsItem::One(_))).count();
        let many: Vec<usize> = (0..pattern.0.len()).filter(|i| matches!(pattern.0[*i], DimsItem::Many(_))).collect();
        let [place] = many.as_slice() else {
            return stop("the result pattern of a relation must have exactly one sequence variable");
        };
        let Some(rest) = shape.len().checked_sub(fixed) else { return stop("the ranks of two shapes differ") };
        let DimsItem::Many(slot) = &pattern.0[*place] else {
            return stop("an argument of a relation must be a sequence of axes");
        };
        let own = self.sequences[slot].clone();
        let part = shape[*place..*place + rest].to_vec();
        let ones: Vec<(DimPattern, Item)> = pattern.0[..*place]
            .iter()
            .zip(&shape)
            .chain(pattern.0[*place + 1..].iter().zip(&shape[*place + rest..]))
            .filter_map(|(p, item)| match p {
                DimsItem::One(p) => Some((p.clone(), item.clone())),
                DimsItem::Many(_) => None,
            })
            .collect();
        for (p, item) in ones {
            if item.rank.is_some() {
                return stop("an axis is inside an unknown sequence");
            }
            let value = self.dim(&p)?;
            self.equate(value, item.extent)?;
        }
        let fresh = own.len() == 1 && own[0] == sequence(self.name(*slot));
        if fresh {
            self.sequences.insert(*slot, part);
            return Ok(());
        }
        if own.len() != part.len() {
            return stop("it is undecided whether two sequences of axes are equal");
        }
        for (a, b) in own.into_iter().zip(part) {
            if a.rank != b.rank {
                return stop("it is undecided whether two sequences of axes are equal");
            }
            self.equate(a.extent, b.extent)?;
        }
        Ok(())
    }

    fn arg_shape(&self, arg: &RelationArg) -> Res<Shape> {
        match arg {
            RelationArg::Dims(dims) => self.shape(dims),
            RelationArg::Attr(slot) => match self.attrs.get(slot) {
                Some(Value::Shape(shape)) => Ok(shape.clone()),
                _ => stop("an argument of a relation must be a shape"),
            },
            _ => stop("an argument of a relation must be a shape"),
        }
    }

    fn arg_int(&self, arg: &RelationArg) -> Res<Poly> {
        match arg {
            RelationArg::Dim(p) => self.dim(p),
            RelationArg::Attr(slot) => match self.attrs.get(slot) {
                Some(Value::Int(p)) => Ok(p.clone()),
                _ => stop("an argument of a relation must be an integer"),
            },
            _ => stop("an argument of a relation must be an integer"),
        }
    }

    fn arg_axis(&self, arg: &RelationArg) -> Res<Poly> {
        match arg {
            RelationArg::Attr(slot) => match self.attrs.get(slot) {
                Some(Value::Axis(p)) => Ok(p.clone()),
                _ => stop(format!("the place of the axis {} is unknown", self.name(*slot))),
            },
            RelationArg::Dim(p) => Ok(&Poly::zero() - &self.dim(p)?),
            _ => stop("an argument of a relation must be an axis"),
        }
    }
}
