//! Compiles bodies to tile programs.

mod stores;

use eutectic_backend::{
    Instr, Load, Store, ValueId,
    axes::Nest,
    order::{flatten_pieces, needed, order},
    reductions::RowValues,
};
use eutectic_ir::{
    DType,
    attr::Number,
    ops::{Ids, Order},
};
use rustc_hash::FxHashMap;

use super::{
    access::{CompiledAccess, TileGuard},
    domain::{AxisMask, MAX_RANK},
    gather::{GatherLines, axes_of_boxes},
    pairs::{FusedPair, pairs},
    program::{TileProgram, TileStep, TileValue, Word},
    region::Region,
};
use crate::simd::{
    Isa, PointFn,
    convert::{cast, widen},
    ranking, reduce, scan, table,
};

/// Compiles a nest whose innermost `rows` axes form a row. `slots` has the element type and number of elements of each
/// buffer. [`TileProgram::allocate`] places the registers later.
///
/// # Errors
/// All reasons why the nest cannot be compiled.
pub fn compile(nest: &Nest, rows: usize, slots: &[(DType, usize)], isa: Isa) -> Result<TileProgram, Vec<String>> {
    compile_for(nest, innermost(nest, rows), 0, slots, isa)
}

/// Returns the mask of the innermost `count` axes of a nest.
pub fn innermost(nest: &Nest, count: usize) -> AxisMask {
    let rank = nest.domain.len().min(MAX_RANK);
    (rank - count.min(rank)..rank).fold(0, |mask, axis| mask | 1 << axis)
}

/// Compiles a nest with the given row axes. Tiles must have one point along the axes of `single`, so that guards over
/// these axes and one other form boxes within a tile.
///
/// # Errors
/// All reasons why the nest cannot be compiled.
pub fn compile_for(
    nest: &Nest,
    row: AxisMask,
    single: AxisMask,
    slots: &[(DType, usize)],
    isa: Isa,
) -> Result<TileProgram, Vec<String>> {
    let mut nest = nest.clone();
    flatten_pieces(&mut nest.instrs);
    let nest = &nest;
    let rank = nest.domain.len();
    if rank > MAX_RANK {
        let why = format!(
            "cannot compute over {rank} axes, which cannot be merged further, because kernels have at most {MAX_RANK}"
        );
        return Err(vec![why]);
    }
    let all = if rank == 0 { 0 } else { u8::MAX >> (8 - rank) };
    let mut builder = TileCompiler {
        program: TileProgram {
            domain: nest.domain.clone(),
            row,
            together: 0,
            in_order: 0,
            steps: Vec::new(),
            values: Vec::new(),
            writes: Vec::new(),
            scatters: Vec::new(),
            results: Vec::new(),
            passes: Vec::new(),
            scratch: 0,
            shapes: Vec::new(),
            isa,
            beyond_l2: false,
            streams: None,
        },
        place: vec![None; nest.instrs.len()],
        instrs: &nest.instrs,
        pairs: pairs(nest, isa),
        narrowed: FxHashMap::default(),
        all,
        single,
        slots,
        isa,
        problems: Vec::new(),
    };
    // The inner op of a fused pair is computed together with the outer one.
    let roots = nest.stores.iter().flat_map(Store::values).chain(nest.results.iter().copied());
    let mut wanted = needed(&nest.instrs, roots);
    builder.pairs.iter().flatten().for_each(|pair| wanted[pair.0] = false);
    order(&nest.instrs).into_iter().filter(|&id| wanted[id]).for_each(|id| builder.value(id));
    nest.stores.iter().for_each(|s| builder.store(s));
    builder.program.results = nest.results.iter().map(|&r| builder.at(r)).collect();
    if !builder.problems.is_empty() {
        builder.problems.sort();
        builder.problems.dedup();
        return Err(builder.problems);
    }
    let mut program = builder.program;
    program.passes = passes(&program);
    note_pieces(&mut program);
    Ok(program)
}

/// Sets [`TileValue::in_pieces`] for loads that only selections use, within the loads' guards.
fn note_pieces(program: &mut TileProgram) {
    let mut may: Vec<_> =
        program.steps.iter().map(|step| matches!(step, TileStep::Affine { .. } | TileStep::Boxed { .. })).collect();
    for id in program.stored().into_iter().chain(program.results.iter().copied()) {
        may[id] = false;
    }
    for step in &program.steps {
        match step {
            TileStep::Pieces { pieces, .. } => pieces.iter().for_each(|(piece, id)| {
                may[*id] &= match &program.steps[*id] {
                    TileStep::Boxed { region, .. } => piece.is_within(region),
                    _ => true,
                };
            }),
            step => step.args().into_iter().for_each(|id| may[id] = false),
        }
    }
    program.values.iter_mut().zip(may).for_each(|(value, may)| value.in_pieces = may);
}

struct TileCompiler<'a> {
    program: TileProgram,
    instrs: &'a [Instr],
    pairs: Vec<FusedPair>,
    /// For each value of the body, the step that computes it.
    place: Vec<Option<usize>>,
    /// The step that narrows another step's value to an element type for stores.
    narrowed: FxHashMap<(usize, DType), usize>,
    all: AxisMask,
    single: AxisMask,
    slots: &'a [(DType, usize)],
    isa: Isa,
    problems: Vec<String>,
}

impl TileCompiler<'_> {
    fn push(&mut self, step: TileStep, dtype: DType, mask: AxisMask) -> usize {
        self.program.steps.push(step);
        self.program.values.push(TileValue { dtype, mask, offset: 0, constant: None, direct: None, in_pieces: false });
        self.program.steps.len() - 1
    }

    /// Records a problem, and returns a placeholder of the given type, so that users of the value cause no further
    /// problems.
    fn problem(&mut self, what: String, dtype: DType) -> usize {
        self.problems.push(what);
        self.push(TileStep::Ready, dtype.register(), self.all)
    }

    fn at(&self, value: ValueId) -> usize {
        self.place[value].expect("arguments are compiled before their users")
    }

    fn mask(&self, step: usize) -> AxisMask {
        self.program.values[step].mask
    }

    /// Compiles a value.
    fn value(&mut self, id: ValueId) {
        let place = self.pair(id).unwrap_or_else(|| self.instr(id));
        self.place[id] = Some(place);
    }

    /// Compiles a value and the argument with which it is fused to one step. Returns `None`, after compiling the
    /// argument alone, if another argument adds axes: the fused function would then recompute the inner op along them.
    fn pair(&mut self, id: ValueId) -> Option<usize> {
        let (inner, run) = self.pairs[id]?;
        let others = self.instrs[id].args().into_iter().filter(|&arg| arg != inner);
        let places: Vec<_> = self.instrs[inner].args().into_iter().chain(others).map(|a| self.at(a)).collect();
        let mask = self.mask(places[0]) | self.mask(places[1]);
        if places.iter().any(|&place| mask | self.mask(place) != mask) {
            self.value(inner);
            return None;
        }
        Some(self.point(run, [0.0; 2], places, DType::F32))
    }

    fn instr(&mut self, id: ValueId) -> usize {
        let instr = &self.instrs[id];
        let dtype = instr.dtype().register();
        match instr {
            Instr::Anchor { .. } => self.push(TileStep::Anchor, dtype, self.all),
            Instr::Load(load) => self.load(load),
            Instr::Constant { value, .. } => {
                let step = self.push(TileStep::Ready, dtype, 0);
                self.program.values[step].constant = Some(number(*value, instr.dtype()));
                step
            }
            Instr::Coordinate { index, .. } => match self.access(index) {
                Ok((access, mask)) => {
                    let step = self.push(TileStep::Coordinate(access), DType::I64, mask);
                    match dtype {
                        DType::I64 => step,
                        _ => self.point(cast(DType::I64, instr.dtype(), self.isa), [0.0; 2], vec![step], dtype),
                    }
                }
                Err(why) => self.problem(why, dtype),
            },
            Instr::Within { arg, extent, from_end, check, guards, .. } => {
                let arg = self.at(*arg);
                let (guards, of_guards) = self.guards(guards);
                let mask = self.mask(arg) | of_guards;
                let Some(extent) = extent.known().filter(|&n| n >= 0) else {
                    let why = format!("cannot check an index because the extent {extent} of its axis is not known");
                    return self.problem(why, dtype);
                };
                let ids = Ids { extent, from_end: *from_end };
                self.push(TileStep::Within { arg, ids, check: *check, guards }, dtype, mask)
            }
            Instr::Map { op, attrs, args, dtype: result } => {
                let places: Vec<_> = args.iter().map(|&a| self.at(a)).collect();
                let dtypes: Vec<_> = places.iter().map(|&p| self.program.values[p].dtype).collect();
                match table::find(*op, attrs, &dtypes, *result, self.isa) {
                    Ok(found) if places.len() <= 3 => self.point(found.function, found.k, places, dtype),
                    Ok(_) => {
                        let count = places.len();
                        let why =
                            format!("cannot compute `{op}` of {count} arguments because functions have at most 3");
                        self.problem(why, dtype)
                    }
                    Err(why) => self.problem(why, dtype),
                }
            }
            Instr::Row { op, attrs, args, dtype: result } => {
                let masks = args.iter().map(|&arg| self.mask(self.at(arg)));
                let all = masks.fold(self.program.row, |all, mask| all | mask);
                let args: Vec<_> = args.iter().map(|&arg| self.spread(arg, all)).collect();
                let scan = op.row().zip(scan::Order::of(*op, attrs));
                match (args.as_slice(), instr.reduction(), Order::of(*op, attrs), scan) {
                    (&[arg], Some((how, _)), ..) => {
                        let (accumulate, finish) = reduce::find(how, dtype, self.isa);
                        let mask = self.mask(arg) & !self.program.row;
                        self.push(TileStep::Reduce { arg, accumulate, finish, offset: 0 }, dtype, mask)
                    }
                    (&[arg], None, Some(order), _) => {
                        let rank = ranking::find(self.program.values[arg].dtype, order.descending);
                        let step = TileStep::Ranking { arg, most: order.most, rank, offset: 0 };
                        let step = self.push(step, DType::I32, self.mask(arg));
                        match result {
                            DType::I32 => step,
                            _ => self.point(cast(DType::I32, *result, self.isa), [0.0; 2], vec![step], dtype),
                        }
                    }
                    (_, None, None, Some((row, order))) => {
                        let function = scan::find(row.monoid, dtype, self.isa);
                        self.push(TileStep::Scan { args, function, order, offset: 0 }, dtype, all)
                    }
                    _ => self.problem(format!("cannot compute `{op}` over rows because there is no kernel"), dtype),
                }
            }
            Instr::Select { pieces, fill, .. } => self.select(pieces, number(*fill, instr.dtype()), dtype),
        }
    }

    /// Returns a step with the value repeated along those of `axes` on which it does not depend.
    fn spread(&mut self, value: ValueId, axes: AxisMask) -> usize {
        let arg = self.at(value);
        match axes & !self.mask(arg) {
            0 => arg,
            missing => {
                let (of, mask) = (self.program.values[arg].dtype, self.mask(arg) | missing);
                self.push(TileStep::Spread(arg), of, mask)
            }
        }
    }

    /// Adds a pointwise step, and returns its number.
    fn point(&mut self, function: PointFn, k: [f64; 2], args: Vec<usize>, dtype: DType) -> usize {
        let mask = args.iter().fold(0, |mask, &arg| mask | self.mask(arg));
        self.push(TileStep::Point { function, k, args }, dtype, mask)
    }

    /// Compiles a map, and returns it with the axes on which it depends.
    fn access(&self, index: &eutectic_ir::index::Index) -> Result<(CompiledAccess, AxisMask), String> {
        let access = CompiledAccess::new(index).ok_or_else(|| {
            format!("cannot compile the index {index} because it has over {MAX_RANK} axes or an unknown extent")
        })?;
        let mut mask = access.mask();
        for value in index.values() {
            let TileValue { dtype, mask: of_value, .. } = self.program.values[self.at(value)];
            if !dtype.is_int() {
                return Err(format!("cannot use {dtype} as an index because it is not an integer type"));
            }
            mask |= of_value;
        }
        Ok((access.with_values(&|v| self.at(v)), mask))
    }

    /// Compiles guards, and returns them with the axes on which they depend.
    fn guards(&mut self, guards: &[eutectic_backend::Guard]) -> (Vec<TileGuard>, AxisMask) {
        let (mut compiled, mut mask) = (Vec::new(), 0);
        for (index, range) in guards {
            match self.access(index) {
                Ok((access, of_guard)) => {
                    compiled.push(TileGuard { access, from: range.start, to: range.end });
                    mask |= of_guard;
                }
                Err(why) => self.problems.push(why),
            }
        }
        (compiled, mask)
    }

    fn load(&mut self, load: &Load) -> usize {
        let Some(&(dtype, count)) = self.slots.get(load.slot) else {
            return self
                .problem(format!("cannot load from buffer {} because it does not exist", load.slot), load.dtype);
        };
        if dtype != load.dtype {
            return self.problem(format!("cannot load {} from a buffer of {dtype}", load.dtype), load.dtype);
        }
        if count == 0 && self.program.domain.contains(&0) {
            // The buffer and the domain are empty, so the load is replaced by a constant that nothing uses.
            let step = self.push(TileStep::Ready, dtype.register(), 0);
            self.program.values[step].constant = Some(Word::default());
            return step;
        }
        let (access, mask) = match self.access(&load.at) {
            Ok(compiled) => compiled,
            Err(why) => return self.problem(why, load.dtype),
        };
        let raw = match access.affine() {
            Some((base, strides)) if load.guards.is_empty() => {
                if !self.inside(&load.at, count) {
                    let why = format!("cannot load at {} because the buffer has only {count} elements", load.at);
                    return self.problem(why, load.dtype);
                }
                self.push(TileStep::Affine { slot: load.slot, base, strides }, dtype, mask)
            }
            affine => {
                let (guards, of_guards) = self.guards(&load.guards);
                let region = Region::new(&guards, &self.program.domain, self.single);
                let mask = mask | of_guards;
                let step = match affine.zip(region) {
                    Some(((base, strides), region)) if is_inside(&region.range(base, &strides), count) => {
                        TileStep::Boxed { slot: load.slot, base, strides, region }
                    }
                    _ => {
                        let of_value = |v| self.mask(v);
                        let boxes = axes_of_boxes(&access, &guards, mask, &of_value);
                        let mut lines = match boxes {
                            None => GatherLines::new(&access, &guards, mask, &of_value).map(Box::new),
                            Some(_) => None,
                        };
                        if let Some(lines) = &mut lines {
                            lines.pick((dtype.size(), count), &|v| self.program.values[v].dtype, self.isa);
                        }
                        TileStep::Walk { slot: load.slot, count, access, guards, boxes, lines }
                    }
                };
                self.push(step, dtype, mask)
            }
        };
        match widen(dtype, self.isa) {
            Some(run) => self.point(run, [0.0; 2], vec![raw], dtype.register()),
            None => raw,
        }
    }

    fn select(&mut self, pieces: &[(Vec<eutectic_backend::Guard>, ValueId)], fill: Word, dtype: DType) -> usize {
        let mut mask = 0;
        let pieces = pieces.iter().map(|(guards, value)| {
            let (guards, of_guards) = self.guards(guards);
            let value = self.at(*value);
            mask |= of_guards | self.mask(value);
            (guards, value)
        });
        let pieces: Vec<_> = pieces.collect();
        let regions: Option<Vec<_>> = pieces
            .iter()
            .map(|(g, value)| Some((Region::new(g, &self.program.domain, self.single)?, *value)))
            .collect();
        match regions {
            Some(pieces) if self.is_filled(&pieces, fill, mask) => pieces[0].1,
            Some(pieces) => {
                let disjoint_before =
                    |(n, (a, _)): (usize, &(Region, usize))| pieces[..n].iter().all(|(b, _)| a.is_disjoint(b));
                let disjoint = pieces.iter().enumerate().all(disjoint_before);
                self.push(TileStep::Pieces { pieces, fill, disjoint }, dtype, mask)
            }
            None => self.push(TileStep::Select { pieces, fill }, dtype, mask),
        }
    }

    /// Returns whether the selection has the value of its only piece at all points. The piece is a load that is zero
    /// outside of its guards, they hold only within the piece's box, and the fill value is zero too.
    fn is_filled(&self, pieces: &[(Region, usize)], fill: Word, mask: AxisMask) -> bool {
        let [(outer, value)] = pieces else { return false };
        let is_zero = matches!(&self.program.steps[*value], TileStep::Boxed { region, .. } if region.is_within(outer));
        is_zero && fill == Word::default() && self.mask(*value) == mask
    }

    /// Returns whether a map is within a buffer of `count` elements at all points of the domain.
    fn inside(&self, index: &eutectic_ir::index::Index, count: usize) -> bool {
        self.program.domain.contains(&0) || is_inside(&index.range(&self.program.domain), count)
    }
}

/// Returns whether a range is within a buffer of `count` elements.
fn is_inside(range: &std::ops::Range<i64>, count: usize) -> bool {
    range.start >= 0 && range.end <= count as i64
}

/// Returns a number in the register type of an element type, rounded to the element type.
pub fn number(x: Number, dtype: DType) -> Word {
    let tensor = x.tensor(dtype);
    let held = dtype.register();
    let tensor = if held == dtype { tensor } else { eutectic_ir::Tensor::from_f64(held, &[], tensor.to_f64()) };
    let mut word = Word::default();
    word.0[..tensor.bytes().len()].copy_from_slice(tensor.bytes());
    word
}

/// Returns the steps of each pass over a row, if the row is divided into parts.
fn passes(program: &TileProgram) -> Vec<Vec<usize>> {
    let values = RowValues {
        args: program.steps.iter().map(TileStep::args).collect(),
        ends_pass: program.steps.iter().map(|step| matches!(step, TileStep::Reduce { .. })).collect(),
    };
    values.passes(program.stored().into_iter())
}
