//! Derives the execution plan of tiles from a program and the extents of the tiles.

use super::{Stage, TOGETHER, TileLayout, TileShape, TileWalk, place};
use crate::{
    simd::{pointwise::BLOCK, stream::LINE},
    tile::{
        domain::{AxisMask, MAX_RANK, Tile},
        loops::Loops,
        program::{TileProgram, TileStep},
    },
};

/// The maximal number of cache lines per prefetch. A core has more line-fill buffers than this.
const LINES: usize = 10;
/// The minimal number of elements of a strip. Computing fewer elements takes less time than starting the loop.
const SHORTEST: usize = 256;

impl TileShape {
    /// Derives the execution plan of a program for tiles with extents `len`.
    pub fn new(program: &TileProgram, len: &[usize; MAX_RANK]) -> TileShape {
        let tile = Tile { start: [0; MAX_RANK], len: *len };
        let free = Free::new(program);
        let mut steps: Vec<TileWalk> = Vec::with_capacity(program.steps.len());
        for id in 0..program.steps.len() {
            steps.push(walk(program, &tile, id, &steps, &free));
        }
        let loads: Vec<_> =
            (0..steps.len()).filter(|&id| program.load(id).is_some() && steps[id].place == TileLayout::Dense).collect();
        // The loads to prefetch: their data differs from tile to tile, and the program's data exceeds the second-level
        // cache.
        let every = (0..program.domain.len()).fold(0, |mask: AxisMask, d| mask | 1 << d);
        let moving = loads.iter().filter(|&&id| program.beyond_l2 && program.values[id].mask == every);
        let lines: Vec<_> =
            moving.map(|&id| (steps[id].n * program.values[id].dtype.size()).div_ceil(LINE) + 1).collect();
        let (all, longest) = (lines.iter().sum::<usize>(), lines.iter().max().copied().unwrap_or(0));
        let between = !program.steps.iter().zip(&steps).any(|(step, walk)| asks(step) && walk.loops.n >= BLOCK);
        let turns = |piece: usize| -> usize {
            let of_step = |(step, walk): (&TileStep, &TileWalk)| match step {
                TileStep::Point { .. } if between => walk.loops.n.div_ceil(piece) * walk.loops.runs(),
                TileStep::Point { .. } if asks(step) => walk.loops.n / BLOCK * walk.loops.runs(),
                TileStep::Reduce { .. } => walk.rows,
                _ => 0,
            };
            program.steps.iter().zip(&steps).map(of_step).sum()
        };
        // Strips are as long as possible, but so short that there are enough prefetches for all lines.
        let mut piece = tile.len.iter().product::<usize>().max(1);
        while piece > SHORTEST && turns(piece) * LINES < all {
            piece = (piece / 2).next_multiple_of(LINE);
        }
        let turns = turns(piece).max(1);
        let each = ((longest + turns / 2) / turns).max(1);
        let of_all = stages(program, &steps, piece, 0..steps.len());
        let of_passes = program.passes.iter().map(|pass| stages(program, &steps, piece, pass.iter().copied()));
        TileShape {
            len: *len,
            stages: [of_all].into_iter().chain(of_passes).collect(),
            lines: longest,
            each,
            between,
            piece,
            loads,
            steps,
        }
    }
}

/// Returns whether a step prefetches while it computes.
fn asks(step: &TileStep) -> bool {
    matches!(step, TileStep::Point { function, .. } if function.asks)
}

impl TileProgram {
    /// Returns the loops of a pointwise step over a tile. `place` is the layout of the result. `in_lines` returns
    /// whether an argument is read in place, in lines of a buffer.
    pub fn loops(
        &self,
        tile: &Tile,
        id: usize,
        place: TileLayout,
        walks: &[TileWalk],
        in_lines: impl Fn(usize) -> bool,
    ) -> Loops {
        let TileStep::Point { args, .. } = &self.steps[id] else { return Loops::default() };
        let side = |id: usize, lines: Option<&[i64; MAX_RANK]>| {
            let value = &self.values[id];
            let strides = lines.map_or_else(|| tile.strides(value.mask), |lines| lines.map(|s| s as isize));
            strides.map(|s| s * value.dtype.size() as isize)
        };
        let mut sides = [[0; MAX_RANK]; 4];
        for (to, &arg) in sides.iter_mut().zip(args) {
            *to = side(arg, walks[arg].lines.filter(|_| in_lines(arg)).and_then(|load| self.load(load)));
        }
        let write = self.values[id].direct.map(|write| &self.writes[write].strides);
        sides[3] = side(id, write.filter(|_| place == TileLayout::Lines));
        Loops::new(tile, self.values[id].mask, &sides)
    }
}

/// Returns the stages of some steps in order. Consecutive pointwise steps with equal loops form a stage, if their runs
/// are longer than a strip.
fn stages(program: &TileProgram, walks: &[TileWalk], strip: usize, ids: impl Iterator<Item = usize>) -> Vec<Stage> {
    let alike = |a: usize, b: usize| {
        program.values[a].mask == program.values[b].mask
            && walks[a].loops.goes_with(&walks[b].loops)
            && walks[a].loops.n > strip
    };
    let mut stages: Vec<Stage> = Vec::new();
    for id in ids {
        if !matches!(program.steps[id], TileStep::Point { .. }) {
            stages.push(Stage::Step(id));
            continue;
        }
        let varies = walks[id].varies || walks[id].place == TileLayout::Lines;
        match stages.last_mut() {
            Some(Stage::Points { ids, vary }) if ids.len() < TOGETHER && alike(ids[0], id) => {
                ids.push(id);
                *vary |= varies;
            }
            _ => stages.push(Stage::Points { ids: vec![id], vary: varies }),
        }
    }
    stages
}

/// Whether values may be in lines of a buffer instead of a register.
struct Free {
    /// For each value, whether all steps that use it can read it in lines.
    to_read: Vec<bool>,
    /// For each value, whether it can be computed into lines of a buffer, because it is stored once and not read.
    to_store: Vec<bool>,
}

impl Free {
    fn new(program: &TileProgram) -> Free {
        let n = program.steps.len();
        let (mut reads, mut stores, mut to_read) = (vec![0; n], vec![0; n], vec![true; n]);
        for step in &program.steps {
            let can = matches!(step, TileStep::Point { .. } | TileStep::Pieces { .. } | TileStep::Spread(_));
            step.args().into_iter().for_each(|arg| (reads[arg], to_read[arg]) = (reads[arg] + 1, to_read[arg] && can));
        }
        program.writes.iter().for_each(|w| stores[w.value] += 1);
        let in_registers = program.results.iter().copied().chain(program.scattered());
        in_registers.for_each(|r| (reads[r], to_read[r]) = (reads[r] + 1, false));
        // With streaming stores, results are computed into registers and copied from there.
        let may = program.streams.is_none();
        let to_store = (0..n).map(|id| may && stores[id] == 1 && reads[id] == 0).collect();
        Free { to_read, to_store }
    }
}

fn walk(program: &TileProgram, tile: &Tile, id: usize, before: &[TileWalk], free: &Free) -> TileWalk {
    let value = &program.values[id];
    match &program.steps[id] {
        TileStep::Affine { strides, .. } | TileStep::Boxed { strides, .. } => {
            let place = place(tile, strides, value.mask, free.to_read[id]);
            TileWalk {
                place,
                lines: (place == TileLayout::Lines).then_some(id),
                n: tile.count(value.mask),
                ..TileWalk::default()
            }
        }
        TileStep::Pieces { pieces, .. } => {
            let lines = match pieces.as_slice() {
                [(_, piece)] if free.to_read[id] && program.values[*piece].mask == value.mask => before[*piece].lines,
                _ => None,
            };
            TileWalk { lines, ..TileWalk::default() }
        }
        TileStep::Reduce { arg, .. } => {
            let n = tile.count(program.values[*arg].mask & program.row);
            TileWalk { n, rows: tile.count(value.mask), ..TileWalk::default() }
        }
        TileStep::Ranking { .. } | TileStep::Scan { .. } => {
            let n = tile.count(value.mask & program.row);
            let lanes = tile.count(value.mask & program.beside());
            let rows = tile.count(value.mask & !program.row & !program.beside());
            TileWalk { n, rows, lanes, ..TileWalk::default() }
        }
        TileStep::Point { args, .. } => {
            let place = value.direct.map_or(TileLayout::Copied, |write| {
                let strides = &program.writes[write].strides;
                // A value that is stored at several positions is computed into a register, and copied to each of them.
                let once = (0..MAX_RANK).all(|d| tile.len[d] <= 1 || (value.mask >> d & 1 == 1) == (strides[d] != 0));
                place(tile, strides, value.mask, once && free.to_store[id])
            });
            let loops = program.loops(tile, id, place, before, |_| true);
            let varies =
                |&arg: &usize| before[arg].lines.is_some() && !matches!(program.steps[arg], TileStep::Affine { .. });
            TileWalk { place, loops, varies: args.iter().any(varies), ..TileWalk::default() }
        }
        _ => TileWalk::default(),
    }
}
