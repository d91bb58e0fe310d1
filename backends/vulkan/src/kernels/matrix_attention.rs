//! Attention of 16-bit floats on matrix units. A subgroup has 16 queries, whose sums stay in its fragments.
//!
//! Scores go through shared memory, where two threads share a row. Sums are rescaled only if a row's maximal score has
//! grown by more than a margin, because rescaling only has to prevent an overflow of weights. Weights have 16 bits, so
//! the device's own exponential is exact enough (Vulkan: 3 + 2|x| units in the last place of 32 bits).

use std::ops::Range;

use eutectic_gpu::device::DeviceShape;
use eutectic_ir::DType;

use super::{
    attention_problem::{AttentionPoints, AttentionProblem, AttentionText, AttentionTile, AttentionWay, KEYS},
    matrices::{EIGHT, SIDE, UnitTile, lanes, may_end_within, sum_at},
    parts::PrintedOperand,
};
use crate::{features::MatrixUnits, units};

/// The maximal depth and number of columns, whose fragments stay in registers.
const MAX_TERMS: usize = 128;
/// The growth of the maximal score beyond which sums are rescaled. Weights are therefore at most e⁴.
const MARGIN: f64 = 4.0;

/// Returns the tile for a problem; `None` if matrix units cannot compute it.
pub fn tile(problem: &AttentionProblem<'_>, shape: &DeviceShape) -> Option<AttentionTile> {
    let dialect = problem.dialect;
    let [_, s, _, d, e] = problem.extents;
    let takes = problem.operand_type().is_some_and(|dtype| dialect.matrices.take(dtype));
    // Subgroups need 32 threads, because two threads share each of the 16 rows.
    if !takes || problem.sum != DType::F32 || dialect.subgroup.is_none() || lanes(dialect) != 2 * SIDE || d > MAX_TERMS
    {
        return None;
    }
    let warps = s.div_ceil(SIDE).clamp(1, 4);
    let of = |keys: usize| AttentionTile {
        queries: warps * SIDE,
        keys,
        columns: e.next_multiple_of(SIDE).clamp(SIDE, MAX_TERMS),
        depth: d.next_multiple_of(SIDE).max(SIDE),
        threads: warps * 2 * SIDE,
        way: AttentionWay::Units,
    };
    let fits = |tile: &AttentionTile| {
        let AttentionTile { queries, keys, columns, depth, threads, .. } = *tile;
        // A tile may have lines along either axis. The larger size counts.
        let of_tile = |outer: usize, depth: usize| (outer * (depth / EIGHT + 1)).max(depth * (outer / EIGHT + 1));
        let (came, passing) = (of_tile(queries, depth), queries * stride(tile));
        let passing = if dialect.matrices.emulated { came + passing } else { came.max(passing) };
        let parts = of_tile(keys, depth) + of_tile(columns, keys) + passing;
        16 * parts + 8 * queries <= shape.shared && threads <= shape.threads
    };
    // With more keys at once, registers spill: for 12 heads of 4,096 queries with 64 terms, 64 keys take three times as
    // long on an H200.
    Some(of(32)).filter(fits)
}

/// Returns the distance of rows of scores, in units of 16 bytes.
fn stride(tile: &AttentionTile) -> usize {
    tile.keys / 4 + 1
}

/// Prints a tile.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(
    points: &AttentionPoints<'_>,
    problem: &AttentionProblem<'_>,
    tile: &AttentionTile,
) -> Result<AttentionText, Vec<String>> {
    let AttentionTile { queries: bq, keys: bt, columns: be, depth: bd, .. } = *tile;
    let d = problem.extents[3];
    let units = &problem.dialect.matrices;
    let dtype = problem.operand_type().unwrap_or(DType::F16);
    let [q, k, v] = problem.operands(EIGHT)?;
    let end_of_depth = d.to_string();
    let end_of_depth = may_end_within(d, bd).then_some(end_of_depth.as_str());
    let of = |operand, (name, role), [outer, depth]: [usize; 2], end, at| -> UnitTile<'_> {
        let operand: &PrintedOperand = operand;
        UnitTile { operand, name, role, outer, depth, end, at, dtype }
    };
    let key = of(&k, ("key", 'B'), [bt, bd], end_of_depth, 0);
    let value = of(&v, ("value", 'B'), [be, bt], Some("end"), key.size());
    let passing = key.size() + value.size();
    let query = of(&q, ("query", 'A'), [bq, bd], end_of_depth, passing);
    let stride = stride(tile);
    // Scores reuse the shared memory of queries, which are in fragments by then. Emulation has no fragments for
    // queries.
    let own = passing + if units.emulated { query.size() } else { 0 };
    let before = format!(
        "{}var<workgroup> memory: array<vec4<f32>, {}>;\nvar<workgroup> of_rows: array<f32, {}>;\n",
        units::head(dtype, units),
        (passing + query.size()).max(own + bq * stride),
        2 * bq
    );
    let barrier = units::subgroup_barrier(units);
    let attention = UnitAttention { points, problem, tile, units, dtype, query, key, value, own, stride, barrier };
    let body = [
        attention.queries(),
        attention.loads(),
        attention.products(),
        attention.maxima()?,
        attention.rescaling(),
        attention.weights(),
        attention.sums(),
        attention.results(),
    ];
    Ok(AttentionText { before, body: body.concat() })
}

/// A tile whose statements are printed section by section.
struct UnitAttention<'a> {
    points: &'a AttentionPoints<'a>,
    problem: &'a AttentionProblem<'a>,
    tile: &'a AttentionTile,
    units: &'a MatrixUnits,
    /// The type of the operands and weights.
    dtype: DType,
    query: UnitTile<'a>,
    key: UnitTile<'a>,
    value: UnitTile<'a>,
    /// The start of the scores in shared memory and the distance of their rows, in units of 16 bytes.
    own: usize,
    stride: usize,
    /// The barrier of a subgroup.
    barrier: &'static str,
}

impl UnitAttention<'_> {
    /// Returns the number of fragments that hold the sums of a subgroup.
    fn fragments(&self) -> usize {
        self.tile.columns / SIDE
    }

    /// Returns the ranges of fragments that fit into the memory of scores at once.
    fn passes(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (fragments, most) = (self.fragments(), self.tile.keys / SIDE);
        (0..fragments).step_by(most).map(move |first| first..(first + most).min(fragments))
    }

    /// Prints the loads of queries into fragments, where they stay.
    fn queries(&self) -> String {
        let &AttentionTile { depth, threads, .. } = self.tile;
        let mut body = format!(
            "let warp = thread / {0};\nlet lane = thread % {0};\nlet own = {own} + warp * {1};\nlet row = lane / 2;\nlet half = lane % 2;\n\
             let s = query_of(b, s0 + warp * {SIDE} + row);\n",
            2 * SIDE,
            SIDE * self.stride,
            own = self.own,
        );
        body += &self.query.declare(threads);
        body += &self.query.read(["s0", "0"], threads);
        body += &self.query.write(threads);
        body += "workgroupBarrier();\n";
        for step in (0..depth).step_by(SIDE) {
            body += &self.query.load(&format!("q{step}"), &format!("warp * {SIDE}"), step, self.units);
        }
        body
    }

    /// Prints the start of the loop over keys. It stores a tile of keys and values in shared memory, and loads the next
    /// tile into registers.
    fn loads(&self) -> String {
        let (key, value) = (&self.key, &self.value);
        let &AttentionTile { keys, threads, .. } = self.tile;
        let mut body: String = (0..self.fragments()).map(|j| units::zeros(&format!("c{j}"), self.units)).collect();
        body += &format!("var base = {};\nvar total = 0.0;\n", self.problem.nothing());
        for (tile, first) in [(key, ["begin", "0"]), (value, ["e0", "begin"])] {
            body += &tile.declare(threads);
            body += &tile.read(first, threads);
        }
        body += &format!("workgroupBarrier();\nfor (var t0 = begin; t0 < end; t0 += {keys}) {{\n");
        body += &(key.write(threads) + &value.write(threads));
        body += &format!("workgroupBarrier();\nlet t1 = t0 + {keys};\nif (t1 < end) {{\n");
        body += &(key.read(["t1", "0"], threads) + &value.read(["e0", "t1"], threads));
        body + "}\n"
    }

    /// Prints the products of queries and keys, which are stored in the memory of scores.
    fn products(&self) -> String {
        let units = self.units;
        let mut body = String::new();
        for j in 0..self.tile.keys / SIDE {
            body += &units::zeros(&format!("p{j}"), units);
            for step in (0..self.tile.depth).step_by(SIDE) {
                let y = format!("k{step}_{j}");
                body += &self.key.load(&y, &(j * SIDE).to_string(), step, units);
                body += &units::multiply(&format!("p{j}"), &format!("q{step}"), &y, units);
            }
            let place = format!("own + {}", j * 4);
            body += &units::store(&format!("p{j}"), (&format!("p{j}_at"), &place, self.stride), units);
        }
        body
    }

    /// Prints the scores of half a row, their maximum, and the factor by which the sums are rescaled.
    ///
    /// # Errors
    /// Names the parts of the kernel that cannot be printed.
    fn maxima(&self) -> Result<String, Vec<String>> {
        let Self { problem, barrier, stride, .. } = self;
        let mut body = format!(
            "{barrier}var w: array<vec4<f32>, {0}>;\nvar most = base;\nfor (var i = 0; i < {0}; i += 1) {{\n\
             let x = memory[own + row * {stride} + half * {0} + i];\nlet t = t0 + (half * {0} + i) * {KEYS};\n",
            self.tile.keys / 2 / KEYS
        );
        body += &problem.scores(self.tile)?;
        body += &format!(
            "w[i] = scores;\nmost = max(most, max(max(scores.x, scores.y), max(scores.z, scores.w)));\n}}\nmost = max(most, subgroupShuffleXor(most, 1u));\n{barrier}\
             let moved = most > base + {};\nlet next = select(base, most, moved);\nlet least = select(next, 0.0, next == {});\n\
             let factor = select(1.0, exp(base - least), moved);\n",
            problem.number(MARGIN),
            problem.nothing(),
        );
        Ok(body)
    }

    /// Prints the rescaling of sums, which runs if a maximum of the subgroup moved. Sums pass through the memory of
    /// scores.
    fn rescaling(&self) -> String {
        let Self { units, barrier, stride, .. } = *self;
        let mut body = format!("if ({}) {{\n", units::any("moved", units));
        for pass in self.passes() {
            let place = |j: usize| format!("own + {}", (j - pass.start) * 4);
            for j in pass.clone() {
                body += &units::store(&format!("c{j}"), (&format!("o{j}_at"), &place(j), stride), units);
            }
            let quads = pass.len() * 2;
            body += &format!(
                "{barrier}for (var i = 0; i < {quads}; i += 1) {{ memory[own + row * {stride} + half * {quads} + i] *= factor; }}\n{barrier}"
            );
            for j in pass.clone() {
                body += &units::reload(&format!("c{j}"), (&format!("n{j}_at"), &place(j), stride), units);
            }
            body += barrier;
        }
        body + "}\n"
    }

    /// Prints the weights, which replace the scores, and their sum.
    fn weights(&self) -> String {
        let mut body =
            format!("base = next;\ntotal *= factor;\nfor (var i = 0; i < {}; i += 1) {{\n", self.tile.keys / SIDE);
        for n in 0..2 {
            for j in 0..4 {
                body += &format!("let w{} = exp(w[2 * i + {n}][{j}] - least);\n", n * 4 + j);
            }
        }
        let pairs: Vec<String> = (0..4).map(|n| units::weights(self.dtype, 2 * n)).collect();
        let weights: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
        body += &format!(
            "total += {};\nmemory[own + row * {} + half * {} + i] = bitcast<vec4<f32>>(vec4<u32>({}));\n}}\n{}",
            weights.join(" + "),
            self.weight_stride(),
            self.tile.keys / SIDE,
            pairs.join(", "),
            self.barrier
        );
        body
    }

    /// Returns the distance of rows of weights, in units of 16 bytes.
    fn weight_stride(&self) -> usize {
        self.tile.keys / EIGHT + 1
    }

    /// Prints the products of weights and values, and the end of the loop over keys.
    fn sums(&self) -> String {
        let units = self.units;
        let mut body = String::new();
        for step in (0..self.tile.keys).step_by(SIDE) {
            let x = format!("x{step}");
            let place = format!("own + {}", step / EIGHT);
            body += &units::load((&x, 'A'), (&place, self.weight_stride()), true, units);
            for j in 0..self.fragments() {
                let y = format!("v{step}_{j}");
                body += &self.value.load(&y, &(j * SIDE).to_string(), step, units);
                body += &units::multiply(&format!("c{j}"), &x, &y, units);
            }
        }
        body + "workgroupBarrier();\n}\n"
    }

    /// Prints the stores of the sums, which pass through the memory of scores.
    fn results(&self) -> String {
        let Self { points, units, barrier, stride, .. } = *self;
        let bq = self.tile.queries;
        let mut body = format!(
            "total += subgroupShuffleXor(total, 1u);\n\
             if (half == 0) {{ of_rows[warp * {SIDE} + row] = base; of_rows[{bq} + warp * {SIDE} + row] = total; }}\n"
        );
        for pass in self.passes() {
            for j in pass.clone() {
                let place = format!("own + {}", (j - pass.start) * 4);
                body += &units::store(&format!("c{j}"), (&format!("s{j}_at"), &place, stride), units);
            }
            let width = pass.len() * SIDE;
            body += &format!(
                "{barrier}for (var e = lane * {0}; e < {1}; e += {2}) {{\nlet at_row = e / {width};\nlet column = e % {width};\n\
                 let m = s0 + warp * {SIDE} + at_row;\nlet at_n = e0 + {3} + column;\n\
                 let most = of_rows[warp * {SIDE} + at_row];\nlet total = of_rows[{bq} + warp * {SIDE} + at_row];\n",
                points.lanes(),
                SIDE * width,
                2 * SIDE * points.lanes(),
                pass.start * SIDE,
            );
            body += &points.at(|lane| sum_at(&format!("own + at_row * {stride}"), "column", lane, points.lanes()));
            body += &format!("}}\n{barrier}");
        }
        body
    }
}
