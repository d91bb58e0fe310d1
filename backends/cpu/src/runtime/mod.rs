//! What runs programs: bound steps, memory, threads.

pub mod exec;
pub mod fault;
pub mod memory;
pub mod threads;
pub mod thunk;
