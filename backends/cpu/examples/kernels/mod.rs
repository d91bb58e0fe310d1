//! The kernels that the examples measure, as models have them, and programs of one kernel with data.

use eutectic_backend::{
    AnchorKernel, AttentionAxes, Backend, Body, Buffer, EmptyRow, Instr, Kernel, Load, Place, Program, ScoreForm,
    Session, Step, Store,
};
use eutectic_cpu::Cpu;
use eutectic_ir::{
    Attr, DType, Op, Origin, Tensor, Type,
    index::{Atom, Index, flatten},
    ops::Reduction,
};

fn push(b: &mut Body, instr: Instr) -> usize {
    b.instrs.push(instr);
    b.instrs.len() - 1
}

fn map(b: &mut Body, op: &str, attrs: &[Attr], args: &[usize]) -> usize {
    let op = Op::named(op).expect("an op");
    push(b, Instr::Map { op, attrs: attrs.iter().cloned().collect(), args: args.to_vec(), dtype: DType::F32 })
}

fn number(b: &mut Body, x: f64) -> usize {
    push(b, Instr::Constant { value: x.into(), dtype: DType::F32 })
}

fn reduce(b: &mut Body, how: Reduction, arg: usize) -> usize {
    push(b, Instr::reduce(how, arg, DType::F32))
}

fn dense(domain: &[usize]) -> Index {
    flatten(&(0..domain.len()).map(Index::coord).collect::<Vec<_>>(), domain)
}

fn load(b: &mut Body, slot: usize, at: Index) -> usize {
    push(b, Instr::Load(Load { slot, at, guards: Vec::new(), dtype: DType::F32 }))
}

fn body(domain: &[usize]) -> Body {
    Body { domain: domain.to_vec(), ..Body::default() }
}

fn operand(slot: usize, domain: &[usize], at: Index) -> Body {
    let mut b = body(domain);
    let x = load(&mut b, slot, at);
    b.results = vec![x];
    b
}

/// Returns a product `[m k] · [k n]` with a bias, and optionally with a gelu and a residual.
pub fn linear(m: usize, n: usize, k: usize, gelu: bool, residual: bool) -> Kernel {
    let mut b = body(&[m, n]);
    let mut y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let bias = load(&mut b, 2, Index::coord(1));
    y = map(&mut b, "add", &[], &[y, bias]);
    if gelu {
        y = map(&mut b, "act", &["gelu-erf".into()], &[y]);
    }
    if residual {
        let r = load(&mut b, 4, dense(&[m, n]));
        y = map(&mut b, "add", &[], &[y, r]);
    }
    let anchor = AnchorKernel::product(operand(0, &[m, k], dense(&[m, k])), operand(1, &[k, n], dense(&[k, n])));
    let stores = vec![Store::new(3, dense(&[m, n]), y)];
    let counts = [m * k, k * n, n, m * n, m * n];
    let used = if residual { 5 } else { 4 };
    Kernel { anchor, body: b, stores, slots: counts[..used].iter().map(|&c| (DType::F32, c)).collect() }
}

/// Returns a product `[m k] · [k n]` whose weights have a narrower type and are converted to `f32`. If `along_sums` is
/// set, memory has them as a matrix `[n k]`.
pub fn converted(m: usize, n: usize, k: usize, dtype: DType, along_sums: bool) -> Kernel {
    let at = match along_sums {
        true => Index::coord(1).times(k as i64).plus(&Index::coord(0)),
        false => dense(&[k, n]),
    };
    let mut weights = body(&[k, n]);
    let x = push(&mut weights, Instr::Load(Load { slot: 1, at, guards: Vec::new(), dtype }));
    weights.results = vec![map(&mut weights, "cast", &[Attr::DType(DType::F32)], &[x])];
    let mut b = body(&[m, n]);
    let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let anchor = AnchorKernel::product(operand(0, &[m, k], dense(&[m, k])), weights);
    let stores = vec![Store::new(2, dense(&[m, n]), y)];
    Kernel { anchor, body: b, stores, slots: vec![(DType::F32, m * k), (dtype, k * n), (DType::F32, m * n)] }
}

/// Returns an attention that reads queries, keys and values as views of one buffer `[s 3 h d]`, and writes `[s h d]`.
pub fn attention(h: usize, s: usize, d: usize) -> Kernel {
    let at = |which: usize| {
        Index::coord(1)
            .times((3 * h * d) as i64)
            .plus(&Index::coord(0).times(d as i64))
            .plus(&Index::coord(2))
            .plus(&Index::constant((which * h * d) as i64))
    };
    let [query, key, value] = [0, 1, 2].map(|which| operand(0, &[h, s, d], at(which)));
    let bias = Some(operand(1, &[h, s, s], Index::coord(2)));
    let mut b = body(&[h, s, d]);
    let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let out = Index::coord(1).times((h * d) as i64).plus(&Index::coord(0).times(d as i64)).plus(&Index::coord(2));
    let form = ScoreForm { scale: 1.0 / (d as f64).sqrt(), softcap: 0.0, empty: EmptyRow::Nan };
    let anchor = AnchorKernel::attention([query, key, value], bias, AttentionAxes::matrices(1), form);
    let stores = vec![Store::new(2, out, y)];
    Kernel { anchor, body: b, stores, slots: [s * 3 * h * d, s, s * h * d].map(|c| (DType::F32, c)).to_vec() }
}

/// Adds the normalised rows of x, times the row of slot 1, plus the row of slot 2, to a body.
fn normalised(b: &mut Body, x: usize, n: usize) -> usize {
    let (count, eps) = (number(b, 1.0 / n as f64), number(b, 1e-12));
    let sum = reduce(b, Reduction::Sum, x);
    let mean = map(b, "mul", &[], &[sum, count]);
    let x = map(b, "sub", &[], &[x, mean]);
    let square = map(b, "mul", &[], &[x, x]);
    let sum = reduce(b, Reduction::Sum, square);
    let var = map(b, "mul", &[], &[sum, count]);
    let var = map(b, "add", &[], &[var, eps]);
    let inverse = map(b, "rsqrt", &[], &[var]);
    let x = map(b, "mul", &[], &[x, inverse]);
    let (g, o) = (load(b, 1, Index::coord(1)), load(b, 2, Index::coord(1)));
    let x = map(b, "mul", &[], &[x, g]);
    map(b, "add", &[], &[x, o])
}

/// Returns a layer norm, which is applied to a softmax if `of_softmax` is set.
pub fn layernorm(m: usize, n: usize, of_softmax: bool) -> Kernel {
    let mut b = body(&[m, n]);
    let mut x = load(&mut b, 0, dense(&[m, n]));
    if of_softmax {
        x = weights(&mut b, x);
    }
    let x = normalised(&mut b, x, n);
    let stores = vec![Store::new(3, dense(&[m, n]), x)];
    Kernel {
        anchor: AnchorKernel::rows(1),
        body: b,
        stores,
        slots: [m * n, n, n, m * n].map(|c| (DType::F32, c)).to_vec(),
    }
}

/// Returns a layer norm of rows of a table with `words` rows. The indices of the rows are all zero.
pub fn embedding(m: usize, n: usize, words: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let at = Load { slot: 4, at: Index::coord(0), guards: Vec::new(), dtype: DType::I64 };
    let arg = push(&mut b, Instr::Load(at));
    let (extent, from_end, check, guards, dtype) = (words.into(), false, 0, Vec::new(), DType::I64);
    let id = push(&mut b, Instr::Within { arg, extent, from_end, check, guards, dtype });
    let x = load(&mut b, 0, Index::atom(Atom::Value(id)).times(n as i64).plus(&Index::coord(1)));
    let x = normalised(&mut b, x, n);
    let stores = vec![Store::new(3, dense(&[m, n]), x)];
    let mut slots = [words * n, n, n, m * n].map(|c| (DType::F32, c)).to_vec();
    slots.push((DType::I64, m));
    Kernel { anchor: AnchorKernel::rows(1), body: b, stores, slots }
}

/// Returns the pointwise kernel gelu(x·a + b)·sigmoid(c) + d.
pub fn pointwise(n: usize) -> Kernel {
    let mut b = body(&[n]);
    let [x, a, o, c, d] = [0, 1, 2, 3, 4].map(|slot| load(&mut b, slot, Index::coord(0)));
    let y = map(&mut b, "mul", &[], &[x, a]);
    let y = map(&mut b, "add", &[], &[y, o]);
    let y = map(&mut b, "act", &["gelu-erf".into()], &[y]);
    let gate = map(&mut b, "sigmoid", &[], &[c]);
    let y = map(&mut b, "mul", &[], &[y, gate]);
    let y = map(&mut b, "add", &[], &[y, d]);
    let stores = vec![Store::new(5, Index::coord(0), y)];
    Kernel { anchor: AnchorKernel::map(), body: b, stores, slots: vec![(DType::F32, n); 6] }
}

/// Adds the softmax of the rows of x to a body.
fn weights(b: &mut Body, x: usize) -> usize {
    let largest = reduce(b, Reduction::Max, x);
    let x = map(b, "sub", &[], &[x, largest]);
    let x = map(b, "exp", &[], &[x]);
    let sum = reduce(b, Reduction::Sum, x);
    map(b, "div", &[], &[x, sum])
}

pub fn softmax(m: usize, n: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let x = load(&mut b, 0, dense(&[m, n]));
    let x = weights(&mut b, x);
    let stores = vec![Store::new(1, dense(&[m, n]), x)];
    let slots = [m * n, m * n].map(|c| (DType::F32, c)).to_vec();
    Kernel { anchor: AnchorKernel::rows(1), body: b, stores, slots }
}

/// Returns a kernel that applies a function of one argument `times` times to each of n elements.
pub fn chain(op: &str, attrs: &[Attr], times: usize, n: usize) -> Kernel {
    let mut b = body(&[n]);
    let mut x = load(&mut b, 0, Index::coord(0));
    for _ in 0..times {
        x = map(&mut b, op, attrs, &[x]);
    }
    let stores = vec![Store::new(1, Index::coord(0), x)];
    Kernel { anchor: AnchorKernel::map(), body: b, stores, slots: vec![(DType::F32, n); 2] }
}

pub fn transpose(m: usize, n: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let x = load(&mut b, 0, Index::coord(1).times(m as i64).plus(&Index::coord(0)));
    let stores = vec![Store::new(1, dense(&[m, n]), x)];
    Kernel { anchor: AnchorKernel::map(), body: b, stores, slots: vec![(DType::F32, m * n); 2] }
}

/// Returns a kernel that transposes an image `[c h w]` to `[h w c]` and adds a margin of zeros.
pub fn margin(c: usize, h: usize, w: usize) -> Kernel {
    let mut b = body(&[h + 2, w + 2, c]);
    let at = flatten(&[2, 0, 1].map(Index::coord), &[c, h, w]).plus(&Index::constant(-(w as i64) - 1));
    let [rows, columns] = [(0, h), (1, w)].map(|(axis, n)| (Index::coord(axis), 1..n as i64 + 1));
    let guards = vec![rows.clone(), columns.clone()];
    let mut x = push(&mut b, Instr::Load(Load { slot: 0, at, guards, dtype: DType::F32 }));
    for guard in [rows, columns] {
        x = push(&mut b, Instr::Select { pieces: vec![(vec![guard], x)], fill: 0.0.into(), dtype: DType::F32 });
    }
    let stores = vec![Store::new(1, dense(&b.domain), x)];
    let slots = [c * h * w, (h + 2) * (w + 2) * c].map(|n| (DType::F32, n)).to_vec();
    Kernel { anchor: AnchorKernel::map(), body: b, stores, slots }
}

/// Returns a max pool over windows of 3 × 3 at stride 2 of an image `[2h+1 2w+1 c]`.
pub fn max_pool(h: usize, w: usize, c: usize) -> Kernel {
    let mut b = body(&[h, w, c, 3, 3]);
    let place = |axis: usize, window: usize| Index::coord(axis).times(2).plus(&Index::coord(window));
    let at = flatten(&[place(0, 3), place(1, 4), Index::coord(2)], &[2 * h + 1, 2 * w + 1, c]);
    let x = load(&mut b, 0, at);
    let x = reduce(&mut b, Reduction::Max, x);
    let stores = vec![Store::new(1, dense(&[h, w, c]), x)];
    let slots = [(2 * h + 1) * (2 * w + 1) * c, h * w * c].map(|n| (DType::F32, n)).to_vec();
    Kernel { anchor: AnchorKernel::rows(2), body: b, stores, slots }
}

/// A program of one kernel, with its data.
pub struct Single {
    session: Box<dyn Session>,
    inputs: Vec<Tensor>,
    outputs: Vec<Vec<u8>>,
    /// The number of distinct bytes that the kernel reads.
    pub read: usize,
    /// The number of distinct bytes that the kernel writes.
    pub written: usize,
}

impl Single {
    pub fn new(cpu: &Cpu, kernel: &Kernel) -> Single {
        let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
        let stored = |slot: usize| kernel.stores.iter().any(|s| s.slot == slot);
        // Weights do not change between runs.
        let constant = |slot: usize| slot == 1 && kernel.contraction().is_some();
        // A kernel reads at most one element of a table for each point of the domain.
        let points = |slot: usize| {
            let reads = |body: &&Body| body.instrs.iter().any(|i| matches!(i, Instr::Load(load) if load.slot == slot));
            kernel.bodies().into_iter().filter(reads).map(|body| body.domain.iter().product()).max()
        };
        let (mut read, mut written) = (0, 0);
        for (slot, &(dtype, count)) in kernel.slots.iter().enumerate() {
            let (ports, place, bytes): (_, fn(usize) -> Place, _) = match slot {
                s if stored(s) => (&mut program.outputs, Place::Output, &mut written),
                s if constant(s) => (&mut program.params, Place::Param, &mut read),
                _ => (&mut program.inputs, Place::Input, &mut read),
            };
            *bytes += dtype.size() * points(slot).map_or(count, |points: usize| points.min(count));
            let place = place(ports.len());
            ports.push((format!("{slot}"), Type::tensor(dtype, &[count])));
            program.buffers.push(Buffer { dtype, count, place });
        }
        let buffers = (0..kernel.slots.len()).collect();
        program.run.push(Step::new(0, buffers, Origin::default()));
        let executable = cpu.compile(&program).expect("all kernels of this file compile");
        let tensor = |(_, ty): &(String, Type)| {
            let (n, dtype) = (ty.count(), ty.dtype().unwrap_or(DType::F32));
            // Integer tensors are filled with 0, because kernels use them as indices, and 0 is always in bounds.
            let numbers = (0..n).map(|i| if dtype.is_float() { (i % 97) as f64 / 50.0 - 1.0 } else { 0.0 });
            Tensor::from_f64(dtype, &[n], numbers)
        };
        let params: Vec<_> = program.params.iter().map(tensor).collect();
        let session = executable.load(&params).expect("the parameters fit").session().expect("memory suffices");
        let inputs = program.inputs.iter().map(tensor).collect();
        let outputs = program.outputs.iter().map(|o| vec![0; o.1.bytes()]).collect();
        Single { session, inputs, outputs, read, written }
    }

    pub fn run(&mut self) {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Tensor::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        self.session.run(&inputs, &mut outputs).expect("the run succeeds");
    }
}

/// Returns the measured kernels, by name.
pub fn all() -> Vec<(&'static str, Kernel)> {
    let many = 1 << 16;
    vec![
        ("linear 128x1152x384", linear(128, 1152, 384, false, false)),
        ("linear 128x384x384 + residual", linear(128, 384, 384, false, true)),
        ("linear 128x1536x384, gelu", linear(128, 1536, 384, true, false)),
        ("linear 128x384x1536 + residual", linear(128, 384, 1536, false, true)),
        ("linear 1024x1152x384", linear(1024, 1152, 384, false, false)),
        ("linear 16x1536x384, gelu", linear(16, 1536, 384, true, false)),
        ("linear 128x5632x2048", linear(128, 5632, 2048, false, false)),
        ("linear 1024x1024x1024", linear(1024, 1024, 1024, false, false)),
        ("vector 1x2048x2048", linear(1, 2048, 2048, false, false)),
        ("vector 1x5632x2048", linear(1, 5632, 2048, false, false)),
        ("vector 1x2048x5632", linear(1, 2048, 5632, false, false)),
        ("vectors 4x5632x2048", linear(4, 5632, 2048, false, false)),
        ("vector 1x4096x4096", linear(1, 4096, 4096, false, false)),
        ("vector f16 1x4096x4096", converted(1, 4096, 4096, DType::F16, false)),
        ("vector f16 1x4096x4096, [n k]", converted(1, 4096, 4096, DType::F16, true)),
        ("vector i8 1x4096x4096", converted(1, 4096, 4096, DType::I8, false)),
        ("vector u8 1x4096x4096, [n k]", converted(1, 4096, 4096, DType::U8, true)),
        ("vector i8 1x1024x1024", converted(1, 1024, 1024, DType::I8, false)),
        ("vectors i8 2x4096x4096", converted(2, 4096, 4096, DType::I8, false)),
        ("vectors i8 4x4096x4096", converted(4, 4096, 4096, DType::I8, false)),
        ("vectors i8 8x4096x4096", converted(8, 4096, 4096, DType::I8, false)),
        ("vectors 8x4096x4096", linear(8, 4096, 4096, false, false)),
        ("rows i8 64x4096x4096", converted(64, 4096, 4096, DType::I8, false)),
        ("rows 64x4096x4096", linear(64, 4096, 4096, false, false)),
        ("attention 12x128x32", attention(12, 128, 32)),
        ("attention 12x16x32", attention(12, 16, 32)),
        ("attention 12x512x64", attention(12, 512, 64)),
        ("attention 12x2048x64", attention(12, 2048, 64)),
        ("embedding 128x384", embedding(128, 384, 30522)),
        ("layernorm 128x384", layernorm(128, 384, false)),
        ("layernorm 4096x768", layernorm(4096, 768, false)),
        ("softmax 1536x128", softmax(1536, 128)),
        ("softmax, layernorm 4096x768", layernorm(4096, 768, true)),
        ("gelu(xa+b)s(c)+d 4096x1024", pointwise(4096 * 1024)),
        ("transpose 1024x1024", transpose(1024, 1024)),
        ("margin 64x112x112", margin(64, 112, 112)),
        ("max pool 56x56x64", max_pool(56, 56, 64)),
        ("abs 64k", chain("abs", &[], 1, many)),
        ("abs 8 times 64k", chain("abs", &[], 8, many)),
        ("abs 8M", chain("abs", &[], 1, 1 << 23)),
        ("sqrt 8 times 64k", chain("sqrt", &[], 8, many)),
        ("exp 8 times 64k", chain("exp", &[], 8, many)),
        ("sigmoid 8 times 64k", chain("sigmoid", &[], 8, many)),
        ("tanh 8 times 64k", chain("tanh", &[], 8, many)),
        ("erf 8 times 64k", chain("erf", &[], 8, many)),
        ("gelu 8 times 64k", chain("act", &["gelu-erf".into()], 8, many)),
        ("sin 8 times 64k", chain("sin", &[], 8, many)),
    ]
}
