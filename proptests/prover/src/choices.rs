//! Enumerates the cases of a rule: the kind of each element type, the word of each attribute, the place of each axis,
//! and whether an extent is 0.

use std::{collections::BTreeMap, rc::Rc};

use crate::{
    call::Case,
    shape::{Item, Shape, sequence},
    smt::Judge,
    term::Poly,
};

/// The choices of one case, and the state that enumerates the others.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// The chosen alternative of each choice, with the number of its alternatives.
    path: Vec<(usize, usize)>,
    at: usize,
    /// The sizes for which 0 is a separate case.
    pub split: Vec<Rc<str>>,
    /// For each sequence, the number of axes that are split off at its end.
    pub peels: BTreeMap<Rc<str>, usize>,
    /// The largest extent of a bounded proof, which enumerates all extents.
    pub most: Option<usize>,
    /// The solver, if there is one. It decides questions that the prover's own procedure leaves open.
    pub judge: Option<Rc<Judge>>,
}

impl Choices {
    /// Enumerates the cases with extents up to a bound. Each value of each dim is a case of its own.
    pub fn up_to(most: usize) -> Choices {
        Choices { most: Some(most), ..Choices::default() }
    }

    /// Enumerates all cases, with a solver for questions that the prover's own procedure does not decide.
    pub fn asking(judge: Option<Rc<Judge>>) -> Choices {
        Choices { judge, ..Choices::default() }
    }

    /// Chooses one of `n` alternatives. Each is chosen in some case.
    pub fn choose(&mut self, n: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, n));
        }
        self.at += 1;
        self.path[self.at - 1].0
    }

    /// Starts a case.
    pub fn start(&mut self) {
        self.at = 0;
    }

    /// Starts the enumeration again, because the number of choices in a case has changed.
    pub fn restart(&mut self) {
        self.path.clear();
        self.at = 0;
    }

    /// Advances to the next case, and returns `false` if there is none.
    pub fn next(&mut self) -> bool {
        self.path.truncate(self.at);
        self.at = 0;
        while let Some((chosen, n)) = self.path.pop() {
            if chosen + 1 < n {
                self.path.push((chosen + 1, n));
                return true;
            }
        }
        false
    }

    /// Returns a size: a symbol, 0 in a separate case, or a value of a bounded proof.
    pub fn size(&mut self, case: &Case, name: &str) -> Poly {
        if let Some(most) = self.most {
            return Poly::int((most - self.choose(most + 1)) as i128);
        }
        if !self.split.iter().any(|s| **s == *name) {
            return Poly::size(name);
        }
        if self.choose(2) == 1 {
            case.chosen.borrow_mut().insert(name.into(), 0);
            return Poly::zero();
        }
        let own = Poly::size(name);
        case.facts.note(&own - &Poly::int(1));
        own
    }

    /// Returns a sequence of axes. As many axes as the proof needed so far are split off at its end.
    pub fn peeled(&mut self, name: &str) -> Shape {
        let known = self.peels.get(name).copied().unwrap_or(0);
        let mut rest = name.to_string();
        let mut axes = Vec::new();
        for _ in 0..known {
            // The sequence may be empty.
            if self.choose(2) == 1 {
                return axes;
            }
            axes.insert(0, Item::axis(Poly::size(&format!("{rest}ₙ"))));
            rest += "′";
        }
        axes.insert(0, sequence(&rest));
        axes
    }
}
