//! Computes the trip counts of loops whose conditions depend on known values only.

use std::collections::{BTreeSet, HashMap};

use eutectic_ir::{
    Class, DType, NodeId, Tensor, Type,
    interp::evaluate_rounded,
    ops::{Leaf, eval::Value},
};

use super::{Importer, LARGEST_KNOWN};

/// The limit on evaluated nodes. That many evaluations take about a second.
const EVALUATIONS: usize = 1 << 20;

/// A carried value of a loop: the input of the body, its value in the first iteration if that is known, and the output
/// that becomes the input of the next iteration.
pub type Carried = ((NodeId, Option<Tensor>), NodeId);

impl Importer<'_> {
    /// Returns the trip count of the loop whose body is under construction, at most `most`. The first carried value is
    /// the condition, which is true before the first iteration. `number` is the body's input with the number of the
    /// iteration. Returns `None` if the condition depends on unknown values.
    pub fn trip_count(&self, number: NodeId, carried: &[Carried], most: usize) -> Option<usize> {
        let condition = carried.first()?.1;
        let needed = self.needed(number, carried)?;
        let mut values: HashMap<NodeId, Value<f64>> = HashMap::new();
        for at in &needed {
            values.extend(self.value(*at).map(|constant| (*at, Value::from_tensor(&constant))));
        }
        let constant: BTreeSet<NodeId> = values.keys().copied().collect();
        let of_carried = || carried.iter().filter(|((given, _), _)| needed.contains(given));
        for ((given, start), _) in of_carried() {
            values.insert(*given, Value::from_tensor(start.as_ref()?));
        }
        for time in 0..most.min(EVALUATIONS / needed.len().max(1)) {
            values.insert(number, Value::from_tensor(&Tensor::from_i64(DType::I64, &[], [time as i64])));
            for at in needed.iter().filter(|at| !constant.contains(at)) {
                let node = self.graph.node(*at);
                if matches!(node.op.def().class, Class::Leaf(Leaf::Input)) {
                    continue;
                }
                let operands: Vec<&Value<f64>> = node.operands.iter().map(|o| values.get(o)).collect::<Option<_>>()?;
                values.insert(*at, evaluate_rounded(*at, node, &operands).ok()?.pop()?);
            }
            if values.get(&condition)?.to_tensor().to_i64() == [0] {
                return Some(time + 1);
            }
            let next: Vec<(NodeId, Value<f64>)> = of_carried()
                .map(|((given, _), next)| Some((*given, values.get(next)?.clone())))
                .collect::<Option<_>>()?;
            values.extend(next);
        }
        (most <= EVALUATIONS / needed.len().max(1)).then_some(most)
    }

    /// Returns the nodes of the body that decide the condition, in the same iteration or a later one.
    fn needed(&self, number: NodeId, carried: &[Carried]) -> Option<BTreeSet<NodeId>> {
        let (mut needed, mut waiting) = (BTreeSet::new(), vec![carried.first()?.1]);
        while let Some(at) = waiting.pop() {
            if !needed.insert(at) || at == number || self.value(at).is_some() {
                continue;
            }
            let node = self.graph.node(at);
            if let Some((_, next)) = carried.iter().find(|((given, _), _)| *given == at) {
                waiting.push(*next);
                continue;
            }
            let computed = !matches!(node.op.def().class, Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State));
            let small = matches!(node.ty, Type::Tensor(..)) && node.ty.count() <= LARGEST_KNOWN;
            if !(computed && small) {
                return None;
            }
            waiting.extend(&node.operands);
        }
        Some(needed)
    }
}
