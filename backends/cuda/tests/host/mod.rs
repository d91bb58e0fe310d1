//! A device for the shared runtime that runs on the host. g++ compiles printed kernels over the shim.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::PathBuf,
    process::Command,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use eutectic_backend::{BackendError, Cost, Kernel, Limits, Memory, RowLimits};
use eutectic_cuda::{combined, kernels};
use eutectic_gpu::{
    device::{Device, DeviceMemory, DeviceShape, Stream},
    launch::{BEFORE_SLOTS, Boxes, Launch, MatrixLayout, Product, Work},
};
use eutectic_ir::{DType, Tensor};
use libloading::Library;
use rayon::prelude::*;

/// The host as a device.
pub struct Host;

/// The shape of the device. A few processors keep the schedules of small programs varied.
pub static SHAPE: LazyLock<DeviceShape> = LazyLock::new(|| DeviceShape {
    processors: 4,
    threads: 1024,
    column_threads: 512,
    shared: 200 << 10,
    workspace: usize::MAX,
    cluster: 1,
    library: Some(0.0),
    rankings: eutectic_cuda::costs().rankings,
});

type Run = unsafe extern "C" fn(*const u64, *const u32, u32, *const [u64; 16]);

/// The code of a launch.
pub enum Module {
    /// A kernel, with the library that contains it.
    Kernel(Run, #[expect(dead_code, reason = "the code lives as long as it")] Library),
    /// A product, which `multiply` computes.
    Product(Box<Product>),
}

pub struct Words(Vec<u128>, usize);

impl DeviceMemory for Words {
    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn bytes(&self) -> usize {
        self.1
    }

    fn host(&self) -> Option<&[u8]> {
        // SAFETY: the vector owns these bytes, and every byte is valid.
        Some(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) })
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: the vector owns these bytes, and every byte is valid.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.1) })
    }
}

const FOOT: &str = r#"
#ifndef BOXES
#define BOXES 0
#endif
extern "C" void shim_run(const u64* args, const unsigned* grid, unsigned threads, const void* boxes) {
    static Slots slots;
    memcpy(&slots, args, sizeof(slots));
#if BOXES
    static Boxes<BOXES> own;
    memcpy(&own, boxes, sizeof(own));
    shim::body = [] { kernel(slots, own); };
#else
    shim::body = [] { kernel(slots); };
#endif
    shim::blocks = { grid[0], grid[1], grid[2] };
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) { shim::block = { x, y, z }; shim::run_block(threads); }
}
"#;

/// Compiles a text, unless its library exists already.
fn build(source: &str) -> Result<Module, String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let text = [include_str!("shim.h"), source, FOOT].concat();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let library = folder.join(format!("{:016x}.so", hasher.finish()));
    if !library.exists() {
        let own = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (from, to) = (folder.join(format!("{own}.cpp")), folder.join(format!("{own}.so")));
        fs::write(&from, &text).map_err(|e| e.to_string())?;
        let flags =
            ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"];
        let done = Command::new("g++").args(flags).arg(&from).arg("-o").arg(&to).output().map_err(|e| e.to_string())?;
        if !done.status.success() {
            return Err(format!("{}\n{}", from.display(), String::from_utf8_lossy(&done.stderr)));
        }
        fs::rename(&to, &library).map_err(|e| e.to_string())?;
        fs::remove_file(&from).map_err(|e| e.to_string())?;
    }
    // SAFETY: g++ made the library above, and loading it runs no code.
    unsafe {
        let library = Library::new(&library).map_err(|e| e.to_string())?;
        let run = *library.get::<Run>(b"shim_run").map_err(|e| e.to_string())?;
        Ok(Module::Kernel(run, library))
    }
}

impl Device for Host {
    type Module = Module;
    type Block = Words;
    type Stream = Queue;

    fn name(&self) -> &str {
        "cuda-on-host"
    }

    fn describe(&self) -> String {
        "printed kernels, compiled by g++".into()
    }

    fn limits(&self) -> Limits {
        Limits { in_order: true, combined: combined(), rows: RowLimits::ANY, ..Limits::default() }
    }

    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
        kernels::print(&SHAPE, kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if kernels::supports(kernel).is_ok() { eutectic_cuda::costs().cost(&SHAPE, kernel) } else { Cost::IMPOSSIBLE }
    }

    fn ways(&self, kernel: &Kernel) -> Vec<(String, f64)> {
        kernels::expected(&SHAPE, kernel)
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        let module = |launch: &Launch| match &launch.work {
            Work::Printed(text) => build(text),
            Work::Product(product) => Ok(Module::Product(product.clone())),
        };
        launches.par_iter().map(module).collect()
    }

    fn allocate(&self, bytes: usize, _: Memory) -> Result<Words, BackendError> {
        Ok(Words(vec![0; bytes.div_ceil(16).max(1)], bytes))
    }

    fn stream(&self) -> Result<Queue, BackendError> {
        Ok(Queue(None))
    }
}

#[derive(Clone)]
enum Called {
    Kernel(Run, [u32; 3], u32, Vec<[u64; 16]>),
    Product(Box<Product>),
}

/// A recorded launch with its arguments.
pub struct Recorded(Called, Vec<u64>);

/// A queue that runs launches at once, or records them.
pub struct Queue(Option<Vec<Recorded>>);

/// Returns the boxes as the shim's copy engine takes them: address, extents, strides, lengths.
fn boxes(boxes: &[Boxes], args: &[u64]) -> Vec<[u64; 16]> {
    let words = |b: &Boxes| {
        let mut words = [0; 16];
        words[0] = args[BEFORE_SLOTS + b.slot] + (b.offset * b.dtype.size()) as u64;
        let numbers = b.extents.iter().chain(&b.strides).chain(&b.lengths);
        words[1..].iter_mut().zip(numbers).for_each(|(word, n)| *word = *n as u64);
        words
    };
    boxes.iter().map(words).collect()
}

/// Returns the elements of a matrix's buffer, up to the end of the matrix.
fn elements(matrix: &MatrixLayout, extents: [usize; 3], dtype: DType, args: &[u64]) -> (*mut u8, Vec<f64>) {
    let count = matrix.strides.iter().zip(extents).map(|(stride, extent)| stride * (extent - 1)).sum::<usize>() + 1;
    let at = (args[BEFORE_SLOTS + matrix.slot] as *mut u8).wrapping_add(matrix.offset * dtype.size());
    // SAFETY: the runtime checked the sizes of buffers.
    let bytes = unsafe { std::slice::from_raw_parts(at, count * dtype.size()) }.to_vec();
    (at, Tensor::new(dtype, &[count], bytes).expect("as many bytes").to_f64())
}

fn multiply(product: &Product, args: &[u64]) {
    let [batch, rows, columns, depth] = product.extents;
    let (_, x) = elements(&product.lhs, [batch, rows, depth], product.operands, args);
    let (_, y) = elements(&product.rhs, [batch, depth, columns], product.operands, args);
    let (at, mut out) = elements(&product.out, [batch, rows, columns], product.result, args);
    let finish = &product.finish;
    assert!(finish.activation.is_none_or(|name| kernels::ACTIVATIONS.contains(&name)));
    let row = |&(slot, offset): &(usize, usize)| MatrixLayout { slot, offset, strides: [0, 0, 1] };
    let bias = finish.bias.as_ref().map(|at| elements(&row(at), [1, 1, columns], product.result, args).1);
    let read = |at: MatrixLayout| (at, elements(&at, [batch, rows, columns], product.result, args).1);
    let residual = finish.residual.map(read);
    let spot = |m: &MatrixLayout, at: [usize; 3]| m.strides.iter().zip(at).map(|(stride, n)| stride * n).sum::<usize>();
    for (b, m) in (0..batch).flat_map(|b| (0..rows).map(move |m| (b, m))) {
        for n in 0..columns {
            let term = |k| x[spot(&product.lhs, [b, m, k])] * y[spot(&product.rhs, [b, k, n])];
            let mut sum = (0..depth).map(term).sum::<f64>();
            sum += bias.as_ref().map_or(0.0, |bias| bias[n]);
            sum += residual.as_ref().map_or(0.0, |(at, of)| of[spot(at, [b, m, n])]);
            if finish.activation == Some("gelu-tanh") {
                let u = 0.797_884_560_802_865_4 * (sum + 0.044_715 * sum * sum * sum);
                sum *= 0.5 * (1.0 + u.tanh());
            }
            out[spot(&product.out, [b, m, n])] = sum;
        }
    }
    let out = Tensor::from_f64(product.result, &[out.len()], out.iter().copied());
    // SAFETY: the runtime checked the sizes of buffers.
    unsafe { std::ptr::copy_nonoverlapping(out.bytes().as_ptr(), at, out.bytes().len()) };
}

impl Stream for Queue {
    type Module = Module;
    type Graph = Vec<Recorded>;

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError> {
        // SAFETY: the runtime checked the sizes of buffers, and the tests look for kernels that write elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: the runtime checked the sizes of buffers.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: the runtime checked the sizes of buffers.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn launch(&mut self, module: &Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError> {
        let called = match module {
            Module::Kernel(run, _) => {
                Called::Kernel(*run, launch.grid.map(|n| n as u32), launch.block as u32, boxes(&launch.boxes, args))
            }
            Module::Product(product) => Called::Product(product.clone()),
        };
        let recorded = Recorded(called, args.to_vec());
        match &mut self.0 {
            Some(list) => list.push(recorded),
            None => self.replay(&vec![recorded])?,
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), BackendError> {
        self.0 = Some(Vec::new());
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Recorded>, BackendError> {
        Ok(self.0.take().unwrap_or_default())
    }

    fn replay(&mut self, graph: &Vec<Recorded>) -> Result<(), BackendError> {
        for Recorded(called, args) in graph {
            match called {
                // SAFETY: the arguments include all fields of the struct that the kernel's text declares.
                Called::Kernel(run, grid, block, boxes) => unsafe {
                    run(args.as_ptr(), grid.as_ptr(), *block, boxes.as_ptr());
                },
                Called::Product(product) => multiply(product, args),
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn note(&mut self, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn seconds(&mut self, _: usize, _: usize) -> Result<f64, BackendError> {
        Ok(0.0)
    }
}
