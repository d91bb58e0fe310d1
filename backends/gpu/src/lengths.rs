//! Rewrites kernels with extents at run time: the new kernel covers the maximal extents, reads the actual lengths from
//! a buffer, and skips the points beyond them.
//!
//! Memory is laid out for the maximal extents, so that strides and the domain are constants. One kernel and one
//! recorded run serve every length. Stores, gathers and the operands of reductions, products and attention are masked
//! to the points within the lengths of a run. In index maps, the length that was read replaces the extent. The result
//! is an ordinary kernel, so schedules and dialects need not handle lengths.

use std::{borrow::Cow, ops::Range};

use eutectic_backend::{Body, Guard, Instr, Kernel, Load, NO_CHECK, Store, ValueId, anchors::place};
use eutectic_ir::{
    DType, Dim, Op, Symbol,
    attr::Number,
    index::{Atom, Index},
};

/// The element type of a length in memory.
pub const LENGTH: DType = DType::I32;

/// A distance beyond any extent. Kernels add it to ids that are out of range for a run's length. Such ids are then out
/// of range of the maximal extent, too.
pub const FAR: i64 = 1 << 30;

/// Returns a kernel whose last buffer holds the lengths, and the symbols of their extents in the same order. Returns
/// the kernel itself if it has no extent at run time.
pub fn from_memory(kernel: &Kernel) -> (Cow<'_, Kernel>, Vec<Symbol>) {
    if !kernel.varies() {
        return (Cow::Borrowed(kernel), Vec::new());
    }
    let symbols = kernel.symbols();
    let mut new = kernel.clone();
    let slot = new.slots.len();
    new.slots.push((LENGTH, symbols.len()));
    make_absent(kernel, &mut new);
    let (groups, layouts, anchor) = (new.groups(), new.layouts(), &mut new.anchor);
    let operands = anchor.kind.def().operands;
    for ((body, def), layout) in anchor.operands.iter_mut().zip(operands).zip(layouts) {
        let mut writer = Writer::of(body, (slot, &symbols), 0..0, (&[], 0.0));
        let mut result = writer.at[body.results[0]];
        for beyond in def.beyond.iter().filter(|beyond| (beyond.counts)(&anchor.attrs)) {
            let first = place(layout, &groups, beyond.group).expect("the layout of the operand has this group");
            let guards = writer.inside(|axis| (first..first + groups[beyond.group]).contains(&axis));
            result = writer.select(guards, result, beyond.value.into());
        }
        let instrs = std::mem::take(&mut writer.instrs);
        *body = Body { domain: body.domain.clone(), lengths: Vec::new(), instrs, results: vec![result] };
    }
    let rank = new.body.domain.len();
    let row = rank - new.row_axes().unwrap_or(0)..rank;
    let none = lengths_of_none(kernel);
    let mut writer = Writer::of(&kernel.body, (slot, &symbols), row, (&none.0, none.1));
    let stores = kernel.stores.iter().map(|store| writer.store(store)).collect();
    let instrs = std::mem::take(&mut writer.instrs);
    new.body = Body { domain: new.body.domain.clone(), lengths: Vec::new(), instrs, results: Vec::new() };
    new.stores = stores;
    (Cow::Owned(new), symbols)
}

/// Adds an omitted operand, such as a bias, as a constant. This happens only if its value must be different beyond a
/// run's lengths.
fn make_absent(kernel: &Kernel, new: &mut Kernel) {
    let def = kernel.anchor.def();
    for operand in &def.operands[kernel.anchor.operands.len()..] {
        let counted = operand.beyond.iter().filter(|beyond| (beyond.counts)(&kernel.anchor.attrs));
        let varies = |group| kernel.group(group).is_some_and(|(_, lengths)| !lengths.is_empty());
        let (Some(value), Some(dtypes), true) =
            (operand.absent, kernel.anchor.dtypes(), counted.clone().any(|beyond| varies(beyond.group)))
        else {
            return;
        };
        let (mut domain, mut lengths) = (Vec::new(), Vec::new());
        for &group in operand.layout {
            let Some((extents, of_group)) = kernel.group(group) else { continue };
            if counted.clone().any(|beyond| beyond.group == group) {
                lengths.extend(of_group.into_iter().map(|(axis, length)| (domain.len() + axis, length.clone())));
            }
            domain.extend(extents);
        }
        let instrs = vec![Instr::Constant { value: value.into(), dtype: dtypes[0] }];
        new.anchor.operands.push(Body { domain, lengths, instrs, results: vec![0] });
    }
}

/// Returns the extents that may be 0 in a run, and the anchor's result if one of them is. Kernels do not compute this
/// result themselves.
fn lengths_of_none(kernel: &Kernel) -> (Vec<Dim>, f64) {
    let none = kernel.anchor.def().results.first().and_then(|result| result.none);
    let Some((lengths, value)) = none.and_then(|(group, value)| Some((kernel.group(group)?.1, value))) else {
        return Default::default();
    };
    let may_be_none = |length: &&Dim| length.range().is_none_or(|(least, _)| least < 1);
    (lengths.into_iter().map(|(_, length)| length).filter(may_be_none).cloned().collect(), value)
}

/// Rewrites a body, instruction by instruction.
struct Writer<'a> {
    domain: &'a [usize],
    lengths: &'a [(usize, Dim)],
    row: Range<usize>,
    none: (&'a [Dim], f64),
    slot: usize,
    symbols: &'a [Symbol],
    instrs: Vec<Instr>,
    /// The new number of each value.
    at: Vec<ValueId>,
    /// For each value, whether it depends on each axis.
    axes: Vec<Vec<bool>>,
    /// Products of lengths that the new body has already read, each with its value.
    known: Vec<(Dim, ValueId)>,
}

impl<'a> Writer<'a> {
    /// Returns a writer that has rewritten all of a body. `row` is the range of its reduced axes. `none` has the
    /// lengths that may be 0, and the anchor's value if one of them is.
    fn of(
        body: &'a Body,
        (slot, symbols): (usize, &'a [Symbol]),
        row: Range<usize>,
        none: (&'a [Dim], f64),
    ) -> Writer<'a> {
        let mut writer = Writer {
            domain: &body.domain,
            lengths: &body.lengths,
            row,
            none,
            slot,
            symbols,
            instrs: Vec::new(),
            at: Vec::new(),
            axes: Vec::new(),
            known: Vec::new(),
        };
        body.instrs.iter().for_each(|instr| writer.instr(instr));
        writer
    }

    fn push(&mut self, instr: Instr) -> ValueId {
        self.instrs.push(instr);
        self.instrs.len() - 1
    }

    fn op(&mut self, name: &str, args: &[ValueId], dtype: DType) -> ValueId {
        let op = Op::named(name).expect("the op table has this op");
        self.push(Instr::Map { op, attrs: [].into_iter().collect(), args: args.to_vec(), dtype })
    }

    /// Returns a value that holds a product of a run's lengths, for index maps.
    fn length(&mut self, product: &Dim) -> ValueId {
        if let Some((_, id)) = self.known.iter().find(|(known, _)| known == product) {
            return *id;
        }
        let mut value: Option<ValueId> = None;
        let mut rest = product.clone();
        while let Some(symbol) = rest.symbols().first() {
            let n = self.symbols.iter().position(|known| known == symbol).expect("the kernel lists its symbols");
            let at = Index::constant(n as i64);
            let factor = self.push(Instr::Load(Load { slot: self.slot, at, guards: Vec::new(), dtype: LENGTH }));
            value = Some(value.map_or(factor, |value| self.op("mul", &[value, factor], LENGTH)));
            rest = rest.checked_div(&Dim::of(symbol.clone())).unwrap_or(Dim::Known(1));
        }
        let arg = value.expect("a product of lengths has a symbol");
        let extent = Dim::Known(product.capacity().unwrap_or(FAR).saturating_add(1));
        let (from_end, check, guards) = (false, NO_CHECK, Vec::new());
        let id = self.push(Instr::Within { arg, extent, from_end, check, guards, dtype: LENGTH });
        self.known.push((product.clone(), id));
        id
    }

    fn map(&mut self, map: &Index) -> Index {
        let mut sum = Index::constant(map.constant);
        for (atom, c) in &map.terms {
            let atom = match atom {
                Atom::Coord(_) => Index::atom(atom.clone()),
                Atom::Value(v) => Index::atom(Atom::Value(self.at[*v])),
                Atom::Extent(product) => Index::atom(Atom::Value(self.length(product))),
                Atom::Div(x, by) => self.map(x).div(*by, self.domain),
                Atom::Mod(x, by) => self.map(x).modulo(*by, self.domain),
            };
            sum = sum.plus(&atom.times(*c));
        }
        sum
    }

    fn guards(&mut self, guards: &[Guard]) -> Vec<Guard> {
        guards.iter().map(|(map, range)| (self.map(map), range.clone())).collect()
    }

    /// Returns guards that hold within a run's lengths, for the axes that `counts` selects.
    fn inside(&mut self, counts: impl Fn(usize) -> bool) -> Vec<Guard> {
        let lengths = self.lengths;
        let counted = lengths.iter().filter(|(axis, _)| counts(*axis));
        let guard = |(axis, length): &(usize, Dim)| {
            let length = self.map(&Index::extent(length));
            (Index::coord(*axis).plus(&length.times(-1)), -FAR..0)
        };
        counted.map(guard).collect()
    }

    /// Returns a value that is unchanged within a run's lengths along some axes, and `fill` beyond them.
    fn hide(&mut self, value: ValueId, counts: impl Fn(usize) -> bool, fill: Number) -> ValueId {
        let guards = self.inside(counts);
        let value = self.at[value];
        self.select(guards, value, fill)
    }

    fn select(&mut self, guards: Vec<Guard>, value: ValueId, fill: Number) -> ValueId {
        if guards.is_empty() {
            return value;
        }
        let dtype = self.instrs[value].dtype();
        self.push(Instr::Select { pieces: vec![(guards, value)], fill, dtype })
    }

    /// Appends the rewritten form of an instruction.
    fn instr(&mut self, instr: &Instr) {
        let mut axes = vec![false; self.domain.len()];
        for map in instr.maps() {
            (0..axes.len()).for_each(|axis| axes[axis] |= map.mentions(axis));
        }
        for arg in instr.args() {
            axes.iter_mut().zip(&self.axes[arg]).for_each(|(axis, of)| *axis |= of);
        }
        let mut new = instr.clone();
        for map in new.maps_mut() {
            *map = self.map(map);
        }
        let at = |arg: &mut ValueId, at: &[ValueId]| *arg = at[*arg];
        let id = match &mut new {
            Instr::Anchor { .. } => {
                let anchor = self.push(new);
                let (lengths, value) = self.none;
                let guards: Vec<Guard> =
                    lengths.iter().map(|length| (self.map(&Index::extent(length)), 1..FAR)).collect();
                self.select(guards, anchor, value.into())
            }
            Instr::Load(load) => {
                if !load.at.values().is_empty() {
                    load.guards.extend(self.inside(|axis| axes[axis]));
                }
                self.push(new)
            }
            Instr::Within { arg, extent, guards, .. } => {
                at(arg, &self.at);
                guards.extend(self.inside(|axis| axes[axis]));
                if extent.varies() {
                    *arg = self.beyond(*arg, extent);
                    *extent = Dim::Known(extent.capacity().unwrap_or(FAR));
                }
                self.push(new)
            }
            Instr::Row { op, attrs, args, .. } => {
                let (row, facts) = (self.row.clone(), op.row());
                for (operand, arg) in args.iter_mut().enumerate() {
                    let dtype = self.instrs[self.at[*arg]].dtype();
                    let absent = facts.map(|facts| facts.absent(operand, dtype, attrs));
                    *arg = self.hide(*arg, |axis| row.contains(&axis), absent.unwrap_or(0.into()));
                }
                row.for_each(|axis| axes[axis] = !instr.is_per_row());
                self.push(new)
            }
            Instr::Map { args, .. } => {
                args.iter_mut().for_each(|arg| at(arg, &self.at));
                self.push(new)
            }
            Instr::Select { pieces, .. } => {
                pieces.iter_mut().for_each(|piece| at(&mut piece.1, &self.at));
                self.push(new)
            }
            Instr::Constant { .. } | Instr::Coordinate { .. } => self.push(new),
        };
        self.at.push(id);
        self.axes.push(axes);
    }

    /// Returns an index that is out of range of the maximal extent if it is out of range of the run's extent.
    fn beyond(&mut self, index: ValueId, extent: &Dim) -> ValueId {
        let dtype = self.instrs[index].dtype();
        let length = self.map(&Index::extent(extent));
        let length = self.push(Instr::Coordinate { index: length, dtype });
        let far = self.push(Instr::Constant { value: (FAR as f64).into(), dtype });
        let moved = self.op("add", &[index, far], dtype);
        let is_beyond = self.op("ge", &[index, length], DType::Bool);
        self.op("where", &[is_beyond, moved, index], dtype)
    }

    fn store(&mut self, store: &Store) -> Store {
        // A value that is constant along the row is stored once, whatever the row's length.
        let of_row = self.row.clone().any(|axis| store.maps().any(|map| map.mentions(axis)));
        let row = self.row.clone();
        let mut guards = self.guards(&store.guards);
        guards.extend(self.inside(|axis| of_row || !row.contains(&axis)));
        Store { guards, writes: store.writes, ..Store::new(store.slot, self.map(&store.at), self.at[store.value]) }
    }
}
