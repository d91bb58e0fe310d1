//! What the plans of the built-in models come to, whose graphs need no weights.

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph, Program, RuleSet,
    engine::{
        ir::lang::Source,
        lowering::print,
        models::{
            Form,
            bert::{self, BertConfig},
            builtin::{BUILTINS, Builtin},
            text,
        },
        rewrites::Choice,
    },
};

/// Two threads, whatever the machine has: the plan depends on it.
fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the embedded rules load")
}

fn graph(model: &Builtin, form: Form, layers: usize) -> Graph {
    let config = BertConfig { layers, ..(model.config)() };
    let graph = bert::graph(model.name, &config, form, model.outputs).expect("the configuration is sound");
    text::bind(&graph, &config, model.batch, model.sequence).expect("the sequence is short enough")
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

#[test]
fn the_order_of_rule_files_does_not_matter() {
    let mut sources = Vec::new();
    for pack in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../rewrites/rules")).unwrap() {
        for file in std::fs::read_dir(pack.unwrap().path()).unwrap() {
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
