//! Tensors as arrays of the crate `ndarray`, and arrays as tensors (feature `ndarray`).

use ndarray::{Array, ArrayViewD, Dimension, IxDyn};

use crate::{DType, Tensor, tensor::TensorElement};

/// The reason why a tensor cannot be viewed as an array of `ndarray`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoView {
    /// The elements have another type.
    #[error("cannot view {have} as {asked} because these are different element types; ask for {have}")]
    ElementType {
        /// The element type of the tensor.
        have: DType,
        /// The element type that was asked for.
        asked: DType,
    },
    /// The tensor is a part of a file that is not aligned.
    #[error(
        "cannot view the tensor because its memory is not aligned for {0}; copy the elements with `Tensor::values`"
    )]
    Alignment(DType),
    /// The extents are too large for `ndarray`.
    #[error("cannot view the tensor because `ndarray` rejects its extents ({0}); reshape it")]
    Extents(String),
}

impl Tensor {
    /// Returns the tensor as an array of `ndarray`, without a copy.
    ///
    /// ```
    /// use eutectic_ir::Tensor;
    /// use ndarray::{array, Axis};
    ///
    /// let x = Tensor::from(array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.ty().to_string(), "f32[2 3]");
    /// let rows = x.view::<f32>()?.sum_axis(Axis(1));
    /// assert_eq!(rows, array![6.0, 15.0].into_dyn());
    /// assert!(x.view::<f64>().unwrap_err().to_string().contains("cannot view f32 as f64"));
    /// # Ok::<(), eutectic_ir::NoView>(())
    /// ```
    ///
    /// # Errors
    /// If the elements have another type, or memory that is not aligned for it. Results of runs are aligned.
    pub fn view<T: TensorElement>(&self) -> Result<ArrayViewD<'_, T>, NoView> {
        if T::DTYPE != self.dtype() {
            return Err(NoView::ElementType { have: self.dtype(), asked: T::DTYPE });
        }
        let elements = match self.bytes() {
            // The address of no elements need not be aligned.
            [] => &[],
            bytes => bytemuck::try_cast_slice(bytes).map_err(|_| NoView::Alignment(self.dtype()))?,
        };
        ArrayViewD::from_shape(IxDyn(self.dims()), elements).map_err(|error| NoView::Extents(error.to_string()))
    }
}

impl<T: TensorElement + Send + Sync, D: Dimension> From<Array<T, D>> for Tensor {
    /// Converts an array to a tensor. Copies the elements only if the array is not row-major.
    fn from(array: Array<T, D>) -> Tensor {
        let dims = array.shape().to_vec();
        let array = if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() };
        let (elements, offset) = array.into_raw_vec_and_offset();
        let count = dims.iter().product();
        Tensor::new(T::DTYPE, &dims, Elements { elements, start: offset.unwrap_or(0), count })
            .expect("an array has as many elements as its extents say")
    }
}

/// The elements of a row-major array: `count` elements of a vector, from the index `start` on.
struct Elements<T> {
    elements: Vec<T>,
    start: usize,
    count: usize,
}

impl<T: TensorElement> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.elements[self.start..][..self.count])
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array3, ArrayD, Axis, s};

    use super::*;

    fn array() -> Array3<i32> {
        Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as i32)
    }

    #[test]
    fn arrays_are_tensors_whatever_their_order_in_memory() {
        let all: [ArrayD<i32>; 5] = [
            array().into_dyn(),
            array().permuted_axes([2, 0, 1]).into_dyn(),
            array().slice_move(s![.., 1..;1, ..;2]).into_dyn(),
            array().slice_move(s![1.., .., ..]).into_dyn(),
            array().slice_move(s![..;-1, .., 0..0]).into_dyn(),
        ];
        for array in all {
            let tensor = Tensor::from(array.clone());
            assert_eq!(tensor.dims(), array.shape());
            assert_eq!(tensor.to_i64(), array.iter().map(|n| i64::from(*n)).collect::<Vec<_>>());
            assert_eq!(tensor.view::<i32>().expect("it is aligned"), array);
        }
        assert_eq!(Tensor::from(array()).view::<i32>().expect("it is aligned").len_of(Axis(2)), 4);
    }

    #[test]
    fn nothing_is_copied() {
        let array = array();
        let at = array.as_ptr();
        let tensor = Tensor::from(array);
        assert_eq!(tensor.view::<i32>().expect("it is aligned").as_ptr(), at);
    }

    #[test]
    fn memory_that_is_not_aligned_has_no_view() {
        struct Unaligned(Vec<u32>);
        impl AsRef<[u8]> for Unaligned {
            fn as_ref(&self) -> &[u8] {
                &bytemuck::cast_slice(&self.0)[1..9]
            }
        }
        let tensor = Tensor::new(DType::U32, &[2], Unaligned(vec![1, 2, 3])).expect("eight bytes");
        assert_eq!(tensor.view::<u32>(), Err(NoView::Alignment(DType::U32)));
        assert_eq!(tensor.values::<u32>().expect("a copy").len(), 2);
        let empty = Tensor::new(DType::F64, &[0, 3], Vec::new()).expect("no bytes");
        assert_eq!(empty.view::<f64>().expect("nothing needs no alignment").shape(), [0, 3]);
    }
}
