//! The semantics of each op beside the interpreter, at every element of random instances.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use eutectic_ir::{
    Attr, Class, DType, Graph, Op, Tensor, Type, bounded::hides, graph::Node, interp::interpret, lang::Bindings,
    ops::eval::Data,
};
use eutectic_rewrites::{Probe, RuleSet, draw};

use super::semantics;
use crate::{
    call::{Call, Case},
    falsify::{Draws, elements},
    poly::{Atom, Poly},
    scope::literal,
    shape::{Item, Tensor as Symbolic},
    side::fitted,
    term::{T, Term, Ty},
};

/// Steps that the terms of an instance may take: larger ones are left out.
const STEPS: usize = 600;
/// So many elements of an instance are compared.
const SOME: usize = 5;

/// The tensors that are read, by name.
type Given = BTreeMap<String, Tensor>;

fn integer(p: &Poly, vars: &BTreeMap<u32, i128>, given: &Given) -> i128 {
    p.terms()
        .map(|(m, c)| {
            let atom = |a: &Atom| match a {
                Atom::Var(id) => vars[id],
                Atom::Div(pair) => integer(&pair[0], vars, given).div_euclid(integer(&pair[1], vars, given)),
                Atom::Min(pair) => integer(&pair[0], vars, given).min(integer(&pair[1], vars, given)),
                Atom::Max(pair) => integer(&pair[0], vars, given).max(integer(&pair[1], vars, given)),
                Atom::Value(t) => number(t, vars, given) as i128,
                Atom::Size(name) => panic!("the size {name} is known here"),
                Atom::Map(name, _) => panic!("the map {name} is known here"),
            };
            c * m.iter().map(atom).product::<i128>()
        })
        .sum()
}

/// The value of a term, in `f64`.
fn number(term: &T, vars: &BTreeMap<u32, i128>, given: &Given) -> f64 {
    match &**term {
        Term::Num(bits) => f64::from_bits(*bits),
        Term::Param(name) => panic!("the number {name} is known here"),
        Term::Index(p) => integer(p, vars, given) as f64,
        Term::Read(name, _, at) => {
            let tensor = &given[&**name];
            let flat = at.iter().zip(tensor.dims()).fold(0, |n, (p, extent)| {
                let index = integer(p, vars, given);
                assert!((0..*extent as i128).contains(&index), "{name} is read at {index} of {extent}");
                n * extent + index as usize
            });
            tensor.to_f64()[flat]
        }
        Term::If(conditions, a, b) => {
            let holds = conditions.iter().all(|p| integer(p, vars, given) >= 0);
            number(if holds { a } else { b }, vars, given)
        }
        Term::Reduce(how, ty, bound, body) => {
            let mut total = how.identity(ty.dtype.unwrap()).get();
            let mut at: Vec<BTreeMap<u32, i128>> = vec![vars.clone()];
            for (v, extent) in bound {
                let with = |vars: &BTreeMap<u32, i128>| -> Vec<BTreeMap<u32, i128>> {
                    let all = 0..integer(extent, vars, given);
                    all.map(|n| vars.iter().map(|(k, x)| (*k, *x)).chain([(*v, n)]).collect()).collect()
                };
                at = at.iter().flat_map(with).collect();
            }
            for vars in at {
                total = scalar(how.def().op, &[total, number(body, &vars, given)], ty);
            }
            total
        }
        Term::Apply(op, ty, args) => match (&**op, args.as_slice()) {
            ("where", [c, a, b]) => number(if number(c, vars, given) != 0.0 { a } else { b }, vars, given),
            ("hides", [x]) => f64::from(u8::from(hides(number(x, vars, given), DType::F64))),
            ("wrap", [x]) => number(x, vars, given),
            (op, [x]) if op.starts_with("round ") || op.starts_with("empty ") => number(x, vars, given),
            (op, args) => scalar(op, &args.iter().map(|a| number(a, vars, given)).collect::<Vec<_>>(), ty),
        },
    }
}

/// A pointwise op of the table.
fn scalar(op: &str, args: &[f64], ty: &Ty) -> f64 {
    let (op, attrs) = match op.strip_prefix("act ") {
        Some(kind) => ("act", vec![Attr::from(kind)]),
        None => (op, Vec::new()),
    };
    let attrs = if op == "cast" { vec![Attr::DType(ty.dtype.unwrap())] } else { attrs };
    // Comparisons and selections of numbers are of floats here.
    let dtype = if matches!(op, "not" | "and" | "or" | "xor") { DType::Bool } else { DType::F64 };
    let operands: Vec<(f64, DType)> = args.iter().map(|x| (*x, dtype)).collect();
    let to = if op == "cast" || ty.dtype == Some(DType::Bool) { ty.dtype.unwrap() } else { dtype };
    Op::named(op).unwrap_or_else(|| panic!("`{op}` is an op")).fold(&attrs, &operands, to).unwrap_or(f64::NAN)
}

/// Compares every element of a node's results; `None` where the node is not for this.
fn compare(node: &Node, operands: &[Type], seed: u64) -> Option<usize> {
    let semantics = semantics(node.op)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut graph, mut given, mut ids) = (Graph::new("one op"), Given::new(), Vec::new());
    for (n, ty) in operands.iter().enumerate() {
        let name = format!("x{n:02}");
        // What rounds would differ from what does not.
        let wide = match ty.as_tensor()? {
            (dtype, shape) if dtype.is_float() => Type::Tensor(DType::F64, shape.clone()),
            (dtype, shape) if dtype != DType::Bool => Type::Tensor(DType::I64, shape.clone()),
            _ => ty.clone(),
        };
        ids.push(graph.input(&name, wide.clone()).ok()?);
        given.insert(name, elements(&wide, &mut random)?);
    }
    let attrs: Vec<(&str, Attr)> = node.op.def().attrs.iter().map(|d| d.name).zip(node.attrs.iter().cloned()).collect();
    let result = graph.apply(node.op.name(), &ids, &attrs).ok()?;
    let parts = match graph.ty(result).clone() {
        Type::Tuple(parts) => (0..parts.len())
            .map(|n| graph.apply("get", &[result], &[("index", Attr::Int(n as i64))]).unwrap())
            .collect(),
        Type::Tensor(..) => vec![result],
    };
    for (n, part) in parts.iter().enumerate() {
        graph.output(&format!("y{n}"), *part).ok()?;
    }
    // Ids that are out of range are errors.
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
    let kinds = node.op.def().attrs.iter().zip(&node.attrs);
    let own = node
        .attrs
        .iter()
        .find_map(|a| if let Some(crate::call::Value::Shape(s)) = literal(a) { Some(s) } else { None });
    let of = shape.or(own);
    let attrs = kinds.map(|(def, attr)| fitted(def.kind, literal(attr).unwrap(), of.as_ref()).unwrap()).collect();
    let results = semantics(&Call { case, op: node.op.name(), attrs, args })
        .unwrap_or_else(|stop| panic!("{} of {operands:?} {:?}: {stop:?}", node.op, node.attrs));
    let mut compared = 0;
    for (symbolic, value) in results.iter().zip(&want) {
        let extents: Vec<usize> = symbolic.shape.iter().map(|i| i.extent.known().unwrap() as usize).collect();
        assert_eq!(extents, value.dims, "{} of {operands:?} {:?}", node.op, node.attrs);
        for at in (0..value.count()).step_by(value.count().div_ceil(SOME).max(1)) {
            let mut rest = at;
            let mut index: Vec<Poly> = Vec::new();
            for extent in extents.iter().rev() {
                index.insert(0, Poly::int((rest % extent) as i128));
                rest /= extent;
            }
            let term = match (symbolic.at)(&index) {
                Err(crate::facts::Stop::Because(why)) if why.contains("too large") => return None,
                term => term.unwrap_or_else(|stop| panic!("{}: {stop:?}", node.op)),
            };
            let is = number(&term, &BTreeMap::new(), &given);
            let want = match &value.data {
                Data::Real(x) => x[at],
                Data::Int(n) => n[at].unwrap() as f64,
            };
            // A row without weights is a special value.
            let special = !want.is_finite() || !is.is_finite();
            let near = (is - want).abs() <= 1e-9 * (1.0 + want.abs());
            assert!(near || special, "{} of {operands:?} {:?} at {at}: {is}, not {want}: {term}", node.op, node.attrs);
            compared += usize::from(near);
        }
    }
    Some(compared)
}

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

#[test]
fn the_semantics_of_ops_are_what_the_interpreter_computes() {
    let rules = RuleSet::embedded().unwrap();
    let mut seen: BTreeMap<Op, usize> = BTreeMap::new();
    let mut elements: BTreeMap<Op, usize> = BTreeMap::new();
    for (n, probe) in rules.probes().enumerate() {
        if probe.rule().group {
            continue;
        }
        for seed in 0..3 {
            for (node, operands) in nodes_of(&probe, seed + 100 * n as u64) {
                let large = operands.iter().chain([&node.ty]).any(|ty| ty.count() > 60);
                if large || seen.get(&node.op).is_some_and(|n| *n >= 5) {
                    continue;
                }
                if let Some(count) = compare(&node, &operands, seed) {
                    *seen.entry(node.op).or_default() += 1;
                    *elements.entry(node.op).or_default() += count;
                }
            }
        }
    }
    // Functions of elements have the table's own evaluation.
    let layer = |op: &Op| matches!(op.name(), "encoder-layer" | "attention-block");
    // Layers are put together from parts that are compared.
    let own = Op::all()
        .filter(|op| !layer(op))
        .filter(|op| semantics(*op).is_some() && !matches!(op.def().class, Class::Pointwise));
    let missing: BTreeSet<Op> = own.filter(|op| elements.get(op).copied().unwrap_or(0) < 5).collect();
    assert!(missing.is_empty(), "too few elements of {missing:?} were compared");
}
