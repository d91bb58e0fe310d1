//! The findings of `rules lint`.

use std::sync::Arc;

use eutectic::{
    BACKENDS, Backend, Compiler, Error, RuleSet,
    engine::{
        ir::lang::sexp::suggestion,
        rewrites::{Lint, Rule, circles, lint},
    },
};
use eutectic_checker::worth;

use crate::{fault::Fault, table::hanging};

/// Returns findings on rules that name an unknown backend. Another program may have that backend, but a misspelling is
/// more likely.
pub fn unknown_backends(rules: &RuleSet) -> Vec<Lint> {
    let known = |name: &str| BACKENDS.iter().any(|backend| backend.name == name);
    let finding = |rule: &Rule| {
        let name = rule.backends.iter().find(|name| !known(name))?;
        let help = suggestion(name, "there are", BACKENDS.iter().map(|backend| backend.name));
        let message = format!("there is no backend `{name}`: {help}");
        Some(Lint { rule: rule.name.clone(), place: rule.place(), span: rule.span.clone(), message })
    };
    rules.iter().filter_map(finding).collect()
}

/// Returns all findings on rules: on their text, on cycles between them, on unknown backends, and on their effect on a
/// backend.
///
/// # Errors
/// If a rule is broken.
pub fn findings(rules: &RuleSet, backend: Arc<dyn Backend>) -> Result<Vec<Lint>, Fault> {
    let backends = [Compiler::from_arc(backend, rules.clone())];
    let mut found = lint(rules);
    found.extend(circles(rules, |_| true));
    found.extend(unknown_backends(rules));
    found.extend(worth::lint(rules, &backends).map_err(Error::from)?);
    Ok(found)
}

/// Formats a finding.
pub fn finding(lint: &Lint) -> String {
    hanging(format!("{}: {}: {}", lint.place, lint.rule, lint.message), 4)
}
