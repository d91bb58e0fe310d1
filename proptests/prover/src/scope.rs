//! The variables of a rule in one case: symbolic extents, sequences of axes and attributes.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::{
    Attr,
    lang::{
        DimPattern, DimsPattern,
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
    call::{Case, Value},
    choices::Choices,
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, axes, sequence},
    term::{Kind, Poly, T, Term, Ty, apply, num},
};

/// The symbolic values of a rule's variables.
pub struct Scope<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The facts of the case, shared with the tensors.
    pub case: Rc<Case>,
    /// The extents of dim variables, by slot.
    pub dims: BTreeMap<VarId, Poly>,
    /// The axes of sequence variables, by slot.
    pub sequences: BTreeMap<VarId, Shape>,
    /// The values of attribute variables, by slot.
    pub attrs: BTreeMap<VarId, Value>,
    /// The element types of type variables, by slot.
    pub types: BTreeMap<VarId, Ty>,
    /// The operands of an op that is replaced by its definition, by variable.
    pub given: BTreeMap<usize, Tensor>,
}

impl<'r> Scope<'r> {
    /// Makes the symbolic values of the variables, in the case that `choices` selects.
    pub fn new(rule: &'r Rule, choices: &mut Choices) -> Res<Scope<'r>> {
        let case = Rc::new(Case::default());
        case.fuel.set(60_000);
        case.left.set(true);
        case.bounded.set(choices.most.is_some());
        let mut scope = Scope {
            rule,
            case,
            dims: BTreeMap::new(),
            sequences: BTreeMap::new(),
            attrs: BTreeMap::new(),
            types: BTreeMap::new(),
            given: BTreeMap::new(),
        };
        scope.element_types(choices);
        scope.variables(choices)?;
        scope.axes(choices)?;
        scope.alike(choices);
        Ok(scope)
    }

    /// Returns the float types that a type variable ranges over.
    pub fn floats(&self, slot: VarId) -> Vec<eutectic_ir::DType> {
        match &self.rule.scope.variables[slot].1 {
            SlotKind::DType(class) => class.members().filter(|d| Kind::of(*d) == Kind::Float).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns each assignment of integer types to the variables for integer types.
    pub fn integer_types(&self) -> Vec<crate::smt::Types> {
        let mut all = vec![crate::smt::Types::new()];
        for (slot, ty) in self.types.iter().filter(|(_, ty)| ty.dtype.is_none() && ty.kind == Kind::Int) {
            let SlotKind::DType(class) = &self.rule.scope.variables[*slot].1 else { continue };
            let members: Vec<_> = class.members().filter(|d| Kind::of(*d) == Kind::Int).collect();
            all = all
                .iter()
                .flat_map(|of| {
                    members.iter().map(|d| of.clone().into_iter().chain([(ty.name.to_string(), *d)]).collect())
                })
                .collect();
        }
        all
    }

    /// Returns the largest width in bits of the element types that a variable ranges over.
    pub fn bits(&self, slot: VarId) -> u32 {
        match &self.rule.scope.variables[slot].1 {
            SlotKind::DType(class) => class.members().map(eutectic_ir::DType::bits).max().unwrap_or(64),
            _ => 64,
        }
    }

    /// Returns the fewest and the most significant bits among the float types of a symbolic type.
    pub fn digits(&self, ty: &Ty) -> Option<[u32; 2]> {
        let own = self.types.iter().find(|(_, own)| own.name == ty.name).map(|(slot, _)| self.floats(*slot));
        let all = ty.dtype.map(|dtype| vec![dtype]).or(own)?;
        let digits = || all.iter().map(|dtype| dtype.significand_bits());
        Some([digits().min()?, digits().max()?])
    }

    /// Returns the name of a variable.
    pub fn name(&self, slot: VarId) -> &str {
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
                _ => Ty::of_kind(name, &of_kind),
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
                        AttrVariable::DType => return stop("an element type as an attribute is unsupported"),
                        // `Scope::axes` assigns axes, and `Scope::relations` permutations.
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

    /// Returns the dim variables that appear in no shape. They may be any integer.
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

    /// Returns every call of the rule.
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

    /// Chooses the place of each axis variable: at each axis that the pattern names, and inside each of its sequences.
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
                return stop(format!("the axis {} is an axis of no shape", self.name(slot)));
            }
            let at = places[choices.choose(places.len())];
            let behind = self.shape(&DimsPattern(pattern.0[at + 1..].to_vec()))?;
            let mut tail = &axes(&behind) + &Poly::int(1);
            if let DimsItem::Many(sequence_slot) = &pattern.0[at] {
                if divided.contains(sequence_slot) || self.sequences[sequence_slot].len() != 1 {
                    return stop("two axis variables inside one sequence are unsupported");
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

    /// Aligns the operands of `concat`, which differ in one axis only. The second operand gets the axes of the first
    /// one, with its own extent of that axis.
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

    /// Returns the pattern of the shape to which an axis variable belongs.
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

    /// Returns the value of an expression over dims.
    pub fn dim(&self, pattern: &DimPattern) -> Res<Poly> {
        let all = |of: &[DimPattern]| of.iter().map(|p| self.dim(p)).collect::<Res<Vec<_>>>();
        Ok(match pattern {
            DimPattern::Number(n) if n.unsigned_abs() > 1 << 40 => {
                return stop("an extent of more than 2^40 is unsupported");
            }
            DimPattern::Number(n) => Poly::int(i128::from(*n)),
            DimPattern::Var(slot) => match (self.dims.get(slot), self.attrs.get(slot)) {
                (Some(p), _) | (_, Some(Value::Int(p))) => p.clone(),
                _ => return stop(format!("the value of {} is unknown", self.name(*slot))),
            },
            DimPattern::Sum(of) => all(of)?.iter().fold(Poly::zero(), |n, p| &n + p),
            DimPattern::Product(of) => crate::term::product(&all(of)?),
            DimPattern::Difference(pair) => &self.dim(&pair[0])? - &self.dim(&pair[1])?,
            DimPattern::Quotient(pair) => {
                let (a, b) = (self.dim(&pair[0])?, self.dim(&pair[1])?);
                return self.quotient(&a, &b).map_or_else(|| stop("a quotient of extents is undecided"), Ok);
            }
            DimPattern::Floor(_) | DimPattern::Mod(_) => return stop("`floor` or `mod` of extents"),
        })
    }

    /// Returns a quotient of dims. The rule matches only if the remainder is 0, so this is a fact on both sides.
    fn quotient(&self, a: &Poly, b: &Poly) -> Option<Poly> {
        let facts = &self.case.facts;
        let (quotient, rest) = a.divide(b);
        if rest == Poly::zero() && *b != Poly::zero() {
            return Some(quotient);
        }
        let (quotient, rest) = facts.positive(b).then(|| facts.divided(a, b))?;
        facts.note(rest.clone());
        facts.note(&Poly::zero() - &rest);
        Some(quotient)
    }

    /// Returns the shape that a pattern stands for.
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

    /// Returns the symbolic tensor of a variable.
    pub fn tensor(&self, at: usize) -> Res<Tensor> {
        if let Some(given) = self.given.get(&at) {
            return Ok(given.clone());
        }
        let variable = &self.rule.variables[at];
        let VariableKind::Tensor { ty, .. } = &variable.kind else { return stop("an operand must be a tensor") };
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
                // An axis of extent 1 has only the index 0.
                None => {
                    let at = at.iter().zip(&ones).map(|(p, one)| if *one { Poly::zero() } else { p.clone() });
                    Rc::new(Term::Read(Rc::clone(&name), own.clone(), at.collect()))
                }
            })
        }))
    }

    /// Returns the value of an attribute variable.
    pub fn attr(&self, slot: VarId) -> Option<Value> {
        self.attrs.get(&slot).cloned().or_else(|| self.types.get(&slot).cloned().map(Value::Type))
    }

    /// Returns the value of a dim variable that is used as an attribute.
    pub fn integer_slot(&self, slot: VarId) -> Option<Poly> {
        self.dims.get(&slot).cloned()
    }

    /// Returns the value of an integer expression, or `None` for a quotient with a remainder, which is a float.
    pub fn integer(&self, expr: &Expr) -> Option<Poly> {
        self.integer_by(expr, &|a, b| match a.divide(b) {
            (quotient, rest) if rest == Poly::zero() && *b != Poly::zero() => Some(quotient),
            _ => None,
        })
    }

    /// Returns the value of an expression that must be an integer for the rule to match. The engine computes a quotient
    /// with a remainder as a float, and checks only the final result: (7/2)·2 is the integer 7. So only one quotient
    /// may have a remainder, and only integers may be added to it.
    pub fn whole(&self, expr: &Expr) -> Option<Poly> {
        let exact = self.integer(expr);
        let Expr::Call(function, args) = expr else { return exact };
        if exact.is_some() {
            return exact;
        }
        match (function.name, args.as_slice()) {
            ("/", [a, b]) => self.quotient(&self.integer(a)?, &self.integer(b)?),
            ("+", all) => {
                let integers: Vec<_> = all.iter().map(|arg| self.integer(arg)).collect();
                let mut rests = all.iter().zip(&integers).filter(|(_, integer)| integer.is_none());
                let (rest, None) = (rests.next()?.0, rests.next()) else { return None };
                Some(integers.iter().flatten().fold(self.whole(rest)?, |sum, n| &sum + n))
            }
            ("-", [a, b]) => match (self.integer(a), self.integer(b)) {
                (None, Some(b)) => Some(&self.whole(a)? - &b),
                (Some(a), None) => Some(&a - &self.whole(b)?),
                _ => None,
            },
            _ => None,
        }
    }

    fn integer_by(&self, expr: &Expr, quotient: &dyn Fn(&Poly, &Poly) -> Option<Poly>) -> Option<Poly> {
        match expr {
            Expr::Number(Number::Int(n)) if n.unsigned_abs() <= 1 << 40 => Some(Poly::int(i128::from(*n))),
            Expr::Number(_) | Expr::Offset(_) => None,
            Expr::Slot(slot) => match (self.dims.get(slot), self.attrs.get(slot)) {
                (Some(p), _) | (_, Some(Value::Int(p))) => Some(p.clone()),
                (_, Some(Value::Axis(tail))) => Some(&Poly::zero() - tail),
                _ => None,
            },
            Expr::Call(function, args) => {
                let args: Vec<Poly> = args.iter().map(|a| self.integer_by(a, quotient)).collect::<Option<_>>()?;
                let facts = &self.case.facts;
                match (function.name, args.as_slice()) {
                    ("+", all) => Some(all.iter().fold(Poly::zero(), |n, p| &n + p)),
                    ("*", all) => Some(crate::term::product(all)),
                    ("-", [a, b]) => Some(a - b),
                    ("neg", [a]) => Some(&Poly::zero() - a),
                    ("min" | "max", [a, b]) => Some(facts.extreme(a, b, function.name == "max")),
                    ("/", [a, b]) => quotient(a, b),
                    _ => None,
                }
            }
        }
    }

    /// Returns a number that the rule computes.
    pub fn number(&self, expr: &Expr) -> Res<T> {
        if let Some(n) = self.integer(expr) {
            return Ok(Rc::new(Term::Index(n)));
        }
        match expr {
            Expr::Number(n) => Ok(num(n.get())),
            Expr::Offset(_) => stop("offsets in a group are unsupported"),
            Expr::Slot(slot) => match self.attrs.get(slot) {
                Some(Value::Number(t)) => Ok(t.clone()),
                _ => stop(format!("the number {} is unknown", self.name(*slot))),
            },
            Expr::Call(function, args) => {
                let args = args.iter().map(|a| self.number(a)).collect::<Res<Vec<_>>>()?;
                let ty = Ty::fixed(eutectic_ir::DType::F64);
                Ok(apply(&format!("calc {}", function.name), &ty, args))
            }
        }
    }
}

/// Returns the symbolic value of a constant attribute.
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
