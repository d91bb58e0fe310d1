//! Programs with loops: a graph is cut at its loops ([`stages`]), and the programs of the parts are linked ([`mod@link`]).

pub mod link;
pub mod stages;
