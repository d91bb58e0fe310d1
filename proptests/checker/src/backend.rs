//! Compiles both sides of a case for a backend, with only the rules that make them computable. Runs them, and judges
//! the results by the propagated error bounds.

use eutectic::{Compiler, Error, Graph, RuleSet, Strategy};

use crate::run::{Fault, check_on};
use crate::{
    cases::Case,
    evaluate::evaluated,
    judge::Difference,
    report::{Check, Failure},
};

/// The outcome of a case on a backend.
pub enum Outcome {
    /// All results are right. Holds the number of compilations.
    Right(usize),
    /// The backend does not support the program. Holds the first problem.
    Refused(String),
    /// The backend computes a wrong result.
    Wrong(Box<Failure>),
}

/// Compiles each side once op by op and once fused, runs it, and compares the results with the interpreter's. Values
/// for which the left side is undefined are skipped, such as a gather from a table without rows.
pub fn run(compiler: &Compiler, base: &RuleSet, case: &Case) -> Outcome {
    let mut right = 0;
    if evaluated(&case.sides.written, &case.values).is_err() {
        return Outcome::Right(right);
    }
    for (side, graph) in [("left", &case.sides.left), ("right", &case.sides.right)] {
        for strategy in [Strategy::Unfused, Strategy::Local] {
            let compiler = compiler.clone().with_rules(base.clone()).with_strategy(strategy);
            match one(&compiler, graph, case) {
                Ok(None) => right += 1,
                Ok(Some((fault, difference))) => {
                    let what = match fault {
                        Fault::Kernels => format!("computes a wrong {side} side ({strategy:?})"),
                        Fault::Rules => {
                            format!(
                                "computes a wrong {side} side because the rules that make it computable change its \
                                 values"
                            )
                        }
                    };
                    let what = format!("{} {what}", compiler.backend().name());
                    return Outcome::Wrong(Box::new(Failure::of(Check::Backend, what, case, Some(difference))));
                }
                Err(Error::Unsupported { problems, .. }) => {
                    return Outcome::Refused(problems.first().cloned().unwrap_or_default());
                }
                Err(error) => {
                    let what = format!("{} fails on the {side} side: {error}", compiler.backend().name());
                    return Outcome::Wrong(Box::new(Failure::of(Check::Backend, what, case, None)));
                }
            }
        }
    }
    Outcome::Right(right)
}

/// Returns the first difference between the results of a backend and the reference.
fn one(compiler: &Compiler, graph: &Graph, case: &Case) -> Result<Option<(Fault, Difference)>, Error> {
    let given = |name: &str| case.values.get(name).cloned();
    let Err(differences) = check_on(compiler, graph, &given)? else { return Ok(None) };
    let Some(first) = differences.into_iter().next() else { return Ok(None) };
    let root = graph.outputs().iter().position(|(name, _)| *name == first.output).unwrap_or(0);
    let allowed = format!("{:.3e} (the propagated bound)", first.allowed);
    let difference = Difference { root, at: vec![first.at], left: first.want, right: first.got, allowed };
    Ok(Some((first.fault, difference)))
}
