//! Runs a program and judges the results by the interpreter's error bounds. Kernels are judged by the bound of the
//! plan's program. Rules are judged by the sum of this bound and the bound of the given program.
//!
//! The two checks are separate because rules move roundings. A norm of 16-bit numbers rounds once. The sums and
//! products of its decomposition may each be stored, and a scale that is folded into a weight is rounded with the
//! weight. The bound of the given program does not include these roundings. A bound that included all of them would
//! accept wrong results of kernels.

use eutectic::{Compiler, Error, Tensor};
use eutectic_ir::{
    Bounded, DType, Graph,
    interp::interpret,
    ops::{
        RowOp,
        eval::{Data, Value},
    },
};

use eutectic::verify::Element;

/// The part of the compiler that causes a wrong result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A kernel or lowering: the result is outside of the error bound of the plan's program.
    Kernels,
    /// A rule: the plan's program and the given program differ by more than the sum of their bounds.
    Rules,
}

/// An element that is wrong.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The part at fault.
    pub fault: Fault,
    /// The name of the output.
    pub output: String,
    /// The flat index of the element.
    pub at: usize,
    /// The result of the kernels, or the value of the plan's program.
    pub got: Element,
    /// The expected value.
    pub want: Element,
    /// The allowed difference.
    pub allowed: f64,
}

/// Returns values for the inputs and parameters of a graph: small numbers of either sign, with some zeros. The same
/// seed and name give the same values.
pub fn values(graph: &Graph, seed: u64) -> impl Fn(&str) -> Option<Tensor> + '_ {
    move |name| {
        let (_, id) = graph.named("input").chain(graph.named("param")).find(|(n, _)| *n == name)?;
        let ty = graph.ty(id);
        let (dtype, dims) = (ty.dtype()?, ty.dims()?);
        let seed = name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut next = move || {
            let x = random.f64();
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

/// Compiles and runs a graph, and compares every output with the interpreter's result.
///
/// # Errors
/// The outer result has the engine's error, and the inner result the first difference of each output.
pub fn check(compiler: &Compiler, graph: &Graph, seed: u64) -> Result<Result<(), Vec<Difference>>, Error> {
    check_on(compiler, graph, &values(graph, seed))
}

/// Compiles and runs a graph on given inputs and parameters, and compares every output with the interpreter's result.
///
/// # Errors
/// See [`check`].
pub fn check_on(
    compiler: &Compiler,
    graph: &Graph,
    given: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Result<(), Vec<Difference>>, Error> {
    let keeps = compiler.backend().limits().subnormals;
    let given = &|name: &str| given(name).map(|tensor| if keeps { tensor } else { without_subnormals(tensor) });
    let bounds = |graph: &Graph| interpret::<Bounded>(graph, given).map_err(|e| Error::Arguments(vec![e.to_string()]));
    let (planned, mut session) = compiler.compile_planned(graph)?;
    let (want, chosen) = (bounds(graph)?, bounds(&planned.chosen(graph)?)?);
    session.load_named(given)?;
    let got = session.run_named(given)?;
    let mut inputs = graph.named("input").chain(graph.named("param")).filter_map(|(name, _)| given(name));
    let moderate = inputs.all(|t| is_moderate(&t));
    let from_nothing = below_empty_reductions(graph);
    let outputs = graph.outputs().iter().zip(got).zip(chosen.iter().zip(&want));
    let differences: Vec<_> = outputs
        .filter_map(|(((name, id), got), (chosen, want))| {
            let wrong = kernels(&got, chosen).map(|wrong| (Fault::Kernels, wrong));
            let moderate = moderate && !from_nothing[id.0 as usize];
            let (fault, Wrong { at, got, want, allowed }) =
                wrong.or_else(|| Some((Fault::Rules, rules(chosen, want, moderate)?)))?;
            Some(Difference { fault, output: name.clone(), at, got, want, allowed })
        })
        .collect();
    Ok(if differences.is_empty() { Ok(()) } else { Err(differences) })
}

/// Replaces subnormal numbers by zeros, as a device without subnormal numbers does, so that the reference gets the same
/// values. Elements of f16 are kept, because they are computed in f32 and are normal there.
fn without_subnormals(tensor: Tensor) -> Tensor {
    let (dtype, dims) = (tensor.dtype(), tensor.dims().to_vec());
    if !dtype.is_float() {
        return tensor;
    }
    let (smallest, _) = dtype.register().normal_range();
    let seen = |x: f64| if x.abs() < smallest { x * 0.0 } else { x };
    Tensor::from_f64(dtype, &dims, tensor.to_f64().into_iter().map(seen))
}

/// An element that is wrong, without the part at fault.
struct Wrong {
    at: usize,
    got: Element,
    want: Element,
    allowed: f64,
}

impl Wrong {
    fn real(at: usize, got: f64, want: Bounded) -> Wrong {
        Wrong { at, got: Element::Real(got), want: Element::Real(want.value), allowed: want.err }
    }
}

/// Returns the first element of the kernels' result that is outside of the error bound of the plan's program.
fn kernels(got: &Tensor, chosen: &Value<Bounded>) -> Option<Wrong> {
    match &chosen.data {
        Data::Real(want) => got.to_f64().into_iter().zip(want).enumerate().find_map(|(at, (got, want))| {
            // `admits` returns `None` for an infinite bound, for example close to a discontinuity. Such an element is
            // not wrong.
            (want.admits(got) == Some(false)).then(|| Wrong::real(at, got, *want))
        }),
        Data::Int(want) => {
            got.to_i64().into_iter().zip(want).enumerate().find_map(|(at, (got, want))| whole(at, got, (*want)?))
        }
    }
}

/// Returns the first element in which the plan's program differs from the given program. If `moderate` is false,
/// infinities, NaN and integers are not compared, because the contracts of rules may allow them to differ.
fn rules(chosen: &Value<Bounded>, want: &Value<Bounded>, moderate: bool) -> Option<Wrong> {
    match (&chosen.data, &want.data) {
        (Data::Real(chosen), Data::Real(want)) => {
            chosen.iter().zip(want).enumerate().find_map(|(at, (chosen, want))| {
                let comparable = moderate || chosen.value.is_finite() && want.value.is_finite();
                let mut both = *want;
                both.err += chosen.err;
                (comparable && both.admits(chosen.value) == Some(false)).then(|| Wrong::real(at, chosen.value, both))
            })
        }
        (Data::Int(chosen), Data::Int(want)) => chosen
            .iter()
            .zip(want)
            .enumerate()
            .find_map(|(at, (chosen, want))| whole(at, (*chosen)?, (*want)?).filter(|_| moderate)),
        _ => unreachable!("rules keep element types"),
    }
}

fn whole(at: usize, got: i64, want: i64) -> Option<Wrong> {
    (got != want).then_some(Wrong { at, got: Element::Whole(got), want: Element::Whole(want), allowed: 0.0 })
}

/// Returns, for each node, whether it depends on a reduction of no elements. The maximum of no elements is −∞, although
/// no input is infinite.
fn below_empty_reductions(graph: &Graph) -> Vec<bool> {
    let mut below: Vec<bool> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        let reduces = node.op.row().and_then(RowOp::reduction).is_some();
        let empty = reduces && node.ty.count() > 0 && node.operands.iter().any(|o| graph.ty(*o).count() == 0);
        below.push(empty || node.operands.iter().any(|o| below[o.0 as usize]));
    }
    below
}

/// Returns whether a product of a few elements neither overflows nor underflows.
fn is_moderate(tensor: &Tensor) -> bool {
    let moderate = |x: f64| x == 0.0 || (2_f64.powi(-40)..2_f64.powi(40)).contains(&x.abs());
    !tensor.dtype().is_float() || tensor.to_f64().into_iter().all(moderate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_subnormals_is_given_zeros() {
        let numbers = [1e-45, -1e-39, f64::from(f32::MIN_POSITIVE), 2.0, f64::INFINITY];
        let seen = |dtype| without_subnormals(Tensor::from_f64(dtype, &[5], numbers)).to_f64();
        assert_eq!(seen(DType::F32), [0.0, 0.0, f64::from(f32::MIN_POSITIVE), 2.0, f64::INFINITY]);
        assert_eq!(seen(DType::F64)[..2], numbers[..2]);
    }
}
