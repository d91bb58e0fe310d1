//! Proves rewrite rules for tensors of every size and rank.
//!
//! A test cannot refute a rule that is wrong at one size only, at multiples of some block, or from some rank on. A proof speaks of all of them.
//! TensorRight (Arora et al., POPL 2025) is the model: both sides of a rule are read as functions from an index to a value, and compared at an index of which only
//! the range is known.
//!
//! 1. A rule is read in *cases*, in `choices`: element types by kind (floats, integers, truth values), words, places of axes, extents that are 0 or not. It holds if it
//!    holds in each.
//! 2. Its variables are symbols, in `scope`: an extent is a number that is not negative, a sequence of axes `B..` is one axis of |B| elements. `shape` says why this is
//!    sound for every rank. What the types of the left side ask for is a fact; what those of the right side ask for is to be shown.
//! 3. The op table is written once more, in `ops`, as symbolic semantics: each op gives the term of its result's element at an index. A test compares it with the interpreter.
//! 4. Indices are integer polynomials with quotients, in `term`; inequalities follow by a small decision procedure, in `facts`, whose `true` is a proof. No SMT solver
//!    is asked: what the procedure cannot show is not proved.
//! 5. Terms are brought into a normal form, and are equal if these are the same term: by laws that hold bit for bit, in `bits`; or by those of real arithmetic, in
//!    `lower` and `real`.
//!
//! # What is claimed
//!
//! | verdict | means |
//! |---|---|
//! | proved | Both sides are equal to the last bit for every size, rank and value, as the reference evaluates them op by op. The payload of NaN, and the sign of a zero from `max` and `min`, are open. |
//! | equal over the reals; contract tested | Both sides are one real function wherever each part of the left side is finite, for every size and rank. A bias hides a score where it is −∞ or a number that the rule says hides; a finite bias that is read hides none. Numbers agree to 14 digits. This is no proof of the rule's contract: rounding, ulps, ranges, infinities and NaN are not spoken of, and `rules check` tests them. Instances at the ends of the range, and with infinities and NaN, found nothing either. |
//! | up to extents of n | One of these claims, for every value, where no dim of the rule is larger than n. |
//! | refuted | The interpreter computes different results on the instance that is shown. |
//! | tested | None of these, with the reason. The rule may hold. |
//!
//! That no size or rank is left out rests on these: each law in `bits`, `logic`, `integers`, `lattice`, `real` and `functions`, the semantics in `ops` (compared with the
//! interpreter, and by planted faults), and the argument in `shape`.
//!
//! # Kernels
//!
//! [`plans`] compares the kernels of a plan with the e-nodes that they were built from, by the same semantics and normal forms.

mod bind;
mod bits;
mod call;
mod choice;
mod choices;
mod facts;
mod falsify;
mod functions;
mod integers;
mod lattice;
mod logic;
mod lower;
mod ops;
pub mod plans;
mod prove;
mod range;
mod real;
mod relations;
mod scope;
mod shape;
mod side;
mod signs;
mod sums;
mod term;

pub use falsify::{Counterexample, falsify};
pub use prove::{Verdict, judge, judge_all, prove, prove_all};
