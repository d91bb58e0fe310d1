//! Reference evaluation of ops, generic over the type of scalars.
//!
//! Elements of floating tensors are a [`Scalar`]: `f64`, or a value with a running error bound. Elements of integer
//! and `bool` tensors are `i64`, wrapped to the width of their type. Views have no evaluation function, because their
//! index map suffices.

use crate::{Attr, Bounded, DType, Scalar, Tensor, Type};

/// An integer or a truth value; `None` if rounding decides it, so that a kernel's result cannot be judged.
pub type Whole = Option<i64>;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<S> {
    /// An element of a floating tensor.
    Real(S),
    /// An element of an integer or `bool` tensor.
    Int(Whole),
}

/// The elements of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Data<S> {
    /// Elements of a floating tensor.
    Real(Vec<S>),
    /// Elements of an integer or `bool` tensor.
    Int(Vec<Whole>),
}

/// A tensor during reference evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Value<S> {
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub dims: Vec<usize>,
    /// The elements, row-major.
    pub data: Data<S>,
}

/// One application of an op to whole tensors.
pub struct OpCall<'a, S> {
    /// The operands.
    pub operands: &'a [&'a Value<S>],
    /// The attributes.
    pub attrs: &'a [Attr],
    /// The type of the result.
    pub result: &'a Type,
}

/// A function that evaluates one element from the operands' elements, the attributes and the result's element type.
pub type ElementFn<S> = fn(&[Element<S>], &[Attr], DType) -> Element<S>;
/// A function that evaluates whole tensors. It returns several values if the op's result is a tuple.
pub type TensorFn<S> = fn(&OpCall<'_, S>) -> Vec<Value<S>>;

/// The evaluation of a pointwise op: one generic function, compiled for each type of scalar.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    /// Evaluates in `f64`.
    pub exact: ElementFn<f64>,
    /// Evaluates with error bounds.
    pub bounded: ElementFn<Bounded>,
}

/// The evaluation on whole tensors: one generic function, compiled for each type of scalar.
#[derive(Clone, Copy, Debug)]
pub struct Tensors {
    /// Evaluates in `f64`.
    pub exact: TensorFn<f64>,
    /// Evaluates with error bounds.
    pub bounded: TensorFn<Bounded>,
}

/// The reference evaluation of an op.
#[derive(Clone, Copy, Debug)]
pub enum Eval {
    /// A leaf, a projection or a loop, which the interpreter evaluates itself.
    Given,
    /// A view, which is read through its index map.
    View,
    /// A pointwise function of the operands, which broadcast by NumPy's rules.
    Elements(Elements),
    /// A function of whole tensors.
    Tensors(Tensors),
    /// The definition of a declared op, evaluated op by op.
    Defined,
}

/// Makes the evaluation of a pointwise op from an expression that is generic over a [`Scalar`] named `S`.
macro_rules! elements {
    (|$operands:pat_param, $attrs:pat_param, $to:pat_param| $body:expr) => {{
        fn eval<S: $crate::Scalar>(
            $operands: &[$crate::ops::eval::Element<S>],
            $attrs: &[$crate::Attr],
            $to: $crate::DType,
        ) -> $crate::ops::eval::Element<S> {
            $body
        }
        $crate::ops::eval::Eval::Elements($crate::ops::eval::Elements {
            exact: eval::<f64>,
            bounded: eval::<$crate::Bounded>,
        })
    }};
}

/// Makes the evaluation on whole tensors from the name of a function that is generic over a [`Scalar`].
macro_rules! tensors {
    ($eval:ident) => {
        $crate::ops::eval::Eval::Tensors($crate::ops::eval::Tensors {
            exact: $eval::<f64>,
            bounded: $eval::<$crate::Bounded>,
        })
    };
}

pub(crate) use {elements, tensors};

impl<S: Scalar> Element<S> {
    /// Returns the element rounded or wrapped to the element type `dtype`.
    pub fn store(self, dtype: DType) -> Element<S> {
        match self {
            Element::Real(x) => Element::Real(x.store(dtype)),
            Element::Int(n) => Element::Int(n.map(|n| dtype.wrap(n))),
        }
    }

    /// Returns an element that cannot be judged, because rounding decides its value.
    pub fn open(dtype: DType) -> Element<S> {
        match dtype.is_float() {
            true => Element::Real(S::element(0.0, dtype).either(S::element(f64::INFINITY, dtype))),
            false => Element::Int(None),
        }
    }

    /// Returns the scalar of a floating element.
    pub(crate) fn real(self) -> S {
        match self {
            Element::Real(x) => x,
            Element::Int(_) => unreachable!("the signature asks for floating elements"),
        }
    }

    /// Returns the integer of an integer or `bool` element.
    pub(crate) fn int(self) -> Whole {
        match self {
            Element::Int(n) => n,
            Element::Real(_) => unreachable!("the signature asks for integers or bool"),
        }
    }
}

impl<S: Scalar> Value<S> {
    /// Returns a tensor as a value for evaluation.
    pub fn from_tensor(tensor: &Tensor) -> Value<S> {
        let dtype = tensor.dtype();
        let data = if dtype.is_float() {
            Data::Real(tensor.to_f64().into_iter().map(|x| S::element(x, dtype)).collect())
        } else {
            Data::Int(tensor.to_i64().into_iter().map(Some).collect())
        };
        Value { dtype, dims: tensor.dims().to_vec(), data }
    }

    /// Returns a value of these elements, rounded or wrapped to `dtype`. They must be all floating or all integers,
    /// as `dtype` is.
    pub fn from_elements(dtype: DType, dims: &[usize], elements: impl Iterator<Item = Element<S>>) -> Value<S> {
        let elements = elements.map(|e| e.store(dtype));
        let data = match dtype.is_float() {
            true => Data::Real(elements.map(Element::real).collect()),
            false => Data::Int(elements.map(Element::int).collect()),
        };
        Value { dtype, dims: dims.to_vec(), data }
    }

    /// Returns a floating value of these elements, rounded to `dtype`.
    pub fn from_reals(dtype: DType, dims: &[usize], elements: impl IntoIterator<Item = S>) -> Value<S> {
        Value::from_elements(dtype, dims, elements.into_iter().map(Element::Real))
    }

    /// Returns the tensor of the values, rounded to the element type. Elements that cannot be judged are NaN or 0.
    pub fn to_tensor(&self) -> Tensor {
        match &self.data {
            Data::Real(x) => Tensor::from_f64(self.dtype, &self.dims, x.iter().map(|x| x.value())),
            Data::Int(n) => Tensor::from_i64(self.dtype, &self.dims, n.iter().map(|n| n.unwrap_or(0))),
        }
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the type.
    pub fn ty(&self) -> Type {
        Type::tensor(self.dtype, &self.dims)
    }

    /// Returns one element, by its row-major offset.
    pub fn get(&self, at: usize) -> Element<S> {
        match &self.data {
            Data::Real(x) => Element::Real(x[at]),
            Data::Int(n) => Element::Int(n[at]),
        }
    }

    /// Returns the elements of a floating tensor.
    pub(crate) fn reals(&self) -> &[S] {
        match &self.data {
            Data::Real(x) => x,
            Data::Int(_) => unreachable!("the signature asks for floating elements"),
        }
    }

    /// Returns the extent of the `n`th axis from the end, where 0 is the last axis.
    pub(crate) fn extent(&self, n: usize) -> usize {
        self.dims[self.dims.len() - 1 - n]
    }

    /// Returns the rows of a floating tensor along the last axis.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[S]> {
        let row = self.extent(0);
        (0..self.count().checked_div(row).unwrap_or(0)).map(move |i| &self.reals()[i * row..(i + 1) * row])
    }
}

impl<S: Scalar> OpCall<'_, S> {
    /// Returns element type and extents of the only result.
    pub(crate) fn result(&self) -> (DType, Vec<usize>) {
        let dtype = self.result.dtype().expect("only ops with one result call this");
        (dtype, self.result.dims().expect("all symbols are bound"))
    }

    /// Returns the only result, of floating elements.
    pub(crate) fn reals(&self, elements: impl IntoIterator<Item = S>) -> Vec<Value<S>> {
        let (dtype, dims) = self.result();
        vec![Value::from_reals(dtype, &dims, elements)]
    }

    /// Applies a function to each element of the first `count` operands, whose elements must be floating-point numbers.
    pub(crate) fn through(&self, count: usize, f: fn(S) -> S) -> Vec<Value<S>> {
        let of = |x: &&Value<S>| Value::from_reals(x.dtype, &x.dims, x.reals().iter().map(|&v| f(v)));
        self.operands[..count].iter().map(of).collect()
    }

    /// Returns a number among the attributes, as a constant of the formula.
    pub(crate) fn number(&self, attr: usize) -> S {
        S::exact(self.attrs[attr].float().expect("the op table declares a number"))
    }
}

/// Returns the flat offsets at which the points of a domain, in row-major order, read an operand with these strides.
pub fn offsets(domain: &[usize], strides: &[i64], start: i64) -> Vec<i64> {
    domain.iter().zip(strides).fold(vec![start], |starts, (&extent, &stride)| {
        starts.iter().flat_map(|&s| (0..extent as i64).map(move |i| s + i * stride)).collect()
    })
}

/// Returns the strides at which a tensor is read when it is broadcast to `rank` axes by NumPy's rules.
pub fn broadcast_strides(dims: &[usize], rank: usize) -> Vec<i64> {
    let own = crate::index::strides(dims);
    let stride = |i: usize| if dims[i] == 1 { 0 } else { own[i] as i64 };
    std::iter::repeat_n(0, rank - dims.len()).chain((0..dims.len()).map(stride)).collect()
}
