//! The windows of convolutions and pooling: size, stride, dilation and padding along each spatial axis.

use eutectic_ir::{Attr, NodeId};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// Accepts a number of an attribute from 0 to 2²⁰ − 1. With this limit, arithmetic on extents does not overflow.
fn usable(n: i64) -> Option<usize> {
    usize::try_from(n).ok().filter(|&n| n < 1 << 20)
}

/// The windows along all spatial axes. `before` and `after` are the padding.
#[derive(Clone)]
pub(super) struct Windows {
    pub size: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    pub before: Vec<usize>,
    pub after: Vec<usize>,
}

impl Windows {
    /// Reads the attributes of the node. `SAME_UPPER` and `SAME_LOWER` pad each axis so that it has ⌈extent/stride⌉
    /// windows. If the padding of an axis is odd, `SAME_UPPER` puts the extra element at the end, and `SAME_LOWER` at
    /// the start.
    pub(super) fn read(c: &NodeCall<'_, '_>, size: &[usize], image: &[usize]) -> Result<Windows, NodeError> {
        let n = image.len();
        let numbers = |name: &str, default: Vec<usize>| match c.ints(name)? {
            Some(given) if given.len() != default.len() => {
                Err(NodeError(format!("its `{name}` has {} numbers, which does not fit its spatial axes", given.len())))
            }
            Some(given) => given
                .into_iter()
                .map(|g| {
                    usable(g).ok_or_else(|| {
                        NodeError(format!("its `{name}` has the number {g}, but must have numbers from 0 to 1048575"))
                    })
                })
                .collect::<Result<Vec<_>, _>>(),
            None => Ok(default),
        };
        let (stride, dilation) = (numbers("strides", vec![1; n])?, numbers("dilations", vec![1; n])?);
        let weights = size.iter().all(|&k| k < 1 << 20);
        if size.len() != n || !weights || stride.iter().chain(&dilation).chain(size).any(|&k| k == 0) {
            return Err("the sizes, strides or dilations of its windows do not fit its input".into());
        }
        let mut pads = numbers("pads", vec![0; 2 * n])?;
        let auto = c.word("auto_pad")?.unwrap_or("NOTSET");
        if let "SAME_UPPER" | "SAME_LOWER" = auto {
            for i in 0..n {
                let reach = (image[i].div_ceil(stride[i]).max(1) - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1;
                let needed = reach.saturating_sub(image[i]);
                let less = needed / 2;
                let more = needed - less;
                (pads[i], pads[i + n]) = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
            }
        } else if auto == "VALID" {
            pads.fill(0);
        } else if auto != "NOTSET" {
            return Err(format!("its auto_pad `{auto}` is not supported").into());
        }
        let after = pads.split_off(n);
        Ok(Windows { size: size.to_vec(), stride, dilation, before: pads, after })
    }

    /// Extends the padding so that the number of windows is rounded up instead of down. A window that would start in
    /// the padding is not added. Returns the extension of each axis.
    pub(super) fn round_up(&mut self, image: &[usize]) -> Vec<usize> {
        let longer = |i: usize| {
            let reach = self.dilation[i] * (self.size[i] - 1) + 1;
            let padded = image[i] + self.before[i] + self.after[i];
            let rest = padded.saturating_sub(reach) % self.stride[i];
            let start = padded.saturating_sub(reach) - rest + self.stride[i];
            if rest == 0 || start >= image[i] + self.before[i] { 0 } else { self.stride[i] - rest }
        };
        let longer: Vec<usize> = (0..image.len()).map(longer).collect();
        self.after.iter_mut().zip(&longer).for_each(|(after, more)| *after += more);
        longer
    }

    /// Returns the attributes of ops on images. A signal with one spatial axis becomes an image of one row.
    pub(super) fn attrs(&self) -> [(&'static str, Attr); 4] {
        let pair = |numbers: &[usize], row: usize| -> Attr {
            let first = (numbers.len() == 1).then_some(row);
            first.iter().chain(numbers).map(|&n| n as i64).collect::<Vec<_>>().as_slice().into()
        };
        [
            ("stride", pair(&self.stride, 1)),
            ("dilation", pair(&self.dilation, 1)),
            ("before", pair(&self.before, 0)),
            ("after", pair(&self.after, 0)),
        ]
    }

    pub(super) fn size(&self) -> (&'static str, Attr) {
        let pair: Vec<i64> =
            (self.size.len() == 1).then_some(1).into_iter().chain(self.size.iter().map(|&n| n as i64)).collect();
        ("size", pair.as_slice().into())
    }
}

/// Reads the number of groups of channels.
pub(super) fn groups(c: &NodeCall<'_, '_>) -> Result<usize, NodeError> {
    let groups = c.int_or("group", 1)?;
    usable(groups).ok_or_else(|| NodeError(format!("its group is {groups}, which is not supported")))
}

/// Reads the extents of windows from `kernel_shape`.
pub(super) fn kernel_shape(c: &NodeCall<'_, '_>) -> Result<Vec<usize>, NodeError> {
    let shape = c.ints("kernel_shape")?.ok_or("its attribute `kernel_shape` is missing")?;
    let size = |n| {
        usable(n).ok_or_else(|| NodeError(format!("its `kernel_shape` has the extent {n}, which is not supported")))
    };
    shape.into_iter().map(size).collect()
}

/// Adds a bias: one number for each channel of y [N C D..].
pub(super) fn biased(c: &mut NodeCall<'_, '_>, y: NodeId, bias: Option<NodeId>) -> NodeResult {
    let Some(bias) = bias else { return Ok(y) };
    let channels = c.dims(bias).iter().product();
    let column: Vec<usize> = (0..c.rank(y) - 1).map(|i| if i == 0 { channels } else { 1 }).collect();
    let bias = c.reshape(bias, &column)?;
    c.apply("add", [y, bias])
}
