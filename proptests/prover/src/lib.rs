//! Proves rewrite rules for tensors of every size and rank.
#![allow(dead_code)]

mod bind;
mod bits;
mod call;
mod choices;
mod facts;
mod lower;
mod ops;
mod poly;
mod prove;
mod real;
mod scope;
mod shape;
mod side;
mod term;

pub use prove::{Claim, Verdict, prove};
