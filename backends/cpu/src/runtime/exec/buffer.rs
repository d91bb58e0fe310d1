//! Buffers that a caller owns and can bind to ports. On the CPU, all of them are host memory.

use eutectic_backend::{BackendError, DeviceBuffer};

use super::check::wrong;
use crate::runtime::memory::Pages;

/// A block of memory that its owner can bind to an input, output or state.
pub struct CpuBuffer(Pages);

impl CpuBuffer {
    /// Allocates a buffer of `bytes` bytes.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(bytes: usize) -> Result<CpuBuffer, BackendError> {
        Pages::try_new(bytes).map(CpuBuffer)
    }

    /// Returns the buffer's memory.
    pub fn block(&self) -> &Pages {
        &self.0
    }
}

impl DeviceBuffer for CpuBuffer {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn host(&self) -> Option<&[u8]> {
        Some(self.0.as_ref())
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        Some(self.0.as_mut())
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        to.copy_from_slice(part(self.0.as_ref(), "buffer", "*", at, to.len())?);
        Ok(())
    }

    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), BackendError> {
        part(self.0.as_ref(), "buffer", "*", at, from.len())?;
        self.0.as_mut()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// Returns `bytes` bytes of a memory from byte `at` on. `what` and `name` name the memory in errors.
///
/// # Errors
/// If the range exceeds the memory.
pub fn part<'a>(
    memory: &'a [u8],
    what: &'static str,
    name: &str,
    at: usize,
    bytes: usize,
) -> Result<&'a [u8], BackendError> {
    let range = at.checked_add(bytes).and_then(|end| memory.get(at..end));
    range.ok_or_else(|| {
        let size = memory.len();
        wrong(what, name, format!("cannot access {bytes} bytes at byte {at} because the buffer has {size} bytes"))
    })
}
