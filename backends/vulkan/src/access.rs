//! Determines a kernel's view of each buffer: a binding whose type follows from the accesses in the kernel's text.
//!
//! Elements of 4 and 8 bytes have their own types; narrower ones are packed in 32-bit words. Neighbours that are
//! written together fill whole words. Other writes use atomics that clear and set the bits of one element only. Several
//! threads may write the same value to one element.

use std::collections::BTreeSet;

use eutectic_ir::{DType, ops::Reduction};

use crate::library::register;

/// The binding of the workspace.
pub const WORKSPACE: usize = 0;
/// The binding of the fault report.
pub const FAULT: usize = 1;
/// The binding of the first slot. The bindings of the other slots follow.
pub const SLOTS: usize = 2;

/// Atomics of integers, by the op that combines two of them.
const ATOMICS: &[(&str, &str)] = &[("add", "atomicAdd"), ("max", "atomicMax"), ("min", "atomicMin")];

/// A kernel's view of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufferView {
    /// Single elements. Narrow elements are accessed by their words.
    Elements,
    /// Vectors of 16 bytes.
    Quads,
    /// Words that several threads write in parts, by atomics.
    Atomics,
    /// Words that several threads combine with values, by atomics.
    Combined,
    /// Floats to which several threads add, by atomics.
    Sums,
}

/// The accesses of a kernel to a buffer, derived from the functions that its text calls.
pub struct BufferAccess {
    slot: usize,
    dtype: DType,
    count: usize,
    view: BufferView,
    written: bool,
    /// Whether the buffer may share memory with a slot that the kernel writes. The driver must then not treat it as
    /// constant.
    changes: bool,
}

impl BufferAccess {
    /// Returns the accesses to a slot; `None` if the text calls none of its functions.
    fn of((slot, &(dtype, count)): (usize, &(DType, usize)), called: &BTreeSet<&str>) -> Option<BufferAccess> {
        let is_called = |name: &str| called.contains(format!("{name}_s{slot}").as_str());
        let stores = is_called("store");
        let wide = is_called("quad") || is_called("put_quad");
        let combined = Reduction::ALL.iter().any(|how| is_called(&format!("{how:?}_into")));
        let adds = is_called("add_to");
        let written = stores || combined || adds || is_called("put_quad") || is_called("put_word");
        let view = match () {
            () if combined => BufferView::Combined,
            () if adds => BufferView::Sums,
            () if stores && dtype.size() < 4 => BufferView::Atomics,
            () if wide => BufferView::Quads,
            () => BufferView::Elements,
        };
        let is_used = written || wide || is_called("load") || is_called("word");
        is_used.then_some(BufferAccess { slot, dtype, count, view, written, changes: written })
    }

    /// Returns the accesses to all buffers of a kernel. A buffer as large as a written one may be the same memory,
    /// because steps may be in place.
    pub fn all(slots: &[(DType, usize)], called: &BTreeSet<&str>) -> Vec<BufferAccess> {
        let mut all: Vec<_> = slots.iter().enumerate().filter_map(|slot| BufferAccess::of(slot, called)).collect();
        let size = |access: &BufferAccess| (access.dtype.size(), access.count);
        let written: Vec<_> = all.iter().filter(|access| access.written).map(size).collect();
        all.iter_mut().for_each(|access| access.changes |= written.contains(&size(access)));
        all
    }

    /// Returns the element type of the binding's array, and its length.
    fn part(&self) -> (String, usize) {
        let bytes = self.count * self.dtype.size();
        let element = if self.dtype.size() < 4 { "u32" } else { register(self.dtype) };
        match self.view {
            BufferView::Combined if is_word(self.dtype) => (format!("atomic<{element}>"), self.count.max(1)),
            BufferView::Atomics | BufferView::Combined => ("atomic<u32>".into(), bytes.div_ceil(16).max(1) * 4),
            BufferView::Sums => ("atomic<f32>".into(), self.count.max(1)),
            BufferView::Quads => {
                (format!("vec{}<{element}>", 16 / self.dtype.size().max(4)), bytes.div_ceil(16).max(1))
            }
            BufferView::Elements => (element.into(), bytes.div_ceil(self.dtype.size().max(4)).max(1)),
        }
    }

    /// Returns the function that combines an element with a value.
    fn combining(&self, how: Reduction) -> String {
        combining(how, &format!("{how:?}_into_s{}", self.slot), &format!("s{}", self.slot), self.dtype)
    }

    /// Returns the declarations of the binding, and of the functions that a text may call on it.
    pub fn declaration(&self) -> String {
        let BufferAccess { slot: n, dtype, .. } = *self;
        let (part, parts) = self.part();
        let mode = if self.changes { "read_write" } else { "read" };
        let binding = SLOTS + n;
        let mut text = format!("@group(0) @binding({binding}) var<storage, {mode}> s{n}: array<{part}, {parts}>;\n");
        let element = if dtype.size() < 4 { "u32" } else { register(dtype) };
        if self.view == BufferView::Sums {
            return text + &format!("fn add_to_s{n}(at: i32, value: f32) {{ atomicAdd(&s{n}[at], value); }}\n");
        }
        if self.view == BufferView::Combined {
            return text + &Reduction::ALL.map(|how| self.combining(how)).concat();
        }
        let lanes = 16 / dtype.size().max(4);
        // An element of at least 4 bytes, or a word of narrower ones.
        let whole = match self.view {
            BufferView::Elements => format!("s{n}[at]"),
            BufferView::Quads => format!("s{n}[u32(at) / {lanes}u][u32(at) % {lanes}u]"),
            BufferView::Atomics | BufferView::Combined | BufferView::Sums => format!("atomicLoad(&s{n}[at])"),
        };
        let put = |value: &str| match self.view {
            BufferView::Atomics | BufferView::Combined | BufferView::Sums => {
                format!("atomicStore(&s{n}[at], {value});")
            }
            _ => format!("{whole} = {value};"),
        };
        let each = |value: &dyn Fn(usize) -> String| (0..lanes).map(value).collect::<Vec<_>>();
        let name = dtype.name();
        let quad = format!("vec{lanes}<{element}>");
        if dtype.size() >= 4 {
            text += &format!("fn load_s{n}(at: i32) -> {element} {{ return {whole}; }}\n");
        } else {
            let value = if dtype.size() == 2 {
                format!("select(low_{name}(word), high_{name}(word), (at & 1) == 1)")
            } else {
                format!("byte_{name}(word, u32(at) & 3u)")
            };
            let (register, by) = (register(dtype), 4 / dtype.size());
            text += &format!("fn word_s{n}(at: i32) -> u32 {{ return {whole}; }}\n");
            text += &format!(
                "fn load_s{n}(at: i32) -> {register} {{ let word = word_s{n}(at / {by}); return {value}; }}\n"
            );
        }
        if self.view != BufferView::Elements {
            let value = match self.view {
                BufferView::Quads => format!("s{n}[at]"),
                _ => format!("{quad}({})", each(&|lane| format!("atomicLoad(&s{n}[at * 4 + {lane}])")).join(", ")),
            };
            text += &format!("fn quad_s{n}(at: i32) -> {quad} {{ return {value}; }}\n");
        }
        if !self.written {
            return text;
        }
        if dtype.size() >= 4 {
            text += &format!("fn store_s{n}(at: i32, value: {element}) {{ {} }}\n", put("value"));
        } else {
            text += &format!("fn put_word_s{n}(at: i32, value: u32) {{ {} }}\n", put("value"));
        }
        match self.view {
            BufferView::Elements | BufferView::Combined | BufferView::Sums => {}
            BufferView::Quads => text += &format!("fn put_quad_s{n}(at: i32, value: {quad}) {{ s{n}[at] = value; }}\n"),
            BufferView::Atomics => {
                let stores = each(&|lane| format!("atomicStore(&s{n}[at * 4 + {lane}], value[{lane}]);")).concat();
                text += &format!("fn put_quad_s{n}(at: i32, value: {quad}) {{ {stores} }}\n");
                // Other threads may change the other bits of the word. Threads that write one element write the same
                // value, so their order does not matter.
                let (by, bits, mask) =
                    (4 / dtype.size(), 8 * dtype.size(), if dtype.size() == 2 { "0xffffu" } else { "0xffu" });
                text += &format!(
                    "fn store_s{n}(at: i32, value: {}) {{ let shift = {bits}u * (u32(at) % {by}u); atomicAnd(&s{n}[at / {by}], ~({mask} << shift)); \
                     atomicOr(&s{n}[at / {by}], (bits_{name}(value) & {mask}) << shift); }}\n",
                    register(dtype)
                );
            }
        }
        text
    }
}

/// Returns whether WGSL has atomics for a type, that is for 32-bit integers.
fn is_word(dtype: DType) -> bool {
    dtype.is_int() && dtype.size() == 4
}

/// Returns the declarations of a shared-memory table whose elements threads combine with values, and of functions that
/// set, read and combine them.
pub fn cells(name: &str) -> String {
    let parts: Vec<&str> = name.split('_').collect();
    let dtype = DType::ALL.into_iter().find(|dtype| parts.get(2) == Some(&dtype.name())).unwrap_or(DType::F32);
    let (count, ty) = (parts.get(3).copied().unwrap_or("1"), register(dtype));
    let (word, enter, leave) = match is_word(dtype) {
        true => (ty, "value".to_string(), format!("atomicLoad(&{name}[at])")),
        false => ("u32", "bitcast<u32>(value)".into(), format!("bitcast<{ty}>(atomicLoad(&{name}[at]))")),
    };
    let combine = Reduction::ALL.map(|how| combining(how, &format!("{how:?}_into_{name}"), name, dtype)).concat();
    format!(
        "var<workgroup> {name}: array<atomic<{word}>, {count}>;\n\
         fn set_{name}(at: i32, value: {ty}) {{ atomicStore(&{name}[at], {enter}); }}\n\
         fn get_{name}(at: i32) -> {ty} {{ return {leave}; }}\n{combine}"
    )
}

/// Returns a function that combines an element with a value: by the operation's atomic if there is one, and otherwise
/// by compare-and-swap.
fn combining(how: Reduction, function: &str, memory: &str, dtype: DType) -> String {
    let (name, ty) = (dtype.name(), register(dtype));
    let head = format!("fn {function}(at: i32, value: {ty}) {{\n");
    let atomic = ATOMICS.iter().find(|(op, _)| *op == how.def().op).map(|(_, atomic)| *atomic);
    if let Some(atomic) = atomic.filter(|_| is_word(dtype)) {
        return format!("{head}{atomic}(&{memory}[at], value);\n}}\n");
    }
    let (word, now) = match dtype.size() {
        4 if is_word(dtype) => ("at", format!("{how:?}_{name}(was, value)")),
        4 => ("at", format!("bitcast<u32>({how:?}_{name}(bitcast<{ty}>(was), value))")),
        _ => {
            let new = format!("bits_{name}({how:?}_{name}(byte_{name}(was, u32(at) & 3u), value)) & 0xffu");
            ("at / 4", format!("(was & ~(0xffu << (8u * (u32(at) & 3u)))) | (({new}) << (8u * (u32(at) & 3u)))"))
        }
    };
    format!(
        "{head}var was = atomicLoad(&{memory}[{word}]);\nloop {{\nlet now = {now};\nif (now == was) {{ return; }}\n\
             let seen = atomicCompareExchangeWeak(&{memory}[{word}], was, now);\nif (seen.exchanged) {{ return; }}\n\
             was = seen.old_value;\n}}\n}}\n"
    )
}
