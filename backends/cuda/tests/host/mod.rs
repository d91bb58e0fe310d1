//! A device that is the host: printed kernels, compiled by g++ over the shim, for the same runtime.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use eutectic_backend::{BackendError, Cost, Kernel, Limits, Memory};
use eutectic_cuda::kernels;
use eutectic_gpu::{
    device::{Block, Device, Shape, Stream},
    launch::Launch,
};
use libloading::Library;
use rayon::prelude::*;

/// The host.
pub struct Host;

/// As many processors as keep schedules of small programs varied.
pub const SHAPE: Shape = Shape { processors: 4, shared: 200 << 10 };

type Run = unsafe extern "C" fn(*const u64, *const u32, u32);

/// A loaded kernel.
pub struct Module {
    _library: Library,
    run: Run,
}

pub struct Words(Vec<u128>, usize);

impl Block for Words {
    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn bytes(&self) -> usize {
        self.1
    }

    fn host(&self) -> Option<&[u8]> {
        // SAFETY: the words are there, and bytes may be anything.
        Some(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) })
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.1) })
    }
}

const FOOT: &str = r#"
extern "C" void shim_run(const u64* args, const unsigned* grid, unsigned threads) {
    static Slots slots;
    memcpy(&slots, args, sizeof(slots));
    shim::body = [] { kernel(slots); };
    shim::blocks = { grid[0], grid[1], grid[2] };
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) { shim::block = { x, y, z }; shim::run_block(threads); }
}
"#;

/// Compiles a text, unless it was before.
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
        let flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"];
        let done = Command::new("g++").args(flags).arg(&from).arg("-o").arg(&to).output().map_err(|e| e.to_string())?;
        if !done.status.success() {
            return Err(format!("{}\n{}", from.display(), String::from_utf8_lossy(&done.stderr)));
        }
        fs::rename(&to, &library).map_err(|e| e.to_string())?;
        fs::remove_file(&from).map_err(|e| e.to_string())?;
    }
    // SAFETY: the library was made above; it has no code that runs when it is loaded.
    unsafe {
        let library = Library::new(&library).map_err(|e| e.to_string())?;
        let run = *library.get::<Run>(b"shim_run").map_err(|e| e.to_string())?;
        Ok(Module { _library: library, run })
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
        Limits::default()
    }

    fn print(&self, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
        kernels::print(&SHAPE, kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        if kernels::supports(kernel).is_ok() { eutectic_cuda::costs().cost(&SHAPE, kernel) } else { Cost::IMPOSSIBLE }
    }

    fn build(&self, launches: &[Launch]) -> Vec<Result<Module, String>> {
        launches.par_iter().map(|launch| build(&launch.source)).collect()
    }

    fn allocate(&self, bytes: usize, _: Memory) -> Result<Words, BackendError> {
        Ok(Words(vec![0; bytes.div_ceil(16).max(1)], bytes))
    }

    fn stream(&self) -> Result<Queue, BackendError> {
        Ok(Queue(None))
    }
}

type Recorded = (Run, Vec<u64>, [u32; 3], u32);

/// Runs at once, or records.
pub struct Queue(Option<Vec<Recorded>>);

impl Stream for Queue {
    type Device = Host;
    type Graph = Vec<Recorded>;

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<(), BackendError> {
        // SAFETY: the runtime checked sizes; a kernel that writes elsewhere is what tests look for.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: as above.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn launch(&mut self, module: &Module, launch: &Launch, args: &[u64]) -> Result<(), BackendError> {
        let recorded = (module.run, args.to_vec(), launch.grid.map(|n| n as u32), launch.block as u32);
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
        // SAFETY: arguments are those of the struct that the kernel's text declares.
        graph.iter().for_each(|(run, args, grid, block)| unsafe { run(args.as_ptr(), grid.as_ptr(), *block) });
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
