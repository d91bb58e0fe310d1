//! Plans radix sorts: the rows that they sort, and their launches.

use eutectic_backend::{AnchorKernel, Instr, Store};
use eutectic_ir::{
    Attr, DType, Op,
    index::{Atom, Index},
};

use super::{
    long_rows::{Digits, LongRows, Tables},
    radix::{BITS, DIGITS, Deed, DigitPass, Keyed, Source},
    ranking::Ranking,
};
use crate::kernels::stages::{BodyWriter, Stage};

impl LongRows<'_> {
    /// Reserves the workspace of a radix sort, if it takes less time than sorting parts of `part` elements and merging
    /// them.
    pub fn digits(&mut self, ranking: &Ranking, part: usize) -> Option<Digits> {
        let (key, all) = (ranking.key(), self.rows.checked_mul(self.points)?);
        let merges = self.points.div_ceil(part).next_power_of_two().trailing_zeros() as usize;
        let is_faster = merges as f64 >= self.shape.rankings.digit_merges * passes(key) as f64;
        let threads = DigitPass::threads(key, self.shape).filter(|_| is_faster)?;
        let counts = self.rows * DIGITS * DigitPass::tiles(self.points, threads);
        // Positions have 32 bits. Half of their range covers the padding of the last tile as well.
        if all.max(counts) > i32::MAX as usize / 2 {
            return None;
        }
        let (counts, begins) = (self.buffers.part(DType::I32, counts), self.buffers.part(DType::I32, counts));
        let keyed =
            [0, 1].map(|_| Keyed { keys: self.buffers.part(key, all), places: self.buffers.part(DType::I32, all) });
        Some(Digits { threads, counts, begins, keyed })
    }

    /// Returns the launches that sort rows by one digit after the other.
    pub fn passes(&self, ranking: &Ranking, tables: &Tables, digits: &Digits) -> Vec<Stage> {
        let last = passes(ranking.key()) - 1;
        let pass = |n: usize| {
            let values =
                tables.values.or(self.flat(ranking)).expect("values are in the workspace or stored row by row");
            let from = if n == 0 { Source::Values(values) } else { Source::Keyed(digits.keyed[(n - 1) % 2]) };
            let launch = |deed| self.pass(ranking, digits.threads, n, (from, deed));
            let to = digits.keyed[n % 2];
            let moves = Deed::Move { begins: digits.begins, to, is_last: n == last };
            [launch(Deed::Count(digits.counts)), self.scan(digits), launch(moves)]
        };
        (0..=last).flat_map(pass).collect()
    }

    /// Returns a launch that counts or moves elements by a digit. Its kernel describes the loads and stores of the
    /// launch, which determine its price.
    fn pass(&self, ranking: &Ranking, threads: usize, digit: usize, (from, deed): (Source, Deed)) -> Stage {
        let (mut body, at) = (BodyWriter::default(), self.at(0, &Index::coord(1)));
        let key = match from {
            Source::Values(slot) => body.load((slot, ranking.of), at.clone(), Vec::new()),
            Source::Keyed(keyed) => body.load((keyed.keys, ranking.key()), at.clone(), Vec::new()),
        };
        let stores = match deed {
            Deed::Count(_) => Vec::new(),
            Deed::Move { to, is_last, .. } => {
                let place = match from {
                    Source::Values(_) => body.coordinate(Index::coord(1), DType::I32),
                    Source::Keyed(keyed) => body.load((keyed.places, DType::I32), at.clone(), Vec::new()),
                };
                let stores = [Store::new(to.places, at.clone(), place), Store::new(to.keys, at, key)];
                stores.into_iter().take(if is_last { 1 } else { 2 }).collect()
            }
        };
        let stage = self.buffers.stage(AnchorKernel::map(), vec![self.rows, self.points], body.0, stores);
        let (rows, points, shift) = (self.rows, self.points, digit * BITS);
        let pass = DigitPass { ranking: *ranking, rows, points, threads, shift, from, deed };
        Stage { pass: Some(pass), ..stage }
    }

    /// Returns the launch that scans the counts of a row. Smaller digits come first, and equal digits are in the order
    /// of tiles.
    fn scan(&self, digits: &Digits) -> Stage {
        let counts = DIGITS * DigitPass::tiles(self.points, digits.threads);
        let at = Index::coord(0).times(counts as i64).plus(&Index::coord(1));
        let mut body = BodyWriter::default();
        let count = body.load((digits.counts, DType::I32), at.clone(), Vec::new());
        let op = Op::named("scan-sum").expect("the op table has this op");
        let attrs = op.def().attrs.iter().map(|attr| match attr.name {
            "axis" => Attr::Int(-1),
            name => Attr::Bool(name == "exclusive"),
        });
        let attrs = attrs.collect();
        let sum = body.push(Instr::Row { op, attrs, args: vec![count], dtype: DType::I32 });
        let stores = vec![Store::new(digits.begins, at, sum)];
        self.buffers.stage(AnchorKernel::rows(1), vec![self.rows, counts], body.0, stores)
    }

    /// Returns a body over the sorted elements, their ranks, and their positions in the row.
    fn sorted(&self, ranking: &Ranking, digits: &Digits) -> (BodyWriter, usize, usize) {
        let mut body = BodyWriter::default();
        let sorted = digits.keyed[(passes(ranking.key()) - 1) % 2];
        let place = body.load((sorted.places, DType::I32), self.at(0, &Index::coord(1)), Vec::new());
        let place = body.push(self.within_row(place, DType::I32));
        let rank = body.coordinate(Index::coord(1), DType::I32);
        (body, rank, place)
    }

    /// Returns the launch with the stores of a kernel that uses the first elements only.
    pub fn last_of_sorted(&self, ranking: &Ranking, digits: &Digits) -> Stage {
        self.last_of_first(ranking, ranking.order.most.min(self.points), self.sorted(ranking, digits))
    }

    /// Returns the launch that stores the rank of each element at its position in the row.
    pub fn ranks_of_sorted(&self, ranking: &Ranking, digits: &Digits, ranks: usize) -> Stage {
        let (mut body, mut rank, place) = self.sorted(ranking, digits);
        if ranking.order.most < self.points {
            let most = body.constant(ranking.order.most as i64, DType::I32);
            rank = body.op("min", &[rank, most], DType::I32);
        }
        let at = self.at(0, &Index::atom(Atom::Value(place)));
        let domain = vec![self.rows, self.points];
        self.buffers.stage(AnchorKernel::map(), domain, body.0, vec![Store::new(ranks, at, rank)])
    }
}

/// Returns the number of digits of a key.
fn passes(key: DType) -> usize {
    8 * key.size() / BITS
}
