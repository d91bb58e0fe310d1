//! Attention of 16-bit floats on matrix units: a subgroup has 16 queries, whose sums stay in its fragments. Scores pass through shared memory, where two
//! threads share a row; sums are scaled anew only where a row's largest score has grown by more than a margin, for weights need no more than not to overflow.
//! Weights are of 16 bits, so the device's own exponential is exact enough (Vulkan: 3 + 2|x| units in the last place of 32 bits).

use eutectic_gpu::device::DeviceShape;
use eutectic_ir::DType;

use super::{
    attention_problem::{AttentionPoints, AttentionProblem, AttentionText, AttentionTile, AttentionWay, KEYS},
    matrices::{EIGHT, SIDE, UnitTile, lanes, may_end_within, sum_at},
    parts::PrintedOperand,
};
use crate::units;

/// Most terms of the depth, and most columns: their fragments stay in registers.
const MOST: usize = 128;
/// How much a largest score grows before sums are scaled: weights are at most e⁴.
const MARGIN: f64 = 4.0;

/// The tile for a problem, if matrix units take it.
pub fn tile(problem: &AttentionProblem<'_>, shape: &DeviceShape) -> Option<AttentionTile> {
    let dialect = problem.dialect;
    let [_, s, _, d, e] = problem.extents;
    let takes = problem.operand_type().is_some_and(|dtype| dialect.matrices.take(dtype));
    // Two threads of a subgroup share a row.
    if !takes || problem.sum != DType::F32 || dialect.subgroup.is_none() || lanes(dialect) != 2 * SIDE || d > MOST {
        return None;
    }
    let warps = s.div_ceil(SIDE).clamp(1, 4);
    let of = |keys: usize| AttentionTile {
        queries: warps * SIDE,
        keys,
        columns: e.next_multiple_of(SIDE).clamp(SIDE, MOST),
        depth: d.next_multiple_of(SIDE).max(SIDE),
        threads: warps * 2 * SIDE,
        way: AttentionWay::Units,
    };
    let fits = |tile: &AttentionTile| {
        let AttentionTile { queries, keys, columns, depth, threads, .. } = *tile;
        // Tiles by lines of either axis, whichever takes more.
        let of_tile = |outer: usize, depth: usize| (outer * (depth / EIGHT + 1)).max(depth * (outer / EIGHT + 1));
        let (came, passing) = (of_tile(queries, depth), queries * stride(tile));
        let passing = if dialect.matrices.emulated { came + passing } else { came.max(passing) };
        let parts = of_tile(keys, depth) + of_tile(columns, keys) + passing;
        16 * parts + 8 * queries <= shape.shared && threads <= shape.threads
    };
    // More keys at once spill: of 12 heads of 4,096 queries of 64 terms, 64 keys take three times as long on an H200.
    Some(of(32)).filter(fits)
}

/// Parts of 16 bytes from one row of scores to the next.
fn stride(tile: &AttentionTile) -> usize {
    tile.keys / 4 + 1
}

/// Prints a tile.
///
/// # Errors
/// What cannot be printed.
pub fn print(
    points: &AttentionPoints<'_>,
    problem: &AttentionProblem<'_>,
    tile: &AttentionTile,
) -> Result<AttentionText, Vec<String>> {
    let AttentionTile { queries: bq, keys: bt, columns: be, depth: bd, threads, .. } = *tile;
    let d = problem.extents[3];
    let units = &problem.dialect.matrices;
    let dtype = problem.operand_type().unwrap_or(DType::F16);
    let [q, k, v] = problem.operands(EIGHT)?;
    let nothing = problem.nothing();
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
    // Scores pass where queries came by; emulation has no fragments that keep these.
    let own = passing + if units.emulated { query.size() } else { 0 };
    let settle = units::settle(units);
    let before = format!(
        "{}var<workgroup> memory: array<vec4<f32>, {}>;\nvar<workgroup> of_rows: array<f32, {}>;\n",
        units::head(dtype, units),
        (passing + query.size()).max(own + bq * stride),
        2 * bq
    );
    let mut body = format!(
        "let warp = thread / {0};\nlet lane = thread % {0};\nlet own = {own} + warp * {1};\nlet row = lane / 2;\nlet half = lane % 2;\n\
         let s = query_of(b, s0 + warp * {SIDE} + row);\n",
        2 * SIDE,
        SIDE * stride
    );
    // Queries stay in fragments.
    body += &query.declare(threads);
    body += &query.read(["s0", "0"], threads);
    body += &query.write(threads);
    body += "workgroupBarrier();\n";
    for step in (0..bd).step_by(SIDE) {
        body += &query.load(&format!("q{step}"), &format!("warp * {SIDE}"), step, units);
    }
    let fragments = be / SIDE;
    (0..fragments).for_each(|j| body += &units::zeros(&format!("c{j}"), units));
    body += &format!("var base = {nothing};\nvar total = 0.0;\n");
    for (tile, first) in [(&key, ["begin", "0"]), (&value, ["e0", "begin"])] {
        body += &tile.declare(threads);
        body += &tile.read(first, threads);
    }
    body += &format!("workgroupBarrier();\nfor (var t0 = begin; t0 < end; t0 += {bt}) {{\n");
    body += &(key.write(threads) + &value.write(threads));
    body += &format!("workgroupBarrier();\nlet t1 = t0 + {bt};\nif (t1 < end) {{\n");
    body += &(key.read(["t1", "0"], threads) + &value.read(["e0", "t1"], threads));
    body += "}\n";
    for j in 0..bt / SIDE {
        body += &units::zeros(&format!("p{j}"), units);
        for step in (0..bd).step_by(SIDE) {
            let y = format!("k{step}_{j}");
            body += &key.load(&y, &(j * SIDE).to_string(), step, units);
            body += &units::multiply(&format!("p{j}"), &format!("q{step}"), &y, units);
        }
        body += &units::store(&format!("p{j}"), (&format!("p{j}_at"), &format!("own + {}", j * 4), stride), units);
    }
    // Scores of half a row.
    body += &format!(
        "{settle}var w: array<vec4<f32>, {0}>;\nvar most = base;\nfor (var i = 0; i < {0}; i += 1) {{\n\
         let x = memory[own + row * {stride} + half * {0} + i];\nlet t = t0 + (half * {0} + i) * {KEYS};\n",
        bt / 2 / KEYS
    );
    body += &problem.scores(tile)?;
    body += &format!(
        "w[i] = scores;\nmost = max(most, max(max(scores.x, scores.y), max(scores.z, scores.w)));\n}}\nmost = max(most, subgroupShuffleXor(most, 1u));\n{settle}\
         let moved = most > base + {};\nlet next = select(base, most, moved);\nlet least = select(next, 0.0, next == {nothing});\n\
         let factor = select(1.0, exp(base - least), moved);\nif ({}) {{\n",
        problem.number(MARGIN),
        units::any("moved", units)
    );
    // As many fragments at once as have room where scores pass.
    let passes = || (0..fragments).step_by(bt / SIDE).map(|first| (first, (first + bt / SIDE).min(fragments)));
    let place = |j: usize, first: usize| format!("own + {}", (j - first) * 4);
    for (first, last) in passes() {
        for j in first..last {
            body += &units::store(&format!("c{j}"), (&format!("o{j}_at"), &place(j, first), stride), units);
        }
        let quads = (last - first) * 2;
        body += &format!(
            "{settle}for (var i = 0; i < {quads}; i += 1) {{ memory[own + row * {stride} + half * {quads} + i] *= factor; }}\n{settle}"
        );
        for j in first..last {
            body += &units::reload(&format!("c{j}"), (&format!("n{j}_at"), &place(j, first), stride), units);
        }
        body += settle;
    }
    body += &format!("}}\nbase = next;\ntotal *= factor;\nfor (var i = 0; i < {}; i += 1) {{\n", bt / SIDE);
    for n in 0..2 {
        for j in 0..4 {
            body += &format!("let w{} = exp(w[2 * i + {n}][{j}] - least);\n", n * 4 + j);
        }
    }
    let pairs: Vec<String> = (0..4).map(|n| units::weights(dtype, 2 * n)).collect();
    let weights: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
    let of_weights = bt / EIGHT + 1;
    body += &format!(
        "total += {};\nmemory[own + row * {of_weights} + half * {} + i] = bitcast<vec4<f32>>(vec4<u32>({}));\n}}\n{settle}",
        weights.join(" + "),
        bt / SIDE,
        pairs.join(", ")
    );
    for step in (0..bt).step_by(SIDE) {
        let x = format!("x{step}");
        body += &units::load((&x, 'A'), (&format!("own + {}", step / EIGHT), of_weights), true, units);
        for j in 0..fragments {
            let y = format!("v{step}_{j}");
            body += &value.load(&y, &(j * SIDE).to_string(), step, units);
            body += &units::multiply(&format!("c{j}"), &x, &y, units);
        }
    }
    body += &format!(
        "workgroupBarrier();\n}}\ntotal += subgroupShuffleXor(total, 1u);\n\
         if (half == 0) {{ of_rows[warp * {SIDE} + row] = base; of_rows[{bq} + warp * {SIDE} + row] = total; }}\n"
    );
    for (first, last) in passes() {
        for j in first..last {
            body += &units::store(&format!("c{j}"), (&format!("s{j}_at"), &place(j, first), stride), units);
        }
        let width = (last - first) * SIDE;
        body += &format!(
            "{settle}for (var e = lane * {0}; e < {1}; e += {2}) {{\nlet at_row = e / {width};\nlet column = e % {width};\n\
             let m = s0 + warp * {SIDE} + at_row;\nlet at_n = e0 + {3} + column;\n\
             let most = of_rows[warp * {SIDE} + at_row];\nlet total = of_rows[{bq} + warp * {SIDE} + at_row];\n",
            points.lanes(),
            SIDE * width,
            2 * SIDE * points.lanes(),
            first * SIDE,
        );
        body += &points.at(|lane| sum_at(&format!("own + at_row * {stride}"), "column", lane, points.lanes()));
        body += &format!("}}\n{settle}");
    }
    Ok(AttentionText { before, body })
}
