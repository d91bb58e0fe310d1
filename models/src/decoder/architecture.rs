//! The differences between decoder architectures, one row each.

/// An architecture of decoders. Architectures differ in these settings, which the metadata of a file does not state.
#[derive(Debug)]
pub struct Architecture {
    /// The value of `general.architecture` in GGUF files.
    pub name: &'static str,
    /// The coordinates of a head that form a pair, in the words of the op `rope`. Shapes in a file do not show this.
    /// `None` if positions have embeddings, which are added to those of tokens.
    pub rope: Option<&'static str>,
    /// The activation of the feed-forward part, as the op `act` names it.
    pub activation: &'static str,
    /// The products of the feed-forward part.
    pub feed_forward: FeedForward,
    /// The name of the norm before the feed-forward part.
    pub feed_forward_norm: &'static str,
    /// Whether queries, keys and values share one tensor.
    pub fused: bool,
    /// Whether norms subtract the mean and add a bias.
    pub layer_norms: bool,
    /// Whether queries and keys have norms over each head.
    pub head_norms: bool,
    /// Whether a norm follows attention and the feed-forward part, before the residual addition.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the square root of their width.
    pub scaled_embedding: bool,
    /// The distance between layers with full attention: counted from 0, layers `period` − 1, 2·`period` − 1, and so on.
    /// Other layers attend to a sliding window. With 0, every layer attends to the window if the file gives one.
    pub period: usize,
    /// The base of the rotary frequencies in windowed layers, if layers with full attention use another base.
    pub window_base: Option<f64>,
    /// Whether the shares of a token's experts sum to 1.
    pub normalized_shares: bool,
    /// Whether each head has a sink: a score without a key, which takes its share of the softmax.
    pub sinks: bool,
    /// Whether the bounds of YaRN's ramp, which are indices of rotated pairs, are rounded outwards to integers.
    pub whole_ramp: bool,
}

/// The products of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedForward {
    /// down(act(up(x)))
    Plain,
    /// down(act(gate(x)) · up(x))
    Gated,
    /// The same, where gate and up share one tensor.
    Fused,
    /// down(g · sigmoid(slope · g) · (u + 1)), where g = min(gate(x), limit), and u = up(x) between −limit and limit.
    Clamped {
        /// The bound of both factors.
        limit: f64,
        /// The factor of the sigmoid's argument.
        slope: f64,
    },
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    rope: Some("adjacent"),
    activation: "silu",
    feed_forward: FeedForward::Gated,
    feed_forward_norm: "ffn_norm",
    fused: false,
    layer_norms: false,
    head_norms: false,
    post_norms: false,
    scaled_embedding: false,
    period: 0,
    window_base: None,
    normalized_shares: true,
    sinks: false,
    whole_ramp: true,
};

const QWEN2: Architecture = Architecture { name: "qwen2", rope: Some("half"), ..LLAMA };

const GEMMA: Architecture =
    Architecture { name: "gemma", rope: Some("half"), activation: "gelu-tanh", scaled_embedding: true, ..LLAMA };

/// The supported architectures. A product has a bias if the file has one, and a layer has experts if the file has a
/// router for it.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    QWEN2,
    Architecture { name: "qwen2moe", normalized_shares: false, ..QWEN2 },
    Architecture { name: "qwen3", head_norms: true, ..QWEN2 },
    Architecture { name: "qwen3moe", head_norms: true, ..QWEN2 },
    Architecture { name: "phi3", fused: true, feed_forward: FeedForward::Fused, ..QWEN2 },
    GEMMA,
    Architecture { name: "gemma2", post_norms: true, period: 2, ..GEMMA },
    Architecture { name: "gemma3", post_norms: true, head_norms: true, period: 6, window_base: Some(1e4), ..GEMMA },
    Architecture {
        name: "gpt2",
        rope: None,
        activation: "gelu-tanh",
        feed_forward: FeedForward::Plain,
        fused: true,
        layer_norms: true,
        ..LLAMA
    },
    Architecture {
        name: "gpt-oss",
        feed_forward: FeedForward::Clamped { limit: 7.0, slope: 1.702 },
        feed_forward_norm: "post_attention_norm",
        period: 2,
        sinks: true,
        whole_ramp: false,
        ..QWEN2
    },
];

/// Returns the architecture with the given name in GGUF files.
pub(super) fn named(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

/// Returns the names of all architectures for messages, separated by commas.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
}
