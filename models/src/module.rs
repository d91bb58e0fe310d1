//! Builds layers like torch modules. The name of a parameter is the path of its module and its own name.

use eutectic_ir::{Attr, DType, Dim, Graph, NodeId, Shape, Type};

use crate::nn::{Built, Form, reshape, swap_last_two, transpose};

/// Builds the ops of one module.
pub struct ModuleBuilder<'a> {
    /// The graph that receives the ops.
    pub g: &'a mut Graph,
    /// Whether layers become composite ops or primitive ones.
    pub form: Form,
}

/// A convolution with equal strides on both axes, without dilation and groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    /// The number of input channels and of output channels.
    pub channels: [usize; 2],
    /// The extent of the square kernel.
    pub size: usize,
    /// The stride of the windows.
    pub stride: usize,
    /// The number of zeros that pad each side of the image.
    pub pad: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl ModuleBuilder<'_> {
    /// Builds the submodule `part` with `build`. The names of its parameters and the origins of its values start with
    /// its path.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut ModuleBuilder<'_>) -> T) -> T {
        let form = self.form;
        self.g.within(part, |g| build(&mut ModuleBuilder { g, form }))
    }

    /// Adds a parameter of this module.
    ///
    /// # Errors
    /// If a parameter of that name already exists.
    pub fn param(&mut self, name: &str, dims: &[usize]) -> Built {
        let name = format!("{}.{name}", self.g.origin().path());
        self.g.param(&name, Type::tensor(DType::F32, dims))
    }

    /// Adds `Linear`: x wᵀ + b over the last axis.
    pub(crate) fn linear(&mut self, part: &str, x: NodeId, [from, to]: [usize; 2], bias: bool) -> Built {
        self.within(part, |m| {
            // torch stores the weight of a linear layer as [out in].
            let stored = m.param("weight", &[to, from])?;
            let weight = swap_last_two(m.g, stored)?;
            if !bias {
                return m.g.apply("matmul", &[x, weight], &[]);
            }
            let bias = m.param("bias", &[to])?;
            m.form.linear(m.g, x, weight, bias)
        })
    }

    /// Adds `LayerNorm` over the last axis.
    pub(crate) fn layernorm(&mut self, part: &str, x: NodeId, width: usize, eps: f64) -> Built {
        self.within(part, |m| {
            let params = [m.param("weight", &[width])?, m.param("bias", &[width])?];
            m.form.layernorm(m.g, x, params, width, eps)
        })
    }

    /// Adds a layer norm over the channels of images [N C H W].
    pub(crate) fn channel_norm(&mut self, part: &str, x: NodeId, channels: usize, eps: f64) -> Built {
        let last = channels_last(self.g, x)?;
        let normal = self.layernorm(part, last, channels, eps)?;
        channels_first(self.g, normal)
    }

    /// Adds `Conv2d` of images [N C H W].
    pub(crate) fn conv(&mut self, part: &str, x: NodeId, conv: Conv) -> Built {
        let Conv { channels: [from, to], size, stride, pad, bias } = conv;
        self.within(part, |m| {
            let weight = m.param("weight", &[to, from, size, size])?;
            let bias = bias.then(|| m.param("bias", &[to])).transpose()?;
            let operands: Vec<_> = [x, weight].into_iter().chain(bias).collect();
            let attrs = [("stride", stride), ("before", pad), ("after", pad)].map(|(name, n)| (name, square(n)));
            m.g.apply("conv", &operands, &attrs)
        })
    }

    /// Adds `ConvTranspose2d` of images [N C H W]. The windows must not overlap.
    pub(crate) fn conv_transpose(&mut self, part: &str, x: NodeId, [from, to]: [usize; 2], size: usize) -> Built {
        self.within(part, |m| {
            // torch stores the weight of a transposed convolution as [in out H W].
            let (weight, bias) = (m.param("weight", &[from, to, size, size])?, m.param("bias", &[to])?);
            let sum = m.g.apply("conv-transpose", &[x, weight], &[("stride", square(size))])?;
            let bias = reshaped(m.g, bias, &[to, 1, 1])?;
            m.g.apply("add", &[sum, bias], &[])
        })
    }

    /// Adds `MaxPool2d` of images [N C H W] with windows that do not overlap. Rows and columns that do not fill a
    /// window are dropped.
    pub(crate) fn max_pool(&mut self, x: NodeId, size: usize) -> Built {
        self.g.apply("max-pool", &[x], &[("size", square(size)), ("stride", square(size))])
    }

    /// Applies an activation to each element.
    pub(crate) fn activation(&mut self, x: NodeId, activation: crate::nn::Activation) -> Built {
        self.form.activation(self.g, x, activation)
    }

    /// Returns x + y.
    pub(crate) fn add(&mut self, x: NodeId, y: NodeId) -> Built {
        self.g.apply("add", &[x, y], &[])
    }
}

fn square(n: usize) -> Attr {
    Attr::Shape([Dim::from(n), Dim::from(n)].into_iter().collect())
}

/// Reshapes a value to known extents.
pub(crate) fn reshaped(g: &mut Graph, x: NodeId, dims: &[usize]) -> Built {
    reshape(g, x, &dims.iter().map(|n| Dim::from(*n)).collect::<Vec<_>>())
}

/// Broadcasts to a shape of known extents.
pub(crate) fn expanded(g: &mut Graph, x: NodeId, dims: &[usize]) -> Built {
    g.apply("expand", &[x], &[("shape", Attr::Shape(dims.iter().map(|n| Dim::from(*n)).collect::<Shape>()))])
}

/// Takes `len` elements of an axis, starting at `at`.
pub(crate) fn slice(g: &mut Graph, x: NodeId, axis: i64, at: usize, len: usize) -> Built {
    g.apply("slice", &[x], &[("axis", axis.into()), ("at", (at as i64).into()), ("len", (len as i64).into())])
}

/// Concatenates values along an axis.
pub(crate) fn concat(g: &mut Graph, parts: &[NodeId], axis: i64) -> Built {
    let (first, rest) = parts.split_first().expect("a concatenation has at least one part");
    rest.iter().try_fold(*first, |all, part| g.apply("concat", &[all, *part], &[("axis", axis.into())]))
}

/// Transposes [N C H W] to [N H W C].
pub(crate) fn channels_last(g: &mut Graph, x: NodeId) -> Built {
    transpose(g, x, &[0, 2, 3, 1])
}

/// Transposes [N H W C] to [N C H W].
pub(crate) fn channels_first(g: &mut Graph, x: NodeId) -> Built {
    transpose(g, x, &[0, 3, 1, 2])
}
