//! Measures pointwise kernels, kernels on rows and matrix products of a device. Each kernel runs alone, many times in a
//! row, on buffers of the device.
//!
//! `cargo run --release -p eutectic-benches --example kernels -- BACKEND [WORD…]`; words select the graphs whose names
//! contain one of them. `benches/peers/gpu.py` measures torch. A time is the minimum of several turns. Bytes are
//! counted as if each input were read once and each result written once.

use eutectic::{
    Compiler, Error, Listed, Setup,
    engine::ir::{lang::Source, text::parse},
    packs,
};

/// The number of rows, and the number of elements in a row.
const SHAPES: [[usize; 2]; 4] = [[4096, 768], [8192, 4096], [65536, 1024], [8, 128_256]];
const TURNS: usize = 5;

/// Graphs by name, with the placeholders `$rows` and `$points`.
const GRAPHS: [(&str, &str); 8] = [
    ("square and add", "(input x f32[$rows $points]) (output y (add (mul x x) x))"),
    ("gelu", "(input x f32[$rows $points]) (output y (act x :kind gelu-erf))"),
    (
        "chain",
        "(input x f32[$rows $points]) (input z f32[$rows $points]) (output y (act (add (mul x z) z) :kind silu))",
    ),
    (
        "LayerNorm",
        "(input x f32[$rows $points]) (param g f32[$points]) (param b f32[$points]) (output y (layernorm x g b :eps 1e-5))",
    ),
    (
        "residual, LayerNorm",
        "(input x f32[$rows $points]) (input r f32[$rows $points]) (param g f32[$points]) (param b f32[$points]) \
         (let s (add x r)) (output s s) (output y (layernorm s g b :eps 1e-5))",
    ),
    ("softmax", "(input x f32[$rows $points]) (output y (softmax x :axis -1))"),
    ("sum of rows", "(input x f32[$rows $points]) (output y (reduce-sum x :axes [1] :keep false))"),
    ("sum of columns", "(input x f32[$rows $points]) (output y (reduce-sum x :axes [0] :keep false))"),
];

/// M, K and N of matrix products, as in `gpu.py`: those of MiniLM, BERT, SAM and decoders, and square ones.
const PRODUCTS: [[usize; 3]; 30] = [
    [128, 384, 1152],
    [128, 384, 384],
    [128, 384, 1536],
    [128, 1536, 384],
    [128, 768, 2304],
    [128, 768, 3072],
    [4096, 768, 2304],
    [4096, 768, 768],
    [4096, 768, 3072],
    [4096, 3072, 768],
    [4900, 768, 2304],
    [4900, 768, 768],
    [4096, 1280, 3840],
    [4096, 1280, 5120],
    [4096, 5120, 1280],
    [1, 2048, 2048],
    [1, 2048, 5632],
    [1, 5632, 2048],
    [1, 2048, 32000],
    [4, 2048, 8192],
    [16, 2048, 8192],
    [64, 4096, 4096],
    [512, 4096, 4096],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [197, 768, 3072],
    [1, 4096, 14336],
    [32, 4096, 14336],
    [4096, 2304, 256],
];

/// Returns the names and texts of all graphs.
fn texts() -> Vec<(String, String)> {
    let of_shape = |(name, text): (&str, &str)| {
        SHAPES.map(|[rows, points]| {
            let text = text.replace("$rows", &rows.to_string()).replace("$points", &points.to_string());
            (format!("{name} {rows}x{points}"), text)
        })
    };
    let mut all: Vec<_> = GRAPHS.into_iter().flat_map(of_shape).collect();
    for dtype in ["f16", "f32"] {
        all.extend(PRODUCTS.map(|[m, k, n]| {
            let text = format!(
                "(input x {dtype}[{m} {k}]) (param w {dtype}[{n} {k}]) (param b {dtype}[{n}]) \
                 (output y (linear x (transpose w :perm [1 0]) b :act none))"
            );
            (format!("linear {m}x{k}x{n} {dtype} none"), text)
        }));
    }
    all
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.first().map_or("cpu", String::as_str);
    let backend = Listed::named(name)?.open(&Setup::default())?;
    println!("{}", backend.describe());
    let compiler = Compiler::from_arc(backend.clone(), packs(&*backend)?.choose(&Default::default())?);
    let is_wanted = |name: &str| words.len() < 2 || words[1..].iter().any(|word| name.contains(word.as_str()));
    for (name, text) in texts().into_iter().filter(|(name, _)| is_wanted(name)) {
        let graph = parse(&Source::new("graph", format!("(graph {name:?} {text})")));
        let planned = compiler.plan(&graph.unwrap_or_else(|e| panic!("{name}: {e:?}")))?;
        let program = &planned.lowered.program;
        let (mut seconds, mut bytes, mut flops) = (0.0, 0.0, 0.0);
        for (step, cost) in program.run.iter().zip(planned.step_costs()) {
            seconds += backend.measure(&program.kernels[step.kernel], TURNS)?.unwrap_or(f64::NAN);
            let [of_bytes, of_flops] = cost.map_or([0.0; 2], |cost| [cost.bytes, cost.flops]);
            (bytes, flops) = (bytes + of_bytes, flops + of_flops);
        }
        println!(
            "{name:40} {:9.2} us {:6.0} GB/s {:6.1} TFLOP/s, expected {:9.2} us, {} kernels",
            seconds * 1e6,
            bytes / seconds * 1e-9,
            flops / seconds * 1e-12,
            planned.seconds() * 1e6,
            program.run.len()
        );
    }
    Ok(())
}
