//! Tests the packs on small programs. All forms of a class must have the same values in the reference interpreter,
//! and the packs must recognise the patterns that they target.

mod check;
mod definitions;
mod forms;
#[path = "../packs_models/mod.rs"]
mod packs_models;
mod spellings;
