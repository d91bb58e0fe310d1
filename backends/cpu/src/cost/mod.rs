//! What kernels cost: a model of the work that thunks do, its coefficients, and how they are fitted to measurements.

mod access;
mod coefficients;
mod fit;
mod kernels;
mod lines;
mod model;
mod price;
mod registers;

pub use coefficients::{Costs, ElementCosts, MemoryCosts, OpClasses, ProductCosts};
pub use fit::fit;
pub use model::CostModel;
