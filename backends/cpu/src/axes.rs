//! Normal forms of iteration domains: no axis of extent 1, none that two could be read as one, none that a reshape cuts.

use eutectic_backend::{Body, Instr, Store, ValueId};
use eutectic_ir::index::{Atom, Index};

/// A body with its stores, whose axes can be changed.
#[derive(Clone, Debug)]
pub struct Nest {
    /// Extents.
    pub domain: Vec<usize>,
    /// The instructions.
    pub instrs: Vec<Instr>,
    /// The values that go into an anchor.
    pub results: Vec<ValueId>,
    /// What is written.
    pub stores: Vec<Store>,
}

impl Nest {
    /// A body and its stores.
    pub fn new(body: &Body, stores: &[Store]) -> Nest {
        Nest {
            domain: body.domain.clone(),
            instrs: body.instrs.clone(),
            results: body.results.clone(),
            stores: stores.to_vec(),
        }
    }

    /// Every index map.
    pub fn indices(&self) -> impl Iterator<Item = &Index> {
        self.instrs.iter().flat_map(Instr::maps).chain(self.stores.iter().flat_map(Store::maps))
    }

    /// The buffers that it reads and writes.
    pub fn slots(&self) -> Vec<usize> {
        let load = |i: &Instr| if let Instr::Load(load) = i { Some(load.slot) } else { None };
        let mut slots: Vec<_> = self.instrs.iter().filter_map(load).chain(self.stores.iter().map(|s| s.slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Whether anything depends on an axis; everything does on one without points, for then there is nothing to evaluate.
    pub fn depends_on(&self, axis: usize) -> bool {
        self.domain[axis] == 0 || self.indices().any(|i| i.mentions(axis))
    }

    /// The same over another domain: coordinate `n` is `at[n]`, a map over `domain`.
    fn substitute(&self, at: &[Index], domain: Vec<usize>) -> Nest {
        let change = |i: &Index| i.substitute(at, &|v| Index::atom(Atom::Value(v)), &domain);
        let mut new = self.clone();
        new.instrs.iter_mut().flat_map(Instr::maps_mut).for_each(|map| *map = change(map));
        new.stores.iter_mut().flat_map(Store::maps_mut).for_each(|map| *map = change(map));
        new.domain = domain;
        new
    }

    /// How many divisions and remainders the maps hold.
    pub fn cuts(&self) -> usize {
        self.indices().map(cuts).sum()
    }

    /// Without an axis on which nothing depends or whose extent is 1.
    pub fn without(&self, axis: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain.remove(axis);
        let at: Vec<_> = (0..self.domain.len())
            .map(|n| match n.cmp(&axis) {
                std::cmp::Ordering::Less => Index::coord(n),
                std::cmp::Ordering::Equal => Index::default(),
                std::cmp::Ordering::Greater => Index::coord(n - 1),
            })
            .collect();
        self.substitute(&at, domain)
    }

    /// With `axis` and the next one as one axis, if no map gets a division by that.
    pub fn merged(&self, axis: usize) -> Option<Nest> {
        let inner = self.domain[axis + 1];
        let mut domain = self.domain.clone();
        domain[axis] *= inner;
        domain.remove(axis + 1);
        let whole = Index::coord(axis);
        let at: Vec<_> = (0..self.domain.len())
            .map(|n| match n {
                n if n < axis => Index::coord(n),
                n if n == axis => whole.div(inner as i64, &domain),
                n if n == axis + 1 => whole.modulo(inner as i64, &domain),
                n => Index::coord(n - 1),
            })
            .collect();
        let new = self.substitute(&at, domain);
        (new.cuts() <= self.cuts()).then_some(new)
    }

    /// With `axis` as two axes, the inner one of extent `by`.
    fn cut(&self, axis: usize, by: usize) -> Nest {
        let mut domain = self.domain.clone();
        domain[axis] /= by;
        domain.insert(axis + 1, by);
        let at: Vec<_> = (0..self.domain.len())
            .map(|n| match n {
                n if n < axis => Index::coord(n),
                n if n == axis => Index::coord(n).times(by as i64).plus(&Index::coord(n + 1)),
                n => Index::coord(n + 1),
            })
            .collect();
        self.substitute(&at, domain)
    }

    /// An axis and a divisor at which a map cuts it.
    fn places_to_cut(&self) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        self.indices().for_each(|i| collect_cuts(i, &mut places));
        places.retain(|&(axis, by)| by > 1 && self.domain[axis] > by && self.domain[axis].is_multiple_of(by));
        places.sort_unstable();
        places.dedup();
        places
    }
}

fn cuts(index: &Index) -> usize {
    let of = |atom: &Atom| match atom {
        Atom::Div(inner, _) | Atom::Mod(inner, _) => 1 + cuts(inner),
        _ => 0,
    };
    index.terms.iter().map(|(atom, _)| of(atom)).sum()
}

fn collect_cuts(index: &Index, places: &mut Vec<(usize, usize)>) {
    for (atom, _) in &index.terms {
        if let Atom::Div(inner, by) | Atom::Mod(inner, by) = atom {
            if let [(Atom::Coord(axis), 1)] = inner.terms.as_slice() {
                places.push((*axis, *by as usize));
            }
            collect_cuts(inner, places);
        }
    }
}

/// A map or row group in normal form. `rows` is how many of the innermost axes form a row; the new number comes back.
pub fn normalise(nest: &Nest, rows: usize) -> (Nest, usize) {
    let (mut nest, mut rows) = (nest.clone(), rows);
    // Cut axes where a reshape cuts them, as long as that makes maps simpler.
    while nest.domain.len() < 2 * crate::tile::domain::MAX_RANK {
        let simpler = nest.places_to_cut().into_iter().find_map(|(axis, by)| {
            let new = nest.cut(axis, by);
            (new.cuts() < nest.cuts()).then_some((axis, new))
        });
        let Some((axis, new)) = simpler else { break };
        rows += usize::from(axis + rows >= nest.domain.len());
        nest = new;
    }
    for axis in (0..nest.domain.len()).rev() {
        if nest.domain[axis] == 1 {
            rows -= usize::from(axis + rows >= nest.domain.len());
            nest = nest.without(axis);
        }
    }
    for axis in (0..nest.domain.len().saturating_sub(1)).rev() {
        let outer = nest.domain.len() - rows;
        if axis + 1 == outer {
            continue;
        }
        if let Some(new) = nest.merged(axis) {
            rows -= usize::from(axis >= outer);
            nest = new;
        }
    }
    (nest, rows)
}

/// Brings the batch axes that the bodies of an anchor share (the first `batch` of each) into normal form; gives their new
/// number.
pub fn normalise_batch(nests: &mut [Nest], batch: usize) -> usize {
    let mut batch = batch;
    for axis in (0..batch).rev() {
        if nests[0].domain[axis] == 1 {
            nests.iter_mut().for_each(|n| *n = n.without(axis));
            batch -= 1;
        }
    }
    for axis in (0..batch.saturating_sub(1)).rev() {
        if let Some(new) = nests.iter().map(|n| n.merged(axis)).collect::<Option<Vec<_>>>() {
            nests.clone_from_slice(&new);
            batch -= 1;
        }
    }
    batch
}
