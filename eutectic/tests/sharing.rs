//! One loaded program and many sessions. Weights are in memory once, and all results have the same bits.

use eutectic::{Compiler, Cpu, CpuOptions, DType, Error, Graph, Loaded, Memory, Tensor, Type, engine::models::Weights};

const WIDTH: usize = 1536;
const LAYERS: usize = 3;

/// The size of the weights in bytes.
const WEIGHTS: usize = LAYERS * WIDTH * WIDTH * 4;

fn graph() -> Graph {
    let mut g = Graph::new("layers");
    let mut x = g.input("x", Type::tensor(DType::F32, &[4, WIDTH])).unwrap();
    for layer in 0..LAYERS {
        let w = g.param(&format!("w{layer}"), Type::tensor(DType::F32, &[WIDTH, WIDTH])).unwrap();
        let y = g.matmul(x, w).unwrap();
        x = g.tanh(y).unwrap();
    }
    g.output("y", x).unwrap();
    let sum = g.reduce_sum(x, &[-1], false).unwrap();
    g.output("sum", sum).unwrap();
    g
}

fn weight(seed: usize) -> Tensor {
    let element = |i: usize| (((i * 31 + seed * 17) % 211) as f64 / 105.5 - 1.0) / 40.0;
    Tensor::from_f64(DType::F32, &[WIDTH, WIDTH], (0..WIDTH * WIDTH).map(element))
}

fn loaded(threads: usize) -> Loaded {
    let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
    let mut session = Compiler::new(cpu).unwrap().compile(&graph()).unwrap();
    session.load_named(|name| Some(weight(name[1..].parse().unwrap()))).unwrap();
    session.loaded().unwrap().clone()
}

fn input(seed: usize) -> Tensor {
    Tensor::from_f64(DType::F32, &[4, WIDTH], (0..4 * WIDTH).map(|i| ((i * 7 + seed) % 97) as f64 / 48.5 - 1.0))
}

/// Returns the number of resident bytes of the process that are not mapped from a file, if the system reports it.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()? * 1024)
}

/// There is a single test, because another one would allocate memory at the same time.
#[test]
fn eight_sessions_on_eight_threads_take_the_memory_of_one_set_of_weights() {
    for threads in [1, 2] {
        let loaded = loaded(threads);
        assert!((WEIGHTS..WEIGHTS + WEIGHTS / 50).contains(&loaded.bytes()), "{} bytes", loaded.bytes());
        let mut one = loaded.session().unwrap();
        let want: Vec<_> = (0..4).map(|seed| one.run(&[input(seed)]).unwrap()).collect();
        let before = resident();
        let sessions: Vec<_> = std::thread::scope(|scope| {
            let run = || {
                let mut session = loaded.session().unwrap();
                for (seed, want) in want.iter().enumerate() {
                    assert!(session.run(&[input(seed)]).unwrap() == *want, "input {seed}");
                }
                session
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        if let (Some(before), Some(after)) = (before, resident()) {
            let more = after.saturating_sub(before);
            assert!(more < WEIGHTS / 2, "8 sessions take {more} bytes more, the weights {WEIGHTS}");
        }
        drop(sessions);
    }
    replaced_and_partial();
    (0..2).for_each(a_mapped_file_is_packed_without_another_copy);
}

/// Writes a file of weights whose first byte is `misaligned` bytes after an aligned one.
fn write_weights(path: &std::path::Path, misaligned: usize) {
    let tensor = |n: usize| {
        let from = n * WIDTH * WIDTH * 4;
        let to = from + WIDTH * WIDTH * 4;
        format!("\"w{n}\":{{\"dtype\":\"F32\",\"shape\":[{WIDTH},{WIDTH}],\"data_offsets\":[{from},{to}]}}")
    };
    let mut header = format!("{{{}}}", (0..LAYERS).map(tensor).collect::<Vec<_>>().join(","));
    while header.len() % 8 != misaligned {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    (0..LAYERS).for_each(|n| bytes.extend_from_slice(weight(n).bytes()));
    std::fs::write(path, bytes).unwrap();
}

fn a_mapped_file_is_packed_without_another_copy(misaligned: usize) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("weights{misaligned}.safetensors"));
    write_weights(&path, misaligned);
    let weights = Weights::open(&path).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let mut session = Compiler::new(cpu).unwrap().compile(&graph()).unwrap();
    let before = resident();
    session.load_named(|name| weights.get(name).cloned()).unwrap();
    if let (Some(before), Some(after)) = (before, resident()) {
        let more = after.saturating_sub(before);
        assert!(more < WEIGHTS * 4 / 3, "{misaligned}: loading takes {more} bytes, the weights {WEIGHTS}");
    }
    assert!(session.run(&[input(0)]).unwrap() == loaded(1).session().unwrap().run(&[input(0)]).unwrap());
}

fn replaced_and_partial() {
    let loaded = loaded(1);
    let mut session = loaded.session().unwrap();
    let before = session.run(&[input(0)]).unwrap();
    session.replace(&[("w1", weight(9))]).unwrap();
    let after = session.run(&[input(0)]).unwrap();
    assert!(before != after && loaded.session().unwrap().run(&[input(0)]).unwrap() == before);
    session.replace(&[("w1", weight(1))]).unwrap();
    assert!(session.run(&[input(0)]).unwrap() == before);
    let error = session.replace(&[("w3", weight(1))]).unwrap_err().to_string();
    assert!(error.contains("no parameter `w3`") && error.contains("w0, w1, w2"), "{error}");

    assert_eq!(session.run_some(&[input(0)], &["sum"]).unwrap(), before[1..]);
    assert!(session.run_some(&[input(0)], &["total"]).is_err());
    let (x, y) = (session.input("x").unwrap(), session.output("y").unwrap());
    let buffer = session.buffer(4 * WIDTH * 4, Memory::Device).unwrap();
    session.bind(y, Some(buffer)).unwrap();
    session.write(x, &input(1)).unwrap();
    session.submit(&["y"]).unwrap();
    let y = session.read(y).unwrap();
    assert_eq!(y, loaded.session().unwrap().run(&[input(1)]).unwrap()[0]);
    assert!(matches!(session.submit(&["x"]), Err(Error::Arguments(_))));
}
