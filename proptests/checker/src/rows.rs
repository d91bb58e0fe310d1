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
    /// Distinct extents.
    Distinct,
    /// Distinct extents, and attributes that reach into them.
    Wide,
    /// Of 1 and 2.
    Ones,
    /// With tensors without elements among them.
    Empty,
    /// Dims that the rule's relations choose first.
    Related,
    /// Around the widths of vectors and tiles.
    Straddling,
    /// One dim has this extent, the others are 1 to 3.
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

/// Large extents: beyond vectors, tiles and the counters of eight bits, and beyond what `bf16` and `f16` count: of as many truths, these
/// hold the even numbers only.
const LARGE: [i64; 5] = [LEAST_LARGE, 129, 257, 300, 2145];
/// The largest extent that is drawn around a number of the rule's text.
const LARGEST_LITERAL: f64 = 4000.0;
/// The least number of dims that take turns in being large or empty where a rule has sequences of dims, and the most variables that do.
const TURNS: usize = 4;
/// The same of dims that are empty, which cost little.
const EMPTY_TURNS: usize = 8;
/// An extent with room for many combinations of numbers.
const ROOMY: i64 = 300;
/// The most element types of a rule that the covering array distinguishes; others are drawn.
const DTYPES: usize = 2;

/// States the properties of one case: a row of a covering array.
#[derive(Clone, Debug)]
pub struct Row {
    /// Element types, and the extent of a variable.
    pub bound: Bindings,
    pub style: Style,
    dims: Dims,
    /// Which ops its variables of ops stand for; any where it is about one dim.
    ops: Vec<usize>,
    /// Which words its variables of words stand for; any of those that are not listed.
    words: Vec<(VarId, usize)>,
    /// Which numbers its number variables stand for.
    numbers: Numbers,
}

/// States the values that the number variables of a case stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// Any; now and then the ends of the range that is promised of constants, where the style is about such.
    Any,
    /// The least value that the contract covers.
    Least,
    /// The largest magnitude that the contract covers.
    Largest,
}

impl Row {
    /// Returns the palette for the row's instances.
    pub fn palette(&self, rule: &Rule, literals: &[f64]) -> Palette {
        let only_ends = self.style == Style::Numbers || self.numbers != Numbers::Any;
        let (ops, words, ends) = (self.ops.clone(), self.words.clone(), self.ends(rule));
        let mut palette = self.dims.palette(literals);
        // One term alone overflows nowhere.
        if matches!(self.dims, Dims::One(..)) && self.style == Style::Ends {
            palette.extents.retain(|extent| *extent > 1);
        }
        Palette { ops, words, ends, only_ends, ..palette }
    }

    /// Returns its first floating element type.
    fn float(&self, rule: &Rule) -> Option<DType> {
        let mut bound = (0..rule.scope.variables.len()).filter_map(|slot| match self.bound.get(slot) {
            Some(Bound::DType(dtype)) => Some(*dtype),
            _ => None,
        });
        bound.find(|dtype| dtype.is_float())
    }

    /// The ends of the range of its element type, where it is about these.
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

/// The rows of a rule: each two of an element type, a style of values, a kind of dims, an op and a word meet, and so do each
/// element type and each dim without elements, each large extent of each dim, and the ends of the range of the program's numbers.
pub fn rows(rule: &Rule) -> Vec<Row> {
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
    let words = words(rule);
    let listed = |levels: &[usize]| words.iter().zip(levels).map(|((slot, _), level)| (*slot, *level)).collect();
    let of_words: Vec<usize> = words.iter().map(|(_, count)| *count).collect();
    let small = array::pairs(&levels(&[&[styles.len(), Dims::SMALL.len()][..], &groups, &of_words].concat()));
    let small = small.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        let (style, dims) = (styles[others[0]], Dims::SMALL[others[1]]);
        let (ops, levels) = others[2..].split_at(groups.len());
        Row { bound: dtypes(of), style, dims, ops: ops.to_vec(), words: listed(levels), numbers: Numbers::Any }
    });
    // All boundary values must have room to meet.
    let often = [Style::Boundary, Style::Ordinary];
    let often = if promise(rule) == Contract::Fast { &[Style::Ordinary][..] } else { &often };
    let one = |row: &[usize], extent: i64, which: Which, style: Style| {
        let mut bound = dtypes(row);
        if let Which::Variable(slot) = which {
            let _ = bound.bind(slot, Bound::Dim(Dim::Known(extent)));
        }
        Row { bound, style, dims: Dims::One(which, extent), ops: Vec::new(), words: Vec::new(), numbers: Numbers::Any }
    };
    // A sum over nothing reads nothing, not even NaN: each side is to leave out the same.
    let special = [Style::Placed, Style::NonFinite].into_iter().filter(|style| styles.contains(style));
    let with_special: Vec<Style> = often.iter().copied().chain(special).collect();
    let small_turns = turns(rule, EMPTY_TURNS);
    let empty = array::pairs(&levels(&[small_turns.len(), with_special.len()]));
    let empty = empty.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        one(of, 0, small_turns[others[0]], with_special[others[1]])
    });
    // Each large extent of each dim meets each style: a triple, as what counts is told by one of them alone.
    let turns = turns(rule, TURNS);
    let long = array::pairs(&levels(&[large.len(), turns.len() * often.len()]));
    let long = long.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        one(of, large[others[0]], turns[others[1] / often.len()], often[others[1] % often.len()])
    });
    // The ends of the range of each element type have room to meet, with each number of the program at the ends of its range.
    let has_numbers = rule.variables.iter().any(|v| matches!(v.kind, VariableKind::Number(_)));
    let numbers = if has_numbers { &[Numbers::Least, Numbers::Largest][..] } else { &[Numbers::Any] };
    let roomy = [Style::Ends, Style::Numbers].into_iter().filter(|style| styles.contains(style));
    let kinds: Vec<(Style, Numbers)> =
        roomy.flat_map(|style| numbers.iter().map(move |numbers| (style, *numbers))).collect();
    let roomy = match kinds.is_empty() {
        true => Vec::new(),
        false => array::pairs(&levels(&[&[kinds.len()][..], &of_words].concat())),
    };
    let roomy = roomy.iter().map(|row| {
        let (of, others) = row.split_at(slots.len());
        let (style, numbers) = kinds[others[0]];
        Row { numbers, words: listed(&others[1..]), ..one(of, ROOMY, turns[0], style) }
    });
    // Each dim along which a sum of products may run is long once in each element type in which such a sum may overflow.
    let has_sums = styles.contains(&Style::Ends) && Manner::of(rule, Style::Ends, &[]).moderate;
    let summed = if has_sums { shared(rule) } else { Vec::new() };
    let most = slots.iter().map(|(_, of)| of.len()).max().unwrap_or(1);
    let sums = summed.iter().flat_map(|which| (0..most).map(move |level| (*which, level)));
    let sums = sums.filter_map(|(which, level)| {
        let of: Vec<usize> = slots.iter().map(|(_, of)| level.min(of.len() - 1)).collect();
        let row = Row { numbers: numbers[numbers.len() - 1], ..one(&of, ROOMY, which, Style::Ends) };
        row.float(rule).is_some_and(sums_overflow).then_some(row)
    });
    small.chain(empty).chain(long).chain(roomy).chain(sums).collect()
}

/// Returns whether a long sum of products may overflow in a type although its factors are moderate.
fn sums_overflow(dtype: DType) -> bool {
    let most = boundary::coarse(dtype)[0];
    most * most * ROOMY as f64 > boundary::range(dtype).1
}

/// Returns the dims that two tensors of a rule share, along which sums of products may run.
fn shared(rule: &Rule) -> Vec<Which> {
    let has = |ty: &TypePattern, slot: usize| ty.dims.0.contains(&DimsItem::One(DimPattern::Var(slot)));
    let count = |slot: usize| rule.tensors().filter(|(_, ty, _)| has(ty, slot)).count();
    (0..rule.scope.variables.len()).filter(|slot| count(*slot) > 1).take(TURNS).map(Which::Variable).collect()
}

/// The dims that take turns, about so many: variables that are extents of their own, then what is drawn where there are sequences, or
/// products.
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
        let probe = rules.probes().find(|p| &*p.rule().name == name).expect("a rule of this name");
        test(probe.rule(), rows(probe.rule()));
    }

    #[test]
    fn each_word_meets_each_style() {
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
    fn each_dim_is_empty_beside_nan_and_infinities() {
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
