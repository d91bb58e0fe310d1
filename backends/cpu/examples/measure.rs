//! Times the kernels of a MiniLM layer and passes of pointwise functions, on 1 and 2 threads, beside what the cost model says.

use std::time::Instant;

use eutectic_backend::{
    AnchorKernel, Backend, Body, Buffer, EmptyRow, Instr, Kernel, Load, Place, Program, Step, Store,
};
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::{
    Attr, DType, Op, Origin, Tensor, Type,
    index::{Index, flatten},
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
    push(b, Instr::Reduce { how, arg, dtype: DType::F32 })
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

/// [m k] · [k n] + bias, with or without gelu or a residual.
fn linear(m: usize, n: usize, k: usize, gelu: bool, residual: bool) -> Kernel {
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
    let anchor = AnchorKernel::Contraction {
        lhs: operand(0, &[m, k], dense(&[m, k])),
        rhs: operand(1, &[k, n], dense(&[k, n])),
    };
    let stores = vec![Store { slot: 3, at: dense(&[m, n]), value: y }];
    let counts = [m * k, k * n, n, m * n, m * n];
    let used = if residual { 5 } else { 4 };
    Kernel { anchor, body: b, stores, slots: counts[..used].iter().map(|&c| (DType::F32, c)).collect() }
}

/// Attention that reads q, k and v as views of a packed [s 3 h d] buffer and writes [s h d].
fn attention(h: usize, s: usize, d: usize) -> Kernel {
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
    let anchor = AnchorKernel::Attention {
        query,
        key,
        value,
        bias,
        scale: (1.0 / (d as f64).sqrt()).into(),
        softcap: 0.0.into(),
        empty: EmptyRow::Nan,
    };
    let stores = vec![Store { slot: 2, at: out, value: y }];
    Kernel { anchor, body: b, stores, slots: [s * 3 * h * d, s, s * h * d].map(|c| (DType::F32, c)).to_vec() }
}

fn layernorm(m: usize, n: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let x = load(&mut b, 0, dense(&[m, n]));
    let (count, eps) = (number(&mut b, 1.0 / n as f64), number(&mut b, 1e-12));
    let sum = reduce(&mut b, Reduction::Sum, x);
    let mean = map(&mut b, "mul", &[], &[sum, count]);
    let x = map(&mut b, "sub", &[], &[x, mean]);
    let square = map(&mut b, "mul", &[], &[x, x]);
    let sum = reduce(&mut b, Reduction::Sum, square);
    let var = map(&mut b, "mul", &[], &[sum, count]);
    let var = map(&mut b, "add", &[], &[var, eps]);
    let inverse = map(&mut b, "rsqrt", &[], &[var]);
    let x = map(&mut b, "mul", &[], &[x, inverse]);
    let (g, o) = (load(&mut b, 1, Index::coord(1)), load(&mut b, 2, Index::coord(1)));
    let x = map(&mut b, "mul", &[], &[x, g]);
    let x = map(&mut b, "add", &[], &[x, o]);
    let stores = vec![Store { slot: 3, at: dense(&[m, n]), value: x }];
    Kernel {
        anchor: AnchorKernel::Rows { axes: 1 },
        body: b,
        stores,
        slots: [m * n, n, n, m * n].map(|c| (DType::F32, c)).to_vec(),
    }
}

fn softmax(m: usize, n: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let x = load(&mut b, 0, dense(&[m, n]));
    let largest = reduce(&mut b, Reduction::Max, x);
    let x = map(&mut b, "sub", &[], &[x, largest]);
    let x = map(&mut b, "exp", &[], &[x]);
    let sum = reduce(&mut b, Reduction::Sum, x);
    let x = map(&mut b, "div", &[], &[x, sum]);
    let stores = vec![Store { slot: 1, at: dense(&[m, n]), value: x }];
    let slots = [m * n, m * n].map(|c| (DType::F32, c)).to_vec();
    Kernel { anchor: AnchorKernel::Rows { axes: 1 }, body: b, stores, slots }
}

/// `times` applications of a function of one argument to n elements.
fn chain(op: &str, attrs: &[Attr], times: usize, n: usize) -> Kernel {
    let mut b = body(&[n]);
    let mut x = load(&mut b, 0, Index::coord(0));
    for _ in 0..times {
        x = map(&mut b, op, attrs, &[x]);
    }
    let stores = vec![Store { slot: 1, at: Index::coord(0), value: x }];
    Kernel { anchor: AnchorKernel::Map, body: b, stores, slots: vec![(DType::F32, n); 2] }
}

fn transpose(m: usize, n: usize) -> Kernel {
    let mut b = body(&[m, n]);
    let x = load(&mut b, 0, Index::coord(1).times(m as i64).plus(&Index::coord(0)));
    let stores = vec![Store { slot: 1, at: dense(&[m, n]), value: x }];
    Kernel { anchor: AnchorKernel::Map, body: b, stores, slots: vec![(DType::F32, m * n); 2] }
}

fn seconds(cpu: &Cpu, kernel: &Kernel) -> f64 {
    let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
    let stored = |slot: usize| kernel.stores.iter().any(|s| s.slot == slot);
    // Weights do not change between runs.
    let constant = |slot: usize| slot == 1 && matches!(kernel.anchor, AnchorKernel::Contraction { .. });
    for (slot, &(dtype, count)) in kernel.slots.iter().enumerate() {
        let (ports, place): (_, fn(usize) -> Place) = match slot {
            s if stored(s) => (&mut program.outputs, Place::Output),
            s if constant(s) => (&mut program.params, Place::Param),
            _ => (&mut program.inputs, Place::Input),
        };
        let place = place(ports.len());
        ports.push((format!("{slot}"), Type::tensor(dtype, &[count])));
        program.buffers.push(Buffer { dtype, count, place });
    }
    let buffers = (0..kernel.slots.len()).collect();
    program.run.push(Step { kernel: 0, buffers, origin: Origin::default() });
    let mut executable = cpu.compile(&program).expect("a kernel of this file");
    let numbers = |n: usize| (0..n).map(|i| (i % 97) as f32 / 50.0 - 1.0).collect::<Vec<_>>();
    let tensor = |n: usize| Tensor::from_f32(&[n], &numbers(n)).expect("as many numbers as the shape asks for");
    let params: Vec<_> = program.params.iter().map(|p| tensor(p.1.count())).collect();
    executable.load(&params).expect("the program's parameters");
    let mut inputs: Vec<Vec<f32>> = program.inputs.iter().map(|i| numbers(i.1.count())).collect();
    let mut outputs: Vec<Vec<f32>> = program.outputs.iter().map(|o| vec![0.0; o.1.count()]).collect();
    let bytes = |x: &mut Vec<f32>| -> (*mut u8, usize) { (x.as_mut_ptr().cast(), x.len() * 4) };
    // SAFETY: any float is four bytes.
    let inputs: Vec<&[u8]> = inputs
        .iter_mut()
        .map(|x| {
            let (at, n) = bytes(x);
            unsafe { std::slice::from_raw_parts(at.cast_const(), n) }
        })
        .collect();
    // SAFETY: as above.
    let mut outputs: Vec<&mut [u8]> = outputs
        .iter_mut()
        .map(|x| {
            let (at, n) = bytes(x);
            unsafe { std::slice::from_raw_parts_mut(at, n) }
        })
        .collect();
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 20 || (start.elapsed().as_secs_f64() < 0.3 && times.len() < 3000) {
        times.push(executable.profile(&inputs, &mut outputs).expect("a run")[0]);
    }
    // The least: whatever else runs on the machine only adds.
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn main() {
    let million = 1 << 16;
    let kernels = [
        ("qkv 128x1152x384", linear(128, 1152, 384, false, false)),
        ("out 128x384x384 +r", linear(128, 384, 384, false, true)),
        ("ffn 128x1536x384 gelu", linear(128, 1536, 384, true, false)),
        ("ffn 128x384x1536 +r", linear(128, 384, 1536, false, true)),
        ("qkv 1024x1152x384", linear(1024, 1152, 384, false, false)),
        ("ffn 16x1536x384 gelu", linear(16, 1536, 384, true, false)),
        ("1024x1024x1024", linear(1024, 1024, 1024, false, false)),
        ("vector 1x5632x2048", linear(1, 5632, 2048, false, false)),
        ("attention 12x128x32", attention(12, 128, 32)),
        ("attention 12x16x32", attention(12, 16, 32)),
        ("attention 12x2048x64", attention(12, 2048, 64)),
        ("layernorm 128x384", layernorm(128, 384)),
        ("layernorm 4096x768", layernorm(4096, 768)),
        ("softmax 1536x128", softmax(1536, 128)),
        ("transpose 1024x1024", transpose(1024, 1024)),
        ("abs x1 64k", chain("abs", &[], 1, million)),
        ("abs x8 64k", chain("abs", &[], 8, million)),
        ("abs x1 8M", chain("abs", &[], 1, 1 << 23)),
        ("sqrt x8 64k", chain("sqrt", &[], 8, million)),
        ("exp x8 64k", chain("exp", &[], 8, million)),
        ("tanh x8 64k", chain("tanh", &[], 8, million)),
        ("erf x8 64k", chain("erf", &[], 8, million)),
        ("gelu x8 64k", chain("act", &["gelu-erf".into()], 8, million)),
        ("sin x8 64k", chain("sin", &[], 8, million)),
    ];
    let cpus = [1, 2].map(|threads| Cpu::new(CpuOptions { threads, ..CpuOptions::default() }));
    println!(
        "{}\n{:24} {:>10} {:>8} {:>10} | {:>10} {:>8} {:>10}",
        cpus[1].describe(),
        "kernel",
        "us on 1",
        "GFLOP/s",
        "model",
        "us on 2",
        "GFLOP/s",
        "model"
    );
    for (name, kernel) in &kernels {
        print!("{name:24}");
        for cpu in &cpus {
            let (time, cost) = (seconds(cpu, kernel), cpu.cost(kernel));
            print!(" {:10.2} {:8.1} {:10.2} |", time * 1e6, cost.flops / time / 1e9, cost.seconds * 1e6);
        }
        println!();
    }
    let cost = &kernels[11].1;
    let start = Instant::now();
    (0..10_000).for_each(|_| {
        std::hint::black_box(cpus[0].cost(cost));
    });
    println!("cost of a layernorm kernel takes {:.0} ns", start.elapsed().as_secs_f64() * 1e5);
}
