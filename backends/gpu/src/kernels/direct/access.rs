//! The memory accesses of direct convolution: their addresses, and the cache lines that they touch.

use eutectic_backend::Instr;
use eutectic_ir::{Type, index::Index};
use smallvec::SmallVec;

/// A number for each axis.
pub(super) type Numbers = SmallVec<[usize; 12]>;
/// The number of threads that read memory together: a warp.
pub(super) const TOGETHER: usize = 32;
/// Bytes that the first-level cache delivers per cycle: one cache line.
pub(super) const LINE: i64 = 128;

/// The rates of a device, per second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Operations of threads. A multiplication with an addition is one.
    pub operations: f64,
    /// Bytes that processors read from their first-level caches.
    pub near: f64,
}

impl Rates {
    /// The rates of an H200.
    pub const USUAL: Rates = Rates { operations: 2.1e13, near: 2.0e13 };
}

/// An access to memory, over all axes of a product.
pub(super) struct Access {
    /// Bytes of an element.
    pub size: usize,
    /// Elements from one point of each axis to the next; `None` if the steps are not constant.
    steps: Option<SmallVec<[i64; 12]>>,
    /// The index of the element at coordinate 0 of each axis.
    first: i64,
    /// For each axis, whether the index depends on it.
    pub mentions: SmallVec<[bool; 12]>,
}

impl Access {
    /// Returns the access of an index map. Axis `n` of the map is axis `axes[n]` of a product with `rank` axes.
    pub fn new(map: &Index, size: usize, axes: &[usize], rank: usize) -> Access {
        let steps = map.affine(axes.len()).map(|of_map| {
            let mut steps = SmallVec::from_elem(0, rank);
            axes.iter().zip(of_map).for_each(|(&axis, step)| steps[axis] = step);
            steps
        });
        let mut mentions = SmallVec::from_elem(false, rank);
        // An index that is read from memory may depend on all axes.
        let depends = !map.values().is_empty();
        axes.iter().enumerate().for_each(|(n, &axis)| mentions[axis] = depends || map.mentions(n));
        Access { size, steps, first: map.constant, mentions }
    }

    /// Splits an axis into two, the inner one of extent `by`.
    pub fn cut(&mut self, axis: usize, by: usize) {
        self.mentions.insert(axis, self.mentions[axis]);
        if let Some(steps) = &mut self.steps {
            steps.insert(axis, steps[axis] * by as i64);
        }
    }

    /// Returns whether neighbours along an axis are neighbours in memory.
    pub fn steps_by_one(&self, axis: usize) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps[axis] == 1)
    }

    /// Returns whether one read can take `lanes` adjacent elements of 16 bits along an axis.
    pub fn is_packed(&self, axis: usize, lanes: usize) -> bool {
        let divides = |step: i64| step % lanes as i64 == 0;
        let others =
            |steps: &SmallVec<[i64; 12]>| steps.iter().enumerate().all(|(n, &step)| n == axis || divides(step));
        self.size == 2 && self.steps_by_one(axis) && divides(self.first) && self.steps.as_ref().is_some_and(others)
    }

    /// Returns the number of distinct addresses that the access reads if `written` points of each axis are unrolled.
    pub fn places(&self, written: &[usize]) -> usize {
        let Some(steps) = &self.steps else {
            let mentioned = written.iter().zip(&self.mentions).filter(|(_, mentioned)| **mentioned);
            return mentioned.map(|(count, _)| count).product();
        };
        let several = steps.iter().zip(written).filter(|&(&step, &count)| step != 0 && count > 1);
        let mut axes: SmallVec<[(i64, usize); 12]> = several.map(|(&step, &count)| (step, count)).collect();
        // Overlapping windows have axes of equal steps. Sorting makes these axes neighbours, so that duplicates are
        // removed early and the list stays short.
        axes.sort_unstable_by_key(|&(step, _)| -step.abs());
        let mut places = vec![0];
        for (step, count) in axes {
            places = (0..count as i64).flat_map(|n| places.iter().map(move |place| place + n * step)).collect();
            places.sort_unstable();
            places.dedup();
        }
        places.len()
    }

    /// Returns the number of cache lines that the threads at these points touch. Each takes one cycle of the
    /// first-level cache.
    pub fn lines(&self, warp: &[Numbers]) -> f64 {
        let Some(steps) = &self.steps else { return warp.len() as f64 };
        let place = |at: &Numbers| steps.iter().zip(at).map(|(step, &at)| step * at as i64).sum::<i64>();
        let mut lines: SmallVec<[i64; TOGETHER]> =
            warp.iter().map(|at| (place(at) * self.size as i64).div_euclid(LINE)).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.len() as f64
    }
}

/// Returns the operations that computing one element takes.
pub(super) fn operations(instrs: &[Instr]) -> f64 {
    let of = |instr: &Instr| match instr {
        Instr::Map { op, args, dtype, .. } => {
            let args: Vec<_> = args.iter().map(|&arg| Type::tensor(instrs[arg].dtype(), &[])).collect();
            (op.def().flops)(&args.iter().collect::<Vec<_>>(), &Type::tensor(*dtype, &[]))
        }
        Instr::Load(load) => 1.0 + load.guards.len() as f64 + if load.dtype.is_half() { 1.0 } else { 0.0 },
        Instr::Select { pieces, .. } => pieces.iter().filter(|(guards, _)| !guards.is_empty()).count() as f64,
        Instr::Within { .. } => 4.0,
        Instr::Coordinate { .. } => 2.0,
        Instr::Row { .. } | Instr::Constant { .. } | Instr::Anchor { .. } => 0.0,
    };
    instrs.iter().map(of).sum()
}
