//! Asks the solver about a rule: whether an undecided obligation holds, and at which sizes the sides may differ.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    formula::{Formula, Sort, call, int, nonneg, of_poly},
    solver::{Answer, Solver},
    words::{Types, differ},
};
use crate::{
    facts::Facts,
    term::{Atom, Poly, T, Term},
};

/// The values of sizes and integer attributes, by name.
pub type Sizes = BTreeMap<String, i128>;

/// The maximal number of questions about sizes at which the sides may differ, for each comparison.
const WISHES: usize = 40;
/// The maximal number of answers of the prover's own procedure per rule that the solver checks.
const QUESTIONS: usize = 60;
/// Upper bounds of the sizes in a question. The second is tried if the first has no solution.
const BOUNDS: [i128; 2] = [12, 6_000];

/// The number of obligations of a rule that the solver may leave undecided. If it leaves more, it is asked about no
/// others.
const UNDECIDED: usize = 10;

/// A cache of answers that is shared between rules, because many rules ask the same questions.
pub type Answers = Arc<Mutex<BTreeMap<Vec<Formula>, Answer>>>;

/// A solver with a record of its answers.
pub struct Judge {
    solver: RefCell<Solver>,
    known: Answers,
    /// Whether the solver is asked about undecided obligations. If not, only the answers of the prover's own procedure
    /// are kept.
    pub asks: Cell<bool>,
    undecided: Cell<usize>,
    /// The proved goals of the prover's own procedure. Each is a list of formulas that are unsatisfiable if the proof
    /// is right.
    pub answers: RefCell<Vec<Vec<Formula>>>,
    /// The sizes at which the sides may differ.
    pub sizes: RefCell<Vec<Sizes>>,
    /// The number of obligations that the solver proved.
    pub shown: RefCell<usize>,
    /// The reason why the first unanswered question has no answer.
    failed: RefCell<Option<String>>,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a solver")
    }
}

impl Judge {
    /// Makes a judge that asks a solver about questions that are not in the cache.
    pub fn new(solver: Solver, known: Answers) -> Judge {
        Judge {
            solver: RefCell::new(solver),
            known,
            asks: Cell::new(true),
            undecided: Cell::default(),
            answers: RefCell::default(),
            sizes: RefCell::default(),
            shown: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// Returns whether there is room for more answers of the prover's own procedure.
    pub fn has_room(&self) -> bool {
        self.answers.borrow().len() < QUESTIONS
    }

    /// Keeps answers of the prover's own procedure, without duplicates.
    pub fn keep(&self, answers: Vec<Vec<Formula>>) {
        for answer in answers {
            if self.has_room() && !self.answers.borrow().contains(&answer) {
                self.answers.borrow_mut().push(answer);
            }
        }
    }

    /// Asks the solver, or returns the cached answer.
    pub fn ask(&self, assertions: &[Formula]) -> Answer {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known().get(assertions) {
            return answer.clone();
        }
        let answer = self.solver.borrow_mut().ask(assertions);
        if let Answer::Failed(why) = &answer {
            self.failed.borrow_mut().get_or_insert_with(|| why.clone());
        } else {
            known().insert(assertions.to_vec(), answer.clone());
        }
        answer
    }

    /// Checks that each question was answered.
    ///
    /// # Errors
    /// The reason why a question was not answered.
    pub fn answered(&self) -> Result<(), String> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    fn contradict(&self, assertions: &[Formula]) -> bool {
        if !self.asks.get() || self.undecided.get() > UNDECIDED {
            return false;
        }
        let answer = self.ask(assertions);
        self.undecided.set(self.undecided.get() + usize::from(answer == Answer::Unknown));
        let holds = answer == Answer::Unsat;
        *self.shown.borrow_mut() += usize::from(holds);
        holds
    }

    /// Returns whether p ≥ 0 follows from facts.
    pub fn holds(&self, facts: &Facts, p: &Poly) -> bool {
        let mut question = facts.assumptions(std::slice::from_ref(p));
        question.push(call("<", [of_poly(p), Formula::Int(0)]));
        self.contradict(&question)
    }

    /// Returns whether two elements of integers or truth values are equal for every assignment of element types.
    pub fn equal_words(&self, types: &[Types], a: &T, b: &T) -> bool {
        !types.is_empty()
            && types.iter().all(|types| differ(types, a, b).is_some_and(|differ| self.contradict(&[differ])))
    }

    /// Returns whether two normal forms differ only in indices that the solver shows to be equal.
    pub fn equal_indices(&self, facts: &Facts, a: &T, b: &T) -> bool {
        let mut pairs = Vec::new();
        is_alike(a, b, &mut pairs)
            && pairs.iter().all(|(p, q)| {
                let mut question = facts.assumptions(&[p.clone(), q.clone()]);
                question.push(call("not", [call("=", [of_poly(p), of_poly(q)])]));
                self.contradict(&question)
            })
    }

    /// Records sizes at which two sides may differ: sizes with different indices, and sizes on either side of each
    /// condition.
    pub fn explore(&self, facts: &Facts, known: &Sizes, a: &T, b: &T) {
        if !self.asks.get() {
            return;
        }
        let mut wishes: BTreeSet<Vec<Formula>> = BTreeSet::from([Vec::new()]);
        let mut pairs = Vec::new();
        is_alike(a, b, &mut pairs);
        wishes.extend(pairs.iter().map(|(p, q)| vec![call("not", [call("=", [of_poly(p), of_poly(q)])])]));
        let mut indices: Vec<Poly> = Vec::new();
        for side in [a, b] {
            side.visit_indices(&mut |p| indices.push(p.clone()));
            conditions(side, &mut |p| {
                wishes.insert(vec![nonneg(p)]);
                wishes.insert(vec![call("not", [nonneg(p)])]);
            });
        }
        for p in &indices {
            p.visit(&mut |atom| {
                if let Atom::Min(of) | Atom::Max(of) = atom {
                    let [x, y] = of.each_ref().map(of_poly);
                    wishes.insert(vec![call("<", [x.clone(), y.clone()])]);
                    wishes.insert(vec![call("<", [y, x])]);
                }
            });
        }
        let assumed = facts.assumptions(&indices);
        // For each size in turn, the solver is asked about sizes at which this one is 0. A reduction over no elements
        // has no index, so facts about bound indices are left out here.
        let names: BTreeSet<String> = indices.iter().flat_map(named_sizes).collect();
        let sizes: Vec<Formula> = names.iter().map(|name| int(name)).collect();
        let unbound = facts.assumptions(&names.iter().map(|name| Poly::size(name)).collect::<Vec<_>>());
        let nothing = sizes.iter().map(|size| vec![call("=", [size.clone(), Formula::Int(0)])]);
        nothing.for_each(|wish| self.note_sizes(&unbound, &wish, known));
        wishes.extend(
            [2, 3].map(|n| sizes.iter().map(|size| call(">=", [size.clone(), Formula::Int(n)])).collect::<Vec<_>>()),
        );
        for side in [a, b] {
            narrow(side, &mut |p, most| {
                wishes.insert(vec![call(">", [of_poly(p), Formula::Int(most)])]);
            });
        }
        wishes.into_iter().take(WISHES).for_each(|wish| self.note_sizes(&assumed, &wish, known));
    }

    /// Records small sizes at which the formulas `wish` hold, if there are any.
    fn note_sizes(&self, assumed: &[Formula], wish: &[Formula], known: &Sizes) {
        let found = BOUNDS.iter().find_map(|most| self.sizes_where(assumed, wish, *most));
        if let Some(mut sizes) = found {
            sizes.extend(known.clone());
            let mut all = self.sizes.borrow_mut();
            if !all.contains(&sizes) {
                all.push(sizes);
            }
        }
    }

    fn sizes_where(&self, assumed: &[Formula], wish: &[Formula], most: i128) -> Option<Sizes> {
        let mut question = [assumed, wish].concat();
        let (mut symbols, mut maps) = (BTreeMap::new(), BTreeMap::new());
        question.iter().for_each(|f| f.names(&mut symbols, &mut maps));
        let bounded: Vec<Formula> = symbols
            .iter()
            .filter(|(_, sort)| **sort == Sort::Int)
            .map(|(name, _)| call("<=", [int(name), Formula::Int(most)]))
            .collect();
        question.extend(bounded);
        match self.ask(&question) {
            Answer::Sat(sizes) => Some(sizes),
            _ => None,
        }
    }
}

/// Returns whether two terms differ in indices only, and collects the pairs of different indices.
fn is_alike(a: &T, b: &T, pairs: &mut Vec<(Poly, Poly)>) -> bool {
    let mut both = |p: &[Poly], q: &[Poly]| {
        pairs.extend(p.iter().zip(q).filter(|(p, q)| p != q).map(|(p, q)| (p.clone(), q.clone())));
        p.len() == q.len()
    };
    match (&**a, &**b) {
        (Term::Index(p), Term::Index(q)) => both(std::slice::from_ref(p), std::slice::from_ref(q)),
        (Term::Read(x, s, p), Term::Read(y, t, q)) => x == y && s == t && both(p, q),
        (Term::Apply(f, s, x), Term::Apply(g, t, y)) => {
            f == g && s == t && x.len() == y.len() && x.iter().zip(y).all(|(a, b)| is_alike(a, b, pairs))
        }
        (Term::Reduce(h, s, v, x), Term::Reduce(i, t, w, y)) => {
            let extents = |of: &[(u32, Poly)]| of.iter().map(|(_, e)| e.clone()).collect::<Vec<_>>();
            let names = |of: &[(u32, Poly)]| of.iter().map(|(v, _)| *v).collect::<Vec<_>>();
            h == i && s == t && names(v) == names(w) && both(&extents(v), &extents(w)) && is_alike(x, y, pairs)
        }
        (Term::If(p, a, b), Term::If(q, c, d)) => both(p, q) && is_alike(a, c, pairs) && is_alike(b, d, pairs),
        _ => a == b,
    }
}

/// Returns the names of sizes in an index.
fn named_sizes(p: &Poly) -> Vec<String> {
    let mut names = Vec::new();
    p.visit(&mut |atom| {
        if let Atom::Size(name) = atom {
            names.push(name.to_string());
        }
    });
    names
}

/// Calls `visit` with each index that is converted to an integer type, and with the largest number of that type.
fn narrow(term: &T, visit: &mut dyn FnMut(&Poly, i128)) {
    match &**term {
        Term::Apply(_, ty, args) => {
            if let (Some(dtype), [Term::Index(p)]) =
                (ty.dtype.filter(|d| d.is_int()), args.iter().map(|a| &**a).collect::<Vec<_>>().as_slice())
            {
                visit(p, i128::from(dtype.integers().1));
            }
            args.iter().for_each(|a| narrow(a, visit));
        }
        Term::Reduce(_, _, _, body) => narrow(body, visit),
        Term::If(_, a, b) => [a, b].into_iter().for_each(|t| narrow(t, visit)),
        _ => {}
    }
}

fn conditions(term: &T, visit: &mut dyn FnMut(&Poly)) {
    match &**term {
        Term::If(all, a, b) => {
            all.iter().for_each(&mut *visit);
            [a, b].into_iter().for_each(|t| conditions(t, visit));
        }
        Term::Apply(_, _, args) => args.iter().for_each(|a| conditions(a, visit)),
        Term::Reduce(_, _, _, body) => conditions(body, visit),
        _ => {}
    }
}
