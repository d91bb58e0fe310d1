//! Searches for an instance on which the two sides of a rule differ, and lets the interpreter confirm it.
//!
//! Instances are small. Their extents are near the numbers in the rule's text, because a rule that is wrong from some
//! size on usually contains that size. Elements are small dyadic fractions, whose sums and products are exact in `f64`.
//! A difference then comes from the functions and not from rounding.

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
    /// The place of the differing result among the results.
    pub root: usize,
    /// The place of the differing element in that result, row-major.
    pub at: usize,
    /// The left side's value of the element.
    pub left: f64,
    /// The right side's value of the element.
    pub right: f64,
}

/// The maximal numbers of instances that are drawn and that are compared. Many draws violate a relation of the rule.
const DRAWN: u64 = 600;
const COMPARED: usize = 80;
/// The maximal number of elements of a tensor.
const ELEMENTS: usize = 40_000;
/// The number of elements from which on a slope along the position is added to the random values of a tensor.
const MANY: usize = 200;
/// The largest number in a rule near which extents are drawn.
const LARGEST: i64 = 10_000;

/// A source of random values for the variables of a rule.
pub struct Draws {
    random: fastrand::Rng,
    numbers: Vec<i64>,
    /// The float type of all tensors, if it is fixed.
    floats: Option<DType>,
}

impl Draws {
    /// Makes a source of values for a rule.
    pub fn new(rule: &Rule, seed: u64) -> Draws {
        Draws { random: fastrand::Rng::with_seed(seed), numbers: numbers(rule), floats: None }
    }

    /// Makes a source of values in which all floats have one type.
    pub fn of(rule: &Rule, seed: u64, floats: DType) -> Draws {
        Draws { floats: Some(floats), ..Draws::new(rule, seed) }
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
        if let Some(floats) = self.floats.filter(|floats| members.contains(floats)) {
            return floats;
        }
        let wide = members.iter().find(|d| **d == DType::F64).or(members.iter().find(|d| **d == DType::I64));
        match wide {
            Some(wide) if self.random.u8(..4) > 0 => *wide,
            _ => *self.random.choice(&members).unwrap_or(&DType::F64),
        }
    }

    fn dim(&mut self, extent: bool) -> i64 {
        let least = i64::from(extent && self.random.u8(..4) > 0);
        match self.numbers.is_empty() || self.random.bool() {
            true => self.random.i64(least..5),
            // A dim may exceed a large number by up to 11 instead of 2, because a counterexample may need a few more
            // elements.
            false => {
                let number = self.numbers[self.random.usize(..self.numbers.len())];
                (number + self.random.i64(-1..if number < 100 { 3 } else { 12 })).max(least)
            }
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

/// Returns the integers in a rule's text that are at least 3 and below `LARGEST`.
pub fn numbers(rule: &Rule) -> Vec<i64> {
    let mut found = Vec::new();
    fn of_dim(p: &DimPattern, found: &mut Vec<i64>) {
        match p {
            DimPattern::Number(n) => found.push(*n),
            DimPattern::Var(_) => {}
            DimPattern::Sum(of) | DimPattern::Product(of) => of.iter().for_each(|p| of_dim(p, found)),
            DimPattern::Difference(pair)
            | DimPattern::Quotient(pair)
            | DimPattern::Floor(pair)
            | DimPattern::Mod(pair) => pair.iter().for_each(|p| of_dim(p, found)),
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
                // A narrow type wraps at this number.
                AttrTerm::Value(Attr::DType(d)) if d.is_int() && d.bits() <= 16 => found.push(d.integers().1 + 1),
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
    found.retain(|n| (3..LARGEST).contains(n));
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns random elements: small dyadic fractions for floats, and 0 or 1 for integers and truth values.
pub fn elements(ty: &Type, random: &mut fastrand::Rng) -> Option<Tensor> {
    let (dtype, dims) = (ty.dtype()?, ty.dims()?);
    let count: usize = dims.iter().product();
    if count > ELEMENTS {
        return None;
    }
    // The extremum of a large tensor is at one of its ends, so a rule that ignores an end is refuted.
    let slope = if count < MANY { 0.0 } else { [0.125, -0.125][random.usize(..2)] };
    let element = |n: usize, random: &mut fastrand::Rng| f64::from(random.i32(-16..17)) / 8.0 + slope * n as f64;
    Some(match dtype.is_float() {
        true => Tensor::from_f64(dtype, &dims, (0..count).map(|n| element(n, random))),
        false => Tensor::from_i64(dtype, &dims, (0..count).map(|_| random.i64(0..2))),
    })
}

/// Searches for an instance on which the sides differ. A `fast` rule is an approximation, so no difference refutes it.
pub fn falsify(probe: &Probe) -> Option<Counterexample> {
    falsify_at(probe, &Bindings::default())
}

/// Searches for an instance on which the sides differ, with given values of some variables.
pub fn falsify_at(probe: &Probe, bound: &Bindings) -> Option<Counterexample> {
    let draws = |rule: &Rule, seed| Draws::new(rule, seed);
    search(probe, bound, &draws, &|ty, _, random| elements(ty, random), &difference)
}

/// A function that makes a tensor of a type, or `None` if it cannot.
type Values<'a> = &'a dyn Fn(&Type, u64, &mut fastrand::Rng) -> Option<Tensor>;
/// A function that compares the results of both sides, and returns the first contradiction: the result, the element,
/// and both values.
type Contradicts<'a> = &'a dyn Fn(&Rule, &Graph, &Graph, &BTreeMap<String, Tensor>) -> Option<(usize, usize, f64, f64)>;

/// Searches for an instance that contradicts a rule, with given values of some variables.
pub fn search(
    probe: &Probe,
    bound: &Bindings,
    draws: &dyn Fn(&Rule, u64) -> Draws,
    values: Values<'_>,
    contradicts: Contradicts<'_>,
) -> Option<Counterexample> {
    let rule = probe.rule();
    if rule.contract == Contract::Fast || rule.group {
        return None;
    }
    let samples = (0..DRAWN).filter_map(|seed| {
        let sample = draw(rule, &mut draws(rule, seed), bound.clone())?;
        let sides = probe.sides(rule, std::slice::from_ref(&sample)).ok()?;
        Some((seed, sample, sides))
    });
    samples.take(COMPARED).find_map(|(seed, sample, sides)| {
        if sides.left.nodes().chain(sides.right.nodes()).any(|(_, node)| node.ty.count() > ELEMENTS) {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut given = BTreeMap::new();
        for ((variable, ..), ty) in rule.tensors().zip(&sample.types) {
            given.insert(variable.name.clone(), values(ty, seed, &mut random)?);
        }
        let (root, at, left, right) = contradicts(rule, &sides.left, &sides.right, &given)?;
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

/// Returns the first element of the results that differs by more than rounding.
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
            // Only an exact rule must agree on infinities and NaN of the left side. Overflow on the right side is
            // tested by `range`.
            let special = (!x.is_finite() || y.is_infinite()) && rule.contract != Contract::Exact;
            let near = (x - y).abs() <= tolerance && x.is_finite() && y.is_finite();
            if !(x == y || x.is_nan() && y.is_nan() || near || special) {
                return Some((root, at, x, y));
            }
        }
    }
    None
}
