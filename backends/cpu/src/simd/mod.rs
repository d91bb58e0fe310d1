//! Vectorised loops over contiguous elements: pointwise functions, reductions, scans and copies. Each is compiled for
//! every instruction-set level, and a kernel's compilation chooses the version for the machine.

pub mod arithmetic;
pub mod codes;
pub mod convert;
pub mod elementary;
pub mod integers;
pub mod lanes;
pub mod level;
pub mod lines;
pub mod phases;
pub mod pick;
pub mod pointwise;
pub mod prefetch;
pub mod ranking;
pub mod reduce;
pub mod register;
pub mod scan;
pub mod softmax;
pub mod stored;
pub mod stream;
pub mod table;
pub mod transpose;
pub mod vector;

pub use level::Isa;
pub use pointwise::PointFn;
