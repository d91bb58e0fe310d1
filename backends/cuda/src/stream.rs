//! CUDA streams, and graphs that are recorded from them.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::{CudaContext, result, sys};
use eutectic_backend::BackendError;
use eutectic_gpu::{
    device::Stream,
    launch::{BEFORE_SLOTS, Boxes, Launch},
};
use eutectic_ir::DType;

use crate::resources::{Module, failed};

/// The ways to launch kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Launching {
    /// Each run launches its kernels one by one. A kernel starts after all earlier kernels of the process have ended,
    /// whichever thread launched them. Sanitizers then see one kernel at a time.
    Serialized,
    /// Each run replays a recorded graph.
    Recorded,
    /// Each run replays a recorded graph whose kernels may start before earlier ones have ended. A kernel waits for the
    /// earlier ones on the device.
    Overlapping,
}

/// A lock that is held while a serialized kernel runs.
static SERIALIZED: Mutex<()> = Mutex::new(());

/// A stream with its events.
pub struct Queue {
    stream: sys::CUstream,
    events: Vec<sys::CUevent>,
    launching: Launching,
    context: Arc<CudaContext>,
}

impl Queue {
    /// Returns a stream that does not wait for the legacy default stream.
    pub fn new(context: &Arc<CudaContext>, launching: Launching) -> Result<Queue, BackendError> {
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(failed("making a stream"))?;
        Ok(Queue { stream, events: Vec::new(), launching, context: context.clone() })
    }
}

// SAFETY: streams and events may be used from any thread, by one thread at a time.
unsafe impl Send for Queue {}

/// A recorded graph.
pub struct Recording {
    exec: sys::CUgraphExec,
    context: Arc<CudaContext>,
}

// SAFETY: graphs may be used from any thread, by one thread at a time.
unsafe impl Send for Recording {}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: the graph was instantiated, and nothing else destroys it.
        unsafe { _ = result::graph::exec_destroy(self.exec) };
    }
}

impl Queue {
    fn enter(&self) -> Result<(), BackendError> {
        self.context.bind_to_thread().map_err(failed("entering the context"))
    }

    fn put(&self, module: &Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError> {
        self.enter()?;
        let kernel = match module {
            Module::Kernel(kernel) => kernel,
            // SAFETY: `args` are addresses of live memory, as stated at `impl Stream for Queue`.
            Module::Product(product) => return unsafe { product.run(launch, args, self.stream) },
        };
        let [x, y, z] = launch.grid.map(|n| n as u32);
        let boxes = launch.boxes.iter().map(|boxes| map(boxes, args)).collect::<Result<Vec<_>, _>>()?;
        // The kernel has two parameters: the struct of all arguments, and the struct of boxes if it has any.
        let mut parameters = [args.as_ptr().cast_mut().cast::<c_void>(), boxes.as_ptr().cast_mut().cast()];
        // SAFETY: `args` are addresses of live memory, as stated at `impl Stream for Queue`.
        unsafe {
            if self.launching == Launching::Overlapping {
                start_early(kernel.function(), [x, y, z], launch, self.stream, &mut parameters)
            } else {
                let (block, shared) = ((launch.block as u32, 1, 1), launch.shared as u32);
                result::launch_kernel(kernel.function(), (x, y, z), block, shared, self.stream, &mut parameters)
            }
        }
        .map_err(failed("launching a kernel"))
    }
}

/// Returns the descriptor by which the copy engine finds boxes. Rows of 128 bytes are swizzled into the layout that
/// matrix units read.
fn map(boxes: &Boxes, args: &[u64]) -> Result<sys::CUtensorMap, BackendError> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let size = boxes.dtype.size();
    let dtype = match boxes.dtype {
        DType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        other => return Err(BackendError::Device(format!("the copy engine cannot load boxes of {other}"))),
    };
    let at = args[BEFORE_SLOTS + boxes.slot] + (boxes.offset * size) as u64;
    let (extents, lengths) = (boxes.extents.map(|n| n as u64), boxes.lengths.map(|n| n as u32));
    let (strides, steps) = (boxes.strides.map(|n| (n * size) as u64), [1_u32; 3]);
    // SAFETY: all arrays have three elements, strides have two, and all outlive the call.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            dtype,
            3,
            at as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            lengths.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()
    .map_err(failed("describing a tensor to the copy engine"))?;
    Ok(map)
}

/// Launches a kernel that may start before the previous kernel of the stream has ended (programmatic dependent launch).
/// The kernel itself waits for the end.
///
/// # Safety
/// Addresses must be those of live memory, as for any launch. The kernel must wait for earlier kernels before it reads
/// or writes.
unsafe fn start_early(
    function: sys::CUfunction,
    [x, y, z]: [u32; 3],
    launch: &Launch,
    stream: sys::CUstream,
    parameters: &mut [*mut c_void],
) -> Result<(), result::DriverError> {
    let mut early = sys::CUlaunchAttribute_st {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: Default::default(),
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: launch.block as u32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared as u32,
        hStream: stream,
        attrs: &mut early,
        numAttrs: 1,
    };
    // SAFETY: the caller guarantees the addresses, and the attribute outlives the call.
    unsafe { sys::cuLaunchKernelEx(&config, function, parameters.as_mut_ptr(), std::ptr::null_mut()) }.result()
}

// SAFETY for all calls below: addresses are those of live regions, whose sizes the runtime has checked. Host memory
// outlives each copy, because copies are either awaited or staged by the driver.
impl Stream for Queue {
    type Module = Module;
    type Graph = Recording;

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError> {
        if from.is_empty() {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::memcpy_htod_async(to, from, self.stream) }.map_err(failed("copying to the device"))?;
        // When the call returns, the driver has copied pageable memory, but it may still read pinned memory.
        self.wait()
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError> {
        if to.is_empty() {
            return self.wait();
        }
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream) }.map_err(failed("copying from the device"))?;
        self.wait()
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(failed("copying on the device"))
    }

    fn launch(&mut self, module: &Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError> {
        if self.launching != Launching::Serialized {
            return self.put(module, launch, args);
        }
        let _alone = SERIALIZED.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(module, launch, args)?;
        self.wait()
    }

    fn records(&self) -> bool {
        self.launching != Launching::Serialized
    }

    fn begin(&mut self) -> Result<(), BackendError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(failed("recording launches"))
    }

    fn end(&mut self) -> Result<Recording, BackendError> {
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe {
            let graph = result::stream::end_capture(self.stream).map_err(failed("recording launches"))?;
            let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let exec = result::graph::instantiate(graph, flags).map_err(failed("instantiating recorded launches"));
            let _ = result::graph::destroy(graph);
            Ok(Recording { exec: exec?, context: self.context.clone() })
        }
    }

    fn replay(&mut self, graph: &Recording) -> Result<(), BackendError> {
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::graph::launch(graph.exec, self.stream) }.map_err(failed("running recorded launches"))
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.enter()?;
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("waiting for the device"))
    }

    fn note(&mut self, n: usize) -> Result<(), BackendError> {
        self.enter()?;
        while self.events.len() <= n {
            let event =
                result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(failed("creating an event"))?;
            self.events.push(event);
        }
        // SAFETY: as stated at `impl Stream for Queue`.
        unsafe { result::event::record(self.events[n], self.stream) }.map_err(failed("recording the time"))
    }

    fn seconds(&mut self, from: usize, to: usize) -> Result<f64, BackendError> {
        // SAFETY: `note` recorded both events.
        let milliseconds = unsafe { result::event::elapsed(self.events[from], self.events[to]) };
        milliseconds.map(|ms| f64::from(ms) * 1e-3).map_err(failed("reading the time"))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.wait().is_ok() {
            // SAFETY: the stream has no work left.
            unsafe {
                self.events.iter().for_each(|&event| _ = result::event::destroy(event));
                _ = result::stream::destroy(self.stream);
            }
        }
    }
}
