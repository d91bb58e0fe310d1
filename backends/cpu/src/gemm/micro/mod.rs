//! Micro-kernels: the register blocks of products, and the functions that pack operands for them.

mod block;
pub mod call;
pub mod coded;
pub mod coded_table;
pub mod dots;
pub mod integer;
pub mod integer_table;
pub mod matvec;
pub mod pack;
pub mod panel_form;
pub mod sweep;
pub mod table;
