//! Splits off the ops of an epilogue that micro-kernels apply to sums in registers.

use eutectic_backend::{Instr, Load, ValueId, axes::Nest};
use eutectic_ir::{Attr, DType};

use crate::{kernels::slots::Slots, tile::Tile};

/// The ops that micro-kernels apply to sums: the addition of a row and of a matrix, and a lower bound of zero.
#[derive(Clone, Debug, Default)]
pub struct InRegisters {
    /// Slot and first element of the row that is added to each row of the product.
    pub row: Option<(usize, i64)>,
    /// The matrix that is added, with contiguous columns.
    pub matrix: Option<StridedSlot>,
    /// Whether negative results become zero.
    pub relu: bool,
}

/// Elements of a slot at strides along the axes of a result.
#[derive(Clone, Debug)]
pub struct StridedSlot {
    /// The slot.
    pub slot: usize,
    /// The first element.
    pub base: i64,
    /// Strides along the axes of the result.
    pub strides: Vec<i64>,
}

impl StridedSlot {
    /// Returns the address of the element of a tile's first point.
    pub fn at<T>(&self, slots: &[*mut u8], tile: &Tile) -> *mut T {
        let offset = self.strides.iter().zip(&tile.start).fold(self.base, |sum, (s, &i)| sum + s * i as i64);
        slots[self.slot].cast::<T>().wrapping_offset(offset as isize)
    }
}

/// Removes the ops that micro-kernels apply from the body of a product `[b.. m n]`. In the body that is left, their
/// result is that of the anchor. The kernels for products with one row or one column (`vector`) only add a row.
pub fn take(body: Nest, acc: DType, slots: &Slots, batch: usize, vector: bool) -> (Nest, InRegisters) {
    let (mut body, mut taken) = (body, InRegisters::default());
    while !taken.relu {
        let Some((id, next)) = step(&body, &taken, acc, slots, batch).filter(|s| !vector || s.1.row_only()) else {
            break;
        };
        body.instrs[id] = Instr::Anchor { dtype: acc };
        taken = next;
    }
    (body, taken)
}

impl InRegisters {
    fn row_only(&self) -> bool {
        self.matrix.is_none() && !self.relu
    }
}

/// Returns the only instruction that reads the product, and the ops in registers with that instruction added. Returns
/// `None` if there are several readers, or the only one cannot be applied in registers.
fn step(body: &Nest, so_far: &InRegisters, acc: DType, slots: &Slots, batch: usize) -> Option<(ValueId, InRegisters)> {
    let is_anchor = |v: usize| matches!(body.instrs[v], Instr::Anchor { .. });
    let mut readers = body.instrs.iter().enumerate().filter(|(_, i)| i.args().into_iter().any(is_anchor));
    let ((id, Instr::Map { op, args, attrs, dtype }), None) = (readers.next()?, readers.next()) else { return None };
    if *dtype != acc || body.stores.iter().any(|s| is_anchor(s.value)) {
        return None;
    }
    let mut next = so_far.clone();
    match (op.name(), &args[..]) {
        ("act", _) if matches!(attrs.first(), Some(Attr::Word(kind)) if **kind == *"relu") => next.relu = true,
        ("add", &[a, b]) if is_anchor(a) != is_anchor(b) => {
            let Instr::Load(load) = &body.instrs[if is_anchor(a) { b } else { a }] else { return None };
            let strides = strides(body, load, acc, slots)?;
            let axes = || body.domain.iter().zip(&strides).enumerate().filter(|(_, (extent, _))| **extent > 1);
            if axes().all(|(d, (_, &s))| s == i64::from(d == batch + 1)) && next.row.is_none() {
                next.row = Some((load.slot, load.at.constant));
            } else if strides[batch + 1] == 1 && next.matrix.is_none() {
                next.matrix = Some(StridedSlot { slot: load.slot, base: load.at.constant, strides });
            } else {
                return None;
            }
        }
        _ => return None,
    }
    Some((id, next))
}

/// Returns the strides of an affine load of elements of type `acc`, without guards and within its buffer. Returns
/// `None` for other loads.
pub fn strides(body: &Nest, load: &Load, acc: DType, slots: &Slots) -> Option<Vec<i64>> {
    let plain = load.guards.is_empty() && load.dtype == acc;
    let strides = load.at.affine(body.domain.len()).filter(|_| plain)?;
    let range = load.at.range(&body.domain);
    let inside = slots.types.get(load.slot).is_some_and(|s| s.0 == acc && range.start >= 0 && range.end <= s.1 as i64);
    inside.then_some(strides)
}
