//! What instances are drawn from: extents, element types, numbers and other attributes.

use eutectic_ir::{
    Attr, DType, Op,
    lang::{Bindings, DTypeClass, typing::Slot},
    ops::Group,
};
use eutectic_rewrites::{
    Choices,
    rule::{AttrVariable, Rule, Variable, VariableKind},
};

/// What samples are drawn from.
#[derive(Clone, Debug)]
pub struct Palette {
    /// The extents of dims.
    pub extents: Vec<i64>,
    /// Whether no extent is drawn twice while there are others: what is equal by accident would hide an error.
    pub distinct: bool,
    /// Whether dims that are no tensor's extent (offsets, lengths) may be 0 too.
    pub zero: bool,
    /// The numbers that number variables stand for.
    pub numbers: Vec<f64>,
    /// The element types, where the rule leaves a choice; all that it admits, if none of these is admitted.
    pub dtypes: Vec<DType>,
    /// Whether the relations choose first, from extents of their own: that finds what is rare.
    pub relations_first: bool,
    /// Which of its ops a variable of ops stands for: counting it up takes all of them in turn.
    pub turn: usize,
}

/// How many ops a variable of a rule may stand for: so many turns take each.
pub fn turns(rule: &Rule) -> usize {
    let ops = |v: &Variable| match v.kind {
        VariableKind::Op(_, group) => group.ops().len(),
        _ => 1,
    };
    rule.variables.iter().map(ops).max().unwrap_or(1)
}

/// Draws from a palette.
pub struct Drawn<'a> {
    palette: &'a Palette,
    random: &'a mut fastrand::Rng,
    /// Extents that were not drawn yet.
    left: Vec<i64>,
}

impl<'a> Drawn<'a> {
    /// Draws from a palette, by a generator.
    pub fn from(palette: &'a Palette, random: &'a mut fastrand::Rng) -> Drawn<'a> {
        Drawn { palette, random, left: palette.extents.clone() }
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(..all.len())].clone()
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
        // Beginning elsewhere in each round, because what else depends on the turn may repeat with the same period.
        let (ops, turn) = (group.ops(), self.palette.turn);
        ops[(turn + turn / ops.len()) % ops.len()]
    }

    fn dim(&mut self, extent: bool) -> i64 {
        if !extent && self.palette.zero && self.below(3) == 0 {
            return self.below(2) as i64;
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

    fn attr(&mut self, rule: &Rule, slot: Slot, bindings: &Bindings) -> Attr {
        match rule.attribute(slot) {
            Some(AttrVariable::Int) => Attr::Int(self.below(4) as i64),
            Some(AttrVariable::Axis) => Attr::Int(-1 - self.below(3) as i64),
            Some(AttrVariable::Axes) => {
                let least = -1 - self.below(2) as i64;
                Attr::from(&(least..0).collect::<Vec<i64>>()[..])
            }
            Some(AttrVariable::Perm) => {
                let rank = 1 + self.below(4);
                self.permutation(rank)
            }
            Some(AttrVariable::Shape) => Attr::Shape(self.shape(rule, bindings)),
            Some(AttrVariable::Bool) => Attr::Bool(self.below(2) == 0),
            Some(AttrVariable::DType) => Attr::DType(self.of(&DType::ALL)),
            Some(AttrVariable::OneOf(words)) => Attr::from(self.of(words).as_str()),
            None => Attr::from(rule.wanted(slot).unwrap_or_else(|| self.of(&self.palette.numbers))),
        }
    }
}
