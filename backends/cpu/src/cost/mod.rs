//! What kernels cost: a model of the work that thunks do, its coefficients, and how they are fitted to measurements.

mod coefficients;
mod fit;
mod model;
mod runs;

pub use coefficients::{Costs, ElementCosts, MemoryCosts, OpClasses, ProductCosts};
pub use fit::{Fitted, Measured, fit};
pub use model::Model;
