//! The data types of tile programs: lists of steps that are executed for each tile.

use eutectic_ir::{DType, ops::Ids};

use super::{
    access::{CompiledAccess, TileGuard},
    domain::{AxisMask, MAX_RANK},
    gather::{GatherLines, ScatterLines},
    region::Region,
    shape::TileShape,
};
use crate::{
    runtime::fault::IndexFault,
    simd::{
        Isa, PointFn,
        ranking::RankFn,
        reduce::{Accumulate, Combining, FinishFn},
        scan::{Order, ScanFn},
        stream,
    },
};

/// An element of any type: its bytes are the first of eight, aligned for every type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
pub struct Word(pub [u8; 8]);

impl Word {
    /// Returns the address of the element.
    pub fn at(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// A value of a program. Its register is an array in scratch memory with the value's elements of a tile. Elements are
/// contiguous over the axes on which the value depends.
#[derive(Clone, Debug)]
pub struct TileValue {
    /// The element type of the register.
    pub dtype: DType,
    /// The axes on which the value depends.
    pub mask: AxisMask,
    /// The byte offset of the register in scratch memory.
    pub offset: usize,
    /// The number, if the value is a constant.
    pub constant: Option<Word>,
    /// The number of the write to whose target the value may be written directly, instead of to its register.
    pub direct: Option<usize>,
    /// Whether the value is a load that only selections use, within the load's guards. Selections then copy its
    /// elements directly from the buffer.
    pub in_pieces: bool,
}

/// A step of a program. Step `n` computes value `n`.
#[derive(Clone, Debug)]
pub enum TileStep {
    /// No work at run time, because the value is a constant.
    Ready,
    /// The anchor's result for the tile.
    Anchor,
    /// A load at an affine map. It copies nothing if the tile is contiguous in the buffer.
    Affine {
        /// The buffer.
        slot: usize,
        /// The index of the domain's first point in the buffer.
        base: i64,
        /// The stride along each axis, in elements.
        strides: [i64; MAX_RANK],
    },
    /// A load at an affine map whose guards hold in a box. Its value is zero outside of the box.
    Boxed {
        /// The buffer.
        slot: usize,
        /// The index of the domain's first point in the buffer.
        base: i64,
        /// The stride along each axis, in elements.
        strides: [i64; MAX_RANK],
        /// The box.
        region: Region,
    },
    /// Any other load. It is read in boxes, in lines along an axis, or in runs: points along the innermost axis over
    /// which the map is affine.
    Walk {
        /// The buffer.
        slot: usize,
        /// The number of elements of the buffer.
        count: usize,
        /// The index map.
        access: CompiledAccess,
        /// The guards of the load.
        guards: Vec<TileGuard>,
        /// The axes whose coordinates determine a box in which the map is affine. `None` if the innermost axis is one
        /// of these axes, so that the load is not read in boxes.
        boxes: Option<AxisMask>,
        /// The lines in which the load is read, if runs are short.
        lines: Option<Box<GatherLines>>,
    },
    /// The position for an index that was read from a tensor (a negative index may count from the end). It is checked
    /// at points where all guards hold.
    Within {
        /// The value of the index.
        arg: usize,
        /// The valid indices.
        ids: Ids,
        /// The number of the check in the kernel.
        check: usize,
        /// The guards under which the check counts.
        guards: Vec<TileGuard>,
    },
    /// An integer computed from coordinates.
    Coordinate(CompiledAccess),
    /// A pointwise function.
    Point {
        /// The function.
        function: PointFn,
        /// The numeric attributes of the op.
        k: [f64; 2],
        /// The arguments.
        args: Vec<usize>,
    },
    /// A value, repeated along axes on which it does not depend.
    Spread(usize),
    /// A reduction over the row.
    Reduce {
        /// The operand.
        arg: usize,
        /// The function that reduces a part of a row into an accumulator.
        accumulate: Accumulate,
        /// The function that converts an accumulator to the result.
        finish: FinishFn,
        /// The byte offset of the accumulators in scratch memory.
        offset: usize,
    },
    /// The rank of each element of a row.
    Ranking {
        /// The elements.
        arg: usize,
        /// The maximal rank. All elements from this rank on have it.
        most: usize,
        /// The function, and the bytes of a key.
        rank: (RankFn, usize),
        /// The byte offset of the keys in scratch memory.
        offset: usize,
    },
    /// A scan along the row.
    Scan {
        /// The operands, one or two.
        args: Vec<usize>,
        /// The function that scans a part of rows.
        function: ScanFn,
        /// The direction of the scan, and whether it is exclusive.
        order: Order,
        /// The byte offset of the states in scratch memory.
        offset: usize,
    },
    /// The value of the first piece whose box contains the point.
    Pieces {
        /// The boxes and values of the pieces.
        pieces: Vec<(Region, usize)>,
        /// The value at points outside of all boxes.
        fill: Word,
        /// Whether the pieces' boxes are disjoint.
        disjoint: bool,
    },
    /// The value of the first piece whose guards all hold. The guards of some piece do not form a box.
    Select {
        /// The guards and values of the pieces.
        pieces: Vec<(Vec<TileGuard>, usize)>,
        /// The value at points where no piece's guards hold.
        fill: Word,
    },
}

impl TileStep {
    /// Returns the values that the step reads.
    pub fn args(&self) -> Vec<usize> {
        match self {
            TileStep::Ready | TileStep::Anchor | TileStep::Affine { .. } | TileStep::Boxed { .. } => Vec::new(),
            TileStep::Pieces { pieces, .. } => pieces.iter().map(|p| p.1).collect(),
            TileStep::Coordinate(access) => access.values(),
            TileStep::Walk { access, guards, .. } => [access.values(), of_guards(guards)].concat(),
            TileStep::Within { arg, guards, .. } => [vec![*arg], of_guards(guards)].concat(),
            TileStep::Point { args, .. } | TileStep::Scan { args, .. } => args.clone(),
            TileStep::Spread(arg) | TileStep::Reduce { arg, .. } | TileStep::Ranking { arg, .. } => vec![*arg],
            TileStep::Select { pieces, .. } => {
                pieces.iter().flat_map(|(guards, value)| [vec![*value], of_guards(guards)].concat()).collect()
            }
        }
    }
}

fn of_guards(guards: &[TileGuard]) -> Vec<usize> {
    guards.iter().flat_map(|g| g.access.values()).collect()
}

impl TileProgram {
    /// Returns a box outside of which no value varies along `axes`. Outside of their boxes, loads are zero and
    /// selections have their fill value. Returns `None` if these boxes do not determine such a box.
    pub fn varying(&self, axes: AxisMask) -> Option<Region> {
        let mut regions = Vec::new();
        for (step, _) in self.steps.iter().zip(&self.values).filter(|(_, value)| value.mask & axes != 0) {
            match step {
                TileStep::Boxed { region, .. } => regions.push(region),
                TileStep::Pieces { pieces, .. } => regions.extend(pieces.iter().map(|(region, _)| region)),
                TileStep::Ready | TileStep::Point { .. } | TileStep::Spread(_) => {}
                _ => return None,
            }
        }
        Region::outermost(regions.into_iter()).cloned()
    }

    /// Returns whether the scans of the program go from the last element of a row to the first; `None` if some go in
    /// one direction and some in the other.
    pub fn is_reverse(&self) -> Option<bool> {
        let mut orders = self.steps.iter().filter_map(|step| match step {
            TileStep::Scan { order, .. } => Some(order.reverse),
            _ => None,
        });
        let first = orders.next().unwrap_or(false);
        orders.all(|reverse| reverse == first).then_some(first)
    }

    /// Returns the axes after those of a row (interleaved rows): neighbouring elements along them are of different
    /// rows.
    pub fn beside(&self) -> AxisMask {
        let last = self.row.checked_ilog2().map_or(0, |last| last + 1);
        if self.row == 0 {
            0
        } else {
            (0..self.domain.len()).filter(|&d| d >= last as usize).fold(0, |mask, d| mask | 1 << d)
        }
    }

    /// Returns the values that writes and scatters read.
    pub fn stored(&self) -> Vec<usize> {
        self.writes.iter().map(|w| w.value).chain(self.scattered()).collect()
    }

    /// Returns the values that scatters read: stored values, and integers in index maps and guards.
    pub fn scattered(&self) -> impl Iterator<Item = usize> {
        self.scatters.iter().flat_map(|s| [vec![s.value], s.access.values(), of_guards(&s.guards)].concat())
    }
}

/// A write to a buffer at an affine map.
#[derive(Clone, Debug)]
pub struct Write {
    /// The buffer.
    pub slot: usize,
    /// The index of the domain's first point in the buffer.
    pub base: i64,
    /// The stride along each axis, in elements.
    pub strides: [i64; MAX_RANK],
    /// The box of the domain that is written; `None` for the whole domain.
    pub region: Option<Region>,
    /// The stored value.
    pub value: usize,
}

/// A write to a buffer at positions that are known only at run time. It is done in lines or in runs along the innermost
/// axis.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The buffer.
    pub slot: usize,
    /// The number of elements of the buffer.
    pub count: usize,
    /// The index map.
    pub access: CompiledAccess,
    /// The guards of the store.
    pub guards: Vec<TileGuard>,
    /// The stored value.
    pub value: usize,
    /// The axes on which the index map, a guard or the value depends; all axes if the scatter combines.
    pub mask: AxisMask,
    /// The functions that combine the value with the buffer's contents; `None` if it replaces the contents.
    pub combine: Option<Combining>,
    /// The lines in which the scatter is written, if runs are short.
    pub lines: Option<ScatterLines>,
}

/// A compiled body.
#[derive(Clone, Debug)]
pub struct TileProgram {
    /// The extents of the domain.
    pub domain: Vec<usize>,
    /// The axes that form a row.
    pub row: AxisMask,
    /// The axes along which several points may write one element. One thread computes all points along them.
    pub together: AxisMask,
    /// The axes of `together` along which the last write must remain, so that points are computed in order.
    pub in_order: AxisMask,
    /// The steps.
    pub steps: Vec<TileStep>,
    /// The value of each step.
    pub values: Vec<TileValue>,
    /// The stores at affine maps.
    pub writes: Vec<Write>,
    /// The stores at positions that are known only at run time.
    pub scatters: Vec<Scatter>,
    /// The values that an anchor reads.
    pub results: Vec<usize>,
    /// The steps of each pass over a row that is divided into parts. Only the last pass stores.
    pub passes: Vec<Vec<usize>>,
    /// The bytes of scratch memory.
    pub scratch: usize,
    /// The plans for tiles of the extents that the kernel's tiles have.
    pub shapes: Vec<TileShape>,
    /// The instruction-set level.
    pub isa: Isa,
    /// Whether the program's data exceeds the second-level cache, so that loads are prefetched.
    pub beyond_l2: bool,
    /// The streaming copy for contiguous results, if they exceed the caches.
    pub streams: Option<stream::Copy>,
}

impl TileProgram {
    /// Returns the strides of an affine load; `None` for other values.
    pub fn load(&self, id: usize) -> Option<&[i64; MAX_RANK]> {
        match &self.steps[id] {
            TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } => Some(strides),
            _ => None,
        }
    }
}

/// A pass over a part of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowPart {
    /// The number of the pass; `None` if all steps are executed at once, on whole rows.
    pub pass: Option<usize>,
    /// Whether this is the first part of the row.
    pub first: bool,
    /// Whether this is the last part of the row.
    pub last: bool,
}

impl RowPart {
    /// All steps, on whole rows.
    pub const WHOLE: RowPart = RowPart { pass: None, first: true, last: true };
}

/// The memory that a program runs on.
pub struct Frame<'a> {
    /// The address of each buffer.
    pub slots: &'a [*mut u8],
    /// The scratch memory of the program, aligned to 64 bytes.
    pub scratch: *mut u8,
    /// The anchor's result, contiguous over the tile.
    pub anchor: *const u8,
    /// Whether values may be computed directly into the buffers to which they are stored, because no load reads these.
    pub direct: bool,
    /// The receiver of reports of indices out of range.
    pub fault: &'a IndexFault,
}
