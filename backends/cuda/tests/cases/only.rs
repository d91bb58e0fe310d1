//! A device that computes products and attention by one schedule only.

use eutectic_backend::{BackendError, Cost, Kernel, Limits, Memory};
use eutectic_cuda::kernels;
use eutectic_gpu::{
    device::{Device, DeviceShape},
    launch::Launch,
};

/// A device that is restricted to schedules whose names have given prefixes. Kernels without such a schedule are
/// computed as on the wrapped device.
pub struct Only<D> {
    pub device: D,
    pub shape: DeviceShape,
    pub name: String,
}

impl<D: Device> Device for Only<D> {
    type Module = D::Module;
    type Block = D::Block;
    type Stream = D::Stream;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn describe(&self) -> String {
        format!("{}, products by {}", self.device.describe(), self.name)
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
        let ways = kernels::ways(&self.shape, kernel);
        let best = ways.into_iter().filter(|way| way.name.starts_with(&self.name));
        let best = best.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        best.map_or_else(|| self.device.print(kernel), |way| way.printed)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        self.device.cost(kernel)
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<D::Module, String>> {
        self.device.build(launches)
    }

    fn allocate(&self, bytes: usize, memory: Memory) -> Result<D::Block, BackendError> {
        self.device.allocate(bytes, memory)
    }

    fn stream(&self) -> Result<D::Stream, BackendError> {
        self.device.stream()
    }
}
