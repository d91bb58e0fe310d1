//! Splits a graph at its loops ([`stages`]) and links the programs of the parts ([`mod@link`]).

pub mod link;
pub mod stages;
