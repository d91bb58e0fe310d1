//! The packs on small programs: every way to compute a class that they find gives the same values, in the reference
//! interpreter, and what they are there to recognise is recognised.

mod check;
mod definitions;
mod forms;
#[path = "../packs_models/mod.rs"]
mod packs_models;
mod spellings;
