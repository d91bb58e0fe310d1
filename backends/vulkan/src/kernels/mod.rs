//! Chooses and prints the schedule of each kernel.

mod attention;
mod attention_problem;
mod contraction;
mod few_queries;
mod few_rows;
mod fma;
mod fma_attention;
mod matrices;
mod matrix_attention;
mod parts;
mod product;

use eutectic_backend::Kernel;
use eutectic_gpu::{device::DeviceShape, launch::Launch, map, ops, rows};
use eutectic_ir::DType;

use crate::{dialect::Wgsl, library};

/// Prints a kernel.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    match kernel.kind() {
        "map" => map::print(dialect, shape, kernel),
        "rows" => rows::print(dialect, shape, kernel),
        "matmul" => contraction::print(dialect, shape, kernel),
        "attention" => attention::print(dialect, shape, kernel),
        other => Err(vec![format!("the backend has no kernel for `{other}`")]),
    }
}

/// Returns the schedules among which [`print()`] chooses, with their predicted seconds, the fastest first.
pub fn expected(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    contraction::expected(dialect, shape, kernel)
}

/// Checks whether a kernel can be printed, without printing it. All kernels whose ops are in the table can.
///
/// # Errors
/// Returns the ops that the table lacks, and the element types that WGSL lacks.
pub fn supports(dialect: &Wgsl, kernel: &Kernel) -> Result<(), Vec<String>> {
    let lacking = library::dtypes().lacking(kernel);
    if !lacking.is_empty() {
        return Err(lacking);
    }
    let mut problems: Vec<String> = kernel.bodies().into_iter().flat_map(|body| ops::missing(dialect, body)).collect();
    if kernel.attention().is_some() && parts::sums(&kernel.bodies()) == DType::F64 {
        problems.push("cannot compute attention in f64 because Vulkan has no exponential for it".into());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
