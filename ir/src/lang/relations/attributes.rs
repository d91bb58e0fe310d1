//! Relations of attributes and element types.

use super::{
    super::{
        relation::{Relation, RelationArg},
        typing::{Bindings, Bound, Status},
    },
    bind,
};
use crate::{Attr, DType, bounded::hides};

/// Checks that a number attribute satisfies a predicate, once the attribute is bound.
fn guarded(number: &RelationArg, bindings: &Bindings, is: impl Fn(f64) -> bool, what: &str) -> Result<Status, String> {
    let known = number.attr(bindings).and_then(|attr| attr.float().or_else(|| attr.int().map(|n| n as f64)));
    match known {
        Some(x) if is(x) => Ok(Status::Done),
        Some(x) => Err(format!("the number {x} {what}")),
        None => Ok(Status::Later),
    }
}

/// Returns whether x/c and x·(1/c) are bitwise equal for every x of an element type.
fn inverts(x: f64, dtype: DType) -> bool {
    let (least, most) = dtype.normal_range();
    let normal = |x: f64| x.is_normal() && (least..=most).contains(&x.abs());
    // A power of two has only zeros after the leading bit of its significand.
    let power = x.to_bits() << 12 == 0;
    power && normal(x) && normal(1.0 / x)
}

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        name: "dtype",
        doc: "The element-type attribute is D.",
        parameters: &["attribute", "D"],
        numbers: false,
        solve: |args, bindings| {
            let RelationArg::DType(slot) = args[1] else {
                return Err("the second argument must be an element type".into());
            };
            match (args[0].attr(bindings).and_then(Attr::dtype), bindings.get(slot), &args[0]) {
                (Some(d), _, _) => bind(slot, Bound::DType(d), bindings),
                (_, Some(Bound::DType(d)), RelationArg::Attr(attr)) => {
                    let d: DType = *d;
                    bind(*attr, Bound::Attr(Attr::DType(d)), bindings)
                }
                _ => Ok(Status::Later),
            }
        },
        sample: |args, sampler| match args[1] {
            RelationArg::DType(slot) => sampler.dtype_of(slot).map(|_| ()),
            _ => Err("the second argument must be an element type".into()),
        },
    },
    Relation {
        name: "holds",
        doc: "The attribute is true.",
        parameters: &["attribute"],
        numbers: false,
        solve: |args, bindings| match (args[0].attr(bindings).and_then(Attr::bool), &args[0]) {
            (Some(true), _) => Ok(Status::Done),
            (Some(false), _) => Err("the attribute is false".into()),
            (None, RelationArg::Attr(slot)) => bind(*slot, Bound::Attr(true.into()), bindings),
            (None, _) => Err("the argument must be an attribute".into()),
        },
        sample: |args, sampler| sampler.set_attr(&args[0], true),
    },
    Relation {
        name: "nonzero",
        doc: "The number is not 0.",
        parameters: &["number"],
        numbers: false,
        solve: |args, bindings| match args[0].attr(bindings).and_then(Attr::float) {
            Some(0.0) => Err("the number is 0".into()),
            Some(_) => Ok(Status::Done),
            None => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let number = *sampler.of(&[0.5, -2.0, 30.0]);
            sampler.set_attr(&args[0], number)
        },
    },
    Relation {
        name: "positive",
        doc: "The number is greater than 0.",
        parameters: &["number"],
        numbers: false,
        solve: |args, bindings| guarded(&args[0], bindings, |x| x > 0.0, "is not positive"),
        sample: |args, sampler| {
            let number = *sampler.of(&[0.5, 1.0, 2.0, 3.0, 1e-5, 30.0, 0.125, 1e3]);
            sampler.set_attr(&args[0], number)
        },
    },
    Relation {
        name: "whole",
        doc: "The number is an integer.",
        parameters: &["number"],
        numbers: false,
        solve: |args, bindings| guarded(&args[0], bindings, |x| x.fract() == 0.0, "is not an integer"),
        sample: |args, sampler| {
            let number = *sampler.of(&[0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 5.0, 8.0]);
            sampler.set_attr(&args[0], number)
        },
    },
    Relation {
        name: "between",
        doc: "The number is at least the second and at most the third.",
        parameters: &["number", "least", "most"],
        numbers: true,
        solve: |args, bindings| match (args[1].number(bindings), args[2].number(bindings)) {
            (Some(least), Some(most)) => {
                let within = |x: f64| (least..=most).contains(&x);
                guarded(&args[0], bindings, within, &format!("is not from {least} to {most}"))
            }
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let ends = (args[1].number(&sampler.bindings), args[2].number(&sampler.bindings));
            let (Some(least), Some(most)) = ends else {
                return Err("cannot choose the number because the ends of its range are unbound".into());
            };
            let part = *sampler.of(&[0.0, 1.0, 0.5, 0.125, 0.75]);
            sampler.set_attr(&args[0], least + (most - least) * part)
        },
    },
    Relation {
        name: "hides",
        doc: "The number stands for −∞ among scores of element type F: it is −∞, or so low that it absorbs any score up to \
              2⁹² that a kernel adds to it.",
        parameters: &["number", "F"],
        numbers: false,
        solve: |args, bindings| {
            let RelationArg::DType(slot) = args[1] else {
                return Err("the second argument must be an element type".into());
            };
            let Some(Bound::DType(dtype)) = bindings.get(slot) else { return Ok(Status::Later) };
            guarded(&args[0], bindings, |x| hides(x, *dtype), &format!("does not hide every score of {dtype}"))
        },
        sample: |args, sampler| {
            let RelationArg::DType(slot) = args[1] else {
                return Err("the second argument must be an element type".into());
            };
            let dtype = sampler.dtype_of(slot)?;
            // −∞, the least finite numbers of `f32` and `f64`, and the greatest numbers that stand for −∞ among scores
            // of these two types.
            let all = [f64::NEG_INFINITY, f64::from(f32::MIN), f64::MIN, -2_f64.powi(117), -2_f64.powi(146)];
            let hiding: Vec<f64> = all.into_iter().filter(|x| hides(*x, dtype)).collect();
            let number = *sampler.of(&hiding);
            sampler.set_attr(&args[0], number)
        },
    },
    Relation {
        name: "inverts",
        doc: "The number c is a power of two or its negative, and 1/c is a normal number of element type F: x/c and x·(1/c) are equal.",
        parameters: &["number", "F"],
        numbers: false,
        solve: |args, bindings| {
            let RelationArg::DType(slot) = args[1] else {
                return Err("the second argument must be an element type".into());
            };
            let Some(Bound::DType(dtype)) = bindings.get(slot) else { return Ok(Status::Later) };
            guarded(&args[0], bindings, |x| inverts(x, *dtype), &format!("has no exact reciprocal in {dtype}"))
        },
        sample: |args, sampler| {
            let RelationArg::DType(slot) = args[1] else {
                return Err("the second argument must be an element type".into());
            };
            sampler.dtype_of(slot)?;
            let number = *sampler.of(&[1.0, 2.0, -8.0, 0.25, 1024.0, -0.5]);
            sampler.set_attr(&args[0], number)
        },
    },
    Relation {
        name: "mask",
        doc: "The mask operand has the type that the word requires: bool for `keep`, F for `additive`, and no operand for \
              other words. `window` is the number of visible keys for the word `window`, and 0 otherwise. Operands are \
              bound before relations, so M is unbound only if there is no mask.",
        parameters: &["mask", "window", "M", "F"],
        numbers: false,
        solve: |args, bindings| {
            let (RelationArg::DType(given), RelationArg::DType(scores)) = (&args[2], &args[3]) else {
                return Err("the third and fourth arguments must be element types".into());
            };
            let (Some(kind), Some(window)) =
                (args[0].attr(bindings).and_then(Attr::word), args[1].attr(bindings).and_then(Attr::int))
            else {
                return Ok(Status::Later);
            };
            let keep = Bound::DType(DType::Bool);
            let want = match kind {
                "keep" => Some(&keep),
                "additive" => bindings.get(*scores),
                _ => None,
            };
            let show = |d: Option<&Bound>| d.map_or("no mask operand".to_string(), |d| format!("a mask of {d}"));
            match bindings.get(*given) {
                given if given != want => {
                    Err(format!(":mask {kind} needs {}, but {} is given", show(want), show(given)))
                }
                _ if (kind == "window") != (window > 0) => {
                    Err(format!(":window is {window}, but it must be positive for :mask window, and 0 for other masks"))
                }
                _ => Ok(Status::Done),
            }
        },
        sample: |args, sampler| {
            let (RelationArg::DType(given), RelationArg::DType(scores)) = (&args[2], &args[3]) else {
                return Err("the third and fourth arguments must be element types".into());
            };
            let scores = sampler.dtype_of(*scores)?;
            let words: &[&str] =
                if sampler.needs(*given) { &["keep", "additive"] } else { &["none", "causal", "window"] };
            let kind = match args[0].attr(&sampler.bindings).and_then(Attr::word) {
                Some(kind) => kind.to_string(),
                None => sampler.of(words).to_string(),
            };
            sampler.set_attr(&args[0], kind.as_str())?;
            match kind.as_str() {
                "keep" => sampler.bind(*given, Bound::DType(DType::Bool))?,
                "additive" => sampler.bind(*given, Bound::DType(scores))?,
                _ => {}
            }
            let window = if kind == "window" { 1 + sampler.below(3) as i64 } else { 0 };
            if args[1].attr(&sampler.bindings).is_none() { sampler.set_attr(&args[1], window) } else { Ok(()) }
        },
    },
];
