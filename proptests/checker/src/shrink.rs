//! Shrinks a failing case: draws smaller dims, then replaces values by simpler ones, one by one.

use std::cell::Cell;

use eutectic::{DType, Tensor};
use eutectic_ir::lang::Bindings;
use eutectic_rewrites::Probe;

use crate::{
    cases::{self, Case},
    fitting::fitting,
    instance::Instance,
    literals::literals,
    palette::{Drawn, Palette, Which},
    rows::Dims,
    values::{Manner, Values},
};

/// The number of instances with smaller dims that are tried.
const DRAWS: usize = 240;
/// The maximal number of elements of a tensor whose elements are replaced one by one. Larger tensors are filled or
/// kept.
const READABLE: usize = 64;
/// The maximal number of replacements of a value by a simpler one.
const STEPS: usize = 3000;
/// Simple numbers for the number variables of smaller instances.
const PLAIN: [f64; 6] = [1.0, 2.0, -1.0, -2.0, 0.5, 0.0];
/// The maximal number of elements of a failing tensor that are tried as the first element of a smaller tensor.
const CARRIED: usize = 8;

/// Returns the smallest failing case found in at most `most` calls of `fails`. Each call may take a compilation, so
/// unlimited shrinking would take too long.
pub fn shrink(probe: &Probe, case: &Case, seed: u64, most: usize, fails: &dyn Fn(&Case) -> bool) -> Case {
    let asked = Cell::new(0);
    let fails = &|case: &Case| asked.replace(asked.get() + 1) < most && fails(case);
    let mut smallest = case.clone();
    let dtypes: Vec<DType> = case.instance.dtypes().collect();
    let literals = literals(probe.rule());
    let manner = Manner::of(probe.rule(), case.style, &literals);
    for n in 0..DRAWS {
        let extents: &[i64] = [&[1_i64][..], &[1, 2], &[2], &[2, 3], &[1, 2, 3]][n % 5];
        // A failure that needs a long axis keeps one, and the other axes become short.
        let one = [None, None, Some((Which::Drawn(n / 3 % 3), [65, 129, 257, 300][n / 9 % 4]))][n % 3];
        let palette = Palette {
            extents: extents.to_vec(),
            dtypes: if dtypes.is_empty() { DType::ALL.to_vec() } else { dtypes.clone() },
            distinct: false,
            one,
            relations_first: n % 4 == 3,
            ends: PLAIN.to_vec(),
            only_ends: n / 4 % 2 == 1,
            ..Dims::Wide.palette(&literals)
        };
        let mut random = cases::random(seed, &probe.rule().name, 1_000_000 + n);
        let Some(instance) = Instance::draw(probe.rule(), &mut Drawn::from(&palette, &mut random), Bindings::default())
        else {
            continue;
        };
        if weight(&instance) >= weight(&smallest.instance) {
            continue;
        }
        let Ok(sides) = instance.sides(probe, 0) else { continue };
        for turn in 0..3 + CARRIED {
            let mut values = fitting(&sides, manner, &mut random);
            // Failing values may be rare, so the values of the failing case are tried too.
            if turn >= 3 && !carry(&smallest, &mut values, turn - 3) {
                break;
            }
            let smaller = Case { instance: instance.clone(), sides: sides.clone(), style: case.style, values };
            if fails(&smaller) {
                smallest = smaller;
                break;
            }
        }
    }
    plainer(smallest, fails)
}

/// Returns the size by which instances are compared: the number of elements, then the length of the variables' text.
fn weight(instance: &Instance) -> (usize, usize) {
    (instance.size(), instance.values().iter().map(|(_, value)| value.len()).sum())
}

/// Fills tensors with the elements of a failing case, starting at element `from`. Returns whether some tensor of the
/// failing case has an element `from`.
fn carry(failing: &Case, values: &mut Values, from: usize) -> bool {
    let mut any = false;
    for (name, tensor) in values.iter_mut() {
        let Some(old) = failing.values.get(name).filter(|old| old.dtype() == tensor.dtype() && old.count() > 0) else {
            continue;
        };
        any |= from < old.count();
        let has = old.to_f64();
        *tensor =
            Tensor::from_f64(tensor.dtype(), tensor.dims(), (0..tensor.count()).map(|n| has[(from + n) % has.len()]));
    }
    any
}

/// Replaces numbers of a failing case by plain ones, as long as the case still fails.
fn plainer(mut case: Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut steps = 0;
    // All values are replaced at once first. A failure that needs equal numbers would be lost if only one of them
    // changed.
    for plain in [0.0, 1.0] {
        let mut other = case.clone();
        for tensor in other.values.values_mut() {
            *tensor = filled(tensor, plain);
        }
        if fails(&other) {
            return other;
        }
    }
    for name in case.values.keys().cloned().collect::<Vec<_>>() {
        let tensor = case.values[&name].clone();
        for plain in [0.0, 1.0] {
            if replace(&mut case, &name, filled(&tensor, plain), fails) {
                break;
            }
        }
        // Elements of long tensors are not shown, so they are not simplified.
        let readable = if tensor.count() <= READABLE { tensor.count() } else { 0 };
        for at in 0..readable {
            let has = case.values[&name].to_f64();
            for plain in [0.0, 1.0, 2.0, -1.0, has[at].round(), (has[at] * 8.0).round() / 8.0] {
                steps += 1;
                if has[at] == plain || steps > STEPS {
                    break;
                }
                let mut elements = has.clone();
                elements[at] = plain;
                let changed = Tensor::from_f64(tensor.dtype(), tensor.dims(), elements);
                if replace(&mut case, &name, changed, fails) {
                    break;
                }
            }
        }
    }
    case
}

fn filled(like: &Tensor, number: f64) -> Tensor {
    Tensor::from_f64(like.dtype(), like.dims(), std::iter::repeat_n(number, like.count()))
}

fn replace(case: &mut Case, name: &str, tensor: Tensor, fails: &dyn Fn(&Case) -> bool) -> bool {
    let before = case.values.insert(name.to_string(), tensor);
    if fails(case) {
        return true;
    }
    if let Some(before) = before {
        case.values.insert(name.to_string(), before);
    }
    false
}

#[cfg(test)]
mod tests {
    use eutectic::RuleSet;

    use super::*;

    #[test]
    fn fails_is_called_at_most_the_given_number_of_times() {
        let rules = RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        let probe = rules.probes().find(|p| &*p.rule().name == "simplify/mul-one").expect("a rule has this name");
        let case = cases::corpus(&probe, 1, Some(8)).cases.remove(0);
        for most in [0, 1, 7] {
            let asked = Cell::new(0);
            // A case that always fails is shrunk until `most` calls were made.
            let smallest = shrink(&probe, &case, 1, most, &|_| {
                asked.set(asked.get() + 1);
                true
            });
            assert!(asked.get() <= most, "{} for {most}", asked.get());
            assert!(most > 0 || smallest.instance.size() == case.instance.size());
        }
    }
}
