//! Tensor types: an element type and a shape.

use std::fmt;

use smallvec::SmallVec;

use crate::{DType, Dim};

/// The extents of a tensor, from the outermost axis to the innermost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(pub SmallVec<[Dim; 5]>);

impl Shape {
    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the extents as numbers, or `None` if a symbol is unbound or an extent is negative.
    pub fn known(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|d| d.known().and_then(|n| usize::try_from(n).ok())).collect()
    }

    /// Returns the greatest extents, which determine a buffer's layout. Returns `None` if the shape has a symbol
    /// without bounds.
    pub fn capacity(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|d| d.capacity().and_then(|n| usize::try_from(n).ok())).collect()
    }

    /// Returns whether the shape contains an extent at run time.
    pub fn varies(&self) -> bool {
        self.0.iter().any(Dim::varies)
    }

    /// Returns the maximal number of terms of [`Shape::count`].
    pub(crate) fn count_terms(&self) -> usize {
        self.0.iter().map(Dim::count_terms).fold(1, usize::saturating_mul)
    }

    /// Returns the number of elements, which is symbolic if an extent is.
    pub fn count(&self) -> Dim {
        self.0.iter().fold(Dim::Known(1), |n, d| &n * d)
    }

    /// Returns the position of an axis that is counted from the start, or from the end if it is negative. Returns
    /// `None` if it is out of range.
    pub fn position(&self, axis: i64) -> Option<usize> {
        let rank = i64::try_from(self.rank()).ok()?;
        let at = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&at).then_some(at as usize)
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Shape {
        Shape(dims.into_iter().map(Into::into).collect())
    }
}

impl std::ops::Deref for Shape {
    type Target = [Dim];

    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { " " })?;
        }
        f.write_str("]")
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// A tensor.
    Tensor(DType, Shape),
    /// The results of an op with several results. The op `get` selects one.
    Tuple(Vec<Type>),
}

impl Type {
    /// Returns a tensor type whose extents are numbers.
    pub fn tensor(dtype: DType, dims: &[usize]) -> Type {
        Type::Tensor(dtype, dims.iter().copied().collect())
    }

    /// Returns the element type and the shape of a tensor; `None` for a tuple.
    pub fn as_tensor(&self) -> Option<(DType, &Shape)> {
        match self {
            Type::Tensor(dtype, shape) => Some((*dtype, shape)),
            Type::Tuple(_) => None,
        }
    }

    /// Returns the element type; `None` for a tuple.
    pub fn dtype(&self) -> Option<DType> {
        self.as_tensor().map(|t| t.0)
    }

    /// Returns the extents as numbers; `None` for a tuple, or if an extent has a symbol.
    pub fn dims(&self) -> Option<Vec<usize>> {
        self.as_tensor().and_then(|(_, shape)| shape.known())
    }

    /// Returns the greatest extents; `None` for a tuple, or if an extent has a symbol without bounds.
    pub fn capacity(&self) -> Option<Vec<usize>> {
        self.as_tensor().and_then(|(_, shape)| shape.capacity())
    }

    /// Returns whether the type contains an extent at run time.
    pub fn varies(&self) -> bool {
        match self {
            Type::Tensor(_, shape) => shape.varies(),
            Type::Tuple(parts) => parts.iter().any(Type::varies),
        }
    }

    /// Returns the number of elements, saturating; for a tuple, that of all its tensors. Extents at run time count
    /// with their greatest lengths. The number is 0 if a symbol has no bounds.
    pub fn count(&self) -> usize {
        match self {
            Type::Tensor(_, shape) => {
                shape.capacity().map_or(0, |dims| dims.into_iter().fold(1, usize::saturating_mul))
            }
            Type::Tuple(parts) => parts.iter().map(Type::count).sum(),
        }
    }

    /// Returns the number of bytes of all elements, counted like [`Type::count`].
    pub fn bytes(&self) -> usize {
        match self {
            Type::Tensor(dtype, _) => self.count().saturating_mul(dtype.size()),
            Type::Tuple(parts) => parts.iter().map(Type::bytes).sum(),
        }
    }

    /// Replaces symbols by their values. Symbols without a value stay.
    pub fn bind(&self, value: &dyn Fn(&str) -> Option<Dim>) -> Type {
        match self {
            Type::Tensor(dtype, shape) => Type::Tensor(*dtype, shape.iter().map(|d| d.bind(value)).collect()),
            Type::Tuple(parts) => Type::Tuple(parts.iter().map(|t| t.bind(value)).collect()),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(dtype, shape) => write!(f, "{dtype}{shape}"),
            Type::Tuple(parts) => {
                f.write_str("(")?;
                for (i, t) in parts.iter().enumerate() {
                    write!(f, "{}{t}", if i == 0 { "" } else { " " })?;
                }
                f.write_str(")")
            }
        }
    }
}
