//! Tests the page of `explain --html`: its content, and its behaviour in a browser.

mod common;

use std::process::Command;

use common::{Dir, eutectic};
use serde_json::Value;

const LAYER: &str = r#"
(graph "</script><b>layer"
  (input x f32[16 32])
  (param w f32[32 64])
  (param b f32[64])
  (param v f32[64 32])
  (let h (act (add (matmul x w) b) :kind relu))
  (output y (softmax (matmul h v) :axis -1)))
"#;

/// Writes the page of a graph and returns its text.
fn page(dir: &Dir) -> String {
    let (graph, page) = (dir.file("<b>layer.graph", LAYER), dir.path("page.html"));
    let [graph, path] = [&graph, &page].map(|path| path.to_str().expect("UTF-8"));
    eutectic(["explain", graph, "--html", path, "--iters", "3"]).good();
    std::fs::read_to_string(page).expect("it was written")
}

/// Returns the data in a page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").expect("it has data");
    let (json, _) = rest.split_once("</script>").expect("they end");
    serde_json::from_str(json).expect("they are JSON")
}

#[test]
fn the_page_says_what_explain_says() {
    let dir = Dir::new();
    let page = page(&dir);
    assert!(!page.contains("src=\"") && !page.contains("href=\"http"), "it needs no other file");
    let data = data(&page);
    let kernels = data["kernels"].as_array().expect("kernels");
    assert!(!kernels.is_empty() && kernels.iter().all(|k| k["measured_us"].as_f64().is_some()), "{kernels:?}");
    assert!(
        data["roof"]["flops"].as_f64() > Some(1e8) && data["roof"]["bytes"].as_f64() > Some(1e8),
        "{}",
        data["roof"]
    );
    let last = kernels.last().expect("one");
    assert!(last["details"]["ops"].is_array(), "{last}");
    // Each kernel except the first one reads another kernel's result, with the reason why they are separate.
    for kernel in &kernels[1..] {
        let reads = kernel["details"]["reads"].as_array().expect("reads");
        assert!(reads.iter().all(|read| read["why"].as_str().is_some_and(|why| why.len() > 10)), "{reads:?}");
    }
    let ends: Vec<String> = data["edges"].as_array().expect("edges").iter().map(|e| e["to"].to_string()).collect();
    assert!(ends.contains(&"{\"output\":\"y\"}".to_string()), "{ends:?}");
    let rules = data["rules"].as_array().expect("rules");
    assert!(rules.iter().all(|r| r["text"].as_str().is_some_and(|t| t.starts_with("(rule"))), "{rules:?}");
    assert!(rules.iter().any(|r| r["gain_s"].is_number() || r["needed"].is_string()), "{rules:?}");
}

/// Returns the findings of `browser/page.mjs` on a page in Chromium.
fn in_browser(page: &std::path::Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/page.mjs");
    let output = Command::new("node").args(["--experimental-websocket", script]).arg(page).output().expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[test]
#[ignore = "needs node 20 and chromium; CONTRIBUTING.md says how"]
fn a_click_shows_the_ops_inside() {
    let dir = Dir::new();
    let data = data(&page(&dir));
    let shown = in_browser(&dir.path("page.html"));
    let kernels = data["kernels"].as_array().expect("kernels");
    assert_eq!(shown["problems"].as_array().map(Vec::len), Some(0), "{shown}");
    assert_eq!(shown["kernels"].as_u64(), Some(kernels.len() as u64), "{shown}");
    assert_eq!((shown["overlaps"].as_u64(), shown["rows"].as_u64()), (Some(0), Some(kernels.len() as u64)), "{shown}");
    // A click on the first kernel shows its number, its op, and the ops that are fused into it.
    let first = &kernels[0];
    let title = shown["clicked"]["title"].as_str().expect("a title");
    assert_eq!(title, format!("1 {}", first["kernel"].as_str().expect("a name")));
    assert_eq!(shown["selected"], serde_json::json!(["1"]));
    let ops = shown["clicked"]["ops"].to_string();
    for op in first["details"]["ops"].as_array().expect("ops") {
        assert!(ops.contains(op["op"].as_str().expect("a name")), "{op} is not in {ops}");
    }
    // A click on a rule shows its text.
    if let Some(rule) = shown["rule"]["text"].as_str() {
        assert!(rule.starts_with("(rule"), "{rule}");
    }
    let slowest = kernels.iter().max_by(|a, b| {
        let seconds = |k: &Value| k["measured_us"].as_f64().unwrap_or(0.0);
        seconds(a).total_cmp(&seconds(b))
    });
    assert_eq!(shown["slowest"].as_str(), slowest.map(|k| k["number"].to_string()).as_deref(), "{shown}");
}
