//! Defines the buffers that callers hold and bind to ports.

use std::sync::{Arc, Mutex, PoisonError};

use eutectic_backend::{BackendError, DeviceBuffer, Memory};

use super::errors::part;
use crate::device::{Device, DeviceMemory, Stream};

/// Memory that its holder may bind to a port. It has a separate stream for copies.
pub struct BoundBuffer<D: Device> {
    block: D::Block,
    stream: Mutex<D::Stream>,
    device: Arc<D>,
}

impl<D: Device> BoundBuffer<D> {
    /// Allocates a buffer of `bytes` bytes.
    pub fn new(device: &Arc<D>, bytes: usize, memory: Memory) -> Result<BoundBuffer<D>, BackendError> {
        let (block, stream) = (device.allocate(bytes, memory)?, Mutex::new(device.stream()?));
        Ok(BoundBuffer { block, stream, device: device.clone() })
    }

    /// Returns the buffer's memory.
    pub fn block(&self) -> &D::Block {
        &self.block
    }

    /// Returns whether the buffer is memory of this device.
    pub fn is_of(&self, device: &Arc<D>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl<D: Device> DeviceBuffer for BoundBuffer<D> {
    fn bytes(&self) -> usize {
        self.block.bytes()
    }

    fn host(&self) -> Option<&[u8]> {
        self.block.host()
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        self.block.host_mut()
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        part("buffer", "*", at, to.len(), self.bytes())?;
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.download(self.block.address() + at as u64, to)
    }

    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), BackendError> {
        part("buffer", "*", at, from.len(), self.bytes())?;
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.upload(self.block.address() + at as u64, from)?;
        stream.wait()
    }
}
