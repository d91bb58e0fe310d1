//! Relations of reductions: the reduced axes, and the remaining ones.

use super::{
    super::{
        relation::{Relation, RelationArg},
        sample::told,
        typing::{Bound, Status},
    },
    axes_for, axis_of, bind,
};
use crate::{Attr, Dim};

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        name: "reduce",
        doc: "C is A with the extents of the axes set to 1 (`keep`), or without the axes.",
        parameters: &["A", "axes", "keep", "C"],
        numbers: false,
        solve: |args, bindings| {
            let Some(a) = args[0].dims(bindings) else { return Ok(Status::Later) };
            let axes = args[1].attr(bindings).and_then(Attr::ints);
            let (Some(axes), Some(keep)) = (axes, args[2].attr(bindings).and_then(Attr::bool)) else {
                return Ok(Status::Later);
            };
            if axes.is_empty() {
                return Err("name at least one axis to reduce".into());
            }
            let mut gone = vec![false; a.rank()];
            for &axis in axes {
                let at = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
                if std::mem::replace(&mut gone[at], true) {
                    return Err(format!("axis {axis} is reduced twice"));
                }
            }
            let dim = |i: usize| match (gone[i], keep) {
                (false, _) => Some(a[i].clone()),
                (true, true) => Some(Dim::Known(1)),
                (true, false) => None,
            };
            args[3].set_dims((0..a.rank()).filter_map(dim).collect(), bindings)
        },
        sample: |args, sampler| {
            let axes = args[1].attr(&sampler.bindings).and_then(Attr::ints);
            let least = axes_for(axes.unwrap_or_default().iter().copied())?;
            let a = sampler.shape_of(&args[0], least)?;
            if args[1].attr(&sampler.bindings).is_none() {
                let axes = sampler.axes(a.rank());
                sampler.set_attr(&args[1], axes.as_slice())?;
            }
            if args[2].attr(&sampler.bindings).is_none() {
                let keep = sampler.below(2) == 0;
                sampler.set_attr(&args[2], keep)?;
            }
            Ok(())
        },
    },
    Relation {
        name: "trailing",
        doc: "The axes are the last ones: [-k … -1].",
        parameters: &["axes"],
        numbers: false,
        solve: |args, bindings| match args[0].attr(bindings).and_then(Attr::ints) {
            Some(axes) if axes.iter().rev().zip(1..).all(|(&axis, from_end)| axis == -from_end) => Ok(Status::Done),
            Some(axes) => Err(format!("{axes:?} are not the last axes")),
            None => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let least = -1 - sampler.below(2) as i64;
            sampler.set_attr(&args[0], (least..0).collect::<Vec<_>>().as_slice())
        },
    },
    Relation {
        name: "single",
        doc: "The list of axes contains only this axis.",
        parameters: &["axis", "axes"],
        numbers: false,
        solve: |args, bindings| match (args[0].attr(bindings).and_then(Attr::int), &args[1]) {
            (Some(axis), RelationArg::Attr(axes)) => bind(*axes, Bound::Attr([axis][..].into()), bindings),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let axis = -1 - sampler.below(3) as i64;
            sampler.set_attr(&args[0], axis)
        },
    },
    Relation {
        name: "extent",
        doc: "N is the extent of A along the axis.",
        parameters: &["A", "axis", "N"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let at = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            match &args[2] {
                RelationArg::Dim(n) => n.unify(&a[at], bindings).map_err(told),
                _ => Err("the third argument must be a dimension".into()),
            }
        },
        sample: |args, sampler| {
            let a = sampler.shape_of(&args[0], 1)?;
            axis_of(&args[1], &a, sampler).map(|_| ())
        },
    },
    Relation {
        name: "axis-last",
        doc: "The permutation moves the axis of A to the end. The other axes keep their order.",
        parameters: &["A", "axis", "perm"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let RelationArg::Attr(perm) = args[2] else { return Err("the third argument must be an attribute".into()) };
            let rank = a.rank() as i64;
            if !(-rank..0).contains(&axis) {
                return Err(format!("{a} has no axis {axis}, counted from the end"));
            }
            let order: Vec<i64> = (-rank..0).filter(|&other| other != axis).chain([axis]).collect();
            bind(perm, Bound::Attr(order[..].into()), bindings)
        },
        sample: |args, sampler| {
            let a = sampler.shape_of(&args[0], 1)?;
            axis_of(&args[1], &a, sampler).map(|_| ())
        },
    },
    Relation {
        name: "last",
        doc: "The axis is the last one: -1.",
        parameters: &["axis"],
        numbers: false,
        solve: |args, bindings| match args[0].attr(bindings).and_then(Attr::int) {
            Some(-1) => Ok(Status::Done),
            Some(axis) => Err(format!("{axis} is not the last axis")),
            None => Ok(Status::Later),
        },
        sample: |args, sampler| sampler.set_attr(&args[0], -1_i64),
    },
    Relation {
        name: "axes-last",
        doc: "The permutation moves the axes of A to the end, where they are the axes `last`. The others keep their order.",
        parameters: &["A", "axes", "perm", "last"],
        numbers: false,
        solve: |args, bindings| {
            let axes = args[1].attr(bindings).and_then(Attr::ints).map(<[i64]>::to_vec);
            let (Some(a), Some(axes), RelationArg::Attr(perm), RelationArg::Attr(last)) =
                (args[0].dims(bindings), axes, &args[2], &args[3])
            else {
                return Ok(Status::Later);
            };
            let rank = a.rank() as i64;
            if let Some(axis) = axes.iter().find(|axis| !(-rank..0).contains(axis)) {
                return Err(format!("{a} has no axis {axis}, counted from the end"));
            }
            let mut order: Vec<i64> = (-rank..0).filter(|axis| !axes.contains(axis)).collect();
            order.extend(&axes);
            let trailing: Vec<i64> = (-(axes.len() as i64)..0).collect();
            bind(*perm, Bound::Attr(order[..].into()), bindings)?;
            bind(*last, Bound::Attr(trailing[..].into()), bindings)
        },
        sample: |args, sampler| {
            let a = sampler.shape_of(&args[0], 1)?;
            if args[1].attr(&sampler.bindings).is_none() {
                let axes = sampler.axes(a.rank());
                sampler.set_attr(&args[1], axes.as_slice())?;
            }
            Ok(())
        },
    },
];
