//! The cases of a rule, one after the other: element types by kind, words, places of axes, extents that are 0 or not.

use std::{collections::BTreeMap, rc::Rc};

use crate::{
    call::Case,
    shape::{Item, Shape, sequence},
    term::Poly,
};

/// The choices of one case, and those that are still to be tried.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// The choices, each with the number of its alternatives.
    path: Vec<(usize, usize)>,
    at: usize,
    /// Sizes whose being 0 is a case of its own.
    pub split: Vec<Rc<str>>,
    /// How many axes of a sequence are known at its end.
    pub peels: BTreeMap<Rc<str>, usize>,
    /// The largest extent, if each is tried up to it.
    pub most: Option<usize>,
}

impl Choices {
    /// The cases in which no dim is larger than a bound: one for each of its values.
    pub fn up_to(most: usize) -> Choices {
        Choices { most: Some(most), ..Choices::default() }
    }

    /// One of `n`: each is taken in some case.
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

    /// Starts all cases again, because there are more of them.
    pub fn restart(&mut self) {
        self.path.clear();
        self.at = 0;
    }

    /// Goes to the next case, if there is one.
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

    /// A size: a name, or 0 in a case of its own.
    pub fn size(&mut self, case: &Case, name: &str) -> Poly {
        if let Some(most) = self.most {
            return Poly::int((most - self.choose(most + 1)) as i128);
        }
        if !self.split.iter().any(|s| **s == *name) {
            return Poly::size(name);
        }
        if self.choose(2) == 1 {
            return Poly::zero();
        }
        let own = Poly::size(name);
        case.facts.note(&own - &Poly::int(1));
        own
    }

    /// A sequence of axes, with as many known at its end as the left side asks for.
    pub fn peeled(&mut self, name: &str) -> Shape {
        let known = self.peels.get(name).copied().unwrap_or(0);
        let mut rest = name.to_string();
        let mut axes = Vec::new();
        for _ in 0..known {
            // It may have none.
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
