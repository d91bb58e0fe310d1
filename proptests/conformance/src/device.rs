//! Runs kernels and programs on the backend under test, and counts refusals. The backend may have several forms, which
//! must give the same bits.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use eutectic::{Backend, Compiler, Error, Options, RuleSet, engine::rewrites::Choice, packs};
use eutectic_backend::{BackendError, Buffer, Executable, Kernel, Place, Program, Step};
use eutectic_ir::{DType, Origin, Tensor, Type};
use rayon::prelude::*;

use crate::kernels::expected;

/// A backend under test.
pub struct Device {
    /// The configurations of the backend, for example one thread and two threads on the processor. All forms must give
    /// the same bits.
    forms: Vec<Arc<dyn Backend>>,
    rules: RuleSet,
    judged: AtomicUsize,
    /// The number of refused kernels and programs, and the reason for the first refusal.
    refused: Mutex<(usize, Option<String>)>,
    /// The kernels that wait to be checked in parallel. `None` if each kernel is checked immediately.
    waiting: Mutex<Option<Vec<Waiting>>>,
}

/// The number of kernels that are checked in parallel, because compiling them takes most of the time on some devices.
const BESIDE: usize = 64;

/// A kernel that waits to be checked.
struct Waiting {
    kernel: Kernel,
    inputs: Vec<Tensor>,
    params: usize,
    tolerance: f64,
}

impl Device {
    /// Returns a device for tests of a backend in these forms.
    ///
    /// # Errors
    /// If the rules of the backend do not load.
    ///
    /// # Panics
    /// If there are no forms.
    pub fn new(forms: Vec<Arc<dyn Backend>>) -> Result<Device, Error> {
        let rules = packs(&*forms[0])?.choose(&Choice::default())?;
        Ok(Device { forms, rules, judged: AtomicUsize::new(0), refused: Mutex::default(), waiting: Mutex::default() })
    }

    /// Runs a check, and collects its kernels to check them in parallel.
    pub fn beside(&self, check: impl FnOnce(&Device)) {
        *self.lock() = Some(Vec::new());
        check(self);
        let waiting = self.lock().take();
        self.check_all(waiting.unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_all(&self, waiting: Vec<Waiting>) {
        waiting.into_par_iter().for_each(|w| self.check_now(&w));
    }

    /// Returns the first form.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.forms[0]
    }

    /// Returns all forms.
    pub fn forms(&self) -> &[Arc<dyn Backend>] {
        &self.forms
    }

    /// Returns compilers for the forms, with the embedded rules and the backend's own rules.
    pub fn compilers(&self) -> impl Iterator<Item = Compiler> + '_ {
        let compiler = |backend: &Arc<dyn Backend>| Compiler::from_arc(backend.clone(), self.rules.clone());
        self.forms.iter().map(compiler)
    }

    /// Returns a compiler for the first form.
    pub fn compiler(&self) -> Compiler {
        self.compilers().next().expect("a device has at least one form").with_options(Options::default())
    }

    /// Counts a right result.
    pub fn judge(&self) {
        self.judged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and keeps its reason if it is the first one.
    pub fn refuse(&self, why: impl FnOnce() -> String) {
        let mut refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        refused.0 += 1;
        refused.1.get_or_insert_with(why);
    }

    /// Returns the number of right results, the number of refusals and the reason for the first one, all since the last
    /// call.
    pub fn take_counts(&self) -> (usize, usize, Option<String>) {
        let mut refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        let (count, why) = std::mem::take(&mut *refused);
        (self.judged.swap(0, Ordering::Relaxed), count, why)
    }

    /// Compiles a program. Counts a refusal and returns `None` if the backend does not support one of the kernels.
    /// Panics if `supports`, the cost and `compile` contradict each other.
    pub fn compile(&self, backend: &dyn Backend, program: &Program) -> Option<Arc<dyn Executable>> {
        let refusals = program.kernels.iter().flat_map(|kernel| {
            let refused = refusal(backend, kernel);
            assert_eq!(backend.cost(kernel).seconds.is_infinite(), refused.is_some(), "{refused:?}: {kernel:#?}");
            priced_as_it_is_computed(backend, kernel);
            refused
        });
        let refusals: Vec<String> = refusals.collect();
        match (backend.compile(program), refusals.first()) {
            (Ok(executable), None) => Some(executable),
            (Err(BackendError::Unsupported { .. }), Some(why)) => {
                self.refuse(|| why.clone());
                None
            }
            (Ok(_), Some(why)) => panic!("the backend compiles a kernel that it does not support: {why}"),
            (Err(error), None) => panic!("`supports` accepts a kernel that does not compile: {error}"),
            (Err(error), Some(why)) => {
                panic!("`compile` must return the error `Unsupported` ({why}), but returns: {error}")
            }
        }
    }

    /// Runs a kernel on the first form. `inputs` has a tensor for each slot to which the kernel does not store. Returns
    /// the stored buffers, or `None` if the backend refuses the kernel.
    pub fn run(&self, kernel: &Kernel, inputs: &[Tensor]) -> Option<Result<Vec<Tensor>, BackendError>> {
        self.run_on(&**self.backend(), kernel, inputs, 0)
    }

    /// Runs a kernel on one form, like [`Device::run`]. The last `params` tensors are parameters, which do not change
    /// between runs.
    fn run_on(
        &self,
        backend: &dyn Backend,
        kernel: &Kernel,
        inputs: &[Tensor],
        params: usize,
    ) -> Option<Result<Vec<Tensor>, BackendError>> {
        let mut program = program(kernel);
        let (inputs, given) = inputs.split_at(inputs.len() - params);
        program.params = program.inputs.split_off(inputs.len());
        for buffer in &mut program.buffers {
            if let Place::Input(n) = buffer.place
                && n >= inputs.len()
            {
                buffer.place = Place::Param(n - inputs.len());
            }
        }
        let executable = self.compile(backend, &program)?;
        Some(run(executable, &program, inputs, given))
    }

    /// Runs the normal form of a kernel on every form of the backend, and compares the results with the point-by-point
    /// evaluation of the given kernel. `tolerance` is relative to 1 + |x|, in roundoffs of the stored type. Within
    /// [`Device::beside`], the comparison may run later.
    pub fn check(&self, kernel: &Kernel, inputs: &[Tensor], tolerance: f64) {
        self.check_with(kernel, inputs, 0, tolerance);
    }

    /// Compares like [`Device::check`], with the last `params` tensors as parameters.
    pub fn check_with(&self, kernel: &Kernel, inputs: &[Tensor], params: usize, tolerance: f64) {
        let one = Waiting { kernel: kernel.clone(), inputs: inputs.to_vec(), params, tolerance };
        let full = match &mut *self.lock() {
            None => vec![one],
            Some(waiting) => {
                waiting.push(one);
                if waiting.len() < BESIDE { Vec::new() } else { std::mem::take(waiting) }
            }
        };
        self.check_all(full);
    }

    fn check_now(&self, Waiting { kernel, inputs, params, tolerance }: &Waiting) {
        let expected = expected::kernel(kernel, inputs);
        let mut kernel = kernel.clone();
        kernel.normalise();
        let kernel = &kernel;
        let on = |backend: &Arc<dyn Backend>| self.run_on(&**backend, kernel, inputs, *params);
        let results: Option<Vec<_>> = self.forms.iter().map(on).collect();
        let Some(results) = results else { return };
        let results: Vec<_> = results.into_iter().map(|r| r.unwrap_or_else(|e| panic!("{e}\n{kernel:#?}"))).collect();
        assert!(results.iter().all(|r| *r == results[0]), "the forms of the backend differ: {kernel:#?}");
        for (got, want) in results[0].iter().zip(&expected) {
            close(got, want, *tolerance).unwrap_or_else(|problem| panic!("{problem}, {kernel:#?}"));
        }
        self.judge();
    }
}

/// Checks that the cost of a kernel is that of its first candidate, and that no other candidate is cheaper. A supported
/// kernel must have candidates, and an unsupported one must not.
fn priced_as_it_is_computed(backend: &dyn Backend, kernel: &Kernel) {
    let candidates = backend.candidates(kernel, &[]).unwrap_or_default();
    assert_eq!(candidates.is_empty(), backend.supports(kernel).is_err(), "{kernel:#?}");
    let priced = backend.cost_among(kernel, &[]);
    if let Some(first) = candidates.first() {
        assert_eq!(first.cost, priced, "{}: {kernel:#?}", first.name);
    }
    let ascends = candidates.is_sorted_by(|a, b| a.cost.seconds <= b.cost.seconds);
    assert!(ascends, "{:?}: {kernel:#?}", candidates.iter().map(|c| (&c.name, c.cost.seconds)).collect::<Vec<_>>());
}

/// Returns the reason why a backend refuses a kernel: it exceeds a limit or is not supported.
fn refusal(backend: &dyn Backend, kernel: &Kernel) -> Option<String> {
    backend.supports(kernel).err().map(|why| why.join(", "))
}

/// Compares a tensor with the expected elements. Elements that the kernel does not store may have any value.
fn close(got: &Tensor, want: &[Option<f64>], tolerance: f64) -> Result<(), String> {
    let dtype = got.dtype();
    let unit = match dtype {
        DType::F64 => dtype.unit_roundoff(),
        _ if dtype.is_float() => dtype.unit_roundoff().max(2f64.powi(-24)),
        _ => 0.0,
    };
    for (i, (&got, &want)) in got.to_f64().iter().zip(want).enumerate() {
        let Some(want) = want else { continue };
        let close = (got - want).abs() <= tolerance * unit * (1.0 + want.abs());
        let rounded = |x: f64| Tensor::from_f64(dtype, &[], [x]).to_f64()[0];
        if !(close || got == want || rounded(want) == got || got.is_nan() && want.is_nan()) {
            return Err(format!("element {i}: {got:e}, expected {want:e}"));
        }
    }
    Ok(())
}

/// Returns a program of one kernel. Buffers that the kernel stores to are outputs, and the others are inputs.
pub fn program(kernel: &Kernel) -> Program {
    let stored = |slot: usize| kernel.stores.iter().any(|s| s.slot == slot);
    let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
    for (slot, &(dtype, count)) in kernel.slots.iter().enumerate() {
        let ports = if stored(slot) { &mut program.outputs } else { &mut program.inputs };
        let n = ports.len();
        ports.push((format!("slot{slot}"), Type::tensor(dtype, &[count])));
        let place = if stored(slot) { Place::Output(n) } else { Place::Input(n) };
        program.buffers.push(Buffer { dtype, count, place });
    }
    let buffers = (0..kernel.slots.len()).collect();
    program.run.push(Step::new(0, buffers, Origin::new("test")));
    program
}

/// Runs a program twice, with outputs at two alignments, and returns the outputs.
pub fn run(
    executable: Arc<dyn Executable>,
    program: &Program,
    inputs: &[Tensor],
    params: &[Tensor],
) -> Result<Vec<Tensor>, BackendError> {
    let mut session = executable.load(params)?.session()?;
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let types: Vec<_> = program.outputs.iter().map(|o| o.1.clone()).collect();
    let mut twice = Vec::new();
    // The position of results within a cache line must not matter.
    for place in [0, 40] {
        let mut outputs: Vec<Vec<u8>> = types.iter().map(|t| vec![0; t.bytes() + 128]).collect();
        let starts: Vec<_> = outputs.iter().map(|o| o.as_ptr().align_offset(64) + place).collect();
        let parts = outputs.iter_mut().zip(&starts).zip(&types);
        let mut slices: Vec<&mut [u8]> = parts.map(|((o, &start), t)| &mut o[start..][..t.bytes()]).collect();
        session.run(&inputs, &mut slices)?;
        twice.push(slices.into_iter().map(|slice| slice.to_vec()).collect::<Vec<_>>());
    }
    assert_eq!(twice[0], twice[1], "a second run gives the same bits");
    let tensor = |(bytes, ty): (Vec<u8>, &Type)| {
        let (dtype, dims) =
            (ty.dtype().expect("ports are tensors"), ty.dims().expect("the extents of ports are known"));
        Tensor::new(dtype, &dims, bytes).expect("the bytes have the size of the type")
    };
    Ok(twice.swap_remove(0).into_iter().zip(&types).map(tensor).collect())
}
