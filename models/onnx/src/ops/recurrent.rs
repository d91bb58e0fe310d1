//! Recurrent layers. Each direction is a loop over the steps of a sequence, which carries the states and multiplies
//! them by R. The products of all inputs with W are one matrix product before the loop.

use eutectic_ir::{DType, NodeId, Type};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    integer::{Quantized, Ranges, dynamic_product},
    row::{OpRow, Outputs, many},
};

pub(super) const OPS: &[OpRow] = &[
    many("RNN", 7, |c| recurrent(c, &SIMPLE, false)),
    many("GRU", 7, |c| recurrent(c, &GRU, false)),
    many("LSTM", 7, |c| recurrent(c, &LSTM, false)),
];

/// The ops of `com.microsoft`.
pub(super) const QUANTISED: &[OpRow] = &[many("DynamicQuantizeLSTM", 1, |c| recurrent(c, &LSTM, true))];

const SIMPLE: RecurrentLayer = RecurrentLayer { gates: 1, functions: &["Tanh"], states: 1, step: simple_step };
const GRU: RecurrentLayer = RecurrentLayer { gates: 3, functions: &["Sigmoid", "Tanh"], states: 1, step: gru_step };
const LSTM: RecurrentLayer =
    RecurrentLayer { gates: 4, functions: &["Sigmoid", "Tanh", "Tanh"], states: 2, step: lstm_step };

/// A kind of recurrent layer.
struct RecurrentLayer {
    /// The number of gates. Each gate has `hidden` rows of W and of R.
    gates: usize,
    /// The default activations of the gates.
    functions: &'static [&'static str],
    /// The number of carried values: H, or H and C.
    states: usize,
    /// Computes the next states. The arguments are x·Wᵀ + bias of the step, and the states.
    step: fn(&mut NodeCall<'_, '_>, &Direction<'_>, NodeId, &[NodeId]) -> Outputs,
}

/// An activation with its parameters.
struct GateFunction {
    name: String,
    alpha: f64,
    beta: f64,
}

/// The right operand of a matrix product, either floats or 8-bit integers.
#[derive(Clone, Copy)]
struct Matrix {
    /// The elements [K N].
    value: NodeId,
    /// The scale and the zero point of 8-bit elements, for the whole matrix or for each column. The rows of the left
    /// operand are then quantised before the product.
    decode: Option<[NodeId; 2]>,
}

/// The parameters of one direction. All steps share them.
struct Direction<'a> {
    /// The number of elements of a state.
    hidden: usize,
    /// Rᵀ [H, gates·H], as a value of the loop's body.
    r: Matrix,
    /// The bias [H] that a GRU adds to the product with R before the reset gate multiplies it. `None` if there is none.
    bias: Option<NodeId>,
    /// The peephole weights P [3·H] of the gates i, o and f.
    peepholes: Option<NodeId>,
    activations: &'a [GateFunction],
    clip: Option<f64>,
    /// In a GRU, whether the reset gate is applied after the product with R. In an LSTM, whether the forget gate is 1
    /// minus the input gate.
    flag: bool,
}

/// Imports a recurrent layer. The inputs are X, W, R, B, sequence lengths, initial states and peepholes. The outputs
/// are the states H of all steps, and the last states. If `quantised`, W and R are transposed, and their scales and
/// zero points are the last inputs.
fn recurrent(c: &mut NodeCall<'_, '_>, cell: &RecurrentLayer, quantised: bool) -> Outputs {
    let (mut x, w, r) = (c.input(0)?, c.input(1)?, c.input(2)?);
    // With `layout` 1, the batch is the first axis of X and of the states, and of Y.
    let batch_first = c.flag("layout")?;
    if c.rank(x) != 3 || c.rank(w) != 3 || c.rank(r) != 3 {
        return Err("its inputs X, W and R must have three axes each".into());
    }
    if batch_first {
        x = c.transpose(x, &[1, 0, 2])?;
    }
    let [times, batch, inputs] = c.dims(x)[..] else { return Err("its input X must have three axes".into()) };
    let (directions, hidden) = (c.dims(r)[0], c.dims(r)[if quantised { 1 } else { 2 }]);
    let reversed: &[bool] = match c.word("direction")?.unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(format!("its direction is `{other}`; it must be forward, reverse or bidirectional").into()),
    };
    let rows = cell.gates * hidden;
    let expected = |terms: usize| if quantised { [directions, terms, rows] } else { [directions, rows, terms] };
    if reversed.len() != directions || c.dims(w) != expected(inputs) || c.dims(r) != expected(hidden) {
        let (w, r) = (c.dims(w), c.dims(r));
        return Err(format!(
            "its weights of extents {w:?} and {r:?} do not fit the input size {inputs} and the number of directions {}",
            reversed.len()
        )
        .into());
    }
    if c.int("hidden_size")?.is_some_and(|n| usize::try_from(n) != Ok(hidden)) {
        return Err(format!("its hidden_size is not {hidden}, the last extent of R").into());
    }
    let activations = activations(c, cell, directions)?;
    let flag = c.flag("linear_before_reset")? || c.flag("input_forget")?;
    let clip = c.float("clip")?.filter(|clip| *clip > 0.0);
    let lengths = c.optional(4);
    let mut all = Vec::new();
    let mut last: Vec<Vec<NodeId>> = vec![Vec::new(); cell.states];
    for (at, &reverse) in reversed.iter().enumerate() {
        let of = |c: &mut NodeCall<'_, '_>, value: NodeId, axis: usize| of_direction(c, value, axis, at);
        let mut starts = Vec::new();
        for state in 0..cell.states {
            starts.push(match c.optional(5 + state) {
                Some(given) => of(c, given, usize::from(batch_first))?,
                None => c.full(0.0, c.dtype(x), &[batch, hidden])?,
            });
        }
        let after = quantised.then_some(6 + cell.states);
        let (w, r) = (Matrix::read(c, w, after, at)?, Matrix::read(c, r, after.map(|first| first + 2), at)?);
        let bias = c.optional(3).map(|b| of(c, b, 0)).transpose()?;
        let peepholes = c.optional(5 + cell.states).filter(|_| cell.gates == 4).map(|p| of(c, p, 0)).transpose()?;
        let x = if reverse { turned(c, x, lengths)? } else { x };
        // Computes x·Wᵀ + b for all steps. The bias that the reset gate of a GRU multiplies is not part of b.
        let inside = if cell.gates == 3 && flag { hidden } else { 0 };
        let flat = c.reshape(x, &[times * batch, inputs])?;
        let mut product = w.product_of(c, flat, Ranges::Tensor)?;
        let mut kept = None;
        if let Some(bias) = bias {
            let (of_w, of_r) = (c.slice(bias, 0, 0, rows)?, c.slice(bias, 0, rows, rows)?);
            let outside = c.slice(of_r, 0, 0, rows - inside)?;
            let outside = super::slicing::zeros_around(c, outside, 0, [0, inside])?;
            let sum = c.apply("add", [of_w, outside])?;
            product = c.apply("add", [product, sum])?;
            kept = (inside > 0).then(|| c.slice(of_r, 0, rows - inside, inside)).transpose()?;
        }
        let product = c.reshape(product, &[times, batch, rows])?;
        let mut scanned = vec![product];
        if let Some(lengths) = lengths {
            scanned.push(running(c, times, batch, lengths)?);
        }
        let types: Vec<Type> = starts.iter().map(|start| c.ty(*start)).collect();
        let part = Type::tensor(c.dtype(x), &[batch, rows]);
        let body = c.body("step", |c| {
            let states = types.into_iter().map(|ty| c.body_input(ty)).collect::<Result<Vec<_>, _>>()?;
            let x = c.body_input(part)?;
            let runs = lengths.map(|_| c.body_input(Type::tensor(DType::Bool, &[batch, 1]))).transpose()?;
            let step = Direction {
                hidden,
                r: r.try_map(|value| c.capture(value))?,
                bias: kept.map(|b| c.capture(b)).transpose()?,
                peepholes: peepholes.map(|p| c.capture(p)).transpose()?,
                activations: &activations[at * cell.functions.len()..][..cell.functions.len()],
                clip,
                flag,
            };
            let mut next = (cell.step)(c, &step, x, &states)?;
            let mut y = next[0];
            if let Some(runs) = runs {
                // After the end of a sequence, the states stay as they are, and the outputs are zero.
                let zero = c.number(0.0, y)?;
                y = c.apply("where", [runs, y, zero])?;
                for (next, last) in next.iter_mut().zip(&states) {
                    *next = c.apply("where", [runs, *next, *last])?;
                }
            }
            next.push(y);
            Ok(next)
        })?;
        let mut results = c.looped(body, times, &starts, &scanned, None)?;
        let y = results.pop().ok_or("its step returns no state")?;
        let y = if reverse { turned(c, y, lengths)? } else { y };
        all.push(c.reshape(y, &[times, 1, batch, hidden])?);
        for (last, result) in last.iter_mut().zip(results) {
            last.push(c.reshape(result, &[1, batch, hidden])?);
        }
    }
    let y = c.concat(&all, 1)?;
    let mut outputs = vec![if batch_first { c.transpose(y, &[2, 0, 1, 3])? } else { y }];
    for last in last {
        let state = c.concat(&last, 0)?;
        outputs.push(if batch_first { c.transpose(state, &[1, 0, 2])? } else { state });
    }
    Ok(outputs)
}

/// Selects a direction and removes the axis of directions from the shape.
fn of_direction(c: &mut NodeCall<'_, '_>, value: NodeId, axis: usize, direction: usize) -> NodeResult {
    let one = c.slice(value, axis, direction, 1)?;
    let mut dims = c.dims(one);
    dims.remove(axis);
    c.reshape(one, &dims)
}

impl Matrix {
    /// Reads the matrix of a direction. `decode` is the input with the scale; the next input is the zero point.
    fn read(
        c: &mut NodeCall<'_, '_>,
        value: NodeId,
        decode: Option<usize>,
        direction: usize,
    ) -> Result<Matrix, NodeError> {
        let value = of_direction(c, value, 0, direction)?;
        let Some(at) = decode else { return Ok(Matrix { value: c.transpose(value, &[1, 0])?, decode: None }) };
        let mut number = |at: usize| {
            let all = c.input(at)?;
            of_direction(c, all, 0, direction)
        };
        Ok(Matrix { value, decode: Some([number(at)?, number(at + 1)?]) })
    }

    /// Applies a function to the elements, the scale and the zero point.
    fn try_map(self, mut map: impl FnMut(NodeId) -> NodeResult) -> Result<Matrix, NodeError> {
        let decode = self.decode.map(|[scale, zero]| Ok::<_, NodeError>([map(scale)?, map(zero)?])).transpose()?;
        Ok(Matrix { value: map(self.value)?, decode })
    }

    /// Returns `count` columns, starting at `at`.
    fn columns(self, c: &mut NodeCall<'_, '_>, at: usize, count: usize) -> Result<Matrix, NodeError> {
        self.try_map(|value| {
            let last = c.rank(value).checked_sub(1);
            last.map_or(Ok(value), |last| c.slice(value, last, at, count))
        })
    }

    /// Multiplies states by the matrix. The state of each sequence is quantised by its own range, so results do not
    /// depend on other sequences of the batch. ONNX Runtime does the same if each sequence has its own thread.
    fn product(self, c: &mut NodeCall<'_, '_>, states: NodeId) -> NodeResult {
        self.product_of(c, states, Ranges::Row)
    }

    /// Multiplies rows by the matrix. `ranges` selects which elements of quantised rows share a scale.
    fn product_of(self, c: &mut NodeCall<'_, '_>, rows: NodeId, ranges: Ranges) -> NodeResult {
        match self.decode {
            None => c.apply("matmul", [rows, self.value]),
            Some([scale, zero]) => {
                let matrix = Quantized { value: self.value, zero: Some(zero) };
                dynamic_product(c, (rows, ranges), matrix, scale)
            }
        }
    }
}

/// Returns the activations of all directions. The lists `activation_alpha` and `activation_beta` have entries only for
/// activations with that parameter.
fn activations(c: &NodeCall<'_, '_>, cell: &RecurrentLayer, directions: usize) -> Result<Vec<GateFunction>, NodeError> {
    let count = directions * cell.functions.len();
    let names: Vec<String> = match c.words("activations")? {
        Some(names) if names.len() == count => names.into_iter().map(str::to_lowercase).collect(),
        Some(names) => return Err(format!("it has {} activations, but must have {count}", names.len()).into()),
        None => cell.functions.iter().cycle().take(count).map(|name| name.to_lowercase()).collect(),
    };
    let mut alphas = c.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = c.floats("activation_beta")?.unwrap_or_default().into_iter();
    let activation = |name: String| {
        let (alpha, beta) = match name.as_str() {
            "tanh" | "sigmoid" | "relu" | "softsign" | "softplus" => (None, None),
            "affine" | "scaledtanh" => (Some(1.0), Some(if name == "affine" { 0.0 } else { 1.0 })),
            "leakyrelu" => (Some(0.01), None),
            "thresholdedrelu" | "elu" => (Some(1.0), None),
            "hardsigmoid" => (Some(0.2), Some(0.5)),
            other => return Err(NodeError(format!("its activation `{other}` is not supported"))),
        };
        let given = |default: Option<f64>, list: &mut std::vec::IntoIter<f64>| {
            default.map_or(0.0, |default| list.next().unwrap_or(default))
        };
        Ok(GateFunction { alpha: given(alpha, &mut alphas), beta: given(beta, &mut betas), name })
    };
    names.into_iter().map(activation).collect()
}

/// Reverses each sequence of x [T B K]. If lengths [B] are given, elements after the end of a sequence keep their
/// place.
fn turned(c: &mut NodeCall<'_, '_>, x: NodeId, lengths: Option<NodeId>) -> NodeResult {
    let [times, batch, width] = c.dims(x)[..] else { return Err("its sequences must have three axes".into()) };
    let Some(lengths) = lengths else { return c.slice_by(x, 0, times as i64 - 1, times, -1) };
    let lengths = c.cast(lengths, DType::I64)?;
    let at = c.iota(&[times, batch], 0, DType::I64)?;
    let last = c.with("sub", lengths, 1.0)?;
    let from_end = c.apply("sub", [last, at])?;
    let inside = c.apply("lt", [at, lengths])?;
    let from = c.apply("where", [inside, from_end, at])?;
    let from = c.with("mul", from, batch as f64)?;
    let column = c.iota(&[times, batch], 1, DType::I64)?;
    let row = c.apply("add", [from, column])?;
    let rows = c.reshape(x, &[times * batch, width])?;
    c.op("gather", &[rows, row], &[("axis", 0.into())])
}

/// Returns whether each step [T B 1] is before the end of its sequence.
fn running(c: &mut NodeCall<'_, '_>, times: usize, batch: usize, lengths: NodeId) -> NodeResult {
    let lengths = c.cast(lengths, DType::I64)?;
    let lengths = c.reshape(lengths, &[batch, 1])?;
    let at = c.iota(&[times, batch, 1], 0, DType::I64)?;
    c.apply("lt", [at, lengths])
}

impl GateFunction {
    fn of(&self, c: &mut NodeCall<'_, '_>, x: NodeId, clip: Option<f64>) -> NodeResult {
        let x = match clip {
            Some(clip) => c.op("clamp", &[x], &[("min", (-clip).into()), ("max", clip.into())])?,
            None => x,
        };
        let act = |c: &mut NodeCall<'_, '_>, kind: &str| c.op("act", &[x], &[("kind", kind.into())]);
        match self.name.as_str() {
            "tanh" => c.apply("tanh", [x]),
            "sigmoid" => c.apply("sigmoid", [x]),
            "relu" => act(c, "relu"),
            "affine" => {
                let scaled = c.with("mul", x, self.alpha)?;
                c.with("add", scaled, self.beta)
            }
            "scaledtanh" => {
                let scaled = c.with("mul", x, self.beta)?;
                let y = c.apply("tanh", [scaled])?;
                c.with("mul", y, self.alpha)
            }
            "hardsigmoid" => {
                let scaled = c.with("mul", x, self.alpha)?;
                let moved = c.with("add", scaled, self.beta)?;
                c.op("clamp", &[moved], &[("min", 0.0.into()), ("max", 1.0.into())])
            }
            "softsign" => {
                let size = c.apply("abs", [x])?;
                let below = c.with("add", size, 1.0)?;
                c.apply("div", [x, below])
            }
            "softplus" => c.apply("softplus", [x]),
            name => {
                let (limit, other) = match name {
                    "thresholdedrelu" => (self.alpha, c.number(0.0, x)?),
                    "elu" => {
                        let less = c.apply("expm1", [x])?;
                        (0.0, c.with("mul", less, self.alpha)?)
                    }
                    _ => (0.0, c.with("mul", x, self.alpha)?),
                };
                let above = c.with("gt", x, limit)?;
                c.apply("where", [above, x, other])
            }
        }
    }
}

impl Direction<'_> {
    fn activation(&self, c: &mut NodeCall<'_, '_>, at: usize, x: NodeId) -> NodeResult {
        self.activations[at].of(c, x, self.clip)
    }

    /// Returns gate `at` of a value [B, gates·H].
    fn gate(&self, c: &mut NodeCall<'_, '_>, x: NodeId, at: usize) -> NodeResult {
        c.slice(x, 1, at * self.hidden, self.hidden)
    }

    /// Adds the product of a state with the peephole weights of gate `at` to x.
    fn peep(&self, c: &mut NodeCall<'_, '_>, x: NodeId, at: usize, state: NodeId) -> NodeResult {
        let Some(peepholes) = self.peepholes else { return Ok(x) };
        let p = c.slice(peepholes, 0, at * self.hidden, self.hidden)?;
        let share = c.apply("mul", [state, p])?;
        c.apply("add", [x, share])
    }
}

/// Computes H' = f(x + H·Rᵀ).
fn simple_step(c: &mut NodeCall<'_, '_>, step: &Direction<'_>, x: NodeId, states: &[NodeId]) -> Outputs {
    let product = step.r.product(c, states[0])?;
    let sum = c.apply("add", [x, product])?;
    Ok(vec![step.activation(c, 0, sum)?])
}

/// Computes H' = (1 − z)·n + z·H, where z is the update gate and n the candidate. The reset gate r is applied to H, or
/// to the product of H with R.
fn gru_step(c: &mut NodeCall<'_, '_>, step: &Direction<'_>, x: NodeId, states: &[NodeId]) -> Outputs {
    let (h, hidden) = (states[0], step.hidden);
    let (candidate, gates) = if step.flag {
        let product = step.r.product(c, h)?;
        (Some(step.gate(c, product, 2)?), c.slice(product, 1, 0, 2 * hidden)?)
    } else {
        let gates = step.r.columns(c, 0, 2 * hidden)?;
        (None, gates.product(c, h)?)
    };
    let of_x = c.slice(x, 1, 0, 2 * hidden)?;
    let gates = c.apply("add", [of_x, gates])?;
    let gates = step.activation(c, 0, gates)?;
    let (z, r) = (step.gate(c, gates, 0)?, step.gate(c, gates, 1)?);
    let inner = match candidate {
        Some(product) => {
            let product = match step.bias {
                Some(bias) => c.apply("add", [product, bias])?,
                None => product,
            };
            c.apply("mul", [r, product])?
        }
        None => {
            let reset = c.apply("mul", [r, h])?;
            let columns = step.r.columns(c, 2 * hidden, hidden)?;
            columns.product(c, reset)?
        }
    };
    let of_x = step.gate(c, x, 2)?;
    let sum = c.apply("add", [of_x, inner])?;
    let new = step.activation(c, 1, sum)?;
    let one = c.number(1.0, z)?;
    let rest = c.apply("sub", [one, z])?;
    let (fresh, old) = (c.apply("mul", [rest, new])?, c.apply("mul", [z, h])?);
    Ok(vec![c.apply("add", [fresh, old])?])
}

/// Computes C' = f·C + i·g and H' = o·h(C'), where h is the third activation. In x and the products, the gates i, o, f
/// and the candidate g have this order.
fn lstm_step(c: &mut NodeCall<'_, '_>, step: &Direction<'_>, x: NodeId, states: &[NodeId]) -> Outputs {
    let (h, cell) = (states[0], states[1]);
    let product = step.r.product(c, h)?;
    let gates = c.apply("add", [x, product])?;
    let mut gate = |at| step.gate(c, gates, at);
    let (i, o, f, g) = (gate(0)?, gate(1)?, gate(2)?, gate(3)?);
    let i = step.peep(c, i, 0, cell)?;
    let i = step.activation(c, 0, i)?;
    let f = if step.flag {
        let one = c.number(1.0, i)?;
        c.apply("sub", [one, i])?
    } else {
        let f = step.peep(c, f, 2, cell)?;
        step.activation(c, 0, f)?
    };
    let g = step.activation(c, 1, g)?;
    let (kept, new) = (c.apply("mul", [f, cell])?, c.apply("mul", [i, g])?);
    let next = c.apply("add", [kept, new])?;
    let o = step.peep(c, o, 1, next)?;
    let o = step.activation(c, 0, o)?;
    let shown = step.activations[2].of(c, next, None)?;
    Ok(vec![c.apply("mul", [o, shown])?, next])
}
