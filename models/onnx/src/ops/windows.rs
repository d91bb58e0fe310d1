//! Windows of convolutions and pools: their sizes, steps and padding along each axis.

use eutectic_ir::{Attr, NodeId};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// A number about windows. With this limit, arithmetic on extents does not overflow.
fn usable(n: i64) -> Option<usize> {
    usize::try_from(n).ok().filter(|&n| n < 1 << 20)
}

/// How windows lie, along each spatial axis.
#[derive(Clone)]
pub(super) struct Windows {
    pub size: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    pub before: Vec<usize>,
    pub after: Vec<usize>,
}

impl Windows {
    /// From the attributes. Padding `SAME` is as much as gives ⌈extent/stride⌉ windows, the odd element at the end it names.
    pub(super) fn read(c: &NodeCall<'_, '_>, size: &[usize], image: &[usize]) -> Result<Windows, NodeError> {
        let n = image.len();
        let numbers = |name: &str, default: Vec<usize>| match c.ints(name)? {
            Some(given) if given.len() != default.len() => Err(NodeError(format!("{} numbers in {name}", given.len()))),
            Some(given) => given
                .into_iter()
                .map(|g| usable(g).ok_or_else(|| NodeError(format!("{g} in {name}"))))
                .collect::<Result<Vec<_>, _>>(),
            None => Ok(default),
        };
        let (stride, dilation) = (numbers("strides", vec![1; n])?, numbers("dilations", vec![1; n])?);
        let weights = size.iter().all(|&k| k < 1 << 20);
        if size.len() != n || !weights || stride.iter().chain(&dilation).chain(size).any(|&k| k == 0) {
            return Err("its windows do not fit its input".into());
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
            return Err(format!("its padding `{auto}` is not known").into());
        }
        let after = pads.split_off(n);
        Ok(Windows { size: size.to_vec(), stride, dilation, before: pads, after })
    }

    /// Where the last window may start within the padding: then there are ⌈…⌉ instead of ⌊…⌋ windows, but none that begins in it.
    /// Gives how much longer the axes are for that.
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

    /// A row is put before a single axis.
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

/// How many groups of channels there are.
pub(super) fn groups(c: &NodeCall<'_, '_>) -> Result<usize, NodeError> {
    let groups = c.int_or("group", 1)?;
    usable(groups).ok_or_else(|| NodeError(format!("{groups} groups")))
}

/// The extents of windows.
pub(super) fn kernel_shape(c: &NodeCall<'_, '_>) -> Result<Vec<usize>, NodeError> {
    let shape = c.ints("kernel_shape")?.ok_or("it does not say how large its windows are")?;
    let size = |n| usable(n).ok_or_else(|| NodeError(format!("windows of {n} elements")));
    shape.into_iter().map(size).collect()
}

/// A number more for each channel of [N C D..].
pub(super) fn biased(c: &mut NodeCall<'_, '_>, y: NodeId, bias: Option<NodeId>) -> NodeResult {
    let Some(bias) = bias else { return Ok(y) };
    let channels = c.dims(bias).iter().product();
    let column: Vec<usize> = (0..c.rank(y) - 1).map(|i| if i == 0 { channels } else { 1 }).collect();
    let bias = c.reshape(bias, &column)?;
    c.apply("add", [y, bias])
}
