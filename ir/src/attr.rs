//! Attributes: the constants in an op's description (an axis, a permutation, an epsilon).

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::{DType, Shape, Tensor, Type, graph::SubGraph};

/// The attributes of a node: one for each that its op declares, in that order.
pub type Attrs = SmallVec<[Attr; 2]>;

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attr {
    /// An integer, or an axis counted from the end (−1 is the last).
    Int(i64),
    /// A number. Equality compares its bits, so that nodes can be hashed. An integer that no `f64` represents exactly
    /// is kept as an `Int`.
    Float(FloatBits),
    /// A truth value.
    Bool(bool),
    /// One of the words that the op declares for the attribute (`gelu-erf`), or a name.
    Word(Arc<str>),
    /// Integers: a permutation or a list of axes, counted from the end.
    Ints(SmallVec<[i64; 6]>),
    /// A shape.
    Shape(Shape),
    /// An element type.
    DType(DType),
    /// A whole type (of an input or a parameter).
    Type(Type),
    /// The value of a constant.
    Tensor(Tensor),
    /// The body of a loop.
    Graph(SubGraph),
}

/// An `f64` with total equality: numbers are equal if their bits are. All NaNs have the same bits here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FloatBits(u64);

impl FloatBits {
    /// Returns the number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for FloatBits {
    fn from(x: f64) -> FloatBits {
        FloatBits(if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() })
    }
}

/// A number of any element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Number {
    /// A number that an `f64` represents exactly.
    Float(FloatBits),
    /// An integer that no `f64` represents exactly.
    Int(i64),
}

impl Number {
    /// Returns the number as an `f64`. An `Int` is rounded to the nearest one.
    pub fn get(self) -> f64 {
        match self {
            Number::Float(x) => x.get(),
            Number::Int(n) => n as f64,
        }
    }

    /// Returns the number if an `f64` represents it exactly.
    pub fn float(self) -> Option<f64> {
        match self {
            Number::Float(x) => Some(x.get()),
            Number::Int(_) => None,
        }
    }

    /// Returns the number as an integer: truncated, and clamped to the range of `i64`.
    pub fn int(self) -> i64 {
        match self {
            Number::Float(x) => x.get() as i64,
            Number::Int(n) => n,
        }
    }

    /// Returns the number as a tensor of rank 0, rounded or clamped to the element type.
    pub fn tensor(self, dtype: DType) -> Tensor {
        match self {
            Number::Float(x) => Tensor::from_f64(dtype, &[], [x.get()]),
            Number::Int(n) => {
                let (least, most) = dtype.integers();
                Tensor::from_i64(dtype, &[], [n.clamp(least, most)])
            }
        }
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Number {
        Number::Float(x.into())
    }
}

impl From<i64> for Number {
    fn from(n: i64) -> Number {
        if (n as f64) as i128 == i128::from(n) { (n as f64).into() } else { Number::Int(n) }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Attr::from(*self), f)
    }
}

impl From<Number> for Attr {
    fn from(n: Number) -> Attr {
        match n {
            Number::Float(x) => Attr::Float(x),
            Number::Int(n) => Attr::Int(n),
        }
    }
}

impl Attr {
    /// Returns the exact number of a `Float` or an `Int`.
    pub fn number(&self) -> Option<Number> {
        match self {
            Attr::Float(x) => Some(Number::Float(*x)),
            Attr::Int(n) => Some((*n).into()),
            _ => None,
        }
    }

    /// Returns the integer of an `Int`.
    pub fn int(&self) -> Option<i64> {
        match self {
            Attr::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns the number of a `Float` or an `Int`, rounded to `f64`.
    pub fn float(&self) -> Option<f64> {
        match self {
            Attr::Float(x) => Some(x.get()),
            Attr::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// Returns the word of a `Word`.
    pub fn word(&self) -> Option<&str> {
        match self {
            Attr::Word(w) => Some(w),
            _ => None,
        }
    }

    /// Returns the truth value of a `Bool`.
    pub fn bool(&self) -> Option<bool> {
        match self {
            Attr::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the integers of an `Ints`.
    pub fn ints(&self) -> Option<&[i64]> {
        match self {
            Attr::Ints(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the shape of a `Shape`.
    pub fn shape(&self) -> Option<&Shape> {
        match self {
            Attr::Shape(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the loop's body, if the attribute is a `Graph`.
    pub fn graph(&self) -> Option<&SubGraph> {
        match self {
            Attr::Graph(g) => Some(g),
            _ => None,
        }
    }

    /// Returns the element type of a `DType`.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Attr::DType(d) => Some(*d),
            _ => None,
        }
    }
}

impl Attr {
    /// Returns the rank of a shape, which may also be written as a list of integers.
    pub(crate) fn rank(&self) -> Option<usize> {
        match self {
            Attr::Shape(s) => Some(s.rank()),
            Attr::Ints(n) => Some(n.len()),
            _ => None,
        }
    }
}

impl From<i64> for Attr {
    fn from(n: i64) -> Attr {
        Attr::Int(n)
    }
}

impl From<f64> for Attr {
    fn from(x: f64) -> Attr {
        Attr::Float(x.into())
    }
}

impl From<bool> for Attr {
    fn from(b: bool) -> Attr {
        Attr::Bool(b)
    }
}

impl From<&str> for Attr {
    fn from(w: &str) -> Attr {
        Attr::Word(w.into())
    }
}

impl From<&[i64]> for Attr {
    fn from(n: &[i64]) -> Attr {
        Attr::Ints(n.into())
    }
}

impl From<Shape> for Attr {
    fn from(s: Shape) -> Attr {
        Attr::Shape(s)
    }
}

impl From<DType> for Attr {
    fn from(d: DType) -> Attr {
        Attr::DType(d)
    }
}

impl fmt::Display for Attr {
    /// Writes the attribute in the syntax of graph text and of rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(n) => write!(f, "{n}"),
            // `{:?}` prints the shortest text that reads back as the same bits, always with a point or an exponent.
            Attr::Float(x) => write!(f, "{:?}", x.get()),
            Attr::Bool(b) => write!(f, "{b}"),
            Attr::Word(w) => f.write_str(w),
            Attr::Ints(n) => {
                f.write_str("[")?;
                for (i, n) in n.iter().enumerate() {
                    write!(f, "{}{n}", if i == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Attr::Shape(s) => write!(f, "{s}"),
            Attr::DType(d) => write!(f, "{d}"),
            Attr::Type(t) => write!(f, "{t}"),
            Attr::Tensor(t) => write!(f, "{t}"),
            Attr::Graph(g) => f.write_str(&g.name),
        }
    }
}
