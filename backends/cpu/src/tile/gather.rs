//! Loads whose maps are affine only over a few points. The map's dependence on the innermost axis is tabulated once per
//! tile. Each element of a line then takes one addition and one read.

use eutectic_ir::DType;

use super::{
    access::{CompiledAccess, SplitAccess, TileGuard},
    domain::AxisMask,
};
use crate::simd::{
    Isa,
    pick::{Permute, PickFn, permute, pick},
};

/// The number of elements of a line from which on separate affine runs are faster than element by element.
pub const LONG_RUN: usize = 32;

/// Returns the innermost of the axes of `mask`, if runs along it are short.
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

/// Returns the axes whose coordinates determine a box of a load, within which its map is affine and its guards are
/// constant: the axes of guards, integers, quotients and remainders. Returns `None` if the innermost axis of `mask` is
/// one of them.
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

/// The reading of a load in lines along an axis.
#[derive(Clone, Debug)]
pub struct GatherLines {
    /// The innermost axis on which the load depends.
    pub axis: usize,
    /// The positions of elements.
    pub at: SplitAccess,
    /// Guards that say the same of all of a line.
    pub of_lines: Vec<TileGuard>,
    /// Guards that say the same of all lines.
    pub of_elements: Vec<TileGuard>,
    /// For loads where one 32-bit integer gives each element's position: that integer's value, and the gather function.
    pub picked: Option<(usize, PickFn)>,
    /// The functions that permute 32-bit elements, if all lines share their offsets.
    pub permute: Option<Permute>,
}

impl GatherLines {
    /// Compiles a load that depends on the axes of `mask`, if lines are possible and better than runs. `of_value` gives
    /// the axes on which an integer depends.
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
    /// Gathers elements of `size` bytes of a buffer of `count` elements, if one integer gives each position.
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

/// The writing of a store at integers in lines along an axis.
#[derive(Clone, Debug)]
pub struct ScatterLines {
    /// The innermost axis on which the store depends.
    pub axis: usize,
    /// The positions of elements.
    pub at: SplitAccess,
    /// Guards that say the same of all of a line.
    pub of_lines: Vec<TileGuard>,
    /// Other guards: expressions that must be in ranges.
    pub of_elements: Vec<(SplitAccess, std::ops::Range<i64>)>,
}

impl ScatterLines {
    /// Compiles a store that depends on the axes of `mask`, like [`GatherLines::new`].
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
