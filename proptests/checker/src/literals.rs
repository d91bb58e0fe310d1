//! Finds the numbers in a rule's text. If a law fails at a single number, the text often contains this number.

use eutectic_ir::{Attr, lang::typing::DimPattern};
use eutectic_rewrites::{
    expr::Expr,
    rule::{AttrTerm, Rule, Term},
};

/// Returns the finite numbers of both sides, in ascending order and without repetitions.
pub fn literals(rule: &Rule) -> Vec<f64> {
    let mut found = Vec::new();
    let sides =
        rule.roots.iter().flat_map(|root| [&root.left, &root.right]).chain(rule.lets.iter().map(|(_, term)| term));
    for side in sides {
        side.visit(&mut |term| match term {
            Term::Number { expr, .. } => of_expr(expr, &mut found),
            Term::Call(call) => call.attrs.iter().flatten().for_each(|attr| of_attr(attr, &mut found)),
            _ => {}
        });
    }
    found.retain(|x| x.is_finite());
    found.sort_by(f64::total_cmp);
    found.dedup();
    found
}

fn of_expr(expr: &Expr, found: &mut Vec<f64>) {
    match expr {
        Expr::Number(n) => found.push(n.get()),
        Expr::Call(_, args) => args.iter().for_each(|arg| of_expr(arg, found)),
        Expr::Slot(_) | Expr::Offset(_) => {}
    }
}

fn of_attr(attr: &AttrTerm, found: &mut Vec<f64>) {
    match attr {
        AttrTerm::Value(Attr::Int(n)) => found.push(*n as f64),
        AttrTerm::Value(Attr::Float(x)) => found.push(x.get()),
        AttrTerm::Number(expr) => of_expr(expr, found),
        AttrTerm::Dim(dim) => of_dim(dim, found),
        _ => {}
    }
}

fn of_dim(dim: &DimPattern, found: &mut Vec<f64>) {
    match dim {
        DimPattern::Number(n) => found.push(*n as f64),
        DimPattern::Var(_) => {}
        DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().for_each(|d| of_dim(d, found)),
        DimPattern::Difference(pair) | DimPattern::Quotient(pair) | DimPattern::Floor(pair) | DimPattern::Mod(pair) => {
            pair.iter().for_each(|d| of_dim(d, found))
        }
    }
}
