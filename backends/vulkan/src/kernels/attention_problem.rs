//! An attention with the properties that all of its schedules need.

use eutectic_backend::{Attention, AttentionAxes, EmptyRow, Instr, Kernel, ScoreForm, axes::Nest};
use eutectic_gpu::{
    dialect::Dialect,
    emit::Emitter,
    lanes::SplitAxis,
    stored_queries::{StoredQueries, query_of},
};
use eutectic_ir::{DType, bounded::hiding};

use super::{
    matrices::may_end_within,
    parts::{Epilogue, PrintedOperand, matrix, sums},
};
use crate::{dialect::Wgsl, library::register};

/// An attention to be printed.
pub struct AttentionProblem<'a> {
    pub dialect: &'a Wgsl,
    pub kernel: &'a Kernel,
    /// The type of sums.
    pub sum: DType,
    /// Extents of batch, queries, keys, depth and columns.
    pub extents: [usize; 5],
    /// Query, key and value, each with its result.
    pub operands: [(Nest, usize); 3],
    /// The epilogue.
    pub own: Nest,
    pub bias: Option<(Nest, usize)>,
    pub scale: f64,
    pub softcap: f64,
    /// The result of a row without weights.
    pub empty: EmptyRow,
    /// The queries whose results are stored; `None` for all.
    pub stored: Option<StoredQueries>,
}

/// The extents of a block's tile.
#[derive(Clone, Copy, Debug)]
pub struct AttentionTile {
    /// Queries per block.
    pub queries: usize,
    /// Keys per tile.
    pub keys: usize,
    /// Columns of the values.
    pub columns: usize,
    /// Terms per step of the depth.
    pub depth: usize,
    pub threads: usize,
    pub way: AttentionWay,
}

/// The schedule of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionWay {
    /// The schedule of [`super::few_queries`].
    FewQueries,
    /// The schedule of [`super::matrix_attention`].
    Units,
    /// The schedule of [`super::fma_attention`].
    Fma,
}

/// A tile's text: declarations before the kernel, and its body.
pub struct AttentionText {
    pub before: String,
    pub body: String,
}

/// The epilogue of sums: they are divided by the total weight, or stored for the launch that joins splits of the keys.
pub struct AttentionPoints<'a> {
    pub problem: &'a AttentionProblem<'a>,
    pub epilogue: &'a Epilogue,
    /// The number of parts into which the keys are split.
    pub parts: usize,
}

impl AttentionPoints<'_> {
    /// Returns how many neighbours of a row are stored at once.
    pub fn lanes(&self) -> usize {
        self.epilogue.lanes()
    }

    /// Returns statements that store the sums from column `at_n` of row `m` on. `most` is the row's maximal score, and
    /// `total` its sum of weights.
    pub fn at(&self, sum: impl Fn(usize) -> String) -> String {
        let AttentionProblem { dialect, kernel, extents: [b, s, .., e], .. } = *self.problem;
        let store = |at: &str, value: &str| dialect.store(kernel.slots.len(), at, value);
        let mut text = format!("if (m < stored_queries(b) && at_n < {e}) {{\n");
        if self.parts > 1 {
            text += &format!("let row_at = ((part * {b} + b) * {s} + m) * {};\n", e + 2);
            (0..self.lanes()).for_each(|lane| text += &store(&format!("row_at + at_n + {lane}"), &sum(lane)));
            let of_row = [store(&format!("row_at + {e}"), "most"), store(&format!("row_at + {}", e + 1), "total")];
            text += &format!("if (at_n == 0) {{ {} }}\n", of_row.concat());
        } else {
            text += &self.problem.finish(self.epilogue, sum);
        }
        text + "}\n"
    }
}

impl<'a> AttentionProblem<'a> {
    /// Returns the attention of a kernel; `None` for other kernels.
    pub fn new(dialect: &'a Wgsl, kernel: &'a Kernel) -> Option<AttentionProblem<'a>> {
        let Attention { query, key, value, bias, axes, form } = kernel.attention()?;
        let ScoreForm { scale, softcap, empty } = form;
        let AttentionAxes { batch, queries, keys, depth, columns } = axes;
        let operands = [
            (matrix(&Nest::of(query.clone()), [batch, queries, depth]), query.results[0]),
            (matrix(&Nest::of(key.clone()), [batch, keys, depth]), key.results[0]),
            (matrix(&Nest::of(value.clone()), [batch, keys, columns]), value.results[0]),
        ];
        let [b, s, d] = [0, 1, 2].map(|n| operands[0].0.domain[n]);
        let (t, e) = (operands[1].0.domain[1], operands[2].0.domain[2]);
        let bias = bias.map(|bias| (matrix(&Nest::of(bias.clone()), [batch, queries, keys]), bias.results[0]));
        Some(AttentionProblem {
            dialect,
            kernel,
            sum: sums(&kernel.bodies()),
            extents: [b, s, t, d, e],
            operands,
            own: matrix(&Nest::new(&kernel.body, &kernel.stores), [batch, queries, columns]),
            bias,
            scale,
            softcap,
            empty: if t == 0 { EmptyRow::Zeros } else { empty },
            stored: StoredQueries::of(kernel),
        })
    }

    /// Returns the element type of the operands; `None` if they differ.
    pub fn operand_type(&self) -> Option<DType> {
        let [query, key, value] = [0, 1, 2].map(|n| self.operands[n].0.instrs[self.operands[n].1].dtype());
        (query == key && key == value).then_some(query)
    }

    /// Returns the printed query, key and value, with at most `most` neighbours per access.
    ///
    /// # Errors
    /// Returns the reasons why they cannot be printed.
    pub fn operands(&self, most: usize) -> Result<[PrintedOperand; 3], Vec<String>> {
        let print = |n: usize| {
            let (nest, result) = &self.operands[n];
            let place = (n == 0 && self.stored.is_some()).then(|| query_of("o"));
            PrintedOperand::print(self.dialect, (nest, *result), &self.kernel.slots, n == 2, most, place.as_deref())
        };
        Ok([print(0)?, print(1)?, print(2)?])
    }

    /// Returns a literal of the type of sums.
    pub fn number(&self, x: f64) -> String {
        self.dialect.literal(x, self.sum)
    }

    /// Returns the score of a hidden key.
    pub fn nothing(&self) -> String {
        self.number(f64::NEG_INFINITY)
    }

    /// Returns the name of a function for the type of sums.
    ///
    /// # Errors
    /// Returns an error if there is no such function.
    pub fn function(&self, name: &str) -> Result<String, Vec<String>> {
        let sum = self.sum;
        self.dialect.function(name, sum, sum).ok_or_else(|| {
            vec![format!("cannot compute attention in {sum} because the WGSL dialect has no `{name}` for this type")]
        })
    }

    /// Returns whether the bias hides keys, instead of being added to every score.
    pub fn hides_keys(&self) -> bool {
        self.bias.is_some() && self.empty.selects()
    }

    /// Returns statements that divide the sums from column `at_n` of row `m` on by the total weight, and store the
    /// results.
    pub fn finish(&self, epilogue: &Epilogue, sum: impl Fn(usize) -> String) -> String {
        let (ty, nothing) = (register(self.sum), self.nothing());
        let zeros = match self.empty {
            EmptyRow::Nan => "false".into(),
            EmptyRow::Zeros => format!("most == {nothing}"),
            EmptyRow::Guarded => format!("most == {nothing} || !(total == total)"),
        };
        let mut text = format!("let is_zero = {zeros};\n");
        for lane in 0..epilogue.lanes() {
            text += &format!("var result{lane} = select({} / total, {ty}(0), is_zero);\n", sum(lane));
            if self.hides_keys() {
                text += &format!(
                    "if (!(result{lane} == result{lane}) && total == total && most != {nothing}) {{\n\
                     result{lane} = sum_of_seen(b, m, at_n + {lane});\n}}\n"
                );
            }
        }
        text + &epilogue.at(|lane| format!("result{lane}"))
    }

    /// Returns a function that computes a column of a stored query again, without the values of hidden keys. The weight
    /// of a hidden key is 0, but 0 times NaN or an infinity is NaN.
    ///
    /// # Errors
    /// Returns the reasons why an expression cannot be printed.
    pub fn sum_of_seen(&self) -> Result<String, Vec<String>> {
        let Some((bias, result)) = self.bias.as_ref().filter(|_| self.hides_keys()) else { return Ok(String::new()) };
        let (ty, nothing, [.., t, d, _]) = (register(self.sum), self.nothing(), self.extents);
        let (max, exp) = (self.function("max_of")?, self.function("exp")?);
        // Returns statements that assign an element to a variable.
        let element = |nest: &Nest, result: usize, names: [&str; 3], variable: &str| {
            let lanes = SplitAxis { axis: 2, count: 1 };
            let mut emitter = Emitter::new(self.dialect, &self.kernel.slots, nest, &names, lanes, "v");
            let value = emitter.lane(result, 0);
            let text = format!("{{\n{}{variable} = {ty}({value});\n}}\n", emitter.text);
            if emitter.problems.is_empty() { Ok(text) } else { Err(emitter.problems) }
        };
        let [query, key, value] = &self.operands;
        let place = self.stored.as_ref().map_or("m".into(), |_| query_of("m"));
        Ok(format!(
            "fn sum_of_seen(b: i32, m: i32, n: i32) -> {ty} {{\nlet s = query_of(b, m);\nvar most = {nothing};\nvar total = {ty}(0);\n\
             var sum = {ty}(0);\nvar x: {ty};\nvar y: {ty};\nvar more: {ty};\nfor (var t = 0; t < {t}; t += 1) {{\n{}\
             if (more == {nothing}) {{ continue; }}\nvar product = {ty}(0);\nfor (var d = 0; d < {d}; d += 1) {{\n{}{}product += x * y;\n}}\n\
             let score = {};\nlet with_bias = {};\n\
             let next = {max}(most, with_bias);\nlet base = select(next, {ty}(0), next == {nothing});\nlet scale = {exp}(most - base);\n\
             let weight = {exp}(with_bias - base);\nmost = next;\n{}total = total * scale + weight;\nsum = sum * scale + weight * y;\n}}\n\
             return sum / total;\n}}\n",
            element(bias, *result, ["b", "s", "t"], "more")?,
            element(&query.0, query.1, ["b", &place, "d"], "x")?,
            element(&key.0, key.1, ["b", "t", "d"], "y")?,
            self.score("product")?,
            self.with_bias("score", "more", ["", ""]),
            element(&value.0, value.1, ["b", "t", "n"], "y")?,
        ))
    }

    /// Returns the score of a product of query and key.
    fn score(&self, product: &str) -> Result<String, Vec<String>> {
        match self.softcap {
            0.0 => Ok(format!("{product} * {}", self.number(self.scale))),
            cap => {
                let (tanh, cap, by) = (self.function("tanh")?, self.number(cap), self.number(self.scale / cap));
                Ok(format!("{cap} * {tanh}({product} * {by})"))
            }
        }
    }

    /// Returns a score, or a vector of scores, with the bias added. A bias that stands for −∞ replaces the score, by a
    /// selection per lane.
    fn with_bias(&self, score: &str, bias: &str, splat: [&str; 2]) -> String {
        if !self.hides_keys() {
            return format!("{score} + {bias}");
        }
        let [open, close] = splat;
        format!("select({score} + {bias}, {bias}, {bias} <= {open}{}{close})", self.number(hiding(self.sum)))
    }

    /// Returns statements that compute the `scores` of query `s` and [`KEYS`] keys. These begin at key `t`, in the tile
    /// that begins at `t0`. `x` names the products of query and keys. Keys from `end` on are hidden. Branches are
    /// avoided where possible, so that the loads of several scores overlap.
    ///
    /// # Errors
    /// Returns the reasons why they cannot be printed.
    pub fn scores(&self, tile: &AttentionTile) -> Result<String, Vec<String>> {
        let (nothing, ty, keys) = (self.nothing(), register(self.sum), self.extents[2]);
        let hidden = format!("vec4<{ty}>({nothing})");
        let mut text = match self.softcap {
            0.0 => format!("var scores = {};\n", self.score("x")?),
            _ => {
                let each = ["x.x", "x.y", "x.z", "x.w"].map(|lane| self.score(lane));
                let each = each.into_iter().collect::<Result<Vec<_>, _>>()?.join(", ");
                format!("var scores = vec4<{ty}>({each});\n")
            }
        };
        let may_end = may_end_within(keys, tile.keys);
        if let Some((nest, result)) = &self.bias {
            let count = together(nest);
            let lanes = SplitAxis { axis: 2, count };
            let mut emitter = Emitter::new(self.dialect, &self.kernel.slots, nest, &["b", "s", "keys"], lanes, "v");
            let values: Vec<String> = (0..count).map(|lane| emitter.lane(*result, lane)).collect();
            if !emitter.problems.is_empty() {
                return Err(emitter.problems);
            }
            // A hidden key is skipped, whatever its score is.
            let more: Vec<String> = values.iter().map(|value| format!("{ty}({value})")).collect();
            let (more, evaluated) = (more.join(", "), emitter.text);
            let with_bias = match count {
                1 => format!(
                    "for (var j = 0; j < {KEYS}; j += 1) {{\nif (t + j < end) {{\nlet keys = t + j;\n{evaluated}let more = {more};\n\
                     scores[j] = {};\n}}\n}}\n",
                    self.with_bias("scores[j]", "more", ["", ""])
                ),
                _ => {
                    // Loads beyond the last key repeat the last keys.
                    let t = if may_end { format!("min(t, {})", keys.saturating_sub(KEYS)) } else { "t".into() };
                    format!(
                        "let keys = i32(u32({t}) / {KEYS}u);\n{evaluated}let more = vec4<{ty}>({more});\n\
                         scores = {};\n",
                        self.with_bias("scores", "more", [&format!("vec4<{ty}>("), ")"])
                    )
                }
            };
            text +=
                &format!("let tile = t0 / {};\nif (tile < seen.z || tile >= seen.w) {{\n{with_bias}}}\n", tile.keys);
        }
        if may_end {
            text += &format!(
                "scores = select(scores, {hidden}, vec4<i32>(t) + vec4<i32>(0, 1, 2, 3) >= vec4<i32>(end));\n"
            );
        }
        Ok(text)
    }
}

/// The number of neighbouring keys whose scores are computed together.
pub const KEYS: usize = 4;

/// Returns the number of keys for which a bias over `[b s t]` is evaluated at once. Beyond the last key, its loads may
/// have no valid index.
fn together(bias: &Nest) -> usize {
    let by_value = |instr: &Instr| {
        matches!(instr, Instr::Within { .. }) || instr.maps().iter().any(|map| !map.values().is_empty())
    };
    if bias.domain[2].is_multiple_of(KEYS) && !bias.instrs.iter().any(by_value) { KEYS } else { 1 }
}
