//! Runs a program and judges the results by the interpreter's error bound.

use eutectic::{Compiler, Error, Tensor};
use eutectic_ir::{
    Bounded, DType, Graph,
    interp::interpret,
    ops::eval::{Data, Value},
};

/// A result that is farther from the true value than rounding explains.
#[derive(Debug)]
pub struct Difference {
    /// The output.
    pub output: String,
    /// Which element, flat.
    pub at: usize,
    /// What the program gave.
    pub got: f64,
    /// The true value and the error bound; infinite where an element cannot be judged.
    pub want: Bounded,
}

/// Values for the inputs and parameters of a graph: small, signed, with some zeros; the same for the same seed and name.
pub fn values(graph: &Graph, seed: u64) -> impl Fn(&str) -> Option<Tensor> + '_ {
    move |name| {
        let (_, id) = graph.named("input").chain(graph.named("param")).find(|(n, _)| *n == name)?;
        let ty = graph.ty(id);
        let (dtype, dims) = (ty.dtype()?, ty.dims()?);
        let mut state = name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = (state >> 40) as f64 / (1 << 24) as f64;
            if x < 0.03 { 0.0 } else { 3.0 * x - 1.5 }
        };
        let number = |x: f64| match dtype {
            DType::Bool => f64::from(x > 0.0),
            _ if dtype.is_int() => (x * 6.0).round(),
            _ => x,
        };
        let count = dims.iter().product();
        Some(Tensor::from_f64(dtype, &dims, (0..count).map(|_| number(next()))))
    }
}

/// Compiles and runs a graph, and compares every output with the interpreter's.
///
/// # Errors
/// The engine's, in the outer result; the first difference of each output in the inner one.
pub fn check(compiler: &Compiler, graph: &Graph, seed: u64) -> Result<Result<(), Vec<Difference>>, Error> {
    check_on(compiler, graph, &values(graph, seed))
}

/// As [`check`], on given inputs and parameters.
///
/// # Errors
/// As [`check`].
pub fn check_on(
    compiler: &Compiler,
    graph: &Graph,
    given: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Result<(), Vec<Difference>>, Error> {
    let want = interpret::<Bounded>(graph, given).map_err(|e| Error::Arguments(vec![e.to_string()]))?;
    let mut session = compiler.compile(graph)?;
    let tensors = |names: &[(String, eutectic::Type)]| names.iter().filter_map(|(n, _)| given(n)).collect::<Vec<_>>();
    let (inputs, params) = (tensors(&session.program().inputs), tensors(&session.program().params));
    session.load(&params)?;
    let got = session.run(&inputs)?;
    let outputs = graph.outputs().iter().zip(got).zip(want);
    let differences: Vec<_> =
        outputs.filter_map(|(((name, _), got), want)| first_difference(name, &got, &want)).collect();
    Ok(if differences.is_empty() { Ok(()) } else { Err(differences) })
}

fn first_difference(output: &str, got: &Tensor, want: &Value<Bounded>) -> Option<Difference> {
    let different = |at: usize, got: f64, want: Bounded| {
        // `admits` says nothing where the true value lies too near a discontinuity.
        (want.admits(got) == Some(false)).then(|| Difference { output: output.to_string(), at, got, want })
    };
    match &want.data {
        Data::Real(want) => {
            got.to_f64().into_iter().zip(want).enumerate().find_map(|(at, (g, w))| different(at, g, *w))
        }
        Data::Int(want) => got.to_i64().into_iter().zip(want).enumerate().find_map(|(at, (g, w))| {
            let want = Bounded::new(w.filter(|w| *w != g)? as f64, 0.0, DType::F64);
            Some(Difference { output: output.to_string(), at, got: g as f64, want })
        }),
    }
}
