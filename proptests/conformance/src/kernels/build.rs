//! Builds kernels with buffers full of random numbers.

use eutectic_backend::{Body, Guard, Instr, Kernel, Load, Store, ValueId};
use eutectic_ir::{
    Attr, DType, Op, Tensor,
    index::{Index, flatten, unflatten},
};

use super::Random;

/// A builder of a kernel.
pub struct Build {
    /// The source of random choices.
    pub random: Random,
    /// The element type and the number of elements of each slot.
    pub slots: Vec<(DType, usize)>,
    /// The contents of each slot that is read.
    pub inputs: Vec<Tensor>,
    /// The stores of the kernel.
    pub stores: Vec<Store>,
}

impl Build {
    /// Returns an empty builder.
    pub fn new(seed: u64) -> Build {
        Build { random: Random(seed), slots: Vec::new(), inputs: Vec::new(), stores: Vec::new() }
    }

    /// Adds a slot of random numbers, and returns its index.
    pub fn input(&mut self, dtype: DType, count: usize) -> usize {
        let (low, high) = match dtype {
            d if d.is_float() => (-2.0, 2.0),
            DType::Bool => (0.0, 2.0),
            DType::U8 | DType::U16 | DType::U32 => (0.0, 9.0),
            _ => (-8.0, 9.0),
        };
        let values: Vec<f64> = (0..count).map(|_| self.random.between(low, high)).collect();
        let values = values.into_iter().map(|x| if dtype.is_float() { x } else { x.floor() });
        self.tensor(Tensor::from_f64(dtype, &[count], values.collect::<Vec<_>>()))
    }

    /// Adds a slot with the elements of a tensor, and returns its index.
    pub fn tensor(&mut self, tensor: Tensor) -> usize {
        self.slots.push((tensor.dtype(), tensor.count()));
        self.inputs.push(tensor);
        self.slots.len() - 1
    }

    /// Adds a load of a slot.
    pub fn load(&mut self, body: &mut Body, slot: usize, at: Index) -> ValueId {
        let dtype = self.slots[slot].0;
        push(body, Instr::Load(Load { slot, at, guards: Vec::new(), dtype }))
    }

    /// Adds a load of a new contiguous slot with the domain's shape.
    pub fn dense(&mut self, body: &mut Body, dtype: DType) -> ValueId {
        let slot = self.input(dtype, body.domain.iter().product());
        let at = row_major(&body.domain);
        self.load(body, slot, at)
    }

    /// Adds a load of a new slot in a random layout: permuted, broadcast along some axes, a slice of a larger tensor,
    /// or a reshape.
    pub fn any(&mut self, body: &mut Body, dtype: DType) -> ValueId {
        let domain = body.domain.clone();
        let mut coords: Vec<_> = (0..domain.len()).collect();
        for i in (1..coords.len()).rev() {
            let j = self.random.below(i + 1);
            if self.random.below(2) == 0 {
                coords.swap(i, j);
            }
        }
        let mut at = Vec::new();
        let mut dims = Vec::new();
        for c in coords {
            match self.random.below(6) {
                0 => {}
                1 => {
                    let (offset, step) = (self.random.below(3), 1 + self.random.below(2));
                    dims.push(offset + step * domain[c]);
                    at.push(Index::coord(c).times(step as i64).plus(&Index::constant(offset as i64)));
                }
                _ => {
                    dims.push(domain[c]);
                    at.push(Index::coord(c));
                }
            }
        }
        let mut index = flatten(&at, &dims);
        let count: usize = dims.iter().product();
        // A third of the loads are a transpose of a reshape whose axes differ from the domain's.
        if count > 0 && self.random.below(3) == 0 {
            let by = [2, 3, 4, 5, 7].into_iter().find(|by| count.is_multiple_of(*by)).unwrap_or(1);
            let split = unflatten(&index, &[count / by, by], &domain);
            index = flatten(&[split[1].clone(), split[0].clone()], &[by, count / by]);
        }
        let slot = self.input(dtype, count);
        self.load(body, slot, index)
    }

    /// Adds a selection of one or two loads. The first piece whose guards hold gives the value. If there is none, a
    /// number does.
    pub fn pieces(&mut self, body: &mut Body, dtype: DType) -> ValueId {
        let first = self.guard(&body.domain);
        let value = self.any(body, dtype);
        if let Instr::Load(load) = &mut body.instrs[value] {
            load.guards = vec![first.clone()];
        }
        let mut pieces = vec![(vec![first], value)];
        if self.random.below(2) == 0 {
            let guards = (0..1 + self.random.below(2)).map(|_| self.guard(&body.domain)).collect();
            pieces.push((guards, self.any(body, dtype)));
        }
        let fill = self.random.pick(&[0.0, -1.5]);
        push(body, Instr::Select { pieces, fill: fill.into(), dtype })
    }

    /// Returns a random guard: a coordinate, perhaps counted from the end, must be in a range of its axis.
    fn guard(&mut self, domain: &[usize]) -> Guard {
        let axis = self.random.below(domain.len());
        let n = domain[axis];
        let from = self.random.below(n.max(1));
        let to = from + self.random.below(n - from.min(n) + 1);
        let coordinate = Index::coord(axis);
        let from_end = Index::constant(n as i64 - 1).plus(&coordinate.times(-1));
        (if self.random.below(2) == 0 { coordinate } else { from_end }, from as i64..to as i64)
    }

    /// Adds a store of a value to a new contiguous slot with the domain's shape.
    pub fn store(&mut self, domain: &[usize], dtype: DType, value: ValueId) {
        self.store_at(domain.iter().product(), row_major(domain), dtype, value);
    }

    /// Adds a store of a value at the index `at` of a new slot with `count` elements.
    pub fn store_at(&mut self, count: usize, at: Index, dtype: DType, value: ValueId) {
        self.slots.push((dtype, count));
        self.stores.push(Store::new(self.slots.len() - 1, at, value));
    }

    /// Adds a store of a part of the points to a new contiguous slot. The part is a random range of up to two axes,
    /// counted as one axis.
    pub fn store_part(&mut self, domain: &[usize], dtype: DType, value: ValueId) {
        let mut axes: Vec<_> = (0..domain.len()).filter(|_| self.random.below(2) == 0).collect();
        axes.truncate(2);
        let (mut index, mut extent) = (Index::default(), 1);
        for &axis in &axes {
            index = index.times(domain[axis] as i64).plus(&Index::coord(axis));
            extent *= domain[axis];
        }
        let from = self.random.below(extent.max(1));
        let len = self.random.below(extent - from.min(extent) + 1);
        let (mut dims, mut at) = (vec![len], vec![index.plus(&Index::constant(-(from as i64)))]);
        for axis in (0..domain.len()).filter(|axis| !axes.contains(axis)) {
            dims.push(domain[axis]);
            at.push(Index::coord(axis));
        }
        self.store_at(dims.iter().product(), flatten(&at, &dims), dtype, value);
        if let Some(store) = self.stores.last_mut() {
            store.guards.push((index, from as i64..(from + len) as i64));
        }
    }

    /// Returns the kernel, and the contents of each slot that it reads.
    pub fn kernel(self, anchor: eutectic_backend::AnchorKernel, body: Body) -> (Kernel, Vec<Tensor>) {
        (Kernel { anchor, body, stores: self.stores, slots: self.slots }, self.inputs)
    }
}

/// Returns the index of a domain's point in a contiguous tensor of that shape.
pub fn row_major(domain: &[usize]) -> Index {
    flatten(&(0..domain.len()).map(Index::coord).collect::<Vec<_>>(), domain)
}

/// Returns an empty body.
pub fn body(domain: &[usize]) -> Body {
    Body { domain: domain.to_vec(), ..Body::default() }
}

/// Adds an instruction, and returns its value.
pub fn push(body: &mut Body, instr: Instr) -> ValueId {
    body.instrs.push(instr);
    body.instrs.len() - 1
}

/// Adds a pointwise op without attributes.
///
/// # Panics
/// If there is no such op.
pub fn map(body: &mut Body, op: &str, args: &[ValueId], dtype: DType) -> ValueId {
    map_with(body, op, &[], args, dtype)
}

/// Adds a pointwise op.
///
/// # Panics
/// If there is no such op.
pub fn map_with(body: &mut Body, op: &str, attrs: &[Attr], args: &[ValueId], dtype: DType) -> ValueId {
    let op = Op::named(op).unwrap_or_else(|| panic!("there is no op {op}"));
    push(body, Instr::Map { op, attrs: attrs.iter().cloned().collect(), args: args.to_vec(), dtype })
}

/// Adds a constant.
pub fn constant(body: &mut Body, value: f64, dtype: DType) -> ValueId {
    push(body, Instr::Constant { value: value.into(), dtype })
}
