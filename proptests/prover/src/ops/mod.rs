//! The op table once more, as symbolic semantics: for each op, the element of its result at an index.
//!
//! A pointwise op is a function of elements, and views are index maps. Anything else is a term of reductions and pointwise functions, put into one
//! function `round NAME` where the reference rounds once: inside of it, arithmetic is that of reals. A test compares each of them with the interpreter.

mod attention;
mod build;
mod convolution;
mod layer;
mod norm;
mod pointwise;
mod reduce;
mod scan;
mod update;
mod view;

use eutectic_ir::{Class, Op};

pub use attention::Head;
pub use build::Semantics;
pub use pointwise::{map, pointwise};
pub use update::target;

/// The ops that are no functions of elements, family by family.
const FAMILIES: &[&[(&str, Semantics)]] =
    &[view::OPS, reduce::OPS, norm::OPS, attention::OPS, convolution::OPS, layer::OPS, scan::OPS, update::OPS];

/// The meaning of an op; `None` for those that have none yet.
pub fn semantics(op: Op) -> Option<Semantics> {
    let own = FAMILIES.iter().copied().flatten().find(|(name, _)| *name == op.name());
    match (own, op.def().class) {
        (Some((_, semantics)), _) => Some(*semantics),
        // An op that can fail is no function of elements.
        (None, Class::Pointwise) if op.def().ids.is_none() => Some(pointwise),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
