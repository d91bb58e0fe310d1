//! Symbolic shapes and tensors: axes of symbolic extent, and sequences of axes as one.
//!
//! # Why a sequence of axes may be one axis
//!
//! Row-major order numbers the elements of any sequence of axes `B..` by 0..|B|, where |B| is the product of the extents. An op that
//! treats the sequence as a whole (a map of elements, a product of matrices for each of its indices, a reshape, a reduction over other
//! axes, a slice of another axis, a transpose that keeps its axes next to each other in their order) commutes with that numbering: whatever the
//! number of axes and their extents are, it does to the number what it does to the index of a single axis of extent |B|. So a proof about
//! one axis of extent |B| is a proof for every rank, also 0, where |B| is 1. An op that would take the sequence apart is refused here.
//!
//! A permutation, a NumPy broadcast or a reduction over unknown axes of `A..` is an index map of which only this is known: the same name with the
//! same arguments is the same index, it lies in its range, a permutation and its inverse cancel, and broadcasts compose. A sequence in which the rule names
//! an axis is three: the axes before it, the axis, and those after it, each of any rank.

use std::rc::Rc;

use crate::{
    facts::{Facts, Res, Stop, stop},
    term::{Atom, Poly, T, Ty, product},
};

/// An axis, or a sequence of axes as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// How many elements lie along it.
    pub extent: Poly,
    /// What names the number of axes, where it is a sequence.
    pub rank: Option<Rc<str>>,
}

/// A shape.
pub type Shape = Vec<Item>;

impl Item {
    /// One axis.
    pub fn axis(extent: Poly) -> Item {
        Item { extent, rank: None }
    }

    /// Whether it is an axis of extent 1.
    pub fn is_one(&self) -> bool {
        self.rank.is_none() && self.extent.known() == Some(1)
    }

    /// How many axes it is.
    fn axes(&self) -> Poly {
        self.rank.as_ref().map_or(Poly::int(1), |name| Poly::size(&format!("rank {name}")))
    }

    fn show(&self) -> String {
        match &self.rank {
            Some(rank) => format!("{rank}.."),
            None => self.extent.to_string(),
        }
    }
}

/// A sequence of axes of which nothing is known.
pub fn sequence(name: &str) -> Item {
    Item { extent: Poly::size(&format!("#{name}")), rank: Some(name.into()) }
}

/// A shape as text.
pub fn show(shape: &[Item]) -> String {
    format!("[{}]", shape.iter().map(Item::show).collect::<Vec<_>>().join(" "))
}

/// The number of elements.
pub fn count(shape: &[Item]) -> Poly {
    product(shape.iter().map(|i| &i.extent))
}

/// How many axes a shape has.
pub fn axes(shape: &[Item]) -> Poly {
    shape.iter().fold(Poly::zero(), |n, item| &n + &item.axes())
}

/// The place of the axis from which on a shape has so many axes.
pub fn find(shape: &[Item], from_the_end: &Poly) -> Res<usize> {
    let place = (0..shape.len()).rev().find(|&at| axes(&shape[at..]) == *from_the_end);
    if let Some(at) = place.filter(|&at| shape[at].rank.is_none()) {
        return Ok(at);
    }
    // A plain number of axes may end inside of a sequence.
    let behind = (0..shape.len()).rev().find(|&at| shape[at].rank.is_some());
    match (behind, from_the_end.known()) {
        (Some(at), Some(n)) if shape.len() - 1 - at < n as usize => {
            Err(Stop::Peel(shape[at].rank.clone().unwrap_or_default()))
        }
        (None, Some(_)) => Err(Stop::Vacuous(format!("{} has no such axis", show(shape)))),
        _ => stop(format!("an axis lies inside of a sequence of {}", show(shape))),
    }
}

/// The element at an index.
type Elements = Rc<dyn Fn(&[Poly]) -> Res<T>>;

/// A tensor: its element at an index.
#[derive(Clone)]
pub struct Tensor {
    /// The element type.
    pub ty: Ty,
    /// The shape.
    pub shape: Shape,
    /// The element at an index that lies in the shape.
    pub at: Elements,
}

impl Tensor {
    /// A tensor by its elements.
    pub fn new(ty: Ty, shape: Shape, at: impl Fn(&[Poly]) -> Res<T> + 'static) -> Tensor {
        Tensor { ty, shape, at: Rc::new(at) }
    }
}

/// That an index lies in a shape.
pub fn inside(shape: &[Item], at: &[Poly]) -> Vec<Poly> {
    let one = Poly::int(1);
    shape.iter().zip(at).flat_map(|(item, i)| [i.clone(), &(&item.extent - i) - &one, &item.extent - &one]).collect()
}

/// Broadcasts that a case of a rule has: sequences that expand to others.
pub type Broadcasts = std::cell::RefCell<Vec<(Shape, Shape)>>;

/// Where an element of an expanded tensor is read, by index of the result. `taught`: the expansion is one that the left side has, so that it is well typed.
pub fn expanded(
    facts: &Facts,
    known: &Broadcasts,
    from: &[Item],
    to: &[Item],
    at: &[Poly],
    taught: bool,
) -> Res<Vec<Poly>> {
    // What a relation says that it expands to may itself be expanded.
    let middle =
        known.borrow().iter().find(|(a, b)| a == from && from.len() == 1 && b.as_slice() != to).map(|(_, b)| b.clone());
    if let Some(middle) =
        middle.filter(|_| from[0].rank.is_some() && !from.iter().zip(to.iter().rev()).all(|(a, b)| a == b))
        && middle.iter().all(|item| item.rank.is_none())
        && let Ok(at) = expanded(facts, known, &middle, to, at, false)
    {
        return opaque(facts, known, from, &middle, &at, taught);
    }
    let (mut i, mut j) = (from.len(), to.len());
    let mut result = vec![Poly::zero(); from.len()];
    while i > 0 && j > 0 {
        let (a, b) = (&from[i - 1], &to[j - 1]);
        if a == b {
            result[i - 1] = at[j - 1].clone();
        } else if a.is_one() && b.rank.is_none() {
            result[i - 1] = Poly::zero();
        } else if a.rank.is_none() && b.rank.is_none() {
            let (a, b) = (std::slice::from_ref(a), std::slice::from_ref(b));
            result[i - 1] = opaque(facts, known, a, b, &at[j - 1..j], taught)?.remove(0);
        } else {
            break;
        }
        (i, j) = (i - 1, j - 1);
    }
    // Axes of extent 1 in front are added by any broadcast.
    let ones = from[..i].iter().take_while(|item| item.is_one()).count();
    if ones < i {
        let rest = opaque(facts, known, &from[ones..i], &to[..j], &at[..j], taught)?;
        result[ones..i].clone_from_slice(&rest);
    }
    Ok(result)
}

/// A broadcast of which nothing is known but that it is one.
fn opaque(facts: &Facts, known: &Broadcasts, from: &[Item], to: &[Item], at: &[Poly], taught: bool) -> Res<Vec<Poly>> {
    if taught {
        let pair = (from.to_vec(), to.to_vec());
        if !known.borrow().contains(&pair) {
            known.borrow_mut().push(pair);
        }
    } else if !broadcasts(known, from, to, 4) {
        return stop(format!("whether {} expands to {}", show(from), show(to)));
    }
    // What has as many elements differs in axes of extent 1 alone.
    if let ([a], [b]) = (from, to)
        && a.extent == b.extent
    {
        return Ok(at.to_vec());
    }
    let name = |from: &[Item], n: usize| -> Rc<str> { format!("broadcast {n} of {}", show(from)).into() };
    let of = |n: usize, item: &Item| {
        let name = name(from, n);
        facts.map(&name, &item.extent);
        Poly::atom(Atom::Map(name, composed(to, at)))
    };
    Ok(from.iter().enumerate().map(|(n, item)| of(n, item)).collect())
}

/// Indices that a broadcast of that shape gave are read where that broadcast was read: broadcasts compose.
fn composed(shape: &[Item], at: &[Poly]) -> Vec<Poly> {
    let own = |n: usize| format!("broadcast {n} of {}", show(shape));
    let mut outer = None;
    for (n, index) in at.iter().enumerate() {
        let Some(([Atom::Map(name, of)], 1)) = index.single() else {
            return at.to_vec();
        };
        if **name != *own(n) || outer.as_ref().is_some_and(|o| o != of) {
            return at.to_vec();
        }
        outer = Some(of.clone());
    }
    outer.unwrap_or_else(|| at.to_vec())
}

/// Whether a shape is known to expand to another.
fn broadcasts(known: &Broadcasts, from: &[Item], to: &[Item], depth: usize) -> bool {
    if from == to || from.is_empty() {
        return true;
    }
    depth > 0 && known.borrow().iter().any(|(a, b)| a == from && (b == to || broadcasts(known, b, to, depth - 1)))
}

/// Where an element of a reshaped tensor is read, by its index in the result.
pub fn reshaped(facts: &Facts, from: &[Item], to: &[Item], at: &[Poly]) -> Res<Vec<Poly>> {
    // An element is there, so that no extent is 0.
    let one = Poly::int(1);
    let mut there = inside(to, at);
    there.extend(from.iter().map(|item| &item.extent - &one));
    facts.assume(there, || {
        let mut result = vec![Poly::zero(); from.len()];
        let (mut i, mut j) = (0, 0);
        while i < from.len() || j < to.len() {
            let whole = || {
                let d = &count(&from[i..]) - &count(&to[j..]);
                let equal = facts.nonneg(&d) && facts.nonneg(&(&Poly::zero() - &d));
                equal.then(|| (from.len() - i, to.len() - j))
            };
            let Some((a, b)) = group(&from[i..], &to[j..]).or_else(whole) else {
                return stop(format!("whether {} and {} have as many elements", show(from), show(to)));
            };
            let flat = to[j..j + b].iter().zip(&at[j..j + b]).fold(Poly::zero(), |n, (item, index)| {
                if item.extent == one { n } else { &(&n * &item.extent) + index }
            });
            let mut flat = flat;
            let mut left: Vec<usize> = (i..i + a).filter(|&k| from[k].extent != one).collect();
            while let Some(k) = left.pop() {
                if left.is_empty() {
                    result[k] = std::mem::take(&mut flat);
                    break;
                }
                let (quotient, rest) = facts.divided(&flat, &from[k].extent);
                result[k] = rest;
                flat = quotient;
            }
            (i, j) = (i + a, j + b);
        }
        Ok(result)
    })
}

/// The fewest items on both sides that have as many elements; the rest of both if that is all that is left of what is equal.
fn group(from: &[Item], to: &[Item]) -> Option<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> =
        (0..=from.len()).flat_map(|a| (0..=to.len()).map(move |b| (a, b))).filter(|p| *p != (0, 0)).collect();
    pairs.sort_by_key(|(a, b)| (a + b, *a));
    let fits = |&(a, b): &(usize, usize)| count(&from[..a]) == count(&to[..b]) && count(&from[a..]) == count(&to[b..]);
    pairs.into_iter().find(fits)
}
