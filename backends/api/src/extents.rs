//! Extents at run time: derives the kernel for given extents, and the memory layout of a tensor of given extents. The
//! extents of one run are called its lengths.
//!
//! Memory is laid out for the maximal extents, whatever the lengths of a run are. So strides never change, and elements
//! of states keep their addresses. A run touches only elements within its lengths. Tensors of the host are dense, with
//! the lengths of the run.

use std::{borrow::Cow, ops::Range};

use eutectic_ir::{Dim, Symbol, Type};
use smallvec::SmallVec;

use crate::{
    body::{Body, Instr, Store},
    error::BackendError,
    kernel::Kernel,
    program::Program,
};

/// Maps the name of an extent at run time to its value.
pub type Lengths<'a> = &'a dyn Fn(&str) -> Option<Dim>;

impl Body {
    /// Returns whether the body has an extent at run time, in its domain, an index map or the range of an index.
    pub fn varies(&self) -> bool {
        let within = |i: &Instr| matches!(i, Instr::Within { extent, .. } if extent.varies());
        !self.lengths.is_empty()
            || self.instrs.iter().any(|i| within(i) || i.maps().into_iter().any(eutectic_ir::index::Index::varies))
    }

    fn bind(&mut self, lengths: Lengths<'_>) {
        self.lengths.retain(|(axis, length)| match length.bind(lengths).known() {
            Some(n) => {
                self.domain[*axis] = usize::try_from(n).unwrap_or(0).min(self.domain[*axis]);
                false
            }
            None => true,
        });
        for instr in &mut self.instrs {
            instr.maps_mut().into_iter().for_each(|map| *map = map.bind(lengths, &self.domain));
            if let Instr::Within { extent, .. } = instr {
                *extent = extent.bind(lengths);
            }
        }
    }
}

impl Kernel {
    /// Returns whether the kernel has extents at run time.
    pub fn varies(&self) -> bool {
        self.bodies().into_iter().any(Body::varies)
            || self.stores.iter().flat_map(Store::maps).any(eutectic_ir::index::Index::varies)
    }

    /// Returns the kernel at these lengths, in normal form, or the kernel itself if it has no extents at run time. This
    /// function defines the meaning of a kernel with extents at run time. A backend may compile one kernel that takes
    /// the lengths as arguments, or a kernel for each set of lengths.
    pub fn at(&self, lengths: Lengths<'_>) -> Cow<'_, Kernel> {
        if !self.varies() {
            return Cow::Borrowed(self);
        }
        let mut kernel = self.clone();
        kernel.bodies_mut().into_iter().for_each(|body| body.bind(lengths));
        let domain = &kernel.body.domain;
        let maps = kernel.stores.iter_mut().flat_map(Store::maps_mut);
        maps.for_each(|map| *map = map.bind(lengths, domain));
        kernel.normalise();
        Cow::Owned(kernel)
    }

    /// Returns the kernel at its maximal extents. Prices and the load program use it.
    pub fn longest(&self) -> Cow<'_, Kernel> {
        self.within(|_, most| most)
    }

    /// Returns the kernel of the shortest run that computes something: extents are at their minimum, but at least 1.
    /// Returns `None` if the kernel has no extents at run time.
    pub fn shortest(&self) -> Option<Kernel> {
        self.varies().then(|| self.within(|least, most| least.max(1).min(most)).into_owned())
    }

    /// Returns the kernel with every extent one below its maximum; `None` if it has no extents at run time. Memory is
    /// laid out for the maximum, so this kernel keeps axes separate that [`Kernel::longest`] merges with neighbours.
    pub fn shorter(&self) -> Option<Kernel> {
        self.varies().then(|| self.within(|least, most| (most - 1).max(least)).into_owned())
    }

    /// Returns the kernel with each extent computed by `choose` from its minimum and maximum.
    fn within(&self, choose: impl Fn(i64, i64) -> i64) -> Cow<'_, Kernel> {
        if !self.varies() {
            return Cow::Borrowed(self);
        }
        let symbols = self.symbols();
        self.at(&|name| {
            let (least, most) = symbols.iter().find(|s| &*s.name == name)?.bounds?;
            Some(Dim::Known(choose(least, most)))
        })
    }

    /// Returns the symbols of the kernel's extents at run time. They are its arguments in addition to its buffers.
    pub fn symbols(&self) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        for body in self.bodies() {
            symbols.extend(body.lengths.iter().flat_map(|(_, length)| length.symbols()));
            for instr in &body.instrs {
                symbols.extend(instr.maps().into_iter().flat_map(|map| map.symbols()));
                if let Instr::Within { extent, .. } = instr {
                    symbols.extend(extent.symbols());
                }
            }
        }
        symbols.extend(self.stores.iter().flat_map(Store::maps).flat_map(|map| map.symbols()));
        symbols.sort();
        symbols.dedup();
        symbols
    }
}

impl Program {
    /// Returns a map from names to extents, given lengths in the order of [`Program::extents`].
    pub fn lengths<'a>(&'a self, lengths: &'a [usize]) -> impl Fn(&str) -> Option<Dim> + 'a {
        |name| {
            let at = self.extents.iter().position(|symbol| &*symbol.name == name)?;
            Some(Dim::from(*lengths.get(at)?))
        }
    }

    /// Checks that there is one length for each of [`Program::extents`], within its bounds.
    ///
    /// # Errors
    /// Returns an error if the number of lengths differs, or if a length is out of bounds. The error then names the
    /// first such extent.
    pub fn check_lengths(&self, lengths: &[usize]) -> Result<(), BackendError> {
        let wrong = |name: &str, problem| BackendError::Binding { what: "extent", name: name.into(), problem };
        if lengths.len() != self.extents.len() {
            let (given, count) = (lengths.len(), self.extents.len());
            let problem = format!("cannot set {given} lengths because the program has {count}; give one for each");
            return Err(wrong("*", problem));
        }
        for (symbol, &length) in self.extents.iter().zip(lengths) {
            let (least, most) = symbol.bounds.unwrap_or_default();
            if !i64::try_from(length).is_ok_and(|n| (least..=most).contains(&n)) {
                let problem = format!("cannot be {length} because the program was compiled for {least} to {most}");
                return Err(wrong(&symbol.name, problem));
            }
        }
        Ok(())
    }

    /// Returns the maximum of each of [`Program::extents`].
    pub fn most(&self) -> Vec<usize> {
        let most = |symbol: &Symbol| symbol.bounds.and_then(|(_, most)| usize::try_from(most).ok()).unwrap_or(0);
        self.extents.iter().map(most).collect()
    }
}

/// The positions of the elements of a tensor of given lengths, in memory that is laid out for the maximal extents. The
/// tensor consists of chunks of contiguous bytes, all of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The size of a chunk in bytes.
    chunk: usize,
    /// For each loop over chunks, outermost first: the number of iterations, and the distance of two chunks in bytes.
    loops: SmallVec<[(usize, usize); 4]>,
}

impl Placement {
    /// Returns the placement of a tensor at these lengths; `None` if `lengths` gives no value for an extent, or an
    /// extent has no maximum.
    pub fn new(ty: &Type, lengths: Lengths<'_>) -> Option<Placement> {
        let (dtype, shape) = ty.as_tensor()?;
        let mut placement = Placement { chunk: dtype.size(), loops: SmallVec::new() };
        let mut stride = dtype.size();
        for dim in shape.iter().rev() {
            let extent = usize::try_from(dim.bind(lengths).known()?).ok()?;
            let most = usize::try_from(dim.capacity()?).ok()?;
            match placement.loops.is_empty() && placement.chunk == stride {
                true => placement.chunk *= extent,
                false if extent == 1 => {}
                false => placement.loops.insert(0, (extent, stride)),
            }
            stride *= most;
        }
        Some(placement)
    }

    /// Returns the size of the dense tensor in bytes.
    pub fn bytes(&self) -> usize {
        self.loops.iter().fold(self.chunk, |bytes, (count, _)| bytes * count)
    }

    /// Returns whether the tensor is contiguous from the first byte on.
    pub fn is_dense(&self) -> bool {
        self.loops.is_empty()
    }

    /// Copies a dense tensor to its positions in memory.
    pub fn spread(&self, dense: &[u8], memory: &mut [u8]) {
        self.chunks().for_each(|(to, from)| memory[to].copy_from_slice(&dense[from]));
    }

    /// Copies a tensor from its positions in memory to a dense tensor.
    pub fn gather(&self, memory: &[u8], dense: &mut [u8]) {
        self.chunks().for_each(|(from, to)| dense[to].copy_from_slice(&memory[from]));
    }

    /// Returns two byte ranges for each contiguous chunk: its range in memory, and its range in the dense tensor.
    pub fn chunks(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let chunk = self.chunk;
        let count = self.bytes().checked_div(chunk).unwrap_or(0);
        (0..count).map(move |n| {
            let (mut rest, mut at) = (n, 0);
            for (count, stride) in self.loops.iter().rev() {
                at += rest % count * stride;
                rest /= count;
            }
            (at..at + chunk, n * chunk..(n + 1) * chunk)
        })
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::DType;

    use super::*;

    #[test]
    fn tensors_go_to_their_places_and_back() {
        let (s, t) = (Dim::between("S", 0, 5), Dim::between("T", 0, 3));
        let ty = |dims: &[&Dim]| Type::Tensor(DType::F16, dims.iter().map(|d| (*d).clone()).collect());
        let two = Dim::Known(2);
        for (ty, dense_at) in [
            (ty(&[&s, &two]), vec![0, 1, 4, 5]),
            (ty(&[&two, &s]), vec![0, 5]),
            (ty(&[&two, &s, &t, &two]), vec![0, 5]),
            (ty(&[&t, &Dim::Known(1), &s]), vec![0, 5]),
        ] {
            for (n, m) in (0..=5).flat_map(|n| (0..=3).map(move |m| (n, m))) {
                let lengths = |name: &str| Some(Dim::Known(if name == "S" { n } else { m }));
                let placement = Placement::new(&ty, &lengths).expect("all extents are known");
                let Type::Tensor(_, shape) = ty.bind(&lengths) else { unreachable!("the bound type is a tensor") };
                let dims = shape.known().expect("all bound extents are numbers");
                let count: usize = dims.iter().product();
                assert_eq!(placement.bytes(), 2 * count);
                if dense_at.contains(&n) && ty.as_tensor().is_some_and(|(_, shape)| shape[0] == s) {
                    assert!(placement.is_dense());
                }
                let dense: Vec<u8> = (1..=2 * count as u8).collect();
                let mut memory = vec![0; ty.bytes()];
                placement.spread(&dense, &mut memory);
                // Each element must be at the index that the strides of the maximal extents give.
                let most = ty.capacity().expect("all extents have bounds");
                for point in 0..count {
                    let (mut rest, mut at, mut stride) = (point, 0, 1);
                    for (extent, most) in dims.iter().zip(&most).rev() {
                        at += rest % extent * stride;
                        rest /= extent;
                        stride *= most;
                    }
                    assert_eq!(memory[2 * at..2 * at + 2], dense[2 * point..2 * point + 2], "{ty} {dims:?} {point}");
                }
                let mut again = vec![0; dense.len()];
                placement.gather(&memory, &mut again);
                assert_eq!(again, dense);
            }
        }
    }
}
