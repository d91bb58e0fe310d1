//! Tensors in memory: their extents, and the places of their elements.

use std::rc::Rc;

use eutectic_ir::{Dim, Type, eclasses::ClassId};

use crate::{
    call::Case,
    facts::{Res, stop},
    shape::Item,
    term::{Poly, T, Term, Ty},
};

/// An element of a tensor in memory, by its place in row-major order.
pub fn stored(class: ClassId, ty: &Ty, flat: Poly) -> T {
    Rc::new(Term::Read(format!("x{class}").into(), ty.clone(), vec![flat]))
}

/// The extents of a tensor, with names for those that are known at run time only.
pub fn shape_of(case: &Case, ty: &Type) -> Res<Vec<Item>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a tuple is stored") };
    Ok(shape.iter().map(|dim| Item::axis(extent(case, dim))).collect())
}

/// How far the elements of a tensor lie apart in memory: each axis has room for the most that it can be.
pub fn room_of(ty: &Type) -> Res<Vec<Poly>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a tuple is stored") };
    let room = shape.iter().map(|dim| dim.capacity().map(|n| Poly::int(i128::from(n))));
    room.collect::<Option<_>>().map_or_else(|| stop("an axis without a bound"), Ok)
}

/// An extent, whose symbols keep their bounds.
pub fn extent(case: &Case, dim: &Dim) -> Poly {
    if let Some(n) = dim.known() {
        return Poly::int(i128::from(n));
    }
    let (terms, constant) = dim.split_constant();
    terms.into_iter().fold(Poly::int(i128::from(constant)), |sum, (product, c)| {
        let symbols = product.symbols();
        let of = symbols.iter().fold(Poly::int(i128::from(c)), |p, symbol| {
            let own = Poly::size(&symbol.name);
            if let Some((least, most)) = symbol.bounds {
                case.facts.note(&own - &Poly::int(i128::from(least)));
                case.facts.note(&Poly::int(i128::from(most)) - &own);
            }
            &p * &own
        });
        &sum + &of
    })
}

/// The index of an element by its place in memory.
pub fn unflattened(case: &Case, flat: &Poly, room: &[Poly]) -> Vec<Poly> {
    let (mut rest, mut index) = (flat.clone(), Vec::new());
    for (n, extent) in room.iter().enumerate().rev() {
        if n == 0 {
            index.push(std::mem::take(&mut rest));
        } else {
            let (quotient, own) = case.facts.divided(&rest, extent);
            index.push(own);
            rest = quotient;
        }
    }
    index.reverse();
    index
}
