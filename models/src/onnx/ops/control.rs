//! Branches and loops. A branch whose condition is known is the one that is taken, another one a choice between the results of both.
//! A loop runs as often as is known when the model is read; its body becomes that of our op `loop`.

use eutectic_ir::{DType, NodeId, Tensor, Type};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    OpRow, Outputs, many,
};

pub(super) const OPS: &[OpRow] = &[many("If", 1, branch), many("Loop", 1, repeat), many("Scan", 9, scan)];

/// The branch that is taken; where that depends on the model's inputs, both are computed.
fn branch(c: &mut NodeCall<'_, '_>) -> Outputs {
    let condition = c.input(0)?;
    if let Some(known) = c.value(condition) {
        return c.subgraph(if known.to_i64().first() == Some(&1) { "then_branch" } else { "else_branch" });
    }
    let condition = truth(c, condition)?;
    let (then, otherwise) = (c.subgraph("then_branch")?, c.subgraph("else_branch")?);
    if then.len() != otherwise.len() {
        return Err(format!("one branch has {} results, the other {}", then.len(), otherwise.len()).into());
    }
    let choice = |(at, (a, b)): (usize, (NodeId, NodeId))| {
        if c.ty(a) != c.ty(b) {
            let types = format!("{} where its condition holds, else {}", c.ty(a), c.ty(b));
            return Err(NodeError(format!(
                "its result {at} is {types}; the condition must be known when the model is read"
            )));
        }
        c.apply("where", [condition, a, b])
    };
    then.into_iter().zip(otherwise).enumerate().map(choice).collect()
}

/// One truth value.
fn truth(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    if c.dtype(x) != DType::Bool || c.dims(x).iter().product::<usize>() != 1 {
        return Err(format!("its condition is {}, not one truth value", c.ty(x)).into());
    }
    c.reshape(x, &[])
}

/// Whether a value is known to be true.
fn holds(c: &NodeCall<'_, '_>, x: NodeId) -> Option<bool> {
    c.value(x).map(|known| known.to_i64().first() == Some(&1))
}

/// Inputs: the most times, whether to start at all, what is carried. The body is given the number of the time, the condition, and what
/// is carried; it says whether to go on. Where that is not known, what is carried stays as it is from the time on when it does not.
fn repeat(c: &mut NodeCall<'_, '_>) -> Outputs {
    let most = match c.optional(0) {
        Some(most) => c.value(most).and_then(|known| known.to_i64().first().copied()),
        None => None,
    };
    let most =
        most.ok_or("how often it runs is not known when the model is read; give the input that says so a value")?;
    let start = c.optional(1).map(|start| truth(c, start)).transpose()?;
    let known = start.map_or(Some(true), |start| holds(c, start));
    let times = if known == Some(false) { 0 } else { usize::try_from(most.max(0)).map_err(|_| "too many times")? };
    let starts: Vec<NodeId> = (2..).map_while(|at| c.optional(at)).collect();
    let start = match start {
        Some(start) => start,
        None => c.constant(Tensor::from_i64(DType::Bool, &[], [1]))?,
    };
    let types: Vec<Type> = starts.iter().map(|value| c.ty(*value)).collect();
    let number = c.iota(&[times], 0, DType::I64)?;
    // Whether the body says that it goes on, whatever it is given, shows when it was read.
    let mut always = false;
    let mut outputs = 0;
    let body = c.body("body", |c| {
        let runs = c.body_input(Type::tensor(DType::Bool, &[]))?;
        let carried = types.iter().map(|ty| c.body_input(ty.clone())).collect::<Result<Vec<_>, _>>()?;
        let number = c.body_input(Type::tensor(DType::I64, &[]))?;
        let results = c.subgraph_of("body", &[&[number, runs], carried.as_slice()].concat())?;
        let (&goes_on, results) = results.split_first().ok_or("its body does not say whether it goes on")?;
        outputs = results.len();
        let on = truth(c, goes_on)?;
        always = known == Some(true) && (goes_on == runs || holds(c, goes_on) == Some(true));
        if always {
            return Ok([&[runs], results].concat());
        }
        let mut next = vec![c.apply("and", [runs, on])?];
        for (value, last) in results.iter().zip(&carried) {
            next.push(if c.ty(*value) == c.ty(*last) { c.apply("where", [runs, *value, *last])? } else { *value });
        }
        Ok(next)
    })?;
    if !always && outputs > starts.len() {
        return Err("how often it runs depends on the model's inputs, and so do the shapes of what it collects".into());
    }
    let starts = [&[start], starts.as_slice()].concat();
    let results = c.looped(body, times, &starts, &[number])?;
    Ok(results[1..].to_vec())
}

/// Inputs: what is carried, then what is scanned along an axis each, forwards or backwards; outputs likewise.
fn scan(c: &mut NodeCall<'_, '_>) -> Outputs {
    let inputs = c.inputs();
    let count = c.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let count = count.filter(|&n| (1..=inputs.len()).contains(&n)).ok_or("it does not say how many inputs it scans")?;
    let (starts, scanned) = inputs.split_at(inputs.len() - count);
    let collected = c.outputs().saturating_sub(starts.len());
    let list = |name: &str, n: usize| match c.ints(name)? {
        Some(given) if given.len() != n => Err(NodeError(format!("{} numbers in {name}, {n} are wanted", given.len()))),
        given => Ok(given.unwrap_or_else(|| vec![0; n])),
    };
    let (axes, directions) = (list("scan_input_axes", count)?, list("scan_input_directions", count)?);
    let (to_axes, to_directions) = (list("scan_output_axes", collected)?, list("scan_output_directions", collected)?);
    let mut parts = Vec::new();
    for ((&x, &axis), &direction) in scanned.iter().zip(&axes).zip(&directions) {
        let rank = c.rank(x);
        let axis = c.axis(axis, rank)?;
        let order: Vec<usize> = [axis].into_iter().chain((0..rank).filter(|&a| a != axis)).collect();
        let x = c.transpose(x, &order)?;
        parts.push(backwards(c, x, direction)?);
    }
    let times = parts.first().map_or(0, |x| c.dims(*x)[0]);
    let mut types: Vec<Type> = starts.iter().map(|value| c.ty(*value)).collect();
    types.extend(parts.iter().map(|x| Type::tensor(c.dtype(*x), &c.dims(*x)[1..])));
    let body = c.body("body", |c| {
        let given = types.into_iter().map(|ty| c.body_input(ty)).collect::<Result<Vec<_>, _>>()?;
        c.subgraph_of("body", &given)
    })?;
    let mut results = c.looped(body, times, starts, &parts)?;
    for (at, (&axis, &direction)) in to_axes.iter().zip(&to_directions).enumerate() {
        let Some(result) = results.get(starts.len() + at).copied() else { continue };
        let rank = c.rank(result);
        let axis = c.axis(axis, rank)?;
        let result = backwards(c, result, direction)?;
        let order: Vec<usize> = (1..=axis).chain([0]).chain(axis + 1..rank).collect();
        results[starts.len() + at] = c.transpose(result, &order)?;
    }
    Ok(results)
}

/// Along the outermost axis, from the last element to the first where the direction is 1.
fn backwards(c: &mut NodeCall<'_, '_>, x: NodeId, direction: i64) -> NodeResult {
    let extent = c.dims(x)[0];
    match direction {
        0 => Ok(x),
        1 if extent == 0 => Ok(x),
        1 => c.slice_by(x, 0, extent as i64 - 1, extent, -1),
        other => Err(format!("a direction of {other}").into()),
    }
}
