//! Compares a program as written with the plan that was chosen for it, and names the rule or kernel at fault where they differ.
//!
//! The *program as written* is the graph op by op, on the processor, by rules that say what ops are and by no other rule. How far the
//! result of a plan may be from it is told in two ways:
//!
//! - A small program is interpreted with a propagated error bound ([`eutectic_ir::bounded`]). Four times that bound is allowed: a plan rounds
//!   in another order. The bound is proved, but it grows with each layer, and says nothing where it is larger than 1/64 of a row's largest element.
//! - Elsewhere the program as written is run again, with each number of the inputs and parameters moved by one unit in the last
//!   place, whole numbers excepted. That changes every rounding after it. Sixteen times the largest change among eight neighbours is
//!   allowed. This is an estimate of the rounding error and of the condition of the program, not a bound.
//!
//! With rules that keep every bit, programs of any size are judged in the second way, and a number is moved by a unit of its own
//! type. Otherwise a rounding to a 16-bit type, a cast in the program too, is an error that is allowed: kernels may keep more bits.
//!
//! Where a precision is asked for, the unit is that of its type. Four units roundoff of the largest element of a row are allowed in
//! any case. Infinities, NaN and whole numbers must be equal. An element that disturbed inputs turn into another whole number, or from
//! a finite number into another thing, is *open*: rounding decides about it, and it is not judged.
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

/// The most operations and elements of a program that is interpreted: about a second of an optimized build.
const MOST_INTERPRETED: f64 = 3e7;

/// The purpose for which the rules of a compiler were chosen; the allowed differences depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// The precision to which operands of products and attention may be rounded.
    pub precision: Precision,
    /// Whether only rules were chosen that keep every bit: a kernel then keeps no more bits of a 16-bit value than its type has.
    pub exact: bool,
}

/// How the difference that is allowed was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// By a propagated error bound, and by disturbed inputs where that says too little.
    Bound,
    /// By disturbed inputs.
    Disturbed,
}

/// A result of a plan and that of the program as written.
#[derive(Clone, Debug)]
pub struct VerifiedResult {
    /// The name of the output, or of the state.
    pub name: String,
    /// Whether it is what a state becomes.
    pub state: bool,
    /// The result of the plan.
    pub value: Tensor,
    /// How far it is from the reference.
    pub comparison: Comparison,
}

/// A plan compared with the program as written.
#[derive(Debug)]
pub struct Verified {
    /// The plan.
    pub planned: Planned,
    /// How the difference that is allowed was found.
    pub judge: Judge,
    /// Outputs, and then what states become.
    pub results: Vec<VerifiedResult>,
    /// The rules or kernel at fault, where a result is farther from the reference than allowed.
    pub blame: Option<Blame>,
}

impl Verified {
    /// Returns whether each result is within the allowed difference.
    pub fn is_right(&self) -> bool {
        self.results.iter().all(|result| result.comparison.is_right())
    }
}

impl Compiler {
    /// Runs a graph as it is planned and as it is written, on the same inputs and parameters, and compares all results. States are zeros before
    /// the run. Where a result is farther from the reference than is allowed, looks for the rules and the first kernel that make the
    /// difference.
    ///
    /// # Errors
    /// When the graph cannot be compiled or run, as planned or as written: as [`Compiler::compile`] and [`Session::run`](crate::Session::run).
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
