//! Instantiates terms for given types: builds the nodes of a rule's side, in legal form, for one match.
//!
//! Right sides are built for each match. Left sides are built once, for a sample. The views that the legal form
//! requires (`expand` or `reshape`) are inserted, and become part of the pattern.

use std::ops::Range;

use eutectic_ir::{
    Attr, Attrs, DType, Dim, Op, Shape, Tensor, Type,
    lang::{
        Bindings,
        typing::{Bound, DTypePattern, DimPattern, DimsItem, SignatureResult, TypePattern},
    },
    ops::{AttrKind, RowOp},
};
use smallvec::SmallVec;

use crate::{
    egraph::{Facts, Head, TypeId},
    expr::{Expr, Number, Offsets},
    rule::{AppliedOp, AttrTerm, Rule, Term},
};

/// The operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ref {
    /// A tensor variable of the match: variable `n % variables` of member `n / variables`.
    Class(usize),
    /// A number on the left side.
    Number(usize),
    /// The result of an instruction.
    Instr(usize),
}

/// The source of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum From {
    /// A call in the rule.
    Call,
    /// The reduction of a call with this id, changed to keep the reduced axes.
    Kept(usize),
    /// A view that the legal form requires.
    Inserted,
}

/// The description of one node to make.
#[derive(Clone, Debug)]
pub(crate) struct NodeRecipe {
    pub head: Head,
    pub args: SmallVec<[Ref; 4]>,
    pub ty: TypeId,
    pub from: From,
}

/// The reason why a term cannot be built.
#[derive(Clone, Debug)]
pub(crate) enum NoInstance {
    /// A value does not exist, for example because of an inexact quotient. So the rule does not apply.
    Inapplicable,
    /// The term is wrong: it has no type.
    Wrong { message: String, span: Range<usize> },
}

type Made = (Ref, TypeId);

/// Builds instances of a rule's terms.
pub(crate) struct Instantiator<'a> {
    pub facts: &'a mut Facts,
    pub rule: &'a Rule,
    /// The bindings of each member. A rule without `group` has one member.
    pub members: &'a [Bindings],
    /// The types of the tensor variables, for one member after the other.
    pub types: &'a [TypeId],
    /// The offsets of each member; see [`Offsets`].
    pub offsets: &'a [Vec<Option<i64>>],
    /// Whether the result is brought into legal form.
    pub legal: bool,
    /// Whether a left side is built. Its numbers stay symbolic, and only equal terms (not equal instances) share a
    /// node.
    pub left: bool,
    pub instrs: Vec<NodeRecipe>,
    /// The value of each call of the rule that was built, with the call's id.
    pub calls: Vec<(usize, Made)>,
    terms: Vec<(Term, Made)>,
    /// The values of `let`s for each member. Each is built once. Otherwise n `let`s that each use the one before
    /// twice would build 2ⁿ terms.
    lets: Vec<LetMade>,
}

/// A `let` of the rule, the member and the element type for which it was built, and its value.
type LetMade = ((usize, usize, Option<DType>), Made);

impl<'a> Instantiator<'a> {
    pub fn new(facts: &'a mut Facts, rule: &'a Rule, members: &'a [Bindings], types: &'a [TypeId]) -> Instantiator<'a> {
        Instantiator {
            facts,
            rule,
            members,
            types,
            offsets: &[],
            legal: rule.phase != crate::Phase::Legalize,
            left: false,
            instrs: Vec::new(),
            calls: Vec::new(),
            terms: Vec::new(),
            lets: Vec::new(),
        }
    }

    /// Builds a term for a member. `want` is the element type if the whole term is a number.
    pub fn term(&mut self, term: &Term, member: usize, want: Option<DType>) -> Result<Made, NoInstance> {
        let variables = self.types.len() / self.members.len();
        match term {
            Term::Tensor(at) => {
                let at = member * variables + self.rule.tensor(*at);
                Ok((Ref::Class(at), self.types[at]))
            }
            Term::Let(at) => {
                let (rule, key) = (self.rule, (*at, member, want));
                if let Some((_, made)) = self.lets.iter().find(|(known, _)| *known == key) {
                    return Ok(*made);
                }
                let made = self.term(&rule.lets[*at].1, member, want)?;
                self.lets.push((key, made));
                Ok(made)
            }
            Term::Number { id, expr } => self.number(*id, expr, member, want),
            Term::Call(call) => {
                if self.left
                    && let Some((_, made)) = self.terms.iter().find(|(t, _)| t == term)
                {
                    let made = *made;
                    self.calls.push((call.id, made));
                    return Ok(made);
                }
                let made = self.call(call, member, want)?;
                self.calls.push((call.id, made));
                if self.left {
                    self.terms.push((term.clone(), made));
                }
                Ok(made)
            }
            Term::Splat(_) => Err(NoInstance::Wrong {
                message: "a splat such as ?w.. must be the only operand of an op".into(),
                span: self.rule.span.start..self.rule.span.start + 1,
            }),
        }
    }

    fn number(&mut self, id: usize, expr: &Expr, member: usize, want: Option<DType>) -> Result<Made, NoInstance> {
        let Some(dtype) = want else {
            return Err(NoInstance::Wrong {
                message: "cannot determine the element type of this number".into(),
                span: 0..0,
            });
        };
        if self.left {
            let ty = self.facts.type_id(Type::tensor(dtype, &[]));
            return Ok((Ref::Number(id), ty));
        }
        let value = expr.value(&self.members[member], self.offsets(member)).ok_or(NoInstance::Inapplicable)?;
        let value = match expr {
            // Only rules that may change rounding may replace a number by a known number near it.
            Expr::Call(..) if self.rule.contract.rounds() && dtype.is_float() => {
                Number::Float(self.facts.snap_constant(value.get(), dtype))
            }
            _ => value,
        };
        let tensor = match value.int() {
            Some(n) if !dtype.is_float() => Tensor::from_i64(dtype, &[], [n]),
            _ => Tensor::from_f64(dtype, &[], [value.get()]),
        };
        // The element type must represent the number: f16 cannot represent 10⁵, integers cannot represent ½, and the
        // product 10⁻³⁰·10⁻³⁰ would underflow to 0.
        let held = tensor.to_f64()[0];
        let computed = matches!(expr, Expr::Call(..));
        let fits = match dtype.is_float() {
            true if computed && value.get() != 0.0 && value.get().is_finite() => {
                held.is_finite() && held.abs() >= dtype.normal_range().0
            }
            true => held.is_finite() || !value.get().is_finite(),
            false => held == value.get(),
        };
        if !fits {
            return Err(NoInstance::Inapplicable);
        }
        let op = Op::named("const").expect("the op table has an op for constants");
        let head = self.facts.head(op, Attrs::from_iter([Attr::Tensor(tensor)]));
        self.push(head, SmallVec::new(), &[], From::Call).map_err(|message| self.wrong(message, &(0..0)))
    }

    fn offsets(&self, member: usize) -> Offsets<'a> {
        self.offsets.get(member).map_or(&[], Vec::as_slice)
    }

    fn wrong(&self, message: String, span: &Range<usize>) -> NoInstance {
        NoInstance::Wrong { message, span: span.clone() }
    }

    fn call(&mut self, call: &AppliedOp, member: usize, want: Option<DType>) -> Result<Made, NoInstance> {
        let (op, _) = call.op.resolve(&self.members[member]).ok_or(NoInstance::Inapplicable)?;
        if let [Term::Splat(_), ..] = call.args.as_slice() {
            return self.fold(call, member);
        }
        let mut made: SmallVec<[Option<Made>; 4]> = SmallVec::from_elem(None, call.args.len());
        // Variables are built first and numbers last, because the other operands determine the element type of a
        // number.
        let wait = |arg: &Term| match arg {
            Term::Tensor(_) => 0,
            arg if is_number(arg, self.rule) => 2,
            _ => 1,
        };
        let mut order: SmallVec<[usize; 4]> = (0..call.args.len()).collect();
        order.sort_by_key(|at| wait(&call.args[*at]));
        for at in order {
            let dtype = self.number_type(op, at, &made, want);
            made[at] = Some(self.term(&call.args[at], member, dtype).map_err(|fault| match fault {
                NoInstance::Wrong { message, span } if span.is_empty() => {
                    NoInstance::Wrong { message, span: call.span.clone() }
                }
                other => other,
            })?);
        }
        let made: SmallVec<[Made; 4]> = made.into_iter().flatten().collect();
        self.apply(call, &made, member)
    }

    /// Builds `(concat ?w.. :axis -1)`, which applies the op to all members from left to right.
    fn fold(&mut self, call: &AppliedOp, member: usize) -> Result<Made, NoInstance> {
        let [Term::Splat(variable)] = call.args.as_slice() else {
            return Err(self.wrong("a splat such as ?w.. must be the only operand of an op".into(), &call.span));
        };
        let variables = self.types.len() / self.members.len();
        let at = |m: usize| m * variables + self.rule.tensor(*variable);
        let mut made = (Ref::Class(at(0)), self.types[at(0)]);
        for next in (1..self.members.len()).map(at) {
            made = self.apply(call, &[made, (Ref::Class(next), self.types[next])], member)?;
        }
        Ok(made)
    }

    /// Returns the element type of operand `at` of an op, which must be equal to that of another operand or of the
    /// result.
    fn number_type(&self, op: Op, at: usize, made: &[Option<Made>], want: Option<DType>) -> Option<DType> {
        let signature = op.signature();
        let slot = match signature.operands.get(at)?.dtype {
            DTypePattern::Fixed(dtype) => return Some(dtype),
            DTypePattern::Var(slot, _) => slot,
        };
        let same = |p: &TypePattern| matches!(p.dtype, DTypePattern::Var(s, _) if s == slot);
        let of_operand = signature.operands.iter().zip(made).find_map(|(p, m)| {
            let (_, ty) = (*m)?;
            same(p).then(|| self.facts.ty(ty).dtype())?
        });
        let of_result = || match signature.results.first()? {
            SignatureResult::Pattern(p) if same(p) => want,
            _ => None,
        };
        of_operand.or_else(of_result)
    }

    fn apply(&mut self, call: &AppliedOp, made: &[Made], member: usize) -> Result<Made, NoInstance> {
        let (op, carried) = call.op.resolve(&self.members[member]).ok_or(NoInstance::Inapplicable)?;
        let mut given: SmallVec<[(&str, Attr); 4]> =
            op.def().attrs.iter().map(|def| def.name).zip(carried.iter().cloned()).collect();
        for (def, term) in call.op.attrs().iter().zip(&call.attrs) {
            if let Some(term) = term {
                given.push((def.name, self.attr(def.kind, term, member)?));
            }
        }
        let rank =
            made.first().and_then(|m| self.facts.ty(m.1).as_tensor()).map_or(0, |(_, shape)| shape.rank() as i64);
        for (def, term) in call.op.attrs().iter().zip(&call.attrs) {
            let computed = def.kind == AttrKind::Axis && matches!(term, Some(AttrTerm::Number(_)));
            let axis = given.iter().find(|(name, _)| computed && *name == def.name).and_then(|(_, attr)| attr.int());
            if axis.is_some_and(|axis| axis < -rank) {
                return Err(NoInstance::Inapplicable);
            }
        }
        let attrs = {
            let types: SmallVec<[&Type; 4]> = made.iter().map(|m| self.facts.ty(m.1)).collect();
            op.attributes(&given, &types)
        };
        let attrs = attrs.map_err(|(message, help)| self.wrong(format!("{message}; {help}"), &call.span))?;
        let head = self.facts.head(op, attrs);
        let types: SmallVec<[TypeId; 4]> = made.iter().map(|m| m.1).collect();
        let result = self.facts.infer(head, &types).map_err(|message| {
            let operands: Vec<_> = types.iter().map(|t| self.facts.ty(*t).to_string()).collect();
            self.wrong(format!("{op}({}): {message}", operands.join(", ")), &call.span)
        })?;
        let args: SmallVec<[Ref; 4]> = made.iter().map(|m| m.0).collect();
        if !self.legal || self.facts.is_legal(head, &types) {
            return Ok(self.emit(head, args, result, From::Call));
        }
        if let Some(made) = self.keep_axes(call.id, head, &args, &types, result) {
            return Ok(made);
        }
        Ok(self.expand_operands(head, made, result))
    }

    /// Returns a reduction that drops its axes, built as a reshape of the reduction that keeps them.
    fn keep_axes(&mut self, id: usize, head: Head, args: &[Ref], types: &[TypeId], result: TypeId) -> Option<Made> {
        let op = self.facts.op(head);
        let keep = op.row().and_then(RowOp::reduction).and(op.attr("keep"))?;
        let mut attrs = self.facts.attrs(head).clone();
        attrs[keep] = true.into();
        let kept = self.facts.head(op, attrs);
        if !self.facts.is_legal(kept, types) {
            return None;
        }
        let ty = self.facts.infer(kept, types).ok()?;
        let reduced = self.emit(kept, args.into(), ty, From::Kept(id));
        Some(self.view("reshape", reduced, result))
    }

    /// Returns the op with each operand expanded to the shape that the legal form requires.
    fn expand_operands(&mut self, head: Head, made: &[Made], result: TypeId) -> Made {
        let mut args: SmallVec<[Ref; 4]> = made.iter().map(|m| m.0).collect();
        if let Some(shapes) = self.wanted_shapes(head, made, result) {
            for (at, (from, shape)) in made.iter().zip(shapes).enumerate() {
                let Some((dtype, has)) = self.facts.ty(from.1).as_tensor() else { continue };
                if *has != shape && !matches!(from.0, Ref::Number(_)) {
                    let ty = self.facts.type_id(Type::Tensor(dtype, shape));
                    args[at] = self.view("expand", *from, ty).0;
                }
            }
        }
        self.emit(head, args, result, From::Call)
    }

    /// Builds an `expand` or `reshape` to the type `ty`.
    pub fn view(&mut self, name: &str, from: Made, ty: TypeId) -> Made {
        let op = Op::named(name).expect("the op table has views");
        let shape = self.facts.ty(ty).as_tensor().map(|(_, s)| s.clone()).unwrap_or_default();
        let head = self.facts.head(op, Attrs::from_iter([Attr::Shape(shape)]));
        self.emit(head, SmallVec::from_slice(&[from.0]), ty, From::Inserted)
    }

    /// Returns the operand shapes that the legal form requires for this result; `None` if the result does not
    /// determine them.
    ///
    /// Extents that the result does not determine, such as the inner axis of a product, are taken from the operand
    /// itself. Its axes are counted from the end.
    fn wanted_shapes(&mut self, head: Head, made: &[Made], result: TypeId) -> Option<SmallVec<[Shape; 4]>> {
        let op = self.facts.op(head);
        let legal = self.facts.legal(op)?;
        let mut bindings = Bindings::default();
        for (slot, attr) in self.facts.attrs(head).iter().enumerate() {
            bindings.bind(slot, Bound::Attr(attr.clone())).ok()?;
        }
        let (SignatureResult::Pattern(pattern), Type::Tensor(dtype, shape)) =
            (legal.results.first()?, self.facts.ty(result).clone())
        else {
            return None;
        };
        pattern.unify(&Type::Tensor(dtype, shape), &mut bindings).ok()?;
        let shapes = made.iter().zip(&legal.operands).map(|(m, pattern)| {
            let (_, has) = self.facts.ty(m.1).as_tensor()?;
            bind_from_the_end(pattern, has, &mut bindings);
            let shape = pattern.dims.value(&bindings)?;
            (eutectic_ir::lang::relation::broadcast(has, &shape).as_ref() == Ok(&shape)).then_some(shape)
        });
        shapes.collect()
    }

    fn push(&mut self, head: Head, args: SmallVec<[Ref; 4]>, types: &[TypeId], from: From) -> Result<Made, String> {
        let ty = self.facts.infer(head, types)?;
        Ok(self.emit(head, args, ty, from))
    }

    fn emit(&mut self, head: Head, args: SmallVec<[Ref; 4]>, ty: TypeId, from: From) -> Made {
        if !self.left
            && let Some(at) = self.instrs.iter().position(|i| i.head == head && i.args == args)
        {
            return (Ref::Instr(at), ty);
        }
        self.instrs.push(NodeRecipe { head, args, ty, from });
        (Ref::Instr(self.instrs.len() - 1), ty)
    }

    /// Returns the value of an attribute term.
    fn attr(&self, kind: AttrKind, term: &AttrTerm, member: usize) -> Result<Attr, NoInstance> {
        let bindings = &self.members[member];
        let ints = |a: Attr| a.ints().map(<[i64]>::to_vec).ok_or(NoInstance::Inapplicable);
        match term {
            AttrTerm::Value(value) => Ok(value.clone()),
            AttrTerm::Slot(slot) => match bindings.get(*slot) {
                Some(Bound::Attr(attr @ Attr::Int(_))) if kind == AttrKind::Float => {
                    attr.number().map(Attr::from).ok_or(NoInstance::Inapplicable)
                }
                Some(Bound::Attr(attr)) => Ok(attr.clone()),
                Some(Bound::DType(dtype)) => Ok((*dtype).into()),
                _ => Err(NoInstance::Inapplicable),
            },
            AttrTerm::Dim(dim) => {
                dim.value(bindings).and_then(|d| d.known()).map(Attr::Int).ok_or(NoInstance::Inapplicable)
            }
            AttrTerm::Shape(dims) => dims.value(bindings).map(Attr::Shape).ok_or(NoInstance::Inapplicable),
            AttrTerm::Number(expr) => {
                let value = expr.value(bindings, self.offsets(member)).ok_or(NoInstance::Inapplicable)?;
                match kind {
                    AttrKind::Float => Ok(value.get().into()),
                    // Arithmetic may give an axis that some operands lack. 0 is not an axis, because axes are counted
                    // from the end.
                    AttrKind::Axis => {
                        value.int().filter(|axis| *axis < 0).map(Attr::Int).ok_or(NoInstance::Inapplicable)
                    }
                    _ => value.int().map(Attr::Int).ok_or(NoInstance::Inapplicable),
                }
            }
            AttrTerm::Compose(pair) => {
                let [p, q] = [ints(self.attr(kind, &pair[0], member)?)?, ints(self.attr(kind, &pair[1], member)?)?];
                let at = |n: &i64| p.get((n + p.len() as i64) as usize).copied();
                let composed: Option<Vec<i64>> = q.iter().map(at).collect();
                composed.filter(|c| c.len() == p.len()).map(|c| Attr::from(&c[..])).ok_or(NoInstance::Inapplicable)
            }
            AttrTerm::Inverse(p) => {
                let p = ints(self.attr(kind, p, member)?)?;
                let rank = p.len() as i64;
                let place = |n: i64| p.iter().position(|m| *m == n).map(|at| at as i64 - rank);
                let inverse: Option<Vec<i64>> = (-rank..0).map(place).collect();
                inverse.map(|c| Attr::from(&c[..])).ok_or(NoInstance::Inapplicable)
            }
        }
    }
}

/// Returns whether a term is a number or an expression of numbers.
fn is_number(term: &Term, rule: &Rule) -> bool {
    match term {
        Term::Number { .. } => true,
        Term::Let(at) => is_number(&rule.lets[*at].1, rule),
        Term::Call(call) => !call.args.is_empty() && call.args.iter().all(|arg| is_number(arg, rule)),
        Term::Tensor(_) | Term::Splat(_) => false,
    }
}

/// Binds the unbound dims of a pattern to those of a shape, from the last axis outwards.
fn bind_from_the_end(pattern: &TypePattern, shape: &Shape, bindings: &mut Bindings) {
    for (back, item) in pattern.dims.0.iter().rev().enumerate() {
        let DimsItem::One(DimPattern::Var(slot)) = item else { return };
        if bindings.get(*slot).is_none() && back < shape.rank() {
            let dim: Dim = shape[shape.rank() - 1 - back].clone();
            // The slot is unbound, so binding cannot fail.
            let _ = bindings.bind(*slot, Bound::Dim(dim));
        }
    }
}
