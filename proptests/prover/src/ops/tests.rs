//! Compares the symbolic semantics of each op with the interpreter, at elements of random instances.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use eutectic_ir::{
    Attr, Class, DType, Dim, Graph, Op, Tensor, Type,
    bounded::hides,
    graph::Node,
    interp::interpret,
    lang::{Bindings, sample},
    ops::{AttrKind, Reduction, eval::Data},
};
use eutectic_rewrites::{Probe, RuleSet, draw};

use super::{random::WORD, semantics};
use crate::{
    call::{Call, Case},
    falsify::{Draws, elements},
    scope::literal,
    shape::{Item, Tensor as Symbolic},
    side::fitted,
    term::{Atom, Poly, T, Term, Ty},
};

/// The maximal number of steps for the terms of an instance. Larger instances are skipped.
const STEPS: usize = 600;
/// The maximal share of planted faults that may stay undetected, in percent.
const UNSEEN: usize = 1;
/// The maximal number of instances of an op that are drawn to detect its faults.
const DRAWN: u64 = 3_000;
/// The ops with a softmax. It is invariant under a shift of its scores, so adding the maximum instead of subtracting it
/// changes nothing.
const SHIFTED: &[&str] = &["attention", "attention-tf32", "mha", "sdpa", "softmax"];
/// The maximal number of elements of an instance that are compared.
const SOME: usize = 12;

/// The tensors that are read, by name.
type Given = BTreeMap<String, Tensor>;

fn integer(p: &Poly, vars: &Vars, world: &World<'_>) -> i128 {
    p.terms()
        .map(|(m, c)| {
            let atom = |a: &Atom| match a {
                Atom::Var(id) => vars[id],
                Atom::Div(pair) => integer(&pair[0], vars, world).div_euclid(integer(&pair[1], vars, world)),
                Atom::Min(pair) => integer(&pair[0], vars, world).min(integer(&pair[1], vars, world)),
                Atom::Max(pair) => integer(&pair[0], vars, world).max(integer(&pair[1], vars, world)),
                Atom::Value(t) => number(t, vars, world) as i128,
                Atom::Size(name) => panic!("an instance has no symbolic size: {name}"),
                Atom::Map(name, _) => panic!("an instance has no opaque index map: {name}"),
            };
            c * m.iter().map(atom).product::<i128>()
        })
        .sum()
}

/// A planted fault in the semantics of an op. It changes one kind of step, wherever the terms have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A coordinate of an operand is off by one.
    Index(Rc<str>, usize),
    /// A function is replaced by another one.
    Function(Rc<str>),
    /// The operands of a function are swapped.
    Swapped(Rc<str>),
    /// A condition on indices is off by one.
    Bound,
    /// The branches of a choice by index are swapped.
    Turned,
    /// A reduction omits its last element.
    Short,
    /// A reduction is replaced by another one.
    Reduced,
}

/// The functions with their replacements.
const OTHERS: &[(&str, &str)] = &[
    ("add", "sub"),
    ("sub", "add"),
    ("mul", "add"),
    ("div", "mul"),
    ("max", "min"),
    ("min", "max"),
    ("exp", "sigmoid"),
    ("sqrt", "exp"),
    ("rsqrt", "exp"),
    ("tanh", "sigmoid"),
];

/// The values of index variables.
type Vars = BTreeMap<u32, i128>;

/// The tensors that are read, and the planted fault, if any.
struct World<'a> {
    given: &'a Given,
    fault: Option<&'a Fault>,
}

/// Returns whether a fault changes no result.
fn is_equivalent(op: Op, fault: &Fault) -> bool {
    SHIFTED.contains(&op.name()) && *fault == Fault::Function("sub".into())
}

/// Collects the faults that can be planted in a term.
fn faults(term: &T, given: &Given, found: &mut BTreeSet<Fault>) {
    let mut ids = |p: &Poly| {
        p.visit(&mut |atom| {
            if let Atom::Value(id) = atom {
                faults(id, given, found);
            }
        });
    };
    match &**term {
        Term::Read(name, _, at) => {
            at.iter().for_each(&mut ids);
            // An axis of extent 1 has no other coordinate.
            let dims = given[&**name].dims();
            found.extend((0..at.len()).filter(|n| dims[*n] > 1).map(|n| Fault::Index(Rc::clone(name), n)));
        }
        Term::Apply(op, _, args) => {
            if OTHERS.iter().any(|(of, _)| **op == **of) {
                found.insert(Fault::Function(Rc::clone(op)));
            }
            if matches!(&**op, "sub" | "div" | "pow" | "mod") {
                found.insert(Fault::Swapped(Rc::clone(op)));
            }
            args.iter().for_each(|a| faults(a, given, found));
        }
        Term::If(conditions, a, b) => {
            conditions.iter().for_each(&mut ids);
            found.extend([Fault::Bound, Fault::Turned]);
            [a, b].into_iter().for_each(|t| faults(t, given, found));
        }
        Term::Reduce(_, _, _, body) => {
            found.extend([Fault::Short, Fault::Reduced]);
            faults(body, given, found);
        }
        Term::Index(p) => ids(p),
        Term::Num(_) | Term::Param(_) => {}
    }
}

/// Evaluates a term in `f64`.
fn number(term: &T, vars: &Vars, world: &World<'_>) -> f64 {
    let is = |fault: &Fault| world.fault == Some(fault);
    match &**term {
        Term::Num(bits) => f64::from_bits(*bits),
        Term::Param(name) => panic!("an instance has no number variable: {name}"),
        Term::Index(p) => integer(p, vars, world) as f64,
        Term::Read(name, _, at) => {
            let tensor = &world.given[&**name];
            let flat = at.iter().zip(tensor.dims()).enumerate().fold(0, |flat, (n, (p, extent))| {
                let mut index = integer(p, vars, world);
                if world.fault.is_none() {
                    assert!((0..*extent as i128).contains(&index), "{name} is read at {index} of {extent}");
                }
                // The last coordinate becomes the one before it, so that the fault is not a mere rotation of the axis.
                if is(&Fault::Index(Rc::clone(name), n)) {
                    index += if index + 1 < *extent as i128 { 1 } else { -1 };
                }
                flat * extent + index.clamp(0, *extent as i128 - 1) as usize
            });
            tensor.to_f64()[flat]
        }
        Term::If(conditions, a, b) => {
            let least = i128::from(is(&Fault::Bound));
            let holds = conditions.iter().all(|p| integer(p, vars, world) >= least) != is(&Fault::Turned);
            number(if holds { a } else { b }, vars, world)
        }
        Term::Reduce(how, ty, bound, body) => {
            let how = match how {
                Reduction::Sum if is(&Fault::Reduced) => Reduction::Max,
                _ if is(&Fault::Reduced) => Reduction::Sum,
                how => *how,
            };
            let mut total = how.identity(ty.dtype.unwrap()).get();
            let mut at: Vec<Vars> = vec![vars.clone()];
            for (v, extent) in bound {
                let with = |vars: &Vars| -> Vec<Vars> {
                    let all = 0..integer(extent, vars, world) - i128::from(is(&Fault::Short));
                    all.map(|n| vars.iter().map(|(k, x)| (*k, *x)).chain([(*v, n)]).collect()).collect()
                };
                at = at.iter().flat_map(with).collect();
            }
            for (n, vars) in at.into_iter().enumerate() {
                let own = number(body, &vars, world);
                // The first element replaces the identity of an extremum: `f64` cannot represent the largest integer.
                total = if n == 0 && how.def().selects { own } else { scalar(how.def().op, &[total, own], ty) };
            }
            total
        }
        Term::Apply(op, ty, args) => {
            let other = OTHERS.iter().find(|(of, _)| **op == **of && is(&Fault::Function(Rc::clone(op))));
            let op = other.map_or(&**op, |(_, other)| *other);
            let mut args: Vec<&T> = args.iter().collect();
            if is(&Fault::Swapped(op.into())) {
                args.reverse();
            }
            match (op, args.as_slice()) {
                ("where", [c, a, b]) => number(if number(c, vars, world) != 0.0 { a } else { b }, vars, world),
                ("hides", [x]) => f64::from(u8::from(hides(number(x, vars, world), DType::F64))),
                ("wrap", [x]) => number(x, vars, world),
                (WORD, [a, b, at]) => word([a, b].map(|t| number(t, vars, world) as i64), number(at, vars, world)),
                ("store", [x]) => number(x, vars, world).trunc(),
                (op, [x]) if op.starts_with("round ") || op.starts_with("empty ") => number(x, vars, world),
                (op, args) => scalar(op, &args.iter().map(|a| number(a, vars, world)).collect::<Vec<_>>(), ty),
            }
        }
    }
}

/// Returns the random word of a key at a position, as the interpreter computes it.
fn word(key: [i64; 2], at: f64) -> f64 {
    let mut graph = Graph::new("a word");
    let input = graph.input("key", Type::tensor(DType::U32, &[2])).unwrap();
    let words = graph
        .apply(WORD, &[input], &[("shape", Attr::Shape([Dim::Known(at as i64 + 1)].into_iter().collect()))])
        .unwrap();
    graph.output("words", words).unwrap();
    let key = Tensor::from_i64(DType::U32, &[2], key);
    let words = interpret::<f64>(&graph, &|_| Some(key.clone())).unwrap();
    match &words[0].data {
        Data::Int(words) => words[at as usize].unwrap() as f64,
        Data::Real(_) => panic!("words are integers"),
    }
}

/// Evaluates a pointwise op on numbers by the op's constant folding.
fn scalar(op: &str, args: &[f64], ty: &Ty) -> f64 {
    let (op, attrs) = match op.split_once(' ') {
        Some(("act", kind)) => ("act", vec![Attr::from(kind)]),
        Some(("calc", "/")) => ("div", Vec::new()),
        Some(("calc", "-")) => ("sub", Vec::new()),
        _ => (op, Vec::new()),
    };
    let attrs = if op == "cast" { vec![Attr::DType(ty.dtype.unwrap())] } else { attrs };
    // The operands of comparisons and selections count as floats here.
    let whole = op != "cast" && ty.dtype.is_some_and(|d| d.is_int());
    let dtype = match op {
        "not" | "and" | "or" | "xor" => DType::Bool,
        _ if whole => DType::I64,
        _ => DType::F64,
    };
    let operands: Vec<(f64, DType)> = args.iter().map(|x| (*x, dtype)).collect();
    let to = if op == "cast" || ty.dtype == Some(DType::Bool) { ty.dtype.unwrap() } else { dtype };
    Op::named(op).unwrap_or_else(|| panic!("`{op}` is an op")).fold(&attrs, &operands, to).unwrap_or(f64::NAN)
}

/// Makes a graph of one op, and the tensors that it reads. Returns `None` if the op does not accept such operands.
fn graph_of(op: Op, attrs: &[Attr], operands: &[Type], random: &mut fastrand::Rng) -> Option<(Graph, Given)> {
    let (mut graph, mut given, mut ids) = (Graph::new("one op"), Given::new(), Vec::new());
    for (n, ty) in operands.iter().enumerate() {
        let name = format!("x{n:02}");
        ids.push(graph.input(&name, ty.clone()).ok()?);
        given.insert(name, elements(ty, random)?);
    }
    let attrs: Vec<(&str, Attr)> = op.def().attrs.iter().map(|d| d.name).zip(attrs.iter().cloned()).collect();
    let result = graph.apply(op.name(), &ids, &attrs).ok()?;
    let parts = match graph.ty(result).clone() {
        Type::Tuple(parts) => (0..parts.len())
            .map(|n| graph.apply("get", &[result], &[("index", Attr::Int(n as i64))]).unwrap())
            .collect(),
        Type::Tensor(..) => vec![result],
    };
    for (n, part) in parts.iter().enumerate() {
        graph.output(&format!("y{n}"), *part).ok()?;
    }
    Some((graph, given))
}

/// Widens floats to `f64` because the terms are not rounded. With `integers`, widens integers to `i64` as well.
fn wide(types: &[Type], integers: bool) -> Option<Vec<Type>> {
    let of = |ty: &Type| match ty.as_tensor()? {
        (dtype, shape) if dtype.is_float() => Some(Type::Tensor(DType::F64, shape.clone())),
        (dtype, shape) if dtype != DType::Bool && integers => Some(Type::Tensor(DType::I64, shape.clone())),
        _ => Some(ty.clone()),
    };
    types.iter().map(of).collect()
}

/// Compares elements of an op's results, and returns their number. Returns `None` if the instance is not suitable.
fn compare(op: Op, given_attrs: &[Attr], operands: &[Type], seed: u64, planted: &mut Planted) -> Option<usize> {
    let semantics = semantics(op)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let candidates = [wide(operands, true)?, wide(operands, false)?, operands.to_vec()];
    let (graph, given) = candidates.iter().find_map(|operands| graph_of(op, given_attrs, operands, &mut random))?;
    // The interpreter rejects ids that are out of range.
    let want = interpret::<f64>(&graph, &|name| given.get(name).cloned()).ok()?;
    let case = Rc::new(Case::default());
    case.fuel.set(STEPS);
    case.left.set(true);
    let args: Vec<Symbolic> = given
        .iter()
        .map(|(name, tensor)| {
            let shape = tensor.dims().iter().map(|n| Item::axis(Poly::int(*n as i128))).collect();
            let (name, ty): (Rc<str>, _) = (name.as_str().into(), Ty::fixed(tensor.dtype()));
            let own = ty.clone();
            Symbolic::new(ty, shape, move |at| Ok(Rc::new(Term::Read(name.clone(), own.clone(), at.to_vec()))))
        })
        .collect();
    let shape = args.first().map(|a| a.shape.clone());
    let kinds = op.def().attrs.iter().zip(given_attrs);
    let own = given_attrs
        .iter()
        .find_map(|a| if let Some(crate::call::Value::Shape(s)) = literal(a) { Some(s) } else { None });
    let of = shape.or(own);
    let attrs = kinds.map(|(def, attr)| fitted(def.kind, literal(attr).unwrap(), of.as_ref()).unwrap()).collect();
    let results = semantics(&Call { case, op: op.name(), attrs, args })
        .unwrap_or_else(|stop| panic!("{op} of {operands:?} {given_attrs:?}: {stop:?}"));
    let mut compared = 0;
    for (symbolic, value) in results.iter().zip(&want) {
        let extents: Vec<usize> = symbolic.shape.iter().map(|i| i.extent.known().unwrap() as usize).collect();
        assert_eq!(extents, value.dims, "{op} of {operands:?} {given_attrs:?}");
        for at in (0..value.count()).step_by(value.count().div_ceil(SOME).max(1)) {
            let mut rest = at;
            let mut index: Vec<Poly> = Vec::new();
            for extent in extents.iter().rev() {
                index.insert(0, Poly::int((rest % extent) as i128));
                rest /= extent;
            }
            let term = match (symbolic.at)(&index) {
                Err(crate::facts::Stop::Because(why)) if why.contains("too large") => return None,
                term => term.unwrap_or_else(|stop| panic!("{op}: {stop:?}")),
            };
            let value_with = |fault: Option<&Fault>| number(&term, &Vars::new(), &World { given: &given, fault });
            let is = value_with(None);
            let want = match &value.data {
                Data::Real(x) => x[at],
                Data::Int(n) => n[at].unwrap() as f64,
            };
            // Special values, such as that of a row without weights, are not compared.
            let special = !want.is_finite() || !is.is_finite();
            let unit = if value.dtype == DType::F64 { 1e-9 } else { 1e-4 };
            let near = (is - want).abs() <= unit * (1.0 + want.abs());
            assert!(near || special, "{op} of {operands:?} {given_attrs:?} at {at}: {is}, not {want}: {term}");
            compared += usize::from(near);
            // Pointwise ops are evaluated by the table itself, so no fault is planted in them.
            if !special && !matches!(op.def().class, Class::Pointwise) {
                let mut of_term = BTreeSet::new();
                faults(&term, &given, &mut of_term);
                for fault in of_term.into_iter().filter(|fault| !is_equivalent(op, fault)) {
                    let apart = (value_with(Some(&fault)) - want).abs();
                    *planted.entry((op, fault)).or_default() |= apart.is_nan() || apart > unit * (1.0 + want.abs());
                }
            }
        }
    }
    Some(compared)
}

/// The faults planted in each op's semantics, each with whether an element differed.
type Planted = BTreeMap<(Op, Fault), bool>;

fn nodes_of(probe: &Probe, seed: u64) -> Vec<(Node, Vec<Type>)> {
    let rule = probe.rule();
    let Some(sample) = draw(rule, &mut Draws::new(rule, seed), Bindings::default()) else { return Vec::new() };
    let Ok(sides) = probe.sides(rule, &[sample]) else { return Vec::new() };
    let mut found = Vec::new();
    for graph in [&sides.written, &sides.left, &sides.right] {
        for (_, node) in graph.nodes() {
            let operands = node.operands.iter().map(|o| graph.ty(*o).clone()).collect();
            if !matches!(node.op.def().class, Class::Leaf(eutectic_ir::ops::Leaf::Const)) {
                found.push((node.clone(), operands));
            }
        }
    }
    found
}

/// Draws attributes and operand types that fit an op's signature.
fn sampled(op: Op, seed: u64) -> Option<(Vec<Attr>, Vec<Type>)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let signature = op.signature();
    let count = random.usize(signature.required..=signature.operands.len());
    let patterns: Vec<_> = signature.operands[..count].iter().collect();
    let absent = &signature.operands[count..];
    let relations: Vec<_> =
        signature.relations.iter().filter(|r| !absent.iter().any(|p| r.mentions(p))).cloned().collect();
    let bindings =
        sample(&signature.scope, &patterns, &relations, Bindings::default(), &mut |n| random.usize(..n)).ok()?;
    let operands: Vec<Type> = patterns.iter().map(|p| p.value(&bindings)).collect::<Option<_>>()?;
    let free = |kind: AttrKind| match kind {
        AttrKind::Word(words) => Some(Attr::from(words[seed as usize % words.len()])),
        AttrKind::Float => Some(Attr::from(0.5)),
        AttrKind::Bool => Some(Attr::from(seed.is_multiple_of(2))),
        AttrKind::Axis => Some(Attr::Int(-1)),
        AttrKind::Int => Some(Attr::Int((seed % 4) as i64)),
        _ => None,
    };
    let given: Vec<(&str, Attr)> = op
        .def()
        .attrs
        .iter()
        .enumerate()
        .filter_map(|(slot, def)| Some((def.name, bindings.attr(slot).cloned().or_else(|| free(def.kind))?)))
        .collect();
    let types: Vec<&Type> = operands.iter().collect();
    Some((op.attributes(&given, &types).ok()?.to_vec(), operands))
}

#[test]
fn the_semantics_of_ops_agree_with_the_interpreter_and_planted_faults_are_detected() {
    let rules = RuleSet::embedded().unwrap();
    let layer = |op: &Op| matches!(op.name(), "encoder-layer" | "attention-block");
    let mut seen: BTreeMap<Op, usize> = BTreeMap::new();
    let mut elements: BTreeMap<Op, usize> = BTreeMap::new();
    let mut planted = Planted::new();
    for (n, probe) in rules.probes().enumerate() {
        if probe.rule().group {
            continue;
        }
        for seed in 0..3 {
            for (node, operands) in nodes_of(&probe, seed + 100 * n as u64) {
                let large = operands.iter().chain([&node.ty]).any(|ty| ty.count() > 60);
                if large || layer(&node.op) || seen.get(&node.op).is_some_and(|n| *n >= 5) {
                    continue;
                }
                if let Some(count) = compare(node.op, &node.attrs, &operands, seed, &mut planted) {
                    *seen.entry(node.op).or_default() += 1;
                    *elements.entry(node.op).or_default() += count;
                }
            }
        }
    }
    // Pointwise ops are evaluated by the table itself, so faults are planted in the others only.
    for op in
        Op::all().filter(|op| !layer(op) && semantics(*op).is_some() && !matches!(op.def().class, Class::Pointwise))
    {
        for seed in 0..DRAWN {
            let all_found = || planted.iter().all(|((of, _), found)| *of != op || *found);
            if seen.get(&op).is_some_and(|n| *n >= 8) && all_found() {
                break;
            }
            let Some((attrs, operands)) = sampled(op, seed) else { continue };
            if operands.iter().all(|ty| ty.count() <= 60)
                && let Some(count) = compare(op, &attrs, &operands, seed, &mut planted)
            {
                *seen.entry(op).or_default() += 1;
                *elements.entry(op).or_default() += count;
            }
        }
    }
    // Layers are composed of ops that are compared themselves.
    let own = Op::all()
        .filter(|op| !layer(op))
        .filter(|op| semantics(*op).is_some() && !matches!(op.def().class, Class::Pointwise));
    let missing: BTreeSet<Op> = own.filter(|op| elements.get(op).copied().unwrap_or(0) < 5).collect();
    assert!(missing.is_empty(), "too few elements of {missing:?} were compared");
    let unseen: Vec<_> = planted.iter().filter(|(_, found)| !**found).map(|(fault, _)| fault).collect();
    println!("{} of {} planted faults are found; the others: {unseen:?}", planted.len() - unseen.len(), planted.len());
    assert!(
        unseen.len() * 100 <= planted.len() * UNSEEN,
        "{} of {} faults are not found: {unseen:?}",
        unseen.len(),
        planted.len()
    );
}
