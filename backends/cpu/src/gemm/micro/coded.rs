//! Micro-kernels for coded panels ([`PanelForm`]): products that decode weights in registers, and the decoding of a part of a panel.

use super::{
    block::finish,
    call::MicroCall,
    panel_form::{CodeFormat, NumberForm, PANEL, PanelForm},
};
use crate::simd::{
    codes::{CodeTable, CodeVector, Codes, MOST_TERMS},
    stream::LINE,
    vector::Vector,
};

/// The prefetch distance in bytes.
const AHEAD: usize = 1024;

/// A block of a product whose right operand is in coded panels.
pub struct CodedCall<T> {
    /// The left operand, the result and the finish of the sums. The number of terms and the right operand in it are not read.
    pub sums: MicroCall<T>,
    /// The first panel.
    pub panel: *const u8,
    /// The form of each panel; the next one follows.
    pub form: PanelForm,
}

/// A part of a panel, to be decoded.
pub struct CodedPart<T> {
    /// The panel.
    pub panel: *const u8,
    /// Its form.
    pub form: PanelForm,
    /// The first term.
    pub from: usize,
    /// The number of terms.
    pub count: usize,
    /// The first decoded row; each term has one.
    pub to: *mut T,
    /// Elements from a row to the next.
    pub pitch: usize,
}

/// How scales and offsets make weights of the numbers that codes stand for: see [`Decoding`](super::panel_form::Decoding).
///
/// # Safety of its function
/// The machine must have the vectors' instruction set.
#[allow(clippy::missing_safety_doc)]
pub trait Decode: Copy {
    /// Whether there are offsets.
    const OFFSET: bool;
    /// Makes weights. Each sum and product is rounded as those of the ops that it replaces are.
    unsafe fn weight<V: CodeVector>(number: V, numbers: Numbers<V>) -> V;
}

macro_rules! decoding {
    ($($(#[$doc:meta])* $name:ident, $offset:literal: ($x:ident, $n:ident) $weight:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name;

        impl Decode for $name {
            const OFFSET: bool = $offset;
            #[inline(always)]
            unsafe fn weight<V: CodeVector>($x: V, $n: Numbers<V>) -> V {
                // SAFETY: passed on from the caller.
                unsafe { $weight }
            }
        }
    )*};
}
decoding! {
    /// Number · scale.
    Scaled, false: (x, n) x.mul(n.scale);
    /// Number · scale + offset, where the product is exact.
    Fused, true: (x, n) x.mul_add(n.scale, n.offset);
    /// Number · scale + offset.
    Added, true: (x, n) x.mul(n.scale).add(n.offset);
    /// (Number + offset) · scale.
    Centred, true: (x, n) x.add(n.offset).mul(n.scale);
}

/// The scale and the offset of each column of a vector.
#[derive(Clone, Copy)]
pub struct Numbers<V> {
    scale: V,
    offset: V,
}

/// Loads the scales and offsets of vectors `0..N` of the blocks at `block` in their panels, whose runs begin at `shared`.
///
/// # Safety
/// The panels must have the block, and the machine must have the instruction set.
#[inline(always)]
unsafe fn numbers<V: CodeVector, D: Decode, const N: usize>(
    panels: &[*const u8; N],
    [shared, block]: [usize; 2],
    form: &PanelForm,
) -> [Numbers<V>; N] {
    let CodeFormat { scale, offset, zero, .. } = form.format;
    // SAFETY: passed on from the caller.
    unsafe {
        let mut all = [Numbers { scale: V::zero(), offset: V::zero() }; N];
        let scales = load::<V, N>(scale, panels, [shared, block]);
        let offsets = match offset {
            Some(kind) if D::OFFSET => {
                let [shared, block] = [(shared, scale.shared_bytes()), (block, scale.bytes())]
                    .map(|(from, bytes)| from + form.width * bytes);
                load::<V, N>(kind, panels, [shared, block])
            }
            _ => {
                let zero = V::splat(-f32::from(zero));
                let mut offsets = [zero; N];
                for j in 0..N {
                    offsets[j] = scales[j].mul(zero);
                }
                offsets
            }
        };
        for j in 0..N {
            all[j] = Numbers { scale: scales[j], offset: offsets[j] };
        }
        all
    }
}

/// Loads the numbers of a kind. Which kind it is, is asked once for all vectors.
///
/// # Safety
/// As [`numbers`].
#[inline(always)]
unsafe fn load<V: CodeVector, const N: usize>(
    kind: NumberForm,
    panels: &[*const u8; N],
    [shared, block]: [usize; 2],
) -> [V; N] {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut all = [V::zero(); N];
        macro_rules! each {
            (|$panel:ident, $column:ident| $number:expr) => {
                for j in 0..N {
                    let ($panel, $column) = (panels[j], j % PANEL * V::LANES);
                    all[j] = $number;
                }
            };
        }
        match kind {
            NumberForm::F32 => each!(|panel, column| V::load(panel.add(block).cast::<f32>().add(column))),
            NumberForm::F16 => each!(|panel, column| V::half(panel.add(block + 2 * column))),
            NumberForm::I8 => each!(|panel, column| V::signed(panel.add(block + column))),
            NumberForm::Levels => {
                each!(|panel, column| V::signed(panel.add(block + column)).mul(V::half(panel.add(shared + 2 * column))));
            }
        }
        all
    }
}

/// Runs some code for each term of a group of codes. The number of the term is a literal there: no loop, so that shifts are by constants, and all
/// stays in registers.
macro_rules! for_each_term {
    ($c:ty, |$term:ident| $body:block) => {
        for_each_term!(@ $c, $term, $body, 0 1 2 3 4 5 6 7);
    };
    (@ $c:ty, $term:ident, $body:block, $($n:literal)*) => {$(
        if $n < <$c as Codes>::TERMS {
            let $term: usize = $n;
            $body
        }
    )*};
}
const _: () = assert!(MOST_TERMS == 8, "`for_each_term` has as many literals");

/// Sums all terms in `ROWS`·`VECTORS` registers. Weights are decoded once for all rows. `VECTORS` is a multiple of [`PANEL`].
///
/// # Safety
/// The left operand, the panels and the result must be valid for `ROWS` rows and the call's columns. The last panel must have at least one of
/// these columns. The machine must have the vectors' instruction set.
#[inline(always)]
pub unsafe fn coded<V: CodeVector, C: Codes, D: Decode, const ROWS: usize, const VECTORS: usize>(
    call: &CodedCall<f32>,
) {
    let panels = (0..VECTORS / PANEL).map(|panel| call.panel.wrapping_add(panel * call.form.bytes()));
    // SAFETY: passed on from the caller.
    unsafe {
        match C::prefers_integers::<V>() && integral(panels) {
            true => sums::<V, C::OfIntegers, D, ROWS, VECTORS>(call),
            false => sums::<V, C, D, ROWS, VECTORS>(call),
        }
    }
}

/// Returns whether the tables of all panels hold integers.
///
/// # Safety
/// The panels must have tables.
#[inline(always)]
unsafe fn integral(mut panels: impl Iterator<Item = *const u8>) -> bool {
    // SAFETY: the caller promises the tables; panels are aligned as these are.
    panels.all(|panel| unsafe { (*panel.cast::<CodeTable>()).integral })
}

/// Sums the products with codes of one kind.
///
/// # Safety
/// As [`coded`]; the tables must suit the kind.
#[inline(always)]
unsafe fn sums<V: CodeVector, C: Codes, D: Decode, const ROWS: usize, const VECTORS: usize>(call: &CodedCall<f32>) {
    let (c, form) = (&call.sums, &call.form);
    // SAFETY: the caller promises the operands, and that the machine has the instruction set.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        let bytes = form.bytes();
        let mut panels = [call.panel; VECTORS];
        for (j, panel) in panels.iter_mut().enumerate() {
            *panel = panel.add(j / PANEL * bytes);
        }
        let panel = |j: usize| panels[j];
        let tables: [C::Table<V>; VECTORS] = std::array::from_fn(|j| C::table::<V>(panel(j).cast()));
        let mut a = c.a;
        let group = form.width * C::ROWS;
        let (run, of_run, of_block) =
            (form.format.run, form.format.run_bytes(form.width), form.format.block_bytes(form.width));
        let (of_numbers, groups) = (form.numbers(), form.format.block / C::TERMS);
        let (mut shared, mut start) = (form.run(0), form.block(0));
        for block in 0..form.blocks {
            // The first block of the next run.
            if block > 0 && block % run == 0 {
                shared += of_run;
                start = shared + form.block(0) - form.run(0);
            }
            let numbers = numbers::<V, D, VECTORS>(&panels, [shared, start], form);
            let mut codes = start + of_numbers;
            for _ in 0..groups {
                for j in (0..VECTORS).step_by(PANEL) {
                    for line in (0..group).step_by(LINE) {
                        V::prefetch(panel(j).wrapping_add(codes + AHEAD + line).cast());
                    }
                }
                for_each_term!(C, |term| {
                    let mut weights = [V::zero(); VECTORS];
                    for (j, weights) in weights.iter_mut().enumerate() {
                        let at = panel(j).add(codes + j % PANEL * V::LANES);
                        *weights = D::weight(C::term::<V>(at, form.width, term, tables[j]), numbers[j]);
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let x = V::splat(*a.offset(i as isize * c.a_rows));
                        for (sum, &weights) in sums.iter_mut().zip(&weights) {
                            *sum = x.mul_add(weights, *sum);
                        }
                    }
                    a = a.wrapping_offset(c.a_columns);
                });
                codes += group;
            }
            start += of_block;
        }
        if c.columns == VECTORS * V::LANES {
            finish::<V, ROWS, VECTORS, true>(c, sums);
        } else if c.columns > (VECTORS - 1) * V::LANES {
            finish::<V, ROWS, VECTORS, false>(c, sums);
        } else {
            // The last panel has no more columns than a vector.
            narrow::<V, ROWS, VECTORS>(c, &sums);
        }
    }
}

/// Finishes the sums of a last panel whose last vector has no columns.
///
/// # Safety
/// As [`coded`].
#[inline(always)]
unsafe fn narrow<V: Vector, const ROWS: usize, const VECTORS: usize>(
    c: &MicroCall<V::Element>,
    sums: &[[V; VECTORS]; ROWS],
) {
    let mut at = *c;
    for j in 0..VECTORS - 1 {
        at.columns = V::LANES.min(c.columns - j * V::LANES);
        let sums = std::array::from_fn::<_, ROWS, _>(|i| [sums[i][j]]);
        // SAFETY: passed on from the caller. A null pointer stays null.
        unsafe { finish::<V, ROWS, 1, false>(&at, sums) };
        let next = |p: *const V::Element| if p.is_null() { p } else { p.wrapping_add(V::LANES) };
        (at.c, at.bias, at.other) = (at.c.wrapping_add(V::LANES), next(at.bias), next(at.other));
    }
}

/// Decodes a part of a panel.
///
/// # Safety
/// The panel must be valid, and there must be room for the rows; the machine must have the instruction set.
#[inline(always)]
pub unsafe fn decode<V: CodeVector, C: Codes, D: Decode>(part: &CodedPart<f32>) {
    // SAFETY: passed on from the caller.
    unsafe {
        match C::prefers_integers::<V>() && integral(std::iter::once(part.panel)) {
            true => rows::<V, C::OfIntegers, D>(part),
            false => rows::<V, C, D>(part),
        }
    }
}

/// Decodes codes of one kind.
///
/// # Safety
/// As [`decode`]; the table must suit the kind.
#[inline(always)]
unsafe fn rows<V: CodeVector, C: Codes, D: Decode>(part: &CodedPart<f32>) {
    let form = &part.form;
    let (group, terms) = (form.width * C::ROWS, form.format.block);
    let (mut at, end) = (part.from, part.from + part.count);
    // SAFETY: the caller promises the panel and room for the rows.
    unsafe {
        let table = C::table::<V>(part.panel.cast());
        while at < end {
            let number = at / terms;
            let (shared, block) = (form.run(number / form.format.run), form.block(number));
            let numbers = numbers::<V, D, PANEL>(&[part.panel; PANEL], [shared, block], form);
            let block = part.panel.add(block);
            let last = end.min((number + 1) * terms);
            while at < last {
                // The group of the term, whose first terms may be before it.
                let first = at - at % terms % C::TERMS;
                let codes = block.add(form.numbers() + first % terms / C::TERMS * group);
                for_each_term!(C, |term| {
                    if (at..last).contains(&(first + term)) {
                        let to = part.to.add((first + term - part.from) * part.pitch);
                        for (j, numbers) in numbers.iter().enumerate() {
                            let code = C::term::<V>(codes.add(j * V::LANES), form.width, term, table);
                            D::weight(code, *numbers).store(to.add(j * V::LANES));
                        }
                    }
                });
                at = last.min(first + C::TERMS);
            }
        }
    }
}
