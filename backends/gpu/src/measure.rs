//! Measures the time of kernels. A graph records each kernel several times in a row, so that the host's launch time
//! does not count.

use std::time::Instant;

use eutectic_backend::{BackendError, Kernel, Memory};

use crate::{
    device::{Device, DeviceMemory, Stream},
    launch::Launch,
};

/// The number of recorded repetitions.
const REPEATS: usize = 20;
/// Bytes of the random numbers whose copies fill a buffer of floats.
const SEED: usize = 1 << 20;

/// Returns the seconds of a kernel: the minimum of `turns` measurements. Buffers of floats hold random numbers from −1
/// to 1. All other buffers, such as those of indices, hold zeros.
///
/// # Errors
/// Returns an error if the kernel cannot be built, or if the device failed.
pub fn seconds<D: Device>(device: &D, kernel: &Kernel, turns: usize) -> Result<f64, BackendError> {
    let why = |problems: Vec<String>| BackendError::Device(problems.join("; "));
    of_launches(device, kernel, device.print(kernel).map_err(why)?, turns)
}

/// Returns the seconds of the launches of one kernel.
///
/// # Errors
/// Returns the errors of [`seconds`].
pub fn of_launches<D: Device>(
    device: &D,
    kernel: &Kernel,
    launches: Vec<Launch>,
    turns: usize,
) -> Result<f64, BackendError> {
    let launches: Vec<Launch> = launches.into_iter().filter(|l| !l.is_empty()).collect();
    let modules = device.build(&launches).into_iter().collect::<Result<Vec<_>, _>>().map_err(BackendError::Device)?;
    let mut stream = device.stream()?;
    let mut blocks = Vec::new();
    for &(dtype, count) in &kernel.slots {
        let block = device.allocate(count * dtype.size(), Memory::Device)?;
        if dtype.is_float() {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            let numbers = (0..SEED / dtype.size()).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f64 / (1 << 23) as f64 - 1.0
            });
            let seed = eutectic_ir::Tensor::from_f64(dtype, &[SEED / dtype.size()], numbers);
            for at in (0..block.bytes()).step_by(SEED) {
                stream.upload(block.address() + at as u64, &seed.bytes()[..SEED.min(block.bytes() - at)])?;
            }
        }
        blocks.push(block);
    }
    let workspace = launches.iter().map(|launch| launch.workspace).max().unwrap_or(0);
    let [workspace, fault] =
        [device.allocate(workspace, Memory::Device)?, device.allocate(crate::FAULT_BYTES, Memory::Device)?];
    let before = [workspace.address(), fault.address(), 0];
    stream.begin()?;
    let recorded = (0..REPEATS).try_for_each(|_| {
        launches.iter().zip(&modules).try_for_each(|(launch, module)| {
            stream.barrier()?;
            let args = launch.arguments(before, blocks.iter().map(DeviceMemory::address));
            stream.launch(module, launch, &args)
        })
    });
    let graph = stream.end();
    recorded?;
    let graph = graph?;
    let begin = Instant::now();
    loop {
        stream.replay(&graph)?;
        stream.wait()?;
        if begin.elapsed() >= device.warm_up() {
            break;
        }
    }
    let mut best = f64::INFINITY;
    for _ in 0..turns {
        stream.note(0)?;
        stream.replay(&graph)?;
        stream.note(1)?;
        stream.wait()?;
        best = best.min(stream.seconds(0, 1)? / REPEATS as f64);
    }
    Ok(best)
}
