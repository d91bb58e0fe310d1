//! Looks for an instance on which the two sides of a rule differ, and has the interpreter confirm it.
//!
//! Instances are small, with extents near the numbers that the rule writes: a rule that is wrong from some size on mostly says which. Elements are
//! small dyadic fractions, so that sums and products of them are exact in `f64`: a difference is one of the functions, not of rounding.

use std::collections::BTreeMap;

use eutectic_ir::{
    Attr, DType, Graph, Tensor, Type,
    interp::interpret,
    lang::{
        Bindings, DTypeClass, DimPattern,
        typing::{DimsItem, SlotKind, VarId},
    },
    ops::eval::Data,
};
use eutectic_rewrites::{
    Choices, Contract, Probe, Rule, draw,
    expr::{Expr, Number},
    rule::{AttrTerm, AttrVariable, Term, VariableKind},
};

/// An instance on which the sides differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterexample {
    /// The dims, element types and attributes.
    pub variables: Vec<(String, String)>,
    /// The tensors.
    pub tensors: Vec<(String, Tensor)>,
    /// Which result, at which element.
    pub root: usize,
    /// The place among the elements, row-major.
    pub at: usize,
    /// The value of the left side there.
    pub left: f64,
    /// What the right side gives.
    pub right: f64,
}

/// So many instances are tried.
const TRIES: u64 = 60;
/// No tensor has more elements.
const ELEMENTS: usize = 40_000;

/// Values for the variables of a rule.
pub struct Draws {
    random: fastrand::Rng,
    numbers: Vec<i64>,
}

impl Draws {
    /// Draws for a rule.
    pub fn new(rule: &Rule, seed: u64) -> Draws {
        Draws { random: fastrand::Rng::with_seed(seed), numbers: numbers(rule) }
    }
}

impl Choices for Draws {
    fn below(&mut self, n: usize) -> usize {
        self.random.usize(..n)
    }

    fn relations_first(&self) -> bool {
        false
    }

    fn dtype(&mut self, class: DTypeClass) -> DType {
        let members: Vec<DType> = class.members().filter(|d| d.computes()).collect();
        let wide = members.iter().find(|d| **d == DType::F64).or(members.iter().find(|d| **d == DType::I64));
        match wide {
            Some(wide) if self.random.u8(..4) > 0 => *wide,
            _ => *self.random.choice(&members).unwrap_or(&DType::F64),
        }
    }

    fn dim(&mut self, extent: bool) -> i64 {
        let least = i64::from(extent && self.random.u8(..8) > 0);
        match self.numbers.is_empty() || self.random.bool() {
            true => self.random.i64(least..5),
            false => (self.numbers[self.random.usize(..self.numbers.len())] + self.random.i64(-1..3)).max(least),
        }
    }

    fn attr(&mut self, rule: &Rule, slot: VarId, bindings: &Bindings) -> Attr {
        match rule.attribute(slot) {
            Some(AttrVariable::Int) => Attr::Int(self.dim(false)),
            Some(AttrVariable::Axis) => Attr::Int(-1 - self.random.i64(0..3)),
            Some(AttrVariable::Axes) => {
                let axes: Vec<i64> = (-3..0).filter(|_| self.random.bool()).collect();
                Attr::from(if axes.is_empty() { &[-1][..] } else { &axes })
            }
            Some(AttrVariable::Perm) => {
                let rank = 1 + self.random.usize(..3);
                self.permutation(rank)
            }
            Some(AttrVariable::Shape) => Attr::Shape(self.shape(rule, bindings)),
            Some(AttrVariable::Bool) => Attr::Bool(self.random.bool()),
            Some(AttrVariable::DType) => Attr::DType(DType::F64),
            Some(AttrVariable::OneOf(words)) => Attr::from(words[self.random.usize(..words.len())].as_str()),
            None => match rule.wanted(slot) {
                Some(number) => Attr::from(number),
                None => Attr::from(f64::from(self.random.i32(1..9)) * [0.5, 1.0, -0.25, 16.0][self.random.usize(..4)]),
            },
        }
    }
}

/// The integers that a rule writes.
fn numbers(rule: &Rule) -> Vec<i64> {
    let mut found = Vec::new();
    fn of_dim(p: &DimPattern, found: &mut Vec<i64>) {
        match p {
            DimPattern::Number(n) => found.push(*n),
            DimPattern::Var(_) => {}
            DimPattern::Sum(of) | DimPattern::Product(of) => of.iter().for_each(|p| of_dim(p, found)),
            DimPattern::Difference(pair) | DimPattern::Quotient(pair) => pair.iter().for_each(|p| of_dim(p, found)),
        }
    }
    fn of_expr(e: &Expr, found: &mut Vec<i64>) {
        match e {
            Expr::Number(Number::Int(n)) => found.push(*n),
            Expr::Number(Number::Float(x)) => found.push(*x as i64),
            Expr::Call(_, args) => args.iter().for_each(|a| of_expr(a, found)),
            _ => {}
        }
    }
    let sides = rule.roots.iter().flat_map(|r| [&r.left, &r.right]).chain(rule.lets.iter().map(|(_, t)| t));
    for side in sides {
        side.visit(&mut |term| match term {
            Term::Number { expr, .. } => of_expr(expr, &mut found),
            Term::Call(call) => call.attrs.iter().flatten().for_each(|attr| match attr {
                AttrTerm::Number(expr) => of_expr(expr, &mut found),
                AttrTerm::Dim(p) => of_dim(p, &mut found),
                AttrTerm::Value(Attr::Int(n)) => found.push(*n),
                AttrTerm::Shape(dims) => dims.0.iter().for_each(|item| {
                    if let DimsItem::One(p) = item {
                        of_dim(p, &mut found);
                    }
                }),
                _ => {}
            }),
            _ => {}
        });
    }
    for (call, _) in &rule.relations {
        for arg in &call.args {
            if let eutectic_ir::lang::relation::RelationArg::Dim(p) = arg {
                of_dim(p, &mut found);
            }
        }
    }
    found.retain(|n| (3..400).contains(n));
    found.sort_unstable();
    found.dedup();
    found
}

/// Small dyadic fractions, integers that index, and truth values.
pub fn elements(ty: &Type, random: &mut fastrand::Rng) -> Option<Tensor> {
    let (dtype, dims) = (ty.dtype()?, ty.dims()?);
    let count: usize = dims.iter().product();
    if count > ELEMENTS {
        return None;
    }
    Some(match dtype.is_float() {
        true => Tensor::from_f64(dtype, &dims, (0..count).map(|_| f64::from(random.i32(-16..17)) / 8.0)),
        false => Tensor::from_i64(dtype, &dims, (0..count).map(|_| random.i64(0..2))),
    })
}

/// Looks for an instance on which the sides differ. A `fast` rule is an approximation, of which no difference is a fault.
pub fn falsify(probe: &Probe) -> Option<Counterexample> {
    let rule = probe.rule();
    if rule.contract == Contract::Fast || rule.group {
        return None;
    }
    (0..TRIES).find_map(|seed| {
        let mut draws = Draws::new(rule, seed);
        let sample = draw(rule, &mut draws, Bindings::default())?;
        let sides = probe.sides(rule, std::slice::from_ref(&sample)).ok()?;
        if sides.left.nodes().chain(sides.right.nodes()).any(|(_, node)| node.ty.count() > ELEMENTS) {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut given = BTreeMap::new();
        for ((variable, ..), ty) in rule.tensors().zip(&sample.types) {
            given.insert(variable.name.clone(), elements(ty, &mut random)?);
        }
        let (root, at, left, right) = difference(rule, &sides.left, &sides.right, &given)?;
        let named = |slot: usize, name: &str| Some((name.to_string(), sample.bindings.get(slot)?.to_string()));
        let variables = rule.scope.variables.iter().enumerate().filter_map(|(slot, (name, kind))| match kind {
            SlotKind::Op => None,
            _ => named(slot, name),
        });
        let order = rule.variables.iter().filter(|v| matches!(v.kind, VariableKind::Tensor { .. }));
        let tensors = order.filter_map(|v| Some((v.name.clone(), given.get(&v.name)?.clone()))).collect();
        Some(Counterexample { variables: variables.collect(), tensors, root, at, left, right })
    })
}

/// The first element of the results that differs by more than rounding.
fn difference(
    rule: &Rule,
    left: &Graph,
    right: &Graph,
    given: &BTreeMap<String, Tensor>,
) -> Option<(usize, usize, f64, f64)> {
    let run = |graph: &Graph| interpret::<f64>(graph, &|name| given.get(name).cloned()).ok();
    let (left, right) = (run(left)?, run(right)?);
    for (root, (l, r)) in left.iter().zip(&right).enumerate() {
        let unit = l.dtype.unit_roundoff();
        let real = |data: &Data<f64>, n: usize| match data {
            Data::Real(x) => x.get(n).copied(),
            Data::Int(x) => x.get(n).copied().flatten().map(|n| n as f64),
        };
        for at in 0..l.count() {
            let (x, y) = (real(&l.data, at)?, real(&r.data, at)?);
            let tolerance =
                if l.dtype.is_float() { (1e-6_f64.max(64.0 * unit)) * (1.0 + x.abs() + y.abs()) } else { 0.0 };
            let special = !x.is_finite() && rule.contract != Contract::Exact;
            let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance;
            if !same && !special {
                return Some((root, at, x, y));
            }
        }
    }
    None
}
