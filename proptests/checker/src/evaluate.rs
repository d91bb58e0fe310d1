//! Evaluates a graph as ideal kernels would: each op in `f64`, its result rounded to the element type.

use std::borrow::Cow;

use eutectic::{Graph, Tensor};
use eutectic_ir::{
    Attr, Class, InterpError,
    interp::evaluate,
    ops::{
        Leaf,
        eval::{Data, Value},
    },
};

use crate::{
    values::Values,
    wild::{Step, Wild, wild},
};

/// The results of a graph.
pub struct Evaluated {
    /// The outputs.
    pub results: Vec<Tensor>,
    /// For each output, the elements that depend on an intermediate result out of the range of its type.
    pub wild: Vec<Wild>,
    /// Whether the result of an op contains NaN.
    pub nan: bool,
}

/// Returns the outputs of a graph. Every intermediate result is rounded to its element type once.
///
/// # Errors
/// If an index read from a tensor is out of range.
///
/// # Panics
/// If `values` lacks an input of the graph. The graph and the values of one instance always fit.
pub fn evaluated(graph: &Graph, values: &Values) -> Result<Evaluated, InterpError> {
    let graph = &*expanded(graph);
    let mut nan = false;
    let mut results: Vec<(Vec<Tensor>, Vec<Wild>)> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operand = |n: usize| &results[node.operands[n].0 as usize];
        let tame = |tensor: Tensor| (vec![tensor], vec![Wild::default()]);
        results.push(match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(Leaf::Input | Leaf::Param), Some(Attr::Word(name))) => {
                tame(values.get(&**name).expect("every variable of the rule has a value").clone())
            }
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(value))) => tame(value.clone()),
            (Class::Project, Some(Attr::Int(part))) => {
                let (tensors, wild) = operand(0);
                (vec![tensors[*part as usize].clone()], vec![wild[*part as usize].clone()])
            }
            _ => {
                let operands: Vec<Value<f64>> =
                    (0..node.operands.len()).map(|n| Value::from_tensor(&operand(n).0[0])).collect();
                let operands: Vec<&Value<f64>> = operands.iter().collect();
                let before: Vec<&Wild> = (0..node.operands.len()).map(|n| &operand(n).1[0]).collect();
                let values = evaluate(id, node, &operands)?;
                let step = Step { id, node, operands: &operands, results: &values };
                let wild = wild(&step, &before)?;
                nan |= values.iter().any(has_nan);
                (values.iter().map(Value::to_tensor).collect(), wild)
            }
        });
    }
    let outputs = || graph.outputs().iter().map(|(_, id)| &results[id.0 as usize]);
    let wild = outputs().map(|(_, wild)| wild[0].clone()).collect();
    Ok(Evaluated { results: outputs().map(|(tensors, _)| tensors[0].clone()).collect(), wild, nan })
}

/// Computes the floating outputs of a graph with exponents of any size: each intermediate result is rounded to the
/// significand of its element type only. Outputs of other types are empty.
///
/// # Errors
/// If an index read from a tensor is out of range.
///
/// # Panics
/// See [`evaluated`].
pub fn unlimited(graph: &Graph, values: &Values) -> Result<Vec<Vec<f64>>, InterpError> {
    let graph = &*expanded(graph);
    let mut results: Vec<Vec<Value<f64>>> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operand = |n: usize| &results[node.operands[n].0 as usize];
        results.push(match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(Leaf::Input | Leaf::Param), Some(Attr::Word(name))) => {
                vec![Value::from_tensor(values.get(&**name).expect("every variable of the rule has a value"))]
            }
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(value))) => vec![Value::from_tensor(value)],
            (Class::Project, Some(Attr::Int(part))) => vec![operand(0)[*part as usize].clone()],
            _ => {
                let operands: Vec<&Value<f64>> = (0..node.operands.len()).map(|n| &operand(n)[0]).collect();
                evaluate(id, node, &operands)?.into_iter().map(shortened).collect()
            }
        });
    }
    let reals = |value: &Value<f64>| match &value.data {
        Data::Real(elements) => elements.to_vec(),
        Data::Int(_) => Vec::new(),
    };
    Ok(graph.outputs().iter().map(|(_, id)| reals(&results[id.0 as usize][0])).collect())
}

/// Replaces each declared op by the ops of its definition, because each of their results is rounded.
fn expanded(graph: &Graph) -> Cow<'_, Graph> {
    graph.expanded().expect("the graph was checked when it was built, and instances are small")
}

/// Rounds elements to the significand of their type.
fn shortened(value: Value<f64>) -> Value<f64> {
    let unit = value.dtype.unit_roundoff();
    match value.data {
        Data::Real(elements) if value.dtype.is_float() && unit > f64::EPSILON => {
            let short = |x: &f64| if *x == 0.0 || !x.is_finite() { *x } else { to_significand(*x, unit) };
            Value { data: Data::Real(elements.iter().map(short).collect()), ..value }
        }
        data => Value { data, ..value },
    }
}

/// Rounds a number to the significand of a type with the unit roundoff `unit`, ties to even.
fn to_significand(x: f64, unit: f64) -> f64 {
    let power = f64::from_bits(x.abs().to_bits() & (0x7ff << 52));
    let step = 2.0 * unit * power;
    if step == 0.0 { x } else { (x / step).round_ties_even() * step }
}

fn has_nan(value: &Value<f64>) -> bool {
    matches!(&value.data, Data::Real(elements) if elements.iter().any(|x| x.is_nan()))
}

#[cfg(test)]
mod tests {
    use eutectic::{DType, Tensor};

    use super::*;

    #[test]
    fn significands_are_rounded_and_exponents_are_unlimited() {
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            for x in [1.000_123, -3.999_9, 0.1, 1.0 / 3.0, 1.5, 2.0 - 1e-9, 1.000_488_281_25] {
                let stored = Tensor::from_f64(dtype, &[], [x]).to_f64()[0];
                assert_eq!(to_significand(x, dtype.unit_roundoff()), stored, "{dtype}: {x}");
                let small = to_significand(x * 2_f64.powi(-300), dtype.unit_roundoff());
                assert_eq!(small, stored * 2_f64.powi(-300), "{dtype}: {x}");
            }
        }
    }
}
