//! Finds suspicious rules among those that load, for `rules lint`.

use std::{ops::Range, sync::Arc};

use crate::{
    check,
    recipe::Compiled,
    rule::{OpTerm, Rule, Term},
    ruleset::RuleSet,
};

/// A finding about a rule.
#[derive(Clone, Debug)]
pub struct Lint {
    /// The rule.
    pub rule: Arc<str>,
    /// File, line and column.
    pub place: String,
    /// The position in the rule's source, in bytes.
    pub span: Range<usize>,
    /// The finding, followed by a suggestion.
    pub message: String,
}

/// The maximal number of ops of a robust left side. A larger side seldom matches, because a program may write any of
/// its ops differently.
const MOST_OPS: usize = 16;

/// Finds unused variables, left sides that are too large, and rules that another rule makes superfluous.
pub fn lint(rules: &RuleSet) -> Vec<Lint> {
    let mut lints = Vec::new();
    for compiled in rules.rules.iter().filter(|c| c.variant == 0) {
        let rule = &compiled.rule;
        for (name, span) in check::unused(compiled) {
            lints.push(found(rule, &span, format!("`{name}` is declared but never used; remove it")));
        }
        let size = check::size(compiled.pattern());
        if size > MOST_OPS {
            let message = format!(
                "its left side has {size} ops, and at most {MOST_OPS} are recommended; match parts of it by separate rules"
            );
            lints.push(Lint::of(rule, message));
        }
        let shadows = |other: &&Arc<Compiled>| other.rule.name != rule.name && shadow(other, compiled);
        if let Some(other) = rules.rules.iter().find(shadows) {
            let message = format!("the rule {} covers all of its matches; remove one of the two", other.rule.name);
            lints.push(Lint::of(rule, message));
        }
    }
    lints
}

impl Lint {
    /// Returns a finding at the position of a rule.
    pub fn of(rule: &Rule, message: String) -> Lint {
        found(rule, &rule.span, message)
    }
}

fn found(rule: &Rule, span: &Range<usize>, message: String) -> Lint {
    let (line, column) = rule.source.position(span.start);
    let place = format!("{}:{line}:{column}", rule.source.name);
    Lint { rule: rule.name.clone(), place, span: span.clone(), message }
}

/// Returns whether `general` replaces every match of `special` by the same result. `general`'s left side must be more
/// general, and its right side equal for the same bindings.
fn shadow(general: &Compiled, special: &Compiled) -> bool {
    // Left sides with different numbers of inserted views differ.
    if general.pattern().inserted() != special.pattern().inserted() {
        return false;
    }
    let (general, special) = (&*general.rule, &*special.rule);
    // Left sides with different required numbers differ.
    let wanted = |r: &Rule| r.variables.iter().filter_map(|v| v.wanted).collect::<Vec<_>>();
    if !wanted(general).is_empty() && wanted(general) != wanted(special) {
        return false;
    }
    if general.roots.len() != 1 || special.roots.len() != 1 || general.group || special.group {
        return false;
    }
    let mut bound: Vec<Option<Term>> = vec![None; general.variables.len()];
    covers(&general.roots[0].left, &special.roots[0].left, &mut bound)
        && covers(&general.roots[0].right, &special.roots[0].right, &mut bound)
        && general.relations.is_empty()
        && general.tensors().all(|(v, ty, constant)| {
            // The shape `F[A..]` of an unconstrained variable admits every shape. Any other shape must be identical.
            let at = general.variables.iter().position(|o| o.name == v.name);
            match at.and_then(|at| bound[at].as_ref()) {
                Some(Term::Tensor(other)) => match &special.variables[*other].kind {
                    crate::rule::VariableKind::Tensor { ty: narrower, constant: c } => {
                        let flags = (!constant || *c) && (!v.varied || special.variables[*other].varied);
                        (ty == narrower || admits_all(ty)) && flags
                    }
                    _ => false,
                },
                _ => admits_all(ty) && !constant && !v.varied,
            }
        })
}

fn admits_all(ty: &eutectic_ir::lang::TypePattern) -> bool {
    matches!(ty.dims.0.as_slice(), [eutectic_ir::lang::typing::DimsItem::Many(_)])
}

fn covers(general: &Term, special: &Term, bound: &mut [Option<Term>]) -> bool {
    match (general, special) {
        (Term::Tensor(at), _) => match &bound[*at] {
            Some(before) => before == special,
            None => {
                bound[*at] = Some(special.clone());
                true
            }
        },
        (Term::Call(a), Term::Call(b)) => {
            // A variable of ops stands for any op of its group, with any attributes.
            let fits = match (a.op, b.op) {
                (OpTerm::Variable(_, group), OpTerm::Named(op)) => group.contains(op),
                (OpTerm::Variable(_, group), OpTerm::Variable(_, other)) => group == other,
                (op, other) => op == other,
            };
            fits && a.args.len() == b.args.len()
                && (a.attrs == b.attrs || a.op.attrs().is_empty())
                && a.args.iter().zip(&b.args).all(|(x, y)| covers(x, y, bound))
        }
        (a, b) => a == b,
    }
}
