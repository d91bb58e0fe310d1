//! Loads whose maps stay affine for a few points only: what a map takes from the innermost axis is worked out once for a tile, and a line of
//! the load is then a sum and a read for each element.

use super::{
    access::{CompiledAccess, SplitAccess, TileGuard},
    domain::AxisMask,
};

/// Elements of a line from which on a run of its own takes less time than its elements one by one.
pub const LONG_RUN: usize = 32;

/// How a load is read in lines along an axis.
#[derive(Clone, Debug)]
pub struct GatherLines {
    /// The innermost axis on which the load depends.
    pub axis: usize,
    /// Where elements lie.
    pub at: SplitAccess,
    /// Guards that say the same of all of a line.
    pub of_lines: Vec<TileGuard>,
    /// Guards that say the same of all lines.
    pub of_elements: Vec<TileGuard>,
}

impl GatherLines {
    /// Of a load that depends on the axes of `mask`, if that is better than runs and can be; `of_value` are the axes on which a value
    /// depends that maps mention.
    pub fn new(
        access: &CompiledAccess,
        guards: &[TileGuard],
        mask: AxisMask,
        of_value: &dyn Fn(usize) -> AxisMask,
    ) -> Option<GatherLines> {
        let axis = mask.checked_ilog2()? as usize;
        let accesses = || guards.iter().map(|guard| &guard.access).chain([access]);
        if accesses().map(|access| access.shortest_run(axis, of_value)).min()? >= LONG_RUN {
            return None;
        }
        let (mut of_lines, mut of_elements) = (Vec::new(), Vec::new());
        for guard in guards {
            match guard.access.depends_on(of_value) {
                mask if mask >> axis & 1 == 0 => of_lines.push(guard.clone()),
                mask if mask == 1 << axis && guard.access.values().is_empty() => of_elements.push(guard.clone()),
                _ => return None,
            }
        }
        Some(GatherLines { axis, at: access.split(axis, of_value)?, of_lines, of_elements })
    }
}
