//! What an op is to the plan search and to lowering, and where a view reads.

use super::RowOp;
use crate::{
    Attr, Shape,
    attr::Number,
    index::{Atom, Index},
};

/// What an op is to the plan search and to lowering.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// Input, parameter, constant, or generated from the index alone: no operands.
    Leaf(Leaf),
    /// Each element of the result depends on the elements at the same place of the operands, all of the same shape.
    Pointwise,
    /// No arithmetic: says where each element of the result is read.
    View(ViewMap),
    /// The first operand with a part of it written anew: a store over its buffer, where the function says that an element of
    /// the second operand goes. In the call, `at` are that element's coordinates; the piece is of operand 0.
    Update(fn(&ViewCall<'_>) -> Piece, Writes),
    /// A kernel is built around it.
    Anchor(Anchor),
    /// Defined by a rule of the `decompose` pack; a backend may have a kernel for it all the same.
    Composite,
    /// Takes one result out of a tuple.
    Project,
    /// Runs a body so many times, one after the other: programs are cut there, and the body is planned once.
    Loop,
}

impl Class {
    /// Whether the order in which an op of this class adds up or combines is left to its kernel: a rule that defines such an op by
    /// others is no liberty with its rounding.
    pub fn leaves_order_open(&self) -> bool {
        matches!(self, Class::Composite | Class::Update(_, Writes::Combined(_)))
    }
}

/// Where a view reads; or why no map says that, for extents at run time that lie where no map can follow them.
pub type ViewMap = fn(&ViewCall<'_>) -> Result<Access, String>;

/// The leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Given anew at each run.
    Input,
    /// Given once, when the program is loaded.
    Param,
    /// Kept from run to run.
    State,
    /// Part of the program.
    Const,
    /// The coordinate along an axis: computed in the kernel that wants it.
    Iota,
}

impl Leaf {
    /// Whether it is the same in all runs.
    pub fn is_constant(self) -> bool {
        !matches!(self, Leaf::Input | Leaf::State)
    }
}

/// The kernel families.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The anchor of this name in the backends' table of anchors.
    Named(&'static str),
    /// An operation over the elements of rows, which are trailing axes: part of a row group.
    Row(RowOp),
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// Σ x, 0 for no elements.
    Sum,
    /// Π x, 1 for no elements.
    Product,
    /// The largest; NaN if one is NaN.
    Max,
    /// The smallest; NaN if one is NaN.
    Min,
}

/// How several elements are written to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Writes {
    /// They are not: each place has one at most.
    #[default]
    Apart,
    /// One after the other, in row-major order: the last one stays.
    InOrder,
    /// Each is combined with what is there, in any order.
    Combined(Reduction),
}

/// A view, asked where it reads.
pub struct ViewCall<'a> {
    /// Attributes of the node.
    pub attrs: &'a [Attr],
    /// The shape of each operand.
    pub operands: &'a [Shape],
    /// The shape of the result.
    pub result: &'a Shape,
    /// The coordinates of the result's element, as maps over `domain`.
    pub at: &'a [Index],
    /// Extents of the domain that the maps are over.
    pub domain: &'a [usize],
}

/// Where a view reads: the first piece whose guards hold, else the fill value.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// What is there if no piece applies (the value of a pad); `None` where the pieces cover everything.
    pub fill: Option<Number>,
}

/// One piece of an [`Access`].
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// All must hold: the index lies in the range.
    pub guards: Vec<(Index, std::ops::Range<i64>)>,
    /// Which operand is read.
    pub operand: usize,
    /// At which coordinates; `Atom::Value(0)` is the integer that `via` reads.
    pub at: Vec<Index>,
    /// An operand of integers that is read first, and at which coordinates (gather).
    pub via: Option<(usize, Vec<Index>)>,
}

impl Access {
    /// Reads operand 0 at `at`, always.
    pub fn direct(at: Vec<Index>) -> Access {
        Access { pieces: vec![Piece { guards: Vec::new(), operand: 0, at, via: None }], fill: None }
    }
}

impl Index {
    /// The integer that a gather's [`Piece::via`] reads.
    pub fn gathered() -> Index {
        Index::atom(Atom::Value(0))
    }
}
