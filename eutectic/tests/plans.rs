//! The plans of the built-in models whose graphs need no weights.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Graph, Program, RuleSet, Type,
    engine::{
        backend,
        ir::{
            Op,
            lang::Source,
            ops::{Class, Reduction, Writes},
            text,
        },
        lowering::{print, report::KernelReport},
        models::{
            Form,
            bert::{self, BertConfig},
            builtin::{BUILTINS, Builtin},
            sam::{self, Preset, SamConfig, VisionConfig},
        },
        rewrites::Choice,
    },
};

/// Returns a compiler for two threads, because plans depend on the number of threads.
fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the embedded rules load")
}

fn graph(model: &Builtin, form: Form, layers: usize) -> Graph {
    let config = BertConfig { layers, ..(model.config)() };
    let graph = bert::graph(model.name, &config, form, model.outputs).expect("the configuration is sound");
    bert::bind(&graph, &config, model.batch, model.sequence).expect("the sequence is short enough")
}

fn program(graph: &Graph) -> Program {
    compiler().plan(graph).expect("it is planned").lowered.program
}

#[test]
fn a_layer_takes_seven_kernels() {
    for model in BUILTINS {
        let steps = |layers| program(&graph(model, Form::Composite, layers)).run.len();
        assert_eq!(steps(3) - steps(2), 7, "{}", model.name);
    }
}

#[test]
fn composites_and_primitives_come_out_as_the_same_kernels() {
    for model in BUILTINS {
        let kernels = |form| print::program(&program(&graph(model, form, 2)));
        assert_eq!(kernels(Form::Composite), kernels(Form::Primitive), "{}", model.name);
    }
}

#[test]
fn memory_is_an_eighth_of_the_intermediates() {
    for model in BUILTINS {
        let graph = graph(model, Form::Composite, (model.config)().layers);
        let results = graph.nodes().filter(|(_, n)| !n.operands.is_empty());
        let intermediates: usize = results.map(|(_, n)| n.ty.bytes()).sum();
        let arena = program(&graph).arena_bytes;
        assert!(arena * 8 <= intermediates, "{}: {arena} of {intermediates} bytes", model.name);
    }
}

/// Returns the anchor of each kernel of a run, and the ops that are fused into it, without views.
fn kernels(graph: &Graph) -> Vec<String> {
    let compiler = compiler();
    let planned = compiler.plan(graph).expect("it is planned");
    let line = |report: KernelReport| {
        let is_view = |op: Op| matches!(op.def().class, Class::View(_) | Class::Leaf(_));
        let fused: Vec<&str> = report.fused.iter().filter(|f| !is_view(f.op)).map(|f| f.op.name()).collect();
        let part = report.origin.to_string();
        format!("{}: {} [{}]", part.trim_start_matches("vision_encoder."), report.anchor.name(), fused.join(" "))
    };
    compiler.describe(&planned).into_iter().flatten().filter(|report| !report.load).map(line).collect()
}

/// A block with attention to windows, and one with attention to the whole image. Only results of products, attention
/// and norms are stored.
///
/// - Queries, keys and values are products of the image's rows alone. Attention and relative positions read windows of
///   them in place, with 0 for padding, and add the bias of the product to all rows (hence `add`).
/// - Relative positions are two small products, added in the tiles of scores.
/// - Nothing reads the results of attention for padding. So the next product has the rows of the image, and adds the
///   block's input to them.
/// - The neck's convolution of 3 × 3 is Winograd's. The last norm stores its rows contiguously, because stores of rows
///   a plane apart in memory take longer than a transposing pass.
#[test]
fn blocks_of_sam_take_nine_kernels() {
    let preset = Preset::VitB.config();
    let config = SamConfig { vision: VisionConfig { layers: 2, global: vec![1], ..preset.vision }, ..preset };
    let graph = sam::encoder(&config, Form::Composite, 1).expect("it is built");
    let norm = "reduce-sum [mul sub mul reduce-sum mul add rsqrt mul";
    let expected = [
        "patch_embed.projection: matmul [add add]",
        &format!("layers.0.layer_norm1: {norm} mul add]"),
        "layers.0.attn.qkv: matmul []",
        "layers.0.attn: matmul [add]",
        "layers.0.attn: matmul [add]",
        "layers.0.attn: attention [add add]",
        "layers.0: matmul [add add]",
        &format!("layers.0.layer_norm2: {norm}]"),
        "layers.0.mlp.lin1: matmul [add act]",
        "layers.0.mlp.lin2: matmul [add add]",
        &format!("layers.1.layer_norm1: {norm}]"),
        "layers.1.attn.qkv: matmul [add]",
        "layers.1.attn: matmul []",
        "layers.1.attn: matmul []",
        "layers.1.attn: attention [add]",
        "layers.1.attn.proj: matmul [add add]",
        &format!("layers.1.layer_norm2: {norm}]"),
        "layers.1.mlp.lin1: matmul [add act]",
        "layers.1.mlp.lin2: matmul [add add]",
        "neck.conv1: matmul []",
        "neck.conv1: matmul [mul]",
        "neck.layer_norm1: reduce-sum [sub mul mul add rsqrt mul mul]",
        "neck.conv2: pad [add]",
        "neck.conv2: add [mul add mul]",
        "neck.conv2: matmul []",
        "neck.layer_norm2: reduce-sum [mul add add mul add add mul sub]",
        "neck.layer_norm2: reduce-sum [mul mul add rsqrt mul mul add]",
        "neck: transpose []",
    ];
    assert_eq!(kernels(&graph), expected);
}

/// A weighted sum over windows of 25 elements would take four times as long as a product for each channel whose operand
/// reads the windows in place. Most of the product's views are needed for this choice only, so they must be chosen
/// together with it.
#[test]
fn depthwise_convolutions_of_small_images_are_products() {
    let text = "(graph small (input x f32[1 1152 3 3]) (param w f32[1152 1 5 5]) (param b f32[1152])
        (output y (conv x w b :before [2 2] :after [2 2] :groups 1152)))";
    let graph = text::parse(&Source::new("small.graph", text)).expect("a graph");
    let kernels = kernels(&graph);
    assert!(kernels.contains(&String::from("(top): matmul [add]")), "{kernels:?}");
}

/// A product whose matrices are interleaved in memory element by element, with the batch innermost, took 9 ms. These
/// two kernels take 2.6 ms.
#[test]
fn matrices_of_a_batch_that_lie_interleaved_are_transposed_first() {
    let text = "(graph apart (input x f32[64 64 256]) (param w f32[128 64])
        (output y (matmul w (transpose x :perm [2 0 1]))))";
    let graph = text::parse(&Source::new("apart.graph", text)).expect("a graph");
    assert_eq!(kernels(&graph), ["(top): transpose []", "(top): matmul []"]);
}

/// A table of half a MiB fits in caches. If it is a parameter, other data has evicted it since the last run, and each
/// of its 128 pages has a cache miss. If it is an input, it has just been written.
#[test]
fn rows_of_parameters_wait_for_memory() {
    let seconds = |table: &str, rows: usize| {
        let text =
            format!("(graph rows ({table} t f32[1024 128]) (input ids i64[{rows}]) (output y (gather t ids :axis 0)))");
        let graph = text::parse(&Source::new("rows.graph", text)).unwrap_or_else(|e| panic!("{e:?}"));
        let planned = compiler().plan(&graph).expect("it is planned");
        planned.blocks[0].searched.priced.kernels.iter().map(|(_, cost)| cost.seconds).sum::<f64>()
    };
    let waits = |rows| seconds("param", rows) - seconds("input", rows);
    assert!(waits(128) > 2e-5, "{}", waits(128));
    assert!((waits(4096) - waits(1024)).abs() < 1e-9, "no page waits twice: {} of {}", waits(1024), waits(4096));
}

#[test]
fn what_is_written_by_index_is_not_compared_with_each_place() {
    for zeros in [false, true] {
        let x = if zeros { "(expand (const f32[] { 0 }) :shape [1 900 16])" } else { "x" };
        let text = format!(
            "(graph edges (input x f32[1 900 16]) (input u f32[1 5000 16]) (input ids i64[1 5000 16]) \
             (output y (scatter-sum {x} u ids)))"
        );
        let graph = text::parse(&Source::new("edges.graph", text)).unwrap_or_else(|e| panic!("{e:?}"));
        let program = program(&graph);
        let points = |step: &backend::Step| program.kernels[step.kernel].body.domain.iter().product::<usize>();
        // The old contents, and the updates.
        assert_eq!(program.run.iter().map(points).collect::<Vec<_>>(), [900 * 16, 5000 * 16]);
        let last = &program.kernels[program.run[1].kernel];
        assert!(last.stores.iter().all(|store| store.writes == Writes::Combined(Reduction::Sum)));
    }
}

/// Each element is stored at its rank, so all old contents are overwritten.
#[test]
fn rows_are_ranked_and_stored_in_order_by_one_kernel() {
    for (n, k) in [(1000, 10), (300, 300)] {
        let text = format!(
            "(graph first (input x f32[32 {n}]) (let rank (reshape (ranking x :most {k} :descending true) :shape [32 {n} 1])) \
             (output v (scatter (expand (const f32[] {{ 0 }}) :shape [32 {k} 1]) (reshape x :shape [32 {n} 1]) rank)) \
             (output i (scatter (expand (const i64[] {{ 0 }}) :shape [32 {k} 1]) (iota :shape [32 {n} 1] :axis 1 :dtype i64) rank)))"
        );
        let graph = text::parse(&Source::new("first.graph", text)).unwrap_or_else(|e| panic!("{e:?}"));
        let program = program(&graph);
        let stores = |step: &backend::Step| program.kernels[step.kernel].stores.iter().map(|s| s.writes).collect();
        let of_steps: Vec<Vec<Writes>> = program.run.iter().map(stores).collect();
        assert_eq!(of_steps, [[Writes::Apart; 2]], "{k} of {n}");
    }
}

#[test]
fn long_rows_are_split_where_threads_would_wait() {
    let kernels = |threads| {
        let mut graph = Graph::new("sum");
        let x = graph.input("x", Type::tensor(DType::F32, &[1 << 24])).expect("a name");
        let sum = graph
            .apply("reduce-sum", &[x], &[("axes", (&[-1_i64][..]).into()), ("keep", false.into())])
            .expect("a sum");
        graph.output("y", sum).expect("a name");
        let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
        let program = Compiler::new(cpu).expect("the rules load").plan(&graph).expect("it is planned").lowered.program;
        program.run.iter().map(|step| program.kernels[step.kernel].stores.len()).collect::<Vec<_>>()
    };
    assert_eq!(kernels(1), [1]);
    assert_eq!(kernels(2), [1, 1]);
}

/// Constant weights keep their element type in a product of few rows: a run reads fewer bytes than the type of the
/// computation has. The scale, which is constant along the sums, is applied to the result.
#[test]
fn weights_of_a_few_rows_stay_short() {
    let one = |rows: usize, weights: &str, product: &str| {
        let text = format!("(graph \"short\" (input x f32[{rows} 1024]) {weights} (output y {product}))");
        let graph = text::parse(&Source::new("short.graph", text)).unwrap_or_else(|e| panic!("{e:?}"));
        let mut kernels = kernels(&graph);
        assert_eq!(kernels.len(), 1, "{product}: {kernels:?}");
        kernels.remove(0)
    };
    for rows in [1, 2, 8] {
        for dtype in ["f16", "bf16", "i8", "u8"] {
            let (kn, nk) = (format!("(param w {dtype}[1024 768])"), format!("(param w {dtype}[768 1024])"));
            for (weights, product) in
                [(&kn, "(matmul x (cast w :to f32))"), (&nk, "(matmul x (transpose (cast w :to f32) :perm [1 0]))")]
            {
                let kernel = one(rows, weights, product);
                assert!(kernel.ends_with("matmul [cast]"), "{rows} rows of {dtype}: {product}: {kernel}");
            }
        }
        for dtype in ["i8", "u8"] {
            for ([k, n], scale, product) in [
                ([1024, 768], "[768]", "(matmul x (mul (cast w :to f32) s))"),
                ([1024, 768], "[768]", "(mul (matmul x (cast w :to f32)) s)"),
                ([1024, 768], "[]", "(matmul x (mul (cast w :to f32) s))"),
                ([768, 1024], "[768 1]", "(matmul x (transpose (mul (cast w :to f32) s) :perm [1 0]))"),
                ([768, 1024], "[1 768]", "(matmul x (mul (transpose (cast w :to f32) :perm [1 0]) s))"),
                ([768, 1024], "[768]", "(mul (matmul x (transpose (cast w :to f32) :perm [1 0])) s)"),
            ] {
                let kernel = one(rows, &format!("(param w {dtype}[{k} {n}]) (param s f32{scale})"), product);
                assert!(kernel.ends_with("matmul [cast mul]"), "{rows} rows of {dtype}: {product}: {kernel}");
            }
        }
    }
}

#[test]
fn the_order_of_rule_files_does_not_matter() {
    let mut sources = Vec::new();
    for pack in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../rewrites/rules")).unwrap() {
        // The folder also contains the file of verdicts.
        let Ok(files) = std::fs::read_dir(pack.unwrap().path()) else { continue };
        for file in files {
            let path = file.unwrap().path();
            sources.push(Source::new(path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let model = &BUILTINS[0];
    let graph = graph(model, Form::Primitive, 2);
    let kernels = |sources: &[Source]| {
        let rules = RuleSet::read(sources).unwrap_or_else(|e| panic!("{e}")).choose(&Choice::default()).unwrap();
        print::program(&compiler().with_rules(rules).plan(&graph).unwrap().lowered.program)
    };
    let sorted = kernels(&sources);
    assert_eq!(sorted, print::program(&program(&graph)), "the embedded packs are these files");
    for _ in 0..2 {
        sources.rotate_left(5);
        sources.reverse();
        assert_eq!(kernels(&sources), sorted);
    }
}
