//! The variables of a rule in one case: symbolic extents, sequences of axes, attributes, and what the `where` relations say of them.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::{
    Attr,
    lang::{
        DimPattern, DimsPattern, RelationCall,
        relation::RelationArg,
        typing::{DTypePattern, DimsItem, SlotKind, VarId},
    },
};
use eutectic_rewrites::{
    Rule,
    expr::{Expr, Number},
    rule::{AppliedOp, AttrTerm, AttrVariable, Term as RuleTerm, VariableKind},
};

use crate::{
    call::{Case, Perm, Value},
    choices::Choices,
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, axes, count, sequence},
    term::Poly,
    term::{Kind, T, Term, Ty, apply, num},
};

/// What the variables of a rule stand for.
pub struct Scope<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// Facts, shared with the tensors.
    pub case: Rc<Case>,
    dims: BTreeMap<VarId, Poly>,
    sequences: BTreeMap<VarId, Shape>,
    attrs: BTreeMap<VarId, Value>,
    types: BTreeMap<VarId, Ty>,
}

impl<'r> Scope<'r> {
    /// The variables in the case that is chosen.
    pub fn new(rule: &'r Rule, choices: &mut Choices) -> Res<Scope<'r>> {
        let case = Rc::new(Case::default());
        case.fuel.set(60_000);
        case.left.set(true);
        let mut scope = Scope {
            rule,
            case,
            dims: BTreeMap::new(),
            sequences: BTreeMap::new(),
            attrs: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        scope.element_types(choices);
        scope.variables(choices)?;
        scope.axes(choices)?;
        scope.alike(choices);
        scope.relations()?;
        for variable in scope.rule.tensors() {
            for item in scope.shape(&variable.1.dims)? {
                scope.case.facts.note(item.extent);
            }
        }
        Ok(scope)
    }

    fn name(&self, slot: VarId) -> &str {
        self.rule.scope.name(slot)
    }

    fn element_types(&mut self, choices: &mut Choices) {
        for (slot, (name, kind)) in self.rule.scope.variables.iter().enumerate() {
            let SlotKind::DType(class) = kind else { continue };
            let members: Vec<_> = class.members().collect();
            let mut kinds: Vec<Kind> = members.iter().map(|d| Kind::of(*d)).collect();
            kinds.sort();
            kinds.dedup();
            let kind = kinds[choices.choose(kinds.len())];
            let of_kind: Vec<_> = members.into_iter().filter(|d| Kind::of(*d) == kind).collect();
            let ty = match of_kind.as_slice() {
                [one] => Ty::fixed(*one),
                _ => Ty { name: name.as_ref().into(), kind, dtype: None },
            };
            self.types.insert(slot, ty);
        }
    }

    fn variables(&mut self, choices: &mut Choices) -> Res<()> {
        for variable in &self.rule.variables {
            let (slot, value) = match &variable.kind {
                VariableKind::Number(slot) => {
                    let own = || Rc::new(Term::Param(variable.name.as_str().into()));
                    (*slot, Value::Number(variable.wanted.map_or_else(own, |w| num(w.value))))
                }
                VariableKind::Attr(slot, kind) => {
                    let name = &*variable.name;
                    let value = match kind {
                        AttrVariable::Int => {
                            self.case.facts.signed(name);
                            Value::Int(Poly::size(name))
                        }
                        AttrVariable::Bool => Value::Bool(choices.choose(2) == 0),
                        AttrVariable::OneOf(words) => Value::Word(words[choices.choose(words.len())].as_str().into()),
                        AttrVariable::Shape => Value::Shape(choices.peeled(name)),
                        AttrVariable::Axes => Value::AnyAxes(name.into()),
                        AttrVariable::DType => return stop("an element type as an attribute"),
                        // Bound by what is known of them.
                        AttrVariable::Axis | AttrVariable::Perm => continue,
                    };
                    (*slot, value)
                }
                VariableKind::Tensor { .. } | VariableKind::Op(..) => continue,
            };
            self.attrs.insert(slot, value);
        }
        for (slot, (name, kind)) in self.rule.scope.variables.iter().enumerate() {
            match kind {
                SlotKind::Dims => {
                    let items = choices.peeled(name);
                    self.sequences.insert(slot, items);
                }
                SlotKind::Dim => {
                    let extent = choices.size(&self.case, name);
                    self.dims.insert(slot, extent);
                }
                _ => {}
            }
        }
        for slot in self.not_extents() {
            self.case.facts.signed(self.name(slot));
        }
        Ok(())
    }

    /// Dims that no shape has: they may be any integer.
    fn not_extents(&self) -> Vec<VarId> {
        let mut extents: Vec<VarId> = Vec::new();
        let mut of = |dims: &DimsPattern| {
            for item in &dims.0 {
                if let DimsItem::One(DimPattern::Var(slot)) = item {
                    extents.push(*slot);
                }
                if let DimsItem::One(DimPattern::Product(of)) = item {
                    extents.extend(of.iter().filter_map(|p| if let DimPattern::Var(s) = p { Some(*s) } else { None }));
                }
            }
        };
        self.rule.tensors().for_each(|(_, ty, _)| of(&ty.dims));
        for call in self.calls() {
            for attr in call.attrs.iter().flatten() {
                if let AttrTerm::Shape(dims) = attr {
                    of(dims);
                }
            }
        }
        self.dims.keys().copied().filter(|slot| !extents.contains(slot)).collect()
    }

    /// Every call of the rule.
    fn calls(&self) -> Vec<&'r AppliedOp> {
        let mut calls = Vec::new();
        let rule = self.rule;
        let sides = rule.roots.iter().flat_map(|r| [&r.left, &r.right]).chain(rule.lets.iter().map(|(_, t)| t));
        for side in sides {
            side.visit(&mut |term| {
                if let RuleTerm::Call(call) = term {
                    calls.push(call);
                }
            });
        }
        calls
    }

    /// Chooses where axis variables lie: at each axis that the pattern names, and inside of each of its sequences.
    fn axes(&mut self, choices: &mut Choices) -> Res<()> {
        let declared: Vec<VarId> = self
            .rule
            .variables
            .iter()
            .filter_map(|v| match v.kind {
                VariableKind::Attr(slot, AttrVariable::Axis) => Some(slot),
                _ => None,
            })
            .collect();
        let mut divided: Vec<VarId> = Vec::new();
        for slot in declared {
            let Some(pattern) = self.pattern_of_axis(slot) else { continue };
            let places: Vec<usize> = (0..pattern.0.len()).collect();
            if places.is_empty() {
                return stop(format!("no shape has the axis {}", self.name(slot)));
            }
            let at = places[choices.choose(places.len())];
            let behind = self.shape(&DimsPattern(pattern.0[at + 1..].to_vec()))?;
            let mut tail = &axes(&behind) + &Poly::int(1);
            if let DimsItem::Many(sequence_slot) = &pattern.0[at] {
                if divided.contains(sequence_slot) || self.sequences[sequence_slot].len() != 1 {
                    return stop("two axes that are chosen in one sequence");
                }
                divided.push(*sequence_slot);
                let name = self.name(*sequence_slot).to_string();
                let (before, after) = (sequence(&format!("{name}⁻")), choices.peeled(&format!("{name}⁺")));
                tail = &tail + &axes(&after);
                let axis = Item::axis(choices.size(&self.case, &format!("{name}ₐ")));
                self.sequences.insert(*sequence_slot, [vec![before, axis], after].concat());
            }
            self.attrs.insert(slot, Value::Axis(tail));
        }
        Ok(())
    }

    /// Operands that are put together are alike but for one axis: the second's sequence is the first's, with an axis of its own.
    fn alike(&mut self, choices: &mut Choices) {
        for call in self.calls() {
            let [RuleTerm::Tensor(a), RuleTerm::Tensor(b)] = call.args.as_slice() else { continue };
            if !matches!(call.op, eutectic_rewrites::rule::OpTerm::Named(op) if op.name() == "concat") {
                continue;
            }
            let sequence_of = |at: usize| match &self.rule.variables[at].kind {
                VariableKind::Tensor { ty, .. } => match ty.dims.0.as_slice() {
                    [DimsItem::Many(slot)] => Some(*slot),
                    _ => None,
                },
                _ => None,
            };
            let (Some(first), Some(second)) = (sequence_of(*a), sequence_of(*b)) else { continue };
            if first != second && self.sequences[&first].len() == 3 && self.sequences[&second].len() == 1 {
                let mut items = self.sequences[&first].clone();
                items[1] = Item::axis(choices.size(&self.case, &format!("{}ₐ", self.name(second))));
                self.sequences.insert(second, items);
            }
        }
    }

    /// A shape that an axis variable is an axis of.
    fn pattern_of_axis(&self, slot: VarId) -> Option<DimsPattern> {
        let related = self.rule.relations.iter().find_map(|(call, _)| match call.args.as_slice() {
            [RelationArg::Dims(dims), RelationArg::Attr(axis), ..] if *axis == slot => Some(dims.clone()),
            _ => None,
        });
        related.or_else(|| {
            self.calls().into_iter().find_map(|call| {
                let on = call.attrs.iter().flatten().any(|a| *a == AttrTerm::Slot(slot));
                match call.args.first() {
                    Some(RuleTerm::Tensor(at)) if on => match &self.rule.variables[*at].kind {
                        VariableKind::Tensor { ty, .. } => Some(ty.dims.clone()),
                        _ => None,
                    },
                    _ => None,
                }
            })
        })
    }

    fn relations(&mut self) -> Res<()> {
        // What binds comes before what asks.
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
        Ok(())
    }

    fn note_number(&self, name: &str, property: &str) {
        self.case.numbers.borrow_mut().entry(name.into()).or_default().push(property.into());
    }

    fn relation(&mut self, call: &RelationCall) -> Res<()> {
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
                        self.sequences.get_mut(slot).expect("it is there")[0].extent = elements;
                    }
                    _ => return stop("the relation `same-count` of such shapes"),
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
                let (steps, _) = self.case.facts.divided(&room, &s);
                self.equal_dims(n, &steps + &one)?;
            }
            ("extent", [a, axis, RelationArg::Dim(n)]) => {
                let shape = self.arg_shape(a)?;
                let at = crate::shape::find(&shape, &self.arg_axis(axis)?)?;
                self.equal_dims(n, shape[at].extent.clone())?;
            }
            ("slice", [a, axis, at, len, step, RelationArg::Dims(c)]) => {
                let mut shape = self.arg_shape(a)?;
                let place = crate::shape::find(&shape, &self.arg_axis(axis)?)?;
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
                let place = crate::shape::find(&shape, &self.arg_axis(axis)?)?;
                let (before, after) = (self.arg_int(before)?, self.arg_int(after)?);
                facts(self, vec![before.clone(), after.clone()]);
                shape[place].extent = &(&shape[place].extent + &before) + &after;
                self.unify(c, shape)?;
            }
            ("window", [a, axis, size, stride, dilation, RelationArg::Dims(c)]) => {
                let mut shape = self.arg_shape(a)?;
                let place = crate::shape::find(&shape, &self.arg_axis(axis)?)?;
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
                let place = crate::shape::find(&shape, &self.arg_axis(axis)?)?;
                let order = (0..shape.len()).filter(|n| *n != place).chain([place]).collect();
                self.attrs.insert(*p, Value::Perm(Perm::Items(order)));
            }
            ("moved", [RelationArg::Attr(p), axis, from]) => self.moved(*p, axis, from)?,
            ("single", [axis, RelationArg::Attr(axes)]) => {
                let axis = self.arg_axis(axis)?;
                self.attrs.insert(*axes, Value::Axes(vec![axis]));
            }
            ("mask", [..]) => self.mask(call)?,
            (name, _) => return stop(format!("the relation `{name}` is not understood")),
        }
        Ok(())
    }

    /// The word of a mask says of which type the mask is; `window` is positive for windows alone.
    fn mask(&mut self, call: &RelationCall) -> Res<()> {
        let [RelationArg::Attr(mask), RelationArg::Attr(window), RelationArg::DType(m), RelationArg::DType(f)] =
            call.args.as_slice()
        else {
            return stop("the relation `mask` of such arguments");
        };
        let Some(Value::Word(word)) = self.attrs.get(mask).cloned() else { return stop("a mask without a word") };
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
            return stop("a swap of axes inside of a sequence");
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

    /// Says that an expression over dims is equal to something: binds its one variable, if that is all that it is.
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
        // A sequence whose number of elements is nothing but a name takes the other's.
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

    /// Binds the one sequence of a pattern that is open to what is left of a shape.
    fn unify(&mut self, pattern: &DimsPattern, shape: Shape) -> Res<()> {
        let fixed = pattern.0.iter().filter(|i| matches!(i, DimsItem::One(_))).count();
        let many: Vec<usize> = (0..pattern.0.len()).filter(|i| matches!(pattern.0[*i], DimsItem::Many(_))).collect();
        let [place] = many.as_slice() else { return stop("a relation whose result is not one sequence") };
        let Some(rest) = shape.len().checked_sub(fixed) else { return stop("shapes of another rank") };
        let DimsItem::Many(slot) = &pattern.0[*place] else { return stop("a sequence is wanted") };
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
                return stop("an axis of a sequence that is not known");
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
            return stop("whether two sequences are the same");
        }
        for (a, b) in own.into_iter().zip(part) {
            if a.rank != b.rank {
                return stop("whether two sequences are the same");
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
                _ => stop("a shape is wanted"),
            },
            _ => stop("a shape is wanted"),
        }
    }

    fn arg_int(&self, arg: &RelationArg) -> Res<Poly> {
        match arg {
            RelationArg::Dim(p) => self.dim(p),
            RelationArg::Attr(slot) => match self.attrs.get(slot) {
                Some(Value::Int(p)) => Ok(p.clone()),
                _ => stop("an integer is wanted"),
            },
            _ => stop("an integer is wanted"),
        }
    }

    fn arg_axis(&self, arg: &RelationArg) -> Res<Poly> {
        match arg {
            RelationArg::Attr(slot) => match self.attrs.get(slot) {
                Some(Value::Axis(p)) => Ok(p.clone()),
                _ => stop(format!("nothing says where the axis {} lies", self.name(*slot))),
            },
            RelationArg::Dim(p) => Ok(&Poly::zero() - &self.dim(p)?),
            _ => stop("an axis is wanted"),
        }
    }

    /// The value of an expression over dims.
    pub fn dim(&self, pattern: &DimPattern) -> Res<Poly> {
        let all = |of: &[DimPattern]| of.iter().map(|p| self.dim(p)).collect::<Res<Vec<_>>>();
        Ok(match pattern {
            DimPattern::Number(n) if n.unsigned_abs() > 1 << 40 => return stop("an extent as large as that"),
            DimPattern::Number(n) => Poly::int(i128::from(*n)),
            DimPattern::Var(slot) => match (self.dims.get(slot), self.attrs.get(slot)) {
                (Some(p), _) | (_, Some(Value::Int(p))) => p.clone(),
                _ => return stop(format!("the value of {}", self.name(*slot))),
            },
            DimPattern::Sum(of) => all(of)?.iter().fold(Poly::zero(), |n, p| &n + p),
            DimPattern::Product(of) => crate::term::product(&all(of)?),
            DimPattern::Difference(pair) => &self.dim(&pair[0])? - &self.dim(&pair[1])?,
            DimPattern::Quotient(pair) => {
                let (a, b) = (self.dim(&pair[0])?, self.dim(&pair[1])?);
                match a.divide(&b) {
                    (quotient, rest) if rest == Poly::zero() && b != Poly::zero() => quotient,
                    _ => return stop("a quotient of extents"),
                }
            }
        })
    }

    /// The shape that a pattern stands for.
    pub fn shape(&self, pattern: &DimsPattern) -> Res<Shape> {
        let mut shape = Vec::new();
        for item in &pattern.0 {
            match item {
                DimsItem::One(p) => shape.push(Item::axis(self.dim(p)?)),
                DimsItem::Many(slot) => shape.extend(self.sequences[slot].iter().cloned()),
            }
        }
        shape.iter_mut().for_each(|item| item.extent = self.case.canon(&item.extent));
        Ok(shape)
    }

    /// The tensor of a variable.
    pub fn tensor(&self, at: usize) -> Res<Tensor> {
        let variable = &self.rule.variables[at];
        let VariableKind::Tensor { ty, .. } = &variable.kind else { return stop("a tensor is wanted") };
        let shape = self.shape(&ty.dims)?;
        let dtype = match ty.dtype {
            DTypePattern::Fixed(dtype) => Ty::fixed(dtype),
            DTypePattern::Var(slot, _) => self.types[&slot].clone(),
        };
        let (name, own) = (Rc::from(variable.name.as_str()), dtype.clone());
        let ones: Vec<bool> = shape.iter().map(Item::is_one).collect();
        let (wanted, case) = (variable.wanted, Rc::clone(&self.case));
        Ok(Tensor::new(dtype, shape, move |at| {
            case.step(1)?;
            Ok(match wanted {
                Some(w) => num(w.value),
                // Along an axis of extent 1 there is one index.
                None => {
                    let at = at.iter().zip(&ones).map(|(p, one)| if *one { Poly::zero() } else { p.clone() });
                    Rc::new(Term::Read(Rc::clone(&name), own.clone(), at.collect()))
                }
            })
        }))
    }

    /// The value of an attribute variable.
    pub fn attr(&self, slot: VarId) -> Option<Value> {
        self.attrs.get(&slot).cloned().or_else(|| self.types.get(&slot).cloned().map(Value::Type))
    }

    /// The value of a dim, as an attribute.
    pub fn integer_slot(&self, slot: VarId) -> Option<Poly> {
        self.dims.get(&slot).cloned()
    }

    /// An integer expression.
    pub fn integer(&self, expr: &Expr) -> Option<Poly> {
        match expr {
            Expr::Number(Number::Int(n)) if n.unsigned_abs() <= 1 << 40 => Some(Poly::int(i128::from(*n))),
            Expr::Number(_) | Expr::Offset(_) => None,
            Expr::Slot(slot) => match (self.dims.get(slot), self.attrs.get(slot)) {
                (Some(p), _) | (_, Some(Value::Int(p))) => Some(p.clone()),
                (_, Some(Value::Axis(tail))) => Some(&Poly::zero() - tail),
                _ => None,
            },
            Expr::Call(function, args) => {
                let args: Vec<Poly> = args.iter().map(|a| self.integer(a)).collect::<Option<_>>()?;
                let facts = &self.case.facts;
                match (function.name, args.as_slice()) {
                    ("+", all) => Some(all.iter().fold(Poly::zero(), |n, p| &n + p)),
                    ("*", all) => Some(crate::term::product(all)),
                    ("-", [a, b]) => Some(a - b),
                    ("neg", [a]) => Some(&Poly::zero() - a),
                    ("min" | "max", [a, b]) => Some(facts.extreme(a, b, function.name == "max")),
                    ("/", [a, b]) if *b != Poly::zero() => match a.divide(b) {
                        (quotient, rest) if rest == Poly::zero() => Some(quotient),
                        _ => None,
                    },
                    _ => None,
                }
            }
        }
    }

    /// A number that the rule computes.
    pub fn number(&self, expr: &Expr) -> Res<T> {
        if let Some(n) = self.integer(expr) {
            return Ok(Rc::new(Term::Index(n)));
        }
        match expr {
            Expr::Number(n) => Ok(num(n.get())),
            Expr::Offset(_) => stop("offsets in a group"),
            Expr::Slot(slot) => match self.attrs.get(slot) {
                Some(Value::Number(t)) => Ok(t.clone()),
                _ => stop(format!("the number {}", self.name(*slot))),
            },
            Expr::Call(function, args) => {
                let args = args.iter().map(|a| self.number(a)).collect::<Res<Vec<_>>>()?;
                let ty = Ty::fixed(eutectic_ir::DType::F64);
                Ok(apply(&format!("calc {}", function.name), &ty, args))
            }
        }
    }
}

/// An attribute that is given as it is.
pub fn literal(attr: &Attr) -> Option<Value> {
    Some(match attr {
        Attr::Int(n) if n.unsigned_abs() <= 1 << 40 => Value::Int(Poly::int(i128::from(*n))),
        Attr::Float(x) => Value::Number(num(x.get())),
        Attr::Bool(b) => Value::Bool(*b),
        Attr::Word(w) => Value::Word(w.as_ref().into()),
        Attr::DType(d) => Value::Type(Ty::fixed(*d)),
        Attr::Shape(shape) => Value::Shape(
            shape.iter().map(|d| d.known().map(|n| Item::axis(Poly::int(i128::from(n))))).collect::<Option<_>>()?,
        ),
        Attr::Ints(ns) => Value::Axes(ns.iter().map(|n| Poly::int(-i128::from(*n))).collect()),
        _ => return None,
    })
}
