//! Products of 16-bit floats on matrix units. A subgroup holds fragments of 16 × 16 elements. Tiles are in shared
//! memory, with rows padded by 16 bytes. The next tile is loaded into registers while this one is multiplied.
//!
//! Shared memory is declared as `f32`, because sums use it too and naga allows one type. It holds the bits of the
//! operands, and a pass over the SPIR-V sets their type ([`crate::units`]).

use std::fmt::Write as _;

use eutectic_gpu::device::DeviceShape;
use eutectic_ir::DType;

use super::{
    parts::PrintedOperand,
    product::{Product, TileForm, TilePoints, TileText},
};
use crate::{dialect::Wgsl, features::MatrixUnits, units};

const fn form(block: [usize; 2], depth: usize, shares: [usize; 2], rate: f64) -> TileForm {
    TileForm { block, depth, shares, rate }
}

const fn forms_at(rates: [f64; 5]) -> [TileForm; 5] {
    [
        form([128, 128], 32, [2, 2], rates[0]),
        form([128, 64], 32, [2, 2], rates[1]),
        form([64, 64], 64, [2, 2], rates[2]),
        form([32, 64], 64, [2, 2], rates[3]),
        form([16, 64], 64, [1, 4], rates[4]),
    ]
}

/// Tile forms with rates measured on an H200: for right operands that are contiguous along the depth, and for others.
pub const ALONG: [TileForm; 5] = forms_at([5.6, 3.9, 4.1, 2.8, 1.5]);
pub const ACROSS: [TileForm; 5] = forms_at([5.5, 4.5, 3.6, 1.9, 1.0]);
/// Rows, columns and depth of a fragment.
pub const SIDE: usize = 16;
/// The number of elements in 16 bytes.
pub const EIGHT: usize = 8;

/// Returns the tile forms that fit on a device.
pub fn forms(dialect: &Wgsl, shape: &DeviceShape, all: &[TileForm]) -> Vec<TileForm> {
    let fits = |form: &&TileForm| {
        let [bm, bn] = form.block;
        let along = (bm + bn) * (form.depth / EIGHT + 1);
        let across = form.depth * ((bm + bn) / EIGHT + 2);
        16 * along.max(across).max(sums(form)) <= shape.shared && threads(dialect, form) <= shape.threads
    };
    all.iter().filter(fits).copied().collect()
}

/// Returns the number of threads of a subgroup.
pub fn lanes(dialect: &Wgsl) -> usize {
    dialect.subgroup.filter(|_| !dialect.matrices.emulated).unwrap_or(32)
}

fn threads(dialect: &Wgsl, form: &TileForm) -> usize {
    form.shares[0] * form.shares[1] * lanes(dialect)
}

/// Returns the distance of rows of a subgroup's sums, in units of 16 bytes. Rows are padded.
fn stride(form: &TileForm) -> usize {
    form.block[1] / form.shares[1] / 4 + 1
}

/// Returns the units of 16 bytes for the sums of one row of fragments, over all subgroups.
fn sums(form: &TileForm) -> usize {
    form.shares[0] * form.shares[1] * SIDE * stride(form)
}

/// An operand's tile in shared memory.
pub struct UnitTile<'a> {
    pub operand: &'a PrintedOperand,
    pub name: &'static str,
    /// The role of the matrix in a product: `A` or `B`.
    pub role: char,
    /// The extents of the tile.
    pub outer: usize,
    pub depth: usize,
    /// The end of the operand's depth, if a tile may reach beyond.
    pub end: Option<&'a str>,
    /// The tile's start in shared memory, in units of 16 bytes.
    pub at: usize,
    pub dtype: DType,
}

impl UnitTile<'_> {
    /// Returns the extents in memory, the innermost last, and the distance of lines in units of 16 bytes.
    fn lines(&self) -> ([usize; 2], usize) {
        let extents = if self.operand.along { [self.outer, self.depth] } else { [self.depth, self.outer] };
        (extents, extents[1] / EIGHT + 1)
    }

    /// Returns the size of the tile, in units of 16 bytes.
    pub fn size(&self) -> usize {
        let ([lines, _], stride) = self.lines();
        lines * stride
    }

    /// Returns how many units of 16 bytes a thread loads.
    fn rounds(&self, threads: usize) -> usize {
        (self.outer * self.depth / EIGHT).div_ceil(threads)
    }

    /// Returns statements for each unit of 16 bytes that a thread loads, in braces. `line` and `place` name the unit's
    /// position. `text` gets the number of the unit.
    fn each(&self, threads: usize, text: impl Fn(usize) -> String) -> String {
        let ([_, length], _) = self.lines();
        let (count, across) = (self.outer * self.depth / EIGHT, length / EIGHT);
        let mut all = String::new();
        for round in 0..self.rounds(threads) {
            let inside = match (round + 1) * threads > count {
                true => format!("if (of_tile < {count}u) "),
                false => String::new(),
            };
            let _ = write!(
                all,
                "{{\nlet of_tile = u32(thread) + {}u;\n{inside}{{\nlet line = i32(of_tile / {across}u);\nlet place = i32(of_tile % {across}u);\n{}}}\n}}\n",
                round * threads,
                text(round)
            );
        }
        all
    }

    /// Returns declarations of the registers for a thread's units.
    pub fn declare(&self, threads: usize) -> String {
        (0..self.rounds(threads)).map(|n| format!("var {}{n}: vec4<u32>;\n", self.name)).collect()
    }

    /// Returns statements that load a tile into registers, from an outer coordinate and a term of the depth on.
    /// Elements beyond the depth are zeros. Elements beyond the outer axis, whose sums are unused, repeat the last
    /// ones; branches would take a quarter of the time. Coordinates are divided as unsigned numbers, by shifts.
    pub fn read(&self, [first, from]: [&str; 2], threads: usize) -> String {
        let PrintedOperand { text, values, lanes, along, outer, raw } = self.operand;
        let (count, name, end) = (&lanes.count, self.name, self.end);
        let [at_line, at_place] = if *along { [first, from] } else { [from, first] };
        self.each(threads, |round| {
            let mut all = format!("{name}{round} = vec4<u32>();\n");
            let several = *count < EIGHT;
            if several {
                all += &format!("for (var n = 0; n < {}; n += 1) {{\n", EIGHT / count);
            }
            let n = if several { format!(" + n * {count}") } else { String::new() };
            let [of_line, of_place] = [format!("{at_line} + line"), format!("{at_place} + place * {EIGHT}{n}")];
            let (o, k) = if *along { (of_line, of_place) } else { (of_place, of_line) };
            let last = outer.saturating_sub(if *along { 1 } else { *count });
            let o = if outer % self.outer > 0 { format!("min({o}, {last})") } else { o };
            let inside = match end {
                _ if *outer == 0 => "if (false) ".into(),
                Some(end) => format!("if (at_k < {end}) "),
                None => String::new(),
            };
            all += &format!("let at_o = {o};\nlet at_k = {k};\n{inside}{{\n");
            let by = |at: &str, split: bool| match split && *count > 1 {
                true => format!("i32(u32({at}) / {count}u)"),
                false => at.to_string(),
            };
            all += &format!("let o = {};\nlet k = {};\n", by("at_o", !along), by("at_k", *along));
            let half = |n: usize| format!("bits_{}({})", self.dtype, values[n % values.len()]);
            let pair = |n: usize| format!("{} | ({} << 16u)", half(n), half(n + 1));
            match (*count, raw) {
                (EIGHT, Some((slot, at))) => {
                    all += &format!("{name}{round} = quad_s{slot}(i32(u32({at}) / {EIGHT}u));\n");
                }
                _ => {
                    all += text;
                    match *count {
                        1 => all += &format!("{name}{round}[n / 2] |= {} << (16u * (u32(n) & 1u));\n", half(0)),
                        EIGHT => {
                            let words: Vec<String> = (0..4).map(|n| pair(2 * n)).collect();
                            all += &format!("{name}{round} = vec4<u32>({});\n", words.join(", "));
                        }
                        _ => {
                            for word in 0..count / 2 {
                                let at = format!("n * {} + {word}", count / 2);
                                all += &format!("{name}{round}[{at}] = {};\n", pair(2 * word));
                            }
                        }
                    }
                }
            }
            all + if several { "}\n}\n" } else { "}\n" }
        })
    }

    /// Returns statements that store a thread's units in shared memory.
    pub fn write(&self, threads: usize) -> String {
        let (stride, name, at) = (self.lines().1, self.name, self.at);
        self.each(threads, |round| {
            format!("memory[{at} + line * {stride} + place] = bitcast<vec4<f32>>({name}{round});\n")
        })
    }

    /// Returns statements that load a fragment, which begins at an outer coordinate and a term of the depth of the
    /// tile.
    pub fn load(&self, name: &str, outer: &str, depth: usize, units: &MatrixUnits) -> String {
        let ([..], stride) = self.lines();
        let place = match self.operand.along {
            true => format!("{} + ({outer}) * {stride} + {}", self.at, depth / EIGHT),
            false => format!("{} + ({outer}) / {EIGHT}", self.at + depth * stride),
        };
        // Lines are rows if a left operand is contiguous along the depth, or if a right operand is not.
        let rows_are_lines = self.operand.along == (self.role == 'A');
        units::load((name, self.role), (&place, stride), rows_are_lines, units)
    }
}

/// Returns whether a tile of `tile` terms may reach beyond the end of a depth.
pub fn may_end_within(depth: usize, tile: usize) -> bool {
    depth == 0 || !depth.is_multiple_of(tile)
}

/// Returns the expression of a sum in shared memory: lane `lane` of `lanes` neighbours, from a column of the line on.
pub fn sum_at(line: &str, column: &str, lane: usize, lanes: usize) -> String {
    match lanes {
        1 | 2 => format!("memory[{line} + {column} / 4][{column} % 4 + {lane}]"),
        _ => format!("memory[{line} + {column} / 4 + {}][{}]", lane / 4, lane % 4),
    }
}

/// Prints a tile.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(points: &TilePoints<'_>, product: &Product<'_>, form: &TileForm) -> Result<TileText, Vec<String>> {
    let Product { dialect, .. } = *product;
    let dtype = product.operand_type().unwrap_or(DType::F16);
    let TileForm { block: [bm, bn], depth: bk, shares: [wm, wn], .. } = *form;
    let (lanes, threads) = (lanes(dialect), threads(dialect, form));
    let operands = product.operands(EIGHT)?;
    let tile = |n: usize, name, outer, at| UnitTile {
        operand: &operands[n],
        name,
        role: ['A', 'B'][n],
        outer,
        depth: bk,
        end: may_end_within(product.extents[3], bk).then_some("end"),
        at,
        dtype,
    };
    let left = tile(0, "left", bm, 0);
    let right = tile(1, "right", bn, left.size());
    let tiles = [(&left, "m0"), (&right, "n0")];
    let (rows, columns) = (bm / wm / SIDE, bn / wn / SIDE);
    let memory = (left.size() + right.size()).max(sums(form));
    let before =
        format!("{}var<workgroup> memory: array<vec4<f32>, {memory}>;\n", units::head(dtype, &dialect.matrices));
    let mut body = format!(
        "let warp = thread / {lanes};\nlet lane = thread % {lanes};\nlet wm = warp / {wn} * {};\nlet wn = warp % {wn} * {};\n",
        rows * SIDE,
        columns * SIDE
    );
    let fragments = || (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    fragments().for_each(|(i, j)| body += &units::zeros(&format!("c{i}_{j}"), &dialect.matrices));
    for (tile, first) in tiles {
        body += &tile.declare(threads);
        body += &tile.read([first, "begin"], threads);
    }
    body += &format!("for (var k0 = begin; k0 < end; k0 += {bk}) {{\n");
    tiles.iter().for_each(|(tile, _)| body += &tile.write(threads));
    body += &format!("workgroupBarrier();\nlet k1 = k0 + {bk};\nif (k1 < end) {{\n");
    tiles.iter().for_each(|(tile, first)| body += &tile.read([first, "k1"], threads));
    body += "}\n";
    for step in (0..bk).step_by(SIDE) {
        for i in 0..rows {
            body += &left.load(&format!("x{step}_{i}"), &format!("wm + {}", i * SIDE), step, &dialect.matrices);
        }
        for j in 0..columns {
            body += &right.load(&format!("y{step}_{j}"), &format!("wn + {}", j * SIDE), step, &dialect.matrices);
            for i in 0..rows {
                let [x, y] = [format!("x{step}_{i}"), format!("y{step}_{j}")];
                body += &units::multiply(&format!("c{i}_{j}"), &x, &y, &dialect.matrices);
            }
        }
    }
    body += "workgroupBarrier();\n}\n";
    // The positions of sums in a fragment are unknown. One row of fragments at a time therefore goes through shared
    // memory, where threads read sums by position.
    let (stride, width) = (stride(form), columns * SIDE);
    body += &format!("let own = warp * {};\n", SIDE * stride);
    for i in 0..rows {
        for j in 0..columns {
            let place = format!("own + {}", j * SIDE / 4);
            body += &units::store(&format!("c{i}_{j}"), (&format!("s{i}_{j}"), &place, stride), &dialect.matrices);
        }
        body += &format!(
            "workgroupBarrier();\nfor (var e = lane * {0}; e < {1}; e += {2}) {{\nlet row = e / {width};\nlet column = e % {width};\n\
             let m = m0 + wm + {3} + row;\nlet at_n = n0 + wn + column;\n",
            points.lanes(),
            SIDE * width,
            lanes * points.lanes(),
            i * SIDE,
        );
        body += &points.at(|lane| sum_at(&format!("own + row * {stride}"), "column", lane, points.lanes()));
        body += "}\nworkgroupBarrier();\n";
    }
    Ok(TileText { threads, before, body })
}

#[cfg(test)]
mod tests {
    use eutectic::{Compiler, Setup};
    use eutectic_ir::{lang::Source, text::parse};

    use super::*;
    use crate::spirv::compile;

    /// Returns the kernels of a graph's first step, printed for units of an H200.
    fn printed(text: String) -> Vec<String> {
        let cpu = eutectic::BACKENDS[0].open(&Setup::default()).unwrap_or_else(|e| panic!("{e}"));
        let compiler = Compiler::from_arc(cpu, eutectic::RuleSet::default());
        let matrices = MatrixUnits { f16: true, bf16: true, emulated: false };
        let dialect = Wgsl { subgroup: Some(32), matrices, float_atomics: true };
        let graph = parse(&Source::new("g", text)).unwrap_or_else(|e| panic!("{e:?}"));
        let program = compiler.plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
        let shape = DeviceShape {
            processors: 132,
            threads: 1024,
            column_threads: 1024,
            shared: 48 << 10,
            workspace: 1 << 28,
            cluster: 0,
            library: None,
            rankings: crate::costs(false).rankings,
        };
        let launches =
            super::super::print(&dialect, &shape, &program.kernels[0]).unwrap_or_else(|why| panic!("{why:?}"));
        launches.iter().map(|launch| launch.source().unwrap_or_default().to_string()).collect()
    }

    /// The text for real units compiles. Its results are tested by emulation, and on devices with matrix units.
    #[test]
    fn texts_for_matrix_units_compile() {
        for (dtype, rows) in [("f16", 4000), ("bf16", 30), ("f16", 1)] {
            let text =
                format!("(graph \"g\" (input x {dtype}[{rows} 80]) (input w {dtype}[80 64]) (output y (matmul x w)))");
            let code = compile(&printed(text)[0], &[]).unwrap_or_else(|e| panic!("{e}"));
            let has = |capability: u32| code.words.windows(2).any(|w| w == [2 << 16 | 17, capability]);
            assert!(has(6022) && has(if dtype == "f16" { 9 } else { 5118 }), "{dtype}");
        }
    }

    /// The first tile of a split is loaded before any check that the split has a tile.
    #[test]
    fn no_part_of_the_depth_is_empty() {
        let number = |text: &str, before: &str, after: &str| -> usize {
            let rest = text.split_once(before).unwrap_or_else(|| panic!("{before} in {text}")).1;
            rest.split_once(after)
                .and_then(|(number, _)| number.parse().ok())
                .unwrap_or_else(|| panic!("{before} {rest}"))
        };
        let mut split = 0;
        for depth in (1..=40).map(|n| n * 64) {
            let text =
                format!("(graph \"g\" (input x f16[30 {depth}]) (input w f16[{depth} 64]) (output y (matmul x w)))");
            let text = printed(text).remove(0);
            let place = text.split_once("let part = block / ").unwrap_or_else(|| panic!("{text}")).1;
            let (parts, each) = (number(place, " % ", ";"), number(&text, "let begin = part * ", ";"));
            assert!((parts - 1) * each < depth && parts * each >= depth, "{depth} in {parts} parts of {each}");
            split += usize::from(parts > 1);
        }
        assert!(split > 20, "{split} of 40 depths are split");
    }
}
