//! Chooses and prints the schedule of each kernel.

mod attention;
mod attention_way;
mod attention_ways;
mod contraction;
mod few;
mod library;
mod parts;
mod product;
mod score_bias;
mod tiles;
mod warpgroup_attention;
mod warpgroups;

use eutectic_backend::Kernel;
use eutectic_gpu::{device::DeviceShape, launch::Launch, map, ops, rows};

pub use self::{
    contraction::{PrintedWay, all as products},
    library::{ACTIVATIONS, LIBRARY_BYTES},
};
use crate::dialect::{CudaC, dtypes};

/// Prints a kernel.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let lacking = dtypes().lacking(kernel);
    if !lacking.is_empty() {
        return Err(lacking);
    }
    match kernel.kind() {
        "map" => map::print(&CudaC, shape, kernel),
        "rows" => rows::print(&CudaC, shape, kernel),
        "matmul" => contraction::print(shape, kernel),
        "attention" => attention_ways::print(shape, kernel),
        other => Err(vec![format!("the backend has no kernel for `{other}`")]),
    }
}

/// Returns the schedules among which [`print()`] chooses, with their predicted seconds, the fastest first.
pub fn expected(shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    let mut ways = contraction::expected(shape, kernel);
    ways.extend(attention_ways::expected(shape, kernel));
    ways.sort_by(|a, b| a.1.total_cmp(&b.1));
    ways
}

/// Returns all schedules of a kernel's product or attention, for tests and measurements; an empty list for other
/// kernels.
pub fn ways(shape: &DeviceShape, kernel: &Kernel) -> Vec<PrintedWay> {
    let mut ways = contraction::all(shape, kernel);
    ways.extend(attention_ways::all(shape, kernel));
    ways
}

/// Checks whether a kernel can be printed, without printing it. All kernels whose ops are in the table can.
///
/// # Errors
/// Returns the ops that the table lacks, and the element types that CUDA C++ lacks.
pub fn supports(kernel: &Kernel) -> Result<(), Vec<String>> {
    let lacking = dtypes().lacking(kernel);
    if !lacking.is_empty() {
        return Err(lacking);
    }
    let problems: Vec<String> = kernel.bodies().into_iter().flat_map(|body| ops::missing(&CudaC, body)).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
