//! Rules checked on instances of themselves, random programs, and the judgement of what the engine makes of them.

pub mod conformance;
pub mod naive;
pub mod program;
pub mod rules;
pub mod sweep;
