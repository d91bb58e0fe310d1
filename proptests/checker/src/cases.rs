//! The cases of a rule: instances over every kind of dims, attributes, element types and values.

use std::collections::BTreeMap;

use eutectic::DType;
use eutectic_ir::lang::{
    Bindings,
    typing::{Bound, DimPattern, DimsItem, SlotKind},
};
use eutectic_ir::{Dim, Graph, InterpError, Type, graph::Node};
use eutectic_rewrites::{Contract, Phase, Probe, Rule, Sides, Unmatched};

use crate::{
    array, boundary,
    evaluate::evaluated,
    instance::Instance,
    judge::{Verdict, judge, promise},
    literals::literals,
    palette::{Drawn, Palette, Which, groups},
    special,
    values::{self, Manner, Style, Values},
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
    /// Whether an instance was left out because computing it would take too long.
    pub too_large: bool,
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
/// Those that are cheap enough to be judged on several values.
const SMALL: usize = 600;
/// Those with one large dim.
const LARGEST_LONG: usize = 20_000;
/// The most that a side computes, in operations and elements: a convolution makes much of little.
const WORK: f64 = 1e6;

/// The generator for a case: it depends on the seed, the rule and the case only, so that a rule replays alone.
pub fn random(seed: u64, rule: &str, case: usize) -> fastrand::Rng {
    let name = rule.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let first = fastrand::Rng::with_seed(seed ^ name).u64(..);
    fastrand::Rng::with_seed(first.wrapping_add(case as u64))
}

/// A kind of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dims {
    /// Told apart.
    Distinct,
    /// Told apart, and attributes that reach into them.
    Wide,
    /// Of 1 and 2.
    Ones,
    /// With tensors without elements among them.
    Empty,
    /// What the rule's relations choose first.
    Related,
    /// Around the widths of vectors and tiles.
    Straddling,
    /// One dim has this extent, the others are 1 to 3.
    One(Which, i64),
}

impl Dims {
    const SMALL: [Dims; 6] = [Dims::Distinct, Dims::Wide, Dims::Related, Dims::Ones, Dims::Empty, Dims::Straddling];

    /// What instances with such dims are drawn from.
    pub fn palette(self, literals: &[f64]) -> Palette {
        let (extents, distinct): (&[i64], bool) = match self {
            Dims::Distinct => (&[2, 3, 5, 7, 11], true),
            Dims::Wide => (&[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], true),
            Dims::Ones => (&[1, 2], false),
            Dims::Empty => (&[0, 0, 1, 2, 3], false),
            Dims::Related => (&[1, 2, 3, 4], false),
            Dims::Straddling => (&[1, 3, 4, 7, 8, 9, 15, 16, 17, 33], false),
            Dims::One(..) => (&[1, 2, 3], false),
        };
        Palette {
            extents: extents.to_vec(),
            distinct,
            one: if let Dims::One(which, extent) = self { Some((which, extent)) } else { None },
            zero: !matches!(self, Dims::Distinct | Dims::Ones),
            literals: literals.to_vec(),
            ends: Vec::new(),
            only_ends: false,
            dtypes: DType::ALL.to_vec(),
            relations_first: self == Dims::Related,
            ops: Vec::new(),
        }
    }
}

/// Large extents: beyond vectors, tiles and the counters of eight bits, and beyond what `bf16` and `f16` count: of as many truths, these
/// hold the even numbers only.
const LARGE: [i64; 5] = [LEAST_LARGE, 129, 257, 300, 2145];
/// The least of them.
pub const LEAST_LARGE: i64 = 65;
/// The largest extent that is drawn around a number of the rule's text.
const LARGEST_LITERAL: f64 = 4000.0;
/// At least so many dims take turns in being large, or empty, where a rule has sequences of them; as many variables at most.
const TURNS: usize = 4;
/// So many element types of a rule are told apart by the covering array; others are drawn.
const DTYPES: usize = 2;

/// What one case is about: a row of a covering array.
#[derive(Clone, Debug)]
struct Row {
    /// Element types, and the extent of a variable.
    bound: Bindings,
    style: Style,
    dims: Dims,
    /// Which ops its variables of ops stand for; any where it is about one dim.
    ops: Vec<usize>,
}

impl Row {
    /// The ends of the range of its element type, where it is about these.
    fn ends(&self, rule: &Rule) -> Vec<f64> {
        let mut bound = (0..rule.scope.variables.len()).filter_map(|slot| match self.bound.get(slot) {
            Some(Bound::DType(dtype)) => Some(*dtype),
            _ => None,
        });
        let dtype = bound.find(|dtype| dtype.is_float()).unwrap_or(DType::F32);
        match self.style {
            Style::Ends => boundary::ends(dtype, true),
            Style::Numbers => boundary::coarse(dtype).to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The rows of a rule: each element type meets each style of values and each kind of dims, each style each kind of dims, and each
/// element type each dim without elements, and each large extent of each dim.
fn rows(rule: &Rule) -> Vec<Row> {
    let mut slots: Vec<(usize, Vec<DType>)> = (rule.scope.variables.iter().enumerate())
        .filter_map(|(slot, (_, kind))| match kind {
            SlotKind::DType(class) => Some((slot, DType::ALL.into_iter().filter(|d| class.contains(*d)).collect())),
            _ => None,
        })
        .collect();
    let groups = groups(rule);
    match groups.is_empty() {
        true => slots.truncate(DTYPES),
        // An op relates the element types of its operands; a condition comes first, what it chooses from last.
        false => drop(slots.drain(..slots.len().saturating_sub(1))),
    }
    let styles = Style::of(rule);
    let mut large = LARGE.to_vec();
    for x in literals(rule) {
        if x.fract() == 0.0 && (34.0..=LARGEST_LITERAL).contains(&x) {
            large.extend([x as i64, x as i64 + 1]);
        }
    }
    let dtypes = |row: &[usize]| {
        let mut bindings = Bindings::default();
        for ((slot, of), level) in slots.iter().zip(row) {
            // Nothing is bound yet.
            let _ = bindings.bind(*slot, Bound::DType(of[*level]));
        }
        bindings
    };
    let levels =
        |others: &[usize]| slots.iter().map(|(_, of)| of.len()).chain(others.iter().copied()).collect::<Vec<_>>();
    let small = array::pairs(&levels(&[&[styles.len(), Dims::SMALL.len()][..], &groups].concat()));
    let small = small.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        let (style, dims, ops) = (styles[others[0]], Dims::SMALL[others[1]], others[2..].to_vec());
        Row { bound: dtypes(of), style, dims, ops }
    });
    // Of these, what matters most is that all boundary values have room to meet.
    let often = [Style::Boundary, Style::Ordinary];
    let often = if promise(rule) == Contract::Fast { &[Style::Ordinary][..] } else { &often };
    let turns = turns(rule);
    let one = |row: &[usize], extent: i64, which: usize, style: usize| {
        let mut bound = dtypes(row);
        if let Which::Variable(slot) = turns[which] {
            let _ = bound.bind(slot, Bound::Dim(Dim::Known(extent)));
        }
        Row { bound, style: often[style], dims: Dims::One(turns[which], extent), ops: Vec::new() }
    };
    let empty = array::pairs(&levels(&[turns.len(), often.len()]));
    let empty = empty.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        one(of, 0, others[0], others[1])
    });
    // Each large extent of each dim meets each style: a triple, as what counts is told by one of them alone.
    let long = array::pairs(&levels(&[large.len(), turns.len() * often.len()]));
    let long = long.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        one(of, large[others[0]], others[1] / often.len(), others[1] % often.len())
    });
    small.chain(empty).chain(long).collect()
}

/// The dims that take turns: variables that are extents of their own, then what is drawn where there are sequences, or products.
fn turns(rule: &Rule) -> Vec<Which> {
    let items = || rule.tensors().flat_map(|(_, ty, _)| &ty.dims.0);
    let mut turns: Vec<Which> = Vec::new();
    for item in items() {
        if let DimsItem::One(DimPattern::Var(slot)) = item
            && turns.len() < TURNS
            && !turns.contains(&Which::Variable(*slot))
        {
            turns.push(Which::Variable(*slot));
        }
    }
    let others = items().any(|item| !matches!(item, DimsItem::One(DimPattern::Var(_) | DimPattern::Number(_))));
    if others || turns.is_empty() {
        turns.extend((0..TURNS.saturating_sub(turns.len()).max(TURNS / 2)).map(Which::Drawn));
    }
    turns
}

/// How many draws are worth it to find an instance with one dim of an extent: many rules have less dims, or compute too much then.
const ONE_DRAWS: usize = 60;

/// Draws an instance and its sides; what does not fit is put into the corpus.
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

/// Operations and elements of a graph.
fn work(graph: &Graph) -> f64 {
    let of = |node: &Node| {
        let operands: Vec<&Type> = node.operands.iter().map(|&id| graph.ty(id)).collect();
        node.ty.count() as f64 + (node.op.def().flops)(&operands, &node.ty)
    };
    graph.nodes().map(|(_, node)| of(node)).sum()
}

/// The cases that a seed gives: `cases` of them, or one for each row where `None`.
pub fn corpus(probe: &Probe, seed: u64, cases: Option<usize>) -> Corpus {
    let rule = probe.rule();
    let mut corpus = Corpus { ill_typed: ill_typed(probe, seed), ..Corpus::default() };
    let (rows, literals) = (rows(rule), literals(rule));
    let mut turn = 0;
    for n in 0..cases.unwrap_or(rows.len()) {
        let row = &rows[n % rows.len()];
        let mut random = random(seed, &rule.name, n);
        let only_ends = row.style == Style::Numbers;
        let palette = Palette { ops: row.ops.clone(), ends: row.ends(rule), only_ends, ..row.dims.palette(&literals) };
        let related = Palette { relations_first: true, ..palette.clone() };
        let any = Bindings::default();
        let mut find = |palette: &Palette, dtypes| instance(probe, palette, dtypes, &mut random, &mut corpus);
        let mut found = find(&palette, &row.bound);
        if palette.one.is_none_or(|(_, extent)| extent == 0) {
            found = found.or_else(|| find(&related, &row.bound));
        }
        // Not every op takes every element type.
        if !palette.ops.is_empty() {
            found = found.or_else(|| find(&palette, &any));
        }
        if corpus.ill_typed.is_some() {
            return corpus;
        }
        let Some((instance, sides)) = found else { continue };
        let manner = Manner::of(rule, row.style, &literals);
        // Values that differ mainly in their place need no instance of their own.
        for _ in 0..variants(row.style, instance.size()) {
            let (style, values) = special::values(&sides, manner, &mut turn, &mut random);
            corpus.cases.push(Case { instance: instance.clone(), sides: sides.clone(), style, values });
        }
    }
    corpus
}

/// How many values an instance is judged on.
fn variants(style: Style, size: usize) -> usize {
    match style {
        Style::Placed if size <= SMALL => 6,
        Style::Ends | Style::Garbage if size <= SMALL => 3,
        Style::Placed | Style::Ends | Style::Garbage => 2,
        _ => 1,
    }
}

/// An instance with large dims, or with empty ones, whose sides differ in type: nothing is computed, so these cost nothing.
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

/// Values on which the left side can be evaluated: integers that index something lie within it.
pub fn fitting(sides: &Sides, manner: Manner<'_>, random: &mut fastrand::Rng) -> Values {
    let mut most = None;
    loop {
        let values = values::draw(&sides.written, manner, most, random);
        match evaluated(&sides.written, &values) {
            Err(InterpError::IndexOutOfRange { problem, .. }) => {
                let extent = usize::try_from(problem.ids.extent).unwrap_or(0);
                if most.is_some_and(|m| m <= extent) {
                    return values;
                }
                most = Some(extent);
            }
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

    /// Compares the sides. Of values for which the left side is no value, the rule says nothing.
    ///
    /// # Errors
    /// When the right side reads outside of a tensor where the left does not.
    pub fn judge(&self, contract: Contract) -> Result<Verdict, String> {
        judge(&self.sides, contract, self.style, &self.values, &self.instance.numbers()).map_err(|e| e.to_string())
    }
}
