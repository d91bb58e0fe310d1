//! Finds the results of ops on which an element depends. Each result is rounded to its type, and may leave the range of
//! this type.

use std::rc::Rc;

use eutectic_ir::{Class, ops::Reduction};

use crate::{
    bind::{index_height, index_with, named, with},
    call::Case,
    facts::Res,
    lower::{Lower, MARK},
    real::Real,
    shape::Tensor,
    signs::Known,
    term::{Kind, Poly, T, Term, Ty, apply},
};

/// The result of an op.
#[derive(Clone)]
pub struct Node {
    /// The name of the op.
    pub op: Rc<str>,
    /// The element type of the result.
    pub ty: Ty,
    /// The result before it is rounded to that type. The results of ops inside this term are marked, too.
    pub term: T,
    /// The variables of the enclosing reductions.
    vars: Vec<(u32, Poly)>,
    /// The indices at which it is computed.
    place: Place,
}

/// The indices at which a result is computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Polynomials that are all at least 0.
    conditions: Vec<Poly>,
    /// Lists of polynomials. Each list contains a negative one.
    outside: Vec<Vec<Poly>>,
}

impl Place {
    fn is_everywhere(&self) -> bool {
        self.conditions.is_empty() && self.outside.is_empty()
    }

    fn polys(&self) -> impl Iterator<Item = &Poly> {
        self.conditions.iter().chain(self.outside.iter().flatten())
    }

    fn map(&self, index: impl Fn(&Poly) -> Res<Poly>) -> Res<Place> {
        let all = |of: &Vec<Poly>| of.iter().map(&index).collect::<Res<Vec<_>>>();
        Ok(Place { conditions: all(&self.conditions)?, outside: self.outside.iter().map(all).collect::<Res<_>>()? })
    }
}

/// The result of an op as a real function, with canonical variable names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    vars: Vec<Poly>,
    place: Place,
    /// The function.
    pub real: Real,
}

/// Marks the elements of an op's result. Results of views are not marked because views compute no elements, and
/// integers are not marked because they do not leave the range.
pub fn marked(op: &str, class: Class, result: Tensor) -> Tensor {
    let own = matches!(class, Class::View(_) | Class::Leaf(_) | Class::Project) || result.ty.kind != Kind::Float;
    if own {
        return result;
    }
    let (name, ty): (Rc<str>, Ty) = (format!("{MARK}{op}").into(), result.ty.clone());
    let Tensor { ty: own, shape, at } = result;
    Tensor::new(own, shape, move |index| Ok(apply(&name, &ty, vec![at(index)?])))
}

/// Returns the results of ops in a term without duplicates, the outermost first.
pub fn nodes(term: &T) -> Vec<Node> {
    let mut found = Vec::new();
    collect(term, &mut Vec::new(), &Place::default(), &mut found);
    found
}

/// Returns the intermediate results that a single op may compute, in the element type of its result.
pub fn parts(term: &T, ty: &Ty) -> Vec<Node> {
    nodes(&with_parts(term, ty))
}

fn with_parts(term: &T, ty: &Ty) -> T {
    let whole = match &**term {
        Term::Apply(op, own, args) => apply(op, own, args.iter().map(|a| with_parts(a, ty)).collect()),
        Term::Reduce(how, own, vars, body) => {
            T::new(Term::Reduce(*how, own.clone(), vars.clone(), with_parts(body, ty)))
        }
        Term::If(all, a, b) => T::new(Term::If(all.clone(), with_parts(a, ty), with_parts(b, ty))),
        _ => term.clone(),
    };
    match &*whole {
        Term::Apply(op, own, _) if own.kind == Kind::Float && !op.starts_with(MARK) => {
            apply(&format!("{MARK}part"), ty, vec![whole])
        }
        Term::Reduce(_, own, ..) if own.kind == Kind::Float => apply(&format!("{MARK}part"), ty, vec![whole]),
        _ => whole,
    }
}

fn collect(term: &T, vars: &mut Vec<(u32, Poly)>, place: &Place, found: &mut Vec<Node>) {
    match &**term {
        Term::Num(_) | Term::Param(_) | Term::Index(_) | Term::Read(..) => {}
        Term::Apply(op, ty, args) => {
            if let Some(name) = op.strip_prefix(MARK) {
                let is_known = |node: &Node| node.term == args[0] && node.place == *place;
                if !found.iter().any(is_known) {
                    found.push(Node {
                        op: name.into(),
                        ty: ty.clone(),
                        term: args[0].clone(),
                        vars: vars.clone(),
                        place: place.clone(),
                    });
                }
            }
            args.iter().for_each(|a| collect(a, vars, place, found));
        }
        // A reduction over no elements computes nothing.
        Term::Reduce(_, _, bound, _) if bound.iter().any(|(_, e)| *e == Poly::zero()) => {}
        Term::Reduce(_, _, bound, body) => {
            let before = vars.len();
            vars.extend(bound.iter().cloned());
            collect(body, vars, place, found);
            vars.truncate(before);
        }
        Term::If(all, a, b) => {
            let (mut then, mut otherwise) = (place.clone(), place.clone());
            then.conditions.extend(all.iter().cloned());
            collect(a, vars, &then, found);
            match all.as_slice() {
                [p] => otherwise.conditions.push(&Poly::int(-1) - p),
                _ => otherwise.outside.push(all.clone()),
            }
            collect(b, vars, &otherwise, found);
        }
    }
}

impl Node {
    /// Runs `then` under the facts that hold where the result is computed: enclosing reductions are not empty, and the
    /// conditions hold.
    pub fn inside<V>(&self, case: &Case, then: impl FnOnce() -> V) -> V {
        let there = self.vars.iter().map(|(_, e)| e - &Poly::int(1));
        case.facts.assume(there.chain(self.place.conditions.iter().cloned()).collect::<Vec<_>>(), then)
    }

    /// Returns the real function of a term at the indices of this result.
    pub fn value_of(&self, case: &Case, term: &T) -> Res<Value> {
        let real = self.inside(case, || Lower::new(case).real(term))?;
        let known = Known(case);
        let mentioned = |v: u32| real.mentions(v) || self.place.polys().any(|p| p.mentions(v));
        let vars: Vec<(u32, Poly)> = self.vars.iter().filter(|(v, _)| mentioned(*v)).cloned().collect();
        let (vars, (place, real)) = named(
            &vars,
            |map| {
                let index = |p: &Poly| index_with(&case.facts, p, map);
                Ok((self.place.map(index)?, real.rename(&known, map)?))
            },
            self.place.polys().map(index_height).fold(real.height(), u32::max),
        )?;
        Ok(Value { vars: vars.into_iter().map(|(_, e)| e).collect(), place, real })
    }

    /// Returns whether the result is a sum over an axis.
    pub fn is_sum(&self) -> bool {
        matches!(&*super::bounds::unmarked(&self.term), Term::Reduce(Reduction::Sum, ..))
    }

    /// Returns the sum of the result over the variables of the enclosing reductions.
    pub fn summed(&self, case: &Case) -> Res<Option<Value>> {
        if self.vars.is_empty() || !self.place.is_everywhere() {
            return Ok(None);
        }
        let whole = T::new(Term::Reduce(Reduction::Sum, self.ty.clone(), self.vars.clone(), self.term.clone()));
        let here = Node { vars: Vec::new(), ..self.clone() };
        here.value_of(case, &whole).map(Some)
    }

    /// Returns the sum of two results as a real function, or `None` if the enclosing reductions differ.
    pub fn plus(&self, case: &Case, other: &Node) -> Res<Option<Value>> {
        let extents = |of: &Node| of.vars.iter().map(|(_, e)| e.clone()).collect::<Vec<_>>();
        if extents(self) != extents(other) {
            return Ok(None);
        }
        let places = other.vars.iter().zip(&self.vars).map(|((theirs, _), (own, _))| (*theirs, Poly::var(*own)));
        let term = with(&case.facts, &other.term, &places.collect())?;
        self.value_of(case, &apply("add", &self.ty, vec![self.term.clone(), term])).map(Some)
    }

    /// Returns the result as a real function.
    pub fn value(&self, case: &Case) -> Res<Value> {
        self.value_of(case, &self.term)
    }
}

impl Value {
    /// Returns whether this function is a root of the other one, so that its value is between 1 and the value of the
    /// other.
    pub fn is_root_of(&self, other: &Value) -> bool {
        other.place.is_everywhere() && self.vars == other.vars && self.real.is_root_of(&other.real)
    }

    /// Returns whether the other function is computed at every index at which this function is computed.
    pub fn is_where(&self, other: &Value) -> bool {
        (other.place.is_everywhere() || other.place == self.place) && self.vars == other.vars
    }

    /// Returns c if this function is c times the other one. The other function must be computed at every index at which
    /// this one is computed.
    pub fn times(&self, other: &Value) -> Option<f64> {
        if self.is_where(other) { self.real.ratio(&other.real) } else { None }
    }
}
