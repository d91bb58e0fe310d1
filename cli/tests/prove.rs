//! Tests `opt --prove` on whole models: each kernel computes its ops.

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
    eutectic(["opt", &model, "--prove", "--batch", "2"]).refused(&[
        "--batch",
        "does not apply to the language model",
        "--shape",
    ]);
    eutectic(["opt", &model, "--prove", "--shape", "cached=1..1000"]).refused(&["cached", "1 to 128"]);
}

#[test]
fn every_kernel_of_files_with_loops_and_lengths_is_proved() {
    let file = |name: &str| format!("{MODELS}/onnx/{name}.onnx");
    assert!(proved(&[&file("recurrent")]) > 80);
    assert!(proved(&[&file("control")]) > 20);
    assert!(proved(&[&file("llama-eager-old"), "--shape", "batch=1", "--shape", "seq=1..8"]) > 15);
    assert!(proved(&[&file("cnn-old"), "--shape", "batch=1..3"]) > 9);
}

/// Returns ResNet-50 (He et al. 2016) for one image, in text form.
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

    /// Adds a convolution and its norm.
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

/// Writes a GGUF file with the shapes of Llama-3.2-1B. Its weights are a hole in the file, because a proof does not
/// read them.
mod llama {
    use std::{fs::File, io::Write, path::Path};

    /// The width, inner width, layers, heads, groups of keys and values, and token ids of the model.
    const SHAPE: [u64; 6] = [2048, 8192, 16, 32, 8, 128_256];
    /// The number of the format Q4_0, the elements of a block, and the bytes of a block.
    const Q4_0: [u64; 3] = [2, 32, 18];
    const ALIGNMENT: u64 = 32;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    /// Adds a metadata value: its key, the number of its kind, and its bytes.
    fn pair(out: &mut Vec<u8>, count: &mut u64, key: &str, kind: u32, value: &[u8]) {
        text(out, key);
        out.extend(kind.to_le_bytes());
        out.extend(value);
        *count += 1;
    }

    fn list(kind: u32, items: &[Vec<u8>]) -> Vec<u8> {
        let head = kind.to_le_bytes().into_iter().chain((items.len() as u64).to_le_bytes());
        head.chain(items.iter().flatten().copied()).collect()
    }

    fn metadata() -> (u64, Vec<u8>) {
        let [width, inner, layers, heads, groups, tokens] = SHAPE;
        let (mut out, mut count) = (Vec::new(), 0);
        let string = |value: &str| {
            let mut out = Vec::new();
            text(&mut out, value);
            out
        };
        pair(&mut out, &mut count, "general.architecture", 8, &string("llama"));
        let sizes = [
            ("context_length", 4096),
            ("embedding_length", width),
            ("block_count", layers),
            ("feed_forward_length", inner),
            ("attention.head_count", heads),
            ("attention.head_count_kv", groups),
            ("rope.dimension_count", width / heads),
            ("vocab_size", tokens),
        ];
        for (key, value) in sizes {
            pair(&mut out, &mut count, &format!("llama.{key}"), 4, &(value as u32).to_le_bytes());
        }
        for (key, value) in [("rope.freq_base", 500_000.0_f32), ("attention.layer_norm_rms_epsilon", 1e-5)] {
            pair(&mut out, &mut count, &format!("llama.{key}"), 6, &value.to_le_bytes());
        }
        let word = |n: u64| match n {
            0 => "<unk>".into(),
            1 => "<s>".into(),
            2 => "</s>".into(),
            3..=258 => format!("<0x{:02X}>", n - 3),
            _ => format!("\u{2581}t{n}"),
        };
        let kind = |n: u64| [2_i32, 3, 3].get(n as usize).copied().unwrap_or(if n < 259 { 6 } else { 1 });
        pair(&mut out, &mut count, "tokenizer.ggml.model", 8, &string("llama"));
        let words: Vec<_> = (0..tokens).map(|n| string(&word(n))).collect();
        let scores: Vec<_> = (0..tokens).map(|n| (-(n as f32)).to_le_bytes().to_vec()).collect();
        let kinds: Vec<_> = (0..tokens).map(|n| kind(n).to_le_bytes().to_vec()).collect();
        pair(&mut out, &mut count, "tokenizer.ggml.tokens", 9, &list(8, &words));
        pair(&mut out, &mut count, "tokenizer.ggml.scores", 9, &list(6, &scores));
        pair(&mut out, &mut count, "tokenizer.ggml.token_type", 9, &list(5, &kinds));
        for (key, id) in [("bos", 1_u32), ("eos", 2), ("unknown", 0)] {
            pair(&mut out, &mut count, &format!("tokenizer.ggml.{key}_token_id"), 4, &id.to_le_bytes());
        }
        (count, out)
    }

    /// The names and extents of tensors, innermost axis first.
    fn tensors() -> Vec<(String, Vec<u64>)> {
        let [width, inner, layers, heads, groups, tokens] = SHAPE;
        let keys = width / heads * groups;
        let own = [("token_embd.weight", vec![width, tokens]), ("output_norm.weight", vec![width])];
        let of_layer = [
            ("attn_norm", vec![width]),
            ("ffn_norm", vec![width]),
            ("attn_q", vec![width, width]),
            ("attn_k", vec![width, keys]),
            ("attn_v", vec![width, keys]),
            ("attn_output", vec![width, width]),
            ("ffn_gate", vec![width, inner]),
            ("ffn_up", vec![width, inner]),
            ("ffn_down", vec![inner, width]),
        ];
        let layer =
            |n: u64| of_layer.iter().map(move |(name, extents)| (format!("blk.{n}.{name}.weight"), extents.clone()));
        own.into_iter().map(|(name, extents)| (name.to_string(), extents)).chain((0..layers).flat_map(layer)).collect()
    }

    pub fn write(path: &Path) {
        let (pairs, metadata) = metadata();
        let tensors = tensors();
        let (mut infos, mut at) = (Vec::new(), 0_u64);
        for (name, extents) in &tensors {
            let count: u64 = extents.iter().product();
            let [number, elements, bytes] = if extents.len() == 1 { [0, 1, 4] } else { Q4_0 };
            text(&mut infos, name);
            infos.extend((extents.len() as u32).to_le_bytes());
            infos.extend(extents.iter().flat_map(|e| e.to_le_bytes()));
            infos.extend((number as u32).to_le_bytes());
            infos.extend(at.to_le_bytes());
            at += (count / elements * bytes).next_multiple_of(ALIGNMENT);
        }
        let mut head = b"GGUF".to_vec();
        head.extend(3_u32.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(pairs.to_le_bytes());
        head.extend(metadata);
        head.extend(infos);
        head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
        let mut file = File::create(path).expect("it is created");
        file.write_all(&head).expect("it is written");
        file.set_len(head.len() as u64 + at).expect("it has room");
    }
}

#[test]
fn every_kernel_of_llama_1b_is_proved_for_every_number_of_tokens() {
    let dir = Dir::new();
    let path = dir.path("llama-1b.gguf");
    llama::write(&path);
    let model = path.display().to_string();
    assert!(proved(&[&model]) > 15);
    assert!(proved(&[&model, "--shape", "tokens=1", "--shape", "cached=1..4000"]) > 15);
}
