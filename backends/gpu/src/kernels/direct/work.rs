//! Estimates the time of a direct convolution: operations, reads from the first-level cache, and iterations in which
//! threads wait for memory.

use smallvec::SmallVec;

use super::{
    Direct,
    access::{LINE, Numbers, Rates, TOGETHER, operations},
};
use crate::device::DeviceShape;

/// The maximal number of loads in flight per thread.
const ON_THE_WAY: f64 = 32.0;
/// Seconds from a load to the arrival of its value.
const LATENCY: f64 = 3.5e-7;
/// Registers per processor, registers of a thread without its sums, and the maximal number of threads per processor.
const REGISTERS: f64 = 65536.0;
const OWN: f64 = 56.0;
const RESIDENT: f64 = 1536.0;

impl Direct<'_> {
    /// Returns the seconds of the kernel if first-level caches hold all data that threads read.
    pub fn busy(&self, shape: &DeviceShape, rates: Rates) -> f64 {
        let results: usize = self.written[..self.outer].iter().product();
        let terms: usize = self.written[self.outer..].iter().product();
        let turns = (self.extents[self.outer..].iter().product::<usize>() / terms) as f64;
        let warp = self.warp();
        // Counts the operations, cache lines and loads of one iteration over the depth.
        let lanes = self.lanes as f64;
        let mut operated = (results * terms) as f64 * lanes;
        let (mut lines, mut loads) = (0.0, 0.0);
        for operand in &self.operands {
            let mut most = 1;
            for access in &operand.reads {
                let places = access.places(&self.written);
                most = most.max(places);
                lines += places as f64 * access.lines(&warp);
                loads += places as f64;
            }
            operated += most as f64 * operand.operations * lanes;
        }
        let results = results as f64 * lanes;
        let own = operations(&self.kernel.body.instrs) + 2.0 * self.kernel.stores.len() as f64;
        let own_lines: f64 = self.own.iter().map(|access| access.lines(&warp)).sum();
        let operated = operated * turns + results * own;
        let read = lines * turns + results * own_lines;
        let threads = self.threads() as f64;
        let wide = if self.sum.size() > 4 { 2.0 } else { 1.0 };
        let resident = (REGISTERS / (OWN + 1.5 * wide * results)).min(RESIDENT) * shape.processors as f64;
        let waits = (threads / resident).ceil() * LATENCY * (turns * (loads / ON_THE_WAY).ceil() + 1.0);
        (threads * operated * wide / rates.operations)
            .max(threads / TOGETHER as f64 * read * LINE as f64 / rates.near)
            .max(waits)
    }

    /// Returns the first points of the threads of a warp, which read together.
    fn warp(&self) -> SmallVec<[Numbers; TOGETHER]> {
        let coordinates = |thread: usize| {
            let mut rest = thread;
            let mut at: Numbers = self.extents.iter().map(|_| 0).collect();
            for &axis in self.order.iter().rev() {
                let tiles = self.tiles(axis);
                at[axis] = (rest % tiles * self.step(axis)).min(self.extents[axis] - self.step(axis));
                rest /= tiles;
            }
            at
        };
        (0..TOGETHER).map(coordinates).collect()
    }
}
