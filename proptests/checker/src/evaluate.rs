//! Evaluates a graph as ideal kernels would: each op in `f64`, its result rounded to the element type.

use eutectic::{Graph, Tensor};
use eutectic_ir::{
    Attr, Class, InterpError,
    interp::evaluate,
    ops::{
        Leaf,
        eval::{Data, Value},
    },
};

use crate::{boundary::range, values::Values};

/// What a graph comes to.
pub struct Evaluated {
    /// The outputs.
    pub results: Vec<Tensor>,
    /// Whether no intermediate result is subnormal, or infinite or NaN but for what is so already.
    pub tame: bool,
    /// Whether an intermediate result is NaN somewhere.
    pub nan: bool,
}

/// The outputs of a graph, every intermediate result rounded to its element type once.
///
/// # Errors
/// When an index read from a tensor is out of range.
///
/// # Panics
/// When `values` lacks an input of the graph: both come from one instance of a rule.
pub fn evaluated(graph: &Graph, values: &Values) -> Result<Evaluated, InterpError> {
    let (mut tame, mut nan) = (true, false);
    let mut results: Vec<Vec<Tensor>> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operand = |n: usize| &results[node.operands[n].0 as usize];
        results.push(match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(Leaf::Input | Leaf::Param), Some(Attr::Word(name))) => {
                vec![values.get(&**name).expect("every variable of the rule has a value").clone()]
            }
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(value))) => vec![value.clone()],
            (Class::Project, Some(Attr::Int(part))) => vec![operand(0)[*part as usize].clone()],
            _ => {
                let operands: Vec<Value<f64>> =
                    (0..node.operands.len()).map(|n| Value::from_tensor(&operand(n)[0])).collect();
                let operands: Vec<&Value<f64>> = operands.iter().collect();
                let values = evaluate(id, node, &operands)?;
                let from_finite = operands.iter().all(|operand| is_finite(operand));
                tame &= values.iter().all(|value| is_tame(value, from_finite));
                nan |= values.iter().any(has_nan);
                values.iter().map(Value::to_tensor).collect()
            }
        });
    }
    let results = graph.outputs().iter().map(|(_, id)| results[id.0 as usize][0].clone()).collect();
    Ok(Evaluated { results, tame, nan })
}

/// Whether all elements are zeros or normal numbers of the type; of operands that are not finite, infinities and NaN are no surprise.
fn is_tame(value: &Value<f64>, from_finite: bool) -> bool {
    let Data::Real(elements) = &value.data else { return true };
    let (least, largest) = range(value.dtype);
    let passed_on = |x: &f64| !from_finite && !x.is_finite();
    elements.iter().all(|x| *x == 0.0 || (least..=largest).contains(&x.abs()) || passed_on(x))
}

fn has_nan(value: &Value<f64>) -> bool {
    matches!(&value.data, Data::Real(elements) if elements.iter().any(|x| x.is_nan()))
}

fn is_finite(value: &Value<f64>) -> bool {
    match &value.data {
        Data::Real(elements) => elements.iter().all(|x| x.is_finite()),
        _ => true,
    }
}
