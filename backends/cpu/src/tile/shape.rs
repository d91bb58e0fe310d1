//! What running a tile takes that depends on its extents alone, worked out once for the extents that a kernel's tiles have.

use super::{MAX_RANK, Mask, Step, Tile, TileProgram};

/// A program, for tiles of certain extents.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The extents.
    pub len: [usize; MAX_RANK],
    /// For each step.
    pub steps: Vec<Walk>,
    /// How many steps compute.
    pub computing: usize,
}

/// How a step goes through a tile.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Of a load, whether it is read in place; of a pointwise step, whether it can be computed at the place of its store.
    pub dense: bool,
    /// Elements of a run: of the innermost loop, of a row that is reduced, or of all that a load reads in place.
    pub n: usize,
    /// Whether it goes over much of the tile, other than by reading it in place.
    pub computes: bool,
    /// Rows that are reduced.
    pub rows: usize,
    /// Which arguments are one element for the whole run.
    pub scalar: u8,
    /// The loops around runs, innermost first: how often, and how many bytes arguments and result move.
    pub outer: Vec<(usize, [isize; 4])>,
}

impl Shape {
    /// Of a program, for tiles of `len`.
    pub fn new(program: &TileProgram, len: &[usize; MAX_RANK]) -> Shape {
        let tile = Tile { start: [0; MAX_RANK], len: *len };
        let mut steps: Vec<_> = (0..program.steps.len()).map(|id| walk(program, &tile, id)).collect();
        for (step, walk) in program.steps.iter().zip(&mut steps) {
            let most = step.args().into_iter().map(|arg| tile.count(program.values[arg].mask)).max().unwrap_or(0);
            walk.computes = 2 * most > tile.count(Mask::MAX);
        }
        let computing = steps.iter().filter(|s| s.computes).count();
        Shape { len: *len, steps, computing }
    }

    /// Whether a tile has these extents. They are compared one by one: read together, what was just written would be waited for
    /// until the stores before it, perhaps past the caches, are through.
    pub fn is_of(&self, tile: &Tile) -> bool {
        self.len.iter().zip(&tile.len).all(|(a, b)| a == b)
    }
}

fn walk(program: &TileProgram, tile: &Tile, id: usize) -> Walk {
    let value = &program.values[id];
    match &program.steps[id] {
        Step::Affine { strides, .. } | Step::Boxed { strides, .. } => {
            Walk { dense: is_dense(tile, strides, value.mask), n: tile.count(value.mask), ..Walk::default() }
        }
        Step::Reduce { arg, .. } => {
            let n = tile.count(program.values[*arg].mask & program.row);
            Walk { n, rows: tile.count(value.mask), ..Walk::default() }
        }
        Step::Point { args, groups, .. } => {
            let dense = value.direct.is_some_and(|w| is_dense(tile, &program.writes[w].strides, value.mask));
            let mut sizes = [0, 0, 0, value.dtype.size() as isize];
            args.iter().zip(&mut sizes).for_each(|(&arg, size)| *size = program.values[arg].dtype.size() as isize);
            Walk { dense, ..loops(tile, groups, &sizes) }
        }
        _ => Walk::default(),
    }
}

/// The loops of a pointwise step, whose arguments and result are dense over the axes along which they vary.
fn loops(tile: &Tile, groups: &[(Mask, u8)], sizes: &[isize; 4]) -> Walk {
    let mut walk = Walk { n: 1, scalar: 7, ..Walk::default() };
    // In bytes, of all loops so far.
    let mut spans = *sizes;
    for &(mask, varying) in groups {
        let count = tile.count(mask);
        if count == 1 {
            continue;
        }
        // The result varies along all axes.
        let varies = |i: usize| (varying | 8) >> i & 1 == 1;
        if walk.n == 1 && walk.outer.is_empty() {
            (walk.n, walk.scalar) = (count, !varying & 7);
        } else {
            walk.outer.push((count, std::array::from_fn(|i| if varies(i) { spans[i] } else { 0 })));
        }
        (0..4).filter(|&i| varies(i)).for_each(|i| spans[i] *= count as isize);
    }
    walk
}

/// Whether strides are those of a dense box over the axes of a mask.
fn is_dense(tile: &Tile, strides: &[i64; MAX_RANK], mask: Mask) -> bool {
    let dense = tile.strides(mask);
    (0..MAX_RANK).all(|d| tile.len[d] <= 1 || strides[d] == dense[d] as i64)
}
