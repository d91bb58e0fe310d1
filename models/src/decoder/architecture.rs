//! The differences between decoder architectures, one row each.

/// An architecture of decoders. Architectures differ in these settings, which the metadata of a file does not state.
#[derive(Debug)]
pub struct Architecture {
    /// The value of `general.architecture` in GGUF files.
    pub name: &'static str,
    /// The coordinates that a rotary embedding rotates as a pair: `adjacent` ones, or coordinate i and i + `half`.
    /// These are the words of the op `rope`.
    pub rope: &'static str,
    /// The activation of the gate in the feed-forward part, in the words of the op `act`.
    pub gate: &'static str,
    /// Whether one tensor holds the projections to queries, keys and values, and another one those to gate and up.
    pub fused: bool,
    /// Whether each head of queries and of keys is normalized.
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
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    rope: "adjacent",
    gate: "silu",
    fused: false,
    head_norms: false,
    post_norms: false,
    scaled_embedding: false,
    period: 0,
    window_base: None,
};

const GEMMA: Architecture =
    Architecture { name: "gemma", rope: "half", gate: "gelu-tanh", scaled_embedding: true, ..LLAMA };

/// The supported architectures. A linear layer has a bias if the file contains one.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    Architecture { name: "qwen2", rope: "half", ..LLAMA },
    Architecture { name: "qwen3", rope: "half", head_norms: true, ..LLAMA },
    Architecture { name: "phi3", rope: "half", fused: true, ..LLAMA },
    GEMMA,
    Architecture { name: "gemma2", post_norms: true, period: 2, ..GEMMA },
    Architecture { name: "gemma3", post_norms: true, head_norms: true, period: 6, window_base: Some(1e4), ..GEMMA },
];

/// Returns the architecture with the given name in GGUF files.
pub(super) fn named(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

/// Returns the names of all architectures for messages, separated by commas.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
}
