//! What a kernel costs: a model that is linear in the work that thunks do, with coefficients from a file.

use eutectic_backend::{
    AnchorKernel, Body, Cost, Guard, Instr, Kernel, Load, Store,
    reach::{
        AxisSet, inside, is_dense, is_of_box, is_of_matrices, is_short, known, line, masks, mentioned, points, row_mask,
    },
    scores::Shares,
    traffic,
    unroll::unrolled,
};
use eutectic_ir::{Attr, DType, Op, index::Index};
use rustc_hash::FxHashMap;

use super::{
    coefficients::{Costs, ElementCosts},
    runs::evaluations,
};
use crate::{
    gemm::gathered,
    kernels::{attention, contraction::tasks},
    simd::table,
    tile::{MAX_RANK, shape::SHORTEST_LINE},
};

/// The model: coefficients, with ops resolved.
pub struct Model {
    costs: Costs,
    threads: usize,
    /// Seconds of an element, for each op and element type that there is a function for.
    by_op: FxHashMap<(Op, DType), f64>,
    /// As `by_op`, of the kinds of activation.
    by_kind: FxHashMap<(&'static str, DType), f64>,
}

/// What was counted so far.
#[derive(Default)]
struct Tally {
    /// Seconds of one thread.
    seconds: f64,
    flops: f64,
    bytes: f64,
}

impl Model {
    /// The model for a number of threads.
    pub fn new(costs: Costs, threads: usize) -> Model {
        let e = &costs.element;
        let seconds = |name: &str, dtype: DType| {
            let is = |class: &[String]| class.iter().any(|n| n == name);
            let of_f32 = match () {
                () if is(&costs.class.division) => e.division,
                () if is(&costs.class.transcendental) => e.transcendental,
                () if is(&costs.class.special) => e.special,
                () if is(&costs.class.scalar) => e.scalar,
                () => e.cheap,
            };
            of_f32 * factor(e, dtype)
        };
        let mut by_op = FxHashMap::default();
        let mut by_kind = FxHashMap::default();
        for dtype in DType::ALL {
            for name in table::names(dtype) {
                by_kind.insert((name, dtype), seconds(name, dtype));
                by_op.extend(Op::named(name).map(|op| ((op, dtype), seconds(name, dtype))));
            }
        }
        Model { costs, threads, by_op, by_kind }
    }

    /// The cost of a kernel. What cannot be compiled costs infinitely much where that shows at a glance (an op or element type
    /// without a function); `supports` is the judge.
    pub fn cost(&self, kernel: &Kernel) -> Cost {
        let unrolled = unrolled(kernel);
        let kernel = unrolled.as_ref().unwrap_or(kernel);
        let mut work = Tally { bytes: traffic::bytes(kernel), ..Tally::default() };
        let m = &self.costs.memory;
        let passes = matches!(kernel.anchor, AnchorKernel::Map | AnchorKernel::Rows { .. });
        self.body(&kernel.body, row_mask(kernel), passes, &mut work);
        for store in &kernel.stores {
            work.seconds += self.store(store, &kernel.body);
        }
        match &kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => {}
            AnchorKernel::Contraction { lhs, rhs, axes } => {
                self.operand(lhs, [axes.batch, axes.rows, axes.depth], true, &mut work);
                // Mostly these are constants: packed once, and widened where they are read.
                if !is_short(rhs) {
                    self.operand(rhs, [axes.batch, axes.depth, axes.columns], false, &mut work);
                }
                let [batch, rows, columns] = extents(&kernel.body, [axes.batch, axes.rows, axes.columns]);
                let [.., depth] = extents(lhs, [axes.batch, axes.rows, axes.depth]);
                self.product([batch, rows, columns, depth], dtype(lhs), &mut work);
                work.seconds += if batch > 1.0 { batch * self.costs.product.matrix } else { 0.0 };
                let maps = kernel.body.instrs.iter().filter(|i| matches!(i, Instr::Map { .. })).count();
                if maps > 1 || kernel.stores.len() > 1 {
                    work.seconds += points(&kernel.body.domain, u64::MAX) * self.costs.product.tile;
                }
            }
            AnchorKernel::Attention { query, key, value, bias, axes, .. } => {
                self.operand(query, [axes.batch, axes.queries, axes.depth], false, &mut work);
                self.operand(key, [axes.batch, axes.keys, axes.depth], false, &mut work);
                self.operand(value, [axes.batch, axes.keys, axes.columns], false, &mut work);
                let [batch, queries, columns] = extents(&kernel.body, [axes.batch, axes.queries, axes.columns]);
                let [_, keys, depth] = extents(key, [axes.batch, axes.keys, axes.depth]);
                let shares =
                    bias.as_ref().map_or(Shares::ALL, |b| Shares::of(b, [axes.batch, axes.queries, axes.keys]));
                self.product([batch * shares.visible, queries, keys, depth], dtype(query), &mut work);
                self.product([batch * shares.visible, queries, columns, keys], dtype(query), &mut work);
                let count = batch * queries * keys * shares.visible;
                let float = dtype(query).is_float();
                let each = if float { self.costs.element.softmax * self.factor(dtype(query)) } else { f64::INFINITY };
                work.seconds += count.max(1.0) * each;
                work.flops += 8.0 * count;
                if let Some(bias) = bias {
                    let mut of_bias = Tally::default();
                    self.body(bias, 0, false, &mut of_bias);
                    work.seconds += of_bias.seconds * shares.mixed;
                    work.flops += of_bias.flops * shares.mixed;
                }
            }
        }
        let threads = 1.0 + (parallelism(kernel).min(self.threads as f64).max(1.0) - 1.0) * self.costs.thread;
        let shared = work.seconds / threads + self.costs.wake;
        let compute = if threads > 1.0 { work.seconds.min(shared) } else { work.seconds };
        let rate = match work.bytes {
            b if b <= m.l2_bytes => m.l2 * threads,
            b if b <= m.l3_bytes => m.l3 * threads,
            _ => (m.dram * threads).min(m.dram_all.max(m.dram)),
        };
        let memory = work.bytes / rate;
        // Products wait for memory while they compute; passes over elements only in part.
        let seen = match kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => 1.0 - m.hidden,
            AnchorKernel::Contraction { .. } | AnchorKernel::Attention { .. } => 0.0,
        };
        let seconds = self.costs.launch + compute.max(memory) + seen * compute.min(memory);
        if seconds.is_infinite() || is_refused(kernel) {
            return Cost::IMPOSSIBLE;
        }
        Cost { seconds, flops: work.flops, bytes: work.bytes }
    }

    /// The passes over a body's values; by tiles, of which each computes even what needs no load anew, or not.
    fn body(&self, body: &Body, row: u64, tiles: bool, work: &mut Tally) {
        let e = &self.costs.element;
        let least = if tiles { points(&body.domain, u64::MAX) * e.step } else { 0.0 };
        let masks = masks(body, row);
        let known = known(body);
        for ((instr, &mask), &known) in body.instrs.iter().zip(&masks).zip(&known) {
            let least = if known { least } else { 0.0 };
            let n = points(&body.domain, mask);
            match instr {
                Instr::Anchor { .. } | Instr::Constant { .. } => {}
                Instr::Load(load) => {
                    work.seconds += self.load(load, &body.domain, mask, &masks);
                    work.seconds += if load.dtype.size() == 2 { n * e.cheap } else { 0.0 };
                }
                Instr::Coordinate { index, .. } => {
                    work.seconds += n * e.cheap * 2.0 + self.walk([index].into_iter(), &body.domain, mask, &masks);
                }
                // Each index is read and compared by itself.
                Instr::Within { guards, .. } => {
                    let maps = guards.iter().map(|guard| &guard.0);
                    work.seconds += n * e.scalar + self.walk(maps, &body.domain, mask, &masks);
                }
                Instr::Map { op, attrs, dtype, args } => {
                    let from = args.last().map_or(*dtype, |&a| body.instrs[a].dtype());
                    work.seconds += (n.max(1.0) * self.of_op(*op, attrs, from)).max(least);
                    work.flops += n;
                }
                Instr::Reduce { arg, dtype, .. } => {
                    let n = points(&body.domain, masks[*arg]);
                    work.seconds += n * e.reduce * self.factor(*dtype);
                    work.flops += n;
                }
                // Tiles lie on one side of a box, if there are lines inside of it: nothing is copied.
                Instr::Select { pieces, .. } if pieces.iter().flat_map(|p| &p.0).all(is_of_box) => {
                    let inside = pieces.iter().flat_map(|p| &p.0).map(|guard| inside(guard, &body.domain)).min();
                    let cut = pieces.len() == 1 && inside.is_none_or(|n| n >= SHORTEST_LINE);
                    work.seconds += if cut { least } else { 2.0 * n * e.cheap };
                }
                Instr::Select { pieces, .. } => {
                    let maps = pieces.iter().flat_map(|piece| &piece.0).map(|guard| &guard.0);
                    work.seconds += n * e.cheap + self.walk(maps, &body.domain, mask, &masks);
                }
            }
        }
    }

    /// A walk over the points of some axes, on which maps are evaluated once for each run in which all of them are affine.
    fn walk<'k>(
        &self,
        maps: impl Iterator<Item = &'k Index> + Clone,
        domain: &[usize],
        mask: AxisSet,
        masks: &[AxisSet],
    ) -> f64 {
        evaluations(maps, domain, mask, masks) * self.costs.element.run
    }

    /// A load of the points along some axes: read in place if they are dense or in lines that are long enough; else copied, or walked
    /// where the map is not affine.
    fn load(&self, load: &Load, domain: &[usize], mask: AxisSet, masks: &[AxisSet]) -> f64 {
        let (e, n) = (&self.costs.element, points(domain, mask));
        let affine = load.at.affine(domain.len()).filter(|_| load.guards.iter().all(is_of_box));
        let Some(strides) = affine else {
            let maps = load.guards.iter().map(|guard| &guard.0).chain([&load.at]);
            return self.walk(maps, domain, mask, masks) + n * e.cheap;
        };
        match line(&load.at, domain) {
            _ if is_dense(&strides, domain) => 0.0,
            Some(line) if line >= SHORTEST_LINE as f64 => n / line * e.in_place,
            // Of a guarded load, its own piece only is copied, of which nothing is known here.
            _ if !load.guards.is_empty() => n * e.cheap,
            Some(line) => n / line * e.short + n * e.cheap,
            None => n * e.strided,
        }
    }

    /// A store: by strides, or where integers and guards say, which is a walk.
    fn store(&self, store: &Store, body: &Body) -> f64 {
        let (domain, e) = (&body.domain, &self.costs.element);
        if store.guards.is_empty() && store.at.values().is_empty() {
            let apart = line(&store.at, domain).is_none();
            return if apart { points(domain, mentioned(&store.at)) * e.strided } else { 0.0 };
        }
        let (masks, maps) = (masks(body, 0), store.guards.iter().map(|guard| &guard.0).chain([&store.at]));
        let mask = store.maps().map(mentioned).chain(store.values().into_iter().map(|v| masks[v])).fold(0, |all, of| all | of);
        self.walk(maps, domain, mask, &masks) + points(domain, mask) * e.cheap
    }

    /// An operand that is not read in place is copied as it is used, if it is the left one of a product and no more than a load by
    /// strides, under guards or none; another is evaluated, written and read back. That this may be done part by part gains next to
    /// nothing.
    fn operand(&self, body: &Body, groups: [usize; 3], left: bool, work: &mut Tally) {
        let in_place = body.results.first().is_some_and(|&r| match &body.instrs[r] {
            Instr::Load(load) => {
                load.guards.is_empty() && load.dtype.size() >= 4 && is_of_matrices(&load.at, &body.domain, groups)
            }
            _ => false,
        });
        if in_place {
            return;
        }
        if let Some(load) = gathered(body).filter(|_| left && dtype(body).size() >= 4) {
            let e = &self.costs.element;
            let n: f64 = body.domain.iter().map(|&n| n as f64).product();
            // Lines of that length are read in place; each shorter one is found for itself.
            let terms = body.domain[groups[0] + groups[1]..].iter().copied();
            work.seconds += match line(&load.at, &body.domain) {
                Some(line) if line >= gathered::SEGMENT as f64 => n / line * e.line + n * e.copy,
                None if terms.last().is_some_and(|n| n >= gathered::SEGMENT) => n * e.strided,
                line => n / line.unwrap_or(1.0) * e.run,
            };
        } else {
            self.body(body, 0, true, work);
            let bytes = body.domain.iter().map(|&n| n as f64).product::<f64>() * dtype(body).size().max(4) as f64;
            let m = &self.costs.memory;
            work.seconds += 2.0 * bytes / if bytes < m.l3_bytes { m.l3 } else { m.dram };
        }
    }

    /// So many products `[m k] · [k n]`.
    fn product(&self, [count, m, n, k]: [f64; 4], dtype: DType, work: &mut Tally) {
        let p = &self.costs.product;
        let flops = 2.0 * count * m * n * k;
        let most = match dtype {
            DType::F64 => p.f64,
            DType::Bool => 0.0,
            d if d.is_float() => p.f32,
            _ => p.other,
        };
        let rate = if m == 1.0 || n == 1.0 {
            most.min(p.vector)
        } else {
            most * m / (m + p.m_half) * n / (n + p.n_half) * k / (k + p.k_half)
        };
        work.flops += flops;
        work.seconds += match () {
            () if most == 0.0 => f64::INFINITY,
            () if flops == 0.0 => 0.0,
            () => flops / rate,
        };
    }

    /// Infinite where there is no function.
    fn of_op(&self, op: Op, attrs: &[Attr], dtype: DType) -> f64 {
        let known = match attrs.first() {
            Some(Attr::Word(kind)) => self.by_kind.get(&(&**kind, dtype)),
            _ => self.by_op.get(&(op, dtype)),
        };
        known.copied().unwrap_or(f64::INFINITY)
    }

    fn factor(&self, dtype: DType) -> f64 {
        factor(&self.costs.element, dtype)
    }
}

/// How many threads a kernel can occupy: a row is one thread's, and so are the fewest rows and columns of a product that it is cut into.
fn parallelism(kernel: &Kernel) -> f64 {
    let domain = &kernel.body.domain;
    match &kernel.anchor {
        AnchorKernel::Map => f64::INFINITY,
        AnchorKernel::Rows { .. } => points(domain, !row_mask(kernel)),
        AnchorKernel::Contraction { axes, .. } => {
            let [batch, rows, columns] = extents(&kernel.body, [axes.batch, axes.rows, axes.columns]);
            batch * (rows / tasks::ROWS as f64).max(1.0) * (columns / tasks::FEW_COLUMNS as f64).max(1.0)
        }
        AnchorKernel::Attention { axes, .. } => {
            let [batch, queries, _] = extents(&kernel.body, [axes.batch, axes.queries, axes.columns]);
            batch * (queries / attention::QUERIES as f64).ceil()
        }
    }
}

fn factor(element: &ElementCosts, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1.0,
        DType::F64 => element.f64,
        _ => element.other,
    }
}

/// What `supports` refuses must not look cheap: domains of many axes, and results that are stored neither by strides, the columns of
/// products as one axis, nor where integers of the body say.
fn is_refused(kernel: &Kernel) -> bool {
    let rank = kernel.body.domain.len();
    let columns = if let AnchorKernel::Contraction { axes, .. } = &kernel.anchor { axes.columns } else { 0 };
    let groups = [rank - columns, 0, columns];
    let placed = |s: &Store| is_of_matrices(&s.at, &kernel.body.domain, groups) || !s.at.values().is_empty();
    kernel.bodies().iter().any(|body| body.domain.len() > MAX_RANK) || !kernel.stores.iter().all(placed)
}

/// The load of an operand that is one by strides, under guards that speak of such maps, or none: what [`gathered`](crate::gemm::gathered)
/// copies.
fn gathered(body: &Body) -> Option<&Load> {
    let rank = body.domain.len();
    let affine = |guards: &[Guard]| guards.iter().all(|guard| guard.0.affine(rank).is_some());
    let mut value = *body.results.first()?;
    loop {
        match &body.instrs[value] {
            Instr::Load(load) => return (load.at.affine(rank).is_some() && affine(&load.guards)).then_some(load),
            Instr::Select { pieces, .. } => match pieces.as_slice() {
                [(guards, piece)] if affine(guards) => value = *piece,
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// How many points three groups of so many axes have.
fn extents(body: &Body, groups: [usize; 3]) -> [f64; 3] {
    let (first, rest) = body.domain.split_at(groups[0]);
    let (second, third) = rest.split_at(groups[1]);
    [first, second, third].map(|group| group.iter().map(|&n| n as f64).product())
}

fn dtype(body: &Body) -> DType {
    body.results.first().map_or(DType::F32, |&r| body.instrs[r].dtype())
}
