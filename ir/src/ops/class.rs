//! The classes of ops by which plans are searched and kernels are built, and the index maps of views.

use super::RowOp;
use crate::{
    Attr, Shape,
    attr::Number,
    index::{Atom, Index},
};

/// The class of an op, which determines how it is planned and lowered to kernels.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// An op without operands: an input, a parameter, a state, a constant, or values that are computed from the
    /// coordinates.
    Leaf(Leaf),
    /// An op whose operands have the shape of the result. Each element depends only on the operands' elements at its
    /// coordinates.
    Pointwise,
    /// An op without arithmetic. The function returns where each element of the result is read.
    View(ViewMap),
    /// The first operand with some elements overwritten, which is a store into its buffer. The function returns the
    /// destination of an element of the second operand. In the call, `at` are the coordinates of that element; the
    /// result is a piece of operand 0.
    Update(fn(&ViewCall<'_>) -> Piece, Writes),
    /// An op that a kernel is built around.
    Anchor(Anchor),
    /// An op that a rule of the pack `decompose` defines by others. A backend may still have a kernel for it.
    Composite,
    /// An op that takes one result out of a tuple.
    Project,
    /// An op that runs a body repeatedly. Programs are split at loops, and each body is planned once.
    Loop,
}

impl Class {
    /// Returns whether an op's kernel chooses the order in which it sums or combines elements. A rule that replaces
    /// such an op by others then does not change how its result may be rounded.
    pub fn leaves_order_open(&self) -> bool {
        matches!(self, Class::Composite | Class::Update(_, Writes::Combined(_)))
    }
}

/// Returns the elements that a view reads. Fails if no index map describes them because of extents at run time.
pub type ViewMap = fn(&ViewCall<'_>) -> Result<Access, String>;

/// The ops without operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A tensor that is given in each run.
    Input,
    /// A tensor that is given once, when the program is loaded.
    Param,
    /// A tensor that is kept from run to run.
    State,
    /// A tensor that is part of the program.
    Const,
    /// The coordinate along an axis, computed in each kernel that uses it.
    Iota,
}

impl Leaf {
    /// Returns whether the leaf is the same in all runs.
    pub fn is_constant(self) -> bool {
        !matches!(self, Leaf::Input | Leaf::State)
    }
}

/// The anchors, around which kernels are built.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The anchor of this name in the backends' table of anchors.
    Named(&'static str),
    /// A reduction, scan or similar op over the elements of rows, which are trailing axes. It is computed in a row
    /// group.
    Row(RowOp),
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// Σ x, 0 for no elements.
    Sum,
    /// Π x, 1 for no elements.
    Product,
    /// The largest element; NaN if one is NaN.
    Max,
    /// The smallest element; NaN if one is NaN.
    Min,
}

/// Whether several elements of an update are written to one position, and how they combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Writes {
    /// At most one element is written to each position.
    #[default]
    Apart,
    /// Elements are written in row-major order, so that the last one remains.
    InOrder,
    /// The reduction combines each element with the value that is stored at its position, in any order.
    Combined(Reduction),
}

/// A view, and the element of its result whose source is asked for.
pub struct ViewCall<'a> {
    /// The attributes of the node.
    pub attrs: &'a [Attr],
    /// The shape of each operand.
    pub operands: &'a [Shape],
    /// The shape of the result.
    pub result: &'a Shape,
    /// The coordinates of the result's element, as maps over `domain`.
    pub at: &'a [Index],
    /// The extents of the domain of the maps.
    pub domain: &'a [usize],
}

/// The elements that a view reads: those of the first piece whose guards hold, and the fill value if none holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// The value if no guard holds (the value of a pad); `None` if the pieces cover all coordinates.
    pub fill: Option<Number>,
}

/// One source of a view's elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The guards, ranges of indices. The piece applies if each index is in its range.
    pub guards: Vec<(Index, std::ops::Range<i64>)>,
    /// The operand that is read.
    pub operand: usize,
    /// The coordinates in the operand. `Atom::Value(0)` is the integer that `via` reads.
    pub at: Vec<Index>,
    /// An operand of integers that is read first (gather), and the coordinates in it.
    pub via: Option<(usize, Vec<Index>)>,
}

impl Access {
    /// Returns an access that always reads operand 0 at `at`.
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
