//! Prints bodies: each value gets a name, and is printed when it is first used.

use eutectic_backend::{Body, Guard, Instr, Load, ValueId, axes::Nest, intervals::ranges};
use eutectic_ir::{
    DType, Interval,
    index::{ANYTHING, Atom, Index},
    ops::{Ids, Writes},
};

use crate::{
    dialect::Dialect,
    kernels::in_block::{Copied, neutral},
    lanes::SplitAxis,
    ops,
};

/// Prints the values of a body for one point, or for a group of neighbours.
pub struct Emitter<'a> {
    dialect: &'a dyn Dialect,
    slots: &'a [(DType, usize)],
    nest: &'a Nest,
    /// Extents of the nest, where the split axis counts groups.
    domain: Vec<usize>,
    coords: Vec<String>,
    lanes: SplitAxis,
    /// For each value, whether it differs within a group.
    varies: Vec<bool>,
    /// The ranges of the values.
    ranges: Vec<Interval>,
    /// For each value, whether 16 correct bits are enough for all of its uses.
    is_half: Vec<bool>,
    names: Vec<Option<Vec<String>>>,
    prefix: &'static str,
    fresh: usize,
    /// The stores that combine in shared memory.
    in_block: Vec<Copied>,
    /// The text so far.
    pub text: String,
    /// Reasons why values could not be printed.
    pub problems: Vec<String>,
}

impl<'a> Emitter<'a> {
    /// Returns an emitter for a nest whose coordinates have these names. The coordinate of the split axis counts
    /// groups.
    pub fn new(
        dialect: &'a dyn Dialect,
        slots: &'a [(DType, usize)],
        nest: &'a Nest,
        coords: &[&str],
        lanes: SplitAxis,
        prefix: &'static str,
    ) -> Emitter<'a> {
        let domain = lanes.domain(&nest.domain);
        let mut varies: Vec<bool> = Vec::with_capacity(nest.instrs.len());
        for instr in &nest.instrs {
            let own = instr.maps().into_iter().any(|map| lanes.maps(map, &domain).len() > 1);
            varies.push(match instr {
                Instr::Anchor { .. } => lanes.count > 1,
                // The domain of a row group is [rows, points of a row].
                Instr::Row { args, .. } => {
                    let of_args = args.iter().any(|&arg| varies[arg]);
                    if instr.is_per_row() { lanes.axis == 0 && of_args } else { lanes.count > 1 }
                }
                _ => own || instr.args().into_iter().any(|arg| varies[arg]),
            });
        }
        let of_values = Body { domain: nest.domain.clone(), instrs: nest.instrs.clone(), ..Body::default() };
        Emitter {
            dialect,
            slots,
            ranges: ranges(&of_values),
            nest,
            domain,
            coords: coords.iter().map(ToString::to_string).collect(),
            lanes,
            varies,
            is_half: half_values(nest),
            names: vec![None; nest.instrs.len()],
            prefix,
            fresh: 0,
            in_block: Vec::new(),
            text: String::new(),
            problems: Vec::new(),
        }
    }

    /// Sets the stores that combine in shared memory.
    pub fn combine_in_block(&mut self, stores: &[Copied]) {
        self.in_block = stores.to_vec();
    }

    /// Returns the table of a store that combines in shared memory. The table has all copies of the store's buffer.
    fn table(&self, copied: &Copied) -> (usize, DType, usize) {
        let (dtype, count) = self.slots[self.nest.stores[copied.store].slot];
        (copied.store, dtype, copied.copies * count)
    }

    /// Prints stores of the identity to all elements of the tables in shared memory.
    pub fn reset_tables(&mut self, block: usize) {
        for copied in self.in_block.clone() {
            let (table, dialect) = (self.table(&copied), self.dialect);
            let neutral = dialect.number(neutral(copied.how, table.1), table.1);
            self.line(&dialect.each("n", "thread", table.2, block));
            self.line(&dialect.set_cell(table, "n", &neutral));
            self.line("}");
        }
        self.line(&self.dialect.meet());
    }

    /// Prints the combination of the tables in shared memory with the buffers.
    pub fn store_tables(&mut self, block: usize) {
        self.line(&self.dialect.meet());
        for copied in self.in_block.clone() {
            let (table, dialect, slot) = (self.table(&copied), self.dialect, self.nest.stores[copied.store].slot);
            let (dtype, count) = self.slots[slot];
            self.line(&dialect.each("n", "thread", count, block));
            self.line(&dialect.variable(dialect.register(dtype), "all", &dialect.cell(table, "n")));
            self.line(&dialect.each("at", &count.to_string(), table.2, count));
            let both = dialect.combine(copied.how, dtype, "all", &dialect.cell(table, "n + at"));
            self.line(&format!("all = {both};\n}}"));
            self.line(&dialect.store_combined(copied.how, (slot, dtype), "n", "all"));
            self.line("}");
        }
    }

    /// Returns how many names a value has: one per lane, or one for all lanes.
    pub fn width(&self, id: ValueId) -> usize {
        if self.varies[id] { self.lanes.count } else { 1 }
    }

    /// Sets the names of a value.
    pub fn set(&mut self, id: ValueId, names: Vec<String>) {
        self.varies[id] = names.len() > 1;
        self.names[id] = Some(names);
    }

    /// Returns whether a value has a name.
    pub fn is_known(&self, id: ValueId) -> bool {
        self.names[id].is_some()
    }

    /// Forgets the names of values that went out of scope.
    pub fn forget(&mut self, which: impl Fn(ValueId) -> bool) {
        (0..self.names.len()).filter(|&id| which(id)).for_each(|id| self.names[id] = None);
    }

    /// Adds a line.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Returns a name that is not taken.
    pub fn name(&mut self) -> String {
        self.fresh += 1;
        format!("{}{}", self.prefix, self.fresh)
    }

    /// Returns the name of a value for a lane.
    pub fn lane(&mut self, id: ValueId, lane: usize) -> String {
        let names = self.value(id);
        names[lane % names.len()].clone()
    }

    /// Returns the names of a value, one per lane or one for all. Prints the value if necessary.
    pub fn value(&mut self, id: ValueId) -> Vec<String> {
        if let Some(names) = &self.names[id] {
            return names.clone();
        }
        let instr = &self.nest.instrs[id];
        instr.args().into_iter().for_each(|arg| _ = self.value(arg));
        let names = match instr {
            Instr::Load(load) => self.load(id, load),
            Instr::Constant { value, dtype } => vec![self.dialect.number(*value, *dtype)],
            _ => {
                let values = (0..self.width(id)).map(|lane| self.expression(id, lane)).collect::<Vec<_>>();
                values.into_iter().map(|value| self.declare(instr.dtype(), &value)).collect()
            }
        };
        self.names[id] = Some(names.clone());
        names
    }

    fn declare(&mut self, dtype: DType, value: &str) -> String {
        let name = self.name();
        let line = self.dialect.declare(self.dialect.register(dtype), &name, value);
        self.line(&line);
        name
    }

    fn expression(&mut self, id: ValueId, lane: usize) -> String {
        match &self.nest.instrs[id] {
            Instr::Coordinate { index, dtype } => {
                let at = self.lanes.maps(index, &self.domain);
                let at = self.index(&at[lane % at.len()], lane);
                self.dialect.convert(self.dialect.register(*dtype), &at)
            }
            Instr::Within { arg, extent, from_end, check, guards, dtype } => {
                let of = self.nest.instrs[*arg].dtype();
                let (arg, when) = (self.lane(*arg, lane), self.condition(guards, lane));
                let ids = Ids { extent: extent.capacity().unwrap_or(0), from_end: *from_end };
                let index = self.dialect.within((&arg, of), ids, *check, &when);
                self.dialect.convert(self.dialect.register(*dtype), &index)
            }
            Instr::Map { op, attrs, args, dtype } => {
                let of = |&arg: &ValueId| (self.lane(arg, lane), self.nest.instrs[arg].dtype());
                let args: Vec<_> = args.iter().map(of).collect();
                ops::expression(self.dialect, (*op, attrs), &args, (*dtype, self.is_half[id])).unwrap_or_else(|why| {
                    self.problems.push(why);
                    self.dialect.literal(0.0, *dtype)
                })
            }
            Instr::Select { pieces, fill, dtype } => {
                let fill = self.dialect.number(*fill, *dtype);
                pieces.iter().rev().fold(fill, |otherwise, (guards, value)| {
                    let (value, when) = (self.lane(*value, lane), self.condition(guards, lane));
                    if when == "true" { value } else { self.dialect.choose(&when, &value, &otherwise) }
                })
            }
            instr @ Instr::Row { op, dtype, .. } if instr.reduction().is_none() => {
                self.problems.push(format!("cannot print the row operation `{op}` as an expression"));
                self.dialect.literal(0.0, *dtype)
            }
            Instr::Row { .. } | Instr::Anchor { .. } | Instr::Load(_) | Instr::Constant { .. } => {
                unreachable!("schedules name anchors before bodies read them")
            }
        }
    }

    fn load(&mut self, id: ValueId, load: &Load) -> Vec<String> {
        let (stored, count) = self.slots[load.slot];
        if count == 0 {
            return vec![self.dialect.literal(0.0, load.dtype)];
        }
        if self.varies[id] && self.is_packed(&load.at, &load.guards) {
            let at = self.lanes.maps(&load.at, &self.domain);
            let (at, when) = (self.index(&at[0], 0), self.condition(&load.guards, 0));
            let name = self.name();
            let (lines, names) = self.dialect.load_lanes((load.slot, stored), &at, self.lanes.count, &name, &when);
            self.line(&lines);
            return names;
        }
        let of_lane = |lane: usize| {
            let at = self.lanes.maps(&load.at, &self.domain);
            let at = self.index(&at[lane % at.len()], lane);
            (self.dialect.load(load.slot, &at), self.condition(&load.guards, lane))
        };
        let values: Vec<_> = (0..self.width(id)).map(of_lane).collect();
        let declare = |(value, when): (String, String)| {
            if when == "true" {
                return self.declare(load.dtype, &value);
            }
            let (ty, name) = (self.dialect.register(load.dtype), self.name());
            let line = self.dialect.declare_where((ty, &name), &when, &value, &self.dialect.literal(0.0, load.dtype));
            self.line(&line);
            name
        };
        values.into_iter().map(declare).collect()
    }

    fn is_packed(&self, at: &Index, guards: &[Guard]) -> bool {
        let values = at.values().into_iter().chain(guards.iter().flat_map(|g| g.0.values()));
        self.lanes.is_packed(at, guards, &self.domain) && values.into_iter().all(|value| !self.varies[value])
    }

    /// Returns the buffer and the index of a value that is loaded from contiguous memory without change; `None` for
    /// other values.
    pub fn address(&self, id: ValueId) -> Option<(usize, String)> {
        let Instr::Load(load) = &self.nest.instrs[id] else { return None };
        let plain = load.guards.is_empty() && load.at.values().is_empty() && self.is_packed(&load.at, &load.guards);
        plain.then(|| (load.slot, self.index(&self.lanes.maps(&load.at, &self.domain)[0], 0)))
    }

    /// Prints a store.
    pub fn store(&mut self, n: usize) {
        let store = &self.nest.stores[n];
        let slot = (store.slot, self.slots[store.slot].0);
        // Index maps use the names of the values that they mention, so these are printed first.
        store.values().into_iter().for_each(|value| _ = self.value(value));
        let apart = store.writes == Writes::Apart;
        let packed = apart && self.is_packed(&store.at, &store.guards);
        let at = self.lanes.maps(&store.at, &self.domain);
        let varies = at.len() > 1 || store.maps().flat_map(Index::values).any(|value| self.varies[value]);
        let several = !apart || varies && !packed;
        for lane in 0..if several { self.lanes.count } else { 1 } {
            let place = self.index(&at[lane % at.len()], lane);
            let statement = if packed {
                let values: Vec<_> = (0..self.lanes.count).map(|lane| self.lane(store.value, lane)).collect();
                self.dialect.store_lanes(slot, &place, &values)
            } else {
                let value = self.lane(store.value, lane);
                match store.writes {
                    Writes::Apart => self.dialect.store(slot.0, &place, &value),
                    Writes::Combined(how) => match self.in_block.iter().find(|copied| copied.store == n) {
                        Some(copied) => {
                            let at = copied.place(self.dialect, self.slots[store.slot].1, &place);
                            self.dialect.combine_cell(how, self.table(copied), &at, &value)
                        }
                        None => self.dialect.store_combined(how, slot, &place, &value),
                    },
                    Writes::InOrder => {
                        self.problems.push(
                            "cannot order stores of several points to one element, because the kernel is not a map"
                                .into(),
                        );
                        return;
                    }
                }
            };
            let line = match self.condition(&store.guards, lane).as_str() {
                "true" => statement,
                when => format!("if ({when}) {{ {statement} }}"),
            };
            self.line(&line);
        }
    }

    /// Returns the condition that all guards hold. `&` evaluates every guard, so that there is at most one branch.
    /// Compilers turn each `&&` into a branch, and NVRTC took minutes to thread jumps through hundreds of them.
    fn condition(&self, guards: &[Guard], lane: usize) -> String {
        let of_lanes = self.lanes.guards(guards, &self.domain);
        let parts = of_lanes[lane % of_lanes.len()].iter().flat_map(|(map, range)| {
            let (text, (low, high)) = (self.index(map, lane), self.bounds(map));
            let from = (low < range.start).then(|| format!("({text} >= {})", range.start));
            let to = (high >= range.end).then(|| format!("({text} < {})", range.end));
            from.into_iter().chain(to)
        });
        let parts: Vec<_> = parts.collect();
        if parts.is_empty() { "true".into() } else { format!("({})", parts.join(" & ")) }
    }

    /// Returns the expression of an index map. The coordinate of the split axis counts groups.
    fn index(&self, map: &Index, lane: usize) -> String {
        self.text_of(map, lane, self.is_wide(map))
    }

    fn text_of(&self, map: &Index, lane: usize, wide: bool) -> String {
        let ty = self.dialect.index(wide);
        let of = |atom: &Atom| match atom {
            Atom::Coord(n) if wide => self.dialect.convert(ty, &self.coords[*n]),
            Atom::Coord(n) => self.coords[*n].clone(),
            Atom::Value(v) => {
                let names = self.names[*v].as_ref().expect("index maps mention earlier values only");
                self.dialect.convert(ty, &names[lane % names.len()])
            }
            Atom::Extent(_) => unreachable!("kernels whose extents vary are refused"),
            Atom::Div(x, by) => self.dialect.div(&self.text_of(x, lane, wide), *by, wide, self.bounds(x).0 < 0),
            Atom::Mod(x, by) => self.dialect.modulo(&self.text_of(x, lane, wide), *by, wide, self.bounds(x).0 < 0),
        };
        let mut parts: Vec<_> =
            map.terms.iter().map(|(atom, c)| if *c == 1 { of(atom) } else { format!("{} * {c}", of(atom)) }).collect();
        if map.constant != 0 || parts.is_empty() {
            parts.push(map.constant.to_string());
        }
        format!("({})", parts.join(" + "))
    }

    /// Returns whether evaluating a map needs 64 bits.
    fn is_wide(&self, map: &Index) -> bool {
        let reach = map.terms.iter().fold(map.constant.unsigned_abs(), |sum, (atom, c)| {
            let (low, high) = self.bounds(&Index::atom(atom.clone()));
            sum.saturating_add(c.unsigned_abs().saturating_mul(low.unsigned_abs().max(high.unsigned_abs())))
        });
        let inner = |(atom, _): &(Atom, i64)| matches!(atom, Atom::Div(x, _) | Atom::Mod(x, _) if self.is_wide(x));
        reach >= 1 << 31 || map.terms.iter().any(inner)
    }

    /// Returns the minimum and the maximum of a map.
    fn bounds(&self, map: &Index) -> (i64, i64) {
        let (mut low, mut high) = (map.constant, map.constant);
        for (atom, c) in &map.terms {
            let (from, to) = match atom {
                Atom::Coord(n) => (0, (self.domain[*n] as i64 - 1).max(0)),
                Atom::Value(v) => match &self.nest.instrs[*v] {
                    Instr::Within { extent, .. } => (0, (extent.capacity().unwrap_or(1 << 40) - 1).max(0)),
                    _ => {
                        let Interval { low, high, .. } = self.ranges[*v];
                        (low.max(ANYTHING.start as f64) as i64, high.min(ANYTHING.end as f64) as i64)
                    }
                },
                Atom::Extent(dim) => dim.range().unwrap_or((-(1 << 40), 1 << 40)),
                Atom::Div(x, by) => {
                    let (from, to) = self.bounds(x);
                    (from.div_euclid(*by), to.div_euclid(*by))
                }
                Atom::Mod(x, by) => match self.bounds(x) {
                    (from, to) if from >= 0 && to < *by => (from, to),
                    _ => (0, by - 1),
                },
            };
            let ends = [c.saturating_mul(from), c.saturating_mul(to)];
            low = low.saturating_add(ends[0].min(ends[1]));
            high = high.saturating_add(ends[0].max(ends[1]));
        }
        (low, high)
    }
}

/// Returns, for each value, whether all of its uses are conversions to 16-bit floats.
fn half_values(nest: &Nest) -> Vec<bool> {
    let (mut halved, mut otherwise) = (vec![false; nest.instrs.len()], vec![false; nest.instrs.len()]);
    for instr in &nest.instrs {
        let is_half = matches!(instr, Instr::Map { op, dtype, .. }
            if op.attr("to").is_some() && dtype.is_half());
        let uses = if is_half { &mut halved } else { &mut otherwise };
        instr.args().into_iter().for_each(|arg| uses[arg] = true);
    }
    nest.stores.iter().flat_map(|store| store.values()).for_each(|value| otherwise[value] = true);
    halved.into_iter().zip(otherwise).map(|(halved, otherwise)| halved && !otherwise).collect()
}
