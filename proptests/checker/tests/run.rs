//! `run::check` finds inaccurate kernels and wrong rules in every floating type, and distinguishes them.

use std::sync::Arc;

use eutectic::{
    Backend, Compiler, Cpu, CpuOptions, DType, Graph, Program, RuleSet, Strategy, Tensor, Type,
    engine::{
        backend::{BackendError, Cost, DeviceBuffer, Executable, Input, Kernel, Loaded, Memory, Output, Port, Session},
        ir::{Attr, lang::sexp::Source},
    },
};
use eutectic_checker::run::{Fault, check};

/// The CPU backend, with each result off by a number of units of roundoff.
struct Off(Cpu, f64);

struct Code {
    code: Arc<dyn Executable>,
    units: f64,
    outputs: Vec<Type>,
}

struct Parameters {
    loaded: Arc<dyn Loaded>,
    code: Arc<Code>,
}

struct Run {
    session: Box<dyn Session>,
    code: Arc<Code>,
}

impl Backend for Off {
    fn name(&self) -> &str {
        "off"
    }

    fn describe(&self) -> String {
        format!("the CPU, {} units off", self.1)
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        self.0.supports(kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        self.0.cost(kernel)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        let outputs = program.outputs.iter().map(|(_, ty)| ty.clone()).collect();
        Ok(Arc::new(Code { code: self.0.compile(program)?, units: self.1, outputs }))
    }
}

impl Executable for Code {
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(Parameters { loaded: self.code.clone().load(params)?, code: self }))
    }
}

impl Loaded for Parameters {
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError> {
        Ok(Arc::new(Parameters { loaded: self.loaded.clone().replace(params)?, code: self.code.clone() }))
    }

    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError> {
        Ok(Box::new(Run { session: self.loaded.clone().session()?, code: self.code.clone() }))
    }

    fn bytes(&self) -> usize {
        self.loaded.bytes()
    }
}

impl Session for Run {
    fn loaded(&self) -> Arc<dyn Loaded> {
        self.session.loaded()
    }

    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError> {
        self.session.adopt(loaded)
    }

    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError> {
        Ok(Box::new(Run { session: self.session.fork()?, code: self.code.clone() }))
    }

    fn buffer(&self, bytes: usize, memory: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError> {
        self.session.buffer(bytes, memory)
    }

    fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError> {
        self.session.bind(port, buffer)
    }

    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError> {
        self.session.write(port, at, from)
    }

    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        self.session.read(port, at, to)
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        self.session.execute(inputs, outputs, times)?;
        for (output, ty) in outputs.iter_mut().zip(&self.code.outputs) {
            let Output::Host(bytes) = output else { continue };
            let (dtype, dims) = (ty.dtype().unwrap(), ty.dims().unwrap());
            let right = Tensor::new(dtype, &dims, bytes.to_vec()).unwrap();
            let off = right.to_f64().into_iter().map(|x| x * (1.0 + self.code.units * dtype.unit_roundoff()));
            bytes.copy_from_slice(Tensor::from_f64(dtype, &dims, off).bytes());
        }
        Ok(())
    }

    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError> {
        self.session.submit(wanted)
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.session.wait()
    }
}

/// Returns rmsnorm(softmax(x / 2)): composites whose intermediate results are rounded to 16 bits if a plan stores them.
fn composites(dtype: DType) -> Graph {
    let mut graph = Graph::new("composites");
    let x = graph.input("x", Type::tensor(dtype, &[5, 24])).unwrap();
    let g = graph.param("g", Type::tensor(dtype, &[24])).unwrap();
    let half = graph.scalar(0.5, x).unwrap();
    let halves = graph.mul(x, half).unwrap();
    let weights = graph.softmax(halves, -1).unwrap();
    let y = graph.rmsnorm(weights, g, 0.01).unwrap();
    graph.output("y", y).unwrap();
    graph
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

fn fault(compiler: &Compiler, dtype: DType) -> Option<Fault> {
    Some(check(compiler, &composites(dtype), 7).unwrap().err()?[0].fault)
}

#[test]
fn kernels_that_are_off_are_found() {
    for strategy in [Strategy::Unfused, Strategy::Local] {
        let compiler = |units| {
            let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
            Compiler::new(Off(cpu, units)).unwrap().with_strategy(strategy)
        };
        for dtype in FLOATS {
            // A 16-bit result is computed in f32 and rounded once, so its bound is only a few units.
            let units = if dtype.size() > 2 { 300.0 } else { 4.0 };
            assert_eq!(fault(&compiler(0.0), dtype), None, "{dtype}, {strategy:?}");
            assert_eq!(fault(&compiler(units), dtype), Some(Fault::Kernels), "{dtype}, {strategy:?}");
        }
    }
}

#[test]
fn rules_that_are_wrong_are_found() {
    let rule =
        ";; half is as good as all\n(rule wrong/half (forall (F float) (?x F[A..])) (=> (mul ?x 0.5) ?x) (eq reassoc))";
    let wrong = RuleSet::read(&[Source::new("wrong.rules", rule)]).unwrap();
    let compiler = Compiler::new(Cpu::default()).unwrap();
    let rules = compiler.rules().clone().and(wrong).unwrap();
    for dtype in FLOATS {
        assert_eq!(fault(&compiler, dtype), None, "{dtype}");
        let compiler = compiler.clone().with_rules(rules.clone());
        assert_eq!(fault(&compiler, dtype), Some(Fault::Rules), "{dtype}");
    }
}

/// Returns six layers of products and norms, or of convolutions. A block is planned once and called for each layer.
/// Blocks read the results of convolutions with the channels last.
fn layers(dtype: DType, images: bool) -> Graph {
    let mut graph = Graph::new("layers");
    let dims: &[usize] = if images { &[1, 4, 6, 6] } else { &[5, 24] };
    let mut x = graph.input("x", Type::tensor(dtype, dims)).unwrap();
    for n in 0..6 {
        let dims: &[usize] = if images { &[4, 4, 3, 3] } else { &[24, 24] };
        let w = graph.param(&format!("w{n}"), Type::tensor(dtype, dims)).unwrap();
        let y = if images {
            let ones = || Attr::from([1_i64, 1].as_slice());
            graph.apply("conv", &[x, w], &[("before", ones()), ("after", ones())]).unwrap()
        } else {
            let g = graph.param(&format!("g{n}"), Type::tensor(dtype, &[24])).unwrap();
            let y = graph.rmsnorm(x, g, 1e-5).unwrap();
            graph.matmul(y, w).unwrap()
        };
        let y = graph.apply("tanh", &[y], &[]).unwrap();
        x = graph.add(x, y).unwrap();
    }
    graph.output("y", x).unwrap();
    graph
}

#[test]
fn blocks_are_judged_together() {
    let compiler = Compiler::new(Cpu::default()).unwrap();
    for (dtype, images) in [(DType::F32, false), (DType::F32, true), (DType::F16, false), (DType::Bf16, true)] {
        let graph = layers(dtype, images);
        let planned = compiler.plan(&graph).unwrap();
        assert!(planned.outlined.calls.len() > planned.blocks.len(), "{dtype}: nothing repeats");
        assert_eq!(planned.chosen(&graph).unwrap().outputs().len(), 1);
        let differences = check(&compiler, &graph, 3).unwrap();
        assert!(differences.is_ok(), "{dtype}, images: {images}: {differences:?}");
    }
}
