//! Axes of iteration domains: the groups that the bodies of a kernel share, and their normal form.
//!
//! A kernel is in normal form if
//!
//! - no map divides a coordinate where splitting its axis would remove the division (an axis of 32 heads whose keys are
//!   read at `h/4` becomes 8 × 4, and the keys do not depend on the second axis);
//! - no load divides a coordinate where its guards make the division unnecessary;
//! - no axis has extent 1;
//! - no two neighbouring axes of a group could be merged without adding a division to a map;
//! - no product with one axis of strided rows has more than [`FEW`] rows and at most [`FEW`] columns. The product of
//!   the transposed operands replaces it and has few rows. Overlapping windows, and rows of several axes, are not
//!   transposed, because backends store columns as one axis.
//!
//! Axes whose extent is known only at run time stay, even if the extent may be 1. Such an axis is never the inner one
//! of two merged axes: a run uses only its first points, and the merged points would not be contiguous. It is split
//! only if its extent is divisible at every length.
//!
//! An anchor treats all axes of a group alike, so the normal form changes no result. [`Kernel::normalise`] makes all of
//! these decisions: lowering emits kernels in normal form, and backends use [`normalise`] for the kernels that they
//! build.

use eutectic_ir::{
    DType, Dim,
    index::{Atom, Index},
    ops::Writes,
};
use rustc_hash::FxHashMap;

use crate::{
    anchors::{Layout, place},
    body::{Body, Instr, Load, Slot, Store, ValueId},
    kernel::Kernel,
    reach::{mentioned, points},
};

/// The maximal number of rows of a product that is memory-bound: it takes as long as reading the right operand.
pub const FEW: usize = 8;

impl Kernel {
    /// Brings the kernel into normal form.
    pub fn normalise(&mut self) {
        let (layouts, mut groups) = (self.layouts(), self.groups());
        let mut stores = std::mem::take(&mut self.stores);
        let mut nests: Vec<Nest> = self.bodies_mut().into_iter().map(|body| Nest::of(std::mem::take(body))).collect();
        if let Some(own) = nests.last_mut() {
            std::mem::swap(&mut own.stores, &mut stores);
        }
        normalise(&mut nests, &layouts, &mut groups);
        self.stores = nests.last_mut().map(|own| std::mem::take(&mut own.stores)).unwrap_or_default();
        for (body, nest) in self.bodies_mut().into_iter().zip(nests) {
            *body = Body { domain: nest.domain, lengths: nest.lengths, instrs: nest.instrs, results: nest.results };
        }
        self.anchor.axes = groups[1..].into();
        (self.anchor.def().normalise)(self);
    }
}

/// Returns whether a load over a domain is affine, has no guards, and reads no element twice along the axes that it
/// mentions. A broadcast operand qualifies; overlapping windows do not.
pub fn is_load_of_matrix(load: &Load, domain: &[usize], slots: &[(DType, usize)]) -> bool {
    let is_affine = load.guards.is_empty() && load.at.affine(domain.len()).is_some();
    is_affine && points(domain, mentioned(&load.at)) <= slots[load.slot].1 as f64
}

/// A body and its stores, in a form whose axes can be split, merged and permuted.
#[derive(Clone, Debug, Default)]
pub struct Nest {
    /// The extent of each axis; for an extent at run time, its maximum.
    pub domain: Vec<usize>,
    /// The axes with extents at run time, each with its extent, as in [`Body::lengths`].
    pub lengths: Vec<(usize, Dim)>,
    /// The instructions.
    pub instrs: Vec<Instr>,
    /// The values that the anchor reads, if this is one of its operands.
    pub results: Vec<ValueId>,
    /// The stores.
    pub stores: Vec<Store>,
}

impl Nest {
    /// Copies a body and its stores into a nest.
    pub fn new(body: &Body, stores: &[Store]) -> Nest {
        Nest { stores: stores.to_vec(), ..Nest::of(body.clone()) }
    }

    /// Converts a body into a nest without stores.
    pub fn of(body: Body) -> Nest {
        let Body { domain, lengths, instrs, results } = body;
        Nest { domain, lengths, instrs, results, stores: Vec::new() }
    }

    /// Returns the extent of an axis at run time; `None` if it is fixed.
    pub fn length(&self, axis: usize) -> Option<&Dim> {
        self.lengths.iter().find(|(of, _)| *of == axis).map(|(_, length)| length)
    }

    /// Returns every index map.
    pub fn indices(&self) -> impl Iterator<Item = &Index> {
        self.instrs.iter().flat_map(Instr::maps).chain(self.stores.iter().flat_map(Store::maps))
    }

    /// Returns the buffers that the loads and stores use, ascending and each once.
    pub fn slots(&self) -> Vec<Slot> {
        let load = |i: &Instr| if let Instr::Load(load) = i { Some(load.slot) } else { None };
        let mut slots: Vec<_> = self.instrs.iter().filter_map(load).chain(self.stores.iter().map(|s| s.slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Simplifies the index maps of loads by their guards. A load reads nothing at points where a guard does not hold,
    /// so its map must be correct only at the others.
    fn simplify_under_guards(&mut self) {
        let loads = self.instrs.iter_mut().filter_map(|i| if let Instr::Load(load) = i { Some(load) } else { None });
        for load in loads.filter(|load| !load.guards.is_empty() && divisions(&load.at) > 0) {
            load.at = load.at.under(&load.guards, &self.domain);
        }
    }

    /// Returns whether a result depends on an axis. An empty axis always counts, because it leaves nothing to compute.
    /// Every axis counts for a combining store, because the extent is the number of combined values.
    pub fn depends_on(&self, axis: usize) -> bool {
        let counts = |store: &Store| matches!(store.writes, Writes::Combined(_));
        self.domain[axis] == 0 || self.stores.iter().any(counts) || self.indices().any(|i| i.mentions(axis))
    }

    /// Replaces the domain: coordinate `n` becomes `at[n]`, a map over the new `domain`. `lengths` has the axes of the
    /// new domain with extents at run time.
    fn substitute(&mut self, at: &[Index], domain: Vec<usize>, lengths: Vec<(usize, Dim)>) {
        let change = |i: &Index| i.substitute(at, &|v| Index::atom(Atom::Value(v)), &domain);
        self.instrs.iter_mut().flat_map(Instr::maps_mut).for_each(|map| *map = change(map));
        self.stores.iter_mut().flat_map(Store::maps_mut).for_each(|map| *map = change(map));
        (self.domain, self.lengths) = (domain, lengths);
    }

    /// Returns the axes with extents at run time, renumbered by `to`. Axes for which `to` gives `None` are left out.
    fn lengths_at(&self, to: impl Fn(usize) -> Option<usize>) -> Vec<(usize, Dim)> {
        self.lengths.iter().filter_map(|(axis, length)| Some((to(*axis)?, length.clone()))).collect()
    }

    /// Returns the number of divisions and remainders in the maps.
    pub fn divisions(&self) -> usize {
        self.indices().map(divisions).sum()
    }

    /// Returns the nest without an axis. The axis must have extent 1, or no result may depend on it.
    pub fn without(&self, axis: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain.remove(axis);
        let mut at: Vec<_> = (0..domain.len()).map(Index::coord).collect();
        at.insert(axis, Index::default());
        let lengths = self.lengths_at(|n| (n != axis).then_some(n - usize::from(n > axis)));
        self.with(&at, domain, lengths)
    }

    /// Returns the nest with axis `order[n]` as axis `n`.
    pub fn permuted(&self, order: &[usize]) -> Nest {
        let to = |axis: usize| order.iter().position(|&from| from == axis);
        let at: Vec<_> = (0..order.len()).filter_map(to).map(Index::coord).collect();
        self.with(&at, order.iter().map(|&axis| self.domain[axis]).collect(), self.lengths_at(to))
    }

    /// Returns the nest with a new axis before `axis`. No result depends on the new axis.
    pub fn repeated(&self, axis: usize, extent: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain.insert(axis, extent);
        let at: Vec<_> = (0..self.domain.len()).map(|n| Index::coord(n + usize::from(n >= axis))).collect();
        let lengths = self.lengths_at(|n| Some(n + usize::from(n >= axis)));
        self.with(&at, domain, lengths)
    }

    /// Returns the nest with `count` axes from `first` on merged into one. If `count` is 0, the nest gets a new axis of one
    /// point. Maps that cannot read the axes as one get divisions.
    pub fn flat(&self, first: usize, count: usize) -> Nest {
        match count {
            0 => self.repeated(first, 1),
            1 => self.clone(),
            _ => (0..count - 1).rev().fold(self.clone(), |nest, n| nest.joined(first + n)),
        }
    }

    /// Returns the result of [`Nest::flat`]; `None` if it would add a division to a map.
    pub fn merged(&self, first: usize, count: usize) -> Option<Nest> {
        let can = (1..count).all(|n| self.reads_as_one(first + n - 1, first + n));
        can.then(|| self.flat(first, count))
    }

    /// Returns whether every map reads two axes as one axis of constant stride.
    fn reads_as_one(&self, outer: usize, inner: usize) -> bool {
        let extent = self.domain[inner] as i64;
        self.indices().all(|map| reads_as_one(map, outer, inner, extent))
    }

    /// Returns the nest with `axis` and the next axis merged.
    fn joined(&self, axis: usize) -> Nest {
        let inner = self.domain[axis + 1];
        let mut domain = self.domain.clone();
        domain[axis] *= inner;
        domain.remove(axis + 1);
        let whole = Index::coord(axis);
        let (outer, inner) = match self.reads_as_one(axis, axis + 1) {
            true => (Index::default(), whole),
            false => (whole.div(inner as i64, &domain), whole.modulo(inner as i64, &domain)),
        };
        let mut at: Vec<_> = (0..domain.len()).map(Index::coord).collect();
        at.splice(axis..=axis, [outer, inner]);
        let mut lengths = self.lengths_at(|n| Some(n - usize::from(n > axis)));
        debug_assert!(self.length(axis + 1).is_none(), "an axis with an extent at run time is never the inner one");
        if let Some((_, length)) = lengths.iter_mut().find(|(n, _)| *n == axis) {
            *length = &*length * &Dim::from(self.domain[axis + 1]);
        }
        self.with(&at, domain, lengths)
    }

    /// Returns the nest with `axis` split in two, the inner one of extent `by`. If `by` does not divide the extent, the
    /// last points of the two axes are beyond the end of `axis`.
    pub fn split(&self, axis: usize, by: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain.splice(axis..=axis, [self.domain[axis].div_ceil(by), by]);
        let whole = Index::coord(axis).times(by as i64).plus(&Index::coord(axis + 1));
        let mut at: Vec<_> = (0..=self.domain.len()).map(Index::coord).collect();
        at.splice(axis..=axis + 1, [whole]);
        let mut lengths = self.lengths_at(|n| Some(n + usize::from(n > axis)));
        if let Some((_, length)) = lengths.iter_mut().find(|(n, _)| *n == axis) {
            *length = length.checked_div(&Dim::from(by)).expect("`by` divides the extent at every length");
        }
        self.with(&at, domain, lengths)
    }

    /// Returns the nest with two axes exchanged.
    #[must_use]
    pub fn swapped(&self, a: usize, b: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain.swap(a, b);
        let other = |axis: usize| match axis {
            axis if axis == a => b,
            axis if axis == b => a,
            axis => axis,
        };
        let at: Vec<_> = (0..domain.len()).map(|axis| Index::coord(other(axis))).collect();
        self.with(&at, domain, self.lengths_at(|axis| Some(other(axis))))
    }

    fn with(&self, at: &[Index], domain: Vec<usize>, lengths: Vec<(usize, Dim)>) -> Nest {
        let mut new = self.clone();
        new.substitute(at, domain, lengths);
        new
    }
}

fn divisions(map: &Index) -> usize {
    let of = |atom: &Atom| match atom {
        Atom::Div(inner, _) | Atom::Mod(inner, _) => 1 + divisions(inner),
        Atom::Coord(_) | Atom::Value(_) | Atom::Extent(_) => 0,
    };
    map.terms.iter().map(|(atom, _)| of(atom)).sum()
}

/// A split of an axis into an outer and an inner axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisSplit {
    /// The axis.
    pub axis: usize,
    /// The extent of the inner axis, a divisor of the extent of `axis`.
    pub by: usize,
}

/// Collects the splits that remove a division from a map: the map divides a coordinate of the domain by a divisor of
/// its axis's extent.
pub fn places_to_split(map: &Index, domain: &[usize], places: &mut Vec<AxisSplit>) {
    for (atom, _) in &map.terms {
        let (Atom::Div(inner, by) | Atom::Mod(inner, by)) = atom else { continue };
        match (inner.terms.as_slice(), inner.constant, usize::try_from(*by)) {
            ([(Atom::Coord(axis), 1)], 0, Ok(by)) => {
                if by > 1 && by < domain[*axis] && domain[*axis].is_multiple_of(by) {
                    places.push(AxisSplit { axis: *axis, by });
                }
            }
            _ => places_to_split(inner, domain, places),
        }
    }
}

/// Returns whether a map reads two axes as one: the stride of the outer axis is the stride of the inner one times its
/// `extent`.
fn reads_as_one(map: &Index, outer: usize, inner: usize, extent: i64) -> bool {
    let mut strides = [0; 2];
    for (atom, c) in &map.terms {
        match atom {
            Atom::Coord(n) if *n == outer => strides[0] = *c,
            Atom::Coord(n) if *n == inner => strides[1] = *c,
            Atom::Div(of, _) | Atom::Mod(of, _) if !reads_as_one(of, outer, inner, extent) => return false,
            _ => {}
        }
    }
    strides[0] == strides[1] * extent
}

/// Brings nests that share groups of axes into normal form, and updates `groups`, the number of axes of each group.
pub fn normalise(nests: &mut [Nest], layouts: &[Layout], groups: &mut [usize]) {
    split(nests, layouts, groups);
    nests.iter_mut().for_each(Nest::simplify_under_guards);
    merge(nests, layouts, groups);
}

/// A small copy of a nest, for deciding which axes to split. Its instructions are only the nest's coordinates and each
/// distinct map with a division.
#[derive(Clone)]
struct AxisSplitProbe {
    nest: Nest,
    /// For each instruction, the number of equal maps in the full nest; 0 for a coordinate.
    stands_for: Vec<usize>,
}

impl AxisSplitProbe {
    fn of(nest: &Nest) -> AxisSplitProbe {
        let mut maps: Vec<Index> = (0..nest.domain.len()).map(Index::coord).collect();
        let mut stands_for = vec![0; maps.len()];
        let mut known: FxHashMap<&Index, usize> = FxHashMap::default();
        for map in nest.indices().filter(|map| divisions(map) > 0) {
            let at = *known.entry(map).or_insert(maps.len());
            if at == maps.len() {
                maps.push(map.clone());
                stands_for.push(0);
            }
            stands_for[at] += 1;
        }
        let instrs = maps.into_iter().map(|index| Instr::Coordinate { index, dtype: DType::I64 }).collect();
        let (domain, lengths) = (nest.domain.clone(), nest.lengths.clone());
        AxisSplitProbe { nest: Nest { domain, lengths, instrs, ..Nest::default() }, stands_for }
    }

    /// Returns the number of divisions and remainders in the maps of the full nest.
    fn divisions(&self) -> usize {
        self.nest.indices().zip(&self.stands_for).map(|(map, times)| times * divisions(map)).sum()
    }
}

/// Splits axes as long as a split reduces the number of divisions in the maps.
fn split(nests: &mut [Nest], layouts: &[Layout], groups: &mut [usize]) {
    if nests.iter().flat_map(Nest::indices).all(|map| divisions(map) == 0) {
        return;
    }
    let mut outlines: Vec<AxisSplitProbe> = nests.iter().map(AxisSplitProbe::of).collect();
    let mut before = outlines.iter().map(AxisSplitProbe::divisions).sum::<usize>();
    while before > 0 {
        let mut places = Vec::new();
        for (AxisSplitProbe { nest, .. }, layout) in outlines.iter().zip(layouts) {
            let mut of_nest = Vec::new();
            nest.indices().for_each(|map| places_to_split(map, &nest.domain, &mut of_nest));
            of_nest.retain(|at| nest.length(at.axis).is_none_or(|n| n.checked_div(&Dim::from(at.by)).is_some()));
            let owners = || layout.iter().flat_map(|&group| (0..groups[group]).map(move |axis| (group, axis)));
            places.extend(of_nest.into_iter().filter_map(|at| Some((owners().nth(at.axis)?, at.by))));
        }
        places.sort_unstable();
        places.dedup();
        let simpler = places.into_iter().find_map(|((group, axis), by)| {
            let new = outlines.iter().zip(layouts).map(|(outline, layout)| match place(layout, groups, group) {
                Some(first) => AxisSplitProbe { nest: outline.nest.split(first + axis, by), ..outline.clone() },
                None => outline.clone(),
            });
            let new: Vec<AxisSplitProbe> = new.collect();
            let left = new.iter().map(AxisSplitProbe::divisions).sum();
            (left < before).then_some((group, new, left))
        });
        let Some((group, new, left)) = simpler else { break };
        groups[group] += 1;
        (outlines, before) = (new, left);
    }
    for (nest, AxisSplitProbe { nest: outline, .. }) in nests.iter_mut().zip(outlines) {
        if outline.domain.len() > nest.domain.len() {
            let at: Vec<Index> = outline.indices().take(nest.domain.len()).cloned().collect();
            nest.substitute(&at, outline.domain, outline.lengths);
        }
    }
}

/// An axis of the normal form. `inner` is the innermost of the axes that were merged into it, `extent` its extent (the
/// maximum, if it varies), and `length` the extent at run time, if it varies.
struct MergedAxis {
    inner: usize,
    extent: usize,
    length: Option<Dim>,
}

/// Removes axes of extent 1, and merges neighbouring axes that every map reads as one.
fn merge(nests: &mut [Nest], layouts: &[Layout], groups: &mut [usize]) {
    // For each group, the axes that remain.
    let stay: Vec<Vec<MergedAxis>> = (0..groups.len())
        .map(|group| {
            let members: Vec<(usize, &Nest)> =
                nests.iter().zip(layouts).filter_map(|(n, layout)| Some((place(layout, groups, group)?, n))).collect();
            let Some((first, nest)) = members.first() else { return Vec::new() };
            let axes = (0..groups[group]).map(|n| (n, nest.domain[first + n], nest.length(first + n)));
            let mut stay: Vec<MergedAxis> = Vec::new();
            for (axis, extent, length) in axes.filter(|(_, extent, length)| *extent != 1 || length.is_some()) {
                let as_one =
                    |outer: usize| members.iter().all(|(first, nest)| nest.reads_as_one(first + outer, first + axis));
                match stay.last_mut() {
                    Some(outer) if length.is_none() && as_one(outer.inner) => {
                        outer.length = outer.length.take().map(|length| &length * &Dim::from(extent));
                        (outer.inner, outer.extent) = (axis, outer.extent * extent);
                    }
                    _ => stay.push(MergedAxis { inner: axis, extent, length: length.cloned() }),
                }
            }
            stay
        })
        .collect();
    if stay.iter().zip(groups.iter()).all(|(stay, &axes)| stay.len() == axes) {
        return;
    }
    for (nest, layout) in nests.iter_mut().zip(layouts) {
        let (mut at, mut domain) = (Vec::with_capacity(nest.domain.len()), Vec::with_capacity(nest.domain.len()));
        let mut lengths = Vec::new();
        for &group in *layout {
            for axis in 0..groups[group] {
                match stay[group].iter().find(|stay| stay.inner == axis) {
                    Some(stay) => {
                        lengths.extend(stay.length.clone().map(|length| (domain.len(), length)));
                        at.push(Index::coord(domain.len()));
                        domain.push(stay.extent);
                    }
                    // The axis was removed, or it is an outer axis that was merged: the coordinate of the merged axis
                    // covers it.
                    None => at.push(Index::default()),
                }
            }
        }
        nest.substitute(&at, domain, lengths);
    }
    stay.iter().zip(groups).for_each(|(stay, axes)| *axes = stay.len());
}
