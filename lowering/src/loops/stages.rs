//! Splits a graph into stages without loops, and into the bodies of its loops, whose carried values become states.
//!
//! A loop runs between two stages: the stage before it computes its operands, and a later stage computes its users. A
//! constant that only the body reads is computed by the body's load program, once for all iterations.

use std::collections::BTreeSet;

use eutectic_ir::{
    Attr, Class, Graph, GraphError, NodeId, Origin,
    ops::{Leaf, Loop},
};
use rustc_hash::FxHashMap;

/// A graph, split at its loops.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The stages, one more than there are loops: loop `i` runs after stage `i`. A stage's inputs and outputs are named
    /// by [`value`], outputs of the graph by [`output`]. Parameters and states keep their names.
    pub stages: Vec<Graph>,
    /// The loops, in the order in which they run.
    pub loops: Vec<StagedLoop>,
}

/// A loop, with its operands and results as values of the original graph.
#[derive(Clone, Debug)]
pub struct StagedLoop {
    /// The graph of one iteration. Its states are the carried values and its outputs the stacked values. Its inputs are
    /// the scanned slices, followed by the captured values.
    pub body: Graph,
    /// The number of iterations.
    pub times: usize,
    /// The initial value of each state.
    pub starts: Vec<NodeId>,
    /// The tensors whose slices are the first inputs of the body.
    pub scanned: Vec<NodeId>,
    /// The values of the inputs after the scanned slices.
    pub captured: Vec<NodeId>,
    /// The index of the Boolean state that decides whether the loop continues. When it is false, the body leaves all
    /// states unchanged.
    pub condition: Option<usize>,
    /// For each result, the nodes that project it: first the results of the states, then those of the outputs.
    pub results: Vec<Vec<NodeId>>,
    /// The part of the model that the loop comes from.
    pub origin: Origin,
}

/// Returns the name of a value that one stage passes to another.
pub fn value(id: NodeId) -> String {
    format!("%{}", id.0)
}

/// Returns the name that an output of the graph has in the stage that computes it.
pub fn output(at: usize) -> String {
    format!("={at}")
}

/// Returns the name of a state of a body.
pub fn carried(at: usize) -> String {
    format!("%c{at}")
}

/// Returns the name of an input of a body.
pub fn given(at: usize) -> String {
    format!("%i{at}")
}

/// Returns whether a graph has loops.
pub fn has_loops(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| matches!(node.op.def().class, Class::Loop))
}

/// Splits a graph at its loops.
///
/// # Errors
/// If the graph has extents at run time.
pub fn stages(graph: &Graph) -> Result<Staged, GraphError> {
    if let Some(extent) = graph.extents().first() {
        let (problem, help) = (
            format!("cannot lower a loop because extent {extent} is only known at run time"),
            "bind the extent to a number",
        );
        let (op, operands) = ("loop".into(), String::new());
        return Err(GraphError { op, operands, origin: Origin::default(), problem, help: help.into() });
    }
    let cut = StageCut::new(graph);
    let mut loops = Vec::new();
    for &id in &cut.loops {
        loops.push(cut.staged(id)?);
    }
    let mut stages = Vec::new();
    for stage in 0..=loops.len() {
        stages.push(cut.stage(stage, &loops)?);
    }
    Ok(Staged { stages, loops })
}

/// Assigns each value to the stage that computes it.
struct StageCut<'g> {
    graph: &'g Graph,
    /// For each value, whether an output or a state depends on it.
    live: Vec<bool>,
    /// The loops that outputs or states depend on.
    loops: Vec<NodeId>,
    /// For each value, whether it depends on inputs or states.
    runtime: Vec<bool>,
    /// For each value of the run program, the stage that computes it. A result of a loop has the first stage that can
    /// read it.
    level: Vec<usize>,
}

fn leaf(graph: &Graph, id: NodeId) -> Option<Leaf> {
    match graph.node(id).op.def().class {
        Class::Leaf(leaf) => Some(leaf),
        _ => None,
    }
}

impl<'g> StageCut<'g> {
    fn new(graph: &'g Graph) -> StageCut<'g> {
        let mut live = vec![false; graph.len()];
        let mut wanted: Vec<NodeId> = graph.results().map(|(_, id)| *id).collect();
        while let Some(id) = wanted.pop() {
            if !std::mem::replace(&mut live[id.0 as usize], true) {
                wanted.extend(&graph.node(id).operands);
            }
        }
        let (runtime, level) = (vec![false; graph.len()], vec![0; graph.len()]);
        let mut cut = StageCut { graph, live, loops: Vec::new(), runtime, level };
        for (id, node) in graph.nodes() {
            let at = id.0 as usize;
            let of = |o: &NodeId| o.0 as usize;
            let is_loop = matches!(node.op.def().class, Class::Loop);
            // A loop is never folded as a constant; it always runs.
            cut.runtime[at] = is_loop
                || matches!(leaf(graph, id), Some(Leaf::Input | Leaf::State))
                || node.operands.iter().any(|o| cut.runtime[of(o)]);
            let operands = node.operands.iter().filter(|o| cut.runtime[of(o)]).map(|o| cut.level[of(o)]);
            cut.level[at] = operands.max().unwrap_or(0);
            if is_loop && cut.live[at] {
                cut.loops.push(id);
                cut.level[at] = cut.loops.len();
            }
        }
        cut
    }

    /// Returns whether a stage computes a value in the run program.
    fn is_computed(&self, id: NodeId, stage: usize) -> bool {
        let at = id.0 as usize;
        self.runtime[at] && self.level[at] == stage && leaf(self.graph, id).is_none() && !self.is_result(id)
    }

    /// Returns whether a value is one of a loop's results.
    fn is_result(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        matches!(node.op.def().class, Class::Project)
            && matches!(self.graph.node(node.operands[0]).op.def().class, Class::Loop)
    }

    /// Returns whether a stage gets a value as an input instead of computing it.
    fn comes_in(&self, id: NodeId, stage: usize) -> bool {
        let at = id.0 as usize;
        match leaf(self.graph, id) {
            Some(leaf) => leaf == Leaf::Input,
            None => self.runtime[at] && (self.level[at] < stage || self.is_result(id)),
        }
    }

    /// Returns a loop with its body.
    fn staged(&self, id: NodeId) -> Result<StagedLoop, GraphError> {
        let node = self.graph.node(id);
        let of = Loop::of(&node.attrs).expect("the graph was checked when it was built");
        let (times, states, scanned) = (of.times, of.carried, of.scanned);
        let frozen = of.condition.map(|condition| of.frozen(condition)).transpose()?;
        let body: &Graph = frozen.as_ref().map_or(&**of.body, |frozen| &frozen.graph);
        let starts = frozen.iter().flat_map(|frozen| &frozen.starts).map(|at| node.operands[*at]);
        let operands: Vec<NodeId> = node.operands.iter().copied().chain(starts).collect();
        let mut own = Graph::new(body.name.clone());
        let mut new: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        let (mut constants, mut captured) = (FxHashMap::default(), Vec::new());
        for (at, (_, input)) in body.named("input").enumerate() {
            let (operand, ty) = (operands[at], body.ty(input).clone());
            let leaf = if at < states {
                own.state(&carried(at), ty)?
            } else if at < states + scanned {
                own.input(&given(at - states), ty)?
            } else if self.runtime[operand.0 as usize] {
                captured.push(operand);
                own.input(&given(scanned + captured.len() - 1), ty)?
            } else {
                self.copy(&mut own, &mut constants, operand, &|_| None)?
            };
            own.set_observer(leaf, body.node(input).observer);
            new.insert(input, leaf);
        }
        for (id, inner) in body.nodes() {
            if !new.contains_key(&id) {
                let operands: Vec<NodeId> = inner.operands.iter().map(|o| new[o]).collect();
                new.insert(id, again(&mut own, body, id, &operands)?);
            }
        }
        for (at, (_, value)) in body.outputs().iter().enumerate() {
            match at < states {
                true => own.update(&carried(at), new[value])?,
                false => own.output(&output(at - states), new[value])?,
            }
        }
        let mut results = vec![Vec::new(); body.outputs().len()];
        for (get, node) in self.graph.nodes().filter(|(_, node)| node.operands.first() == Some(&id)) {
            let at = node.attrs.first().and_then(Attr::int).and_then(|at| usize::try_from(at).ok());
            if let Some(result) = at.and_then(|at| results.get_mut(at)) {
                result.push(get);
            }
        }
        Ok(StagedLoop {
            body: own,
            times,
            starts: node.operands[..states].to_vec(),
            scanned: node.operands[states..states + scanned].to_vec(),
            captured,
            condition: of.condition,
            results,
            origin: node.origin.clone(),
        })
    }

    /// Returns the graph of one stage.
    fn stage(&self, stage: usize, loops: &[StagedLoop]) -> Result<Graph, GraphError> {
        let last = stage == loops.len();
        let mut handed: BTreeSet<NodeId> = BTreeSet::new();
        // A constant that loops take as a start or scanned value is an output of the stage before the first such loop.
        let first_given = |id: NodeId| {
            let given = |staged: &StagedLoop| staged.starts.iter().chain(&staged.scanned).any(|o| *o == id);
            loops.iter().position(given)
        };
        for staged in &loops[stage.min(loops.len())..] {
            for &id in staged.starts.iter().chain(&staged.scanned).chain(&staged.captured) {
                let constant_here = !self.runtime[id.0 as usize] && first_given(id) == Some(stage);
                if constant_here || self.is_computed(id, stage) {
                    handed.insert(id);
                }
            }
        }
        // The stage outputs the values that later stages and loops read.
        for (id, node) in self.graph.nodes() {
            let at = id.0 as usize;
            let later = self.live[at] && self.runtime[at] && self.level[at] > stage;
            if later && !self.is_result(id) && !matches!(node.op.def().class, Class::Loop) {
                handed.extend(node.operands.iter().filter(|o| self.is_computed(**o, stage)));
            }
        }
        if !last {
            let updates = self.graph.updates().iter().map(|(_, id)| *id);
            handed.extend(updates.filter(|id| self.is_computed(*id, stage)));
        }
        let mut own = Graph::new(self.graph.name.clone());
        let mut new = FxHashMap::default();
        let comes_in = |id: NodeId| self.comes_in(id, stage).then(|| value(id));
        let at_home = |id: NodeId| match self.runtime[id.0 as usize] && leaf(self.graph, id).is_none() {
            true => self.level[id.0 as usize] == stage,
            false => last,
        };
        for (at, (_, id)) in self.graph.outputs().iter().enumerate().filter(|(_, (_, id))| at_home(*id)) {
            let made = self.copy(&mut own, &mut new, *id, &comes_in)?;
            own.output(&output(at), made)?;
        }
        for id in handed {
            let made = self.copy(&mut own, &mut new, id, &comes_in)?;
            own.output(&value(id), made)?;
        }
        // Every stage reads the states as they were before the run, so only the last stage updates them.
        for (state, id) in self.graph.updates().iter().filter(|_| last) {
            // Values of earlier stages have a lower level, so they become inputs.
            let made = self.copy(&mut own, &mut new, *id, &comes_in)?;
            self.copy_state(&mut own, &mut new, state)?;
            own.update(state, made)?;
        }
        Ok(own)
    }

    /// Declares a state of the original graph in a new graph.
    fn copy_state(&self, to: &mut Graph, new: &mut FxHashMap<NodeId, NodeId>, state: &str) -> Result<(), GraphError> {
        match self.graph.named("state").find(|(name, _)| *name == state) {
            Some((_, id)) => self.copy(to, new, id, &|_| None).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Copies a value and the expression that computes it to another graph. `comes_in` names the values that become
    /// inputs there.
    fn copy(
        &self,
        to: &mut Graph,
        new: &mut FxHashMap<NodeId, NodeId>,
        id: NodeId,
        comes_in: &dyn Fn(NodeId) -> Option<String>,
    ) -> Result<NodeId, GraphError> {
        let mut needed = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if !new.contains_key(&id) && needed.insert(id) && comes_in(id).is_none() {
                stack.extend(&self.graph.node(id).operands);
            }
        }
        for id in needed {
            let made = match comes_in(id) {
                Some(name) => {
                    let made = to.input(&name, self.graph.ty(id).clone())?;
                    to.set_observer(made, self.graph.node(id).observer);
                    made
                }
                None => {
                    let operands: Vec<NodeId> = self.graph.node(id).operands.iter().map(|o| new[o]).collect();
                    again(to, self.graph, id, &operands)?
                }
            };
            new.insert(id, made);
        }
        Ok(new[&id])
    }
}

/// Copies one node to another graph, over new operands.
fn again(to: &mut Graph, from: &Graph, id: NodeId, operands: &[NodeId]) -> Result<NodeId, GraphError> {
    let node = from.node(id);
    let attrs: Vec<(&str, Attr)> = node.op.def().attrs.iter().map(|a| a.name).zip(node.attrs.iter().cloned()).collect();
    let made = to.apply_at(node.op, operands, &attrs, node.origin.clone())?;
    to.set_observer(made, node.observer);
    Ok(made)
}
