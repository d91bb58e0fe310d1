//! Proves rewrite rules for tensors of every size and rank.
//!
//! A test rarely draws the size or rank at which a rule is wrong: a single size, multiples of a block size, or all
//! ranks above some rank. A proof covers all sizes and ranks. TensorRight (Arora et al., POPL 2025) is the model. Both
//! sides of a rule are functions from an index to a value. The prover compares them at a symbolic index and knows only
//! its range.
//!
//! 1. `choices` splits a rule into *cases*: the kind of each element type (floats, integers, truth values), the word of
//!    each attribute, the place of each axis, and whether an extent is 0. The rule holds if it holds in each case.
//! 2. `scope` gives each variable of the rule a symbolic value. An extent is an integer that is at least 0. A sequence
//!    of axes `B..` is one axis of |B| elements; `shape` says why this is sound for every rank. The type constraints of
//!    the left side are facts. Those of the right side are obligations.
//! 3. `ops` defines the op table a second time, as symbolic semantics: each op gives the term of its result's element
//!    at an index. A test compares these terms with the interpreter.
//! 4. Indices are integer polynomials with quotients, in `term`. A small decision procedure in `facts` proves
//!    inequalities. Its `true` is a proof, and its `false` means only that it found none. With `--solver z3`, z3
//!    decides the questions that the procedure leaves open, and checks the procedure's answers (`smt`).
//! 5. Terms are equal if their normal forms are the same term. `bits` normalizes by laws that hold bit for bit, and
//!    `lower` and `real` by those of real arithmetic.
//! 6. A contract that lets rounding differ promises more than equality over the reals. `contract` proves the rest:
//!    ranges, infinities, NaN, and roundings of numbers that the program contains.
//!
//! # Claims
//!
//! | verdict | meaning | example |
//! |---|---|---|
//! | proved: every bit | Both sides are equal to the last bit for every size, rank and value, as the reference evaluates them op by op. The payload of NaN, and the sign of a zero from `max` and `min`, may differ. | x + x is 2·x |
//! | proved: all that the contract promises | Every obligation of the contract is shown, for every size and rank. The sides are one real function wherever each part of the left side is finite. Unless the contract is `fast`, the right side overflows only where the left side does, and infinities and NaN reach both results. Constants agree to 13 digits. | 1/eˣ is e⁻ˣ |
//! | proved up to extents of n | One of these claims, for every value, if no dim of the rule is larger than n. | |
//! | equal over the reals | Both sides are one real function for every size and rank. Another obligation of the contract, which the verdict names, is only tested. This is no proof. | x·σ(x) is SiLU by parts: σ(−104) is 0 in `f32` |
//! | refuted | The interpreter computes different results on the instance that is shown. | (a + b)·(a − b) is a² + b² |
//! | tested | None of these, with the reason. The rule may hold. | a convolution whose terms grow too large |
//!
//! The claim for every size and rank rests on three things: the laws, the semantics in `ops`, and the argument in
//! `shape`. The laws are in `bits`, `logic`, `integers`, `lattice`, `facts`, `choice`, `lower`, `real`, `functions`,
//! `signs` and `sums`. A test compares the semantics with the interpreter, and plants faults in them.
//!
//! The claim about ranges rests on `contract`. As real functions, results of ops on the right are multiples of results
//! on the left, or they are bounded for all inputs for which the contract promises the range. A contract may leave a
//! result to rounding: one within 1/16 of the largest number, or one that vanishes. The proof leaves such a result open
//! too. The prover assumes that no tensor has more than 2⁴⁰ elements.
//!
//! # Kernels
//!
//! [`plans`] compares the kernels of a plan with the e-nodes from which they were built, by the same semantics and
//! normal forms.

mod bind;
mod bits;
mod call;
mod choice;
mod choices;
mod contract;
mod defined;
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
mod smt;
mod solved;
mod sums;
mod term;

pub use falsify::{Counterexample, falsify};
pub use prove::{Sense, Verdict, judge, judge_all, prove, prove_all};
pub use solved::{Solved, judge_all_with_z3, refuted_by_z3};
