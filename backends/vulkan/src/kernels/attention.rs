//! Attention: tiles of scores, the largest of each row so far kept (online softmax; Milakov and Gimelshein 2018); the bias is any expression, and tiles that
//! it hides are left out. Where queries are few, parts of the keys have blocks of their own, and another launch joins them.

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

use super::{
    fma_attention, matrix_attention,
    parts::{Epilogue, PrintedOperand, matrix, sums},
};
use crate::{dialect::Wgsl, library::register};

/// Threads of a block that joins parts of the keys.
const JOINING: usize = 128;
/// Most entries of a text's list of what blocks of queries see; of more blocks, several share one.
const LISTED: usize = 256;

/// Attention to be printed.
pub struct AttentionProblem<'a> {
    pub dialect: &'a Wgsl,
    pub kernel: &'a Kernel,
    /// The type of sums.
    pub sum: DType,
    /// Extents of batch, queries, keys, depth and columns.
    pub extents: [usize; 5],
    /// Query, key and value, each with its result.
    operands: [(Nest, usize); 3],
    own: Nest,
    bias: Option<(Nest, usize)>,
    scale: f64,
    softcap: f64,
    zeros: bool,
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
    /// Whether on matrix units.
    pub on_units: bool,
}

/// A tile's text: what stands before a kernel, and its body.
pub struct AttentionText {
    pub before: String,
    pub body: String,
}

/// What is done with sums: they are divided by their weights' total, or stored for a launch that joins parts of the keys.
pub struct AttentionPoints<'a> {
    problem: &'a AttentionProblem<'a>,
    epilogue: &'a Epilogue,
    parts: usize,
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
        let mut text = format!("if (m < {s} && at_n < {e}) {{\n");
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

/// Prints it.
///
/// # Errors
/// What cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let problem = AttentionProblem::new(dialect, kernel).ok_or_else(|| vec!["no attention".to_string()])?;
    let tile = match matrix_attention::tile(&problem, shape) {
        Some(tile) => tile,
        None => fma_attention::tile(&problem, shape)?,
    };
    problem.print(shape, &tile)
}

impl<'a> AttentionProblem<'a> {
    fn new(dialect: &'a Wgsl, kernel: &'a Kernel) -> Option<AttentionProblem<'a>> {
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
            PrintedOperand::print(self.dialect, nest, *result, &self.kernel.slots, n == 2, most)
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
    fn finished(&self, sum: &str) -> String {
        let empty = if self.zeros { format!("most == {}", self.nothing()) } else { "false".into() };
        format!("select({sum} / total, {}(0), {empty})", register(self.sum))
    }

    /// Statements that make the score of query `s` and key `t`, of the tile from `t0` on, of their product `x`.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn score(&self, tile: &AttentionTile) -> Result<String, Vec<String>> {
        let (scale, nothing) = (self.scale, self.nothing());
        let score = match self.softcap {
            0.0 => format!("x * {}", self.number(scale)),
            cap => {
                let tanh = self.function("tanh")?;
                format!("{} * {tanh}(x * {})", self.number(cap), self.number(scale / cap))
            }
        };
        let Some((nest, result)) = &self.bias else { return Ok(format!("score = {score};\n")) };
        let lanes = SplitAxis { axis: 2, count: 1 };
        let mut emitter = Emitter::new(self.dialect, &self.kernel.slots, nest, &["b", "s", "t"], lanes, "v");
        let value = emitter.value(*result).swap_remove(0);
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        // A hidden key is left out, whatever its score is.
        Ok(format!(
            "let tile = t0 / {};\nif (tile >= seen.z && tile < seen.w) {{ score = {score}; }} else {{\n{}\
             let more = {}({value});\nif (!(more == {nothing})) {{ score = {score} + more; }}\n}}\n",
            tile.keys,
            emitter.text,
            register(self.sum)
        ))
    }

    fn print(&self, shape: &DeviceShape, tile: &AttentionTile) -> Result<Vec<Launch>, Vec<String>> {
        let AttentionProblem { dialect, kernel, sum, extents: [b, s, t, _, e], .. } = *self;
        let AttentionTile { queries: bq, keys: bt, columns: be, threads, .. } = *tile;
        let epilogue = Epilogue::print(dialect, &self.own, &kernel.slots, 4)?;
        let share = s.div_ceil(bq).div_ceil(LISTED).max(1);
        let sees = self.bias.as_ref().and_then(|(nest, result)| seen(nest, *result, [bq * share, bt]));
        let (blocks, chunks) = (s.div_ceil(bq), e.div_ceil(be));
        // Sums, the largest score and the weights' total of each row and part.
        let partial = |parts: usize| parts * b * s * (e + 2);
        let parts = parts_of_keys(shape, b * blocks * chunks, t / bt);
        let parts = if partial(parts) * sum.size() <= shape.workspace { parts } else { 1 };
        let points = AttentionPoints { problem: self, epilogue: &epilogue, parts };
        let of_tile = if tile.on_units {
            matrix_attention::print(&points, self, tile)?
        } else {
            fma_attention::print(&points, self, tile)?
        };
        let mut body = dialect.place("thread", "block");
        body += &format!(
            "\nif (block >= {}) {{ return; }}\nlet s0 = block % {blocks} * {bq};\nlet e0 = block / {blocks} % {chunks} * {be};\n\
             let part = block / {} % {parts};\nlet b = block / {};\nlet seen = sees(block % {blocks} / {share});\n\
             let each = ((seen.y - seen.x + {bt} - 1) / {bt} + {parts} - 1) / {parts} * {bt};\nlet begin = seen.x + part * each;\nlet end = min(begin + each, seen.y);\n",
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
        let text = dialect.text(&slots, threads, &(listed(sees.as_deref(), t) + &of_tile.before), &body);
        let mut launches =
            vec![Launch { workspace, ..Launch::new(text, [blocks * chunks * parts * b, 1, 1], threads) }];
        if parts > 1 {
            let groups = b * s * e / epilogue.lanes();
            let blocks = groups.div_ceil(JOINING).min(shape.processors * 16);
            let text = dialect.text(&slots, JOINING, "", &self.join(&epilogue, parts)?);
            launches.push(Launch { workspace, ..Launch::new(text, [blocks, 1, 1], JOINING) });
        }
        Ok(launches)
    }

    /// A kernel's body that joins the parts of a row, by the largest score of all.
    fn join(&self, epilogue: &Epilogue, parts: usize) -> Result<String, Vec<String>> {
        let AttentionProblem { dialect, kernel, sum, extents: [b, s, _, _, e], .. } = *self;
        let (ty, nothing, lanes) = (register(sum), self.nothing(), epilogue.lanes());
        let (max, exp) = (self.function("max_of")?, self.function("exp")?);
        let load = |at: &str| dialect.load(kernel.slots.len(), at);
        let of_part = b * s * (e + 2);
        let mut body = dialect.each_point("i", b * s * e / lanes, JOINING);
        body += &format!(
            "let at = i * {lanes};\nlet b = at / {};\nlet m = at / {e} % {s};\nlet at_n = at % {e};\nlet first = (b * {s} + m) * {};\n\
             var most = {nothing};\nfor (var part = 0; part < {parts}; part += 1) {{ most = {max}(most, {}); }}\n\
             let base = select(most, {ty}(0), most == {nothing});\nvar total = {ty}(0);\n",
            s * e,
            e + 2,
            load(&format!("first + part * {of_part} + {e}")),
        );
        (0..lanes).for_each(|lane| body += &format!("var s{lane} = {ty}(0);\n"));
        body += &format!(
            "for (var part = 0; part < {parts}; part += 1) {{\nlet of_part = first + part * {of_part};\nlet w = {exp}({} - base);\ntotal += w * {};\n",
            load(&format!("of_part + {e}")),
            load(&format!("of_part + {}", e + 1)),
        );
        (0..lanes).for_each(|n| body += &format!("s{n} += w * {};\n", load(&format!("of_part + at_n + {n}"))));
        body += "}\n";
        body += &epilogue.at(|lane| self.finished(&format!("s{lane}")));
        Ok(body + "}\n")
    }
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
