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

/// What the variables of a rule stand for.
pub struct Scope<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// Facts, shared with the tensors.
    pub case: Rc<Case>,
    /// By slot.
    pub dims: BTreeMap<VarId, Poly>,
    /// By slot.
    pub sequences: BTreeMap<VarId, Shape>,
    /// By slot.
    pub attrs: BTreeMap<VarId, Value>,
    /// By slot.
    pub types: BTreeMap<VarId, Ty>,
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
        Ok(scope)
    }

    /// The name of a variable.
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
