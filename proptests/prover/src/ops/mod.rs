//! The symbolic semantics of the op table: for each op, the element of its result at an index.
//!
//! A pointwise op is a function of elements, and a view is an index map. Any other op is a term of reductions and
//! pointwise functions. Where the reference rounds once, the function `round NAME` encloses the term, and arithmetic
//! inside it is exact. A test compares each op with the interpreter.

mod attention;
mod build;
mod convolution;
mod layer;
mod norm;
mod pointwise;
mod random;
mod reduce;
mod scan;
mod update;
mod view;

use eutectic_ir::{Class, Op};

pub use attention::Head;
pub use build::Semantics;
pub use pointwise::{map, pointwise};
pub use random::defined;
pub use update::target;

/// The semantics of the ops that are not pointwise, by family.
const FAMILIES: &[&[(&str, Semantics)]] = &[
    view::OPS,
    reduce::OPS,
    norm::OPS,
    attention::OPS,
    convolution::OPS,
    layer::OPS,
    scan::OPS,
    update::OPS,
    random::OPS,
];

/// Returns the semantics of an op, or `None` if it has none yet.
pub fn semantics(op: Op) -> Option<Semantics> {
    let own = FAMILIES.iter().copied().flatten().find(|(name, _)| *name == op.name());
    match (own, op.def().class) {
        (Some((_, semantics)), _) => Some(*semantics),
        // An op that can fail is not a function of elements.
        (None, Class::Pointwise) if op.def().ids.is_none() => Some(pointwise),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
