//! Products: the ways to compute one, of which the one is printed that takes the least time.

use eutectic_backend::Kernel;
use eutectic_gpu::device::Shape;

use super::{
    few, library,
    product::{Printed, Problem, Way},
    tiles, warpgroups,
};

/// The ways to compute a kernel's product on a device.
pub fn ways<'a>(problem: &'a Problem<'a>) -> Vec<Way<'a>> {
    [library::ways(problem).into_iter().collect(), few::ways(problem), warpgroups::ways(problem), tiles::ways(problem)]
        .into_iter()
        .flatten()
        .collect()
}

/// Prints the fastest.
///
/// # Errors
/// What cannot be printed.
pub fn print(shape: &Shape, kernel: &Kernel) -> Printed {
    let problem = Problem::new(shape, kernel).ok_or_else(|| vec!["no product".to_string()])?;
    let ways = ways(&problem);
    let best = ways.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    best.map_or_else(|| Err(vec!["no tile of a product fits on this device".into()]), |way| (way.print)())
}

/// A way to compute a product, printed.
pub struct PrintedWay {
    /// Its name.
    pub name: String,
    /// The seconds that are expected.
    pub seconds: f64,
    /// What is launched.
    pub printed: Printed,
}

/// All ways to compute a kernel's product, for tests and measurements; none of another kernel.
pub fn all(shape: &Shape, kernel: &Kernel) -> Vec<PrintedWay> {
    let Some(problem) = Problem::new(shape, kernel) else { return Vec::new() };
    let printed = |way: Way| PrintedWay { printed: (way.print)(), name: way.name, seconds: way.seconds };
    ways(&problem).into_iter().map(printed).collect()
}
