//! Relations of sliding windows: the number of windows along an axis.

use super::{
    super::{
        relation::{Relation, RelationArg},
        sample::Sampler,
        typing::Status,
    },
    axis_of,
};
use crate::{Attr, Dim};

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        name: "window",
        doc: "C is A with the axis replaced by two: the number of windows along the axis, and the size of a window.",
        parameters: &["A", "axis", "size", "stride", "dilation", "C"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let at = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            let (Some(size), Some(stride), Some(dilation)) =
                (args[2].dim(bindings), args[3].dim(bindings), args[4].dim(bindings))
            else {
                return Ok(Status::Later);
            };
            let mut c = a.clone();
            c.0[at] = count(&a[at], &size, &stride, &dilation)?;
            c.0.insert(at + 1, size);
            args[5].set_dims(c, bindings)
        },
        sample: |args, sampler| {
            let a = sampler.shape_of(&args[0], 1)?;
            let axis = axis_of(&args[1], &a, sampler)?;
            let extent = a.position(axis).and_then(|at| a[at].known());
            let extent = extent.ok_or_else(|| format!("{a} has no axis {axis} of known extent"))?;
            geometry(&args[2..5], extent, sampler)
        },
    },
    Relation {
        name: "windows",
        doc: "N windows of this size, stride and dilation fit an axis of L elements with padding `before` and `after`.",
        parameters: &["L", "before", "after", "size", "stride", "dilation", "N"],
        numbers: false,
        solve: |args, bindings| {
            let known: Option<Vec<Dim>> = args[..6].iter().map(|arg| arg.dim(bindings)).collect();
            let Some([l, before, after, size, stride, dilation]) = known.as_deref() else { return Ok(Status::Later) };
            if [before, after].iter().any(|d| d.known().is_some_and(|n| n < 0)) {
                return Err("padding must not be negative".into());
            }
            let n = count(&(&(l + before) + after), size, stride, dilation)?;
            match &args[6] {
                RelationArg::Dim(p) => p.unify(&n, bindings).map_err(super::told),
                _ => Err("the last argument must be a dimension".into()),
            }
        },
        sample: |args, sampler| {
            for arg in &args[1..3] {
                choose(arg, &[0, 0, 1, 2], sampler)?;
            }
            let pads = known(&args[1], sampler)?.saturating_add(known(&args[2], sampler)?);
            if args[0].dim(&sampler.bindings).is_none() {
                let open: [&[i64]; 3] = [&[1, 2, 3], &[1, 1, 2, 3], &[1, 1, 2]];
                args[3..6].iter().zip(open).try_for_each(|(arg, of)| choose(arg, of, sampler))?;
                let span = span(known(&args[3], sampler)?, known(&args[5], sampler)?);
                let extent = span.saturating_sub(pads).max(1).saturating_add(sampler.below(5) as i64);
                return choose(&args[0], &[extent], sampler);
            }
            let extent = known(&args[0], sampler)?.saturating_add(pads);
            geometry(&args[3..6], extent, sampler)
        },
    },
];

/// Returns the number of windows: ⌊(extent − dilation·(size − 1) − 1) / stride⌋ + 1.
fn count(extent: &Dim, size: &Dim, stride: &Dim, dilation: &Dim) -> Result<Dim, String> {
    let (Some(size), Some(stride), Some(dilation)) = (size.known(), stride.known(), dilation.known()) else {
        return Err("the size, stride and dilation of windows must be numbers".into());
    };
    if size < 1 || stride < 1 || dilation < 1 {
        return Err(format!(
            "a window of {size} elements, stride {stride} and dilation {dilation} is invalid because all of them must be at least 1"
        ));
    }
    let span = span(size, dilation);
    let room = extent - &Dim::Known(span);
    match (room.range(), &room) {
        (Some((least, _)), _) if least < 0 => {
            Err(format!("a window that spans {span} elements does not fit an axis of {extent}"))
        }
        (_, Dim::Known(room)) => Ok(Dim::Known(room / stride + 1)),
        (_, Dim::Symbolic(_)) => {
            let steps = room.checked_div(&Dim::Known(stride));
            let steps = steps.ok_or_else(|| {
                format!(
                    "cannot count windows because {extent} - {span} is not known to be a multiple of stride {stride}"
                )
            })?;
            Ok(&steps + &Dim::Known(1))
        }
    }
}

/// Returns the elements that a window spans: dilation·(size − 1) + 1. It saturates, because a rule's text may have
/// any numbers.
fn span(size: i64, dilation: i64) -> i64 {
    size.saturating_sub(1).saturating_mul(dilation).saturating_add(1)
}

/// Chooses those of size, stride and dilation that are unbound, so that a window fits an axis.
fn geometry(args: &[RelationArg], extent: i64, sampler: &mut Sampler<'_>) -> Result<(), String> {
    choose(&args[1], &[1, 1, 2, 3], sampler)?;
    choose(&args[2], &[1, 1, 2], sampler)?;
    let most = extent.saturating_sub(1).max(0) / known(&args[2], sampler)?.max(1) + 1;
    let fitting: Vec<i64> = (1..=most.min(3)).collect();
    choose(&args[0], &fitting, sampler)
}

/// Chooses a number for an unbound argument. If an expression has several unbound dimensions, chooses each of them.
fn choose(arg: &RelationArg, of: &[i64], sampler: &mut Sampler<'_>) -> Result<(), String> {
    if arg.dim(&sampler.bindings).is_some() {
        return Ok(());
    }
    let n = *sampler.of(of);
    sampler.set_int(arg, n)?;
    match arg {
        RelationArg::Dim(pattern) => sampler.choose_dims(pattern),
        _ => Ok(()),
    }
}

fn known(arg: &RelationArg, sampler: &Sampler<'_>) -> Result<i64, String> {
    arg.dim(&sampler.bindings).and_then(|d| d.known()).ok_or_else(|| "the argument must be a number".into())
}
