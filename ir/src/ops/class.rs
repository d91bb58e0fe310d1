//! The class of an op for the plan search and lowering, and the index maps of views.

use super::RowOp;
use crate::{
    Attr, Shape,
    attr::Number,
    index::{Atom, Index},
};

/// The class of an op for the plan search and lowering.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// Input, parameter, constant, or generated from the index alone: no operands.
    Leaf(Leaf),
    /// Each element of the result depends on the elements at the same place of the operands, all of the same shape.
    Pointwise,
    /// No arithmetic: says where each element of the result is read.
    View(ViewMap),
    /// The first operand with a part overwritten: a store over its buffer. The function gives the destination of an
    /// element of the second operand. In the call, `at` are that element's coordinates; the piece is of operand 0.
    Update(fn(&ViewCall<'_>) -> Piece, Writes),
    /// A kernel is built around it.
    Anchor(Anchor),
    /// Defined by a rule of the `decompose` pack; a backend may have a kernel for it all the same.
    Composite,
    /// Takes one result out of a tuple.
    Project,
    /// Runs a body repeatedly. Programs are cut there, and the body is planned once.
    Loop,
}

impl Class {
    /// Returns whether an op's kernel chooses the order in which it adds up or combines. A rule that defines such an op
    /// by others then takes no liberty with its rounding.
    pub fn leaves_order_open(&self) -> bool {
        matches!(self, Class::Composite | Class::Update(_, Writes::Combined(_)))
    }
}

/// Returns the elements that a view reads; `Err` if extents at run time place them where no index map can follow.
pub type ViewMap = fn(&ViewCall<'_>) -> Result<Access, String>;

/// The leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Given in each run.
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
    /// Returns whether it is the same in all runs.
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

/// Whether several elements are written to one position, and how they combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Writes {
    /// Each position has at most one.
    #[default]
    Apart,
    /// One after the other, in row-major order: the last one stays.
    InOrder,
    /// Each is combined with the position's contents, in any order.
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

/// The elements that a view reads: those of the first piece whose guards hold, and otherwise the fill value.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// The value if no piece applies (the value of a pad); `None` if the pieces cover everything.
    pub fill: Option<Number>,
}

/// One piece of an [`Access`].
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The guards, ranges of indices. The piece applies if each index is in its range.
    pub guards: Vec<(Index, std::ops::Range<i64>)>,
    /// The operand that is read.
    pub operand: usize,
    /// The coordinates; `Atom::Value(0)` is the integer that `via` reads.
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
    /// Returns the integer that a gather's [`Piece::via`] reads.
    pub fn gathered() -> Index {
        Index::atom(Atom::Value(0))
    }
}
