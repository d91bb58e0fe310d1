//! Bodies: expressions over a domain, with the buffers that they read and where results are stored.

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
/// The number of a check of ids that cannot fail, or that no op requires.
pub const NO_CHECK: usize = u32::MAX as usize;
/// A condition: the index is within the range.
pub type Guard = (Index, Range<i64>);

/// Expressions over a domain, in single-assignment form: instruction `i` defines value `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body {
    /// Extents of the domain, outermost first. An extent at run time has its maximal value here.
    pub domain: Vec<usize>,
    /// The axes with extents at run time, ascending, each with its extent. A run has the first points of such an axis.
    /// See [`crate::Kernel::at`].
    pub lengths: Vec<(usize, Dim)>,
    /// The instructions; arguments come before users.
    pub instrs: Vec<Instr>,
    /// For an operand of an anchor, the value that the anchor reads. Empty for a kernel's own body, which has stores.
    pub results: Vec<ValueId>,
}

impl Body {
    /// Returns the value that is the only result but for the op `tf32`: matrix units need keep no more than eleven
    /// significant bits of it.
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
    /// The anchor's result at this point (contraction and attention; in the kernel's own body only).
    Anchor {
        /// Its element type.
        dtype: DType,
    },
    /// An element of a buffer.
    Load(Load),
    /// The same number everywhere.
    Constant {
        /// The value. Its bits are compared, so that kernels can be compared and hashed.
        value: eutectic_ir::attr::Number,
        /// Its element type.
        dtype: DType,
    },
    /// An integer computed from the coordinates (iota).
    Coordinate {
        /// The integer.
        index: Index,
        /// Its element type.
        dtype: DType,
    },
    /// An integer that index maps may mention. It must be in `0..extent` where all guards hold. Otherwise its value is
    /// 0, and the run fails with an error that names the original integer.
    Within {
        /// The integer.
        arg: ValueId,
        /// The number of valid indices.
        extent: Dim,
        /// Whether integers from −extent on are legal too, and count from the end.
        from_end: bool,
        /// The number of the check in the kernel; a step gives the model part for each number.
        check: usize,
        /// The guards under which the check counts. Elsewhere, the integer may have any value.
        guards: Vec<Guard>,
        /// Its element type.
        dtype: DType,
    },
    /// A pointwise op.
    Map {
        /// The op.
        op: Op,
        /// Its attributes.
        attrs: Attrs,
        /// Its arguments.
        args: Vec<ValueId>,
        /// Element type of the result.
        dtype: DType,
    },
    /// An operation over the elements of a row (row groups only). It has one value per row or one per point, as
    /// [`Op::row`] says.
    Row {
        /// The op, a row operation.
        op: Op,
        /// Its attributes, for rows that are the last axis ([`Op::row_attrs`]).
        attrs: Attrs,
        /// The elements.
        args: Vec<ValueId>,
        /// Element type of the result; sums are accumulated in f32 or wider.
        dtype: DType,
    },
    /// The value of the first piece whose guards all hold, else `fill`.
    Select {
        /// The pieces.
        pieces: Vec<(Vec<Guard>, ValueId)>,
        /// The value if no piece applies.
        fill: eutectic_ir::attr::Number,
        /// Element type.
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
    /// The guards of the load. Where one does not hold, nothing is read, and the load's value must not be used.
    pub guards: Vec<Guard>,
    /// Element type.
    pub dtype: DType,
}

/// A write to a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The buffer.
    pub slot: Slot,
    /// The index of the element: an affine map over the domain's coordinates, plus integers of the body that the guards
    /// keep in range (`Atom::Value(i)` is value `i`). In a row group, a value that is constant along the row is stored
    /// once per row, and its map does not mention the row's coordinates.
    pub at: Index,
    /// The guards of the store. Nothing is written where one does not hold.
    pub guards: Vec<Guard>,
    /// The number of the value in the body.
    pub value: ValueId,
    /// Whether several points may write one element, and how they combine. Only maps may have combining stores; each
    /// point of the domain is then one write.
    pub writes: Writes,
}

impl Instr {
    /// Element type of the value.
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

    /// Returns the values that it uses: its arguments, then those that its maps mention.
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

    /// Replaces coordinate `n` by `at[n]`, which are maps over `domain`, and value `n` by value `value(n)`.
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

    /// Returns its index maps, those of its guards included.
    pub fn maps(&self) -> Vec<&Index> {
        match self {
            Instr::Load(load) => load.guards.iter().map(|g| &g.0).chain([&load.at]).collect(),
            Instr::Coordinate { index, .. } => vec![index],
            Instr::Within { guards, .. } => guards.iter().map(|g| &g.0).collect(),
            Instr::Select { pieces, .. } => pieces.iter().flat_map(|p| &p.0).map(|g| &g.0).collect(),
            Instr::Anchor { .. } | Instr::Constant { .. } | Instr::Map { .. } | Instr::Row { .. } => Vec::new(),
        }
    }

    /// See [`Instr::maps`].
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

    /// Returns its index maps, those of its guards included.
    pub fn maps(&self) -> impl Iterator<Item = &Index> {
        self.guards.iter().map(|g| &g.0).chain([&self.at])
    }

    /// See [`Store::maps`].
    pub fn maps_mut(&mut self) -> impl Iterator<Item = &mut Index> {
        self.guards.iter_mut().map(|g| &mut g.0).chain([&mut self.at])
    }

    /// Substitutes coordinates and values, as [`Instr::substitute`] does.
    pub fn substitute(&mut self, at: &[Index], value: &dyn Fn(ValueId) -> ValueId, domain: &[usize]) {
        self.value = value(self.value);
        let value = |n: ValueId| Index::atom(Atom::Value(value(n)));
        self.maps_mut().for_each(|map| *map = map.substitute(at, &value, domain));
    }

    /// Returns the values that it needs: the one that it stores, then those that its maps mention.
    pub fn values(&self) -> Vec<ValueId> {
        [self.value].into_iter().chain(self.maps().flat_map(Index::values)).collect()
    }
}
