//! Draws the values of a case's tensors: ordinary numbers, and each kind of number on which wrong rules fail.

use std::collections::BTreeMap;

use eutectic::{DType, Graph, Tensor};
use eutectic_ir::{Class, Op, ops::Anchor};
use eutectic_rewrites::{
    Contract, Rule,
    rule::{AppliedOp, OpTerm, Term, Variable, VariableKind},
};

use crate::{
    boundary::{self, moderate_exponent, range},
    promise::promise,
};

/// The least extent that counts as large.
pub const LEAST_LARGE: i64 = 65;

/// A kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Numbers of either sign and several orders of magnitude, with every bit of the significand in use.
    Ordinary,
    /// Like ordinary, but positive, for roots and logarithms.
    Positive,
    /// Numbers at which the arithmetic of the element type changes: limits of integers, halves, powers of two and their
    /// neighbours, and the numbers of the rule's text. The most informative numbers of different tensors occur in every
    /// combination, if the tensors have enough elements.
    Boundary,
    /// Every magnitude that contracts cover.
    Moderate,
    /// Numbers close to 1, so that differences cancel.
    Near,
    /// Zeros of both signs, ones, and ordinary numbers.
    Zeros,
    /// Subnormal numbers and the least normal ones, or the least moderate ones.
    Tiny,
    /// Numbers near the largest one, or near its square root.
    Large,
    /// Numbers at the ends of the element type's range: the largest and the least, those whose products overflow or
    /// underflow, and every magnitude in between. Numbers of different tensors are combined as for `Boundary`.
    Ends,
    /// Ordinary data, with large constants for the numbers that the program may state. A program intends the roundings
    /// that such a constant causes.
    Numbers,
    /// Ordinary, with infinities and NaN among them.
    NonFinite,
    /// Ordinary, with one infinity or NaN in one tensor: at one place, along a row or a column, or everywhere.
    Placed,
    /// Positive, with infinities in one tensor, throughout or along a row, and infinities or NaN throughout another
    /// one.
    Paired,
    /// Ordinary, with a mask, and NaN, infinities or huge numbers at places that the left side does not read. Without a
    /// mask, like `Placed`.
    Garbage,
    /// Ordinary, with −∞ or the least number in one tensor, as a mask that the left side absorbs. Without a mask, like
    /// `Ordinary`.
    Masked,
}

impl Style {
    /// Returns the styles that a rule's contract covers.
    pub fn of(rule: &Rule) -> &'static [Style] {
        use Style::*;
        match promise(rule) {
            Contract::Fast => &[Ordinary, Positive, Near],
            _ if rule.states_its_domain() && leaves_out(rule) => {
                &[Ordinary, Boundary, Positive, Near, Moderate, Masked]
            }
            _ if rule.states_its_domain() => &[Ordinary, Boundary, Positive, Near, Moderate],
            Contract::Exact => &[Ordinary, Boundary, Positive, Masked, Zeros, NonFinite, Near, Moderate, Large, Tiny],
            // If the order of sums and products is not open, the roundings of the program's numbers are tested too.
            _ if !mixes(rule) && rule.variables.iter().any(may_be_a_number) => &[
                Ordinary, Boundary, Positive, Masked, Zeros, NonFinite, Near, Moderate, Large, Tiny, Ends, Placed,
                Paired, Garbage, Numbers,
            ],
            _ => &[
                Ordinary, Boundary, Positive, Masked, Zeros, NonFinite, Near, Moderate, Large, Tiny, Ends, Placed,
                Paired, Garbage,
            ],
        }
    }
}

/// Returns whether a variable may stand for a number that the program states. Weights that vary from element to element
/// are data, like inputs.
fn may_be_a_number(variable: &Variable) -> bool {
    match variable.kind {
        VariableKind::Tensor { constant, .. } => constant && !variable.varied,
        VariableKind::Number(_) => true,
        _ => false,
    }
}

/// The tensors of a case, by the name of the input or parameter.
pub type Values = BTreeMap<String, Tensor>;

/// The parameters by which values are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// The kind of numbers.
    pub style: Style,
    /// The contract by which the rule is judged.
    pub contract: Contract,
    /// The numbers of the rule's text.
    pub literals: &'a [f64],
    /// The rule's variables, with the domains that the rule states.
    pub variables: &'a [Variable],
    /// Whether the contract covers the range of moderate numbers only.
    pub moderate: bool,
}

impl<'a> Manner<'a> {
    /// Returns the parameters for a rule.
    pub fn of(rule: &'a Rule, style: Style, literals: &'a [f64]) -> Manner<'a> {
        let moderate = promise(rule) != Contract::Exact && mixes(rule);
        Manner { style, contract: promise(rule), literals, variables: &rule.variables, moderate }
    }

    /// Returns the parameters for one tensor. Constants are finite and moderate, unless the rule is `exact`. In the
    /// style `Numbers`, only tensors that may be numbers of the program have large numbers.
    pub fn of_tensor(self, name: &str) -> Manner<'a> {
        let name = name.split('.').next().unwrap_or(name);
        let constant = |v: &Variable| v.name == name && matches!(v.kind, VariableKind::Tensor { constant: true, .. });
        if self.style == Style::Numbers && !self.variables.iter().any(|v| v.name == name && may_be_a_number(v)) {
            return Manner { style: Style::Ordinary, ..self };
        }
        match self.contract != Contract::Exact && self.variables.iter().any(constant) {
            true if self.style == Style::NonFinite => Manner { style: Style::Ordinary, ..self },
            constant => Manner { moderate: self.moderate || constant, ..self },
        }
    }

    /// Returns the least and the largest value of the elements of a tensor. The names of tensors of a group's members
    /// end in `.number`.
    pub fn domain(&self, name: &str) -> Option<(f64, f64)> {
        let name = name.split('.').next().unwrap_or(name);
        self.variables.iter().find(|v| v.name == name)?.domain
    }
}

/// Returns whether a rule has a composite op or one with a named anchor, such as a product, attention or a norm. Sums
/// of products overflow in some order, so such rules promise the range for moderate numbers only.
fn mixes(rule: &Rule) -> bool {
    names(rule, |op| matches!(op.def().class, Class::Composite | Class::Anchor(Anchor::Named(_))))
}

/// Returns whether a side of a rule has an op that skips elements for which an operand is −∞.
fn leaves_out(rule: &Rule) -> bool {
    names(rule, |op| op.def().leaves_out)
}

/// Returns whether a side of a rule names an op for which a predicate holds.
fn names(rule: &Rule, holds: impl Fn(Op) -> bool) -> bool {
    let mut found = false;
    let sides =
        rule.roots.iter().flat_map(|root| [&root.left, &root.right]).chain(rule.lets.iter().map(|(_, term)| term));
    for side in sides {
        side.visit(&mut |term| {
            if let Term::Call(AppliedOp { op: OpTerm::Named(op), .. }) = term {
                found |= holds(*op);
            }
        });
    }
    found
}

/// Returns whether all elements are in the domains that a rule states.
pub fn lie_in_the_domain(rule: &Rule, values: &Values) -> bool {
    let manner = Manner::of(rule, Style::Ordinary, &[]);
    values.iter().all(|(name, tensor)| {
        let inside = |(least, most)| tensor.to_f64().into_iter().all(|x| x > least && x < most);
        manner.domain(name).is_none_or(inside)
    })
}

/// Returns a number in a domain: the number itself, its negation, or a number of that type between the ends.
fn within((least, most): (f64, f64), x: f64, dtype: DType, random: &mut fastrand::Rng) -> f64 {
    let inside = |x: f64| x > least && x < most;
    let between = if most.is_finite() { least + (most - least) * unit(random) } else { least + 0.5 + unit(random) };
    let stored = || Tensor::from_f64(dtype, &[], [between]).to_f64()[0];
    [x, -x].into_iter().find(|x| inside(*x)).unwrap_or_else(stored)
}

/// The extents that tensors of integers index.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// The extent that each tensor of ids indexes.
    pub of: BTreeMap<String, usize>,
    /// The bound for all integers, if ids are computed from them.
    pub all: Option<usize>,
}

impl Extents {
    fn most(&self, name: &str) -> Option<usize> {
        self.of.get(name).copied().into_iter().chain(self.all).min()
    }
}

/// Returns values for all inputs and parameters of a graph. Indices are within `extents`.
pub fn draw(graph: &Graph, manner: Manner<'_>, extents: &Extents, random: &mut fastrand::Rng) -> Values {
    let leaves: Vec<(&str, eutectic::NodeId)> = graph.named("input").chain(graph.named("param")).collect();
    // One of several tensors may be ordinary, so that special values in one tensor occur with ordinary ones in another.
    let mixed = leaves.len() > 1
        && !matches!(
            manner.style,
            Style::Positive | Style::Boundary | Style::Moderate | Style::NonFinite | Style::Ends | Style::Numbers
        );
    let ordinary = (mixed && random.bool()).then(|| random.usize(..leaves.len()));
    // A tensor filled with one large number overflows in a sum.
    let uniform = manner.style == Style::Ends && random.bool();
    let tensor = |(at, (name, id)): (usize, &(&str, eutectic::NodeId))| {
        let ty = graph.ty(*id);
        let (dtype, dims) = (ty.dtype()?, ty.dims()?);
        let count = dims.iter().product();
        let manner = if ordinary == Some(at) { Manner { style: Style::Ordinary, ..manner } } else { manner };
        let manner = manner.of_tensor(name);
        let tensor = if dtype.is_float() {
            let special = special_floats(dtype, manner);
            let mut combinations = Combinations::of(&special, at, leaves.len(), count);
            let number = |random: &mut fastrand::Rng| float(dtype, manner, random);
            let mut stored = Tensor::from_f64(
                dtype,
                &dims,
                (0..count).map(|n| combinations.at(n, random, number)).collect::<Vec<_>>(),
            );
            if let Some(domain) = manner.domain(name) {
                let inside = stored.to_f64().into_iter().map(|x| within(domain, x, dtype, random)).collect::<Vec<_>>();
                stored = Tensor::from_f64(dtype, &dims, inside);
            }
            if uniform && random.bool() {
                let same = special[random.usize(..special.len())];
                stored = Tensor::from_f64(dtype, &dims, vec![same; count]);
            }
            match manner.contract {
                Contract::Exact | Contract::Ulp(_) => stored,
                // The other contracts do not distinguish −0 from 0. Adding 0 turns each −0 into 0.
                _ => Tensor::from_f64(dtype, &dims, stored.to_f64().into_iter().map(|x| x + 0.0)),
            }
        } else if dtype == DType::Bool {
            Tensor::from_i64(dtype, &dims, truths(&dims, manner, random))
        } else {
            let most = extents.most(name);
            let special = special_integers(dtype, manner, most);
            let mut combinations = Combinations::of(&special, at, leaves.len(), count);
            let number = |random: &mut fastrand::Rng| integer(manner.style, most, random);
            Tensor::from_i64(dtype, &dims, (0..count).map(|n| combinations.at(n, random, number)).collect::<Vec<_>>())
        };
        Some((name.to_string(), tensor))
    };
    leaves.iter().enumerate().filter_map(tensor).collect()
}

/// Returns the numbers that a style consists of, or no numbers if the style has a range of them.
fn special_floats(dtype: DType, manner: Manner<'_>) -> Vec<f64> {
    let exact = manner.contract == Contract::Exact;
    match manner.style {
        Style::Boundary => boundary::floats(dtype, manner.literals, exact),
        Style::Ends => boundary::ends(dtype, manner.moderate),
        Style::Numbers => boundary::coarse(dtype).to_vec(),
        // NaN is more frequent than the others, because tensors of few elements must have one too.
        Style::NonFinite => vec![f64::INFINITY, f64::NAN, 1.0, f64::NEG_INFINITY, f64::NAN, -2.0, 0.0, f64::NAN],
        _ => Vec::new(),
    }
}

fn special_integers(dtype: DType, manner: Manner<'_>, most: Option<usize>) -> Vec<i64> {
    match (manner.style, dtype, most) {
        (Style::Boundary, _, Some(most)) => (0..most.min(64) as i64).rev().chain([most as i64 - 1]).collect(),
        (Style::Boundary | Style::Moderate | Style::Tiny, _, None) => boundary::integers(dtype, manner.literals),
        _ => Vec::new(),
    }
}

/// Fills one of several tensors with special values, so that the tensors together contain every combination of the
/// first `first` values. Elements at the same index form one combination. Of the remaining elements, a quarter are any
/// numbers, and the others are random special values.
struct Combinations<'a, T> {
    special: &'a [T],
    /// The number of values at the start of each tensor's list of special values that are combined.
    first: usize,
    /// The number of consecutive elements with the same value.
    run: usize,
    /// The number of elements that the combinations need.
    all: usize,
}

impl<'a, T: Copy> Combinations<'a, T> {
    /// Returns the combinations for tensor `at` of `tensors`, each with `count` elements.
    fn of(special: &'a [T], at: usize, tensors: usize, count: usize) -> Combinations<'a, T> {
        let power = |first: usize| first.checked_pow(tensors.max(1) as u32).filter(|all| *all <= count);
        let first = (1..=special.len()).take_while(|first| power(*first).is_some()).last().unwrap_or(0);
        Combinations { special, first, run: first.pow(at as u32).max(1), all: power(first).unwrap_or(0) }
    }

    fn at(&mut self, n: usize, random: &mut fastrand::Rng, other: impl Fn(&mut fastrand::Rng) -> T) -> T {
        if n < self.all && self.first > 1 {
            self.special[n / self.run % self.first]
        } else if self.special.is_empty() || random.usize(..4) == 0 {
            other(random)
        } else {
            self.special[random.usize(..self.special.len())]
        }
    }
}

/// Returns the tensors with −∞ at random places of one of them. Every row keeps an element. With `rows`, some rows are
/// masked as a whole instead. Returns `None` for a tensor without several floating elements in a row.
pub fn masked(values: &Values, name: &str, rows: bool, random: &mut fastrand::Rng) -> Option<Values> {
    let tensor = values.get(name).filter(|t| t.dtype().is_float())?;
    let width = *tensor.dims().last().filter(|width| **width > 1)?;
    let mut elements = tensor.to_f64();
    for row in elements.chunks_mut(width) {
        let kept = random.usize(..width);
        let whole = rows && random.usize(..2) == 0;
        for (at, x) in row.iter_mut().enumerate() {
            if whole || at != kept && random.usize(..2) == 0 {
                *x = f64::NEG_INFINITY;
            }
        }
    }
    let tensor = Tensor::from_f64(tensor.dtype(), tensor.dims(), elements);
    let mut values = values.clone();
    values.insert(name.to_string(), tensor);
    Some(values)
}

/// Returns the tensors with each −∞ in one of them replaced by a number.
pub fn remasked(values: &Values, name: &str, number: f64) -> Values {
    let mut values = values.clone();
    if let Some(tensor) = values.get_mut(name) {
        let changed = |x: f64| if x == f64::NEG_INFINITY { number } else { x };
        *tensor = Tensor::from_f64(tensor.dtype(), tensor.dims(), tensor.to_f64().into_iter().map(changed));
    }
    values
}

/// The number of sign patterns for tensors of large numbers, one for each bit of a tensor's index. Any two of eight
/// tensors have opposite signs in some pattern.
const SIGNS: usize = 3;

/// Returns the number of ways in which [`opposed`] can fill this number of tensors.
pub fn oppositions(tensors: usize) -> usize {
    tensors + SIGNS
}

/// Fills the floating tensors with the largest numbers that the contract covers, in the `n`th way. An intermediate
/// result that overflows in one order of operations may be small, or cancel, in another order. So the first ways fill
/// one tensor with the reciprocal of its largest number. The last [`SIGNS`] ways are sign patterns, and any two of
/// eight tensors have opposite signs in one of them.
pub fn opposed(values: &Values, manner: Manner<'_>, n: usize) -> Values {
    let (way, others) = (n % oppositions(values.len()), n / oppositions(values.len()));
    let filled = |(at, (name, tensor)): (usize, (&String, &Tensor))| {
        let dtype = tensor.dtype();
        let most = if manner.of_tensor(name).moderate { 2_f64.powi(moderate_exponent(dtype)) } else { range(dtype).1 };
        let is_negative = match way.checked_sub(values.len()) {
            Some(bit) => at >> bit & 1 == 1,
            None => others >> (at % 16) & 1 == 1,
        };
        let size = if way == at { most.recip() } else { most };
        let number = if is_negative { -size } else { size };
        let full = || Tensor::from_f64(dtype, tensor.dims(), vec![number; tensor.count()]);
        (name.clone(), if dtype.is_float() { full() } else { tensor.clone() })
    };
    values.iter().enumerate().map(filled).collect()
}

/// Returns values with pairs of numbers at the ends of the range. The two numbers of a pair are at the same position in
/// the two halves of the last axis of the only tensor. In a gated activation, one number is then the gate, and the
/// other one the value that it scales. All pairs occur as `n` increases. Returns `None` for several tensors, or if
/// there are no halves.
pub fn halved(values: &Values, manner: Manner<'_>, n: usize) -> Option<Values> {
    let (name, tensor) = values.iter().next().filter(|_| values.len() == 1)?;
    let width = *tensor.dims().last()?;
    if width == 0 || !width.is_multiple_of(2) || !tensor.dtype().is_float() || manner.domain(name).is_some() {
        return None;
    }
    let special = special_floats(tensor.dtype(), manner.of_tensor(name));
    let (half, first) = (width / 2, n * tensor.count() / 2);
    let number = |at: usize| {
        let pair = first + at / width * half + at % half;
        let turn = if at % width < half { pair } else { pair / special.len() };
        special[turn % special.len()]
    };
    let all: Vec<f64> = (0..tensor.count()).map(number).collect();
    Some([(name.clone(), Tensor::from_f64(tensor.dtype(), tensor.dims(), all))].into())
}

/// Returns a number in [0, 1) with 53 random bits.
fn unit(random: &mut fastrand::Rng) -> f64 {
    (random.u64(..) >> 11) as f64 / (1_u64 << 53) as f64
}

fn ordinary(random: &mut fastrand::Rng) -> f64 {
    let sign = if random.usize(..2) == 0 { 1.0 } else { -1.0 };
    sign * (0.5 + unit(random)) * 2_f64.powi(random.usize(..6) as i32 - 3)
}

fn float(dtype: DType, manner: Manner<'_>, random: &mut fastrand::Rng) -> f64 {
    let x = ordinary(random);
    let most = 2_f64.powi(moderate_exponent(dtype));
    let (least, largest) = if manner.moderate { (most.recip(), most) } else { range(dtype) };
    match (manner.style, random.usize(..6)) {
        (Style::Ordinary | Style::Boundary, _) => x,
        // Exponents x for which eˣ or e⁻ˣ is subnormal.
        (Style::Ends, 0 | 1) => {
            let normal = range(dtype).0;
            let (low, high) = ((normal * 2.0 * dtype.unit_roundoff()).ln(), normal.ln());
            x.signum() * (low + (high - low) * unit(random))
        }
        (Style::Ends, _) => {
            // The least magnitude is the least moderate or the least subnormal number. For `f64`, half of the latter
            // would be 0.
            let subnormal = if manner.moderate { 1.0 } else { 2.0 * dtype.unit_roundoff() };
            let (low, high) = ((least * subnormal).log2(), largest.log2());
            x.signum() * (low + (high - low) * unit(random)).exp2()
        }
        (Style::Positive, _) => x.abs(),
        (Style::Moderate, _) => {
            let most = moderate_exponent(dtype);
            x.signum() * (1.0 + unit(random)) * 2_f64.powi(random.i32(-most..most))
        }
        (Style::Near, n) => 1.0 + dtype.unit_roundoff() * (n as f64 - 2.0),
        (Style::Zeros, 0 | 1) => 0.0,
        (Style::Zeros, 2) => -0.0,
        (Style::Zeros, 3) => -1.0,
        (Style::Tiny, 0..4) if manner.moderate => x.signum() * least * (1.0 + unit(random)),
        (Style::Tiny, 0..3) => x * least / 64.0,
        (Style::Tiny, 3) => x * least * 4.0,
        (Style::Large, 0) => x.signum() * largest * (0.5 + unit(random) / 2.0),
        (Style::Large, 1 | 2) => x * largest.sqrt(),
        (Style::NonFinite, 0) => x.signum() * f64::INFINITY,
        (Style::NonFinite, 1) if random.usize(..3) == 0 => f64::NAN,
        _ => x,
    }
}

/// Returns bools as in masks: three in four are true. Two rows in eight have no true element, and one has only true
/// ones, unless the rule is `fast`: these rules promise nothing for a fully masked row. With ordinary numbers and a
/// large dim, all bools are true, so that counts reach the limit of their type.
fn truths(dims: &[usize], manner: Manner<'_>, random: &mut fastrand::Rng) -> Vec<i64> {
    let (count, width) = (dims.iter().product(), dims.last().copied().unwrap_or(1));
    let fast = manner.contract == Contract::Fast;
    if !fast && manner.style == Style::Ordinary && dims.iter().any(|extent| *extent >= LEAST_LARGE as usize) {
        return vec![1; count];
    }
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let row = if fast { 7 } else { random.usize(..8) };
        let one = |random: &mut fastrand::Rng| match row {
            0 | 1 => 0,
            2 => 1,
            _ => i64::from(random.usize(..4) > 0),
        };
        all.extend((0..width.min(count - all.len())).map(|_| one(random)));
    }
    all
}

fn integer(style: Style, most: Option<usize>, random: &mut fastrand::Rng) -> i64 {
    if let Some(most) = most {
        return if most == 0 { 0 } else { random.usize(..most) as i64 };
    }
    match style {
        // Any bits are legal, because integer arithmetic wraps.
        Style::Large | Style::NonFinite => random.i64(..),
        Style::Zeros => random.usize(..3) as i64 - 1,
        _ => random.usize(..21) as i64 - 8,
    }
}
