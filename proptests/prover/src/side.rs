//! Evaluates a side of a rule as a symbolic tensor.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::{
    Attr, Class, Op,
    lang::typing::VarId,
    ops::{AttrKind, Default as AttrDefault, Trait},
};
use eutectic_rewrites::{
    defining_rule,
    rule::{AppliedOp, AttrTerm, OpTerm, Term as RuleTerm, VariableKind},
};

use crate::{
    call::{Call, Perm, Value},
    choices::Choices,
    contract::marked,
    defined::bound,
    facts::{Res, Stop, stop},
    ops,
    scope::{Scope, literal},
    shape::{Item, Shape, Tensor, axes, show},
    term::{Kind, Poly, T, Term, Ty, apply, num},
};

/// An evaluator of both sides of a rule.
pub struct Reader<'r> {
    /// The variables.
    pub scope: Scope<'r>,
    /// The chosen ops of op variables.
    chosen: BTreeMap<VarId, Op>,
}

impl<'r> Reader<'r> {
    /// Makes an evaluator. An op variable that does not stand for pointwise ops takes each op of its group, in separate
    /// cases.
    pub fn new(scope: Scope<'r>, choices: &mut Choices) -> Reader<'r> {
        let mut chosen = BTreeMap::new();
        for variable in &scope.rule.variables {
            let VariableKind::Op(slot, group) = variable.kind else { continue };
            // A variable for pointwise ops stays one unknown function.
            if !group.ops().iter().all(|op| matches!(op.def().class, Class::Pointwise)) {
                chosen.insert(slot, group.ops()[choices.choose(group.ops().len())]);
            }
        }
        Reader { scope, chosen }
    }

    /// Evaluates a term with one result.
    pub fn term(&self, term: &RuleTerm) -> Res<Tensor> {
        Ok(self.results(term)?.remove(0))
    }

    fn results(&self, term: &RuleTerm) -> Res<Vec<Tensor>> {
        match term {
            RuleTerm::Tensor(at) => Ok(vec![self.scope.tensor(*at)?]),
            RuleTerm::Let(at) => self.results(&self.scope.rule.lets[*at].1),
            RuleTerm::Splat(_) => stop("groups of nodes are unsupported"),
            RuleTerm::Number { expr, .. } => {
                let number = self.scope.number(expr)?;
                // A number has no element type yet. It gets the type of the other operand.
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
                _ => return stop("the index of a result must be a constant"),
            };
            return args[0]
                .get(at)
                .cloned()
                .map_or_else(|| stop("a call has no result of this number"), |t| Ok(vec![t]));
        }
        let mut args: Vec<Tensor> = args.into_iter().map(|mut a| a.remove(0)).collect();
        // The condition of `where` does not determine the type of the values.
        self.number_types(if op.name() == "where" { &mut args[1..] } else { &mut args });
        if let Some(rule) = defining_rule(op) {
            let shape = args.first().map(|a| a.shape.clone());
            let attrs = self.attrs(op, call, shape.as_ref())?;
            let scope = bound(rule, &self.scope.case, &attrs, &args)?;
            let definition = Reader { scope, chosen: BTreeMap::new() };
            return rule.roots.iter().map(|root| definition.term(&root.right)).collect();
        }
        let Some(semantics) = ops::semantics(op) else { return stop(format!("op `{op}` has no semantics yet")) };
        let shape = args.first().map(|a| a.shape.clone());
        let attrs = self.attrs(op, call, shape.as_ref())?;
        let results = semantics(&Call { case: Rc::clone(&self.scope.case), op: op.name(), attrs, args })?;
        Ok(match self.scope.case.marks.get() {
            true => results.into_iter().map(|result| marked(op.name(), op.def().class, result)).collect(),
            false => results,
        })
    }

    /// Gives number operands the element type of the other operands.
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

    /// Applies an unknown pointwise function. Only the traits of its group are known.
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
            // Functions with traits, such as monotone or odd ones, keep the element type.
            Some(first) if numeric => first.ty.clone(),
            _ => Ty::open(&format!("of {name}")),
        };
        let own = ty.clone();
        let f = move |args: Vec<T>| apply(&op, &own, args);
        let result = ops::map(&self.scope.case, ty, &args, f)?;
        Ok(vec![if self.scope.case.marks.get() { marked(name, Class::Pointwise, result) } else { result }])
    }

    fn attrs(&self, op: Op, call: &AppliedOp, shape: Option<&Shape>) -> Res<Vec<Value>> {
        let given = call.op.attrs();
        let mut values: Vec<Value> = Vec::new();
        for def in op.def().attrs {
            let term = given.iter().position(|g| g.name == def.name).and_then(|n| call.attrs[n].as_ref());
            // An op without operands counts axes in the shape that is its attribute.
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
                // The rule does not match if an extent would be negative, so on both sides extents are at least 0.
                shape.iter().for_each(|item| self.scope.case.facts.note(item.extent.clone()));
                Some(Value::Shape(shape))
            }
            AttrTerm::Number(expr) if kind == AttrKind::Float => Some(Value::Number(self.scope.number(expr)?)),
            AttrTerm::Number(expr) => match self.scope.whole(expr) {
                Some(n) => Some(Value::Int(n)),
                None => return stop("an integer with this expression is unsupported"),
            },
            AttrTerm::Compose(pair) => {
                let perm = |t: &AttrTerm| match self.attr(kind, t, shape)? {
                    Value::Perm(p) => Ok(p),
                    _ => stop("an attribute must be a permutation"),
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
            None => stop(format!("a term for an attribute of kind {kind:?} is unsupported")),
        }
    }
}

/// Checks that a shape has n axes. If it contains a sequence, asks for another axis to be split off.
fn has_axes(shape: &Shape, n: usize) -> Res<()> {
    let sequence = shape.iter().find_map(|item| item.rank.clone());
    let axes = shape.iter().filter(|item| item.rank.is_none()).count();
    match sequence {
        Some(sequence) if axes <= n => Err(Stop::Peel(sequence)),
        None if axes == n => Ok(()),
        _ => Err(Stop::Vacuous(format!("{} does not have {n} axes", show(shape)))),
    }
}

/// Converts an attribute to the form that its kind needs.
pub(crate) fn fitted(kind: AttrKind, value: Value, shape: Option<&Shape>) -> Res<Value> {
    Ok(match (kind, value) {
        (AttrKind::Axis, Value::Int(n)) => {
            let from_the_end = &Poly::zero() - &n;
            match n.known() {
                Some(n) if n >= 0 => {
                    let Some(shape) = shape else { return stop("an axis attribute has no shape") };
                    Value::Axis(&axes(shape) - &Poly::int(n))
                }
                _ => Value::Axis(from_the_end),
            }
        }
        (AttrKind::Perm, Value::Axes(from_the_end)) => {
            let n = from_the_end.len();
            let items: Option<Vec<usize>> =
                from_the_end.iter().map(|p| p.known().and_then(|k| n.checked_sub(usize::try_from(k).ok()?))).collect();
            let (Some(items), Some(shape)) = (items, shape) else {
                return stop("a permutation of unknown axes is unsupported");
            };
            has_axes(shape, n)?;
            Value::Perm(Perm::Items(items))
        }
        // `literal` reads a list of integers as axes that count from the end. Here it is a list of extents.
        (AttrKind::Shape, Value::Axes(of)) => Value::Shape(of.iter().map(|p| Item::axis(&Poly::zero() - p)).collect()),
        (AttrKind::Float, Value::Int(n)) => Value::Number(Rc::new(Term::Index(n))),
        (_, value) => value,
    })
}

fn default(default: AttrDefault, kind: AttrKind, shape: Option<&Shape>) -> Res<Value> {
    let value = match default {
        AttrDefault::None => return stop("an attribute is missing"),
        AttrDefault::Int(n) => Value::Int(Poly::int(i128::from(n))),
        AttrDefault::Float(x) => Value::Number(num(x)),
        AttrDefault::Bool(b) => Value::Bool(b),
        AttrDefault::Word(w) => Value::Word(w.into()),
        AttrDefault::Shape(dims) => Value::Shape(dims.iter().map(|n| Item::axis(Poly::int(i128::from(*n)))).collect()),
    };
    fitted(kind, value, shape)
}
