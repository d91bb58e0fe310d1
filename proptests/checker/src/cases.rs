//! The cases of a rule: instances over every kind of dims, attributes, element types and values.

use std::collections::BTreeMap;

use eutectic::DType;
use eutectic_ir::{Graph, InterpError, Type, graph::Node};
use eutectic_rewrites::{Contract, Phase, Probe, Rule, Sides, Unmatched};

use crate::{
    evaluate::rounded,
    instance::Instance,
    judge::{Verdict, judge},
    palette::{Drawn, Palette, turns},
    values::{self, Style, Values},
};

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Values for the rule's variables.
    pub instance: Instance,
    /// Both sides.
    pub sides: Sides,
    /// What kind of numbers the tensors hold.
    pub style: Style,
    /// The tensors.
    pub values: Values,
}

/// All cases of a rule, and what came up on the way to them.
#[derive(Default)]
pub struct Corpus {
    /// The cases.
    pub cases: Vec<Case>,
    /// Instances of its left side that the rule does not match.
    pub unmatched: Vec<Instance>,
    /// An instance whose sides differ in type, and how.
    pub ill_typed: Option<(Instance, String)>,
}

impl Corpus {
    /// The cases with those of each floating element type in turn, so that the first few are of all of them.
    pub fn mixed(&self) -> impl Iterator<Item = &Case> {
        let mut seen: BTreeMap<Vec<DType>, usize> = BTreeMap::new();
        let mut turn = |case: &Case| {
            let turns = seen.entry(case.instance.dtypes().filter(|d| d.is_float()).collect()).or_default();
            *turns += 1;
            *turns
        };
        let mut cases: Vec<(usize, &Case)> = self.cases.iter().map(|case| (turn(case), case)).collect();
        cases.sort_by_key(|(turn, _)| *turn);
        cases.into_iter().map(|(_, case)| case)
    }
}

/// How many draws a case may take: relations are met by drawing again.
const DRAWS: usize = 400;
/// How many instances are drawn for their types alone.
const TYPED: usize = 80;
/// The largest of these, in elements of all tensors.
const LARGEST_TYPED: usize = 1 << 24;
/// The largest instances, in elements of all tensors: these run in the interpreter, element by element.
const LARGEST: usize = 2500;
/// The most that a side computes, in operations and elements: a convolution makes much of little.
const WORK: f64 = 1e6;

/// The generator for a case: it depends on the seed, the rule and the case only, so that a rule replays alone.
pub fn random(seed: u64, rule: &str, case: usize) -> fastrand::Rng {
    let name = rule.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let first = fastrand::Rng::with_seed(seed ^ name).u64(..);
    fastrand::Rng::with_seed(first.wrapping_add(case as u64))
}

/// What the `n`th case is drawn from.
pub fn palette(n: usize) -> Palette {
    use DType::*;
    let (extents, distinct, dtypes): (&[i64], bool, &[DType]) = match n % 6 {
        0 => (&[2, 3, 5, 7, 11], true, &[F64, F64, F64, I32, I64, Bool]),
        1 => (&[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], true, &[F32, F32, F32, I32, U8, Bool]),
        // Tensors without elements among them.
        2 if n % 12 == 2 => (&[0, 1, 2, 3], false, &[F64, F64, I8, U32, Bool]),
        2 => (&[1, 2], false, &[F64, F64, I8, U32, Bool]),
        3 => (&[1, 2, 3, 4], false, &[F64, F64, F64, I32, I64, Bool]),
        // Around the widths of vectors and tiles.
        4 => (&[1, 3, 4, 7, 8, 9, 15, 16, 17, 33], false, &[F32]),
        _ => (&[1, 2, 3, 4], false, &[F16, Bf16, F32, I8, U8, I32, I64, U32, Bool]),
    };
    Palette {
        extents: extents.to_vec(),
        distinct,
        zero: n % 2 == 1,
        numbers: vec![0.5, 2.0, -1.5, 0.125, 3.0, -2.0, 30.0, 1e-5, 1.0, 0.0, 0.7, -1.0, 1e-12],
        dtypes: dtypes.to_vec(),
        relations_first: n % 6 == 3,
        turn: n,
    }
}

/// Draws an instance and its sides; what does not fit is put into the corpus.
pub fn instance(
    probe: &Probe,
    palette: &Palette,
    random: &mut fastrand::Rng,
    corpus: &mut Corpus,
) -> Option<(Instance, Sides)> {
    for _ in 0..DRAWS {
        let Some(instance) = Instance::draw(probe.rule(), &mut Drawn::from(palette, random)) else { continue };
        if instance.size() > LARGEST {
            continue;
        }
        match instance.sides(probe, 0) {
            Ok(sides) if work(&sides.left).max(work(&sides.right)) > WORK => {}
            Ok(sides) => return Some((instance, sides)),
            Err(Unmatched::IllTyped(_) | Unmatched::NoRight) => {}
            Err(Unmatched::NoMatch) => {
                corpus.unmatched.push(instance);
                if corpus.unmatched.len() > DRAWS {
                    return None;
                }
            }
            Err(Unmatched::Types(how)) => {
                corpus.ill_typed.get_or_insert((instance, how));
                return None;
            }
        }
    }
    None
}

/// Operations and elements of a graph.
fn work(graph: &Graph) -> f64 {
    let of = |node: &Node| {
        let operands: Vec<&Type> = node.operands.iter().map(|&id| graph.ty(id)).collect();
        node.ty.count() as f64 + (node.op.def().flops)(&operands, &node.ty)
    };
    graph.nodes().map(|(_, node)| of(node)).sum()
}

/// The cases that a seed gives.
pub fn corpus(probe: &Probe, seed: u64, cases: usize) -> Corpus {
    let rule = probe.rule();
    let mut corpus = Corpus { ill_typed: ill_typed(probe, seed), ..Corpus::default() };
    // Every op that a variable stands for is tried.
    for n in 0..cases.max(turns(rule)) {
        let mut random = random(seed, &rule.name, n);
        let narrow = Palette { relations_first: true, ..palette(n) };
        let found = instance(probe, &palette(n), &mut random, &mut corpus)
            .or_else(|| instance(probe, &narrow, &mut random, &mut corpus));
        if corpus.ill_typed.is_some() {
            return corpus;
        }
        let Some((instance, sides)) = found else { continue };
        let styles = Style::of(rule.contract);
        let style = styles[if styles.len().is_multiple_of(3) { n + n / 6 } else { n } % styles.len()];
        let (style, values) = match style {
            Style::Masked => masked(&sides, rule.contract, &mut random),
            style => (style, fitting(&sides, style, rule.contract, &mut random)),
        };
        corpus.cases.push(Case { instance, sides, style, values });
    }
    corpus
}

/// An instance with large dims, or with empty ones, whose sides differ in type: nothing is computed, so these cost nothing.
fn ill_typed(probe: &Probe, seed: u64) -> Option<(Instance, String)> {
    let large = Palette { extents: vec![37, 64, 101, 130, 257, 521], ..palette(0) };
    let empty = palette(2);
    (0..TYPED).find_map(|n| {
        let mut random = random(seed, &probe.rule().name, 3_000_000 + n);
        let palette = Palette { turn: n, ..if n % 2 == 0 { large.clone() } else { empty.clone() } };
        let instance = Instance::draw(probe.rule(), &mut Drawn::from(&palette, &mut random))?;
        let fits = instance.size() <= LARGEST_TYPED;
        match fits.then(|| instance.sides(probe, 0))? {
            Err(Unmatched::Types(how)) => Some((instance, how)),
            _ => None,
        }
    })
}

/// How often a tensor must take a mask in to count as one that does: a hidden row may absorb anything.
const MASKS: usize = 8;

/// Values with a mask, in a tensor that the left side takes one in: with −∞ at some places of each row every result is finite,
/// with ∞ there it is not (functions that saturate absorb both).
fn masked(sides: &Sides, contract: Contract, random: &mut fastrand::Rng) -> (Style, Values) {
    let finite = |t: &eutectic::Tensor| t.dtype().is_float() && t.to_f64().iter().all(|x| x.is_finite());
    let absorbs = |values: &Values| rounded(&sides.written, values).is_ok_and(|left| left.iter().all(finite));
    let plain = fitting(sides, Style::Ordinary, contract, random);
    let names: Vec<String> = plain.keys().cloned().collect();
    let first = random.usize(..names.len().max(1));
    for n in 0..names.len() {
        let name = &names[(first + n) % names.len()];
        let mut saturates = true;
        let takes_one_in = (0..MASKS).all(|_| {
            let plain = fitting(sides, Style::Ordinary, contract, random);
            let partly = values::masked(&plain, name, false, random).filter(&absorbs);
            saturates &= partly.as_ref().is_none_or(|partly| absorbs(&values::mirrored(partly, name)));
            partly.is_some()
        });
        if takes_one_in
            && !saturates
            && let Some(values) = values::masked(&plain, name, true, random)
        {
            return (Style::Masked, values);
        }
    }
    (Style::Ordinary, plain)
}

/// Values on which the left side can be evaluated: integers that index something lie within it.
pub fn fitting(sides: &Sides, style: Style, contract: Contract, random: &mut fastrand::Rng) -> Values {
    let mut most = None;
    loop {
        let values = values::draw(&sides.written, style, contract, most, random);
        match rounded(&sides.written, &values) {
            Err(InterpError::IndexOutOfRange { extent, .. }) if most.is_none_or(|m| m > extent) => most = Some(extent),
            _ => return values,
        }
    }
}

impl Case {
    /// A node of the right side that no kernel takes, where it is the rule that is to bring it into such a form.
    pub fn illegal(&self, rule: &Rule) -> Option<String> {
        let right = &self.sides.right;
        let illegal = |node: &&Node| {
            let operands: Vec<&Type> = node.operands.iter().map(|o| right.ty(*o)).collect();
            !node.op.is_legal(&node.attrs, &operands)
        };
        let mut nodes = right.nodes().map(|(_, node)| node);
        if rule.phase == Phase::Legalize { nodes.find(illegal).map(|n| format!("{} : {}", n.op, n.ty)) } else { None }
    }

    /// Compares the sides.
    ///
    /// # Errors
    /// When the right side reads outside of a tensor where the left does not.
    pub fn judge(&self, contract: Contract) -> Result<Verdict, String> {
        judge(&self.sides, contract, self.style, &self.values).map_err(|e| e.to_string())
    }
}
