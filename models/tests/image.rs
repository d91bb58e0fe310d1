//! Preprocessing of images and postprocessing of masks, against transformers' processor of SAM (`models/golden/make_sam.py`).

use std::path::PathBuf;

use eutectic_models::{
    Weights,
    image::{self, Preprocessing, SAM, SAM3},
};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/sam/images").join(name)
}

fn expected() -> Weights {
    Weights::open(golden("expected.safetensors")).unwrap()
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

#[test]
fn images_are_prepared_as_transformers_does() {
    let expected = expected();
    for name in ["wide", "tall"] {
        let prepared = SAM.apply(&image::open(&golden(&format!("{name}.png"))).unwrap(), [48, 48]);
        let resized = expected.get(&format!("{name}.resized")).unwrap().to_i64();
        assert_eq!(prepared.resized.map(|n| n as i64).as_slice(), resized, "{name}");
        let want = expected.get(&format!("{name}.pixels")).unwrap();
        assert_eq!(prepared.pixels.ty(), want.ty());
        // Rounding to whole colours may differ by one.
        let step = 1.0 / SAM.deviation.iter().fold(f64::INFINITY, |a, b| a.min(*b));
        let off = worst(&prepared.pixels.to_f64(), &want.to_f64());
        assert!(off <= 1.01 * step, "{name}: {off} of {step}");
        let exact = prepared.pixels.to_f64().iter().zip(want.to_f64()).filter(|(a, b)| (**a - b).abs() < 1e-5).count();
        assert!(exact * 20 > want.count() * 19, "{name}: only {exact} of {} are the same", want.count());
    }
}

#[test]
fn masks_are_brought_back_as_transformers_does() {
    let expected = expected();
    for name in ["wide", "tall"] {
        let prepared = SAM.apply(&image::open(&golden(&format!("{name}.png"))).unwrap(), [48, 48]);
        let low: Vec<f32> =
            expected.get(&format!("{name}.mask.low")).unwrap().to_f64().iter().map(|x| *x as f32).collect();
        let got = low.chunks(144).flat_map(|mask| prepared.unprepare(mask, [12, 12])).map(f64::from);
        let off = worst(&got.collect::<Vec<_>>(), &expected.get(&format!("{name}.mask")).unwrap().to_f64());
        assert!(off < 1e-5, "{name}: {off}");
    }
}

#[test]
fn jpeg_is_nearly_the_same_and_padding_is_zero() {
    let [png, jpeg] =
        ["wide.png", "wide.jpg"].map(|name| SAM.apply(&image::open(&golden(name)).unwrap(), [48, 48]).pixels.to_f64());
    let mean = png.iter().zip(&jpeg).map(|(a, b)| (a - b).abs()).sum::<f64>() / png.len() as f64;
    assert!(mean > 0.0 && mean < 0.2, "{mean}");
    // An image of 37 x 83 becomes 21 x 48.
    assert!(png[21 * 48..48 * 48].iter().all(|x| *x == 0.0) && png[..21 * 48].iter().any(|x| *x != 0.0));
}

#[test]
fn ratios_are_kept_or_not() {
    let one = image::open(&golden("tall.png")).unwrap();
    let stretched = SAM3.apply(&one, [10, 30]);
    assert_eq!((stretched.resized, stretched.original), ([10, 30], [31, 22]));
    assert!(stretched.pixels.to_f64().iter().all(|x| x.abs() <= 1.0));
    assert_eq!(stretched.point([11.0, 31.0]), [15.0, 10.0]);
    let fitted = Preprocessing { keeps_ratio: true, ..SAM3 }.apply(&one, [62, 60]);
    assert_eq!((fitted.resized, fitted.shown([31, 30])), ([62, 44], [31, 22]));
    // A very narrow image keeps at least one pixel.
    assert_eq!(SAM.apply(&::image::RgbImage::new(1, 500), [16, 16]).resized, [16, 1]);
}

#[test]
fn what_is_no_image_is_an_error() {
    for (name, says) in [("expected.safetensors", "not a usable PNG or JPEG"), ("none.png", "No such file")] {
        let error = image::open(&golden(name)).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(name), "{error}");
    }
}
