//! Tests `run` of language models: its output, and which options can be combined.

mod common;

use std::{io::Write, process::Stdio};

use common::{Dir, Run, eutectic};
use serde_json::Value;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/gguf/llama.gguf");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/gguf/llama.json");

fn golden() -> Value {
    serde_json::from_str(&std::fs::read_to_string(GOLDEN).expect("the golden values")).expect("JSON")
}

#[test]
fn a_prompt_is_continued() {
    let golden = golden();
    let text = golden["text"].as_str().expect("a text");
    let run = |more: &[&str]| eutectic([&["run", MODEL, "--prompt", text, "--max-tokens", "9"], more].concat()).good();
    let printed: Value = serde_json::from_str(&run(&["--temperature", "0", "--format", "json"])).expect("JSON");
    assert_eq!(printed["prompt_tokens"], golden["prompt"]);
    assert_eq!(printed["tokens"].as_array(), golden["tokens"].as_array().map(|all| all[..9].to_vec()).as_ref());
    assert_eq!(printed["stop"], "limit");
    // Text output is the same text and a line end.
    assert_eq!(run(&[]), format!("{}\n", printed["text"].as_str().expect("a text")));
    let seeded = |seed: &str| {
        run(&["--temperature", "1.5", "--top-k", "50", "--top-p", "0.9", "--min-p", "0.01", "--seed", seed])
    };
    assert_eq!(seeded("3"), seeded("3"));
    assert_ne!(seeded("3"), seeded("4"));
}

/// Runs the command with a text on stdin, and returns the JSON values that it prints.
fn with_stdin(args: &[&str], text: &str) -> Vec<Value> {
    let mut command = common::command();
    command.args(args).args(["--format", "json"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("it was asked for").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn a_prompt_may_come_from_stdin_and_be_a_message() {
    let printed = with_stdin(&["run", MODEL, "--prompt", "-", "--chat", "--max-tokens", "1"], " is the hat on? ");
    let [printed] = &printed[..] else { panic!("{} values", printed.len()) };
    // Both the file and the template ask for the token that begins a text. It occurs once.
    let ids = printed["prompt_tokens"].as_array().expect("a list");
    assert_eq!(ids.iter().filter(|id| **id == 1).count(), 1, "{ids:?}");
    assert_eq!(ids[0], 1);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let with = |more: &[&str]| -> Run { eutectic([&["run", MODEL], more].concat()) };
    with(&[]).refused(&["continues texts, but no --prompt was given", "--prompt \""]);
    with(&["--prompt", "a", "--top-k", "3"]).refused(&["--top-k", "--temperature"]);
    with(&["--prompt", "a", "--top-p", "0.5", "--temperature", "0"]).refused(&["--top-p", "--temperature"]);
    with(&["--prompt", "a", "--temperature", "-1"]).refused(&["the temperature is -1"]);
    with(&["--prompt", "a", "--temperature", "1", "--top-p", "0"]).refused(&["top-p is 0"]);
    with(&["--prompt", "a", "--text", "b", "--seq", "3", "--random"])
        .refused(&["--text, --seq, --random", "language model"]);
    with(&["--prompt", &"a b ".repeat(200)]).refused(&["tokens", "was trained for 128", "a shorter prompt"]);
    eutectic(["run", "demo", "--prompt", "a"]).refused(&["--prompt", "not a language model", "*.gguf"]);
    eutectic(["run", "demo", "--text", "a", "--max-tokens", "3"]).refused(&["--max-tokens", "not a language model"]);
    eutectic(["explain", MODEL]).refused(&["is a language model, not a graph", "--prompt"]);
    eutectic(["run", "no-such.gguf", "--prompt", "a"]).refused(&["no-such.gguf"]);
    let dir = Dir::new();
    let damaged = dir.file("damaged.gguf", b"GGUF\x03\0\0\0\xff");
    eutectic(["run", damaged.to_str().expect("UTF-8"), "--prompt", "a"]).refused(&[
        "damaged.gguf",
        "at byte 8",
        "get it again",
    ]);
}

#[test]
fn a_conversation_remembers_what_was_said() {
    let chat = |text: &str| with_stdin(&["chat", MODEL, "--max-tokens", "4", "--context", "100"], text);
    let answers = chat("a hat\n\nthe cat\n");
    let [first, second] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!(chat("a hat\n")[0]["tokens"], first["tokens"]);
    let tokens = |answer: &Value, name: &str| answer[name].as_array().expect("a list").len();
    // The second prompt contains the first one, its answer, and the new message.
    assert!(tokens(second, "prompt_tokens") > tokens(first, "prompt_tokens") + tokens(first, "tokens"));
    let alone = &chat("the cat\n")[0];
    assert!(tokens(second, "prompt_tokens") > tokens(alone, "prompt_tokens"));
    let told = |more: &[&str]| eutectic([&["chat", MODEL], more].concat());
    told(&["--top-k", "3"]).refused(&["--top-k", "--temperature"]);
    eutectic(["chat", "no-such.gguf"]).refused(&["no-such.gguf"]);
}

#[test]
fn a_bench_measures_a_prompt_and_a_continuation() {
    let args = ["bench", MODEL, "--prompt", "5", "--generate", "3", "--iters", "2", "--warmup", "0"];
    let printed = eutectic([&args[..], &["--format", "json"]].concat()).good();
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    for (phase, tokens) in [("prompt", 5), ("generate", 3)] {
        assert_eq!(printed[phase]["tokens"], tokens);
        assert_eq!(printed[phase]["times_ms"].as_array().map(Vec::len), Some(2));
    }
    // In the middle of the continuation, the cache has 2 more tokens. Each token has 8 keys and 8 values of 2 bytes,
    // for each of 2 heads in 2 layers.
    let read = |generate: &str| {
        let args = ["bench", MODEL, "--prompt", "8", "--generate", generate, "--iters", "1", "--format", "json"];
        let printed: Value = serde_json::from_str(&eutectic(args).good()).expect("JSON");
        printed["bytes_per_token"].as_u64().expect("a number")
    };
    assert_eq!(read("6") - read("2"), 2 * (8 + 8) * 2 * 2 * 2);
    assert!(eutectic(args).good().contains("A generated token reads"));
}

#[test]
fn a_bench_refuses_what_says_nothing() {
    eutectic(["bench", MODEL, "--ids", "ids.npy", "--batch", "2"]).refused(&["--ids, --batch", "is a language model"]);
    eutectic(["bench", "demo", "--generate", "4"]).refused(&["--generate: demo is no language model"]);
    eutectic(["bench", MODEL, "--prompt", "1000000"]).refused(&[
        "tokens because",
        "was trained for",
        "--prompt and --generate",
    ]);
}

#[test]
fn inspect_says_what_is_in_a_file_and_what_is_not_supported() {
    let experts = MODEL.replace("llama.gguf", "llama-experts.gguf");
    let out = eutectic(["inspect", &experts]).good();
    for wanted in ["architecture  llama", "2 of 6 in 2 layers", "Q8_0", "Q4_1", "token reads"] {
        assert!(out.contains(wanted), "{wanted} is not in {out}");
    }
    let printed: Value =
        serde_json::from_str(&eutectic(["inspect", &experts, "--format", "json"]).good()).expect("JSON");
    assert_eq!(printed["model"]["experts_of_a_token"], 2);
    assert_eq!(printed["unsupported"], serde_json::json!([]));
    // Of each expert's 3·32·64 weights, formats of 34, 18 and 20 bytes for 32; a token reads 2 of 6 in both layers. It reads one row of the
    // embeddings, which are not counted.
    let sizes = |value: &Value| value.as_u64().expect("a number");
    let all: u64 = printed["formats"].as_object().expect("formats").values().map(|of| sizes(&of["bytes"])).sum();
    let unread = 2 * 4 * 64 * (34 + 18 + 20) + 2 * 96 * 32;
    assert_eq!(sizes(&printed["model"]["bytes_of_a_token"]), all - unread);
    let mut bytes = std::fs::read(MODEL).expect("the golden model");
    let at = bytes.windows(5).position(|window| window == b"llama").expect("its architecture");
    bytes[at..at + 5].copy_from_slice(b"mamba");
    let dir = Dir::new();
    let other = dir.file("mamba.gguf", &bytes);
    let out = eutectic(["inspect".as_ref(), other.as_os_str()]).good();
    assert!(out.contains("not supported") && out.contains("`mamba`"), "{out}");
    eutectic(["inspect", MODEL, "--shape", "a=1"]).refused(&["--shape", "GGUF"]);
    eutectic(["inspect", "no-such.gguf"]).refused(&["no-such.gguf"]);
}
