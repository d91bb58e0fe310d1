//! Chooses the initial plan of the search: for each class the e-node that is cheapest together with its operands.

use eutectic_ir::{eclasses::ClassId, ops::Class};

use crate::{
    plan::{Plan, PlanError},
    planner::space::Space,
};

/// The maximal cost of a class. Costs count a shared operand once per use, so that each `x + sin x` doubles them and
/// deep expressions would reach infinity. The sum of a few maximal costs is still finite. A cost at the maximum is
/// never improved, so that no cyclic choice can arise.
const MOST: f64 = 1e300;

/// The plan that the search starts from.
pub(super) struct First {
    /// The plan that stores every class in its own kernel.
    pub plan: Plan,
    /// For each e-node, its cost with all its operands, counted as a tree.
    pub totals: Vec<Vec<f64>>,
}

/// Chooses the cheapest way to compute each class. If `fused`, pointwise ops and views cost only the time that they add
/// to a kernel, because they will be inlined. Otherwise each op costs a kernel of its own.
///
/// # Errors
/// [`PlanError::NoChoice`] if an output cannot be computed.
pub(super) fn first(space: &Space<'_>, fused: bool) -> Result<First, PlanError> {
    let classes = &space.classes.classes;
    let n = classes.len();
    let given = &space.facts.given;
    let own: Vec<Vec<f64>> = (0..n).map(|class| own_costs(space, class, fused)).collect();
    let mut best: Vec<(f64, usize)> = given.iter().map(|g| if *g { (0.0, 0) } else { (f64::INFINITY, 0) }).collect();
    let total = |best: &[(f64, usize)], class: ClassId, i: usize| {
        let sum = classes[class].nodes[i].operands.iter().fold(own[class][i], |sum, &c| sum + best[c].0);
        if sum.is_finite() { sum.min(MOST) } else { sum }
    };
    loop {
        let mut changed = false;
        for class in (0..n).filter(|&c| !given[c]) {
            for i in 0..classes[class].nodes.len() {
                let total = total(&best, class, i);
                // The relative margin lets ties keep the earlier node, whatever the order of addition.
                if total < best[class].0 * (1.0 - 1e-12) || (best[class].0.is_infinite() && total.is_finite()) {
                    best[class] = (total, i);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    if let Some(&output) = space.classes.outputs.iter().find(|&&c| best[c].0.is_infinite()) {
        return Err(PlanError::NoChoice(culprit(space, output, &best)));
    }
    let totals = (0..n).map(|c| (0..classes[c].nodes.len()).map(|i| total(&best, c, i)).collect()).collect();
    let stored = (0..n).map(|c| !given[c] || space.facts.output[c]).collect();
    let mut plan = Plan { choice: best.iter().map(|b| b.1).collect(), stored, host: (0..n).collect() };
    if fused {
        chain(space, &mut plan);
    }
    Ok(First { plan, totals })
}

/// The maximal number of ops that the initial plan fuses into one kernel.
const CHAINED: usize = 32;

/// Makes a class virtual if exactly one op reads it and storing that op's result instead costs no more. Without this
/// start, the search would try these classes one by one and build a longer kernel each time.
fn chain(space: &Space<'_>, plan: &mut Plan) {
    let classes = &space.classes.classes;
    let chosen = |plan: &Plan, class: ClassId| classes[class].nodes.get(plan.choice[class]);
    let mut needed = vec![false; classes.len()];
    let mut readers: Vec<Vec<ClassId>> = vec![Vec::new(); classes.len()];
    let mut order = Vec::new();
    let mut open = space.classes.outputs.clone();
    while let Some(class) = open.pop() {
        if space.facts.given[class] || std::mem::replace(&mut needed[class], true) {
            continue;
        }
        order.push(class);
        for &operand in chosen(plan, class).iter().flat_map(|node| &node.operands) {
            readers[operand].push(class);
            open.push(operand);
        }
    }
    // For each class, the ops that it computes with its virtual operands. Classes that were not visited yet count as
    // stored.
    let mut ops = vec![0_usize; classes.len()];
    order.sort_unstable();
    for class in order {
        let below: usize = chosen(plan, class).map_or(0, |node| node.operands.iter().map(|&o| ops[o]).sum());
        let is_free = !space.facts.output[class];
        if let &[reader] = &readers[class][..]
            && is_free
            && below < CHAINED
            && space.leaves_storing_to(class, reader, plan.choice[reader])
        {
            plan.stored[class] = false;
            ops[class] = below + 1;
        }
    }
}

/// Returns the cost of each e-node of a class without its operands. If `fused`, a pointwise op or a view costs its
/// kernel's time minus the time to move the result. The minimum is a share of a launch: of two forms with equal time,
/// the form with fewer ops is chosen.
fn own_costs(space: &Space<'_>, class: ClassId, fused: bool) -> Vec<f64> {
    let c = &space.classes.classes[class];
    if space.facts.given[class] {
        return vec![0.0; c.nodes.len()];
    }
    // A constant is computed at loading and kept. Only the price of a whole plan tells whether another kept class
    // becomes unnecessary.
    let (share, kept) = match space.facts.loadable[class] {
        true => (space.rates.load, space.keep(class)),
        false => (1.0, 0.0),
    };
    let moved = if fused { space.copied(class) } else { 0.0 };
    let least = space.rates.launch / CHAINED as f64;
    (0..c.nodes.len())
        .map(|i| {
            let seconds = space.price_alone(class, i);
            match c.nodes[i].op.def().class {
                Class::Pointwise | Class::View(_) | Class::Leaf(_) if fused => (seconds - moved).max(least) * share,
                _ => seconds * share + kept,
            }
        })
        .collect()
}

/// Returns the class that prevents `class` from being computed: it has no e-node with a kernel, although all its
/// operands can be computed.
fn culprit(space: &Space<'_>, class: ClassId, best: &[(f64, usize)]) -> ClassId {
    let (mut at, mut seen) = (class, vec![false; best.len()]);
    loop {
        seen[at] = true;
        let nodes = &space.classes.classes[at].nodes;
        let next = nodes.iter().flat_map(|n| &n.operands).find(|&&c| best[c].0.is_infinite() && !seen[c]);
        match next {
            Some(&c) => at = c,
            None => return at,
        }
    }
}
