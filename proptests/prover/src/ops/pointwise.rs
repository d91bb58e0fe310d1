//! Functions of elements, with NumPy broadcasting of the operands.

use std::rc::Rc;

use eutectic_ir::Op;

use super::build::one;
use crate::{
    call::{Call, Case, Value},
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, expanded, show},
    term::{T, Term, Ty, apply},
};

/// Evaluates a pointwise op of the table.
pub fn pointwise(call: &Call) -> Res<Vec<Tensor>> {
    let ty = result_type(call)?;
    let name = name(call)?;
    let bounds = if call.op == "clamp" { vec![call.number(0)?, call.number(1)?] } else { Vec::new() };
    let of = ty.clone();
    one(map(&call.case, ty, &call.args, move |args| {
        match bounds.as_slice() {
            // min(max(x, least), most), as the table says.
            [least, most] => {
                apply("min", &of, vec![apply("max", &of, vec![args[0].clone(), least.clone()]), most.clone()])
            }
            _ => apply(&name, &of, args),
        }
    })?)
}

/// Applies a function to the elements of operands that broadcast.
pub fn map(case: &Rc<Case>, ty: Ty, args: &[Tensor], f: impl Fn(Vec<T>) -> T + 'static) -> Res<Tensor> {
    let mut shape = Shape::new();
    for arg in args {
        shape = broadcast(case, &shape, &arg.shape)?;
    }
    let (case, args, to, left) = (Rc::clone(case), args.to_vec(), shape.clone(), case.left.get());
    for arg in &args {
        expanded(&case.facts, &case.broadcasts, &arg.shape, &to, &vec![Default::default(); to.len()], left)?;
    }
    Ok(Tensor::new(ty, shape, move |at| {
        let element = |arg: &Tensor| {
            let at = expanded(&case.facts, &case.broadcasts, &arg.shape, &to, at, left)?;
            (arg.at)(&at)
        };
        Ok(f(args.iter().map(element).collect::<Res<_>>()?))
    }))
}

/// Returns the NumPy broadcast of two shapes, if it is the same for all values of the symbolic extents.
pub fn broadcast(case: &Case, a: &Shape, b: &Shape) -> Res<Shape> {
    let fits = |from: &Shape, to: &Shape| {
        from.iter().rev().zip(to.iter().rev()).all(|(x, y)| x == y || x.is_one() && y.rank.is_none())
            && (from.len() <= to.len() || from[..from.len() - to.len()].iter().all(Item::is_one))
            && axes_fit(from, to)
    };
    for (from, to) in [(a, b), (b, a)] {
        if from.len() <= to.len() && fits(from, to) {
            return Ok(to.clone());
        }
    }
    if let Some(both) = itemwise(a, b) {
        return Ok(both);
    }
    // A relation of the rule may state the broadcast.
    let known = case.broadcasts.borrow();
    let to = |from: &Shape| -> Vec<Shape> {
        known.iter().filter(|(x, _)| x == from).map(|(_, y)| y.clone()).chain([from.clone()]).collect()
    };
    for x in to(a) {
        for y in to(b) {
            if x == y {
                return Ok(x);
            }
            for (from, to) in [(&x, &y), (&y, &x)] {
                if from.len() <= to.len() && fits(from, to) {
                    return Ok(to.clone());
                }
            }
        }
    }
    stop(format!("the broadcast of {} and {} is unknown", show(a), show(b)))
}

/// Returns whether no sequence is aligned with a single axis.
fn axes_fit(from: &Shape, to: &Shape) -> bool {
    from.iter().rev().zip(to.iter().rev()).all(|(x, y)| x.rank == y.rank || x.rank.is_none() && y.rank.is_none())
}

/// Broadcasts axis by axis, if paired axes are equal or one of them has extent 1.
fn itemwise(a: &Shape, b: &Shape) -> Option<Shape> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut result = long.clone();
    let skipped = long.len() - short.len();
    for (x, y) in result[skipped..].iter_mut().zip(short) {
        match (x.is_one(), y.is_one()) {
            _ if x == y => {}
            (true, _) if y.rank.is_none() => *x = y.clone(),
            (_, true) if x.rank.is_none() => {}
            _ => return None,
        }
    }
    Some(result)
}

/// Returns the element type of the result.
fn result_type(call: &Call) -> Res<Ty> {
    if let (Some(Value::Type(to)), "cast") = (call.attrs.first(), call.op) {
        return Ok(to.clone());
    }
    // The signature gives the type: a fixed one, or the type of an operand.
    let signature = Op::named(call.op).map(Op::signature);
    let result = signature.and_then(|s| match s.results.first() {
        Some(eutectic_ir::lang::typing::SignatureResult::Pattern(p)) => Some((s, p.dtype)),
        _ => None,
    });
    use eutectic_ir::lang::typing::DTypePattern;
    match result {
        Some((_, DTypePattern::Fixed(dtype))) => Ok(Ty::fixed(dtype)),
        Some((signature, own)) => {
            let of = signature.operands.iter().position(|p| p.dtype == own);
            of.and_then(|n| call.args.get(n))
                .map_or_else(|| stop("the element type of a result is unknown"), |t| Ok(t.ty.clone()))
        }
        None => stop("the element type of a result is unknown"),
    }
}

/// Returns the name of the function, including attributes that select it.
fn name(call: &Call) -> Res<Rc<str>> {
    Ok(match call.op {
        "act" => format!("act {}", call.word(0)?).into(),
        op => op.into(),
    })
}

/// Evaluates `iota`: each element is its coordinate along an axis.
pub fn iota(call: &Call) -> Res<Vec<Tensor>> {
    let (shape, Value::Type(ty)) = (call.shape(0)?, &call.attrs[2]) else {
        return stop("the element type of a result is unknown");
    };
    let axis = call.axis(1, &shape)?;
    let ty = ty.clone();
    let own = ty.clone();
    one(Tensor::new(ty, shape, move |at| {
        let index = Rc::new(Term::Index(at[axis].clone()));
        // Only 64 bits represent every coordinate.
        let wide = own.dtype == Some(eutectic_ir::DType::I64);
        Ok(if wide { index } else { apply("wrap", &own, vec![index]) })
    }))
}
