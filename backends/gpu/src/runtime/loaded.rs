//! Parameters and the results of the load program, which sessions share.

use std::sync::Arc;

use eutectic_backend::{BackendError, Memory};
use eutectic_ir::Tensor;

use super::{
    code::{Barriers, BoundStep, Code, FAULT_BYTES, RunMemory, SlotSource},
    errors::{expect, wrong},
};
use crate::device::{Device, DeviceMemory, Stream};

/// Blocks of memory, by number. Freed ones are `None`.
type Blocks<D> = Vec<Option<Arc<<D as Device>::Block>>>;

/// A program with its parameters.
pub struct GpuLoaded<D: Device> {
    pub code: Arc<Code<D>>,
    params: Blocks<D>,
    loaded: Blocks<D>,
}

/// Loads a program.
///
/// # Errors
/// Returns an error if the number or a type of the parameters is not the program's. Also returns an error if the load
/// program reads an index that is out of range.
pub fn load<D: Device>(code: Arc<Code<D>>, params: &[Tensor]) -> Result<GpuLoaded<D>, BackendError> {
    expect("parameter", params.len(), code.params.len())?;
    let (params, count) = (params.iter().enumerate(), params.len());
    let given: Vec<_> = params.collect();
    let empty = GpuLoaded { params: vec![None; count], loaded: vec![None; code.loaded_bytes.len()], code };
    let todo = vec![true; empty.code.load.len()];
    empty.with(&given, &todo)
}

impl<D: Device> GpuLoaded<D> {
    /// Uploads the parameters in `given`, and runs the load steps that `todo` selects.
    fn with(&self, given: &[(usize, &Tensor)], todo: &[bool]) -> Result<GpuLoaded<D>, BackendError> {
        let code = &self.code;
        let device = &code.device;
        let mut new = GpuLoaded { code: code.clone(), params: self.params.clone(), loaded: self.loaded.clone() };
        let steps = || code.load.iter().enumerate().filter(|(n, _)| todo[*n]);
        let read = |n: usize, step: &BoundStep| step.sources.contains(&SlotSource::Param(n));
        // Results of the load program have the maximal extents.
        let most = code.most();
        let bytes = code.lengths_of(&most);
        // Memory must outlive the stream that uses it, also after an error, so it is allocated before the stream.
        let [workspace, fault, lengths] =
            [code.workspace, FAULT_BYTES, bytes.len()].map(|bytes| device.allocate(bytes, Memory::Device));
        let (workspace, fault, lengths) = (workspace?, fault?, lengths?);
        let mut stream = device.stream()?;
        for &(n, tensor) in given {
            let Some((name, ty)) = code.params.get(n) else {
                let count = code.params.len();
                let problem =
                    format!("cannot replace it because the program has only {count} parameters, counted from 0");
                return Err(wrong("parameter", &n.to_string(), problem));
            };
            if tensor.ty() != *ty {
                let problem = format!("cannot take {} because the program takes {ty}", tensor.ty());
                return Err(wrong("parameter", name, problem));
            }
            new.params[n] = None;
            if code.run.iter().chain(steps().map(|s| s.1)).any(|step| read(n, step)) {
                let block = device.allocate(tensor.bytes().len(), Memory::Device)?;
                stream.upload(block.address(), tensor.bytes())?;
                new.params[n] = Some(Arc::new(block));
            }
        }
        for write in steps().flat_map(|(_, step)| step.stores.iter().map(|&slot| step.sources[slot])) {
            let SlotSource::Loaded(n) = write else { continue };
            let old = &self.loaded[n];
            let is_new = match (&new.loaded[n], old) {
                (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
                (new, _) => new.is_some(),
            };
            if !is_new {
                let block = device.allocate(code.loaded_bytes[n], Memory::Device)?;
                if let Some(old) = old {
                    // Steps may keep a part of the old contents, which are therefore copied.
                    stream.copy(old.address(), block.address(), old.bytes())?;
                }
                new.loaded[n] = Some(Arc::new(block));
            }
        }
        stream.upload(lengths.address(), &bytes)?;
        let at = |source| match source {
            SlotSource::Lengths(at) => lengths.address() + at as u64,
            source => new.at(source),
        };
        let memory = RunMemory { workspace: workspace.address(), fault: fault.address() };
        let mut barriers = Barriers::default();
        for step in steps() {
            barriers.before(&mut stream, step.0, &code.waits[0])?;
            code.launch(&mut stream, step, at, memory)?;
        }
        stream.wait()?;
        if code.faults {
            code.check(&mut stream, &fault, &code.load, &most)?;
        }
        for (n, param) in new.params.iter_mut().enumerate() {
            if !code.run.iter().any(|step| read(n, step)) {
                *param = None;
            }
        }
        Ok(new)
    }

    /// Returns the address of a source that all sessions share.
    pub fn at(&self, source: SlotSource) -> u64 {
        let block = |block: &Option<Arc<D::Block>>| block.as_ref().map_or(0, |b| b.address());
        match source {
            SlotSource::Const(n) => self.code.constants[n].address(),
            SlotSource::Param(n) => block(&self.params[n]),
            SlotSource::Loaded(n) => block(&self.loaded[n]),
            SlotSource::Arena(_) | SlotSource::Port(_) | SlotSource::Lengths(_) => 0,
        }
    }

    /// Returns the program with new values of these parameters, and recomputes the results that depend on them.
    ///
    /// # Errors
    /// Returns an error if a result depends on parameters that were freed, or if a value's type is not its parameter's.
    pub fn replaced(&self, params: &[(usize, Tensor)]) -> Result<GpuLoaded<D>, BackendError> {
        let given: Vec<_> = params.iter().map(|(n, tensor)| (*n, tensor)).collect();
        let replaced = |n: usize| given.iter().any(|(of, _)| *of == n);
        let mut changed = vec![false; self.loaded.len()];
        let mut released: Vec<usize> = Vec::new();
        let mut todo = Vec::new();
        for step in &self.code.load {
            let depends = step.sources.iter().any(|source| match *source {
                SlotSource::Param(n) => replaced(n),
                SlotSource::Loaded(n) => changed[n],
                _ => false,
            });
            for source in step.sources.iter().filter(|_| depends) {
                match *source {
                    SlotSource::Param(n) if !replaced(n) && self.params[n].is_none() => released.push(n),
                    _ => {}
                }
            }
            for &slot in step.stores.iter().filter(|_| depends) {
                if let SlotSource::Loaded(n) = step.sources[slot] {
                    changed[n] = true;
                }
            }
            todo.push(depends);
        }
        released.sort_unstable();
        released.dedup();
        if !released.is_empty() {
            let names = released.into_iter().map(|n| format!("`{}`", self.code.params[n].0)).collect();
            return Err(BackendError::Released(names));
        }
        self.with(&given, &todo)
    }

    /// Returns the bytes of device memory that sessions share.
    pub fn bytes(&self) -> usize {
        let shared = self.params.iter().chain(&self.loaded).flatten().map(|block| block.bytes());
        shared.chain(self.code.constants.iter().map(DeviceMemory::bytes)).sum()
    }
}
