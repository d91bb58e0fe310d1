//! Compiles the stores of a body: affine writes, writes of boxes, and scatters.

use eutectic_backend::{Store, reach::together};
use eutectic_ir::ops::Writes;

use super::{TileCompiler, is_inside};
use crate::{
    simd::{
        convert::narrow,
        reduce::{self, Combining},
    },
    tile::{
        access::CompiledAccess,
        domain::AxisMask,
        gather::ScatterLines,
        program::{Scatter, TileStep, Write},
        region::Region,
    },
};

impl TileCompiler<'_> {
    /// Compiles a store of the body.
    pub(super) fn store(&mut self, store: &Store) {
        let Some(&(dtype, count)) = self.slots.get(store.slot) else {
            self.problems.push(format!("cannot store to buffer {} because it does not exist", store.slot));
            return;
        };
        let mut value = self.at(store.value);
        let held = self.program.values[value].dtype;
        if held != dtype.register() {
            self.problems.push(format!("cannot store {held} to a buffer of {dtype}"));
            return;
        }
        let combine = match store.writes {
            Writes::Apart | Writes::InOrder => None,
            Writes::Combined(how) => match reduce::combining(how, dtype) {
                None => {
                    let why = format!("cannot combine stores by {how:?} in {dtype} because there is no kernel");
                    return self.problems.push(why);
                }
                combine => combine,
            },
        };
        if let Some(run) = narrow(dtype, self.isa) {
            value = match self.narrowed.get(&(value, dtype)) {
                Some(&known) => known,
                None => {
                    let new = self.point(run, [0.0; 2], vec![value], dtype);
                    self.narrowed.insert((value, dtype), new);
                    new
                }
            };
        }
        if count == 0 && self.program.row != 0 && self.program.domain.contains(&0) {
            // Rows without elements have results too, but here the buffer has no room for any.
            return;
        }
        // The index of a value that is constant along the row does not depend on the row's axes. Such a store also runs
        // for rows without elements, so an empty row counts as one point.
        let of_row = |d: usize| self.program.row >> d & 1 == 1;
        let reached: Vec<_> =
            self.program.domain.iter().enumerate().map(|(d, &n)| if of_row(d) { n.max(1) } else { n }).collect();
        let affine = CompiledAccess::new(&store.at).and_then(|access| access.affine());
        if store.writes != Writes::Apart {
            let together = together(store, &self.program.domain) as AxisMask;
            self.program.together |= together;
            self.program.in_order |= if combine.is_none() { together } else { 0 };
            return self.scatter(store, value, count, combine);
        }
        if !store.guards.is_empty() || !store.at.values().is_empty() {
            let (guards, _) = self.guards(&store.guards);
            let region = Region::new(&guards, &self.program.domain, self.single);
            let Some(((base, strides), region)) = affine.zip(region) else {
                return self.scatter(store, value, count, None);
            };
            if !is_inside(&region.range(base, &strides), count) {
                return self.scatter(store, value, count, None);
            }
            self.program.writes.push(Write { slot: store.slot, base, strides, region: Some(region), value });
            return;
        }
        let range = store.at.range(&reached);
        match affine {
            Some(_) if !reached.contains(&0) && (range.start < 0 || range.end > count as i64) => {
                let why = format!("cannot store at {} because the buffer has only {count} elements", store.at);
                self.problems.push(why);
            }
            Some((base, strides)) => {
                let write = self.program.writes.len();
                if let (TileStep::Point { .. }, None) = (&self.program.steps[value], self.program.values[value].direct)
                {
                    self.program.values[value].direct = Some(write);
                }
                self.program.writes.push(Write { slot: store.slot, base, strides, region: None, value });
            }
            None => self.problems.push(format!("cannot store at the index {} because it is not affine", store.at)),
        }
    }

    /// Compiles a store at indices that are known only at run time. They are checked at run time too.
    fn scatter(&mut self, store: &Store, value: usize, count: usize, combine: Option<Combining>) {
        match self.access(&store.at) {
            Ok((access, of_access)) => {
                let (guards, of_guards) = self.guards(&store.guards);
                // Each point of the domain is combined with the buffer's contents, even along axes on which nothing
                // depends.
                let all = if combine.is_some() { self.all } else { 0 };
                let mask = self.mask(value) | of_access | of_guards | all;
                let lines = ScatterLines::new(&access, &guards, mask, &|v| self.mask(v));
                let scatter = Scatter { slot: store.slot, count, access, guards, value, mask, combine, lines };
                self.program.scatters.push(scatter);
            }
            Err(why) => self.problems.push(why),
        }
    }
}
