//! Modules as torch has them: layers whose parameters are named by the path of the module that they belong to.

use eutectic_ir::{Attr, DType, Dim, Graph, NodeId, Shape, Type};

use crate::nn::{Built, Form, reshape, swap_last_two, transpose};

/// The module that is being built.
pub struct ModuleBuilder<'a> {
    /// The graph that it is built into.
    pub g: &'a mut Graph,
    /// The ops that it is written in.
    pub form: Form,
}

/// A convolution without dilation and groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    /// Channels that go in and come out.
    pub channels: [usize; 2],
    /// Rows and columns of the weights.
    pub size: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Zeros around the image.
    pub pad: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl ModuleBuilder<'_> {
    /// Builds a part of this module: values remember it, and parameters are named after it.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut ModuleBuilder<'_>) -> T) -> T {
        let form = self.form;
        self.g.within(part, |g| build(&mut ModuleBuilder { g, form }))
    }

    /// A parameter of this module.
    ///
    /// # Errors
    /// When it is there already.
    pub fn param(&mut self, name: &str, dims: &[usize]) -> Built {
        let name = format!("{}.{name}", self.g.origin().path());
        self.g.param(&name, Type::tensor(DType::F32, dims))
    }

    /// `Linear`: x wᵀ + b over the last axis.
    pub(crate) fn linear(&mut self, part: &str, x: NodeId, [from, to]: [usize; 2], bias: bool) -> Built {
        self.within(part, |m| {
            // torch keeps the weight of a linear layer as [out in].
            let stored = m.param("weight", &[to, from])?;
            let weight = swap_last_two(m.g, stored)?;
            if !bias {
                return m.g.apply("matmul", &[x, weight], &[]);
            }
            let bias = m.param("bias", &[to])?;
            m.form.linear(m.g, x, weight, bias)
        })
    }

    /// `LayerNorm` over the last axis.
    pub(crate) fn layernorm(&mut self, part: &str, x: NodeId, width: usize, eps: f64) -> Built {
        self.within(part, |m| {
            let params = [m.param("weight", &[width])?, m.param("bias", &[width])?];
            m.form.layernorm(m.g, x, params, width, eps)
        })
    }

    /// The layer norm over the channels of images [N C H W].
    pub(crate) fn channel_norm(&mut self, part: &str, x: NodeId, channels: usize, eps: f64) -> Built {
        let last = channels_last(self.g, x)?;
        let normal = self.layernorm(part, last, channels, eps)?;
        channels_first(self.g, normal)
    }

    /// `Conv2d` of images [N C H W].
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

    /// `ConvTranspose2d` of images [N C H W], with windows that do not overlap.
    pub(crate) fn conv_transpose(&mut self, part: &str, x: NodeId, [from, to]: [usize; 2], size: usize) -> Built {
        self.within(part, |m| {
            // Here torch keeps the channels that go in first.
            let (weight, bias) = (m.param("weight", &[from, to, size, size])?, m.param("bias", &[to])?);
            let sum = m.g.apply("conv-transpose", &[x, weight], &[("stride", square(size))])?;
            let bias = reshaped(m.g, bias, &[to, 1, 1])?;
            m.g.apply("add", &[sum, bias], &[])
        })
    }

    /// `MaxPool2d` of images [N C H W], with windows that do not overlap; what is left at the ends is dropped.
    pub(crate) fn max_pool(&mut self, x: NodeId, size: usize) -> Built {
        self.g.apply("max-pool", &[x], &[("size", square(size)), ("stride", square(size))])
    }

    /// An activation, element by element.
    pub(crate) fn activation(&mut self, x: NodeId, activation: crate::nn::Activation) -> Built {
        self.form.activation(self.g, x, activation)
    }

    /// x + y.
    pub(crate) fn add(&mut self, x: NodeId, y: NodeId) -> Built {
        self.g.apply("add", &[x, y], &[])
    }
}

fn square(n: usize) -> Attr {
    Attr::Shape([Dim::from(n), Dim::from(n)].into_iter().collect())
}

/// The same elements in another shape of known extents.
pub(crate) fn reshaped(g: &mut Graph, x: NodeId, dims: &[usize]) -> Built {
    reshape(g, x, &dims.iter().map(|n| Dim::from(*n)).collect::<Vec<_>>())
}

/// Repeated along axes of extent 1, and outer ones that are added.
pub(crate) fn expanded(g: &mut Graph, x: NodeId, dims: &[usize]) -> Built {
    g.apply("expand", &[x], &[("shape", Attr::Shape(dims.iter().map(|n| Dim::from(*n)).collect::<Shape>()))])
}

/// `len` elements of an axis from `at` on.
pub(crate) fn slice(g: &mut Graph, x: NodeId, axis: i64, at: usize, len: usize) -> Built {
    g.apply("slice", &[x], &[("axis", axis.into()), ("at", (at as i64).into()), ("len", (len as i64).into())])
}

/// One after the other along an axis.
pub(crate) fn concat(g: &mut Graph, parts: &[NodeId], axis: i64) -> Built {
    let (first, rest) = parts.split_first().expect("there is something to put together");
    rest.iter().try_fold(*first, |all, part| g.apply("concat", &[all, *part], &[("axis", axis.into())]))
}

/// [N C H W] as [N H W C].
pub(crate) fn channels_last(g: &mut Graph, x: NodeId) -> Built {
    transpose(g, x, &[0, 2, 3, 1])
}

/// [N H W C] as [N C H W].
pub(crate) fn channels_first(g: &mut Graph, x: NodeId) -> Built {
    transpose(g, x, &[0, 3, 1, 2])
}
