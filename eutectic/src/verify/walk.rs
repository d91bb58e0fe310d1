//! Visits the parts of a program in execution order, with the values of the program as written.

use std::{borrow::Cow, collections::BTreeMap};

use eutectic_ir::{
    Attr, Class, Graph, NodeId,
    ops::Leaf,
    outline::{BlockCall, Outlined},
};
use eutectic_lowering::stages::{StagedLoop, carried, given, output, value};
use rustc_hash::FxHashMap;

use super::{expected::Expected, given::Given, given::LANES};
use crate::{
    Error,
    units::{CutGraph, PlanUnits, UnitTree},
};

/// A call of a block: its number in the program, the number of the block, and the block's graph.
pub(crate) struct Visit<'a> {
    pub call: usize,
    pub block: usize,
    pub body: &'a Graph,
    /// Inputs, parameters and states of the body, by name.
    pub leaves: &'a dyn Fn(&str) -> Option<Expected>,
}

/// Computes a call, and returns the values of the body's nodes.
pub(crate) type Visitor<'a> = dyn FnMut(&Visit<'_>) -> Result<Vec<Option<Expected>>, Error> + 'a;

/// The values of results by name: outputs, and new values of states.
#[derive(Default)]
struct Results {
    outputs: BTreeMap<String, Expected>,
    updates: BTreeMap<String, Expected>,
}

/// A program in parts, and the visitor of its calls.
pub(crate) struct Walk<'a, 'v> {
    units: &'a PlanUnits<'a>,
    outlined: &'a [Outlined],
    /// The index of the first block and of the first call in each part.
    first: Vec<[usize; 2]>,
    given: &'a Given,
    visit: &'a mut Visitor<'v>,
}

impl<'a, 'v> Walk<'a, 'v> {
    /// Returns a walk over parts with their outlined forms.
    pub fn new(
        units: &'a PlanUnits<'a>,
        outlined: &'a [Outlined],
        given: &'a Given,
        visit: &'a mut Visitor<'v>,
    ) -> Walk<'a, 'v> {
        let mut next = [0, 0];
        let first = outlined.iter().map(|part| {
            let here = next;
            next = [next[0] + part.blocks.len(), next[1] + part.calls.len()];
            here
        });
        Walk { units, outlined, first: first.collect(), given, visit }
    }

    /// Visits all calls. Calls in a loop's body are visited once in each iteration.
    ///
    /// # Errors
    /// The error of a visit.
    pub fn run(mut self) -> Result<(), Error> {
        let (units, given) = (self.units, self.given);
        self.tree(&units.tree, &|name| given.expected(name)).map(drop)
    }

    fn tree(&mut self, tree: &UnitTree<'_>, named: &dyn Fn(&str) -> Option<Expected>) -> Result<Results, Error> {
        match tree {
            UnitTree::Whole(part) => self.part(*part, named),
            UnitTree::Cut(cut) => self.cut(cut, named),
        }
    }

    /// Visits the calls of a part without loops.
    fn part(&mut self, part: usize, named: &dyn Fn(&str) -> Option<Expected>) -> Result<Results, Error> {
        let (graph, outlined): (&Cow<'_, Graph>, &Outlined) = (&self.units.graphs[part], &self.outlined[part]);
        let mut made: FxHashMap<NodeId, Expected> = FxHashMap::default();
        let [first_block, first_call] = self.first[part];
        for (at, call) in outlined.calls.iter().enumerate() {
            let body = &outlined.blocks[call.block].graph;
            let given = self.given;
            let leaves = |name: &str| {
                let id = given_to(call, body, name)?;
                made.get(&id).cloned().or_else(|| leaf(graph, id, given, named))
            };
            let visit = Visit { call: first_call + at, block: first_block + call.block, body, leaves: &leaves };
            let values = (self.visit)(&visit)?;
            for (&id, (name, result)) in call.outputs.iter().zip(body.outputs()) {
                let value = values[result.0 as usize].clone().ok_or_else(|| lacking(name))?;
                made.insert(id, value);
            }
        }
        let result = |(name, id): &(String, NodeId)| {
            let found = made.get(id).cloned().or_else(|| leaf(graph, *id, self.given, named));
            Ok((name.clone(), found.ok_or_else(|| lacking(name))?))
        };
        Ok(Results {
            outputs: graph.outputs().iter().map(result).collect::<Result<_, Error>>()?,
            updates: graph.updates().iter().map(result).collect::<Result<_, Error>>()?,
        })
    }

    /// Visits a graph with loops: its stages, and the loops between them.
    fn cut(&mut self, cut: &CutGraph<'_>, named: &dyn Fn(&str) -> Option<Expected>) -> Result<Results, Error> {
        let CutGraph { graph, staged, stages, bodies } = cut;
        let mut values: FxHashMap<NodeId, Expected> = FxHashMap::default();
        let mut results = Results::default();
        let ids: FxHashMap<String, NodeId> = graph.nodes().map(|(id, _)| (value(id), id)).collect();
        for (at, stage) in stages.iter().enumerate() {
            if let Some(part) = *stage {
                let given = self.given;
                let of_stage = |name: &str| match ids.get(name) {
                    Some(id) => values.get(id).cloned().or_else(|| leaf(graph, *id, given, named)),
                    None => named(name),
                };
                let found = self.part(part, &of_stage)?;
                for (name, made) in found.outputs {
                    match ids.get(&name) {
                        Some(id) => _ = values.insert(*id, made),
                        None => _ = results.outputs.insert(name, made),
                    }
                }
                results.updates.extend(found.updates);
            }
            if let (Some(of), Some(body)) = (staged.loops.get(at), bodies.get(at)) {
                let made = self.repeat(graph, of, body, &values, named)?;
                values.extend(made);
            }
        }
        // The outputs of a stage are named by their index.
        let own = graph
            .outputs()
            .iter()
            .enumerate()
            .filter_map(|(at, (name, _))| Some((name.clone(), results.outputs.remove(&output(at))?)));
        results.outputs = own.collect();
        Ok(results)
    }

    /// Visits the body of a loop, once in each iteration.
    fn repeat(
        &mut self,
        graph: &Graph,
        of: &StagedLoop,
        body: &UnitTree<'_>,
        values: &FxHashMap<NodeId, Expected>,
        named: &dyn Fn(&str) -> Option<Expected>,
    ) -> Result<Vec<(NodeId, Expected)>, Error> {
        let read = |id: &NodeId| {
            let found = values.get(id).cloned().or_else(|| leaf(graph, *id, self.given, named));
            found.ok_or_else(|| lacking(&value(*id)))
        };
        let mut states: Vec<Expected> = of.starts.iter().map(read).collect::<Result<_, _>>()?;
        let scanned: Vec<Expected> = of.scanned.iter().map(read).collect::<Result<_, _>>()?;
        let captured: Vec<Expected> = of.captured.iter().map(read).collect::<Result<_, _>>()?;
        let mut stacked: Vec<Vec<Expected>> = vec![Vec::new(); of.body.outputs().len()];
        let numbered = |name: &str, names: fn(usize) -> String, most: usize| (0..most).find(|at| names(*at) == name);
        for time in 0..of.times {
            let of_body = |name: &str| {
                if let Some(at) = numbered(name, carried, states.len()) {
                    return Some(states[at].clone());
                }
                match numbered(name, given, scanned.len() + captured.len()) {
                    Some(at) if at < scanned.len() => Some(scanned[at].part(time)),
                    Some(at) => Some(captured[at - scanned.len()].clone()),
                    None => named(name),
                }
            };
            let mut results = self.tree(body, &of_body)?;
            let next = |(at, before): (usize, &Expected)| {
                results.updates.remove(&carried(at)).unwrap_or_else(|| before.clone())
            };
            states = states.iter().enumerate().map(next).collect();
            for (at, all) in stacked.iter_mut().enumerate() {
                all.push(results.outputs.remove(&output(at)).ok_or_else(|| lacking(&output(at)))?);
            }
        }
        let types = of.body.outputs().iter().map(|(_, id)| of.body.ty(*id));
        let bounded = self.given.bounded;
        let stacked = stacked.iter().zip(types).map(|(all, ty)| Expected::stack(all, ty, LANES, bounded));
        let results: Vec<Expected> = states.into_iter().chain(stacked).collect();
        let ids = of.results.iter().zip(results);
        Ok(ids.flat_map(|(ids, value)| ids.iter().map(move |id| (*id, value.clone()))).collect())
    }
}

/// Returns the value that a call passes to a leaf of its body.
fn given_to(call: &BlockCall, body: &Graph, name: &str) -> Option<NodeId> {
    [("input", &call.inputs), ("param", &call.params), ("state", &call.states)].into_iter().find_map(|(kind, list)| {
        let at = body.named(kind).position(|(known, _)| known == name)?;
        list.get(at).copied()
    })
}

/// Returns the value of a leaf of a graph, or `None` for a computed node.
fn leaf(graph: &Graph, id: NodeId, given: &Given, named: &dyn Fn(&str) -> Option<Expected>) -> Option<Expected> {
    let node = graph.node(id);
    match (node.op.def().class, node.attrs.first()) {
        (Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State), Some(Attr::Word(name))) => named(name),
        (Class::Leaf(Leaf::Const), Some(Attr::Tensor(tensor))) => Some(given.constant(tensor)),
        _ => None,
    }
}

fn lacking(name: &str) -> Error {
    Error::Arguments(vec![format!(
        "cannot compute the program as written because `{name}` has no value, which is a defect of the engine"
    )])
}
