//! Attention: tiles of scores, the largest of each row so far kept; the bias is any expression, and blocks that it hides are left out.

use eutectic_backend::{
    Attention, AttentionAxes, Body, EmptyRow, Instr, Kernel, ScoreForm, axes::Nest, scores::Shares,
};
use eutectic_gpu::{
    attention::{Sees, parts_of_keys, seen},
    device::DeviceShape,
    emit::Emitter,
    lanes::SplitAxis,
    launch::Launch,
    stored_queries::{self, StoredQueries, query_of},
};

use super::{
    attention_way::{AttentionWay, Groups, Units},
    parts::{PrintedOperand, UnitElement, epilogue, flat, multiplied, wide},
    score_bias::{self, PrintedBias},
    warpgroup_attention,
};
use crate::dialect::{CudaC, arguments, entry, entry_with, method, short_entry};

/// Registers of a processor, and the most of a thread.
pub const REGISTERS: usize = 65536;
const MOST_REGISTERS: usize = 248;
/// Those of a thread of a warp that feeds matrix units besides sums and scores; and what a bias takes.
const OTHER_REGISTERS: usize = 40;
const BIAS_REGISTERS: usize = 25;
/// Threads of a block that joins parts of the keys.
const JOIN: usize = 128;
/// Most queries that are few: whose keys and values are read once. Keys of their tiles, threads of a block, and the most bytes of a key or a
/// value of which these have registers.
const FEW: usize = 16;
const FEW_KEYS: usize = 64;
const FEW_THREADS: usize = 128;
const FEW_BYTES: usize = 512;

/// What is printed, whichever way.
pub struct AttentionProblem<'a> {
    /// The device's.
    pub shape: &'a DeviceShape,
    /// Extents of the batch, queries, depth, keys and columns.
    pub extents: [usize; 5],
    /// The bias over `[b s t]`, and which value it is.
    pub bias: Option<(Nest, usize)>,
    kernel: &'a Kernel,
    nests: [Nest; 3],
    bodies: [&'a Body; 3],
    own: Nest,
    sum: &'static str,
    /// The type of operands as matrix units take them.
    pub unit: Option<UnitElement>,
    constants: String,
    /// Whether the bias hides keys.
    hides: bool,
    shares: Shares,
    stored: Option<StoredQueries>,
}

impl<'a> AttentionProblem<'a> {
    /// That of a kernel, if it is one.
    pub fn of(shape: &'a DeviceShape, kernel: &'a Kernel) -> Option<AttentionProblem<'a>> {
        let Attention { query, key, value, bias, axes, form } = kernel.attention()?;
        let is_wide = wide(&kernel.bodies());
        let ScoreForm { scale, softcap, empty } = form;
        let AttentionAxes { batch, queries, keys, depth, columns } = axes;
        let nests = [
            flat(&Nest::of(query.clone()), [batch, queries, depth]),
            flat(&Nest::of(key.clone()), [batch, keys, depth]),
            flat(&Nest::of(value.clone()), [batch, keys, columns]),
        ];
        let ([b, s, d], t, e) = ([0, 1, 2].map(|n| nests[0].domain[n]), nests[1].domain[1], nests[2].domain[2]);
        let constants = format!(
            "#define OPERANDS 3\n#define HAS_BIAS {}\nconstexpr int B = {b}, QUERIES = {s}, KEYS = {t}, DEPTH = {d}, COLUMNS = {e};\n\
             constexpr double SCALE = {:?}, SOFTCAP = {:?};\nconstexpr bool EMPTY_IS_ZERO = {}, GUARDED = {};\n\
             template <int WHICH> struct Operand;\n",
            u8::from(bias.is_some()),
            scale,
            softcap,
            empty == EmptyRow::Zeros,
            empty == EmptyRow::Guarded,
        );
        Some(AttentionProblem {
            shape,
            extents: [b, s, d, t, e],
            bias: bias.map(|bias| (flat(&Nest::of(bias.clone()), [batch, queries, keys]), bias.results[0])),
            kernel,
            nests,
            bodies: [query, key, value],
            own: flat(&Nest::new(&kernel.body, &kernel.stores), [batch, queries, columns]),
            sum: if is_wide { "double" } else { "float" },
            unit: UnitElement::of(&[query, key, value]).filter(|_| !is_wide && d <= 256 && e <= 256),
            constants,
            hides: empty.selects(),
            stored: StoredQueries::of(kernel),
            shares: bias.map_or(Shares::ALL, |bias| Shares::of(bias, [batch, queries, keys])),
        })
    }

    /// Which share of the tiles is computed; of large ones more.
    pub fn visible(&self, queries: usize, keys: usize) -> f64 {
        let [_, s, _, t, _] = self.extents;
        let edges = 0.5 * (queries as f64 / s.max(1) as f64 + keys as f64 / t.max(1) as f64);
        if self.shares.visible < 1.0 { (self.shares.visible + edges).min(1.0) } else { 1.0 }
    }

    /// Which share of blocks of so many queries is computed.
    pub fn stored(&self, queries: usize) -> f64 {
        self.stored.as_ref().map_or(1.0, |stored| stored.share(queries))
    }

    /// Simple operations that the bias takes for each score, in tiles of so many keys, by threads that have so many registers for it.
    pub fn bias_operations(&self, keys: usize, room: usize) -> f64 {
        let each = |(nest, _): &(Nest, usize)| score_bias::operations(nest, &self.kernel.slots, keys, room);
        self.bias.as_ref().map_or(0.0, each) * self.shares.mixed
    }

    /// Whether keys or values are more than what memory has.
    pub fn computes_keys(&self) -> bool {
        let is_loaded = |n: usize| match &self.nests[n].instrs[multiplied(self.bodies[n])] {
            Instr::Load(load) => self.kernel.slots[load.slot].0 == load.dtype,
            _ => false,
        };
        !(is_loaded(1) && is_loaded(2))
    }

    /// Registers of a thread that are needed where warps feed matrix units: for sums, scores and what is evaluated of the next tile.
    pub fn warps_registers(&self, queries: usize, keys: usize) -> usize {
        let [_, _, d, _, e] = self.extents;
        let [depth, columns] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let bias = if self.bias.is_some() { BIAS_REGISTERS } else { 0 };
        let evaluated = if self.computes_keys() { keys * (depth + columns) / (2 * queries) } else { 0 };
        columns / 2 + keys / 2 + evaluated + OTHER_REGISTERS + bias
    }

    /// Those that are left for a bias, with so many blocks at once on a processor.
    pub fn warps_room(&self, queries: usize, keys: usize, resident: usize) -> usize {
        let has = (REGISTERS / (2 * queries * resident) / 8 * 8).min(MOST_REGISTERS);
        has.saturating_sub(self.warps_registers(queries, keys))
    }

    /// Bytes of shared memory where warps feed matrix units, however operands lie.
    pub fn warps_shared(&self, element: UnitElement, queries: usize, keys: usize) -> usize {
        let [_, _, d, _, e] = self.extents;
        let [depth, columns] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let tile = |outer: usize, depth: usize| element.tile(outer, depth);
        let tiles = tile(queries, depth) + 2 * (tile(keys, depth) + tile(columns, keys));
        tiles.max(queries * (columns + 4) * 4)
    }

    pub fn by_threads(&self) -> AttentionWay {
        let [b, s, _, t, e] = self.extents;
        let (columns, keys) = if self.sum == "double" { (64, 32) } else { (128, 64) };
        let chunks = e.div_ceil(column_chunk(e, columns)).max(1);
        let few = s <= FEW || b * s.div_ceil(64) * chunks < self.shape.processors / 2;
        let queries = if few { 16 } else { 64 };
        // Few queries: parts of the keys on processors of their own, of a tile each if need be.
        let tiles = if s <= FEW { 2 * t / FEW_KEYS } else { t / keys };
        let splits = parts_of_keys(self.shape, b * s.div_ceil(queries) * chunks, tiles);
        AttentionWay { units: Units::Threads, queries, keys, splits, seconds: 0.0 }
    }

    pub fn print(&self, way: &AttentionWay) -> Result<Vec<Launch>, Vec<String>> {
        let &AttentionWay { units, queries: bq, keys: bt, splits, .. } = way;
        let [b, s, d, _, e] = self.extents;
        let (sum, bytes) = (self.sum, if self.sum == "double" { 8 } else { 4 });
        let (ec, dc) = (column_chunk(e, 512 / bytes), depth_chunk(d, 384 / bytes));
        let slots = &self.kernel.slots;
        let most = if units == Units::Threads { (ec / 16).min(4) } else { 8 };
        let (epilogue, lanes) = epilogue(&self.own, slots, most, sum, &query_of("m"))?;
        let queries = stored_queries::functions(self.stored.as_ref(), s, &CudaC);
        let mut before = self.constants.clone();
        let mut methods = method("int stored_queries(int b)", &queries.count);
        methods += &method("int query_of(int b, int row)", &queries.query);
        methods += &epilogue;
        let mut operands = Vec::new();
        for (n, (nest, body)) in self.nests.iter().zip(self.bodies).enumerate() {
            let place = (n == 0 && self.stored.is_some()).then(|| query_of("o"));
            let operand = PrintedOperand::print(n, nest, multiplied(body), slots, (n == 2, sum), place.as_deref())?;
            before += &operand.properties;
            methods += &operand.method;
            operands.push(operand);
        }
        let [_, key, value] = &operands[..] else { return Err(vec!["attention of other than three operands".into()]) };
        let in_lines = key.is_along && !value.is_along && d / key.lanes > 1 && e / value.lanes > 1;
        let few = units == Units::Threads && s <= FEW && in_lines && d.max(e) * bytes <= FEW_BYTES;
        let bt = if few { FEW_KEYS } else { bt };
        let mut bias_lanes = 1;
        let mut sees = None;
        if let Some((nest, result)) = &self.bias {
            // Where the bias is added to every score, no tile is left out.
            sees = if self.hides { seen(nest, *result, [bq, bt]) } else { None };
            let printed = match units {
                Units::Warpgroups(groups) => {
                    let room = groups.room(bt, e.max(1).next_multiple_of(16));
                    score_bias::bias(nest, *result, slots, bt, room)?
                }
                Units::Warps(resident) => {
                    score_bias::bias(nest, *result, slots, bt, self.warps_room(bq, bt, resident))?
                }
                Units::Threads if few => self.bias("bias", nest, *result, 1)?,
                Units::Threads => self.bias("bias", nest, *result, bt / 16)?,
            };
            methods += &self.bias("one_bias", nest, *result, 1)?.methods;
            before += &printed.before;
            methods += &printed.methods;
            bias_lanes = printed.lanes;
        } else if units != Units::Threads {
            before += score_bias::NOTHING_KEPT;
        }
        before += &print_seen(sees.as_deref());
        let head = arguments(slots, &before, &methods)
            + include_str!("../text/tiles.cu")
            + include_str!("../text/attention.cu");
        let chunks = if units == Units::Threads && !few { e.div_ceil(ec) } else { e.min(1) };
        let workspace = if splits > 1 { splits * b * s * (e + 2) * bytes } else { 0 };
        let join = (splits > 1).then(|| {
            let call = format!("join_keys<{sum}, {splits}, {lanes}, {JOIN}>(slots);");
            let blocks = (b * s * e / lanes).div_ceil(JOIN).min(self.shape.processors * 16);
            Launch { workspace, ..Launch::new(head.clone() + &short_entry(JOIN, &call), [blocks, 1, 1], JOIN) }
        });
        let [dp, ep] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let half = self.unit.map_or("", |element| element.name);
        let (source, threads, shared) = match units {
            Units::Warpgroups(groups) => {
                let Groups { count, resident, stages, registers: [brings, weighs] } = groups;
                let threads = 128 * (count + 1);
                let call = format!(
                    "attend_warpgroups<{half}, {count}, {bt}, {dp}, {ep}, {stages}, {brings}, {weighs}, {splits}, {lanes}, {bias_lanes}>(slots);"
                );
                let text = warpgroup_attention::text(half, bt, ep);
                (head + &text + &entry_with((threads, resident), "", "", &call), threads, groups.shared(bt, [dp, ep]))
            }
            Units::Warps(resident) => {
                let element = self.unit.ok_or_else(|| vec!["matrix units do not take these operands".to_string()])?;
                let tiles = operands[1].shared(element, bt, dp) + operands[2].shared(element, ep, bt);
                let shared = operands[0].shared(element, bq, dp) + 2 * tiles;
                let call =
                    format!("attend_matrices<{half}, {bq}, {bt}, {dp}, {ep}, {splits}, {lanes}, {bias_lanes}>(slots);");
                let text = include_str!("../text/halves.cu").to_string()
                    + include_str!("../text/scores.cu")
                    + include_str!("../text/matrix_attention.cu");
                (head + &text + &entry((bq * 2, resident), &call), bq * 2, shared.max(bq * (ep + 4) * 4))
            }
            Units::Threads if few => {
                let call = format!("attend_few<{sum}, {FEW_KEYS}, {FEW_THREADS}, {splits}, {lanes}>(slots);");
                let groups = FEW_THREADS / (e / operands[2].lanes).next_power_of_two();
                let row = d.next_multiple_of(8 * operands[1].lanes);
                let shared = s * (row + FEW_KEYS + 3 + groups * e) * bytes;
                let text = include_str!("../text/few_attention.cu");
                (head + text + &entry((FEW_THREADS, 1), &call), FEW_THREADS, shared)
            }
            Units::Threads => {
                let call = format!("attend<{sum}, {bq}, {bt}, {dc}, {ec}, {splits}, {lanes}, {bias_lanes}>(slots);");
                let threads = bq / 4 * 16;
                let shared = (dc * (bq + bt + 8) + bt * (bq + 4) + bt * (ec + 4)) * bytes;
                (head + &entry((threads, if bytes == 8 { 1 } else { 512 / threads }), &call), threads, shared)
            }
        };
        let grid = [s.div_ceil(bq), chunks * splits, b.min(65535)];
        let launch = Launch { shared, workspace, ..Launch::new(source, grid, threads) };
        let (needs, has) = (launch.shared, self.shape.shared);
        match needs <= has {
            true => Ok([launch].into_iter().chain(join).collect()),
            false => {
                Err(vec![format!("attention of this depth takes {needs} bytes of shared memory; the device has {has}")])
            }
        }
    }

    fn bias(&self, name: &str, nest: &Nest, result: usize, most: usize) -> Result<PrintedBias, Vec<String>> {
        let slots = &self.kernel.slots;
        let lanes = SplitAxis::best(nest, slots, 2, most);
        let mut emitter = Emitter::new(&CudaC, slots, nest, &["b", "s", "t"], lanes, "v");
        let values = emitter.value(result);
        for lane in 0..lanes.count {
            emitter.line(&format!("out[{lane}] = ({}){};", self.sum, values[lane % values.len()]));
        }
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        let methods = method(&format!("void {name}(int b, int s, int t, {}* out)", self.sum), &emitter.text);
        Ok(PrintedBias { before: String::new(), methods, lanes: lanes.count })
    }
}

/// Columns of the values that a block of threads has at once: scores are computed for each chunk of them, so that these are as few as can be. A thread
/// reads its columns by powers of two.
fn column_chunk(columns: usize, most: usize) -> usize {
    let chunk = columns.div_ceil(columns.div_ceil(most).max(1)).max(1).next_multiple_of(16);
    if chunk / 16 % 4 == 3 { chunk + 16 } else { chunk }
}

/// Terms of the scores that are there at once: few are multiplied in vain, and each chunk takes as long again as some terms.
fn depth_chunk(depth: usize, most: usize) -> usize {
    let taken = |chunk: &usize| depth.div_ceil(*chunk) * (chunk + 8);
    (16..=most).step_by(16).min_by_key(taken).unwrap_or(16)
}

/// The functions that say which keys a block of queries looks at, and which tiles of them are plain.
fn print_seen(seen: Option<&[Sees]>) -> String {
    let Some(seen) = seen else {
        return "FN void visible(int, int&, int&) {}\nFN bool is_plain(int, int) { return false; }\n".into();
    };
    let of = |Sees { keys: [first, last], plain: [from, to] }: &Sees| format!("{first}, {last}, {from}, {to}");
    let list: Vec<_> = seen.iter().map(of).collect();
    format!(
        "CONSTANT int RANGES[] = {{ {} }};\n\
             FN void visible(int block, int& first, int& last) {{ first = RANGES[4 * block]; last = RANGES[4 * block + 1]; }}\n\
             FN bool is_plain(int block, int tile) {{ return tile >= RANGES[4 * block + 2] && tile < RANGES[4 * block + 3]; }}\n",
        list.join(", ")
    )
}
