//! Evaluates kernels point by point, as `eutectic_backend` defines them.

use eutectic_backend::{Attention, Body, Contraction, EmptyRow, Guard, Instr, Kernel};
use eutectic_ir::{DType, Tensor, bounded::hides, ops::Reduction};

use super::elements::{Val, eval, wrap, zero};

/// Returns the points of a domain. The innermost axis varies fastest.
pub fn points(domain: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..domain.iter().product::<usize>()).map(|mut n| {
        let mut point = vec![0; domain.len()];
        for d in (0..domain.len()).rev() {
            point[d] = n % domain[d];
            n /= domain[d];
        }
        point
    })
}

/// Evaluates a kernel. Returns the contents of each stored buffer, with `None` for elements to which nothing is stored.
pub fn kernel(kernel: &Kernel, inputs: &[Tensor]) -> Vec<Vec<Option<f64>>> {
    let stored = |slot: usize| kernel.stores.iter().any(|s| s.slot == slot);
    let mut given = inputs.iter();
    let buffers: Vec<Vec<Val>> = (0..kernel.slots.len())
        .map(|slot| if stored(slot) { Vec::new() } else { values(given.next().expect("each load has an input")) })
        .collect();
    let operand = |body: &Body| {
        let all = evaluate(body, &buffers, &[], 0);
        all[body.results[0]].iter().map(|v| v.real()).collect::<Vec<f64>>()
    };
    let domain = &kernel.body.domain;
    let anchor = match (kernel.contraction(), kernel.attention()) {
        (Some(Contraction { lhs, rhs, axes }), _) => {
            let [b, m, n] = extents(domain, [axes.batch, axes.rows, axes.columns]);
            let [.., k] = extents(&lhs.domain, [axes.batch, axes.rows, axes.depth]);
            let float = lhs.instrs[lhs.results[0]].dtype().is_float();
            product([b, m, n, k], &operand(lhs), &operand(rhs), float)
        }
        (_, Some(Attention { query, key, value, bias, axes, form })) => attention(
            extents(domain, [axes.batch, axes.queries, axes.columns]),
            extents(&key.domain, [axes.batch, axes.keys, axes.depth]),
            [&operand(query), &operand(key), &operand(value)],
            bias.map(operand),
            (form.scale, form.softcap, form.empty, key.instrs[key.results[0]].dtype()),
        ),
        _ => Vec::new(),
    };
    let rows = kernel.row_axes().unwrap_or(0);
    let all = evaluate(&kernel.body, &buffers, &anchor, rows);
    let mut written: Vec<Vec<Option<f64>>> = kernel.slots.iter().map(|s| vec![None; s.1]).collect();
    for store in &kernel.stores {
        let holds = |point: &[usize]| {
            let within = |(index, range): &Guard| range.contains(&index.eval(point, &|_| panic!("stores are affine")));
            store.guards.iter().all(within)
        };
        for (n, point) in points(domain).enumerate().filter(|(_, point)| holds(point)) {
            let at = store.at.eval(&point, &|_| panic!("stores are affine")) as usize;
            written[store.slot][at] = Some(all[store.value][n].real());
        }
    }
    (0..kernel.slots.len()).filter(|&s| stored(s)).map(|s| std::mem::take(&mut written[s])).collect()
}

fn values(tensor: &Tensor) -> Vec<Val> {
    if tensor.dtype().is_float() {
        tensor.to_f64().into_iter().map(Val::Real).collect()
    } else {
        tensor.to_i64().into_iter().map(Val::Int).collect()
    }
}

/// Returns the values of each instruction at all points.
fn evaluate(body: &Body, buffers: &[Vec<Val>], anchor: &[Val], rows: usize) -> Vec<Vec<Val>> {
    let domain = &body.domain;
    let mut all: Vec<Vec<Val>> = Vec::new();
    for instr in &body.instrs {
        let values = match instr {
            Instr::Anchor { .. } => anchor.to_vec(),
            Instr::Constant { value, dtype } => {
                let x = value.tensor(*dtype);
                vec![values(&x)[0]; domain.iter().product()]
            }
            Instr::Row { op, dtype, .. } => {
                let (how, arg) = instr.reduction().unwrap_or_else(|| panic!("kernels of tests have no `{op}`"));
                let row: usize = domain[domain.len() - rows..].iter().product();
                let rows = all[arg].chunks(row.max(1)).flat_map(|r| vec![reduce(how, r, *dtype); row]);
                rows.collect()
            }
            _ => points(domain).enumerate().map(|(n, point)| at_point(instr, body, buffers, &all, n, &point)).collect(),
        };
        all.push(values);
    }
    all
}

fn at_point(instr: &Instr, body: &Body, buffers: &[Vec<Val>], all: &[Vec<Val>], n: usize, point: &[usize]) -> Val {
    let read = |v: usize| all[v][n].int();
    let holds = |guards: &[Guard]| guards.iter().all(|(i, range)| range.contains(&i.eval(point, &read)));
    match instr {
        Instr::Load(load) if holds(&load.guards) => buffers[load.slot][load.at.eval(point, &read) as usize],
        Instr::Load(load) => zero(load.dtype),
        Instr::Coordinate { index, dtype } => {
            let n = index.eval(point, &read);
            if dtype.is_float() { Val::Real(n as f64) } else { Val::Int(wrap(n, *dtype)) }
        }
        Instr::Map { op, attrs, args, dtype } => {
            let from = body.instrs[*args.last().unwrap()].dtype();
            let args: Vec<_> = args.iter().map(|&a| all[a][n]).collect();
            eval(*op, attrs, from, *dtype, &args)
        }
        Instr::Within { arg, extent, from_end, .. } => match all[*arg][n].int() {
            id if *from_end && id < 0 => Val::Int(id + extent.known().expect("kernels of tests have known extents")),
            id => Val::Int(id),
        },
        Instr::Select { pieces, fill, dtype } => match pieces.iter().find(|p| holds(&p.0)) {
            Some(piece) => all[piece.1][n],
            None => values(&fill.tensor(*dtype))[0],
        },
        _ => unreachable!("not pointwise"),
    }
}

fn reduce(how: Reduction, row: &[Val], dtype: DType) -> Val {
    if dtype.is_float() {
        let row = row.iter().map(|v| v.real());
        let nan = |a: f64, b: f64, c: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { c };
        return Val::Real(match how {
            Reduction::Sum => row.sum(),
            Reduction::Product => row.product(),
            Reduction::Max => row.fold(f64::NEG_INFINITY, |a, b| nan(a, b, a.max(b))),
            Reduction::Min => row.fold(f64::INFINITY, |a, b| nan(a, b, a.min(b))),
        });
    }
    let row = row.iter().map(|v| v.int());
    Val::Int(wrap(
        match how {
            Reduction::Sum => row.fold(0, i64::wrapping_add),
            Reduction::Product => row.fold(1, i64::wrapping_mul),
            Reduction::Max => row.max().unwrap(),
            Reduction::Min => row.min().unwrap(),
        },
        dtype,
    ))
}

/// Returns the number of points of each of three groups of axes. `groups` has the number of axes of each group.
fn extents(domain: &[usize], groups: [usize; 3]) -> [usize; 3] {
    let (first, rest) = domain.split_at(groups[0]);
    let (second, third) = rest.split_at(groups[1]);
    [first, second, third].map(|group| group.iter().product())
}

fn product([b, m, n, k]: [usize; 4], lhs: &[f64], rhs: &[f64], float: bool) -> Vec<Val> {
    let sum = |b: usize, i: usize, j: usize| -> f64 {
        (0..k).map(|l| lhs[(b * m + i) * k + l] * rhs[(b * k + l) * n + j]).sum()
    };
    let value = |x: f64| if float { Val::Real(x) } else { Val::Int(x as i64) };
    (0..b * m * n).map(|p| value(sum(p / (m * n), p / n % m, p % n))).collect()
}

fn attention(
    [batch, s, e]: [usize; 3],
    [_, t, d]: [usize; 3],
    [q, k, v]: [&[f64]; 3],
    bias: Option<Vec<f64>>,
    (scale, softcap, empty, dtype): (f64, f64, EmptyRow, DType),
) -> Vec<Val> {
    let mut out = Vec::new();
    for b in 0..batch {
        for i in 0..s {
            let biases = |j: usize| bias.as_ref().map_or(0.0, |bias| bias[(b * s + i) * t + j]);
            let hidden = |j: usize| empty.selects() && biases(j) == f64::NEG_INFINITY;
            let scores: Vec<f64> = (0..t)
                .map(|j| {
                    let x: f64 = (0..d).map(|l| q[(b * s + i) * d + l] * k[(b * t + j) * d + l]).sum();
                    let x = scale * x;
                    let x = if softcap == 0.0 { x } else { softcap * (x / softcap).tanh() };
                    if empty.selects() && hides(biases(j), dtype) { biases(j) } else { x + biases(j) }
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let none = scores.iter().all(|x| *x == f64::NEG_INFINITY);
            for c in 0..e {
                let x: f64 = (0..t).filter(|&j| !hidden(j)).map(|j| weights[j] * v[(b * t + j) * e + c]).sum();
                out.push(Val::Real(match empty {
                    EmptyRow::Zeros if none => 0.0,
                    EmptyRow::Nan if none => f64::NAN,
                    EmptyRow::Guarded if sum.is_nan() => 0.0,
                    _ => x / sum,
                }));
            }
        }
    }
    out
}
