//! Makes mutants: rules whose right side is wrong on purpose, to test whether the checker detects them. Also breaks
//! guards.

use eutectic_ir::{
    Attr, Class, DType, Op, Type,
    lang::{
        Bindings,
        typing::{Bound, DTypePattern, DimPattern, DimsPattern},
    },
    ops::{AttrKind, Default as AttrDefault},
};
use eutectic_rewrites::{
    Probe, Sides, Unmatched,
    expr::{Expr, Number, function},
    rule::{AppliedOp, AttrTerm, AttrVariable, OpTerm, Rule, Term, VariableKind},
};

use crate::instance::Instance;

/// A rule with another right side.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// A description of the change, with the op of the right side that was changed.
    pub what: String,
    /// The changed rule.
    pub probe: Probe,
}

/// An instance that violates a guard of the rule.
#[derive(Clone, Debug)]
pub struct Broken {
    /// A description of the violation.
    pub what: String,
    /// Whether the rule must not match at all. Otherwise the rule may match in another way, and must then be right.
    pub never: bool,
    /// The sides, if the rule matches in spite of the violated guard.
    pub sides: Result<Sides, Unmatched>,
}

/// Returns every mutant of a rule with one change: an op, an operand, their order, an attribute, a dim, a sign, a
/// number.
pub fn mutants(probe: &Probe) -> Vec<Mutant> {
    let rule = probe.rule();
    let mut mutants = Vec::new();
    let several = rule.roots.len() + rule.lets.len() > 1;
    for (at, root) in rule.roots.iter().enumerate() {
        for (what, right) in mutations(rule, &root.right) {
            let mut changed = rule.clone();
            changed.roots[at].right = right;
            let place = if several { format!("root {at}: ") } else { String::new() };
            mutants.push(Mutant { what: format!("{place}{what}"), probe: probe.with(changed) });
        }
    }
    for (at, (name, term)) in rule.lets.iter().enumerate() {
        for (what, right) in mutations(rule, term) {
            let mut changed = rule.clone();
            changed.lets[at].1 = right;
            mutants.push(Mutant { what: format!("{name}: {what}"), probe: probe.with(changed) });
        }
    }
    mutants
}

/// Returns an instance that breaks one requirement of the rule: an element type, a rank, an extent, an attribute (and
/// with it a relation), or a literal of the left side. Returns `None` if the rule has no requirement of the drawn kind.
pub fn broken(probe: &Probe, instance: &Instance, random: &mut fastrand::Rng) -> Option<Broken> {
    let rule = probe.rule();
    let mut members = instance.members.clone();
    let tensors = members[0].types.len();
    let kind = random.usize(..5);
    if kind < 3 && tensors > 0 {
        let at = random.usize(..tensors);
        let (variable, pattern, _) = rule.tensors().nth(at)?;
        let own = (0..rule.variables.len()).any(|v| rule.splatted()[v] && rule.variables[v].name == variable.name);
        let Type::Tensor(dtype, shape) = &mut members[0].types[at] else { return None };
        let (what, never) = match kind {
            0 => {
                let had = std::mem::replace(dtype, DType::ALL[random.usize(..DType::ALL.len())]);
                let admitted = match pattern.dtype {
                    DTypePattern::Fixed(d) => d == *dtype,
                    DTypePattern::Var(_, class) => class.contains(*dtype),
                };
                (format!("{} is {dtype} instead of {had}", variable.name), !admitted)
            }
            1 => {
                shape.0.insert(0, 2_i64.into());
                (format!("{} has an axis more", variable.name), false)
            }
            _ => {
                let axis = random.usize(..shape.rank().max(1));
                let extent = shape.0.get_mut(axis)?;
                *extent = (&*extent) + &1_i64.into();
                (format!("axis {axis} of {} is one longer", variable.name), false)
            }
        };
        // All members of a group must see the same type of a tensor that they share.
        if !own {
            let ty = members[0].types[at].clone();
            members.iter_mut().for_each(|member| member.types[at] = ty.clone());
        }
        // `sides` infers everything that depends on the tensors again.
        return Some(Broken { what, never, sides: probe.sides(rule, &members) });
    }
    if kind == 3 {
        let (what, bindings, never) = other_attribute(rule, &members[0].bindings, random)?;
        members.iter_mut().for_each(|m| m.bindings = bindings.clone());
        return Some(Broken { what, never, sides: probe.sides(rule, &members) });
    }
    let literals = literals(rule);
    if literals.is_empty() {
        return None;
    }
    let (what, left, never) = literals[random.usize(..literals.len())].clone();
    let mut changed = rule.clone();
    for (root, left) in changed.roots.iter_mut().zip(left) {
        root.left = left;
    }
    Some(Broken { what, never, sides: probe.sides(&changed, &members) })
}

/// Returns the bindings with one attribute variable of the left side bound to another value, with a description. The
/// flag says whether the value is a word that the rule excludes.
fn other_attribute(rule: &Rule, bindings: &Bindings, random: &mut fastrand::Rng) -> Option<(String, Bindings, bool)> {
    let mut places: Vec<(usize, OpTerm, usize)> = Vec::new();
    for root in &rule.roots {
        root.left.visit(&mut |term| {
            let Term::Call(call) = term else { return };
            for (at, attr) in call.attrs.iter().enumerate() {
                if let Some(AttrTerm::Slot(slot)) = attr {
                    places.push((*slot, call.op, at));
                }
            }
        });
    }
    if places.is_empty() {
        return None;
    }
    let (slot, op, at) = places[random.usize(..places.len())];
    let value = AttrTerm::Value(bindings.attr(slot)?.clone());
    let declared = rule.variables.iter().find_map(|v| match &v.kind {
        VariableKind::Attr(s, AttrVariable::OneOf(words)) if *s == slot => Some(words),
        _ => None,
    });
    let others = attribute_values(rule, op, at, Some(&value));
    let AttrTerm::Value(other) = others.get(random.usize(..others.len().max(1)))?.1.clone() else { return None };
    let never = declared.is_some_and(|words| !words.iter().any(|w| other.word() == Some(w)));
    let mut changed = Bindings::default();
    for n in 0..rule.scope.variables.len() {
        let bound = if n == slot { Some(Bound::Attr(other.clone())) } else { bindings.get(n).cloned() };
        if let Some(bound) = bound {
            changed.bind(n, bound).ok()?;
        }
    }
    Some((format!("{} is {other}", rule.scope.name(slot)), changed, never))
}

/// Returns all left sides in which one literal is changed, at each occurrence of the same term. Each has a description,
/// and a flag for whether the rule must not match.
fn literals(rule: &Rule) -> Vec<(String, Vec<Term>, bool)> {
    let mut changes: Vec<(String, Term, Term, bool)> = Vec::new();
    for root in &rule.roots {
        root.left.visit(&mut |term| match term {
            Term::Call(call) => {
                for (at, attr) in call.attrs.iter().enumerate() {
                    let Some(value @ AttrTerm::Value(_)) = attr else { continue };
                    let def = &call.op.attrs()[at];
                    for (what, other) in attribute_values(rule, call.op, at, Some(value)) {
                        let mut changed = call.clone();
                        changed.attrs[at] = Some(other);
                        let what = format!(":{} of {} is {what}", def.name, call.op);
                        changes.push((what, term.clone(), Term::Call(changed), true));
                    }
                }
            }
            Term::Number { id, expr } if expr.literal().is_some_and(f64::is_finite) => {
                let Some(x) = expr.literal() else { return };
                // Every element type must distinguish the other number from this one.
                let y = if x == 1.0 {
                    0.0
                } else if x.abs() < 16.0 {
                    x + 1.0
                } else {
                    2.0 * x
                };
                let other = Term::Number { id: *id, expr: Expr::Number(Number::Float(y)) };
                changes.push((format!("{y} stands for {x}"), term.clone(), other, true));
            }
            _ => {}
        });
    }
    let everywhere = |from: &Term, to: &Term| rule.roots.iter().map(|r| replaced(&r.left, from, to)).collect();
    changes.into_iter().map(|(what, from, to, never)| (what, everywhere(&from, &to), never)).collect()
}

/// Returns a term with every occurrence of the term `from` replaced by `to`.
pub(crate) fn replaced(term: &Term, from: &Term, to: &Term) -> Term {
    if term == from {
        return to.clone();
    }
    match term {
        Term::Call(call) => {
            let args = call.args.iter().map(|a| replaced(a, from, to)).collect();
            Term::Call(AppliedOp { args, ..call.clone() })
        }
        other => other.clone(),
    }
}

/// Returns all variants of a term with one change, each with its description.
fn mutations(rule: &Rule, term: &Term) -> Vec<(String, Term)> {
    let mut found = Vec::new();
    match term {
        Term::Call(call) => {
            whole_call(rule, call, &mut found);
            for (at, arg) in call.args.iter().enumerate() {
                for (what, arg) in mutations(rule, arg) {
                    let mut changed = call.clone();
                    changed.args[at] = arg;
                    // The description names the op, because a variable or a number may occur several times.
                    let place = match &call.args[at] {
                        Term::Tensor(_) => format!(" in {}", call.op),
                        Term::Number { expr, .. } => {
                            let literal = expr.literal().map(|x| format!(", {x} as operand {at} of {}", call.op));
                            literal.unwrap_or_default()
                        }
                        _ => String::new(),
                    };
                    found.push((what + &place, Term::Call(changed)));
                }
            }
        }
        Term::Number { id, expr } => {
            for (what, expr) in numbers(expr) {
                found.push((what, Term::Number { id: *id, expr }));
            }
        }
        Term::Tensor(at) => {
            let name = |v: usize| &rule.variables[v].name;
            let ty = |v: usize| match &rule.variables[v].kind {
                VariableKind::Tensor { ty, .. } => Some(ty),
                _ => None,
            };
            let others = (0..rule.variables.len()).filter(|o| o != at && ty(*o).is_some() && ty(*o) == ty(*at));
            found.extend(others.map(|o| (format!("{} for {}", name(o), name(*at)), Term::Tensor(o))));
            if let Some(neg) = negated(term) {
                found.push((format!("−{}", name(*at)), neg));
            }
        }
        Term::Splat(_) | Term::Let(_) => {}
    }
    found
}

fn negated(term: &Term) -> Option<Term> {
    let op = OpTerm::Named(Op::named("neg")?);
    Some(Term::Call(AppliedOp { id: usize::MAX, op, args: vec![term.clone()], attrs: Vec::new(), span: 0..0 }))
}

/// Adds the changes of a call itself: of its op, its sign, its operands, their order and its attributes.
fn whole_call(rule: &Rule, call: &AppliedOp, found: &mut Vec<(String, Term)>) {
    let op = call.op;
    if let OpTerm::Named(op) = op {
        let alike = |o: &Op| {
            *o != op
                && o.def().signature == op.def().signature
                && o.def().attrs == op.def().attrs
                && !matches!(o.def().class, Class::Leaf(_) | Class::Project | Class::Loop)
        };
        for other in Op::all().filter(alike).take(3) {
            let other_call = AppliedOp { op: OpTerm::Named(other), ..call.clone() };
            found.push((format!("{other} for {op}"), Term::Call(other_call)));
        }
    }
    if let Some(neg) = negated(&Term::Call(call.clone())) {
        found.push((format!("−{op}"), neg));
    }
    for at in 1..call.args.len() {
        let alike = call.args[at] == call.args[at - 1];
        if !(alike || op.commutes() && at == 1) {
            let mut args = call.args.clone();
            args.swap(at - 1, at);
            found.push((
                format!("operands {} and {at} of {op} swapped", at - 1),
                Term::Call(AppliedOp { args, ..call.clone() }),
            ));
        }
    }
    for (at, arg) in call.args.iter().enumerate() {
        if !matches!(arg, Term::Splat(_)) {
            found.push((format!("operand {at} instead of {op}"), arg.clone()));
        }
    }
    if matches!(op, OpTerm::Named(op) if call.args.len() > op.signature().required) {
        let args = call.args[..call.args.len() - 1].to_vec();
        found.push((format!("the last operand of {op} dropped"), Term::Call(AppliedOp { args, ..call.clone() })));
    }
    for (at, def) in op.attrs().iter().enumerate() {
        for (what, value) in attribute_values(rule, op, at, call.attrs[at].as_ref()) {
            let mut changed = call.clone();
            changed.attrs[at] = Some(value);
            found.push((format!(":{} of {op} is {what}", def.name), Term::Call(changed)));
        }
    }
}

/// Returns other values of an attribute, each with its description.
fn attribute_values(rule: &Rule, op: OpTerm, at: usize, term: Option<&AttrTerm>) -> Vec<(String, AttrTerm)> {
    let def = &op.attrs()[at];
    let value = |attr: Attr| (attr.to_string(), AttrTerm::Value(attr));
    match term {
        None => match def.default {
            AttrDefault::None => Vec::new(),
            AttrDefault::Int(n) => vec![value((n + 1).into())],
            AttrDefault::Float(x) => vec![value((x.clamp(-1e3, 1e3) + 1.0).into())],
            AttrDefault::Bool(b) => vec![value((!b).into())],
            AttrDefault::Word(w) => words(def.kind, w).map(|w| value(w.into())).collect(),
            AttrDefault::Shape(dims) => {
                vec![value(Attr::Shape(dims.iter().map(|n| n + 1).collect()))]
            }
        },
        Some(AttrTerm::Value(attr)) => match attr {
            Attr::Int(n) if def.kind == AttrKind::Axis => vec![value((if *n == -1 { -2 } else { n + 1 }).into())],
            Attr::Int(n) => vec![value((n + 1).into()), value((n - 1).into())],
            Attr::Float(x) => {
                // Adding 1 to ∞ gives ∞, which would be no change.
                let x = x.get().clamp(-1e3, 1e3);
                vec![value((x + 1.0).into()), value((-2.0 * x - 0.5).into())]
            }
            Attr::Bool(b) => vec![value((!b).into())],
            Attr::Word(w) => words(def.kind, w).take(2).map(|w| value(w.into())).collect(),
            Attr::Ints(axes) if def.kind == AttrKind::Axes => {
                vec![value(axes.iter().map(|a| a - 1).collect::<Vec<_>>().as_slice().into())]
            }
            Attr::Ints(axes) if axes.len() > 1 => {
                let mut turned = axes.to_vec();
                turned.rotate_left(1);
                vec![value(turned.as_slice().into())]
            }
            _ => Vec::new(),
        },
        Some(AttrTerm::Slot(slot)) => others_of_a_slot(rule, *slot, def.kind),
        Some(AttrTerm::Dim(dim)) => {
            let more = DimPattern::Sum(vec![dim.clone(), DimPattern::Number(1)]);
            vec![("one more".into(), AttrTerm::Dim(more))]
        }
        Some(AttrTerm::Shape(DimsPattern(items))) => (1..items.len())
            .filter(|at| items[*at] != items[at - 1])
            .map(|at| {
                let mut items = items.clone();
                items.swap(at - 1, at);
                (format!("with axes {} and {at} swapped", at - 1), AttrTerm::Shape(DimsPattern(items)))
            })
            .collect(),
        Some(AttrTerm::Number(expr)) => {
            numbers(expr).into_iter().map(|(what, e)| (what, AttrTerm::Number(e))).collect()
        }
        Some(AttrTerm::Compose(pair)) => {
            let [p, q] = (**pair).clone();
            vec![("composed the other way round".into(), AttrTerm::Compose(Box::new([q, p])))]
        }
        Some(AttrTerm::Inverse(p)) => vec![("not inverted".into(), (**p).clone())],
    }
}

fn words(kind: AttrKind, but: &str) -> impl Iterator<Item = &'static str> {
    let words: &[&str] = if let AttrKind::Word(words) = kind { words } else { &[] };
    words.iter().copied().filter(move |w| *w != but)
}

fn others_of_a_slot(rule: &Rule, slot: usize, kind: AttrKind) -> Vec<(String, AttrTerm)> {
    let of = |v: &eutectic_rewrites::rule::Variable| match &v.kind {
        VariableKind::Number(s) => Some((*s, None)),
        VariableKind::Attr(s, kind) => Some((*s, Some(kind.clone()))),
        VariableKind::Tensor { .. } | VariableKind::Op(..) => None,
    };
    let own = rule.variables.iter().filter_map(of).find(|(s, _)| *s == slot);
    let mut found: Vec<(String, AttrTerm)> = rule
        .variables
        .iter()
        .filter_map(|v| Some((v, of(v)?)))
        .filter(|(_, (s, kind))| *s != slot && own.as_ref().is_some_and(|(_, k)| k == kind))
        .map(|(v, (s, _))| (v.name.clone(), AttrTerm::Slot(s)))
        .collect();
    if matches!(kind, AttrKind::Float | AttrKind::Int) && matches!(own, Some((_, None))) || kind == AttrKind::Int {
        found.extend(numbers(&Expr::Slot(slot)).into_iter().map(|(what, e)| (what, AttrTerm::Number(e))));
    }
    found
}

/// Returns changes of a number expression: 1 is added, the sign is flipped, or the two arguments of a function are
/// swapped.
fn numbers(expr: &Expr) -> Vec<(String, Expr)> {
    let mut found = Vec::new();
    let one = Expr::Number(Number::Int(1));
    if let Some(plus) = function("+", 2) {
        found.push(("a number plus 1".to_string(), Expr::Call(plus, vec![expr.clone(), one])));
    }
    if let (Some(neg), false) = (function("neg", 1), expr.literal() == Some(0.0)) {
        found.push(("a number negated".to_string(), Expr::Call(neg, vec![expr.clone()])));
    }
    if let Expr::Call(f, args) = expr
        && args.len() == 2
        && args[0] != args[1]
        && !["+", "*", "min", "max"].contains(&f.name)
    {
        let turned = vec![args[1].clone(), args[0].clone()];
        found.push((format!("the arguments of {} swapped", f.name), Expr::Call(f, turned)));
    }
    found
}
