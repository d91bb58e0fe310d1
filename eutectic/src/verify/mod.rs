//! Compares a program as written with its chosen plan. If they differ, it names the rule or kernel at fault.
//!
//! The *program as written* is the graph, computed op by op on the CPU. Only the rules that define ops are active. Two
//! methods determine the allowed difference of a plan's result:
//!
//! - A small program is interpreted with a propagated error bound ([`eutectic_ir::bounded`]). Four times that bound is
//!   allowed, because a plan rounds in another order. The bound is proved, but it grows with each layer. It is not used
//!   if it exceeds 1/64 of a row's largest element.
//! - Otherwise, the program as written runs again on disturbed inputs and parameters. Each number except integers moves
//!   by one unit in the last place. This changes every later rounding. Sixteen times the largest change is allowed: the
//!   largest among three such runs and eight adjacent elements. It estimates the rounding error and the condition of
//!   the program, and is not a bound.
//!
//! If all rules keep every bit, the second method is used for programs of any size, and a number moves by a unit of its
//! own type. Otherwise, a rounding to a 16-bit type is an allowed error, even in a cast, because kernels may keep more
//! bits.
//!
//! If a precision was requested, the unit is that of its type. Four unit roundoffs of the largest element of a row are
//! always allowed. Infinities, NaN and integers must be equal. An element is *open* if disturbed inputs change it to
//! another integer, or from a finite number to infinity or NaN. Rounding decides its value, so it is not judged.
//!
//! ```
//! use eutectic::{Compiler, Cpu, DType, Graph, Tensor, Type, verify::Checked};
//!
//! let mut graph = Graph::new("softmax");
//! let x = graph.input("x", Type::tensor(DType::F32, &[2, 3]))?;
//! let y = graph.softmax(x, -1)?;
//! graph.output("y", y)?;
//! let x = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//! let compiler = Compiler::new(Cpu::default())?;
//! let verified = compiler.verify(&graph, |_| Some(x.clone()), Checked::default())?;
//! assert!(verified.is_right());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blame;
mod expected;
mod given;
mod judge;
mod probe;
mod reference;
mod walk;

use eutectic_ir::{DType, Graph, Tensor};
pub use eutectic_rewrites::Precision;

use self::{
    blame::Suspect,
    given::{Given, bits_of, significant_bits, work},
    judge::{Tolerance, compare},
    reference::{Reference, all_results},
};
pub use self::{
    blame::{Blame, BlamedKernel, Cause, minimal},
    judge::{Comparison, Difference, Element},
};
use crate::{Compiler, Error, Planned, compile::bound};

/// The maximal number of operations and elements of a program that is interpreted. Interpreting a program of
/// this size takes about a second in an optimized build.
const MOST_INTERPRETED: f64 = 3e7;

/// The rounding errors that the rules of a compiler may introduce. The allowed differences depend on them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// The precision to which operands of products and attention may be rounded.
    pub precision: Precision,
    /// Whether all chosen rules keep every bit. A kernel then keeps no more bits of a 16-bit value than its type has.
    pub exact: bool,
}

/// The method that determines the allowed difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// A propagated error bound, and disturbed inputs where the bound is too coarse.
    Bound,
    /// Disturbed inputs.
    Disturbed,
}

/// A result of a plan, compared with that of the program as written.
#[derive(Clone, Debug)]
pub struct VerifiedResult {
    /// The name of the output, or of the state.
    pub name: String,
    /// Whether it is the new value of a state.
    pub state: bool,
    /// The result of the plan.
    pub value: Tensor,
    /// The comparison with the reference.
    pub comparison: Comparison,
}

/// A plan, compared with the program as written.
#[derive(Debug)]
pub struct Verified {
    /// The plan.
    pub planned: Planned,
    /// The method that determined the allowed difference.
    pub judge: Judge,
    /// The outputs, and then the new values of states.
    pub results: Vec<VerifiedResult>,
    /// The rules or kernel at fault, if a result exceeds the allowed difference.
    pub blame: Option<Blame>,
}

impl Verified {
    /// Returns whether each result is within the allowed difference.
    pub fn is_right(&self) -> bool {
        self.results.iter().all(|result| result.comparison.is_right())
    }
}

impl Compiler {
    /// Runs a graph as planned and as written, on the same inputs and parameters, and compares all results. States are
    /// zeros before the run. If a result exceeds the allowed difference, it searches for the rules and the first kernel
    /// that cause this.
    ///
    /// # Errors
    /// If the graph cannot be compiled or run, as planned or as written; see [`Compiler::compile`] and
    /// [`Session::run`](crate::Session::run).
    pub fn verify(
        &self,
        graph: &Graph,
        value: impl Fn(&str) -> Option<Tensor>,
        checked: Checked,
    ) -> Result<Verified, Error> {
        let (planned, mut session) = self.compile_planned(graph)?;
        session.load_named(&value)?;
        let got = all_results(&mut session, graph, &value)?;
        let extents = graph.extents();
        let lengths = extents.iter().map(|of| Ok((of.name.to_string(), session.length(&of.name)?)));
        let lengths: Vec<(String, usize)> = lengths.collect::<Result<_, Error>>()?;
        drop(session);

        let fixed = lengths.iter().map(|(name, length)| (name.clone(), *length as i64)).collect();
        let written = if lengths.is_empty() { bound(graph)?.into_owned() } else { graph.bind(&fixed)? };
        let asked = bits_of(checked.precision);
        let bits = match checked.exact {
            true => asked.unwrap_or(DType::F64.significand_bits()),
            false => significant_bits(graph, checked.precision),
        };
        let tolerance = Tolerance { bits, asked };
        let mut given = Given::new(graph, &value, &lengths, bits)?;
        given.bounded = !checked.exact && lengths.is_empty() && work(&written) <= MOST_INTERPRETED;
        let mut reference = Reference::new()?;
        let want = reference.results(&written, &given)?;

        let named = graph.results().zip(got).zip(&want).enumerate();
        let results = named.map(|(at, (((name, _), value), want))| VerifiedResult {
            name: name.clone(),
            state: at >= graph.outputs().len(),
            comparison: compare(&value, want, tolerance),
            value,
        });
        let judge = if given.bounded { Judge::Bound } else { Judge::Disturbed };
        let mut verified = Verified { planned, judge, results: results.collect(), blame: None };
        if !verified.is_right() {
            let planned = &verified.planned;
            let precision = checked.precision;
            let suspect = Suspect {
                compiler: self,
                graph,
                planned,
                given: &given,
                want: &want,
                tolerance,
                precision,
                lengths: &lengths,
            };
            verified.blame = Some(suspect.blame(&mut reference)?);
        }
        Ok(verified)
    }
}
