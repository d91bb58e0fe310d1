//! Loops: a body that runs so many times, each time on what it carried the last time.

use super::{AttrKind::*, Class, Default, OpDef, attr, attr_or, eval::Eval, op};
use crate::{Attr, Dim, Shape, Type, graph::SubGraph, lang::Mismatch};

pub(super) const OPS: &[OpDef] = &[OpDef {
    attrs: &[
        attr("body", Graph),
        attr("times", Int),
        attr_or("carried", Int, Default::Int(0)),
        attr_or("scanned", Int, Default::Int(0)),
    ],
    ..op(
        "loop",
        "Runs the body `times` times, one after the other. Its first inputs are the `carried` values, which its first outputs are for \
         the next time; then come the `scanned` ones, of which each time has its part along the outermost axis; the others are the \
         same each time. The results are what is carried at last, then each other output of all times, along a new outermost axis.",
        Class::Loop,
        "",
        Eval::Given,
    )
}];

/// What a loop's attributes say.
pub struct Loop<'a> {
    /// What runs.
    pub body: &'a SubGraph,
    /// How often.
    pub times: usize,
    /// How many values go from one time to the next.
    pub carried: usize,
    /// How many are given part by part.
    pub scanned: usize,
}

impl<'a> Loop<'a> {
    /// Of a node's attributes; nothing where they are none of a loop.
    pub fn of(attrs: &'a [Attr]) -> Option<Loop<'a>> {
        let [body, times, carried, scanned] = attrs else { return None };
        let count = |attr: &Attr| attr.int().and_then(|n| usize::try_from(n).ok());
        Some(Loop { body: body.graph()?, times: count(times)?, carried: count(carried)?, scanned: count(scanned)? })
    }
}

fn wrong<T>(problem: String) -> Result<T, Mismatch> {
    Err(Mismatch::Form(problem))
}

/// The types of a loop's results.
pub(super) fn infer(attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
    let Some(Loop { body, times, carried, scanned }) = Loop::of(attrs) else {
        return wrong("a loop has a body, and numbers that are not negative".into());
    };
    let name = &body.name;
    if let Some((kind, (leaf, _))) =
        ["param", "state"].into_iter().find_map(|kind| Some((kind, body.named(kind).next()?)))
    {
        return wrong(format!("`{name}` has the {kind} {leaf}; a loop gives its body all values as inputs"));
    }
    if let Some(symbol) = body.all_symbols().first() {
        return wrong(format!("`{name}` has the open dimension {symbol}; bind it before"));
    }
    let inputs: Vec<(&str, &Type)> = body.named("input").map(|(input, id)| (input, body.ty(id))).collect();
    let outputs = body.outputs();
    if inputs.len() != operands.len() || carried + scanned > inputs.len() || carried > outputs.len() {
        let of_body = format!("`{name}` has {} inputs and {} outputs", inputs.len(), outputs.len());
        return wrong(format!("{of_body}; {carried} values are carried, {scanned} scanned, {} given", operands.len()));
    }
    let stacked = |ty: &Type| match ty {
        Type::Tensor(dtype, shape) => {
            let dims = [Dim::from(times)].into_iter().chain(shape.iter().cloned());
            Ok(Type::Tensor(*dtype, dims.collect::<Shape>()))
        }
        Type::Tuple(_) => wrong(format!("`{name}` gives a tuple")),
    };
    for (at, ((input, ty), given)) in inputs.iter().zip(operands).enumerate() {
        let want = if (carried..carried + scanned).contains(&at) { stacked(ty)? } else { (*ty).clone() };
        if want != **given {
            return wrong(format!("for the input {input} of `{name}` {want} is wanted, {given} given"));
        }
    }
    for ((input, ty), (output, id)) in inputs.iter().zip(outputs).take(carried) {
        if body.ty(*id) != *ty {
            return wrong(format!(
                "`{name}` carries {input}, which is {ty}, and gives {output}, which is {}",
                body.ty(*id)
            ));
        }
    }
    let last = inputs[..carried].iter().map(|(_, ty)| Ok((*ty).clone()));
    let all = outputs[carried..].iter().map(|(_, id)| stacked(body.ty(*id)));
    Ok(Type::Tuple(last.chain(all).collect::<Result<_, _>>()?))
}
