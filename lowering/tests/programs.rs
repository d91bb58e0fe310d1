//! Tests lowered programs: buffers do not overwrite each other, kernels are in order, and equal programs have one
//! print.

mod support;

use eutectic_backend::{BufferId, Place, Program};
use eutectic_ir::{DType, Graph, Shape, Type, eclasses::EClasses, outline};
use eutectic_lowering::{Lowered, PlannedBlock, SearchOptions, Space, Strategy, lower, print, search};
use support::{Roofline, graphs::random_graph};

fn lowered(graph: &Graph, strategy: Strategy) -> Lowered {
    let outlined = outline::whole(graph);
    let blocks: Vec<_> = outlined
        .blocks
        .iter()
        .map(|block| {
            let classes = EClasses::of(&block.graph);
            let options = SearchOptions { strategy, ..SearchOptions::default() };
            let searched = search(&Space::new(&classes, &Roofline), &options).unwrap();
            PlannedBlock { classes, searched }
        })
        .collect();
    lower(graph, &outlined, &blocks, &Roofline).unwrap()
}

/// Returns the byte range of a buffer in the arena.
fn stretch(program: &Program, id: BufferId) -> Option<std::ops::Range<usize>> {
    let buffer = &program.buffers[id];
    match buffer.place {
        Place::Arena(at) => Some(at..at + buffer.count * buffer.dtype.size()),
        _ => None,
    }
}

#[test]
fn a_buffer_is_whole_until_it_is_last_read() {
    for seed in 0..200 {
        for strategy in [Strategy::Unfused, Strategy::Local] {
            let program = lowered(&random_graph(seed, 14, &[16, 64, 200]), strategy).program;
            // The buffer in each byte range of the arena, step by step.
            let mut holds: Vec<(std::ops::Range<usize>, BufferId)> = Vec::new();
            for step in &program.run {
                let stores = program.kernels[step.kernel].stores.len();
                let (reads, writes) = step.buffers.split_at(step.buffers.len() - stores);
                for &read in reads {
                    if let Some(range) = stretch(&program, read) {
                        assert!(holds.contains(&(range, read)), "seed {seed}: buffer {read} is gone or not yet there");
                    }
                }
                for &write in writes {
                    let Some(range) = stretch(&program, write) else { continue };
                    assert!(range.end <= program.arena_bytes && range.start % 64 == 0);
                    holds.retain(|(other, _)| other.end <= range.start || range.end <= other.start);
                    holds.push((range, write));
                }
            }
        }
    }
}

#[test]
fn a_chain_runs_in_place() {
    let mut g = Graph::new("chain");
    let mut x = g.input("x", Type::tensor(DType::F32, &[1000])).unwrap();
    for _ in 0..6 {
        x = g.apply("exp", &[x], &[]).unwrap();
    }
    g.output("y", x).unwrap();
    assert_eq!(lowered(&g, Strategy::Unfused).program.arena_bytes, 4032);
    assert_eq!(lowered(&g, Strategy::Local).program.arena_bytes, 0);
}

#[test]
fn outputs_that_are_inputs_or_named_twice_are_copied() {
    let mut g = Graph::new("copies");
    let x = g.input("x", Type::tensor(DType::F32, &[3])).unwrap();
    let y = g.apply("neg", &[x], &[]).unwrap();
    g.output("same", x).unwrap();
    g.output("y", y).unwrap();
    g.output("again", y).unwrap();
    let program = lowered(&g, Strategy::Local).program;
    let mut written: Vec<_> = program
        .run
        .iter()
        .flat_map(|s| {
            s.buffers
                .iter()
                .filter_map(|&b| if let Place::Output(n) = program.buffers[b].place { Some(n) } else { None })
        })
        .collect();
    written.sort_unstable();
    written.dedup();
    assert_eq!(written, [0, 1, 2]);
}

#[test]
fn the_print_does_not_depend_on_the_order_of_commuted_operands_or_of_nodes() {
    let build = |swap: bool| {
        let mut g = Graph::new("print");
        let x = g.input("x", Type::tensor(DType::F32, &[4, 8])).unwrap();
        let p = g.param("p", Type::tensor(DType::F32, &[8, 8])).unwrap();
        let shape: Shape = [4_usize, 8].into_iter().collect();
        let (e, m) = if swap {
            let m = g.apply("matmul", &[x, p], &[]).unwrap();
            (g.apply("exp", &[x], &[]).unwrap(), m)
        } else {
            let e = g.apply("exp", &[x], &[]).unwrap();
            (e, g.apply("matmul", &[x, p], &[]).unwrap())
        };
        let operands = if swap { [m, e] } else { [e, m] };
        let sum = g.apply("add", &operands, &[]).unwrap();
        let y = g.apply("reshape", &[sum], &[("shape", shape.into())]).unwrap();
        g.output("y", y).unwrap();
        print::program(&lowered(&g, Strategy::Local).program)
    };
    assert_eq!(build(false), build(true));
    assert!(build(false).contains("add"), "{}", build(false));
}
