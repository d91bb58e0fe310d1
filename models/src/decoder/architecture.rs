//! How the architectures of the family differ: one row each.

/// An architecture, by its name in `general.architecture`.
#[derive(Debug)]
pub struct Architecture {
    /// Its name.
    pub name: &'static str,
    /// The coordinates of a head that are turned together, as the op `rope` names it. The shapes of a file do not tell.
    pub rope: &'static str,
    /// The activation of the gate, as the op `act` names it.
    pub gate: &'static str,
    /// Whether one tensor holds the weights of queries, keys and values, and one those of gate and up.
    pub fused: bool,
    /// Whether queries and keys have norms over each head.
    pub head_norms: bool,
    /// Whether the results of attention and of the second half have norms before they are added.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the root of their width.
    pub scaled_embedding: bool,
    /// The distance between layers that see the whole sequence; the others see its window. 0: all see the window, if there is one.
    pub period: usize,
    /// The base of the angles in layers that see the window, where it is another than in the others.
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

/// The architectures that can be built. Biases of products are there where a file has them.
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
