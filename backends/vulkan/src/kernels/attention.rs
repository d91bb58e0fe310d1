//! Attention by online softmax, tile by tile of scores, with the maximal score so far per row (Milakov and Gimelshein
//! 2018). The bias may be any expression, and tiles that it hides are skipped. For few queries, blocks process splits
//! of the keys, and another launch joins them.

use eutectic_backend::Kernel;
use eutectic_gpu::{
    attention::{VisibleKeys, parts_of_keys, seen},
    device::DeviceShape,
    dialect::Dialect,
    launch::Launch,
    stored_queries::{self, query_of},
};

use super::{
    attention_problem::{AttentionPoints, AttentionProblem, AttentionTile, AttentionWay},
    few_queries, fma_attention,
    matrices::EIGHT,
    matrix_attention,
    parts::Epilogue,
};
use crate::{dialect::Wgsl, library::register};

/// Threads of a block that joins splits of the keys.
const JOINING: usize = 128;
/// The number of splits that a thread reads at once when it joins them.
const TURNS: usize = 16;
/// The maximal number of entries in a text's list of visible keys. If there are more blocks of queries, several share
/// an entry.
const LISTED: usize = 256;

/// Prints a kernel's attention.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let problem = AttentionProblem::new(dialect, kernel)
        .ok_or_else(|| vec!["cannot print attention because the kernel has none".to_string()])?;
    let tile = few_queries::tile(&problem, shape).or_else(|| matrix_attention::tile(&problem, shape));
    let tile = tile.map_or_else(|| fma_attention::tile(&problem, shape), Ok)?;
    problem.print(shape, &tile)
}

impl AttentionProblem<'_> {
    fn print(&self, shape: &DeviceShape, tile: &AttentionTile) -> Result<Vec<Launch>, Vec<String>> {
        let AttentionProblem { dialect, kernel, sum, extents: [b, s, t, _, e], .. } = *self;
        let AttentionTile { queries: bq, keys: bt, columns: be, threads, .. } = *tile;
        let most = if tile.way == AttentionWay::Units { EIGHT } else { 4 };
        let epilogue = Epilogue::print(dialect, &self.own, &kernel.slots, most, &query_of("m"))?;
        let queries = self.functions() + &self.sum_of_seen()?;
        let share = s.div_ceil(bq).div_ceil(LISTED).max(1);
        // If the bias is added to every score, no tile may be skipped.
        let bias = self.bias.as_ref().filter(|_| self.empty.selects());
        let sees = bias.and_then(|(nest, result)| seen(nest, *result, [bq * share, bt]));
        let (blocks, chunks) = (s.div_ceil(bq), e.div_ceil(be));
        // Each split stores, for each row, its sums, its maximal score and its total weight.
        let partial = |parts: usize| parts * b * s * (e + 2);
        let parts = parts_of_keys(shape, b * blocks * chunks, t / bt);
        let parts = if partial(parts) * sum.size() <= shape.workspace { parts } else { 1 };
        let points = AttentionPoints { problem: self, epilogue: &epilogue, parts };
        let of_tile = match tile.way {
            AttentionWay::FewQueries => few_queries::print(&points, self, tile),
            AttentionWay::Units => matrix_attention::print(&points, self, tile),
            AttentionWay::Fma => fma_attention::print(&points, self, tile),
        }?;
        let mut body = dialect.place("thread", "block");
        body += &format!(
            "\nif (block >= {}) {{ return; }}\nlet s0 = block % {blocks} * {bq};\nlet e0 = block / {blocks} % {chunks} * {be};\n\
             let part = block / {} % {parts};\nlet b = block / {};\nlet seen = sees(block % {blocks} / {share});\n\
             let each = ((seen.y - seen.x + {bt} - 1) / {bt} + {parts} - 1) / {parts} * {bt};\nlet begin = seen.x + part * each;\nlet end = min(begin + each, seen.y);\n\
             if (s0 >= stored_queries(b)) {{ return; }}\n",
            blocks * chunks * parts * b,
            blocks * chunks,
            blocks * chunks * parts,
        );
        body += &of_tile.body;
        let mut slots = kernel.slots.clone();
        let workspace = if parts > 1 { partial(parts) * sum.size() } else { 0 };
        if parts > 1 {
            slots.push((sum, partial(parts)));
        }
        let text = dialect.text(
            &slots,
            threads,
            &[&queries, &listed(sees.as_deref(), t), &of_tile.before].map(String::as_str).concat(),
            &body,
        );
        let mut launches =
            vec![Launch { workspace, ..Launch::new(text, [blocks * chunks * parts * b, 1, 1], threads) }];
        if parts > 1 {
            let groups = b * s * e / epilogue.lanes();
            let blocks = groups.div_ceil(JOINING).min(shape.processors * 16);
            let text = dialect.text(&slots, JOINING, &queries, &self.join(&epilogue, parts)?);
            launches.push(Launch { workspace, ..Launch::new(text, [blocks, 1, 1], JOINING) });
        }
        Ok(launches)
    }

    /// Returns the functions that give the number of stored queries, and the position of each.
    fn functions(&self) -> String {
        let queries = stored_queries::functions(self.stored.as_ref(), self.extents[1], self.dialect);
        format!(
            "fn stored_queries(b: i32) -> i32 {{\n{}}}\nfn query_of(b: i32, row: i32) -> i32 {{\n{}}}\n",
            queries.count, queries.query
        )
    }

    /// Returns the body of the kernel that joins the splits of a row by their overall maximal score.
    fn join(&self, epilogue: &Epilogue, parts: usize) -> Result<String, Vec<String>> {
        let AttentionProblem { dialect, kernel, sum, extents: [b, s, _, _, e], .. } = *self;
        let (ty, nothing, lanes) = (register(sum), self.nothing(), epilogue.lanes());
        let (max, exp) = (self.function("max_of")?, self.function("exp")?);
        let load = |at: &str| dialect.load(kernel.slots.len(), at);
        let of_part = b * s * (e + 2);
        let most = format!("most = {max}(most, {});\n", load(&format!("first + part * {of_part} + {e}")));
        let mut body = dialect.each_point("i", b * s * e / lanes, JOINING);
        body += &format!(
            "let at = i * {lanes};\nlet b = at / {};\nlet m = at / {e} % {s};\nlet at_n = at % {e};\nif (m >= stored_queries(b)) {{ continue; }}\nlet first = (b * {s} + m) * {};\n\
             var most = {nothing};\n{}\
             let base = select(most, {ty}(0), most == {nothing});\nvar total = {ty}(0);\n",
            s * e,
            e + 2,
            dialect.in_turns(("part", "0"), parts, 1, TURNS, &most),
        );
        (0..lanes).for_each(|lane| body += &format!("var s{lane} = {ty}(0);\n"));
        let mut add = format!(
            "let of_part = first + part * {of_part};\nlet w = {exp}({} - base);\ntotal += w * {};\n",
            load(&format!("of_part + {e}")),
            load(&format!("of_part + {}", e + 1)),
        );
        (0..lanes).for_each(|n| add += &format!("s{n} += w * {};\n", load(&format!("of_part + at_n + {n}"))));
        body += &dialect.in_turns(("part", "0"), parts, 1, TURNS, &add);
        body += &self.finish(epilogue, |lane| format!("s{lane}"));
        Ok(body + "}\n")
    }
}

/// Returns the function that gives the visible keys of a block of queries, and the tiles whose scores the bias leaves
/// unchanged.
fn listed(seen: Option<&[VisibleKeys]>, keys: usize) -> String {
    let Some(seen) = seen else {
        return format!("fn sees(block: i32) -> vec4<i32> {{ return vec4<i32>(0, {keys}, 0, 0); }}\n");
    };
    let of = |VisibleKeys { keys: [first, last], plain: [from, to] }: &VisibleKeys| {
        format!("vec4<i32>({first}, {last}, {from}, {to})")
    };
    let list: Vec<String> = seen.iter().map(of).collect();
    let count = list.len();
    format!(
        "const SEEN = array<vec4<i32>, {count}>({});\nfn sees(block: i32) -> vec4<i32> {{ var seen = SEEN; return seen[block]; }}\n",
        list.join(", ")
    )
}
