//! The table of relations: what each checks, computes, and chooses.

use super::{
    relation::{Relation, RelationArg},
    sample::{Sampler, told},
    typing::{Bindings, Bound, Slot, Status},
};
use crate::{Attr, DType, Dim, Shape};

/// Every relation.
pub const RELATIONS: &[Relation] = &[
    Relation {
        name: "broadcast",
        doc: "C is the NumPy broadcast of A and B.",
        parameters: &["A", "B", "C"],
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
            // One side is whole, so that the result is.
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
        doc: "A can be expanded to C by the NumPy rules.",
        parameters: &["A", "C"],
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
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), _) => args[1].set_dims(a, bindings),
            (_, Some(c)) => args[0].set_dims(c, bindings),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| sampler.shape_of(&args[1], 0).map(|_| ()),
    },
    Relation {
        name: "dtype",
        doc: "The element-type attribute is D.",
        parameters: &["attribute", "D"],
        solve: |args, bindings| {
            let RelationArg::DType(slot) = args[1] else { return Err("an element type is wanted".into()) };
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
            _ => Err("an element type is wanted".into()),
        },
    },
    Relation {
        name: "same-count",
        doc: "A and C have the same number of elements.",
        parameters: &["A", "C"],
        solve: |args, bindings| match (args[0].dims(bindings), args[1].dims(bindings)) {
            (Some(a), Some(c)) if a.count() == c.count() => Ok(Status::Done),
            (Some(a), Some(c)) => Err(format!("{a} has {} elements, {c} has {}", a.count(), c.count())),
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
        name: "equal",
        doc: "Two dimensions are equal.",
        parameters: &["M", "N"],
        solve: |args, bindings| match (args[0].dim(bindings), args[1].dim(bindings), &args[0], &args[1]) {
            (Some(m), Some(n), _, _) if m == n => Ok(Status::Done),
            (Some(m), Some(n), _, _) => Err(format!("{m} is not {n}")),
            (Some(d), None, _, RelationArg::Dim(p)) | (None, Some(d), RelationArg::Dim(p), _) => {
                p.unify(&d, bindings).map_err(told)
            }
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
        name: "permute",
        doc: "C is A with its axes in the order of the permutation.",
        parameters: &["A", "perm", "C"],
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
        name: "slice",
        doc: "C is A with `len` elements of an axis, from `at` on, every `step`-th.",
        parameters: &["A", "axis", "at", "len", "step", "C"],
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
                (at.known(), len.known(), step.known(), a[axis].known())
            {
                let last = at.saturating_add((len - 1).saturating_mul(step));
                if at < 0 || len < 0 || step == 0 || (len > 0 && !(0..extent).contains(&last)) || at > extent {
                    return Err(format!(
                        "{len} elements from {at} in steps of {step} do not lie in an axis of {extent}"
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
            // As many as there are in that direction, at most.
            let most = if step > 0 { (extent - at + step - 1) / step } else { at / -step.min(-1) + 1 };
            let len = int(3, sampler).unwrap_or_else(|| sampler.below(most.max(0) as usize + 1).max(1) as i64);
            [(2, at), (3, len), (4, step)].into_iter().try_for_each(|(i, n)| sampler.set_int(&args[i], n))
        },
    },
    Relation {
        name: "pad",
        doc: "C is A with `before` and `after` more elements on an axis.",
        parameters: &["A", "axis", "before", "after", "C"],
        solve: |args, bindings| {
            let (Some(a), Some(axis)) = (args[0].dims(bindings), args[1].attr(bindings).and_then(Attr::int)) else {
                return Ok(Status::Later);
            };
            let (Some(before), Some(after)) = (args[2].dim(bindings), args[3].dim(bindings)) else {
                return Ok(Status::Later);
            };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            if [&before, &after].iter().any(|d| d.known().is_some_and(|n| n < 0)) {
                return Err("padding is not negative; use slice to take elements away".into());
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
        solve: |args, bindings| {
            let (Some(a), Some(b)) = (args[0].dims(bindings), args[1].dims(bindings)) else { return Ok(Status::Later) };
            let Some(axis) = args[2].attr(bindings).and_then(Attr::int) else { return Ok(Status::Later) };
            let axis = a.position(axis).ok_or_else(|| format!("{a} has no axis {axis}"))?;
            let agrees = a.rank() == b.rank() && (0..a.rank()).all(|i| i == axis || a[i] == b[i]);
            if !agrees {
                return Err(format!("{a} and {b} differ elsewhere than in axis {axis}"));
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
        doc: "C is A with the axis replaced by all of B.",
        parameters: &["A", "B", "axis", "C"],
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
    Relation {
        name: "reduce",
        doc: "C is A with the axes of extent 1 (`keep`) or gone.",
        parameters: &["A", "axes", "keep", "C"],
        solve: |args, bindings| {
            let Some(a) = args[0].dims(bindings) else { return Ok(Status::Later) };
            let axes = args[1].attr(bindings).and_then(Attr::ints);
            let (Some(axes), Some(keep)) = (axes, args[2].attr(bindings).and_then(Attr::bool)) else {
                return Ok(Status::Later);
            };
            if axes.is_empty() {
                return Err("at least one axis is reduced".into());
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
            let least = args[1]
                .attr(&sampler.bindings)
                .and_then(Attr::ints)
                .map_or(1, |axes| axes.iter().map(|axis| axis.unsigned_abs() as usize).max().unwrap_or(1));
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
        name: "holds",
        doc: "The attribute is true.",
        parameters: &["attribute"],
        solve: |args, bindings| match (args[0].attr(bindings).and_then(Attr::bool), &args[0]) {
            (Some(true), _) => Ok(Status::Done),
            (Some(false), _) => Err("the attribute is false".into()),
            (None, RelationArg::Attr(slot)) => bind(*slot, Bound::Attr(true.into()), bindings),
            (None, _) => Err("an attribute is wanted".into()),
        },
        sample: |args, sampler| sampler.set_attr(&args[0], true),
    },
    Relation {
        name: "nonzero",
        doc: "The number is not 0.",
        parameters: &["number"],
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
        name: "count",
        doc: "N is the number of elements of A.",
        parameters: &["A", "N"],
        solve: |args, bindings| match (args[0].dims(bindings), &args[1]) {
            (Some(a), RelationArg::Dim(n)) => n.unify(&a.count(), bindings).map_err(told),
            (Some(_), _) => Err("a dimension is wanted".into()),
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| sampler.shape_of(&args[0], 0).map(|_| ()),
    },
    Relation {
        name: "identity",
        doc: "The permutation leaves every axis where it is.",
        parameters: &["perm"],
        solve: |args, bindings| match args[0].attr(bindings).and_then(Attr::ints) {
            Some(perm) if perm.iter().copied().eq(-(perm.len() as i64)..0) => Ok(Status::Done),
            Some(perm) => Err(format!("{perm:?} moves an axis")),
            None => Ok(Status::Later),
        },
        sample: |args, sampler| {
            let rank = 1 + sampler.below(4) as i64;
            sampler.set_attr(&args[0], (-rank..0).collect::<Vec<_>>().as_slice())
        },
    },
    Relation {
        name: "matrix-transpose",
        doc: "The permutation swaps the last two axes of A and leaves the others where they are.",
        parameters: &["A", "perm"],
        solve: |args, bindings| {
            let (Some(a), RelationArg::Attr(perm)) = (args[0].dims(bindings), &args[1]) else {
                return Ok(Status::Later);
            };
            let mut axes: Vec<i64> = (-(a.rank() as i64)..0).collect();
            let [.., row, column] = axes.as_mut_slice() else { return Err(format!("{a} has no two axes")) };
            std::mem::swap(row, column);
            bind(*perm, Bound::Attr(axes[..].into()), bindings)
        },
        sample: |args, sampler| sampler.shape_of(&args[0], 2).map(|_| ()),
    },
    Relation {
        name: "single",
        doc: "The axes are the one axis alone.",
        parameters: &["axis", "axes"],
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
        name: "axes-last",
        doc: "The permutation moves the axes of A behind the others, both in their order; there they are `last`.",
        parameters: &["A", "axes", "perm", "last"],
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
    Relation {
        name: "at-most",
        doc: "M is not greater than N.",
        parameters: &["M", "N"],
        solve: |args, bindings| match (args[0].dim(bindings), args[1].dim(bindings)) {
            // Symbols are judged once they are bound.
            (Some(m), Some(n)) => match (&n - &m).known() {
                Some(rest) if rest < 0 => Err(format!("{m} is greater than {n}")),
                _ => Ok(Status::Done),
            },
            _ => Ok(Status::Later),
        },
        sample: |args, sampler| {
            if let (None, Some(n), RelationArg::Dim(p)) =
                (args[0].dim(&sampler.bindings), args[1].dim(&sampler.bindings).and_then(|n| n.known()), &args[0])
            {
                // The numbers that the expression takes, from one of them down.
                let start = sampler.below(n.max(0) as usize + 1) as i64;
                let fits = |m: &i64| p.unify(&Dim::Known(*m), &mut sampler.bindings.clone()).is_ok();
                let m = (1..=start).rev().chain(start..=n).find(fits).ok_or("nothing fits")?;
                return sampler.set_int(&args[0], m);
            }
            if let RelationArg::Dim(p) = &args[0] {
                sampler.choose_dims(p)?;
            }
            let m = args[0].dim(&sampler.bindings).and_then(|m| m.known()).ok_or("M is not known")?;
            let more = sampler.below(4) as i64;
            sampler.set_int(&args[1], m + more)
        },
    },
    Relation {
        name: "mask",
        doc: "The mask operand is what the word says: `keep` wants bool, `additive` wants F, the others none; `window` is \
              the number of visible keys for `window`, else 0. Operands come before relations, so M is unbound only \
              where there is no mask.",
        parameters: &["mask", "window", "M", "F"],
        solve: |args, bindings| {
            let (RelationArg::DType(given), RelationArg::DType(scores)) = (&args[2], &args[3]) else {
                return Err("element types are wanted".into());
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
                given if given != want => Err(format!(":mask {kind} wants {}, given is {}", show(want), show(given))),
                _ if (kind == "window") != (window > 0) => {
                    Err(format!(":window is {window}, but it is positive for :mask window, 0 for the others"))
                }
                _ => Ok(Status::Done),
            }
        },
        sample: |args, sampler| {
            let (RelationArg::DType(given), RelationArg::DType(scores)) = (&args[2], &args[3]) else {
                return Err("element types are wanted".into());
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

/// The NumPy broadcast of two shapes.
///
/// # Errors
/// Which dimensions do not go together.
pub fn broadcast(a: &Shape, b: &Shape) -> Result<Shape, String> {
    let rank = a.rank().max(b.rank());
    let one = Dim::Known(1);
    let from_end = |s: &Shape, i: usize| if i < s.rank() { s[s.rank() - 1 - i].clone() } else { Dim::Known(1) };
    (0..rank)
        .rev()
        .map(|i| match (from_end(a, i), from_end(b, i)) {
            (x, y) if x == y || y == one => Ok(x),
            (x, y) if x == one => Ok(y),
            (x, y) => Err(format!("{a} and {b} do not broadcast: {x} and {y}")),
        })
        .collect::<Result<Vec<Dim>, _>>()
        .map(|dims| dims.into_iter().collect())
}

fn bind(slot: Slot, value: Bound, bindings: &mut Bindings) -> Result<Status, String> {
    bindings.bind(slot, value).map(|()| Status::Done).map_err(told)
}

/// An attribute that names an axis of a shape, chosen where it is free.
fn axis_of(arg: &RelationArg, shape: &Shape, sampler: &mut Sampler<'_>) -> Result<i64, String> {
    if let Some(axis) = arg.attr(&sampler.bindings).and_then(Attr::int) {
        return Ok(axis);
    }
    let axis = sampler.axis(shape.rank());
    sampler.set_int(arg, axis)?;
    Ok(axis)
}

/// The first two arguments of a relation about an axis of a shape.
fn shape_and_axis(args: &[RelationArg], sampler: &mut Sampler<'_>) -> Result<(Shape, i64), String> {
    let shape = sampler.shape_of(&args[0], 1)?;
    let axis = axis_of(&args[1], &shape, sampler)?;
    Ok((shape, axis))
}

fn extent_along(shape: &Shape, axis: i64) -> Result<i64, String> {
    let extent = shape.position(axis).and_then(|at| shape[at].known());
    extent.ok_or_else(|| format!("{shape} has no axis {axis} of known extent"))
}
