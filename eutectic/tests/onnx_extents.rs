//! ONNX files as one program for all lengths, compared with programs of fixed sizes.

use std::{collections::BTreeMap, path::Path};

use eutectic::{Compiler, Cpu, CpuOptions, DType, Dim, Session, Tensor, Type, engine::models::onnx::Model};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden");

/// The name of a dimension, and its least and largest length.
type Bounds = (&'static str, i64, i64);

/// The files, with their open dimensions.
const FILES: &[(&str, &[Bounds])] = &[
    ("onnx/mlp-old", &[("batch", 1, 9)]),
    ("onnx/mlp-new", &[("batch", 1, 9)]),
    ("onnx/cnn-old", &[("batch", 1, 5)]),
    ("onnx/cnn-new", &[("batch", 1, 5)]),
    ("extents/attention", &[("batch", 1, 4), ("seq", 1, 16)]),
    ("extents/pooling", &[("batch", 1, 4), ("seq", 1, 16)]),
    ("extents/masks", &[("seq", 1, 16)]),
    ("extents/parts", &[("batch", 1, 4), ("seq", 1, 8)]),
    // The batch is fixed at 1. A product has a row for each window of each signal, and no kernel iterates over rows
    // along two axes with run-time extents.
    ("extents/signal", &[("batch", 1, 1), ("time", 1, 16)]),
    ("extents/images", &[("batch", 1, 4)]),
    ("extents/integers", &[("batch", 1, 4), ("seq", 1, 8)]),
    ("extents/decoder", &[("batch", 1, 3), ("past", 0, 8), ("seq", 1, 4)]),
];

fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).expect("the rules load")
}

fn open(name: &str) -> Model {
    Model::open(Path::new(GOLDEN).join(format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns a session for dimensions with numbers or bounds.
fn session(compiler: &Compiler, model: &Model, dims: &BTreeMap<String, Dim>) -> Session {
    let imported = model.import(dims).unwrap_or_else(|e| panic!("{e}"));
    let params = imported.params().expect("the values are in the file");
    let mut session = compiler.compile(&imported.graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| params.get(name).cloned()).expect("every parameter has a value");
    session
}

/// Returns small numbers, ids that are in range for every table, and masks that never hide the first token.
fn value(ty: &Type, seed: usize) -> Tensor {
    let (dtype, dims) = (ty.dtype().expect("a tensor"), ty.dims().expect("numbers"));
    let count: usize = dims.iter().product();
    let last = dims.last().copied().unwrap_or(1);
    match dtype {
        DType::F32 => Tensor::from_f64(dtype, &dims, (0..count).map(|i| ((seed + 7 * i) % 23) as f64 / 8.0 - 1.25)),
        _ => Tensor::from_i64(
            dtype,
            &dims,
            (0..count).map(|i| i64::from(i.is_multiple_of(last) || !(seed + i * i).is_multiple_of(3))),
        ),
    }
}

#[test]
fn results_are_those_of_fixed_sizes() {
    let compiler = compiler();
    for (name, dims) in FILES {
        let model = open(name);
        let length = |dim, least, most| if least == most { Dim::Known(most) } else { Dim::between(dim, least, most) };
        let open = dims.iter().map(|(dim, least, most)| (dim.to_string(), length(dim, *least, *most)));
        let mut varying = session(&compiler, &model, &open.collect());
        let ends = |pick: fn(&Bounds) -> i64| dims.iter().map(pick).collect::<Vec<_>>();
        let lengths = [
            ends(|d| d.2),
            ends(|d| d.1),
            ends(|d| (d.1 + d.2) / 2),
            ends(|d| (d.2 - 1).max(d.1)),
            ends(|d| (d.1 + 1).min(d.2)),
        ];
        for (seed, lengths) in lengths.into_iter().enumerate() {
            let numbers = dims.iter().zip(&lengths).map(|(dim, n)| (dim.0.to_string(), Dim::Known(*n)));
            let mut fixed = session(&compiler, &model, &numbers.collect());
            let types = fixed.program().inputs.clone();
            let inputs: Vec<Tensor> = types.iter().map(|(_, ty)| value(ty, seed)).collect();
            let want = fixed.run(&inputs).unwrap_or_else(|e| panic!("{name} at {lengths:?}: {e}"));
            let got = varying.run(&inputs).unwrap_or_else(|e| panic!("{name} at {lengths:?}: {e}"));
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(got.ty(), want.ty(), "{name} at {lengths:?}");
                let largest = want.to_f64().iter().fold(1.0_f64, |most, x| most.max(x.abs()));
                let differs = |(a, b): (f64, f64)| !((a - b).abs() <= 1e-5 * largest || (a.is_nan() && b.is_nan()));
                let wrong = got.to_f64().into_iter().zip(want.to_f64()).position(differs);
                assert_eq!(wrong, None, "{name} at {lengths:?}: {got:?}, not {want:?}");
            }
        }
    }
}
