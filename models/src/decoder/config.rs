//! Reads the sizes of a decoder from the metadata of a GGUF file. Errors list every value that is missing or not
//! supported.

use std::collections::BTreeSet;

use eutectic_ir::{DType, Tensor};

use super::architecture::{self, Architecture};
use crate::gguf::{Gguf, Value};

/// The name of a tensor with one divisor for each rotary frequency (Llama 3.1).
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// The sizes of a decoder, and the variants of its layers.
#[derive(Clone, Debug)]
pub struct DecoderConfig {
    /// The architecture that the file names.
    pub architecture: &'static Architecture,
    /// The number of layers.
    pub layers: usize,
    /// The width of the hidden state.
    pub width: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of heads of keys and values, a divisor of the number of query heads.
    pub groups: usize,
    /// The width of a query or key head, and the width of a value head.
    pub depth: [usize; 2],
    /// The inner width of the feed-forward part.
    pub inner: usize,
    /// The number of token ids.
    pub vocabulary: usize,
    /// The capacity of the cache in tokens.
    pub positions: usize,
    /// The number of tokens that the model was trained for.
    pub trained: usize,
    /// The epsilon of RMS norms, which is added to the mean of squares.
    pub eps: f64,
    /// The factor of the attention scores.
    pub scale: f64,
    /// The width of the sliding window in tokens, or `None` if no layer is windowed.
    pub window: Option<usize>,
    /// The soft cap c of attention scores, and that of logits: x becomes c·tanh(x / c). 0 means no cap.
    pub softcaps: [f64; 2],
    /// The names of linear layers that have a bias, such as `blk.0.attn_q`.
    pub biased: BTreeSet<String>,
    /// Whether the embedding table also projects the hidden state to logits.
    pub tied: bool,
    rope: Rope,
}

/// The rotary position embedding of queries and keys.
#[derive(Clone, Debug)]
struct Rope {
    /// The number of coordinate pairs of a head that are rotated.
    pairs: usize,
    base: f64,
    /// The factor by which positions are scaled down (linear position scaling).
    divisor: f64,
    /// The base of the frequencies in windowed layers, if it differs from `base`.
    window_base: Option<f64>,
    /// The divisor of each pair's frequency. `None` means 1 for all pairs.
    factors: Option<Vec<f64>>,
}

/// The metadata keys after the architecture's name that this reader knows. Any other key is an error.
const KNOWN: &[&str] = &[
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "attn_logit_softcapping",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "final_logit_softcapping",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// The largest extent that is accepted. Larger ones come from damaged files.
const MOST: usize = 1 << 24;

/// The metadata below an architecture's name, and the problems that were found in it.
struct Values<'a> {
    gguf: &'a Gguf,
    of: &'a str,
    problems: Vec<String>,
}

impl Values<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.gguf.get(&format!("{}.{name}", self.of))
    }

    fn wrong(&mut self, name: &str, expected: &str) {
        let found = match self.get(name) {
            None => "it is missing".into(),
            Some(value) => format!("it is {value}"),
        };
        self.problems.push(format!("the value `{}.{name}` should be {expected}; {found}", self.of));
    }

    fn size(&mut self, name: &str) -> usize {
        let found = self.get(name).and_then(Value::size).filter(|n| (1..=MOST).contains(n));
        found.unwrap_or_else(|| {
            self.wrong(name, &format!("an integer from 1 to {MOST}"));
            1
        })
    }

    fn size_or(&mut self, name: &str, default: usize) -> usize {
        if self.get(name).is_some() { self.size(name) } else { default }
    }

    fn number_or(&mut self, name: &str, default: f64) -> f64 {
        let Some(value) = self.get(name) else { return default };
        value.number().filter(|x| x.is_finite() && *x >= 0.0).unwrap_or_else(|| {
            self.wrong(name, "a number that is not negative");
            default
        })
    }

    /// Reports a value for which `is_right` is false. A missing value is accepted.
    fn fixed(&mut self, name: &str, expected: &str, is_right: impl FnOnce(&Value) -> bool) {
        if self.get(name).is_some_and(|value| !is_right(value)) {
            self.wrong(name, expected);
        }
    }

    /// Reports metadata keys that this reader does not know. The model's results could be wrong if it ignored them.
    fn unknown(&mut self) {
        let start = format!("{}.", self.of);
        let keys = self.gguf.metadata().keys().filter_map(|key| key.strip_prefix(&start));
        let unknown = keys.filter(|name| !KNOWN.contains(name));
        let problems = unknown.map(|name| format!("the key `{start}{name}` is not supported"));
        self.problems.extend(problems.collect::<Vec<_>>());
    }
}

impl DecoderConfig {
    pub(super) fn read(gguf: &Gguf, positions: Option<usize>) -> Result<DecoderConfig, Vec<String>> {
        let name = gguf.text("general.architecture").unwrap_or("(none)");
        let known = architecture::named(name);
        let architecture = known.ok_or_else(|| {
            vec![format!("the architecture `{name}` is not supported; supported are {}", architecture::names())]
        })?;
        let mut values = Values { gguf, of: name, problems: Vec::new() };
        values.unknown();
        values.fixed("attention.causal", "true", |value| value.flag() == Some(true));
        let [width, heads] = ["embedding_length", "attention.head_count"].map(|name| values.size(name));
        let groups = values.size_or("attention.head_count_kv", heads);
        if !heads.is_multiple_of(groups) {
            values
                .problems
                .push(format!("its {heads} heads of queries are not a multiple of its {groups} heads of keys"));
        }
        let key = values.size_or("attention.key_length", (width / heads).max(1));
        let depth = [key, values.size_or("attention.value_length", key)];
        if heads.saturating_mul(depth[0].max(depth[1])) > MOST {
            values.problems.push(format!("its {heads} heads of {depth:?} elements are wider than {MOST}"));
        }
        let trained = values.size("context_length");
        let vocabulary = gguf.tensors().get("token_embd.weight").and_then(|t| t.dims.first()).copied().unwrap_or(1);
        let layers = values.size("block_count");
        // Each layer has at least one tensor. More layers than tensors mean a damaged file, whose graph could exhaust
        // memory.
        let tensors = gguf.tensors().len();
        if layers > tensors {
            values.problems.push(format!("the file has {tensors} tensors, too few for {layers} layers"));
        }
        let products = ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
        let biases =
            (0..layers.min(tensors)).flat_map(|layer| products.map(|product| format!("blk.{layer}.{product}")));
        let window = (architecture.period > 0 || values.get("attention.sliding_window").is_some())
            .then(|| values.size("attention.sliding_window"));
        let softcaps = ["attn_logit_softcapping", "final_logit_softcapping"].map(|name| values.number_or(name, 0.0));
        let config = DecoderConfig {
            architecture,
            layers,
            width,
            heads,
            groups,
            depth,
            inner: values.size("feed_forward_length"),
            vocabulary,
            positions: positions.unwrap_or(trained).min(trained).max(1),
            trained,
            eps: values.number_or("attention.layer_norm_rms_epsilon", 1e-5),
            scale: scale(name, layers, width / heads, key),
            window,
            softcaps,
            biased: biases.filter(|name| gguf.tensors().contains_key(&format!("{name}.bias"))).collect(),
            tied: !gguf.tensors().contains_key("output.weight"),
            rope: Rope::read(&mut values, architecture, key),
        };
        if values.problems.is_empty() { Ok(config) } else { Err(values.problems) }
    }

    /// Returns whether a layer attends to the sliding window rather than to all positions.
    pub(super) fn is_windowed(&self, layer: usize) -> bool {
        let period = self.architecture.period;
        self.window.is_some() && (period == 0 || !(layer + 1).is_multiple_of(period))
    }

    /// Returns the parameter names of the rotary tables, cosines and sines, that a layer reads.
    pub(super) fn tables(&self, layer: usize) -> [&'static str; 2] {
        match self.rope.window_base.filter(|_| self.is_windowed(layer)) {
            Some(_) => ["rope.window.cos", "rope.window.sin"],
            None => ["rope.cos", "rope.sin"],
        }
    }

    /// Returns the shape of a rotary table, `[positions pairs]`, or `None` if the name is not that of a rotary table.
    pub(super) fn rotation_shape(&self, name: &str) -> Option<[usize; 2]> {
        name.starts_with("rope.").then_some([self.positions, self.rope.pairs])
    }

    /// Returns a rotary table: the cosine or sine of each position's angle for each pair. `None` if the name is not
    /// that of a rotary table.
    pub(super) fn rotation(&self, name: &str) -> Option<Tensor> {
        let dims = self.rotation_shape(name)?;
        let (rope, pairs) = (&self.rope, self.rope.pairs);
        let (base, divisor) = match rope.window_base.filter(|_| name.contains("window")) {
            Some(base) => (base, 1.0),
            None => (rope.base, rope.divisor),
        };
        let function = if name.ends_with("cos") { f64::cos } else { f64::sin };
        let frequency = |pair: usize| {
            let factor = rope.factors.as_ref().map_or(1.0, |factors| factors[pair]);
            base.powf(-(pair as f64) / pairs as f64) / (divisor * factor)
        };
        let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
        let angles = (0..dims[0]).flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
        Some(Tensor::from_f64(DType::F32, &dims, angles.map(function)))
    }
}

/// Returns the factor of the attention scores, 1/√depth. `depth` is the width of a head, except in the largest Gemma 2
/// and Gemma 3: there it is the model's width divided by its heads (`query_pre_attn_scalar` of the published
/// configurations). GGUF files do not contain this number.
fn scale(architecture: &str, layers: usize, share: usize, depth: usize) -> f64 {
    let depth = match (architecture, layers) {
        ("gemma2", 46) | ("gemma3", 62) => share,
        _ => depth,
    };
    1.0 / (depth as f64).sqrt()
}

impl Rope {
    fn read(values: &mut Values<'_>, architecture: &Architecture, depth: usize) -> Rope {
        let turned = values.size_or("rope.dimension_count", depth);
        if turned > depth || !turned.is_multiple_of(2) {
            values.wrong("rope.dimension_count", &format!("an even number up to the depth of a head, {depth}"));
        }
        let kind = "\"none\" or \"linear\": other scalings of positions are not supported";
        values.fixed("rope.scaling.type", kind, |value| matches!(value.text(), Some("none" | "linear")));
        values.fixed("rope.scaling.attn_factor", "1", |value| value.number() == Some(1.0));
        let is_linear = values.get("rope.scaling.type").and_then(Value::text) != Some("none");
        let divisor = values.number_or("rope.scale_linear", 1.0);
        let divisor = values.number_or("rope.scaling.factor", divisor);
        let window_base = architecture.window_base.map(|base| values.number_or("rope.freq_base_swa", base));
        let pairs = (turned / 2).max(1);
        let factors: Option<Vec<f64>> = values.gguf.tensors().get(FACTORS).map(|tensor| tensor.decode().to_f64());
        if factors.as_ref().is_some_and(|factors| factors.len() != pairs || factors.contains(&0.0)) {
            values.problems.push(format!("the tensor `{FACTORS}` should have {pairs} elements that are not 0"));
        }
        Rope {
            pairs,
            base: values.number_or("rope.freq_base", 1e4),
            divisor: if is_linear && divisor > 0.0 { divisor } else { 1.0 },
            window_base,
            factors,
        }
    }
}
