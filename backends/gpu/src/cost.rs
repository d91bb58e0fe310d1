//! What a kernel takes, by roofline: bytes of its distinct loads and stores, arithmetic that it really does, its launch, and how full its
//! waves of blocks are. Coefficients are data, fitted for a device.

use eutectic_backend::{
    AnchorKernel, Body, Cost, Guard, Instr, Kernel, Load, Store, axes,
    fit::{Fitted, Measured, coefficients, off_by_time},
    reach::stored,
    scores::Shares,
};
use eutectic_ir::{
    DType, Type,
    index::{Atom, Index},
    ops::Writes,
};
use serde::{Deserialize, Serialize};

use crate::device::DeviceShape;

/// Bytes that a copy on the way to matrix units brings at once, all of one row.
const COPIED: usize = 16;
/// Rows or columns that are not cut into tiles.
const FEW: f64 = axes::FEW as f64;
/// Blocks of an attention that a processor has at once.
const RESIDENT: f64 = 2.0;
/// What a device may not need at all.
const MAY_BE_NOTHING: [&str; 7] =
    ["launch", "latency", "evaluated", "product", "across", "attention_block", "score_bias"];

/// Coefficients of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Seconds of a launch that does nothing, as a part of a recorded run.
    pub launch: f64,
    /// Seconds from the start of a kernel to the end, whatever little it does.
    pub latency: f64,
    /// Bytes a second, from memory.
    pub bandwidth: f64,
    /// Bytes a second of kernels all of whose bytes fit into the cache.
    pub cached: f64,
    /// Bytes a second that all processors read, from wherever: what is read again is near.
    pub near: f64,
    /// Bytes of the cache that are there for a kernel.
    pub cache: f64,
    /// Operations a second of pointwise expressions.
    pub pointwise: f64,
    /// Neighbours, at most, for which a thread finds once where they lie: as many as the innermost extent is a multiple of.
    pub lanes: f64,
    /// Multiplications and additions a second, in 32 bits.
    pub fma: f64,
    /// The same in 64 bits.
    pub wide: f64,
    /// The same of 16-bit operands, on matrix units.
    pub matrix: f64,
    /// The same of 32-bit operands of which eleven significant bits are enough.
    pub tf32: f64,
    /// Seconds by which 64 terms of the depth, or 64 keys, take longer on matrix units for each operand that threads evaluate on its way to them.
    pub evaluated: f64,
    /// Seconds of a product before its first terms are there and after its last, unless it has a few rows or columns.
    pub product: f64,
    /// Seconds by which a product of a few rows takes longer where the right operand does not lie along the sums.
    pub across: f64,
    /// Seconds of a block of an attention before its first keys and after its last.
    pub attention_block: f64,
    /// Operations that reading an element of a bias takes.
    pub score_bias: f64,
    /// Operations a second of attention, in 32 bits.
    pub attention: f64,
    /// The same of 16-bit operands, on matrix units.
    pub matrix_attention: f64,
    /// The same of 32-bit operands of which eleven significant bits are enough.
    pub tf32_attention: f64,
}

/// Bytes of memory that an atomic takes there and back.
const SECTOR: f64 = 32.0;

impl Costs {
    /// From a file.
    ///
    /// # Errors
    /// What of it is not right, with its line.
    pub fn read(text: &str) -> Result<Costs, String> {
        let costs: Costs = toml::from_str(text).map_err(|e| e.to_string())?;
        let table = toml::Table::try_from(costs).map_err(|e| e.to_string())?;
        for (name, x) in table.iter().filter_map(|(name, x)| Some((name, x.as_float()?))) {
            if !(x > 0.0 && x.is_finite() || x == 0.0 && MAY_BE_NOTHING.contains(&&**name)) {
                return Err(format!("{name}: {x} is no cost: it must be positive and finite"));
            }
        }
        Ok(costs)
    }

    /// Costs near these, of devices of that shape, that predict what was measured as well as can be.
    pub fn fit(&self, shape: &DeviceShape, measured: &[Measured]) -> Option<Fitted> {
        let table = toml::Table::try_from(self).ok()?;
        let start: Vec<f64> = table.values().map(toml::Value::as_float).collect::<Option<_>>()?;
        let of = |numbers: &[f64]| -> Option<Costs> {
            let values = numbers.iter().map(|&number| toml::Value::Float(number));
            table.keys().cloned().zip(values).collect::<toml::Table>().try_into().ok()
        };
        let predicted =
            |costs: &Costs| measured.iter().map(|m| costs.cost(shape, &m.kernel).seconds).collect::<Vec<_>>();
        let error = |costs: Costs| off_by_time(predicted(&costs).into_iter().zip(measured.iter().map(|m| m.seconds)));
        let found = of(&coefficients(&start, |numbers| of(numbers).map_or(f64::INFINITY, error)))?;
        Some(Fitted { file: toml::to_string(&found).ok()?, before: predicted(self), after: predicted(&found) })
    }

    /// What a kernel takes.
    pub fn cost(&self, shape: &DeviceShape, kernel: &Kernel) -> Cost {
        let domain = &kernel.body.domain;
        let own = self.expressions(&kernel.body, &kernel.stores);
        let mut seen: Vec<(usize, f64)> = Vec::new();
        let mut read = 0.0;
        for body in kernel.bodies() {
            for instr in &body.instrs {
                if let Instr::Load(load) = instr {
                    let (dtype, count) = kernel.slots[load.slot];
                    let elements = touched(&load.at, &body.domain).min(count as f64);
                    let bytes = elements * dtype.size() as f64;
                    read += points(&body.domain) * dtype.size() as f64;
                    match seen.iter_mut().find(|(slot, _)| *slot == load.slot) {
                        Some((_, most)) => *most = most.max(bytes),
                        None => seen.push((load.slot, bytes)),
                    }
                }
            }
        }
        let written = |s: &Store| {
            touched(&s.at, domain).min(kernel.slots[s.slot].1 as f64) * kernel.slots[s.slot].0.size() as f64
        };
        let bytes = seen.iter().map(|(_, bytes)| bytes).sum::<f64>() + kernel.stores.iter().map(written).sum::<f64>();
        // What is combined in memory goes there one by one.
        let combined = kernel.stores.iter().filter(|store| store.writes != Writes::Apart).count() as f64;
        read += combined * points(domain) * SECTOR;
        let (flops, product, blocks) = self.anchor(kernel);
        let pointwise = own + self.prologues(kernel);
        // Few blocks leave processors idle, and part of the last wave does.
        let waves = (blocks / shape.processors as f64).max(1e-3);
        let full = waves / waves.ceil();
        // Of what is more than the cache, as much again is gone before it is read.
        let hit = (2.0 - bytes / self.cache).clamp(0.0, 1.0);
        let memory = (bytes * (hit / self.cached + (1.0 - hit) / self.bandwidth)).max(read / self.near);
        let busy = memory.max((product + pointwise / self.pointwise) / full) + self.waiting(shape, kernel);
        Cost { seconds: self.launch + self.latency + busy, flops: flops + pointwise, bytes }
    }

    /// Seconds in which a product or an attention waits: matrix units for operands that are evaluated, which copies do not hold up; and blocks
    /// of an attention for their first keys and for stores.
    fn waiting(&self, shape: &DeviceShape, kernel: &Kernel) -> f64 {
        // Operands that come tile by tile, how long they are along what is summed over, how many blocks have results, and what these wait besides.
        let (bodies, along, blocks, besides): (&[&Body], _, _, _) = match &kernel.anchor {
            AnchorKernel::Contraction { lhs, rhs, axes } => {
                let (batch, matrix) = kernel.body.domain.split_at(axes.batch);
                let [rows, columns] = [&matrix[..axes.rows], &matrix[axes.rows..]].map(points);
                // Narrow results are cut into smaller tiles.
                let side = if rows.min(columns) <= 64.0 { 64.0 } else { 128.0 };
                let blocks = points(batch) * (rows / side).ceil() * (columns / side).ceil();
                let besides = match () {
                    () if rows <= FEW && !steps_by_one(rhs, axes.batch + axes.depth) => self.across,
                    () if rows.min(columns) <= FEW => 0.0,
                    () => self.product,
                };
                (&[lhs, rhs], &lhs.domain[axes.batch + axes.rows..], blocks, besides)
            }
            AnchorKernel::Attention { query, key, value, axes, .. } => {
                let blocks = points(&query.domain[..axes.batch + axes.queries]) * stored(kernel) / 64.0;
                let besides = self.attention_block * (blocks / (RESIDENT * shape.processors as f64)).max(1.0);
                (&[query, key, value], &key.domain[axes.batch..axes.batch + axes.keys], blocks, besides)
            }
            _ => return 0.0,
        };
        let on_units = |body: &&Body| {
            let dtype = body.results.first().map_or(DType::F32, |&result| body.instrs[result].dtype());
            dtype.is_half() || body.before_tf32().is_some()
        };
        if !bodies.iter().all(on_units) {
            return besides;
        }
        // Matrix units take queries, keys and values whose terms lie side by side.
        let is_attention = matches!(kernel.anchor, AnchorKernel::Attention { .. });
        let lies = |body: &Body| is_copied(body) && (!is_attention || lies_along_its_last_axis(body));
        let evaluated = bodies.iter().filter(|body| !lies(body)).count() as f64;
        let waves = (blocks / shape.processors as f64).max(1.0);
        self.evaluated * evaluated * points(along) / 64.0 * waves + besides
    }

    /// Operations of an anchor, the seconds that they take, and how many blocks work on it.
    fn anchor(&self, kernel: &Kernel) -> (f64, f64, f64) {
        let domain = points(&kernel.body.domain);
        let rate = |bodies: &[&Body], [wide, matrix, tf32, fma]: [f64; 4]| {
            let dtype = |body: &&Body| body.results.first().map_or(DType::F32, |&r| body.instrs[r].dtype());
            match () {
                () if bodies.iter().any(|b| dtype(b) == DType::F64) => wide,
                () if bodies.iter().all(|b| dtype(b).is_half()) => matrix,
                () if bodies.iter().all(|b| b.before_tf32().is_some()) => tf32,
                () => fma,
            }
        };
        match &kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => (0.0, 0.0, (domain / 2048.0).max(1.0)),
            AnchorKernel::Contraction { lhs, rhs, axes } => {
                let depth = points(&lhs.domain[axes.batch + axes.rows..]);
                let flops = 2.0 * domain * depth;
                let (rows, columns) = kernel.body.domain[axes.batch..].split_at(axes.rows);
                let full = [rows, columns].map(|extents| full_tiles(points(extents))).iter().product::<f64>();
                // Where results are few, parts of the depth go to processors of their own.
                let blocks = domain / 1024.0 * (depth / 128.0).max(1.0);
                let rate = rate(&[lhs, rhs], [self.wide, self.matrix, self.tf32, self.fma]);
                (flops, flops / (rate * full), blocks.max(1.0))
            }
            AnchorKernel::Attention { query, key, value, axes, .. } => {
                let groups = points(&query.domain[..axes.batch]);
                // Of queries, those whose results are stored.
                let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]) * stored(kernel);
                let depth = points(&query.domain[axes.batch + axes.queries..]);
                let keys = points(&key.domain[axes.batch..axes.batch + axes.keys]);
                let columns = points(&value.domain[axes.batch + axes.keys..]);
                let flops = groups * queries * keys * (2.0 * depth + 2.0 * columns + 8.0) * shares(kernel).visible;
                let rates = [0.5 * self.wide, self.matrix_attention, self.tf32_attention, self.attention];
                let seconds = flops / rate(&[query, key, value], rates);
                (flops, seconds, (groups * (queries / 64.0).ceil() * (keys / 256.0).max(1.0)).max(1.0))
            }
        }
    }

    /// Operations of operands' expressions, which are evaluated for each tile of the result that reads them; reading costs nothing more.
    fn prologues(&self, kernel: &Kernel) -> f64 {
        let result = points(&kernel.body.domain);
        let bare = |body: &Body| if is_loaded(body) { 0.0 } else { self.expressions(body, &[]) };
        match &kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => 0.0,
            AnchorKernel::Contraction { lhs, rhs, axes } => {
                let depth = points(&lhs.domain[axes.batch + axes.rows..]).max(1.0);
                // How many tiles of 128 read an element: those across the other operand.
                let again = |body: &Body| (result * depth / points(&body.domain).max(1.0) / 128.0).max(1.0);
                bare(lhs) * again(lhs) + bare(rhs) * again(rhs)
            }
            AnchorKernel::Attention { query, key, value, bias, axes, .. } => {
                let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]);
                let again = (queries / 64.0).max(1.0);
                // Threads read it element by element; what many scores have in common is read once, or near.
                let of = |bias: &Body| {
                    let elements = |instr: &Instr| match instr {
                        Instr::Load(load) => touched(&load.at, &bias.domain),
                        _ => 0.0,
                    };
                    self.expressions(bias, &[]) + bias.instrs.iter().map(elements).sum::<f64>() * self.score_bias
                };
                let bias = bias.as_ref().map_or(0.0, of) * shares(kernel).mixed;
                bare(query) + (bare(key) + bare(value)) * again + bias
            }
        }
    }

    /// Operations of a body's expressions over its domain.
    fn expressions(&self, body: &Body, stores: &[Store]) -> f64 {
        let inner = body.domain.len().saturating_sub(1);
        let whole = body.domain.last().map_or(1.0, |extent| f64::from(extent.trailing_zeros()).exp2());
        let share = 1.0 / whole.min(self.lanes).max(1.0);
        // A thread that has several neighbours finds where they lie once, unless divisions part them.
        let at = |index: &Index| {
            let parts = |(atom, _): &(Atom, i64)| match atom {
                Atom::Div(of, _) | Atom::Mod(of, _) => of.mentions(inner),
                Atom::Value(_) => true,
                Atom::Coord(_) | Atom::Extent(_) => false,
            };
            if index.terms.iter().any(parts) { 1.0 } else { share }
        };
        let flops = |instr: &Instr| match instr {
            // What elementary functions take is a few tens of instructions; the table knows which are.
            Instr::Map { op, args, dtype, .. } => {
                let arg = |&a: &usize| Type::tensor(body.instrs[a].dtype(), &[]);
                let args: Vec<_> = args.iter().map(arg).collect();
                let args: Vec<_> = args.iter().collect();
                (op.def().flops)(&args, &Type::tensor(*dtype, &[]))
            }
            Instr::Row { .. } => 1.0,
            Instr::Load(load) => {
                // What is the same for all of them is read once, too.
                let reads = if load.at.values().is_empty() && !load.at.mentions(inner) { share } else { 1.0 };
                2.0 * reads + 2.0 * load.at.terms.len() as f64 * at(&load.at)
            }
            Instr::Select { pieces, .. } => {
                let guards =
                    |(guards, _): &(Vec<Guard>, usize)| guards.iter().map(|(index, _)| at(index)).fold(0.0, f64::max);
                2.0 * pieces.iter().map(guards).sum::<f64>()
            }
            Instr::Within { .. } => 4.0,
            Instr::Coordinate { .. } => 2.0,
            Instr::Constant { .. } | Instr::Anchor { .. } => 0.0,
        };
        let each: f64 = body.instrs.iter().map(flops).sum();
        points(&body.domain) * (each + 2.0 * stores.len() as f64)
    }
}

/// Which part of the tiles of a product has results; a few rows or columns are not cut into tiles.
fn full_tiles(extent: f64) -> f64 {
    if extent <= FEW { 1.0 } else { (extent / 64.0).min(1.0) }
}

/// Whether an operand is what memory has.
fn is_loaded(body: &Body) -> bool {
    let value = body.before_tf32().or(body.results.first().copied());
    value.is_some_and(|value| matches!(body.instrs[value], Instr::Load(_)))
}

/// Whether an operand is what memory has, in steps of the same size along each axis, of whole copies but along one: what copies bring.
fn is_copied(body: &Body) -> bool {
    let is_stepped = |load: &Load| {
        let whole = |step: &i64| (step.unsigned_abs() as usize * load.dtype.size()).is_multiple_of(COPIED);
        load.at.affine(body.domain.len()).is_some_and(|steps| steps.iter().all(|step| *step == 1 || whole(step)))
    };
    let is_plain = |instr: &Instr| match instr {
        Instr::Load(load) => load.guards.is_empty() && is_stepped(load),
        _ => true,
    };
    is_loaded(body) && body.instrs.iter().all(is_plain)
}

/// Whether what a body loads lies side by side along its innermost axis.
fn lies_along_its_last_axis(body: &Body) -> bool {
    let step = |map: &Index| map.affine(body.domain.len()).and_then(|strides| strides.last().copied());
    body.instrs.iter().all(|instr| !matches!(instr, Instr::Load(load) if step(&load.at) != Some(1)))
}

/// Whether anything that a body loads lies side by side along the last of its first axes.
fn steps_by_one(body: &Body, first: usize) -> bool {
    let step = |map: &Index| map.affine(body.domain.len())?.get(first.checked_sub(1)?).copied();
    body.instrs.iter().any(|instr| matches!(instr, Instr::Load(load) if step(&load.at) == Some(1)))
}

fn points(domain: &[usize]) -> f64 {
    domain.iter().map(|&n| n as f64).product()
}

/// How many elements a map can reach over a domain.
fn touched(map: &Index, domain: &[usize]) -> f64 {
    let indirect = map.terms.iter().any(|(atom, _)| matches!(atom, Atom::Value(_)));
    let axes = domain.iter().enumerate().filter(|(axis, _)| indirect || map.mentions(*axis));
    axes.map(|(_, &n)| n as f64).product()
}

/// The shares of an attention's scores that are not hidden, and of which the bias is not plain.
fn shares(kernel: &Kernel) -> Shares {
    match &kernel.anchor {
        AnchorKernel::Attention { bias: Some(bias), axes, .. } => {
            Shares::of(bias, [axes.batch, axes.queries, axes.keys])
        }
        _ => Shares::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_cost_is_named() {
        let text = include_str!("../../cuda/costs/h200.toml");
        assert!(Costs::read(text).is_ok());
        let with =
            |name: &str, number: &str| text.replacen(&format!("\n{name} = "), &format!("\n{name} = {number} # "), 1);
        for (name, number) in [("latency", "-1.0"), ("fma", "0.0"), ("cache", "nan"), ("matrix", "inf")] {
            let told = Costs::read(&with(name, number)).unwrap_err();
            assert!(told.starts_with(&format!("{name}: ")) && told.contains("is no cost"), "{told}");
        }
        assert!(Costs::read(&with("evaluated", "0.0")).is_ok());
    }
}
