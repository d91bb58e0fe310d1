//! Tests bad input: the error names the problem, its position and a correction, and the exit code is 2. There is no
//! panic.

mod common;

use common::{Dir, eutectic};

const MLP: &str = r#"
(graph "mlp"
  (input x f32[B 8])
  (param w f32[8 4])
  (param b f32[4])
  (let h (add (matmul x w) b))
  (output y (act h :kind relu)))
"#;

#[test]
fn unknown_words() {
    eutectic(["frobnicate"]).refused(&["frobnicate", "Usage"]);
    eutectic(["demo", "--frobnicate"]).refused(&["--frobnicate"]);
    eutectic(["opt", "no-such-model"]).refused(&["no-such-model", "minilm", "bert-base"]);
    eutectic(["opt", "demo", "--backend", "cqu"]).refused(&["cqu", "did you mean `cpu`?", "eutectic devices"]);
    eutectic(["rules", "check", "--backend", "none,cqu"]).refused(&["cqu", "did you mean `cpu`?"]);
    eutectic(["rules", "lint", "--backend", "cqu"]).refused(&["cqu", "did you mean `cpu`?"]);
    eutectic(["opt", "demo", "--strategy", "best"]).refused(&["unfused", "greedy", "local", "exact"]);
    eutectic(["opt", "demo", "--fp", "sloppy"]).refused(&["exact", "reassoc", "fast"]);
    eutectic(["ops", "no-such-op"]).refused(&["no-such-op"]);
    eutectic(["rules", "list", "no/such-rule"]).refused(&["no/such-rule"]);
    eutectic(["opt", "demo", "--without", "no/such-rule*"]).refused(&["no/such-rule*"]);
    eutectic(["explain", "demo", "no-such-part"]).refused(&["no-such-part"]);
    eutectic(["bench", "demo", "--iters", "0"]).refused(&["--iters"]);
    eutectic(["bench", "demo", "--threads", "0"]).refused(&["--threads"]);
    eutectic(["ops", "a{"]).refused(&["a{"]);
    for (args, wanted) in [
        (&["run", "demo", "--threads", "-1"][..], "expected a whole number that is not negative"),
        (&["run", "demo", "--threads", "18446744073709551616"], "it is too large for 64 bits"),
        (&["run", "demo", "--threads", "1,2"], "--sweep threads=1,2"),
        (&["run", "demo", "--seed", "-1"], "expected a whole number"),
        (&["rules", "check", "--seed", "-3"], "expected a whole number"),
        (&["rules", "check", "--cases", "99999999999"], "because memory holds all cases"),
        (&["rules", "ablate", "demo", "--tolerance", "nan"], "expected a number that is not negative"),
        (&["rules", "ablate", "demo", "--tolerance", "-1"], "expected a number that is not negative"),
    ] {
        let run = eutectic(args);
        assert!(!run.err.contains("-- -"), "{}", run.err);
        run.refused(&[wanted]);
    }
}

#[test]
fn stdin_is_read_once_and_stdout_gets_one_thing() {
    for (args, by) in [
        (&["run", "-", "--input", "x=@-"][..], "named by MODEL and by --input x"),
        (&["run", "demo", "--input", "a=@-", "--input", "b=@-"], "by --input a and by --input b"),
        (&["bench", "demo", "--ids", "-", "--plan", "-"], "by --ids and by --plan"),
        (&["opt", "-", "--costs", "-"], "by MODEL and by --costs"),
        (&["opt", "demo", "--dot", "--format", "json"], "--dot and --format json"),
        (&["opt", "demo", "--dot", "--gap"], "--dot"),
        (&["explain", "demo", "--html", "x.html", "--format", "json"], "--html and --format json"),
        (&["run", "demo", "--output", "-", "--format", "json"], "--output - and --format json"),
        (&["bench", "demo", "--csv", "-", "--save-plan", "-"], "--csv - and --save-plan -"),
    ] {
        eutectic(args).refused(&[by]);
    }
}

#[test]
fn a_place_that_cannot_be_written_to_is_named() {
    let dir = Dir::new();
    let nowhere = dir.path("nowhere/file.npy").display().to_string();
    for args in [
        &["run", "demo", "--seq", "8", "--output"][..],
        &["bench", "demo", "--seq", "8", "--iters", "1", "--save-plan"],
        &["bench", "demo", "--seq", "8", "--iters", "1", "--csv"],
        &["explain", "demo", "1", "--seq", "8", "--quick", "--iters", "0", "--html"],
        &["tune", "--out"],
    ] {
        eutectic([args, &[&nowhere]].concat()).refused(&["nowhere", "cannot write"]);
    }
}

#[test]
fn an_input_that_is_misspelt_is_named_and_not_the_dimension_that_it_leaves_open() {
    let dir = Dir::new();
    let (graph, x, y) = (dir.file("mlp.graph", MLP), dir.path("x.npy"), dir.path("y.npy"));
    let (graph, x) = (graph.to_str().unwrap(), x.to_str().unwrap());
    eutectic(["run", graph, "--shape", "B=3", "--output", &format!("y={}", y.display())]).good();
    std::fs::copy(&y, x).unwrap();
    for command in ["run", "bench"] {
        let given = format!("xx=@{x}");
        eutectic([command, graph, "--input", &given]).refused(&["no input named `xx`", "did you mean `x`?"]);
    }
}

#[test]
fn missing_and_damaged_weights() {
    let dir = Dir::new();
    eutectic(["bench", "minilm"]).refused(&["--weights DIR", "--random", "fetch-minilm.sh"]);
    let run = |dir: &std::path::Path| {
        eutectic([
            "run".as_ref(),
            "minilm".as_ref(),
            "--weights".as_ref(),
            dir.as_os_str(),
            "--text".as_ref(),
            "a".as_ref(),
        ])
    };
    run(&dir.path("nowhere")).refused(&[
        "nowhere",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "fetch-minilm.sh",
    ]);
    dir.file("model/config.json", r#"{"hidden_size": "wide"}"#);
    dir.file("model/model.safetensors", [9, 0, 0, 0, 0, 0, 0, 0, b'{']);
    dir.file("model/tokenizer.json", "[]");
    run(&dir.path("model")).refused(&["hidden_size", "model.safetensors", "tokenizer.json"]);
    let weights = dir.path("model");
    eutectic(["bench".as_ref(), "minilm".as_ref(), "--weights".as_ref(), weights.as_os_str()])
        .refused(&["hidden_size"]);
}

#[test]
fn sweeps_over_what_a_model_does_not_have() {
    eutectic(["bench", "demo", "--sweep", "thread=1,2"]).refused(&["--sweep thread", "did you mean `threads`?", "seq"]);
}

#[test]
fn texts_that_are_none() {
    eutectic(["run", "minilm", "--text", "hello"]).refused(&["--weights DIR"]);
    eutectic(["run", "minilm"]).refused(&["--text"]);
    eutectic(["run", "demo", "--text", "hello"]).refused(&["which takes no texts"]);
    #[cfg(unix)]
    {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let args = ["run", "minilm", "--text", "good", "--text"].map(OsStr::new);
        eutectic(args.into_iter().chain([OsStr::from_bytes(b"na\xefve")])).refused(&[
            "--text number 2",
            "byte 3",
            "UTF-8",
        ]);
    }
}

#[test]
fn graphs_that_are_none() {
    let dir = Dir::new();
    let refused = |name: &str, text: &[u8], says: &[&str]| {
        let path = dir.file(name, text);
        eutectic(["opt".as_ref(), path.as_os_str()]).refused(says);
    };
    refused("syntax.graph", b"(graph \"g\" (input x f32[2])", &["syntax.graph"]);
    refused("op.graph", b"(graph \"g\" (input x f32[2]) (output y (frobnicate x)))", &["frobnicate", "op.graph"]);
    refused("shape.graph", b"(graph \"g\" (input x f32[2 3]) (output y (matmul x x)))", &["matmul", "shape.graph"]);
    refused("bytes.graph", b"\xff\xfe\x00", &["bytes.graph", "text form"]);
    refused("empty.graph", b"", &["empty.graph"]);
    refused("unbound.graph", MLP.as_bytes(), &["B", "--shape B=N"]);
    let path = dir.path("unbound.graph");
    let with = |args: &[&str]| {
        let all = ["run".as_ref(), path.as_os_str()].into_iter().chain(args.iter().map(AsRef::as_ref));
        eutectic(all)
    };
    with(&["--shape", "C=3"]).refused(&["--shape C", "B"]);
    with(&["--shape", "B=-1"]).refused(&["NAME=N"]);
    with(&["--shape", "B"]).refused(&["NAME=N"]);
    with(&["--shape", "B=2", "--seq", "3"]).refused(&["--seq"]);
    with(&["--shape", "B=2", "--input", "x"]).refused(&["NAME=@FILE"]);
    with(&["--shape", "B=2", "--input", "z=@missing.npy"]).refused(&["missing.npy"]);
    with(&["--shape", "B=1000000000000"]).refused(&["memory"]);
    eutectic(["opt", "minilm", "--random", "--seq", "513"]).refused(&["512"]);
    eutectic(["opt", "minilm", "--random", "--batch", "0"]).refused(&["batch"]);
}

#[test]
fn arrays_that_do_not_fit() {
    let dir = Dir::new();
    let graph = dir.file("mlp.graph", MLP);
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }\n";
    let mut array = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    array.extend([0; 3 * 8 * 4]);
    let run = |npy: &[u8], rows: &str| {
        let input = format!("x=@{}", dir.file("x.npy", npy).display());
        let args = ["run".into(), graph.display().to_string(), "--shape".into(), rows.into(), "--input".into(), input];
        eutectic(args)
    };
    assert!(run(&array, "B=3").good().contains("f32[3 4]"));
    run(&array, "B=2").refused(&["`x` is f32[2 8]", "f32[3 8]"]);
    run(&array[..array.len() - 1], "B=3").refused(&["x.npy"]);
    run(b"PK\x03\x04", "B=3").refused(&["x.npy", "NUMPY"]);
}

#[test]
fn rules_that_do_not_load() {
    let dir = Dir::new();
    let lint = |name: &str, text: &[u8]| {
        dir.file(&format!("{name}/mine.rules"), text);
        eutectic(["rules".as_ref(), "lint".as_ref(), "--rules".as_ref(), dir.path(name).as_os_str()])
    };
    lint("syntax", b";; x\n(rule mine/x (forall (F float)").refused(&["mine.rules"]);
    lint("op", b";; x\n(rule mine/x (forall (F float) (?x F[A..])) (=> (frobnicate ?x) ?x) (eq exact))")
        .refused(&["frobnicate", "mine.rules"]);
    let mut bytes = Vec::new();
    let mut state = 12345_u32;
    for round in 0..40 {
        bytes.clear();
        for _ in 0..200 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push((state >> 24) as u8);
        }
        // Every second file is valid UTF-8, so that the parser runs as well.
        if round % 2 == 0 {
            bytes.iter_mut().for_each(|b| *b = b"()[]{}\"; ?:.=>abFN0-\n"[usize::from(*b) % 21]);
        }
        let run = lint(&format!("random{round}"), &bytes);
        assert_eq!(run.code, Some(2), "{round}: {}{}", run.out, run.err);
        assert!(!run.err.contains("panicked"), "{}", run.err);
    }
    eutectic(["rules".as_ref(), "list".as_ref(), "--rules".as_ref(), dir.path("nowhere").as_os_str()])
        .refused(&["nowhere"]);
}

#[test]
fn rules_are_suggested_by_their_packs_and_without() {
    eutectic(["rules", "why", "scale-scale", "demo"]).refused(&["did you mean `simplify/scale-scale`?"]);
    eutectic(["opt", "demo", "--without", "simplfy/*"]).refused(&["did you mean `simplify/*`?"]);
}

#[test]
fn no_threads_are_refused_in_words() {
    eutectic(["opt", "demo", "--threads", "0"]).refused(&["at least one thread"]);
}

#[test]
fn files_that_cannot_be_written_are_named_as_they_were_given() {
    let tuned = eutectic(["tune", "--out", "/nonexistent/costs.toml"]);
    assert!(!tuned.err.contains(".tmp"), "{}", tuned.err);
    tuned.refused(&["/nonexistent/costs.toml"]);
}
