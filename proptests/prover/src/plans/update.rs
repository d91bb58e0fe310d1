//! Stores that write a part of a tensor: each point of the kernel is one write of an update.
//!
//! The number of points equals the number of elements of the part, and each point writes a different element of the
//! part. It writes the element to the address that the op gives, if and only if that address is inside the tensor. If
//! several elements of the part may have one address, point n in row-major order writes element n. Writes are then in
//! the order of the op.

use std::rc::Rc;

use eutectic_backend::Instr;
use eutectic_ir::{
    eclasses::ENode,
    index::Atom as Part,
    ops::{Class, Order, Writes},
};

use super::{
    kernel::Reader,
    memory::{flattened, unflattened},
    program::Nodes,
    store::Write,
};
use crate::{
    bits,
    call::Case,
    facts::{Res, stop},
    lower::Truths,
    ops,
    term::{Poly, T, Term, product, value},
};

/// Normalizes the integers that an index reads from tensors.
fn normal(case: &Case, p: &Poly) -> Res<Poly> {
    bits::normal(case, &(Rc::new(Term::Index(p.clone())) as T), &Truths::new()).map(value)
}

/// Proves that different points write different elements of the part, and returns the element that a store must write
/// at its point.
pub fn written(case: &Case, reader: &Reader<'_>, nodes: &Nodes<'_>, node: &ENode, write: &Write<'_>) -> Res<T> {
    let call = nodes.call(node)?;
    let (Some(target), Class::Update(_, writes)) = (ops::target(&call), node.op.def().class) else {
        return stop(format!("the addresses that `{}` writes are unknown", node.op));
    };
    let target = target?;
    let [of, part] = [0, 1].map(|n| call.args[n].shape.iter().map(|item| item.extent.clone()).collect::<Vec<_>>());
    if write.points.count() != product(&part) {
        return stop("it is undecided whether each element of a part is written once");
    }
    let from = match writes {
        // The part is moved as a whole, by one offset.
        Writes::Apart => {
            let moved = flattened(&target(&vec![Poly::zero(); part.len()])?, write.room);
            let own = &normal(case, write.place)? - &normal(case, &moved)?;
            if !write.points.are_distinct(&own)? {
                return stop("several points may write to one element");
            }
            unflattened(case, &own, write.room)
        }
        _ => match write.points.number() {
            Some(number) => unflattened(case, &number, &part),
            None => return stop("the order in which points write is unknown"),
        },
    };
    let one = Poly::int(1);
    let within = |extents: &[Poly], at: &[Poly]| -> Vec<Poly> {
        extents.iter().zip(at).flat_map(|(extent, i)| [i.clone(), &(extent - i) - &one]).collect()
    };
    follow(case, "an element is one of the part", &[], &within(&part, &from))?;
    let to = target(&from)?;
    let place = normal(case, &flattened(&to, write.room))?;
    if place != normal(case, write.place)? {
        return stop(format!("it is undecided whether the addresses {place} and {} are equal", write.place));
    }
    let (inside, guards) = (within(&of, &to), write.conditions);
    follow(case, "a guard holds where a place is inside of the tensor", &inside, guards)?;
    follow(case, "a place is inside of the tensor where guards hold", guards, &inside)?;
    let ranked = || are_ranks(reader, write, &from, &of);
    if write.store.writes != writes && !(write.store.writes == Writes::Apart && ranked()) {
        return stop("several points may write to one element");
    }
    if write.fills && !(ranked() && of[1].known().zip(part[1].known()).is_some_and(|(of, part)| of <= part)) {
        return stop("it is undecided whether each element is written");
    }
    (call.args[1].at)(&from)
}

/// Proves that conditions follow from others.
fn follow(case: &Case, what: &str, from: &[Poly], to: &[Poly]) -> Res<()> {
    let [from, to] = [from, to].map(|all| all.iter().map(|p| normal(case, p)).collect::<Res<Vec<_>>>());
    let (from, to) = (from?, to?);
    let open = case.facts.assume(from, || to.into_iter().find(|p| !case.facts.nonneg(p)));
    open.map_or(Ok(()), |p| stop(format!("it is undecided whether {what}: {p} ≥ 0")))
}

/// Returns whether the places along the middle axis are exactly the ranks of elements within a row of the kernel. Such
/// ranks are distinct.
fn are_ranks(reader: &Reader<'_>, write: &Write<'_>, from: &[Poly], of: &[Poly]) -> bool {
    let kernel = reader.kernel();
    let terms = write.store.at.terms.iter();
    let mut ids = terms.filter_map(|(part, _)| if let Part::Value(id) = part { Some(*id) } else { None });
    let (Some(id), None, [_, own, _], [_, places, _]) = (ids.next(), ids.next(), from, of) else { return false };
    let Instr::Row { op, attrs, .. } = &kernel.body.instrs[id] else { return false };
    let told = Order::of(*op, attrs).map(|order| order.most as i128);
    let is_row = kernel.row_axes() == Some(1) && Some(own) == write.points.at.last();
    is_row && places.known().is_some_and(|n| Some(n) <= told)
}
