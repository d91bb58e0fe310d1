//! Bodies: expressions over an iteration domain, with their loads and stores.

use std::ops::Range;

use eutectic_ir::{
    Attrs, DType, Dim, Op,
    index::{Atom, Index},
    ops::Writes,
};

/// The number of a buffer among a kernel's operands.
pub type Slot = usize;
/// The number of an instruction in a [`Body`].
pub type ValueId = usize;
/// The check number of an [`Instr::Within`] whose check cannot fail, or that no op requires.
pub const NO_CHECK: usize = u32::MAX as usize;
/// A condition on a point of the domain: the value of the index map is within the range.
pub type Guard = (Index, Range<i64>);

/// Expressions over a domain, in single-assignment form: instruction `i` defines value `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body {
    /// Extents of the domain, outermost first. An extent at run time has its maximal value here.
    pub domain: Vec<usize>,
    /// The axes with extents at run time, ascending, each with its extent. A run computes only the first points of such
    /// an axis, as many as its extent. See [`crate::Kernel::at`].
    pub lengths: Vec<(usize, Dim)>,
    /// The instructions; arguments come before users.
    pub instrs: Vec<Instr>,
    /// For an operand of an anchor, the value that the anchor reads. Empty for a kernel's own body, which has stores.
    pub results: Vec<ValueId>,
}

impl Body {
    /// Returns the argument of the op `tf32`, if that op computes the body's result. The op rounds to eleven
    /// significant bits, so matrix units may read the argument and round it themselves.
    pub fn before_tf32(&self) -> Option<ValueId> {
        match &self.instrs[*self.results.first()?] {
            Instr::Map { op, args, .. } if op.name() == "tf32" => args.first().copied(),
            _ => None,
        }
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instr {
    /// The result of a contraction or an attention at this point. Occurs in the kernel's own body only.
    Anchor {
        /// The element type of the result.
        dtype: DType,
    },
    /// An element of a buffer.
    Load(Load),
    /// One number for all points.
    Constant {
        /// The number. Kernels are compared and hashed by its bits.
        value: eutectic_ir::attr::Number,
        /// The element type of the number.
        dtype: DType,
    },
    /// An integer computed from the coordinates (iota).
    Coordinate {
        /// The integer.
        index: Index,
        /// The element type of the integer.
        dtype: DType,
    },
    /// An integer that was checked to be in `0..extent`, so that index maps may mention it. If it is outside at a point
    /// where all guards hold, its value is 0, and the run fails with an error that names the original integer.
    Within {
        /// The integer.
        arg: ValueId,
        /// The number of valid indices.
        extent: Dim,
        /// Whether integers in `−extent..0` are legal too. They count from the end.
        from_end: bool,
        /// The number of the check in the kernel. [`Step::checks`](crate::Step::checks) has the model part of each
        /// number.
        check: usize,
        /// The check applies only at points where these guards hold. At other points, the integer may have any value.
        guards: Vec<Guard>,
        /// The element type of the integer.
        dtype: DType,
    },
    /// A pointwise op.
    Map {
        /// The op.
        op: Op,
        /// The attributes of the op.
        attrs: Attrs,
        /// The arguments of the op.
        args: Vec<ValueId>,
        /// The element type of the result.
        dtype: DType,
    },
    /// An operation over the elements of a row, in row groups only. It has one value per row or one per point,
    /// depending on the op ([`Op::row`]).
    Row {
        /// The op, a row operation.
        op: Op,
        /// The attributes of the op, which counts a row as the last axis ([`Op::row_attrs`]).
        attrs: Attrs,
        /// The values whose elements form rows.
        args: Vec<ValueId>,
        /// The element type of the result. Sums are accumulated in f32 or wider.
        dtype: DType,
    },
    /// The value of the first piece whose guards all hold; `fill` if there is no such piece.
    Select {
        /// The pieces: guards, and the value if all of them hold.
        pieces: Vec<(Vec<Guard>, ValueId)>,
        /// The value if no piece's guards all hold.
        fill: eutectic_ir::attr::Number,
        /// The element type of the result.
        dtype: DType,
    },
}

/// A read of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// The buffer.
    pub slot: Slot,
    /// The index of the element, a map over the domain's coordinates. `Atom::Value(i)` stands for value `i` of the
    /// body, an [`Instr::Within`] (an indirect load).
    pub at: Index,
    /// The guards of the load. At points where one does not hold, nothing is read, and the load's value is unspecified.
    pub guards: Vec<Guard>,
    /// The element type of the buffer.
    pub dtype: DType,
}

/// A write to a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The buffer.
    pub slot: Slot,
    /// The index of the element: an affine map over the domain's coordinates, plus integers of the body
    /// (`Atom::Value(i)` is value `i`), which the guards keep in range. In a row group, a value that is constant along
    /// the row is stored once per row. The index of that store does not mention the row's coordinates.
    pub at: Index,
    /// The guards of the store. Nothing is written at points where one does not hold.
    pub guards: Vec<Guard>,
    /// The number of the value in the body.
    pub value: ValueId,
    /// Whether several points may write one element, and how they combine. Only kernels without an anchor may have
    /// stores that combine. Each point of the domain is one write.
    pub writes: Writes,
}

impl Instr {
    /// Returns the element type of the value.
    pub fn dtype(&self) -> DType {
        match self {
            Instr::Anchor { dtype }
            | Instr::Constant { dtype, .. }
            | Instr::Coordinate { dtype, .. }
            | Instr::Within { dtype, .. }
            | Instr::Map { dtype, .. }
            | Instr::Row { dtype, .. }
            | Instr::Select { dtype, .. } => *dtype,
            Instr::Load(load) => load.dtype,
        }
    }

    /// Returns the values that the instruction uses: its arguments, then the values that its maps mention.
    pub fn args(&self) -> Vec<ValueId> {
        let mut args = match self {
            Instr::Anchor { .. } | Instr::Constant { .. } | Instr::Coordinate { .. } | Instr::Load(_) => Vec::new(),
            Instr::Map { args, .. } | Instr::Row { args, .. } => args.clone(),
            Instr::Within { arg, .. } => vec![*arg],
            Instr::Select { pieces, .. } => pieces.iter().map(|p| p.1).collect(),
        };
        args.extend(self.maps().into_iter().flat_map(Index::values));
        args
    }

    /// Replaces coordinate `n` by the map `at[n]` over `domain`, and value `n` by value `value(n)`.
    pub fn substitute(&mut self, at: &[Index], value: &dyn Fn(ValueId) -> ValueId, domain: &[usize]) {
        match self {
            Instr::Map { args, .. } | Instr::Row { args, .. } => args.iter_mut().for_each(|arg| *arg = value(*arg)),
            Instr::Within { arg, .. } => *arg = value(*arg),
            Instr::Select { pieces, .. } => pieces.iter_mut().for_each(|piece| piece.1 = value(piece.1)),
            Instr::Anchor { .. } | Instr::Load(_) | Instr::Constant { .. } | Instr::Coordinate { .. } => {}
        }
        let value = |n: ValueId| Index::atom(Atom::Value(value(n)));
        self.maps_mut().into_iter().for_each(|map| *map = map.substitute(at, &value, domain));
    }

    /// Returns the index maps of the instruction and of its guards.
    pub fn maps(&self) -> Vec<&Index> {
        match self {
            Instr::Load(load) => load.guards.iter().map(|g| &g.0).chain([&load.at]).collect(),
            Instr::Coordinate { index, .. } => vec![index],
            Instr::Within { guards, .. } => guards.iter().map(|g| &g.0).collect(),
            Instr::Select { pieces, .. } => pieces.iter().flat_map(|p| &p.0).map(|g| &g.0).collect(),
            Instr::Anchor { .. } | Instr::Constant { .. } | Instr::Map { .. } | Instr::Row { .. } => Vec::new(),
        }
    }

    /// Returns [`Instr::maps`], mutable.
    pub fn maps_mut(&mut self) -> Vec<&mut Index> {
        match self {
            Instr::Load(load) => load.guards.iter_mut().map(|g| &mut g.0).chain([&mut load.at]).collect(),
            Instr::Coordinate { index, .. } => vec![index],
            Instr::Within { guards, .. } => guards.iter_mut().map(|g| &mut g.0).collect(),
            Instr::Select { pieces, .. } => pieces.iter_mut().flat_map(|p| &mut p.0).map(|g| &mut g.0).collect(),
            Instr::Anchor { .. } | Instr::Constant { .. } | Instr::Map { .. } | Instr::Row { .. } => Vec::new(),
        }
    }
}

impl Store {
    /// Returns a store of a value at each point to a distinct element.
    pub fn new(slot: Slot, at: Index, value: ValueId) -> Store {
        Store { slot, at, guards: Vec::new(), value, writes: Writes::Apart }
    }

    /// Returns the index maps of the store and of its guards.
    pub fn maps(&self) -> impl Iterator<Item = &Index> {
        self.guards.iter().map(|g| &g.0).chain([&self.at])
    }

    /// Returns [`Store::maps`], mutable.
    pub fn maps_mut(&mut self) -> impl Iterator<Item = &mut Index> {
        self.guards.iter_mut().map(|g| &mut g.0).chain([&mut self.at])
    }

    /// Substitutes coordinates and values, as [`Instr::substitute`] does.
    pub fn substitute(&mut self, at: &[Index], value: &dyn Fn(ValueId) -> ValueId, domain: &[usize]) {
        self.value = value(self.value);
        let value = |n: ValueId| Index::atom(Atom::Value(value(n)));
        self.maps_mut().for_each(|map| *map = map.substitute(at, &value, domain));
    }

    /// Returns the values that the store needs: the stored value, then the values that its maps mention.
    pub fn values(&self) -> Vec<ValueId> {
        [self.value].into_iter().chain(self.maps().flat_map(Index::values)).collect()
    }
}
