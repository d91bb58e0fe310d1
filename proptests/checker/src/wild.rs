//! Finds the elements that depend on an intermediate result out of the range of its element type.
//!
//! Infinities and NaN of operands, poles (1/0, log 0) and NaN outside of a domain (√−1) are not out of range: contracts
//! keep them.

use eutectic_ir::{
    Class, InterpError, NodeId,
    graph::Node,
    interp::evaluate,
    ops::{
        Writes,
        eval::{Data, Value, broadcast_strides, offsets},
    },
};

use crate::boundary::range;

/// A flag for each element; empty if no flag is set.
type Marks = Vec<bool>;

/// The elements of a tensor that depend on results out of range.
#[derive(Clone, Debug, Default)]
pub struct Wild {
    /// Elements with an intermediate result that overflowed.
    over: Marks,
    /// Elements with an intermediate result that was subnormal or vanished.
    under: Marks,
    /// Elements that are NaN because of an operation on infinities, such as ∞ − ∞ or 0 · ∞.
    met: Marks,
}

impl Wild {
    /// Returns whether an intermediate result of an element overflowed.
    pub fn over(&self, at: usize) -> bool {
        self.over.get(at) == Some(&true)
    }

    /// Returns whether an intermediate result of an element overflowed, was subnormal or vanished.
    pub fn any(&self, at: usize) -> bool {
        self.over(at) || self.under.get(at) == Some(&true)
    }

    /// Returns whether an element is NaN because of an operation on infinities, such as those of poles.
    pub fn met(&self, at: usize) -> bool {
        self.met.get(at) == Some(&true)
    }
}

/// The magnitude of operands below which results may underflow in `f64`, the type of the reference.
const SMALL: f64 = 1e-140;
/// The magnitude of exponents above which powers may underflow in `f64`.
const EXPONENT: f64 = 700.0;

/// A node with its operands and its result.
pub struct Step<'a> {
    /// The number of the node.
    pub id: NodeId,
    /// The node.
    pub node: &'a Node,
    /// Its operands.
    pub operands: &'a [&'a Value<f64>],
    /// Its results, not yet rounded.
    pub results: &'a [Value<f64>],
}

/// Returns, for each result, the elements that depend on a result out of range. `before` marks such elements of the
/// operands.
///
/// # Errors
/// See [`evaluate`].
pub fn wild(step: &Step<'_>, before: &[&Wild]) -> Result<Vec<Wild>, InterpError> {
    let mut all = step.own()?;
    for (wild, result) in all.iter_mut().zip(step.met()?) {
        wild.met = result;
    }
    for (of, to) in KINDS {
        let marks: Vec<&Marks> = before.iter().map(|wild| of(wild)).collect();
        if marks.iter().any(|marks| marks.contains(&true)) {
            let passed = step.passed_on(&marks)?;
            all.iter_mut().zip(passed).for_each(|(wild, passed)| join(to(wild), passed));
        }
    }
    Ok(all)
}

type Get = fn(&Wild) -> &Marks;
type GetMut = fn(&mut Wild) -> &mut Marks;

const KINDS: [(Get, GetMut); 3] =
    [(|w| &w.over, |w| &mut w.over), (|w| &w.under, |w| &mut w.under), (|w| &w.met, |w| &mut w.met)];

fn join(marks: &mut Marks, other: Marks) {
    match marks.is_empty() {
        true => *marks = other,
        false => marks.iter_mut().zip(other).for_each(|(a, b)| *a |= b),
    }
}

fn reals(x: &Value<f64>) -> &[f64] {
    match &x.data {
        Data::Real(elements) => elements,
        Data::Int(_) => &[],
    }
}

/// Returns a tensor with other elements, if it has floating ones.
fn mapped(x: &Value<f64>, f: impl Fn(usize, f64) -> f64) -> Value<f64> {
    let Data::Real(elements) = &x.data else { return x.clone() };
    Value { data: Data::Real(elements.iter().enumerate().map(|(at, x)| f(at, *x)).collect()), ..x.clone() }
}

/// Returns whether an intermediate result may vanish in an op of a class: an exponential in a softmax, a part of a
/// product of updates.
fn may_vanish(class: &Class) -> bool {
    match class {
        Class::Composite => true,
        Class::Update(_, Writes::Combined(how)) => how.def().vanishes,
        _ => false,
    }
}

impl Step<'_> {
    fn is_pointwise(&self) -> bool {
        matches!(self.node.op.def().class, Class::Pointwise)
    }

    /// Evaluates the node on other values of the operands.
    fn on(&self, operands: &[Value<f64>]) -> Result<Vec<Value<f64>>, InterpError> {
        evaluate(self.id, self.node, &operands.iter().collect::<Vec<_>>())
    }

    /// Returns where a pointwise op reads an operand for each element of the result.
    fn places(&self, operand: &Value<f64>) -> Vec<i64> {
        let dims = &self.results[0].dims;
        offsets(dims, &broadcast_strides(&operand.dims, dims.len()), 0)
    }

    /// Returns the elements that leave the range in this node, not in one before it.
    fn own(&self) -> Result<Vec<Wild>, InterpError> {
        // A view computes nothing.
        if matches!(self.node.op.def().class, Class::View(_)) {
            return Ok(vec![Wild::default(); self.results.len()]);
        }
        let mut all: Vec<Wild> = self.results.iter().map(|result| self.out_of_range(result)).collect();
        match self.node.op.def().class {
            Class::Pointwise => join(&mut all[0].under, self.vanished()?),
            class if may_vanish(&class) && self.operands.iter().all(|x| reals(x).iter().all(|x| x.is_finite())) => {
                let zeros = |result: &Value<f64>| reals(result).iter().map(|x| *x == 0.0).collect();
                all.iter_mut().zip(self.results).for_each(|(wild, result)| join(&mut wild.under, zeros(result)));
            }
            _ => {}
        }
        Ok(all)
    }

    /// Marks each NaN that this node made of infinities. If 1 or −1 replaces the infinities, such an element is not
    /// NaN.
    fn met(&self) -> Result<Vec<Marks>, InterpError> {
        let is_nan = |x: &Value<f64>| reals(x).iter().any(|x| x.is_nan());
        let is_infinite = |x: &&Value<f64>| reals(x).iter().any(|x| x.is_infinite());
        if !self.results.iter().any(is_nan) || !self.operands.iter().any(is_infinite) {
            return Ok(vec![Marks::new(); self.results.len()]);
        }
        let one = |_, x: f64| if x.is_infinite() { x.signum() } else { x };
        let tame = self.on(&self.operands.iter().map(|x| mapped(x, one)).collect::<Vec<_>>())?;
        let marks = |(result, tame): (&Value<f64>, &Value<f64>)| {
            reals(result).iter().zip(reals(tame)).map(|(x, tame)| x.is_nan() && !tame.is_nan()).collect()
        };
        Ok(self.results.iter().zip(&tame).map(marks).collect())
    }

    /// Marks elements that overflow or are subnormal. An infinity does not count as overflow if it comes from an
    /// operand that is not finite, or from a pole.
    fn out_of_range(&self, result: &Value<f64>) -> Wild {
        let (least, largest) = range(result.dtype);
        let (over, under) = (|x: &f64| x.abs() > largest, |x: &f64| *x != 0.0 && x.abs() < least);
        let marks = |is: &dyn Fn(&f64) -> bool| match reals(result).iter().any(is) {
            true => reals(result).iter().map(is).collect(),
            false => Marks::new(),
        };
        let mut wild = Wild { over: marks(&over), under: marks(&under), met: Marks::new() };
        if wild.over.is_empty() {
            return wild;
        }
        let passes = |x: &f64| !x.is_finite();
        if !self.is_pointwise() {
            if self.operands.iter().any(|x| reals(x).iter().any(passes)) {
                wild.over = Marks::new();
            }
            return wild;
        }
        for x in self.operands.iter().filter(|x| !reals(x).is_empty()) {
            for (at, from) in self.places(x).into_iter().enumerate() {
                let from = reals(x)[from as usize];
                // An infinite result of a zero is a pole.
                let pole = from == 0.0 && reals(result)[at].is_infinite();
                wild.over[at] &= from.is_finite() && !pole;
            }
        }
        wild
    }

    /// Marks zeros whose exact result is too small for `f64`: if each operand is replaced by its sign, the result is
    /// not 0. A zero made from an infinity is exact.
    fn vanished(&self) -> Result<Marks, InterpError> {
        let result = &self.results[0];
        let far = |x: &f64| *x != 0.0 && x.is_finite() && !(SMALL..=EXPONENT).contains(&x.abs());
        if !reals(result).contains(&0.0) || !self.operands.iter().any(|x| reals(x).iter().any(far)) {
            return Ok(Marks::new());
        }
        let sign = |_, x: f64| if x == 0.0 { x } else { x.signum() };
        let signs = self.on(&self.operands.iter().map(|x| mapped(x, sign)).collect::<Vec<_>>())?;
        let mut marks: Marks =
            reals(result).iter().zip(reals(&signs[0])).map(|(x, sign)| *x == 0.0 && *sign != 0.0).collect();
        for x in self.operands.iter().filter(|x| !reals(x).is_empty()) {
            marks.iter_mut().zip(self.places(x)).for_each(|(mark, at)| *mark &= reals(x)[at as usize].is_finite());
        }
        Ok(marks)
    }

    /// Returns the elements that depend on a marked element of an operand: they become NaN if NaN replaces the marked
    /// elements.
    fn passed_on(&self, before: &[&Marks]) -> Result<Vec<Marks>, InterpError> {
        let is_real = |x: &Value<f64>| matches!(x.data, Data::Real(_));
        let read: Option<Marks> = self.is_pointwise().then(|| {
            let mut read = vec![false; self.results[0].count()];
            for (x, marks) in self.operands.iter().zip(before).filter(|(_, marks)| !marks.is_empty()) {
                read.iter_mut().zip(self.places(x)).for_each(|(read, at)| *read |= marks[at as usize]);
            }
            read
        });
        let integers = self.operands.iter().zip(before).any(|(x, marks)| !is_real(x) && marks.contains(&true));
        let poisoned: Vec<Value<f64>> = self.operands.iter().zip(before).map(|(x, marks)| poisoned(x, marks)).collect();
        let poisoned = self.on(&poisoned)?;
        let passed = |(result, poisoned): (&Value<f64>, Value<f64>)| match (&read, is_real(result) && !integers) {
            (Some(read), true) => reals(&poisoned).iter().zip(read).map(|(x, read)| x.is_nan() && *read).collect(),
            (Some(read), false) => read.clone(),
            (None, true) => reals(&poisoned).iter().map(|x| x.is_nan()).collect(),
            (None, false) => vec![true; result.count()],
        };
        Ok(self.results.iter().zip(poisoned).map(passed).collect())
    }
}

/// Returns a tensor with NaN in place of marked elements. Infinities and other NaN become 1, so that they make no NaN.
fn poisoned(x: &Value<f64>, marks: &Marks) -> Value<f64> {
    mapped(x, |at, x| match marks.get(at) {
        Some(true) => f64::NAN,
        _ if x.is_finite() => x,
        _ => 1.0,
    })
}

#[cfg(test)]
mod tests {
    use eutectic::{DType, Graph, Tensor, Type};

    use crate::evaluate::evaluated;

    /// The program is x·r − m·r with r = 1/√s. For s = 0, the difference may be ∞ − ∞. For s < 0, r itself is NaN.
    #[test]
    fn nan_made_of_infinities_is_distinguished_from_nan_outside_of_a_domain() {
        let mut g = Graph::new("poles");
        let [x, m, s] = ["x", "m", "s"].map(|name| g.input(name, Type::tensor(DType::F32, &[5])).unwrap());
        let r = g.apply("rsqrt", &[s], &[]).unwrap();
        let (xr, mr) = (g.apply("mul", &[x, r], &[]).unwrap(), g.apply("mul", &[m, r], &[]).unwrap());
        let difference = g.apply("sub", &[xr, mr], &[]).unwrap();
        let y = g.apply("exp", &[difference], &[]).unwrap();
        let sum =
            g.apply("reduce-sum", &[difference], &[("axes", (&[-1_i64][..]).into()), ("keep", true.into())]).unwrap();
        for (name, id) in [("difference", difference), ("y", y), ("sum", sum)] {
            g.output(name, id).unwrap();
        }
        let values =
            [("x", [1.0, 1.0, 2.0, 0.0, 3.0]), ("m", [1.0, -1.0, 1.0, 1.0, 2.0]), ("s", [0.0, 0.0, -1.0, 0.0, 1.0])];
        let values = values.map(|(name, x)| (name.to_string(), Tensor::from_f64(DType::F32, &[5], x))).into();
        let all = evaluated(&g, &values).unwrap();
        let met =
            |output: usize| (0..all.results[output].count()).map(|at| all.wild[output].met(at)).collect::<Vec<_>>();
        // The elements are ∞ − ∞, ∞ + ∞, NaN of a root, 0·∞, and numbers only.
        assert_eq!(met(0), [true, false, false, true, false]);
        assert_eq!(met(1), met(0));
        assert_eq!(met(2), [true]);
    }
}
