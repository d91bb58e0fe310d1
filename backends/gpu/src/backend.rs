//! Implements the backend interface of planner and runtime for any GPU device.

use std::{sync::Arc, time::Duration};

use eutectic_backend::{
    Backend, BackendError, Candidate, Cost, Executable, Kernel, Limits, Program,
    costs::CostSheet,
    fit::{Fitted, Freedom, Measured},
};

use crate::{bounds::outside, device::Device, lengths::from_memory, measure, runtime};

/// The backend of a GPU device.
pub struct Gpu<D: Device>(Arc<D>);

impl<D: Device> Gpu<D> {
    /// Returns the backend of a device.
    pub fn new(device: D) -> Gpu<D> {
        Gpu(Arc::new(device))
    }

    /// Returns the device, or `None` while code that was compiled for it exists.
    pub fn into_device(self) -> Option<D> {
        Arc::into_inner(self.0)
    }

    /// Returns the device.
    pub fn device(&self) -> &D {
        &self.0
    }
}

impl<D: Device> Backend for Gpu<D> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn device(&self) -> String {
        self.0.device()
    }

    fn costs(&self) -> Option<CostSheet> {
        self.0.costs()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        let outside = outside(kernel);
        if outside.is_empty() { self.0.print(&from_memory(kernel).0).map(|_| ()) } else { Err(outside) }
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if outside(kernel).is_empty() { self.0.cost(&from_memory(kernel).0) } else { Cost::IMPOSSIBLE }
    }

    /// Returns the schedules of the device. The cost coefficients price the fastest one. Each other schedule costs more
    /// by the difference between its own estimate and the fastest one's.
    fn candidates(&self, kernel: &Kernel, constants: &[usize]) -> Result<Vec<Candidate>, Vec<String>> {
        self.supports(kernel)?;
        let cost = self.cost_among(kernel, constants);
        let ways = self.0.ways(&from_memory(kernel).0);
        let Some(&(_, best)) = ways.first() else {
            return Ok(vec![Candidate { name: kernel.kind().into(), cost }]);
        };
        let candidate =
            |(name, seconds)| Candidate { name, cost: Cost { seconds: cost.seconds + (seconds - best), ..cost } };
        Ok(ways.into_iter().map(candidate).collect())
    }

    fn warm_up(&self) -> Duration {
        self.0.warm_up()
    }

    fn measure(&self, kernel: &Kernel, turns: usize) -> Result<Option<f64>, BackendError> {
        measure::seconds(&*self.0, &kernel.longest(), turns).map(Some)
    }

    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        self.0.fit(measured, freedom)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(runtime::compile(&self.0, program)?))
    }
}
