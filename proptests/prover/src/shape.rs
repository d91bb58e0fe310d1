//! Symbolic shapes and tensors: axes of symbolic extent, and sequences of axes as one axis.
//!
//! # Why one axis can stand for a sequence of axes
//!
//! Row-major order numbers the elements of any sequence of axes `B..` by 0..|B|, where |B| is the product of the
//! extents. Many ops treat the sequence as a whole:
//!
//! - a map of elements, or a product of matrices for each index of the sequence;
//! - a reshape;
//! - a reduction over other axes, or a slice of another axis;
//! - a transpose that keeps the axes of the sequence next to each other, in their order.
//!
//! Such an op commutes with this numbering, for every number of axes and all extents: it maps the number of an element
//! as it maps the index along a single axis of extent |B|. So a proof about one axis of extent |B| is a proof for every
//! rank. That includes rank 0, where |B| is 1. An op that would divide the sequence is refused here.
//!
//! A permutation, a NumPy broadcast or a reduction over unknown axes of `A..` is an opaque index map. The prover knows
//! four things about such a map. Equal names with equal arguments are the same index. The index is in its range. A
//! permutation and its inverse cancel. Broadcasts compose.
//!
//! If the rule names an axis of a sequence, the sequence becomes three items: the axes before it, the axis, and the
//! axes after it. The first and the last item have any rank.

use std::rc::Rc;

use crate::{
    facts::{Facts, Res, Stop, stop},
    term::{Atom, Poly, T, Ty, product},
};

/// An axis, or a sequence of axes that counts as one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The number of elements along the axis or sequence.
    pub extent: Poly,
    /// The name of the number of axes, if it is a sequence.
    pub rank: Option<Rc<str>>,
}

/// A shape.
pub type Shape = Vec<Item>;

impl Item {
    /// Makes one axis.
    pub fn axis(extent: Poly) -> Item {
        Item { extent, rank: None }
    }

    /// Returns whether the item is a single axis of extent 1.
    pub fn is_one(&self) -> bool {
        self.rank.is_none() && self.extent.known() == Some(1)
    }

    /// Returns the number of axes of the item.
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

/// Makes a symbolic sequence of axes, of any extents and any number.
pub fn sequence(name: &str) -> Item {
    Item { extent: Poly::size(&format!("#{name}")), rank: Some(name.into()) }
}

/// Formats a shape.
pub fn show(shape: &[Item]) -> String {
    format!("[{}]", shape.iter().map(Item::show).collect::<Vec<_>>().join(" "))
}

/// Returns the number of elements of a shape.
pub fn count(shape: &[Item]) -> Poly {
    product(shape.iter().map(|i| &i.extent))
}

/// Returns the number of axes of a shape.
pub fn axes(shape: &[Item]) -> Poly {
    shape.iter().fold(Poly::zero(), |n, item| &n + &item.axes())
}

/// Returns the place of the n-th axis from the end.
pub fn find(shape: &[Item], from_the_end: &Poly) -> Res<usize> {
    let place = (0..shape.len()).rev().find(|&at| axes(&shape[at..]) == *from_the_end);
    if let Some(at) = place.filter(|&at| shape[at].rank.is_none()) {
        return Ok(at);
    }
    // The n-th axis may be inside a sequence. For a constant n, the last axis of this sequence is split off.
    let behind = (0..shape.len()).rev().find(|&at| shape[at].rank.is_some());
    match (behind, from_the_end.known()) {
        (Some(at), Some(n)) if shape.len() - 1 - at < n as usize => {
            Err(Stop::Peel(shape[at].rank.clone().unwrap_or_default()))
        }
        (None, Some(_)) => Err(Stop::Vacuous(format!("{} has no such axis", show(shape)))),
        _ => stop(format!("an axis is inside a sequence of {}, which cannot be split there", show(shape))),
    }
}

/// A function from an index to the element there.
type Elements = Rc<dyn Fn(&[Poly]) -> Res<T>>;

/// A tensor, as a function from an index to its element.
#[derive(Clone)]
pub struct Tensor {
    /// The element type.
    pub ty: Ty,
    /// The shape.
    pub shape: Shape,
    /// The element at an index within the shape.
    pub at: Elements,
}

impl Tensor {
    /// Makes a tensor from the function of its elements.
    pub fn new(ty: Ty, shape: Shape, at: impl Fn(&[Poly]) -> Res<T> + 'static) -> Tensor {
        Tensor { ty, shape, at: Rc::new(at) }
    }
}

/// Returns the facts about an index that is within a shape.
pub fn inside(shape: &[Item], at: &[Poly]) -> Vec<Poly> {
    let one = Poly::int(1);
    shape.iter().zip(at).flat_map(|(item, i)| [i.clone(), &(&item.extent - i) - &one, &item.extent - &one]).collect()
}

/// The known broadcasts: pairs of a shape and the shape to which it expands.
pub type Broadcasts = std::cell::RefCell<Vec<(Shape, Shape)>>;

/// Returns the index in the operand of a broadcast for an index in its result. `taught` means that the broadcast is on
/// the left side and therefore well typed.
pub fn expanded(
    facts: &Facts,
    known: &Broadcasts,
    from: &[Item],
    to: &[Item],
    at: &[Poly],
    taught: bool,
) -> Res<Vec<Poly>> {
    // The broadcast may pass through a shape that a relation names.
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
    // Axes of extent 1 at the front are read at index 0.
    let ones = from[..i].iter().take_while(|item| item.is_one()).count();
    if ones < i {
        let rest = opaque(facts, known, &from[ones..i], &to[..j], &at[..j], taught)?;
        result[ones..i].clone_from_slice(&rest);
    }
    Ok(result)
}

/// Returns the index of a broadcast between symbolic shapes, as an opaque index map.
fn opaque(facts: &Facts, known: &Broadcasts, from: &[Item], to: &[Item], at: &[Poly], taught: bool) -> Res<Vec<Poly>> {
    if taught {
        let pair = (from.to_vec(), to.to_vec());
        if !known.borrow().contains(&pair) {
            known.borrow_mut().push(pair);
        }
    } else if !broadcasts(known, from, to, 4) {
        return stop(format!("it is undecided whether {} broadcasts to {}", show(from), show(to)));
    }
    // If one item broadcasts to another one of the same extent, they differ only in axes of extent 1.
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

/// Composes two broadcasts. If `at` is the index in this shape for an index in a larger shape to which it broadcasts,
/// returns the index in the larger shape. Otherwise returns `at`.
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

/// Returns whether the known broadcasts lead from a shape to another one.
fn broadcasts(known: &Broadcasts, from: &[Item], to: &[Item], depth: usize) -> bool {
    if from == to || from.is_empty() {
        return true;
    }
    depth > 0 && known.borrow().iter().any(|(a, b)| a == from && (b == to || broadcasts(known, b, to, depth - 1)))
}

/// Returns the index in the operand of a reshape for an index in its result.
pub fn reshaped(facts: &Facts, from: &[Item], to: &[Item], at: &[Poly]) -> Res<Vec<Poly>> {
    // The element exists, so no extent is 0.
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
                return stop(format!(
                    "it is undecided whether {} and {} have equally many elements",
                    show(from),
                    show(to)
                ));
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

/// Returns the least numbers of leading items of both shapes that have equally many elements. The remaining items must
/// have equally many elements, too.
fn group(from: &[Item], to: &[Item]) -> Option<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> =
        (0..=from.len()).flat_map(|a| (0..=to.len()).map(move |b| (a, b))).filter(|p| *p != (0, 0)).collect();
    pairs.sort_by_key(|(a, b)| (a + b, *a));
    let fits = |&(a, b): &(usize, usize)| count(&from[..a]) == count(&to[..b]) && count(&from[a..]) == count(&to[b..]);
    pairs.into_iter().find(fits)
}
