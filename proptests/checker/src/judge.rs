//! Judges two sides by what a contract promises; the table in CONTRIBUTING.md says the same in words.

use eutectic::{Graph, Tensor, verify::Element};
use eutectic_ir::{
    Bounded, Class, InterpError,
    graph::Node,
    interpret,
    ops::eval::{Data, Value},
};
use eutectic_rewrites::{Contract, Sides};

use crate::{
    boundary::moderate,
    evaluate::{evaluated, unlimited},
    pair::{FAR, Number, Pair, whole},
    values::{Style, Values},
    wild::Wild,
};

/// An element in which the sides differ by more than the contract allows.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The output.
    pub root: usize,
    /// Where in it.
    pub at: Vec<usize>,
    /// The value of the left side there.
    pub left: Element,
    /// What the right side gives.
    pub right: Element,
    /// What would be allowed.
    pub allowed: String,
}

/// What judging a case came to.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Elements that were computed.
    pub elements: usize,
    /// Of these, elements about which the contract says something, and the reference is sure of.
    pub judged: usize,
    /// Of these, elements that differ.
    pub different: usize,
    /// The first of them.
    pub first: Option<Difference>,
    /// Cases in which some are judged.
    pub cases: usize,
    /// Of these, cases in which most of them differ.
    pub refuting: usize,
}

impl Verdict {
    /// Whether the rule is refuted. A `fast` rule may differ on the inputs that its comment leaves out, which no program can
    /// read: it is refuted where most elements of most cases differ, or most of all elements, of which large cases have more.
    pub fn refutes(&self, contract: Contract) -> bool {
        match contract {
            Contract::Fast => 2 * self.refuting > self.cases || 2 * self.different > self.judged,
            _ => self.different > 0,
        }
    }

    /// Both verdicts together.
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

/// One side, evaluated.
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

/// Compares the sides of an instance on given values and numbers; nothing is judged where the left side has no value.
///
/// # Errors
/// When an index read from a tensor is out of range.
pub fn judge(
    sides: &Sides,
    contract: Contract,
    style: Style,
    values: &Values,
    numbers: &[f64],
) -> Result<Verdict, InterpError> {
    let Ok(left) = Side::of(&sides.written, values) else { return Ok(Verdict::default()) };
    let right = Side::of(&sides.right, values)?;
    let finite = values.values().all(|t| !t.dtype().is_float() || t.to_f64().iter().all(|x| x.is_finite()));
    // A mask is kept as strictly as finite numbers are.
    let finite = finite || style == Style::Masked;
    // Of constants beyond that, no range is promised.
    let types = || values.values().map(Tensor::dtype).filter(|dtype| dtype.is_float());
    let ranged = numbers.iter().all(|x| types().all(|dtype| moderate(*x, dtype)));
    let pointwise = is_pointwise(&sides.written) && is_pointwise(&sides.right);
    let (strict, numbers_round) = (finite || pointwise, style == Style::Numbers && pointwise);
    let selects = sides.right.nodes().any(|(_, node)| node.op.def().leaves_out);
    let parts = sides.written.nodes().any(|(_, node)| has_parts(node));
    let far = |x: &f64| *x != 0.0 && x.is_finite() && !(FAR.recip()..=FAR).contains(&x.abs());
    let extreme =
        numbers.iter().any(far) || values.values().any(|t| t.dtype().is_float() && t.to_f64().iter().any(far));
    let mut verdict = Verdict::default();
    let mut unlimited_right = None;
    for root in 0..left.rounded.len() {
        let (l, r) = (&left.rounded[root], &right.rounded[root]);
        let ends = matches!(style, Style::Ends | Style::Tiny | Style::Large);
        let pair = Pair {
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
            dtype: l.dtype(),
        };
        let (wl, wr) = (&left.wild[root], &right.wild[root]);
        verdict.elements += l.count();
        if l.ty() != r.ty() {
            (verdict.judged, verdict.different) =
                (verdict.judged + l.count().max(1), verdict.different + l.count().max(1));
            let count = |t: &Tensor| Element::Whole(t.count() as i64);
            let allowed = format!("one type, not {} and {}: so many elements", l.ty(), r.ty());
            verdict.first.get_or_insert(Difference { root, at: Vec::new(), left: count(l), right: count(r), allowed });
            continue;
        }
        let (bl, br) = (&left.bounded[root].data, &right.bounded[root].data);
        let (fl, fr) = (l.to_f64(), r.to_f64());
        let (il, ir) = if l.dtype().is_float() { (Vec::new(), Vec::new()) } else { (l.to_i64(), r.to_i64()) };
        for at in 0..l.count() {
            let outcome = match (bl, br) {
                (Data::Real(bl), Data::Real(br)) => {
                    let number = |value, bounded, wild: &Wild| {
                        let (over, met) = (wild.over(at), wild.met(at));
                        Number { value, bounded, over, wild: wild.any(at), met }
                    };
                    let (left, right) = (number(fl[at], bl[at], wl), number(fr[at], br[at], wr));
                    match pair.floats(left, right) {
                        // A difference that rounding makes, and not the range, is judged by the bounds alone.
                        Some(Err(_)) if pair.asks_for_range(left, right) => {
                            let roots = unlimited_right.get_or_insert_with(|| unlimited(&sides.right, values));
                            let value = roots.as_ref().ok().and_then(|roots| roots.get(root)?.get(at).copied());
                            let ends = pair.range_tells(left, right, value);
                            Pair { ends, ..pair }.floats(left, right)
                        }
                        judged => judged,
                    }
                }
                (Data::Int(bl), Data::Int(br)) => match (contract, bl[at], br[at]) {
                    (Contract::Exact, ..) => whole(il[at], ir[at]),
                    _ if wl.any(at) => None,
                    (Contract::Ulp(_), ..) => whole(il[at], ir[at]),
                    (_, Some(a), Some(b)) => whole(a, b),
                    _ => None,
                },
                _ => Some(Err((Element::Real(fl[at]), Element::Real(fr[at]), "one element type".into()))),
            };
            verdict.judged += usize::from(outcome.is_some());
            if let Some(Err((left, right, allowed))) = outcome {
                verdict.different += 1;
                let at = unflatten(at, l.dims());
                verdict.first.get_or_insert(Difference { root, at, left, right, allowed });
            }
        }
    }
    verdict.cases = usize::from(verdict.judged > 0);
    verdict.refuting = usize::from(2 * verdict.different > verdict.judged);
    Ok(verdict)
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

/// Whether a node makes its results of parts that may leave the range although the results do not: a composite op of 16 bits rounds each
/// part to 16 bits, and an update combines in an open order.
fn has_parts(node: &Node) -> bool {
    let class = node.op.def().class;
    let short = || node.ty.dtype().is_some_and(|dtype| dtype.register() != dtype);
    class.leaves_order_open() && (!matches!(class, Class::Composite) || short())
}

/// Whether each element of the results depends on the elements at some places only: nothing is summed, in whichever order.
fn is_pointwise(graph: &Graph) -> bool {
    let class = |class| {
        matches!(class, Class::Leaf(_) | Class::Pointwise | Class::View(_) | Class::Update(..) | Class::Project)
    };
    graph.nodes().all(|(_, node)| class(node.op.def().class))
}
