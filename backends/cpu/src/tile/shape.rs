//! What running a tile takes that depends on its extents alone, worked out once for the extents that a kernel's tiles have.

use super::{MAX_RANK, Mask, Step, Tile, TileProgram};
use crate::simd::stream::LINE;

/// Lines that are asked for at a time, at most.
const LINES: usize = 8;
/// The fewest elements after which a run pauses to ask for memory: fewer take less time than starting anew.
const SHORTEST: usize = 128;

/// A program, for tiles of certain extents.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The extents.
    pub len: [usize; MAX_RANK],
    /// For each step.
    pub steps: Vec<Walk>,
    /// How often there is time to ask for what comes later.
    pub turns: usize,
    /// Elements after which a run pauses for that.
    pub piece: usize,
}

/// How a step goes through a tile.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Of a load, whether it is read in place; of a pointwise step, whether it can be computed at the place of its store.
    pub dense: bool,
    /// Elements of a run: of the innermost loop, of a row that is reduced, or of all that a load reads in place.
    pub n: usize,
    /// Bytes that arguments and result move with each element of a run.
    pub unit: [isize; 4],
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
        let steps: Vec<_> = (0..program.steps.len()).map(|id| walk(program, &tile, id)).collect();
        // What differs from tile to tile.
        let all = (0..program.domain.len()).fold(0, |mask: Mask, d| mask | 1 << d);
        let bytes =
            |id: usize| if program.values[id].mask == all { steps[id].n * program.values[id].dtype.size() } else { 0 };
        let is_load = |step: &Step| matches!(step, Step::Affine { .. } | Step::Boxed { .. });
        let loads = (0..steps.len()).filter(|&id| steps[id].dense && is_load(&program.steps[id]));
        let lines = loads.map(bytes).sum::<usize>() / LINE;
        let turns = |piece: usize| -> usize {
            let of_step = |(step, walk): (&Step, &Walk)| match step {
                Step::Point { .. } if walk.outer.is_empty() => walk.n.div_ceil(piece),
                Step::Point { .. } => walk.outer.iter().map(|o| o.0).product(),
                Step::Reduce { .. } => walk.rows,
                _ => 0,
            };
            program.steps.iter().zip(&steps).map(of_step).sum()
        };
        // Pieces are as long as lets a core wait for so many lines.
        let mut piece = tile.count(all).max(1);
        while piece > SHORTEST && turns(piece) * LINES < lines {
            piece = (piece / 2).next_multiple_of(LINE);
        }
        Shape { len: *len, turns: turns(piece), piece, steps }
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
            walk.unit = std::array::from_fn(|i| if varies(i) { sizes[i] } else { 0 });
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
