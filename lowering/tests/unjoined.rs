//! Compares the reported reasons of separate kernels with the price of a plan, built from scratch, that joins them.

mod support;

use eutectic_ir::{DType, Graph, Type, eclasses::EClasses};
use eutectic_lowering::{
    Plan, SearchOptions, Searched, Space, Strategy, search,
    unjoined::{Reason, unjoined_pairs},
};
use support::{Roofline, graphs::random_graph};

fn found(classes: &EClasses, strategy: Strategy) -> Searched {
    search(&Space::new(classes, &Roofline), &SearchOptions { strategy, ..SearchOptions::default() }).unwrap()
}

/// Returns the price difference of the cheapest plan with one kernel in place of two; `None` if no such plan is valid.
fn joined(space: &Space<'_>, searched: &Searched, [from, to]: [usize; 2]) -> Option<f64> {
    let Plan { stored, host, .. } = &searched.plan;
    let kernels = &searched.priced.kernels;
    let (maker, reader) = (&kernels[from].0, &kernels[to].0);
    let between: Vec<usize> = reader.reads.iter().copied().filter(|class| maker.stores.contains(class)).collect();
    let price = |plan: Plan| {
        let seconds = space.price(&plan).ok()?.seconds;
        seconds.is_finite().then_some(seconds - searched.priced.seconds)
    };
    let mut virtually = searched.plan.clone();
    let outputs = &space.classes.outputs;
    let inlined = if between.iter().any(|class| outputs.contains(class)) {
        None
    } else {
        between.iter().for_each(|&class| virtually.release(class));
        price(virtually)
    };
    let mut together = searched.plan.clone();
    let (first, second) = (host[maker.stores[0]], host[reader.stores[0]]);
    for class in (0..stored.len()).filter(|&class| host[class] == first) {
        together.host[class] = second;
    }
    [inlined, price(together)].into_iter().flatten().min_by(f64::total_cmp)
}

#[test]
fn what_joining_costs_is_the_difference_of_two_plans() {
    let (mut dearer, mut impossible) = (0, 0);
    for seed in 0..60 {
        let graph = random_graph(seed, 14, &[8, 16]);
        let classes = EClasses::of(&graph);
        for strategy in [Strategy::Unfused, Strategy::Local] {
            let searched = found(&classes, strategy);
            let space = Space::new(&classes, &Roofline);
            for pair in unjoined_pairs(&space, &searched) {
                let (maker, reader) = (&searched.priced.kernels[pair.from].0, &searched.priced.kernels[pair.to].0);
                assert!(reader.reads.iter().any(|class| maker.stores.contains(class)), "{seed}: {pair:?}");
                match (&pair.why, joined(&space, &searched, [pair.from, pair.to])) {
                    (Reason::Dearer(said), Some(is)) => {
                        assert!((said - is).abs() <= 1e-9 * searched.priced.seconds, "{seed}: {pair:?}, but {is}");
                        dearer += 1;
                    }
                    (Reason::Impossible(why), None) => {
                        assert!(!why.is_empty(), "{seed}: {pair:?}");
                        impossible += 1;
                    }
                    (Reason::Impossible(_), Some(_)) if maker.load && !reader.load => {}
                    (_, is) => panic!("{seed}: {pair:?}, but {is:?}"),
                }
            }
        }
    }
    assert!(dearer > 100 && impossible > 20, "{dearer} and {impossible}: the graphs say little");
}

#[test]
fn two_products_are_two_kernels_because_a_kernel_has_one_anchor() {
    let mut g = Graph::new("two products");
    let x = g.input("x", Type::tensor(DType::F32, &[16, 16])).unwrap();
    let y = g.apply("matmul", &[x, x], &[]).unwrap();
    let z = g.apply("matmul", &[y, x], &[]).unwrap();
    g.output("z", z).unwrap();
    let classes = EClasses::of(&g);
    let pairs = unjoined_pairs(&Space::new(&classes, &Roofline), &found(&classes, Strategy::Local));
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!(pairs[0].between[0].0.name(), "matmul");
    assert!(matches!(&pairs[0].why, Reason::Impossible(why) if why.contains("two anchors")), "{pairs:?}");
}
