//! Defines tile programs.

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

/// The bytes of an element of any type: the first ones of eight, from which every type can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
pub struct Word(pub [u8; 8]);

impl Word {
    /// Returns where they are.
    pub fn at(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// A value of a program: a register that is dense over the axes on which the value depends.
#[derive(Clone, Debug)]
pub struct TileValue {
    /// The element type of the register.
    pub dtype: DType,
    /// The axes on which it depends.
    pub mask: AxisMask,
    /// Byte offset of its register.
    pub offset: usize,
    /// The number, for constants.
    pub constant: Option<Word>,
    /// The store that it can be computed into.
    pub direct: Option<usize>,
    /// Whether it is a load that only selections read, each where the load's guards hold: they copy pieces of it from
    /// its buffer.
    pub in_pieces: bool,
}

/// One step, which computes the value of its number.
#[derive(Clone, Debug)]
pub enum TileStep {
    /// No work at run time (constants).
    Ready,
    /// The anchor's tile.
    Anchor,
    /// A load at an affine map: no copy where the box is dense in the buffer.
    Affine {
        /// The buffer.
        slot: usize,
        /// Offset of the domain's first point, in elements.
        base: i64,
        /// Along each axis, in elements.
        strides: [i64; MAX_RANK],
    },
    /// A load at an affine map whose guards form a box; it gives zero outside.
    Boxed {
        /// The buffer.
        slot: usize,
        /// Offset of the domain's first point, in elements.
        base: i64,
        /// Along each axis, in elements.
        strides: [i64; MAX_RANK],
        /// The box.
        region: Region,
    },
    /// Any other load: in boxes, in lines, or in runs along the innermost axis within which the map is affine.
    Walk {
        /// The buffer.
        slot: usize,
        /// Its number of elements.
        count: usize,
        /// The index map.
        access: CompiledAccess,
        /// The guards of the load.
        guards: Vec<TileGuard>,
        /// The axes whose coordinates determine a box, within which the map is affine; `None` if the innermost axis is
        /// one of them.
        boxes: Option<AxisMask>,
        /// The lines in which it is read, if runs are short.
        lines: Option<Box<GatherLines>>,
    },
    /// The position that an integer names, which is checked where all guards hold.
    Within {
        /// The integer.
        arg: usize,
        /// The valid integers.
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
        /// Its attributes.
        k: [f64; 2],
        /// Its arguments.
        args: Vec<usize>,
    },
    /// The same value with axes on which it does not depend.
    Spread(usize),
    /// A reduction over the row.
    Reduce {
        /// The operand.
        arg: usize,
        /// A part of a row.
        accumulate: Accumulate,
        /// The end.
        finish: FinishFn,
        /// Byte offset of the accumulators.
        offset: usize,
    },
    /// The order of a row's elements.
    Ranking {
        /// The elements.
        arg: usize,
        /// The number of first elements with distinct ranks.
        most: usize,
        /// The function, and bytes of a key.
        rank: (RankFn, usize),
        /// Byte offset of the keys.
        offset: usize,
    },
    /// A scan along the row.
    Scan {
        /// Its operands, one or two.
        args: Vec<usize>,
        /// The function of a part of rows.
        function: ScanFn,
        /// The positions of the results.
        order: Order,
        /// Byte offset of the states.
        offset: usize,
    },
    /// The first piece whose box contains a point.
    Pieces {
        /// The pieces.
        pieces: Vec<(Region, usize)>,
        /// Elsewhere.
        fill: Word,
        /// Whether the pieces' boxes are disjoint.
        disjoint: bool,
    },
    /// The first piece whose guards hold, where that is no box.
    Select {
        /// The pieces.
        pieces: Vec<(Vec<TileGuard>, usize)>,
        /// Elsewhere.
        fill: Word,
    },
}

impl TileStep {
    /// Returns the steps whose values it reads.
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
    /// Returns a box outside of which no value varies along some axes, if loads and selections show one: loads give
    /// zero there, and selections their fill value.
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

    /// Returns whether its scans run from the last element of a row to the first; `None` if they run in both
    /// directions.
    pub fn is_reverse(&self) -> Option<bool> {
        let mut orders = self.steps.iter().filter_map(|step| match step {
            TileStep::Scan { order, .. } => Some(order.reverse),
            _ => None,
        });
        let first = orders.next().unwrap_or(false);
        orders.all(|reverse| reverse == first).then_some(first)
    }

    /// Returns the axes within those of a row: neighbouring elements along them are of different rows.
    pub fn beside(&self) -> AxisMask {
        let last = self.row.checked_ilog2().map_or(0, |last| last + 1);
        if self.row == 0 {
            0
        } else {
            (0..self.domain.len()).filter(|&d| d >= last as usize).fold(0, |mask, d| mask | 1 << d)
        }
    }

    /// Returns the steps whose values stores read.
    pub fn stored(&self) -> Vec<usize> {
        self.writes.iter().map(|w| w.value).chain(self.scattered()).collect()
    }

    /// Returns the integers that scatters use: as values or as positions.
    pub fn scattered(&self) -> impl Iterator<Item = usize> {
        self.scatters.iter().flat_map(|s| [vec![s.value], s.access.values(), of_guards(&s.guards)].concat())
    }
}

/// A write to a buffer.
#[derive(Clone, Debug)]
pub struct Write {
    /// The buffer.
    pub slot: usize,
    /// Offset of the domain's first point, in elements.
    pub base: i64,
    /// Along each axis, in elements.
    pub strides: [i64; MAX_RANK],
    /// The region that is written; `None` for all.
    pub region: Option<Region>,
    /// The value.
    pub value: usize,
}

/// A write to a buffer at places that integers of the body say, in runs along the innermost axis.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The buffer.
    pub slot: usize,
    /// Its number of elements.
    pub count: usize,
    /// The index map.
    pub access: CompiledAccess,
    /// The guards of the store.
    pub guards: Vec<TileGuard>,
    /// The value.
    pub value: usize,
    /// The axes on which any of these depends.
    pub mask: AxisMask,
    /// The op that combines it with the buffer's contents; `None` if it replaces them.
    pub combine: Option<Combining>,
    /// The lines in which it is written, if runs are short.
    pub lines: Option<ScatterLines>,
}

/// A compiled body.
#[derive(Clone, Debug)]
pub struct TileProgram {
    /// Extents of the domain.
    pub domain: Vec<usize>,
    /// The axes that form a row.
    pub row: AxisMask,
    /// The axes along which points may write one element. One thread visits them in order.
    pub together: AxisMask,
    /// The axes of `together` along which the order matters.
    pub in_order: AxisMask,
    /// The steps.
    pub steps: Vec<TileStep>,
    /// The value of each step.
    pub values: Vec<TileValue>,
    /// The stores.
    pub writes: Vec<Write>,
    /// The stores at positions that are known only at run time.
    pub scatters: Vec<Scatter>,
    /// The values that go into an anchor.
    pub results: Vec<usize>,
    /// The steps of each pass over a row that is cut into parts; the last pass stores.
    pub passes: Vec<Vec<usize>>,
    /// Bytes of scratch memory.
    pub scratch: usize,
    /// The shapes, for the extents that tiles have.
    pub shapes: Vec<TileShape>,
    /// The instruction-set level.
    pub isa: Isa,
    /// Whether its data exceeds the second-level cache, so that it is prefetched.
    pub beyond_l2: bool,
    /// Streaming stores for contiguous results, if these exceed the caches.
    pub streams: Option<stream::Copy>,
}

impl TileProgram {
    /// Returns the strides of a load that may be read in place.
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
    /// The pass; `None` for all steps at once on whole rows.
    pub pass: Option<usize>,
    /// Whether this is the first part of the row.
    pub first: bool,
    /// Whether this is the last part of the row.
    pub last: bool,
}

impl RowPart {
    /// All of it at once.
    pub const WHOLE: RowPart = RowPart { pass: None, first: true, last: true };
}

/// The memory that a program runs on.
pub struct Frame<'a> {
    /// The buffers.
    pub slots: &'a [*mut u8],
    /// Scratch memory of the program, aligned to 64 bytes.
    pub scratch: *mut u8,
    /// The anchor's result, dense over the tile.
    pub anchor: *const u8,
    /// Whether a value may be computed into the buffer that it is stored to (no load reads that buffer).
    pub direct: bool,
    /// Receives reports of indices out of range.
    pub fault: &'a IndexFault,
}
