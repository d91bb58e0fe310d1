//! Values of the reference: a tensor of the program as written, and data that determine how far another result may
//! differ.

use eutectic_ir::{Bounded, Dim, Tensor, Type, ops::eval::Value};

/// A tensor of the program as written.
#[derive(Clone)]
pub(crate) struct Expected {
    /// The tensor, followed by the same tensor from runs with disturbed inputs and parameters.
    pub lanes: Vec<Tensor>,
    /// The tensor with its propagated error bound, if the program is small enough to be interpreted.
    pub bounded: Option<Value<Bounded>>,
}

impl Expected {
    /// Returns the slice at an index of the outermost axis.
    pub fn part(&self, at: usize) -> Expected {
        let lane = |tensor: &Tensor| {
            let dims = &tensor.dims()[1..];
            let bytes = dims.iter().product::<usize>() * tensor.dtype().size();
            let part = tensor.bytes()[at * bytes..(at + 1) * bytes].to_vec();
            Tensor::new(tensor.dtype(), dims, part).expect("the bytes have the size of the part")
        };
        let bounded = self.bounded.as_ref().map(|value| {
            let count = value.dims[1..].iter().product::<usize>();
            let elements = (at * count..(at + 1) * count).map(|i| value.get(i));
            Value::from_elements(value.dtype, &value.dims[1..], elements)
        });
        Expected { lanes: self.lanes.iter().map(lane).collect(), bounded }
    }

    /// Stacks the tensors along a new outermost axis. `one` is the type of each.
    pub fn stack(all: &[Expected], one: &Type, lanes: usize, bounded: bool) -> Expected {
        let (dtype, dims) = one.dtype().zip(one.dims()).expect("results of loops have known dims");
        let stacked = [&[all.len()], dims.as_slice()].concat();
        let lane = |lane: usize| {
            let bytes: Vec<u8> = all.iter().flat_map(|one| one.lanes[lane].bytes()).copied().collect();
            Tensor::new(dtype, &stacked, bytes).expect("the bytes have the size of all parts")
        };
        let bounded = bounded.then(|| {
            let parts = all.iter().filter_map(|one| one.bounded.as_ref());
            let elements = parts.flat_map(|part| (0..part.count()).map(|i| part.get(i)));
            Value::from_elements(dtype, &stacked, elements)
        });
        Expected { lanes: (0..lanes).map(lane).collect(), bounded }
    }
}

/// Returns a type with numbers for its run-time extents.
pub(crate) fn at_lengths(ty: &Type, lengths: &[(String, usize)]) -> Type {
    ty.bind(&|name| lengths.iter().find(|(known, _)| known == name).map(|(_, length)| Dim::from(*length)))
}
