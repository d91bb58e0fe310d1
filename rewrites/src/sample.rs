//! Draws values for a rule's variables, so that a rule can be typed, compiled and tested on an instance of itself.

use eutectic_ir::{
    Attr, DType, Dim, Shape, Type,
    lang::{
        Bindings, DTypeClass,
        sample::sample,
        typing::{Bound, DimPattern, DimsItem, SlotKind, Status},
    },
};

use crate::rule::{AttrVariable, Rule, VariableKind};

/// A small generator of numbers (SplitMix64; Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

/// Values for all variables.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub bindings: Bindings,
    /// The type of each tensor variable.
    pub types: Vec<Type>,
}

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
}

impl Palette {
    /// Extents that are told apart, and harmless numbers: what rules are loaded by.
    pub(crate) fn generic() -> Palette {
        Palette {
            extents: vec![2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
            distinct: true,
            zero: false,
            numbers: vec![0.5, 2.0, 0.125, 1e-5, 1.5],
            dtypes: vec![
                DType::F32,
                DType::F32,
                DType::I32,
                DType::F64,
                DType::F16,
                DType::Bool,
                DType::U8,
                DType::Bf16,
                DType::I8,
                DType::I64,
                DType::U32,
            ],
            relations_first: false,
        }
    }
}

/// Draws once, with what is bound already; `None` where what was drawn does not go together.
pub(crate) fn draw(rule: &Rule, draw: &mut Draw, palette: &Palette, bound: Bindings) -> Option<Sample> {
    let mut bindings = bound;
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        if let (SlotKind::DType(class), None) = (kind, bindings.get(slot))
            && matches!(class, DTypeClass::Float | DTypeClass::Wide | DTypeClass::Short)
        {
            bindings.bind(slot, Bound::DType(dtype(*class, palette, draw))).ok()?;
        }
    }
    if palette.relations_first {
        let (patterns, relations): (Vec<_>, Vec<_>) = (
            rule.tensors().map(|(_, ty, _)| ty).collect(),
            rule.relations.iter().map(|(call, _)| call.clone()).collect(),
        );
        bindings = sample(&rule.scope, &patterns, &relations, bindings, &mut |n| draw.below(n)).ok()?;
    }
    let mut fresh = Fresh { palette, left: palette.extents.clone() };
    // Shapes last: they are drawn from what the dims give.
    let mut order: Vec<usize> = (0..rule.scope.variables.len()).collect();
    order.sort_by_key(|slot| (attr_kind(rule, *slot) == Some(&AttrVariable::Shape), *slot));
    for slot in order {
        settle(rule, &mut bindings)?;
        if bindings.get(slot).is_some() {
            continue;
        }
        let value = match rule.scope.variables[slot].1 {
            SlotKind::DType(class) => Bound::DType(dtype(class, palette, draw)),
            SlotKind::Dim if palette.zero && !is_extent(rule, slot) && draw.below(3) == 0 => {
                Bound::Dim(Dim::Known(draw.below(2) as i64))
            }
            SlotKind::Dim => Bound::Dim(Dim::Known(fresh.extent(draw))),
            SlotKind::Dims => Bound::Dims(sequence(rule, &bindings, &mut fresh, draw)),
            SlotKind::Attr => Bound::Attr(attr(rule, slot, &bindings, palette, draw)),
        };
        bindings.bind(slot, value).ok()?;
    }
    settle(rule, &mut bindings)?;
    let types = rule.tensors().map(|(_, ty, _)| ty.value(&bindings)).collect::<Option<_>>()?;
    Some(Sample { bindings, types })
}

/// Checks the relations, or binds what follows from them.
fn settle(rule: &Rule, bindings: &mut Bindings) -> Option<()> {
    let mut open: Vec<_> = rule.relations.iter().collect();
    loop {
        let before = open.len();
        let mut fits = true;
        open.retain(|(call, _)| match call.solve(bindings) {
            Ok(status) => status == Status::Later,
            Err(_) => {
                fits = false;
                false
            }
        });
        if !fits {
            return None;
        }
        if open.is_empty() || open.len() == before {
            return Some(());
        }
    }
}

fn attr_kind(rule: &Rule, slot: usize) -> Option<&AttrVariable> {
    rule.variables.iter().find_map(|v| match &v.kind {
        VariableKind::Attr(s, kind) if *s == slot => Some(kind),
        _ => None,
    })
}

/// Whether a dim is part of a tensor's shape.
fn is_extent(rule: &Rule, slot: usize) -> bool {
    rule.tensors().any(|(_, ty, _)| ty.dims.0.iter().any(|item| matches!(item, DimsItem::One(p) if mentions(p, slot))))
}

fn mentions(pattern: &DimPattern, slot: usize) -> bool {
    match pattern {
        DimPattern::Number(_) => false,
        DimPattern::Var(s) => *s == slot,
        DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().any(|p| mentions(p, slot)),
        DimPattern::Difference(pair) | DimPattern::Quotient(pair) => pair.iter().any(|p| mentions(p, slot)),
    }
}

fn dtype(class: DTypeClass, palette: &Palette, draw: &mut Draw) -> DType {
    let admitted = |from: &[DType]| from.iter().copied().filter(|d| class.contains(*d)).collect::<Vec<_>>();
    let fitting = Some(admitted(&palette.dtypes)).filter(|d| !d.is_empty()).unwrap_or_else(|| admitted(&DType::ALL));
    *draw.of(&fitting)
}

/// Extents that were not drawn yet.
struct Fresh<'p> {
    palette: &'p Palette,
    left: Vec<i64>,
}

impl Fresh<'_> {
    fn extent(&mut self, draw: &mut Draw) -> i64 {
        if !self.palette.distinct {
            return *draw.of(&self.palette.extents);
        }
        if self.left.is_empty() {
            let beyond = self.palette.extents.iter().max().copied().unwrap_or(1);
            self.left.extend(self.palette.extents.iter().map(|n| n + beyond));
        }
        let at = draw.below(self.left.len());
        self.left.remove(at)
    }
}

/// A sequence of its own, or a part of one that is there already with some axes of extent 1: relations such as
/// `broadcast` want what goes together.
fn sequence(rule: &Rule, bindings: &Bindings, fresh: &mut Fresh<'_>, draw: &mut Draw) -> Shape {
    let there: Vec<&Shape> = (0..rule.scope.variables.len()).filter_map(|s| bindings.dims(s)).collect();
    if !there.is_empty() && draw.below(2) == 0 {
        let from = *draw.of(&there);
        let skipped = draw.below(from.rank() + 1);
        let dim = |d: &Dim, draw: &mut Draw| if draw.below(3) == 0 { Dim::Known(1) } else { d.clone() };
        return from[skipped..].iter().map(|d| dim(d, draw)).collect();
    }
    let rank = *draw.of(&[1, 2, 2, 1, 3, 0]);
    (0..rank).map(|_| fresh.extent(draw)).collect()
}

fn attr(rule: &Rule, slot: usize, bindings: &Bindings, palette: &Palette, draw: &mut Draw) -> Attr {
    match attr_kind(rule, slot) {
        Some(AttrVariable::Int) => Attr::Int(draw.below(4) as i64),
        Some(AttrVariable::Axis) => Attr::Int(-1 - draw.below(3) as i64),
        Some(AttrVariable::Axes) => {
            let least = -1 - draw.below(2) as i64;
            Attr::from(&(least..0).collect::<Vec<i64>>()[..])
        }
        Some(AttrVariable::Perm) => {
            let mut perm: Vec<i64> = (-1 - draw.below(4) as i64..0).collect();
            for at in (1..perm.len()).rev() {
                perm.swap(at, draw.below(at + 1));
            }
            Attr::from(&perm[..])
        }
        Some(AttrVariable::Shape) => Attr::Shape(shape(rule, bindings, draw)),
        Some(AttrVariable::Bool) => Attr::Bool(draw.below(2) == 0),
        Some(AttrVariable::DType) => Attr::DType(*draw.of(&DType::ALL)),
        Some(AttrVariable::OneOf(words)) => Attr::from(draw.of(words).as_str()),
        None => {
            let near = rule.variables.iter().find_map(|v| match v.kind {
                VariableKind::Number(s) if s == slot => v.near,
                _ => None,
            });
            Attr::from(near.unwrap_or(*draw.of(&palette.numbers)))
        }
    }
}

/// A shape that has to do with the declared tensors: one of theirs, flattened, with two axes merged, with an axis of extent 1
/// more, or with an outer axis more.
fn shape(rule: &Rule, bindings: &Bindings, draw: &mut Draw) -> Shape {
    let tensors: Vec<Shape> = rule
        .tensors()
        .filter_map(|(_, ty, _)| ty.dims.value(bindings))
        .chain((0..rule.scope.variables.len()).filter_map(|s| bindings.attr(s)?.shape().cloned()))
        .collect();
    if tensors.is_empty() {
        return Shape::default();
    }
    let from: &Shape = draw.of(&tensors);
    let mut dims: Vec<Dim> = from.iter().cloned().collect();
    match draw.below(6) {
        0 => {}
        1 => dims = vec![from.count()],
        2 if dims.len() > 1 => {
            let at = draw.below(dims.len() - 1);
            let next = dims.remove(at + 1);
            dims[at] = &dims[at] * &next;
        }
        3 => dims.insert(draw.below(dims.len() + 1), Dim::Known(1)),
        4 => dims.insert(0, Dim::Known(3)),
        _ => {
            let known: Vec<i64> = dims.iter().filter_map(Dim::known).collect();
            dims = known.into_iter().map(|n| Dim::Known(if n == 1 { 2 } else { n })).collect();
        }
    }
    dims.into_iter().collect()
}
