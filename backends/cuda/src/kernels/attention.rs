//! Attention by online softmax, tile by tile of scores, with the maximal score so far per row. The bias may be any
//! expression, and tiles that it hides are skipped.

use eutectic_backend::{
    Attention, AttentionAxes, Body, EmptyRow, Instr, Kernel, ScoreForm, axes::Nest, scores::Shares,
};
use eutectic_gpu::{
    attention::{VisibleKeys, parts_of_keys, seen},
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
use crate::dialect::{BlockShape, CudaC, arguments, entry, entry_with, method, short_entry};

/// Registers of a processor, and the maximal number per thread.
pub const REGISTERS: usize = 65536;
const MOST_REGISTERS: usize = 248;
/// Registers per thread of warp-level matrix units: those in addition to sums and scores, and those of a bias.
const OTHER_REGISTERS: usize = 40;
const BIAS_REGISTERS: usize = 25;
/// Threads of a block that joins splits of the keys.
const JOIN: usize = 128;
/// Sizes of the kernel for few queries, which reads keys and values once. They are the maximal number of queries, keys
/// per tile, threads per block, and the maximal bytes of a key or a value. These bytes must fit into registers.
const MAX_FEW_QUERIES: usize = 16;
const FEW_KEYS: usize = 64;
const FEW_THREADS: usize = 128;
const FEW_BYTES: usize = 512;

/// An attention with the properties that all of its schedules need.
pub struct AttentionProblem<'a> {
    /// The properties of the device.
    pub shape: &'a DeviceShape,
    /// Extents of the batch, queries, depth, keys and columns.
    pub extents: [usize; 5],
    /// The bias over `[b s t]` (batch, queries, keys), and the number of its result.
    pub bias: Option<(Nest, usize)>,
    kernel: &'a Kernel,
    nests: [Nest; 3],
    bodies: [&'a Body; 3],
    own: Nest,
    sum: &'static str,
    /// The type in which matrix units take the operands.
    pub unit: Option<UnitElement>,
    constants: String,
    /// Whether the bias may hide keys.
    hides: bool,
    shares: Shares,
    stored: Option<StoredQueries>,
}

/// The entry point of a kernel, and the functions that only it calls.
struct AttentionEntry {
    text: String,
    /// Threads of a block.
    threads: usize,
    /// Bytes of shared memory of a block.
    shared: usize,
}

impl<'a> AttentionProblem<'a> {
    /// Returns the attention of a kernel; `None` for other kernels.
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

    /// Returns the share of the tiles that is computed. A large tile is hidden as a whole less often, so its share is
    /// larger.
    pub fn visible(&self, queries: usize, keys: usize) -> f64 {
        let [_, s, _, t, _] = self.extents;
        let edges = 0.5 * (queries as f64 / s.max(1) as f64 + keys as f64 / t.max(1) as f64);
        if self.shares.visible < 1.0 { (self.shares.visible + edges).min(1.0) } else { 1.0 }
    }

    /// Returns the share of the blocks of `queries` queries that have a stored query. No other block is computed.
    pub fn stored(&self, queries: usize) -> f64 {
        self.stored.as_ref().map_or(1.0, |stored| stored.share(queries))
    }

    /// Returns the simple operations per score of the bias, for tiles of `keys` keys and threads with `room` registers
    /// for the bias.
    pub fn bias_operations(&self, keys: usize, room: usize) -> f64 {
        let each = |(nest, _): &(Nest, usize)| score_bias::operations(nest, &self.kernel.slots, keys, room);
        self.bias.as_ref().map_or(0.0, each) * self.shares.mixed
    }

    /// Returns whether keys or values are computed from loaded elements.
    pub fn computes_keys(&self) -> bool {
        let is_loaded = |n: usize| match &self.nests[n].instrs[multiplied(self.bodies[n])] {
            Instr::Load(load) => self.kernel.slots[load.slot].0 == load.dtype,
            _ => false,
        };
        !(is_loaded(1) && is_loaded(2))
    }

    /// Returns the registers per thread of warp-level matrix units: for sums, scores and the evaluated elements of the
    /// next tile.
    pub fn warps_registers(&self, queries: usize, keys: usize) -> usize {
        let [_, _, d, _, e] = self.extents;
        let [depth, columns] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let bias = if self.bias.is_some() { BIAS_REGISTERS } else { 0 };
        let evaluated = if self.computes_keys() { keys * (depth + columns) / (2 * queries) } else { 0 };
        columns / 2 + keys / 2 + evaluated + OTHER_REGISTERS + bias
    }

    /// Returns the registers that remain for a bias, for `resident` blocks per processor.
    pub fn warps_room(&self, queries: usize, keys: usize, resident: usize) -> usize {
        let has = (REGISTERS / (2 * queries * resident) / 8 * 8).min(MOST_REGISTERS);
        has.saturating_sub(self.warps_registers(queries, keys))
    }

    /// Returns the bytes of shared memory for warp-level matrix units, for any layout of the operands.
    pub fn warps_shared(&self, element: UnitElement, queries: usize, keys: usize) -> usize {
        let [_, _, d, _, e] = self.extents;
        let [depth, columns] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let tile = |outer: usize, depth: usize| element.tile(outer, depth);
        let tiles = tile(queries, depth) + 2 * (tile(keys, depth) + tile(columns, keys));
        tiles.max(queries * (columns + 4) * 4)
    }

    /// Returns the schedule without matrix units.
    pub fn by_threads(&self) -> AttentionWay {
        let [b, s, _, t, e] = self.extents;
        let (columns, keys) = if self.sum == "double" { (64, 32) } else { (128, 64) };
        let chunks = e.div_ceil(column_chunk(e, columns)).max(1);
        let few = s <= MAX_FEW_QUERIES || b * s.div_ceil(64) * chunks < self.shape.processors / 2;
        let queries = if few { 16 } else { 64 };
        // The keys of few queries are split, down to one tile per block.
        let tiles = if s <= MAX_FEW_QUERIES { 2 * t / FEW_KEYS } else { t / keys };
        let splits = parts_of_keys(self.shape, b * s.div_ceil(queries) * chunks, tiles);
        AttentionWay { units: Units::Threads, queries, keys, splits, seconds: 0.0 }
    }

    /// Prints a schedule.
    ///
    /// # Errors
    /// Returns the reasons why it cannot be printed.
    pub fn print(&self, way: &AttentionWay) -> Result<Vec<Launch>, Vec<String>> {
        let [b, s, d, _, e] = self.extents;
        let (sum, bytes, units) = (self.sum, self.bytes(), way.units);
        let slots = &self.kernel.slots;
        let most = if units == Units::Threads { (self.column_chunk() / 16).min(4) } else { 8 };
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
        let operands = <[PrintedOperand; 3]>::try_from(operands);
        let operands =
            operands.map_err(|_| vec!["cannot print attention because it does not have three operands".to_string()])?;
        let [_, key, value] = &operands;
        let in_lines = key.is_along && !value.is_along && d / key.lanes > 1 && e / value.lanes > 1;
        let few = units == Units::Threads && s <= MAX_FEW_QUERIES && in_lines && d.max(e) * bytes <= FEW_BYTES;
        let way = AttentionWay { keys: if few { FEW_KEYS } else { way.keys }, ..*way };
        let bias = self.scores(&way, few)?;
        before += &bias.before;
        methods += &bias.methods;
        let head = arguments(slots, &before, &methods)
            + include_str!("../text/tiles.cu")
            + include_str!("../text/attention.cu");
        let splits = way.splits;
        let chunks = if units == Units::Threads && !few { e.div_ceil(self.column_chunk()) } else { e.min(1) };
        let workspace = if splits > 1 { splits * b * s * (e + 2) * bytes } else { 0 };
        let join = (splits > 1).then(|| {
            let call = format!("join_keys<{sum}, {splits}, {lanes}, {JOIN}>(slots);");
            let blocks = (b * s * e / lanes).div_ceil(JOIN).min(self.shape.processors * 16);
            Launch { workspace, ..Launch::new(head.clone() + &short_entry(JOIN, &call), [blocks, 1, 1], JOIN) }
        });
        let AttentionEntry { text, threads, shared } = match few {
            true => self.few_entry(&operands, lanes, splits),
            false => self.entry(&way, &operands, [lanes, bias.lanes])?,
        };
        let grid = [s.div_ceil(way.queries), chunks * splits, b.min(65535)];
        let launch = Launch { shared, workspace, ..Launch::new(head + &text, grid, threads) };
        let (needs, has) = (launch.shared, self.shape.shared);
        match needs <= has {
            true => Ok([launch].into_iter().chain(join).collect()),
            false => Err(vec![format!(
                "cannot print attention of depth {d} and {e} columns because it takes {needs} bytes of shared memory; the device has {has}"
            )]),
        }
    }

    /// Returns the bytes of a sum.
    fn bytes(&self) -> usize {
        if self.sum == "double" { 8 } else { 4 }
    }

    /// Returns the number of columns that a block of threads accumulates at once.
    fn column_chunk(&self) -> usize {
        column_chunk(self.extents[4], 512 / self.bytes())
    }

    /// Prints the bias of scores, and the ranges of keys that it leaves visible.
    fn scores(&self, way: &AttentionWay, few: bool) -> Result<PrintedBias, Vec<String>> {
        let &AttentionWay { units, queries: bq, keys: bt, .. } = way;
        let Some((nest, result)) = &self.bias else {
            let before = if units == Units::Threads { "" } else { score_bias::NOTHING_KEPT };
            return Ok(PrintedBias {
                before: before.to_string() + &print_seen(None),
                methods: String::new(),
                lanes: 1,
            });
        };
        let slots = &self.kernel.slots;
        let printed = match units {
            Units::Warpgroups(groups) => {
                let room = groups.room(bt, self.extents[4].max(1).next_multiple_of(16));
                score_bias::bias(nest, *result, slots, bt, room)?
            }
            Units::Warps(resident) => score_bias::bias(nest, *result, slots, bt, self.warps_room(bq, bt, resident))?,
            Units::Threads if few => self.bias("bias", nest, *result, 1)?,
            Units::Threads => self.bias("bias", nest, *result, bt / 16)?,
        };
        // If the bias is added to every score, no tile may be skipped.
        let sees = if self.hides { seen(nest, *result, [bq, bt]) } else { None };
        Ok(PrintedBias {
            before: printed.before + &print_seen(sees.as_deref()),
            methods: self.bias("one_bias", nest, *result, 1)?.methods + &printed.methods,
            lanes: printed.lanes,
        })
    }

    /// Prints the entry point for tiles of queries. Threads store `lanes` results at once, and evaluate the bias for
    /// `bias_lanes` keys.
    fn entry(
        &self,
        way: &AttentionWay,
        operands: &[PrintedOperand; 3],
        [lanes, bias_lanes]: [usize; 2],
    ) -> Result<AttentionEntry, Vec<String>> {
        let &AttentionWay { units, queries: bq, keys: bt, splits, .. } = way;
        let [_, _, d, _, e] = self.extents;
        let [dp, ep] = [d, e].map(|n| n.max(1).next_multiple_of(16));
        let half = self.unit.map_or("", |element| element.name);
        let (text, threads, shared) = match units {
            Units::Warpgroups(groups) => {
                let Groups { count, resident, stages, registers: [brings, weighs] } = groups;
                let threads = 128 * (count + 1);
                let call = format!(
                    "attend_warpgroups<{half}, {count}, {bt}, {dp}, {ep}, {stages}, {brings}, {weighs}, {splits}, {lanes}, {bias_lanes}>(slots);"
                );
                let text = warpgroup_attention::text(half, bt, ep);
                (
                    text + &entry_with(BlockShape { threads, resident }, "", "", &call),
                    threads,
                    groups.shared(bt, [dp, ep]),
                )
            }
            Units::Warps(resident) => {
                let threads = bq * 2;
                let why = "cannot use matrix units because the operands do not share a 16-bit float type, and TF32 is \
                           not allowed for all of them";
                let element = self.unit.ok_or_else(|| vec![why.to_string()])?;
                let tiles = operands[1].shared(element, bt, dp) + operands[2].shared(element, ep, bt);
                let shared = operands[0].shared(element, bq, dp) + 2 * tiles;
                let call =
                    format!("attend_matrices<{half}, {bq}, {bt}, {dp}, {ep}, {splits}, {lanes}, {bias_lanes}>(slots);");
                let text = include_str!("../text/halves.cu").to_string()
                    + include_str!("../text/scores.cu")
                    + include_str!("../text/matrix_attention.cu");
                (text + &entry(BlockShape { threads, resident }, &call), threads, shared.max(bq * (ep + 4) * 4))
            }
            Units::Threads => {
                let (sum, bytes) = (self.sum, self.bytes());
                let (ec, dc) = (self.column_chunk(), depth_chunk(d, 384 / bytes));
                let call = format!("attend<{sum}, {bq}, {bt}, {dc}, {ec}, {splits}, {lanes}, {bias_lanes}>(slots);");
                let threads = bq / 4 * 16;
                let shared = (dc * (bq + bt + 8) + bt * (bq + 4) + bt * (ec + 4)) * bytes;
                let resident = if bytes == 8 { 1 } else { 512 / threads };
                (entry(BlockShape { threads, resident }, &call), threads, shared)
            }
        };
        Ok(AttentionEntry { text, threads, shared })
    }

    /// Prints the entry point for few queries, whose threads store `lanes` results at once.
    fn few_entry(&self, [_, key, value]: &[PrintedOperand; 3], lanes: usize, splits: usize) -> AttentionEntry {
        let [_, s, d, _, e] = self.extents;
        let call = format!("attend_few<{}, {FEW_KEYS}, {FEW_THREADS}, {splits}, {lanes}>(slots);", self.sum);
        let groups = FEW_THREADS / (e / value.lanes).next_power_of_two();
        let row = d.next_multiple_of(8 * key.lanes);
        AttentionEntry {
            text: include_str!("../text/few_attention.cu").to_string()
                + &entry(BlockShape { threads: FEW_THREADS, resident: 1 }, &call),
            threads: FEW_THREADS,
            shared: s * (row + FEW_KEYS + 3 + groups * e) * self.bytes(),
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

/// Returns the number of value columns that a block accumulates at once. Scores are computed again for each chunk of
/// columns, so few chunks are best. Each read of shared memory takes a power of two of columns, so a thread's remainder
/// is never three.
fn column_chunk(columns: usize, most: usize) -> usize {
    let chunk = columns.div_ceil(columns.div_ceil(most).max(1)).max(1).next_multiple_of(16);
    if chunk / 16 % 4 == 3 { chunk + 16 } else { chunk }
}

/// Returns the number of score terms per chunk. Padding wastes multiplications, and each chunk costs as much as some
/// terms.
fn depth_chunk(depth: usize, most: usize) -> usize {
    let taken = |chunk: &usize| depth.div_ceil(*chunk) * (chunk + 8);
    (16..=most).step_by(16).min_by_key(taken).unwrap_or(16)
}

/// Prints the functions that return the range of keys that a block of queries attends to, and whether the bias leaves a
/// tile of them unchanged.
fn print_seen(seen: Option<&[VisibleKeys]>) -> String {
    let Some(seen) = seen else {
        return "FN void visible(int, int&, int&) {}\nFN bool is_plain(int, int) { return false; }\n".into();
    };
    let of =
        |VisibleKeys { keys: [first, last], plain: [from, to] }: &VisibleKeys| format!("{first}, {last}, {from}, {to}");
    let list: Vec<_> = seen.iter().map(of).collect();
    format!(
        "CONSTANT int RANGES[] = {{ {} }};\n\
             FN void visible(int block, int& first, int& last) {{ first = RANGES[4 * block]; last = RANGES[4 * block + 1]; }}\n\
             FN bool is_plain(int block, int tile) {{ return tile >= RANGES[4 * block + 2] && tile < RANGES[4 * block + 3]; }}\n",
        list.join(", ")
    )
}
