//! Reads the sizes of a decoder from the metadata of a GGUF file. Errors list every value that is missing or not
//! supported.

use std::collections::BTreeSet;

use eutectic_ir::Tensor;

use super::{
    architecture::{self, Architecture},
    rope::Rope,
    values::{MOST, Values},
};
use crate::gguf::{Gguf, Value};

/// The sizes of a decoder, and its variants.
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
    /// The experts of the layers that have a router.
    pub experts: Experts,
    /// The layers that have a router.
    routed: BTreeSet<usize>,
    rope: Rope,
}

/// Feed-forward parts of which a router chooses a few for each token.
#[derive(Clone, Debug)]
pub struct Experts {
    /// The number of experts of a layer.
    pub count: usize,
    /// The number of experts that a token uses.
    pub used: usize,
    /// The number of hidden values of an expert.
    pub inner: usize,
    /// The number of hidden values of the expert that all tokens use. It is 0 if there is none.
    pub shared: usize,
    /// Whether the weights of a token's experts sum to 1.
    pub normalized: bool,
}

/// Products that may have a bias.
const PRODUCTS: &[&str] = &[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_inp",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
];

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
        let layer_numbers = 0..layers.min(tensors);
        let biases =
            layer_numbers.clone().flat_map(|n| PRODUCTS.iter().map(move |product| format!("blk.{n}.{product}")));
        let routed: BTreeSet<usize> = match values.get("expert_count") {
            Some(_) => {
                layer_numbers.filter(|n| gguf.tensors().contains_key(&format!("blk.{n}.ffn_gate_inp.weight"))).collect()
            }
            None => BTreeSet::new(),
        };
        let window = (architecture.period > 0 || values.get("attention.sliding_window").is_some())
            .then(|| values.size("attention.sliding_window"));
        let softcaps = ["attn_logit_softcapping", "final_logit_softcapping"].map(|name| values.number_or(name, 0.0));
        // Files in which all layers have experts may leave out the width of other layers.
        let inner = match routed.len() == layers {
            true => values.size_or("feed_forward_length", 1),
            false => values.size("feed_forward_length"),
        };
        let eps =
            if architecture.layer_norms { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
        let positions = positions.unwrap_or(trained).min(trained).max(1);
        let config = DecoderConfig {
            architecture,
            layers,
            width,
            heads,
            groups,
            depth,
            inner,
            vocabulary,
            positions,
            trained,
            eps: values.number_or(eps, 1e-5),
            scale: scale(name, layers, width / heads, key),
            window,
            softcaps,
            biased: biases.filter(|name| gguf.tensors().contains_key(&format!("{name}.bias"))).collect(),
            tied: !gguf.tensors().contains_key("output.weight"),
            experts: Experts::read(&mut values, architecture, inner),
            routed,
            rope: Rope::read(&mut values, architecture, key, positions),
        };
        if values.problems.is_empty() { Ok(config) } else { Err(values.problems) }
    }

    /// Returns whether a layer attends to the sliding window rather than to all positions.
    pub(super) fn is_windowed(&self, layer: usize) -> bool {
        let period = self.architecture.period;
        self.window.is_some() && (period == 0 || !(layer + 1).is_multiple_of(period))
    }

    /// Returns whether a layer has experts.
    pub(super) fn is_routed(&self, layer: usize) -> bool {
        self.routed.contains(&layer)
    }

    /// Returns the number of layers that have experts.
    pub fn routed_layers(&self) -> usize {
        self.routed.len()
    }

    /// Returns the number of rows of a cache that contains `tokens` tokens.
    pub fn cache_rows(&self, tokens: usize) -> usize {
        tokens + self.reserved_rows()
    }

    /// Returns the number of rows at the start of the cache that belong to no token. They stay zero.
    pub(super) fn reserved_rows(&self) -> usize {
        usize::from(self.architecture.sinks)
    }

    /// Returns the parameter names of the rotary tables, cosines and sines, that a layer reads.
    pub(super) fn tables(&self, layer: usize) -> [&'static str; 2] {
        self.rope.tables(self.is_windowed(layer))
    }

    /// Returns the shape of a rotary table, `[positions pairs]`, or `None` if the name is not that of a rotary table.
    pub(super) fn rotation_shape(&self, name: &str) -> Option<[usize; 2]> {
        name.starts_with("rope.").then_some([self.positions, self.rope.pairs])
    }

    /// Returns a rotary table: the cosine or sine of each position's angle for each pair. `None` if the name is not
    /// that of a rotary table.
    pub(super) fn rotation(&self, name: &str) -> Option<Tensor> {
        self.rotation_shape(name).map(|[positions, _]| self.rope.table(name, positions))
    }
}

impl Experts {
    fn read(values: &mut Values<'_>, architecture: &Architecture, inner: usize) -> Experts {
        if values.get("expert_count").is_none() {
            return Experts { count: 0, used: 0, inner, shared: 0, normalized: architecture.normalized_shares };
        }
        let count = values.size("expert_count");
        let used = values.size("expert_used_count");
        if used > count {
            values.wrong("expert_used_count", &format!("at most the number of experts, {count}"));
        }
        // The softmax of the chosen scores (3) is that of all scores (1) whose chosen shares are scaled to sum to 1.
        values.fixed("expert_gating_func", "1 (softmax) or 3 (softmax of the chosen scores)", |value| {
            matches!(value.size(), Some(1 | 3))
        });
        values.fixed("expert_weights_scale", "1", |value| value.number() == Some(1.0));
        for name in ["expert_group_count", "expert_group_used_count"] {
            values.fixed(name, "1", |value| value.size() == Some(1));
        }
        let normalized =
            values.get("expert_weights_norm").and_then(Value::flag).unwrap_or(architecture.normalized_shares);
        let is_of_chosen = values.get("expert_gating_func").and_then(Value::size) == Some(3);
        let shared = match values.get("expert_shared_feed_forward_length") {
            Some(_) => values.size("expert_shared_feed_forward_length"),
            None => 0,
        };
        let inner = values.size_or("expert_feed_forward_length", inner);
        Experts { count, used, inner, shared, normalized: normalized || is_of_chosen }
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
