//! Prints a bias that is evaluated on fragments of scores. Values that are equal for all tiles of keys stay in
//! registers. Loads of a tile are in flight while its keys are multiplied.

use std::collections::BTreeSet;

use eutectic_backend::{Instr, Load, ValueId, axes::Nest};
use eutectic_gpu::{dialect::Dialect, emit::Emitter, lanes::SplitAxis};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

use crate::dialect::{CudaC, method};

/// A printed bias.
pub struct PrintedBias {
    /// Text before the struct of arguments.
    pub before: String,
    /// Methods of the struct of arguments.
    pub methods: String,
    /// The number of keys for which the bias is evaluated at once.
    pub lanes: usize,
}

/// The text of an attention without a bias.
pub const NOTHING_KEPT: &str = "struct Kept {};\n#define KEEPS 0\n#define FETCHES 0\n";
/// The axes of a bias with split keys: tile, group of eight keys in the tile, and key in the group.
const TILE: usize = 2;
const EIGHT: usize = 3;
const KEY: usize = 4;

/// Returns a bias over `[b s t]` whose keys are split into tiles of `keys` keys, and whose tiles are split into groups
/// of eight. Divisions of positions within a tile are then constants. Returns `None` if the number of keys varies at
/// run time.
fn split(nest: &Nest, keys: usize) -> Option<Nest> {
    nest.length(TILE).is_none().then(|| nest.split(TILE, keys).split(EIGHT, 8))
}

/// Returns the simple operations of a bias per score, for tiles of `keys` keys. Values kept in registers take at most
/// `room` registers.
pub fn operations(nest: &Nest, slots: &[(DType, usize)], keys: usize, room: usize) -> f64 {
    let tiles = split(nest, keys);
    let is_split = tiles.is_some();
    let kept = tiles.as_ref().map_or(Vec::new(), |tiles| {
        let lanes = SplitAxis { axis: KEY, count: SplitAxis::best(tiles, slots, KEY, 2).count };
        let [kept, _] = ahead_of(tiles, slots, lanes, keys, room);
        kept
    });
    let nest = tiles.as_ref().unwrap_or(nest);
    let each = |(id, instr): (ValueId, &Instr)| {
        let divisions: usize = instr.maps().into_iter().map(divisions).sum();
        // The fraction of keys whose load is new. If all keys of a group of eight load one element, it is the fraction
        // of groups.
        let read = |map: &Index| match (is_split, map.mentions(KEY)) {
            (false, _) | (true, true) => 1.0,
            (true, false) => different(map, nest, keys / 8) as f64 / (keys / 8).max(1) as f64 / 8.0,
        };
        match instr {
            Instr::Load(_) if kept.contains(&id) => 0.3,
            Instr::Load(load) => {
                0.3 + read(&load.at) * ((if is_split && divisions == 0 { 4.0 } else { 8.0 }) + divisions as f64)
            }
            Instr::Constant { .. } => 0.0,
            _ => 1.5 + divisions as f64,
        }
    };
    2.5 + nest.instrs.iter().enumerate().map(each).sum::<f64>()
}

fn divisions(map: &Index) -> usize {
    let of = |atom: &Atom| match atom {
        Atom::Div(inner, _) | Atom::Mod(inner, _) if inner.mentions(TILE) || inner.mentions(KEY) => {
            1 + divisions(inner)
        }
        _ => 0,
    };
    map.terms.iter().map(|(atom, _)| of(atom)).sum()
}

/// Prints a bias over `[b s t]`, for tiles of `keys` keys. Values kept in registers take at most `room` registers.
pub fn bias(
    nest: &Nest,
    result: ValueId,
    slots: &[(DType, usize)],
    keys: usize,
    room: usize,
) -> Result<PrintedBias, Vec<String>> {
    let extent = nest.domain[2];
    let tiles = split(nest, keys);
    let of_tiles = tiles.as_ref().map_or(2, |tiles| SplitAxis::best(tiles, slots, KEY, 2).count);
    let count = of_tiles.min(SplitAxis::best(nest, slots, 2, 2).count);
    let place = format!("const int u = key / {count};");
    // In a partial tile, missing keys are evaluated as the last key.
    let cut = format!(
        "const int t = tile * {keys} + eight * 8 + key, u = (t < {extent} ? t : {}) / {count};",
        extent.saturating_sub(count)
    );
    let mut fields = String::new();
    // Holds the declarations of values that stay in registers across tiles, and of values that are loaded per tile.
    let mut ahead = [String::new(), String::new()];
    let mut print = |nest: &Nest, names: &[&str], axis: usize, place: &str, is_ahead: bool| {
        let lanes = SplitAxis { axis, count };
        let mut each = Emitter::new(&CudaC, slots, nest, names, lanes, "v");
        each.line(place);
        let of_both = if is_ahead { ahead_of(nest, slots, lanes, keys, room) } else { Default::default() };
        for (text, ids) in ahead.iter_mut().zip(of_both).filter(|(_, ids)| !ids.is_empty()) {
            let mut once = Emitter::new(&CudaC, slots, nest, names, lanes, "v");
            once.line(place);
            for id in ids {
                let Instr::Load(load) = &nest.instrs[id] else { continue };
                let (ty, values) = (CudaC.memory(slots[load.slot].0), once.value(id));
                for (lane, value) in values.iter().enumerate() {
                    once.line(&format!("kept.k{id}[row][n].set({lane}, {value});"));
                }
                fields += &format!("    Pack<{ty}, {}> k{id}[2][{}];\n", values.len(), keys / 4 / count);
                each.set(id, (0..values.len()).map(|lane| format!("kept.k{id}[row][n].get({lane})")).collect());
            }
            *text = once.text;
        }
        let values = each.value(result);
        for lane in 0..count {
            each.line(&format!("out[{lane}] = (float){};", values[lane % values.len()]));
        }
        if each.problems.is_empty() { Ok(each.text) } else { Err(each.problems) }
    };
    let last = print(nest, &["b", "s", "u"], 2, &cut, false)?;
    let whole = match &tiles {
        Some(tiles) => print(tiles, &["b", "s", "tile", "eight", "u"], KEY, &place, true)?,
        None => last.clone(),
    };
    let arguments = "int b, int s, int eight, int key, int row, int n";
    let [keeps, fetches] = [0, 1].map(|n: usize| u8::from(!ahead[n].is_empty()));
    Ok(PrintedBias {
        before: format!("struct Kept {{\n{fields}}};\n#define KEEPS {keeps}\n#define FETCHES {fetches}\n"),
        methods: method(&format!("void keep({arguments}, Kept& kept)"), &ahead[0])
            + &method(&format!("void fetch(int tile, {arguments}, Kept& kept)"), &ahead[1])
            + &method(&format!("void bias(int tile, {arguments}, const Kept& kept, float* out)"), &whole)
            + &method("void bias_of_last(int tile, int b, int s, int eight, int key, float* out)", &last),
        lanes: count,
    })
}

/// Returns the loads that are equal for all tiles of keys, and the loads that differ per tile. Together they take at
/// most `room` registers.
fn ahead_of(nest: &Nest, slots: &[(DType, usize)], lanes: SplitAxis, keys: usize, room: usize) -> [Vec<ValueId>; 2] {
    let mut left = room;
    let mut of = |is_fetched: bool| {
        let fits = |(id, instr): (ValueId, &Instr)| {
            let Instr::Load(load) = instr else { return None };
            let differs = instr.maps().into_iter().any(|map| map.mentions(TILE));
            // A row has as many different elements as the map has values over the groups of eight keys.
            let each = registers(load, slots, lanes) * different(&load.at, nest, keys / 8) * 2;
            if differs != is_fetched || !instr.args().is_empty() || nest.domain[TILE] < 2 || each > left {
                return None;
            }
            left -= each;
            Some(id)
        };
        nest.instrs.iter().enumerate().filter_map(fits).collect()
    };
    [of(false), of(true)]
}

/// Returns the registers that a thread needs for its elements of a group of eight keys.
fn registers(load: &Load, slots: &[(DType, usize)], lanes: SplitAxis) -> usize {
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
