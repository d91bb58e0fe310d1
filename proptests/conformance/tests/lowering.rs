//! Lowered programs mean what the graph means: kernels evaluated point by point give what the interpreter gives.

#[path = "../../../lowering/tests/support/graphs.rs"]
mod graphs;

use eutectic_backend::Backend;
use eutectic_conformance::naive::Naive;
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::{Bounded, Graph, Tensor, eclasses::EClasses, interp::interpret, ops::eval::Data, outline};
use eutectic_lowering::{PlannedBlock, SearchOptions, Space, Strategy, lower, search};
use graphs::{Rng, random_graph};

fn results(backend: &dyn Backend, graph: &Graph, strategy: Strategy, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let outlined = outline::whole(graph);
    let plan = |graph: &Graph| {
        let classes = EClasses::of(graph);
        let options = SearchOptions { strategy, ..SearchOptions::default() };
        let searched = search(&Space::new(&classes, backend), &options).unwrap();
        PlannedBlock { classes, searched }
    };
    let blocks: Vec<_> = outlined.blocks.iter().map(|b| plan(&b.graph)).collect();
    let program = lower(graph, &outlined, &blocks).unwrap().program;
    let mut session = backend.compile(&program).unwrap().load(&[]).unwrap().session().unwrap();
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut bytes: Vec<Vec<u8>> = program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
    session.run(&inputs, &mut bytes.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    let tensors = program.outputs.iter().zip(bytes);
    tensors.map(|((_, ty), b)| Tensor::new(ty.dtype().unwrap(), &ty.dims().unwrap(), b).unwrap().to_f64()).collect()
}

#[test]
fn random_graphs_keep_their_meaning() {
    let mut judged = 0;
    let cpu = Cpu::new(CpuOptions::default());
    let backends: [(&dyn Backend, &[usize], usize); 2] = [(&Naive, &[3, 4, 7], 150), (&cpu, &[1, 5, 17, 64, 130], 400)];
    for (backend, extents, seed) in backends
        .into_iter()
        .flat_map(|(backend, extents, seeds)| (0..seeds).map(move |seed| (backend, extents, seed as u64)))
    {
        let graph = random_graph(seed, 10, extents);
        let mut rng = Rng(seed);
        let inputs: Vec<Tensor> = graph
            .named("input")
            .map(|(_, id)| {
                let dims = graph.ty(id).dims().unwrap();
                let count = dims.iter().product();
                Tensor::from_f64(
                    eutectic_ir::DType::F32,
                    &dims,
                    (0..count).map(|_| rng.below(2000) as f64 / 4000.0 - 0.25),
                )
            })
            .collect();
        let names: Vec<_> = graph.named("input").map(|(n, _)| n.to_string()).collect();
        let given = |name: &str| names.iter().position(|n| n == name).map(|i| inputs[i].clone());
        let want = interpret::<Bounded>(&graph, &given).unwrap();
        for strategy in [Strategy::Unfused, Strategy::Greedy, Strategy::Local] {
            for (got, want) in results(backend, &graph, strategy, &inputs).iter().zip(&want) {
                let Data::Real(want) = &want.data else { panic!("every value is f32") };
                for (g, w) in got.iter().zip(want) {
                    let name = backend.name();
                    assert!(w.admits(*g) != Some(false), "{name}, seed {seed}, {strategy:?}: {g}, {w:?}\n{graph:?}");
                    judged += usize::from(w.admits(*g).is_some());
                }
            }
        }
    }
    assert!(judged > 1_000_000, "only {judged} elements could be judged");
}
