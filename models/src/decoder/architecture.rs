//! The differences between decoder architectures, one row each.

/// An architecture, by its name in `general.architecture`.
#[derive(Debug)]
pub struct Architecture {
    /// Its name.
    pub name: &'static str,
    /// The coordinates of a head that form a pair, in the words of the op `rope`. Shapes in a file do not show this.
    pub rope: &'static str,
    /// The activation of the gate, as the op `act` names it.
    pub gate: &'static str,
    /// Whether queries, keys and values share one tensor, and gate and up another.
    pub fused: bool,
    /// Whether queries and keys have norms over each head.
    pub head_norms: bool,
    /// Whether the results of attention and of the feed-forward part are normalized before they are added.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the square root of their width.
    pub scaled_embedding: bool,
    /// The distance between layers with attention to the whole sequence. The other layers attend to a window. With 0,
    /// all layers attend to the window, if there is one.
    pub period: usize,
    /// The base of the angles in windowed layers, if it differs from that of the other layers.
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

/// The supported architectures. A product has a bias if the file has one.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    Architecture { name: "qwen2", rope: "half", ..LLAMA },
    Architecture { name: "qwen3", rope: "half", head_norms: true, ..LLAMA },
    Architecture { name: "phi3", rope: "half", fused: true, ..LLAMA },
    GEMMA,
    Architecture { name: "gemma2", post_norms: true, period: 2, ..GEMMA },
    Architecture { name: "gemma3", post_norms: true, head_norms: true, period: 6, window_base: Some(1e4), ..GEMMA },
];

/// Returns the architecture of a name.
pub(super) fn named(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

/// Returns the names of all.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
}
