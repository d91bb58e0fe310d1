//! Compares `solve` and `sample` of each relation with a direct statement of the relation, for all shapes of up to
//! two axes with small extents, and for small numbers.

use std::collections::BTreeSet;

use eutectic_ir::{
    Attr, DType, Dim, Shape,
    lang::{
        Bindings, DTypeClass, DimPattern, DimsPattern, RelationCall,
        relation::{Relation, RelationArg},
        sample,
        typing::{Bound, DimsItem, Scope, SlotKind, Status, VarId},
    },
};

/// The value of an argument of a relation.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Shape(Vec<i64>),
    /// A dim.
    Dim(i64),
    /// An integer attribute.
    Int(i64),
    List(Vec<i64>),
    Bool(bool),
    Number(f64),
    /// An element type.
    Type(DType),
    /// An element type as an attribute.
    Named(DType),
    /// A shape as an attribute.
    Shaped(Vec<i64>),
}

use Value::{Bool, Dim as D, Int, List, Named, Number, Shape as S, Shaped, Type};

impl Value {
    fn shape(&self) -> &[i64] {
        if let S(shape) | Shaped(shape) = self { shape } else { panic!("{self:?} is not a shape") }
    }

    fn n(&self) -> i64 {
        match self {
            D(n) | Int(n) => *n,
            other => panic!("{other:?} is not an integer"),
        }
    }

    fn list(&self) -> &[i64] {
        if let List(list) = self { list } else { panic!("{self:?} is not a list") }
    }

    fn bound(&self) -> Bound {
        match self {
            S(shape) => Bound::Dims(shape.iter().map(|n| Dim::Known(*n)).collect::<Shape>()),
            D(n) => Bound::Dim(Dim::Known(*n)),
            Int(n) => Bound::Attr(Attr::Int(*n)),
            List(list) => Bound::Attr(list[..].into()),
            Bool(b) => Bound::Attr((*b).into()),
            Number(x) => Bound::Attr((*x).into()),
            Type(dtype) => Bound::DType(*dtype),
            Named(dtype) => Bound::Attr(Attr::DType(*dtype)),
            Shaped(shape) => Bound::Attr(Attr::Shape(shape.iter().map(|n| Dim::Known(*n)).collect())),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            Type(dtype) | Named(dtype) => *dtype,
            other => panic!("{other:?} is not an element type"),
        }
    }

    fn number(&self) -> f64 {
        if let Number(x) = self { *x } else { panic!("{self:?} is not a number") }
    }

    /// Returns the value of a bound variable of the same kind as this value.
    fn of(&self, bound: &Bound) -> Option<Value> {
        Some(match (self, bound) {
            (S(_), Bound::Dims(shape)) => S(shape.iter().map(|d| d.known()).collect::<Option<_>>()?),
            (D(_), Bound::Dim(d)) => D(d.known()?),
            (Int(_), Bound::Attr(a)) => Int(a.int()?),
            (List(_), Bound::Attr(a)) => List(a.ints()?.to_vec()),
            (Bool(_), Bound::Attr(a)) => Bool(a.bool()?),
            (Number(_), Bound::Attr(a)) => Number(a.float()?),
            (Type(_), Bound::DType(dtype)) => Type(*dtype),
            (Named(_), Bound::Attr(a)) => Named(a.dtype()?),
            (Shaped(_), Bound::Attr(Attr::Shape(shape))) => {
                Shaped(shape.iter().map(|d| d.known()).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

/// Returns whether a relation holds for the values of its arguments.
type Statement = fn(&[Value]) -> bool;

fn shapes() -> Vec<Value> {
    let extents = [1, 2, 3, 4];
    let one = extents.iter().map(|a| S(vec![*a]));
    let two = extents.iter().flat_map(|a| extents.iter().map(move |b| S(vec![*a, *b])));
    [S(Vec::new())].into_iter().chain(one).chain(two).collect()
}

/// Some float types. The 16-bit ones are computed in 32 bits.
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

fn numbers(all: &[f64]) -> Vec<Value> {
    all.iter().copied().map(Number).collect()
}

fn dims(range: std::ops::Range<i64>) -> Vec<Value> {
    range.map(D).collect()
}

fn axes() -> Vec<Value> {
    (-3..0).map(Int).collect()
}

fn lists() -> Vec<Value> {
    [&[][..], &[-1], &[-2], &[-2, -1], &[-1, -2], &[-1, -1], &[-3, -2, -1], &[-2, -3, -1]]
        .map(|l| List(l.to_vec()))
        .to_vec()
}

/// Returns the position of an axis that is counted from the end.
fn place(shape: &[i64], axis: i64) -> Option<usize> {
    usize::try_from(shape.len() as i64 + axis).ok().filter(|at| axis < 0 && *at < shape.len())
}

fn with(shape: &[i64], axis: i64, change: impl FnOnce(i64) -> Option<Vec<i64>>) -> Option<Vec<i64>> {
    let at = place(shape, axis)?;
    let new = change(shape[at])?;
    Some([&shape[..at], &new, &shape[at + 1..]].concat())
}

fn broadcast(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let of = |s: &[i64], n: usize| (n + s.len()).checked_sub(rank).map_or(1, |at| s[at]);
    (0..rank)
        .map(|n| match (of(a, n), of(b, n)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

fn is_permutation(perm: &[i64]) -> bool {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().eq(-(perm.len() as i64)..0)
}

fn windows(extent: i64, size: i64, stride: i64, dilation: i64) -> Option<i64> {
    if size < 1 || stride < 1 || dilation < 1 {
        return None;
    }
    let starts = (0..extent).step_by(stride as usize);
    let fit = starts.take_while(|at| at + dilation * (size - 1) < extent).count() as i64;
    (fit > 0).then_some(fit)
}

/// Returns each relation with the values of each argument and with its statement.
fn statements() -> Vec<(&'static str, Vec<Vec<Value>>, Statement)> {
    let (s, l) = (shapes, lists);
    vec![
        ("broadcast", vec![s(), s(), s()], |v| broadcast(v[0].shape(), v[1].shape()).as_deref() == Some(v[2].shape())),
        ("broadcasts-to", vec![s(), s()], |v| broadcast(v[0].shape(), v[1].shape()).as_deref() == Some(v[1].shape())),
        ("same-count", vec![s(), s()], |v| {
            v[0].shape().iter().product::<i64>() == v[1].shape().iter().product::<i64>()
        }),
        ("count", vec![s(), dims(0..17)], |v| v[0].shape().iter().product::<i64>() == v[1].n()),
        ("equal", vec![dims(0..5), dims(0..5)], |v| v[0] == v[1]),
        ("divides", vec![dims(0..5), dims(0..9)], |v| v[0].n() != 0 && v[1].n() % v[0].n() == 0),
        ("at-most", vec![dims(0..5), dims(0..5)], |v| v[0].n() <= v[1].n()),
        ("reduce", vec![s(), l(), vec![Bool(true), Bool(false)], s()], |v| {
            let (a, axes) = (v[0].shape(), v[1].list());
            let gone: Option<Vec<usize>> = axes.iter().map(|axis| place(a, *axis)).collect();
            let Some(gone) = gone.filter(|g| !g.is_empty() && (1..g.len()).all(|n| !g[..n].contains(&g[n]))) else {
                return false;
            };
            let left = a.iter().enumerate().filter_map(|(n, e)| match (gone.contains(&n), &v[2]) {
                (false, _) => Some(*e),
                (true, Bool(true)) => Some(1),
                _ => None,
            });
            left.eq(v[3].shape().iter().copied())
        }),
        ("trailing", vec![l()], |v| v[0].list().iter().copied().eq(-(v[0].list().len() as i64)..0)),
        ("single", vec![axes(), l()], |v| v[1].list() == [v[0].n()]),
        ("extent", vec![s(), axes(), dims(0..5)], |v| {
            place(v[0].shape(), v[1].n()).is_some_and(|at| v[0].shape()[at] == v[2].n())
        }),
        ("axis-last", vec![s(), axes(), l()], |v| {
            let rank = v[0].shape().len() as i64;
            let order = (-rank..0).filter(|a| *a != v[1].n()).chain([v[1].n()]);
            place(v[0].shape(), v[1].n()).is_some() && order.eq(v[2].list().iter().copied())
        }),
        ("last", vec![axes()], |v| v[0].n() == -1),
        ("permute", vec![s(), l(), s()], |v| {
            let (a, perm) = (v[0].shape(), v[1].list());
            let moved = |p: &i64| a[(p + a.len() as i64) as usize];
            is_permutation(perm) && perm.len() == a.len() && perm.iter().map(moved).eq(v[2].shape().iter().copied())
        }),
        ("identity", vec![l()], |v| v[0].list().iter().copied().eq(-(v[0].list().len() as i64)..0)),
        ("matrix-transpose", vec![s(), l()], |v| {
            let rank = v[0].shape().len() as i64;
            let swapped = (-rank..0).map(|a| if a >= -2 { -3 - a } else { a });
            rank >= 2 && swapped.eq(v[1].list().iter().copied())
        }),
        ("moved", vec![l(), axes(), axes()], |v| {
            let perm = v[0].list();
            place(perm, v[1].n()).is_some_and(|at| perm[at] == v[2].n())
        }),
        ("slice", vec![s(), axes(), dims(-1..4), dims(-1..4), dims(-2..3), s()], |v| {
            let (at, len, step) = (v[2].n(), v[3].n(), v[4].n());
            let cut = |extent: i64| {
                let inside = |i: i64| (0..extent).contains(&(at + i * step));
                let fits = step != 0 && (0..=extent).contains(&at) && len >= 0 && (0..len).all(inside);
                fits.then(|| vec![len])
            };
            with(v[0].shape(), v[1].n(), cut).as_deref() == Some(v[5].shape())
        }),
        ("pad", vec![s(), axes(), dims(-1..3), dims(-1..3), s()], |v| {
            let (before, after) = (v[2].n(), v[3].n());
            let wider = |extent: i64| (before >= 0 && after >= 0).then(|| vec![extent + before + after]);
            with(v[0].shape(), v[1].n(), wider).as_deref() == Some(v[4].shape())
        }),
        ("concat", vec![s(), s(), axes(), s()], |v| {
            let (a, b) = (v[0].shape(), v[1].shape());
            let Some(at) = place(a, v[2].n()) else { return false };
            let agrees = a.len() == b.len() && (0..a.len()).all(|n| n == at || a[n] == b[n]);
            agrees && with(a, v[2].n(), |extent| Some(vec![extent + b[at]])).as_deref() == Some(v[3].shape())
        }),
        ("gather", vec![s(), s(), axes(), s()], |v| {
            with(v[0].shape(), v[2].n(), |_| Some(v[1].shape().to_vec())).as_deref() == Some(v[3].shape())
        }),
        ("window", vec![s(), axes(), dims(0..4), dims(0..4), dims(0..3), s()], |v| {
            let (size, stride, dilation) = (v[2].n(), v[3].n(), v[4].n());
            let cut = |extent: i64| windows(extent, size, stride, dilation).map(|n| vec![n, size]);
            with(v[0].shape(), v[1].n(), cut).as_deref() == Some(v[5].shape())
        }),
        ("windows", [0..5, -1..2, 0..2, 0..4, 0..3, 0..3, 0..6].map(dims).to_vec(), |v| {
            let [l, before, after, size, stride, dilation, n] = [0, 1, 2, 3, 4, 5, 6].map(|i| v[i].n());
            before >= 0 && after >= 0 && windows(l + before + after, size, stride, dilation) == Some(n)
        }),
        ("holds", vec![vec![Bool(true), Bool(false)]], |v| v[0] == Bool(true)),
        ("nonzero", vec![[0.0, -0.0, 0.5, -2.0].map(Number).to_vec()], |v| v[0] != Number(0.0)),
        ("positive", vec![[0.0, 0.5, -2.0, f64::NAN].map(Number).to_vec()], |v| matches!(v[0], Number(x) if x > 0.0)),
        ("whole", vec![[0.0, 0.5, -2.0, 3.0].map(Number).to_vec()], |v| matches!(v[0], Number(x) if x.fract() == 0.0)),
        ("shape", vec![s().iter().map(|v| Shaped(v.shape().to_vec())).collect(), s()], |v| {
            v[0].shape() == v[1].shape()
        }),
        ("swap", vec![s(), dims(-3..0), dims(-3..0), l()], |v| {
            let rank = v[0].shape().len() as i64;
            let other = |axis: i64| match axis {
                a if a == v[1].n() => v[2].n(),
                a if a == v[2].n() => v[1].n(),
                a => a,
            };
            let inside = [&v[1], &v[2]].into_iter().all(|axis| -rank <= axis.n());
            inside && (-rank..0).map(other).eq(v[3].list().iter().copied())
        }),
        // Axes are in ascending order in attributes.
        ("axes-last", vec![s(), [&[-1][..], &[-2], &[-2, -1]].map(|a| List(a.to_vec())).to_vec(), l(), l()], |v| {
            let (rank, axes) = (v[0].shape().len() as i64, v[1].list());
            let order = (-rank..0).filter(|a| !axes.contains(a)).chain(axes.iter().copied());
            let last = -(axes.len() as i64)..0;
            axes.iter().all(|a| -rank <= *a)
                && order.eq(v[2].list().iter().copied())
                && last.eq(v[3].list().iter().copied())
        }),
        ("dtype", vec![FLOATS.map(Named).to_vec(), FLOATS.map(Type).to_vec()], |v| v[0].dtype() == v[1].dtype()),
        // Neither the smallest nor the largest score changes the number when it is added.
        (
            "hides",
            vec![
                numbers(&[
                    0.0,
                    -1e30,
                    f64::from(f32::MIN),
                    -2_f64.powi(116),
                    -2_f64.powi(117),
                    -2_f64.powi(145),
                    -2_f64.powi(146),
                    f64::NEG_INFINITY,
                ]),
                FLOATS.map(Type).to_vec(),
            ],
            |v| {
                let dtype = v[1].dtype().register();
                let x = dtype.rounded(v[0].number());
                x < 0.0
                    && [2_f64.powi(92), -2_f64.powi(92)]
                        .iter()
                        .all(|score| x.is_infinite() || dtype.rounded(x + score) == x)
            },
        ),
        // Each number divided by the divisor equals that number times the divisor's reciprocal, which is a normal
        // number.
        (
            "inverts",
            vec![
                numbers(&[
                    0.0,
                    1.0,
                    -0.5,
                    3.0,
                    0.1,
                    1024.0,
                    2_f64.powi(-14),
                    2_f64.powi(15),
                    2_f64.powi(-126),
                    2_f64.powi(126),
                    2_f64.powi(-1022),
                ]),
                FLOATS.map(Type).to_vec(),
            ],
            |v| {
                let dtype = v[1].dtype();
                let c = dtype.rounded(v[0].number());
                let (least, most) = dtype.normal_range();
                let normal = |x: f64| (least..=most).contains(&x.abs());
                let same = |x: f64| dtype.rounded(x / c) == dtype.rounded(x * dtype.rounded(1.0 / c));
                // The binary digits of sevenths do not end, so that these numbers use all digits of their type and
                // their rounding differs.
                let samples = || (1..2_000).map(|n| dtype.rounded(f64::from(n) / 7.0));
                let inverts = normal(c) && normal(1.0 / c) && samples().all(same);
                // Only a power of two has an exact reciprocal.
                assert!(!inverts || c.abs().log2().fract() == 0.0, "{c} in {dtype}");
                inverts
            },
        ),
        (
            "between",
            vec![[-1.0, 0.0, 0.5, 1.0, 2.5].map(Number).to_vec(), dims(-1..2), dims(-1..3)],
            |v| matches!(v[0], Number(x) if v[1].n() as f64 <= x && x <= v[2].n() as f64),
        ),
    ]
}

/// Returns a call of the relation whose arguments are variables of these kinds.
fn call(name: &str, kinds: &[&Value]) -> (Scope, RelationCall, Vec<VarId>) {
    let relation = Relation::all().find(|r| r.name == name).unwrap();
    let mut scope = Scope::default();
    let mut slots = Vec::new();
    let args = kinds.iter().enumerate().map(|(n, kind)| {
        let kind_of = match kind {
            S(_) => SlotKind::Dims,
            D(_) => SlotKind::Dim,
            Type(_) => SlotKind::DType(DTypeClass::named("float").unwrap()),
            _ => SlotKind::Attr,
        };
        let slot = scope.slot(&format!("v{n}"), kind_of).unwrap();
        slots.push(slot);
        match kind {
            S(_) => RelationArg::Dims(DimsPattern(vec![DimsItem::Many(slot)])),
            D(_) => RelationArg::Dim(DimPattern::Var(slot)),
            Type(_) => RelationArg::DType(slot),
            _ => RelationArg::Attr(slot),
        }
    });
    let args = args.collect();
    (scope, RelationCall { relation, args, negated: false }, slots)
}

fn each(values: &[Vec<Value>], visit: &mut dyn FnMut(&[Value])) {
    let mut at = vec![0; values.len()];
    loop {
        visit(&at.iter().zip(values).map(|(n, of)| of[*n].clone()).collect::<Vec<_>>());
        let Some(next) = (0..at.len()).rev().find(|n| at[*n] + 1 < values[*n].len()) else { return };
        at[next] += 1;
        at[next + 1..].fill(0);
    }
}

#[test]
fn solve_says_what_the_statement_says() {
    for (name, values, statement) in statements() {
        let kinds: Vec<&Value> = values.iter().map(|of| &of[0]).collect();
        let (_, call, slots) = call(name, &kinds);
        let (mut held, mut all) = (0, 0);
        each(&values, &mut |given| {
            let mut bindings = Bindings::default();
            slots.iter().zip(given).for_each(|(slot, v)| bindings.bind(*slot, v.bound()).unwrap());
            let solved = call.solve(&mut bindings);
            assert!(!matches!(solved, Ok(Status::Later)), "{name} of {given:?} is open");
            assert_eq!(solved.is_ok(), statement(given), "{name} of {given:?}: {solved:?}");
            (held, all) = (held + usize::from(statement(given)), all + 1);
        });
        assert!(0 < held && held < all, "{name} holds in {held} of {all} cases");
    }
}

#[test]
fn what_solve_binds_satisfies_the_statement() {
    for (name, values, statement) in statements() {
        let kinds: Vec<&Value> = values.iter().map(|of| &of[0]).collect();
        let (_, call, slots) = call(name, &kinds);
        for open in 0..values.len() {
            let mut others = values.clone();
            others[open].truncate(1);
            each(&others, &mut |given| {
                let mut bindings = Bindings::default();
                let known = (0..given.len()).filter(|n| *n != open);
                known.for_each(|n| bindings.bind(slots[n], given[n].bound()).unwrap());
                let solved = call.solve(&mut bindings);
                let mut whole = given.to_vec();
                match bindings.get(slots[open]).and_then(|bound| kinds[open].of(bound)) {
                    Some(found) => {
                        whole[open] = found;
                        assert!(solved.is_err() || statement(&whole), "{name} binds {whole:?}");
                    }
                    // If a relation has solutions, its arguments are accepted.
                    None if solved.is_err() => {
                        for value in &values[open] {
                            whole[open] = value.clone();
                            assert!(!statement(&whole), "{name} refuses {whole:?}: {solved:?}");
                        }
                    }
                    None => {}
                }
            });
        }
    }
}

#[test]
fn what_sample_chooses_satisfies_the_statement() {
    for (name, values, statement) in statements() {
        let kinds: Vec<&Value> = values.iter().map(|of| &of[0]).collect();
        let (scope, call, slots) = call(name, &kinds);
        let mut drawn = 0;
        for seed in 0..400 {
            let mut state: u64 = seed;
            let mut below = |n: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % n
            };
            let start = Bindings::default();
            let Ok(found) = sample(&scope, &[], std::slice::from_ref(&call), start, &mut below) else {
                continue;
            };
            let value = |(slot, kind): (&VarId, &&Value)| found.get(*slot).and_then(|bound| kind.of(bound));
            let Some(whole) = slots.iter().zip(&kinds).map(value).collect::<Option<Vec<_>>>() else { continue };
            assert!(statement(&whole), "{name} draws {whole:?}");
            drawn += 1;
        }
        // In rules, the ends of `between` and the axes of `swap` are always given.
        assert!(drawn > 0 || ["between", "swap"].contains(&name), "{name} is never drawn");
    }
}

/// Relations that are not compared, each with the reason.
const OTHERS: &[(&str, &str)] = &[(
    "mask",
    "its third argument is unbound where there is no mask, and no value stands for that; `masks` of the conformance suites tests it",
)];

#[test]
fn each_relation_is_compared_or_has_a_reason() {
    let all: BTreeSet<&str> = Relation::all().map(|relation| relation.name).collect();
    let compared: BTreeSet<&str> = statements().iter().map(|(name, ..)| *name).collect();
    let others: BTreeSet<&str> = OTHERS.iter().map(|(name, _)| *name).collect();
    assert!(compared.is_disjoint(&others));
    assert_eq!(all, compared.union(&others).copied().collect());
    println!("{} of {} relations are compared", compared.len(), all.len());
}
