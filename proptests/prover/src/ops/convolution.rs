//! Convolution and pooling: sums and extrema over windows. Elements outside the image count as 0 or are ignored.

use std::rc::Rc;

use eutectic_ir::ops::Reduction;

use super::build::{Arithmetic, Semantics, one, rounded};
use crate::{
    call::{Call, Case, reduce},
    facts::{Res, stop},
    shape::{Item, Tensor},
    term::{Poly, T, Term, choose, num, product},
};

pub(super) const OPS: &[(&str, Semantics)] =
    &[("conv", conv), ("conv-transpose", conv_transpose), ("max-pool", max_pool), ("average-pool", average_pool)];

/// Windows along rows and columns.
struct Windows {
    stride: [Poly; 2],
    dilation: [Poly; 2],
    before: [Poly; 2],
    after: [Poly; 2],
}

impl Windows {
    fn new(call: &Call) -> Res<Windows> {
        Ok(Windows { stride: call.pair(0)?, dilation: call.pair(1)?, before: call.pair(2)?, after: call.pair(3)? })
    }

    /// Returns the number of windows of a size along an axis.
    fn number(&self, case: &Case, n: usize, extent: &Poly, size: &Poly) -> Res<Poly> {
        let one = Poly::int(1);
        let (s, d) = (&self.stride[n], &self.dilation[n]);
        let room = &(&(extent + &self.before[n]) + &self.after[n]) - &(&(d * &(size - &one)) + &one);
        for p in [self.before[n].clone(), self.after[n].clone(), s - &one, d - &one, size - &one, room.clone()] {
            case.require(p, "windows that fit")?;
        }
        Ok(&case.facts.divided(&room, s).0 + &one)
    }

    /// Returns the index along the axis at which a window reads for its tap k.
    fn tap(&self, n: usize, window: &Poly, k: &Poly) -> Poly {
        &(&(window * &self.stride[n]) + &(k * &self.dilation[n])) - &self.before[n]
    }
}

/// Returns `then` if an index is inside an image, else `otherwise`.
fn inside(case: &Case, at: [&Poly; 2], image: &[Poly; 2], then: impl FnOnce() -> Res<T>, otherwise: T) -> Res<T> {
    let one = Poly::int(1);
    let of = |n: usize| [at[n].clone(), &(&image[n] - at[n]) - &one];
    let all: Vec<Poly> = [of(0), of(1)].concat();
    let open: Vec<Poly> = all.iter().filter(|p| !case.facts.nonneg(p)).cloned().collect();
    let then = case.facts.assume(all, then)?;
    Ok(choose(open, then, otherwise))
}

fn extents<const N: usize>(x: &Tensor) -> Res<[Poly; N]> {
    let all: Vec<Poly> = x.shape.iter().filter(|i| i.rank.is_none()).map(|i| i.extent.clone()).collect();
    if all.len() != x.shape.len() {
        return stop("a convolution or pooling of an operand with a sequence of axes is unsupported");
    }
    all.try_into().or_else(|_| stop("an operand of a convolution or pooling must have four axes"))
}

fn conv(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, windows, groups) = (call.args.clone(), Rc::clone(&call.case), Windows::new(call)?, call.int(4)?);
    let ([n, channels, h, w], [o, i, p, q]) = (extents::<4>(&args[0])?, extents::<4>(&args[1])?);
    let (outer, rest) = o.divide(&groups);
    if rest != Poly::zero() || channels != &groups * &i {
        return stop("it is undecided whether the groups divide the channels");
    }
    let (y, x) = (windows.number(&case, 0, &h, &p)?, windows.number(&case, 1, &w, &q)?);
    let ty = args[0].ty.clone();
    one(Tensor::new(ty.clone(), [n, o, y, x].map(Item::axis).to_vec(), move |at| {
        let arithmetic = Arithmetic(ty.clone());
        let (group, _) = case.facts.divided(&at[1], &outer);
        let mut sum = reduce(&case, Reduction::Sum, &ty, &[i.clone(), p.clone(), q.clone()], |k| {
            let (row, column) = (windows.tap(0, &at[2], &k[1]), windows.tap(1, &at[3], &k[2]));
            let channel = &(&group * &i) + &k[0];
            let read = || (args[0].at)(&[at[0].clone(), channel, row.clone(), column.clone()]);
            let tap = inside(&case, [&row, &column], &[h.clone(), w.clone()], read, num(0.0))?;
            let weight = (args[1].at)(&[at[1].clone(), k[0].clone(), k[1].clone(), k[2].clone()])?;
            Ok(arithmetic.mul(&tap, &weight))
        })?;
        if let Some(bias) = args.get(2) {
            sum = arithmetic.add(&sum, &(bias.at)(&at[1..2])?);
        }
        Ok(rounded("conv", &ty, sum))
    }))
}

/// Evaluates a transposed convolution. Element (i, j) sums image[h, w] · weights[p, q] over all h and p with h·stride +
/// p·dilation − before = i, and likewise for columns.
fn conv_transpose(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, windows, groups) = (call.args.clone(), Rc::clone(&call.case), Windows::new(call)?, call.int(4)?);
    let ([n, channels, h, w], [c, o, p, q]) = (extents::<4>(&args[0])?, extents::<4>(&args[1])?);
    let (inner, rest) = channels.divide(&groups);
    if rest != Poly::zero() || channels != c {
        return stop("it is undecided whether the groups divide the channels");
    }
    let one_ = Poly::int(1);
    let extent = |k: usize, size: &Poly, taps: &Poly| {
        let full = &(&windows.stride[k] * &(size - &one_)) + &(&(&windows.dilation[k] * &(taps - &one_)) + &one_);
        &(&full - &windows.before[k]) - &windows.after[k]
    };
    let (y, x) = (extent(0, &h, &p), extent(1, &w, &q));
    let ty = args[0].ty.clone();
    one(Tensor::new(ty.clone(), [n, &groups * &o, y, x].map(Item::axis).to_vec(), move |at| {
        let arithmetic = Arithmetic(ty.clone());
        let (group, channel) = case.facts.divided(&at[1], &o);
        let all = [inner.clone(), h.clone(), w.clone(), p.clone(), q.clone()];
        let sum = reduce(&case, Reduction::Sum, &ty, &all, |k| {
            let i = &(&group * &inner) + &k[0];
            let off = |n: usize, from: &Poly, tap: &Poly| &windows.tap(n, from, tap) - &at[n + 2];
            let (row, column) = (off(0, &k[1], &k[3]), off(1, &k[2], &k[4]));
            let zero = Poly::zero();
            let x = (args[0].at)(&[at[0].clone(), i.clone(), k[1].clone(), k[2].clone()])?;
            let weight = (args[1].at)(&[i, channel.clone(), k[3].clone(), k[4].clone()])?;
            let meets = vec![row.clone(), &zero - &row, column.clone(), &zero - &column];
            Ok(choose(meets, arithmetic.mul(&x, &weight), num(0.0)))
        })?;
        Ok(rounded("conv-transpose", &ty, sum))
    }))
}

/// An element of a pool's result.
struct PoolPoint<'a> {
    case: &'a Case,
    /// The images, and the extents of one.
    x: &'a Tensor,
    image: &'a [Poly; 2],
    windows: &'a Windows,
    /// The extents of a window.
    size: &'a [Poly; 2],
    /// The coordinates of the element.
    at: &'a [Poly],
}

impl PoolPoint<'_> {
    /// Returns the row and the column of a tap in the image.
    fn place(&self, tap: &[Poly]) -> [Poly; 2] {
        [0, 1].map(|n| self.windows.tap(n, &self.at[n + 2], &tap[n]))
    }

    /// Returns the value at a tap of the window, or `outside` if the tap is outside the image.
    fn tap(&self, tap: &[Poly], outside: f64) -> Res<T> {
        let [row, column] = self.place(tap);
        let read = || (self.x.at)(&[self.at[0].clone(), self.at[1].clone(), row.clone(), column.clone()]);
        inside(self.case, [&row, &column], self.image, read, num(outside))
    }
}

/// Evaluates a pooling. `body` returns an element of its result.
fn pool(call: &Call, body: impl Fn(&PoolPoint<'_>) -> Res<T> + 'static) -> Res<Vec<Tensor>> {
    let (x, case, windows, size) = (call.args[0].clone(), Rc::clone(&call.case), Windows::new(call)?, call.pair(4)?);
    let [n, c, h, w] = extents::<4>(&x)?;
    let (rows, columns) = (windows.number(&case, 0, &h, &size[0])?, windows.number(&case, 1, &w, &size[1])?);
    let image = [h, w];
    one(Tensor::new(x.ty.clone(), [n, c, rows, columns].map(Item::axis).to_vec(), move |at| {
        body(&PoolPoint { case: &case, x: &x, image: &image, windows: &windows, size: &size, at })
    }))
}

fn max_pool(call: &Call) -> Res<Vec<Tensor>> {
    pool(call, |point| {
        reduce(point.case, Reduction::Max, &point.x.ty, point.size, |tap| point.tap(tap, f64::NEG_INFINITY))
    })
}

fn average_pool(call: &Call) -> Res<Vec<Tensor>> {
    let within = call.word(5)? == "inside";
    pool(call, move |point| {
        let &PoolPoint { case, size, .. } = point;
        let ty = &point.x.ty;
        let sum = reduce(case, Reduction::Sum, ty, size, |tap| point.tap(tap, 0.0))?;
        let count = match within {
            true => reduce(case, Reduction::Sum, ty, size, |tap| {
                let [row, column] = point.place(tap);
                inside(case, [&row, &column], point.image, || Ok(num(1.0)), num(0.0))
            })?,
            false => Rc::new(Term::Index(product(size))),
        };
        Ok(rounded("average-pool", ty, Arithmetic(ty.clone()).div(&sum, &count)))
    })
}
