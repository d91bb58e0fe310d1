//! Kernels without an anchor: each thread computes groups of neighbouring points, one group after the other.

use eutectic_backend::{Kernel, axes::Nest};
use eutectic_ir::DType;

use crate::{
    device::DeviceShape,
    dialect::Dialect,
    emit::Emitter,
    kernels::{in_block::InBlock, in_order::split_stores, stages::Stage},
    lanes::SplitAxis,
    launch::Launch,
};

/// Threads per block, if the device allows as many.
const BLOCK: usize = 256;

/// Prints a kernel. It has several launches if its stores are ordered.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(dialect: &dyn Dialect, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let Some(stages) = split_stores(kernel, shape)? else { return Ok(vec![print_stage(dialect, shape, kernel)?]) };
    let workspace = stages.iter().map(Stage::workspace).max().unwrap_or(0);
    let launch = |Stage { kernel, parts, .. }: Stage| {
        print_stage(dialect, shape, &kernel).map(|launch| Launch { workspace, parts, ..launch })
    };
    stages.into_iter().map(launch).collect()
}

/// Returns the number of neighbours that a thread of a block computes at once, for a nest of one axis.
fn lanes(nest: &Nest, shape: &DeviceShape, (slots, block): (&[(DType, usize)], usize)) -> SplitAxis {
    // A bound on the points of a thread keeps all processors busy.
    let most = (nest.domain[0] / (shape.processors * block)).next_power_of_two().clamp(1, 16);
    SplitAxis::best(nest, slots, 0, most)
}

/// Returns, for each value, the fraction of points at which a thread computes it. Neighbours share a value if its index
/// divides their coordinate.
pub(crate) fn shares(shape: &DeviceShape, kernel: &Kernel) -> Vec<f64> {
    let nest = Nest::new(&kernel.body, &kernel.stores).flat(0, kernel.body.domain.len());
    let lanes = lanes(&nest, shape, (&kernel.slots, BLOCK.min(shape.threads)));
    let distinct = lanes.distinct(&nest.instrs, &lanes.domain(&nest.domain));
    distinct.into_iter().map(|count| count as f64 / lanes.count as f64).collect()
}

/// Prints one launch of a kernel without ordered stores.
///
/// # Errors
/// Returns the reasons why the kernel cannot be printed.
pub fn print_stage(dialect: &dyn Dialect, shape: &DeviceShape, kernel: &Kernel) -> Result<Launch, Vec<String>> {
    let nest = Nest::new(&kernel.body, &kernel.stores).flat(0, kernel.body.domain.len());
    let points = nest.domain[0];
    let in_block = InBlock::of(kernel, shape);
    let block = in_block.as_ref().map_or(BLOCK.min(shape.threads), |tables| tables.block);
    let lanes = lanes(&nest, shape, (&kernel.slots, block));
    let mut emitter = Emitter::new(dialect, &kernel.slots, &nest, &["i"], lanes, "v");
    let groups = points / lanes.count;
    if let Some(tables) = &in_block {
        emitter.combine_in_block(&tables.stores);
        emitter.line(&dialect.place("thread", "block"));
        emitter.reset_tables(block);
    }
    emitter.line(&dialect.each_point("i", groups, block));
    // A point may store over an element that it loads, so all loads are printed first.
    nest.stores.iter().flat_map(|store| store.values()).for_each(|value| _ = emitter.value(value));
    (0..nest.stores.len()).for_each(|n| emitter.store(n));
    emitter.line("}");
    if in_block.is_some() {
        emitter.store_tables(block);
    }
    if !emitter.problems.is_empty() {
        return Err(emitter.problems);
    }
    let most = in_block.map_or(shape.processors * 32, |tables| tables.blocks);
    let blocks = groups.div_ceil(block).min(most);
    Ok(Launch::new(dialect.kernel(&kernel.slots, block, &emitter.text), [blocks, 1, 1], block))
}
