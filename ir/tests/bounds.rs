//! Tests that error bounds contain the results of plain f32 arithmetic, are not much wider than its errors, and mark
//! results that cannot be judged.

use eutectic_ir::{
    Attr, Bounded, DType, Graph, NodeId, Tensor,
    bounded::{BoundedSum, hides},
    interpret,
    ops::eval::Data,
    scalar::ExactSum,
};

/// The function that a kernel computes.
type Function = fn(f32) -> f32;

/// Evenly spread numbers in −2..2, in no order.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let step = |i: u64| (i + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..count as u64).map(|i| step(i) as f32 / (1 << 24) as f32 * 4.0 - 2.0).collect()
}

/// Returns the bounds of the results of a graph over f32 constants.
fn bounds(operands: &[(&[usize], &[f32])], build: impl FnOnce(&mut Graph, &[NodeId]) -> NodeId) -> Vec<Bounded> {
    let mut graph = Graph::new("bounds");
    let ids: Vec<_> =
        operands.iter().map(|(dims, x)| graph.constant(Tensor::from_f32(dims, x).unwrap()).unwrap()).collect();
    let y = build(&mut graph, &ids);
    graph.output("y", y).unwrap();
    match interpret::<Bounded>(&graph, &|_| None).unwrap().remove(0).data {
        Data::Real(y) => y,
        Data::Int(n) => {
            n.into_iter().map(|n| Bounded::new(n.map_or(f64::NAN, |n| n as f64), 0.0, DType::F32)).collect()
        }
    }
}

/// Asserts that the bounds admit every result, and refuse a result that is wrong by `off` times the largest one.
fn assert_bounds(what: &str, bounds: &[Bounded], results: &[f32], off: f64) {
    assert_eq!(bounds.len(), results.len());
    let largest = results.iter().fold(0.0_f64, |m, y| m.max(f64::from(y.abs())));
    for (bound, &y) in bounds.iter().zip(results) {
        assert_eq!(bound.admits(y.into()), Some(true), "{what}: {y} in {bound:?}");
        let wrong = f64::from(y) + off * largest.max(1e-6);
        assert_eq!(bound.admits(wrong), Some(false), "{what}: {wrong} in {bound:?}");
    }
}

#[test]
fn elementary_functions() {
    let x = numbers(500, 1);
    let table: [(&str, Function); 15] = [
        ("exp", f32::exp),
        ("expm1", f32::exp_m1),
        ("sinh", f32::sinh),
        ("cosh", f32::cosh),
        ("sin", f32::sin),
        ("cos", f32::cos),
        ("tanh", f32::tanh),
        ("atan", f32::atan),
        ("erf", libm::erff),
        ("neg", |x| -x),
        ("abs", f32::abs),
        ("sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("softplus", |x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
        ("floor", f32::floor),
        ("reciprocal", |x| 1.0 / x),
    ];
    for (op, f) in table {
        let bounds = bounds(&[(&[500], &x)], |g, x| g.apply(op, x, &[]).unwrap());
        assert_bounds(op, &bounds, &x.iter().map(|&x| f(x)).collect::<Vec<_>>(), 1e-4);
    }
    let x: Vec<_> = x.iter().map(|x| x.abs() + 1e-3).collect();
    let table: [(&str, Function); 4] =
        [("log", f32::ln), ("log1p", f32::ln_1p), ("sqrt", f32::sqrt), ("rsqrt", |x| 1.0 / x.sqrt())];
    for (op, f) in table {
        let bounds = bounds(&[(&[500], &x)], |g, x| g.apply(op, x, &[]).unwrap());
        assert_bounds(op, &bounds, &x.iter().map(|&x| f(x)).collect::<Vec<_>>(), 1e-4);
    }
}

#[test]
fn what_a_large_summand_absorbs_is_lost() {
    // The exact result is 1, but f64 arithmetic gives 0 too.
    let (x, c) = ([1.0], [2_f32.powi(90)]);
    let bounds = bounds(&[(&[1], &x), (&[1], &c)], |g, x| {
        let sum = g.add(x[0], x[1]).unwrap();
        g.sub(sum, x[1]).unwrap()
    });
    assert!(bounds[0].admits(1.0) == Some(true) && bounds[0].admits(0.0) == Some(true), "{bounds:?}");
}

#[test]
fn what_the_reference_rounds_off_a_product_is_lost() {
    // Both factors are close to 1. Their product rounds to 1 in f64, but is not exactly 1.
    let (x, y) = (1.0 - f64::EPSILON / 2.0, 1.0 + f64::EPSILON);
    let [x, y] = [x, y].map(|n| Bounded::new(n, 0.0, DType::F64));
    for product in [x * y, y / (y * y)] {
        assert!(product.err > 1e-17 && product.err < 1e-15, "{product:?}");
    }
}

#[test]
fn activations() {
    let x = numbers(300, 2);
    let table: [(&str, Function); 4] = [
        ("relu", |x| x.max(0.0)),
        ("gelu-erf", |x| 0.5 * x * (1.0 + libm::erff(x / std::f32::consts::SQRT_2))),
        ("gelu-tanh", |x| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044715 * x.powi(3))).tanh())),
        ("silu", |x| x / (1.0 + (-x).exp())),
    ];
    for (kind, f) in table {
        let bounds = bounds(&[(&[300], &x)], |g, x| g.act(x[0], kind).unwrap());
        assert_bounds(kind, &bounds, &x.iter().map(|&x| f(x)).collect::<Vec<_>>(), 1e-5);
    }
}

#[test]
fn sums_in_any_order() {
    let (m, k, n) = (5, 333, 7);
    let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
    let forwards = |i: usize, j: usize| (0..k).fold(0.0_f32, |s, t| s + a[i * k + t] * b[t * n + j]);
    let backwards = |i: usize, j: usize| (0..k).rev().fold(0.0_f32, |s, t| a[i * k + t].mul_add(b[t * n + j], s));
    let bounds = bounds(&[(&[m, k], &a), (&[k, n], &b)], |g, x| g.matmul(x[0], x[1]).unwrap());
    for f in [&forwards as &dyn Fn(usize, usize) -> f32, &backwards] {
        let product: Vec<f32> = (0..m * n).map(|i| f(i / n, i % n)).collect();
        assert_bounds("matmul", &bounds, &product, 1e-2);
    }
}

#[test]
fn a_sum_that_is_exact_as_written_may_round_in_another_order() {
    let sum = |terms: [f32; 3]| terms.map(|x| Bounded::new(x.into(), 0.0, DType::F32)).into_iter().reduce(|a, b| a + b);
    let (small, want) = (sum([1.0, -1.5, 0.680_637_3]).unwrap(), -0.5 + f64::from(0.680_637_3_f32));
    assert_eq!(small.value, want);
    assert_eq!(small.admits(f64::from(1.0 + 0.680_637_3_f32 - 1.5_f32)), Some(true), "{small:?}");
    assert_eq!(small.admits(want + 1e-6), Some(false), "{small:?}");
    let whole = sum([3.0, -7.0, 1e6]).unwrap();
    assert_eq!((whole.value, whole.err), (999_996.0, 0.0));
    let two = Bounded::new(1.0, 0.0, DType::F32) + Bounded::new(-0.680_637_3_f32 as f64, 0.0, DType::F32);
    assert_eq!(two.err, 0.0, "two terms have one order");
}

/// Returns the bound of the product of all numbers, and the results of f32 arithmetic from the first to the last
/// number and back.
fn products(x: &[f32]) -> (Bounded, [f32; 2]) {
    let bound = bounds(&[(&[x.len()], x)], |g, x| {
        g.apply("reduce-prod", x, &[("axes", Attr::from([-1_i64].as_slice()))]).unwrap()
    });
    (bound[0], [x.iter().product(), x.iter().rev().product()])
}

#[test]
fn a_score_far_above_the_others_settles_their_probabilities() {
    let (x, high) = ([0.3, 0.7, -0.2, 0.1], [1e9, 1e9, 0.0, f32::NEG_INFINITY]);
    let bounds = bounds(&[(&[4], &x), (&[4], &high)], |g, x| {
        let scores = g.add(x[0], x[1]).unwrap();
        g.softmax(scores, -1).unwrap()
    });
    let admit = |at: usize, y: f64| bounds[at].admits(y);
    // In f32, both large scores are 1e9.
    assert!([0, 1].iter().all(|at| admit(*at, 0.5) == Some(true)), "{bounds:?}");
    assert!([2, 3].iter().all(|at| (admit(*at, 0.0), admit(*at, 1e-3)) == (Some(true), Some(false))), "{bounds:?}");
}

#[test]
fn what_hides_takes_up_every_score() {
    let (most, large) = (2_f64.powi(92), [f64::from(f32::MIN), -2_f64.powi(117)]);
    for low in large {
        assert!(hides(low, DType::F32) && hides(low, DType::Bf16));
        assert!([most, -most].iter().all(|score| low as f32 + *score as f32 == low as f32), "{low}");
    }
    for low in [f64::MIN, -2_f64.powi(146)] {
        assert!(hides(low, DType::F64) && [most, -most].iter().all(|score| low + score == low), "{low}");
    }
    assert!(DType::ALL.into_iter().filter(|d| d.is_float()).all(|d| hides(f64::NEG_INFINITY, d)));
    // In f64, −10³⁰ does not absorb 10¹⁸. In f32, it does not absorb products of moderate numbers.
    assert!(!hides(-1e30, DType::F64) && !hides(-1e30, DType::F32) && -1e30 + 1e18 > -1e30);
    assert!(!hides(f64::from(f32::MIN), DType::F64) && !hides(-65504.0, DType::F16));
}

#[test]
fn a_row_that_large_scores_decide_is_judged() {
    // A mask of −10³⁰ is added to all scores of the row. In f32, it does not absorb scores of 10²⁷.
    let (scores, low) = ([1e27, 3e27, 2e27], [-1e30; 3]);
    let sum = bounds(&[(&[3], &scores), (&[3], &low)], |g, x| {
        let sum = g.add(x[0], x[1]).unwrap();
        g.softmax(sum, -1).unwrap()
    });
    assert_eq!((sum[1].admits(1.0), sum[1].admits(1.0 / 3.0)), (Some(true), Some(false)), "{sum:?}");
}

#[test]
fn products_in_any_order() {
    let sets: [&[f32]; 7] = [
        &[1.5, -0.75, 3.0, 1.1],
        // An intermediate product or the result is subnormal.
        &[1e-20, 3.3e-20, 1.7e20, 1.3e20],
        &[1.3e20, 1.7e20, 1e-20, 3.3e-20],
        &[1e-19, 3.3e-19, 1e-4, 1.7],
        // An intermediate product overflows, and is then multiplied by zero or by a small number.
        &[0.0, 3e38, 3e38],
        &[3e38, 3e38, -0.0],
        &[3e38, 3e38, 1e-38, 1e-38],
    ];
    for x in sets {
        let (bound, results) = products(x);
        assert!(results.iter().all(|y| bound.admits(f64::from(*y)) != Some(false)), "{x:?}: {results:?} in {bound:?}");
    }
    let (bound, _) = products(sets[0]);
    assert_eq!(bound.admits(bound.value * (1.0 + 1e-5)), Some(false));
    assert_eq!(products(&[0.0, 2.0, 1e-30, 1e-30]).0.admits(1e-45), Some(false));
    assert_eq!(products(&[f32::INFINITY, 2.0, -0.5]).0.admits(f64::INFINITY), Some(false));
    assert_eq!(products(&[f32::NAN, 3e38, 3e38]).0.admits(f64::INFINITY), Some(false));
    // ∞ is multiplied by a product that became 0.
    assert_eq!(products(&[1e-30, 1e-30, f32::INFINITY]).0.admits(f64::NAN), None);
}

#[test]
fn rows() {
    let (rows, d) = (9, 65);
    let (x, g, b) = (numbers(rows * d, 5), numbers(d, 6), numbers(d, 7));
    let operands: [(&[usize], &[f32]); 3] = [(&[rows, d], &x), (&[d], &g), (&[d], &b)];
    let normalised = x.chunks(d).flat_map(|row| {
        let mean = row.iter().sum::<f32>() / d as f32;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / d as f32;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        row.iter().zip(&g).zip(&b).map(|((x, g), b)| (x - mean) * scale * g + b).collect::<Vec<_>>()
    });
    let bound = bounds(&operands, |g, x| g.layernorm(x[0], x[1], x[2], 1e-5).unwrap());
    assert_bounds("layernorm", &bound, &normalised.collect::<Vec<_>>(), 1e-3);
    let softmax = x.chunks(d).flat_map(|row| {
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f32> = row.iter().map(|x| (x - most).exp()).collect();
        let sum: f32 = powers.iter().sum();
        powers.into_iter().map(|p| p / sum).collect::<Vec<_>>()
    });
    let bound = bounds(&operands[..1], |g, x| g.softmax(x[0], -1).unwrap());
    assert_bounds("softmax", &bound, &softmax.collect::<Vec<_>>(), 1e-3);
}

#[test]
fn jumps_cannot_be_judged() {
    // The square of √2 is 2 up to rounding. Therefore it cannot be distinguished from 2 or from slightly smaller
    // numbers.
    let near = bounds(&[(&[2], &[2.0, 3.3])], |g, x| {
        let root = g.sqrt(x[0]).unwrap();
        let square = g.mul(root, root).unwrap();
        g.apply("floor", &[square], &[]).unwrap()
    });
    assert_eq!((near[0].admits(2.0), near[1].admits(3.0)), (None, Some(true)));
    // A choice between values that are equal at the jump can be judged, such as max(x, 0) as a comparison.
    let relu = bounds(&[(&[1], &[0.1])], |g, x| {
        let root = g.sqrt(x[0]).unwrap();
        let square = g.mul(root, root).unwrap();
        let rest = g.sub(square, x[0]).unwrap();
        let zero = g.scalar(0.0, rest).unwrap();
        let positive = g.gt(rest, zero).unwrap();
        g.select(positive, rest, zero).unwrap()
    });
    assert!(relu[0].admits(0.0) == Some(true) && relu[0].err < 1e-6, "{relu:?}");
    // An overflow of the type cannot be judged, but infinities that every kernel gives can.
    let large = bounds(&[(&[2], &[100.0, f32::NEG_INFINITY])], |g, x| g.exp(x[0]).unwrap());
    assert_eq!((large[0].admits(f64::INFINITY), large[1].admits(0.0)), (None, Some(true)));
}

#[test]
fn short_types_are_rounded_when_stored() {
    let x = numbers(64, 8);
    for (to, unit) in [(DType::F16, 2_f64.powi(-11)), (DType::Bf16, 2_f64.powi(-8))] {
        let bounds = bounds(&[(&[64], &x)], |g, x| {
            let short = g.cast(x[0], to).unwrap();
            g.exp(short).unwrap()
        });
        for (bound, &x) in bounds.iter().zip(&x) {
            let short = Tensor::from_f64(to, &[], [f64::from(x)]).to_f64()[0];
            let stored = Tensor::from_f64(to, &[], [short.exp()]).to_f64()[0];
            assert_eq!(bound.admits(stored), Some(true), "{stored} in {bound:?}");
            assert!(bound.err < 6.0 * unit * bound.value.max(1.0), "{bound:?}");
        }
    }
}

#[test]
fn integers_in_floats_stay_exact() {
    let ones = vec![1.0_f32; 100];
    let counted = bounds(&[(&[100], &ones)], |g, x| {
        let count = g.reduce_sum(x[0], &[-1], false).unwrap();
        g.apply("cast", &[count], &[("to", Attr::DType(DType::I32))]).unwrap()
    });
    assert_eq!(counted[0].value, 100.0);
}

#[test]
fn what_may_overflow_on_the_way_is_not_judged() {
    let unsure = |bounds: Vec<Bounded>| assert!(bounds.iter().all(|b| b.admits(0.0).is_none()), "{bounds:?}");
    // The sum does not overflow, but a partial sum does in another order.
    let x = [3e38_f32, 3e38, -3e38, -3e38];
    unsure(bounds(&[(&[1, 4], &x)], |g, x| {
        g.apply("reduce-sum", x, &[("axes", Attr::from([-1_i64].as_slice()))]).unwrap()
    }));
    unsure(bounds(&[(&[1, 2], &[3e38, 3e38]), (&[2, 1], &[2.0, -2.0])], |g, x| g.apply("matmul", x, &[]).unwrap()));
    // A product overflows if it is not fused with its addition. Then it is added to an infinity.
    let (one, large) = ([f32::INFINITY, 3e38], [1.0, -2.0]);
    unsure(bounds(&[(&[1, 2], &one), (&[2, 1], &large)], |g, x| g.apply("matmul", x, &[]).unwrap()));
    // A masked key is skipped for every score. The mask hides all keys from query 0.
    let hidden = |k: f32| {
        bounds(&[(&[1, 2, 1], &[1.0, 1.0]), (&[1, 1, 1], &[k]), (&[1, 1, 1], &[1.0])], |g, x| {
            g.apply("sdpa", x, &[("scale", Attr::from(2.0)), ("mask", Attr::from("causal"))]).unwrap()
        })
    };
    let admitted = |k: f32| hidden(k)[0].admits(0.0);
    assert_eq!((admitted(3e38), admitted(1e38)), (Some(true), Some(true)));
    // A bias of −∞ skips a key, too.
    let biased = |q: f32| {
        let of: [(&[usize], &[f32]); 4] =
            [(&[1, 1], &[q]), (&[1, 1], &[0.0]), (&[1, 1], &[1.0]), (&[1], &[f32::NEG_INFINITY])];
        bounds(&of, |g, x| {
            g.apply("attention", x, &[("scale", Attr::from(1.0)), ("empty", Attr::from("zeros"))]).unwrap()
        })[0]
            .admits(0.0)
    };
    assert_eq!((biased(f32::INFINITY), biased(1.0)), (Some(true), Some(true)));
    // The product overflows in f32, and ∞·0 is not 0.
    unsure(bounds(&[(&[1], &[2e38]), (&[1], &[2.0]), (&[1], &[0.0])], |g, x| {
        let large = g.apply("mul", &x[..2], &[]).unwrap();
        g.apply("mul", &[large, x[2]], &[]).unwrap()
    }));
}

#[test]
fn what_lies_outside_of_a_domain_is_not_a_number_for_sure() {
    let logarithms = bounds(&[(&[2], &[-1.0, -2.5]), (&[2], &[0.3, 0.3])], |g, x| {
        let x = g.apply("mul", x, &[]).unwrap();
        g.apply("log", &[x], &[]).unwrap()
    });
    assert!(
        logarithms.iter().all(|b| b.admits(f64::NAN) == Some(true) && b.admits(0.0) == Some(false)),
        "{logarithms:?}"
    );
}

#[test]
fn of_two_zeros_the_reference_takes_one_for_sure() {
    let larger = |a: f64, b: f64| eutectic_ir::Scalar::larger(a, b).to_bits();
    assert_eq!([larger(0.0, -0.0), larger(-0.0, 0.0), larger(-0.0, -0.0)], [0.0, 0.0, -0.0].map(f64::to_bits));
}

#[test]
fn what_overflows_in_one_order_of_operations_only_is_not_judged() {
    // In f32 and in f64, the sum of the weighted values overflows before it is divided by the sum of the weights.
    for (dtype, large) in [(DType::F32, 2e38), (DType::F64, 1.2e308)] {
        let mut graph = Graph::new("overflow");
        let of = |graph: &mut Graph, dims: &[usize], x: &[f64]| {
            graph.constant(Tensor::from_f64(dtype, dims, x.iter().copied())).unwrap()
        };
        let (q, k) = (of(&mut graph, &[1, 1], &[0.0]), of(&mut graph, &[2, 1], &[0.0; 2]));
        let v = of(&mut graph, &[2, 2], &[large, 1.0, large, 2.0]);
        let y = graph.apply("attention", &[q, k, v], &[("scale", Attr::from(1.0))]).unwrap();
        // The result is ∞ − ∞, but fused multiplications and additions give ∞.
        let (a, b) = (of(&mut graph, &[1, 2], &[2.0, 2.0]), of(&mut graph, &[2, 1], &[large, -large]));
        let z = graph.matmul(a, b).unwrap();
        graph.output("y", y).unwrap();
        graph.output("z", z).unwrap();
        let [y, z] = &interpret::<Bounded>(&graph, &|_| None).unwrap()[..] else {
            panic!("the number of results is not 2")
        };
        let (Data::Real(y), Data::Real(z)) = (&y.data, &z.data) else { panic!("the results are not floats") };
        assert_eq!((y[0].admits(f64::INFINITY), y[1].admits(1.5), y[1].admits(1.6)), (None, Some(true), Some(false)));
        assert_eq!(z[0].admits(f64::INFINITY), None, "{dtype}: {z:?}");
    }
    // A pole is infinite in every order of operations.
    let pole = bounds(&[(&[1], &[1.0]), (&[1], &[0.0])], |g, x| g.div(x[0], x[1]).unwrap());
    assert_eq!(pole[0].admits(f64::INFINITY), Some(true));
}

#[test]
fn what_is_rounded_to_the_largest_number_is_judged() {
    for (dtype, least) in [(DType::F32, -f64::from(f32::MAX)), (DType::F16, -65504.0)] {
        let sum = |small: f64| {
            let mut graph = Graph::new("least");
            let one = |graph: &mut Graph, x: f64| graph.constant(Tensor::from_f64(dtype, &[1], [x])).unwrap();
            let (a, b) = (one(&mut graph, least), one(&mut graph, small));
            let y = graph.add(a, b).unwrap();
            graph.output("y", y).unwrap();
            match interpret::<Bounded>(&graph, &|_| None).unwrap().remove(0).data {
                Data::Real(y) => y[0],
                Data::Int(_) => panic!("the sum of floats is not a float"),
            }
        };
        assert_eq!((sum(-5.0).admits(least), sum(-5.0).admits(0.9 * least)), (Some(true), Some(false)), "{dtype}");
        assert_eq!(sum(least / 64.0).admits(f64::NEG_INFINITY), None, "{dtype}");
    }
}

#[test]
fn what_becomes_subnormal_may_be_flushed() {
    let smallest = Bounded::new(f64::from(f32::MIN_POSITIVE), 0.0, DType::F32);
    let half = Bounded::new(0.5, 0.0, DType::F32);
    let result = smallest * half;
    assert_eq!([result.value, 0.0, -result.value].map(|x| result.admits(x)), [Some(true), Some(true), Some(false)]);
    // This quotient is below the smallest normal number if it is rounded down, but its exact value is not.
    let above = Bounded::new(f64::from(f32::MIN_POSITIVE) * 3.0 * (1.0 + f64::from(f32::EPSILON)), 0.0, DType::F32);
    assert_eq!((above / Bounded::new(3.0, 0.0, DType::F32)).admits(0.0), Some(true));
    assert_eq!((smallest * Bounded::new(2.0, 0.0, DType::F32)).admits(0.0), Some(false));
    // A device that multiplies by the reciprocal may flush the reciprocal to zero.
    let of_large = |divisor| Bounded::new(1.5, 0.0, DType::F32) / Bounded::new(divisor, 0.0, DType::F32);
    assert_eq!([2e38, 8e37].map(|divisor| of_large(divisor).admits(0.0)), [Some(true), Some(false)]);
}

#[test]
fn terms_and_differences_of_a_sum_may_be_flushed() {
    let least = f64::from(f32::MIN_POSITIVE);
    let exact = |x: f64| Bounded::new(x, 0.0, DType::F32);
    let total = |terms: &[f64]| {
        let mut sum = BoundedSum::default();
        terms.iter().for_each(|&x| sum.add(exact(x)));
        sum.total()
    };
    // Each product is subnormal, but their sum is not.
    let mut products = BoundedSum::default();
    (0..4).for_each(|_| products.add_product(exact(least), exact(0.5)));
    assert_eq!(products.total().admits(0.0), Some(true));
    // The first two differ by half of the smallest normal number.
    assert_eq!(total(&[1.5 * least, -least, 4.0 * least]).admits(4.0 * least), Some(true));
    assert_eq!(total(&[1e-20, 2e-20, 1e-21]).admits(3e-20), Some(false));
}

/// The reference rounds a small positive number to zero. The number's logarithm is finite, but the logarithm of zero
/// is not.
#[test]
fn what_vanishes_in_the_reference_is_no_exact_zero() {
    let f64s = |x: f64| Tensor::from_f64(DType::F64, &[], [x]);
    for (op, a, b) in [("pow", 4e-4, 100.0), ("mul", 1e-200, -1e-200), ("div", 1e-200, 1e200), ("div", 1e-308, -1e308)]
    {
        let mut graph = Graph::new("vanishes");
        let operands = [a, b].map(|x| graph.constant(f64s(x)).unwrap());
        let y = graph.apply(op, &operands, &[]).unwrap();
        let y = graph.apply("abs", &[y], &[]).unwrap();
        let log = graph.apply("log", &[y], &[]).unwrap();
        graph.output("log", log).unwrap();
        let Data::Real(y) = interpret::<Bounded>(&graph, &|_| None).unwrap().remove(0).data else {
            panic!("the result of {op} is not a float")
        };
        assert_eq!(y[0].admits(-800.0), None, "{op}({a}, {b})");
    }
}
