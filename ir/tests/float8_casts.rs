//! Tests that the interpreter casts from and to 8-bit floats as ml_dtypes does. `data/float8.txt` says how its
//! numbers were made.

use eutectic_ir::{DType, Graph, Tensor, Type, interpret};

/// Returns the words of each line of this kind for an element type.
fn words(kind: &str, dtype: DType) -> Vec<&'static str> {
    let start = format!("{kind} {dtype} ");
    let mut lines = include_str!("data/float8.txt").lines().filter_map(|line| line.strip_prefix(start.as_str()));
    let words = lines.next().unwrap_or_else(|| panic!("the file has no line {start}")).split(' ').collect();
    assert!(lines.next().is_none(), "{start} occurs twice");
    words
}

/// Reads the bits of an `f32`.
fn number(text: &str) -> f32 {
    if text == "nan" { f32::NAN } else { f32::from_bits(u32::from_str_radix(text, 16).unwrap()) }
}

fn bytes_of_floats() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_float() && dtype.bits() == 8)
}

/// Casts with the interpreter.
fn cast(x: Tensor, to: DType) -> Tensor {
    let mut graph = Graph::new("cast");
    let input = graph.input("x", Type::tensor(x.dtype(), &[x.count()])).unwrap();
    let y = graph.apply("cast", &[input], &[("to", to.into())]).unwrap();
    graph.output("y", y).unwrap();
    interpret::<f64>(&graph, &|_| Some(x.clone())).unwrap()[0].to_tensor()
}

#[test]
fn every_code_is_read_as_the_reference_reads_it() {
    assert_eq!(bytes_of_floats().count(), 2);
    for dtype in bytes_of_floats() {
        let want: Vec<f32> = words("decode", dtype).into_iter().map(number).collect();
        assert_eq!(want.len(), 128);
        let codes = Tensor::new(dtype, &[256], (0..=255).collect::<Vec<u8>>()).unwrap();
        let widened = cast(codes, DType::F32).to_f64();
        for code in 0..256 {
            let want = f64::from(if code < 128 { want[code] } else { -want[code - 128] });
            let got = widened[code];
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{dtype} {code:#x}: {got}, not {want}");
        }
    }
}

#[test]
fn numbers_and_middles_round_as_the_reference_rounds_them() {
    for dtype in bytes_of_floats() {
        let pairs: Vec<_> = words("encode", dtype).into_iter().map(|word| word.split_once(':').unwrap()).collect();
        assert!(pairs.len() > 700);
        for sign in [1.0, -1.0] {
            let given = pairs.iter().map(|(x, _)| sign * number(x));
            let x = Tensor::from_f64(DType::F32, &[pairs.len()], given.map(f64::from));
            for from in [DType::F32, DType::F64] {
                let written = cast(cast(x.clone(), from), dtype);
                for ((x, code), &got) in pairs.iter().zip(written.bytes()) {
                    let is_nan = Tensor::new(dtype, &[1], vec![got]).unwrap().to_f64()[0].is_nan();
                    let same = match *code {
                        "nan" => is_nan,
                        code => got == u8::from_str_radix(code, 16).unwrap() | if sign < 0.0 { 0x80 } else { 0 },
                    };
                    assert!(same, "{sign} times {} as {dtype}: {got:#x}, not {code}", number(x));
                }
            }
        }
    }
}
