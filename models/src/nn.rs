//! Layers that several models use. A layer is either one composite op, or the primitive ops that define it.

use eutectic_ir::{Attr, Dim, Graph, GraphError, NodeId, Shape};

/// The result of building a part of a model, or the error of an op.
pub(crate) type Built<T = NodeId> = Result<T, GraphError>;

/// The ops in which a model is written. Both forms compute the same values and have the same parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Composite ops, as in hand-written models: `linear`, `layernorm`, `sdpa`, `act`.
    #[default]
    Composite,
    /// Primitive ops only, as exporters write models: `matmul`, arithmetic, elementary functions such as `erf` and
    /// `exp`, reductions and views.
    Primitive,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x Φ(x), where Φ is the distribution function of the standard normal distribution (Hendrycks and Gimpel 2016).
    GeluErf,
    /// The approximation of x Φ(x) with tanh, from the same paper as `GeluErf`.
    GeluTanh,
    /// x / (1 + e⁻ˣ).
    Silu,
    /// tanh x.
    Tanh,
}

impl Activation {
    /// The activations by their names in configurations of the transformers library.
    const NAMES: [(&'static str, Activation); 9] = [
        ("gelu", Activation::GeluErf),
        ("gelu_python", Activation::GeluErf),
        ("gelu_new", Activation::GeluTanh),
        ("gelu_fast", Activation::GeluTanh),
        ("gelu_pytorch_tanh", Activation::GeluTanh),
        ("relu", Activation::Relu),
        ("silu", Activation::Silu),
        ("swish", Activation::Silu),
        ("tanh", Activation::Tanh),
    ];

    /// Returns the activation with this name in configurations of the transformers library.
    pub fn named(name: &str) -> Option<Activation> {
        Activation::NAMES.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
    }

    /// Returns all names that [`Activation::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Activation::NAMES.iter().map(|(n, _)| *n)
    }

    /// Returns the activation's name in the op `act`.
    fn kind(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::GeluErf => "gelu-erf",
            Activation::GeluTanh => "gelu-tanh",
            Activation::Silu => "silu",
            Activation::Tanh => "tanh",
        }
    }
}

impl Form {
    /// Returns x w + b for x `[.. M K]`, w `[K N]`, b `[N]`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn linear(self, g: &mut Graph, x: NodeId, w: NodeId, b: NodeId) -> Built {
        match self {
            Form::Composite => g.apply("linear", &[x, w, b], &[]),
            Form::Primitive => {
                let product = g.apply("matmul", &[x, w], &[])?;
                g.apply("add", &[product, b], &[])
            }
        }
    }

    /// Applies an activation to each element.
    ///
    /// # Errors
    /// If x is not a float.
    pub fn activation(self, g: &mut Graph, x: NodeId, activation: Activation) -> Built {
        match self {
            Form::Composite => g.apply("act", &[x], &[("kind", activation.kind().into())]),
            Form::Primitive => primitive_activation(g, x, activation),
        }
    }

    /// Returns (x − mean) / √(variance + eps) · gain + bias over the last axis, which has `width` elements.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn layernorm(self, g: &mut Graph, x: NodeId, [gain, bias]: [NodeId; 2], width: usize, eps: f64) -> Built {
        match self {
            Form::Composite => g.apply("layernorm", &[x, gain, bias], &[("eps", as_f32(eps).into())]),
            Form::Primitive => {
                let mean = mean(g, x, width)?;
                let centred = g.apply("sub", &[x, mean], &[])?;
                let squared = g.apply("mul", &[centred, centred], &[])?;
                let variance = self::mean(g, squared, width)?;
                let eps = g.scalar(eps, x)?;
                let shifted = g.apply("add", &[variance, eps], &[])?;
                let deviation = g.apply("sqrt", &[shifted], &[])?;
                let normal = g.apply("div", &[centred, deviation], &[])?;
                let scaled = g.apply("mul", &[normal, gain], &[])?;
                g.apply("add", &[scaled, bias], &[])
            }
        }
    }

    /// Returns softmax(q kᵀ / √depth + bias) v for q, k, v `[.. S depth]`. The bias broadcasts to the scores.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn attention(self, g: &mut Graph, [q, k, v]: [NodeId; 3], bias: Option<NodeId>, depth: usize) -> Built {
        let scale = as_f32(1.0 / (depth as f64).sqrt());
        match self {
            Form::Composite => {
                let operands: Vec<_> = [q, k, v].into_iter().chain(bias).collect();
                let mask = if bias.is_some() { "additive" } else { "none" };
                g.apply("sdpa", &operands, &[("scale", scale.into()), ("mask", mask.into())])
            }
            Form::Primitive => {
                let keys = swap_last_two(g, k)?;
                let scores = g.apply("matmul", &[q, keys], &[])?;
                let scale = g.scalar(scale, q)?;
                let scaled = g.apply("mul", &[scores, scale], &[])?;
                let biased = bias.map_or(Ok(scaled), |bias| g.apply("add", &[scaled, bias], &[]))?;
                let weights = softmax(g, biased)?;
                g.apply("matmul", &[weights, v], &[])
            }
        }
    }

    /// Applies rotary position embeddings to x `[.. S D]`. Each pair of coordinates 2p and 2p + 1 is rotated by an
    /// angle that depends on the position and on p (Su et al. 2021, arXiv:2104.09864). The tables `cos` and `sin` are
    /// `[S D/2]`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn rope_adjacent(self, g: &mut Graph, x: NodeId, [cos, sin]: [NodeId; 2]) -> Built {
        match self {
            Form::Composite => g.apply("rope", &[x, cos, sin], &[("style", "adjacent".into())]),
            Form::Primitive => {
                // The formula of torch implementations: x · [c c] + [−b a] · [s s] for each pair x = (a, b), where c
                // and s are the cosine and sine of its angle.
                let turned = quarter_turned(g, x)?;
                let (cos, sin) = (twice(g, cos)?, twice(g, sin)?);
                let (kept, added) = (g.apply("mul", &[x, cos], &[])?, g.apply("mul", &[turned, sin], &[])?);
                g.apply("add", &[kept, added], &[])
            }
        }
    }
}

/// Maps each pair of coordinates (a, b) of the last axis to (−b, a).
fn quarter_turned(g: &mut Graph, x: NodeId) -> Built {
    let dims = extents(g, x);
    let pairs = reshape(g, x, &pairwise(&dims))?;
    let attrs = |n: i64| [("axis", (-1).into()), ("at", n.into()), ("len", 1.into())];
    let (a, b) = (g.apply("slice", &[pairs], &attrs(0))?, g.apply("slice", &[pairs], &attrs(1))?);
    let negative = g.apply("neg", &[b], &[])?;
    let turned = g.apply("concat", &[negative, a], &[("axis", (-1).into())])?;
    reshape(g, turned, &dims)
}

/// Repeats each element of a table `[S P]` twice: `[S 2P]`.
fn twice(g: &mut Graph, table: NodeId) -> Built {
    let mut dims = extents(g, table);
    let single: Vec<_> = dims.iter().cloned().chain([Dim::Known(1)]).collect();
    if let Some(last) = dims.last_mut() {
        *last = &*last * &Dim::Known(2);
    }
    let apart = reshape(g, table, &single)?;
    let repeated = g.apply("expand", &[apart], &[("shape", Attr::Shape(pairwise(&dims).into_iter().collect()))])?;
    reshape(g, repeated, &dims)
}

fn extents(g: &Graph, x: NodeId) -> Vec<Dim> {
    g.shape(x).map_or_else(Vec::new, |shape| shape.to_vec())
}

/// Splits the last axis into pairs: `[.. 2P]` becomes `[.. P 2]`. Its extent must be known.
fn pairwise(dims: &[Dim]) -> Vec<Dim> {
    let Some((last, outer)) = dims.split_last() else { return Vec::new() };
    outer.iter().cloned().chain([Dim::Known(last.known().unwrap_or(0) / 2), Dim::Known(2)]).collect()
}

/// Swaps the last two axes. This also converts a torch weight `[out in]` to the operand `[in out]` of `linear`.
///
/// # Errors
/// If there is only one axis.
pub fn swap_last_two(g: &mut Graph, x: NodeId) -> Built {
    let rank = g.shape(x).map_or(0, Shape::rank) as i64;
    let mut perm: Vec<i64> = (-rank..0).collect();
    if rank >= 2 {
        perm.swap(rank as usize - 2, rank as usize - 1);
    }
    transpose(g, x, &perm)
}

/// Permutes the axes.
///
/// # Errors
/// If `perm` is not a permutation of the axes.
pub fn transpose(g: &mut Graph, x: NodeId, perm: &[i64]) -> Built {
    g.apply("transpose", &[x], &[("perm", perm.into())])
}

/// Reshapes a value to other extents.
///
/// # Errors
/// If the number of elements differs.
pub fn reshape(g: &mut Graph, x: NodeId, dims: &[Dim]) -> Built {
    g.apply("reshape", &[x], &[("shape", Attr::Shape(dims.iter().cloned().collect()))])
}

/// Returns the sum over one axis.
///
/// # Errors
/// If there is no such axis.
pub fn sum(g: &mut Graph, x: NodeId, axis: i64, keep: bool) -> Built {
    g.apply("reduce-sum", &[x], &[("axes", [axis].as_slice().into()), ("keep", keep.into())])
}

/// Rounds to `f32`. Composite ops store attributes as `f64`, and primitives use `f32` constants. With this rounding,
/// both forms compute with the same number.
fn as_f32(x: f64) -> f64 {
    f64::from(x as f32)
}

fn mean(g: &mut Graph, x: NodeId, width: usize) -> Built {
    let sum = sum(g, x, -1, true)?;
    let width = g.scalar(width as f64, x)?;
    g.apply("div", &[sum, width], &[])
}

fn softmax(g: &mut Graph, x: NodeId) -> Built {
    let largest = g.apply("reduce-max", &[x], &[("axes", [-1].as_slice().into())])?;
    let shifted = g.apply("sub", &[x, largest], &[])?;
    let powers = g.apply("exp", &[shifted], &[])?;
    let sum = sum(g, powers, -1, true)?;
    g.apply("div", &[powers, sum], &[])
}

fn primitive_activation(g: &mut Graph, x: NodeId, activation: Activation) -> Built {
    match activation {
        Activation::Relu => {
            let zero = g.scalar(0.0, x)?;
            g.apply("max", &[x, zero], &[])
        }
        Activation::GeluErf => {
            let scale = g.scalar(std::f64::consts::FRAC_1_SQRT_2, x)?;
            let scaled = g.apply("mul", &[x, scale], &[])?;
            let erf = g.apply("erf", &[scaled], &[])?;
            half_times_one_plus(g, x, erf)
        }
        Activation::GeluTanh => {
            let square = g.apply("mul", &[x, x], &[])?;
            let cube = g.apply("mul", &[square, x], &[])?;
            let factor = g.scalar(0.044_715, x)?;
            let bend = g.apply("mul", &[cube, factor], &[])?;
            let bent = g.apply("add", &[x, bend], &[])?;
            let scale = g.scalar((2.0 / std::f64::consts::PI).sqrt(), x)?;
            let scaled = g.apply("mul", &[bent, scale], &[])?;
            let tanh = g.apply("tanh", &[scaled], &[])?;
            half_times_one_plus(g, x, tanh)
        }
        Activation::Silu => {
            let gate = g.apply("sigmoid", &[x], &[])?;
            g.apply("mul", &[x, gate], &[])
        }
        Activation::Tanh => g.apply("tanh", &[x], &[]),
    }
}

/// Returns ½ x (1 + y).
fn half_times_one_plus(g: &mut Graph, x: NodeId, y: NodeId) -> Built {
    let (half, one) = (g.scalar(0.5, x)?, g.scalar(1.0, x)?);
    let halved = g.apply("mul", &[x, half], &[])?;
    let shifted = g.apply("add", &[y, one], &[])?;
    g.apply("mul", &[halved, shifted], &[])
}
