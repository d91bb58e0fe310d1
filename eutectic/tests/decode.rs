//! Decoding with states. A program of one token, whose keys and values are states, gives the same logits as a program
//! of the whole sequence. Each step writes one row of each cache and does not allocate.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Dim, Graph, Program, Session, Tensor, engine::models::llama::LlamaConfig,
};
use eutectic_backend::{Kernel, Place, Step};
use eutectic_ir::interp::interpret;

/// Counts the allocations of each thread separately, because tests run in parallel.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: forwards to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DECODER: LlamaConfig = LlamaConfig {
    layers: 4,
    heads: 4,
    groups: 2,
    depth: 8,
    inner: 48,
    words: 50,
    positions: 1024,
    tied: false,
    theta: 1e4,
};

/// Returns the value of a parameter, which depends on its name only.
fn param(graph: &Graph, name: &str) -> Tensor {
    let (_, id) = graph.named("param").find(|(n, _)| *n == name).expect("a parameter of the graph");
    let dims = graph.ty(id).dims().unwrap();
    let mut state = name.bytes().fold(7_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64 - 0.5
    };
    let count = dims.iter().product::<usize>();
    // The tables of angles have the extents of the parameters in the graph.
    let rotation = || LlamaConfig { positions: dims[0], depth: 2 * dims[1], ..DECODER }.rotation();
    if let Some((_, table)) = ["cos", "sin"].contains(&name).then(rotation).into_iter().flatten().find(|t| t.0 == name)
    {
        return table;
    }
    let values: Vec<f64> = match name.ends_with("norm") {
        true => (0..count).map(|_| 1.0 + 0.2 * next()).collect(),
        false => (0..count).map(|_| 3.0 * next() / (dims[0] as f64).sqrt()).collect(),
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

/// Returns the logits of each token from a program of the whole sequence.
fn at_once(tokens: usize) -> Vec<f64> {
    let graph = DECODER.whole(tokens).unwrap();
    let input = Tensor::from_i64(DType::I64, &[tokens], ids(tokens));
    session(&graph).run(&[input]).unwrap()[0].to_f64()
}

/// Returns the number of bytes that a step writes to the buffers that `counts` selects.
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
    let graph = DECODER.step(DECODER.positions, true).unwrap();
    let mut session = session(&graph);
    let row = DECODER.row_bytes();
    let program = session.program();
    assert_eq!(
        written(program, |place| matches!(place, Place::State(_))),
        DECODER.layers * 2 * row,
        "a row of each cache"
    );
    let everything = written(program, |_| true);
    assert!(everything < 32 * 1024, "{everything} bytes a step, a cache has {}", DECODER.positions * row);

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

/// Returns the logits of a token at a position, and the number of allocations.
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
    let graph = DECODER.step(Dim::between("S", 1, DECODER.positions as i64), false).unwrap();
    let mut session = session(&graph);
    let row = DECODER.row_bytes();
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
    // Compare with programs of fixed lengths, on the cache rows of the program with varying lengths.
    for tokens in [1, 2, 7, 64, 301] {
        let fixed = DECODER.step(tokens, false).unwrap();
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
    // Lengths that occurred before need no more memory.
    for length in [3, 512, 100] {
        let before = ALLOCATIONS.with(Cell::get);
        session.set_length("S", length).unwrap();
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "to set {length}");
    }
    // Changing lengths gives the same bits as ascending ones.
    for tokens in [301, 7, 301, 512, 7, 64, 301] {
        session.set_length("S", tokens).unwrap();
        let again = step(&mut session, ids(tokens)[tokens - 1], tokens - 1).0;
        assert_eq!(again, steps[tokens - 1], "{tokens} tokens again");
    }
    assert!(session.set_length("S", DECODER.positions + 1).is_err() && session.set_length("S", 0).is_err());
}

#[test]
fn layers_with_states_are_optimized_once() {
    let planned = Compiler::new(Cpu::default()).unwrap().plan(&DECODER.step(DECODER.positions, true).unwrap()).unwrap();
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
    let graph = DECODER.step(DECODER.positions, true).unwrap();
    let mut session = session(&graph);
    let step = |session: &mut Session, id: i64, at: i64| {
        let inputs = [Tensor::from_i64(DType::I64, &[1], [id]), Tensor::from_i64(DType::I64, &[], [at])];
        session.run(&inputs).unwrap().remove(0)
    };
    (0..5).for_each(|at| drop(step(&mut session, 3 * at, at)));
    let mut twin = session.fork().unwrap();
    let one = step(&mut session, 7, 5);
    // The copy first reads other tokens, and then returns to the same position.
    step(&mut twin, 30, 5);
    step(&mut twin, 31, 6);
    assert!(step(&mut twin, 7, 5) == one);
    // Reads rows of a cache on the host. A cleared state equals that of a new session.
    let keys = session.state("2.keys").unwrap();
    let rows = session.read_rows(keys, 1, 4..6).unwrap();
    assert_eq!(rows.dims(), [DECODER.groups, 2, DECODER.depth]);
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
    assert!(error.contains("state `2.keys` is f32[2 1024 8]"), "{error}");
    assert!(session.read_rows(keys, 1, 1020..1025).is_err());
}

/// Prints the time of a step for the program of every length and for a program of one length, alternately. Run it on an
/// idle machine.
#[test]
#[ignore = "it measures"]
fn step_times() {
    let decoder = LlamaConfig { heads: 32, groups: 32, depth: 64, inner: 5632, ..DECODER };
    let graph = decoder.step(Dim::between("S", 1, decoder.positions as i64), false).unwrap();
    let mut session = session(&graph);
    for length in [16, 64, 256, 512, 1024] {
        let mut fixed = self::session(&decoder.step(length, false).unwrap());
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
