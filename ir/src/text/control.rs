//! Reads the bodies of control flow, and inlines branches and loops.

use std::rc::Rc;

use super::parse::{Parser, keyword, text};
use crate::{
    Graph, NodeId, Origin,
    lang::{Sexp, sexp::suggestion},
};

const FORMS: &str =
    "write (if PREDICATE THEN ELSE value …) or (while CONDITION BODY value … :most N) with the names of bodies";

impl Parser<'_> {
    /// Reads `(sub NAME statement …)`, a body with its own names. It may use the bodies before it.
    pub(super) fn body(&mut self, at: &Sexp, name: &str, statements: &[Sexp]) {
        if self.bodies.contains_key(name) || self.ops.named(name).is_some() {
            return self
                .wrong(at, format!("`{name}` is defined already"), "give one of the two another name")
                .unwrap_or(());
        }
        let mut inner = Parser::new(self.source, self.ops, Graph::new(name));
        inner.bodies = self.bodies.clone();
        inner.types = self.types.take();
        statements.iter().for_each(|s| inner.statement(s));
        self.types = inner.types.take();
        let sound = inner.errors.is_empty();
        self.errors.append(&mut inner.errors);
        self.bodies.insert(name.into(), sound.then(|| Rc::new(inner.graph)));
    }

    /// Reads `(let (NAME …) value)`, which names the results of a branch or a loop.
    pub(super) fn several(&mut self, at: &Sexp, names: &[Sexp], value: &Sexp, origin: &Origin) {
        let Some(results) = self.control(value, origin) else {
            // Define the names without values, so that their uses are not reported as further errors.
            names.iter().filter_map(text).for_each(|name| self.define(at, name, None));
            return;
        };
        if results.len() != names.len() {
            let message = format!(
                "cannot name the results because there are {} names for {} results",
                names.len(),
                results.len()
            );
            return self.wrong(at, message, "write one name for each result").unwrap_or(());
        }
        for (name, result) in names.iter().zip(results) {
            match text(name) {
                Some(word) => self.define(name, word, Some(result)),
                None => self.wrong(name, "this is not a name", "write a word").unwrap_or(()),
            }
        }
    }

    /// Returns the only result of a branch or a loop.
    pub(super) fn one(&mut self, sexp: &Sexp, origin: &Origin) -> Option<NodeId> {
        match self.control(sexp, origin)?[..] {
            [result] => Some(result),
            ref results => {
                let message = format!("a single value is needed, but this has {} results", results.len());
                self.wrong(sexp, message, "name all of them: (let (a b …) …)")
            }
        }
    }

    fn control(&mut self, sexp: &Sexp, origin: &Origin) -> Option<Vec<NodeId>> {
        let made = match sexp.call() {
            Some(("if", [predicate, then, otherwise, values @ ..])) => {
                let (predicate, values) = (self.value(predicate, origin), self.values(values, origin));
                let (then, otherwise) = (self.known_body(then), self.known_body(otherwise));
                let (predicate, values, then, otherwise) = (predicate?, values?, then?, otherwise?);
                self.at(origin, |graph| graph.branch(predicate, &then, &otherwise, &values))
            }
            Some(("while", [condition, body, values @ .., key, most])) if keyword(key) == Some("most") => {
                let values = self.values(values, origin);
                let (condition, body) = (self.known_body(condition), self.known_body(body));
                let (values, condition, body) = (values?, condition?, body?);
                let Some(most) = most.atom().and_then(|n| n.parse().ok()) else {
                    return self.wrong(most, "this is not a number of steps", "write :most 8");
                };
                let Some((start, captured)) = values.split_at_checked(body.outputs().len()) else {
                    let message = format!(
                        "the body returns {} values, but only {} are given",
                        values.len(),
                        body.outputs().len()
                    );
                    return self.wrong(sexp, message, "give an initial value for each result of the body");
                };
                self.at(origin, |graph| graph.repeat(&condition, &body, start, captured, most))
            }
            Some(("while", _)) => {
                return self.wrong(
                    sexp,
                    "cannot read this loop because it does not end in :most and a number of steps",
                    FORMS,
                );
            }
            _ => return self.wrong(sexp, "this is neither a branch nor a loop", FORMS),
        };
        match made {
            Ok(results) => Some(results),
            Err(e) => self.wrong(sexp, format!("{}: {}", e.op, e.problem), e.help),
        }
    }

    fn at<T>(&mut self, origin: &Origin, build: impl FnOnce(&mut Graph) -> T) -> T {
        match origin.path() {
            "" => build(&mut self.graph),
            path => self.graph.within(path, build),
        }
    }

    fn values(&mut self, items: &[Sexp], origin: &Origin) -> Option<Vec<NodeId>> {
        let values: Vec<_> = items.iter().map(|v| self.value(v, origin)).collect();
        values.into_iter().collect()
    }

    pub(super) fn known_body(&mut self, sexp: &Sexp) -> Option<Rc<Graph>> {
        match text(sexp).and_then(|name| self.bodies.get(name)) {
            Some(body) => body.clone(),
            None => {
                let known = self.bodies.keys().map(String::as_str);
                let help = suggestion(
                    text(sexp).unwrap_or_default(),
                    "define it by (sub NAME statement …); the known ones are",
                    known,
                );
                self.wrong(sexp, "there is no body of that name", help)
            }
        }
    }
}
