//! Tile programs: compiled bodies of kernels, which are evaluated for one cache-sized box of the domain (a tile) at a
//! time.

mod access;
mod compile;
mod copy;
pub mod domain;
pub mod gather;
pub mod grid;
mod loops;
mod pairs;
pub mod program;
pub mod region;
mod registers;
mod run;
mod scan_order;
pub mod shape;
pub mod span;

pub use compile::{compile, compile_for, number};
pub use domain::{MAX_RANK, Tile};
pub use grid::Grid;
pub use program::{Frame, RowPart, TileProgram, Word};
pub use scan_order::scan_order;
