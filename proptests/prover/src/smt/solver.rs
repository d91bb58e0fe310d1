//! The interface to z3, through SMT-LIB 2 text.

use std::{collections::BTreeMap, io};

use easy_smt::{Context, ContextBuilder, Response, SExpr};

use super::formula::{Formula, Sort};

/// The maximal work on a question, in z3's resource units: about half a second. Unlike a time limit, it does not depend
/// on the machine's load.
const WORK: u32 = 2_000_000;
/// The longest time for a question, in milliseconds. It limits the steps of z3 that count no resource units.
const TIMEOUT: u32 = 30_000;

/// The answer of a solver to assertions.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The assertions contradict each other.
    Unsat,
    /// The assertions hold for these values of the symbols.
    Sat(BTreeMap<String, i128>),
    /// The solver does not decide the question within its limits.
    Unknown,
    /// The solver did not answer, with the reason.
    Failed(String),
}

/// A running solver.
pub struct Solver(Context);

impl Solver {
    /// Starts z3.
    ///
    /// # Errors
    /// If z3 is not installed; the message says how to install it.
    pub fn z3() -> Result<Solver, String> {
        let start = || -> io::Result<Context> {
            let mut context = ContextBuilder::new().solver("z3").solver_args(["-smt2", "-in"]).build()?;
            for (option, most) in [(":rlimit", WORK), (":timeout", TIMEOUT)] {
                let most = context.numeral(most);
                context.set_option(option, most)?;
            }
            Ok(context)
        };
        start().map(Solver).map_err(|e| {
            format!("cannot run z3 because {e}; install it by `apt-get install z3` or `pip install z3-solver`, so that `z3` is in PATH")
        })
    }

    /// Asks whether the assertions are satisfiable together.
    pub fn ask(&mut self, assertions: &[Formula]) -> Answer {
        let answer = self.0.push().and_then(|()| self.asserted(assertions));
        let popped = self.0.pop();
        match (answer, popped) {
            (Ok(answer), Ok(())) => answer,
            (Err(e), _) | (_, Err(e)) => Answer::Failed(format!(
                "cannot ask z3 because {e}; check by `z3 --version` that it runs, and report the rule if it does"
            )),
        }
    }

    fn asserted(&mut self, assertions: &[Formula]) -> io::Result<Answer> {
        let (mut symbols, mut maps) = (BTreeMap::new(), BTreeMap::new());
        assertions.iter().for_each(|a| a.names(&mut symbols, &mut maps));
        for (name, sort) in &symbols {
            let sort = self.sort(*sort);
            self.0.declare_const(quoted(name), sort)?;
        }
        for (name, arity) in &maps {
            let int = self.0.int_sort();
            self.0.declare_fun(quoted(name), vec![int; *arity], int)?;
        }
        for assertion in assertions {
            let assertion = self.expression(assertion);
            self.0.assert(assertion)?;
        }
        Ok(match self.0.check()? {
            Response::Unsat => Answer::Unsat,
            Response::Unknown => Answer::Unknown,
            Response::Sat => Answer::Sat(self.values(&symbols)?),
        })
    }

    fn values(&mut self, symbols: &BTreeMap<String, Sort>) -> io::Result<BTreeMap<String, i128>> {
        let names: Vec<&String> =
            symbols.iter().filter(|(_, sort)| **sort == Sort::Int).map(|(name, _)| name).collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted = names.iter().map(|name| self.0.atom(quoted(name))).collect();
        let values = self.0.get_value(wanted)?;
        let number = |of: SExpr| self.0.display(of).to_string().replace(['(', ')', ' '], "").parse().ok();
        Ok(names.into_iter().zip(values).filter_map(|(name, (_, x))| Some((name.clone(), number(x)?))).collect())
    }

    fn sort(&self, sort: Sort) -> SExpr {
        match sort {
            Sort::Int => self.0.int_sort(),
            Sort::Bool => self.0.bool_sort(),
            Sort::Bits(n) => self.0.bit_vec_sort(self.0.numeral(n)),
        }
    }

    fn expression(&self, formula: &Formula) -> SExpr {
        let list = |head: SExpr, args: &[Formula]| {
            let args = args.iter().map(|a| self.expression(a));
            self.0.list(std::iter::once(head).chain(args).collect())
        };
        match formula {
            Formula::Int(n) if *n < 0 => self.0.list(vec![self.0.atom("-"), self.0.atom(n.unsigned_abs().to_string())]),
            Formula::Int(n) => self.0.atom(n.to_string()),
            Formula::Bits(width, n) => {
                let bits = n & ((1_i128 << width) - 1);
                self.0.list(vec![self.0.atom("_"), self.0.atom(format!("bv{bits}")), self.0.numeral(*width)])
            }
            Formula::Symbol(name, _) => self.0.atom(quoted(name)),
            Formula::Call(name, args) if args.is_empty() => self.0.atom(name.clone()),
            Formula::Call(name, args) => {
                let words: Vec<SExpr> = name.trim_matches(['(', ')']).split(' ').map(|w| self.0.atom(w)).collect();
                let head = if words.len() == 1 { words[0] } else { self.0.list(words) };
                list(head, args)
            }
            Formula::Map(name, args) => list(self.0.atom(quoted(&format!("{name} {}", args.len()))), args),
        }
    }
}

/// Quotes a name, so that it may contain any character.
fn quoted(name: &str) -> String {
    format!("|{}|", name.replace(['|', '\\'], "_"))
}
