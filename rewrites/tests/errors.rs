//! Tests the error messages for wrong rule files: position, caret and help of each.

use std::fmt::Write;

use eutectic_ir::lang::{Errors, Source};
use eutectic_rewrites::{LoadError, RuleSet};
use miette::{GraphicalReportHandler, GraphicalTheme};

/// A correct rule. Each case changes one place of it.
const SOUND: &str = "\
;; a product with a bias is a linear
(rule fuse/linear
  (forall (F float) (?x F[B.. M K]) (?w F[K N]) (?b F[N]))
  (=> (add (matmul ?x ?w) ?b) (linear ?x ?w ?b :act none))
  (eq reassoc))
";

fn errors(text: &str) -> Errors {
    RuleSet::read(&[Source::new("mine.rules", text)]).expect_err("the rules are wrong")
}

fn shown(errors: &Errors) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(110);
    let mut text = String::new();
    for error in &errors.0 {
        handler.render_report(&mut text, error).unwrap();
        writeln!(text).unwrap();
    }
    text.lines().map(|l| l.trim_end().to_string() + "\n").collect()
}

/// Returns the name and the rule file of each case.
fn cases() -> Vec<(&'static str, String)> {
    let right = |with: &str| SOUND.replace("(linear ?x ?w ?b :act none)", with);
    let act = ";; a name\n(rule fuse/act (forall (F float) (?x F[A..])) (=> (act ?x) ?x) (eq exact))\n";
    let product = "\
;; a product of dims
(rule fuse/product
  (forall (F float) (?x F[(* M N)]))
  (=> (neg (neg ?x)) (reshape (reshape ?x :shape [M N]) :shape [(* M N)]))
  (eq exact))
";
    let growing = "\
;; x + y = −−x + y, which matches its own result
(rule simplify/grow
  (forall (F float) (?x F[A..]) (?y F[A..]))
  (=> (add ?x ?y) (add (neg (neg ?x)) ?y))
  (eq exact))
";
    vec![
        ("type-error", right("(matmul ?w ?x)")),
        ("sides-differ", right("?x")),
        ("unknown-op", right("(liner ?x ?w ?b :act none)")),
        ("omitted-attribute", act.into()),
        ("unsolvable-dim", right("(expand ?b :shape [B.. M Q])")),
        ("open-product", product.into()),
        ("duplicate-name", format!("{SOUND}\n{SOUND}")),
        ("syntax-error", SOUND.replace(":act none))", ":act none)")),
        ("undocumented", SOUND.replace(";; a product with a bias is a linear\n", "")),
        ("unnamed", SOUND.replace("fuse/linear", "")),
        ("unknown-attribute", right("(linear ?x ?w ?b :akt none)")),
        ("unbound-variable", right("(linear ?x ?w ?c :act none)")),
        ("not-on-the-left", SOUND.replace("(?b F[N])", "(?b F[N]) (?z F[N])")),
        ("self-feeding", growing.into()),
        ("unsampleable", SOUND.replace("(=> (add", "(where (equal M (+ M 1))) (=> (add")),
        ("no-contract", SOUND.replace("(eq reassoc)", "")),
    ]
}

fn page(name: &str) -> String {
    format!("{}/tests/errors/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn messages_are_as_they_are_pinned() {
    let mut differing = String::new();
    for (name, text) in cases() {
        let got = shown(&errors(&text));
        let want = std::fs::read_to_string(page(name)).unwrap_or_default();
        if got.trim() != want.trim() {
            writeln!(differing, "{} should be\n{got}", page(name)).unwrap();
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

/// Writes the expected messages again: `cargo test -p eutectic-rewrites --test errors -- --ignored`. Review the
/// difference afterwards.
#[test]
#[ignore = "writes tests/errors/*.txt"]
fn pin_messages() {
    for (name, text) in cases() {
        std::fs::write(page(name), shown(&errors(&text))).unwrap();
    }
}

#[test]
fn the_sound_rule_loads() {
    assert_eq!(RuleSet::read(&[Source::new("mine.rules", SOUND)]).unwrap().len(), 1);
}

#[test]
fn names_that_are_nearly_right_are_guessed() {
    let told = |from: &str, to: &str| shown(&errors(&SOUND.replace(from, to)));
    let text = told("(=> (add", "(where (equals M N)) (=> (add");
    assert!(text.contains("there is no relation `equals`") && text.contains("did you mean `equal`?"), "{text}");
    let text = told("(=> (add", "(where (xyz M N)) (=> (add");
    assert!(text.contains("there is no relation `xyz`") && text.contains("equal,"), "{text}");
    for (from, to, name) in [
        ("(rule ", "(rul ", "rule"),
        ("(forall ", "(foral ", "forall"),
        ("(eq reassoc)", "(eq reasoc)", "reassoc"),
        ("(F float)", "(F flaot)", "float"),
        ("(F float)", "(F i8 bfl6)", "bf16"),
        ("(?b F[N])", "(?b F[N] cosnt)", "const"),
        ("(?b F[N])", "(?b F[N]) (?a axsi)", "axis"),
        ("(?b F[N])", "(?b f33[N])", "f32"),
        ("(eq reassoc)", "(eq reassoc) onse", "(once)"),
        (":act none", ":akt none", ":act"),
        (":act none", ":act relo", "relu"),
    ] {
        let text = told(from, to);
        assert!(text.contains(&format!("did you mean `{name}`?")), "{to}: {text}");
    }
}

#[test]
fn element_types_can_be_listed() {
    let listed = RuleSet::read(&[Source::new("mine.rules", SOUND.replace("(F float)", "(F f32 f16)"))]).unwrap();
    assert_eq!(listed.len(), 1);
    let whole = SOUND.replace("(F float)", "(F i8 i32)");
    assert!(shown(&errors(&whole)).contains("mine.rules"), "a linear layer is one of floats");
}

#[test]
fn several_errors_in_one_run() {
    let broken = SOUND.replace("(linear", "(liner").replace("fuse/linear", "fuse/other");
    let found = errors(&format!("{broken}\n{}", SOUND.replace("(eq reassoc)", "")));
    assert_eq!(found.0.len(), 2, "{}", shown(&found));
}

#[test]
fn random_bytes_are_an_error() {
    let directory = std::env::temp_dir().join(format!("eutectic-random-rules-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("noise.rules"), [0xff, 0xfe, 0x28, 0x00, 0x80]).unwrap();
    let result = RuleSet::load(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(matches!(result, Err(LoadError::Read { .. })));
}

/// Relations draw samples near numbers in the rule, however large these are.
#[test]
fn no_number_of_a_relation_is_too_large() {
    let relations = [
        "(moved ?p {} -1)",
        "(moved ?p -1 {})",
        "(moved ?p {} {})",
        "(slice [A..] ?axis {} ?n 1 [D..])",
        "(slice [A..] ?axis ?i ?n {} [D..])",
        "(slice [A..] ?axis ?i {} {} [D..])",
        "(slice [A..] ?axis ?i {} -1 [D..])",
        "(pad [A..] ?axis {} ?n [D..])",
        "(pad [A..] ?axis {} {} [D..])",
        "(window [A..] ?axis {} 1 1 [D..])",
        "(window [A..] ?axis {} {} {} [D..])",
        "(windows N {} {} ?n 1 1 M)",
        "(windows N 0 0 {} 1 {} M)",
        "(windows N ?n ?i {} {} 1 M)",
        "(at-most M {}) (at-most N M)",
        "(at-most (* 1000003 M) {})",
        "(at-most {} M)",
    ];
    let numbers = ["0", "1", "5", "-17", "4294967297", "9223372036854775807", "-9223372036854775808"];
    for relation in relations {
        for number in numbers {
            let law = ";; a law
(rule mine/law
  (forall (F float) (?x F[A.. N M]) (?p perm) (?axis axis) (?i int) (?n int))
  (where RELATION)
  (=> (slice (transpose ?x :perm ?p) :axis ?axis :at ?i :len ?n :step 1)
      (slice (transpose ?x :perm ?p) :axis ?axis :at ?i :len ?n :step 1))
  (eq exact))
";
            let text = law.replace("RELATION", &relation.replace("{}", number));
            let _ = RuleSet::read(&[Source::new("mine.rules", text)]);
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let text = include_str!("rules/basic.rules");
    let pieces = ["(", ")", "[", "]", "?x", "..", "\"", ";", "-1", "é", " ", ":act", "F[", "(eq", "N", "0.5"];
    let mut state = 12345_u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let rules: Vec<&str> = text.split("\n\n").collect();
    for _ in 0..400 {
        let mut chars: Vec<char> = rules[random(rules.len())].chars().collect();
        for _ in 0..1 + random(3) {
            let (at, count) = (random(chars.len()), chars.len());
            match random(3) {
                0 => drop(chars.remove(at)),
                1 => chars.swap(at, (at + 1) % count),
                _ => drop(chars.splice(at..at, pieces[random(pieces.len())].chars())),
            }
        }
        let mutated: String = chars.into_iter().collect();
        let _ = RuleSet::read(&[Source::new("mutated.rules", mutated)]);
    }
}

#[test]
fn a_wrong_declaration_is_said_once_and_a_file_named_once() {
    let wrong = ";; no such type\n(rule fuse/NAME (forall (?a i12[A..])) (=> (neg (neg ?a)) ?a) (eq exact))\n";
    let text = |name: &str| Source::new(format!("{name}.rules"), wrong.replace("NAME", name));
    let sound = Source::new("one.rules", SOUND.replace("(linear ", "(liner ").replace("fuse/linear", "fuse/other"));
    let errors = RuleSet::read(&[text("one"), text("two"), sound]).expect_err("the rules are wrong");
    let said: Vec<String> = errors.0.iter().map(|e| e.to_string()).collect();
    assert_eq!(said.iter().filter(|m| m.contains("i12")).count(), 2, "{said:?}");
    assert!(!said.iter().any(|m| m.contains("is not known")), "{said:?}");
    assert_eq!(errors.to_string().matches("one.rules").count(), 1, "{errors}");
}
