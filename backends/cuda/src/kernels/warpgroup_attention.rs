//! What attention by warpgroups is printed with: products of the sizes that it takes, and a bias that is evaluated on fragments of scores, of which the
//! part that is the same for all tiles of keys stays in registers.

use std::collections::BTreeSet;

use eutectic_backend::{Instr, Load, ValueId, axes::Nest};
use eutectic_gpu::{dialect::Dialect, emit::Emitter, lanes::Lanes};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

use super::attention::Bias;
use crate::dialect::{CudaC, method};

/// Where there is no bias.
pub const NOTHING_KEPT: &str = "struct Kept {};\n#define KEEPS 0\n";
/// The axes of a bias whose keys are split: tile, eight keys of it, one of these.
const TILE: usize = 2;
const EIGHT: usize = 3;
const KEY: usize = 4;

/// The text behind that of all attention: for tiles of so many keys, and so many columns.
pub fn text(half: &str, keys: usize, columns: usize) -> String {
    product("multiply_scores", keys, half, false)
        + &product("multiply_weights", columns, half, true)
        + include_str!("../text/warpgroup_attention.cu")
}

/// A product of 64 rows of a warpgroup, 16 terms and `n` columns. From shared memory: both operands lie along the terms, and it starts sums or adds to
/// them. From registers: the left one does; the right one's columns are side by side.
fn product(name: &str, n: usize, half: &str, from_registers: bool) -> String {
    let count = n / 2;
    let list = |range: std::ops::Range<usize>| range.map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
    let sums: Vec<_> = (0..count).map(|i| format!("\"+f\"(d[{i}])")).collect();
    let (registers, sums) = (list(0..count), sums.join(", "));
    let op = format!("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{half}.{half} {{{registers}}}");
    if from_registers {
        let left = list(count..count + 4);
        return format!(
            "FN void {name}(float (&d)[{count}], const unsigned* a, u64 b, {half}) {{\n    asm volatile(\"{op}, {{{left}}}, %{}, 1, 1, 1, 1;\"\n        \
             : {sums} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}}\n",
            count + 4
        );
    }
    format!(
        "FN void {name}(float (&d)[{count}], u64 a, u64 b, bool add, {half}) {{\n    \
         asm volatile(\"{{ .reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n{op}, %{count}, %{}, add, 1, 1, 0, 0; }}\"\n        \
         : {sums} : \"l\"(a), \"l\"(b), \"r\"((int)add));\n}}\n",
        count + 2,
        count + 1
    )
}

/// A bias over `[b s t]`, for tiles of so many keys; what it keeps takes at most so many registers.
pub fn bias(
    nest: &Nest,
    result: ValueId,
    slots: &[(DType, usize)],
    keys: usize,
    room: usize,
) -> Result<Bias, Vec<String>> {
    let extent = nest.domain[2];
    // Positions within a tile are axes of their own, so that divisions of them are by constants and known when the text is compiled.
    let is_split = extent > 0 && extent.is_multiple_of(keys);
    let nest = if is_split { nest.split(TILE, keys).split(EIGHT, 8) } else { nest.clone() };
    let axis = if is_split { KEY } else { 2 };
    let lanes = Lanes::best(&nest, slots, axis, 2);
    let count = lanes.count;
    let names: &[&str] = if is_split { &["b", "s", "tile", "eight", "u"] } else { &["b", "s", "u"] };
    let place = match is_split {
        true => format!("const int u = key / {count};"),
        // Keys that are not there are evaluated as the last one is.
        false => format!(
            "const int t = tile * {keys} + eight * 8 + key, u = (t < {extent} ? t : {}) / {count};",
            extent.saturating_sub(count)
        ),
    };
    let kept = if is_split { keep(&nest, slots, lanes, keys, room) } else { Vec::new() };
    let emitter = || {
        let mut emitter = Emitter::new(&CudaC, slots, &nest, names, lanes, "v");
        emitter.line(&place);
        emitter
    };
    let (mut first, mut each) = (emitter(), emitter());
    let mut fields = String::new();
    for &id in &kept {
        let Instr::Load(load) = &nest.instrs[id] else { continue };
        let (ty, values) = (CudaC.memory(slots[load.slot].0), first.value(id));
        for (lane, value) in values.iter().enumerate() {
            first.line(&format!("kept.k{id}[row][n].set({lane}, {value});"));
        }
        fields += &format!("    Pack<{ty}, {}> k{id}[2][{}];\n", values.len(), keys / 4 / count);
        each.set(id, (0..values.len()).map(|lane| format!("kept.k{id}[row][n].get({lane})")).collect());
    }
    let values = each.value(result);
    for lane in 0..count {
        each.line(&format!("out[{lane}] = (float){};", values[lane % values.len()]));
    }
    if !each.problems.is_empty() {
        return Err(each.problems);
    }
    let arguments = "int b, int s, int eight, int key, int row, int n";
    let first = if kept.is_empty() { String::new() } else { first.text };
    Ok(Bias {
        before: format!("struct Kept {{\n{fields}}};\n#define KEEPS {}\n", u8::from(!kept.is_empty())),
        methods: method(&format!("void keep({arguments}, Kept& kept)"), &first)
            + &method(&format!("void bias(int tile, {arguments}, const Kept& kept, float* out)"), &each.text),
        lanes: count,
    })
}

/// The loads that are the same for all tiles of keys, as far as there is room for them.
fn keep(nest: &Nest, slots: &[(DType, usize)], lanes: Lanes, keys: usize, room: usize) -> Vec<ValueId> {
    let mut left = room;
    let is_kept = |(id, instr): (ValueId, &Instr)| {
        let Instr::Load(load) = instr else { return None };
        let is_same = !instr.maps().into_iter().any(|map| map.mentions(TILE)) && instr.args().is_empty();
        // A row has as many different ones as the map has values over the blocks of eight keys.
        let each = registers(load, slots, lanes) * different(&load.at, nest, keys / 8) * 2;
        if !is_same || nest.domain[TILE] < 2 || each > left {
            return None;
        }
        left -= each;
        Some(id)
    };
    nest.instrs.iter().enumerate().filter_map(is_kept).collect()
}

/// Registers of what a thread has of eight keys.
fn registers(load: &Load, slots: &[(DType, usize)], lanes: Lanes) -> usize {
    let size = slots[load.slot].0.size();
    2 / lanes.count * (lanes.count * size).div_ceil(4)
}

fn different(map: &Index, nest: &Nest, eights: usize) -> usize {
    let of = |eight: usize| {
        let at = |axis: usize| if axis == EIGHT { Index::constant(eight as i64) } else { Index::coord(axis) };
        let at: Vec<_> = (0..nest.domain.len()).map(at).collect();
        map.substitute(&at, &|v| Index::atom(Atom::Value(v)), &nest.domain).text(&|v| v.to_string())
    };
    (0..eights).map(of).collect::<BTreeSet<_>>().len()
}
