//! Tests safetensors files, whole and damaged ones.

use std::{io::Write, path::Path};

use eutectic_ir::{DType, Type};
use eutectic_models::{Misfit, Weights, WeightsError, random::Rng};

/// Returns a file with the given header and number of data bytes.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Returns tensors of several types: 2x3 f32, 4 f16 (1, -2, 0.5, 65504), 2 bf16 (1, -3), 1 i64, 2 bool, and 4 elements
/// of a type that programs do not have.
fn sample() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},
        "a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
        "b":{"dtype":"F16","shape":[4],"data_offsets":[24,32]},
        "c":{"dtype":"BF16","shape":[1,2],"data_offsets":[32,36]},
        "x.position_ids":{"dtype":"I64","shape":[1],"data_offsets":[36,44]},
        "pooler.flag":{"dtype":"BOOL","shape":[2],"data_offsets":[44,46]},
        "odd":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[46,50]},
        "none":{"dtype":"F32","shape":[0,7],"data_offsets":[50,50]}}"#;
    let mut data: Vec<u8> = [1.5_f32, -2.0, 0.0, 3.25, f32::MAX, 1e-40].iter().flat_map(|x| x.to_le_bytes()).collect();
    data.extend([0x3c00_u16, 0xc000, 0x3800, 0x7bff, 0x3f80, 0xc040].iter().flat_map(|x| x.to_le_bytes()));
    data.extend(7_i64.to_le_bytes());
    data.extend([0, 1, 9, 0, 9, 0]);
    file(header, &data)
}

fn open(bytes: &[u8]) -> Result<Weights, WeightsError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Weights::open(file.path())
}

#[test]
fn tensors_are_read_in_place_and_narrow_floats_widened() {
    let weights = open(&sample()).unwrap();
    assert_eq!(weights.get("a.weight").unwrap().to_f64()[3], 3.25);
    assert_eq!(weights.get("x.position_ids").unwrap().to_i64(), [7]);
    assert_eq!(weights.get("none").unwrap().count(), 0);
    assert!(weights.get("odd").is_none());

    let types = [Type::tensor(DType::F32, &[1, 2]), Type::tensor(DType::F32, &[2, 3]), Type::tensor(DType::F32, &[4])];
    let params = ["c", "a.weight", "b"].into_iter().zip(&types);
    let bound = weights.bind(params, &["*.position_ids", "pooler.*", "odd", "none"]).unwrap();
    assert_eq!(["c", "a.weight", "b"].map(|name| bound.tensors[name].ty()), types);
    assert_eq!(bound.tensors["c"].to_f64(), [1.0, -3.0]);
    assert_eq!(bound.tensors["a.weight"].to_f64()[4], f64::from(f32::MAX));
    assert_eq!(bound.tensors["b"].to_f64(), [1.0, -2.0, 0.5, 65504.0]);
    let widened: Vec<_> = bound.widened.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
    assert_eq!(widened, ["c bf16[1 2]", "b f16[4]"]);
}

#[test]
fn everything_that_does_not_fit_is_listed_at_once() {
    let weights = open(&sample()).unwrap();
    let f32 = |dims: &[usize]| Type::tensor(DType::F32, dims);
    let types = [f32(&[3, 2]), f32(&[9]), Type::tensor(DType::F16, &[2, 3]), f32(&[2]), f32(&[8])];
    let params =
        [("a.weight", &types[0]), ("gone", &types[1]), ("odd", &types[3]), ("lost", &types[4]), ("b", &types[4])];
    let Err(WeightsError::Mismatch { problems, .. }) = weights.bind(params, &["*position_ids"]) else {
        panic!("it does not fit")
    };
    let text: Vec<_> = problems.iter().map(Misfit::to_string).collect();
    assert_eq!(
        text,
        [
            "gone: missing, expected f32[9]",
            "lost: missing, expected f32[8]",
            "a.weight: expected f32[3 2], found f32[2 3]",
            "odd: expected f32[2], found F8_E8M0[4]",
            "b: expected f32[8], found f16[4]",
            "c: bf16[1 2] is not part of the model",
            "none: f32[0 7] is not part of the model",
            "pooler.flag: bool[2] is not part of the model",
        ]
    );
    // Narrowing would round, so it is refused.
    assert!(weights.bind([("a.weight", &types[2])], &["*"]).is_err());
}

#[test]
fn files_that_are_none_are_errors() {
    assert!(matches!(Weights::open(Path::new("/nonexistent/x.safetensors")), Err(WeightsError::Io { .. })));
    assert!(matches!(Weights::open(std::env::temp_dir()), Err(WeightsError::Io { .. })));
    assert!(open(b"").is_err());
    for (header, data) in [
        ("", 0),
        ("[]", 0),
        ("{}", 1),
        ("{\"a\":1}", 0),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4),
        (r#"{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#, 4),
        (r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4),
        (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8),
        (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4),
        // Byte ranges that overlap, and byte ranges with a gap.
        (
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
            12,
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#,
            12,
        ),
        // Extents whose product overflows, and byte ranges whose end overflows.
        (r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0),
        (r#"{"a":{"dtype":"U8","shape":[0,18446744073709551615,2],"data_offsets":[0,0]}}"#, 1),
        (r#"{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#, 1),
    ] {
        assert!(matches!(open(&file(header, &vec![7; data])), Err(WeightsError::Format { .. })), "{header}");
    }
    // The sizes of eight tensors add up to the whole address space, so the end of the data overflows.
    let size = (1_u64 << 61) - 1;
    let entry = |n: u64| {
        let (from, to) = (n * size, (n + 1) * size);
        format!(r#""t{n}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{from},{to}]}}"#)
    };
    let header = format!("{{{}}}", (0..8).map(entry).collect::<Vec<_>>().join(","));
    assert!(open(&file(&header, b"")).is_err());
    // Header lengths that exceed the file, up to the largest number.
    for length in [51_u64, 1 << 20, 1 << 40, u64::MAX - 7, u64::MAX] {
        let mut bytes = sample();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        assert!(open(&bytes).is_err(), "header of {length} bytes");
    }
    // A header of brackets only must not overflow the stack.
    assert!(open(&file(&"[".repeat(1 << 20), b"")).is_err());
    assert!(open(&file(&"{\"a\":".repeat(1 << 18), b"")).is_err());
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_an_error() {
    let whole = sample();
    for length in 0..whole.len() {
        assert!(open(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
}

#[test]
fn damaged_files_give_errors_or_tensors_of_the_right_size() {
    let whole = sample();
    let mut rng = Rng::new(1);
    let (mut good, mut bad) = (0, 0);
    for round in 0..4000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            match round % 4 {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0123456789,:{}[]\"\\"[rng.below(18)]),
            }
        }
        match open(&bytes) {
            Ok(weights) => {
                good += 1;
                for (name, _) in weights.names() {
                    let Some(tensor) = weights.get(name) else { continue };
                    assert_eq!(tensor.bytes().len(), tensor.count() * tensor.dtype().size());
                    assert_eq!(tensor.to_f64().len(), tensor.count());
                }
            }
            Err(error) => {
                bad += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(good > 50 && bad > 50, "{good} accepted, {bad} refused: the damage is not varied enough");
}
