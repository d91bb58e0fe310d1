//! Views: ops without arithmetic, which only determine where each element of the result is read.

use super::{
    Access, AttrDef, AttrKind::*, Class, Default, OpDef, Piece, ViewCall, ViewMap, attr, attr_or, eval::Eval, op,
};
use crate::{
    Dim,
    index::{ANYTHING, Index, flatten, same_places, unflatten},
};

pub(super) const OPS: &[OpDef] = &[
    view(
        "transpose",
        "The axes in another order: axis i of the result is axis perm[i] of x.",
        transpose,
        &[attr("perm", Perm)],
        "(F any) F[A..] -> F[C..] (permute A perm C)",
    ),
    view(
        "reshape",
        "The same elements in row-major order, in another shape.",
        reshape,
        &[attr("shape", Shape)],
        "(F any) F[A..] -> F[C..] (shape shape C) (same-count A C)",
    ),
    view(
        "expand",
        "Repeats axes of extent 1, and adds outer axes, up to the shape (NumPy broadcast).",
        expand,
        &[attr("shape", Shape)],
        "(F any) F[A..] -> F[C..] (shape shape C) (broadcasts-to A C)",
    ),
    view(
        "slice",
        "`len` elements of an axis: from index `at` on, each `step` elements after the one before. A negative step goes backwards.",
        slice,
        &[attr("axis", Axis), attr("at", Int), attr("len", Int), attr_or("step", Int, Default::Int(1))],
        "(F any) F[A..] -> F[C..] (slice A axis at len step C)",
    ),
    view(
        "pad",
        "x with `before` elements before and `after` elements behind those of an axis, all equal to `value`.",
        pad,
        &[attr("axis", Axis), attr("before", Int), attr("after", Int), attr_or("value", Float, Default::Float(0.0))],
        "(F any) F[A..] -> F[C..] (pad A axis before after C)",
    ),
    view(
        "window",
        "Windows of an axis, which becomes two axes: the number of windows, and their `size`. Element k of window o is element \
         o·stride + k·dilation of the axis. All windows within the axis are included.",
        window,
        &[
            attr("axis", Axis),
            attr("size", Int),
            attr_or("stride", Int, Default::Int(1)),
            attr_or("dilation", Int, Default::Int(1)),
        ],
        "(F any) F[A..] -> F[C..] (window A axis size stride dilation C)",
    ),
    view(
        "concat",
        "a followed by b along an axis.",
        concat,
        &[attr("axis", Axis)],
        "(F any) F[A..] F[B..] -> F[C..] (concat A B axis C)",
    ),
    view(
        "gather",
        "The slices of the table along an axis that the ids select. The axes of the ids replace that axis. \
         An id outside 0..extent is an error; negative ids do not count from the end.",
        gather,
        &[attr_or("axis", Axis, Default::Int(0))],
        "(F any) (I int) F[A..] I[B..] -> F[C..] (gather A B axis C)",
    ),
];

/// Returns the declaration of a view op.
const fn view(
    name: &'static str,
    doc: &'static str,
    map: ViewMap,
    attrs: &'static [AttrDef],
    signature: &'static str,
) -> OpDef {
    OpDef { attrs, ..op(name, doc, Class::View(map), signature, Eval::View) }
}

/// Returns the position, counted from the first axis, of the axis in attribute `n`.
fn axis(call: &ViewCall<'_>, n: usize) -> usize {
    (call.attrs[n].int().expect("the op table declares an axis") + call.operands[0].rank() as i64) as usize
}

fn int(call: &ViewCall<'_>, n: usize) -> i64 {
    call.attrs[n].int().expect("the op table declares an integer")
}

fn transpose(call: &ViewCall<'_>) -> Result<Access, String> {
    let perm = call.attrs[0].ints().expect("the op table declares a permutation");
    let mut at = vec![Index::default(); perm.len()];
    for (coordinate, &from) in call.at.iter().zip(perm) {
        at[(from + perm.len() as i64) as usize] = coordinate.clone();
    }
    Ok(Access::direct(at))
}

fn reshape(call: &ViewCall<'_>) -> Result<Access, String> {
    let (from, to) = (&call.operands[0], call.result);
    let (Some(dims), Some(result)) = (from.capacity(), to.capacity()) else {
        return Err(format!("cannot read {from} as {to} because dimensions are not bound"));
    };
    if !same_places(from, to) {
        return Err(format!(
            "cannot read {from} as {to} because element offsets would vary from run to run: a varying axis is not outermost"
        ));
    }
    Ok(Access::direct(unflatten(&flatten(call.at, &result), &dims, call.domain)))
}

fn expand(call: &ViewCall<'_>) -> Result<Access, String> {
    let added = call.at.len() - call.operands[0].rank();
    let read = |(at, extent): (&Index, &Dim)| if *extent == Dim::Known(1) { Index::default() } else { at.clone() };
    Ok(Access::direct(call.at[added..].iter().zip(call.operands[0].iter()).map(read).collect()))
}

fn slice(call: &ViewCall<'_>) -> Result<Access, String> {
    let (axis, start, step) = (axis(call, 0), int(call, 1), int(call, 3));
    Ok(Access::direct(moved(call.at, axis, |i| i.times(step).plus(&Index::constant(start)))))
}

fn pad(call: &ViewCall<'_>) -> Result<Access, String> {
    let (axis, before) = (axis(call, 0), int(call, 1));
    let end = &Dim::Known(before) + &call.operands[0][axis];
    Ok(Access { pieces: vec![part(call.at, axis, &Dim::Known(before), &end, 0)], fill: call.attrs[3].number() })
}

fn window(call: &ViewCall<'_>) -> Result<Access, String> {
    let (axis, stride, dilation) = (axis(call, 0), int(call, 2), int(call, 3));
    let mut at = call.at.to_vec();
    let within = at.remove(axis + 1);
    at[axis] = at[axis].times(stride).plus(&within.times(dilation));
    Ok(Access::direct(at))
}

fn concat(call: &ViewCall<'_>) -> Result<Access, String> {
    let axis = axis(call, 0);
    let (first, both) = (&call.operands[0][axis], &call.result[axis]);
    let pieces = vec![part(call.at, axis, &Dim::Known(0), first, 0), part(call.at, axis, first, both, 1)];
    Ok(Access { pieces, fill: None })
}

fn gather(call: &ViewCall<'_>) -> Result<Access, String> {
    let axis = axis(call, 0);
    let after = axis + call.operands[1].rank();
    let at = [&call.at[..axis], &[Index::gathered()], &call.at[after..]].concat();
    Ok(Access {
        pieces: vec![Piece { guards: Vec::new(), operand: 0, at, via: Some((1, call.at[axis..after].to_vec())) }],
        fill: None,
    })
}

/// Returns the coordinates with the coordinate along `axis` changed.
fn moved(at: &[Index], axis: usize, change: impl FnOnce(&Index) -> Index) -> Vec<Index> {
    let mut at = at.to_vec();
    at[axis] = change(&at[axis]);
    at
}

/// Returns the piece that reads an operand for coordinates from `start` to `end` along `axis`. Its first element is
/// at `start`.
fn part(at: &[Index], axis: usize, start: &Dim, end: &Dim, operand: usize) -> Piece {
    let from = |dim: &Dim| at[axis].plus(&Index::extent(dim).times(-1));
    let guards = match (start, end) {
        (Dim::Known(start), Dim::Known(end)) => vec![(at[axis].clone(), *start..*end)],
        // The ends of a guard's range must be numbers, so a varying extent is subtracted from the coordinate instead.
        (Dim::Known(0), _) => vec![(from(end), ANYTHING.start..0)],
        _ => vec![(from(start), 0..ANYTHING.end), (from(end), ANYTHING.start..0)],
    };
    Piece { guards, operand, at: moved(at, axis, |_| from(start)), via: None }
}
