//! Constants are folded as kernels would compute them: each pointwise op gives the same result for constants and for
//! inputs.

use eutectic::{Compiler, Cpu, CpuOptions, DType, Graph, RuleSet, Tensor, Type};
use eutectic_ir::{Attr, Class, Op};

/// Numbers at which functions saturate, cancel, overflow and underflow.
const NUMBERS: [f64; 16] =
    [-100.0, -87.0, -30.0, -17.0, -1.0, -1e-3, -1e-10, 0.0, 1e-10, 1e-3, 0.5, 1.0, 2.5, 17.0, 30.0, 88.0];

/// The allowed error of kernels, in eps of the result. Kernels approximate functions within this bound, and may flush
/// subnormal numbers to 0.
const EPS: f64 = 16.0;

/// Returns drawn attributes for an op with this number of `f32` operands and an `f32` result. Returns `None` if the op
/// takes other operands.
fn attrs(op: Op, operands: usize) -> Option<Vec<Attr>> {
    let mut random = fastrand::Rng::with_seed(3);
    (0..200).find_map(|_| {
        let (attrs, types) = op.sample(&mut |n| random.usize(..n))?;
        let floats = types.len() == operands && types.iter().all(|ty| ty.dtype() == Some(DType::F32));
        let result = floats.then(|| op.infer(&attrs, &types.iter().collect::<Vec<_>>()).ok())??;
        (result.dtype() == Some(DType::F32)).then(|| attrs.into_iter().collect())
    })
}

fn applied(graph: &mut Graph, op: Op, attrs: &[Attr], operands: &[eutectic::NodeId]) {
    let named: Vec<(&str, Attr)> = op.def().attrs.iter().map(|a| a.name).zip(attrs.iter().cloned()).collect();
    let result = graph.apply(op.name(), operands, &named).unwrap();
    graph.output("y", result).unwrap();
}

fn alike(op: Op, of: (f64, f64), folded: f64, kernel: f64) {
    let allowed = EPS * f64::from(f32::EPSILON) * folded.abs().max(kernel.abs()) + f64::from(f32::MIN_POSITIVE);
    let same = folded == kernel || folded.is_nan() && kernel.is_nan() || (folded - kernel).abs() <= allowed;
    assert!(same, "{op} of {of:?}: folded {folded:e}, by a kernel {kernel:e}");
}

#[test]
fn folding_gives_the_results_of_kernels() {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let compiler = Compiler::new(cpu).unwrap().with_rules(RuleSet::embedded().unwrap());
    let run = |graph: &Graph, inputs: &[Tensor]| -> Vec<f64> {
        let mut session = compiler.compile(graph).unwrap();
        session.load(&[]).unwrap();
        session.run(inputs).unwrap()[0].to_f64()
    };
    let mut compared = 0;
    for op in Op::all().filter(|op| matches!(op.def().class, Class::Pointwise)) {
        for operands in [1, 2] {
            let Some(attrs) = attrs(op, operands) else { continue };
            let pairs: Vec<(f64, f64)> = match operands {
                1 => NUMBERS.iter().map(|x| (*x, 0.0)).collect(),
                _ => NUMBERS.iter().map(|x| (*x, 1.0 - 0.37 * x)).collect(),
            };
            let vector =
                |pick: fn(&(f64, f64)) -> f64| Tensor::from_f64(DType::F32, &[pairs.len()], pairs.iter().map(pick));
            let inputs = [vector(|p| p.0), vector(|p| p.1)];
            let mut graph = Graph::new("of inputs");
            let ids: Vec<_> = (0..operands)
                .map(|n| graph.input(&format!("x{n}"), Type::tensor(DType::F32, &[pairs.len()])).unwrap())
                .collect();
            applied(&mut graph, op, &attrs, &ids);
            let kernels = run(&graph, &inputs[..operands]);
            // Constants of several elements are folded, too. The folded constant is the output, so the run must store
            // it.
            let mut graph = Graph::new("of vectors");
            let ids: Vec<_> = (inputs[..operands].iter()).map(|v| graph.constant(v.clone()).unwrap()).collect();
            applied(&mut graph, op, &attrs, &ids);
            let vectors = run(&graph, &[]);
            for (at, (kernel, folded)) in kernels.iter().zip(vectors).enumerate() {
                alike(op, pairs[at], folded, *kernel);
            }
            for (at, kernel) in kernels.into_iter().enumerate() {
                let mut graph = Graph::new("of constants");
                let ids: Vec<_> = inputs[..operands]
                    .iter()
                    .map(|values| graph.constant(Tensor::from_f64(DType::F32, &[], [values.to_f64()[at]])).unwrap())
                    .collect();
                applied(&mut graph, op, &attrs, &ids);
                let folded = run(&graph, &[])[0];
                alike(op, pairs[at], folded, kernel);
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}
