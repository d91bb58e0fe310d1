//! Tests infinite scores under a mask with a finite number for −∞. Attention hides these scores. In a program of
//! primitives, the sum of scores and mask keeps them under the floating-point contract `exact`.

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph, RuleSet, Strategy, Tensor,
    engine::{
        ir::{DType, interp::interpret_rounded, lang::sexp::Source, text::parse},
        rewrites::{Choice, Fp},
    },
};

const OPERANDS: &str = "(input q f32[2 4]) (input k f32[3 4]) (input v f32[3 5]) (input m f32[2 3])";
const OF_OPS: &str = "(output y (matmul (softmax (add (matmul q (transpose k :perm [1 0])) m) :axis -1) v))";
const OF_ATTENTION: &str = "(output y (attention q k v m :scale 1.0 :softcap 0.0 :empty nan))";

/// Returns operands whose mask contains the least number of `f32`. It hides a key whose score is ∞ or NaN for the first
/// query, and a key with an ordinary score for the second one.
fn inputs(key: f64) -> [Tensor; 4] {
    let of = |dims: &[usize], numbers: &mut dyn FnMut(usize) -> f64| {
        let all: Vec<f64> = (0..dims.iter().product()).map(numbers).collect();
        Tensor::from_f64(DType::F32, dims, all)
    };
    let low = f64::from(f32::MIN);
    [
        of(&[2, 4], &mut |at| if at < 4 { 1e20 } else { 0.5 }),
        of(&[3, 4], &mut |at| if at < 4 { key } else { at as f64 * 1e-21 }),
        of(&[3, 5], &mut |at| at as f64 - 3.0),
        of(&[2, 3], &mut |at| if at % 3 == 0 { low } else { 0.25 }),
    ]
}

fn graph(body: &str) -> Graph {
    parse(&Source::new("masks.graph", format!("(graph \"masks\" {OPERANDS} {body})")))
        .unwrap_or_else(|e| panic!("{e:?}"))
}

fn interpreted(graph: &Graph, inputs: &[Tensor; 4]) -> Vec<f64> {
    let given = |name: &str| Some(inputs["qkvm".find(name)?].clone());
    interpret_rounded(graph, &given).expect("it is evaluated")[0].to_tensor().to_f64()
}

fn run(graph: &Graph, inputs: &[Tensor; 4], fp: Fp, strategy: Option<Strategy>) -> Vec<f64> {
    let rules = RuleSet::embedded().unwrap().choose(&Choice { fp, ..Choice::default() }).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let compiler = Compiler::new(cpu).unwrap().with_rules(rules);
    let compiler = match strategy {
        Some(strategy) => compiler.with_strategy(strategy),
        None => compiler,
    };
    let mut session = compiler.compile(graph).unwrap();
    session.load(&[]).unwrap();
    session.run(inputs).unwrap()[0].to_f64()
}

fn same(a: f64, b: f64) -> bool {
    a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * b.abs().max(1.0)
}

#[test]
fn attention_hides_a_score_of_infinity_at_each_level() {
    for key in [1e20, -1e20, f64::INFINITY, f64::NAN] {
        let (graph, inputs) = (graph(OF_ATTENTION), inputs(key));
        let want = interpreted(&graph, &inputs);
        assert!(want.iter().all(|x| x.is_finite()), "{want:?}");
        for fp in [Fp::Exact, Fp::Reassoc, Fp::Fast] {
            for strategy in [None, Some(Strategy::Unfused)] {
                let got = run(&graph, &inputs, fp, strategy);
                assert!(got.iter().zip(&want).all(|(a, b)| same(*a, *b)), "{key}, {fp:?}: {got:?}, not {want:?}");
            }
        }
    }
}

#[test]
fn a_sum_with_a_score_of_infinity_is_kept_at_exact() {
    let (of_ops, inputs) = (graph(OF_OPS), inputs(1e20));
    let want = interpreted(&of_ops, &inputs);
    assert!(want[..5].iter().all(|x| x.is_nan()) && want[5..].iter().all(|x| x.is_finite()), "{want:?}");
    let exact = run(&of_ops, &inputs, Fp::Exact, None);
    assert!(exact.iter().zip(&want).all(|(a, b)| same(*a, *b)), "{exact:?}, not {want:?}");
    // Under the other floating-point contracts, each row equals either the row of the primitives or that of attention.
    let hidden = interpreted(&graph(OF_ATTENTION), &inputs);
    for fp in [Fp::Reassoc, Fp::Fast] {
        let got = run(&of_ops, &inputs, fp, None);
        let is = |other: &[f64], row: usize| (0..5).all(|at| same(got[5 * row + at], other[5 * row + at]));
        assert!((0..2).all(|row| is(&want, row) || is(&hidden, row)), "{fp:?}: {got:?}");
    }
}
