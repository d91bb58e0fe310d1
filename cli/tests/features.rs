//! Tests a build without features, like that of README's first command. A command that needs a feature names it, and
//! all other commands work. Builds with features skip these tests.

#![cfg(not(any(feature = "cuda", feature = "lsp", feature = "text", feature = "vision", feature = "vulkan")))]

mod common;

use common::{Dir, eutectic};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden");

#[test]
fn what_is_left_out_is_named_with_its_feature() {
    let (bert, sam) = (format!("{GOLDEN}/tiny-bert"), format!("{GOLDEN}/sam/model"));
    let (image, language) = (format!("{GOLDEN}/sam/images/wide.png"), format!("{GOLDEN}/gguf/llama.gguf"));
    for (args, what, feature) in [
        (vec!["opt", "demo", "--backend", "cuda"], "the backend `cuda`", "cuda"),
        (vec!["bench", "demo", "--backend", "vulkan"], "the backend `vulkan`", "vulkan"),
        (vec!["rules", "check", "--backend", "none,cuda"], "the backend `cuda`", "cuda"),
        (vec!["run", "minilm", "--weights", &bert, "--text", "a cat"], "embed texts", "text"),
        (vec!["run", &language, "--prompt", "a cat"], "continue a prompt", "text"),
        (vec!["chat", &language], "chat", "text"),
        (vec!["lsp"], "language server", "lsp"),
        (vec!["bench", &language], "no language models", "text"),
        (vec!["run", "sam", "--weights", &sam, "--image", &image], "no image reader", "vision"),
    ] {
        eutectic(args).refused(&["this build", what, &format!("`--features {feature}`"), "--features full"]);
    }
    // Wrong arguments are still reported.
    eutectic(["run", "demo", "--text", "hello"]).refused(&["takes no texts"]);
    eutectic(["opt", "demo", "--backend", "vulcan"]).refused(&["did you mean `vulkan`?"]);
}

#[test]
fn devices_lists_backends_that_are_left_out() {
    let listed = eutectic(["devices"]).good();
    for name in ["cuda", "vulkan"] {
        assert!(listed.contains(&format!("`--features {name}`")), "{listed}");
    }
}

#[test]
fn models_need_no_feature_where_arrays_are_given() {
    let dir = Dir::new();
    let embedding = dir.path("embedding.npy").display().to_string();
    let sam = format!("{GOLDEN}/sam/model");
    eutectic(["run", "sam", "--weights", &sam, "--output", &embedding]).good();
    assert!(dir.path("embedding.npy").exists());
    eutectic(["opt", "minilm", "--seq", "8"]).good();
    eutectic(["run", &format!("{GOLDEN}/onnx/mlp-new.onnx"), "--shape", "batch=2"]).good();
}
