//! What goes into the tensors of a case: ordinary numbers, and each kind of number that makes rules wrong.

use std::collections::BTreeMap;

use eutectic::{DType, Graph, Tensor};
use eutectic_rewrites::Contract;

/// A kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Either sign, some orders of magnitude, every bit of the significand in use.
    Ordinary,
    /// As ordinary, positive: what goes into roots and logarithms.
    Positive,
    /// Close to one number: differences cancel.
    Near,
    /// Zeros (of both signs where the contract keeps them), ones, and ordinary numbers.
    Zeros,
    /// Subnormal numbers, and the least normal ones.
    Tiny,
    /// Near the largest number, or its square root; in `f64`, up to 2⁴⁰ but for exact rules.
    Large,
    /// Ordinary, with infinities and NaN among them.
    NonFinite,
    /// Ordinary, with −∞ in one tensor that the left side absorbs: a mask. As ordinary where there is none.
    Masked,
}

impl Style {
    /// The styles that a contract speaks of, the most telling ones first and most often.
    pub fn of(contract: Contract) -> &'static [Style] {
        use Style::*;
        match contract {
            Contract::Fast => &[Ordinary, Positive, Near],
            _ => &[
                Ordinary, Positive, Zeros, Masked, Ordinary, NonFinite, Near, Positive, Large, Masked, Ordinary, Tiny,
                NonFinite,
            ],
        }
    }
}

/// The tensors of a case, by the name of the input or parameter.
pub type Values = BTreeMap<String, Tensor>;

/// Values for all inputs and parameters of a graph. `most` bounds integers where they turned out to be indices.
pub fn draw(
    graph: &Graph,
    style: Style,
    contract: Contract,
    most: Option<usize>,
    random: &mut fastrand::Rng,
) -> Values {
    let leaves = graph.named("input").chain(graph.named("param"));
    let tensor = |(name, id): (&str, eutectic::NodeId)| {
        let ty = graph.ty(id);
        let (dtype, dims) = (ty.dtype()?, ty.dims()?);
        let count = dims.iter().product();
        let tensor = if dtype.is_float() {
            // A tensor in three is ordinary whatever the style: what is special meets what is not.
            let style = if random.usize(..3) == 0 && style != Style::Positive { Style::Ordinary } else { style };
            Tensor::from_f64(
                dtype,
                &dims,
                (0..count).map(|_| float(dtype, style, contract, random)).collect::<Vec<_>>(),
            )
        } else {
            Tensor::from_i64(dtype, &dims, (0..count).map(|_| integer(dtype, style, most, random)).collect::<Vec<_>>())
        };
        Some((name.to_string(), tensor))
    };
    leaves.filter_map(tensor).collect()
}

/// The tensors with −∞ at random places of one of them: in every row something stays, or (`rows`) some rows go whole.
pub fn masked(values: &Values, name: &str, rows: bool, random: &mut fastrand::Rng) -> Option<Values> {
    let tensor = values.get(name).filter(|t| t.dtype().is_float())?;
    let width = *tensor.dims().last().filter(|width| **width > 1)?;
    let mut elements = tensor.to_f64();
    for row in elements.chunks_mut(width) {
        let kept = random.usize(..width);
        let whole = rows && random.usize(..2) == 0;
        for (at, x) in row.iter_mut().enumerate() {
            if whole || at != kept && random.usize(..2) == 0 {
                *x = f64::NEG_INFINITY;
            }
        }
    }
    let tensor = Tensor::from_f64(tensor.dtype(), tensor.dims(), elements);
    let mut values = values.clone();
    values.insert(name.to_string(), tensor);
    Some(values)
}

/// The tensors with ∞ for −∞ in one of them.
pub fn mirrored(values: &Values, name: &str) -> Values {
    let mut values = values.clone();
    if let Some(tensor) = values.get_mut(name) {
        let positive = |x: f64| if x == f64::NEG_INFINITY { -x } else { x };
        *tensor = Tensor::from_f64(tensor.dtype(), tensor.dims(), tensor.to_f64().into_iter().map(positive));
    }
    values
}

/// A number below 1 with all the bits of an `f64`.
fn unit(random: &mut fastrand::Rng) -> f64 {
    (random.u64(..) >> 11) as f64 / (1_u64 << 53) as f64
}

fn ordinary(random: &mut fastrand::Rng) -> f64 {
    let sign = if random.usize(..2) == 0 { 1.0 } else { -1.0 };
    sign * (0.5 + unit(random)) * 2_f64.powi(random.usize(..6) as i32 - 3)
}

/// Least normal and largest number.
fn range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
        DType::F16 => (2_f64.powi(-14), 65504.0),
        _ => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
    }
}

fn float(dtype: DType, style: Style, contract: Contract, random: &mut fastrand::Rng) -> f64 {
    let x = ordinary(random);
    let (least, largest) = range(dtype);
    // In `f64` the reference overflows where a kernel does and cannot tell: what is promised is promised of moderate sizes.
    let moderate = dtype == DType::F64 && contract != Contract::Exact;
    match (style, random.usize(..6)) {
        (Style::Ordinary, _) => x,
        (Style::Positive, _) => x.abs(),
        (Style::Near, n) => 1.0 + dtype.unit_roundoff() * (n as f64 - 2.0),
        (Style::Zeros, 0 | 1) => 0.0,
        // A −0 may be taken for a 0 but where bits are promised.
        (Style::Zeros, 2) => {
            if contract == Contract::Exact {
                -0.0
            } else {
                1.0
            }
        }
        (Style::Zeros, 3) => -1.0,
        (Style::Tiny, 0..4) if moderate => x * 2_f64.powi(-37),
        (Style::Large, 0..3) if moderate => x * 2_f64.powi(random.usize(..38) as i32),
        (Style::Tiny, 0..3) => x * least / 64.0,
        (Style::Tiny, 3) => x * least * 4.0,
        (Style::Large, 0) => x.signum() * largest * (0.5 + unit(random) / 2.0),
        (Style::Large, 1 | 2) => x * largest.sqrt(),
        (Style::NonFinite, 0) => x.signum() * f64::INFINITY,
        (Style::NonFinite, 1) if random.usize(..3) == 0 => f64::NAN,
        _ => x,
    }
}

fn integer(dtype: DType, style: Style, most: Option<usize>, random: &mut fastrand::Rng) -> i64 {
    if dtype == DType::Bool {
        // Masks that leave something: three in four.
        return i64::from(random.usize(..4) > 0);
    }
    if let Some(most) = most {
        return random.usize(..most) as i64;
    }
    match style {
        // Integers wrap: any bits are legal.
        Style::Large | Style::NonFinite => random.i64(..),
        Style::Zeros => random.usize(..3) as i64 - 1,
        _ => random.usize(..21) as i64 - 8,
    }
}
