//! A backend with roofline prices that computes nothing.

use std::sync::Arc;

use eutectic_backend::{
    Backend, BackendError, Contraction, Cost, DTypes, Executable, Instr, Kernel, Limits, Program, RowLimits,
};

/// Prices at 2 µs per launch, 10 GB/s and 50 GFLOP/s. Every kernel is supported.
pub struct Roofline;

impl Backend for Roofline {
    fn name(&self) -> &str {
        "roofline"
    }

    fn describe(&self) -> String {
        "prices only".into()
    }

    fn limits(&self) -> Limits {
        Limits { in_order: true, combined: DTypes::ALL, rows: RowLimits::ANY, ..Limits::default() }
    }

    fn supports(&self, _: &Kernel) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        let points = |domain: &[usize]| domain.iter().product::<usize>() as f64;
        let arithmetic = |i: &&Instr| matches!(i, Instr::Map { .. } | Instr::Row { .. });
        let bytes: f64 = kernel.slots.iter().map(|(d, n)| (d.size() * n) as f64).sum();
        let mut flops: f64 =
            kernel.bodies().iter().map(|b| points(&b.domain) * b.instrs.iter().filter(arithmetic).count() as f64).sum();
        if let Some(Contraction { lhs, axes, .. }) = kernel.contraction() {
            flops += 2.0 * points(&kernel.body.domain) * points(&lhs.domain[axes.batch + axes.rows..]);
        }
        Cost { seconds: 2e-6 + (bytes / 10e9).max(flops / 50e9), flops, bytes }
    }

    fn compile(&self, _: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Device("cannot compile a program because the roofline backend only prices kernels".into()))
    }
}
