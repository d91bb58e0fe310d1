//! Prints a direct convolution. One body holds the operands of all terms and the epilogues of all results, and computes
//! each value once.

use eutectic_backend::{Body, Contraction, ContractionAxes, Instr, ValueId, axes::Nest};
use eutectic_ir::index::Index;
use rustc_hash::FxHashMap;

use super::{BLOCK, Direct, Numbers};
use crate::{device::DeviceShape, dialect::Dialect, kernels::emit::Emitter, kernels::lanes::SplitAxis, launch::Launch};

/// The maximal number of blocks per processor. If there are more tiles, each thread processes several.
const BLOCKS: usize = 64;

/// A body with the instructions of several points. Equal instructions with equal maps become one value.
#[derive(Default)]
struct Written {
    nest: Nest,
    known: FxHashMap<Instr, ValueId>,
}

impl Written {
    /// Adds a body with these maps as its coordinates, and returns the number of each of its values.
    fn add(&mut self, nest: &Nest, at: &[Index]) -> Vec<ValueId> {
        let mut values: Vec<ValueId> = Vec::with_capacity(nest.instrs.len());
        for instr in &nest.instrs {
            let mut new = instr.clone();
            new.substitute(at, &|value| values[value], &self.nest.domain);
            let is_anchor = matches!(new, Instr::Anchor { .. });
            let value = match self.known.get(&new) {
                Some(&value) if !is_anchor => value,
                _ => {
                    self.nest.instrs.push(new.clone());
                    let value = self.nest.instrs.len() - 1;
                    self.known.insert(new, value);
                    value
                }
            };
            values.push(value);
        }
        values
    }
}

/// The tile of a thread, with the values of all of its points in one body.
struct WrittenTile {
    nest: Nest,
    /// The points of the tile's results, relative to the first one.
    results: Vec<Numbers>,
    /// The products, in the order of their terms.
    products: Vec<Product>,
    /// The values of epilogues that are sums of products, each with the number of its result.
    sums: Vec<(ValueId, usize)>,
    /// The number of stores of each result. The stores of one result are consecutive.
    stores: usize,
}

/// A product of one term, which is added to the sum of a result.
struct Product {
    /// The number of the result.
    result: usize,
    factors: [ValueId; 2],
}

impl Direct<'_> {
    /// Prints the kernel.
    ///
    /// # Errors
    /// Returns everything that the dialect cannot print.
    pub fn print(&self, dialect: &dyn Dialect, shape: &DeviceShape) -> Result<Launch, Vec<String>> {
        let tile = self
            .write_out()
            .ok_or_else(|| vec!["cannot print a direct convolution because the kernel is not a product".to_string()])?;
        let (outer, rank) = (self.outer, self.extents.len());
        let names: Vec<String> =
            (0..rank).map(|axis| if axis < outer { format!("x{axis}") } else { format!("d{axis}") }).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let nearest = self.order.last().copied().unwrap_or(0);
        let side = SplitAxis { axis: nearest, count: self.lanes };
        let mut emitter = Emitter::new(dialect, &self.kernel.slots, &tile.nest, &names, side, "v");
        let threads = self.threads();
        emitter.line(&dialect.each_point("i", threads, BLOCK));
        self.coordinates(dialect).iter().for_each(|line| emitter.line(line));
        self.add_products(dialect, &tile, &names, &mut emitter);
        // Names that were declared inside of the loops over the depth are out of scope here.
        emitter.forget(|_| true);
        for &(value, n) in &tile.sums {
            let ty = dialect.register(tile.nest.instrs[value].dtype());
            let names = (0..self.lanes).map(|lane| dialect.convert(ty, &format!("sum{n}_{lane}")));
            emitter.set(value, names.collect());
        }
        // A point may store over an element that it loads, so all loads are printed first.
        tile.nest.stores.iter().flat_map(|store| store.values()).for_each(|value| _ = emitter.value(value));
        for (n, result) in tile.results.iter().enumerate() {
            let when = self.is_own(result);
            when.iter().for_each(|when| emitter.line(&format!("if ({when}) {{")));
            (0..tile.stores).for_each(|store| emitter.store(n * tile.stores + store));
            when.iter().for_each(|_| emitter.line("}"));
        }
        emitter.line("}");
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        let blocks = threads.div_ceil(BLOCK).min(shape.processors * BLOCKS);
        Ok(Launch::new(dialect.kernel(&self.kernel.slots, BLOCK, &emitter.text), [blocks, 1, 1], BLOCK))
    }

    /// Returns the tile of a thread; `None` for kernels without a product.
    fn write_out(&self) -> Option<WrittenTile> {
        let (outer, rank) = (self.outer, self.extents.len());
        let operands = self.nests()?;
        let mut written = Written::default();
        // A coordinate is the tile's first result along an axis of the result, and the iteration of a loop along an
        // axis of the depth.
        written.nest.domain = (0..rank)
            .map(|axis| match axis < outer {
                true => self.extents[axis] - self.written[axis] + 1,
                false => self.extents[axis] / self.written[axis],
            })
            .collect();
        let results: Vec<Numbers> = points(&self.written[..outer]).collect();
        let at = |result: &[usize], term: &[usize]| -> Vec<Index> {
            let of = |(axis, &n): (usize, &usize)| match axis < outer || self.written[axis] == 1 {
                true => Index::coord(axis).plus(&Index::constant(n as i64)),
                false => Index::constant(n as i64),
            };
            result.iter().chain(term).enumerate().map(of).collect()
        };
        let mut products = Vec::new();
        for term in points(&self.written[outer..]) {
            for (n, result) in results.iter().enumerate() {
                let at = at(result, &term);
                let mut factor = |which: usize| {
                    let (nest, value) = &operands[which];
                    written.add(nest, &at)[*value]
                };
                products.push(Product { result: n, factors: [factor(0), factor(1)] });
            }
        }
        let own = Nest::new(&self.kernel.body, &self.kernel.stores);
        let mut sums = Vec::new();
        for (n, result) in results.iter().enumerate() {
            let at = at(result, &[]);
            let values = written.add(&own, &at);
            let is_anchor = |value: &usize| matches!(own.instrs[*value], Instr::Anchor { .. });
            sums.extend((0..values.len()).filter(is_anchor).map(|value| (values[value], n)));
            for store in &own.stores {
                let mut store = store.clone();
                store.substitute(&at, &|value| values[value], &written.nest.domain);
                written.nest.stores.push(store);
            }
        }
        Some(WrittenTile { nest: written.nest, results, products, sums, stores: own.stores.len() })
    }

    /// Prints variables for the sums of all results, and the loops over the depth that add products to them.
    fn add_products(&self, dialect: &dyn Dialect, tile: &WrittenTile, names: &[&str], emitter: &mut Emitter<'_>) {
        let ty = dialect.register(self.sum);
        let lanes = || 0..self.lanes;
        for (n, lane) in (0..tile.results.len()).flat_map(|n| lanes().map(move |lane| (n, lane))) {
            emitter.line(&dialect.variable(ty, &format!("sum{n}_{lane}"), &dialect.literal(0.0, self.sum)));
        }
        let turns: Vec<usize> = (self.outer..self.extents.len()).filter(|&axis| self.written[axis] == 1).collect();
        for &axis in &turns {
            emitter.line(&dialect.each(names[axis], "0", self.extents[axis], 1));
        }
        for (product, lane) in tile.products.iter().flat_map(|of| lanes().map(move |lane| (of, lane))) {
            let [left, right] = product.factors.map(|value| {
                let name = emitter.lane(value, lane);
                let dtype = dialect.register(tile.nest.instrs[value].dtype());
                if dtype == ty { name } else { dialect.convert(ty, &name) }
            });
            let sum = format!("sum{}_{lane}", product.result);
            emitter.line(&format!("{sum} = {};", dialect.multiply_add(&left, &right, &sum)));
        }
        turns.iter().for_each(|_| emitter.line("}"));
    }

    /// Returns the operands over all axes, each with the value that is multiplied.
    fn nests(&self) -> Option<[(Nest, ValueId); 2]> {
        let Contraction { lhs, rhs, axes } = self.kernel.contraction()?;
        let ContractionAxes { batch, rows, columns, depth } = axes;
        let [inner, outer] = [batch + rows, batch + rows + columns];
        let whole = |axis: usize| self.extents[axis];
        let left = (inner..outer).fold(Nest::of(lhs.clone()), |nest, axis| nest.repeated(axis, whole(axis)));
        // The axes are `[b.. m.. k.. n..]`, so the depth is before the columns.
        let right = (batch..inner).fold(Nest::of(rhs.clone()), |nest, axis| nest.repeated(axis, whole(axis)));
        let order: Vec<usize> = (0..inner).chain(inner + depth..outer + depth).chain(inner..inner + depth).collect();
        let multiplied = |body: &Body| body.before_tf32().or(body.results.first().copied());
        let cut = |nest: Nest| self.cut.map_or(nest.clone(), |(axis, by)| nest.split(axis, by));
        Some([(cut(left), multiplied(lhs)?), (cut(right.permuted(&order)), multiplied(rhs)?)])
    }

    /// Returns statements that declare a thread's tile and its first result along each axis. A last tile that would
    /// reach beyond the end begins earlier.
    fn coordinates(&self, dialect: &dyn Dialect) -> Vec<String> {
        let ty = dialect.index(false);
        let mut lines = Vec::new();
        let mut rest = "i".to_string();
        for (n, &axis) in self.order.iter().enumerate().rev() {
            let (tiles, count) = (self.tiles(axis), self.written[axis]);
            let number = if n == 0 { rest.clone() } else { dialect.modulo(&rest, tiles as i64, false, false) };
            lines.push(dialect.declare(ty, &format!("tile{axis}"), &number));
            let first = format!("(tile{axis} * {count})");
            let last = self.extents[axis] - count;
            let first = match self.extents[axis].is_multiple_of(count) {
                true => first,
                false => dialect.choose(&format!("{first} < {last}"), &first, &last.to_string()),
            };
            lines.push(dialect.declare(ty, &format!("x{axis}"), &first));
            if n > 0 {
                lines.push(dialect.declare(
                    ty,
                    &format!("rest{axis}"),
                    &dialect.div(&rest, tiles as i64, false, false),
                ));
                rest = format!("rest{axis}");
            }
        }
        lines
    }

    /// Returns the conditions under which no earlier tile has the same result.
    fn is_own(&self, result: &[usize]) -> Vec<String> {
        let overlaps = |axis: &usize| !self.extents[*axis].is_multiple_of(self.written[*axis]);
        let condition = |axis: usize| format!("x{axis} + {} >= tile{axis} * {}", result[axis], self.written[axis]);
        (0..self.outer).filter(overlaps).map(condition).collect()
    }
}

/// Returns all points of a domain. The last axis varies fastest.
fn points(domain: &[usize]) -> impl Iterator<Item = Numbers> {
    let count = domain.iter().product();
    (0..count).map(move |n: usize| {
        let mut rest = n;
        let mut at: Numbers = domain.iter().map(|_| 0).collect();
        for (at, &extent) in at.iter_mut().zip(domain).rev() {
            (*at, rest) = (rest % extent, rest / extent);
        }
        at
    })
}
