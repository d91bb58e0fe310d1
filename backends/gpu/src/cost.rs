//! Prices kernels by a roofline: bytes of distinct loads and stores, arithmetic, launch time, and the utilization of
//! the last wave of blocks. Coefficients are data, fitted to a device.

use eutectic_backend::{
    BackendError, Body, Cost, Guard, Instr, Kernel, Setup, Store, cost_table,
    costs::{self, CostSheet, Provenance},
    fit::{Fitted, Freedom, Measured, fitted, off_by_time},
};
use eutectic_ir::{
    Type,
    index::{Atom, Index},
};
use serde::{Deserialize, Serialize};

use crate::{
    device::DeviceShape,
    kernels::{
        direct::{Direct, Rates},
        in_order::split_stores,
        map,
        rows::{
            RESIDENT, Rows,
            radix::{Deed, DigitPass},
            ranking::Ranking,
            split_rankings, split_scans,
        },
        stages::Stage,
    },
    ranking_costs::{RankingCosts, Work},
    sectors::{MIN_ANALYSED_POINTS, TOGETHER, accesses, orders, points, sectors, touched},
};

cost_table! {
    /// Coefficients of a device.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Costs {
        /// Seconds of an empty launch in a recorded run.
        launch: SecondsOrNone,
        /// Minimal seconds from the start of a kernel to its end.
        latency: SecondsOrNone,
        /// Seconds of one step of a scan. In each step, the threads of a row scan a few points each and exchange a
        /// value, before the next points can start.
        turn: SecondsOrNone,
        /// Seconds of one step of a ranking: each thread of a block accesses a few elements in shared memory and waits at a
        /// barrier.
        exchange: SecondsOrNone,
        /// Seconds of an atomic on an element that all other atomics of the kernel update. For n elements, the time is
        /// divided by √n.
        contended: SecondsOrNone,
        /// The cost of one atomic on shared memory: the number of bytes that first-level caches deliver in the same
        /// time.
        combined: Bytes,
        /// Bytes a second, from memory.
        bandwidth: BytesPerSecond,
        /// Bytes a second of kernels all of whose bytes fit into the cache.
        cached: BytesPerSecond,
        /// Bytes per second that all processors together read through their first-level caches or shared memory.
        near: BytesPerSecond,
        /// Bytes of the second-level cache that the data of a kernel can occupy.
        cache: Bytes,
        /// Operations a second of pointwise expressions.
        pointwise: OpsPerSecond,
        /// The maximal number of neighbouring points for which a thread computes addresses once. The actual number is
        /// limited to the largest power of two that divides the innermost extent.
        lanes: Count,
        /// Multiplications and additions per second, in 32 bits.
        fma: OpsPerSecond,
        /// Multiplications and additions per second, in 64 bits.
        wide: OpsPerSecond,
        /// Multiplications and additions per second of 16-bit operands, on matrix units.
        matrix: OpsPerSecond,
        /// Multiplications and additions per second of 32-bit operands rounded to TF32 (eleven significant bits), on matrix
        /// units.
        tf32: OpsPerSecond,
        /// Additional seconds per 64 terms of a product's depth, or per 64 keys of an attention. They apply to each
        /// operand that threads evaluate instead of copying it to the matrix units.
        evaluated: SecondsOrNone,
        /// Seconds of each read of an operand that is not a strided matrix, such as windows of an image, in a tiled
        /// product. One read takes several neighbours.
        gathered: SecondsOrNone,
        /// Seconds of a tiled product before its first terms arrive and after its last ones. Products of few rows or
        /// columns are not tiled, and have no such seconds.
        product: SecondsOrNone,
        /// Additional seconds of a product of few rows if the right operand is not contiguous along the depth.
        across: SecondsOrNone,
        /// Seconds that a block of an attention takes before its first keys arrive and after its last ones.
        attention_block: SecondsOrNone,
        /// Operations that it takes to read one element of an attention's bias.
        score_bias: CountOrNone,
        /// Operations per second of attention, in 32 bits.
        attention: OpsPerSecond,
        /// Operations per second of attention with 16-bit operands, on matrix units.
        matrix_attention: OpsPerSecond,
        /// Operations per second of attention with 32-bit operands rounded to TF32, on matrix units.
        tf32_attention: OpsPerSecond,
    }
    flattened {
        /// The cost coefficients of rankings.
        rankings: RankingCosts,
    }
}

/// The cost coefficients of a device, with their origin.
#[derive(Clone, Debug)]
pub struct DeviceCosts {
    /// The coefficients.
    pub of: Costs,
    /// The measurement from which the coefficients were fitted; `None` for coefficients that the backend embeds.
    pub provenance: Option<Provenance>,
}

impl DeviceCosts {
    /// Returns the coefficients that the setup has for a device. Embedded coefficients take the place of missing ones.
    ///
    /// # Errors
    /// Returns the errors of [`Setup::costs_for`] and [`Costs::over`].
    pub fn choose(setup: &Setup, backend: &str, device: &str, embedded: Costs) -> Result<DeviceCosts, BackendError> {
        let Some(file) = setup.costs_for(backend, device)? else {
            return Ok(DeviceCosts { of: embedded, provenance: None });
        };
        let wrong = |problem| BackendError::Setup { option: "costs", problem };
        Ok(DeviceCosts { of: embedded.over(&file.text).map_err(wrong)?, provenance: file.provenance })
    }

    /// Returns the coefficients with their units and documentation.
    pub fn sheet(&self) -> CostSheet {
        CostSheet { coefficients: self.of.coefficients(), lists: Vec::new(), provenance: self.provenance.clone() }
    }
}

/// The longest innermost axis whose points one thread may compute.
const SHORT_AXIS: usize = 16;

impl Costs {
    /// Reads a complete file of coefficients, such as those that the backends embed.
    ///
    /// # Errors
    /// Returns an error if a coefficient is missing, or if a number is not a valid cost.
    pub fn read(text: &str) -> Result<Costs, String> {
        let costs: Costs = toml::from_str(text).map_err(|e| e.to_string())?;
        costs.over(text)
    }

    /// Returns these costs, overridden by the coefficients that a file states.
    ///
    /// # Errors
    /// Lists all names that are not coefficients, and all numbers that are not valid costs.
    pub fn over(&self, text: &str) -> Result<Costs, String> {
        costs::read(self, &self.coefficients(), text)
    }

    /// Fits the costs of devices of this shape to measurements, starting from these costs.
    pub fn fit(&self, shape: &DeviceShape, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        let declared = self.coefficients();
        let of = |values: &[f64]| -> Option<Costs> {
            let values = values.iter().map(|&value| toml::Value::Float(value));
            declared.iter().map(|c| c.name.to_string()).zip(values).collect::<toml::Table>().try_into().ok()
        };
        let predicted =
            |costs: &Costs| measured.iter().map(|m| costs.cost(shape, &m.kernel).seconds).collect::<Vec<_>>();
        let error = |costs: Costs| off_by_time(predicted(&costs).into_iter().zip(measured.iter().map(|m| m.seconds)));
        let found = of(&fitted(&declared, freedom, |values| of(values).map_or(f64::INFINITY, error)))?;
        let sheet = CostSheet { coefficients: found.coefficients(), lists: Vec::new(), provenance: None };
        Some(Fitted { file: costs::print(&sheet), before: predicted(self), after: predicted(&found) })
    }

    /// Returns the price of a kernel. A kernel of several launches costs their sum.
    pub fn cost(&self, shape: &DeviceShape, kernel: &Kernel) -> Cost {
        match stages(shape, kernel) {
            Ok(Some(stages)) => sum(stages.iter().map(|stage| self.stage(shape, stage))),
            Ok(None) => self.rows(shape, kernel),
            Err(_) => Cost::IMPOSSIBLE,
        }
    }

    fn stage(&self, shape: &DeviceShape, stage: &Stage) -> Cost {
        match &stage.pass {
            Some(pass) => self.launched(shape, &stage.kernel, self.pass(shape, pass)),
            None => self.cost(shape, &stage.kernel),
        }
    }

    /// Returns the seconds in which the threads of a radix-sort pass access shared memory and wait for each other.
    fn pass(&self, shape: &DeviceShape, pass: &DigitPass) -> f64 {
        let elements = (pass.rows * pass.points) as f64;
        match pass.deed {
            Deed::Count(_) => elements * self.combined / self.near,
            Deed::Move { .. } => {
                let RankingCosts { tile_accesses, tile_waits, .. } = self.rankings;
                let waves = elements / pass.own() as f64 / (shape.processors * RESIDENT) as f64;
                elements * tile_accesses * pass.ranking.key().size() as f64 / self.near
                    + tile_waits * self.exchange * waves.max(1.0)
            }
        }
    }

    /// Returns the price of a kernel, including the steps of its scans and rankings.
    fn rows(&self, shape: &DeviceShape, kernel: &Kernel) -> Cost {
        let scans: f64 = kernel.body.instrs.iter().filter_map(scanned).sum();
        let rankings = Ranking::all(&kernel.body.instrs);
        let rows = (scans > 0.0 || !rankings.is_empty()).then(|| Rows::of(kernel, shape, |_| TOGETHER)).flatten();
        let Some(rows) = rows else { return self.launched(shape, kernel, 0.0) };
        if let Some(launches) = split_scans(&rows) {
            return sum(launches.iter().map(|launch| self.cost(shape, launch)));
        }
        let ranked: f64 = rankings.iter().map(|ranking| self.ranking(&rows, ranking)).sum();
        self.launched(shape, kernel, rows.turns() * scans * self.turn + ranked)
    }

    /// Returns the seconds of a ranking, in which threads access keys and ranks in shared memory and wait for each
    /// other.
    fn ranking(&self, rows: &Rows<'_>, ranking: &Ranking) -> f64 {
        let [count, points] = [0, 1].map(|axis| rows.nest.domain[axis]);
        let way = ranking.way(&rows.shape.rankings, points);
        let Work { bytes, waits } = ranking.work(&self.rankings, way, points);
        count as f64 * bytes / self.near + waits * self.exchange * rows.waves()
    }

    /// Returns the price of one launch. `turns` is the time in seconds in which the threads of a row wait for each
    /// other in scans and rankings.
    fn launched(&self, shape: &DeviceShape, kernel: &Kernel, turns: f64) -> Cost {
        let domain = &kernel.body.domain;
        let own = match has_common_values(kernel) {
            true => self.expressions_of(&kernel.body, &kernel.stores, &map::shares(shape, kernel)),
            false => self.expressions(&kernel.body, &kernel.stores),
        };
        let orders = orders(kernel);
        let moved = |order: &Vec<usize>| {
            accesses(kernel).map(|(at, size)| sectors(at, domain, order, size) * size as f64).sum::<f64>()
        };
        let order = orders.iter().min_by(|a, b| moved(a).total_cmp(&moved(b)));
        // Kernels without an order are tiled, and their tiles are read in the order of memory.
        let sectors = |at: &Index, size: usize| order.map_or(1.0, |order| sectors(at, domain, order, size));
        // Holds, for each buffer, the bytes that threads request, and the bytes of the memory transactions for them.
        let mut seen: Vec<(usize, [f64; 2])> = Vec::new();
        let mut read = 0.0;
        for body in kernel.bodies() {
            for instr in &body.instrs {
                if let Instr::Load(load) = instr {
                    let (dtype, count) = kernel.slots[load.slot];
                    let elements = touched(&load.at, &body.domain).min(count as f64);
                    let sectors = sectors(&load.at, dtype.size());
                    let bytes = elements * dtype.size() as f64;
                    read += points(&body.domain) * dtype.size() as f64 * sectors;
                    // Loads with different index maps may read different elements, so bytes add up, to the whole buffer
                    // at most.
                    let all = (count * dtype.size()) as f64;
                    match seen.iter_mut().find(|(slot, _)| *slot == load.slot) {
                        Some((_, [asked, moved])) => {
                            *asked = (*asked + bytes).min(all);
                            *moved = (*moved + bytes * sectors).min(all * sectors);
                        }
                        None => seen.push((load.slot, [bytes, bytes * sectors])),
                    }
                }
            }
        }
        let written = |s: &Store| {
            let (dtype, count) = kernel.slots[s.slot];
            let bytes = touched(&s.at, domain).min(count as f64) * dtype.size() as f64;
            [bytes, bytes * sectors(&s.at, dtype.size())]
        };
        let all = seen.iter().map(|(_, bytes)| *bytes).chain(kernel.stores.iter().map(written));
        let [bytes, moved] = all.fold([0.0; 2], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        let combined = self.combined(shape, kernel);
        read += combined.bytes;
        let anchor = self.anchor(kernel);
        let pointwise = own + self.prologues(kernel);
        // Few blocks leave processors idle, and so does a partial last wave.
        let waves = (anchor.blocks / shape.processors as f64).max(1e-3);
        let full = waves / waves.ceil();
        // Each byte beyond the cache's size evicts another byte before its reuse. Data of twice the cache's size
        // therefore always misses.
        let hit = (2.0 - bytes / self.cache).clamp(0.0, 1.0);
        let passed = moved * (hit / self.cached + (1.0 - hit) / self.bandwidth);
        let memory = passed.max(read / self.near);
        let busy = memory.max((anchor.seconds + pointwise / self.pointwise) / full).max(turns).max(combined.contended);
        let busy = busy + self.waiting(shape, kernel);
        let rates = Rates { operations: self.fma / 2.0, near: self.near };
        let direct = Direct::of(kernel, shape).map_or(f64::INFINITY, |direct| direct.busy(shape, rates).max(passed));
        Cost { seconds: self.launch + self.latency + busy.min(direct), flops: anchor.flops + pointwise, bytes }
    }

    /// Returns the operations of a body's expressions and stores over its domain.
    pub(crate) fn expressions(&self, body: &Body, stores: &[Store]) -> f64 {
        self.expressions_of(body, stores, &[])
    }

    /// Returns the operations of a body's expressions and stores if each value is computed at its share of the points
    /// only. Values without a share are computed at all points.
    fn expressions_of(&self, body: &Body, stores: &[Store], shares: &[f64]) -> f64 {
        let inner = body.domain.len().saturating_sub(1);
        let whole = body.domain.last().map_or(1.0, |extent| f64::from(extent.trailing_zeros()).exp2());
        let share = 1.0 / whole.min(self.lanes).max(1.0);
        // A thread computes one address for several neighbouring points. If an index depends on data or divides the
        // innermost coordinate, each point needs a separate address.
        let at = |index: &Index| {
            let parts = |(atom, _): &(Atom, i64)| match atom {
                Atom::Div(of, _) | Atom::Mod(of, _) => of.mentions(inner),
                Atom::Value(_) => true,
                Atom::Coord(_) | Atom::Extent(_) => false,
            };
            if index.terms.iter().any(parts) { 1.0 } else { share }
        };
        let flops = |instr: &Instr| match instr {
            // Elementary functions take some tens of instructions; the op table has their number.
            Instr::Map { op, args, dtype, .. } => {
                let arg = |&a: &usize| Type::tensor(body.instrs[a].dtype(), &[]);
                let args: Vec<_> = args.iter().map(arg).collect();
                let args: Vec<_> = args.iter().collect();
                (op.def().flops)(&args, &Type::tensor(*dtype, &[]))
            }
            Instr::Row { .. } => 1.0,
            Instr::Load(load) => {
                // Neighbours that read the same element read it once.
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
        let shares = shares.iter().copied().chain(std::iter::repeat(1.0));
        let each: f64 = body.instrs.iter().zip(shares).map(|(instr, share)| flops(instr) * share).sum();
        points(&body.domain) * (each + 2.0 * stores.len() as f64)
    }
}

/// Returns whether neighbouring points of a large map may share values. They may if the innermost axis is short, or if
/// an index divides its coordinate.
fn has_common_values(kernel: &Kernel) -> bool {
    let domain = &kernel.body.domain;
    let Some((inner, &extent)) = domain.iter().enumerate().next_back() else { return false };
    let divides = |(atom, _): &(Atom, i64)| matches!(atom, Atom::Div(of, _) if of.mentions(inner));
    let is_divided = |instr: &Instr| instr.maps().into_iter().any(|map| map.terms.iter().any(divides));
    kernel.is_map()
        && points(domain) >= MIN_ANALYSED_POINTS
        && (extent <= SHORT_AXIS || kernel.body.instrs.iter().any(is_divided))
}

/// Returns how many numbers threads exchange per element of a scan; `None` if the instruction is not a scan.
fn scanned(instr: &Instr) -> Option<f64> {
    let row = instr.row().filter(|row| row.is_scan())?;
    Some(if row.monoid.is_some() { 1.0 } else { 3.0 })
}

/// Returns the launches of a kernel whose rows are too long for a block, or whose stores are ordered; `None` if one
/// launch is enough.
fn stages(shape: &DeviceShape, kernel: &Kernel) -> Result<Option<Vec<Stage>>, Vec<String>> {
    if kernel.is_map() { split_stores(kernel, shape) } else { split_rankings(kernel, shape) }
}

/// Returns the sum of prices.
fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    let nothing = Cost { seconds: 0.0, flops: 0.0, bytes: 0.0 };
    costs.fold(nothing, |a, b| Cost {
        seconds: a.seconds + b.seconds,
        flops: a.flops + b.flops,
        bytes: a.bytes + b.bytes,
    })
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Load};
    use eutectic_ir::{Attrs, DType, Op};

    use super::*;

    #[test]
    fn a_number_that_is_no_cost_is_named() {
        let text = include_str!("../../cuda/costs/h200.toml");
        assert!(Costs::read(text).is_ok());
        let with =
            |name: &str, number: &str| text.replacen(&format!("\n{name} = "), &format!("\n{name} = {number} # "), 1);
        for (name, number) in [("latency", "-1.0"), ("fma", "0.0"), ("cache", "nan"), ("matrix", "inf")] {
            let told = Costs::read(&with(name, number)).unwrap_err();
            assert!(told.starts_with(&format!("{name}: ")) && told.contains("as a coefficient"), "{told}");
        }
        assert!(Costs::read(&with("evaluated", "0.0")).is_ok());
    }

    #[test]
    fn files_have_the_coefficients_of_rankings() {
        let costs = Costs::read(include_str!("../../cuda/costs/h200.toml")).expect("the embedded file is valid");
        assert_eq!(costs.rankings, RankingCosts::OF_TESTS);
        let told =
            Costs::read(include_str!("../../cuda/costs/h200.toml").replace("\nmerge_waits", "\nmerges").as_str());
        assert!(told.unwrap_err().contains("merge_waits"));
    }

    #[test]
    fn coefficients_of_rankings_are_fitted() {
        let shape = DeviceShape::OF_TESTS;
        let costs = Costs::read(include_str!("../../cuda/costs/h200.toml")).expect("the embedded file is valid");
        let slow = Costs { rankings: RankingCosts { merge_accesses: 20.0, ..costs.rankings }, ..costs };
        let kernels = [1024, 2048, 4096].map(|points| sort(4096, points));
        let measured =
            kernels.map(|kernel| Measured { seconds: slow.cost(&shape, &kernel).seconds, kernel, threads: 1 });
        let fitted = costs.fit(&shape, &measured, Freedom::Each).expect("coefficients");
        let off = |of: &[f64]| off_by_time(of.iter().copied().zip(measured.iter().map(|m| m.seconds)));
        assert!(off(&fitted.before) > 0.3 && off(&fitted.after) < 0.1, "{fitted:?}");
        assert_ne!(costs.over(&fitted.file).expect("a file of costs").rankings, costs.rankings);
    }

    /// Returns a sort of the rows of a matrix.
    fn sort(rows: usize, points: usize) -> Kernel {
        let at = Index::coord(0).times(points as i64).plus(&Index::coord(1));
        let load = Instr::Load(Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype: DType::F32 });
        let attrs: Attrs = [(points as i64).into(), false.into()].into_iter().collect();
        let op = Op::named("ranking").expect("an op");
        let rank = Instr::Row { op, attrs, args: vec![0], dtype: DType::I32 };
        Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body { domain: vec![rows, points], instrs: vec![load, rank], ..Body::default() },
            stores: vec![Store::new(1, at, 1)],
            slots: vec![(DType::F32, rows * points), (DType::I32, rows * points)],
        }
    }
}
