//! Ordered stores: if several points store one element, the last point wins.
//!
//! Each element that such a store reaches has a number in the workspace. The first launch resets these numbers. The
//! second one sets each, by atomics, to the largest number of a point that writes the element. In the last launch, only
//! the point with this number writes the element. No launch touches other elements.

use eutectic_backend::{
    AnchorKernel, Instr, Kernel, NO_CHECK, Store, ValueId,
    reach::{AxisSet, masks, mentioned, together},
};
use eutectic_ir::{
    DType,
    index::{Atom, Index, flatten},
    ops::{Reduction, Writes},
};

use super::stages::{BodyWriter, Buffers, Stage};
use crate::device::DeviceShape;

/// Returns the launches of a kernel; `None` if it has no ordered store.
///
/// # Errors
/// Returns an error if the workspace is too large, or if more points may store to one element than numbers can count.
pub(crate) fn split_stores(kernel: &Kernel, shape: &DeviceShape) -> Result<Option<Vec<Stage>>, Vec<String>> {
    if kernel.stores.iter().all(|store| store.writes != Writes::InOrder) {
        return Ok(None);
    }
    let mut buffers = Buffers::of(kernel);
    let stores = kernel.stores.iter().map(|store| Ordered::of(kernel, store, &mut buffers));
    let stores = stores.collect::<Result<Vec<Option<Ordered>>, _>>().map_err(|why| vec![why])?;
    if buffers.workspace() > shape.workspace {
        let (bytes, most) = (buffers.workspace(), shape.workspace);
        return Err(vec![format!(
            "cannot order stores because this needs {bytes} bytes, and a kernel has at most {most} bytes of scratch memory"
        )]);
    }
    let mut stages = Vec::new();
    for ordered in stores.iter().flatten() {
        stages.push(ordered.numbers(kernel, &buffers, Writes::Apart));
        stages.push(ordered.numbers(kernel, &buffers, Writes::Combined(Reduction::Max)));
    }
    let mut body = BodyWriter(kernel.body.instrs.clone());
    let pairs = kernel.stores.iter().zip(&stores);
    let stores =
        pairs.map(|(store, ordered)| ordered.as_ref().map_or_else(|| as_unique(store), |of| of.last(&mut body)));
    let stores = stores.collect();
    stages.push(buffers.stage(AnchorKernel::map(), kernel.body.domain.clone(), body.0, stores));
    Ok(Some(stages))
}

/// Returns a store for which the order no longer matters. A store that combines is unchanged.
fn as_unique(store: &Store) -> Store {
    let writes = if store.writes == Writes::InOrder { Writes::Apart } else { store.writes };
    Store { writes, ..store.clone() }
}

/// An ordered store of several points to one element.
struct Ordered<'a> {
    store: &'a Store,
    /// The slot of the point numbers in the workspace.
    slot: usize,
    /// The domain of the launches that compute the numbers, and the index of an element's number over it. Axes along
    /// which all elements have the same last writer have extent 1.
    domain: Vec<usize>,
    at: Index,
    /// The number of a point among those that may write the same element, from 0 on.
    number: Index,
    points: usize,
}

impl<'a> Ordered<'a> {
    /// Analyses a store. Returns `None` if at most one point writes each element.
    fn of(kernel: &Kernel, store: &'a Store, buffers: &mut Buffers) -> Result<Option<Ordered<'a>>, String> {
        if store.writes != Writes::InOrder {
            return Ok(None);
        }
        let domain = &kernel.body.domain;
        let axes = together(store, domain);
        let has = |axes: AxisSet, axis: usize| axes >> axis & 1 == 1;
        let number = |extent: usize, axis: usize| if has(axes, axis) { extent } else { 1 };
        let extents: Vec<usize> = domain.iter().zip(0..).map(|(&extent, axis)| number(extent, axis)).collect();
        let points: usize = extents.iter().product();
        if points <= 1 {
            return Ok(None);
        }
        if i32::try_from(points).is_err() {
            return Err(format!(
                "cannot order stores of {points} points to one element because point numbers have 31 bits"
            ));
        }
        let coords: Vec<Index> = (0..domain.len())
            .map(|axis| if has(axes, axis) { Index::coord(axis) } else { Index::constant(0) })
            .collect();
        // All points have the same last writer along axes that neither the order nor ids nor guards depend on.
        let masks = masks(&kernel.body, 0);
        let of_values = store.maps().flat_map(Index::values).fold(0, |all, value| all | masks[value]);
        let of_guards = store.guards.iter().fold(0, |all, (map, _)| all | mentioned(map));
        let agree = |axis: usize| !has(axes | of_values | of_guards, axis);
        let own: Vec<Index> =
            (0..domain.len()).map(|axis| if agree(axis) { Index::constant(0) } else { Index::coord(axis) }).collect();
        let at = store.at.substitute(&own, &|value| Index::atom(Atom::Value(value)), domain);
        // All indices are a constant plus multiples of a common divisor. Dividing by it makes the workspace smaller.
        let divisor = at.terms.iter().fold(0, |all, (_, step)| gcd(all, step.abs())).max(1);
        let terms = at.terms.into_iter().map(|(atom, step)| (atom, step / divisor)).collect();
        let at = Index { terms, constant: at.constant.div_euclid(divisor) };
        let slot = buffers.part(DType::I32, kernel.slots[store.slot].1 / divisor as usize + 1);
        let domain =
            domain.iter().zip(0..).map(|(&extent, axis)| if agree(axis) { extent.min(1) } else { extent }).collect();
        Ok(Some(Ordered { store, slot, domain, at, number: flatten(&coords, &extents), points }))
    }

    /// Returns the launch that resets the numbers, or the one that sets each to the largest number of a point.
    fn numbers(&self, kernel: &Kernel, buffers: &Buffers, writes: Writes) -> Stage {
        let mut body = BodyWriter(kernel.body.instrs.clone());
        let value = match writes {
            Writes::Combined(_) => body.coordinate(self.number.clone(), DType::I32),
            _ => body.constant(-1, DType::I32),
        };
        let guards = self.store.guards.clone();
        let store = Store { guards, writes, ..Store::new(self.slot, self.at.clone(), value) };
        buffers.stage(AnchorKernel::map(), self.domain.clone(), body.0, vec![store])
    }

    /// Returns the store, guarded so that only the last point makes it.
    fn last(&self, body: &mut BodyWriter) -> Store {
        let guards = self.store.guards.clone();
        let arg: ValueId = body.load((self.slot, DType::I32), self.at.clone(), guards.clone());
        let (extent, from_end, check) = (self.points.into(), false, NO_CHECK);
        let last = body.push(Instr::Within { arg, extent, from_end, check, guards, dtype: DType::I32 });
        let mut store = as_unique(self.store);
        store.guards.push((Index::atom(Atom::Value(last)).plus(&self.number.times(-1)), 0..1));
        store
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Load};

    use super::*;

    /// Returns a kernel that writes rows of `columns` elements where ids say. There is one id for each row, or for each
    /// element.
    fn scatter([outer, rows, columns]: [usize; 3], of_rows: bool) -> Kernel {
        let domain = vec![outer, rows, columns];
        let at: Vec<Index> = (0..3).map(Index::coord).collect();
        let of_ids = if of_rows { at[1].clone() } else { flatten(&at, &domain) };
        let load = |slot, at, dtype| Instr::Load(Load { slot, at, guards: Vec::new(), dtype });
        let id = Index::atom(Atom::Value(0));
        let to = flatten(&[at[0].clone(), id.clone(), at[2].clone()], &[outer, 100, columns]);
        let count = outer * rows * columns;
        let instrs = vec![load(0, of_ids, DType::I32), load(1, flatten(&at, &domain), DType::F32)];
        Kernel {
            anchor: AnchorKernel::map(),
            body: Body { domain, instrs, ..Body::default() },
            stores: vec![Store { guards: vec![(id, 0..100)], writes: Writes::InOrder, ..Store::new(2, to, 1) }],
            slots: vec![(DType::I32, count), (DType::F32, count), (DType::F32, outer * 100 * columns)],
        }
    }

    fn stages(kernel: &Kernel) -> Vec<Stage> {
        split_stores(kernel, &DeviceShape::OF_TESTS).expect("it is small").expect("launches")
    }

    #[test]
    fn each_element_or_each_row_has_a_number() {
        for (of_rows, domain, numbers) in [(true, [1, 7, 1], 200), (false, [2, 7, 30], 6000)] {
            let stages = stages(&scatter([2, 7, 30], of_rows));
            let [reset, largest, last] = &stages[..] else { panic!("{} launches", stages.len()) };
            assert_eq!([reset, largest].map(|stage| &stage.kernel.body.domain[..]), [domain; 2]);
            assert_eq!(reset.kernel.slots[3], (DType::I32, numbers + 1));
            assert_eq!(largest.kernel.stores[0].writes, Writes::Combined(Reduction::Max));
            let store = &last.kernel.stores[0];
            assert_eq!((store.writes, store.guards.len()), (Writes::Apart, 2));
            assert_eq!(last.workspace(), 4 * (numbers + 1));
        }
    }

    #[test]
    fn one_update_needs_no_number() {
        let stages = stages(&scatter([2, 1, 30], false));
        let [last] = &stages[..] else { panic!("{} launches", stages.len()) };
        assert_eq!((last.kernel.stores[0].writes, last.workspace()), (Writes::Apart, 0));
    }

    #[test]
    fn a_workspace_that_is_too_small_is_an_error() {
        let shape = DeviceShape { workspace: 1000, ..DeviceShape::OF_TESTS };
        let why = split_stores(&scatter([2, 7, 30], false), &shape).unwrap_err();
        assert_eq!(
            why,
            [
                "cannot order stores because this needs 24004 bytes, and a kernel has at most 1000 bytes of scratch memory"
            ]
        );
    }
}
