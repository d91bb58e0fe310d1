//! Finds the cheapest plan that computes a result of a given rule, or the reason why there is none.
//!
//! To force the rule, one class keeps only the e-nodes that follow from applications of the rule, and the search plans
//! the rest. If the found plan does not compute that class, each class on a path from an output to it keeps only the
//! e-nodes that read the next class of the path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eutectic_ir::{
    Graph, Origin,
    eclasses::{Bundle, ClassId, EClass, EClasses, NodeChoice, PriceHint},
};
use eutectic_lowering::{Plan, PlannedBlock, Searched, Space, plan::is_given, search, search::obstacles};
use eutectic_rewrites::Rewritten;

use crate::{Compiler, Error, Planned};

/// The maximal number of classes of a block in which a rule is tried.
const MOST_SITES: usize = 24;

/// The cheapest plan with a kernel that computes a result of a rule.
#[derive(Debug)]
pub struct ForcedPlan {
    /// The block with this kernel, as an index into [`Planned::blocks`].
    pub block: usize,
    /// The plan of the block.
    pub plan: Plan,
    /// The model part whose value the rule computes.
    pub origin: Origin,
    /// Predicted seconds of a run.
    pub seconds: f64,
    /// Whether it is the plan that the search chose.
    pub chosen: bool,
    /// The number of classes in which the rule was not tried, because there are too many.
    pub untried: usize,
}

/// The reason why no plan computes a result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotForced {
    /// The rule does not change the program.
    Idle,
    /// The rule added no e-node that a plan can choose: its results existed before, or no kernel can compute their
    /// form.
    NoResult,
    /// The backend can compute no plan with the rule, for these reasons.
    Impossible(Vec<String>),
    /// No plan computes the rule's result: a value on the path to it has no kernel, or the plan would be cyclic.
    Unreachable,
}

impl Compiler {
    /// Returns the cheapest plan with a kernel that computes a result of a rule. For each class that the rule changed,
    /// the search finds a plan with the rule's results as the only way to compute the class. `is` selects the rule by
    /// the names of its forms.
    ///
    /// # Errors
    /// The reason why there is no such plan.
    pub fn forced(&self, planned: &Planned, is: impl Fn(&str) -> bool) -> Result<ForcedPlan, NotForced> {
        let fired = planned.rewritten.iter().flat_map(|r| &r.statistics).any(|s| s.changes > 0 && is(&s.name));
        if !fired {
            return Err(NotForced::Idle);
        }
        let (mut best, mut problems, mut sites, mut untried) = (None, BTreeSet::new(), 0, 0);
        for (at, rewritten) in planned.rewritten.iter().enumerate() {
            let block = ForcedBlock { compiler: self, rewritten, chosen: &planned.blocks[at] };
            let candidates = block.candidates(&is);
            sites += candidates.len();
            untried += candidates.len().saturating_sub(MOST_SITES);
            let calls = planned.outlined.calls.iter().filter(|call| call.block == at).count() as f64;
            for site in candidates.iter().take(MOST_SITES) {
                let origin = || rewritten.classes.classes[site.class].origins.first().cloned().unwrap_or_default();
                if block.takes(&block.chosen.searched, site) {
                    let (plan, seconds) = (block.chosen.searched.plan.clone(), planned.seconds());
                    return Ok(ForcedPlan { block: at, plan, origin: origin(), seconds, chosen: true, untried: 0 });
                }
                match block.plan(site) {
                    Ok(searched) => {
                        let counted = calls * (searched.priced.seconds - block.chosen.searched.priced.seconds);
                        let run = calls * (run_seconds(&searched) - run_seconds(&block.chosen.searched));
                        if best.as_ref().is_none_or(|(least, _)| counted < *least) {
                            let (plan, seconds) = (searched.plan, planned.seconds() + run);
                            let forced =
                                ForcedPlan { block: at, plan, origin: origin(), seconds, chosen: false, untried: 0 };
                            best = Some((counted, forced));
                        }
                    }
                    Err(why) => problems.extend(why),
                }
            }
        }
        match best {
            Some((_, forced)) => Ok(ForcedPlan { untried, ..forced }),
            None if sites == 0 => Err(NotForced::NoResult),
            None if problems.is_empty() => Err(NotForced::Unreachable),
            None => Err(NotForced::Impossible(problems.into_iter().collect())),
        }
    }

    /// Plans a graph by the plans in `planned`, with the plan of one block replaced by `forced`.
    ///
    /// # Errors
    /// See [`Compiler::plan_by`].
    pub fn plan_forced(&self, graph: &Graph, planned: &Planned, forced: &ForcedPlan) -> Result<Planned, Error> {
        let mut plans: Vec<Plan> = planned.blocks.iter().map(|block| block.searched.plan.clone()).collect();
        plans[forced.block] = forced.plan.clone();
        self.plan_by(graph, &plans, &planned.fingerprints())
    }
}

/// Returns the predicted seconds of a block's kernels in a run.
fn run_seconds(searched: &Searched) -> f64 {
    searched.priced.kernels.iter().filter(|(kernel, _)| !kernel.load).map(|(_, cost)| cost.seconds).sum()
}

/// A class, and its e-nodes that follow from applications of the rule.
struct Site {
    class: ClassId,
    nodes: Vec<usize>,
}

/// A block to plan with a kernel that computes a result of a rule.
struct ForcedBlock<'p> {
    compiler: &'p Compiler,
    rewritten: &'p Rewritten,
    chosen: &'p PlannedBlock,
}

impl ForcedBlock<'_> {
    /// Returns the classes in which the rule can be tried: first those that the chosen plan computes by the rule's
    /// results, and then those whose values the rule replaces.
    fn candidates(&self, is: &impl Fn(&str) -> bool) -> Vec<Site> {
        let replaced: BTreeSet<ClassId> = (self.rewritten.applications.iter())
            .filter(|applied| is(&applied.rule))
            .flat_map(|applied| applied.roots.iter().flatten().copied())
            .collect();
        let given = |class: ClassId| is_given(&self.rewritten.classes, class);
        let led = self.rewritten.led_by(is).into_iter().filter(|(class, _)| !given(*class));
        let mut sites: Vec<Site> = led.map(|(class, nodes)| Site { class, nodes }).collect();
        sites.sort_by_key(|site| (!self.takes(&self.chosen.searched, site), !replaced.contains(&site.class)));
        sites
    }

    /// Returns whether a plan computes a class by one of the e-nodes of a site.
    fn takes(&self, searched: &Searched, site: &Site) -> bool {
        let computed = || searched.priced.kernels.iter().any(|(kernel, _)| kernel.interior.contains(&site.class));
        site.nodes.contains(&searched.plan.choice[site.class]) && computed()
    }

    /// Returns a plan that computes a class by one of the e-nodes of a site.
    ///
    /// # Errors
    /// The reasons why the backend cannot compute such a plan. The list is empty if the plan would be cyclic or would
    /// not need the class.
    fn plan(&self, site: &Site) -> Result<Searched, Vec<String>> {
        let mut only = BTreeMap::from([(site.class, site.nodes.clone())]);
        let found = self.planned_among(&only)?;
        if self.takes(&found, site) {
            return Ok(found);
        }
        only.extend(self.way_to(site.class).ok_or_else(Vec::new)?);
        let found = self.planned_among(&only)?;
        if self.takes(&found, site) { Ok(found) } else { Err(Vec::new()) }
    }

    /// Returns the classes on a shortest path from an output to a class, without the class, each with the e-nodes that
    /// read the next class; `None` if no output depends on the class.
    fn way_to(&self, class: ClassId) -> Option<BTreeMap<ClassId, Vec<usize>>> {
        let all = &self.rewritten.classes;
        let EClasses { classes, outputs, .. } = all;
        let mut reader: BTreeMap<ClassId, ClassId> = BTreeMap::new();
        let mut open: VecDeque<ClassId> = outputs.iter().copied().collect();
        let mut seen: BTreeSet<ClassId> = outputs.iter().copied().collect();
        while let Some(user) = open.pop_front() {
            // A leaf, or one number, is not computed.
            if is_given(all, user) {
                continue;
            }
            for operand in classes[user].nodes.iter().flat_map(|node| node.operands.iter().copied()) {
                if seen.insert(operand) {
                    reader.insert(operand, user);
                    open.push_back(operand);
                }
            }
        }
        let mut way = BTreeMap::new();
        let mut at = class;
        while let Some(&user) = reader.get(&at) {
            let nodes = classes[user].nodes.iter().enumerate();
            way.insert(user, nodes.filter(|(_, node)| node.operands.contains(&at)).map(|(n, _)| n).collect());
            at = user;
        }
        outputs.contains(&at).then_some(way)
    }

    /// Searches for a plan with only these e-nodes of some classes.
    fn planned_among(&self, only: &BTreeMap<ClassId, Vec<usize>>) -> Result<Searched, Vec<String>> {
        let classes = restricted(&self.rewritten.classes, only);
        let space = Space::new(&classes, self.compiler.backend());
        let search = search(&space, &self.compiler.options().search);
        let Some(mut searched) = search.ok().filter(|searched| searched.priced.seconds.is_finite()) else {
            // A value that has no kernel in the unrestricted e-graph either is not a reason.
            let others = obstacles(&Space::new(&self.rewritten.classes, self.compiler.backend()));
            return Err(obstacles(&space).into_iter().filter(|why| !others.contains(why)).collect());
        };
        for (class, nodes) in only {
            let choice = &mut searched.plan.choice[*class];
            *choice = nodes.get(*choice).copied().unwrap_or(0);
        }
        Ok(searched)
    }
}

/// Returns the e-graph in which the classes of `only` keep only the given e-nodes.
fn restricted(all: &EClasses, only: &BTreeMap<ClassId, Vec<usize>>) -> EClasses {
    let class = |(at, class): (ClassId, &EClass)| match only.get(&at) {
        Some(nodes) => EClass { nodes: nodes.iter().map(|n| class.nodes[*n].clone()).collect(), ..class.clone() },
        None => class.clone(),
    };
    let choice = |&NodeChoice { class, node }: &NodeChoice| match only.get(&class) {
        Some(nodes) => Some(NodeChoice { class, node: nodes.iter().position(|n| *n == node)? }),
        None => Some(NodeChoice { class, node }),
    };
    let bundle = |bundle: &Bundle| {
        let choices = bundle.choices.iter().map(choice).collect::<Option<Vec<_>>>()?;
        Some(Bundle { rule: bundle.rule.clone(), choices })
    };
    EClasses {
        classes: all.classes.iter().enumerate().map(class).collect(),
        outputs: all.outputs.clone(),
        bundles: all.bundles.iter().filter_map(bundle).collect(),
        hints: all
            .hints
            .iter()
            .filter_map(|hint| {
                let NodeChoice { class, node } = choice(&NodeChoice { class: hint.class, node: hint.node })?;
                Some(PriceHint { class, node, ..*hint })
            })
            .collect(),
        program: all.program,
        rounds_all: all.rounds_all,
    }
}
