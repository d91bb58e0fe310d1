//! Reads a side of a rule as a symbolic tensor.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::{
    Attr, Class, Op,
    lang::typing::VarId,
    ops::{AttrKind, Default as AttrDefault, Trait},
};
use eutectic_rewrites::rule::{AppliedOp, AttrTerm, OpTerm, Term as RuleTerm, VariableKind};

use crate::{
    call::{Call, Perm, Value},
    choices::Choices,
    facts::{Res, stop},
    ops,
    scope::{Scope, literal},
    shape::{Item, Shape, Tensor, axes},
    term::{Kind, Poly, T, Term, Ty, apply, num},
};

/// Reads both sides.
pub struct Reader<'r> {
    /// The variables.
    pub scope: Scope<'r>,
    /// The ops that were chosen for variables that stand for ops.
    chosen: BTreeMap<VarId, Op>,
}

impl<'r> Reader<'r> {
    /// A reader; each variable for a reduction takes each op of its group.
    pub fn new(scope: Scope<'r>, choices: &mut Choices) -> Reader<'r> {
        let mut chosen = BTreeMap::new();
        for variable in &scope.rule.variables {
            let VariableKind::Op(slot, group) = variable.kind else { continue };
            // All ops of a group that are functions of elements are one unknown function.
            if !group.ops().iter().all(|op| matches!(op.def().class, Class::Pointwise)) {
                chosen.insert(slot, group.ops()[choices.choose(group.ops().len())]);
            }
        }
        Reader { scope, chosen }
    }

    /// The value of a term.
    pub fn term(&self, term: &RuleTerm) -> Res<Tensor> {
        Ok(self.results(term)?.remove(0))
    }

    fn results(&self, term: &RuleTerm) -> Res<Vec<Tensor>> {
        match term {
            RuleTerm::Tensor(at) => Ok(vec![self.scope.tensor(*at)?]),
            RuleTerm::Let(at) => self.results(&self.scope.rule.lets[*at].1),
            RuleTerm::Splat(_) => stop("groups of nodes are not understood"),
            RuleTerm::Number { expr, .. } => {
                let number = self.scope.number(expr)?;
                // Its element type is that of what stands beside it, which no law asks for.
                let ty = Ty::open("number");
                Ok(vec![Tensor::new(ty, Shape::new(), move |_| Ok(T::clone(&number)))])
            }
            RuleTerm::Call(call) => self.call(call),
        }
    }

    fn call(&self, call: &AppliedOp) -> Res<Vec<Tensor>> {
        let args = call.args.iter().map(|a| self.results(a)).collect::<Res<Vec<_>>>()?;
        let op = match call.op {
            OpTerm::Named(op) => op,
            OpTerm::Variable(slot, _) => match self.chosen.get(&slot) {
                Some(op) => *op,
                None => return self.unknown(slot, call, args.into_iter().map(|mut a| a.remove(0)).collect()),
            },
        };
        if let Class::Project = op.def().class {
            let at = match call.attrs.first() {
                Some(Some(AttrTerm::Value(Attr::Int(n)))) => *n as usize,
                _ => return stop("a result that is chosen"),
            };
            return args[0].get(at).cloned().map_or_else(|| stop("no such result"), |t| Ok(vec![t]));
        }
        let mut args: Vec<Tensor> = args.into_iter().map(|mut a| a.remove(0)).collect();
        // A condition says nothing of what is selected.
        self.number_types(if op.name() == "where" { &mut args[1..] } else { &mut args });
        let Some(semantics) = ops::semantics(op) else { return stop(format!("op `{op}` has no semantics yet")) };
        let shape = args.first().map(|a| a.shape.clone());
        let attrs = self.attrs(op, call, shape.as_ref())?;
        semantics(&Call { case: Rc::clone(&self.scope.case), op: op.name(), attrs, args })
    }

    /// Numbers take the element type of the operand beside them.
    fn number_types(&self, args: &mut [Tensor]) {
        let known = args
            .iter()
            .find(|a| &*a.ty.name != "number" && a.ty.kind != Kind::Bool)
            .or(args.iter().find(|a| &*a.ty.name != "number"))
            .map(|a| a.ty.clone());
        if let Some(known) = known {
            args.iter_mut().filter(|a| &*a.ty.name == "number").for_each(|a| a.ty = known.clone());
        }
    }

    /// A function of elements of which nothing is known but what its group says.
    fn unknown(&self, slot: VarId, call: &AppliedOp, args: Vec<Tensor>) -> Res<Vec<Tensor>> {
        let ops = call.op.ops();
        let name = self.scope.rule.scope.name(slot);
        let mark = |of: Trait, mark: &'static str| {
            if ops.iter().all(|op| op.def().traits.contains(&of)) { mark } else { "" }
        };
        let marks = [(Trait::Odd, "odd "), (Trait::Even, "even "), (Trait::Monotone, "monotone ")];
        let marks: String = marks.into_iter().map(|(of, text)| mark(of, text)).collect();
        let op: Rc<str> = format!("{marks}{name}").into();
        let numeric = ops.iter().all(|op| !op.def().traits.is_empty());
        let ty = match args.first() {
            // Functions that keep order or sign keep the element type.
            Some(first) if numeric => first.ty.clone(),
            _ => Ty::open(&format!("of {name}")),
        };
        let own = ty.clone();
        let f = move |args: Vec<T>| apply(&op, &own, args);
        Ok(vec![ops::map(&self.scope.case, ty, &args, f)?])
    }

    fn attrs(&self, op: Op, call: &AppliedOp, shape: Option<&Shape>) -> Res<Vec<Value>> {
        let given = call.op.attrs();
        let mut values: Vec<Value> = Vec::new();
        for def in op.def().attrs {
            let term = given.iter().position(|g| g.name == def.name).and_then(|n| call.attrs[n].as_ref());
            // An op without operands counts its axes in the shape that it is given.
            let own = values.iter().find_map(|v| if let Value::Shape(s) = v { Some(s.clone()) } else { None });
            let of = shape.cloned().or(own);
            values.push(match term {
                Some(term) => self.attr(def.kind, term, of.as_ref())?,
                None => default(def.default, def.kind, of.as_ref())?,
            });
        }
        Ok(values)
    }

    fn attr(&self, kind: AttrKind, term: &AttrTerm, shape: Option<&Shape>) -> Res<Value> {
        let value = match term {
            AttrTerm::Value(attr) => literal(attr),
            AttrTerm::Slot(slot) => self.scope.attr(*slot).or_else(|| self.scope.integer_slot(*slot).map(Value::Int)),
            AttrTerm::Dim(dim) => Some(Value::Int(self.scope.dim(dim)?)),
            AttrTerm::Shape(dims) => {
                let shape = self.scope.shape(dims)?;
                // An extent that came out negative is no match, whichever side it is on.
                shape.iter().for_each(|item| self.scope.case.facts.note(item.extent.clone()));
                Some(Value::Shape(shape))
            }
            AttrTerm::Number(expr) => match (kind, self.scope.integer(expr)) {
                (AttrKind::Float, _) => Some(Value::Number(self.scope.number(expr)?)),
                (_, Some(n)) => Some(Value::Int(n)),
                (_, None) => return stop("an integer that is computed so"),
            },
            AttrTerm::Compose(pair) => {
                let perm = |t: &AttrTerm| match self.attr(kind, t, shape)? {
                    Value::Perm(p) => Ok(p),
                    _ => stop("a permutation is wanted"),
                };
                Some(Value::Perm(Perm::Compose(Box::new([perm(&pair[0])?, perm(&pair[1])?]))))
            }
            AttrTerm::Inverse(of) => match self.attr(kind, of, shape)? {
                Value::Perm(p) => Some(Value::Perm(Perm::Inverse(Box::new(p)))),
                _ => None,
            },
        };
        match value {
            Some(value) => fitted(kind, value, shape),
            None => stop("an attribute of that kind is not understood"),
        }
    }
}

/// An attribute in the form that its kind has.
pub(crate) fn fitted(kind: AttrKind, value: Value, shape: Option<&Shape>) -> Res<Value> {
    Ok(match (kind, value) {
        (AttrKind::Axis, Value::Int(n)) => {
            let from_the_end = &Poly::zero() - &n;
            match n.known() {
                Some(n) if n >= 0 => {
                    let Some(shape) = shape else { return stop("an axis of nothing") };
                    Value::Axis(&axes(shape) - &Poly::int(n))
                }
                _ => Value::Axis(from_the_end),
            }
        }
        (AttrKind::Perm, Value::Axes(from_the_end)) => {
            let n = from_the_end.len();
            let items: Option<Vec<usize>> =
                from_the_end.iter().map(|p| p.known().and_then(|k| n.checked_sub(usize::try_from(k).ok()?))).collect();
            match (items, shape) {
                (Some(items), Some(shape)) if shape.len() == n && shape.iter().all(|i| i.rank.is_none()) => {
                    Value::Perm(Perm::Items(items))
                }
                _ => return stop("a permutation of a sequence of axes"),
            }
        }
        // A list of integers that counts from the end was read as axes: here it is extents.
        (AttrKind::Shape, Value::Axes(of)) => Value::Shape(of.iter().map(|p| Item::axis(&Poly::zero() - p)).collect()),
        (AttrKind::Float, Value::Int(n)) => Value::Number(Rc::new(Term::Index(n))),
        (_, value) => value,
    })
}

fn default(default: AttrDefault, kind: AttrKind, shape: Option<&Shape>) -> Res<Value> {
    let value = match default {
        AttrDefault::None => return stop("an attribute is not given"),
        AttrDefault::Int(n) => Value::Int(Poly::int(i128::from(n))),
        AttrDefault::Float(x) => Value::Number(num(x)),
        AttrDefault::Bool(b) => Value::Bool(b),
        AttrDefault::Word(w) => Value::Word(w.into()),
        AttrDefault::Shape(dims) => Value::Shape(dims.iter().map(|n| Item::axis(Poly::int(i128::from(*n)))).collect()),
    };
    fitted(kind, value, shape)
}
