//! Micro-kernels: the blocks of products that stay in registers, and what packs operands for them.

mod block;
pub mod call;
pub mod coded;
pub mod coded_table;
pub mod dots;
pub mod matvec;
pub mod pack;
pub mod panel_form;
pub mod sweep;
pub mod table;
