//! Tests `run` of image models: masks, embeddings and numbers for a picture, and errors.

mod common;

use std::path::PathBuf;

use common::{Dir, eutectic};

/// Returns a file of the tiny models that `models/golden/make_sam.py` makes.
fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/golden/sam").join(name);
    path.to_str().expect("the path is UTF-8").to_string()
}

#[test]
fn a_point_gives_a_mask() {
    let dir = Dir::new();
    let (picture, numbers) = (dir.path("mask.png"), dir.path("embedding.npy"));
    let (model, image) = (golden("model"), golden("images/wide.png"));
    let out = ["--out", picture.to_str().unwrap(), "--out", numbers.to_str().unwrap()];
    let run = ["run", "sam", "--weights", &model, "--image", &image, "--point", "20,10"];
    let said = eutectic(run.iter().chain(&out)).good();
    assert!(said.contains("mask") && said.contains("score") && said.contains("model.safetensors"), "{said}");
    let shown = image::open(&picture).expect("a picture").to_rgb8();
    let original = image::open(&image).expect("the fixture").to_rgb8();
    assert_eq!(shown.dimensions(), original.dimensions());
    assert_ne!(shown, original, "no mask is painted");
    assert!(numbers.exists());
}

#[test]
fn weights_of_the_release_give_what_those_of_hugging_face_give() {
    let dir = Dir::new();
    let file = |name: &str| std::fs::read(golden(&format!("sam3/{name}"))).expect("the fixture");
    dir.file("release/config.json", file("config.json"));
    dir.file("release/model.safetensors", file("original.safetensors"));
    let feature = |name: &str, weights: &str| {
        let (numbers, image) = (dir.path(name), golden("images/tall.png"));
        let output = format!("feature.1={}", numbers.display());
        eutectic(["run", "sam3", "--weights", weights, "--image", &image, "--output", &output]).good();
        std::fs::read(numbers).expect("numbers")
    };
    let release = dir.path("release");
    assert!(feature("a.npy", &golden("sam3")) == feature("b.npy", release.to_str().expect("UTF-8")));
}

#[test]
fn an_embedding_is_shown_beside_the_image() {
    let dir = Dir::new();
    let picture = dir.path("components.png");
    let (model, image) = (golden("sam3"), golden("images/wide.jpg"));
    eutectic(["run", "sam3", "--weights", &model, "--image", &image, "--out", picture.to_str().unwrap()]).good();
    let (shown, original) = (image::open(&picture).expect("a picture"), image::open(&image).expect("the fixture"));
    assert_eq!([shown.width(), shown.height()], [2 * original.width(), original.height()]);
}

#[test]
fn what_does_not_fit_is_said() {
    let (model, image) = (golden("model"), golden("images/wide.png"));
    let refused = |args: &[&str], says: &[&str]| eutectic([&["run"], args].concat()).refused(says);
    refused(
        &["sam", "--weights", &model, "--image", &image, "--point", "83,0"],
        &["--point 83,0 is outside", "83x37", "x is from 0 to 82"],
    );
    refused(&["sam", "--preset", "vit-x"], &["vit-x", "vit-b, vit-l, vit-h"]);
    refused(
        &["sam", "--weights", &model, "--image", &golden("model/config.json")],
        &["not a usable PNG or JPEG image"],
    );
    refused(&["sam", "--weights", &model, "--out", "x.png"], &["there is no image"]);
    refused(&["sam", "--weights", &model, "--image", &image, "--out", "x.bmp"], &["x.bmp", ".npy", ".png"]);
    refused(
        &["sam", "--weights", &golden("model/original.pt"), "--image", &image],
        &["does not state the sizes of its model", "--preset"],
    );
    refused(
        &["sam", "--weights", &golden("sam3"), "--image", &image],
        &["the configuration of a SAM model", "model_type"],
    );
    refused(
        &["sam3", "--weights", &golden("sam3"), "--image", &image, "--point", "1,1"],
        &["--point does not apply to sam3"],
    );
    refused(
        &["sam3-neck", "--weights", &golden("sam3"), "--image", &image],
        &["--image does not apply to sam3-neck", "--input"],
    );
}
