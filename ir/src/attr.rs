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
    /// A number. Its bits are compared, so that nodes can be hashed. An integer that no `f64` represents is kept as an
    /// `Int`.
    Float(FloatBits),
    /// A truth value.
    Bool(bool),
    /// One word of a list that the op declares (`gelu-erf`), or a name.
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

/// An `f64` with total equality: by bits, all NaNs being one.
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
    /// One that an `f64` holds.
    Float(FloatBits),
    /// An integer that none holds.
    Int(i64),
}

impl Number {
    /// Returns its value, which an `f64` holds unless it is an `Int`: then it is the nearest one.
    pub fn get(self) -> f64 {
        match self {
            Number::Float(x) => x.get(),
            Number::Int(n) => n as f64,
        }
    }

    /// Returns its value if an `f64` holds it.
    pub fn float(self) -> Option<f64> {
        match self {
            Number::Float(x) => Some(x.get()),
            Number::Int(_) => None,
        }
    }

    /// Returns it as an integer, truncated and saturated.
    pub fn int(self) -> i64 {
        match self {
            Number::Float(x) => x.get() as i64,
            Number::Int(n) => n,
        }
    }

    /// Returns it as a tensor without axes, rounded or saturated to the element type.
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
    /// Returns the number of a `Float` or an `Int`, exactly.
    pub fn number(&self) -> Option<Number> {
        match self {
            Attr::Float(x) => Some(Number::Float(*x)),
            Attr::Int(n) => Some((*n).into()),
            _ => None,
        }
    }

    /// Returns the integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        match self {
            Attr::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns the number of a `Float` or an `Int`.
    pub fn float(&self) -> Option<f64> {
        match self {
            Attr::Float(x) => Some(x.get()),
            Attr::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// Returns the word, if it is one.
    pub fn word(&self) -> Option<&str> {
        match self {
            Attr::Word(w) => Some(w),
            _ => None,
        }
    }

    /// Returns the truth value, if it is one.
    pub fn bool(&self) -> Option<bool> {
        match self {
            Attr::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the integers, if it is a list.
    pub fn ints(&self) -> Option<&[i64]> {
        match self {
            Attr::Ints(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the shape, if it is one.
    pub fn shape(&self) -> Option<&Shape> {
        match self {
            Attr::Shape(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the body, if it is one.
    pub fn graph(&self) -> Option<&SubGraph> {
        match self {
            Attr::Graph(g) => Some(g),
            _ => None,
        }
    }

    /// Returns the element type, if it is one.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Attr::DType(d) => Some(*d),
            _ => None,
        }
    }
}

impl Attr {
    /// Returns the number of axes, of a shape (which may be written as a list of integers).
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
    /// As the text form and the rules write it.
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
