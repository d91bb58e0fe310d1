//! The reference interpreter: evaluates a graph op by op, with any type of scalar ([`Scalar`]).

use smallvec::SmallVec;

use crate::{
    Attr, Class, Graph, NodeId, Origin, Scalar, Shape, Tensor, Type,
    graph::Node,
    index::{Index, flatten},
    ops::{
        Ids, Leaf, Loop, OutOfRange, Piece, ViewCall, ViewMap,
        eval::{Element, Elements, Eval, OpCall, Value, broadcast_strides, offsets},
    },
};

/// The reason why a graph cannot be interpreted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InterpError {
    /// Inputs or parameters without a value, or with a value of another type. Each has its name, the expected type,
    /// and the given type if any.
    #[error("{}", list(.0))]
    Given(Vec<(String, Type, Option<Type>)>),
    /// A dimension has no number yet.
    #[error("dimension {0} has no value; bind the graph's symbols first")]
    Unbound(String),
    /// An index that was read from a tensor is outside the axis that it indexes.
    #[error("cannot compute `{op}` (value {}) at {origin}: {problem}", .node.0)]
    IndexOutOfRange {
        /// The index, and the range of legal ones.
        problem: OutOfRange,
        /// The op that reads by this index.
        op: String,
        /// The node.
        node: NodeId,
        /// The model part that made the node.
        origin: Origin,
    },
    /// The definition of a declared op has no value for these operands, although it has one for other lengths.
    #[error("cannot compute `{op}` at {origin} because {why}")]
    Undefined {
        /// The op.
        op: String,
        /// The model part that made the node.
        origin: Origin,
        /// The reason.
        why: String,
    },
}

fn list(given: &[(String, Type, Option<Type>)]) -> String {
    let line = |(name, want, got): &(String, Type, Option<Type>)| match got {
        Some(got) => format!("`{name}` is {want}, but {got} was given"),
        None => format!("`{name}` : {want} was not given"),
    };
    given.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// Returns the results of a graph in order: outputs, followed by the new values of states. `given` returns inputs,
/// parameters and states by name. Names that the graph does not use are not asked for.
///
/// # Errors
/// If an input is missing or of the wrong type, a dimension is unbound, or an index read from a tensor is out of range.
pub fn interpret<S: Scalar>(
    graph: &Graph,
    given: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Value<S>>, InterpError> {
    interpret_as(graph, given, |value| value)
}

/// Interprets a graph like [`interpret`], but rounds each result of each op to its element type.
///
/// # Errors
/// If [`interpret`] would fail.
pub fn interpret_rounded(
    graph: &Graph,
    given: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Value<f64>>, InterpError> {
    interpret_as(graph, given, Value::rounded)
}

fn interpret_as<S: Scalar>(
    graph: &Graph,
    given: &dyn Fn(&str) -> Option<Tensor>,
    keep: Keep<S>,
) -> Result<Vec<Value<S>>, InterpError> {
    if let Some(symbol) = graph.all_symbols().first() {
        return Err(InterpError::Unbound(symbol.to_string()));
    }
    let leaves = leaves(graph, given)?;
    run(graph, &|id| leaves[id.0 as usize].as_ref().map(Value::from_tensor), keep)
}

/// A function applied to each result of an op before other ops read it: it rounds the result, or returns it
/// unchanged.
type Keep<S> = fn(Value<S>) -> Value<S>;

/// Returns the results of a graph. `leaf` returns the values of leaves, and `None` for computed nodes.
fn run<S: Scalar>(
    graph: &Graph,
    leaf: &dyn Fn(NodeId) -> Option<Value<S>>,
    keep: Keep<S>,
) -> Result<Vec<Value<S>>, InterpError> {
    let last_use = last_uses(graph);
    let mut values: Vec<Vec<Value<S>>> = vec![Vec::new(); graph.len()];
    for (id, node) in graph.nodes() {
        let at = id.0 as usize;
        // Nodes on which no result depends are skipped.
        if last_use[at] == 0 {
            continue;
        }
        values[at] = match (leaf(id), node.op.def().class) {
            (Some(value), _) => vec![value],
            (None, Class::Project) => vec![projected(node, &values[node.operands[0].0 as usize])],
            _ => {
                let operands: SmallVec<[&Value<S>; 4]> =
                    node.operands.iter().map(|o| &values[o.0 as usize][0]).collect();
                evaluate_as(id, node, &operands, keep)?
            }
        };
        for operand in &node.operands {
            if last_use[operand.0 as usize] == at {
                values[operand.0 as usize] = Vec::new();
            }
        }
    }
    Ok(graph.results().map(|(_, id)| values[id.0 as usize][0].clone()).collect())
}

/// Returns the tensors of inputs, parameters, states and constants, and `None` for the other nodes.
fn leaves(graph: &Graph, given: &dyn Fn(&str) -> Option<Tensor>) -> Result<Vec<Option<Tensor>>, InterpError> {
    let (mut leaves, mut wrong) = (vec![None; graph.len()], Vec::new());
    for (id, node) in graph.nodes() {
        let tensor = match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State), Some(Attr::Word(name))) => {
                let tensor = given(name);
                if tensor.as_ref().map(Tensor::ty).as_ref() != Some(&node.ty) {
                    wrong.push((name.to_string(), node.ty.clone(), tensor.as_ref().map(Tensor::ty)));
                }
                tensor
            }
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(tensor))) => Some(tensor.clone()),
            _ => None,
        };
        leaves[id.0 as usize] = tensor;
    }
    if wrong.is_empty() { Ok(leaves) } else { Err(InterpError::Given(wrong)) }
}

/// Returns the last node that reads each value: `usize::MAX` for results, 0 for values that are not needed.
fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.len()];
    for (_, id) in graph.results() {
        last[id.0 as usize] = usize::MAX;
    }
    let nodes: Vec<_> = graph.nodes().collect();
    for (id, node) in nodes.into_iter().rev() {
        let at = id.0 as usize;
        if last[at] > 0 {
            node.operands.iter().for_each(|o| last[o.0 as usize] = last[o.0 as usize].max(at));
        }
    }
    last
}

fn projected<S: Scalar>(node: &Node, parts: &[Value<S>]) -> Value<S> {
    // The builder of the graph has checked that the index is in range.
    parts[node.attrs[0].int().unwrap_or(0) as usize].clone()
}

/// Evaluates one node that is not an input, a parameter, a constant or a projection.
///
/// # Errors
/// If an index read from a tensor is out of range.
pub fn evaluate<S: Scalar>(id: NodeId, node: &Node, operands: &[&Value<S>]) -> Result<Vec<Value<S>>, InterpError> {
    evaluate_as(id, node, operands, |value| value)
}

/// Evaluates a node like [`evaluate`], and rounds each result to its element type, also those of ops in loop bodies.
///
/// # Errors
/// If an index read from a tensor is out of range.
pub fn evaluate_rounded(id: NodeId, node: &Node, operands: &[&Value<f64>]) -> Result<Vec<Value<f64>>, InterpError> {
    evaluate_as(id, node, operands, Value::rounded)
}

fn evaluate_as<S: Scalar>(
    id: NodeId,
    node: &Node,
    operands: &[&Value<S>],
    keep: Keep<S>,
) -> Result<Vec<Value<S>>, InterpError> {
    let out_of_range = |problem| InterpError::IndexOutOfRange {
        problem,
        op: node.op.to_string(),
        node: id,
        origin: node.origin.clone(),
    };
    let results = match (node.op.def().eval, node.op.def().class) {
        (Eval::Elements(eval), _) => {
            let elements = operands.first().into_iter().flat_map(|x| (0..x.count()).map(|i| x.get(i)));
            match node.op.out_of_range(&node.attrs, elements) {
                Some(problem) => return Err(out_of_range(problem)),
                None => vec![pointwise(&eval, node, operands)],
            }
        }
        (Eval::Tensors(eval), _) => S::tensors(&eval)(&OpCall { operands, attrs: &node.attrs, result: &node.ty }),
        (Eval::Defined, _) => return defined(id, node, operands, keep),
        (_, Class::View(map)) => vec![view(map, node, operands).map_err(out_of_range)?],
        (_, Class::Loop) => return repeated(node, operands, keep),
        _ => vec![iota(node)],
    };
    Ok(results.into_iter().map(keep).collect())
}

/// Returns the result of a declared op by interpreting its definition.
fn defined<S: Scalar>(
    id: NodeId,
    node: &Node,
    operands: &[&Value<S>],
    keep: Keep<S>,
) -> Result<Vec<Value<S>>, InterpError> {
    let types: Vec<Type> = operands.iter().map(|value| value.ty()).collect();
    let definition = node.op.definition().expect("an op is defined before a graph has it");
    let graph = definition.graph(&node.attrs, &types.iter().collect::<Vec<_>>());
    let undefined = |why| InterpError::Undefined { op: node.op.to_string(), origin: node.origin.clone(), why };
    let graph = graph.map_err(undefined)?;
    let inputs: Vec<NodeId> = graph.named("input").map(|(_, id)| id).collect();
    let leaf = |id| match inputs.iter().position(|input| *input == id) {
        Some(at) => Some(operands[at].clone()),
        None => constant(graph.node(id)),
    };
    run(&graph, &leaf, keep).map_err(|error| match error {
        InterpError::IndexOutOfRange { problem, op, .. } => {
            let op = format!("{op} of {}", node.op);
            InterpError::IndexOutOfRange { problem, op, node: id, origin: node.origin.clone() }
        }
        other => other,
    })
}

/// Returns the value of a constant.
fn constant<S: Scalar>(node: &Node) -> Option<Value<S>> {
    match (node.op.def().class, node.attrs.first()) {
        (Class::Leaf(Leaf::Const), Some(Attr::Tensor(tensor))) => Some(Value::from_tensor(tensor)),
        _ => None,
    }
}

/// Returns the results of a loop by interpreting its body repeatedly.
fn repeated<S: Scalar>(node: &Node, operands: &[&Value<S>], keep: Keep<S>) -> Result<Vec<Value<S>>, InterpError> {
    let of = Loop::of(&node.attrs).expect("the graph was checked when it was built");
    let (times, carried, scanned) = (of.times, of.carried, of.scanned);
    let frozen = of.condition.map(|condition| of.frozen(condition).expect("the graph was checked when it was built"));
    let (body, starts): (&Graph, &[usize]) =
        frozen.as_ref().map_or((&**of.body, &[]), |frozen| (&frozen.graph, frozen.starts.as_slice()));
    let starts: Vec<&Value<S>> = starts.iter().map(|at| operands[*at]).collect();
    let operands = &[operands, starts.as_slice()].concat();
    let inputs: Vec<NodeId> = body.named("input").map(|(_, id)| id).collect();
    let mut last: Vec<Value<S>> = operands[..carried].iter().map(|value| (*value).clone()).collect();
    let mut all: Vec<Vec<Value<S>>> = vec![Vec::with_capacity(times); body.outputs().len() - carried];
    for time in 0..times {
        // An uncertain condition does not end the loop. The body from `Loop::frozen` then selects between the old and
        // the new values.
        if of.condition.is_some_and(|condition| last[condition].get(0).int() == Some(0)) {
            break;
        }
        let given = |at: usize| match at {
            at if at < carried => last[at].clone(),
            at if at < carried + scanned => part(operands[at], time),
            at => operands[at].clone(),
        };
        let leaf = |id| match inputs.iter().position(|input| *input == id) {
            Some(at) => Some(given(at)),
            None => constant(body.node(id)),
        };
        let mut results = run(body, &leaf, keep)?;
        all.iter_mut().zip(results.drain(carried..)).for_each(|(all, one)| all.push(one));
        last = results;
    }
    let outputs = body.outputs()[carried..].iter().zip(all);
    let stacked = outputs.map(|((_, id), all)| {
        let (dtype, dims) = result(body.node(*id));
        let elements = all.iter().flat_map(|one| (0..one.count()).map(|i| one.get(i)));
        Value::from_elements(dtype, &[&[times], dims.as_slice()].concat(), elements)
    });
    last.extend(stacked.collect::<Vec<_>>());
    Ok(last)
}

/// Returns slice `at` along the outermost axis.
fn part<S: Scalar>(x: &Value<S>, at: usize) -> Value<S> {
    let dims = &x.dims[1..];
    let count = dims.iter().product::<usize>();
    Value::from_elements(x.dtype, dims, (at * count..(at + 1) * count).map(|i| x.get(i)))
}

fn result(node: &Node) -> (crate::DType, Vec<usize>) {
    (node.ty.dtype().expect("a node with a single result is a tensor"), node.ty.dims().expect("all symbols are bound"))
}

fn pointwise<S: Scalar>(eval: &Elements, node: &Node, operands: &[&Value<S>]) -> Value<S> {
    let (dtype, dims) = result(node);
    let f = S::elements(eval);
    let at: SmallVec<[Option<Vec<i64>>; 3]> = operands
        .iter()
        .map(|x| (x.dims != dims).then(|| offsets(&dims, &broadcast_strides(&x.dims, dims.len()), 0)))
        .collect();
    let elements = (0..dims.iter().product()).map(|i| {
        let read = |(x, at): (&&Value<S>, &Option<Vec<i64>>)| x.get(at.as_ref().map_or(i, |at| at[i] as usize));
        let elements: SmallVec<[Element<S>; 3]> = operands.iter().zip(&at).map(read).collect();
        f(&elements, &node.attrs, dtype)
    });
    Value::from_elements(dtype, &dims, elements)
}

fn iota<S: Scalar>(node: &Node) -> Value<S> {
    let (dtype, dims) = result(node);
    let axis = (node.attrs[1].int().expect("the op table declares an axis") + dims.len() as i64) as usize;
    let along: Vec<i64> = (0..dims.len()).map(|i| i64::from(i == axis)).collect();
    let elements = offsets(&dims, &along, 0).into_iter().map(|n| match dtype.is_float() {
        true => Element::Real(S::exact(n as f64)),
        false => Element::Int(Some(n)),
    });
    Value::from_elements(dtype, &dims, elements)
}

/// Computes a view through its index map. Returns an error if an index is out of range.
fn view<S: Scalar>(map: ViewMap, node: &Node, operands: &[&Value<S>]) -> Result<Value<S>, OutOfRange> {
    let (dtype, dims) = result(node);
    let extents: Vec<_> = operands.iter().map(|x| x.dims.clone()).collect();
    let at: Vec<_> = (0..dims.len()).map(Index::coord).collect();
    let shapes: Vec<Shape> = extents.iter().map(|dims| dims.iter().copied().collect()).collect();
    let shape = dims.iter().copied().collect();
    let call = ViewCall { attrs: &node.attrs, operands: &shapes, result: &shape, at: &at, domain: &dims };
    let access = map(&call).expect("a view has an index map if all extents are numbers");
    let fill = access.fill.map(|x| match dtype.is_float() {
        true => Element::Real(S::element(x.get(), dtype)),
        false => Element::Int(Some(x.int().clamp(dtype.integers().0, dtype.integers().1))),
    });
    let pieces: Vec<_> = access.pieces.iter().map(|piece| ReadyPiece::new(piece, &extents, dims.len())).collect();
    if let ([ReadyPiece { affine: Some((strides, start)), piece, .. }], None) = (pieces.as_slice(), &fill) {
        let x = operands[piece.operand];
        let elements = offsets(&dims, strides, *start).into_iter().map(|i| x.get(i as usize));
        return Ok(Value::from_elements(dtype, &dims, elements));
    }
    let mut elements = Vec::with_capacity(dims.iter().product());
    let mut failure = Ok(());
    each_point(&dims, |point| {
        let piece = pieces.iter().find(|p| p.piece.guards.iter().all(|(i, r)| r.contains(&i.eval(point, &|_| 0))));
        let element = match (piece, fill) {
            (Some(piece), _) => piece.at(point, operands),
            (None, Some(fill)) => Ok(fill),
            (None, None) => unreachable!("the pieces of a view without a fill value cover it"),
        };
        match element {
            Ok(element) => elements.push(element),
            Err(error) => failure = Err(error),
        }
        failure.is_ok()
    });
    failure?;
    Ok(Value::from_elements(dtype, &dims, elements.into_iter()))
}

/// A piece of a view, with the offsets needed to read it.
struct ReadyPiece<'a> {
    piece: &'a Piece,
    /// The flat offset in the operand.
    offset: Index,
    /// The strides and the start of `offset`, if it is affine and the piece has neither guards nor an indirect read.
    affine: Option<(Vec<i64>, i64)>,
    /// For an indirect read: the operand with the indices, the flat offset of the index in it, and the extent of the
    /// indexed axis.
    via: Option<(usize, Index, usize)>,
}

impl ReadyPiece<'_> {
    fn new<'a>(piece: &'a Piece, extents: &[Vec<usize>], rank: usize) -> ReadyPiece<'a> {
        let dims = &extents[piece.operand];
        let offset = flatten(&piece.at, dims);
        let via = piece.via.as_ref().map(|(operand, at)| {
            let axis = piece.at.iter().position(|i| *i == Index::gathered()).unwrap_or(0);
            (*operand, flatten(at, &extents[*operand]), dims[axis])
        });
        let affine = offset.affine(rank).filter(|_| piece.guards.is_empty() && via.is_none());
        let affine = affine.map(|strides| (strides, offset.constant));
        ReadyPiece { piece, offset, affine, via }
    }

    fn at<S: Scalar>(&self, point: &[usize], operands: &[&Value<S>]) -> Result<Element<S>, OutOfRange> {
        let mut chosen = 0;
        if let Some((operand, at, extent)) = &self.via {
            match operands[*operand].get(at.eval(point, &|_| 0) as usize) {
                Element::Int(Some(n)) if (0..*extent as i64).contains(&n) => chosen = n,
                Element::Int(Some(id)) => {
                    let ids = Ids { extent: *extent as i64, from_end: false };
                    return Err(OutOfRange { id, ids });
                }
                // Rounding decides which element is read, so the result is uncertain.
                _ => return Ok(Element::open(operands[self.piece.operand].dtype)),
            }
        }
        Ok(operands[self.piece.operand].get(self.offset.eval(point, &|_| chosen) as usize))
    }
}

/// Visits the points of a domain in row-major order until `visit` returns false.
fn each_point(dims: &[usize], mut visit: impl FnMut(&[usize]) -> bool) {
    let mut point = vec![0; dims.len()];
    for _ in 0..dims.iter().product() {
        if !visit(&point) {
            return;
        }
        for axis in (0..dims.len()).rev() {
            point[axis] += 1;
            if point[axis] < dims[axis] {
                break;
            }
            point[axis] = 0;
        }
    }
}
