//! Lays out the covering array of a rule: each row states the properties of one case.

use eutectic::DType;
use eutectic_ir::{
    Dim,
    lang::{
        Bindings,
        typing::{Bound, DimPattern, DimsItem, SlotKind, TypePattern, VarId},
    },
};
use eutectic_rewrites::{Contract, Rule, rule::VariableKind};

use crate::{
    array, boundary,
    literals::literals,
    palette::{Palette, Which, groups, words},
    promise::promise,
    values::{LEAST_LARGE, Manner, Style},
};

/// A kind of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dims {
    /// Distinct prime extents from 2 to 11.
    Distinct,
    /// Distinct extents from 2 to 12. Offsets and lengths may be 0.
    Wide,
    /// Extents of 1 and 2.
    Ones,
    /// Extents from 0 to 3, so that some tensors are empty.
    Empty,
    /// Extents from 1 to 4, where the rule's relations choose theirs first.
    Related,
    /// Extents just below and above the widths of vectors and tiles.
    Straddling,
    /// One dim with this extent. The others are from 1 to 3.
    One(Which, i64),
}

impl Dims {
    const SMALL: [Dims; 6] = [Dims::Distinct, Dims::Wide, Dims::Related, Dims::Ones, Dims::Empty, Dims::Straddling];

    /// Returns the palette for instances with such dims.
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
            words: Vec::new(),
        }
    }
}

/// Large extents. All exceed the sizes of vectors and tiles. Some exceed the range of 8-bit counters, and 256 or 2048,
/// up to which `bf16` or `f16` represents every integer.
const LARGE: [i64; 5] = [LEAST_LARGE, 129, 257, 300, 2145];
/// The largest number of the rule's text that is tried as an extent.
const LARGEST_LITERAL: f64 = 4000.0;
/// The maximal number of dim variables that are large in turn. A rule with sequences of dims also has at least half as
/// many drawn dims that are large in turn.
const TURNS: usize = 4;
/// The maximal number of dim variables that are empty in turn. It is larger than [`TURNS`], because empty dims cost
/// little.
const EMPTY_TURNS: usize = 8;
/// An extent that gives tensors enough elements for many combinations of numbers.
const ROOMY: i64 = 300;
/// The maximal number of element-type variables that rows fix. Others are drawn.
const DTYPES: usize = 2;

/// The properties of one case: a row of a covering array.
#[derive(Clone, Debug)]
pub struct Row {
    /// The element types, and the extent of a variable if the row fixes one.
    pub bound: Bindings,
    pub style: Style,
    dims: Dims,
    /// The index of the op of each op variable. If the row fixes one dim, the list is empty, and any ops are drawn.
    ops: Vec<usize>,
    /// The slots of word variables, each with the index of its word. Variables that are not listed take any word.
    words: Vec<(VarId, usize)>,
    /// The kind of values of the number variables.
    numbers: Numbers,
}

/// The values that the number variables of a case stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// Any values. If the style tests the range, they include the ends of the range that the contract covers for
    /// constants.
    Any,
    /// The least positive value that the contract covers.
    Least,
    /// The largest magnitude that the contract covers, with either sign.
    Largest,
}

impl Row {
    /// Returns the palette for the row's instances.
    pub fn palette(&self, rule: &Rule, literals: &[f64]) -> Palette {
        let only_ends = self.style == Style::Numbers || self.numbers != Numbers::Any;
        let (ops, words, ends) = (self.ops.clone(), self.words.clone(), self.ends(rule));
        let mut palette = self.dims.palette(literals);
        // Extents of 1 are dropped, because a sum of one term overflows in no order.
        if matches!(self.dims, Dims::One(..)) && self.style == Style::Ends {
            palette.extents.retain(|extent| *extent > 1);
        }
        Palette { ops, words, ends, only_ends, ..palette }
    }

    /// Returns the first floating element type of the row.
    fn float(&self, rule: &Rule) -> Option<DType> {
        let mut bound = (0..rule.scope.variables.len()).filter_map(|slot| match self.bound.get(slot) {
            Some(Bound::DType(dtype)) => Some(*dtype),
            _ => None,
        });
        bound.find(|dtype| dtype.is_float())
    }

    /// Returns the ends of the range of the element type if the row tests the range.
    fn ends(&self, rule: &Rule) -> Vec<f64> {
        let dtype = self.float(rule).unwrap_or(DType::F32);
        match (self.numbers, self.style) {
            (Numbers::Least, _) => vec![boundary::coarse(dtype)[0].recip()],
            (Numbers::Largest, _) | (_, Style::Numbers) => boundary::coarse(dtype).to_vec(),
            (_, Style::Ends) => boundary::ends(dtype, true),
            _ => Vec::new(),
        }
    }
}

/// Returns the rows of a rule. The rows cover each pair of levels of five factors: element types, styles of values,
/// kinds of dims, ops and words. Further rows cover each element type with each empty dim, and with each large extent
/// of each dim. Others cover it with the ends of the range of the program's numbers.
pub fn rows(rule: &Rule) -> Vec<Row> {
    let space = RowSpace::of(rule);
    [space.small(), space.empty(), space.long(), space.ends(), space.sums()].concat()
}

/// The levels whose combinations are the rows of a rule.
struct RowSpace<'a> {
    rule: &'a Rule,
    /// The variables of element types that rows fix, and the types of each.
    slots: Vec<(usize, Vec<DType>)>,
    /// For each variable of ops, the number of ops that it may stand for.
    groups: Vec<usize>,
    /// The attributes that are words, each with the number of its words.
    words: Vec<(VarId, usize)>,
    styles: &'static [Style],
    /// The styles of values that are combined with all large and empty extents.
    often: &'static [Style],
    /// The dims that are large in turn.
    turns: Vec<Which>,
    /// The choices of the program's numbers at the ends of their range.
    numbers: &'static [Numbers],
}

impl<'a> RowSpace<'a> {
    fn of(rule: &'a Rule) -> RowSpace<'a> {
        let mut slots: Vec<(usize, Vec<DType>)> = (rule.scope.variables.iter().enumerate())
            .filter_map(|(slot, (_, kind))| match kind {
                SlotKind::DType(class) => Some((slot, DType::ALL.into_iter().filter(|d| class.contains(*d)).collect())),
                _ => None,
            })
            .collect();
        let groups = groups(rule);
        match groups.is_empty() {
            true => slots.truncate(DTYPES),
            // An op relates the element types of its operands, so rows fix the last variable only. For a selection, the
            // first variable is the type of the condition, and the last one is the type of the selected operands.
            false => drop(slots.drain(..slots.len().saturating_sub(1))),
        }
        // Boundary values are among these styles, because only large tensors have enough elements for all combinations
        // of them.
        let often: &[Style] =
            if promise(rule) == Contract::Fast { &[Style::Ordinary] } else { &[Style::Boundary, Style::Ordinary] };
        let has_numbers = rule.variables.iter().any(|v| matches!(v.kind, VariableKind::Number(_)));
        let numbers: &[Numbers] = if has_numbers { &[Numbers::Least, Numbers::Largest] } else { &[Numbers::Any] };
        let (styles, turns) = (Style::of(rule), turns(rule, TURNS));
        RowSpace { rule, slots, groups, words: words(rule), styles, often, turns, numbers }
    }

    /// Returns the element types of a row's levels.
    fn dtypes(&self, row: &[usize]) -> Bindings {
        let mut bindings = Bindings::default();
        for ((slot, of), level) in self.slots.iter().zip(row) {
            // This cannot fail, because each slot is bound only once.
            let _ = bindings.bind(*slot, Bound::DType(of[*level]));
        }
        bindings
    }

    /// Returns the covering array of the element types and of factors with `others` levels.
    fn pairs(&self, others: &[usize]) -> Vec<Vec<usize>> {
        let levels: Vec<usize> = self.slots.iter().map(|(_, of)| of.len()).chain(others.iter().copied()).collect();
        array::pairs(&levels)
    }

    /// Returns the number of words of each word variable.
    fn word_counts(&self) -> Vec<usize> {
        self.words.iter().map(|(_, count)| *count).collect()
    }

    /// Returns the words that the levels select.
    fn listed(&self, levels: &[usize]) -> Vec<(VarId, usize)> {
        self.words.iter().zip(levels).map(|((slot, _), level)| (*slot, *level)).collect()
    }

    /// Returns a row in which one dim has a fixed extent.
    fn one(&self, dtypes: &[usize], extent: i64, which: Which, style: Style) -> Row {
        let mut bound = self.dtypes(dtypes);
        if let Which::Variable(slot) = which {
            let _ = bound.bind(slot, Bound::Dim(Dim::Known(extent)));
        }
        Row { bound, style, dims: Dims::One(which, extent), ops: Vec::new(), words: Vec::new(), numbers: Numbers::Any }
    }

    /// Returns the rows of small extents, in all styles.
    fn small(&self) -> Vec<Row> {
        let counts = [&[self.styles.len(), Dims::SMALL.len()][..], &self.groups, &self.word_counts()].concat();
        let row = |row: &Vec<usize>| {
            let (of, others) = row.split_at(self.slots.len());
            let (style, dims) = (self.styles[others[0]], Dims::SMALL[others[1]]);
            let (ops, levels) = others[2..].split_at(self.groups.len());
            let (bound, words) = (self.dtypes(of), self.listed(levels));
            Row { bound, style, dims, ops: ops.to_vec(), words, numbers: Numbers::Any }
        };
        self.pairs(&counts).iter().map(row).collect()
    }

    /// Returns the rows with an empty dim. A sum over an empty axis reads no element, so NaN in other operands shows
    /// whether both sides skip the same elements.
    fn empty(&self) -> Vec<Row> {
        let special = [Style::Placed, Style::NonFinite].into_iter().filter(|style| self.styles.contains(style));
        let styles: Vec<Style> = self.often.iter().copied().chain(special).collect();
        let turns = turns(self.rule, EMPTY_TURNS);
        let row = |row: &Vec<usize>| {
            let (of, others) = row.split_at(self.slots.len());
            self.one(of, 0, turns[others[0]], styles[others[1]])
        };
        self.pairs(&[turns.len(), styles.len()]).iter().map(row).collect()
    }

    /// Returns the rows with a large dim. They combine each large extent of each dim with each style. Pairs would not
    /// be enough, because a wrong count shows in one style only.
    fn long(&self) -> Vec<Row> {
        let mut large = LARGE.to_vec();
        for x in literals(self.rule) {
            if x.fract() == 0.0 && (34.0..=LARGEST_LITERAL).contains(&x) {
                large.extend([x as i64, x as i64 + 1]);
            }
        }
        let (turns, often) = (&self.turns, self.often);
        let row = |row: &Vec<usize>| {
            let (of, others) = row.split_at(self.slots.len());
            self.one(of, large[others[0]], turns[others[1] / often.len()], often[others[1] % often.len()])
        };
        self.pairs(&[large.len(), turns.len() * often.len()]).iter().map(row).collect()
    }

    /// Returns the rows with numbers at the ends of each element type's range. One dim is large, so that tensors
    /// contain all combinations of these numbers. The numbers of the program are also at the ends of their range.
    fn ends(&self) -> Vec<Row> {
        let roomy = [Style::Ends, Style::Numbers].into_iter().filter(|style| self.styles.contains(style));
        let kinds: Vec<(Style, Numbers)> =
            roomy.flat_map(|style| self.numbers.iter().map(move |numbers| (style, *numbers))).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        let row = |row: &Vec<usize>| {
            let (of, others) = row.split_at(self.slots.len());
            let (style, numbers) = kinds[others[0]];
            Row { numbers, words: self.listed(&others[1..]), ..self.one(of, ROOMY, self.turns[0], style) }
        };
        self.pairs(&[&[kinds.len()][..], &self.word_counts()].concat()).iter().map(row).collect()
    }

    /// Returns the rows with long sums. A sum of products over a shared dim may overflow in some element types. The
    /// rows make each such dim long once in each of these types.
    fn sums(&self) -> Vec<Row> {
        let has_sums = self.styles.contains(&Style::Ends) && Manner::of(self.rule, Style::Ends, &[]).moderate;
        let summed = if has_sums { shared(self.rule) } else { Vec::new() };
        let most = self.slots.iter().map(|(_, of)| of.len()).max().unwrap_or(1);
        let sums = summed.iter().flat_map(|which| (0..most).map(move |level| (*which, level)));
        let row = |(which, level): (Which, usize)| {
            let of: Vec<usize> = self.slots.iter().map(|(_, of)| level.min(of.len() - 1)).collect();
            let numbers = self.numbers[self.numbers.len() - 1];
            let row = Row { numbers, ..self.one(&of, ROOMY, which, Style::Ends) };
            row.float(self.rule).is_some_and(sums_overflow).then_some(row)
        };
        sums.filter_map(row).collect()
    }
}

/// Returns whether a long sum of products may overflow in a type although its factors are moderate.
fn sums_overflow(dtype: DType) -> bool {
    let most = boundary::coarse(dtype)[0];
    most * most * ROOMY as f64 > boundary::range(dtype).1
}

/// Returns the dims that two tensors of a rule share. Sums of products may run over these dims.
fn shared(rule: &Rule) -> Vec<Which> {
    let has = |ty: &TypePattern, slot: usize| ty.dims.0.contains(&DimsItem::One(DimPattern::Var(slot)));
    let count = |slot: usize| rule.tensors().filter(|(_, ty, _)| has(ty, slot)).count();
    (0..rule.scope.variables.len()).filter(|slot| count(*slot) > 1).take(TURNS).map(Which::Variable).collect()
}

/// Returns about `most` dims that are large or empty in turn. Variables that are extents come first. Drawn dims follow
/// if the rule has sequences or products of dims, or no such variable.
fn turns(rule: &Rule, most: usize) -> Vec<Which> {
    let items = || rule.tensors().flat_map(|(_, ty, _)| &ty.dims.0);
    let mut turns: Vec<Which> = Vec::new();
    for item in items() {
        if let DimsItem::One(DimPattern::Var(slot)) = item
            && turns.len() < most
            && !turns.contains(&Which::Variable(*slot))
        {
            turns.push(Which::Variable(*slot));
        }
    }
    let others = items().any(|item| !matches!(item, DimsItem::One(DimPattern::Var(_) | DimPattern::Number(_))));
    if others || turns.is_empty() {
        turns.extend((0..most.min(TURNS).saturating_sub(turns.len()).max(TURNS / 2)).map(Which::Drawn));
    }
    turns
}

#[cfg(test)]
mod tests {
    use eutectic::RuleSet;

    use super::*;

    fn of(name: &str, test: impl Fn(&Rule, Vec<Row>)) {
        let rules = RuleSet::embedded().unwrap_or_else(|e| panic!("{e}"));
        let probe = rules.probes().find(|p| &*p.rule().name == name).expect("a rule has this name");
        test(probe.rule(), rows(probe.rule()));
    }

    #[test]
    fn each_word_is_combined_with_each_style() {
        of("decompose/glu-second", |rule, rows| {
            let (slot, count) = words(rule)[0];
            assert_eq!(count, 7);
            for style in Style::of(rule) {
                for word in 0..count {
                    let meet = |row: &Row| row.style == *style && row.words.contains(&(slot, word));
                    assert!(rows.iter().any(meet), "{style:?}, word {word}");
                }
            }
        });
    }

    #[test]
    fn numbers_of_the_program_reach_both_ends_of_their_range_in_each_type() {
        of("fuse/layernorm-affine", |rule, rows| {
            for dtype in DType::ALL.into_iter().filter(|d| d.is_float() && d.computes()) {
                let most = boundary::coarse(dtype)[0];
                for end in [most, -most, 1.0 / most] {
                    let has = |row: &Row| {
                        let typed = (0..rule.scope.variables.len())
                            .any(|slot| matches!(row.bound.get(slot), Some(Bound::DType(d)) if *d == dtype));
                        let palette = row.palette(rule, &[]);
                        typed && palette.only_ends && palette.ends.contains(&end)
                    };
                    assert!(rows.iter().any(has), "{dtype}: {end}");
                }
            }
        });
    }

    #[test]
    fn sums_at_the_ends_of_the_range_have_several_terms() {
        of("algebra/lora-into-weights", |rule, rows| {
            let ends = rows.iter().filter(|row| row.style == Style::Ends && matches!(row.dims, Dims::One(..)));
            let extents: Vec<Vec<i64>> = ends.map(|row| row.palette(rule, &[]).extents).collect();
            assert!(!extents.is_empty() && extents.iter().flatten().all(|extent| *extent > 1), "{extents:?}");
        });
    }

    #[test]
    fn each_shared_dim_is_long_where_sums_of_products_may_overflow() {
        of("algebra/scale-into-weights", |rule, rows| {
            let shared = shared(rule);
            assert!(!shared.is_empty());
            for which in shared {
                let is_long = |row: &&Row| row.style == Style::Ends && row.dims == Dims::One(which, ROOMY);
                let dtypes: Vec<DType> = rows.iter().filter(is_long).filter_map(|row| row.float(rule)).collect();
                assert!(dtypes.contains(&DType::F16), "{which:?}: {dtypes:?}");
            }
        });
    }

    #[test]
    fn each_dim_is_empty_with_nan_and_infinities_in_other_elements() {
        of("fuse/conv-of-conv-transpose", |rule, rows| {
            let dims = rule.scope.variables.iter().enumerate().filter(|(_, (_, kind))| matches!(kind, SlotKind::Dim));
            let dims: Vec<usize> = dims.map(|(slot, _)| slot).collect();
            assert!(dims.len() >= 7, "{dims:?}");
            for slot in dims.into_iter().take(EMPTY_TURNS) {
                for style in [Style::Placed, Style::NonFinite] {
                    let has = |row: &Row| row.style == style && row.dims == Dims::One(Which::Variable(slot), 0);
                    assert!(rows.iter().any(has), "variable {slot}, {style:?}");
                }
            }
        });
    }
}
