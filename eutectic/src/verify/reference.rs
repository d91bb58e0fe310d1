//! Computes the program as written: op by op on the CPU, with the rules that define ops and no other rule.

use eutectic_ir::{
    Attr, Bounded, Class, Graph, NodeId, Tensor,
    interp::evaluate,
    ops::{Leaf, eval::Value},
};
use rustc_hash::FxHashMap;

use super::{
    expected::Expected,
    given::{Given, LANES},
};
use crate::{Compiler, Cpu, Error, Session, Strategy, packs};
use eutectic_rewrites::{Choice, Fp};

/// The program as written.
pub(crate) struct Reference {
    compiler: Compiler,
    /// Programs that return all values of a block, by the block's index.
    blocks: FxHashMap<usize, BlockProgram>,
}

/// A program that returns the values of nodes.
struct BlockProgram {
    session: Session,
    nodes: Vec<NodeId>,
}

impl Reference {
    /// Creates the compiler of the reference.
    ///
    /// # Errors
    /// If the rules do not load, which is a defect of this build.
    pub fn new() -> Result<Reference, Error> {
        let cpu = Cpu::default();
        let only = vec!["legalize/*".into(), "decompose/*".into()];
        let rules = packs(&cpu)?.choose(&Choice { only, fp: Fp::Exact, ..Choice::default() })?;
        let mut options = crate::Options { outline: false, ..crate::Options::default() };
        options.search.strategy = Strategy::Unfused;
        Ok(Reference {
            compiler: Compiler::from_backend(cpu, rules).with_options(options),
            blocks: FxHashMap::default(),
        })
    }

    /// Returns the results of a graph: outputs, then new values of states.
    ///
    /// # Errors
    /// If the CPU cannot compute the graph, or an index in a tensor is out of range.
    pub fn results(&self, graph: &Graph, given: &Given) -> Result<Vec<Expected>, Error> {
        let mut session = self.compiler.compile(graph)?;
        let mut lanes = Vec::new();
        for lane in 0..LANES {
            session.load_named(|name| given.get(lane, name))?;
            for state in 0..session.program().states.len() {
                session.clear(crate::Port::State(state))?;
            }
            lanes.push(all_results(&mut session, graph, &|name| given.get(lane, name))?);
        }
        let bounds = match given.bounded {
            true => {
                let values = interpreted(graph, &|_, name| Some(Value::from_tensor(&given.get(0, name)?)))?;
                graph.results().map(|(_, id)| values[id.0 as usize].first().cloned()).collect()
            }
            false => vec![None; graph.results().count()],
        };
        let of = |(at, bounded): (usize, _)| Expected {
            lanes: lanes.iter().map(|lane| lane[at].clone()).collect(),
            bounded,
        };
        Ok(bounds.into_iter().enumerate().map(of).collect())
    }

    /// Returns the values of a block's nodes. They are `None` for tuples and for nodes that no output needs. `leaf`
    /// returns inputs, parameters and states by name.
    ///
    /// # Errors
    /// See [`Reference::results`].
    pub fn block(
        &mut self,
        number: usize,
        block: &Graph,
        leaf: &dyn Fn(&str) -> Option<Expected>,
        bounded: bool,
    ) -> Result<Vec<Option<Expected>>, Error> {
        let leaves: FxHashMap<String, Expected> = ["input", "param", "state"]
            .into_iter()
            .flat_map(|kind| block.named(kind))
            .filter_map(|(name, _)| Some((name.to_string(), leaf(name)?)))
            .collect();
        if !self.blocks.contains_key(&number) {
            let (probe, nodes) = all_values(block)?;
            // This program may have no kernels, because a block may return its inputs without computing anything.
            let session = self.compiler.compile(&probe)?;
            self.blocks.insert(number, BlockProgram { session, nodes });
        }
        let program = self.blocks.get_mut(&number).expect("the block's program was compiled above");
        let mut values: Vec<Option<Expected>> = vec![None; block.len()];
        for lane in 0..LANES {
            let value = |name: &str| leaves.get(name).map(|leaf| leaf.lanes[lane].clone());
            program.session.load_named(value)?;
            for (tensor, node) in program.session.run_named(value)?.into_iter().zip(&program.nodes) {
                let none = || Expected { lanes: Vec::new(), bounded: None };
                values[node.0 as usize].get_or_insert_with(none).lanes.push(tensor);
            }
        }
        if bounded {
            let all = interpreted(block, &|_, name| leaves.get(name).and_then(|leaf| leaf.bounded.clone()))?;
            for (value, mut bounded) in values.iter_mut().zip(all) {
                if let (Some(value), 1) = (value, bounded.len()) {
                    value.bounded = bounded.pop();
                }
            }
        }
        Ok(values)
    }
}

/// Runs a session with loaded parameters, and returns outputs and the new values of states.
///
/// # Errors
/// See [`Session::run`].
pub(crate) fn all_results(
    session: &mut Session,
    graph: &Graph,
    value: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, Error> {
    let mut results = session.run_named(value)?;
    for (name, _) in graph.updates() {
        let port = session.state(name)?;
        results.push(session.read(port)?);
    }
    Ok(results)
}

/// Returns a graph whose outputs are all values that a block's outputs depend on, and the node of the block for each.
/// States are inputs of that graph.
fn all_values(block: &Graph) -> Result<(Graph, Vec<NodeId>), Error> {
    let needed = needed(block);
    let (mut graph, mut handed) = (Graph::new(&block.name), Vec::new());
    for (id, node) in block.nodes() {
        let op = match node.op.def().class {
            Class::Leaf(Leaf::State) => "input",
            _ => node.op.name(),
        };
        let attrs: Vec<(&str, Attr)> = node.op.def().attrs.iter().map(|a| a.name).zip(node.attrs.clone()).collect();
        let made = graph.apply_at(op, &node.operands, &attrs, node.origin.clone())?;
        // Inputs are known already, unless the block returns them.
        let computed =
            !matches!(node.op.def().class, Class::Leaf(_)) || block.results().any(|(_, result)| *result == id);
        if computed && needed[id.0 as usize] && node.ty.as_tensor().is_some() {
            graph.output(&format!("v{}", id.0), made)?;
            handed.push(id);
        }
    }
    Ok((graph, handed))
}

/// Returns the nodes that a result depends on.
fn needed(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    graph.results().for_each(|(_, id)| needed[id.0 as usize] = true);
    // Ids ascend from operands to users.
    for (id, node) in graph.nodes().collect::<Vec<_>>().into_iter().rev() {
        if needed[id.0 as usize] {
            node.operands.iter().for_each(|operand| needed[operand.0 as usize] = true);
        }
    }
    needed
}

/// Returns the values of all nodes that results depend on, with their error bounds. `leaf` returns inputs, parameters
/// and states.
///
/// # Errors
/// If an index in a tensor is out of range.
pub(crate) fn interpreted(
    graph: &Graph,
    leaf: &dyn Fn(NodeId, &str) -> Option<Value<Bounded>>,
) -> Result<Vec<Vec<Value<Bounded>>>, Error> {
    let needed = needed(graph);
    let mut values: Vec<Vec<Value<Bounded>>> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        if !needed[id.0 as usize] {
            values.push(Vec::new());
            continue;
        }
        let missing = |name: &str| Error::Arguments(vec![format!("`{name}` {} has no value", node.ty)]);
        values.push(match (node.op.def().class, node.attrs.first()) {
            (Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State), Some(Attr::Word(name))) => {
                vec![leaf(id, name).ok_or_else(|| missing(name))?]
            }
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(tensor))) => vec![Value::from_tensor(tensor)],
            (Class::Project, Some(Attr::Int(at))) => {
                let parts = &values[node.operands[0].0 as usize];
                usize::try_from(*at).ok().and_then(|at| parts.get(at)).cloned().into_iter().collect()
            }
            _ => {
                let operands: Vec<&Value<Bounded>> =
                    node.operands.iter().map(|operand| &values[operand.0 as usize][0]).collect();
                evaluate(id, node, &operands)
                    .map_err(|e| Error::Arguments(vec![format!("cannot compute the program as written: {e}")]))?
            }
        });
    }
    Ok(values)
}
