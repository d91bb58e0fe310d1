//! Products: chooses the schedule with the least predicted time. A block accumulates a tile of the result in registers.
//! Operands and epilogue may be any expressions. Products of few rows need no tiles in shared memory.

use eutectic_backend::Kernel;
use eutectic_gpu::{
    device::DeviceShape,
    dialect::Dialect,
    direct::{Direct, Rates},
    launch::Launch,
};

use super::{
    few_rows, fma, matrices,
    parts::Epilogue,
    product::{Product, TileForm, TilePoints},
};
use crate::{dialect::Wgsl, library::register};

/// The maximal number of splits of the depth.
const MAX_SPLITS: usize = 16;
/// Stalls of a processor, as the number of multiply-adds that it could do meanwhile at the rates of the tile forms.
struct Waits {
    /// The stall of a step that waits for memory.
    step: f64,
    /// The stall of a further launch, which adds the splits of the depth.
    joining: f64,
    /// The stall per byte of a partial sum, which is stored and read again.
    byte: f64,
}
/// Stalls of most products. A processor's share of an H200's 4 TB/s stores and reads a byte in the time of 14
/// multiply-adds.
const USUAL: Waits = Waits { step: 80_000.0, joining: 800_000.0, byte: 14.0 };
/// Stalls on matrix units if the right operand is contiguous along the depth. They were fitted together with the rates
/// of the tile forms, to 16 products by 18 schedules each on an H200. Half of the predictions are within a factor of
/// 1.08.
const ALONG: Waits = Waits { step: 27_000.0, joining: 720_000.0, byte: 20.0 };
/// Seconds per multiply-add of a processor, at which 14 multiply-adds take as long as storing and reading a byte at the
/// processor's share of an H200's 4 TB/s.
const UNIT: f64 = 4.7e-12;
/// The rates of direct convolution on an H200 under Vulkan.
const RATES: Rates = Rates { operations: 1.6e13, ..Rates::USUAL };
/// Blocks per processor. One of them works while another one waits.
const RESIDENT: usize = 2;
/// Threads of a block that adds splits of the depth.
const ADDING: usize = 128;

/// Prints a kernel's product.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let product = Product::new(dialect, kernel)
        .ok_or_else(|| vec!["cannot print a product because the kernel has none".to_string()])?;
    let ways = product.ways(shape)?;
    if let Some((direct, _)) = direct(kernel, shape, &ways) {
        return Ok(vec![direct.print(dialect, shape)?]);
    }
    if let Some(launch) = few_rows::print(&product, shape) {
        return launch.map(|launch| vec![launch]);
    }
    let fastest = ways.into_iter().min_by(|a, b| a.time.total_cmp(&b.time));
    let TileWay { form, parts, .. } =
        fastest.ok_or_else(|| vec!["cannot print a product because no tile form fits the device".to_string()])?;
    product.print(shape, &form, parts)
}

/// Returns the schedules among which [`print()`] chooses, with their predicted seconds, the fastest first. The list is
/// empty for other kernels, and for few rows, which have a single schedule.
pub fn expected(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    let Some(product) = Product::new(dialect, kernel) else { return Vec::new() };
    let tiles = product.ways(shape).unwrap_or_default();
    let direct = direct(kernel, shape, &tiles);
    if direct.is_none() && few_rows::print(&product, shape).is_some() {
        return Vec::new();
    }
    let direct = direct.map(|(direct, seconds)| (direct.name(), seconds));
    let mut ways: Vec<_> = direct.into_iter().chain(tiles.iter().map(|way| (way.name(), way.time * UNIT))).collect();
    ways.sort_by(|a, b| a.1.total_cmp(&b.1));
    ways
}

/// Returns the direct convolution with its predicted seconds, if all tiles take longer.
fn direct<'a>(kernel: &'a Kernel, shape: &DeviceShape, tiles: &[TileWay]) -> Option<(Direct<'a>, f64)> {
    let direct = Direct::of(kernel, shape)?;
    let seconds = direct.busy(shape, RATES);
    tiles.iter().all(|way| seconds < way.time * UNIT).then_some((direct, seconds))
}

/// A tile form with a number of splits of the depth.
struct TileWay {
    form: TileForm,
    parts: usize,
    /// The predicted time, as the number of multiply-adds that a processor could do meanwhile.
    time: f64,
}

impl TileWay {
    fn name(&self) -> String {
        let TileForm { block: [rows, columns], depth, .. } = self.form;
        format!("tiles {rows}×{columns}×{depth} in {}", self.parts)
    }
}

impl Product<'_> {
    /// Returns each tile form with each number of splits of the depth. A form runs in waves of blocks, each of a number
    /// of steps. A step waits for memory unless the processor has another block to work on.
    fn ways(&self, shape: &DeviceShape) -> Result<Vec<TileWay>, Vec<String>> {
        let (forms, waits) = match self.takes_matrices() {
            true if self.operands(matrices::EIGHT)?[1].along => {
                (matrices::forms(self.dialect, shape, &matrices::ALONG), ALONG)
            }
            true => (matrices::forms(self.dialect, shape, &matrices::ACROSS), USUAL),
            false => (fma::forms(shape, self.sum.size()), USUAL),
        };
        let [b, m, n, k] = self.extents;
        let size = self.sum.size();
        let mut ways = Vec::new();
        for form in forms {
            let [bm, bn] = form.block;
            let blocks = (b * m.div_ceil(bm) * n.div_ceil(bn)).max(1);
            let steps = k.div_ceil(form.depth).max(1);
            let mut parts = 1;
            while parts <= MAX_SPLITS && steps >= parts && (parts == 1 || parts * b * m * n * size <= shape.workspace) {
                let waves = |at_once: usize| (blocks * parts).div_ceil(at_once) as f64;
                let busy = (bm * bn * form.depth) as f64 / form.rate;
                let step =
                    (waves(shape.processors) * busy).max(waves(shape.processors * RESIDENT) * (busy + waits.step));
                let passing = (parts * b * m * n * size) as f64 / shape.processors as f64 * waits.byte;
                let adding = if parts > 1 { waits.joining + passing } else { 0.0 };
                ways.push(TileWay { form, parts, time: steps.div_ceil(parts) as f64 * step + adding });
                parts *= 2;
            }
        }
        Ok(ways)
    }

    fn print(&self, shape: &DeviceShape, form: &TileForm, parts: usize) -> Result<Vec<Launch>, Vec<String>> {
        let Product { dialect, kernel, sum, extents: [b, m, n, k], .. } = *self;
        let ty = register(sum);
        let [bm, bn] = form.block;
        // Each split has at least one step: tiles are loaded before the end of a split is checked.
        let steps = k.div_ceil(form.depth).max(1);
        let of_part = steps.div_ceil(parts);
        let parts = steps.div_ceil(of_part);
        let most = if self.takes_matrices() { matrices::EIGHT } else { 4 };
        let epilogue = Epilogue::print(dialect, &self.own, &kernel.slots, most, "m")?;
        let points = TilePoints { product: self, epilogue: &epilogue, parts };
        let tile =
            if self.takes_matrices() { matrices::print(&points, self, form) } else { fma::print(&points, self, form) }?;
        let lanes = epilogue.lanes();
        let columns = n.div_ceil(bn);
        let tiles = m.div_ceil(bm) * columns;
        let each = of_part * form.depth;
        let mut body = dialect.place("thread", "block");
        body += &format!(
            "\nif (block >= {}) {{ return; }}\nlet tile = block % {tiles};\nlet part = block / {tiles} % {parts};\nlet b = block / {};\n\
             let m0 = tile / {columns} * {bm};\nlet n0 = tile % {columns} * {bn};\n\
             let begin = part * {each};\nlet end = min(begin + {each}, {k});\n",
            tiles * parts * b,
            tiles * parts,
        );
        let slot = kernel.slots.len();
        let mut slots = kernel.slots.clone();
        let elements = b * m * n;
        if parts > 1 {
            slots.push((sum, parts * elements));
        }
        body += &tile.body;
        let workspace = if parts > 1 { parts * elements * sum.size() } else { 0 };
        let text = dialect.text(&slots, tile.threads, &tile.before, &body);
        let mut launches = vec![Launch { workspace, ..Launch::new(text, [tiles * parts * b, 1, 1], tile.threads) }];
        if parts > 1 {
            // Adds the splits in order.
            let groups = elements / lanes;
            let mut body = dialect.each_point("i", groups, ADDING);
            body += &format!(
                "let at = i * {lanes};\nlet b = at / {};\nlet m = at / {n} % {m};\nlet at_n = at % {n};\n",
                m * n
            );
            for lane in 0..lanes {
                body += &format!("var s{lane} = {ty}(0);\n");
            }
            let load = |lane: usize| dialect.load(slot, &format!("part * {elements} + at + {lane}"));
            let add: String = (0..lanes).map(|lane| format!("s{lane} += {};\n", load(lane))).collect();
            body += &dialect.in_turns(("part", "0"), parts, 1, MAX_SPLITS, &add);
            body += &epilogue.at(|lane| format!("s{lane}"));
            body += "}\n";
            let blocks = groups.div_ceil(ADDING).min(shape.processors * 16);
            let text = dialect.text(&slots, ADDING, "", &body);
            launches.push(Launch { workspace, ..Launch::new(text, [blocks, 1, 1], ADDING) });
        }
        Ok(launches)
    }
}
