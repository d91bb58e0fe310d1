//! Compares floats of 8 bits with a table that `ml_dtypes` made.

use eutectic_ir::{DType, Tensor};

/// Returns the element type and the further words of each line that begins with the given word.
fn lines(kind: &str) -> impl Iterator<Item = (DType, std::str::SplitWhitespace<'static>)> {
    include_str!("data/float8.txt").lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(kind)).then(|| {
            let name = words.next().unwrap();
            (DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap(), words)
        })
    })
}

#[test]
fn all_codes_are_decoded_as_ml_dtypes_decodes_them() {
    assert_eq!(lines("decode").count(), 2);
    for (dtype, words) in lines("decode") {
        let got = Tensor::new(dtype, &[256], (0..=255).collect::<Vec<u8>>()).unwrap().to_f64();
        let wants: Vec<&str> = words.collect();
        assert_eq!(wants.len(), 128);
        for (code, got) in got.into_iter().enumerate() {
            let sign = if code < 128 { 1.0 } else { -1.0 };
            match wants[code % 128] {
                "nan" => assert!(got.is_nan(), "{dtype} {code:#x}: {got}"),
                word => {
                    let want = sign * f64::from(f32::from_bits(u32::from_str_radix(word, 16).unwrap()));
                    assert_eq!(got.to_bits(), want.to_bits(), "{dtype} {code:#x}: {got}, not {want}");
                }
            }
        }
    }
}

#[test]
fn boundaries_are_rounded_as_ml_dtypes_rounds_them() {
    assert_eq!(lines("encode").count(), 2);
    for (dtype, words) in lines("encode") {
        let format = dtype.float().unwrap();
        for word in words {
            let (bits, code) = word.split_once(':').unwrap();
            let x = f64::from(f32::from_bits(u32::from_str_radix(bits, 16).unwrap()));
            if code == "nan" {
                assert!([x, -x].into_iter().all(|x| format.decode(format.encode(x)).is_nan()), "{x:e} as {dtype}");
                continue;
            }
            let code = u64::from_str_radix(code, 16).unwrap();
            for (x, want) in [(x, code), (-x, code | 0x80)] {
                assert_eq!(format.encode(x), want, "{x:e} as {dtype}");
            }
        }
    }
}
