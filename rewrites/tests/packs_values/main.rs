//! Tests the packs on small programs: all forms of a class have the same values in the reference interpreter, and the
//! packs recognise the patterns that they are made for.

mod check;
mod definitions;
mod forms;
#[path = "../packs_models/mod.rs"]
mod packs_models;
mod spellings;
