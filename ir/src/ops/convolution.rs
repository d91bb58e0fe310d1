//! Convolution and pooling of images [batch, channel, row, column], and norms whose channels are not the last axis.

use super::{
    AttrDef,
    AttrKind::*,
    Class, Default, OpDef, attr, attr_or,
    eval::{OpCall, Value, tensors},
    op, read,
};
use crate::{Scalar, Type, index::strides, scalar::ExactSum};

const CHANNELS: Option<i64> = Some(-3);
const STRIDE: AttrDef = attr_or("stride", Shape, Default::Shape(&[1, 1]));
const DILATION: AttrDef = attr_or("dilation", Shape, Default::Shape(&[1, 1]));
const BEFORE: AttrDef = attr_or("before", Shape, Default::Shape(&[0, 0]));
const AFTER: AttrDef = attr_or("after", Shape, Default::Shape(&[0, 0]));
const GROUPS: AttrDef = attr_or("groups", Int, Default::Int(1));

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[STRIDE, DILATION, BEFORE, AFTER, GROUPS],
        along: CHANNELS,
        flops: |operands, result| 2.0 * result.count() as f64 * taps(operands, 1),
        ..op(
            "conv",
            "Σ x[n, i, y·stride + p·dilation − before, …] · w[o, i, p, q] (+ b[o]) over the input channels i of o's group; \
             x is 0 outside of the image. `before` and `after` are the padding at its start and end. Pairs are for rows and columns.",
            Class::Composite,
            "(F float) F[N (* G I) H W] F[(* G O) I P Q] F[(* G O)]? -> F[N (* G O) Y X] (equal groups G) (at-most 1 groups) \
             (windows H B A P S D Y) (windows W L R Q T E X) \
             (shape stride [S T]) (shape dilation [D E]) (shape before [B L]) (shape after [A R])",
            tensors!(conv),
        )
    },
    OpDef {
        attrs: &[STRIDE, DILATION, BEFORE, AFTER, GROUPS],
        along: CHANNELS,
        flops: |operands, _| 2.0 * operands[0].count() as f64 * taps(operands, 1),
        ..op(
            "conv-transpose",
            "The transpose of `conv` as a linear map: x[n, i, h, …] · w[i, o, p, q] is added to row h·stride + p·dilation − before \
             of channel o of i's group. `before` and `after` are at most dilation·(P − 1).",
            Class::Composite,
            "(F float) F[N (* G I) H W] F[(* G I) O P Q] -> F[N (* G O) Y X] (equal groups G) (at-most 1 groups) \
             (windows (+ (* S (- H 1)) 1) (- (* D (- P 1)) B) (- (* D (- P 1)) A) P 1 D Y) \
             (windows (+ (* T (- W 1)) 1) (- (* E (- Q 1)) L) (- (* E (- Q 1)) R) Q 1 E X) \
             (shape stride [S T]) (shape dilation [D E]) (shape before [B L]) (shape after [A R]) \
             (at-most 1 S) (at-most 1 T) (at-most 1 H) (at-most 1 W)",
            tensors!(conv_transpose),
        )
    },
    OpDef {
        attrs: POOL,
        along: CHANNELS,
        flops: |_, result| 8.0 * result.count() as f64,
        ..op(
            "max-pool",
            "The largest element of each window of a channel. Elements outside of x count as −∞.",
            Class::Composite,
            POOLED,
            tensors!(max_pool),
        )
    },
    OpDef {
        attrs: &[STRIDE, DILATION, BEFORE, AFTER, SIZE, attr("over", Word(&["window", "inside"]))],
        along: CHANNELS,
        flops: |_, result| 8.0 * result.count() as f64,
        ..op(
            "average-pool",
            "The mean of each window of a channel: the sum, with 0 outside of x, divided by the number of elements of the \
             window, or of those inside x.",
            Class::Composite,
            POOLED,
            tensors!(average_pool),
        )
    },
    OpDef {
        attrs: &[attr_or("axis", Axis, Default::Int(1)), attr("eps", Float)],
        flops: read::<2>,
        ..op(
            "batch-norm",
            "x·s + (b − mean·s) with s = g·rsqrt(variance + eps); the operands are x, g, b, mean and variance. All but x have \
             one element for each channel, which is an index along `axis`.",
            Class::Composite,
            "(F float) F[A..] F[C] F[C] F[C] F[C] -> F[A..] (extent A axis C)",
            tensors!(batch_norm),
        )
    },
    OpDef {
        attrs: &[attr("groups", Int), attr("eps", Float)],
        flops: read::<8>,
        ..op(
            "group-norm",
            "(x − mean) / √(variance + eps) · g + b; mean and variance are over a group of channels and the axes after them.",
            Class::Composite,
            "(F float) F[N (* G I) A..] F[(* G I)] F[(* G I)] -> F[N (* G I) A..] (equal groups G) (at-most 1 groups)",
            tensors!(group_norm),
        )
    },
];

const SIZE: AttrDef = attr("size", Shape);
const POOL: &[AttrDef] = &[STRIDE, DILATION, BEFORE, AFTER, SIZE];
const POOLED: &str = "(F float) F[N C H W] -> F[N C Y X] (windows H B A P S D Y) (windows W L R Q T E X) (shape size [P Q]) \
                      (shape stride [S T]) (shape dilation [D E]) (shape before [B L]) (shape after [A R])";

/// Returns the number of weights that contribute to an element of the result: the product of the weights' extents
/// from axis `inner` on.
fn taps(operands: &[&Type], inner: i64) -> f64 {
    (inner..4).map(|axis| super::extent(operands[1], axis)).product()
}

/// The positions of windows: along rows, then along columns.
struct WindowPlaces([Line; 2]);

/// The positions of windows along one axis.
#[derive(Clone, Copy)]
struct Line {
    stride: i64,
    dilation: i64,
    before: i64,
    size: usize,
    extent: usize,
}

impl Line {
    /// Returns the element of the axis at tap `k` of window `o`; `None` if it is in the padding.
    fn tap(&self, o: usize, k: usize) -> Option<usize> {
        let at = o as i64 * self.stride + k as i64 * self.dilation - self.before;
        usize::try_from(at).ok().filter(|&at| at < self.extent)
    }

    /// Returns the elements of the axis that window `o` reads outside of the padding.
    fn inside(&self, o: usize) -> impl Iterator<Item = usize> + Clone {
        let start = o as i64 * self.stride - self.before;
        let step = self.dilation.max(1);
        // The first tap at or after the start of the axis, and the first tap past its end.
        let tap = |at: i64| ((at - start).max(0) as u64).div_ceil(step as u64).min(self.size as u64);
        (tap(0)..tap(self.extent as i64)).map(move |k| (start + k as i64 * step) as usize)
    }
}

impl WindowPlaces {
    /// Returns the positions of windows of this size in an image.
    fn new<S>(call: &OpCall<'_, S>, size: &[usize], image: &[usize]) -> WindowPlaces {
        let pair = |n: usize, i: usize| {
            let shape = call.attrs[n].shape().expect("the op table declares a pair of numbers");
            shape[i].known().expect("all symbols are bound")
        };
        WindowPlaces([0, 1].map(|i| Line {
            stride: pair(0, i),
            dilation: pair(1, i),
            before: pair(2, i),
            size: size[i],
            extent: image[i],
        }))
    }

    /// Returns the offsets in an image of a window's taps, row by row; `None` for a tap in the padding.
    fn taps(&self, [y, x]: [usize; 2]) -> impl Iterator<Item = Option<usize>> + '_ {
        let [rows, columns] = &self.0;
        (0..rows.size).flat_map(move |p| {
            (0..columns.size).map(move |q| Some(rows.tap(y, p)? * columns.extent + columns.tap(x, q)?))
        })
    }

    /// Returns the offsets in an image of a window's taps outside of the padding, row by row. It does not visit taps
    /// in the padding, because a window may be much larger than its image.
    fn inside(&self, [y, x]: [usize; 2]) -> impl Iterator<Item = usize> + '_ {
        let [rows, columns] = &self.0;
        let row = columns.inside(x);
        rows.inside(y).flat_map(move |y| row.clone().map(move |x| y * columns.extent + x))
    }
}

/// Returns the size of windows from its attribute.
fn size<S>(call: &OpCall<'_, S>) -> Vec<usize> {
    call.attrs[4].shape().and_then(crate::Shape::known).expect("the op table declares the size of windows")
}

fn groups<S>(call: &OpCall<'_, S>, attr: usize) -> usize {
    call.attrs[attr].int().and_then(|n| usize::try_from(n).ok()).expect("the signature asks for groups")
}

/// Returns each point of an image with `dims` rows and columns.
fn points(dims: &[usize]) -> impl Iterator<Item = [usize; 2]> {
    let columns = dims[1];
    (0..dims[0]).flat_map(move |y| (0..columns).map(move |x| [y, x]))
}

fn conv<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let (x, w) = (call.operands[0], call.operands[1]);
    let bias = call.operands.get(2).map(|b| b.reals());
    let (_, dims) = call.result();
    let windows = WindowPlaces::new(call, &w.dims[2..], &x.dims[2..]);
    let (inner, outer) = (w.dims[1], dims[1] / groups(call, 4));
    let (image, kernel) = (strides(&x.dims)[1], strides(&w.dims)[1]);
    let mut result = Vec::with_capacity(dims.iter().product());
    for (n, o) in (0..dims[0]).flat_map(|n| (0..dims[1]).map(move |o| (n, o))) {
        for point in points(&dims[2..]) {
            let mut sum = S::Sum::default();
            for i in 0..inner {
                let from = (n * x.dims[1] + o / outer * inner + i) * image;
                let weights = &w.reals()[(o * inner + i) * kernel..];
                for (tap, &w) in windows.taps(point).zip(weights) {
                    sum.add_product(tap.map_or(S::exact(0.0), |at| x.reals()[from + at]), w);
                }
            }
            result.push(bias.map_or(sum.total(), |b| sum.total() + b[o]));
        }
    }
    call.reals(result)
}

fn conv_transpose<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, w] = call.operands else { unreachable!("the signature has two operands") };
    let (_, dims) = call.result();
    // The windows of the result that `conv` would read.
    let windows = WindowPlaces::new(call, &w.dims[2..], &dims[2..]);
    let (inner, outer) = (x.dims[1] / groups(call, 4), w.dims[1]);
    let (image, kernel) = (strides(&dims)[1], strides(&w.dims)[1]);
    let mut sums = vec![S::Sum::default(); dims.iter().product()];
    let channels = (0..x.dims[0]).flat_map(|n| (0..x.dims[1]).map(move |i| (n, i)));
    for (((n, i), point), &x) in channels.flat_map(|c| points(&x.dims[2..]).map(move |point| (c, point))).zip(x.reals())
    {
        for o in 0..outer {
            let to = (n * dims[1] + i / inner * outer + o) * image;
            for (tap, &w) in windows.taps(point).zip(&w.reals()[(i * outer + o) * kernel..]) {
                tap.into_iter().for_each(|at| sums[to + at].add_product(x, w));
            }
        }
    }
    call.reals(sums.iter().map(|sum| sum.total()).collect::<Vec<_>>())
}

/// Returns the result of pooling. `f` maps the elements of a window outside of the padding to an element of the
/// result.
fn pool<S: Scalar>(call: &OpCall<'_, S>, f: impl Fn(&mut dyn Iterator<Item = S>) -> S) -> Vec<Value<S>> {
    let x = call.operands[0];
    let (_, dims) = call.result();
    let windows = WindowPlaces::new(call, &size(call), &x.dims[2..]);
    let image = strides(&x.dims)[1];
    let channels = (0..dims[0] * dims[1]).map(|c| &x.reals()[c * image..(c + 1) * image]);
    let of_channel = |x: &[S]| {
        let each = |point| f(&mut windows.inside(point).map(|at| x[at]));
        points(&dims[2..]).map(each).collect::<Vec<_>>()
    };
    call.reals(channels.flat_map(of_channel).collect::<Vec<_>>())
}

fn max_pool<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    pool(call, |taps| taps.fold(S::exact(f64::NEG_INFINITY), S::larger))
}

fn average_pool<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let all = (call.attrs[5].word() != Some("inside")).then(|| size(call).into_iter().product());
    pool(call, |taps| {
        let taps: Vec<S> = taps.collect();
        let count: usize = all.unwrap_or(taps.len());
        S::sum(taps) / S::exact(count as f64)
    })
}

fn batch_norm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, g, b, mean, variance] = call.operands else { unreachable!("the signature has five operands") };
    let axis = (call.attrs[0].int().expect("the op table declares an axis") + x.dims.len() as i64) as usize;
    let (inner, eps) = (strides(&x.dims)[axis], call.number(1));
    let scales = variance.reals().iter().zip(g.reals()).map(|(&v, &g)| g * (v + eps).rsqrt());
    let scales: Vec<(S, S)> =
        scales.zip(mean.reals().iter().zip(b.reals())).map(|(s, (&mean, &b))| (s, b - mean * s)).collect();
    let of = |(i, &x): (usize, &S)| {
        let (s, t) = scales[i / inner % scales.len()];
        x * s + t
    };
    call.reals(x.reals().iter().enumerate().map(of).collect::<Vec<_>>())
}

fn group_norm<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let [x, g, b] = call.operands else { unreachable!("the signature has three operands") };
    let (groups, eps) = (groups(call, 0), call.number(1));
    let (channels, inner) = (x.dims[1], strides(&x.dims)[1]);
    let size = channels / groups * inner;
    let mut result = Vec::with_capacity(x.count());
    for (n, group) in x.reals().chunks(size.max(1)).enumerate() {
        let count = S::exact(size as f64);
        let mean = S::sum(group.iter().copied()) / count;
        let centred: Vec<S> = group.iter().map(|&x| x - mean).collect();
        let scale = (S::sum(centred.iter().map(|&x| x * x)) / count + eps).rsqrt();
        let channel = |i: usize| n % groups * (channels / groups) + i / inner;
        let of = |(i, x): (usize, S)| x * scale * g.reals()[channel(i)] + b.reals()[channel(i)];
        result.extend(centred.into_iter().enumerate().map(of));
    }
    call.reals(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_inside_are_those_that_name_an_element() {
        let each = |from: std::ops::Range<i64>| from.into_iter();
        for (stride, dilation, before) in
            each(1..4).flat_map(|s| each(1..4).flat_map(move |d| each(-3..9).map(move |b| (s, d, b))))
        {
            for (size, extent) in [0, 1, 2, 3, 7].into_iter().flat_map(|p| [0, 1, 2, 5, 8].map(|n| (p, n))) {
                let line = Line { stride, dilation, before, size, extent };
                for o in 0..6 {
                    let named: Vec<usize> = (0..size).filter_map(|k| line.tap(o, k)).collect();
                    let about = format!("window {o} of {size} on {extent}: {stride} {dilation} {before}");
                    assert_eq!(line.inside(o).collect::<Vec<_>>(), named, "{about}");
                }
            }
        }
    }
}
