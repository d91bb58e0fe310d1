//! Compares the effect of a rule in `rules why` with that in `rules ablate`.

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
    // A long reason follows the table, because a column would become as wide as the reason.
    assert!(ablated.lines().take_while(|line| !line.starts_with("without ")).all(|line| line.chars().count() <= 80));
}

#[test]
fn a_rule_that_loses_has_a_price_and_can_be_forced() {
    let dir = Dir::new();
    let graph = "(graph \"g\" (input x f32[64 256]) (output y (neg x)))";
    let rules = ";; −x = log(1/eˣ)
(rule mine/turned (forall (F float) (?x F[A..])) (=> (neg ?x) (log (reciprocal (exp ?x)))) (canonical) (eq reassoc))
;; −(−eˣ) = eˣ
(rule mine/elsewhere (forall (F float) (?x F[A..])) (=> (neg (neg (exp ?x))) (exp ?x)) (eq exact))
";
    let (graph, rules) = (dir.file("g.graph", graph), dir.file("a.rules", rules));
    let [graph, rules] = [graph.to_str().expect("UTF-8"), rules.to_str().expect("UTF-8")];
    let opt = |more: &[&str]| eutectic([&["opt", graph, "--rules", rules], more].concat());
    let forced = opt(&["--force", "mine/turned", "--format", "json"]).good();
    let forced: Value = serde_json::from_str(&forced).expect("it is JSON");
    let seconds = |name: &str| forced["forced"][name].as_f64().expect("a number");
    assert!(seconds("predicted_s") > seconds("chosen_s"), "{}", forced["forced"]);
    assert_eq!(forced["forced"]["predicted_s"], forced["predicted_s"]);
    let said = opt(&["--force", "mine/turned", "--print", "kernels"]).good();
    assert!(said.contains("mine/turned is forced") && said.contains("% dearer: "), "{said}");
    // `why` shows the same price.
    let why = json(&["rules", "why", "mine/turned", graph, "--rules", rules, "--format", "json"]);
    let ratio = why[0]["with_it"]["predicted_ratio"].as_f64().expect("a number");
    assert!((ratio - seconds("predicted_s") / seconds("chosen_s")).abs() < 1e-6, "{}", why[0]["with_it"]);
    let text = eutectic(["rules", "why", "mine/turned", graph, "--rules", rules]).good().replace('\n', " ");
    assert!(text.contains("the cheapest plan with it is"), "{text}");
    opt(&["--force", "mine/elsewhere"])
        .refused(&["cannot force mine/elsewhere because it does not change the program", "rules why"]);
    opt(&["--force", "mine/tuned"]).refused(&["no rule is named `mine/tuned`", "did you mean"]);
    // The price that the rule states decides the plan, and predicted times stay.
    let cheap = std::fs::read_to_string(rules).expect("it is there").replace("(canonical)", "(canonical) (price 0.01)");
    let cheap = dir.file("cheap.rules", cheap);
    let taken = eutectic(["opt", graph, "--rules", cheap.to_str().expect("UTF-8"), "--force", "mine/turned"]).good();
    assert!(taken.contains("the chosen plan has kernels of it"), "{taken}");
}
