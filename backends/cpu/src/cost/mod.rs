//! The cost model: a prediction of the time of kernels, its coefficients, and their fit to measurements.

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
