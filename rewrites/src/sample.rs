//! Draws values for a rule's variables, so that a rule can be typed, compiled and tested on an instance of itself.

use eutectic_ir::{
    Attr, DType, Dim, Shape, Type,
    lang::{
        Bindings, DTypeClass,
        sample::sample,
        typing::{Bound, SlotKind, Status},
    },
};

use crate::rule::{AttrVariable, Rule, VariableKind};

/// A small generator of numbers (SplitMix64; Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

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

/// Extents that are told apart: what is equal by accident would hide an error.
const EXTENTS: [i64; 12] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

/// Draws once what is not bound already; `None` where what was drawn does not go together.
///
/// `generic` asks for extents that are told apart; else the relations choose first, which finds what is rare.
pub(crate) fn draw(rule: &Rule, seed: u64, generic: bool, bound: Bindings) -> Option<Sample> {
    let mut draw = Draw(seed);
    let mut bindings = bound;
    if !generic {
        let (patterns, relations): (Vec<_>, Vec<_>) = (
            rule.tensors().map(|(_, ty, _)| ty).collect(),
            rule.relations.iter().map(|(call, _)| call.clone()).collect(),
        );
        bindings = sample(&rule.scope, &patterns, &relations, bindings, &mut |n| draw.below(n)).ok()?;
    }
    let mut fresh: Vec<i64> = EXTENTS.to_vec();
    // Shapes last: they are drawn from what the dims give.
    let mut order: Vec<usize> = (0..rule.scope.variables.len()).collect();
    order.sort_by_key(|slot| (attr_kind(rule, *slot) == Some(&AttrVariable::Shape), *slot));
    for slot in order {
        settle(rule, &mut bindings)?;
        if bindings.get(slot).is_some() {
            continue;
        }
        let value = match rule.scope.variables[slot].1 {
            SlotKind::DType(class) => Bound::DType(dtype(class, &mut draw)),
            SlotKind::Dim => Bound::Dim(Dim::Known(extent(&mut fresh, &mut draw))),
            SlotKind::Dims => Bound::Dims(sequence(rule, &bindings, &mut fresh, &mut draw)),
            SlotKind::Attr => Bound::Attr(attr(rule, slot, &bindings, &mut draw)),
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

fn dtype(class: DTypeClass, draw: &mut Draw) -> DType {
    let preferred = [DType::F32, DType::F32, DType::I32, DType::F64, DType::F16, DType::Bool, DType::U8, DType::Bf16];
    let fitting: Vec<_> = preferred.into_iter().chain(DType::ALL).filter(|d| class.contains(*d)).collect();
    *draw.of(&fitting)
}

fn extent(fresh: &mut Vec<i64>, draw: &mut Draw) -> i64 {
    if fresh.is_empty() {
        fresh.extend(EXTENTS.iter().map(|n| n + 12));
    }
    let at = draw.below(fresh.len());
    fresh.remove(at)
}

/// A sequence of its own, or a part of one that is there already with some axes of extent 1: relations such as
/// `broadcast` want what goes together.
fn sequence(rule: &Rule, bindings: &Bindings, fresh: &mut Vec<i64>, draw: &mut Draw) -> Shape {
    let there: Vec<&Shape> = (0..rule.scope.variables.len()).filter_map(|s| bindings.dims(s)).collect();
    if !there.is_empty() && draw.below(2) == 0 {
        let from = *draw.of(&there);
        let skipped = draw.below(from.rank() + 1);
        let dim = |d: &Dim, draw: &mut Draw| if draw.below(3) == 0 { Dim::Known(1) } else { d.clone() };
        return from[skipped..].iter().map(|d| dim(d, draw)).collect();
    }
    let rank = *draw.of(&[1, 2, 2, 1, 3, 0]);
    (0..rank).map(|_| extent(fresh, draw)).collect()
}

fn attr(rule: &Rule, slot: usize, bindings: &Bindings, draw: &mut Draw) -> Attr {
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
            Attr::from(near.unwrap_or(*draw.of(&[0.5, 2.0, 0.125, 1e-5, 1.5])))
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
