//! Random programs, and the judgement of what the engine makes of them.

pub mod conformance;
pub mod naive;
pub mod program;
pub mod sweep;
