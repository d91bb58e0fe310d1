//! The device of the cases. It has every kernel that a case does not remove, and its costs never change.

use std::sync::Arc;

use eutectic::Backend;
use eutectic_backend::{Attention, BackendError, Body, Contraction, Cost, Executable, Kernel, Limits, Program};

const LAUNCH: f64 = 3e-7;
const BYTES_A_SECOND: f64 = 2e10;
const FLOPS: f64 = 1e11;
/// The number of columns at which a matrix product runs at half of its peak speed.
const HALF_SPEED: f64 = 256.0;

/// A device for planning only. It cannot run programs.
#[derive(Clone)]
pub struct Device {
    /// The kinds of kernel ([`Kernel::kind`]) that it does not support.
    pub lacks: Vec<String>,
    /// See [`Backend::keep`].
    pub keep: f64,
    /// See [`Limits::capacity`].
    pub capacity: usize,
}

impl Default for Device {
    fn default() -> Device {
        Device { lacks: Vec::new(), keep: 0.05, capacity: usize::MAX }
    }
}

impl Backend for Device {
    fn name(&self) -> &str {
        "cases"
    }

    fn describe(&self) -> String {
        "plans only".into()
    }

    fn limits(&self) -> Limits {
        Limits { capacity: self.capacity, ..Limits::default() }
    }

    fn keep(&self) -> f64 {
        self.keep
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        match self.lacks.iter().any(|kind| kind == kernel.kind()) {
            true => Err(vec![format!("this device has no kernel for `{}`", kernel.kind())]),
            false => Ok(()),
        }
    }

    /// Returns the cost of a launch, plus bytes and arithmetic at fixed rates. At these costs, every fusion that pays
    /// on some real device also pays.
    fn cost(&self, kernel: &Kernel) -> Cost {
        if self.supports(kernel).is_err() {
            return Cost::IMPOSSIBLE;
        }
        let points = |body: &Body| (body.domain.iter().product::<usize>() * body.instrs.len()) as f64;
        let bytes = kernel.slots.iter().map(|(dtype, count)| (dtype.size() * count) as f64).sum();
        let flops = kernel.bodies().into_iter().map(points).sum::<f64>() + products(kernel);
        Cost { seconds: LAUNCH + bytes / BYTES_A_SECOND + flops / FLOPS, flops, bytes }
    }

    fn compile(&self, _: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Device("this device plans, and runs nothing".into()))
    }
}

/// Returns the arithmetic of the matrix products in a kernel.
fn products(kernel: &Kernel) -> f64 {
    let inner = |body: &Body, axes: usize| body.domain.iter().rev().take(axes).product::<usize>() as f64;
    let points = |body: &Body| body.domain.iter().product::<usize>() as f64;
    // Wide products are more efficient, which is the reason to merge products of one value.
    if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
        let (depth, columns) = (inner(lhs, axes.depth), inner(rhs, axes.columns));
        return 2.0 * points(&kernel.body) * depth * (1.0 + HALF_SPEED / columns);
    }
    if let Some(Attention { query, key, axes, .. }) = kernel.attention() {
        let (depth, columns) = (inner(query, axes.depth), inner(&kernel.body, axes.columns));
        let keys: usize = key.domain[axes.batch..axes.batch + axes.keys].iter().product();
        return 2.0 * points(query) / depth * keys as f64 * (depth + columns);
    }
    0.0
}
