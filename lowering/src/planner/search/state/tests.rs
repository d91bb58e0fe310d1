//! Compares the incremental state with the definition of a plan, over random edits.

use eutectic_ir::{Graph, eclasses::EClasses};
use proptest::{prelude::*, test_runner::TestCaseError};

use super::*;
use crate::tests::{Roofline, graphs};

/// One edit of a plan. Numbers are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Edit {
    Flip(usize),
    Choose(usize, usize),
    Join(usize, usize),
    Leave(usize),
    HandOver(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<(Vec<Edit>, bool)>> {
    let any = || any::<usize>();
    let edit = prop_oneof![
        4 => any().prop_map(Edit::Flip),
        4 => (any(), any()).prop_map(|(c, n)| Edit::Choose(c, n)),
        2 => (any(), any()).prop_map(|(a, b)| Edit::Join(a, b)),
        1 => any().prop_map(Edit::Leave),
        2 => (any(), any()).prop_map(|(a, b)| Edit::HandOver(a, b)),
    ];
    prop::collection::vec((prop::collection::vec(edit, 1..4), proptest::bool::ANY), 1..60)
}

fn apply(state: &mut State<'_, '_>, edit: &Edit) {
    let space = state.space;
    let facts = &space.facts;
    let free: Vec<ClassId> = (0..facts.given.len()).filter(|&c| !facts.given[c] && !facts.output[c]).collect();
    let computed: Vec<ClassId> = (0..facts.given.len()).filter(|&c| !facts.given[c]).collect();
    let leaders: Vec<ClassId> = state.in_order().into_iter().map(|id| state.kernel(id).leader).collect();
    match *edit {
        _ if free.is_empty() => {}
        Edit::Flip(class) => super::super::flip(state, free[class % free.len()]),
        Edit::Choose(class, node) => {
            let class = computed[class % computed.len()];
            state.choose(class, node % space.classes.classes[class].nodes.len());
        }
        Edit::Join(a, b) if leaders[a % leaders.len()] != leaders[b % leaders.len()] => {
            state.join(leaders[a % leaders.len()], leaders[b % leaders.len()]);
        }
        Edit::Join(..) => {}
        Edit::Leave(class) => {
            let class = free[class % free.len()];
            if state.plan().stored[class] {
                state.set_host(class, class);
            }
        }
        Edit::HandOver(from, to) => {
            let (from, to) = (free[from % free.len()], free[to % free.len()]);
            if state.plan().stored[from] && !state.plan().stored[to] {
                state.hand_over(from, to);
            }
        }
    }
}

/// Compares the incremental state with the definition of a plan and its price.
fn agrees(state: &State<'_, '_>) -> Result<(), TestCaseError> {
    let mut kernels: Vec<PlanKernel> =
        state.in_order().into_iter().map(|id| (*state.kernel(id).kernel).clone()).collect();
    let priced = state.space.price(state.plan()).map_err(|e| TestCaseError::fail(format!("accepted, but {e}")))?;
    let mut expected: Vec<PlanKernel> = priced.kernels.iter().map(|(kernel, _)| (**kernel).clone()).collect();
    let mut stored = vec![false; state.maker.len()];
    for kernel in &kernels {
        prop_assert!(kernel.reads.iter().all(|&c| state.space.facts.given[c] || stored[c]), "out of order");
        kernel.stores.iter().for_each(|&c| stored[c] = true);
    }
    kernels.sort_by(|a, b| a.stores.cmp(&b.stores));
    expected.sort_by(|a, b| a.stores.cmp(&b.stores));
    prop_assert_eq!(kernels, expected);
    let seconds = if state.price.impossible > 0 { f64::INFINITY } else { state.price.seconds };
    let close = seconds == priced.seconds || (seconds - priced.seconds).abs() <= 1e-9 * priced.seconds;
    prop_assert!(close, "{} and {}", seconds, priced.seconds);
    Ok(())
}

fn follow(classes: &EClasses, moves: &[(Vec<Edit>, bool)]) -> Result<(), TestCaseError> {
    let space = Space::new(classes, &Roofline);
    let n = classes.classes.len();
    let choice = vec![0; n];
    let stored = (0..n).map(|c| !space.facts.given[c] || space.facts.output[c]).collect();
    let Ok(mut state) = State::new(&space, Plan { choice, stored, host: (0..n).collect() }) else { return Ok(()) };
    agrees(&state)?;
    for (edits, keep) in moves {
        let mark = state.mark();
        let before = state.plan().clone();
        edits.iter().for_each(|edit| apply(&mut state, edit));
        match state.refresh() {
            Ok(()) => agrees(&state)?,
            Err(refused) => {
                let reference = state.plan().kernels(classes);
                prop_assert!(reference.is_err(), "{} refused, but valid", refused);
                state.rollback(mark);
            }
        }
        if !keep {
            state.rollback(mark);
            prop_assert_eq!(state.plan(), &before);
            agrees(&state)?;
            // A wish for an unneeded class changes no kernel.
            let free = |c: &ClassId| !space.facts.given[*c] && !space.facts.output[*c] && !state.is_needed(*c);
            let unneeded: Vec<ClassId> = (0..n).filter(free).collect();
            let price = state.price;
            for class in unneeded {
                state.wish(class, !before.stored[class]);
                let leads = state.led_by(class).is_some();
                prop_assert_eq!(state.plan().stored[class], before.stored[class] == leads);
            }
            prop_assert_eq!(state.price, price);
            agrees(&state)?;
        } else if moves.len().is_multiple_of(2) {
            state.commit();
        }
    }
    Ok(())
}

/// Returns the e-classes of a graph with additional e-nodes, which apply the same op to other operands of the same
/// type.
fn with_choices(graph: &Graph, seed: u64) -> EClasses {
    let mut rng = graphs::Rng(seed);
    let mut classes = EClasses::of(graph);
    for class in 0..classes.classes.len() {
        let Some(node) = classes.classes[class].nodes.first().cloned().filter(|n| !n.operands.is_empty()) else {
            continue;
        };
        for _ in 0..rng.below(3) {
            let mut other = node.clone();
            for operand in &mut other.operands {
                // Later classes are included, so that choices can be cyclic.
                let candidate = rng.below(classes.classes.len());
                if classes.classes[candidate].ty == classes.classes[*operand].ty {
                    *operand = candidate;
                }
            }
            if !classes.classes[class].nodes.contains(&other) && !other.operands.contains(&class) {
                classes.classes[class].nodes.push(other);
            }
        }
    }
    classes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn kernels_kept_up_to_date_are_those_of_the_plan(seed in any::<u64>(), ops in 3_usize..24, moves in edits()) {
        let graph = graphs::random_graph(seed, ops, &[8, 16]);
        follow(&with_choices(&graph, seed), &moves)?;
    }
}
