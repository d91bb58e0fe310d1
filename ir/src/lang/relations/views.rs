//! Relations of views: where each axis of the result comes from.

use super::{
    super::{
        relation::{Relation, RelationArg},
        sample::Sampler,
        typing::{Bound, Status},
    },
    axes_for, axis_of, bind,
};
use crate::{Attr, Shape};

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        name: "permute",
        doc: "C is A with its axes in the order of the permutation.",
        parameters: &["A", "perm", "C"],
        numbers: false,
        solve: |args, bindings| {
            let Some(perm) = args[1].attr(bindings).and_then(Attr::ints).map(<[i64]>::to_vec) else {
                return Ok(Status::Later);
            };
            let rank = perm.len();
            let at = |p: i64| if p < 0 { p + rank as i64 } else { p };
            let mut sorted: Vec<_> = perm.iter().map(|&p| at(p)).collect();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank as i64) {
                return Err(format!("{perm:?} is not a permutation of {rank} axes"));
            }
            if let Some(a) = args[0].dims(bindings) {
                if a.rank() != rank {
                    return Err(format!("{perm:?} permutes {rank} axes, but {a} has {}", a.rank()));
                }
                return args[2].set_dims(perm.iter().map(|&p| a[at(p) as usize].clone()).collect(), bindings);
            }
            match args[2].dims(bindings) {
                Some(c) if c.rank() == rank => {
                    let mut a = c.clone();
                    for (i, &p) in perm.iter().enumerate() {
                        a.0[at(p) as usize] = c[i].clone();
                    }
                    args[0].set_dims(a, bindings)
                }
                Some(c) => Err(format!("{perm:?} permutes {rank} axes, but {c} has {}", c.rank())),
                None => Ok(Status::Later),
            }
        },
        sample: |args, sampler| {
            let rank = match args[1].attr(&sampler.bindings).and_then(Attr::ints).map(<[i64]>::len) {
                Some(rank) => rank,
                None => {
                    let known = [0, 2].into_iter().find_map(|i| args[i].dims(&sampler.bindings));
                    let rank = known.map_or_else(|| 1 + sampler.below(4), |shape| shape.rank());
                    let perm = sampler.permutation(rank);
                    sampler.set_attr(&args[1], perm.as_slice())?;
                    rank
                }
            };
            if args[0].dims(&sampler.bindings).is_none() && args[2].dims(&sampler.bindings).is_none() {
                let shape = (0..rank).map(|_| sampler.extent()).collect();
                sampler.set_shape(&args[0], shape)?;
            }
            Ok(())
        },
    },
    Relation {
        name: "identity",
        doc: "The permutation leaves every axis where it is.",
        parameters: &["perm"],
        numbers: false,
        solve: |args, bindings| match args[0].attr(bindings).and_then(Attr::ints) {
            Some(perm) if perm.iter().copied().eq(-(perm.len() as i64)..0) => Ok(Status::Done),
            Some(perm) => Err(format!("the permutation {perm:?} moves an axis")),
            None => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let rank = 1 + sampler.below(4) as i64;
            sampler.set_attr(&args[0], (-rank..0).collect::<Vec<_>>().as_slice())
        },
    },
    Relation {
        name: "moved",
        doc: "Axis `axis` of the permutation's result is axis `from` of its operand. Both are counted from the end.",
        parameters: &["perm", "axis", "from"],
        numbers: false,
        solve: |args, bindings| {
            let perm = args[0].attr(bindings).and_then(Attr::ints).map(<[i64]>::to_vec);
            let known = |i: usize| args[i].dim(bindings).and_then(|d| d.known());
            let Some(perm) = perm else { return Ok(Status::Later) };
            let Some(axis) = known(1) else {
                let (Some(from), RelationArg::Attr(slot)) = (known(2), &args[1]) else { return Ok(Status::Later) };
                let at = perm
                    .iter()
                    .position(|a| *a == from)
                    .ok_or_else(|| format!("the permutation {perm:?} has no axis {from}"))?;
                return bind(*slot, Bound::Attr(Attr::Int(at as i64 - perm.len() as i64)), bindings);
            };
            let at = axis.checked_add_unsigned(perm.len() as u64).and_then(|at| usize::try_from(at).ok());
            let from = *at
                .and_then(|at| perm.get(at))
                .ok_or_else(|| format!("the permutation {perm:?} has no axis {axis}"))?;
            match (&args[2], known(2)) {
                (_, Some(given)) if given == from => Ok(Status::Done),
                (_, Some(given)) => Err(format!("axis {axis} comes from axis {from}, not {given}")),
                (RelationArg::Attr(slot), None) => bind(*slot, Bound::Attr(Attr::Int(from)), bindings),
                _ => Err("the third argument must be an axis".into()),
            }
        },
        sample: |args, sampler| {
            if let Some(perm) = args[0].attr(&sampler.bindings).and_then(Attr::ints) {
                let axis = sampler.axis(perm.len());
                return sampler.set_int(&args[1], axis);
            }
            // Chooses a permutation that satisfies the bound arguments.
            let given = |i: usize, sampler: &Sampler<'_>| args[i].dim(&sampler.bindings).and_then(|d| d.known());
            let axes = [1, 2].map(|i| given(i, sampler));
            let rank = axes_for(axes.into_iter().flatten())?.max(1 + sampler.below(4));
            let mut perm = sampler.permutation(rank);
            if let (Some(axis), Some(from)) = (given(1, sampler), given(2, sampler)) {
                let place = |axis: i64| (rank as i64 + axis) as usize;
                let has = perm.iter().position(|a| *a == from).ok_or("the permutation lacks the axis")?;
                perm.swap(has, place(axis));
            }
            sampler.set_attr(&args[0], perm.as_slice())
        },
    },
    Relation {
        name: "matrix-transpose",
        doc: "The permutation swaps the last two axes of A and leaves the others where they are.",
        parameters: &["A", "perm"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), RelationArg::Attr(perm)) = (args[0].dims(bindings), &args[1]) else {
                return Ok(Status::Later);
            };
            let mut axes: Vec<i64> = (-(a.rank() as i64)..0).collect();
            let [.., row, column] = axes.as_mut_slice() else { return Err(format!("{a} has fewer than two axes")) };
            std::mem::swap(row, column);
            bind(*perm, Bound::Attr(axes[..].into()), bindings)
        },
        sample: |args, sampler| sampler.shape_of(&args[0], 2).map(|_| ()),
    },
    Relation {
        name: "swap",
        doc: "The permutation swaps two axes of A, counted from the end, and leaves the others where they are.",
        parameters: &["A", "axis", "axis", "perm"],
        numbers: false,
        solve: |args, bindings| {
            let axis = |i: usize| args[i].dim(bindings).and_then(|d| d.known());
            let (Some(a), Some(first), Some(second), RelationArg::Attr(perm)) =
                (args[0].dims(bindings), axis(1), axis(2), &args[3])
            else {
                return Ok(Status::Later);
            };
            let mut axes: Vec<i64> = (-(a.rank() as i64)..0).collect();
            let place = |axis: i64| a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"));
            axes.swap(place(first)?, place(second)?);
            bind(*perm, Bound::Attr(axes[..].into()), bindings)
        },
        sample: |args, sampler| sampler.shape_of(&args[0], 3).map(|_| ()),
    },
    Relation {
        name: "slice",
        doc: "C is A with `len` elements of the axis: one in each `step`, from index `at` on.",
        parameters: &["A", "axis", "at", "len", "step", "C"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let (Some(at), Some(len), Some(step)) =
                (args[2].dim(bindings), args[3].dim(bindings), args[4].dim(bindings))
            else {
                return Ok(Status::Later);
            };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            if let (Some(at), Some(len), Some(step), Some(extent)) =
                (at.known(), len.known(), step.known(), a[axis].range().map(|(least, _)| least))
            {
                let last = at.saturating_add(len.saturating_sub(1).saturating_mul(step));
                let inside = |i: i64| (0..extent).contains(&i);
                if at < 0 || len < 0 || step == 0 || at > extent || (len > 0 && !(inside(at) && inside(last))) {
                    let axis = &a[axis];
                    let axis = if axis.varies() { format!("{axis}, which may be {extent}") } else { axis.to_string() };
                    return Err(format!(
                        "{len} elements from {at} in steps of {step} are not within an axis of {axis}"
                    ));
                }
            }
            let mut c = a.clone();
            c.0[axis] = len;
            args[5].set_dims(c, bindings)
        },
        sample: |args, sampler| {
            let (a, axis) = shape_and_axis(args, sampler)?;
            let extent = extent_along(&a, axis)?;
            let int = |i: usize, sampler: &Sampler<'_>| args[i].dim(&sampler.bindings).and_then(|d| d.known());
            let step = int(4, sampler).unwrap_or_else(|| *sampler.of(&[1, 1, 2, -1]));
            let at = int(2, sampler).unwrap_or_else(|| sampler.below(extent.max(1) as usize) as i64);
            // The number of elements from `at` to the end of the axis, in the direction of `step`.
            let most = match step {
                1.. => extent.saturating_sub(at).saturating_add(step - 1) / step,
                _ => at / step.min(-1).saturating_neg() + 1,
            };
            let len = int(3, sampler).unwrap_or_else(|| sampler.below(most.max(0) as usize + 1).max(1) as i64);
            [(2, at), (3, len), (4, step)].into_iter().try_for_each(|(i, n)| sampler.set_int(&args[i], n))
        },
    },
    Relation {
        name: "pad",
        doc: "C is A with `before` further elements before the axis's elements, and `after` behind them.",
        parameters: &["A", "axis", "before", "after", "C"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let (Some(before), Some(after)) = (args[2].dim(bindings), args[3].dim(bindings)) else {
                return Ok(Status::Later);
            };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            if [&before, &after].iter().any(|d| d.known().is_some_and(|n| n < 0)) {
                return Err("padding must not be negative; use slice to remove elements".into());
            }
            let mut c = a.clone();
            c.0[axis] = &(&c[axis] + &before) + &after;
            args[4].set_dims(c, bindings)
        },
        sample: |args, sampler| {
            shape_and_axis(args, sampler)?;
            for arg in &args[2..4] {
                if arg.dim(&sampler.bindings).is_none() {
                    let n = sampler.below(4) as i64;
                    sampler.set_int(arg, n)?;
                }
            }
            Ok(())
        },
    },
    Relation {
        name: "concat",
        doc: "C is A followed by B along an axis.",
        parameters: &["A", "B", "axis", "C"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(b)) = (args[0].dims(bindings), args[1].dims(bindings)) else { return Ok(Status::Later) };
            let Some(axis) = args[2].attr(bindings).and_then(Attr::int) else { return Ok(Status::Later) };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            let agrees = a.rank() == b.rank() && (0..a.rank()).all(|i| i == axis || a[i] == b[i]);
            if !agrees {
                return Err(format!("{a} and {b} differ in more than axis {axis}"));
            }
            let mut c = a.clone();
            c.0[axis] = &a[axis] + &b[axis];
            args[3].set_dims(c, bindings)
        },
        sample: |args, sampler| {
            let (known, open) = if args[0].dims(&sampler.bindings).is_some() { (0, 1) } else { (1, 0) };
            let mut shape = sampler.shape_of(&args[known], 1)?;
            let axis = axis_of(&args[2], &shape, sampler)?;
            let at = shape.position(axis).ok_or_else(|| format!("{shape} has no axis {axis}"))?;
            if args[open].dims(&sampler.bindings).is_none() {
                shape.0[at] = sampler.extent();
                sampler.set_shape(&args[open], shape)?;
            }
            Ok(())
        },
    },
    Relation {
        name: "gather",
        doc: "C is A with the axis replaced by the axes of B.",
        parameters: &["A", "B", "axis", "C"],
        numbers: false,
        solve: |args, bindings| {
            let (Some(a), Some(b)) = (args[0].dims(bindings), args[1].dims(bindings)) else { return Ok(Status::Later) };
            let Some(axis) = args[2].attr(bindings).and_then(Attr::int) else { return Ok(Status::Later) };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            let dims = a[..axis].iter().chain(b.iter()).chain(&a[axis + 1..]);
            args[3].set_dims(dims.cloned().collect(), bindings)
        },
        sample: |args, sampler| {
            let a = sampler.shape_of(&args[0], 1)?;
            sampler.shape_of(&args[1], 0)?;
            axis_of(&args[2], &a, sampler).map(|_| ())
        },
    },
];

/// Returns the shape and the axis that are the first two arguments. Chooses them if they are unbound.
fn shape_and_axis(args: &[RelationArg], sampler: &mut Sampler<'_>) -> Result<(Shape, i64), String> {
    let shape = sampler.shape_of(&args[0], 1)?;
    let axis = axis_of(&args[1], &shape, sampler)?;
    Ok((shape, axis))
}

fn extent_along(shape: &Shape, axis: i64) -> Result<i64, String> {
    let extent = shape.position(axis).and_then(|at| shape[at].known());
    extent.ok_or_else(|| format!("{shape} has no axis {axis} of known extent"))
}
