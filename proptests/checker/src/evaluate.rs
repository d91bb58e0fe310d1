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

use crate::{
    values::Values,
    wild::{Step, Wild, wild},
};

/// What a graph comes to.
pub struct Evaluated {
    /// The outputs.
    pub results: Vec<Tensor>,
    /// For each output the elements that were made from an intermediate result that left the range.
    pub wild: Vec<Wild>,
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

fn has_nan(value: &Value<f64>) -> bool {
    matches!(&value.data, Data::Real(elements) if elements.iter().any(|x| x.is_nan()))
}
