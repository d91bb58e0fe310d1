//! Views: no arithmetic, only where each element of the result is read.

use super::{
    Access, AttrDef,
    AttrKind::*,
    Class, Default, OpDef, Piece, ViewCall, attr, attr_or,
    eval::{Call, Element, Eval, Value, tensors},
    op,
};
use crate::{
    Scalar,
    index::{Index, flatten, unflatten},
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
        "`len` elements of an axis, from `at` on, every `step`-th; a negative step goes backwards.",
        slice,
        &[attr("axis", Axis), attr("at", Int), attr("len", Int), attr_or("step", Int, Default::Int(1))],
        "(F any) F[A..] -> F[C..] (slice A axis at len step C)",
    ),
    view(
        "pad",
        "`before` and `after` more elements on an axis, all of them `value`.",
        pad,
        &[attr("axis", Axis), attr("before", Int), attr("after", Int), attr_or("value", Float, Default::Float(0.0))],
        "(F any) F[A..] -> F[C..] (pad A axis before after C)",
    ),
    view(
        "window",
        "Windows of an axis, which becomes two: their number, then `size`. Element k of window o is element \
         o·stride + k·dilation of the axis; as many windows as lie in it.",
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
        "The parts of the table, along an axis, that the ids name; the axes of ids take the place of that axis. \
         An id outside 0..extent is an error; negative ids do not count from the end.",
        gather,
        &[attr_or("axis", Axis, Default::Int(0))],
        "(F any) (I int) F[A..] I[B..] -> F[C..] (gather A B axis C)",
    ),
];

/// Ops that write a part of a tensor anew.
pub(super) const UPDATES: &[OpDef] = &[OpDef {
    attrs: &[attr("axis", Axis)],
    ..op(
        "update-slice",
        "x with the elements from `at` on along an axis replaced by those of `part`, which is as x along the other axes. What would \
         lie outside of x is left out. Where x is a state that becomes the result, nothing else is written.",
        Class::Update(update_slice),
        "(F any) (I int) F[A..] F[B..] I[] -> F[A..] (concat A B axis [C..])",
        tensors!(updated_slice),
    )
}];

const fn view(
    name: &'static str,
    doc: &'static str,
    map: fn(&ViewCall<'_>) -> Access,
    attrs: &'static [AttrDef],
    signature: &'static str,
) -> OpDef {
    OpDef { attrs, ..op(name, doc, Class::View(map), signature, Eval::View) }
}

/// The position of the axis that attribute `n` names, counted from the end of operand 0.
fn axis(call: &ViewCall<'_>, n: usize) -> usize {
    (call.attrs[n].int().expect("the op table declares an axis") + call.operands[0].len() as i64) as usize
}

fn int(call: &ViewCall<'_>, n: usize) -> i64 {
    call.attrs[n].int().expect("the op table declares an integer")
}

fn transpose(call: &ViewCall<'_>) -> Access {
    let perm = call.attrs[0].ints().expect("the op table declares a permutation");
    let mut at = vec![Index::default(); perm.len()];
    for (coordinate, &from) in call.at.iter().zip(perm) {
        at[(from + perm.len() as i64) as usize] = coordinate.clone();
    }
    Access::direct(at)
}

fn reshape(call: &ViewCall<'_>) -> Access {
    Access::direct(unflatten(&flatten(call.at, call.result), &call.operands[0], call.domain))
}

fn expand(call: &ViewCall<'_>) -> Access {
    let added = call.at.len() - call.operands[0].len();
    let read = |(at, &extent): (&Index, &usize)| if extent == 1 { Index::default() } else { at.clone() };
    Access::direct(call.at[added..].iter().zip(&call.operands[0]).map(read).collect())
}

fn slice(call: &ViewCall<'_>) -> Access {
    let (axis, start, step) = (axis(call, 0), int(call, 1), int(call, 3));
    Access::direct(moved(call.at, axis, |i| i.times(step).plus(&Index::constant(start))))
}

fn pad(call: &ViewCall<'_>) -> Access {
    let (axis, before) = (axis(call, 0), int(call, 1));
    let extent = call.operands[0][axis] as i64;
    Access { pieces: vec![part(call.at, axis, before..before + extent, 0)], fill: call.attrs[3].float() }
}

fn window(call: &ViewCall<'_>) -> Access {
    let (axis, stride, dilation) = (axis(call, 0), int(call, 2), int(call, 3));
    let mut at = call.at.to_vec();
    let within = at.remove(axis + 1);
    at[axis] = at[axis].times(stride).plus(&within.times(dilation));
    Access::direct(at)
}

fn concat(call: &ViewCall<'_>) -> Access {
    let axis = axis(call, 0);
    let (first, both) = (call.operands[0][axis] as i64, call.result[axis] as i64);
    Access { pieces: vec![part(call.at, axis, 0..first, 0), part(call.at, axis, first..both, 1)], fill: None }
}

fn gather(call: &ViewCall<'_>) -> Access {
    let axis = axis(call, 0);
    let after = axis + call.operands[1].len();
    let at = [&call.at[..axis], &[Index::gathered()], &call.at[after..]].concat();
    Access {
        pieces: vec![Piece { guards: Vec::new(), operand: 0, at, via: Some((1, call.at[axis..after].to_vec())) }],
        fill: None,
    }
}

fn update_slice(call: &ViewCall<'_>) -> Piece {
    let axis = axis(call, 0);
    let at = moved(call.at, axis, |i| i.plus(&Index::gathered()));
    Piece { guards: vec![(at[axis].clone(), 0..call.result[axis] as i64)], operand: 0, at, via: Some((2, Vec::new())) }
}

fn updated_slice<S: Scalar>(call: &Call<'_, S>) -> Vec<Value<S>> {
    let [x, part, at] = call.operands else { unreachable!("the signature has three operands") };
    let axis = (call.attrs[0].int().expect("the op table declares an axis") + x.dims.len() as i64) as usize;
    let (extent, rows, inner) = (x.dims[axis], part.dims[axis], x.dims[axis + 1..].iter().product::<usize>());
    let element = |n: usize| {
        let Element::Int(Some(at)) = at.get(0) else { return Element::open(x.dtype) };
        let (outer, place) = (n / inner / extent, n / inner % extent);
        match usize::try_from((place as i64).wrapping_sub(at)) {
            Ok(row) if row < rows => part.get((outer * rows + row) * inner + n % inner),
            _ => x.get(n),
        }
    };
    vec![Value::from_elements(x.dtype, &x.dims, (0..x.count()).map(element))]
}

/// The coordinates with the one along `axis` changed.
fn moved(at: &[Index], axis: usize, change: impl FnOnce(&Index) -> Index) -> Vec<Index> {
    let mut at = at.to_vec();
    at[axis] = change(&at[axis]);
    at
}

/// The part of the result that lies in `range` along `axis`: there the operand starts.
fn part(at: &[Index], axis: usize, range: std::ops::Range<i64>, operand: usize) -> Piece {
    let shifted = moved(at, axis, |i| i.plus(&Index::constant(-range.start)));
    Piece { guards: vec![(at[axis].clone(), range)], operand, at: shifted, via: None }
}
