//! Judges two sides by a contract. The table in CONTRIBUTING.md defines the contracts.

use eutectic::{Graph, Tensor, verify::Element};
use eutectic_ir::{
    Bounded, Class, DType, InterpError,
    graph::Node,
    interpret,
    ops::eval::{Data, Value},
};
use eutectic_rewrites::{Contract, Sides};

use crate::{
    boundary::moderate,
    evaluate::{evaluated, unlimited},
    pair::{FAR, Number, Pair, Wrong, whole},
    values::{Style, Values},
    wild::Wild,
};

/// An element in which the sides differ by more than the contract allows.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The index of the output.
    pub root: usize,
    /// The element's position in the output.
    pub at: Vec<usize>,
    /// The left side's value of the element, or the expected value if a backend is judged.
    pub left: Element,
    /// The right side's value of the element, or the backend's value.
    pub right: Element,
    /// A description of the allowed difference.
    pub allowed: String,
}

/// The result of judging cases.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The number of elements that were computed.
    pub elements: usize,
    /// The number of these that the contract covers and whose reference value is precise enough.
    pub judged: usize,
    /// The number of judged elements that differ.
    pub different: usize,
    /// The first judged element that differs.
    pub first: Option<Difference>,
    /// The number of cases that have judged elements.
    pub cases: usize,
    /// The number of these cases in which most judged elements differ.
    pub refuting: usize,
}

impl Verdict {
    /// Returns whether the rule is refuted. A `fast` rule may differ on inputs that its comment excludes, but no
    /// program can read the comment. Such a rule is refuted if most judged elements of most cases differ. It is also
    /// refuted if most judged elements of all cases together differ, so that large cases weigh more.
    pub fn refutes(&self, contract: Contract) -> bool {
        match contract {
            Contract::Fast => 2 * self.refuting > self.cases || 2 * self.different > self.judged,
            _ => self.different > 0,
        }
    }

    /// Returns the sum of both verdicts.
    pub fn and(self, other: Verdict) -> Verdict {
        Verdict {
            elements: self.elements + other.elements,
            judged: self.judged + other.judged,
            different: self.different + other.different,
            first: self.first.or(other.first),
            cases: self.cases + other.cases,
            refuting: self.refuting + other.refuting,
        }
    }
}

/// The results of one side.
struct Side {
    rounded: Vec<Tensor>,
    wild: Vec<Wild>,
    bounded: Vec<Value<Bounded>>,
}

impl Side {
    fn of(graph: &Graph, values: &Values) -> Result<Side, InterpError> {
        let given = |name: &str| values.get(name).cloned();
        let rounded = evaluated(graph, values)?;
        Ok(Side { rounded: rounded.results, wild: rounded.wild, bounded: interpret::<Bounded>(graph, &given)? })
    }
}

/// Compares the sides of an instance for these values of its tensors and number variables. Nothing is judged if the
/// left side is undefined.
///
/// # Errors
/// If the right side reads an index that is out of range.
pub fn judge(
    sides: &Sides,
    contract: Contract,
    style: Style,
    values: &Values,
    numbers: &[f64],
) -> Result<Verdict, InterpError> {
    let Ok(left) = Side::of(&sides.written, values) else { return Ok(Verdict::default()) };
    let right = Side::of(&sides.right, values)?;
    let pair_of = conditions(sides, contract, style, values, numbers);
    let mut evaluated = EvaluatedSides { right_side: &sides.right, values, left, right, unlimited: None };
    let mut verdict = Verdict::default();
    for root in 0..evaluated.left.rounded.len() {
        let (l, r) = (&evaluated.left.rounded[root], &evaluated.right.rounded[root]);
        verdict.elements += l.count();
        if l.ty() != r.ty() {
            (verdict.judged, verdict.different) =
                (verdict.judged + l.count().max(1), verdict.different + l.count().max(1));
            let count = |t: &Tensor| Element::Whole(t.count() as i64);
            let allowed = format!("equal types, not {} and {}; the numbers of elements are shown", l.ty(), r.ty());
            verdict.first.get_or_insert(Difference { root, at: Vec::new(), left: count(l), right: count(r), allowed });
            continue;
        }
        let (pair, dims) = (pair_of(l.dtype()), l.dims().to_vec());
        let numbers = RootNumbers::of(l, r);
        for at in 0..l.count() {
            let outcome = evaluated.element(&pair, &numbers, root, at);
            verdict.judged += usize::from(outcome.is_some());
            if let Some(Err((left, right, allowed))) = outcome {
                verdict.different += 1;
                let at = unflatten(at, &dims);
                verdict.first.get_or_insert(Difference { root, at, left, right, allowed });
            }
        }
    }
    verdict.cases = usize::from(verdict.judged > 0);
    verdict.refuting = usize::from(2 * verdict.different > verdict.judged);
    Ok(verdict)
}

/// Returns the conditions under which elements of each type are compared.
fn conditions(
    sides: &Sides,
    contract: Contract,
    style: Style,
    values: &Values,
    numbers: &[f64],
) -> impl Fn(DType) -> Pair + use<> {
    let finite = values.values().all(|t| !t.dtype().is_float() || t.to_f64().iter().all(|x| x.is_finite()));
    // Values with −∞ in a mask are judged as strictly as finite values.
    let finite = finite || style == Style::Masked;
    // Contracts promise a finite result only if all numbers of the program are moderate.
    let types = || values.values().map(Tensor::dtype).filter(|dtype| dtype.is_float());
    let ranged = numbers.iter().all(|x| types().all(|dtype| moderate(*x, dtype)));
    let pointwise = is_pointwise(&sides.written) && is_pointwise(&sides.right);
    let (strict, numbers_round) = (finite || pointwise, style == Style::Numbers && pointwise);
    let selects = sides.right.nodes().any(|(_, node)| node.op.def().leaves_out);
    let parts = sides.written.nodes().any(|(_, node)| has_parts(node));
    let far = |x: &f64| *x != 0.0 && x.is_finite() && !(FAR.recip()..=FAR).contains(&x.abs());
    let extreme =
        numbers.iter().any(far) || values.values().any(|t| t.dtype().is_float() && t.to_f64().iter().any(far));
    let ends = matches!(style, Style::Ends | Style::Tiny | Style::Large);
    move |dtype| Pair {
        contract,
        strict,
        pointwise,
        ranged,
        ends,
        numbers: numbers_round,
        finite,
        selects,
        parts,
        extreme,
        dtype,
    }
}

/// The elements of one output on the left side and on the right side. `integers` is empty for floating types.
struct RootNumbers {
    reals: [Vec<f64>; 2],
    integers: [Vec<i64>; 2],
}

impl RootNumbers {
    fn of(left: &Tensor, right: &Tensor) -> RootNumbers {
        let integers = |t: &Tensor| if left.dtype().is_float() { Vec::new() } else { t.to_i64() };
        RootNumbers { reals: [left.to_f64(), right.to_f64()], integers: [integers(left), integers(right)] }
    }
}

/// Both sides of an instance, evaluated.
struct EvaluatedSides<'a> {
    right_side: &'a Graph,
    values: &'a Values,
    left: Side,
    right: Side,
    /// The results of the right side with exponents of any size. They are computed when an element first needs them.
    unlimited: Option<Result<Vec<Vec<f64>>, InterpError>>,
}

impl EvaluatedSides<'_> {
    /// Judges one element of an output. Returns `None` if the contract promises nothing for the element.
    fn element(&mut self, pair: &Pair, numbers: &RootNumbers, root: usize, at: usize) -> Option<Result<(), Wrong>> {
        let [fl, fr] = numbers.reals.each_ref().map(|reals| reals[at]);
        let (wl, wr) = (&self.left.wild[root], &self.right.wild[root]);
        match (&self.left.bounded[root].data, &self.right.bounded[root].data) {
            (Data::Real(bl), Data::Real(br)) => {
                let number = |value, bounded, wild: &Wild| {
                    let (over, met) = (wild.over(at), wild.met(at));
                    Number { value, bounded, over, wild: wild.any(at), met }
                };
                let (left, right) = (number(fl, bl[at], wl), number(fr, br[at], wr));
                match pair.floats(left, right) {
                    // The result with exponents of any size shows whether the range or only rounding causes the
                    // difference. After rounding alone, the error bounds decide.
                    Some(Err(_)) if pair.asks_for_range(left, right) => {
                        let roots = self.unlimited.get_or_insert_with(|| unlimited(self.right_side, self.values));
                        let value = roots.as_ref().ok().and_then(|roots| roots.get(root)?.get(at).copied());
                        let ends = pair.range_tells(left, right, value);
                        Pair { ends, ..*pair }.floats(left, right)
                    }
                    judged => judged,
                }
            }
            (Data::Int(bl), Data::Int(br)) => {
                let [il, ir] = numbers.integers.each_ref().map(|integers| integers[at]);
                match (pair.contract, bl[at], br[at]) {
                    (Contract::Exact, ..) => whole(il, ir),
                    _ if wl.any(at) => None,
                    (Contract::Ulp(_), ..) => whole(il, ir),
                    (_, Some(a), Some(b)) => whole(a, b),
                    _ => None,
                }
            }
            _ => Some(Err((Element::Real(fl), Element::Real(fr), "equal element types on both sides".into()))),
        }
    }
}

fn unflatten(mut flat: usize, dims: &[usize]) -> Vec<usize> {
    let mut at: Vec<usize> = dims
        .iter()
        .rev()
        .map(|extent| {
            let i = flat % extent;
            flat /= extent;
            i
        })
        .collect();
    at.reverse();
    at
}

/// Returns whether parts of a node may leave the range although its results do not. A composite op in 16 bits rounds
/// each part to 16 bits, and an update combines values in an open order.
fn has_parts(node: &Node) -> bool {
    let class = node.op.def().class;
    let short = || node.ty.dtype().is_some_and(|dtype| dtype.register() != dtype);
    class.leaves_order_open() && (!matches!(class, Class::Composite) || short())
}

/// Returns whether a graph has only pointwise ops, views and updates that replace elements, so that no reduction
/// combines infinities.
fn is_pointwise(graph: &Graph) -> bool {
    let alone = |class: &Class| {
        matches!(class, Class::Leaf(_) | Class::Pointwise | Class::View(_) | Class::Update(..) | Class::Project)
            && !class.leaves_order_open()
    };
    graph.nodes().all(|(_, node)| alone(&node.op.def().class))
}
