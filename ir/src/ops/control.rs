//! Loops: a body that runs repeatedly. Each iteration gets the values that the one before it carried.

use rustc_hash::FxHashMap;

use super::{AttrKind::*, Class, Default, OpDef, attr, attr_or, eval::Eval, op};
use crate::{Attr, DType, Dim, Graph, GraphError, NodeId, Shape, Type, graph::SubGraph, lang::Mismatch};

pub(super) const OPS: &[OpDef] = &[OpDef {
    attrs: &[
        attr("body", Graph),
        attr("times", Int),
        attr_or("carried", Int, Default::Int(0)),
        attr_or("scanned", Int, Default::Int(0)),
        attr_or("while", Int, Default::Int(-1)),
    ],
    ..op(
        "loop",
        "Runs the body `times` times. The first `carried` inputs of an iteration are the first outputs of the iteration before it. \
         The next `scanned` inputs are slices along the outermost axis, one for each iteration. Further inputs are constant. \
         The results are the carried values at the end, then the further outputs, stacked along a new outermost axis. \
         `while` is the index of a carried truth value. The loop ends early once it is false, and has no further outputs.",
        Class::Loop,
        "",
        Eval::Given,
    )
}];

/// The attributes of a loop.
pub struct Loop<'a> {
    /// The body.
    pub body: &'a SubGraph,
    /// The maximal number of iterations.
    pub times: usize,
    /// The number of values that each iteration hands to the next one.
    pub carried: usize,
    /// The number of scanned operands. Each iteration gets one slice of each of them.
    pub scanned: usize,
    /// The index of the carried truth value that decides whether the loop continues.
    pub condition: Option<usize>,
}

impl<'a> Loop<'a> {
    /// Returns the loop that a node's attributes describe; `None` if the node is not a loop.
    pub fn of(attrs: &'a [Attr]) -> Option<Loop<'a>> {
        let [body, times, carried, scanned, condition] = attrs else { return None };
        let count = |attr: &Attr| attr.int().and_then(|n| usize::try_from(n).ok());
        let condition = match condition.int()? {
            -1 => None,
            n => Some(usize::try_from(n).ok()?),
        };
        let (body, times, carried, scanned) = (body.graph()?, count(times)?, count(carried)?, count(scanned)?);
        Some(Loop { body, times, carried, scanned, condition })
    }

    /// Returns a body that keeps the carried values once the condition is false, so that it may run more often than
    /// the loop does. Its inputs are those of the body, followed by the initial values of the carried integers. After
    /// the end of the loop, the body reads these initial values, because the integers may be indices, which must be
    /// valid.
    ///
    /// # Errors
    /// If the body would be too large.
    pub fn frozen(&self, condition: usize) -> Result<FrozenBody, GraphError> {
        let mut graph = Graph::new(self.body.name.clone());
        let inputs: Vec<NodeId> = self.body.named("input").map(|(_, id)| id).collect();
        let mut given = Vec::with_capacity(inputs.len());
        for (name, id) in self.body.named("input") {
            given.push(graph.input(name, self.body.ty(id).clone())?);
        }
        let (runs, last) = (given[condition], given.clone());
        let mut starts = Vec::new();
        for (at, id) in inputs[..self.carried].iter().enumerate() {
            let ty = self.body.ty(*id);
            if ty.dtype().is_some_and(DType::is_int) {
                let start = graph.input(&format!("start {at}"), ty.clone())?;
                given[at] = graph.apply("where", &[runs, given[at], start], &[])?;
                starts.push(at);
            }
        }
        let mut new: FxHashMap<NodeId, NodeId> = inputs.into_iter().zip(given).collect();
        for (id, node) in self.body.nodes() {
            if !new.contains_key(&id) {
                let names = node.op.def().attrs.iter().map(|a| a.name);
                let attrs: Vec<(&str, Attr)> = names.zip(node.attrs.iter().cloned()).collect();
                let operands: Vec<NodeId> = node.operands.iter().map(|o| new[o]).collect();
                let made = graph.apply_at(node.op, &operands, &attrs, node.origin.clone())?;
                new.insert(id, made);
            }
        }
        for (at, (name, id)) in self.body.outputs().iter().enumerate() {
            let next = new[id];
            let kept = match at {
                _ if at == condition => graph.apply("and", &[runs, next], &[])?,
                _ if next == last[at] => next,
                _ => graph.apply("where", &[runs, next, last[at]], &[])?,
            };
            graph.output(name, kept)?;
        }
        Ok(FrozenBody { graph, starts })
    }
}

/// A body that may run after the end of its loop; see [`Loop::frozen`].
pub struct FrozenBody {
    /// The body.
    pub graph: Graph,
    /// The indices of the carried values whose initial values are the last inputs.
    pub starts: Vec<usize>,
}

fn wrong<T>(problem: String) -> Result<T, Mismatch> {
    Err(Mismatch::Form(problem))
}

/// Returns the types of a loop's results.
pub(super) fn infer(attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
    let Some(Loop { body, times, carried, scanned, condition }) = Loop::of(attrs) else {
        return wrong(
            "a loop needs a body and non-negative numbers; `while` is -1 or the index of a carried value".into(),
        );
    };
    let name = &body.name;
    if let Some((kind, (leaf, _))) =
        ["param", "state"].into_iter().find_map(|kind| Some((kind, body.named(kind).next()?)))
    {
        return wrong(format!(
            "`{name}` has the {kind} {leaf}; make it an input, because a loop's body has only inputs"
        ));
    }
    if let Some(symbol) = body.all_symbols().first() {
        return wrong(format!("`{name}` has the dimension {symbol} without a number; bind it first"));
    }
    let inputs: Vec<(&str, &Type)> = body.named("input").map(|(input, id)| (input, body.ty(id))).collect();
    let outputs = body.outputs();
    if inputs.len() != operands.len() || carried + scanned > inputs.len() || carried > outputs.len() {
        let of_body = format!("`{name}` has {} inputs and {} outputs", inputs.len(), outputs.len());
        return wrong(format!(
            "{of_body}, but the loop has {carried} carried values, {scanned} scanned ones and {} operands",
            operands.len()
        ));
    }
    let stacked = |ty: &Type| match ty {
        Type::Tensor(dtype, shape) => {
            let dims = [Dim::from(times)].into_iter().chain(shape.iter().cloned());
            Ok(Type::Tensor(*dtype, dims.collect::<Shape>()))
        }
        Type::Tuple(_) => wrong(format!("`{name}` returns a tuple; make it return the tuple's results")),
    };
    for (at, ((input, ty), given)) in inputs.iter().zip(operands).enumerate() {
        let want = if (carried..carried + scanned).contains(&at) { stacked(ty)? } else { (*ty).clone() };
        if want != **given {
            return wrong(format!("the input {input} of `{name}` needs {want}, but {given} is given"));
        }
    }
    for ((input, ty), (output, id)) in inputs.iter().zip(outputs).take(carried) {
        if body.ty(*id) != *ty {
            return wrong(format!(
                "`{name}` carries {input} of type {ty}, but returns {output} of type {}",
                body.ty(*id)
            ));
        }
    }
    if let Some(condition) = condition {
        let ty = inputs[..carried].get(condition).map(|(_, ty)| *ty);
        if ty != Some(&Type::tensor(DType::Bool, &[])) {
            return wrong(format!("`while` is {condition}, but `{name}` has no carried truth value of this index"));
        }
        if outputs.len() > carried {
            return wrong(format!(
                "`{name}` cannot return an output of each iteration because `while` decides their number; carry it"
            ));
        }
    }
    let last = inputs[..carried].iter().map(|(_, ty)| Ok((*ty).clone()));
    let all = outputs[carried..].iter().map(|(_, id)| stacked(body.ty(*id)));
    Ok(Type::Tuple(last.chain(all).collect::<Result<_, _>>()?))
}
