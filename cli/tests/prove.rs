//! `opt --prove` on whole models: each kernel computes what its ops say.

mod common;

use std::fmt::Write;

use common::{Dir, eutectic};
use serde_json::Value;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden");

/// Returns the number of kernels of a model, and asserts that each is proved.
fn proved(args: &[&str]) -> usize {
    let printed = eutectic([&["opt"], args, &["--prove", "--format", "json"]].concat()).good();
    let kernels: Value = serde_json::from_str(&printed).expect("JSON");
    kernels.as_array().expect("a list").len()
}

#[test]
fn every_kernel_of_an_encoder_and_of_a_segmenter_is_proved() {
    assert!(proved(&["minilm", "--random"]) > 10);
    assert!(proved(&["sam"]) > 40);
    assert!(proved(&["sam3-neck"]) > 40);
}

#[test]
fn every_kernel_of_a_language_model_is_proved_for_every_number_of_tokens() {
    let model = format!("{MODELS}/gguf/llama.gguf");
    assert!(proved(&[&model]) > 15);
    assert!(proved(&[&model, "--shape", "tokens=1", "--shape", "cached=1..100"]) > 15);
    eutectic(["opt", &model, "--prove", "--batch", "2"]).refused(&["--batch", "is a language model", "--shape"]);
    eutectic(["opt", &model, "--prove", "--shape", "cached=1..1000"]).refused(&["cached", "1 to 128"]);
}

#[test]
fn every_kernel_of_files_with_loops_and_lengths_is_proved() {
    let file = |name: &str| format!("{MODELS}/onnx/{name}.onnx");
    assert!(proved(&[&file("recurrent")]) > 80);
    assert!(proved(&[&file("control")]) > 20);
    assert!(proved(&[&file("llama-eager-old"), "--shape", "batch=1", "--shape", "seq=1..8"]) > 15);
    assert!(proved(&[&file("cnn-old"), "--shape", "batch=1..3"]) > 10);
}

/// ResNet-50 (He et al. 2016) for one picture, in text form.
struct Resnet {
    text: String,
    layers: usize,
}

impl Resnet {
    fn whole() -> String {
        let mut net = Resnet { text: "(graph \"resnet-50\"\n  (input x f32[1 3 224 224])\n".into(), layers: 0 };
        let stem = net.normed("x", [3, 64], 7, 2);
        net.line("pool", &format!("max-pool (act {stem} :kind relu) :size [3 3] {}", windows(3, 2)));
        let (mut x, mut channels) = ("pool".to_string(), 64);
        for (stage, (blocks, inner)) in [(3, 64), (4, 128), (6, 256), (3, 512)].into_iter().enumerate() {
            for block in 0..blocks {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                let relu = |x: String| format!("(act {x} :kind relu)");
                let a = relu(net.normed(&x, [channels, inner], 1, 1));
                let b = relu(net.normed(&a, [inner, inner], 3, stride));
                let c = net.normed(&b, [inner, 4 * inner], 1, 1);
                let beside = if block == 0 { net.normed(&x, [channels, 4 * inner], 1, stride) } else { x.clone() };
                let name = format!("block{stage}.{block}");
                net.line(&name, &format!("act (add {c} {beside}) :kind relu"));
                (x, channels) = (name, 4 * inner);
            }
        }
        let mean = format!("(reshape (reduce-mean {x} :axes [-2 -1] :keep false) :shape [1 2048])");
        write!(net.text, "  (param w f32[2048 1000]) (param b f32[1000])\n  (output y (linear {mean} w b :act none)))")
            .expect("a string");
        net.text
    }

    fn line(&mut self, name: &str, value: &str) {
        writeln!(self.text, "  (let {name} ({value}))").expect("a string");
    }

    /// A convolution and its norm.
    fn normed(&mut self, x: &str, [from, to]: [usize; 2], size: usize, stride: usize) -> String {
        self.layers += 1;
        let name = format!("layer{}", self.layers);
        let parts = ["gain", "shift", "mean", "variance"].map(|part| format!("{name}.{part}"));
        let params = parts.iter().map(|part| format!(" (param {part} f32[{to}])")).collect::<String>();
        writeln!(self.text, "  (param {name}.w f32[{to} {from} {size} {size}]){params}").expect("a string");
        let conv = format!("(conv {x} {name}.w {} :groups 1)", windows(size, stride));
        self.line(&name, &format!("batch-norm {conv} {} :axis 1 :eps 1e-5", parts.join(" ")));
        name
    }
}

fn windows(size: usize, stride: usize) -> String {
    let pad = size / 2;
    format!(":stride [{stride} {stride}] :dilation [1 1] :before [{pad} {pad}] :after [{pad} {pad}]")
}

#[test]
fn every_kernel_of_resnet_50_is_proved() {
    let dir = Dir::new();
    let file = dir.file("resnet-50.graph", Resnet::whole());
    assert!(proved(&[file.to_str().expect("UTF-8")]) > 90);
}
