//! Attention to be printed: what its ways share, whichever units multiply.

use eutectic_backend::{AnchorKernel, AttentionAxes, EmptyRow, Instr, Kernel, axes::Nest};
use eutectic_gpu::{
    dialect::Dialect,
    emit::Emitter,
    lanes::SplitAxis,
    stored_queries::{StoredQueries, query_of},
};
use eutectic_ir::DType;

use super::{
    matrices::may_end_within,
    parts::{Epilogue, PrintedOperand, matrix, sums},
};
use crate::{dialect::Wgsl, library::register};

/// Attention to be printed.
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
    /// Whether a row without keys gives zeros.
    pub zeros: bool,
    /// Which queries are stored, if not all.
    pub stored: Option<StoredQueries>,
}

/// What a block computes.
#[derive(Clone, Copy, Debug)]
pub struct AttentionTile {
    /// Queries and keys.
    pub queries: usize,
    /// See `queries`.
    pub keys: usize,
    /// Columns of the values.
    pub columns: usize,
    /// Terms of a step of the depth.
    pub depth: usize,
    pub threads: usize,
    pub way: AttentionWay,
}

/// How a block computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionWay {
    /// [`super::few_queries`].
    FewQueries,
    /// [`super::matrix_attention`].
    Units,
    /// [`super::fma_attention`].
    Fma,
}

/// A tile's text: what stands before a kernel, and its body.
pub struct AttentionText {
    pub before: String,
    pub body: String,
}

/// What is done with sums: they are divided by their weights' total, or stored for a launch that joins parts of the keys.
pub struct AttentionPoints<'a> {
    pub problem: &'a AttentionProblem<'a>,
    pub epilogue: &'a Epilogue,
    /// Parts of the keys.
    pub parts: usize,
}

impl AttentionPoints<'_> {
    /// How many neighbours of a row are stored at once.
    pub fn lanes(&self) -> usize {
        self.epilogue.lanes()
    }

    /// Statements for sums from column `at_n` of row `m` on, where `most` is the row's largest score and `total` that of its weights.
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
            text += &self.epilogue.at(|lane| self.problem.finished(&sum(lane)));
        }
        text + "}\n"
    }
}

impl<'a> AttentionProblem<'a> {
    /// That of a kernel, if it is one.
    pub fn new(dialect: &'a Wgsl, kernel: &'a Kernel) -> Option<AttentionProblem<'a>> {
        let AnchorKernel::Attention { query, key, value, bias, axes, scale, softcap, empty } = &kernel.anchor else {
            return None;
        };
        let &AttentionAxes { batch, queries, keys, depth, columns } = axes;
        let operands = [
            (matrix(&Nest::of(query.clone()), [batch, queries, depth]), query.results[0]),
            (matrix(&Nest::of(key.clone()), [batch, keys, depth]), key.results[0]),
            (matrix(&Nest::of(value.clone()), [batch, keys, columns]), value.results[0]),
        ];
        let [b, s, d] = [0, 1, 2].map(|n| operands[0].0.domain[n]);
        let (t, e) = (operands[1].0.domain[1], operands[2].0.domain[2]);
        let bias = bias.as_ref().map(|bias| (matrix(&Nest::of(bias.clone()), [batch, queries, keys]), bias.results[0]));
        Some(AttentionProblem {
            dialect,
            kernel,
            sum: sums(&kernel.bodies()),
            extents: [b, s, t, d, e],
            operands,
            own: matrix(&Nest::new(&kernel.body, &kernel.stores), [batch, queries, columns]),
            bias,
            scale: scale.get(),
            softcap: softcap.get(),
            zeros: *empty == EmptyRow::Zeros || t == 0,
            stored: StoredQueries::of(kernel),
        })
    }

    /// The type of all operands.
    pub fn operand_type(&self) -> Option<DType> {
        let [query, key, value] = [0, 1, 2].map(|n| self.operands[n].0.instrs[self.operands[n].1].dtype());
        (query == key && key == value).then_some(query)
    }

    /// Query, key and value, printed, with at most so many neighbours at once.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn operands(&self, most: usize) -> Result<[PrintedOperand; 3], Vec<String>> {
        let print = |n: usize| {
            let (nest, result) = &self.operands[n];
            let place = (n == 0 && self.stored.is_some()).then(|| query_of("o"));
            PrintedOperand::print(self.dialect, nest, *result, &self.kernel.slots, n == 2, most, place.as_deref())
        };
        Ok([print(0)?, print(1)?, print(2)?])
    }

    /// A number of the type of sums.
    pub fn number(&self, x: f64) -> String {
        self.dialect.literal(x, self.sum)
    }

    /// The score of a key that is hidden.
    pub fn nothing(&self) -> String {
        self.number(f64::NEG_INFINITY)
    }

    /// What a function is called for sums.
    ///
    /// # Errors
    /// When there is none.
    pub fn function(&self, name: &str) -> Result<String, Vec<String>> {
        let sum = self.sum;
        self.dialect.function(name, sum, sum).ok_or_else(|| vec![format!("attention in {sum}: `{name}` on {sum}")])
    }

    /// A sum over its weights' total.
    pub fn finished(&self, sum: &str) -> String {
        let empty = if self.zeros { format!("most == {}", self.nothing()) } else { "false".into() };
        format!("select({sum} / total, {}(0), {empty})", register(self.sum))
    }

    /// Statements that make the `scores` of query `s` and the keys from `t` on, a multiple of [`KEYS`], of the tile from `t0` on; of their products
    /// `x`. Those from `end` on are hidden. They do not branch where they need not, so that reads of several scores wait beside each other.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn scores(&self, tile: &AttentionTile) -> Result<String, Vec<String>> {
        let (nothing, ty, keys) = (self.nothing(), register(self.sum), self.extents[2]);
        let hidden = format!("vec4<{ty}>({nothing})");
        let mut text = match self.softcap {
            0.0 => format!("var scores = x * {};\n", self.number(self.scale)),
            cap => {
                let (tanh, cap, by) = (self.function("tanh")?, self.number(cap), self.number(self.scale / cap));
                let each = ["x", "y", "z", "w"].map(|lane| format!("{tanh}(x.{lane} * {by})")).join(", ");
                format!("var scores = {cap} * vec4<{ty}>({each});\n")
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
            // A hidden key is left out, whatever its score is.
            let more: Vec<String> = values.iter().map(|value| format!("{ty}({value})")).collect();
            let (more, evaluated) = (more.join(", "), emitter.text);
            let with_bias = match count {
                1 => format!(
                    "for (var j = 0; j < {KEYS}; j += 1) {{\nif (t + j < end) {{\nlet keys = t + j;\n{evaluated}let more = {more};\n\
                     scores[j] = select(scores[j] + more, {nothing}, more == {nothing});\n}}\n}}\n"
                ),
                _ => {
                    // Beyond the end is read what the last keys read.
                    let t = if may_end { format!("min(t, {})", keys.saturating_sub(KEYS)) } else { "t".into() };
                    format!(
                        "let keys = i32(u32({t}) / {KEYS}u);\n{evaluated}let more = vec4<{ty}>({more});\n\
                         scores = select(scores + more, {hidden}, more == {hidden});\n"
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

/// Neighbouring keys whose scores are made together.
pub const KEYS: usize = 4;

/// For how many keys at once a bias over `[b s t]` is evaluated: not beyond the end where what it reads there may be no index.
fn together(bias: &Nest) -> usize {
    let by_value = |instr: &Instr| {
        matches!(instr, Instr::Within { .. }) || instr.maps().iter().any(|map| !map.values().is_empty())
    };
    if bias.domain[2].is_multiple_of(KEYS) && !bias.instrs.iter().any(by_value) { KEYS } else { 1 }
}
