//! Right operands whose weights are decoded from codes: w = f(code)·scale + offset. The scale and the offset of a
//! column are the same for all terms of a block. Constant operands of this kind are packed as codes
//! ([`crate::gemm::coded`]).

use eutectic_backend::{
    Body, Contraction, Instr, Kernel, ValueId,
    axes::Nest,
    grouped::{COLUMNS, Grouped, ROWS},
    intervals::ranges,
    reach::{AxisSet, masks, mentioned},
};
use eutectic_ir::{Attr, DType, Interval, Op};

use super::operand::kept;
use crate::{
    gemm::{
        coded::{BlockNumbers, CodedPanels, PanelWriter, StridedNumbers},
        micro::panel_form::{CodeFormat, CodeKind, CodeOrder, PanelForm},
        product::ProductElement,
    },
    simd::Isa,
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram},
};

/// The maximal number of terms of a block; a longer block is divided.
const LONGEST: usize = 256;
/// The minimal number of terms of a block. The scales and offsets of a shorter one would take more bytes than its codes
/// save.
const SHORTEST: usize = 8;
/// The largest code of 4 bits.
const NIBBLE: f64 = 15.0;

/// The values of an operand's body that panels are made from.
#[derive(Clone, Debug, PartialEq)]
struct CodedValues {
    /// The decoded code.
    value: ValueId,
    /// The code, if it has 4 bits.
    code: Option<ValueId>,
    scale: Option<ValueId>,
    offset: Option<ValueId>,
    subtract: bool,
    /// The number of innermost term axes that make up a block.
    inner: usize,
    kind: CodeKind,
    half: bool,
}

impl CodedValues {
    /// Finds the values in a body. `groups` has the numbers of its batch axes, its term axes and its column axes.
    fn of(nest: &Nest, groups: [usize; 3]) -> Option<CodedValues> {
        let values = Values::of(nest).filter(|values| values.body.lengths.is_empty())?;
        let terms = groups[0]..groups[0] + groups[ROWS];
        (1..=groups[ROWS]).rev().find_map(|inner| {
            let of_block = (terms.end - inner..terms.end).fold(0, |mask, axis| mask | 1 << axis);
            values.find().values(values.result, of_block, inner)
        })
    }

    /// Returns the decoded code, the code, the scale and the offset.
    fn all(&self) -> [Option<ValueId>; 4] {
        [Some(self.value), self.code, self.scale, self.offset]
    }
}

/// The values of an operand that is computed from loads without selections and reductions. Each has the axes on which
/// it depends, and its range.
pub(super) struct Values {
    body: Body,
    /// The operand's value.
    pub result: ValueId,
    masks: Vec<AxisSet>,
    ranges: Vec<Interval>,
}

impl Values {
    /// Returns the values of an operand in `f32`. Returns `None` if the operand has guards, selections or reductions,
    /// or has no integers.
    pub fn of(nest: &Nest) -> Option<Values> {
        // This early test is cheap. The function runs for every product that is priced, and most operands have no
        // codes.
        let is_code = |instr: &Instr| !matches!(instr, Instr::Constant { .. }) && !instr.dtype().is_float();
        if !nest.instrs.iter().any(is_code) {
            return None;
        }
        let Nest { domain, lengths, instrs, results, .. } = nest.clone();
        let body = Body { domain, lengths, instrs, results };
        let result = *body.results.first()?;
        let plain = body.instrs.iter().all(|instr| match instr {
            Instr::Load(load) => load.guards.is_empty(),
            Instr::Constant { .. } | Instr::Coordinate { .. } | Instr::Within { .. } | Instr::Map { .. } => true,
            Instr::Anchor { .. } | Instr::Row { .. } | Instr::Select { .. } => false,
        });
        if !plain || body.instrs[result].dtype() != DType::F32 {
            return None;
        }
        let (masks, ranges) = (masks(&body, 0), ranges(&body));
        Some(Values { body, result, masks, ranges })
    }

    /// Returns a search among the values of the operand's body.
    pub fn find(&self) -> Finder<'_> {
        Finder { instrs: &self.body.instrs, masks: &self.masks, ranges: &self.ranges }
    }
}

/// A search among the values of a body. Each has the axes on which it depends, and its range.
pub(super) struct Finder<'a> {
    instrs: &'a [Instr],
    masks: &'a [AxisSet],
    ranges: &'a [Interval],
}

impl Finder<'_> {
    /// Finds the values that panels are made from, where blocks are along the axes `of_block`.
    fn values(&self, result: ValueId, of_block: AxisSet, inner: usize) -> Option<CodedValues> {
        let mut value = result;
        let (mut offset, mut subtract, mut scale) = (None, false, None);
        if let Some((name @ ("add" | "sub"), rest, number)) = self.split(value, of_block) {
            (value, offset, subtract) = (rest, Some(number), name == "sub");
        }
        if let Some(("mul", rest, number)) = self.split(value, of_block) {
            (value, scale) = (rest, Some(number));
        }
        if self.masks[value] & of_block == 0 {
            return None;
        }
        let nibble = self.nibble(value);
        let kind = match nibble {
            Some(_) => CodeKind::Nibbles,
            // 8-bit codes without scales and offsets are packed as elements of their type: `gemm::kept`.
            None if scale.is_none() && offset.is_none() => return None,
            None => self.bytes(value)?,
        };
        let numbers = || [scale, offset].into_iter().flatten();
        let half = numbers().all(|id| kept(self.instrs, id).is_some_and(|load| load.dtype == DType::F16));
        Some(CodedValues { value, code: nibble, scale, offset, subtract, inner, kind, half })
    }

    /// Finds the 8-bit integer and the scale whose product a value is. The scale does not depend on the axes
    /// `of_block`.
    pub fn scaled_bytes(&self, value: ValueId, of_block: AxisSet) -> Option<(ValueId, ValueId)> {
        let ("mul", value, scale) = self.split(value, of_block)? else { return None };
        let Instr::Map { args, .. } = &self.instrs[value] else { return None };
        (self.bytes(value)? == CodeKind::Signed).then_some((args[0], scale))
    }

    /// Splits a binary op into its name, the operand that differs within a block, and the operand that does not.
    fn split(&self, value: ValueId, of_block: AxisSet) -> Option<(&'static str, ValueId, ValueId)> {
        let Instr::Map { op, args, dtype: DType::F32, .. } = &self.instrs[value] else { return None };
        let &[a, b] = args.as_slice() else { return None };
        // A number that is constant over the operand is part of the table, not a scale or an offset.
        let number = |id: ValueId| self.masks[id] & of_block == 0 && self.masks[id] != 0;
        match (number(a), number(b)) {
            (false, true) => Some((op.name(), a, b)),
            (true, false) if op.name() != "sub" => Some((op.name(), b, a)),
            _ => None,
        }
    }

    /// Returns the 4-bit code of which a value is a function.
    fn nibble(&self, value: ValueId) -> Option<ValueId> {
        let is_code = |id: &ValueId| {
            let range = self.ranges[*id];
            !self.instrs[*id].dtype().is_float() && range.low >= 0.0 && range.high <= NIBBLE && self.masks[*id] != 0
        };
        (0..self.instrs.len()).rev().filter(is_code).find(|&code| self.is_function(value, code))
    }

    /// Returns whether a value depends on the value `of` alone.
    fn is_function(&self, value: ValueId, of: ValueId) -> bool {
        if value == of {
            return true;
        }
        match &self.instrs[value] {
            Instr::Constant { .. } => true,
            Instr::Map { args, .. } => args.iter().all(|&arg| self.is_function(arg, of)),
            Instr::Within { arg, guards, .. } => guards.is_empty() && self.is_function(*arg, of),
            // A load whose index is a function of `of` is an entry of a table.
            Instr::Load(load) => {
                let at = load.at.values();
                mentioned(&load.at) == 0 && !at.is_empty() && at.iter().all(|&id| self.is_function(id, of))
            }
            _ => false,
        }
    }

    /// Returns the kind of the 8-bit codes of which a value is a conversion.
    fn bytes(&self, value: ValueId) -> Option<CodeKind> {
        let Instr::Map { op, args, .. } = &self.instrs[value] else { return None };
        let &[arg] = args.as_slice() else { return None };
        if op.name() != "cast" || self.instrs[arg].dtype().is_float() {
            return None;
        }
        let Interval { low, high, .. } = self.ranges[arg];
        let within = |least: f64, most: f64| low >= least && high <= most;
        match () {
            () if within(-128.0, 127.0) => Some(CodeKind::Signed),
            () if within(0.0, 255.0) => Some(CodeKind::Unsigned),
            () => None,
        }
    }
}

/// Returns the format in which the right operand of a product is packed as codes if it is constant. Returns `None` if
/// it has no such format.
pub fn coded(kernel: &Kernel) -> Option<CodeFormat> {
    let Contraction { rhs, axes, .. } = kernel.contraction()?;
    if kernel.accumulator() != Some(DType::F32) || kernel.body.domain.len() < axes.batch + axes.rows {
        return None;
    }
    let columns: usize = kernel.body.domain[axes.batch + axes.rows..].iter().product();
    let operand = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
    (columns > 1).then(|| format_of(&operand)).flatten()
}

/// Returns the format of a right operand that is kept as codes where it is constant; `None` for another.
pub fn format_of(operand: &Grouped) -> Option<CodeFormat> {
    CodedNest::of(operand).map(|nest| nest.format)
}

/// Returns the terms of a block of a right operand over `[b.. k.. n..]` whose weights are scaled integers, and can be
/// packed as codes. Returns `None` for other operands.
pub(super) fn block_of(operand: &Grouped) -> Option<usize> {
    let nest = CodedNest::of(operand).filter(|CodedNest { nest, values, .. }| is_whole(&nest.instrs, values.value))?;
    nest.format.in_words().map(|format| format.block)
}

/// Returns whether all elements of a value are integers, as its ops show.
fn is_whole(instrs: &[Instr], value: ValueId) -> bool {
    match &instrs[value] {
        instr if !instr.dtype().is_float() => true,
        Instr::Constant { value, .. } => value.get().fract() == 0.0,
        Instr::Within { arg, .. } => is_whole(instrs, *arg),
        Instr::Map { op, args, .. } => {
            matches!(op.name(), "cast" | "add" | "sub" | "mul" | "neg") && args.iter().all(|&arg| is_whole(instrs, arg))
        }
        _ => false,
    }
}

/// An operand whose weights are decoded from codes, with its terms divided into blocks.
struct CodedNest {
    nest: Nest,
    /// The number of batch axes.
    batch: usize,
    /// The number of term axes that count blocks.
    outer: usize,
    values: CodedValues,
    format: CodeFormat,
}

impl CodedNest {
    fn of(operand: &Grouped) -> Option<CodedNest> {
        let operand = operand.merged(COLUMNS)?;
        let [batch, depth, _] = operand.groups;
        let Grouped { mut nest, .. } = operand;
        if nest.domain.contains(&0) {
            return None;
        }
        let values = CodedValues::of(&nest, [batch, depth, 1])?;
        // An axis is divided if a block would be too long with all of it.
        let (first, end) = (batch + depth - values.inner, batch + depth);
        let (mut outer, mut block) = (end, 1);
        while outer > first && block * nest.domain[outer - 1] <= LONGEST {
            outer -= 1;
            block *= nest.domain[outer];
        }
        if outer > first {
            let extent = nest.domain[outer - 1];
            let by = (1..=LONGEST / block).rev().find(|by| extent.is_multiple_of(*by)).unwrap_or(1);
            if by > 1 {
                nest = nest.split(outer - 1, by);
                block *= by;
            }
        }
        if block < SHORTEST || !block.is_multiple_of(2) || nest.domain.len() > MAX_RANK {
            return None;
        }
        let depth = nest.domain.len() - 1 - batch;
        let inner = inner_axes(&nest.domain[batch..batch + depth], block);
        let (offset, order) = (values.offset.is_some(), CodeOrder::Pairs);
        let format = CodeFormat { codes: values.kind, order, block, half: values.half, offset };
        Some(CodedNest { nest, batch, outer: depth - inner, values, format })
    }
}

/// Returns the number of innermost axes that together have `points` points.
fn inner_axes(extents: &[usize], points: usize) -> usize {
    let mut left = points;
    extents
        .iter()
        .rev()
        .take_while(|&&extent| {
            let more = left > 1;
            left /= extent.max(1);
            more
        })
        .count()
}

/// A compiled operand that packs its weights as codes.
pub struct CodedOperand {
    form: PanelForm,
    program: TileProgram,
    batch: usize,
    outer: usize,
    /// The indices of the decoded code, the code, the scale and the offset in the results of the program.
    places: [Option<usize>; 4],
    subtract: bool,
}

impl CodedOperand {
    /// Compiles an operand over `[b.. k.. n..]`, for a left operand of floats or of `integers`. Returns it with the
    /// layout of its panels, or `None` if its weights are not decoded from codes.
    pub fn compile<T: ProductElement>(
        operand: &Grouped,
        integers: bool,
        slots: &[(DType, usize)],
        isa: Isa,
    ) -> Option<(CodedOperand, CodedPanels<T>)> {
        let CodedNest { mut nest, batch, outer, values, format } = CodedNest::of(operand)?;
        let columns = *nest.domain.last()?;
        let terms = nest.domain[batch..nest.domain.len() - 1].iter().product();
        let panels = match integers {
            true => CodedPanels::for_integers(format, terms, isa)?,
            false => CodedPanels::new(format, terms, isa)?,
        };
        let (mut results, mut places) = (Vec::new(), [None; 4]);
        for (place, id) in places.iter_mut().zip(values.all()) {
            *place = id.map(|id| {
                let id = cast_to(&mut nest, id, DType::F32);
                results.push(id);
                results.len() - 1
            });
        }
        nest.results = results;
        let mut program = tile::compile(&nest, 0, slots, isa).ok()?;
        let last = columns % panels.form.width;
        let lens = [panels.form.width.min(columns), last].into_iter().filter(|&n| n > 0).map(|n| {
            let mut len = [1; MAX_RANK];
            len[batch + outer..nest.domain.len() - 1]
                .copy_from_slice(&nest.domain[batch + outer..nest.domain.len() - 1]);
            len[nest.domain.len() - 1] = n;
            len
        });
        program.allocate(&lens.collect::<Vec<_>>());
        let form = panels.form;
        Some((CodedOperand { form, program, batch, outer, places, subtract: values.subtract }, panels))
    }

    /// Returns the bytes of scratch memory that packing takes, at the start of a frame's scratch memory.
    pub fn scratch(&self) -> usize {
        self.program.scratch
    }

    /// Packs a panel of the matrix at a batch point. The packed matrix begins at `to`.
    ///
    /// # Safety
    /// The frame must have the kernel's slots and enough scratch memory. `to` must have room for the packed matrix.
    pub unsafe fn pack(&self, frame: &Frame<'_>, point: &[usize], panel: usize, to: *mut u8) {
        let domain = &self.program.domain;
        let (first, last) = (self.batch + self.outer, domain.len() - 1);
        let (column, to) = (panel * self.form.width, to.wrapping_add(panel * self.form.bytes()));
        let columns = self.form.width.min(domain[last] - column);
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(point);
        tile.start[last] = column;
        tile.len[first..last].copy_from_slice(&domain[first..last]);
        tile.len[last] = columns;
        // SAFETY: the caller promises the room; panels are whole multiples of the alignment.
        let mut writer = unsafe { PanelWriter::new(self.form, to, columns) };
        for block in 0..self.form.blocks {
            let mut left = block;
            for axis in (self.batch..first).rev() {
                tile.start[axis] = left % domain[axis];
                left /= domain[axis];
            }
            // SAFETY: passed on from the caller. All results are numbers of type `f32`.
            unsafe {
                self.program.run(frame, &tile, RowPart::WHOLE);
                let [value, codes, scales, offsets] = self.places.map(|place| {
                    let (at, strides) = self.program.result(frame, &tile, self.program.results[place?]);
                    let terms = terms(&domain[first..last], &strides[first..last]);
                    Some(StridedNumbers { at: at.cast(), terms, columns: strides[last] })
                });
                let Some(values) = value else { return };
                let numbers = BlockNumbers { values, codes, scales, offsets, subtract: self.subtract };
                writer.block(block, &numbers);
            }
        }
        writer.finish();
    }
}

/// Returns a value converted to a type. Adds the conversion to the nest unless the value has the type.
pub(super) fn cast_to(nest: &mut Nest, value: ValueId, dtype: DType) -> ValueId {
    if nest.instrs[value].dtype() == dtype {
        return value;
    }
    let attrs = [Attr::DType(dtype)].into_iter().collect();
    let op = Op::named("cast").expect("`cast` is in the table of ops");
    nest.instrs.push(Instr::Map { op, attrs, args: vec![value], dtype });
    nest.instrs.len() - 1
}

/// Returns the offset of each point of some axes from the first one, in elements and in row-major order.
fn terms(extents: &[usize], strides: &[isize]) -> Vec<isize> {
    let mut at = vec![0];
    for (&extent, &stride) in extents.iter().zip(strides) {
        at = at.iter().flat_map(|&from| (0..extent as isize).map(move |n| from + n * stride)).collect();
    }
    at
}
