//! Compiles loads and stores whose maps are affine only over a few points, to be done in lines along the innermost
//! axis. The part of the map that depends only on that axis is tabulated once per tile. Each element of a line then
//! takes one addition and one memory access.

use eutectic_ir::DType;

use super::{
    access::{CompiledAccess, SplitAccess, TileGuard},
    domain::AxisMask,
};
use crate::simd::{
    Isa,
    pick::{Permute, PickFn, permute, pick},
};

/// The minimal number of points over which a map must be affine for the load to be read in affine runs. Shorter runs
/// are slower than reading each element by itself.
pub const LONG_RUN: usize = 32;

/// Returns the innermost of the axes of `mask`, if runs along it are shorter than [`LONG_RUN`].
fn axis_of_lines(
    access: &CompiledAccess,
    guards: &[TileGuard],
    mask: AxisMask,
    of_value: &dyn Fn(usize) -> AxisMask,
) -> Option<usize> {
    let axis = mask.checked_ilog2()? as usize;
    let accesses = guards.iter().map(|guard| &guard.access).chain([access]);
    let shortest = accesses.map(|access| access.shortest_run(axis, of_value)).min()?;
    (shortest < LONG_RUN).then_some(axis)
}

/// Returns the axes whose coordinates determine a box of a load in which its map is affine and its guards are constant.
/// These are the axes on which guards, integers of the body, quotients and remainders depend. Returns `None` if the
/// innermost axis of `mask` is one of them.
pub fn axes_of_boxes(
    access: &CompiledAccess,
    guards: &[TileGuard],
    mask: AxisMask,
    of_value: &dyn Fn(usize) -> AxisMask,
) -> Option<AxisMask> {
    let of_guards = guards.iter().fold(0, |axes, guard| axes | guard.access.depends_on(of_value));
    let axes = of_guards | access.cut_by(of_value);
    (axes >> mask.checked_ilog2()? & 1 == 0).then_some(axes)
}

/// A load that is read in lines along an axis.
#[derive(Clone, Debug)]
pub struct GatherLines {
    /// The innermost axis on which the load depends.
    pub axis: usize,
    /// The index map, split at the axis.
    pub at: SplitAccess,
    /// The guards that are constant along a line.
    pub of_lines: Vec<TileGuard>,
    /// The guards that depend only on the position in a line, and so are equal for all lines.
    pub of_elements: Vec<TileGuard>,
    /// If one 32-bit integer of the body gives each element's position in a line: its value, and the gather function.
    pub picked: Option<(usize, PickFn)>,
    /// The functions that gather 32-bit elements by permutations, if offsets from the start of a line are equal in all
    /// lines.
    pub permute: Option<Permute>,
}

impl GatherLines {
    /// Compiles a load that depends on the axes of `mask`. Returns `None` if lines are not possible, or runs are
    /// faster. `of_value` returns the axes on which an integer of the body depends.
    pub fn new(
        access: &CompiledAccess,
        guards: &[TileGuard],
        mask: AxisMask,
        of_value: &dyn Fn(usize) -> AxisMask,
    ) -> Option<GatherLines> {
        let axis = axis_of_lines(access, guards, mask, of_value)?;
        let (mut of_lines, mut of_elements) = (Vec::new(), Vec::new());
        for guard in guards {
            match guard.access.depends_on(of_value) {
                mask if mask >> axis & 1 == 0 => of_lines.push(guard.clone()),
                mask if mask == 1 << axis && guard.access.values().is_empty() => of_elements.push(guard.clone()),
                _ => return None,
            }
        }
        Some(GatherLines {
            axis,
            at: access.split(axis, of_value)?,
            of_lines,
            of_elements,
            picked: None,
            permute: None,
        })
    }
}

impl GatherLines {
    /// Chooses the functions that gather elements of `size` bytes from a buffer of `count` elements, if vector
    /// instructions can do that. `dtype_of` returns the element type of a value.
    pub fn pick(&mut self, (size, count): (usize, usize), dtype_of: &dyn Fn(usize) -> DType, isa: Isa) {
        if size != size_of::<u32>() || i32::try_from(count).is_err() {
            return;
        }
        self.permute = permute(isa);
        let [(value, 1)] = self.at.read[..] else { return };
        if dtype_of(value) == DType::I32 && self.of_elements.is_empty() && self.at.inner.is_zero() {
            self.picked = Some((value, pick(isa)));
        }
    }
}

/// A scatter that is written in lines along an axis.
#[derive(Clone, Debug)]
pub struct ScatterLines {
    /// The innermost axis on which the scatter depends.
    pub axis: usize,
    /// The index map, split at the axis.
    pub at: SplitAccess,
    /// The guards that are constant along a line.
    pub of_lines: Vec<TileGuard>,
    /// The other guards: maps, split at the axis, and the ranges in which they must be.
    pub of_elements: Vec<(SplitAccess, std::ops::Range<i64>)>,
}

impl ScatterLines {
    /// Compiles a scatter that depends on the axes of `mask`. Returns `None` if lines are not possible, or runs are
    /// faster. `of_value` returns the axes on which an integer of the body depends.
    pub fn new(
        access: &CompiledAccess,
        guards: &[TileGuard],
        mask: AxisMask,
        of_value: &dyn Fn(usize) -> AxisMask,
    ) -> Option<ScatterLines> {
        let axis = axis_of_lines(access, guards, mask, of_value)?;
        let (of_elements, of_lines): (Vec<_>, Vec<_>) =
            guards.iter().cloned().partition(|guard| guard.access.depends_on(of_value) >> axis & 1 == 1);
        let split = |guard: TileGuard| Some((guard.access.split(axis, of_value)?, guard.from..guard.to));
        let of_elements = of_elements.into_iter().map(split).collect::<Option<_>>()?;
        Some(ScatterLines { axis, at: access.split(axis, of_value)?, of_lines, of_elements })
    }
}
