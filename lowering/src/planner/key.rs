//! Hashes the structure of kernels: kernels of equal structure have one price, even if they compute different classes.

use std::cell::RefCell;

use eutectic_ir::{
    Attrs, Op, Type,
    eclasses::{ClassId, EClasses, ENode},
    ops::{Class, Leaf},
};
use rustc_hash::FxHashMap;

use crate::{
    build::Positions,
    plan::{ClassFacts, Plan, PlanKernel},
};

/// A number for the structure of a class or an e-node without its operands. Equal structures have equal numbers.
type Form = u32;

/// The facts about a class or an e-node that a kernel's price may depend on, without its operands.
#[derive(PartialEq, Eq, Hash)]
enum What<'a> {
    /// An op that is computed.
    Op(Op, &'a Attrs, &'a Type),
    /// A constant, by its bits.
    Number(u64, &'a Type),
    /// A value that the kernel reads. Its price depends on two flags: a constant is not in the cache at the start of a
    /// run, and a state may be updated in place.
    Read { ty: &'a Type, constant: bool, state: bool },
    /// A class whose elements the builder may evaluate to find ids. It is equal to itself only.
    Known(ClassId),
}

/// The forms of all classes and e-nodes of an e-graph.
pub(crate) struct Forms {
    /// For each class, the form of each of its e-nodes when a kernel computes it.
    nodes: Vec<Vec<Form>>,
    /// For each class, its form when a kernel reads it.
    reads: Vec<Form>,
    /// The number of the last key. For each class, the last key that contains it, and the number of the class in that
    /// key.
    numbers: RefCell<(u64, Vec<(u64, u64)>)>,
}

impl Forms {
    pub fn of(classes: &EClasses, facts: &ClassFacts) -> Forms {
        let mut known: FxHashMap<What<'_>, Form> = FxHashMap::default();
        let mut form = |what| {
            let next = known.len() as Form;
            *known.entry(what).or_insert(next)
        };
        let ids = Positions::may_be_known(classes);
        let is_state = |node: &ENode| matches!(node.op.def().class, Class::Leaf(Leaf::State));
        let mut nodes = Vec::with_capacity(classes.classes.len());
        let mut reads = Vec::with_capacity(classes.classes.len());
        for (class, c) in classes.classes.iter().enumerate() {
            nodes.push(match c.scalar {
                Some(number) => vec![form(What::Number(number.to_bits(), &c.ty)); c.nodes.len().max(1)],
                // A class with a buffer is read and never computed. Its attributes may hold all its elements.
                None if facts.given[class] => Vec::new(),
                None => c.nodes.iter().map(|node| form(What::Op(node.op, &node.attrs, &c.ty))).collect(),
            });
            reads.push(match ids[class] {
                true => form(What::Known(class)),
                false => {
                    let [constant, state] = [facts.loadable[class], c.nodes.iter().any(is_state)];
                    form(What::Read { ty: &c.ty, constant, state })
                }
            });
        }
        let numbers = RefCell::new((0, vec![(0, 0); classes.classes.len()]));
        Forms { nodes, reads, numbers }
    }

    /// Returns a hash of everything that determines the price of a kernel: the ops in order, and their operands and the
    /// stored classes by numbers in order of first use. At 128 bits, two kernels of one search do not collide in
    /// practice.
    pub fn key(&self, classes: &EClasses, plan: &Plan, kernel: &PlanKernel) -> u128 {
        let (turn, numbers) = &mut *self.numbers.borrow_mut();
        *turn += 1;
        let (mut key, mut next) = (FACTOR, 0);
        for &class in &kernel.interior {
            let choice = plan.choice[class];
            let c = &classes.classes[class];
            if c.scalar.is_none() {
                for &operand in &c.nodes[choice].operands {
                    if numbers[operand].0 != *turn {
                        numbers[operand] = (*turn, next);
                        next += 1;
                        key = mix(key, READ | u64::from(self.reads[operand]));
                    }
                    key = mix(key, numbers[operand].1);
                }
            }
            numbers[class] = (*turn, next);
            next += 1;
            key = mix(key, COMPUTED | u64::from(self.nodes[class][if c.scalar.is_some() { 0 } else { choice }]));
        }
        key = mix(key, STORED);
        for &class in &kernel.stores {
            // A leaf that is an output is copied, and no op of the kernel reads it.
            if numbers[class].0 != *turn {
                numbers[class] = (*turn, next);
                next += 1;
                key = mix(key, READ | u64::from(self.reads[class]));
            }
            key = mix(key, numbers[class].1);
        }
        key
    }
}

/// Tags of the kinds of hashed words.
const READ: u64 = 1 << 61;
const COMPUTED: u64 = 1 << 62;
const STORED: u64 = 1 << 63;

/// The multiplier of the hash: the first hexadecimal digits of π. An odd factor makes the multiplication invertible.
const FACTOR: u128 = 0x243f_6a88_85a3_08d3_1319_8a2e_0370_7345;

fn mix(hash: u128, word: u64) -> u128 {
    let product = (hash ^ u128::from(word)).wrapping_mul(FACTOR);
    product ^ product >> 64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{build, tests::graphs};

    /// Builds the kernels of each class alone and of each class with all classes that it could be fused with. Kernels
    /// with equal keys must have equal descriptions.
    fn alike(seed: u64, ops: usize) -> (usize, usize) {
        let graph = graphs::random_graph(seed, ops, &[8, 16]);
        let classes = EClasses::of(&graph);
        let facts = ClassFacts::of(&classes);
        let forms = Forms::of(&classes, &facts);
        let n = classes.classes.len();
        let mut built: FxHashMap<u128, Result<eutectic_backend::Kernel, ()>> = FxHashMap::default();
        let mut asked = 0;
        for stored in [true, false] {
            let stored: Vec<bool> = (0..n).map(|c| (stored && !facts.given[c]) || facts.output[c]).collect();
            let plan = Plan { choice: vec![0; n], stored, host: (0..n).collect() };
            for class in (0..n).filter(|&c| !facts.given[c]) {
                let mut walker = crate::walk::Walker::new(n);
                let Ok(parts) = walker.kernel(&classes, &facts.given, &plan, class, vec![class]) else { continue };
                let kernel = build::kernel(&classes, &plan, &parts, &Positions::default(), usize::MAX);
                let kernel = kernel.map(|built| built.kernel).map_err(|_| ());
                asked += 1;
                let key = forms.key(&classes, &plan, &parts);
                assert_eq!(built.entry(key).or_insert_with(|| kernel.clone()), &kernel, "class {class} of seed {seed}");
            }
        }
        (asked, built.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn kernels_of_one_key_are_one_kernel(seed in any::<u64>(), ops in 3_usize..40) {
            alike(seed, ops);
        }
    }

    #[test]
    fn many_kernels_share_their_key_with_others() {
        let (asked, built) =
            (0..20).map(|seed| alike(seed, 40)).fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        assert!(built * 10 < asked * 8, "{built} of {asked}");
    }

    #[test]
    fn what_is_read_twice_is_not_what_is_read_beside_another() {
        let mut graph = eutectic_ir::Graph::new("products");
        let ty = Type::tensor(eutectic_ir::DType::F32, &[8]);
        let (a, b) = (graph.input("a", ty.clone()).unwrap(), graph.input("b", ty).unwrap());
        for (name, operands) in [("aa", [a, a]), ("ab", [a, b]), ("bb", [b, b]), ("ba", [b, a])] {
            let product = graph.apply("mul", &operands, &[]).unwrap();
            graph.output(name, product).unwrap();
        }
        let classes = EClasses::of(&graph);
        let forms = Forms::of(&classes, &ClassFacts::of(&classes));
        let n = classes.classes.len();
        let plan = Plan { choice: vec![0; n], stored: vec![true; n], host: (0..n).collect() };
        let keys: Vec<u128> = classes
            .outputs
            .iter()
            .map(|&class| {
                let parts = PlanKernel { stores: vec![class], interior: vec![class], reads: vec![], load: false };
                forms.key(&classes, &plan, &parts)
            })
            .collect();
        assert_eq!((keys[0], keys[1]), (keys[2], keys[3]));
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn copies_of_leaves_are_told_by_what_they_copy() {
        let mut graph = eutectic_ir::Graph::new("copies");
        for (name, shape) in [("a", [4, 1]), ("b", [3, 4]), ("c", [4, 1])] {
            let leaf = graph.input(name, Type::tensor(eutectic_ir::DType::F32, &shape)).unwrap();
            graph.output(&format!("{name}_out"), leaf).unwrap();
        }
        let classes = EClasses::of(&graph);
        let forms = Forms::of(&classes, &ClassFacts::of(&classes));
        let n = classes.classes.len();
        let plan = Plan { choice: vec![0; n], stored: vec![true; n], host: (0..n).collect() };
        let [a, b, c] = classes.outputs[..] else { panic!("{:?}", classes.outputs) };
        let key = |stores: &[ClassId]| {
            let parts = PlanKernel { stores: stores.to_vec(), interior: vec![], reads: stores.to_vec(), load: false };
            forms.key(&classes, &plan, &parts)
        };
        assert_eq!(key(&[a]), key(&[c]));
        assert_ne!(key(&[a]), key(&[b]));
        assert_eq!(key(&[a, b]), key(&[c, b]));
        assert_ne!(key(&[a, b]), key(&[a, c]));
    }
}
