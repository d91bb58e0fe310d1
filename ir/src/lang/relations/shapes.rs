//! Relations between shapes and dimensions.

use super::{
    super::{
        relation::{Relation, RelationArg},
        sample::{Sampler, told},
        typing::{Bound, Status},
    },
    bind, broadcast,
};
use crate::Dim;

/// The maximal number of values that are tried for an expression.
const TRIES: usize = 1 << 16;

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        name: "broadcast",
        doc: "C is the NumPy broadcast of A and B.",
        parameters: &["A", "B", "C"],
        numbers: false,
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), Some(b)) => args[2].set_dims(broadcast(&a, &b)?, bindings),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let bound = [0, 1, 2].map(|i| args[i].dims(&sampler.bindings));
            let whole = match &bound {
                [_, _, Some(c)] => c.clone(),
                [Some(a), None, None] | [None, Some(a), None] => sampler.grown(a),
                _ => sampler.any_shape(0),
            };
            // At least one operand gets the shape of the result.
            let whole_side = bound[..2].iter().position(Option::is_none).unwrap_or(0);
            let side = if bound[0].is_none() && bound[1].is_none() { sampler.below(2) } else { whole_side };
            sampler.set_shape(&args[side], whole.clone())?;
            if bound[1 - side].is_none() {
                let part = sampler.shrunk(&whole);
                sampler.set_shape(&args[1 - side], part)?;
            }
            Ok(())
        },
    },
    Relation {
        name: "broadcasts-to",
        doc: "A can be expanded to C by NumPy's rules.",
        parameters: &["A", "C"],
        numbers: false,
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), Some(c)) if broadcast(&a, &c).as_ref() == Ok(&c) => Ok(Status::Done),
            (Some(a), Some(c)) => Err(format!("{a} does not expand to {c}")),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            if let (Some(a), None) = (args[0].dims(&sampler.bindings), args[1].dims(&sampler.bindings)) {
                let c = sampler.grown(&a);
                return sampler.set_shape(&args[1], c);
            }
            let c = sampler.shape_of(&args[1], 0)?;
            let a = sampler.shrunk(&c);
            sampler.set_shape(&args[0], a)
        },
    },
    Relation {
        name: "shape",
        doc: "The shape attribute is C.",
        parameters: &["attribute", "C"],
        numbers: false,
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), _) => args[1].set_dims(a, bindings),
            (_, Some(c)) => args[0].set_dims(c, bindings),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| sampler.shape_of(&args[1], 0).map(|_| ()),
    },
    Relation {
        name: "same-count",
        doc: "A and C have the same number of elements.",
        parameters: &["A", "C"],
        numbers: false,
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), Some(c)) if a.count() == c.count() => Ok(Status::Done),
            (Some(a), Some(c)) => Err(format!("{a} has {} elements, but {c} has {}", a.count(), c.count())),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let (known, open) = if args[0].dims(&sampler.bindings).is_some() { (0, 1) } else { (1, 0) };
            let shape = sampler.shape_of(&args[known], 0)?;
            let other = sampler.reshaped(&shape);
            sampler.set_shape(&args[open], other)
        },
    },
    Relation {
        name: "count",
        doc: "N is the number of elements of A.",
        parameters: &["A", "N"],
        numbers: false,
        solve: |args, bindings| match (args[0].dims(bindings), &args[1]) {
            (Some(a), RelationArg::Dim(n)) => n.unify(&a.count(), bindings).map_err(told),
            (Some(_), _) => Err("the second argument must be a dimension".into()),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| sampler.shape_of(&args[0], 0).map(|_| ()),
    },
    Relation {
        name: "equal",
        doc: "Two dimensions are equal.",
        parameters: &["M", "N"],
        numbers: false,
        solve: |args, bindings| match (args[0].dim(bindings), args[1].dim(bindings), &args[0], &args[1]) {
            (Some(m), Some(n), _, _) if m == n => Ok(Status::Done),
            (Some(m), Some(n), _, _) => Err(format!("{m} and {n} are not equal")),
            (Some(d), None, _, RelationArg::Dim(p)) | (None, Some(d), RelationArg::Dim(p), _) => {
                p.unify(&d, bindings).map_err(told)
            }
            (Some(Dim::Known(n)), None, _, RelationArg::Attr(slot))
            | (None, Some(Dim::Known(n)), RelationArg::Attr(slot), _) => bind(*slot, Bound::Attr(n.into()), bindings),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| match (&args[0], &args[1]) {
            (RelationArg::Dim(p), _) | (_, RelationArg::Dim(p)) if p.is_open(&sampler.bindings) => {
                sampler.choose_dims(p)
            }
            (_, RelationArg::Dim(p)) => sampler.choose_dims(p),
            _ => {
                let n = sampler.below(4);
                sampler.set_int(&args[0], n as i64)
            }
        },
    },
    Relation {
        name: "divides",
        doc: "N is a multiple of M, which is not 0.",
        parameters: &["M", "N"],
        numbers: false,
        solve: |args, bindings| match (args[0].dim(bindings), args[1].dim(bindings)) {
            (Some(m), Some(n)) => match n.checked_div(&m) {
                Some(_) => Ok(Status::Done),
                None if n.known().is_some() && m.known().is_some() => Err(format!("{n} is not a multiple of {m}")),
                None => Err(format!("{n} is not known to be a multiple of {m}")),
            },
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let known = |arg: &RelationArg, sampler: &Sampler<'_>| arg.dim(&sampler.bindings).and_then(|d| d.known());
            if let (None, Some(n)) = (known(&args[0], sampler), known(&args[1], sampler)) {
                let divisors: Vec<i64> = (1..=n.max(1)).take(TRIES).filter(|m| n % m == 0).collect();
                let m = divisors[sampler.below(divisors.len())];
                return sampler.set_int(&args[0], m);
            }
            if let RelationArg::Dim(p) = &args[0] {
                sampler.choose_dims(p)?;
            }
            let m = known(&args[0], sampler).ok_or("cannot choose N because M has no value")?;
            let times = 1 + sampler.below(4) as i64;
            sampler.set_int(&args[1], m.saturating_mul(times))
        },
    },
    Relation {
        name: "at-most",
        doc: "M is not greater than N.",
        parameters: &["M", "N"],
        numbers: false,
        solve: |args, bindings| match (args[0].dim(bindings), args[1].dim(bindings)) {
            // Symbols without bounds are compared only once they are bound. Extents at run time are compared at all
            // of their lengths.
            (Some(m), Some(n)) => match (&n - &m).range() {
                Some((least, most)) if least < 0 => {
                    Err(format!("{m} {} greater than {n}", if most < 0 { "is" } else { "may be" }))
                }
                _ => Ok(Status::Done),
            },
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            if let (None, Some(n), RelationArg::Dim(p)) =
                (args[0].dim(&sampler.bindings), args[1].dim(&sampler.bindings).and_then(|n| n.known()), &args[0])
            {
                // Tries the numbers up to N, downwards from a random one and then upwards, until one solves the
                // expression.
                let start = sampler.below(n.max(0) as usize + 1) as i64;
                let fits = |m: &i64| p.unify(&Dim::Known(*m), &mut sampler.bindings.clone()).is_ok();
                let m = (1..=start)
                    .rev()
                    .chain(start..=n)
                    .take(TRIES)
                    .find(fits)
                    .ok_or("no number from 1 to N fits the expression M")?;
                return sampler.set_int(&args[0], m);
            }
            if let RelationArg::Dim(p) = &args[0] {
                sampler.choose_dims(p)?;
            }
            let m = args[0]
                .dim(&sampler.bindings)
                .and_then(|m| m.known())
                .ok_or("cannot choose N because M has no value")?;
            let more = sampler.below(4) as i64;
            sampler.set_int(&args[1], m.saturating_add(more))
        },
    },
];
