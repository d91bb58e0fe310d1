//! Reads the sides of a rule: roots, groups and the terms that `let` names.

use eutectic_ir::lang::Sexp;

use super::{Noted, Parts, RuleReader, RuleSide, SHAPE_OF_A_RULE, start};
use crate::rule::{Root, Term, Variable, VariableKind};

impl RuleReader<'_> {
    pub(super) fn roots(&mut self, parts: &Parts<'_>, form: &Sexp) -> Result<Vec<Root>, Noted> {
        let mut sides = Vec::new();
        for side in &parts.sides {
            match side.call() {
                Some(("=>", [left, right])) => sides.push((left, right, side.span.clone())),
                _ => return self.wrong(side.span.clone(), "write a side as (=> left right)", SHAPE_OF_A_RULE),
            }
        }
        if sides.is_empty() {
            return self.wrong(start(form), "this rule has no sides", SHAPE_OF_A_RULE);
        }
        let mut lefts = Vec::new();
        if let Some(group) = parts.group {
            let (Some(("group", [name, pattern])), [(root, ..)]) = (group.call(), sides.as_slice()) else {
                let help = "(group ?y pattern) goes with one (=> ?y right)";
                return self.wrong(group.span.clone(), "this is not a group", help);
            };
            let name = name.atom().unwrap_or_default();
            if !name.starts_with('?') || self.variable(name).is_some() || root.atom() != Some(name) {
                let help = "write (group ?y pattern) and (=> ?y right), where `forall` does not declare ?y";
                return self.wrong(
                    group.span.clone(),
                    "the left side of a group must be the variable that names its members",
                    help,
                );
            }
            self.group = Some(name.to_string());
            lefts.push(self.left(pattern));
        } else {
            for (left, ..) in &sides {
                lefts.push(self.left(left));
            }
        }
        self.left_numbers = self.numbers;
        self.all_on_the_left(&lefts);
        for item in &parts.lets {
            let _ = self.let_term(item);
        }
        let mut roots = Vec::new();
        for ((_, right, span), left) in sides.into_iter().zip(lefts) {
            let right = self.term(right, RuleSide::Right);
            roots.push(Root { left: left?, right: right?, span });
        }
        Ok(roots)
    }

    fn left(&mut self, sexp: &Sexp) -> Result<Term, Noted> {
        let term = self.term(sexp, RuleSide::Left)?;
        if !matches!(term, Term::Call(_)) {
            return self.wrong(
                sexp.span.clone(),
                "a left side must be an op applied to operands",
                "write a term such as (add ?x ?y)",
            );
        }
        Ok(term)
    }

    fn all_on_the_left(&mut self, lefts: &[Result<Term, Noted>]) {
        let mut seen = vec![false; self.variables.len()];
        for left in lefts {
            let Ok(left) = left else { return };
            left.visit(&mut |term| {
                if let Term::Tensor(at) = term {
                    seen[*at] = true;
                }
            });
        }
        let tensor = |v: &&Variable| matches!(v.kind, VariableKind::Tensor { .. });
        let unseen = self.variables.iter().zip(seen).filter(|(_, seen)| !seen).map(|(v, _)| v).filter(tensor);
        let unseen: Vec<_> = unseen.map(|v| (v.span.clone(), v.name.clone())).collect();
        for (span, name) in unseen {
            let _ =
                self.wrong::<()>(span, format!("`{name}` does not occur on the left"), "use it there, or remove it");
        }
    }

    fn let_term(&mut self, item: &Sexp) -> Result<(), Noted> {
        let Some((_, [name, term])) = item.call() else {
            return self.wrong(item.span.clone(), "`let` needs a name and a term", "write (let ?y (op …))");
        };
        let known = |r: &Self, n: &str| r.variable(n).is_some() || r.lets.iter().any(|(l, _)| l == n);
        match name.atom() {
            Some(n) if n.starts_with('?') && !known(self, n) => {
                let term = self.term(term, RuleSide::Right)?;
                self.lets.push((n.to_string(), term));
                Ok(())
            }
            _ => self.wrong(
                name.span.clone(),
                "this name is used already or is not a variable",
                "use a variable such as ?y that has no other meaning",
            ),
        }
    }
}
