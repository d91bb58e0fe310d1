//! Tests random numbers. Bits must be the words that the authors of Philox published, and those that its definition
//! gives for each key and position in every shape. Normal numbers must be within the error bounds of the functions that
//! compute them.

use eutectic::Graph;
use eutectic_checker::run::check_on;
use eutectic_ir::{DType, Tensor, lang::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    words_equal_the_published_ones,
    uniform_numbers_are_made_of_words,
    normal_numbers_are_within_bounds,
    truth_values_are_made_of_words,
];

const SHAPES: [&str; 8] = ["", "0", "1", "2", "7", "3 5", "2 0 3", "40 1027"];
const KEYS: [[u32; 2]; 3] = [[0, 0], [u32::MAX, 1], [0xa409_3822, 0x299f_31d0]];

fn graph(text: &str) -> Graph {
    let source = Source::new("random", format!("(graph \"random\" (input key u32[2]) {text})"));
    parse(&source).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

fn count(shape: &str) -> usize {
    shape.split_whitespace().map(|n| n.parse::<usize>().expect("an extent")).product()
}

/// Returns the results of a program for a key, on each configuration of the backend. Skips configurations that refuse
/// the program.
fn results(device: &Device, text: &str, key: [u32; 2], others: &[(&str, &Tensor)]) -> Vec<Vec<Tensor>> {
    let graph = graph(text);
    let key = Tensor::from_i64(DType::U32, &[2], key.map(i64::from));
    let given = |name: &str| {
        others.iter().find(|(n, _)| *n == name).map_or_else(|| Some(key.clone()), |(_, t)| Some((*t).clone()))
    };
    let run = |compiler: eutectic::Compiler| {
        let (_, mut session) = compiler.compile_planned(&graph).map_err(|e| device.refuse(|| e.to_string())).ok()?;
        session.load_named(given).unwrap_or_else(|e| panic!("{text}: {e}"));
        let got = session.run_named(given).unwrap_or_else(|e| panic!("{text}: {e}"));
        device.judge();
        Some(got)
    };
    device.compilers().filter_map(run).collect()
}

/// Returns word `at` of the random bits of a key. It follows the definition of Philox, in integers of 64 bits.
fn word(key: [u32; 2], at: usize) -> u32 {
    let (mut x, mut k) = ([(at / 4) as u64, 0, 0, 0], key.map(u64::from));
    let low = u64::from(u32::MAX);
    for _ in 0..10 {
        let [p, q] = [x[0] * 0xD251_1F53, x[2] * 0xCD9E_8D57];
        x = [(q >> 32) ^ x[1] ^ k[0], q & low, (p >> 32) ^ x[3] ^ k[1], p & low];
        k = [(k[0] + 0x9E37_79B9) & low, (k[1] + 0xBB67_AE85) & low];
    }
    x[at % 4] as u32
}

fn words_equal_the_published_ones(device: &Device) {
    // The first vector of Random123's `kat_vectors` for philox4x32 of ten rounds.
    let known = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    for got in results(device, "(output y (random-bits key :shape [2 2]))", [0, 0], &[]) {
        assert_eq!(got[0].to_i64(), known);
    }
    for shape in SHAPES {
        for key in KEYS {
            let want: Vec<i64> = (0..count(shape)).map(|at| word(key, at).into()).collect();
            for got in results(device, &format!("(output y (random-bits key :shape [{shape}]))"), key, &[]) {
                assert_eq!(got[0].to_i64(), want, "[{shape}] of {key:?}");
            }
        }
    }
}

/// Returns the uniform number at a position, by its definition.
fn uniform(dtype: DType, key: [u32; 2], at: usize) -> f64 {
    let bits = dtype.significand_bits() as i32;
    let whole = match dtype {
        DType::F64 => (u64::from(word(key, 2 * at) >> 5) << 26 | u64::from(word(key, 2 * at + 1) >> 6)) as f64,
        _ => f64::from(word(key, at) >> (32 - bits)),
    };
    whole / 2_f64.powi(bits)
}

fn uniform_numbers_are_made_of_words(device: &Device) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for (n, shape) in SHAPES.into_iter().enumerate() {
            let key = KEYS[n % KEYS.len()];
            let want: Vec<f64> = (0..count(shape)).map(|at| uniform(dtype, key, at)).collect();
            assert!(want.iter().all(|x| (0.0..1.0).contains(x)));
            let text = format!("(output y (random-uniform key :shape [{shape}] :dtype {dtype}))");
            for got in results(device, &text, key, &[]) {
                assert_eq!(got[0].to_f64(), want, "{dtype}[{shape}] of {key:?}");
            }
        }
    }
}

fn normal_numbers_are_within_bounds(device: &Device) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for shape in SHAPES {
            let graph = graph(&format!("(output y (random-normal key :shape [{shape}] :dtype {dtype}))"));
            let key = Tensor::from_i64(DType::U32, &[2], KEYS[2].map(i64::from));
            for compiler in device.compilers() {
                match check_on(&compiler, &graph, &|_| Some(key.clone())) {
                    Ok(Ok(())) => device.judge(),
                    Ok(Err(wrong)) => panic!("{dtype}[{shape}]: {wrong:?}"),
                    Err(why) => device.refuse(|| why.to_string()),
                }
            }
        }
    }
    for got in results(device, "(output y (random-normal key :shape [300 300] :dtype f32))", KEYS[1], &[]) {
        let x = got[0].to_f64();
        let mean = |of: fn(f64) -> f64| x.iter().map(|&x| of(x)).sum::<f64>() / x.len() as f64;
        // The moments of the distribution, within five standard errors.
        for (found, want, error) in [
            (mean(|x| x), 0.0, 1.0),
            (mean(|x| x * x), 1.0, 2.0),
            (mean(|x| x * x * x), 0.0, 15.0),
            (mean(|x| x.powi(4)), 3.0, 96.0),
        ] {
            assert!((found - want).abs() < 5.0 * f64::sqrt(error / x.len() as f64), "{found} instead of {want}");
        }
    }
}

fn truth_values_are_made_of_words(device: &Device) {
    let dims = [40, 33];
    let n: usize = dims.iter().product();
    let p: Vec<f64> = (0..n).map(|n| [0.0, 1.0, 0.25, f64::NAN, -1.0, 0.7, f64::INFINITY][n % 7]).collect();
    let x = Tensor::from_f64(DType::F32, &dims, p.iter().copied());
    let text = "(input x f32[40 33]) (output y (bernoulli x key)) (output z (dropout x key :ratio 0.75))";
    for got in results(device, text, KEYS[2], &[("x", &x)]) {
        let (truths, kept) = (got[0].to_i64(), got[1].to_f64());
        for (at, &p) in p.iter().enumerate() {
            let u = uniform(DType::F32, KEYS[2], at);
            assert_eq!(truths[at], i64::from(u < f64::from(p as f32)), "element {at}, p = {p}");
            let want = if u >= 0.75 { f64::from(p as f32) * 4.0 } else { 0.0 };
            assert!(kept[at] == want || kept[at].is_nan() && want.is_nan(), "element {at}: {} of {want}", kept[at]);
        }
    }
}
