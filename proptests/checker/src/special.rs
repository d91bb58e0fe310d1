//! Draws values with an infinity or NaN at one place, or with garbage that a mask hides.

use std::collections::{BTreeMap, BTreeSet};

use eutectic::Tensor;
use eutectic_rewrites::Sides;

use crate::{
    boundary::range,
    evaluate::evaluated,
    fitting::fitting,
    values::{self, Manner, Style, Values},
};

/// Values that are put into a tensor of otherwise ordinary numbers.
const SPECIAL: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
/// The maximal number of places of masks and garbage to try.
const TRIES: usize = 32;

/// Records the combinations that the cases of a rule have covered.
#[derive(Debug, Default)]
pub struct Turns {
    /// The number of draws of each style. Each style has its own count, so that it uses all its ways in turn, whatever
    /// styles are drawn in between.
    counts: BTreeMap<&'static str, usize>,
    /// The used ways to mask one tensor by another, each with the kind of garbage in the masked tensor.
    garbage: BTreeSet<(WayKey, usize)>,
    /// The numbers of the pairs of special tensors that were tried in this round. A round tries each pair once.
    pairs: BTreeSet<usize>,
    /// Whether the left side absorbed a pair of this round.
    absorbs: bool,
}

impl Turns {
    /// Returns the number of the next turn of a style.
    fn next(&mut self, style: &'static str) -> usize {
        let count = self.counts.entry(style).or_default();
        *count += 1;
        *count
    }
}

/// Returns values of a style, or of a substitute if the style does not apply to the sides.
pub fn values(sides: &Sides, manner: Manner<'_>, turns: &mut Turns, random: &mut fastrand::Rng) -> (Style, Values) {
    match manner.style {
        Style::Masked => masked(sides, manner, turns, random),
        Style::Placed | Style::Paired | Style::Garbage => {
            let style = if manner.style == Style::Paired { Style::Positive } else { Style::Ordinary };
            let plain = fitting(sides, Manner { style, ..manner }, random);
            // Constants are usually finite, so parameters take special values only if there are no inputs.
            let mut inputs: Vec<&str> = sides.written.named("input").map(|(name, _)| name).collect();
            if inputs.is_empty() {
                inputs = sides.written.named("param").map(|(name, _)| name).collect();
            }
            let hidden = (manner.style == Style::Garbage)
                .then(|| garbage(sides, manner.moderate, &plain, &inputs, turns, random))
                .flatten();
            match hidden {
                Some(values) => (Style::Garbage, values),
                None if manner.style == Style::Paired => {
                    let turn = turns.next("paired");
                    let absorbed = (turn % 2 == 1).then(|| absorbed(sides, &plain, &inputs, turns, random)).flatten();
                    (Style::Paired, absorbed.unwrap_or_else(|| paired(plain, &inputs, turn, 0, random)))
                }
                None => (Style::Placed, placed(plain, &inputs, turns.next("placed"), random)),
            }
        }
        Style::Ends => {
            let (turn, values) = (turns.next("ends"), fitting(sides, manner, random));
            let halved = (turn % 4 == 1).then(|| values::halved(&values, manner, turn / 4)).flatten();
            // A count of its own, since half of the odd turns may be used up by `halved`.
            let opposed = || (turn % 2 == 1).then(|| values::opposed(&values, manner, turns.next("opposed")));
            (Style::Ends, halved.or_else(opposed).unwrap_or(values))
        }
        style => (style, fitting(sides, manner, random)),
    }
}

/// A part of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    One,
    Row,
    Column,
    All,
}

const PARTS: [Part; 4] = [Part::One, Part::Row, Part::Column, Part::All];

impl Part {
    /// Returns whether an element belongs to the part at a place. Both are flat indices into a tensor of these extents.
    fn has(self, at: usize, place: usize, dims: &[usize]) -> bool {
        let width = dims.last().copied().unwrap_or(1).max(1);
        match self {
            Part::One => at == place,
            Part::Row => at / width == place / width,
            Part::Column => at % width == place % width,
            Part::All => true,
        }
    }
}

/// Returns the names of the floating tensors among those in `of`.
fn floats(values: &Values, of: &[&str]) -> Vec<String> {
    let is_float = |name: &str| values.get(name).is_some_and(|t| t.dtype().is_float());
    of.iter().filter(|name| is_float(name)).map(|name| name.to_string()).collect()
}

/// Puts a number into a part of a tensor, at a random place.
fn put(values: &mut Values, name: &str, part: Part, number: f64, random: &mut fastrand::Rng) {
    if let Some(tensor) = values.get_mut(name).filter(|t| t.count() > 0) {
        let place = random.usize(..tensor.count());
        let dims = tensor.dims().to_vec();
        *tensor = changed(tensor, |at, x| if part.has(at, place, &dims) { number } else { x });
    }
}

/// Returns ordinary values with NaN or an infinity in one tensor, in the `n`th way.
fn placed(mut values: Values, inputs: &[&str], n: usize, random: &mut fastrand::Rng) -> Values {
    let floats = floats(&values, inputs);
    // The tensor changes with each `n`, and the part changes after all tensors had their turn.
    let (Some(name), part) = (floats.get(n % floats.len().max(1)), PARTS[n / floats.len().max(1) % PARTS.len()]) else {
        return values;
    };
    put(&mut values, name, part, SPECIAL[(n + n / SPECIAL.len()) % SPECIAL.len()], random);
    values
}

/// The number of ways to put infinities into the first tensor of a pair: either sign, along a row or throughout.
const INFINITIES: usize = 4;

/// Returns positive values with infinities in one tensor, and a special number throughout another one. `n` selects the
/// way, and `kind` shifts the choice of the special number. A single tensor is treated as in [`placed`].
fn paired(mut values: Values, inputs: &[&str], n: usize, kind: usize, random: &mut fastrand::Rng) -> Values {
    let floats = floats(&values, inputs);
    let count = floats.len();
    if count < 2 {
        return placed(values, inputs, n, random);
    }
    let (first, others) = (n % count, n / count);
    let second = (first + 1 + others % (count - 1)) % count;
    let ways = others / (count - 1);
    let part = if (ways / 2).is_multiple_of(2) { Part::All } else { Part::Row };
    let infinity = if ways.is_multiple_of(2) { f64::NEG_INFINITY } else { f64::INFINITY };
    put(&mut values, &floats[first], part, infinity, random);
    put(&mut values, &floats[second], Part::All, SPECIAL[(n + ways + kind) % SPECIAL.len()], random);
    values
}

/// Returns values with a pair of special tensors that the left side absorbs: all its results are finite. For example,
/// attention may skip values of ∞ if all scores are −∞. Such pairs are rare, but a wrong right side gives NaN for most
/// of them. Each round tries each pair once, and each case tries at most [`TRIES`] pairs.
fn absorbed(
    sides: &Sides,
    plain: &Values,
    inputs: &[&str],
    turns: &mut Turns,
    random: &mut fastrand::Rng,
) -> Option<Values> {
    let names = floats(plain, inputs);
    if names.iter().any(|name| plain[name].count() == 0) {
        return None;
    }
    let count = names.len();
    let pairs = INFINITIES * count * count.saturating_sub(1) * SPECIAL.len();
    // If the left side absorbed no pair in a whole round, no further round starts, because evaluating a convolution
    // takes long.
    if turns.pairs.len() >= pairs && std::mem::take(&mut turns.absorbs) {
        turns.pairs.clear();
    }
    let new: Vec<usize> = (0..pairs).filter(|pair| !turns.pairs.contains(pair)).take(TRIES).collect();
    new.into_iter().find_map(|pair| {
        turns.pairs.insert(pair);
        let values = paired(plain.clone(), inputs, pair / SPECIAL.len(), pair % SPECIAL.len(), random);
        let is_finite = |t: &Tensor| !t.dtype().is_float() || t.to_f64().iter().all(|x| x.is_finite());
        let left = evaluated(&sides.written, &values).ok()?;
        let is_absorbed = !left.nan && left.results.iter().all(is_finite) && left.results.iter().any(|t| t.count() > 0);
        turns.absorbs |= is_absorbed;
        is_absorbed.then_some(values)
    })
}

/// Returns a tensor with `f` of the index and value of each element.
fn changed(tensor: &Tensor, f: impl Fn(usize, f64) -> f64) -> Tensor {
    let elements: Vec<f64> = tensor.to_f64().into_iter().enumerate().map(|(at, x)| f(at, x)).collect();
    Tensor::from_f64(tensor.dtype(), tensor.dims(), elements)
}

/// Returns ordinary values with a mask, and with garbage that the left side does not read, so that all its results are
/// finite. A mask is a tensor of bools, or one in which the left side absorbs −∞ at some places. Each kind of garbage
/// has its turn in each tensor. Returns `None` if no tensor masks another one.
fn garbage(
    sides: &Sides,
    moderate: bool,
    plain: &Values,
    inputs: &[&str],
    turns: &mut Turns,
    random: &mut fastrand::Rng,
) -> Option<Values> {
    let mut ways = ways(plain);
    ways.retain(|way| inputs.contains(&&*way.of));
    if ways.is_empty() {
        return None;
    }
    let turn = turns.next("garbage");
    random.shuffle(&mut ways);
    // Masks of single elements come before masks of rows, because a fully masked row may have no result.
    ways.sort_by_key(|way| way.axes.map_or(0, |(axis, _)| axis));
    ways.truncate(TRIES);
    let kinds = SPECIAL.len() + usize::from(!moderate);
    let seen = |turns: &Turns, way: &Way, kind: usize| turns.garbage.contains(&(way.key(), kind % kinds));
    // Values that repeat an earlier combination are used only if no way gives a new one.
    let mut again = None;
    for way in &ways {
        let mut new = (turn..turn + kinds).filter(|kind| !seen(turns, way, *kind));
        let kind = new.next();
        if kind.is_none() && again.is_some() {
            continue;
        }
        let Some(values) = way.garbage(sides, plain, kind.unwrap_or(turn) % kinds, random) else { continue };
        match kind {
            Some(kind) => {
                turns.garbage.insert((way.key(), kind % kinds));
                return Some(values);
            }
            None => again = Some(values),
        }
    }
    again
}

/// A tensor that may mask another one, with an axis of each that has the same extent. Axes are counted from the end.
/// Without axes, the tensor masks elements at the same positions.
#[derive(Clone, Debug)]
struct Way {
    mask: String,
    /// The value of the mask that hides an element.
    off: f64,
    /// The masked tensor.
    of: String,
    axes: Option<(usize, usize)>,
}

/// The mask, the masked tensor and the axes of a [`Way`].
type WayKey = (String, String, Option<(usize, usize)>);

/// Returns all ways in which one tensor may mask another, by their extents.
fn ways(values: &Values) -> Vec<Way> {
    let mut ways = Vec::new();
    for (mask, m) in values {
        let offs: &[f64] = match m.dtype() {
            eutectic::DType::Bool => &[0.0, 1.0],
            dtype if dtype.is_float() => &[f64::NEG_INFINITY],
            _ => continue,
        };
        if m.count() == 0 {
            continue;
        }
        for (of, t) in values.iter().filter(|(of, t)| *of != mask && t.dtype().is_float() && t.count() > 0) {
            for &off in offs {
                let mut way = |axes| ways.push(Way { mask: mask.clone(), off, of: of.clone(), axes });
                if m.dims() == t.dims() && m.count() > 1 {
                    way(None);
                }
                for (a, b) in (0..m.dims().len()).flat_map(|a| (0..t.dims().len()).map(move |b| (a, b))) {
                    if extent(m, a) == extent(t, b) && extent(m, a) > 1 {
                        way(Some((a, b)));
                    }
                }
            }
        }
    }
    ways
}

fn extent(t: &Tensor, from_the_end: usize) -> usize {
    t.dims()[t.dims().len() - 1 - from_the_end]
}

/// Returns the coordinate of an element along an axis that is counted from the end.
fn coordinate(at: usize, dims: &[usize], from_the_end: usize) -> usize {
    let axis = dims.len() - 1 - from_the_end;
    at / dims[axis + 1..].iter().product::<usize>() % dims[axis]
}

impl Way {
    fn key(&self) -> WayKey {
        (self.mask.clone(), self.of.clone(), self.axes)
    }

    /// Returns the values with the mask set at the first coordinate of its axis, or at every third element.
    fn hidden(&self, plain: &Values, random: &mut fastrand::Rng) -> Option<Values> {
        let mask = plain.get(&self.mask).filter(|mask| mask.count() > 0)?;
        let dims = mask.dims().to_vec();
        let on = |x: f64| if self.off.is_finite() { 1.0 - self.off } else { x };
        let place = random.usize(..mask.count());
        let is_off = |at: usize| match self.axes {
            Some((axis, _)) => coordinate(at, &dims, axis) == 0,
            None => at % 3 == place % 3,
        };
        let masked = changed(mask, |at, x| if is_off(at) { self.off } else { on(x) });
        let mut values = plain.clone();
        values.insert(self.mask.clone(), masked);
        Some(values)
    }

    /// Returns the values with the mask set and garbage of a kind at hidden places. Returns `None` if the left side
    /// reads the garbage.
    fn garbage(&self, sides: &Sides, plain: &Values, kind: usize, random: &mut fastrand::Rng) -> Option<Values> {
        let finite = |t: &Tensor| !t.dtype().is_float() || t.to_f64().iter().all(|x| x.is_finite());
        let results = |values: &Values| {
            let left = evaluated(&sides.written, values).ok()?;
            left.results.iter().all(finite).then(|| left.results.iter().map(Tensor::to_f64).collect::<Vec<_>>())
        };
        let hidden = self.hidden(plain, random)?;
        let without = results(&hidden)?;
        let worst = self.with_garbage(&hidden, kind)?;
        // The left side reads the garbage if a result changes.
        (results(&worst)? == without).then_some(worst)
    }

    /// Returns the values with garbage at hidden places: a special number, or the largest one.
    fn with_garbage(&self, hidden: &Values, kind: usize) -> Option<Values> {
        let (mask, of) = (hidden.get(&self.mask)?, hidden.get(&self.of)?);
        let garbage = SPECIAL.get(kind).copied().unwrap_or(range(of.dtype()).1);
        let (is_off, dims) = (mask.to_f64(), of.dims().to_vec());
        let is_hidden = |at: usize| match self.axes {
            Some((_, axis)) => coordinate(at, &dims, axis) == 0,
            None => is_off[at] == self.off,
        };
        let mut values = hidden.clone();
        values.insert(self.of.clone(), changed(of, |at, x| if is_hidden(at) { garbage } else { x }));
        Some(values)
    }
}

/// The number of random masks that a tensor must accept to count as a mask. A single one proves little, because a row
/// that is hidden anyway accepts any values.
const MASKS: usize = 8;

/// Returns values with a mask in a tensor that the left side accepts as one. A tensor is accepted if every result is
/// finite with −∞ at some places of each row, but not with ∞ there. (Functions that saturate absorb both.)
///
/// Every second mask has the least finite number instead of −∞, as many programs write it, so that a fully masked row
/// has a result. That number is used only if it is in the domain that the rule states.
fn masked(sides: &Sides, manner: Manner<'_>, turns: &mut Turns, random: &mut fastrand::Rng) -> (Style, Values) {
    let finite = |t: &Tensor| t.dtype().is_float() && t.to_f64().iter().all(|x| x.is_finite());
    // If an op turns NaN into a number, the left side does not absorb the mask.
    let absorbs = |values: &Values| {
        evaluated(&sides.written, values).is_ok_and(|left| !left.nan && left.results.iter().all(finite))
    };
    let ordinary = Manner { style: Style::Ordinary, ..manner };
    let plain = fitting(sides, ordinary, random);
    let names: Vec<String> = plain.keys().cloned().collect();
    let first = random.usize(..names.len().max(1));
    for n in 0..names.len() {
        let name = &names[(first + n) % names.len()];
        let mut saturates = true;
        let takes_one_in = (0..MASKS).all(|_| {
            let plain = fitting(sides, ordinary, random);
            let partly = values::masked(&plain, name, false, random).filter(&absorbs);
            saturates &= partly.as_ref().is_none_or(|partly| absorbs(&values::remasked(partly, name, f64::INFINITY)));
            partly.is_some()
        });
        if takes_one_in
            && !saturates
            && let Some(values) = values::masked(&plain, name, true, random)
        {
            let finite = turns.next("masked").is_multiple_of(2);
            let least = values
                .get(name)
                .map(|mask| -range(mask.dtype()).1)
                .filter(|least| finite && manner.domain(name).is_none_or(|(low, _)| low <= *least));
            let values = least.map_or_else(|| values.clone(), |least| values::remasked(&values, name, least));
            return (Style::Masked, values);
        }
    }
    (Style::Ordinary, plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_expected_number_of_elements() {
        let count = |part: Part| (0..24).filter(|at| part.has(*at, 13, &[2, 3, 4])).count();
        assert_eq!(PARTS.map(count), [1, 4, 6, 24]);
    }

    #[test]
    fn coordinates_are_counted_from_the_end() {
        assert_eq!([0, 1, 2].map(|axis| coordinate(23, &[2, 3, 4], axis)), [3, 2, 1]);
    }

    #[test]
    fn every_tensor_and_every_special_number_has_its_turn() {
        let ordinary = || Tensor::from_f64(eutectic::DType::F32, &[2, 3], vec![1.0; 6]);
        let values: Values = ["a", "b"].map(|name| (name.to_string(), ordinary())).into();
        let mut seen = BTreeSet::new();
        for n in 0..24 {
            let placed = placed(values.clone(), &["a", "b"], n, &mut fastrand::Rng::with_seed(n as u64));
            for (name, t) in &placed {
                let special = t.to_f64().into_iter().filter(|x| !x.is_finite());
                let text: Vec<String> = special.map(|x| x.to_string()).collect();
                if !text.is_empty() {
                    seen.insert((name.clone(), text[0].clone(), text.len()));
                }
            }
        }
        assert!(seen.len() >= 16, "{seen:?}");
    }

    #[test]
    fn each_pair_of_ends_occurs_in_the_halves_of_a_tensor() {
        let rules = eutectic::RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        let probe = rules.probes().find(|p| &*p.rule().name == "decompose/glu-second").expect("a rule has this name");
        let manner = Manner::of(probe.rule(), Style::Ends, &[]);
        let dtype = eutectic::DType::F32;
        let values: Values = [("?p".to_string(), Tensor::from_f64(dtype, &[4, 6], vec![1.0; 24]))].into();
        let ends = crate::boundary::ends(dtype, manner.moderate);
        let ends = Tensor::from_f64(dtype, &[ends.len()], ends).to_f64();
        let mut seen = BTreeSet::new();
        for n in 0..ends.len() * ends.len() / 12 + 1 {
            let all = values::halved(&values, manner, n).expect("the last axis has an even extent")["?p"].to_f64();
            seen.extend(all.chunks(6).flat_map(|row| (0..3).map(|at| [row[at], row[at + 3]].map(f64::to_bits))));
        }
        for pair in ends.iter().flat_map(|a| ends.iter().map(|b| [*a, *b])) {
            // 0 may stand for −0.
            let is_there = |pair: [f64; 2]| seen.contains(&pair.map(f64::to_bits));
            assert!(is_there(pair) || is_there(pair.map(|x| x + 0.0)), "{pair:?}");
        }
    }

    #[test]
    fn ends_of_the_range_are_finite() {
        let rules = eutectic::RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        for name in ["decompose/scatter-prod", "decompose/scatter-sum"] {
            let probe = rules.probes().find(|p| &*p.rule().name == name).expect("a rule has this name");
            for case in crate::cases::corpus(&probe, 6, None).cases.iter().filter(|case| case.style == Style::Ends) {
                let floats = case.values.values().filter(|t| t.dtype().is_float()).flat_map(Tensor::to_f64);
                assert!(floats.into_iter().all(f64::is_finite), "{name}: {:?}", case.instance);
            }
        }
    }

    #[test]
    fn the_least_number_has_its_turn_in_each_tensor() {
        let rules = eutectic::RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        let probe = rules.probes().find(|p| &*p.rule().name == "simplify/flat-matmul").expect("a rule has this name");
        let manner = Manner::of(probe.rule(), Style::Ends, &[]);
        let of = || Tensor::from_f64(eutectic::DType::F16, &[2], vec![1.0; 2]);
        let values: Values = ["a", "b", "c"].map(|name| (name.to_string(), of())).into();
        let small = |n: usize| -> Vec<String> {
            let all = values::opposed(&values, manner, n);
            all.into_iter().filter(|(_, t)| t.to_f64()[0].abs() < 1.0).map(|(name, _)| name).collect()
        };
        assert_eq!([0, 1, 2, 3].map(small), [vec!["a".to_string()], vec!["b".into()], vec!["c".into()], vec![]]);
        let negative = |n: usize| {
            let all = values::opposed(&values, manner, n);
            ["a", "b", "c"].map(|name| all[name].to_f64()[0] < 0.0)
        };
        for [a, b] in [[0, 1], [0, 2], [1, 2]] {
            assert!((3..values::oppositions(3)).map(negative).any(|signs| signs[a] != signs[b]), "{a}, {b}");
        }
    }

    #[test]
    fn each_pair_of_tensors_has_its_turn() {
        let names = ["a", "b", "c"];
        let values: Values =
            names.map(|name| (name.to_string(), Tensor::from_f64(eutectic::DType::F64, &[2, 3], vec![1.0; 6]))).into();
        let mut seen = BTreeSet::new();
        for n in 0..24 {
            let paired = paired(values.clone(), &names, n, 0, &mut fastrand::Rng::with_seed(n as u64));
            let special = |name: &str| paired[name].to_f64().into_iter().filter(|x| !x.is_finite()).count();
            let counts: Vec<usize> = names.iter().map(|name| special(name)).collect();
            assert_eq!(counts.iter().filter(|count| **count > 0).count(), 2, "{counts:?}");
            seen.insert(counts);
        }
        // Each of the three tensors has infinities along a row of three elements, and throughout. Each of the others
        // has special values meanwhile.
        assert_eq!(seen.len(), 9, "{seen:?}");
    }

    #[test]
    fn each_kind_of_garbage_has_its_turn_behind_a_mask() {
        let rules = eutectic::RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        let named = |p: &eutectic_rewrites::Probe| &*p.rule().name == "unfuse/attention-bias";
        let probe = rules.probes().find(named).expect("a rule has this name");
        for seed in 1..4 {
            let cases = crate::cases::corpus(&probe, seed, None).cases;
            let mut seen = BTreeSet::new();
            for case in cases.iter().filter(|case| case.style == Style::Garbage) {
                for (name, tensor) in &case.values {
                    let special = tensor.to_f64().into_iter().filter(|x| !x.is_finite());
                    seen.extend(special.map(|x| (name.clone(), x.to_string())));
                }
            }
            // The bias hides keys and values.
            for name in ["?k", "?v"] {
                for special in SPECIAL {
                    let has = |(of, x): &(String, String)| of == name && *x == special.to_string();
                    assert!(seen.iter().any(has), "seed {seed}: {special} in {name}: {seen:?}");
                }
            }
        }
    }

    /// A mask of the least number hides all keys of a row, as for padded text. Rounding to 16 bits must not turn this
    /// number into −∞.
    #[test]
    fn fully_masked_rows_are_not_nan_in_16_bits() {
        let rules = eutectic::RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        for name in ["f16/attention-bias", "bf16/attention-bias"] {
            let probe = rules.probes().find(|p| &*p.rule().name == name).expect("a rule has this name");
            let ordinary = |case: &&crate::cases::Case| case.style == Style::Ordinary && case.values["?m"].count() > 0;
            let cases = crate::cases::corpus(&probe, 1, None).cases;
            let mut judged = 0;
            for case in cases.iter().filter(ordinary) {
                let mut values = case.values.clone();
                let mask = &values["?m"];
                let least = vec![f64::from(f32::MIN); mask.count()];
                values.insert("?m".into(), Tensor::from_f64(mask.dtype(), mask.dims(), least));
                let right = evaluated(&case.sides.right, &values).expect("the side reads no ids");
                let left = evaluated(&case.sides.written, &values).expect("the side reads no ids");
                let has_nan = |all: &[Tensor]| all.iter().flat_map(Tensor::to_f64).any(f64::is_nan);
                assert!(!has_nan(&left.results) && !has_nan(&right.results), "{name}");
                judged += 1;
            }
            assert!(judged > 2, "{name}: {judged}");
        }
    }
}
