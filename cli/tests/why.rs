//! What `rules why` says a rule is worth is what `rules ablate` finds when it is left out.

mod common;

use common::{Dir, eutectic};
use serde_json::Value;

const GRAPH: &str = r#"
(graph "block"
  (input x f16[64 96])
  (param w f16[96 128])
  (param v f16[96 128])
  (param b f16[128])
  (let h (act (add (matmul x w) b) :kind gelu-erf))
  (let g (softmax (mul (matmul x v) h) :axis -1))
  (output y (neg (neg (div g (reduce-sum g :axes [-1] :keep true))))))
"#;

fn json(args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&eutectic(args).good()).expect("it is JSON")
}

#[test]
fn why_and_ablate_agree() {
    let dir = Dir::new();
    let path = dir.file("block.graph", GRAPH);
    let graph = path.to_str().expect("a path in UTF-8");
    for more in [&[][..], &["--precision", "f16"]] {
        let with = |args: &[&str]| json(&[args, more, &["--format", "json"]].concat());
        let why = with(&["rules", "why", "*", graph]);
        let ablated = with(&["rules", "ablate", graph, "--iters", "0"]);
        let mut compared = 0;
        for row in &ablated {
            let said = why.iter().find(|w| w["rule"] == row["rule"]).unwrap_or_else(|| panic!("nothing on {row}"));
            if row["needed"].is_string() {
                assert!(said["without_it"]["needed"].is_string(), "{said}\n{row}");
                continue;
            }
            let ratio = row["predicted_us"].as_f64().unwrap() / row["predicted_with_us"].as_f64().unwrap();
            let same = (said["without_it"]["predicted_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9;
            let more = row["kernels"].as_i64().unwrap() - row["kernels_with"].as_i64().unwrap();
            assert!(same && said["without_it"]["more_kernels"] == more, "{said}\n{row}");
            compared += 1;
        }
        assert!(compared > 3, "{compared} rules compared");
    }
}

#[test]
fn a_rule_without_which_there_is_no_program_says_what_lacks_one() {
    let dir = Dir::new();
    let path = dir.file("norm.graph", "(graph \"norm\" (input x f32[4 8]) (output y (softmax x :axis -1)))");
    let graph = path.to_str().expect("a path in UTF-8");
    let ablated = eutectic(["rules", "ablate", graph, "--iters", "0"]).good();
    let why = eutectic(["rules", "why", "decompose/softmax", graph]).good();
    for (text, begins) in [(&ablated, "without decompose/softmax there is"), (&why, "without it there is")] {
        let line = text.lines().find(|line| line.contains(begins)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("no program") && line.contains("`softmax` has no kernel form"), "{text}");
    }
    // The reason stands below the table, which it would make as wide as itself.
    assert!(ablated.lines().take_while(|line| !line.starts_with("without ")).all(|line| line.chars().count() <= 80));
}
