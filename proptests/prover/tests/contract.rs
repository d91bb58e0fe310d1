//! Tests the obligations of a contract beyond equality over the reals: rules that keep it are proved, and rules that
//! break one obligation are not.

use eutectic_ir::{DType, Tensor, interp::interpret_rounded, lang::Source, ops::eval::Data};
use eutectic_prover::prove;
use eutectic_rewrites::{Probe, Proof, RuleSet};

/// Returns the verdict on a rule.
fn verdict(forall: &str, sides: &str, contract: &str) -> Proof {
    let text = format!(";; a rule\n(rule mine/rule (forall {forall}) (=> {sides}) (eq {contract}) (once))");
    let rules = RuleSet::read(&[Source::new("mine.rules", text.as_str())]).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let probes: Vec<Probe> = rules.probes().collect();
    prove(probes[0].rule())
}

const X: &str = "(F float) (?x F[A..])";
const XY: &str = "(F float) (?x F[A..]) (?y F[A..])";
const ABC: &str = "(F float) (?a F[A..]) (?b F[A..]) (?c F[A..])";
const ROW: &str = "(F float) (?x F[B.. D])";
const C: &str = "(F float) (?x F[A..]) (?c float)";
const MASK: &str = "(F float) (?k bool[B.. T]) (?s F[B.. T])";

const TWO_MASKS: [&str; 2] = [
    "(F bf16 f32 f64) (?q F[B.. S D]) (?k F[B.. D T]) (?b F[B.. S T]) (?m F[B.. S T])",
    "(softmax (add (add (matmul ?q ?k) ?b) ?m) :axis -1) (softmax (add (matmul ?q ?k) (add ?b ?m)) :axis -1)",
];

#[test]
fn rules_that_keep_their_contracts_are_proved() {
    let right = [
        (X, "(reciprocal (exp ?x)) (exp (neg ?x))", "reassoc"),
        (X, "(mul ?x (sigmoid ?x)) (act ?x :kind silu)", "(ulp 4)"),
        (X, "(reciprocal (sqrt ?x)) (rsqrt ?x)", "(ulp 2)"),
        (X, "(pow ?x 4.0) (mul (mul ?x ?x) (mul ?x ?x))", "reassoc"),
        (X, "(add (max ?x 0.0) (log1p (exp (neg (abs ?x))))) (softplus ?x)", "reassoc"),
        (XY, "(reciprocal (div ?x ?y)) (div ?y ?x)", "reassoc"),
        (ABC, "(div (div ?a ?b) ?c) (div ?a (mul ?b ?c))", "fast"),
        (
            "(F float) (?a F[B.. M K]) (?u F[B.. K N]) (?v F[B.. K N])",
            "(add (matmul ?a ?u) (matmul ?a ?v)) (matmul ?a (add ?u ?v))",
            "reassoc",
        ),
        (ROW, "(div (reduce-sum ?x :axes [-1] :keep true) D) (reduce-mean ?x :axes [-1] :keep true)", "reassoc"),
        // The exponential is lost only if it is below half of the least number, and the sum changes by no more.
        ("(?x f16[A..])", "(softplus ?x) (add (max ?x 0.0) (log1p (exp (neg (abs ?x)))))", "reassoc"),
        // Scores of moderate inputs are far smaller than masks.
        (TWO_MASKS[0], TWO_MASKS[1], "reassoc"),
    ];
    for (forall, sides, contract) in right {
        let proof = verdict(forall, sides, contract);
        assert!(matches!(proof, Proof::Every(_)), "{sides}: {proof}");
    }
}

#[test]
fn each_obligation_that_a_rule_breaks_is_named() {
    let wrong = [
        // b·c overflows for finite quotients, and 2·x for finite 1.5·x.
        (ABC, "(div (div ?a ?b) ?c) (div ?a (mul ?b ?c))", "reassoc", "range"),
        (X, "(mul ?x 1.5) (sub (mul ?x 2.0) (mul ?x 0.5))", "reassoc", "range"),
        // x/1024 underflows first.
        (X, "(mul ?x 2.0) (mul (mul ?x 0.0009765625) 2048.0)", "reassoc", "range"),
        (ROW, "(softmax ?x :axis -1) (div (exp ?x) (reduce-sum (exp ?x) :axes [-1] :keep true))", "reassoc", "range"),
        // The sum of a column may overflow in f16.
        (
            "(F float) (?a F[B.. M K]) (?b F[B.. K N])",
            "(reduce-sum (matmul ?a ?b) :axes [-2] :keep true) (matmul (reduce-sum ?a :axes [-2] :keep true) ?b)",
            "reassoc",
            "range",
        ),
        // A score of f16 may be as large as a mask.
        ("(?q f16[B.. S D]) (?k f16[B.. D T]) (?b f16[B.. S T]) (?m f16[B.. S T])", TWO_MASKS[1], "reassoc", "range"),
        // In 16 bits, σ(−91) has two significant digits, and −91·σ(−91) has full precision.
        ("(?x bf16[A..])", "(act ?x :kind silu) (mul ?x (sigmoid ?x))", "reassoc", "range"),
        // The sum is multiplied, so that an underflow is visible.
        (XY, "(add ?x ?y) (mul (add (mul ?x 0.0009765625) (mul ?y 0.0009765625)) 1024.0)", "reassoc", "range"),
        // x² overflows for smaller x than 3·x.
        (X, "(mul ?x 3.0) (sub (add (mul ?x ?x) (mul ?x 3.0)) (mul ?x ?x))", "reassoc", "range"),
        // The left side is NaN at ∞.
        (X, "(div (exp ?x) (add (exp ?x) 1.0)) (sigmoid ?x)", "reassoc", "infinities and NaN"),
        (X, "(where (is-nan ?x) 0.0 ?x) (mul ?x (cast (eq ?x ?x) :to F))", "reassoc", "infinities and NaN"),
        (
            MASK,
            "(reduce-sum (where ?k ?s 0.0) :axes [-1] :keep true) (reduce-sum (mul ?s (cast ?k :to F)) :axes [-1] :keep true)",
            "reassoc",
            "infinities and NaN",
        ),
        (
            MASK,
            "(softmax (where ?k ?s -inf) :axis -1) (softmax (add ?s (where ?k 0.0 -inf)) :axis -1)",
            "reassoc",
            "infinities and NaN",
        ),
        // c may be 1.5·2²³.
        (C, "(sub (add ?x ?c) ?c) ?x", "reassoc", "rounding"),
        // −0 + 0 is 0, and one rounding is replaced by three.
        (
            "(F float) (?a F[M 1]) (?b F[1 N])",
            "(matmul ?a ?b) (mul (expand ?a :shape [M N]) (expand ?b :shape [M N]))",
            "(ulp 1)",
            "infinities and NaN",
        ),
        (X, "(reciprocal (add (exp (neg ?x)) 1.0)) (sigmoid ?x)", "(ulp 2)", "ulps"),
        // The quotient of one and a number is rounded.
        (XY, "(mul (div 1.0 (add (exp ?x) 1.0)) (tanh ?y)) (div (tanh ?y) (add (exp ?x) 1.0))", "(ulp 1)", "ulps"),
        ("(?x f32[A..])", "(cast (cast ?x :to bf16) :to f32) ?x", "(ulp 2)", "ulps"),
    ];
    for (forall, sides, contract, cause) in wrong.into_iter().chain(hidden()) {
        let proof = verdict(forall, sides, contract);
        assert_eq!(proof.cause(), Some(cause), "{sides}: {proof}");
    }
}

/// Returns rules that break an obligation in one place: in an exponent, outside a box of indices, or before an op with
/// intermediate results.
fn hidden() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    const UPDATE: &str = "(F float) (?x F[B.. D]) (?u F[B.. K]) (?at i64[])";
    const SCATTER: &str = "(?x f32[P N Q]) (?u f32[P M Q]) (?i i64[P M Q])";
    vec![
        (
            "(?a f32[A..])",
            "(pow 1.5 (mul (div (tanh ?a) 3.0) 600.0)) (pow 1.5 (mul (tanh ?a) 200.0))",
            "(ulp 4)",
            "ulps",
        ),
        (
            UPDATE,
            "(reduce-sum (update-slice ?x ?u ?at :axis -1) :axes [-1] :keep false)
             (add (reduce-sum (update-slice ?x ?u ?at :axis -1) :axes [-1] :keep false) (reduce-sum (mul 0.0 ?x) :axes [-1] :keep false))",
            "reassoc",
            "infinities and NaN",
        ),
        (
            UPDATE,
            "(add (reduce-sum (update-slice ?x ?u ?at :axis -1) :axes [-1] :keep false) (reduce-sum (mul 0.0 ?x) :axes [-1] :keep false))
             (reduce-sum (update-slice ?x ?u ?at :axis -1) :axes [-1] :keep false)",
            "reassoc",
            "infinities and NaN",
        ),
        (
            "(?x f16[B.. D])",
            "(softmax ?x :axis -1) (softmax (mul (mul ?x 32768.0) 0.000030517578125) :axis -1)",
            "reassoc",
            "range",
        ),
        (
            SCATTER,
            "(scatter-sum ?x ?u ?i)
             (mul (scatter-sum (mul ?x 1.2676506002282294e30) (mul ?u 1.2676506002282294e30) ?i) 7.888609052210118e-31)",
            "reassoc",
            "range",
        ),
        // The sum in the condition has an index of its own, although a condition is no factor of the outer sum.
        (
            "(?y f32[N N]) (?u f32[])",
            "(reduce-sum (where (lt 0.0 (reduce-sum ?y :axes [-2] :keep false)) (expand ?u :shape [N]) 0.0) :axes [-1] :keep false)
             (reduce-sum (where (lt 0.0 (reduce-sum ?y :axes [-1] :keep false)) (expand ?u :shape [N]) 0.0) :axes [-1] :keep false)",
            "reassoc",
            "the normal forms differ",
        ),
    ]
}

#[test]
fn sums_of_columns_overflow_in_f16_where_the_sum_of_a_product_does_not() {
    const ROWS: usize = 2_100;
    let a = Tensor::from_f64(DType::F16, &[ROWS, 1], vec![32.0; ROWS]);
    let given = [("a", a), ("b", Tensor::from_f64(DType::F16, &[1, 1], [1.0 / 32.0]))];
    assert_eq!(reals("(reduce-sum (matmul a b) :axes [-2] :keep true)", &given), [2_100.0]);
    assert_eq!(reals("(matmul (reduce-sum a :axes [-2] :keep true) b)", &given), [f64::INFINITY]);
}

/// Returns the elements of a result.
fn reals(result: &str, inputs: &[(&str, Tensor)]) -> Vec<f64> {
    let declared: Vec<String> = inputs
        .iter()
        .map(|(name, tensor)| {
            let dims: Vec<String> = tensor.dims().iter().map(usize::to_string).collect();
            format!("(input {name} {}[{}])", tensor.dtype(), dims.join(" "))
        })
        .collect();
    let text = format!("(graph \"g\" {} (output y {result}))", declared.join(" "));
    let graph =
        eutectic_ir::text::parse(&Source::new("g.graph", text.as_str())).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let given = |name: &str| inputs.iter().find(|(own, _)| *own == name).map(|(_, tensor)| tensor.clone());
    match &interpret_rounded(&graph, &given).unwrap()[0].data {
        Data::Real(values) => values.to_vec(),
        Data::Int(_) => panic!("the elements of {result} are integers"),
    }
}

#[test]
fn silu_of_16_bits_has_all_digits_where_its_factor_has_few() {
    let x = Tensor::from_f64(DType::Bf16, &[3], [-91.0, -92.5, 2.0]);
    let of = |result: &str| reals(result, &[("x", x.clone())]);
    let whole = of("(act x :kind silu)");
    let error =
        |values: Vec<f64>| values.iter().zip(&whole).map(|(is, want)| (is / want - 1.0).abs()).fold(0.0, f64::max);
    assert!(error(of("(mul x (sigmoid x))")) > 0.05);
    assert!(error(of("(cast (mul (cast x :to f32) (sigmoid (cast x :to f32))) :to bf16)")) < 0.01);
}

#[test]
fn two_masks_of_f16_overflow_where_scores_keep_their_sum_in_range() {
    let of = |values: [f64; 2]| Tensor::from_f64(DType::F16, &[1, 2], values);
    let given = [("s", of([8_192.0, 8_000.0])), ("b", of([-65_504.0; 2])), ("m", of([-4_000.0; 2]))];
    assert!(reals("(softmax (add (add s b) m) :axis -1)", &given).iter().all(|x| x.is_finite()));
    assert!(reals("(softmax (add s (add b m)) :axis -1)", &given).iter().all(|x| x.is_nan()));
}
