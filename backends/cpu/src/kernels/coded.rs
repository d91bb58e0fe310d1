//! Right operands whose weights are decoded from codes: w = f(code)·scale + offset, or (f(code) + offset)·scale. The scale and the offset of a
//! column are the same for all terms of a block. Constant operands of this kind are packed as codes ([`crate::gemm::coded`]).

use std::ops::Range;

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
        coded::{BlockNumbers, CodedPanels, KeptNumbers, PanelWriter, StridedNumbers},
        micro::panel_form::{CodeFormat, CodeKind, Decoding, NumberForm, PanelForm},
        product::ProductElement,
    },
    simd::Isa,
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram},
};

/// The longest and the shortest block. A longer one is cut. The numbers of a shorter one would take more bytes than its codes save.
const LONGEST: usize = 256;
const SHORTEST: usize = 8;
/// The most bits of codes that are not kept as integers of 8 bits, and of those that a table has a number for.
const BITS: u32 = 6;
const NIBBLE: u32 = 4;
/// The bits of the significand of an `f32`.
const SIGNIFICAND: usize = 24;
/// The most blocks of a run: its shared numbers are little beside these.
const RUN: usize = 64;

/// The values of an operand's body that panels are made from.
#[derive(Clone, Debug, PartialEq)]
struct CodedValues {
    /// The decoded code.
    value: ValueId,
    /// The code, where it has fewer bits than a byte.
    code: Option<ValueId>,
    scale: Option<KeptValue>,
    offset: Option<KeptValue>,
    subtract: bool,
    decoding: Decoding,
    /// The number of axes of a block, the innermost ones of the terms.
    inner: usize,
    kind: CodeKind,
    /// The code that stands for 0, where codes are in planes.
    zero: u8,
}

/// A scale or an offset, and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KeptValue {
    form: NumberForm,
    value: ValueId,
    /// The float that it is a multiple of.
    shared: Option<ValueId>,
}

impl CodedValues {
    /// Finds them in a body. `groups` counts its axes: those of the batch, of the terms and of the columns.
    fn of(nest: &Nest, groups: [usize; 3]) -> Option<CodedValues> {
        let Nest { domain, lengths, instrs, results, .. } = nest.clone();
        let body = &Body { domain, lengths, instrs, results };
        let result = *body.results.first()?;
        let plain = body.instrs.iter().all(|instr| match instr {
            Instr::Load(load) => load.guards.is_empty(),
            Instr::Constant { .. } | Instr::Coordinate { .. } | Instr::Within { .. } | Instr::Map { .. } => true,
            Instr::Anchor { .. } | Instr::Row { .. } | Instr::Select { .. } => false,
        });
        if !plain || body.instrs[result].dtype() != DType::F32 || !body.lengths.is_empty() {
            return None;
        }
        let (masks, ranges) = (masks(body, 0), ranges(body));
        let find = Finder { instrs: &body.instrs, masks: &masks, ranges: &ranges };
        let terms = groups[0]..groups[0] + groups[ROWS];
        (1..=groups[ROWS]).rev().find_map(|inner| {
            let of_block = (terms.end - inner..terms.end).fold(0, |mask, axis| mask | 1 << axis);
            find.values(result, of_block, inner)
        })
    }

    /// Returns the numbers that are kept.
    fn numbers(&self) -> impl Iterator<Item = KeptValue> {
        [self.scale, self.offset].into_iter().flatten()
    }

    /// Returns the decoded code, the code, and the own and shared parts of the scale and the offset.
    fn all(&self) -> [Option<ValueId>; 6] {
        let of = |number: Option<KeptValue>| [number.map(|n| n.value), number.and_then(|n| n.shared)];
        let ([scale, shared_scale], [offset, shared_offset]) = (of(self.scale), of(self.offset));
        [Some(self.value), self.code, scale, shared_scale, offset, shared_offset]
    }
}

/// The values of a body, each with the axes that it depends on and its range.
struct Finder<'a> {
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
        let mut centred = false;
        if let (None, Some(_), Some((name @ ("add" | "sub"), rest, number))) =
            (offset, scale, self.split(value, of_block))
        {
            (value, offset, subtract, centred) = (rest, Some(number), name == "sub", true);
        }
        // Bytes without numbers are kept as they are: `gemm::kept`.
        let is_plain = scale.is_none() && offset.is_none();
        if self.masks[value] & of_block == 0 || is_plain && self.code(value).is_none() {
            return None;
        }
        // The opposite of −128 is no integer of 8 bits.
        let least = if subtract { -127.0 } else { -128.0 };
        let (scale, offset) =
            (scale.map(|id| self.kept(id, false, -128.0)), offset.map(|id| self.kept(id, centred, least)));
        let (kind, code, zero, decoding) = self.packed(value, scale, offset, centred).or_else(|| {
            let decoding = match offset {
                None => Decoding::Scaled,
                Some(_) if centred => Decoding::Centred,
                Some(_) => Decoding::Added,
            };
            Some((self.bytes(value).filter(|_| !is_plain)?, None, 0, decoding))
        })?;
        Some(CodedValues { value, code, scale, offset, subtract, decoding, inner, kind, zero })
    }

    /// Finds codes of fewer than 8 bits, the code that stands for 0, and what becomes of their numbers.
    fn packed(
        &self,
        value: ValueId,
        scale: Option<KeptValue>,
        offset: Option<KeptValue>,
        centred: bool,
    ) -> Option<(CodeKind, Option<ValueId>, u8, Decoding)> {
        let (code, bits) = self.code(value)?;
        let zero = self.zero(value, code);
        // The product of an integer with a scale has the bits of both.
        let is_exact = |bits: u32| scale.map_or(0, |scale| scale.form.bits()) + bits as usize <= SIGNIFICAND;
        let of_table = match offset {
            None => Decoding::Scaled,
            Some(_) if centred => Decoding::Centred,
            Some(_) if zero.is_some_and(|zero| u32::from(zero) < 1 << NIBBLE) && is_exact(NIBBLE + 1) => {
                Decoding::Fused
            }
            Some(_) => Decoding::Added,
        };
        let table = (CodeKind::Nibbles, Some(code), 0, of_table);
        // In planes, the zero is part of the offset, which is exact for powers of two.
        let of_planes = match (offset, zero) {
            (None, Some(zero)) if zero == 0 || zero.is_power_of_two() => Some((zero, Decoding::Fused)),
            (Some(_), Some(0)) if centred => Some((0, Decoding::Centred)),
            (Some(_), Some(0)) if is_exact(bits) => Some((0, Decoding::Fused)),
            _ => None,
        };
        let kind = match bits {
            1 | 2 => CodeKind::Bits2,
            3 => CodeKind::Bits3,
            4 => return Some(table),
            5 => CodeKind::Bits5,
            _ => CodeKind::Bits6,
        };
        match of_planes {
            Some((zero, decoding)) if scale.is_some() && (decoding == Decoding::Fused || kind == CodeKind::Bits2) => {
                Some((kind, Some(code), zero, decoding))
            }
            _ => (bits <= NIBBLE).then_some(table),
        }
    }

    /// Returns how a number that is the same for all terms of a block is kept: as an integer of 8 bits from `least` on, if it may be one.
    fn kept(&self, id: ValueId, integer: bool, least: f64) -> KeptValue {
        let is_half = |id| kept(self.instrs, id).is_some_and(|load| load.dtype == DType::F16);
        let is_byte = |id: ValueId| {
            let range = self.ranges[id];
            self.is_integer(id) && range.low >= least && range.high <= 127.0
        };
        let own = |form| KeptValue { form, value: id, shared: None };
        if is_half(id) {
            return own(NumberForm::F16);
        }
        if integer && is_byte(id) {
            return own(NumberForm::I8);
        }
        if let Instr::Map { op, args, .. } = &self.instrs[id]
            && let (&[a, b], "mul") = (args.as_slice(), op.name())
        {
            for (shared, value) in [(a, b), (b, a)] {
                if is_half(shared) && is_byte(value) {
                    return KeptValue { form: NumberForm::Levels, value, shared: Some(shared) };
                }
            }
        }
        own(NumberForm::F32)
    }

    /// Returns whether a value is a whole number.
    fn is_integer(&self, id: ValueId) -> bool {
        match &self.instrs[id] {
            instr if !instr.dtype().is_float() => true,
            Instr::Constant { .. } => self.ranges[id].low.fract() == 0.0 && self.ranges[id].low == self.ranges[id].high,
            Instr::Map { op, args, .. } => {
                matches!(op.name(), "cast" | "add" | "sub" | "mul") && args.iter().all(|&arg| self.is_integer(arg))
            }
            _ => false,
        }
    }

    /// Splits a binary op into its name, the operand that differs within a block, and the operand that does not.
    fn split(&self, value: ValueId, of_block: AxisSet) -> Option<(&'static str, ValueId, ValueId)> {
        let Instr::Map { op, args, dtype: DType::F32, .. } = &self.instrs[value] else { return None };
        let &[a, b] = args.as_slice() else { return None };
        // A number that is the same everywhere is part of the table.
        let number = |id: ValueId| self.masks[id] & of_block == 0 && self.masks[id] != 0;
        match (number(a), number(b)) {
            (false, true) => Some((op.name(), a, b)),
            (true, false) if op.name() != "sub" => Some((op.name(), b, a)),
            _ => None,
        }
    }

    /// Returns the code that a value is a function of, and its bits: the one that has the fewest.
    fn code(&self, value: ValueId) -> Option<(ValueId, u32)> {
        let bits = |id: ValueId| {
            let range = self.ranges[id];
            let integer = !self.instrs[id].dtype().is_float() && range.low >= 0.0 && self.masks[id] != 0;
            (1..=BITS).find(|bits| integer && range.high < f64::from(1 << bits))
        };
        let codes = (0..self.instrs.len()).rev().filter_map(|id| Some((id, bits(id)?)));
        codes.filter(|&(id, _)| self.is_function(value, id)).min_by_key(|&(_, bits)| bits)
    }

    /// Returns the code that a value is 0 for, where it is the difference from that.
    fn zero(&self, value: ValueId, code: ValueId) -> Option<u8> {
        if value == code {
            return Some(0);
        }
        let Instr::Map { op, args, .. } = &self.instrs[value] else { return None };
        match (op.name(), args.as_slice()) {
            // A conversion of whole numbers is exact, but for those that the type does not have.
            ("cast", &[arg]) => {
                let wide = self.instrs[value].dtype();
                let fits =
                    |x: f64| wide.is_float() || wide == DType::I8 && (-128.0..=127.0).contains(&x) || wide.size() > 1;
                let range = self.ranges[arg];
                self.zero(arg, code).filter(|_| fits(range.low) && fits(range.high))
            }
            ("sub", &[arg, number]) => self.difference(arg, number, 1.0, code),
            ("add", &[a, b]) => self.difference(a, b, -1.0, code).or_else(|| self.difference(b, a, -1.0, code)),
            _ => None,
        }
    }

    /// Returns the code that the difference of a value and a constant, which a sign is part of, is 0 for.
    fn difference(&self, value: ValueId, number: ValueId, sign: f64, code: ValueId) -> Option<u8> {
        let Interval { low, high, .. } = self.ranges[number];
        let is_whole = self.masks[number] == 0 && low == high && low.fract() == 0.0;
        let zero = f64::from(self.zero(value, code).filter(|_| is_whole)?) + sign * low;
        (0.0..=255.0).contains(&zero).then_some(zero as u8)
    }

    /// Returns whether a value depends on a code alone.
    fn is_function(&self, value: ValueId, of: ValueId) -> bool {
        if value == of {
            return true;
        }
        match &self.instrs[value] {
            Instr::Constant { .. } => true,
            Instr::Map { args, .. } => args.iter().all(|&arg| self.is_function(arg, of)),
            Instr::Within { arg, guards, .. } => guards.is_empty() && self.is_function(*arg, of),
            // An entry of a table.
            Instr::Load(load) => {
                let at = load.at.values();
                mentioned(&load.at) == 0 && !at.is_empty() && at.iter().all(|&id| self.is_function(id, of))
            }
            _ => false,
        }
    }

    /// Returns the kind of bytes that a value is a conversion of.
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

/// Returns the format of the right operand of a product whose weights are kept as codes where they are constant; `None` for another.
pub fn coded(kernel: &Kernel) -> Option<CodeFormat> {
    let Contraction { rhs, axes, .. } = kernel.contraction()?;
    if kernel.accumulator() != Some(DType::F32) || kernel.body.domain.len() < axes.batch + axes.rows {
        return None;
    }
    let columns: usize = kernel.body.domain[axes.batch + axes.rows..].iter().product();
    let operand = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
    CodedNest::of(&operand).filter(|_| columns > 1).map(|nest| nest.format)
}

/// An operand of this kind, whose terms are cut into blocks.
struct CodedNest {
    nest: Nest,
    /// The number of axes of the batch.
    batch: usize,
    /// The number of axes of the terms that count blocks.
    outer: usize,
    values: CodedValues,
    format: CodeFormat,
}

impl CodedNest {
    fn of(operand: &Grouped) -> Option<CodedNest> {
        // Most operands have no codes, and every product that is priced asks.
        let is_code = |instr: &Instr| matches!(instr, Instr::Load(load) if !load.dtype.is_float());
        if !operand.nest.instrs.iter().any(is_code) {
            return None;
        }
        let operand = operand.merged(COLUMNS)?;
        let [batch, depth, _] = operand.groups;
        let Grouped { mut nest, .. } = operand;
        if nest.domain.contains(&0) {
            return None;
        }
        let values = CodedValues::of(&nest, [batch, depth, 1])?;
        // Cut where a block would be too long.
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
        if block < SHORTEST || nest.domain.len() > MAX_RANK {
            return None;
        }
        let depth = nest.domain.len() - 1 - batch;
        let inner = inner_axes(&nest.domain[batch..batch + depth], block);
        if !block.is_multiple_of(values.kind.terms()) {
            return None;
        }
        let outer = depth - inner;
        let format = CodeFormat {
            codes: values.kind,
            block,
            decoding: values.decoding,
            scale: values.scale.map_or(NumberForm::F32, |scale| scale.form),
            offset: values.offset.map(|offset| offset.form),
            zero: values.zero,
            run: run(&nest, batch..batch + outer, &values),
        };
        Some(CodedNest { nest, batch, outer, values, format })
    }
}

/// Returns how many blocks, along the innermost of some axes, share the numbers of their levels.
fn run(nest: &Nest, blocks: Range<usize>, values: &CodedValues) -> usize {
    let shared: Vec<_> = values.numbers().filter_map(|number| number.shared).collect();
    if shared.is_empty() {
        return 1;
    }
    let Nest { domain, lengths, instrs, results, .. } = nest.clone();
    let masks = masks(&Body { domain, lengths, instrs, results }, 0);
    let mut run = 1;
    for axis in blocks.rev() {
        let next = run * nest.domain[axis];
        if next > RUN || shared.iter().any(|&id| masks[id] >> axis & 1 == 1) && nest.domain[axis] > 1 {
            break;
        }
        run = next;
    }
    run
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

/// A compiled operand of this kind, which packs itself.
pub struct CodedOperand {
    form: PanelForm,
    program: TileProgram,
    batch: usize,
    outer: usize,
    /// The places of [`CodedValues::all`] among the results of the program.
    places: [Option<usize>; 6],
    subtract: bool,
}

impl CodedOperand {
    /// Compiles an operand over `[b.. k.. n..]`, and returns the layout of its panels too; `None` for an operand of another kind.
    pub fn compile<T: ProductElement>(
        operand: &Grouped,
        slots: &[(DType, usize)],
        isa: Isa,
    ) -> Option<(CodedOperand, CodedPanels<T>)> {
        let CodedNest { mut nest, batch, outer, values, format } = CodedNest::of(operand)?;
        let columns = *nest.domain.last()?;
        let terms = nest.domain[batch..nest.domain.len() - 1].iter().product();
        let panels = CodedPanels::new(format, terms, isa)?;
        let (mut results, mut places) = (Vec::new(), [None; 6]);
        for (place, id) in places.iter_mut().zip(values.all()) {
            *place = id.map(|id| {
                let id = if nest.instrs[id].dtype() == DType::F32 { id } else { as_f32(&mut nest, id) };
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

    /// Returns the bytes of scratch memory that packing takes, at the beginning of a frame's.
    pub fn scratch(&self) -> usize {
        self.program.scratch
    }

    /// Packs a panel of the matrix at a point of the batch into its place.
    ///
    /// # Safety
    /// The frame's slots must be the kernel's and its scratch memory large enough; `to` must have room for the matrix.
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
                let [value, codes, scale, shared_scale, offset, shared_offset] = self.places.map(|place| {
                    let (at, strides) = self.program.result(frame, &tile, self.program.results[place?]);
                    let terms = terms(&domain[first..last], &strides[first..last]);
                    Some(StridedNumbers { at: at.cast(), terms, columns: strides[last] })
                });
                let Some(values) = value else { return };
                let scales = KeptNumbers { own: scale, shared: shared_scale };
                let offsets = KeptNumbers { own: offset, shared: shared_offset };
                let numbers = BlockNumbers { values, codes, scales, offsets, subtract: self.subtract };
                writer.block(block, &numbers);
            }
        }
        writer.finish();
    }
}

/// Adds the conversion of a value to `f32`.
fn as_f32(nest: &mut Nest, value: ValueId) -> ValueId {
    let attrs = [Attr::DType(DType::F32)].into_iter().collect();
    let op = Op::named("cast").expect("the table has it");
    nest.instrs.push(Instr::Map { op, attrs, args: vec![value], dtype: DType::F32 });
    nest.instrs.len() - 1
}

/// Returns for each point of some axes, in order, the elements from the first point to it.
fn terms(extents: &[usize], strides: &[isize]) -> Vec<isize> {
    let mut at = vec![0];
    for (&extent, &stride) in extents.iter().zip(strides) {
        at = at.iter().flat_map(|&from| (0..extent as isize).map(move |n| from + n * stride)).collect();
    }
    at
}
