//! Attention of few queries, with a block for each query. Neighbouring threads share four keys. Each thread has 16
//! bytes of their terms, and as many columns of the values. Keys and values are loaded into registers, and threads wait
//! for each other only after the last key.

use eutectic_gpu::device::DeviceShape;
use eutectic_ir::DType;

use super::{
    attention_problem::{AttentionPoints, AttentionProblem, AttentionText, AttentionTile, AttentionWay, KEYS},
    matrices::EIGHT,
};

/// The number of queries from which on tiles share loads of keys and values.
const MIN_TILE_QUERIES: usize = 5;
const THREADS: usize = 128;

/// Returns the tile for a problem of few queries. The terms of keys and the columns of values must be contiguous and
/// equally many.
pub fn tile(problem: &AttentionProblem<'_>, shape: &DeviceShape) -> Option<AttentionTile> {
    let [_, s, _, d, e] = problem.extents;
    let size = problem.dialect.subgroup?;
    let [q, k, v] = problem.operands(EIGHT).ok()?;
    let count = k.lanes.count;
    let lies = q.along && k.along && !v.along && [q, v].iter().all(|operand| operand.lanes.count == count);
    let beside = d / count;
    let fits = count.is_multiple_of(4) && d == e && beside.is_power_of_two() && beside <= size;
    let is_block = THREADS <= shape.threads && THREADS.is_multiple_of(size);
    (s < MIN_TILE_QUERIES && problem.sum == DType::F32 && lies && fits && is_block).then(|| AttentionTile {
        queries: 1,
        keys: THREADS / beside * KEYS,
        columns: e,
        depth: d,
        threads: THREADS,
        way: AttentionWay::FewQueries,
    })
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
    let AttentionTile { keys: bt, columns: e, threads, .. } = *tile;
    let [q, k, v] = problem.operands(EIGHT)?;
    let (nothing, max, exp) = (problem.nothing(), problem.function("max_of")?, problem.function("exp")?);
    let beside = threads * KEYS / bt;
    let size = problem.dialect.subgroup.unwrap_or(1);
    let (vectors, subgroups) = (q.lanes.count / 4, threads / size);
    let before = format!(
        "var<workgroup> sums: array<vec4<f32>, {}>;\nvar<workgroup> of_parts: array<vec2<f32>, {subgroups}>;\n",
        subgroups * e / 4
    );
    let mut body = format!(
        "let share = thread % {beside};\nlet s = query_of(b, s0);\n{}{}var most = {nothing};\nvar total = 0.0;\n",
        q.vectors("query", ["s0", "share"], "true"),
        (0..vectors).map(|n| format!("var sum_{n} = vec4<f32>();\n")).collect::<String>(),
    );
    body += &format!("for (var t0 = begin; t0 < end; t0 += {bt}) {{\nlet t = t0 + thread / {beside} * {KEYS};\n");
    body += "var x = vec4<f32>();\n";
    for (name, operand) in [("key", &k), ("value", &v)] {
        for j in 0..KEYS {
            let key = format!("(t + {j})");
            let at = if name == "key" { [key.as_str(), "share"] } else { ["share", key.as_str()] };
            let name = format!("{name}{j}_");
            body += &operand.vectors(&name, at, &format!("t + {j} < end"));
        }
    }
    for j in 0..KEYS {
        let terms: Vec<String> = (0..vectors).map(|n| format!("dot(query{n}, key{j}_{n})")).collect();
        body += &format!("x[{j}] = {};\n", terms.join(" + "));
    }
    let halves = |from: usize, below: usize| (0..).map(move |n| from << n).take_while(move |&with| with < below);
    halves(1, beside).for_each(|with| body += &format!("x += subgroupShuffleXor(x, {with}u);\n"));
    body += &problem.scores(tile)?;
    body += &format!(
        "let next = {max}(most, {max}({max}(scores.x, scores.y), {max}(scores.z, scores.w)));\n\
         let base = select(next, 0.0, next == {nothing});\nlet scale = {exp}(most - base);\nmost = next;\n\
         let w = vec4<f32>({exp}(scores.x - base), {exp}(scores.y - base), {exp}(scores.z - base), {exp}(scores.w - base));\n\
         total = total * scale + (w.x + w.y + w.z + w.w);\n"
    );
    for n in 0..vectors {
        let terms: Vec<String> = (0..KEYS).map(|j| format!("w[{j}] * value{j}_{n}")).collect();
        body += &format!("sum_{n} = sum_{n} * scale + ({});\n", terms.join(" + "));
    }
    body += "}\n";
    // Combines the sums of a subgroup's threads with different keys, and then the sums of all subgroups.
    let join = Join { vectors, functions: [&max, &exp], nothing: &nothing };
    for with in halves(beside, size) {
        let shuffled = |x: &str| format!("subgroupShuffleXor({x}, {with}u)");
        body += &join.text([&shuffled("most"), &shuffled("total")], &|n| shuffled(&format!("sum_{n}")));
    }
    body += &format!("if (thread % {size} < {beside}) {{\n");
    let place = |subgroup: &str, n: usize| format!("sums[({subgroup} * {beside} + share) * {vectors} + {n}]");
    let own = format!("thread / {size}");
    (0..vectors).for_each(|n| body += &format!("{} = sum_{n};\n", place(&own, n)));
    body += &format!(
        "of_parts[{own}] = vec2<f32>(most, total);\n}}\nworkgroupBarrier();\nif (thread >= {beside}) {{ return; }}\n"
    );
    for subgroup in 1..subgroups {
        let [most, total] = ["x", "y"].map(|part| format!("of_parts[{subgroup}].{part}"));
        body += &join.text([&most, &total], &|n| place(&subgroup.to_string(), n));
    }
    body += "let m = s0;\n";
    for first in (0..4 * vectors).step_by(points.lanes()) {
        body += &format!("{{\nlet at_n = share * {} + {first};\n", 4 * vectors);
        body += &points.at(|lane| format!("sum_{}[{}]", (first + lane) / 4, (first + lane) % 4));
        body += "}\n";
    }
    Ok(AttentionText { before, body })
}

/// Prints statements that combine a thread's sums with those of other keys.
struct Join<'a> {
    /// The number of vectors of sums.
    vectors: usize,
    /// The functions of the maximum and of the exponential.
    functions: [&'a str; 2],
    /// The maximal score if there are no scores.
    nothing: &'a str,
}

impl Join<'_> {
    /// Returns the statements, given the maximal score, the total weight and the vectors of the sums to combine.
    fn text(&self, [most, total]: [&str; 2], sum: &dyn Fn(usize) -> String) -> String {
        let Join { vectors, functions: [max, exp], nothing } = *self;
        let mut text = format!(
            "{{\nlet other = {most};\nlet next = {max}(most, other);\nlet base = select(next, 0.0, next == {nothing});\n\
             let own_scale = {exp}(most - base);\nlet scale = {exp}(other - base);\nmost = next;\ntotal = total * own_scale + {total} * scale;\n"
        );
        (0..vectors).for_each(|n| text += &format!("sum_{n} = sum_{n} * own_scale + {} * scale;\n", sum(n)));
        text + "}\n"
    }
}
