//! Runs compiled programs: their steps, memory and threads.

pub mod exec;
pub mod fault;
pub mod memory;
pub mod threads;
pub mod thunk;
