//! Branches and loops. An `If` with a known condition becomes the selected branch. With any other condition, both
//! branches are computed, and the op `where` selects the result.
//!
//! A loop becomes the op `loop`. That op has either a known trip count, or a limit on iterations and a condition that
//! ends it.

use eutectic_ir::{DType, NodeId, Tensor, Type};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, Outputs, many},
};

pub(super) const OPS: &[OpRow] = &[many("If", 1, branch), many("Loop", 1, repeat), many("Scan", 9, scan)];

/// Imports `If`.
fn branch(c: &mut NodeCall<'_, '_>) -> Outputs {
    let condition = c.input(0)?;
    if let Some(known) = c.value(condition) {
        return c.subgraph(if known.to_i64().first() == Some(&1) { "then_branch" } else { "else_branch" }, &[]);
    }
    let condition = truth(c, condition)?;
    let (then, otherwise) = (c.subgraph("then_branch", &[])?, c.subgraph("else_branch", &[])?);
    if then.len() != otherwise.len() {
        return Err(
            format!("its branches have {} and {} results, but need equally many", then.len(), otherwise.len()).into()
        );
    }
    let choice = |(at, (a, b)): (usize, (NodeId, NodeId))| {
        if c.ty(a) != c.ty(b) {
            let types = format!("{} if its condition holds, and {} otherwise", c.ty(a), c.ty(b));
            return Err(NodeError(format!("its result {at} is {types}; give the condition a fixed value (--input)")));
        }
        c.apply("where", [condition, a, b])
    };
    then.into_iter().zip(otherwise).enumerate().map(choice).collect()
}

/// Checks that a condition has one element and returns it as a scalar.
fn truth(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    if c.dtype(x) != DType::Bool || c.dims(x).iter().product::<usize>() != 1 {
        return Err(format!("its condition has type {}, but must be one Boolean", c.ty(x)).into());
    }
    c.scalar(x)
}

/// Returns a Boolean if its value is known.
fn holds(c: &NodeCall<'_, '_>, x: NodeId) -> Option<bool> {
    c.value(x).map(|known| known.to_i64().first() == Some(&1))
}

/// The maximum trip count of a `Loop`, its first input.
enum Most {
    /// A number that is known during the import.
    Known(usize),
    /// A value that each run computes, or no limit.
    Open(Option<NodeId>),
}

impl Most {
    /// Reads the maximum trip count. A number beyond the limit of the op `loop` counts as no limit.
    fn read(c: &NodeCall<'_, '_>) -> Most {
        let Some(most) = c.optional(0) else { return Most::Open(None) };
        match c.value(most).and_then(|known| known.to_i64().first().copied()) {
            Some(most) => usize::try_from(most.max(0))
                .ok()
                .filter(|most| *most <= MOST_TRIPS)
                .map_or(Most::Open(None), Most::Known),
            None => Most::Open(Some(most)),
        }
    }
}

/// The largest trip count in the file that is kept even if it exceeds `most_times`. That option limits loops whose trip
/// count the file does not state.
const COUNTED: usize = 1 << 14;

/// The largest trip count that the import computes from a condition.
const MOST_TRIPS: usize = 1 << 24;

/// The event that ends a loop.
enum Ending {
    /// The end of the iteration with this number, from 1 on.
    After(usize),
    /// A condition that becomes false.
    While,
}

/// Imports `Loop`. Its inputs are the maximum trip count, the initial condition, and the carried values. The body takes
/// the number of the iteration, the condition and the carried values, and returns the next condition first. If the trip
/// count follows from known values, the op `loop` gets that count. Otherwise the condition is a carried value that ends
/// the loop.
fn repeat(c: &mut NodeCall<'_, '_>) -> Outputs {
    let most = Most::read(c);
    let start = c.optional(1).map(|start| truth(c, start)).transpose()?;
    let known = start.map_or(Some(true), |start| holds(c, start));
    let values: Vec<NodeId> = (2..).map_while(|at| c.optional(at)).collect();
    let types: Vec<Type> = values.iter().map(|value| c.ty(*value)).collect();
    let known_values: Vec<Option<Tensor>> = values.iter().map(|value| c.value(*value)).collect();
    let (mut ending, mut outputs) = (Ending::While, 0);
    let body = c.body("body", |c| {
        let runs = c.body_input(Type::tensor(DType::Bool, &[]))?;
        let carried = types.iter().map(|ty| c.body_input(ty.clone())).collect::<Result<Vec<_>, _>>()?;
        let number = c.body_input(Type::tensor(DType::I64, &[]))?;
        let results = c.subgraph_of("body", &[&[number, runs], carried.as_slice()].concat())?;
        let (&goes_on, results) = results.split_first().ok_or("its body has no output for the condition")?;
        outputs = results.len();
        let mut on = truth(c, goes_on)?;
        let always = goes_on == runs || holds(c, goes_on) == Some(true);
        let count = match (known, &most) {
            (Some(false), _) => Some(0),
            (Some(true), Most::Known(most)) if always => Some(*most),
            (Some(true), Most::Open(None)) if always => {
                return Err("it never ends because its condition is always true and it has no trip count".into());
            }
            (Some(true), Most::Known(_) | Most::Open(None)) => {
                let most = if let Most::Known(most) = most { most } else { MOST_TRIPS };
                let given = [(runs, Some(Tensor::from_i64(DType::Bool, &[], [1])))].into_iter();
                let given = given.chain(carried.iter().copied().zip(known_values));
                let next: Vec<NodeId> = [on].into_iter().chain(results.iter().copied()).collect();
                c.trip_count(number, &given.zip(next).collect::<Vec<_>>(), most).filter(|count| *count < MOST_TRIPS)
            }
            _ => None,
        };
        if let Some(count) = count {
            ending = Ending::After(count);
            return Ok([&[runs], results].concat());
        }
        if let Most::Open(Some(most)) = most {
            let next = c.with("add", number, 1.0)?;
            let within = counted(c, next, most, true)?;
            on = c.apply("and", [on, within])?;
        }
        Ok([&[on], results].concat())
    })?;
    let start = match start {
        Some(start) => start,
        None => c.constant(Tensor::from_i64(DType::Bool, &[], [1]))?,
    };
    if let Ending::After(times) = ending {
        let number = c.iota(&[times], 0, DType::I64)?;
        let results = c.looped(body, times, &[&[start], values.as_slice()].concat(), &[number], None)?;
        return Ok(results[1..].to_vec());
    }
    if outputs > values.len() {
        return Err("its trip count depends on the model's inputs, and so does the shape of its scan outputs".into());
    }
    let start = match most {
        Most::Open(Some(most)) => {
            let zero = c.number_of(0.0, DType::I64)?;
            let within = counted(c, zero, most, false)?;
            c.apply("and", [start, within])?
        }
        _ => start,
    };
    let limit = c.most_times();
    let times = if let Most::Known(most) = most { most.min(limit.max(COUNTED)) } else { limit };
    let number = c.iota(&[times], 0, DType::I64)?;
    let results = c.looped(body, times, &[&[start], values.as_slice()].concat(), &[number], Some(0))?;
    if matches!(most, Most::Known(most) if most == times) {
        return Ok(results[1..].to_vec());
    }
    let why = format!(
        "the condition of the loop is still true after {times} iterations; allow more iterations when the model is read"
    );
    results[1..].iter().map(|result| c.fail_if(results[0], *result, &why)).collect()
}

/// Compares an iteration number with the trip count `most`, a value of the enclosing graph. `inside` says whether the
/// comparison is part of the loop's body.
fn counted(c: &mut NodeCall<'_, '_>, number: NodeId, most: NodeId, inside: bool) -> NodeResult {
    let most = if inside { c.capture(most)? } else { most };
    if c.dims(most).iter().product::<usize>() != 1 {
        return Err(format!("its trip count has type {}, but must be one number", c.ty(most)).into());
    }
    let most = c.cast(most, DType::I64)?;
    let most = c.scalar(most)?;
    c.apply("lt", [number, most])
}

/// Imports `Scan`. Its inputs are carried values, then scanned values. Each scanned value has an axis and a direction.
/// Outputs have the same order.
fn scan(c: &mut NodeCall<'_, '_>) -> Outputs {
    let inputs = c.inputs();
    let count = c.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let count = count
        .filter(|&n| (1..=inputs.len()).contains(&n))
        .ok_or("its `num_scan_inputs` is missing, or not from 1 to the number of its inputs")?;
    let (starts, scanned) = inputs.split_at(inputs.len() - count);
    let collected = c.outputs().saturating_sub(starts.len());
    let list = |name: &str, n: usize| match c.ints(name)? {
        Some(given) if given.len() != n => {
            Err(NodeError(format!("its `{name}` has {} numbers, but must have {n}", given.len())))
        }
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
    let mut results = c.looped(body, times, starts, &parts, None)?;
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

/// Reverses the outermost axis if `direction` is 1, and not if it is 0.
fn backwards(c: &mut NodeCall<'_, '_>, x: NodeId, direction: i64) -> NodeResult {
    let extent = c.dims(x)[0];
    match direction {
        0 => Ok(x),
        1 if extent == 0 => Ok(x),
        1 => c.slice_by(x, 0, extent as i64 - 1, extent, -1),
        other => Err(format!("its scan direction is {other}; it must be 0 or 1").into()),
    }
}
