//! The language server: sessions as an editor has them.

mod common;

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use common::{Dir, command};
use serde_json::{Value, json};

/// A session with the server.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: i64,
    /// Notifications that came before the answer of a request.
    notices: VecDeque<Value>,
}

impl Session {
    fn new(args: &[&str]) -> Session {
        let mut command = command();
        command.arg("lsp").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut session = Session { child, input, output, last: 0, notices: VecDeque::new() };
        let answer = session.ask("initialize", json!({ "capabilities": {} }));
        assert_eq!(answer["serverInfo"]["name"], "eutectic");
        assert_eq!(answer["capabilities"]["positionEncoding"], "utf-16");
        session.tell("initialized", json!({}));
        session
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("it reads");
        self.input.flush().expect("it reads");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("text") > 0, "the server is gone");
            match line.trim() {
                "" => break,
                line => {
                    if let Some(n) = line.strip_prefix("Content-Length: ") {
                        length = n.parse().expect("a number");
                    }
                }
            }
        }
        let mut bytes = vec![0; length];
        self.output.read_exact(&mut bytes).expect("a message");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
            self.notices.push_back(message);
        }
    }

    fn open(&mut self, path: &Path, text: &str) {
        let document = json!({ "uri": uri(path), "languageId": "eutectic", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    fn change(&mut self, path: &Path, version: i64, text: &str) {
        let document = json!({ "uri": uri(path), "version": version });
        self.tell("textDocument/didChange", json!({ "textDocument": document, "contentChanges": [{ "text": text }] }));
    }

    /// Waits for diagnostics of a version of a document that `wanted` accepts.
    fn diagnostics(&mut self, path: &Path, version: i64, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let notice = self.notices.pop_front();
            let notice = notice.unwrap_or_else(|| self.receive());
            let params = &notice["params"];
            if notice["method"] == "textDocument/publishDiagnostics"
                && params["uri"] == uri(path)
                && params["version"] == version
            {
                let all = params["diagnostics"].as_array().expect("a list");
                if wanted(all) {
                    return all.clone();
                }
            }
        }
    }

    #[track_caller]
    fn at(&mut self, method: &str, path: &Path, text: &str, place: &str, offset: usize) -> Value {
        let at = text.find(place).expect("the place is there") + offset;
        let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
        let position =
            json!({ "line": text[..at].matches('\n').count(), "character": text[start..at].encode_utf16().count() });
        self.ask(method, json!({ "textDocument": { "uri": uri(path) }, "position": position }))
    }

    #[track_caller]
    fn hover(&mut self, path: &Path, text: &str, place: &str) -> String {
        let answer = self.at("textDocument/hover", path, text, place, 0);
        answer["contents"]["value"].as_str().unwrap_or_default().to_string()
    }

    fn labels(&mut self, path: &Path, text: &str, place: &str) -> Vec<String> {
        let answer = self.at("textDocument/completion", path, text, place, place.len());
        let items = answer.as_array().expect("a list");
        items.iter().map(|item| item["label"].as_str().expect("a label").to_string()).collect()
    }

    fn end(mut self) {
        assert!(self.ask("shutdown", Value::Null).is_null());
        self.tell("exit", Value::Null);
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn message(diagnostic: &Value) -> &str {
    diagnostic["message"].as_str().expect("a message")
}

const OPS: &str = ";; x·x\n(op mine/square (forall (F float) (?x F[A..])) (result F[A..]) (is (mul ?x ?x)))\n";

const RULES: &str = "\
;; −(a − b) = b − a
(rule mine/difference
  (forall (F float) (?a F[B.. M]) (?b F[B.. M]))
  (where (at-most 1 M))
  (=> (neg (sub ?a ?b)) (sub ?b ?a))
  (eq exact))

;; −(−x²)·w = (x·x)·w
(rule mine/product
  (forall (F float) (?x F[B.. M K]) (?w F[K N]))
  (let ?y (mul ?x ?x))
  (=> (matmul (neg (neg (mine/square ?x))) ?w) (matmul ?y ?w))
  (eq exact))
";

#[test]
fn a_session_with_rules() {
    let dir = Dir::new();
    dir.file("ops.rules", OPS);
    let path = dir.file("own.rules", "");
    let mut session = Session::new(&[]);

    // A wrong rule: the error of the loader, at its place.
    let broken = RULES.replace("(sub ?a ?b)", "(sbu ?a ?b)");
    session.open(&path, &broken);
    let all = session.diagnostics(&path, 1, |_| true);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(message(&all[0]).contains("did you mean `sub`?"), "{all:?}");
    assert_eq!(all[0]["severity"], 1);
    let line = broken.lines().nth(4).expect("a line");
    assert_eq!(all[0]["range"]["start"]["line"], 4);
    let column = all[0]["range"]["start"]["character"].as_u64().expect("a number") as usize;
    assert!(line[column..].trim_start_matches('(').starts_with("sbu"), "{line} {column}");

    // Mended, it is linted: nothing uses a variable.
    session.change(&path, 2, &RULES.replace("(?w F[K N])", "(?w F[K N]) (?n int)"));
    let unused = |d: &Value| message(d).contains("`?n` is declared but never used") && d["severity"] == 2;
    let all = session.diagnostics(&path, 2, |all| all.iter().any(unused));
    assert!(all.iter().all(|d| d["severity"] != 1), "{all:?}");
    let text = RULES.to_string();
    session.change(&path, 3, &text);
    session.diagnostics(&path, 3, <[Value]>::is_empty);

    // Types and rows of the op table.
    let hover = session.hover(&path, &text, "matmul (neg");
    assert!(hover.contains("F[B.. M N]") && hover.contains("**matmul**") && hover.contains("F[B.. M K]"), "{hover}");
    assert!(session.hover(&path, &text, "?y ?w").contains("?y : F[B.. M K]"));
    assert!(session.hover(&path, &text, "?w) (matmul").contains("(?w F[K N])"));
    assert!(session.hover(&path, &text, "at-most").contains("(at-most M N)"));
    let hover = session.hover(&path, &text, "mine/square ?x");
    assert!(hover.contains("F[B.. M K]") && hover.contains("is: (mul ?x ?x)"), "{hover}");

    // Definitions, in the file and in the file next to it.
    let there = session.at("textDocument/definition", &path, &text, "?y ?w", 1);
    assert_eq!(there["range"]["start"]["line"], 10);
    let there = session.at("textDocument/definition", &path, &text, "mine/square", 3);
    assert_eq!(there["uri"], uri(&dir.path("ops.rules")));
    assert_eq!(there["range"]["start"], json!({ "line": 1, "character": 4 }));

    // Completion, where the text does not read.
    for (typed, wanted) in [
        ("(rule mine/new (forall (F float)) (=> (sof", "softmax"),
        ("(rule mine/new (forall (F float)) (=> (mine/", "mine/square"),
        ("(rule mine/new (forall (F float)) (=> (softmax ?x :ax", ":axis"),
        ("(rule mine/new (forall (F float) (?long F[A..])) (=> (neg ?l", "?long"),
        ("(rule mine/new (where (div", "divides"),
        ("(rule mine/new (ca", "canonical"),
        ("(ru", "rule"),
    ] {
        let more = format!("{text}\n{typed}");
        session.change(&path, 4, &more);
        let labels = session.labels(&path, &more, typed);
        assert!(labels.iter().any(|label| label == wanted), "{typed}: {labels:?}");
    }

    // Layout.
    session.change(&path, 5, &text.replace("  (eq exact))", "(eq    exact))"));
    let options = json!({ "tabSize": 2, "insertSpaces": true });
    let edits =
        session.ask("textDocument/formatting", json!({ "textDocument": { "uri": uri(&path) }, "options": options }));
    assert_eq!(edits[0]["newText"], text);

    // A saved rule is tested: where a = b, −0 is not 0.
    session.change(&path, 6, &text);
    session.tell("textDocument/didSave", json!({ "textDocument": { "uri": uri(&path) } }));
    let refuted = |d: &Value| d["code"] == "rules check" && d["severity"] == 1;
    let all = session.diagnostics(&path, 6, |all| all.iter().any(refuted));
    let wrong = all.iter().find(|d| refuted(d)).expect("it is refuted");
    assert_eq!(wrong["range"]["start"]["line"], 1, "{wrong}");
    assert!(message(wrong).contains("?a :") && message(wrong).contains("allowed: no difference"), "{wrong}");

    // The finding goes when the rule changes.
    let weaker = text.replacen("(eq exact)", "(eq reassoc)", 1);
    session.change(&path, 7, &weaker);
    session.diagnostics(&path, 7, |all| all.iter().all(|d| d["range"]["start"]["line"] != 1));
    session.end();
}

#[test]
fn a_session_with_a_graph() {
    let dir = Dir::new();
    dir.file("ops.rules", OPS);
    let path = dir.file("own.graph", "");
    let text = "(graph \"g\"\n  (input x f32[4 8])\n  (param w f32[8 2])\n  (let h (matmul (mine/square x) w))\n  (output y (softmax h :axis -1)))\n";
    let mut session = Session::new(&[]);
    session.open(&path, &text.replace("f32[8 2]", "f32[7 2]"));
    let all = session.diagnostics(&path, 1, |_| true);
    assert!(message(&all[0]).contains("K is 8 in one place and 7 in another"), "{all:?}");
    // What depends on the error has no type, and everything else does.
    session.change(&path, 2, text);
    assert!(session.diagnostics(&path, 2, |_| true).is_empty());
    assert!(session.hover(&path, text, "matmul").contains("f32[4 2]"));
    assert!(session.hover(&path, text, "h :axis").contains("h : f32[4 2]"));
    assert!(session.hover(&path, text, ":axis").contains("of `softmax`"));
    let there = session.at("textDocument/definition", &path, text, "h :axis", 0);
    assert_eq!(there["range"]["start"], json!({ "line": 3, "character": 7 }));
    assert!(session.labels(&path, text, "(softmax ").iter().any(|label| label == "h"));
    assert!(session.labels(&path, text, "  (par").iter().any(|label| label == "param"));
    // A message that is none is answered, and a document that is closed has no findings.
    let unknown = json!({ "jsonrpc": "2.0", "id": 99, "method": "textDocument/rename", "params": {} });
    session.send(&unknown);
    let answer = session.receive();
    assert!(answer["error"]["message"].as_str().expect("text").contains("does not offer it"), "{answer}");
    session.tell("textDocument/didClose", json!({ "textDocument": { "uri": uri(&path) } }));
    let closed = session.receive();
    assert!(closed["params"]["diagnostics"].as_array().expect("a list").is_empty());
    session.end();
}

#[test]
fn rules_of_the_command_line_are_known() {
    let dir = Dir::new();
    let pack = dir.file("base/ops.rules", OPS);
    let path = dir.file("own.graph", "");
    let rules = pack.display().to_string();
    let mut session = Session::new(&["--rules", &rules]);
    session.open(&path, "(graph \"g\" (input x f32[4]) (output y (mine/square x)))");
    assert!(session.diagnostics(&path, 1, |_| true).is_empty());
    session.end();
}
