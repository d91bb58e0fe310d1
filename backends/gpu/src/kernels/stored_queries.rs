//! Attention that stores the results of some queries only, because of guards. If the stored queries form a box at each
//! batch point, tiles contain no other queries.

use eutectic_backend::{Attention, AttentionAxes, Body, Guard, Instr, Kernel, axes::Nest, intervals::Mask};
use eutectic_ir::{
    DType,
    index::{Index, unflatten},
};

use crate::{dialect::Dialect, emit::Emitter, lanes::SplitAxis};

/// Returns the expression of a query's number. The query has the number `row` among the stored queries of batch point
/// `b`.
pub fn query_of(row: &str) -> String {
    format!("query_of(b, {row})")
}

/// The maximal number of batch points whose stored queries are counted.
const COUNTED: usize = 1 << 16;

/// The stored queries of each batch point.
#[derive(Debug)]
pub struct StoredQueries {
    /// Points of the batch, as one axis.
    batch: usize,
    /// The queries' axes, outermost first.
    axes: Vec<StoredAxis>,
}

/// An axis of the queries.
#[derive(Debug)]
struct StoredAxis {
    extent: usize,
    /// Conditions on the coordinate: its sum with a map over the batch is within a range.
    bounds: Vec<Guard>,
}

/// The bodies of the two functions by which a printed attention finds its stored queries.
pub struct QueryFunctions {
    /// An expression in `b`: the number of stored queries.
    pub count: String,
    /// An expression in `b` and `row`: the number of the query that is number `row` among the stored queries of `b`. If
    /// `row` is too large, it is the number of any query.
    pub query: String,
}

impl StoredQueries {
    /// Returns the stored queries of an attention kernel. Returns `None` if the guards do not form a box, or if the
    /// bias is a mask. Under a mask, a block must hold neighbouring queries, which see similar keys.
    pub fn of(kernel: &Kernel) -> Option<StoredQueries> {
        let Attention { bias, axes, .. } = kernel.attention()?;
        let is_mask = |bias: &Body| Mask::new(&bias.instrs, &bias.results).is_some();
        if bias.is_some_and(is_mask) {
            return None;
        }
        let AttentionAxes { batch, queries, .. } = axes;
        let domain = &kernel.body.domain;
        let points = domain[..batch].iter().product();
        let of_batch = unflatten(&Index::coord(0), &domain[..batch], &[points]);
        let (first, rest) = kernel.stores.split_first()?;
        let mut axes: Vec<_> =
            domain[batch..batch + queries].iter().map(|&extent| StoredAxis { extent, bounds: Vec::new() }).collect();
        // Collects guards that all stores share, with a step of one along a single query axis. They may depend on the
        // batch in any way.
        for (map, range) in first.guards.iter().filter(|guard| rest.iter().all(|store| store.guards.contains(guard))) {
            let Some(strides) = map.affine(domain.len()) else { continue };
            let mut within = (batch..domain.len()).filter(|&axis| strides[axis] != 0);
            let (Some(axis), None) = (within.next(), within.next()) else { continue };
            if axis >= batch + queries || strides[axis] != 1 {
                continue;
            }
            let base =
                (0..batch).fold(Index::constant(map.constant), |sum, n| sum.plus(&of_batch[n].times(strides[n])));
            axes[axis - batch].bounds.push((base, range.clone()));
        }
        let is_less = axes.iter().any(|axis| !axis.bounds.is_empty());
        (is_less && points > 0).then_some(StoredQueries { batch: points, axes })
    }

    /// Returns the fraction of the tiles of `tile` queries that is computed.
    pub fn share(&self, tile: usize) -> f64 {
        let all = self.axes.iter().map(|axis| axis.extent).product::<usize>().div_ceil(tile) * self.batch;
        if self.batch > COUNTED || all == 0 {
            return 1.0;
        }
        let tiles: usize = (0..self.batch).map(|b| self.count(b).div_ceil(tile)).sum();
        tiles as f64 / all as f64
    }

    /// Returns how many queries of a batch point are stored.
    fn count(&self, b: usize) -> usize {
        let of = |axis: &StoredAxis| {
            let bounds = axis.bounds.iter().fold([0, axis.extent as i64], |[from, to], (base, range)| {
                let base = base.eval(&[b], &|_| 0);
                [from.max(range.start - base), to.min(range.end - base)]
            });
            (bounds[1] - bounds[0]).max(0) as usize
        };
        self.axes.iter().map(of).product()
    }

    fn functions(&self, dialect: &dyn Dialect) -> QueryFunctions {
        let bases = self.axes.iter().flat_map(|axis| &axis.bounds);
        let instrs = bases.map(|(base, _)| Instr::Coordinate { index: base.clone(), dtype: DType::I32 }).collect();
        let nest = Nest::of(Body { domain: vec![self.batch], instrs, ..Body::default() });
        let mut emitter = Emitter::new(dialect, &[], &nest, &["b"], SplitAxis { axis: 0, count: 1 }, "v");
        let names: Vec<String> = (0..nest.instrs.len()).flat_map(|id| emitter.value(id)).collect();
        let int = dialect.register(DType::I32);
        let mut names = names.iter();
        for (n, axis) in self.axes.iter().enumerate() {
            let (mut low, mut high) = ("0".to_string(), axis.extent.to_string());
            for ((_, range), base) in axis.bounds.iter().zip(names.by_ref()) {
                low = format!("max({low}, {} - {base})", range.start);
                high = format!("min({high}, {} - {base})", range.end);
            }
            for (name, value) in [("low", low), ("high", high)] {
                emitter.line(&dialect.declare(int, &format!("{name}{n}"), &value));
            }
        }
        let axes = 0..self.axes.len();
        let wide: Vec<_> = axes.clone().map(|n| format!("max(0, high{n} - low{n})")).collect();
        let count = format!("{}return {};\n", emitter.text, wide.join(" * "));
        emitter.line(&dialect.declare(int, "rest0", "row"));
        let mut query = Vec::new();
        for (turn, n) in axes.rev().enumerate() {
            // A row number beyond the last one still gives valid coordinates.
            emitter.line(&dialect.declare(int, &format!("width{n}"), &format!("max(1, high{n} - low{n})")));
            let inside: usize = self.axes[n + 1..].iter().map(|axis| axis.extent).product();
            let last = self.axes[n].extent - 1;
            query.push(format!("min(low{n} + rest{turn} % width{n}, {last}) * {inside}"));
            emitter.line(&dialect.declare(int, &format!("rest{}", turn + 1), &format!("rest{turn} / width{n}")));
        }
        QueryFunctions { count, query: format!("{}return {};\n", emitter.text, query.join(" + ")) }
    }
}

/// Returns the functions of an attention kernel with `queries` queries per batch point; `None` for `stored` means that
/// all are stored.
pub fn functions(stored: Option<&StoredQueries>, queries: usize, dialect: &dyn Dialect) -> QueryFunctions {
    match stored {
        Some(stored) => stored.functions(dialect),
        None => QueryFunctions {
            count: format!("return {queries};\n"),
            query: format!("return min(row, {});\n", queries.saturating_sub(1)),
        },
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, AttentionAxes, EmptyRow, ScoreForm, Store};

    use super::*;

    /// Attention over windows of an image with `lines` × `columns` windows, which extend beyond the image.
    fn windows([down, across, heads]: [usize; 3], [lines, columns]: [usize; 2], image: [i64; 2]) -> Kernel {
        let domain = vec![down, across, heads, lines, columns, 8];
        let operand = |domain: &[usize]| Body { domain: domain.to_vec(), ..Body::default() };
        let [y, x] = [(0, lines), (1, columns)]
            .map(|(axis, each)| Index::coord(axis).times(each as i64).plus(&Index::coord(3 + axis)));
        let guards = vec![(y, 0..image[0]), (x, 0..image[1])];
        let axes = AttentionAxes { batch: 3, queries: 2, keys: 2, depth: 1, columns: 1 };
        let form = ScoreForm { scale: 1.0, softcap: 0.0, empty: EmptyRow::Nan };
        Kernel {
            anchor: AnchorKernel::attention([0; 3].map(|_| operand(&domain)), None, axes, form),
            body: Body { domain, ..Body::default() },
            stores: vec![Store { guards, ..Store::new(0, Index::default(), 0) }],
            slots: vec![(DType::F32, 1)],
        }
    }

    #[test]
    fn queries_are_counted_as_guards_hold() {
        for (batch, each, image) in
            [([5, 5, 2], [14, 14], [64, 64]), ([2, 1, 1], [4, 30], [7, 30]), ([1, 3, 2], [1, 1], [1, 2])]
        {
            let stored = StoredQueries::of(&windows(batch, each, image)).unwrap();
            let (mut tiles, mut all) = (0, 0);
            for b in 0..batch.iter().product() {
                let origin = [b / batch[2] / batch[1] * each[0], b / batch[2] % batch[1] * each[1]];
                let inside = |n: usize| {
                    let at = [origin[0] + n / each[1], origin[1] + n % each[1]];
                    (at[0] as i64) < image[0] && (at[1] as i64) < image[1]
                };
                let queries = each[0] * each[1];
                let count = (0..queries).filter(|&n| inside(n)).count();
                assert_eq!(stored.count(b), count, "point {b} of {batch:?}");
                (tiles, all) = (tiles + count.div_ceil(64), all + queries.div_ceil(64));
            }
            assert_eq!(stored.share(64), f64::from(tiles as u32) / f64::from(all as u32));
        }
    }

    #[test]
    fn all_are_stored_where_guards_mention_columns_or_two_axes_of_queries() {
        let mut kernel = windows([5, 5, 2], [14, 14], [64, 64]);
        let diagonal = Index::coord(3).plus(&Index::coord(4));
        kernel.stores[0].guards = vec![(diagonal, 0..9), (Index::coord(5), 0..3)];
        assert!(StoredQueries::of(&kernel).is_none());
        // One of two stores has no guards, so all queries are stored.
        let mut two = windows([5, 5, 2], [14, 14], [64, 64]);
        two.stores.push(Store { guards: Vec::new(), ..two.stores[0].clone() });
        assert!(StoredQueries::of(&two).is_none());
    }
}
