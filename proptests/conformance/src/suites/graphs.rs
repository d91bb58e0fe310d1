//! Plans random graphs in legal form without rules, and compares their results with the interpreter's.

mod random;

use eutectic_backend::Backend;
use eutectic_ir::{Bounded, Graph, Tensor, eclasses::EClasses, interp::interpret, ops::eval::Data, outline};
use eutectic_lowering::{PlannedBlock, SearchOptions, Space, Strategy, lower, search};
use random::{Rng, random_graph};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![random_graphs_keep_their_meaning, small_graphs_keep_their_meaning];

fn results(backend: &dyn Backend, graph: &Graph, strategy: Strategy, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let outlined = outline::whole(graph);
    let plan = |graph: &Graph| {
        let classes = EClasses::of(graph);
        let options = SearchOptions { strategy, ..SearchOptions::default() };
        let searched = search(&Space::new(&classes, backend), &options).unwrap();
        PlannedBlock { classes, searched }
    };
    let blocks: Vec<_> = outlined.blocks.iter().map(|b| plan(&b.graph)).collect();
    let program = lower(graph, &outlined, &blocks, backend).unwrap().program;
    let mut session = backend.compile(&program).unwrap().load(&[]).unwrap().session().unwrap();
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut bytes: Vec<Vec<u8>> = program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
    session.run(&inputs, &mut bytes.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    let tensors = program.outputs.iter().zip(bytes);
    tensors.map(|((_, ty), b)| Tensor::new(ty.dtype().unwrap(), &ty.dims().unwrap(), b).unwrap().to_f64()).collect()
}

fn small_graphs_keep_their_meaning(device: &Device) {
    graphs(device, &[3, 4, 7], 150);
}

fn random_graphs_keep_their_meaning(device: &Device) {
    graphs(device, &[1, 5, 17, 64, 130], 400);
}

fn graphs(device: &Device, extents: &[usize], count: u64) {
    let backend = &**device.backend();
    let mut judged = 0;
    for seed in 0..count {
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
        device.judge();
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
    assert!(judged > 1000, "only {judged} elements could be judged");
}
