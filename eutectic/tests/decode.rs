//! Decoding with a state: a program of one token whose keys and values are states gives, token by token, what a program of the whole
//! sequence gives, writes one row of each cache a step, and allocates nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use eutectic::{Compiler, Cpu, CpuOptions, DType, Dim, Graph, NodeId, Program, Session, Shape, Tensor, Type};
use eutectic_backend::{Kernel, Place, Step};
use eutectic_ir::{GraphError, interp::interpret};

/// Counts the allocations of each thread by itself: tests run beside each other.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A decoder in the manner of Llama: RMS norms, rotary embeddings, SwiGLU.
#[derive(Clone, Copy)]
struct Decoder {
    layers: usize,
    heads: usize,
    depth: usize,
    hidden: usize,
    words: usize,
    /// The most tokens of a sequence.
    bound: usize,
}

const DECODER: Decoder = Decoder { layers: 4, heads: 4, depth: 8, hidden: 48, words: 50, bound: 1024 };

fn f32s(dims: &[usize]) -> Type {
    Type::tensor(DType::F32, dims)
}

fn shape(dims: &[usize]) -> Shape {
    dims.iter().copied().collect()
}

/// What a layer's attention sees of a sequence.
enum Cache {
    /// The whole sequence at once.
    None,
    /// States of so many rows: whether each is the one token's, and, unless it is all of them, whether the token sees it.
    Rows { rows: Dim, here: NodeId, seen: Option<NodeId> },
}

impl Decoder {
    fn width(self) -> usize {
        self.heads * self.depth
    }

    /// `ids` and `angles` (cosine and sine for each token) to logits.
    fn build(
        self,
        g: &mut Graph,
        ids: NodeId,
        angles: [NodeId; 2],
        tokens: usize,
        cache: &Cache,
    ) -> Result<(), GraphError> {
        let table = g.param("embedding", f32s(&[self.words, self.width()]))?;
        let mut x = g.gather(table, ids, 0)?;
        for layer in 0..self.layers {
            x = g.within(&format!("layer.{layer}"), |g| self.layer(g, layer, x, angles, tokens, cache))?;
        }
        let gain = g.param("norm", f32s(&[self.width()]))?;
        let x = g.rmsnorm(x, gain, 1e-5)?;
        let head = g.param("head", f32s(&[self.width(), self.words]))?;
        let logits = g.matmul(x, head)?;
        g.output("logits", logits)
    }

    fn layer(
        self,
        g: &mut Graph,
        layer: usize,
        x: NodeId,
        angles: [NodeId; 2],
        tokens: usize,
        cache: &Cache,
    ) -> Result<NodeId, GraphError> {
        let (w, d) = (self.width(), self.depth);
        let param = |g: &mut Graph, name: &str, dims: &[usize]| g.param(&format!("{layer}.{name}"), f32s(dims));
        let gain = param(g, "attention-norm", &[w])?;
        let n = g.rmsnorm(x, gain, 1e-5)?;
        let mut heads = Vec::new();
        for name in ["q", "k", "v"] {
            let weight = param(g, name, &[w, w])?;
            let y = g.matmul(n, weight)?;
            let y = g.reshape(y, shape(&[tokens, self.heads, d]))?;
            let y = g.transpose(y, &[1, 0, 2])?;
            heads.push(if name == "v" { y } else { g.rope(y, angles[0], angles[1], "half")? });
        }
        let [q, mut k, mut v] = heads[..] else { unreachable!("three were made") };
        let scale = ("scale", (1.0 / (d as f64).sqrt()).into());
        let y = match cache {
            Cache::None => g.apply("sdpa", &[q, k, v], &[scale, ("mask", "causal".into())])?,
            Cache::Rows { rows, here, seen } => {
                for (name, x) in [("keys", &mut k), ("values", &mut v)] {
                    let name = format!("{layer}.{name}");
                    let state = [self.heads.into(), rows.clone(), d.into()].into_iter().collect();
                    let before = g.state(&name, Type::Tensor(DType::F32, state))?;
                    *x = g.select(*here, *x, before)?;
                    g.update(&name, *x)?;
                }
                match seen {
                    Some(seen) => g.apply("sdpa", &[q, k, v, *seen], &[scale, ("mask", "keep".into())])?,
                    None => g.apply("sdpa", &[q, k, v], &[scale, ("mask", "none".into())])?,
                }
            }
        };
        let y = g.transpose(y, &[1, 0, 2])?;
        let y = g.reshape(y, shape(&[tokens, w]))?;
        let weight = param(g, "o", &[w, w])?;
        let y = g.matmul(y, weight)?;
        let x = g.add(x, y)?;
        let gain = param(g, "mlp-norm", &[w])?;
        let n = g.rmsnorm(x, gain, 1e-5)?;
        let weight = param(g, "gate-up", &[w, 2 * self.hidden])?;
        let y = g.matmul(n, weight)?;
        let y = g.glu(y, "first", "silu")?;
        let weight = param(g, "down", &[self.hidden, w])?;
        let y = g.matmul(y, weight)?;
        g.add(x, y)
    }

    /// One token, at a place of a sequence of at most `bound`, with caches of so many rows and a mask.
    fn step(self) -> Result<Graph, GraphError> {
        self.step_of(self.bound.into(), true)
    }

    /// One token with caches of some rows, of which it sees all unless there is a mask.
    fn step_of(self, rows: Dim, masked: bool) -> Result<Graph, GraphError> {
        let mut g = Graph::new("step");
        let id = g.input("id", Type::tensor(DType::I64, &[1]))?;
        let at = g.input("at", Type::tensor(DType::I64, &[]))?;
        let row = g.reshape(at, shape(&[1]))?;
        let mut angles = [at; 2];
        for (angle, name) in angles.iter_mut().zip(["cos", "sin"]) {
            let table = g.param(name, f32s(&[self.bound, self.depth / 2]))?;
            *angle = g.gather(table, row, 0)?;
        }
        let row = g.iota([rows.clone(), 1_usize.into()].into_iter().collect(), -2, DType::I64)?;
        let here = g.apply("eq", &[row, at], &[])?;
        let mut seen = None;
        if masked {
            let key = g.iota([1_usize.into(), rows.clone()].into_iter().collect(), -1, DType::I64)?;
            seen = Some(g.apply("le", &[key, at], &[])?);
        }
        self.build(&mut g, id, angles, 1, &Cache::Rows { rows, here, seen })?;
        Ok(g)
    }

    /// A whole sequence.
    fn whole(self, tokens: usize) -> Result<Graph, GraphError> {
        let mut g = Graph::new("whole");
        let ids = g.input("ids", Type::tensor(DType::I64, &[tokens]))?;
        let mut angles = [ids; 2];
        for (angle, name) in angles.iter_mut().zip(["cos", "sin"]) {
            let table = g.param(name, f32s(&[self.bound, self.depth / 2]))?;
            *angle = g.slice(table, 0, 0, tokens as i64)?;
        }
        self.build(&mut g, ids, angles, tokens, &Cache::None)?;
        Ok(g)
    }
}

/// The value of a parameter: the same for the same name.
fn param(graph: &Graph, name: &str) -> Tensor {
    let (_, id) = graph.named("param").find(|(n, _)| *n == name).expect("a parameter of the graph");
    let dims = graph.ty(id).dims().unwrap();
    let mut state = name.bytes().fold(7_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64 - 0.5
    };
    let count = dims.iter().product::<usize>();
    let pairs = *dims.last().unwrap();
    let angle = |i: usize| (i / pairs) as f64 / 10_000_f64.powf((i % pairs) as f64 / pairs as f64);
    let values: Vec<f64> = match name {
        "cos" => (0..count).map(|i| angle(i).cos()).collect(),
        "sin" => (0..count).map(|i| angle(i).sin()).collect(),
        _ if name.ends_with("norm") => (0..count).map(|_| 1.0 + 0.2 * next()).collect(),
        _ => (0..count).map(|_| 3.0 * next() / (dims[0] as f64).sqrt()).collect(),
    };
    Tensor::from_f64(DType::F32, &dims, values)
}

fn session(graph: &Graph) -> Session {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let mut session = Compiler::new(cpu).unwrap().compile(graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| Some(param(graph, name))).unwrap();
    session
}

fn ids(tokens: usize) -> Vec<i64> {
    (0..tokens as i64).map(|i| (i * i * 7 + i * 3 + 5) % DECODER.words as i64).collect()
}

/// The logits of each token, in a program of the whole sequence.
fn at_once(tokens: usize) -> Vec<f64> {
    let graph = DECODER.whole(tokens).unwrap();
    let input = Tensor::from_i64(DType::I64, &[tokens], ids(tokens));
    session(&graph).run(&[input]).unwrap()[0].to_f64()
}

/// Bytes that a step writes to buffers of a kind of place.
fn written(program: &Program, counts: impl Fn(&Place) -> bool) -> usize {
    let of_step = |step: &Step| {
        let kernel: &Kernel = &program.kernels[step.kernel];
        let bytes = |store: &eutectic_backend::Store| {
            let (buffer, domain) = (&program.buffers[step.buffers[store.slot]], &kernel.body.domain);
            let points: usize = (0..domain.len()).filter(|&d| store.at.mentions(d)).map(|d| domain[d]).product();
            if counts(&buffer.place) { points * buffer.dtype.size() } else { 0 }
        };
        kernel.stores.iter().map(bytes).sum::<usize>()
    };
    program.run.iter().map(of_step).sum()
}

#[test]
fn token_by_token_is_the_whole_sequence() {
    const TOKENS: usize = 512;
    let graph = DECODER.step().unwrap();
    let mut session = session(&graph);
    let row = DECODER.heads * DECODER.depth * 4;
    let program = session.program();
    assert_eq!(
        written(program, |place| matches!(place, Place::State(_))),
        DECODER.layers * 2 * row,
        "a row of each cache"
    );
    let everything = written(program, |_| true);
    assert!(everything < 32 * 1024, "{everything} bytes a step, a cache has {}", DECODER.bound * row);

    let want = at_once(TOKENS);
    let mut logits = vec![0_u8; DECODER.words * 4];
    for (at, id) in ids(TOKENS).into_iter().enumerate() {
        let inputs = [id.to_le_bytes(), (at as i64).to_le_bytes()];
        let before = ALLOCATIONS.with(Cell::get);
        session.run_into(&[&inputs[0], &inputs[1]], &mut [&mut logits]).unwrap();
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "allocations in step {at}");
        let want = &want[at * DECODER.words..][..DECODER.words];
        for (word, (got, want)) in logits.chunks_exact(4).zip(want).enumerate() {
            let got = f64::from(f32::from_le_bytes(got.try_into().unwrap()));
            assert!((got - want).abs() < 2e-4 * (1.0 + want.abs()), "token {at}, word {word}: {got}, expected {want}");
        }
    }
}

/// Logits of a token at a place, and how many allocations that took.
fn step(session: &mut Session, id: i64, at: usize) -> (Vec<f64>, usize) {
    let mut logits = vec![0_u8; DECODER.words * 4];
    let inputs = [id.to_le_bytes(), (at as i64).to_le_bytes()];
    let before = ALLOCATIONS.with(Cell::get);
    session.run_into(&[&inputs[0], &inputs[1]], &mut [&mut logits]).unwrap();
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    let number = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    (logits.chunks_exact(4).map(number).collect(), allocations)
}

#[test]
fn one_program_serves_every_length_of_the_caches() {
    const TOKENS: usize = 512;
    let near = |got: &[f64], want: &[f64]| {
        got.iter().zip(want).all(|(got, want)| (got - want).abs() < 2e-4 * (1.0 + want.abs()))
    };
    let graph = DECODER.step_of(Dim::between("S", 1, DECODER.bound as i64), false).unwrap();
    let mut session = session(&graph);
    let row = DECODER.heads * DECODER.depth * 4;
    let of_states = written(session.program(), |place| matches!(place, Place::State(_)));
    assert_eq!(of_states, DECODER.layers * 2 * row, "a row of each cache");
    let (want, mut steps) = (at_once(TOKENS), Vec::new());
    for (at, id) in ids(TOKENS).into_iter().enumerate() {
        session.set_length("S", at + 1).unwrap();
        let (logits, allocations) = step(&mut session, id, at);
        assert_eq!(allocations, 0, "in step {at}");
        assert!(near(&logits, &want[at * DECODER.words..][..DECODER.words]), "token {at}");
        steps.push(logits);
    }
    // Programs of fixed lengths, with the rows that this one has.
    for tokens in [1, 2, 7, 64, 301] {
        let fixed = DECODER.step_of(tokens.into(), false).unwrap();
        let mut one = self::session(&fixed);
        for name in fixed.named("state").map(|(name, _)| name) {
            let from = session.state(name).unwrap();
            let rows = session.read_rows(from, 1, 0..tokens).unwrap();
            let to = one.state(name).unwrap();
            one.write(to, &rows).unwrap();
        }
        let logits = step(&mut one, ids(tokens)[tokens - 1], tokens - 1).0;
        assert!(near(&logits, &steps[tokens - 1]), "{tokens} tokens");
    }
    // Lengths that there were take no memory any more.
    for length in [3, 512, 100] {
        let before = ALLOCATIONS.with(Cell::get);
        session.set_length("S", length).unwrap();
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "to set {length}");
    }
    assert!(session.set_length("S", DECODER.bound + 1).is_err() && session.set_length("S", 0).is_err());
}

#[test]
fn layers_with_states_are_optimized_once() {
    let planned = Compiler::new(Cpu::default()).unwrap().plan(&DECODER.step().unwrap()).unwrap();
    let of_layers = |call: &&eutectic_ir::outline::BlockCall| !call.states.is_empty();
    let blocks: Vec<_> = planned.outlined.calls.iter().filter(of_layers).map(|call| call.block).collect();
    let states: usize = planned.outlined.calls.iter().map(|call| call.states.len()).sum();
    assert_eq!(states, 2 * DECODER.layers);
    assert!(blocks.windows(2).filter(|pair| pair[0] == pair[1]).count() >= DECODER.layers - 2, "{blocks:?}");
}

#[test]
fn the_whole_sequence_is_what_the_interpreter_gives() {
    const TOKENS: usize = 24;
    let graph = DECODER.whole(TOKENS).unwrap();
    let given = |name: &str| match name {
        "ids" => Some(Tensor::from_i64(DType::I64, &[TOKENS], ids(TOKENS))),
        _ => Some(param(&graph, name)),
    };
    let want = interpret::<f64>(&graph, &given).unwrap()[0].to_tensor().to_f64();
    let got = at_once(TOKENS);
    assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-4 * (1.0 + want.abs())));
}

#[test]
fn a_fork_goes_on_by_itself() {
    let graph = DECODER.step().unwrap();
    let mut session = session(&graph);
    let step = |session: &mut Session, id: i64, at: i64| {
        let inputs = [Tensor::from_i64(DType::I64, &[1], [id]), Tensor::from_i64(DType::I64, &[], [at])];
        session.run(&inputs).unwrap().remove(0)
    };
    (0..5).for_each(|at| drop(step(&mut session, 3 * at, at)));
    let mut twin = session.fork().unwrap();
    let one = step(&mut session, 7, 5);
    // The twin takes another way first, and goes back to the same place.
    step(&mut twin, 30, 5);
    step(&mut twin, 31, 6);
    assert!(step(&mut twin, 7, 5) == one);
    // Rows of a cache, as the host sees them; a cleared state is that of a new session.
    let keys = session.state("2.keys").unwrap();
    let rows = session.read_rows(keys, 1, 4..6).unwrap();
    assert_eq!(rows.dims(), [DECODER.heads, 2, DECODER.depth]);
    assert!(rows.to_f64().iter().any(|x| *x != 0.0));
    session.write_rows(keys, 1, 900, &rows).unwrap();
    assert!(session.read_rows(keys, 1, 900..902).unwrap() == rows);
    for name in graph.named("state").map(|(name, _)| name) {
        let port = session.state(name).unwrap();
        session.clear(port).unwrap();
    }
    let mut fresh = session.loaded().unwrap().session().unwrap();
    assert!(step(&mut session, 9, 0) == step(&mut fresh, 9, 0));
    let error = session.state("2.key").unwrap_err().to_string();
    assert!(error.contains("no state `2.key`") && error.contains("2.keys"), "{error}");
    let error = session.write(keys, &rows).unwrap_err().to_string();
    assert!(error.contains("state `2.keys` is f32[4 1024 8]"), "{error}");
    assert!(session.read_rows(keys, 1, 1020..1025).is_err());
}

/// Prints what a step takes in the program of every length beside one of that length, in turns; to be run on an idle machine.
#[test]
#[ignore = "it measures"]
fn step_times() {
    let decoder = Decoder { heads: 32, depth: 64, hidden: 5632, ..DECODER };
    let graph = decoder.step_of(Dim::between("S", 1, decoder.bound as i64), false).unwrap();
    let mut session = session(&graph);
    for length in [16, 64, 256, 512, 1024] {
        let mut fixed = self::session(&decoder.step_of(length.into(), false).unwrap());
        session.set_length("S", length).unwrap();
        let mut ratios: Vec<f64> = (0..40)
            .map(|_| {
                let [ours, theirs] = [&mut session, &mut fixed].map(|session| {
                    let start = std::time::Instant::now();
                    step(session, 3, length - 1);
                    start.elapsed().as_secs_f64()
                });
                ours / theirs
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let [low, middle, high] = [4, 20, 35].map(|at| ratios[at]);
        println!("{length:5} rows: {middle:.3} of the fixed length's time, {low:.3} to {high:.3}");
    }
}
