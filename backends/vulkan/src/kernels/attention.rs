//! Attention: tiles of scores in shared memory, the largest of each row so far kept (online softmax; Milakov and Gimelshein 2018); the bias is any
//! expression, and tiles that it hides are left out. Where queries are few, parts of the keys have blocks of their own, and another launch joins them.

use eutectic_backend::{AnchorKernel, AttentionAxes, EmptyRow, Kernel, axes::Nest};
use eutectic_gpu::{
    attention::{Sees, parts_of_keys, seen},
    device::DeviceShape,
    dialect::Dialect,
    emit::Emitter,
    lanes::SplitAxis,
    launch::Launch,
};
use eutectic_ir::DType;

use super::parts::{Epilogue, OperandTile, PrintedOperand, matrix, sums};
use crate::{dialect::Wgsl, library::register};

/// Extents of a tile: queries, keys (as many as columns), and the depth of a step. A thread has four queries by four keys.
type Tiles = [usize; 3];

/// Tiles of few queries, and of many.
const FEW: [Tiles; 3] = [[16, 64, 32], [16, 32, 32], [16, 32, 16]];
const MANY: [Tiles; 4] = [[32, 64, 16], FEW[0], FEW[1], FEW[2]];
/// Threads of a block that joins parts of the keys.
const JOINING: usize = 128;
/// Most entries of a text's list of what blocks of queries see; of more blocks, several share one.
const LISTED: usize = 256;

/// Arrays in shared memory, of vectors of four or of numbers: names and elements.
fn shared([bq, bt, dc]: Tiles) -> [(&'static str, bool, usize); 6] {
    [
        ("queries", true, dc * bq),
        ("keys", true, dc * bt),
        ("values", true, bt * bt),
        ("weights", false, bt * bq),
        ("of_rows", false, 3 * bq),
        ("shares", false, bq * bt / 16),
    ]
}

/// The first of some tiles that a device has room for.
fn tiles(shape: &DeviceShape, all: &[Tiles], sum: DType) -> Result<Tiles, Vec<String>> {
    let bytes = |tiles: &Tiles| shared(*tiles).iter().map(|(.., count)| count * sum.size()).sum::<usize>();
    let fits = |tiles: &&Tiles| bytes(tiles) <= shape.shared && tiles[0] * tiles[1] / 16 <= shape.threads;
    let least = FEW.iter().map(bytes).min().unwrap_or(0);
    let lacking = || {
        let has = shape.shared;
        vec![format!("attention in {sum} takes {least} bytes of shared memory; the device has {has}")]
    };
    all.iter().find(fits).copied().ok_or_else(lacking)
}

/// The function that says which keys a block of queries sees, and which tiles its bias leaves as they are.
fn listed(seen: Option<&[Sees]>, keys: usize) -> String {
    let Some(seen) = seen else {
        return format!("fn sees(block: i32) -> vec4<i32> {{ return vec4<i32>(0, {keys}, 0, 0); }}\n");
    };
    let of =
        |Sees { keys: [first, last], plain: [from, to] }: &Sees| format!("vec4<i32>({first}, {last}, {from}, {to})");
    let list: Vec<String> = seen.iter().map(of).collect();
    let count = list.len();
    format!(
        "const SEEN = array<vec4<i32>, {count}>({});\nfn sees(block: i32) -> vec4<i32> {{ var seen = SEEN; return seen[block]; }}\n",
        list.join(", ")
    )
}

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
    let few = s <= 16 || b * s.div_ceil(32) < shape.processors / 2;
    let [bq, bt, dc] = tiles(shape, if few { &FEW } else { &MANY }, sum)?;
    let threads = bq * bt / 16;
    let beside = threads / bq;
    let operand = |n: usize, result: usize| PrintedOperand::print(dialect, &nests[n], result, &kernel.slots, n == 2);
    let [q, k, v] = [operand(0, query.results[0])?, operand(1, key.results[0])?, operand(2, value.results[0])?];
    let epilogue = Epilogue::print(dialect, &own, &kernel.slots, 4)?;
    let bias = bias.as_ref().map(|bias| (matrix(&Nest::of(bias.clone()), [batch, queries, keys]), bias.results[0]));
    let share = s.div_ceil(bq).div_ceil(LISTED).max(1);
    let sees = bias.as_ref().and_then(|(nest, result)| seen(nest, *result, [bq * share, bt]));
    let mut before = listed(sees.as_deref(), t);
    for (name, vectors, count) in shared([bq, bt, dc]) {
        before += &match vectors {
            true => format!("var<workgroup> {name}: array<vec4<{ty}>, {}>;\n", count / 4),
            false => format!("var<workgroup> {name}: array<{ty}, {count}>;\n"),
        };
    }
    let (blocks, chunks) = (s.div_ceil(bq), e.div_ceil(bt));
    // Sums, the largest score and the weights' total of each row and part.
    let partial = |parts: usize| parts * b * s * (e + 2);
    let parts = parts_of_keys(shape, b * blocks * chunks, t / bt);
    let parts = if partial(parts) * sum.size() <= shape.workspace { parts } else { 1 };
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
        "\nif (block >= {}) {{ return; }}\nlet s0 = block % {blocks} * {bq};\nlet e0 = block / {blocks} % {chunks} * {bt};\n\
         let part = block / {} % {parts};\nlet b = block / {};\nlet seen = sees(block % {blocks} / {share});\n\
         let each = ((seen.y - seen.x + {bt} - 1) / {bt} + {parts} - 1) / {parts} * {bt};\nlet begin = seen.x + part * each;\nlet end = min(begin + each, seen.y);\n\
         let tq = thread / {across} * 4;\nlet tt = thread % {across} * 4;\nlet row = thread / {beside};\nlet share = thread % {beside};\n\
         if (thread < {bq}) {{ of_rows[thread] = {nothing}; of_rows[{bq} + thread] = {ty}(0); }}\n",
        blocks * chunks * parts * b,
        blocks * chunks,
        blocks * chunks * parts,
        across = bt / 4,
    );
    (0..4).for_each(|i| body += &format!("var c{i} = vec4<{ty}>();\n"));
    body += &format!("for (var t0 = begin; t0 < end; t0 += {bt}) {{\n");
    (0..4).for_each(|i| body += &format!("var p{i} = vec4<{ty}>();\n"));
    body += &format!("for (var d0 = 0; d0 < {d}; d0 += {dc}) {{\nworkgroupBarrier();\n");
    let end_of_depth = d.to_string();
    body += &q.fetch(
        &OperandTile { memory: "queries", outer: bq, depth: dc, first: ["s0", "d0"], end: &end_of_depth },
        threads,
        ty,
    );
    body += &k.fetch(
        &OperandTile { memory: "keys", outer: bt, depth: dc, first: ["t0", "d0"], end: &end_of_depth },
        threads,
        ty,
    );
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
        "let s = s0 + tq + i;\nlet t = t0 + tt + j;\nvar score = {nothing};\nif (s < {s} && t < end) {{\nlet x = products[i][j];\n"
    );
    match &bias {
        Some((nest, result)) => {
            let mut emitter =
                Emitter::new(dialect, &kernel.slots, nest, &["b", "s", "t"], SplitAxis { axis: 2, count: 1 }, "v");
            let value = emitter.value(*result).swap_remove(0);
            if !emitter.problems.is_empty() {
                return Err(emitter.problems);
            }
            // A hidden key is left out, whatever its score is.
            body += &format!(
                "let tile = t0 / {bt};\nif (tile >= seen.z && tile < seen.w) {{ score = {score}; }} else {{\n{}\
                 let more = {ty}({value});\nif (!(more == {nothing})) {{ score = {score} + more; }}\n}}\n",
                emitter.text
            );
        }
        None => body += &format!("score = {score};\n"),
    }
    body += &format!("}}\nweights[(tt + j) * {bq} + tq + i] = score;\n}}\n}}\n");
    body +=
        &v.fetch(&OperandTile { memory: "values", outer: bt, depth: bt, first: ["e0", "t0"], end: "end" }, threads, ty);
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
    let slot = kernel.slots.len();
    let mut slots = kernel.slots.clone();
    let workspace = if parts > 1 { partial(parts) * sum.size() } else { 0 };
    let store = |at: &str, value: &str| dialect.store(slot, at, value);
    if parts > 1 {
        slots.push((sum, partial(parts)));
        body += &format!("let row_at = ((part * {b} + b) * {s} + m) * {};\n", e + 2);
        (0..lanes).for_each(|lane| body += &store(&format!("row_at + at_n + {lane}"), &format!("sums[i][j + {lane}]")));
        let of_row = [store(&format!("row_at + {e}"), "most"), store(&format!("row_at + {}", e + 1), "total")].concat();
        body += &format!("if (at_n == 0) {{ {of_row} }}\n");
    } else {
        body += &epilogue.at(|lane| format!("select(sums[i][j + {lane}] / total, {ty}(0), {zero})"));
    }
    body += "}\n}\n}\n";
    let text = dialect.text(&slots, threads, &before, &body);
    let mut launches = vec![Launch { workspace, ..Launch::new(text, [blocks * chunks * parts * b, 1, 1], threads) }];
    if parts > 1 {
        // The parts of a row by the largest score of all.
        let load = |at: &str| dialect.load(slot, at);
        let groups = b * s * e / lanes;
        let mut body = dialect.each_point("i", groups, JOINING);
        body += &format!(
            "let at = i * {lanes};\nlet b = at / {};\nlet m = at / {e} % {s};\nlet at_n = at % {e};\nlet first = (b * {s} + m) * {};\n\
             var most = {nothing};\nfor (var part = 0; part < {parts}; part += 1) {{ most = {max}(most, {}); }}\n\
             let base = select(most, {ty}(0), most == {nothing});\nvar total = {ty}(0);\n",
            s * e,
            e + 2,
            load(&format!("first + part * {} + {e}", b * s * (e + 2))),
        );
        (0..lanes).for_each(|lane| body += &format!("var s{lane} = {ty}(0);\n"));
        body += &format!(
            "for (var part = 0; part < {parts}; part += 1) {{\nlet of_part = first + part * {};\nlet w = {exp}({} - base);\ntotal += w * {};\n",
            b * s * (e + 2),
            load(&format!("of_part + {e}")),
            load(&format!("of_part + {}", e + 1)),
        );
        (0..lanes).for_each(|n| body += &format!("s{n} += w * {};\n", load(&format!("of_part + at_n + {n}"))));
        body += "}\n";
        body += &epilogue.at(|lane| format!("select(s{lane} / total, {ty}(0), {zero})"));
        body += "}\n";
        let blocks = groups.div_ceil(JOINING).min(shape.processors * 16);
        let text = dialect.text(&slots, JOINING, "", &body);
        launches.push(Launch { workspace, ..Launch::new(text, [blocks, 1, 1], JOINING) });
    }
    Ok(launches)
}
