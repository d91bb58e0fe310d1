//! What a tile program is.

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

/// The bytes of an element of any type, the first ones of eight, where every type may be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
pub struct Word(pub [u8; 8]);

impl Word {
    /// Where they are.
    pub fn at(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// A value of a program: a register that is dense over the axes on which the value depends.
#[derive(Clone, Debug)]
pub struct TileValue {
    /// What the register holds.
    pub dtype: DType,
    /// On which axes it depends.
    pub mask: AxisMask,
    /// Byte offset of its register.
    pub offset: usize,
    /// The number, for constants.
    pub constant: Option<Word>,
    /// The store that it can be computed into.
    pub direct: Option<usize>,
    /// Whether it is a load that only selections read, each where the load's guards hold: they copy pieces of it from its buffer.
    pub in_pieces: bool,
}

/// One step, which computes the value of its number.
#[derive(Clone, Debug)]
pub enum TileStep {
    /// Nothing to do at run time (constants).
    Ready,
    /// The anchor's tile.
    Anchor,
    /// A load at an affine map: no copy where the box is dense in the buffer.
    Affine {
        /// Which buffer.
        slot: usize,
        /// Offset of the domain's first point, in elements.
        base: i64,
        /// Along each axis, in elements.
        strides: [i64; MAX_RANK],
    },
    /// A load at an affine map where guards hold, which is a box; zero elsewhere.
    Boxed {
        /// Which buffer.
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
        /// Which buffer.
        slot: usize,
        /// Its number of elements.
        count: usize,
        /// Where.
        access: CompiledAccess,
        /// Only where all hold.
        guards: Vec<TileGuard>,
        /// The axes whose coordinates fix a box, within which the map is affine; `None` if the innermost axis is one of them.
        boxes: Option<AxisMask>,
        /// How lines of it are read where runs are short.
        lines: Option<Box<GatherLines>>,
    },
    /// The place that an integer names, which must be one where all guards hold.
    Within {
        /// The integer.
        arg: usize,
        /// Which integers are legal.
        ids: Ids,
        /// The number of the check in the kernel.
        check: usize,
        /// Where it counts.
        guards: Vec<TileGuard>,
    },
    /// An integer computed from coordinates.
    Coordinate(CompiledAccess),
    /// A pointwise function.
    Point {
        /// Which.
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
        /// Of what.
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
        /// How many of the first ones are told apart.
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
        /// Where results are.
        order: Order,
        /// Byte offset of the states.
        offset: usize,
    },
    /// The first piece whose box a point lies in.
    Pieces {
        /// The pieces.
        pieces: Vec<(Region, usize)>,
        /// Elsewhere.
        fill: Word,
        /// Whether no point lies in two of them.
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
    /// The steps whose values it reads.
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
    /// A box outside of which no value differs along some axes, if loads and selections show one: loads give zero there, selections what
    /// fills them.
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

    /// Whether its scans go from the last element of a row to the first; none where some do and some do not.
    pub fn is_reverse(&self) -> Option<bool> {
        let mut orders = self.steps.iter().filter_map(|step| match step {
            TileStep::Scan { order, .. } => Some(order.reverse),
            _ => None,
        });
        let first = orders.next().unwrap_or(false);
        orders.all(|reverse| reverse == first).then_some(first)
    }

    /// The axes within those of a row: neighbouring elements along them are of different rows.
    pub fn beside(&self) -> AxisMask {
        let last = self.row.checked_ilog2().map_or(0, |last| last + 1);
        if self.row == 0 {
            0
        } else {
            (0..self.domain.len()).filter(|&d| d >= last as usize).fold(0, |mask, d| mask | 1 << d)
        }
    }

    /// The steps whose values stores read.
    pub fn stored(&self) -> Vec<usize> {
        self.writes.iter().map(|w| w.value).chain(self.scattered()).collect()
    }

    /// Of these, those that stores at places known only when it runs read, or are told their places by.
    pub fn scattered(&self) -> impl Iterator<Item = usize> {
        self.scatters.iter().flat_map(|s| [vec![s.value], s.access.values(), of_guards(&s.guards)].concat())
    }
}

/// A write to a buffer.
#[derive(Clone, Debug)]
pub struct Write {
    /// Which buffer.
    pub slot: usize,
    /// Offset of the domain's first point, in elements.
    pub base: i64,
    /// Along each axis, in elements.
    pub strides: [i64; MAX_RANK],
    /// Where it is written, if not everywhere.
    pub region: Option<Region>,
    /// Which value.
    pub value: usize,
}

/// A write to a buffer at places that integers of the body say, in runs along the innermost axis.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// Which buffer.
    pub slot: usize,
    /// Its number of elements.
    pub count: usize,
    /// Where.
    pub access: CompiledAccess,
    /// Only where all hold.
    pub guards: Vec<TileGuard>,
    /// Which value.
    pub value: usize,
    /// The axes on which any of these depends.
    pub mask: AxisMask,
    /// What it does to what is there, if it does not take its place.
    pub combine: Option<Combining>,
    /// How lines of it are written where runs are short.
    pub lines: Option<ScatterLines>,
}

/// A compiled body.
#[derive(Clone, Debug)]
pub struct TileProgram {
    /// Extents of the domain.
    pub domain: Vec<usize>,
    /// The axes that form a row.
    pub row: AxisMask,
    /// The axes along which points may write one element: one thread goes through them in order.
    pub together: AxisMask,
    /// Those of them along which the order matters.
    pub in_order: AxisMask,
    /// The steps.
    pub steps: Vec<TileStep>,
    /// The value of each step.
    pub values: Vec<TileValue>,
    /// The stores.
    pub writes: Vec<Write>,
    /// The stores at places that are known only when it runs.
    pub scatters: Vec<Scatter>,
    /// The values that go into an anchor.
    pub results: Vec<usize>,
    /// The steps of each pass over a row that is cut into parts; the last pass stores.
    pub passes: Vec<Vec<usize>>,
    /// Bytes of scratch memory.
    pub scratch: usize,
    /// For the extents that tiles have.
    pub shapes: Vec<TileShape>,
    /// The instruction-set level.
    pub isa: Isa,
    /// Whether what it reads and writes exceeds the second-level cache, so that it is prefetched.
    pub beyond_l2: bool,
    /// Streaming stores, for values that are dense where they are stored, if it is too much to stay in the caches.
    pub streams: Option<stream::Copy>,
}

impl TileProgram {
    /// The strides of a load that may be read in place.
    pub fn load(&self, id: usize) -> Option<&[i64; MAX_RANK]> {
        match &self.steps[id] {
            TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } => Some(strides),
            _ => None,
        }
    }
}

/// Which pass over which part of a row.
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

/// What a program runs on.
pub struct Frame<'a> {
    /// The buffers.
    pub slots: &'a [*mut u8],
    /// Scratch memory of the program, aligned to 64 bytes.
    pub scratch: *mut u8,
    /// The anchor's result, dense over the tile.
    pub anchor: *const u8,
    /// Whether a value may be computed into the buffer that it is stored to (no load reads that buffer).
    pub direct: bool,
    /// Where an index out of range is reported.
    pub fault: &'a IndexFault,
}
