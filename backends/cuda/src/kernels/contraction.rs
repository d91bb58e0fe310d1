//! Products: lists the schedules, and prints the one with the least predicted time.

use eutectic_backend::Kernel;
use eutectic_gpu::{
    device::DeviceShape,
    direct::{Direct, Rates},
};

use super::{
    few, library,
    product::{Printed, ProductProblem, ProductWay},
    tiles, warpgroups,
};
use crate::dialect::CudaC;

/// Returns the schedules of a kernel's product on a device.
pub fn ways<'a>(problem: &'a ProductProblem<'a>) -> Vec<ProductWay<'a>> {
    let library = library::ways(problem).into_iter().collect();
    let direct = direct(problem).into_iter().collect();
    [library, direct, few::ways(problem), warpgroups::ways(problem), tiles::ways(problem)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the direct convolution of a product with windows; `None` for other products.
fn direct<'a>(problem: &'a ProductProblem<'a>) -> Option<ProductWay<'a>> {
    let direct = Direct::of(problem.kernel, problem.shape)?;
    Some(ProductWay {
        name: direct.name(),
        seconds: problem.seconds(direct.busy(problem.shape, Rates::USUAL), 1),
        print: Box::new(move || Ok(vec![direct.print(&CudaC, problem.shape)?])),
    })
}

/// Prints the schedule with the least predicted time.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(shape: &DeviceShape, kernel: &Kernel) -> Printed {
    let problem = ProductProblem::new(shape, kernel)
        .ok_or_else(|| vec!["cannot print a product because the kernel has none".to_string()])?;
    let ways = ways(&problem);
    let best = ways.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    best.map_or_else(
        || Err(vec!["cannot print a product because no tile fits into the device's shared memory".into()]),
        |way| (way.print)(),
    )
}

/// Returns the schedules of a kernel's product with their predicted seconds; an empty list for other kernels.
pub fn expected(shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    let Some(problem) = ProductProblem::new(shape, kernel) else { return Vec::new() };
    ways(&problem).into_iter().map(|way| (way.name, way.seconds)).collect()
}

/// A printed schedule of a product or an attention.
pub struct PrintedWay {
    /// The schedule's name.
    pub name: String,
    /// The predicted seconds.
    pub seconds: f64,
    /// The launches.
    pub printed: Printed,
}

/// Returns all schedules of a kernel's product, for tests and measurements; an empty list for other kernels.
pub fn all(shape: &DeviceShape, kernel: &Kernel) -> Vec<PrintedWay> {
    let Some(problem) = ProductProblem::new(shape, kernel) else { return Vec::new() };
    let printed = |way: ProductWay| PrintedWay { printed: (way.print)(), name: way.name, seconds: way.seconds };
    ways(&problem).into_iter().map(printed).collect()
}
