//! Generates the cases of a rule: instances over every kind of dims, attributes, element types and values.

use std::collections::BTreeMap;

use eutectic::DType;
use eutectic_ir::lang::Bindings;
use eutectic_ir::{Graph, Type, graph::Node};
use eutectic_rewrites::{Contract, Phase, Probe, Rule, Sides, Unmatched};

use crate::{
    instance::Instance,
    judge::{Verdict, judge},
    literals::literals,
    palette::{Drawn, Palette},
    rows::{Dims, rows},
    special::{self, Turns},
    values::{self, Manner, Style, Values},
};

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Values for the rule's variables.
    pub instance: Instance,
    /// Both sides.
    pub sides: Sides,
    /// The kind of numbers in the tensors.
    pub style: Style,
    /// The values of the tensors.
    pub values: Values,
}

/// All cases of a rule, and the problems that were found while drawing them.
#[derive(Default)]
pub struct Corpus {
    /// The cases.
    pub cases: Vec<Case>,
    /// Instances of the rule's left side that the rule does not match.
    pub unmatched: Vec<Instance>,
    /// Whether an instance was left out because computing it would take too long.
    pub too_large: bool,
    /// An instance whose sides differ in type, and the difference.
    pub ill_typed: Option<(Instance, String)>,
}

impl Corpus {
    /// Returns the cases in an order that alternates floating element types, so that the first few cases cover all
    /// types.
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

/// The maximal number of draws for an instance. Drawing is repeated until the rule's relations hold.
const DRAWS: usize = 400;
/// The number of instances that are drawn for their types alone.
const TYPED: usize = 80;
/// The maximal size of an instance that is drawn for its types alone, in elements of all tensors.
const LARGEST_TYPED: usize = 1 << 24;
/// The maximal size of an instance, in elements of all tensors. The interpreter computes it element by element.
const LARGEST: usize = 2500;
/// The maximal size of an instance with the full number of [`variants`], in elements of all tensors.
const SMALL: usize = 600;
/// The maximal size of an instance with one large dim.
const LARGEST_LONG: usize = 20_000;
/// The maximal work of a side, in operations plus elements. The size alone is no bound: a convolution has many
/// operations per element.
const WORK: f64 = 1e6;

/// Returns the generator for a case. It depends on the seed, the rule and the case only, so that a rule can be replayed
/// alone.
pub fn random(seed: u64, rule: &str, case: usize) -> fastrand::Rng {
    let name = rule.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let first = fastrand::Rng::with_seed(seed ^ name).u64(..);
    fastrand::Rng::with_seed(first.wrapping_add(case as u64))
}

/// The maximal number of draws for an instance with one dim of a given extent. Many rules have no such dim, or compute
/// too much if it has that extent.
const ONE_DRAWS: usize = 60;

/// Draws an instance and its sides. Records in the corpus whether an instance does not match, is too large, or has
/// sides of different types.
fn instance(
    probe: &Probe,
    palette: &Palette,
    dtypes: &Bindings,
    random: &mut fastrand::Rng,
    corpus: &mut Corpus,
) -> Option<(Instance, Sides)> {
    let (draws, largest) = if palette.one.is_some() { (ONE_DRAWS, LARGEST_LONG) } else { (DRAWS, LARGEST) };
    for _ in 0..draws {
        let drawn = Instance::draw(probe.rule(), &mut Drawn::from(palette, random), dtypes.clone());
        let Some(instance) = drawn else { continue };
        if instance.size() > largest {
            corpus.too_large = true;
            continue;
        }
        match instance.sides(probe, 0) {
            Ok(sides) if work(&sides.left).max(work(&sides.right)) > WORK => corpus.too_large = true,
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

/// Returns the number of operations of a graph plus the number of elements of its results.
fn work(graph: &Graph) -> f64 {
    let of = |node: &Node| {
        let operands: Vec<&Type> = node.operands.iter().map(|&id| graph.ty(id)).collect();
        node.ty.count() as f64 + node.op.flops(&node.attrs, &operands, &node.ty)
    };
    graph.nodes().map(|(_, node)| of(node)).sum()
}

/// Returns the cases for a seed: `cases` of them, or one for each row of the covering array if `None`.
pub fn corpus(probe: &Probe, seed: u64, cases: Option<usize>) -> Corpus {
    let rule = probe.rule();
    let mut corpus = Corpus { ill_typed: ill_typed(probe, seed), ..Corpus::default() };
    let (rows, literals) = (rows(rule), literals(rule));
    let mut turns = Turns::default();
    for n in 0..cases.unwrap_or(rows.len()) {
        let row = &rows[n % rows.len()];
        let mut random = random(seed, &rule.name, n);
        let palette = row.palette(rule, &literals);
        let related = Palette { relations_first: true, ..palette.clone() };
        let any = Bindings::default();
        let mut find = |palette: &Palette, dtypes| instance(probe, palette, dtypes, &mut random, &mut corpus);
        let mut found = find(&palette, &row.bound);
        if palette.one.is_none_or(|(_, extent)| extent == 0) {
            found = found.or_else(|| find(&related, &row.bound));
        }
        // An op of the row may not take the row's element types. Then any types are drawn.
        if !palette.ops.is_empty() {
            found = found.or_else(|| find(&palette, &any));
        }
        if corpus.ill_typed.is_some() {
            return corpus;
        }
        let Some((instance, sides)) = found else { continue };
        let manner = Manner::of(rule, row.style, &literals);
        // A style that varies the positions of special values makes several cases of an instance.
        for _ in 0..variants(row.style, instance.size(), instance.members[0].types.len()) {
            let (style, values) = special::values(&sides, manner, &mut turns, &mut random);
            corpus.cases.push(Case { instance: instance.clone(), sides: sides.clone(), style, values });
        }
    }
    corpus
}

/// The maximal number of tensors for which `Style::Ends` goes through the patterns of [`values::opposed`]. Only every
/// second variant takes a pattern, so there are twice as many variants.
const FEW: usize = 5;

/// Returns the number of variants of an instance: cases with the same types and other values. Large instances have
/// fewer, because the interpreter is slow.
fn variants(style: Style, size: usize, tensors: usize) -> usize {
    match style {
        Style::Ends if tensors <= FEW => 2 * values::oppositions(tensors),
        Style::Placed if size <= SMALL => 6,
        Style::Paired if size <= SMALL => 8,
        Style::Ends if size <= SMALL => 4,
        Style::Garbage if size <= SMALL => 6,
        Style::Placed | Style::Paired | Style::Ends | Style::Garbage | Style::Masked => 2,
        _ => 1,
    }
}

/// Returns an instance with large or empty dims whose sides differ in type. Nothing is computed, so these instances are
/// cheap.
fn ill_typed(probe: &Probe, seed: u64) -> Option<(Instance, String)> {
    let large = Palette { extents: vec![37, 64, 101, 130, 257, 521], ..Dims::Distinct.palette(&[]) };
    let empty = Dims::Empty.palette(&[]);
    (0..TYPED).find_map(|n| {
        let mut random = random(seed, &probe.rule().name, 3_000_000 + n);
        let palette = Palette { ops: vec![n; 2], ..if n % 2 == 0 { large.clone() } else { empty.clone() } };
        let instance = Instance::draw(probe.rule(), &mut Drawn::from(&palette, &mut random), Bindings::default())?;
        let fits = instance.size() <= LARGEST_TYPED;
        match fits.then(|| instance.sides(probe, 0))? {
            Err(Unmatched::Types(how)) => Some((instance, how)),
            _ => None,
        }
    })
}

impl Case {
    /// Returns a node of the right side that is not in legal form, if the rule is a legalization rule.
    pub fn illegal(&self, rule: &Rule) -> Option<String> {
        let right = &self.sides.right;
        let illegal = |node: &&Node| {
            let operands: Vec<&Type> = node.operands.iter().map(|o| right.ty(*o)).collect();
            !node.op.is_legal(&node.attrs, &operands)
        };
        let mut nodes = right.nodes().map(|(_, node)| node);
        if rule.phase == Phase::Legalize { nodes.find(illegal).map(|n| format!("{} : {}", n.op, n.ty)) } else { None }
    }

    /// Compares the sides. Values for which the left side is undefined are not judged.
    ///
    /// # Errors
    /// If the right side reads outside of a tensor and the left side does not.
    pub fn judge(&self, contract: Contract) -> Result<Verdict, String> {
        judge(&self.sides, contract, self.style, &self.values, &self.instance.numbers()).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use eutectic::{RuleSet, Tensor};

    use super::*;

    #[test]
    fn ids_name_the_last_elements_of_a_long_axis() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/wrong");
        let rules = RuleSet::load(&folder).unwrap_or_else(|e| panic!("{e}"));
        let named = |p: &Probe| &*p.rule().name == "wrong/gathers-gather-ids-as-i8";
        let probe = rules.probes().find(named).expect("a rule has this name");
        for seed in 1..4 {
            let all = corpus(&probe, seed, None).cases;
            let most = |case: &Case| {
                let ids = case.values.values().filter(|t| t.dtype().is_int()).flat_map(Tensor::to_i64);
                ids.max().unwrap_or(0)
            };
            assert!(all.iter().map(most).any(|id| id > 255), "seed {seed}: no id is beyond 8 bits");
        }
    }
}
