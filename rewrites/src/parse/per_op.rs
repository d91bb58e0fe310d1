//! Expands rules about several ops: a variable with words (`one-of`) may stand as an op's name.

use std::borrow::Cow;

use eutectic_ir::lang::{Sexp, SexpKind};

/// Returns one rule for each word of a variable `(?k (one-of a b))` that stands as an op's name. Other rules are
/// returned unchanged.
pub(super) fn one_per_op(form: &Sexp) -> Vec<(String, Cow<'_, Sexp>)> {
    // Only the sides of a rule name ops, so `forall` and the relations in `where` are skipped. A `where` inside of a
    // side is the op of this name.
    let is_side = |s: &&Sexp| !matches!(s.call(), Some(("forall" | "where", _)));
    let variable = form.list().and_then(|items| items.iter().filter(is_side).find_map(head_variable));
    let words = variable.and_then(|name| {
        let forall = form.list()?.iter().find(|s| s.call().is_some_and(|(head, _)| head == "forall"))?;
        let declaration = forall.list()?.iter().find(|d| d.call().is_some_and(|(head, _)| head == name))?;
        let (_, [kind]) = declaration.call()? else { return None };
        let ("one-of", words) = kind.call()? else { return None };
        Some((name, words.iter().map(Sexp::atom).collect::<Option<Vec<_>>>()?))
    });
    match words {
        None => vec![(String::new(), Cow::Borrowed(form))],
        Some((name, words)) => {
            let of = |word| (format!("[{word}]"), Cow::Owned(substitute(form, name, word)));
            words.into_iter().map(of).collect()
        }
    }
}

/// Returns the first variable that is the head of a list.
fn head_variable(sexp: &Sexp) -> Option<&str> {
    let items = sexp.list()?;
    match items.first()?.atom() {
        Some(name) if name.starts_with('?') => Some(name),
        _ => items.iter().find_map(head_variable),
    }
}

fn substitute(sexp: &Sexp, name: &str, word: &str) -> Sexp {
    let all = |items: &[Sexp]| {
        let declares = |s: &&Sexp| s.call().is_some_and(|(h, rest)| h == name && rest.iter().any(is_one_of));
        items.iter().filter(|s| !declares(s)).map(|s| substitute(s, name, word)).collect()
    };
    let kind = match &sexp.kind {
        SexpKind::Atom(a) if a == name => SexpKind::Atom(word.to_string()),
        SexpKind::List(items) => SexpKind::List(all(items)),
        SexpKind::Bracket(head, items) => SexpKind::Bracket(head.clone(), all(items)),
        other => other.clone(),
    };
    Sexp { kind, span: sexp.span.clone() }
}

fn is_one_of(sexp: &Sexp) -> bool {
    sexp.call().is_some_and(|(head, _)| head == "one-of")
}
