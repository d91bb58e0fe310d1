//! Sessions: they execute runs, bind buffers to inputs and outputs, and keep states.

use std::{any::Any, sync::Arc};

use eutectic_backend::{BackendError, DeviceBuffer, Input, Loaded, Memory, Output, Port, Session};

use super::{
    buffer::{CpuBuffer, part},
    check::{expect, wrong},
    loaded::CpuLoaded,
    runner::Runner,
    work::Workspace,
};

/// A session on the CPU. It owns the workspace of its runs; while a submitted run executes, the runner has the
/// workspace (`work` is then `None`).
pub struct CpuSession {
    loaded: Arc<CpuLoaded>,
    work: Option<Box<Workspace>>,
    runner: Option<Runner>,
    /// The error of the last submitted run, until a caller takes it.
    failed: Option<BackendError>,
}

impl CpuSession {
    /// Returns a new session.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(loaded: Arc<CpuLoaded>) -> Result<CpuSession, BackendError> {
        let work = Some(Box::new(Workspace::new(&loaded)?));
        Ok(CpuSession { loaded, work, runner: None, failed: None })
    }

    /// Returns the workspace after any submitted run has finished.
    fn idle(&mut self) -> &mut Workspace {
        if self.work.is_none()
            && let Some(runner) = &self.runner
        {
            let (work, result) = runner.wait();
            self.work = Some(work);
            self.failed = result.err();
        }
        self.work.as_mut().expect("the runner returns the workspace after each run")
    }

    fn result(&mut self) -> Result<(), BackendError> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Session for CpuSession {
    fn loaded(&self) -> Arc<dyn Loaded> {
        self.loaded.clone()
    }

    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError> {
        let other = "cannot use these parameters because they belong to another program; use the result of `replace` on \
                     the parameters of this session";
        let loaded = (loaded as Arc<dyn Any + Send + Sync>).downcast::<CpuLoaded>().ok();
        let loaded = loaded.filter(|loaded| Arc::ptr_eq(&loaded.code, &self.loaded.code));
        let loaded = loaded.ok_or_else(|| wrong("parameter", "*", other.into()))?;
        self.idle().bind_constants(&loaded);
        self.loaded = loaded;
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError> {
        let loaded = self.loaded.clone();
        let mut twin = Workspace::new(&loaded)?;
        twin.set_lengths(&loaded, &self.idle().lengths)?;
        let states = self.idle().places[2].iter().zip(&mut twin.places[2]);
        states.for_each(|(from, to)| to.own.fill(from.memory().as_ref()));
        Ok(Box::new(CpuSession { loaded, work: Some(Box::new(twin)), runner: None, failed: None }))
    }

    fn set_lengths(&mut self, lengths: &[usize]) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        self.wait()?;
        self.idle().set_lengths(&loaded, lengths)
    }

    fn buffer(&self, bytes: usize, _: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError> {
        Ok(Box::new(CpuBuffer::new(bytes)?))
    }

    fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError> {
        self.idle().bind(port, buffer)
    }

    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError> {
        let place = self.idle().place(port)?;
        part(place.memory().as_ref(), place.what, &place.name, at, from.len())?;
        let memory = match &mut place.bound {
            Some(buffer) => buffer.host_mut().unwrap_or_default(),
            None => place.own.as_mut(),
        };
        memory[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        self.wait()?;
        let place = self.idle().place(port)?;
        to.copy_from_slice(part(place.memory().as_ref(), place.what, &place.name, at, to.len())?);
        Ok(())
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        self.wait()?;
        self.idle().execute(inputs, outputs, times)
    }

    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError> {
        self.wait()?;
        let work = self.idle();
        expect("output", wanted.len(), work.places[1].len())?;
        work.wanted[..wanted.len()].copy_from_slice(wanted);
        if self.runner.is_none() {
            self.runner = Some(Runner::new()?);
        }
        if let (Some(runner), Some(work)) = (&self.runner, self.work.take()) {
            runner.start(work);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.idle();
        self.result()
    }
}

impl Drop for CpuSession {
    /// Waits for a submitted run, because it uses the workspace.
    fn drop(&mut self) {
        self.idle();
    }
}
