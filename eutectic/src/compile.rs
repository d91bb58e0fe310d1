//! From a graph to a program: outline, rewrite, plan, lower, compile.

use std::{
    borrow::Cow,
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use eutectic_backend::{Backend, BackendError, Cost, Program};
use eutectic_ir::{
    Class, Graph, GraphError, Op, Origin,
    eclasses::EClasses,
    lang::Source,
    outline::{self, Block, Outlined},
};
use eutectic_lowering::{
    Lowered, Plan, PlannedBlock, SearchOptions, Searched, Space, Strategy,
    report::{self, KernelReport},
    search,
    stages::has_loops,
    unjoined::{UnjoinedPair, unjoined_pairs},
};
use eutectic_rewrites::{
    Choice, Options as RewriteOptions, Phase, RewriteError, Rewritten, Rule, RuleSet, Why, optimize,
    rule::{AppliedOp, OpTerm, Term},
    why,
};
use rayon::prelude::*;
use rustc_hash::FxHasher;

use crate::{
    Error, Session, extract,
    round::{self, Round},
    units::{PlanUnits, joined},
};

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of the rewriter.
    pub rewrite: RewriteOptions,
    /// How plans are searched.
    pub search: SearchOptions,
    /// Whether repeated layers are optimized once; fusion across the cuts is given up.
    pub outline: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { rewrite: RewriteOptions::default(), search: SearchOptions::default(), outline: true }
    }
}

/// Compiles graphs for one backend with one set of rules.
#[derive(Clone)]
pub struct Compiler {
    backend: Arc<dyn Backend>,
    rules: Arc<RuleSet>,
    options: Options,
}

/// The rules that programs for a backend are rewritten by: the embedded packs, and those that it brings.
///
/// # Errors
/// Everything that is wrong with the backend's rules; a name that both have.
pub fn packs(backend: &dyn Backend) -> Result<RuleSet, Error> {
    Ok(RuleSet::embedded()?.and(rules_of(backend)?)?)
}

/// The rules that a backend brings.
///
/// # Errors
/// Everything that is wrong with them.
pub fn rules_of(backend: &dyn Backend) -> Result<RuleSet, Error> {
    let source = |(name, text): &(&str, &str)| Source::new(format!("{}/rules/{name}", backend.name()), *text);
    Ok(RuleSet::read(&backend.rules().iter().map(source).collect::<Vec<_>>())?)
}

/// A graph with its plan, lowered: everything short of the device.
#[derive(Debug)]
pub struct Planned {
    /// The blocks and their calls.
    pub outlined: Outlined,
    /// What rewriting each block found.
    pub rewritten: Vec<Rewritten>,
    /// Each block's plan.
    pub blocks: Vec<PlannedBlock>,
    /// The program.
    pub lowered: Lowered,
    /// How long each stage took.
    pub times: StageTimes,
}

/// How long the stages of a compilation took.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Finding repeated blocks.
    pub outline: Duration,
    /// Saturating the e-graphs.
    pub rewrite: Duration,
    /// Searching plans.
    pub plan: Duration,
    /// Lowering, with the memory plan.
    pub lower: Duration,
}

impl StageTimes {
    /// All stages together.
    pub fn total(&self) -> Duration {
        self.outline + self.rewrite + self.plan + self.lower
    }
}

impl Compiler {
    /// A compiler with the [`packs`] for a backend, but for the rules whose contract is `fast`, and default options.
    ///
    /// # Errors
    /// When these rules do not load: a defect of this build, or of the backend.
    pub fn new(backend: impl Backend + 'static) -> Result<Compiler, Error> {
        let rules = packs(&backend)?.choose(&Choice::default())?;
        Ok(Compiler::of(backend, rules))
    }

    /// A compiler with these rules and default options.
    pub fn of(backend: impl Backend + 'static, rules: RuleSet) -> Compiler {
        Compiler::on(Arc::new(backend), rules)
    }

    /// As [`Compiler::of`], for a backend that others hold too.
    pub fn on(backend: Arc<dyn Backend>, rules: RuleSet) -> Compiler {
        Compiler { backend, rules: Arc::new(rules), options: Options::default() }.for_its_backend()
    }

    /// With other rules.
    pub fn with_rules(mut self, rules: RuleSet) -> Compiler {
        self.rules = Arc::new(rules);
        self
    }

    /// With the rules that say what the declared ops of a graph are made of. Compiling a graph adds them anyway; whoever asks the
    /// compiler for its rules finds them then.
    ///
    /// # Errors
    /// When the rules declare another op under the name of one of these.
    pub fn with_ops_of(mut self, graph: &Graph) -> Result<Compiler, Error> {
        let rules = self.rules.with_ops_of(graph).map_err(RewriteError::from)?;
        if let Cow::Owned(rules) = rules {
            self.rules = Arc::new(rules);
        }
        Ok(self)
    }

    /// With other options; rules always run for the compiler's own backend.
    pub fn with_options(mut self, options: Options) -> Compiler {
        self.options = options;
        self.for_its_backend()
    }

    fn for_its_backend(mut self) -> Compiler {
        self.options.rewrite.backend = Some(self.backend.name().into());
        self
    }

    /// With another plan search.
    pub fn with_strategy(mut self, strategy: Strategy) -> Compiler {
        self.options.search.strategy = strategy;
        self
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Rewrites, plans and lowers a graph whose symbolic dims are bound to numbers, or are extents at run time.
    ///
    /// # Errors
    /// When the graph is not valid or has unbound dims, a rule breaks a type, or the backend cannot compute something or has too
    /// little memory.
    pub fn plan(&self, graph: &Graph) -> Result<Planned, Error> {
        self.settled(graph, None, |_| Ok(())).map(|(planned, ())| planned)
    }

    /// As [`Compiler::compile_planned`], by plans that were found before: one for each distinct block, of a [`Planned`] of the same graph,
    /// rules and backend. The graph is rewritten, and nothing is searched.
    ///
    /// # Errors
    /// As [`Compiler::compile`]; and when the plans are of something else, as their `fingerprints` ([`Planned::fingerprints`]) say.
    pub fn compile_by(&self, graph: &Graph, plans: &[Plan], fingerprints: &[u64]) -> Result<(Planned, Session), Error> {
        let given = GivenPlans { plans, fingerprints };
        let (planned, executable) = self.settled(graph, Some(given), |program| self.backend.compile(program))?;
        let session = Session::new(planned.lowered.program.clone(), executable);
        Ok((planned, session))
    }

    /// Plans a graph, and plans it again without what is refused by `build` or by the backend, or for less memory, until nothing is.
    fn settled<T>(
        &self,
        graph: &Graph,
        given: Option<GivenPlans<'_>>,
        build: impl Fn(&Program) -> Result<T, BackendError>,
    ) -> Result<(Planned, T), Error> {
        let graph = &*bound(graph)?;
        let mut times = StageTimes::default();
        let units = PlanUnits::of(graph)?;
        let outlined = timed(&mut times.outline, || self.outlined(&units));
        let rewritten = timed(&mut times.rewrite, || {
            let all: Vec<&Block> = outlined.iter().flat_map(|part| &part.blocks).collect();
            each(&all, |block| optimize(&block.graph, &self.rules, &self.options.rewrite))
        })?;
        let mut round = Round::default();
        loop {
            let blocks = timed(&mut times.plan, || match given {
                Some(given) => self.by(given, &rewritten),
                None => each(&rewritten, |rewritten| self.plan_block(rewritten, &round)),
            })?;
            let lowered = timed(&mut times.lower, || units.lower(&outlined, &blocks, &*self.backend))?;
            let built = if round.fits(&lowered.program, &*self.backend)? {
                match round::refusals(&lowered.program, &*self.backend) {
                    refusals if refusals.is_empty() => build(&lowered.program),
                    problems => Err(BackendError::Unsupported { backend: self.backend.name().into(), problems }),
                }
            } else {
                // Another search may find a plan that takes less; one that is given stays what it is.
                if given.is_some() {
                    return Err(Error::Plan("it takes more memory than the device has".into()));
                }
                continue;
            };
            match built {
                Ok(built) => {
                    return Ok((Planned { outlined: joined(outlined), rewritten, blocks, lowered, times }, built));
                }
                Err(error) if given.is_some() => return Err(error.into()),
                Err(error) => round.learn(error, &lowered.program)?,
            }
        }
    }

    /// The blocks by plans that were found before.
    fn by(&self, given: GivenPlans<'_>, rewritten: &[Rewritten]) -> Result<Vec<PlannedBlock>, Error> {
        let found: Vec<u64> = rewritten.iter().map(|rewritten| fingerprint(&rewritten.classes)).collect();
        if found != given.fingerprints || found.len() != given.plans.len() {
            let why = "it was made for another graph, with other rules, or by another version; make it anew";
            return Err(Error::Plan(why.into()));
        }
        let block = |(rewritten, plan): (&Rewritten, &Plan)| {
            let classes = rewritten.classes.clone();
            let count = classes.classes.len();
            let known = |(class, &node): (usize, &usize)| node < classes.classes[class].nodes.len().max(1);
            let fits = plan.choice.len() == count
                && plan.stored.len() == count
                && plan.host.len() == count
                && plan.choice.iter().enumerate().all(known)
                && plan.host.iter().all(|&host| host < count);
            if !fits {
                return Err(Error::Plan("it names classes or e-nodes that are not there".into()));
            }
            let space = Space::new(&classes, &*self.backend);
            let priced = space.price(plan).map_err(|e| Error::Plan(e.to_string()))?;
            if !priced.seconds.is_finite() {
                return Err(Error::Plan(format!("the backend `{}` cannot build a kernel of it", self.backend.name())));
            }
            let greedy_seconds = priced.seconds;
            let plan = plan.clone();
            let searched = Searched { plan, priced, greedy_seconds, tried: 0, work: 0, cut_short: false };
            Ok(PlannedBlock { searched, classes })
        };
        rewritten.iter().zip(given.plans).map(block).collect()
    }

    fn plan_block(&self, rewritten: &Rewritten, round: &Round) -> Result<PlannedBlock, Error> {
        let classes = rewritten.classes.clone();
        let space = Space::within(&classes, &*self.backend, &round.refused, round.short);
        let searched = search(&space, &self.options.search)
            .map_err(|e| Error::unplannable(&space, self.left_out(&classes), &e))?;
        Ok(PlannedBlock { classes, searched })
    }

    /// The rules that say what ops of these classes are made of and were not chosen.
    fn left_out(&self, classes: &EClasses) -> Vec<String> {
        let there = |op: Op| classes.classes.iter().flat_map(|class| &class.nodes).any(|node| node.op == op);
        let defines = |rule: &&Rule| {
            let mut defines = false;
            for root in rule.roots.iter().filter(|_| rule.phase != Phase::Legalize && rule.defines_an_op()) {
                root.left.visit(&mut |term| {
                    if let Term::Call(AppliedOp { op: OpTerm::Named(op), .. }) = term {
                        defines |= matches!(op.def().class, Class::Composite) && there(*op);
                    }
                });
            }
            defines
        };
        let all = packs(&*self.backend).unwrap_or_default();
        // The rules that define declared ops.
        let own: Vec<Op> = classes.classes.iter().flat_map(|class| &class.nodes).map(|node| node.op).collect();
        let own = RuleSet::default().defining(own);
        let left_out = all.iter().chain(own.iter()).filter(defines).filter(|rule| self.rules.get(&rule.name).is_none());
        left_out.map(|rule| rule.name.to_string()).collect()
    }

    /// The program of each block as a phase of rewriting leaves it. Of the equal programs that are known by then it is the one
    /// that greedy planning takes, or, while part of it has no kernel yet, the one of fewest ops.
    ///
    /// # Errors
    /// As [`Compiler::plan`], except that the backend need not be able to compute anything.
    pub fn after_phase(&self, graph: &Graph, phase: Phase) -> Result<Vec<Graph>, Error> {
        let graph = &*bound(graph)?;
        let options = RewriteOptions { until: Some(phase), ..self.options.rewrite.clone() };
        let greedy = SearchOptions { strategy: Strategy::Greedy, ..self.options.search };
        let after = |block: &Block| {
            let classes = optimize(&block.graph, &self.rules, &options)?.classes;
            let searched = search(&Space::new(&classes, &*self.backend), &greedy);
            let choice = searched.map_or_else(|_| extract::fewest_ops(&classes), |s| s.plan.choice);
            Ok(extract::program(&graph.name, &classes, &choice)?)
        };
        self.outlined(&PlanUnits::of(graph)?).iter().flat_map(|part| &part.blocks).map(after).collect()
    }

    /// What became of the `wanted` rules on a graph, and where they nearly match; each block is looked at once.
    ///
    /// # Errors
    /// When the graph is not valid or has unbound dims, or a rule breaks a type.
    pub fn why(&self, graph: &Graph, wanted: impl Fn(&str) -> bool) -> Result<Vec<Why>, Error> {
        let graph = &*bound(graph)?;
        let mut all: Vec<Why> = Vec::new();
        for block in self.outlined(&PlanUnits::of(graph)?).iter().flat_map(|part| &part.blocks) {
            for one in why(&block.graph, &self.rules, &self.options.rewrite, &wanted)? {
                match all.iter_mut().find(|w| w.rule == one.rule) {
                    Some(known) => known.join(one),
                    None => all.push(one),
                }
            }
        }
        Ok(all)
    }

    /// Each part, cut into blocks.
    pub(crate) fn outlined(&self, units: &PlanUnits<'_>) -> Vec<Outlined> {
        let of =
            |graph: &Cow<'_, Graph>| if self.options.outline { outline::outline(graph) } else { outline::whole(graph) };
        units.graphs.iter().map(of).collect()
    }

    /// Compiles a graph whose symbolic dims are bound to numbers, or are extents at run time ([`eutectic_ir::Dim::between`]). What the
    /// device's own compiler refuses is planned in another way.
    ///
    /// # Errors
    /// As [`Compiler::plan`]; and everything that the backend cannot build in any way that was found.
    pub fn compile(&self, graph: &Graph) -> Result<Session, Error> {
        self.compile_planned(graph).map(|(_, session)| session)
    }

    /// As [`Compiler::compile`], with the plan.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile_planned(&self, graph: &Graph) -> Result<(Planned, Session), Error> {
        let (planned, executable) = self.settled(graph, None, |program| self.backend.compile(program))?;
        let session = Session::new(planned.lowered.program.clone(), executable);
        Ok((planned, session))
    }

    /// Compiles a program as it is planned.
    ///
    /// # Errors
    /// Everything that the backend cannot build.
    pub fn build(&self, planned: &Planned) -> Result<Session, Error> {
        let executable = self.backend.compile(&planned.lowered.program)?;
        Ok(Session::new(planned.lowered.program.clone(), executable))
    }

    /// The kernels of each distinct block's plan, for people.
    pub fn describe(&self, planned: &Planned) -> Vec<Vec<KernelReport>> {
        planned
            .blocks
            .iter()
            .map(|block| report::describe(&Space::new(&block.classes, &*self.backend), &block.searched))
            .collect()
    }

    /// For each distinct block, the pairs of kernels of which one reads what the other stores, and why they are not one.
    pub fn unjoined_pairs(&self, planned: &Planned) -> Vec<Vec<UnjoinedPair>> {
        let pairs = |block: &PlannedBlock| unjoined_pairs(&Space::new(&block.classes, &*self.backend), &block.searched);
        planned.blocks.iter().map(pairs).collect()
    }
}

/// Plans that were found before, and what they were found in.
#[derive(Clone, Copy)]
struct GivenPlans<'a> {
    plans: &'a [Plan],
    fingerprints: &'a [u64],
}

/// What tells one saturated e-graph from another: a plan means nothing in another one.
fn fingerprint(classes: &EClasses) -> u64 {
    let mut hasher = FxHasher::default();
    for class in &classes.classes {
        (class.ty.to_string(), class.scalar.map(f64::to_bits), class.constant, class.nodes.len()).hash(&mut hasher);
        for node in &class.nodes {
            (node.op.name(), &node.operands[..]).hash(&mut hasher);
            node.attrs.iter().for_each(|attr| attr.to_string().hash(&mut hasher));
        }
    }
    classes.outputs.hash(&mut hasher);
    hasher.finish()
}

impl Planned {
    /// For each distinct block, what tells its e-graph from others: plans are of one e-graph.
    pub fn fingerprints(&self) -> Vec<u64> {
        self.blocks.iter().map(|block| fingerprint(&block.classes)).collect()
    }

    /// The program that the plan computes: the graph that was planned as rules have rewritten it and the search has chosen.
    /// Outputs, inputs and parameters keep their names; inputs and parameters that nothing reads any more are left out.
    ///
    /// # Errors
    /// When the graph has loops, whose bodies are programs of their own; when a plan holds what does not fit its ops: a defect.
    ///
    /// # Panics
    /// When `graph` is not the one that was planned.
    pub fn chosen(&self, graph: &Graph) -> Result<Graph, Error> {
        if has_loops(graph) {
            return Err(GraphError {
                op: "loop".into(),
                operands: String::new(),
                origin: Origin::default(),
                problem: "what is chosen for a program with loops is no one graph".into(),
                help: "look at its blocks".into(),
            }
            .into());
        }
        Ok(extract::whole(&*bound(graph)?, &self.outlined, &self.blocks)?)
    }

    /// What each step of the run program is predicted to cost; nothing is known of copies between outputs, nor counted of what a kernel stores
    /// besides for the block after it.
    pub fn step_costs(&self) -> Vec<Option<Cost>> {
        let cost = |(call, kernel): (usize, usize)| {
            self.blocks[self.outlined.calls[call].block].searched.priced.kernels[kernel].1
        };
        self.lowered.steps.iter().map(|step| step.map(cost)).collect()
    }

    /// Predicted seconds of a run.
    pub fn seconds(&self) -> f64 {
        self.step_costs().into_iter().flatten().map(|c| c.seconds).sum()
    }
}

/// A graph without symbols as it is; binding would infer every type anew, and tells of others what is open.
pub(crate) fn bound(graph: &Graph) -> Result<Cow<'_, Graph>, GraphError> {
    let fixed = graph.symbols().is_empty() && graph.extents().is_empty();
    let graph = if fixed { Cow::Borrowed(graph) } else { Cow::Owned(graph.bind(&Default::default())?) };
    graph.fits()?;
    graph.computes()?;
    // Before the graph is cut into parts, which do not see who reads their results.
    match graph.observed() {
        Cow::Owned(observed) => Ok(Cow::Owned(observed)),
        Cow::Borrowed(_) => Ok(graph),
    }
}

/// The results for all of some items, computed in parallel; of several errors, the first in order.
fn each<T: Sync, R: Send, E: Send>(items: &[T], of: impl Fn(&T) -> Result<R, E> + Send + Sync) -> Result<Vec<R>, E> {
    items.par_iter().map(of).collect::<Vec<_>>().into_iter().collect()
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
