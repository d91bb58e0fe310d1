//! Attention by multiply-adds. A thread has four queries by four keys, and then four queries by four columns.

use eutectic_gpu::device::DeviceShape;

use super::{
    attention_problem::{AttentionPoints, AttentionProblem, AttentionText, AttentionTile, AttentionWay, KEYS},
    parts::OperandTile,
};
use crate::library::register;

const fn of([queries, keys, depth]: [usize; 3]) -> AttentionTile {
    AttentionTile { queries, keys, columns: keys, depth, threads: queries * keys / 16, way: AttentionWay::Fma }
}

/// Tiles for few queries, and for many.
const FEW_QUERY_TILES: [AttentionTile; 3] = [of([16, 64, 32]), of([16, 32, 32]), of([16, 32, 16])];
const MANY_QUERY_TILES: [AttentionTile; 5] =
    [of([64, 64, 32]), of([32, 64, 16]), FEW_QUERY_TILES[0], FEW_QUERY_TILES[1], FEW_QUERY_TILES[2]];

/// Returns the arrays in shared memory: the name, whether its elements form vectors of four, and the number of
/// elements.
fn shared(tile: &AttentionTile) -> [(&'static str, bool, usize); 5] {
    let AttentionTile { queries: bq, keys: bt, depth: dc, .. } = *tile;
    [
        ("queries", true, dc * bq),
        // The array holds keys, and then values while these are multiplied.
        ("keys", true, dc.max(bt) * bt),
        ("weights", true, bt * bq),
        ("of_rows", false, 3 * bq),
        ("shares", false, bq * bt / 16),
    ]
}

/// Returns the first tile that fits on a device.
///
/// # Errors
/// Returns an error if no tile fits.
pub fn tile(problem: &AttentionProblem<'_>, shape: &DeviceShape) -> Result<AttentionTile, Vec<String>> {
    let ([b, s, ..], sum) = (problem.extents, problem.sum);
    let few = s <= 16 || b * s.div_ceil(32) < shape.processors / 2;
    let all: &[AttentionTile] = if few { &FEW_QUERY_TILES } else { &MANY_QUERY_TILES };
    let bytes = |tile: &AttentionTile| shared(tile).iter().map(|(.., count)| count * sum.size()).sum::<usize>();
    // A tile of more than 32 queries must pad the queries to at most 9/8 of the rows that tiles of 16 need.
    let rows = |tile: &AttentionTile| s.next_multiple_of(tile.queries);
    let is_full = |tile: &AttentionTile| 8 * rows(tile) <= 9 * rows(&FEW_QUERY_TILES[0]) || tile.queries <= 32;
    let fits = |tile: &&AttentionTile| bytes(tile) <= shape.shared && tile.threads <= shape.threads && is_full(tile);
    let least = FEW_QUERY_TILES.iter().map(bytes).min().unwrap_or(0);
    let lacking = || {
        let has = shape.shared;
        vec![format!(
            "cannot compute attention in {sum} because it takes {least} bytes of shared memory; the device has {has}"
        )]
    };
    all.iter().find(fits).copied().ok_or_else(lacking)
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
    let AttentionTile { queries: bq, keys: bt, depth: dc, threads, .. } = *tile;
    let d = problem.extents[3];
    let ty = register(problem.sum);
    let beside = threads / bq;
    let [q, k, v] = problem.operands(4)?;
    let (nothing, max, exp) = (problem.nothing(), problem.function("max_of")?, problem.function("exp")?);
    let mut before = String::new();
    for (name, vectors, count) in shared(tile) {
        before += &match vectors {
            true => format!("var<workgroup> {name}: array<vec4<{ty}>, {}>;\n", count / 4),
            false => format!("var<workgroup> {name}: array<{ty}, {count}>;\n"),
        };
    }
    let mut body = format!(
        "let tq = thread / {across} * 4;\nlet tt = thread % {across} * 4;\nlet row = thread / {beside};\nlet share = thread % {beside};\n\
         if (thread < {bq}) {{ of_rows[thread] = {nothing}; of_rows[{bq} + thread] = {ty}(0); }}\n",
        across = bt / 4,
    );
    (0..4).for_each(|i| body += &format!("var c{i} = vec4<{ty}>();\n"));
    body += &format!("for (var t0 = begin; t0 < end; t0 += {bt}) {{\n");
    (0..4).for_each(|i| body += &format!("var p{i} = vec4<{ty}>();\n"));
    body += &format!("for (var d0 = 0; d0 < {d}; d0 += {dc}) {{\nworkgroupBarrier();\n");
    let end_of_depth = d.to_string();
    body += &q.fetch(
        &OperandTile { memory: "queries", outer: bq, depth: dc, stride: bq, first: ["s0", "d0"], end: &end_of_depth },
        threads,
        ty,
    );
    body += &k.fetch(
        &OperandTile { memory: "keys", outer: bt, depth: dc, stride: bt, first: ["t0", "d0"], end: &end_of_depth },
        threads,
        ty,
    );
    body += &format!("workgroupBarrier();\n{}}}\n", multiply(["queries", "keys"], ["p", ty], [bq, bt], dc));
    // Computes the scores of visible keys.
    body += &format!(
        "var products = array<vec4<{ty}>, 4>(p0, p1, p2, p3);\nfor (var i = 0; i < 4; i += 1) {{\nlet s = query_of(b, s0 + tq + i);\n\
         let t = t0 + tt;\nlet x = products[i];\n"
    );
    body += &problem.scores(tile)?;
    (0..KEYS).for_each(|j| body += &format!("weights[((tt + {j}) * {bq} + tq) / 4][i] = scores[{j}];\n"));
    body += "}\n";
    body += "workgroupBarrier();\n";
    body += &v.fetch(
        &OperandTile { memory: "keys", outer: bt, depth: bt, stride: bt, first: ["e0", "t0"], end: "end" },
        threads,
        ty,
    );
    // The threads that share a row compute its maximal score and the sum of its weights.
    body += &format!(
        "workgroupBarrier();\nvar most = of_rows[row];\nlet past = most;\nfor (var n = share; n < {bt}; n += {beside}) {{ most = {max}(most, weights[(n * {bq} + row) / 4][row % 4]); }}\n\
         shares[thread] = most;\nworkgroupBarrier();\nfor (var n = 0; n < {beside}; n += 1) {{ most = {max}(most, shares[row * {beside} + n]); }}\n\
         let base = select(most, {ty}(0), most == {nothing});\nvar total = {ty}(0);\n\
         for (var n = share; n < {bt}; n += {beside}) {{ let w = {exp}(weights[(n * {bq} + row) / 4][row % 4] - base); weights[(n * {bq} + row) / 4][row % 4] = w; total += w; }}\n\
         workgroupBarrier();\nshares[thread] = total;\nworkgroupBarrier();\n\
         if (share == 0) {{\nfor (var n = 1; n < {beside}; n += 1) {{ total += shares[row * {beside} + n]; }}\n\
         let scale = {exp}(past - base);\nof_rows[row] = most;\nof_rows[{bq} + row] = of_rows[{bq} + row] * scale + total;\nof_rows[{} + row] = scale;\n}}\nworkgroupBarrier();\n",
        2 * bq
    );
    (0..4).for_each(|i| body += &format!("c{i} *= of_rows[{} + tq + {i}];\n", 2 * bq));
    body += &format!(
        "{}workgroupBarrier();\n}}\nworkgroupBarrier();\n",
        multiply(["weights", "keys"], ["c", ty], [bq, bt], bt)
    );
    body += &format!(
        "var sums = array<vec4<{ty}>, 4>(c0, c1, c2, c3);\nfor (var i = 0; i < 4; i += 1) {{\nlet m = s0 + tq + i;\nlet most = of_rows[tq + i];\n\
         let total = of_rows[{bq} + tq + i];\nfor (var j = 0; j < 4; j += {}) {{\nlet at_n = e0 + tt + j;\n",
        points.lanes()
    );
    body += &points.at(|lane| format!("sums[i][j + {lane}]"));
    body += "}\n}\n";
    Ok(AttentionText { before, body })
}

/// Returns statements that add the product of two tiles to a thread's four vectors. A vector of the left tile has four
/// queries, and a vector of the right tile has four keys or columns. Each iteration processes several lines at constant
/// offsets.
fn multiply([left, right]: [&str; 2], [sums, ty]: [&str; 2], [bq, bt]: [usize; 2], lines: usize) -> String {
    let turn = if lines.is_multiple_of(4) { 4 } else { 1 };
    let mut text = format!("{{\nvar l = tq / 4;\nvar r = tt / 4;\nfor (var n = 0; n < {lines}; n += {turn}) {{\n");
    for line in 0..turn {
        text += &format!("{{\nlet x = {left}[l + {}];\nlet y = {right}[r + {}];\n", line * bq / 4, line * bt / 4);
        (0..4).for_each(|i| text += &format!("{sums}{i} = fma(vec4<{ty}>(x[{i}]), y, {sums}{i});\n"));
        text += "}\n";
    }
    text + &format!("l += {};\nr += {};\n}}\n}}\n", turn * bq / 4, turn * bt / 4)
}
