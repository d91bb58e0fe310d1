//! Defines parts of transformers by the semantics of simpler ops.

use std::rc::Rc;

use super::{attention, build::Semantics, norm, pointwise, reduce, view};
use crate::{
    call::{Call, Perm, Value},
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, find},
    term::{Poly, num, product},
};

pub(super) const OPS: &[(&str, Semantics)] =
    &[("mha", mha), ("attention-block", attention_block), ("encoder-layer", encoder_layer)];

/// Evaluates an op that is part of a layer.
fn part(call: &Call, (op, meaning): (&'static str, Semantics), attrs: Vec<Value>, args: Vec<Tensor>) -> Res<Tensor> {
    Ok(meaning(&Call { case: Rc::clone(&call.case), op, attrs, args })?.remove(0))
}

const TRANSPOSE: (&str, Semantics) = ("transpose", view::transpose);
const RESHAPE: (&str, Semantics) = ("reshape", view::reshape);
const SLICE: (&str, Semantics) = ("slice", view::slice);
const ADD: (&str, Semantics) = ("add", pointwise);
const LINEAR: (&str, Semantics) = ("linear", reduce::linear);
const SDPA: (&str, Semantics) = ("sdpa", attention::sdpa);
const ROPE: (&str, Semantics) = ("rope", attention::rope);
const LAYERNORM: (&str, Semantics) = ("layernorm", norm::layernorm);
const BLOCK: (&str, Semantics) = ("attention-block", attention_block);

/// Replaces the last `gone` axes of a shape.
fn with_axes(shape: &Shape, gone: usize, axes: &[Poly]) -> Value {
    let outer = shape[..shape.len() - gone].iter().cloned();
    Value::Shape(outer.chain(axes.iter().cloned().map(Item::axis)).collect())
}

fn swapped(call: &Call, x: Tensor) -> Res<Tensor> {
    let n = x.shape.len();
    let order = (0..n - 3).chain([n - 2, n - 3, n - 1]).collect();
    part(call, TRANSPOSE, vec![Value::Perm(Perm::Items(order))], vec![x])
}

/// Splits the last axis into heads: [.. S H·D] becomes [.. H S D].
fn split(call: &Call, x: &Tensor, heads: &Poly) -> Res<Tensor> {
    let rows = x.shape[find(&x.shape, &Poly::int(2))?].extent.clone();
    let (width, rest) = x.shape[find(&x.shape, &Poly::int(1))?].extent.divide(heads);
    if rest != Poly::zero() {
        return stop("it is undecided whether the number of heads divides an axis");
    }
    let shape = with_axes(&x.shape, 2, &[rows, heads.clone(), width]);
    swapped(call, part(call, RESHAPE, vec![shape], vec![x.clone()])?)
}

/// Evaluates attention of several heads on q, k, v and perhaps a mask, and concatenates their results.
fn attend(call: &Call, h: &Poly, attrs: Vec<Value>, mut heads: Vec<Tensor>, mask: Option<&Tensor>) -> Res<Tensor> {
    heads.extend(mask.cloned());
    let y = swapped(call, part(call, SDPA, attrs, heads)?)?;
    let [.., rows, _, width] = y.shape.as_slice() else { return stop("the heads of attention must be matrices") };
    let merged = with_axes(&y.shape, 3, &[rows.extent.clone(), product([h, &width.extent])]);
    part(call, RESHAPE, vec![merged], vec![y])
}

fn mha(call: &Call) -> Res<Vec<Tensor>> {
    let (h, g) = (call.int(0)?, call.int(1)?);
    let split_all = [(0, &h), (1, &g), (2, &g)].map(|(n, heads)| split(call, &call.args[n], heads));
    let heads = split_all.into_iter().collect::<Res<Vec<_>>>()?;
    Ok(vec![attend(call, &h, call.attrs[2..6].to_vec(), heads, call.args.get(3))?])
}

fn columns(call: &Call, x: &Tensor, at: Poly, len: Poly) -> Res<Tensor> {
    let one = Value::Axis(Poly::int(1));
    part(call, SLICE, vec![one, Value::Int(at), Value::Int(len), Value::Int(Poly::int(1))], vec![x.clone()])
}

fn word(w: &str) -> Value {
    Value::Word(w.into())
}

fn attention_block(call: &Call) -> Res<Vec<Tensor>> {
    let (h, g, a) = (call.int(0)?, call.int(1)?, &call.args);
    let all = part(call, LINEAR, vec![word("none")], vec![a[0].clone(), a[1].clone(), a[2].clone()])?;
    let width = all.shape[find(&all.shape, &Poly::int(1))?].extent.clone();
    let (depth, rest) = width.divide(&(&h + &(&g * &Poly::int(2))));
    if rest != Poly::zero() {
        return stop("it is undecided whether the number of heads divides an axis");
    }
    let (hd, gd) = (&h * &depth, &g * &depth);
    let q = split(call, &columns(call, &all, Poly::zero(), hd.clone())?, &h)?;
    let k = split(call, &columns(call, &all, hd.clone(), gd.clone())?, &g)?;
    let v = split(call, &columns(call, &all, &hd + &gd, gd)?, &g)?;
    let turn = |x: Tensor| part(call, ROPE, vec![call.attrs[6].clone()], vec![x, a[5].clone(), a[6].clone()]);
    let y = attend(call, &h, call.attrs[2..6].to_vec(), vec![turn(q)?, turn(k)?, v], a.get(7))?;
    Ok(vec![part(call, LINEAR, vec![word("none")], vec![y, a[3].clone(), a[4].clone()])?])
}

fn encoder_layer(call: &Call) -> Res<Vec<Tensor>> {
    let (h, a) = (call.attrs[0].clone(), &call.args);
    let rows = a[0].shape[find(&a[0].shape, &Poly::int(2))?].extent.clone();
    let none = Tensor::new(a[0].ty.clone(), vec![Item::axis(rows), Item::axis(Poly::zero())], |_| Ok(num(0.0)));
    let attrs = vec![
        h.clone(),
        h,
        call.attrs[1].clone(),
        Value::Number(num(0.0)),
        call.attrs[2].clone(),
        call.attrs[3].clone(),
        word("half"),
    ];
    let mut operands: Vec<Tensor> = a[..5].iter().cloned().chain([none.clone(), none]).collect();
    operands.extend(a.get(13).cloned());
    let y = part(call, BLOCK, attrs, operands)?;
    let sum = |x: Tensor, y: Tensor| part(call, ADD, vec![], vec![x, y]);
    let norm = |x: Tensor, n: usize, eps: usize| {
        part(call, LAYERNORM, vec![call.attrs[eps].clone()], vec![x, a[n].clone(), a[n + 1].clone()])
    };
    let z = norm(sum(a[0].clone(), y)?, 5, 5)?;
    let inner = part(call, LINEAR, vec![call.attrs[4].clone()], vec![z.clone(), a[7].clone(), a[8].clone()])?;
    let outer = part(call, LINEAR, vec![word("none")], vec![inner, a[9].clone(), a[10].clone()])?;
    Ok(vec![norm(sum(z, outer)?, 11, 6)?])
}
