//! Attention: tiles of scores in shared memory, the largest of each row so far kept (online softmax; Milakov and Gimelshein 2018); the bias is any
//! expression.

use eutectic_backend::{AnchorKernel, AttentionAxes, EmptyRow, Kernel, axes::Nest};
use eutectic_gpu::{device::DeviceShape, dialect::Dialect, emit::Emitter, lanes::SplitAxis, launch::Launch};

use super::parts::{Epilogue, OperandTile, PrintedOperand, matrix, sums};
use crate::{dialect::Wgsl, library::register};

/// Prints it.
///
/// # Errors
/// What cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let AnchorKernel::Attention { query, key, value, bias, axes, scale, softcap, empty } = &kernel.anchor else {
        return Err(vec!["no attention".into()]);
    };
    let sum = sums(&kernel.bodies());
    let ty = register(sum);
    let &AttentionAxes { batch, queries, keys, depth, columns } = axes;
    let nests = [
        matrix(&Nest::of(query.clone()), [batch, queries, depth]),
        matrix(&Nest::of(key.clone()), [batch, keys, depth]),
        matrix(&Nest::of(value.clone()), [batch, keys, columns]),
    ];
    let own = matrix(&Nest::new(&kernel.body, &kernel.stores), [batch, queries, columns]);
    let ([b, s, d], t, e) = ([0, 1, 2].map(|n| nests[0].domain[n]), nests[1].domain[1], nests[2].domain[2]);
    // Queries, keys (as many as columns) and depth of a tile; a thread has four by four.
    let (bq, bt, dc) = match () {
        () if sum.size() == 8 => (16, 32, 32),
        () if s <= 16 || b * s.div_ceil(32) < shape.processors / 2 => (16, 64, 32),
        () => (32, 64, 16),
    };
    let threads = bq * bt / 16;
    let beside = threads / bq;
    let operand = |n: usize, result: usize| PrintedOperand::print(dialect, &nests[n], result, &kernel.slots, n == 2);
    let [q, k, v] = [operand(0, query.results[0])?, operand(1, key.results[0])?, operand(2, value.results[0])?];
    let epilogue = Epilogue::print(dialect, &own, &kernel.slots, 4)?;
    let before = [
        ("queries", dc * bq),
        ("keys", dc * bt),
        ("weights", bt * bq),
        ("values", bt * bt),
        ("of_rows", 3 * bq),
        ("shares", threads),
    ];
    let before: String = before
        .iter()
        .map(|(name, count)| match *name {
            "of_rows" | "shares" | "weights" => format!("var<workgroup> {name}: array<{ty}, {count}>;\n"),
            _ => format!("var<workgroup> {name}: array<vec4<{ty}>, {}>;\n", count / 4),
        })
        .collect();
    let (blocks, chunks) = (s.div_ceil(bq), e.div_ceil(bt));
    let nothing = dialect.literal(f64::NEG_INFINITY, sum);
    let number = |x: f64| dialect.literal(x, sum);
    let max = dialect.function("max_of", sum, sum).ok_or_else(|| vec!["largest of numbers".to_string()])?;
    let lacks = |name: &str| vec![format!("attention in {sum}: `{name}` on {sum}")];
    let exp = dialect.function("exp", sum, sum).ok_or_else(|| lacks("exp"))?;
    let score = match softcap.get() {
        0.0 => format!("x * {}", number(scale.get())),
        cap => {
            let tanh = dialect.function("tanh", sum, sum).ok_or_else(|| lacks("tanh"))?;
            format!("{} * {tanh}(x * {})", number(cap), number(scale.get() / cap))
        }
    };
    let mut body = dialect.place("thread", "block");
    body += &format!(
        "\nif (block >= {}) {{ return; }}\nlet s0 = block % {blocks} * {bq};\nlet e0 = block / {blocks} % {chunks} * {bt};\nlet b = block / {};\n\
         let tq = thread / {across} * 4;\nlet tt = thread % {across} * 4;\nlet row = thread / {beside};\nlet share = thread % {beside};\n\
         if (thread < {bq}) {{ of_rows[thread] = {nothing}; of_rows[{bq} + thread] = {ty}(0); }}\n",
        blocks * chunks * b,
        blocks * chunks,
        across = bt / 4,
    );
    (0..4).for_each(|i| body += &format!("var c{i} = vec4<{ty}>();\n"));
    body += &format!("for (var t0 = 0; t0 < {t}; t0 += {bt}) {{\n");
    (0..4).for_each(|i| body += &format!("var p{i} = vec4<{ty}>();\n"));
    body += &format!("for (var d0 = 0; d0 < {d}; d0 += {dc}) {{\nworkgroupBarrier();\n");
    let end = d.to_string();
    body +=
        &q.fetch(&OperandTile { memory: "queries", outer: bq, depth: dc, first: ["s0", "d0"], end: &end }, threads, ty);
    body +=
        &k.fetch(&OperandTile { memory: "keys", outer: bt, depth: dc, first: ["t0", "d0"], end: &end }, threads, ty);
    body += &format!(
        "workgroupBarrier();\nfor (var n = 0; n < {dc}; n += 1) {{\nlet x = queries[(n * {bq} + tq) / 4];\nlet y = keys[(n * {bt} + tt) / 4];\n"
    );
    (0..4).for_each(|i| body += &format!("p{i} = fma(vec4<{ty}>(x[{i}]), y, p{i});\n"));
    body += "}\n}\n";
    // Scores, where keys are seen.
    body += &format!(
        "var products = array<vec4<{ty}>, 4>(p0, p1, p2, p3);\nfor (var i = 0; i < 4; i += 1) {{\nfor (var j = 0; j < 4; j += 1) {{\n"
    );
    body += &format!(
        "let s = s0 + tq + i;\nlet t = t0 + tt + j;\nvar score = {nothing};\nif (s < {s} && t < {t}) {{\nlet x = products[i][j];\n"
    );
    match bias {
        Some(bias) => {
            let nest = matrix(&Nest::of(bias.clone()), [batch, queries, keys]);
            let mut emitter =
                Emitter::new(dialect, &kernel.slots, &nest, &["b", "s", "t"], SplitAxis { axis: 2, count: 1 }, "v");
            let value = emitter.value(bias.results[0]).swap_remove(0);
            if !emitter.problems.is_empty() {
                return Err(emitter.problems);
            }
            body += &emitter.text;
            // A hidden key is left out, whatever its score is.
            body += &format!("let more = {ty}({value});\nif (!(more == {nothing})) {{ score = {score} + more; }}\n");
        }
        None => body += &format!("score = {score};\n"),
    }
    body += &format!("}}\nweights[(tt + j) * {bq} + tq + i] = score;\n}}\n}}\n");
    body += &v.fetch(
        &OperandTile { memory: "values", outer: bt, depth: bt, first: ["e0", "t0"], end: &t.to_string() },
        threads,
        ty,
    );
    // The largest score of each row, and the sum of its weights, by the threads that share it.
    body += &format!(
        "workgroupBarrier();\nvar most = of_rows[row];\nlet past = most;\nfor (var n = share; n < {bt}; n += {beside}) {{ most = {max}(most, weights[n * {bq} + row]); }}\n\
         shares[thread] = most;\nworkgroupBarrier();\nfor (var n = 0; n < {beside}; n += 1) {{ most = {max}(most, shares[row * {beside} + n]); }}\n\
         let base = select(most, {ty}(0), most == {nothing});\nvar total = {ty}(0);\n\
         for (var n = share; n < {bt}; n += {beside}) {{ let w = {exp}(weights[n * {bq} + row] - base); weights[n * {bq} + row] = w; total += w; }}\n\
         workgroupBarrier();\nshares[thread] = total;\nworkgroupBarrier();\n\
         if (share == 0) {{\nfor (var n = 1; n < {beside}; n += 1) {{ total += shares[row * {beside} + n]; }}\n\
         let scale = {exp}(past - base);\nof_rows[row] = most;\nof_rows[{bq} + row] = of_rows[{bq} + row] * scale + total;\nof_rows[{} + row] = scale;\n}}\nworkgroupBarrier();\n",
        2 * bq
    );
    (0..4).for_each(|i| body += &format!("c{i} *= of_rows[{} + tq + {i}];\n", 2 * bq));
    body += &format!("for (var n = 0; n < {bt}; n += 1) {{\nlet y = values[(n * {bt} + tt) / 4];\n");
    (0..4).for_each(|i| body += &format!("c{i} = fma(vec4<{ty}>(weights[n * {bq} + tq + {i}]), y, c{i});\n"));
    body += "}\nworkgroupBarrier();\n}\nworkgroupBarrier();\n";
    let lanes = epilogue.lanes();
    let zero = match *empty == EmptyRow::Zeros || t == 0 {
        true => format!("most == {nothing}"),
        false => "false".into(),
    };
    body += &format!(
        "var sums = array<vec4<{ty}>, 4>(c0, c1, c2, c3);\nfor (var i = 0; i < 4; i += 1) {{\nlet m = s0 + tq + i;\nlet most = of_rows[tq + i];\n\
         let total = of_rows[{bq} + tq + i];\nfor (var j = 0; j < 4; j += {lanes}) {{\nlet at_n = e0 + tt + j;\nif (m < {s} && at_n < {e}) {{\n"
    );
    body += &epilogue.at(|lane| format!("select(sums[i][j + {lane}] / total, {ty}(0), {zero})"));
    body += "}\n}\n}\n";
    let text = dialect.text(&kernel.slots, threads, &before, &body);
    Ok(vec![Launch::new(text, [blocks * chunks * b, 1, 1], threads)])
}
