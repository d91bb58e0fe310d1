//! Runs the command on damaged files and arguments. Each run must end in time. It returns a result, or an error that
//! fits on a screen and names the problem, its position and a correction. It must not panic.

mod common;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::Dir;

/// The time after which a process counts as hanging. The slowest one takes less than a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The largest number of lines and of bytes of an error that fits on a screen.
const SCREEN: (usize, usize) = (50, 6000);

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/tiny-bert");

const GRAPH: &str = r#"
(graph "small"
  (input x f32[B 8])
  (param w f32[8 4])
  (const c f32[4] { 0.5 -1.0 2.0 ... })
  (let h (add (matmul x w) c) :origin layer.0)
  (let s (softmax (reshape h :shape [2 -1]) :axis -1))
  (output y (act (transpose s :perm [1 0]) :kind gelu-erf))
  (output z (slice h :axis 1 :at 1 :len 2)))
"#;

const RULE: &str = "\
;; −(−x) · 1
(rule mine/twice
  (forall (F float) (?x F[B.. (* 2 H)]) (?k (one-of relu silu)) (?c float))
  (where (nonzero ?c))
  (=> (act (mul (neg (neg ?x)) ?c) :kind ?k) (act (mul ?x (* 1.0 ?c)) :kind ?k))
  (eq (ulp 2)))
";

/// A run: its subject, its arguments, the names that its error must contain, and whether it may succeed.
struct Case {
    what: String,
    args: Vec<OsString>,
    names: &'static str,
    may_pass: bool,
}

/// A linear congruential generator, which gives the same numbers in each run of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// Returns a copy that is damaged in its first `within` bytes: bits or bytes are changed, parts are removed or
    /// repeated, or the end is cut off.
    fn damaged(&mut self, bytes: &[u8], within: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + self.below(3) {
            let within = within.min(bytes.len());
            if within < 2 {
                break;
            }
            let at = self.below(within);
            let end = (at + 1 + self.below(12)).min(within);
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                2 => bytes[at] = b"()[]{}\":;.-09? "[self.below(15)],
                3 => drop(bytes.drain(at..end)),
                4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}

fn case<A: AsRef<OsStr>>(what: impl Into<String>, args: &[A], names: &'static str, may_pass: bool) -> Case {
    let args = args.iter().map(|a| a.as_ref().to_os_string()).collect();
    Case { what: what.into(), args, names, may_pass }
}

/// Returns a directory with the tiny model in which one file is replaced.
fn model(dir: &Dir, name: &str, file: &str, content: &[u8]) -> OsString {
    for other in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = format!("{name}/{other}");
        if other == file {
            dir.file(&path, content);
        } else {
            dir.file(&path, std::fs::read(Path::new(MODEL).join(other)).expect("the fixture is there"));
        }
    }
    dir.path(name).into_os_string()
}

fn run_model(dir: &Dir, name: String, file: &'static str, content: &[u8], may_pass: bool) -> Case {
    let weights = model(dir, &name, file, content);
    let args =
        [OsStr::new("run"), "minilm".as_ref(), "--weights".as_ref(), &weights, "--text".as_ref(), "a cat".as_ref()];
    case(name, &args, file, may_pass)
}

fn models(dir: &Dir, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let read = |file: &str| std::fs::read(Path::new(MODEL).join(file)).expect("the fixture is there");
    let weights = read("model.safetensors");
    let header = 8 + weights.first_chunk().map_or(0, |n| u64::from_le_bytes(*n) as usize);
    // Damaged weights are still valid numbers, so only the header is damaged.
    for n in 0..10 {
        let bytes = random.damaged(&weights, if n < 3 { 9 } else { header });
        cases.push(run_model(dir, format!("weights{n}"), "model.safetensors", &bytes, true));
    }
    for length in [0, 8, header, weights.len() - 1] {
        cases.push(run_model(dir, format!("cut{length}"), "model.safetensors", &weights[..length], false));
    }
    let huge = [&u64::MAX.to_le_bytes(), &weights[8..]].concat();
    cases.push(run_model(dir, "huge".into(), "model.safetensors", &huge, false));
    let tokenizer = read("tokenizer.json");
    for n in 0..5 {
        let bytes = random.damaged(&tokenizer, tokenizer.len());
        cases.push(run_model(dir, format!("tokenizer{n}"), "tokenizer.json", &bytes, true));
    }
    cases.push(run_model(dir, "no-tokenizer".into(), "tokenizer.json", b"{}", false));
    let config = String::from_utf8(read("config.json")).expect("it is text");
    for n in 0..4 {
        let bytes = random.damaged(config.as_bytes(), config.len());
        cases.push(run_model(dir, format!("config{n}"), "config.json", &bytes, true));
    }
    let fields: serde_json::Value = serde_json::from_str(&config).expect("it is JSON");
    for (n, (field, value)) in [
        ("hidden_size", serde_json::json!(1_000_000)),
        ("num_hidden_layers", serde_json::json!(4096)),
        ("vocab_size", serde_json::json!(2_000_000_000)),
        ("num_attention_heads", serde_json::json!(0)),
        ("intermediate_size", serde_json::json!(-3)),
        ("layer_norm_eps", serde_json::json!("1e-12")),
        ("hidden_act", serde_json::json!("swoosh")),
        ("model_type", serde_json::json!("gpt2")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut wrong = fields.clone();
        wrong[field] = value;
        // A size that is only another valid size is reported by the weights, which have other extents.
        let names = if n < 3 { "model.safetensors" } else { field };
        let mut case = run_model(dir, format!("wrong-{field}"), "config.json", wrong.to_string().as_bytes(), false);
        case.names = names;
        cases.push(case);
    }
    cases
}

fn graphs(dir: &Dir, random: &mut Random) -> Vec<Case> {
    let damaged = (0..16).map(|_| random.damaged(GRAPH.as_bytes(), GRAPH.len()));
    let deep = |open: &str, close: &str| {
        format!("(graph \"deep\" (input x f32[2]) (output y {}x{}))", open.repeat(20_000), close.repeat(20_000))
    };
    let written = [
        deep("(neg ", ")"),
        deep("(", ")"),
        "(".repeat(100_000),
        "(graph \"g\" (input x f32[99999999999999999999]) (output y x))".into(),
        "(graph \"g\" (input x f32[9223372036854775807 9223372036854775807]) (output y (neg x)))".into(),
        "(graph \"g\" (input x f32[4]) (output y (reshape x :shape [2 3])))".into(),
        "(graph \"g\" (input x f32[4]) (output y (expand x :shape [1000000000000 4])))".into(),
        "(graph \"g\" (input x f32[4]) (input x f32[4]) (output y x) (output y x))".into(),
        "(graph \"g\" (const c f32[1000000000000] { 0.0 ... }) (output y c))".into(),
    ];
    let all = damaged.chain(written.into_iter().map(String::into_bytes));
    all.enumerate()
        .map(|(n, bytes)| {
            let path = dir.file(&format!("graph{n}.graph"), &bytes);
            let args =
                [OsStr::new(["run", "opt", "explain"][n % 3]), path.as_os_str(), "--shape".as_ref(), "B=4".as_ref()];
            case(format!("graph{n}"), &args, "graph", true)
        })
        .collect()
}

fn rules(dir: &Dir, random: &mut Random) -> Vec<Case> {
    let graph = dir.file("good.graph", "(graph \"g\" (input x f32[4 6]) (output y (act (neg (neg x)) :kind relu)))");
    (0..10)
        .map(|n| {
            let noise: Vec<u8> = (0..300).map(|_| random.below(256) as u8).collect();
            let bytes = if n % 4 == 0 { noise } else { random.damaged(RULE.as_bytes(), RULE.len()) };
            dir.file(&format!("rules{n}/mine.rules"), &bytes);
            let rules = dir.path(&format!("rules{n}"));
            let args = [OsStr::new("opt"), graph.as_os_str(), "--rules".as_ref(), rules.as_os_str()];
            case(format!("rules{n}: {}", String::from_utf8_lossy(&bytes)), &args, "rules", n % 4 > 0)
        })
        .collect()
}

/// Damages arrays of NumPy. Their header is a text whose length precedes it.
fn arrays(dir: &Dir, random: &mut Random) -> Vec<Case> {
    let graph = dir.file("array.graph", "(graph \"g\" (input x f32[2 3]) (output y (neg x)))");
    let mut header = String::from("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
    header.push_str(&" ".repeat(117 - header.len()));
    let whole = |header: &[u8]| {
        let data: Vec<u8> = (0..6_u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        [b"\x93NUMPY\x01\x00", &(header.len() as u16 + 1).to_le_bytes()[..], header, b"\n", &data].concat()
    };
    (0..24)
        .map(|n| {
            // In half of the cases, the length is correct although the header is damaged.
            let bytes = match n % 2 {
                0 => whole(&random.damaged(header.as_bytes(), 62)),
                _ => random.damaged(&whole(header.as_bytes()), 80),
            };
            let path = dir.file(&format!("array{n}.npy"), &bytes);
            let input = format!("x=@{}", path.display());
            let args = [OsStr::new("run"), graph.as_os_str(), "--input".as_ref(), input.as_ref()];
            case(format!("array{n}: {}", String::from_utf8_lossy(&bytes)), &args, "array", true)
        })
        .collect()
}

fn arguments(dir: &Dir) -> Vec<Case> {
    let mut cases = Vec::new();
    for command in ["demo", "run", "opt", "explain", "bench", "ops", "devices"] {
        cases.push(case(format!("{command} --bogus"), &[command, "--bogus"], "--bogus", false));
    }
    for args in [&["rules", "list", "--bogus"][..], &["rules", "lint", "--bogus"], &["--bogus"], &["opt", "demo", "-x"]]
    {
        cases.push(case(format!("{args:?}"), args, "-", false));
    }
    cases.push(case("no command", &[] as &[&str], "Usage", false));
    cases.push(case("a missing value", &["opt", "demo", "--seq"], "--seq", false));
    cases.push(case("a huge value", &["opt", "demo", "--seq", "99999999999999999999"], "--seq", false));
    cases.push(case("a large value", &["opt", "bert-base", "--batch", "9223372036854775807"], "memory", false));
    cases.push(case("a directory", &["opt", "/"], "/", false));
    cases.push(case("an empty name", &["opt", ""], "MODEL", false));
    cases.push(case("an endless glob", &["ops", "[a-"], "[a-", false));
    #[cfg(unix)]
    {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let bad = OsStr::from_bytes(b"caf\xe9");
        let texts =
            [OsStr::new("run"), "minilm".as_ref(), "--weights".as_ref(), MODEL.as_ref(), "--text".as_ref(), bad];
        cases.push(case("a text in Latin-1", &texts, "--text number 1", false));
        for (flag, names) in [("--rules", "caf"), ("--weights", "caf"), ("--shape", "UTF-8"), ("--format", "caf")] {
            let args = [OsStr::new("bench"), "demo".as_ref(), flag.as_ref(), bad];
            cases.push(case(format!("{flag} in Latin-1"), &args, names, false));
        }
        cases.push(case("a model in Latin-1", &[OsStr::new("opt"), bad], "caf", false));
        cases.push(case("a command in Latin-1", &[bad], "caf", false));
        let input = OsString::from_vec(b"x=@caf\xe9.npy".to_vec());
        let graph = dir.file("latin.graph", "(graph \"g\" (input x f32[2]) (output y (neg x)))");
        cases.push(case(
            "an input in Latin-1",
            &["run".as_ref(), graph.as_os_str(), "--input".as_ref(), &input],
            "UTF-8",
            false,
        ));
        // A file name need not be UTF-8.
        let good = dir.path("x").with_file_name(bad);
        std::fs::write(&good, "(graph \"g\" (input x f32[2]) (output y (neg x)))").expect("it is written");
        let mut case = case("a file in Latin-1", &[OsStr::new("opt"), good.as_os_str()], "caf", true);
        case.what.push_str(" that is there");
        cases.push(case);
    }
    cases
}

/// Returns the problem of a run's result, or `None` if there is none.
fn problem(case: &Case) -> Option<String> {
    let start = Instant::now();
    let mut child = common::command()
        .args(&case.args)
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stderr = child.stderr.take().expect("it is piped");
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut stderr, &mut bytes).map(|_| bytes)
    });
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                child.kill().expect("it can be ended");
                child.wait().expect("it ends");
                return Some(format!("no end after {LIMIT:?}"));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let bytes = reader.join().expect("reading does not panic").expect("it can be read");
    let Ok(err) = String::from_utf8(bytes) else { return Some("stderr is not UTF-8".into()) };
    let told = |what: &str| Some(format!("{what}; exit code {:?}, stderr:\n{err}", status.code()));
    match status.code() {
        _ if err.contains("panicked") => told("a panic"),
        Some(0) if case.may_pass => None,
        Some(0) => told("it should be refused"),
        Some(1 | 2) if err.lines().count() > SCREEN.0 || err.len() > SCREEN.1 => told("more than a screen"),
        Some(1 | 2) if !err.contains(case.names) => told(&format!("`{}` is not named", case.names)),
        Some(2) if !["help:", "Usage", "--help", "try "].iter().any(|h| err.contains(h)) => {
            told("it does not say what to do")
        }
        Some(1 | 2) => None,
        _ => told("a crash"),
    }
}

#[test]
fn whatever_is_damaged_is_an_error() {
    let (dir, random) = (Dir::new(), &mut Random(20_251_121));
    let mut cases = models(&dir, random);
    cases.extend(graphs(&dir, random));
    cases.extend(rules(&dir, random));
    cases.extend(arrays(&dir, random));
    cases.extend(arguments(&dir));
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut problems = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.extend(problem(case).map(|p| format!("{} {:?}: {p}", case.what, case.args)));
        }
        problems
    };
    let workers = thread::available_parallelism().map_or(2, usize::from).min(8);
    let problems: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("no worker panics")).collect()
    });
    assert!(problems.is_empty(), "{} of {} runs:\n{}", problems.len(), cases.len(), problems.join("\n\n"));
}
