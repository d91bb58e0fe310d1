//! Groups similar moves: layers of a network differ in extents only, and a move that gains in one layer usually gains
//! in the others.

use std::hash::{Hash, Hasher};

use eutectic_ir::{
    Attr, Type,
    eclasses::{ClassId, ENode, NodeChoice},
    ops::Class,
};
use rustc_hash::{FxHashMap, FxHasher};

use crate::planner::space::Space;

/// Numbers up to this one are distinguished: steps, windows, axes and paddings. Larger numbers are extents and offsets,
/// and count by octave.
const SMALL: u64 = 8;

/// Hashes of classes and e-nodes that ignore exact extents, with the results of moves.
pub(super) struct Likeness {
    /// For each class, a hash of its type, its e-nodes and the classes that read it.
    classes: Vec<u64>,
    /// For each class and e-node, a hash of its op, its attributes and its operands.
    nodes: Vec<Vec<u64>>,
    moves: FxHashMap<u64, Tried>,
}

/// The results of similar moves.
struct Tried {
    /// The first move, by its hash.
    first: u64,
    gained: bool,
}

impl Likeness {
    /// Hashes the classes of a space. No move has been tried yet. `users` gives the classes that read each class.
    pub fn of(space: &Space<'_>, users: &[Vec<ClassId>]) -> Likeness {
        let classes = &space.classes.classes;
        let facts = &space.facts;
        let own = |class: ClassId| {
            let scalar = classes[class].scalar.map(f64::to_bits);
            hash(&(type_of(&classes[class].ty), facts.given[class], facts.output[class], facts.loadable[class], scalar))
        };
        let own: Vec<u64> = (0..classes.len()).map(own).collect();
        let nodes_over = |of: &[u64]| -> Vec<Vec<u64>> {
            let node = |node: &ENode| {
                let mut hasher = FxHasher::default();
                node.op.name().hash(&mut hasher);
                // Names of leaves carry no information.
                if !matches!(node.op.def().class, Class::Leaf(_)) {
                    node.attrs.iter().for_each(|attr| attr_of(attr).hash(&mut hasher));
                }
                node.operands.iter().for_each(|&operand| of[operand].hash(&mut hasher));
                hasher.finish()
            };
            classes.iter().map(|class| class.nodes.iter().map(node).collect()).collect()
        };
        let around = nodes_over(&own);
        let with_neighbours = |class: ClassId| {
            let users = users[class].iter().map(|&user| own[user]).collect();
            hash(&(own[class], distinct(around[class].clone()), distinct(users)))
        };
        let classes: Vec<u64> = (0..classes.len()).map(with_neighbours).collect();
        Likeness { nodes: nodes_over(&classes), classes, moves: FxHashMap::default() }
    }

    /// Returns whether a similar change of choices was refused at another class, and no similar one has gained.
    pub fn is_vain(&self, choices: &[NodeChoice]) -> bool {
        self.moves.get(&self.kind(choices)).is_some_and(|tried| !tried.gained && tried.first != hash(&choices))
    }

    /// Records whether a change of choices gained.
    pub fn note(&mut self, choices: &[NodeChoice], gained: bool) {
        let (kind, first) = (self.kind(choices), hash(&choices));
        self.moves.entry(kind).or_insert(Tried { first, gained }).gained |= gained;
    }

    fn kind(&self, choices: &[NodeChoice]) -> u64 {
        let of = |&NodeChoice { class, node }: &NodeChoice| hash(&(self.classes[class], self.nodes[class][node]));
        let mut all: Vec<u64> = choices.iter().map(of).collect();
        all.sort_unstable();
        hash(&all)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

fn distinct(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Returns a small number itself, and the octave of a large one.
fn number(n: i64) -> (bool, i64) {
    let size = n.unsigned_abs();
    if size <= SMALL { (true, n) } else { (false, i64::from(size.ilog2()) * n.signum()) }
}

fn extents(extents: Option<Vec<usize>>) -> u64 {
    let extent = |n: usize| i64::try_from(n).map_or((false, i64::MAX), number);
    hash(&extents.map(|all| all.into_iter().map(extent).collect::<Vec<_>>()))
}

fn type_of(ty: &Type) -> u64 {
    hash(&(ty.dtype(), extents(ty.capacity())))
}

fn attr_of(attr: &Attr) -> u64 {
    match attr {
        Attr::Int(n) => hash(&(0, number(*n))),
        Attr::Ints(all) => hash(&(1, all.iter().map(|&n| number(n)).collect::<Vec<_>>())),
        Attr::Shape(shape) => hash(&(2, extents(shape.capacity()))),
        Attr::Type(ty) => hash(&(3, type_of(ty))),
        other => hash(&(4, other)),
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{DType, Graph, eclasses::EClasses};

    use super::*;
    use crate::tests::Roofline;

    /// Returns layers of these widths, each a product and an activation, and the classes of the activations.
    fn layers(layers: &[(usize, &str)]) -> (EClasses, Vec<ClassId>) {
        let mut graph = Graph::new("layers");
        let mut activations = Vec::new();
        for (n, &(width, act)) in layers.iter().enumerate() {
            let x = graph.input(&format!("x{n}"), Type::tensor(DType::F32, &[16, width])).unwrap();
            let w = graph.param(&format!("w{n}"), Type::tensor(DType::F32, &[width, width])).unwrap();
            let product = graph.apply("matmul", &[x, w], &[]).unwrap();
            let activation = graph.apply(act, &[product], &[]).unwrap();
            graph.output(&format!("y{n}"), activation).unwrap();
            activations.push(activation.0 as usize);
        }
        (EClasses::of(&graph), activations)
    }

    #[test]
    fn what_was_refused_is_vain_at_places_alike_until_one_gains() {
        let (classes, activations) = layers(&[(96, "tanh"), (100, "tanh"), (300, "tanh"), (96, "exp")]);
        let [a, b, wide, other] = activations[..] else { panic!("{activations:?}") };
        let space = Space::new(&classes, &Roofline);
        let mut likeness = Likeness::of(&space, &super::super::users(&space));
        let is_vain = |likeness: &Likeness, class| likeness.is_vain(&[NodeChoice { class, node: 0 }]);
        likeness.note(&[NodeChoice { class: a, node: 0 }], false);
        // A repeated move at the same class is left to the don't-look bits.
        assert!(!is_vain(&likeness, a));
        assert!(is_vain(&likeness, b));
        assert!(!is_vain(&likeness, wide), "another octave");
        assert!(!is_vain(&likeness, other), "another op");
        likeness.note(&[NodeChoice { class: a, node: 0 }], true);
        assert!(!is_vain(&likeness, b));
    }
}
