//! Windows: two axes that index maps use only as `stride·position + dilation·tap`, as in convolutions and pools. Such
//! loads can be computed over one united axis. It has each element once, instead of once for each window that contains
//! the element.

use eutectic_ir::index::{Atom, Index};

use crate::{axes::Nest, body::Instr};

/// Two axes of a domain whose coordinates every map of a body uses only as `stride·position + dilation·tap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The axis of window positions.
    pub position: usize,
    /// The axis of the elements within a window.
    pub tap: usize,
    /// The distance of neighbouring windows, in elements of the united axis.
    pub stride: usize,
    /// The distance of neighbouring elements of a window, in elements of the united axis.
    pub dilation: usize,
}

impl Window {
    /// Returns the extent that `positions` windows of `taps` taps cover, including the elements between taps.
    pub fn reach(&self, positions: usize, taps: usize) -> usize {
        self.stride * (positions - 1) + self.dilation * (taps - 1) + 1
    }
}

impl Nest {
    /// Returns the windows with positions along `position` and elements along `tap`. Returns `None` if a map uses these
    /// axes in another way, or if one of them is empty or has an extent at run time. Also returns `None` if the body
    /// checks an index, because an element between windows might fail the check.
    pub fn window(&self, position: usize, tap: usize) -> Option<Window> {
        let fixed = [position, tap].iter().all(|&d| self.domain[d] > 0 && self.lengths.iter().all(|(of, _)| *of != d));
        if !fixed || self.instrs.iter().any(|i| matches!(i, Instr::Within { .. })) {
            return None;
        }
        let mut steps = None;
        self.indices().all(|map| seen(map, position, tap, &mut steps)).then_some(())?;
        let WindowSteps { stride, dilation } = steps?;
        Some(Window { position, tap, stride, dilation })
    }

    /// Returns the nest over the united axis. It replaces the axis `position`, and the axis `tap` is removed.
    pub fn united(&self, window: &Window) -> Nest {
        let mut nest = self.clone();
        nest.domain[window.position] = window.reach(self.domain[window.position], self.domain[window.tap]);
        let domain = nest.domain.clone();
        let maps = nest.instrs.iter_mut().flat_map(Instr::maps_mut);
        maps.for_each(|map| *map = united(map, window, &domain));
        nest.stores.iter_mut().flat_map(|s| s.maps_mut()).for_each(|map| *map = united(map, window, &domain));
        nest.without(window.tap)
    }
}

/// The stride of windows and the dilation within a window, both divided by their greatest common divisor.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WindowSteps {
    stride: usize,
    dilation: usize,
}

/// Returns whether a map and the maps in its divisions use two axes with strides in one proportion, or not at all. If
/// `steps` is set, the proportion must be equal to it; otherwise it is set.
fn seen(map: &Index, position: usize, tap: usize, steps: &mut Option<WindowSteps>) -> bool {
    let mut along = [0_i64; 2];
    for (atom, c) in &map.terms {
        match atom {
            Atom::Coord(n) if *n == position => along[0] = *c,
            Atom::Coord(n) if *n == tap => along[1] = *c,
            Atom::Div(inner, _) | Atom::Mod(inner, _) if !seen(inner, position, tap, steps) => return false,
            _ => {}
        }
    }
    let [a, b] = along;
    if a == 0 && b == 0 {
        return true;
    }
    if a.signum() * b.signum() != 1 {
        return false;
    }
    let (a, b) = (a.unsigned_abs() as usize, b.unsigned_abs() as usize);
    let common = gcd(a, b);
    let of_map = WindowSteps { stride: a / common, dilation: b / common };
    *steps.get_or_insert(of_map) == of_map
}

fn united(map: &Index, window: &Window, domain: &[usize]) -> Index {
    let sum = Index::constant(map.constant);
    map.terms.iter().fold(sum, |sum, (atom, c)| match atom {
        Atom::Coord(n) if *n == window.tap => sum,
        Atom::Coord(n) if *n == window.position => sum.plus(&Index::coord(*n).times(c / window.stride as i64)),
        Atom::Div(inner, by) => sum.plus(&united(inner, window, domain).div(*by, domain).times(*c)),
        Atom::Mod(inner, by) => sum.plus(&united(inner, window, domain).modulo(*by, domain).times(*c)),
        atom => sum.plus(&Index::atom(atom.clone()).times(*c)),
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::DType;

    use super::*;
    use crate::body::Load;

    fn nest(domain: &[usize], at: Index, guard: Index) -> Nest {
        let load = Load { slot: 0, at, guards: vec![(guard, 0..5)], dtype: DType::F32 };
        Nest { domain: domain.to_vec(), instrs: vec![Instr::Load(load)], results: vec![0], ..Nest::default() }
    }

    #[test]
    fn a_padded_convolution_reads_each_element_once() {
        // Four windows of three elements at stride 2 and dilation 3, with eight channels. The first window begins one
        // element before the image.
        let at = Index::coord(0).times(2).plus(&Index::coord(2).times(3)).plus(&Index::constant(-1));
        let nest = nest(&[4, 8, 3], at.times(8).plus(&Index::coord(1)), at.clone());
        let window = nest.window(0, 2).unwrap();
        assert_eq!(window, Window { position: 0, tap: 2, stride: 2, dilation: 3 });
        let united = nest.united(&window);
        assert_eq!(united.domain, [13, 8]);
        for (y, p, c) in (0..4).flat_map(|y| (0..3).flat_map(move |p| (0..8).map(move |c| (y, p, c)))) {
            for (before, after) in nest.indices().zip(united.indices()) {
                assert_eq!(before.eval(&[y, c, p], &|_| 0), after.eval(&[2 * y + 3 * p, c], &|_| 0));
            }
        }
        assert_eq!(nest.window(1, 2), None);
    }

    #[test]
    fn axes_that_maps_see_in_two_proportions_are_no_windows() {
        let at = Index::coord(0).times(2).plus(&Index::coord(1));
        assert!(nest(&[4, 3], at.clone(), at.clone()).window(0, 1).is_some());
        assert_eq!(nest(&[4, 3], at.clone(), Index::coord(0).plus(&Index::coord(1))).window(0, 1), None);
        assert_eq!(nest(&[4, 3], at.clone(), Index::coord(0)).window(0, 1), None);
        let cut = at.div(2, &[4, 3]);
        let united = nest(&[4, 3], at.clone(), cut.clone()).window(0, 1);
        // `div` simplifies ⌊(2y + p)/2⌋ to y + ⌊p/2⌋, which no longer depends on y and p through 2y + p only.
        assert_eq!(united, None, "{cut}");
    }
}
