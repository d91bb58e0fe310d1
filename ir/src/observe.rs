//! Marks the values whose rounding can change the result of a discontinuous op.
//!
//! `floor(x / 7)` may change by 1 if the quotient is rounded twice instead of once. So a value is *observed* if an op
//! with [`OpDef::observes`](crate::ops::OpDef::observes) reads it, directly or through ops that hand its rounding on
//! ([`Op::hands_on`]): pointwise ops, views, updates and extrema. Sums, products, attention and norms do not hand it
//! on, because a kernel may round their partial results in any order. States hand marks on from run to run, and the
//! values that a loop carries from iteration to iteration.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Attr, Attrs, Class, Graph, NodeId, Op,
    graph::{Node, SubGraph},
    ops::{Anchor, Loop, Writes},
};

/// The observing op of each value, if it has one.
type Marks = Vec<Option<Op>>;

impl Op {
    /// Returns whether a difference in the rounding of a floating operand can appear unchanged in the op's result. In
    /// a sum it is mixed with other rounding errors.
    pub fn hands_on(self) -> bool {
        match &self.def().class {
            Class::Pointwise | Class::View(_) | Class::Update(_, Writes::Apart | Writes::InOrder) => true,
            Class::Update(_, Writes::Combined(how)) => how.def().selects,
            Class::Anchor(Anchor::Row(row)) => row.monoid.is_some_and(|how| how.def().selects),
            Class::Composite => self.definition_hands_on(),
            _ => false,
        }
    }
}

impl Graph {
    /// Returns the graph with the observing op of each value in [`Node::observer`], also in the bodies of its loops.
    pub fn observed(&self) -> Cow<'_, Graph> {
        if !has_observer(self) {
            return Cow::Borrowed(self);
        }
        let outputs = vec![None; self.outputs().len()];
        Cow::Owned(observed(self.clone(), &outputs))
    }
}

/// Returns whether a graph or the body of one of its loops has an op that observes an operand.
fn has_observer(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| {
        node.observer.is_some()
            || node.operands.iter().any(|&operand| observes(graph, node, operand))
            || Loop::of(&node.attrs).is_some_and(|of| has_observer(of.body))
    })
}

/// Returns whether a node is a discontinuous op that observes the rounding of an operand.
fn observes(graph: &Graph, node: &Node, operand: NodeId) -> bool {
    let dtypes = graph.ty(operand).dtype().zip(node.ty.dtype());
    dtypes.is_some_and(|(from, to)| from.is_float() && node.op.observes(from, to))
}

/// Marks a graph. `outputs` has the observing ops of its outputs in the surrounding graph.
fn observed(mut graph: Graph, outputs: &[Option<Op>]) -> Graph {
    let Observers { values, bodies } = Observers::of(&graph, outputs);
    for (at, observer) in values.into_iter().enumerate() {
        graph.set_observer(NodeId(at as u32), observer);
    }
    for (id, outputs) in bodies {
        let attrs = graph.node(id).attrs.iter().map(|attr| match attr {
            Attr::Graph(body) => Attr::Graph(SubGraph::from(observed((**body).clone(), &outputs))),
            other => other.clone(),
        });
        let attrs: Attrs = attrs.collect();
        graph.set_attrs(id, attrs);
    }
    graph
}

/// The observed values of a graph.
struct Observers {
    /// The mark of each node.
    values: Marks,
    /// For each loop, the marks of its body's outputs.
    bodies: FxHashMap<NodeId, Marks>,
}

impl Observers {
    fn of(graph: &Graph, outputs: &[Option<Op>]) -> Observers {
        let first = equal_values(graph);
        let mut observers = Observers { values: vec![None; graph.len()], bodies: FxHashMap::default() };
        for ((_, id), observer) in graph.outputs().iter().zip(outputs) {
            observers.mark(&first, *id, *observer);
        }
        for (id, node) in graph.nodes() {
            observers.mark(&first, id, node.observer);
        }
        // If a state is observed, so is its new value, because the next run reads it.
        while observers.hand_on(graph, &first) {}
        observers.values = first.iter().map(|&first| observers.values[first]).collect();
        observers
    }

    /// Marks a value. Returns whether the mark is new.
    fn mark(&mut self, first: &[usize], id: NodeId, observer: Option<Op>) -> bool {
        let mark = &mut self.values[first[id.0 as usize]];
        let new = mark.is_none() && observer.is_some();
        *mark = mark.or(observer);
        new
    }

    /// Hands marks on from users to operands, in one pass over the graph. Returns whether a state makes another pass
    /// necessary.
    fn hand_on(&mut self, graph: &Graph, first: &[usize]) -> bool {
        let nodes: Vec<_> = graph.nodes().collect();
        for &(id, node) in nodes.iter().rev() {
            if let Some(of) = Loop::of(&node.attrs) {
                self.through_loop(graph, first, id, &of);
                continue;
            }
            let own = self.values[first[id.0 as usize]].filter(|_| node.op.hands_on());
            for &operand in &node.operands {
                let observer = if observes(graph, node, operand) { Some(node.op) } else { own };
                if graph.ty(operand).dtype().is_some_and(|dtype| dtype.is_float()) {
                    self.mark(first, operand, observer);
                }
            }
        }
        let mut again = false;
        for (name, id) in graph.updates() {
            let state = graph.named("state").find(|(state, _)| state == name);
            let observer = state.and_then(|(_, state)| self.values[first[state.0 as usize]]);
            again |= self.mark(first, *id, observer);
        }
        again
    }

    /// Hands the marks of a loop's results on to its operands.
    fn through_loop(&mut self, graph: &Graph, first: &[usize], id: NodeId, of: &Loop<'_>) {
        let mut outputs = self.bodies.remove(&id).unwrap_or_else(|| vec![None; of.body.outputs().len()]);
        for (get, node) in graph.nodes().filter(|(_, node)| node.operands.first() == Some(&id)) {
            let at = node.attrs.first().and_then(Attr::int).and_then(|at| usize::try_from(at).ok());
            if let Some(output) = at.and_then(|at| outputs.get_mut(at)) {
                *output = output.or(self.values[first[get.0 as usize]]);
            }
        }
        let inputs: Vec<NodeId> = of.body.named("input").map(|(_, input)| input).collect();
        let marks = loop {
            let marks = Observers::of(of.body, &outputs).values;
            let mut again = false;
            for (output, input) in outputs.iter_mut().zip(&inputs).take(of.carried) {
                let observer = marks[input.0 as usize];
                again |= output.is_none() && observer.is_some();
                *output = output.or(observer);
            }
            if !again {
                break marks;
            }
        };
        for (operand, input) in graph.node(id).operands.iter().zip(&inputs) {
            self.mark(first, *operand, marks[input.0 as usize]);
        }
        self.bodies.insert(id, outputs);
    }
}

/// Returns for each node the first node that computes the same value. Rewriting merges these nodes, so they share a
/// mark.
fn equal_values(graph: &Graph) -> Vec<usize> {
    let mut known: FxHashMap<(Op, &Attrs, SmallVec<[usize; 3]>), usize> = FxHashMap::default();
    let mut first: Vec<usize> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let operands = node.operands.iter().map(|operand| first[operand.0 as usize]).collect();
        first.push(*known.entry((node.op, &node.attrs, operands)).or_insert(id.0 as usize));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lang::Source, text};

    /// Returns the ops whose results are observed, in order, each with the observing op.
    fn marks(text: &str) -> Vec<String> {
        let graph = text::parse(&Source::new("test", text)).unwrap();
        let graph = graph.observed();
        let shown = |(_, node): (NodeId, &Node)| Some(format!("{} by {}", node.op, node.observer?));
        graph.nodes().filter_map(shown).collect()
    }

    #[test]
    fn pointwise_ops_and_views_hand_on_and_sums_do_not() {
        let found = marks(
            r#"(graph "g" (input x f32[4 4]) (input w f32[4 4]) (const c f32[] { 7.0 })
                 (let a (div (matmul x w) c))
                 (output y (floor (transpose a :perm [-1 -2])))
                 (output z (exp (div x c))))"#,
        );
        assert_eq!(found, ["const by floor", "matmul by floor", "div by floor", "transpose by floor"]);
    }

    #[test]
    fn equal_values_have_one_mark() {
        let found = marks(
            r#"(graph "g" (input x f32[4]) (output a (sqrt x)) (const c f32[] { 1.0 }) (output y (gt (sqrt x) c)))"#,
        );
        assert_eq!(found.iter().filter(|mark| *mark == "sqrt by gt").count(), 2);
    }

    #[test]
    fn marks_pass_through_states_and_loops() {
        let found = marks(
            r#"(graph "g" (input x f32[4]) (state s f32[4]) (const c f32[] { 0.3 })
                 (output y (floor s))
                 (update s (mul x c)))"#,
        );
        assert!(found.contains(&"mul by floor".to_owned()), "{found:?}");
        let graph = r#"(graph "g" (input x f32[4])
                 (sub body (input c f32[4]) (const k f32[] { 0.3 }) (output d (mul c k)))
                 (const k f32[] { 0.7 })
                 (let r (loop (mul x k) :body body :times 3 :carried 1))
                 (output y (cast (get 0 r) :to i32)))"#;
        let graph = text::parse(&Source::new("test", graph)).unwrap();
        let graph = graph.observed();
        let outer = graph.nodes().filter(|(_, node)| node.op.name() == "mul").all(|(_, node)| node.observer.is_some());
        let inner = graph.nodes().find_map(|(_, node)| Loop::of(&node.attrs).map(|of| of.body.clone())).unwrap();
        let inner = inner.nodes().filter(|(_, node)| node.op.name() == "mul").all(|(_, node)| node.observer.is_some());
        assert!(outer && inner);
    }

    #[test]
    fn integers_are_exact_anyway() {
        let found = marks(r#"(graph "g" (input x i32[4]) (const c i32[] { 3 }) (output y (gt (add x c) c)))"#);
        assert_eq!(found, Vec::<String>::new());
    }
}
