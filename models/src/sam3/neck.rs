//! The neck: computes features at several scales from the trunk's tokens, and sine position encodings.

use eutectic_ir::{DType, GraphError, NodeId, Tensor};

use super::{Sam3Config, Scale};
use crate::{
    module::{Conv, ModuleBuilder, channels_first},
    nn::{Activation, Built},
};

/// Computes the features [B D h w] of one branch from tokens [B g g E]. `m` is the module of the branch.
pub(super) fn branch(m: &mut ModuleBuilder<'_>, config: &Sam3Config, scale: Scale, tokens: NodeId) -> Built {
    let (from, out) = (config.trunk.width, config.neck_width);
    let x = channels_first(m.g, tokens)?;
    let (x, channels) = match scale {
        Scale::Quadruple => {
            let x = m.conv_transpose("scale_layers.0", x, [from, from / 2], 2)?;
            let x = m.activation(x, Activation::GeluErf)?;
            (m.conv_transpose("scale_layers.2", x, [from / 2, from / 4], 2)?, from / 4)
        }
        Scale::Double => (m.conv_transpose("scale_layers.0", x, [from, from / 2], 2)?, from / 2),
        Scale::Same => (x, from),
        Scale::Half => (m.max_pool(x, 2)?, from),
    };
    let x = m.conv("proj1", x, Conv { channels: [channels, out], size: 1, stride: 1, pad: 0, bias: true })?;
    m.conv("proj2", x, Conv { channels: [out, out], size: 3, stride: 1, pad: 1, bias: true })
}

/// The number that is added to n where coordinates are divided by n, as in the original code.
const EPS: f64 = 1e-6;

/// The base of the sines' wavelengths.
const TEMPERATURE: f64 = 10000.0;

/// Returns position encodings of n rows or columns as a constant [D/2 n] (Vaswani et al. 2017, arXiv:1706.03762).
/// Channels alternate between sine and cosine. The angle is 2π (i + 1) / (n + eps), divided by the wavelength
/// 10000^(2j/(D/2)) of channels 2j and 2j + 1.
pub(super) fn positions(m: &mut ModuleBuilder<'_>, width: usize, n: usize) -> Result<NodeId, GraphError> {
    let half = width / 2;
    let value = |(channel, at): (usize, usize)| {
        let wavelength = TEMPERATURE.powf((2 * (channel / 2)) as f64 / half as f64);
        let angle = (at + 1) as f64 / (n as f64 + EPS) * std::f64::consts::TAU / wavelength;
        if channel % 2 == 0 { angle.sin() } else { angle.cos() }
    };
    let values = (0..half).flat_map(|channel| (0..n).map(move |at| (channel, at))).map(value);
    m.g.constant(Tensor::from_f64(DType::F32, &[half, n], values))
}
