//! Defines the values from which instances are drawn: extents, element types, numbers and other attributes.

use eutectic_ir::{
    Attr, DType, Op, Shape,
    lang::{Bindings, DTypeClass, typing::VarId},
    ops::Group,
};
use eutectic_rewrites::{
    Choices,
    rule::{AttrVariable, Rule, Variable, VariableKind},
};

/// Numbers that number variables of any rule may stand for.
const NUMBERS: [f64; 20] = [
    0.5, 2.0, -1.5, 0.125, 3.0, -2.0, 30.0, 1e-5, 1.0, 0.0, 0.7, -1.0, 1e-12, 100.0, -130.0, 2049.0, -3e4, 1e6, 1e-3,
    -0.01,
];
/// Integers for attributes, in addition to small ones.
const INTEGERS: [i64; 9] = [-1, -2, 5, 8, 16, 33, 40, 64, 128];
/// The maximal number of axes of a tensor.
const MOST_AXES: usize = 5;

/// The dim that is given an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The dim of a variable of the rule.
    Variable(VarId),
    /// The `n`th dim that is drawn, counted from 0.
    Drawn(usize),
}

/// The values that samples are drawn from.
#[derive(Clone, Debug)]
pub struct Palette {
    /// The extents of dims.
    pub extents: Vec<i64>,
    /// Whether drawn extents are distinct, because equal extents can hide an error. After the whole list was drawn,
    /// larger extents follow.
    pub distinct: bool,
    /// A dim with a fixed extent. A variable's dim is bound before other values are drawn.
    pub one: Option<(Which, i64)>,
    /// Whether dims that are not the extent of a tensor, such as offsets and lengths, may also be 0.
    pub zero: bool,
    /// The numbers of the rule's text. Attributes near these are drawn too.
    pub literals: Vec<f64>,
    /// The numbers that a number variable takes with probability ½. If the case tests the range, these are the least
    /// and the largest constants that contracts cover.
    pub ends: Vec<f64>,
    /// Whether every number variable takes one of `ends`.
    pub only_ends: bool,
    /// The element types to draw from. If the rule admits none of these, all types that it admits are drawn from.
    pub dtypes: Vec<DType>,
    /// Whether the relations of the rule choose extents first, from their own lists. This finds rare combinations.
    pub relations_first: bool,
    /// The index, modulo the group's size, of the op for each of the rule's op variables. Variables beyond the list
    /// take any op.
    pub ops: Vec<usize>,
    /// The slot of a word variable with the index of its word. Variables that are not listed take any word.
    pub words: Vec<(VarId, usize)>,
}

/// Returns the slot of each word variable of a rule, with the number of words that it may stand for.
pub fn words(rule: &Rule) -> Vec<(VarId, usize)> {
    let words = |v: &Variable| match &v.kind {
        VariableKind::Attr(slot, AttrVariable::OneOf(words)) => Some((*slot, words.len())),
        _ => None,
    };
    rule.variables.iter().filter_map(words).collect()
}

/// Returns the number of ops that each op variable of a rule may stand for.
pub fn groups(rule: &Rule) -> Vec<usize> {
    let ops = |v: &Variable| match v.kind {
        VariableKind::Op(_, group) => Some(group.ops().len()),
        _ => None,
    };
    rule.variables.iter().filter_map(ops).collect()
}

/// Draws values from a palette.
pub struct Drawn<'a> {
    palette: &'a Palette,
    random: &'a mut fastrand::Rng,
    /// The extents that were not drawn yet.
    left: Vec<i64>,
    /// The number of dims drawn so far.
    dims: usize,
    /// The number of ops drawn so far.
    ops: usize,
}

impl<'a> Drawn<'a> {
    /// Returns the choices from a palette, drawn by a generator.
    pub fn from(palette: &'a Palette, random: &'a mut fastrand::Rng) -> Drawn<'a> {
        Drawn { palette, random, left: palette.extents.clone(), dims: 0, ops: 0 }
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(..all.len())].clone()
    }

    /// Returns a number of the rule's text or one near it, in one of four draws. Numbers beyond the range of `f32` are
    /// excluded, because programs in narrow types state none.
    fn literal(&mut self) -> Option<f64> {
        if self.palette.literals.is_empty() || self.below(4) > 0 {
            return None;
        }
        let x = self.of(&self.palette.literals);
        Some(self.of(&[x, x + 1.0, x - 1.0, -x, 2.0 * x, x + 0.5])).filter(|x| x.abs() <= f64::from(f32::MAX))
    }

    fn number(&mut self) -> f64 {
        if !self.palette.ends.is_empty() && (self.palette.only_ends || self.below(2) == 0) {
            return self.of(&self.palette.ends);
        }
        self.literal().unwrap_or_else(|| self.of(&NUMBERS))
    }

    /// Returns the ranks of the tensors that are bound already.
    fn ranks(&self, rule: &Rule, bindings: &Bindings) -> Vec<usize> {
        let shapes = rule.tensors().filter_map(|(_, ty, _)| ty.dims.value(bindings));
        let mut ranks: Vec<usize> = shapes.map(|shape| shape.rank()).filter(|rank| *rank > 0).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Returns the rank of a tensor that is bound already, in five of six draws. Otherwise returns any rank.
    fn rank(&mut self, rule: &Rule, bindings: &Bindings) -> usize {
        let ranks = self.ranks(rule, bindings);
        if ranks.is_empty() || self.below(6) == 0 { 1 + self.below(MOST_AXES) } else { self.of(&ranks) }
    }

    fn integer(&mut self, rule: &Rule, bindings: &Bindings) -> i64 {
        if let Some(x) = self.literal() {
            return x as i64;
        }
        let shapes: Vec<Shape> = rule.tensors().filter_map(|(_, ty, _)| ty.dims.value(bindings)).collect();
        let most = shapes.iter().flat_map(|s| s.iter()).filter_map(|d| d.known()).max().unwrap_or(3);
        match self.below(8) {
            0..4 => self.below(4) as i64,
            4..7 => self.below(most.unsigned_abs() as usize + 1) as i64,
            _ => self.of(&INTEGERS),
        }
    }
}

impl Choices for Drawn<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.random.usize(..n)
    }

    fn relations_first(&self) -> bool {
        self.palette.relations_first
    }

    fn dtype(&mut self, class: DTypeClass) -> DType {
        let admitted = |from: &[DType]| from.iter().copied().filter(|d| class.contains(*d)).collect::<Vec<_>>();
        let fitting = admitted(&self.palette.dtypes);
        if fitting.is_empty() { self.of(&admitted(&DType::ALL)) } else { self.of(&fitting) }
    }

    fn op(&mut self, group: Group) -> Op {
        let ops = group.ops();
        let level = self.palette.ops.get(self.ops).copied();
        self.ops += 1;
        ops[level.unwrap_or_else(|| self.below(ops.len())) % ops.len()]
    }

    fn dim(&mut self, extent: bool) -> i64 {
        self.dims += 1;
        if let Some((_, extent)) = self.palette.one.filter(|(which, _)| *which == Which::Drawn(self.dims - 1)) {
            return extent;
        }
        if !extent && self.palette.zero && self.below(3) == 0 {
            return self.below(2) as i64;
        }
        // An offset or a length may be as large as the extent of its axis.
        if let Some((_, longest)) = self.palette.one.filter(|_| !extent) {
            return self.below(longest as usize + 1) as i64;
        }
        if !self.palette.distinct {
            return self.of(&self.palette.extents);
        }
        if self.left.is_empty() {
            let beyond = self.palette.extents.iter().max().copied().unwrap_or(1);
            self.left.extend(self.palette.extents.iter().map(|n| n + beyond));
        }
        let at = self.random.usize(..self.left.len());
        self.left.remove(at)
    }

    fn attr(&mut self, rule: &Rule, slot: VarId, bindings: &Bindings) -> Attr {
        match rule.attribute(slot) {
            Some(AttrVariable::Int) => Attr::Int(self.integer(rule, bindings)),
            Some(AttrVariable::Axis) => {
                let rank = self.rank(rule, bindings);
                Attr::Int(-1 - self.below(rank) as i64)
            }
            Some(AttrVariable::Axes) => {
                let rank = self.rank(rule, bindings);
                let sure = -1 - self.below(rank) as i64;
                let axes: Vec<i64> = (-(rank as i64)..0).filter(|&axis| axis == sure || self.below(2) == 0).collect();
                Attr::from(&axes[..])
            }
            Some(AttrVariable::Perm) => {
                let rank = self.rank(rule, bindings);
                self.permutation(rank)
            }
            Some(AttrVariable::Shape) => Attr::Shape(self.shape(rule, bindings)),
            Some(AttrVariable::Bool) => Attr::Bool(self.below(2) == 0),
            Some(AttrVariable::DType) => Attr::DType(self.of(&DType::ALL)),
            Some(AttrVariable::OneOf(words)) => {
                let listed = self.palette.words.iter().find(|(of, _)| *of == slot).map(|(_, word)| *word);
                Attr::from(words[listed.unwrap_or_else(|| self.below(words.len())) % words.len()].as_str())
            }
            None => match rule.wanted(slot) {
                Some(wanted) => Attr::from(wanted),
                None => Attr::from(self.number()),
            },
        }
    }
}
