//! Compiles graphs to programs: outline, rewrite, plan, lower, compile.

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
    Choice, Device, LIMITS, Options as RewriteOptions, Phase, RewriteError, Rewritten, Rule, RuleSet, Why, optimize,
    rule::{AppliedOp, OpTerm, Term},
    why,
};
use rayon::prelude::*;
use rustc_hash::FxHasher;

use crate::{
    Error, Session, extract,
    replan::{self, Replan},
    units::{PlanUnits, joined},
};

/// The options of the compiler.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of the rewriter.
    pub rewrite: RewriteOptions,
    /// The options of the plan search.
    pub search: SearchOptions,
    /// Whether repeated layers are optimized once. Kernels are then not fused across layer boundaries.
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

/// Returns the rules with which programs for a backend are rewritten: the embedded packs, and the backend's own rules.
///
/// # Errors
/// If the backend's rules are wrong, or have the name of a rule in a pack. The error lists all problems.
pub fn packs(backend: &dyn Backend) -> Result<RuleSet, Error> {
    Ok(RuleSet::embedded()?.and(rules_of(backend)?)?)
}

/// Returns the limits of a backend under the names that rules use.
fn limits(backend: &dyn Backend) -> Vec<(&'static str, u64)> {
    let limits = backend.limits();
    let of = |name: &str| match name {
        "memory" => limits.capacity,
        "buffer" => limits.binding,
        "alignment" => limits.alignment,
        "arguments" => limits.arguments,
        "instructions" => limits.instrs,
        "loads" => limits.loads,
        "stores" => limits.stores,
        "axes" => limits.rank,
        "extent" => limits.extent,
        other => unreachable!("the table has no limit `{other}`"),
    };
    LIMITS.iter().map(|(name, _)| (*name, of(name) as u64)).collect()
}

/// Returns a backend's own rules.
///
/// # Errors
/// If they are wrong. The error lists all problems.
pub fn rules_of(backend: &dyn Backend) -> Result<RuleSet, Error> {
    let source = |(name, text): &(&str, &str)| Source::new(format!("{}/rules/{name}", backend.name()), *text);
    Ok(RuleSet::read(&backend.rules().iter().map(source).collect::<Vec<_>>())?)
}

/// The result of all stages except compilation for the device.
#[derive(Debug)]
pub struct Planned {
    /// The distinct blocks and their calls.
    pub outlined: Outlined,
    /// The e-graph of each block after rewriting.
    pub rewritten: Vec<Rewritten>,
    /// Each block's plan.
    pub blocks: Vec<PlannedBlock>,
    /// The lowered program.
    pub lowered: Lowered,
    /// The time of each stage.
    pub times: StageTimes,
}

/// The times of the stages of a compilation.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// The time to find repeated blocks.
    pub outline: Duration,
    /// The time to saturate the e-graphs.
    pub rewrite: Duration,
    /// The time to search plans.
    pub plan: Duration,
    /// The time to lower the program, including memory planning.
    pub lower: Duration,
}

impl StageTimes {
    /// Returns the sum of all stages.
    pub fn total(&self) -> Duration {
        self.outline + self.rewrite + self.plan + self.lower
    }
}

impl Compiler {
    /// Returns a compiler with default options and the [`packs`] for a backend, without rules whose contract is `fast`.
    ///
    /// # Errors
    /// If these rules do not load, which is a defect of this build or of the backend.
    pub fn new(backend: impl Backend + 'static) -> Result<Compiler, Error> {
        let rules = packs(&backend)?.choose(&Choice::default())?;
        Ok(Compiler::from_backend(backend, rules))
    }

    /// Returns a compiler with these rules and default options.
    pub fn from_backend(backend: impl Backend + 'static, rules: RuleSet) -> Compiler {
        Compiler::from_arc(Arc::new(backend), rules)
    }

    /// Returns a compiler like [`Compiler::from_backend`], for a shared backend.
    pub fn from_arc(backend: Arc<dyn Backend>, rules: RuleSet) -> Compiler {
        Compiler { backend, rules: Arc::new(rules), options: Options::default() }.for_its_backend()
    }

    /// Replaces the rules.
    pub fn with_rules(mut self, rules: RuleSet) -> Compiler {
        self.rules = Arc::new(rules);
        self
    }

    /// Adds the definitions of a graph's declared ops to the rules. Compiling a graph adds them anyway; this makes them
    /// visible in the compiler's rules.
    ///
    /// # Errors
    /// If the rules declare another op with the name of one of the graph's ops.
    pub fn with_ops_of(mut self, graph: &Graph) -> Result<Compiler, Error> {
        let rules = self.rules.with_ops_of(graph).map_err(RewriteError::from)?;
        if let Cow::Owned(rules) = rules {
            self.rules = Arc::new(rules);
        }
        Ok(self)
    }

    /// Replaces the options. Rules always run for the compiler's own backend.
    pub fn with_options(mut self, options: Options) -> Compiler {
        self.options = options;
        self.for_its_backend()
    }

    fn for_its_backend(mut self) -> Compiler {
        self.options.rewrite.device =
            Device { backend: Some(self.backend.name().into()), limits: limits(&*self.backend) };
        self
    }

    /// Replaces the strategy of the plan search.
    pub fn with_strategy(mut self, strategy: Strategy) -> Compiler {
        self.options.search.strategy = strategy;
        self
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Returns the backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Rewrites, plans and lowers a graph. Its symbolic dims must have numbers or be run-time extents.
    ///
    /// # Errors
    /// If the graph is not valid or has unbound dims, a rule breaks a type, or the backend cannot compute a part or has
    /// too little memory.
    pub fn plan(&self, graph: &Graph) -> Result<Planned, Error> {
        self.replan_until_accepted(graph, None, |_| Ok(())).map(|(planned, ())| planned)
    }

    /// Compiles with known plans instead of a search: one for each distinct block of a [`Planned`] of the same graph,
    /// rules and backend. The graph is rewritten again.
    ///
    /// # Errors
    /// See [`Compiler::compile`]. In addition, if the plans belong to another e-graph: then `fingerprints`
    /// ([`Planned::fingerprints`]) differ.
    pub fn compile_by(&self, graph: &Graph, plans: &[Plan], fingerprints: &[u64]) -> Result<(Planned, Session), Error> {
        let given = GivenPlans { plans, fingerprints };
        let (planned, executable) =
            self.replan_until_accepted(graph, Some(given), |program| self.backend.compile(program))?;
        let session = Session::new(planned.lowered.program.clone(), executable);
        Ok((planned, session))
    }

    /// Plans a graph by plans that were found before, like [`Compiler::compile_by`], and compiles nothing.
    ///
    /// # Errors
    /// See [`Compiler::compile_by`].
    pub fn plan_by(&self, graph: &Graph, plans: &[Plan], fingerprints: &[u64]) -> Result<Planned, Error> {
        let given = GivenPlans { plans, fingerprints };
        self.replan_until_accepted(graph, Some(given), |_| Ok(())).map(|(planned, ())| planned)
    }

    /// Plans a graph until `build` and the backend accept the program. Each round excludes kernels that were refused,
    /// or reduces memory.
    fn replan_until_accepted<T>(
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
        let mut replan = Replan::default();
        loop {
            let blocks = timed(&mut times.plan, || match given {
                Some(given) => self.by(given, &rewritten),
                None => each(&rewritten, |rewritten| self.plan_block(rewritten, &replan)),
            })?;
            let lowered = timed(&mut times.lower, || units.lower(&outlined, &blocks, &*self.backend))?;
            let built = if replan.fits(&lowered.program, &*self.backend)? {
                match replan::refusals(&lowered.program, &*self.backend) {
                    refusals if refusals.is_empty() => build(&lowered.program),
                    problems => Err(BackendError::Unsupported { backend: self.backend.name().into(), problems }),
                }
            } else {
                // Another search could find a plan that needs less memory, but a given plan cannot change.
                if given.is_some() {
                    return Err(Error::Plan("the plan needs more memory than the device has".into()));
                }
                continue;
            };
            match built {
                Ok(built) => {
                    return Ok((Planned { outlined: joined(outlined), rewritten, blocks, lowered, times }, built));
                }
                Err(error) if given.is_some() => return Err(error.into()),
                Err(error) => replan.learn(error, &lowered.program)?,
            }
        }
    }

    /// Plans the blocks by the given plans.
    fn by(&self, given: GivenPlans<'_>, rewritten: &[Rewritten]) -> Result<Vec<PlannedBlock>, Error> {
        let found: Vec<u64> = rewritten.iter().map(|rewritten| fingerprint(&rewritten.classes)).collect();
        if found != given.fingerprints || found.len() != given.plans.len() {
            let why = "the plan belongs to another graph, other rules or another version; plan the graph again";
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
                return Err(Error::Plan("the plan names classes or e-nodes that do not exist".into()));
            }
            let space = Space::new(&classes, &*self.backend);
            let priced = space.price(plan).map_err(|e| Error::Plan(e.to_string()))?;
            if !priced.seconds.is_finite() {
                return Err(Error::Plan(format!(
                    "the backend `{}` cannot build a kernel of the plan",
                    self.backend.name()
                )));
            }
            let greedy_seconds = priced.seconds;
            let plan = plan.clone();
            let searched = Searched { plan, priced, greedy_seconds, tried: 0, work: 0, cut_short: false };
            Ok(PlannedBlock { searched, classes })
        };
        rewritten.iter().zip(given.plans).map(block).collect()
    }

    fn plan_block(&self, rewritten: &Rewritten, replan: &Replan) -> Result<PlannedBlock, Error> {
        let classes = rewritten.classes.clone();
        let space = Space::within(&classes, &*self.backend, &replan.refused, replan.memory_pressure);
        let searched = search(&space, &self.options.search)
            .map_err(|e| Error::unplannable(&space, self.left_out(&classes), &e))?;
        Ok(PlannedBlock { classes, searched })
    }

    /// Returns the rules that define ops of these classes and are not among the compiler's rules.
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
        // Add the rules that define declared ops.
        let own: Vec<Op> = classes.classes.iter().flat_map(|class| &class.nodes).map(|node| node.op).collect();
        let own = RuleSet::default().defining(own);
        let left_out = all.iter().chain(own.iter()).filter(defines).filter(|rule| self.rules.get(&rule.name).is_none());
        left_out.map(|rule| rule.name.to_string()).collect()
    }

    /// Returns the program of each block after a phase of rewriting. Greedy planning selects it among all equal
    /// programs in the e-graph. If an op has no kernel yet, the program with the fewest ops is selected instead.
    ///
    /// # Errors
    /// See [`Compiler::plan`]. The backend need not support the program.
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

    /// Returns the results of the `wanted` rules on a graph, and the positions where they almost match. Each distinct
    /// block is searched once.
    ///
    /// # Errors
    /// If the graph is not valid or has unbound dims, or a rule breaks a type.
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

    /// Splits each part into blocks.
    pub(crate) fn outlined(&self, units: &PlanUnits<'_>) -> Vec<Outlined> {
        let of =
            |graph: &Cow<'_, Graph>| if self.options.outline { outline::outline(graph) } else { outline::whole(graph) };
        units.graphs.iter().map(of).collect()
    }

    /// Compiles a graph. Its symbolic dims must have numbers or be run-time extents ([`eutectic_ir::Dim::between`]). If
    /// the device's own compiler refuses a kernel, the graph is planned again without it.
    ///
    /// ```
    /// use eutectic::{Compiler, Cpu, DType, Graph, Tensor, Type};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut graph = Graph::new("sum of rows");
    /// let x = graph.input("x", Type::tensor(DType::F32, &[2, 3]))?;
    /// let y = graph.apply("reduce-sum", &[x], &[("axes", [1_i64].as_slice().into()), ("keep", false.into())])?;
    /// graph.output("y", y)?;
    ///
    /// let mut session = Compiler::new(Cpu::default())?.compile(&graph)?;
    /// session.load(&[])?; // the program has no parameters
    /// let y = session.run(&[Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?])?;
    /// assert_eq!(y[0].to_f64(), [6.0, 15.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Compiler::plan`]. In addition, if the backend cannot build any program that was planned. The error lists
    /// every refused part.
    pub fn compile(&self, graph: &Graph) -> Result<Session, Error> {
        self.compile_planned(graph).map(|(_, session)| session)
    }

    /// Compiles as [`Compiler::compile`] does, and also returns the plan.
    ///
    /// # Errors
    /// See [`Compiler::compile`].
    pub fn compile_planned(&self, graph: &Graph) -> Result<(Planned, Session), Error> {
        let (planned, executable) = self.replan_until_accepted(graph, None, |program| self.backend.compile(program))?;
        let session = Session::new(planned.lowered.program.clone(), executable);
        Ok((planned, session))
    }

    /// Compiles a planned program.
    ///
    /// # Errors
    /// If the backend cannot build a part. The error lists all such parts.
    pub fn build(&self, planned: &Planned) -> Result<Session, Error> {
        let executable = self.backend.compile(&planned.lowered.program)?;
        Ok(Session::new(planned.lowered.program.clone(), executable))
    }

    /// Returns the kernels of each distinct block's plan, for people.
    pub fn describe(&self, planned: &Planned) -> Vec<Vec<KernelReport>> {
        planned
            .blocks
            .iter()
            .map(|block| report::describe(&Space::new(&block.classes, &*self.backend), &block.searched))
            .collect()
    }

    /// Returns, for each distinct block, the pairs of a kernel and a reader of its results, with the reason why they
    /// were not joined.
    pub fn unjoined_pairs(&self, planned: &Planned) -> Vec<Vec<UnjoinedPair>> {
        let pairs = |block: &PlannedBlock| unjoined_pairs(&Space::new(&block.classes, &*self.backend), &block.searched);
        planned.blocks.iter().map(pairs).collect()
    }
}

/// Plans that were found before, with the fingerprints of their e-graphs.
#[derive(Clone, Copy)]
struct GivenPlans<'a> {
    plans: &'a [Plan],
    fingerprints: &'a [u64],
}

/// Returns a fingerprint of a saturated e-graph. A plan is meaningless in any other e-graph.
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
    /// Returns the fingerprint of each distinct block's e-graph, to which its plan belongs.
    pub fn fingerprints(&self) -> Vec<u64> {
        self.blocks.iter().map(|block| fingerprint(&block.classes)).collect()
    }

    /// Returns the program that the plan computes: the planned graph as rewritten by the rules and chosen by the
    /// search. Outputs, inputs and parameters keep their names. Inputs and parameters without readers are left out.
    ///
    /// # Errors
    /// If the graph has loops, whose bodies are separate programs; or if a plan does not fit its ops, which is a
    /// defect.
    ///
    /// # Panics
    /// If `graph` is not the planned graph.
    pub fn chosen(&self, graph: &Graph) -> Result<Graph, Error> {
        if has_loops(graph) {
            return Err(GraphError {
                op: "loop".into(),
                operands: String::new(),
                origin: Origin::default(),
                problem: "cannot extract one graph because the program has loops".into(),
                help: "extract the program of each block".into(),
            }
            .into());
        }
        Ok(extract::whole(&*bound(graph)?, &self.outlined, &self.blocks)?)
    }

    /// Returns the predicted cost of each step of a run, or `None` for copies. Omits elementwise steps that lowering
    /// merged into a kernel of another block.
    pub fn step_costs(&self) -> Vec<Option<Cost>> {
        let cost = |(call, kernel): (usize, usize)| {
            self.blocks[self.outlined.calls[call].block].searched.priced.kernels[kernel].1
        };
        self.lowered.steps.iter().map(|step| step.map(cost)).collect()
    }

    /// Returns the predicted time of a run in seconds.
    pub fn seconds(&self) -> f64 {
        self.step_costs().into_iter().flatten().map(|c| c.seconds).sum()
    }
}

/// Checks that a graph can be computed, and marks observed values. A graph with symbols is bound first, and the error
/// names the symbols without a number. Other graphs are not bound, because binding infers every type again.
pub(crate) fn bound(graph: &Graph) -> Result<Cow<'_, Graph>, GraphError> {
    let fixed = graph.symbols().is_empty() && graph.extents().is_empty();
    let graph = if fixed { Cow::Borrowed(graph) } else { Cow::Owned(graph.bind(&Default::default())?) };
    graph.fits()?;
    graph.computes()?;
    // Observed values are found before the graph is split, because a part does not know the readers of its results.
    match graph.observed() {
        Cow::Owned(observed) => Ok(Cow::Owned(observed)),
        Cow::Borrowed(_) => Ok(graph),
    }
}

/// Applies a function to all items in parallel. Of several errors, it returns the first in order.
fn each<T: Sync, R: Send, E: Send>(items: &[T], of: impl Fn(&T) -> Result<R, E> + Send + Sync) -> Result<Vec<R>, E> {
    items.par_iter().map(of).collect::<Vec<_>>().into_iter().collect()
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
