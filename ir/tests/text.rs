//! Tests the text form: reading, printing, and error messages.

use eutectic_ir::{
    DType, Dim, Graph, Tensor, Type,
    lang::{Errors, Source},
    text::{Style, parse, print},
};

fn read(text: &str) -> Result<Graph, Errors> {
    parse(&Source::new("test.graph", text))
}

fn round_trip(graph: &Graph) {
    for types in [false, true] {
        let text = print(graph, Style { types });
        let again = read(&text).unwrap_or_else(|e| panic!("{:?}\n{text}", miette::Report::new(e)));
        assert!(*graph == again, "{text}");
    }
}

#[test]
fn every_form_reads_back() {
    let graph = read(
        r#"(graph "all \"forms\""
          (dim S :most 9)
          (dim T :least 2 :most 5)
          (input p f32[(+ S 1) (- T 2) (* S T)])
          (input x f32[B (* 2 H) 128])
          (input "odd name" i64[(+ B 1)] :origin "a part.with space")
          (param w f32[128 2])
          (const c f32[2] { 1.0 2.5 })
          (const odd f16[7] { nan inf -inf -0.0 nan:fe01 5.9604645e-8 65504 })
          (const many u8[100] { 1 2 ... })
          (let h (add (matmul x w) c) :origin encoder.layer.0)
          (let i (iota :shape [2 3] :axis -1 :dtype i32))
          (let t (add-layernorm h h c (const f32[2] { 0.0 0.0 }) :eps 1e-5))
          (output y (get 0 t) :origin head)
          (output z (clamp (get t :index 1) :min -0.5))
          (output m (reduce-max (transpose h :perm [-1 -3 -2]) :axes [-1] :keep false))
          (output "a b" (cast i :to f64)))"#,
    )
    .unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)));
    assert_eq!(graph.outputs().len(), 4);
    round_trip(&graph);
}

#[test]
fn elements_are_kept_bit_by_bit() {
    let f32s: Vec<u8> = [f32::from_bits(0x7fc0_0001), -f32::NAN, f32::MIN_POSITIVE / 8.0, 0.1, -0.0, f32::MAX]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let mut graph = Graph::new("bits");
    let constant = Tensor::new(DType::F32, &[6], f32s).unwrap();
    let id = graph.constant(constant).unwrap();
    graph.output("y", id).unwrap();
    for dtype in DType::ALL {
        // All 16-bit patterns of the short types would take too long, so every seventh is tested.
        let size = dtype.size();
        let bytes: Vec<u8> = if dtype == DType::Bool {
            vec![0, 1, 1]
        } else {
            (0..3000_u64)
                .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()[8 - size..].to_vec())
                .collect()
        };
        let count = bytes.len() / size;
        let id = graph.constant(Tensor::new(dtype, &[count], bytes).unwrap()).unwrap();
        graph.output(dtype.name(), id).unwrap();
    }
    round_trip(&graph);
}

#[test]
fn names_do_not_collide() {
    let mut graph = Graph::new("");
    let ty = Type::Tensor(DType::F32, [Dim::symbol("B")].into_iter().collect());
    let a = graph.input("v2", ty.clone()).unwrap();
    let b = graph.input("output", ty.clone()).unwrap();
    let c = graph.apply("add", &[a, b], &[]).unwrap();
    assert!(graph.param("v2", ty).is_err());
    graph.output("v2", c).unwrap();
    round_trip(&graph);
}

#[test]
fn each_mistake_is_reported_once() {
    let source = r#"(graph "wrong"
  (input x f32[2 3])
  (input x f23[2 3])
  (let a (ad x x))
  (let b (add a y))
  (let c (softmax x :axs -1))
  (let d (softmax x :axis last))
  (let e (matmul x x))
  (let f (act x :kind relo))
  (const g f32[2] { 1.0 2.0 3.0 })
  (const h i8[1] { 300 })
  (lett i x)
  (let j (add e f))
  (let k (reduce-sum x :keep true))
  (output o xx))"#;
    let errors = read(source).unwrap_err();
    let lines: Vec<_> =
        errors.0.iter().map(|e| (Source::new("", source).position(e.offset()).0, e.message.clone())).collect();
    let at: Vec<_> = lines.iter().map(|l| l.0).collect();
    assert_eq!(at, [3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15], "{lines:#?}");
    assert!(errors.0.iter().all(|e| e.help.is_some()), "{errors:?}");
    let help = |n: usize| errors.0[n].help.clone().unwrap();
    for (at, meant, known) in [
        (0, "`f32`", "bf16"),
        (2, "`add`", ""),
        (4, "`:axis`", "it takes :axis"),
        (7, "`relu`", "it is one of"),
        (10, "`let`", "(input NAME TYPE)"),
        (12, "`x`", ""),
    ] {
        let help = help(at);
        assert!(help.contains(&format!("did you mean {meant}?")) && help.contains(known), "{at}: {help}");
    }
    let most = read("(graph \"g\" (dim S :most 0) (input x f32[S]) (output y (neg x)))").unwrap_err();
    assert!(most.0[0].help.as_deref() == Some("write :most 1 or more") && most.0[0].offset() == 24, "{most:?}");
}

#[test]
fn what_grows_without_bound_is_refused_before_it_does() {
    let told = |text: &str| read(text).unwrap_err().to_string() + &format!("{:?}", read(text).unwrap_err());
    let factors: String = (0..25).map(|n| format!(" (+ A{n} B{n})")).collect();
    assert!(told(&format!("(graph \"g\" (input x f32[(*{factors})]) (output y (neg x)))")).contains("terms"));
    let bodies = "(input x f32[]) (sub large (input y f32[]) (output p (gt y (const f32[] { 1.0 }))))
                  (sub s0 (input y f32[]) (output y (neg y)))";
    let axes: String = (0..25).map(|n| format!(" (+ A{n} B{n})")).collect();
    assert!(told(&format!("(graph \"g\" (input x f32[{axes}]) (output y (neg x)))")).contains("terms"));
    assert!(told(&format!("(graph \"g\" (input x f32[4]) (output y (reshape x :shape [{axes}])))")).contains("terms"));
    for most in ["1000000000", "18446744073709551615"] {
        let text = format!("(graph \"g\" {bodies} (output y (while large s0 x :most {most})))");
        assert!(told(&text).contains("nodes"), "{most}");
    }
    // Each body names the previous one four times, which would be 4^40 nodes.
    let nested: String = (1..40)
        .map(|n| {
            let below = n - 1;
            format!(
                "(sub s{n} (input y f32[]) (let p (gt y (const f32[] {{ 1.0 }}))) (let a (if p s{below} s{below} y))
                  (output y (if p s{below} s{below} a)))"
            )
        })
        .collect();
    let text =
        format!("(graph \"g\" {bodies} {nested} (let p (gt x (const f32[] {{ 1.0 }}))) (output y (if p s39 s39 x)))");
    assert!(told(&text).contains("nodes"));
}

#[test]
fn broken_text_is_an_error() {
    for text in ["", "(graph)", "(graph \"x\" (let", "(graph \"x\") (graph \"y\")", "x", "(graph \"x\" [1 2])", "\u{0}"]
    {
        assert!(read(text).is_err(), "{text}");
    }
    assert!(read("(graph \"x\" (const c f32[4000000000 4000000000] { 1.0 ... }))").is_err());
    assert!(read("(graph \"x\" (const c f32[100000 100000] { 1.0 ... }))").is_err());
}

#[test]
fn a_number_as_an_operand_is_told_how_constants_are_written() {
    let source = Source::new("g.graph", "(graph g (input x f32[2]) (output y (mul x 0.5)))");
    let errors = parse(&source).unwrap_err();
    let help = errors.0[0].help.clone().unwrap_or_default();
    assert!(help.contains("(const f32[] { 0.5 })"), "{help}");
}

#[test]
fn numbers_that_are_no_extents_are_no_names_of_dimensions() {
    for dim in ["1.5", "-1", "1e5", ".5", "99999999999999999999"] {
        let source = Source::new("g.graph", format!("(graph g (input x f32[{dim}]) (output y x))"));
        let errors = parse(&source).unwrap_err();
        assert_eq!(errors.0[0].message, "this is not an extent", "{dim}");
    }
    let source = Source::new("g.graph", "(graph g (input x f32[(+ A -1)]) (output y x))");
    assert!(parse(&source).is_ok());
}
