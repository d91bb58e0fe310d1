//! What a kernel costs: a model that is linear in the work that thunks do, with coefficients from a file.

use eutectic_backend::{AnchorKernel, Body, Cost, Guard, Instr, Kernel};
use eutectic_ir::{
    Attr, DType, Op,
    index::{Atom, Index},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{simd::table, unroll::unrolled};

/// The coefficients; see `costs/default.toml`, which explains each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Seconds of a kernel, whatever it does.
    #[serde(deserialize_with = "positive")]
    pub launch: f64,
    /// Seconds until the other threads work on a kernel.
    #[serde(deserialize_with = "positive")]
    pub wake: f64,
    /// What each further thread adds, of what the first one does.
    #[serde(deserialize_with = "share")]
    pub thread: f64,
    /// Bandwidths.
    pub memory: Memory,
    /// Rates of products.
    pub product: Product,
    /// Seconds of elements.
    pub element: Element,
    /// Which ops are not cheap.
    pub class: Class,
}

/// A number that a cost can be: positive and finite.
fn positive<'de, D: Deserializer<'de>>(text: D) -> Result<f64, D::Error> {
    let x = f64::deserialize(text)?;
    let why = || de::Error::custom(format!("{x} is no cost: it must be positive and finite"));
    (x > 0.0 && x.is_finite()).then_some(x).ok_or_else(why)
}

/// A share of a whole.
fn share<'de, D: Deserializer<'de>>(text: D) -> Result<f64, D::Error> {
    let x = f64::deserialize(text)?;
    (0.0..=1.0).contains(&x).then_some(x).ok_or_else(|| de::Error::custom(format!("{x} is no share: it lies in 0..=1")))
}

/// Bandwidths by working set.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Largest working set, in bytes, that streams at `l2`.
    #[serde(deserialize_with = "positive")]
    pub l2_bytes: f64,
    /// Largest working set, in bytes, that streams at `l3`.
    #[serde(deserialize_with = "positive")]
    pub l3_bytes: f64,
    /// Bytes a second of one thread.
    #[serde(deserialize_with = "positive")]
    pub l2: f64,
    /// As `l2`, beyond `l2_bytes`.
    #[serde(deserialize_with = "positive")]
    pub l3: f64,
    /// As `l2`, beyond `l3_bytes`.
    #[serde(deserialize_with = "positive")]
    pub dram: f64,
    /// As `dram`, of all threads together.
    #[serde(deserialize_with = "positive")]
    pub dram_all: f64,
    /// How much of the shorter of computing and memory time passes over elements hide behind the longer.
    #[serde(deserialize_with = "share")]
    pub hidden: f64,
}

/// Rates of matrix products.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Operations a second of large products, in `f32` and narrower floats.
    #[serde(deserialize_with = "positive")]
    pub f32: f64,
    /// As `f32`, in `f64`.
    #[serde(deserialize_with = "positive")]
    pub f64: f64,
    /// As `f32`, of integers.
    #[serde(deserialize_with = "positive")]
    pub other: f64,
    /// Rows at which a product reaches half of its rate.
    #[serde(deserialize_with = "positive")]
    pub m_half: f64,
    /// Columns at which it does.
    #[serde(deserialize_with = "positive")]
    pub n_half: f64,
    /// Length of its sums at which it does.
    #[serde(deserialize_with = "positive")]
    pub k_half: f64,
    /// Seconds of an element that goes through a tile before it is stored.
    #[serde(deserialize_with = "positive")]
    pub tile: f64,
    /// Operations a second of a vector times a matrix in cache.
    #[serde(deserialize_with = "positive")]
    pub vector: f64,
}

/// Seconds of an element.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// A pass in cache over `f32`.
    #[serde(deserialize_with = "positive")]
    pub cheap: f64,
    /// A division or a root.
    #[serde(deserialize_with = "positive")]
    pub division: f64,
    /// An exponential and what is made of one.
    #[serde(deserialize_with = "positive")]
    pub transcendental: f64,
    /// A hyperbolic tangent, an error function.
    #[serde(deserialize_with = "positive")]
    pub special: f64,
    /// A function that runs element by element.
    #[serde(deserialize_with = "positive")]
    pub scalar: f64,
    /// A step of a reduction.
    #[serde(deserialize_with = "positive")]
    pub reduce: f64,
    /// A copied element of a load or store that is not dense.
    #[serde(deserialize_with = "positive")]
    pub strided: f64,
    /// A run of a load that is walked.
    #[serde(deserialize_with = "positive")]
    pub run: f64,
    /// A line of a left operand that is copied for a product.
    #[serde(deserialize_with = "positive")]
    pub line: f64,
    /// An element of such a line.
    #[serde(deserialize_with = "positive")]
    pub copy: f64,
    /// Factor of `f64`.
    #[serde(deserialize_with = "positive")]
    pub f64: f64,
    /// Factor of the other element types.
    #[serde(deserialize_with = "positive")]
    pub other: f64,
    /// A score, besides its products.
    #[serde(deserialize_with = "positive")]
    pub softmax: f64,
}

/// Which ops are not cheap, by name or kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Those that cost [`Element::division`].
    pub division: Vec<String>,
    /// Those that cost [`Element::transcendental`].
    pub transcendental: Vec<String>,
    /// Those that cost [`Element::special`].
    pub special: Vec<String>,
    /// Those that cost [`Element::scalar`].
    pub scalar: Vec<String>,
}

impl Default for Costs {
    /// The embedded file.
    fn default() -> Costs {
        Costs::parse(include_str!("../costs/default.toml")).expect("the embedded file is checked by a test")
    }
}

impl Costs {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Where the text is not such a file, or a number in it is no cost.
    pub fn parse(text: &str) -> Result<Costs, toml::de::Error> {
        toml::from_str(text)
    }

    /// The text of a file that has these coefficients.
    ///
    /// # Errors
    /// Never for coefficients that can be parsed.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// The model: coefficients, with ops resolved.
pub struct Model {
    costs: Costs,
    threads: f64,
    /// Seconds of an element, for each op and element type that there is a function for.
    by_op: FxHashMap<(Op, DType), f64>,
    /// As `by_op`, of the kinds of activation.
    by_kind: FxHashMap<(&'static str, DType), f64>,
}

/// What was counted so far.
#[derive(Default)]
struct Work {
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
        let threads = 1.0 + (threads as f64 - 1.0) * costs.thread;
        Model { costs, threads, by_op, by_kind }
    }

    /// The cost of a kernel. What cannot be compiled costs infinitely much where that shows at a glance (an op or element type
    /// without a function); `supports` is the judge.
    pub fn cost(&self, kernel: &Kernel) -> Cost {
        let unrolled = unrolled(kernel);
        let kernel = unrolled.as_ref().unwrap_or(kernel);
        let mut work = Work::default();
        let m = &self.costs.memory;
        self.traffic(kernel, &mut work);
        self.body(&kernel.body, row_mask(kernel), &mut work);
        for store in kernel.stores.iter().filter(|s| line(&s.at, &kernel.body.domain).is_none()) {
            work.seconds += points(&kernel.body.domain, mentioned(&store.at)) * self.costs.element.strided;
        }
        match &kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => {}
            AnchorKernel::Contraction { lhs, rhs } => {
                self.operand(lhs, true, &mut work);
                self.operand(rhs, false, &mut work);
                self.product(&kernel.body.domain, lhs.domain.last().copied().unwrap_or(0), dtype(lhs), &mut work);
                let maps = kernel.body.instrs.iter().filter(|i| matches!(i, Instr::Map { .. })).count();
                if maps > 1 || kernel.stores.len() > 1 {
                    work.seconds += points(&kernel.body.domain, u64::MAX) * self.costs.product.tile;
                }
            }
            AnchorKernel::Attention { query, key, value, bias, .. } => {
                [query, key, value].into_iter().for_each(|b| self.operand(b, false, &mut work));
                let scores = self.scores(&query.domain, &key.domain);
                self.product(&scores, query.domain.last().copied().unwrap_or(0), dtype(query), &mut work);
                self.product(&kernel.body.domain, scores.last().copied().unwrap_or(0), dtype(query), &mut work);
                let count: f64 = scores.iter().map(|&n| n as f64).product();
                let float = dtype(query).is_float();
                let each = if float { self.costs.element.softmax * self.factor(dtype(query)) } else { f64::INFINITY };
                work.seconds += count.max(1.0) * each;
                work.flops += 8.0 * count;
                bias.iter().for_each(|b| self.body(b, 0, &mut work));
            }
        }
        let shared = work.seconds / self.threads + self.costs.wake;
        let compute = if self.threads > 1.0 { work.seconds.min(shared) } else { work.seconds };
        let rate = match work.bytes {
            b if b <= m.l2_bytes => m.l2 * self.threads,
            b if b <= m.l3_bytes => m.l3 * self.threads,
            _ => (m.dram * self.threads).min(m.dram_all.max(m.dram)),
        };
        let memory = work.bytes / rate;
        // Products wait for memory while they compute; passes over elements only in part.
        let seen = match kernel.anchor {
            AnchorKernel::Map | AnchorKernel::Rows { .. } => 1.0 - m.hidden,
            AnchorKernel::Contraction { .. } | AnchorKernel::Attention { .. } => 0.0,
        };
        let seconds = self.costs.launch + compute.max(memory) + seen * compute.min(memory);
        // What is refused by `supports` must not look cheap: tiles are stored by strides only.
        let strided = kernel.stores.iter().all(|s| s.at.affine(kernel.body.domain.len()).is_some());
        if seconds.is_infinite() || !strided {
            return Cost::IMPOSSIBLE;
        }
        Cost { seconds, flops: work.flops, bytes: work.bytes }
    }

    fn scores(&self, query: &[usize], key: &[usize]) -> Vec<usize> {
        let mut scores = query.to_vec();
        if let (Some(last), [.., keys, _]) = (scores.last_mut(), key) {
            *last = *keys;
        }
        scores
    }

    /// Bytes of the distinct elements that are read and written.
    fn traffic(&self, kernel: &Kernel, work: &mut Work) {
        let mut bytes = vec![0.0_f64; kernel.slots.len()];
        let mut touch = |slot: usize, elements: f64| {
            if let (Some(b), Some((dtype, count))) = (bytes.get_mut(slot), kernel.slots.get(slot)) {
                // Several loads of a buffer (its pieces) add up, to at most all of it.
                *b = (*b + elements * dtype.size() as f64).min((count * dtype.size()) as f64);
            }
        };
        for body in kernel.bodies() {
            let masks = masks(body, 0);
            for (instr, mask) in body.instrs.iter().zip(masks) {
                if let Instr::Load(load) = instr {
                    touch(load.slot, points(&body.domain, mask));
                }
            }
        }
        for store in &kernel.stores {
            touch(store.slot, points(&kernel.body.domain, mentioned(&store.at)));
        }
        work.bytes += bytes.iter().sum::<f64>();
    }

    /// The passes over a body's values.
    fn body(&self, body: &Body, row: u64, work: &mut Work) {
        let e = &self.costs.element;
        let masks = masks(body, row);
        for (instr, &mask) in body.instrs.iter().zip(&masks) {
            let n = points(&body.domain, mask);
            match instr {
                Instr::Anchor { .. } | Instr::Constant { .. } => {}
                Instr::Load(load) => {
                    let boxed = load.guards.iter().all(is_of_box);
                    work.seconds += match load.at.affine(body.domain.len()).filter(|_| boxed) {
                        // A guarded load copies its own piece only, of which nothing is known here.
                        Some(_) if !load.guards.is_empty() => n * e.cheap,
                        Some(strides) if is_strided(&strides, &body.domain) => n * e.strided,
                        Some(strides) if is_dense(&strides, &body.domain) => 0.0,
                        Some(_) => n * e.cheap,
                        None => n / run_length(&load.at, &body.domain) * e.run + n * e.cheap,
                    };
                    work.seconds += if load.dtype.size() == 2 { n * e.cheap } else { 0.0 };
                }
                Instr::Coordinate { .. } | Instr::Within { .. } => work.seconds += n * e.cheap * 2.0,
                Instr::Map { op, attrs, dtype, args } => {
                    let from = args.last().map_or(*dtype, |&a| body.instrs[a].dtype());
                    work.seconds += n.max(1.0) * self.of_op(*op, attrs, from);
                    work.flops += n;
                }
                Instr::Reduce { arg, dtype, .. } => {
                    let n = points(&body.domain, masks[*arg]);
                    work.seconds += n * e.reduce * self.factor(*dtype);
                    work.flops += n;
                }
                Instr::Select { pieces, .. } if pieces.iter().flat_map(|p| &p.0).all(is_of_box) => {
                    work.seconds += 2.0 * n * e.cheap;
                }
                Instr::Select { pieces, .. } => {
                    let inner = body.domain.last().copied().unwrap_or(1).max(1) as f64;
                    work.seconds += n * e.cheap + n / inner * e.run * pieces.len() as f64;
                }
            }
        }
    }

    /// An operand that is not read in place is copied as it is used, if it is the left one of a product and no more than an
    /// index map; another is evaluated once, written and read back.
    fn operand(&self, body: &Body, left: bool, work: &mut Work) {
        let in_place = body.results.first().is_some_and(|&r| match &body.instrs[r] {
            Instr::Load(load) => {
                load.guards.is_empty() && load.dtype.size() >= 4 && load.at.affine(body.domain.len()).is_some()
            }
            _ => false,
        });
        // Copied part by part, in lines.
        let moved = |i: &Instr| matches!(i, Instr::Load(_) | Instr::Select { .. });
        let loads = body.instrs.iter().filter_map(|i| if let Instr::Load(load) = i { Some(load) } else { None });
        if left && !in_place && body.instrs.iter().all(moved) && dtype(body).size() >= 4 {
            let e = &self.costs.element;
            let n: f64 = body.domain.iter().map(|&n| n as f64).product();
            for load in loads {
                work.seconds += match line(&load.at, &body.domain) {
                    Some(line) => n / line * e.line + n * e.copy,
                    None => n * e.strided,
                };
            }
        } else if !in_place {
            self.body(body, 0, work);
            let bytes = body.domain.iter().map(|&n| n as f64).product::<f64>() * dtype(body).size().max(4) as f64;
            let m = &self.costs.memory;
            work.seconds += 2.0 * bytes / if bytes < m.l3_bytes { m.l3 } else { m.dram };
        }
    }

    /// A product over `[b.. m n]` with sums of length k.
    fn product(&self, domain: &[usize], k: usize, dtype: DType, work: &mut Work) {
        let p = &self.costs.product;
        let count: f64 = domain.iter().map(|&n| n as f64).product();
        let [.., m, n] = domain else { return };
        let (m, n, k) = (*m as f64, *n as f64, k as f64);
        let flops = 2.0 * count * k;
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

fn factor(element: &Element, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1.0,
        DType::F64 => element.f64,
        _ => element.other,
    }
}

fn dtype(body: &Body) -> DType {
    body.results.first().map_or(DType::F32, |&r| body.instrs[r].dtype())
}

fn points(domain: &[usize], mask: u64) -> f64 {
    domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, &n)| n as f64).product()
}

fn mentioned(index: &Index) -> u64 {
    index.terms.iter().fold(0, |m, (atom, _)| match atom {
        Atom::Coord(n) => m | 1 << n,
        Atom::Div(inner, _) | Atom::Mod(inner, _) => m | mentioned(inner),
        Atom::Value(_) => m,
    })
}

/// The axes that form a row.
fn row_mask(kernel: &Kernel) -> u64 {
    let AnchorKernel::Rows { axes } = kernel.anchor else { return 0 };
    let rank = kernel.body.domain.len();
    (rank.saturating_sub(axes)..rank).fold(0, |m, d| m | 1 << d)
}

/// The axes on which each value depends.
fn masks(body: &Body, row: u64) -> Vec<u64> {
    let mut masks: Vec<u64> = Vec::with_capacity(body.instrs.len());
    for instr in &body.instrs {
        let of_args = |args: &[usize]| args.iter().fold(0, |m, &a| m | masks[a]);
        let mask = match instr {
            Instr::Anchor { .. } => u64::MAX,
            Instr::Constant { .. } => 0,
            Instr::Reduce { arg, .. } => masks[*arg] & !row,
            _ => instr.maps().into_iter().fold(of_args(&instr.args()), |m, map| m | mentioned(map)),
        };
        masks.push(mask);
    }
    masks
}

/// Whether the fastest axis of a load is not the innermost of those on which it depends.
fn is_strided(strides: &[i64], domain: &[usize]) -> bool {
    let inner = (0..strides.len()).rev().find(|&d| strides[d] != 0 && domain[d] > 1);
    inner.is_some_and(|d| strides[d] != 1)
}

/// Whether the elements of a load lie side by side in the order of the axes on which it depends.
fn is_dense(strides: &[i64], domain: &[usize]) -> bool {
    let along = (0..strides.len()).rev().filter(|&d| strides[d] != 0 && domain[d] > 1);
    along.fold((true, 1), |(dense, step), d| (dense && strides[d] == step, step * domain[d] as i64)).0
}

/// Whether a guard asks for one coordinate: boxes are copied as a whole.
fn is_of_box((index, _): &Guard) -> bool {
    matches!(index.terms.as_slice(), [] | [(Atom::Coord(_), _)])
}

/// How many elements lie side by side from each point on, along the axes on which a map depends; `None` if neighbours are apart.
fn line(index: &Index, domain: &[usize]) -> Option<f64> {
    let inner = domain.len().checked_sub(1)?;
    if let Some(strides) = index.affine(domain.len()) {
        let mut line = 1;
        for (&stride, &extent) in strides.iter().zip(domain).rev().filter(|(s, n)| **s != 0 && **n > 1) {
            if stride != line {
                return (line > 1).then_some(line as f64);
            }
            line *= extent as i64;
        }
        return Some(line as f64);
    }
    let fastest = |atom: &Atom| match atom {
        Atom::Coord(n) => *n == inner,
        Atom::Mod(i, _) => matches!(i.terms.as_slice(), [(Atom::Coord(n), 1)] if *n == inner),
        _ => false,
    };
    let along = index.terms.iter().find(|(atom, _)| fastest(atom));
    along.is_none_or(|(_, stride)| *stride == 1).then(|| run_length(index, domain))
}

/// For how many points along the innermost axis a map stays affine.
fn run_length(index: &Index, domain: &[usize]) -> f64 {
    let Some(inner) = domain.len().checked_sub(1) else { return 1.0 };
    // Steps along the axis in which an index moves by one.
    fn slowness(index: &Index, inner: usize) -> i64 {
        let of = |atom: &Atom| match atom {
            Atom::Div(i, by) if mentioned(i) >> inner & 1 == 1 => slowness(i, inner).saturating_mul(*by),
            Atom::Mod(i, _) if mentioned(i) >> inner & 1 == 1 => slowness(i, inner),
            Atom::Coord(n) if *n == inner => 1,
            _ => i64::MAX,
        };
        index.terms.iter().map(|(atom, _)| of(atom)).min().unwrap_or(i64::MAX)
    }
    fn shortest(index: &Index, inner: usize) -> i64 {
        index.terms.iter().fold(i64::MAX, |run, (atom, _)| match atom {
            Atom::Div(i, by) | Atom::Mod(i, by) if mentioned(i) >> inner & 1 == 1 => {
                run.min(slowness(i, inner).saturating_mul(*by)).min(shortest(i, inner))
            }
            _ => run,
        })
    }
    shortest(index, inner).min(domain[inner] as i64).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_costs_parse_and_name_functions_that_exist() {
        let class = Costs::default().class;
        let all = [class.division, class.transcendental, class.special, class.scalar].concat();
        let unknown: Vec<_> = all.iter().filter(|n| !table::names(DType::F32).any(|known| known == **n)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn runs_are_as_long_as_what_lies_between_two_cuts() {
        // Windows [15 15 | 3 3 64] of an image: (k/64)%3 changes with every 64 elements.
        let domain = [225, 576];
        let k = Index::coord(1);
        let column = k.div(64, &domain).modulo(3, &domain);
        let at = k.div(192, &domain).times(960).plus(&column.times(64)).plus(&k.modulo(64, &domain));
        assert_eq!(line(&at, &domain), Some(64.0));
        assert_eq!(line(&k.times(3), &domain), None);
    }

    #[test]
    fn a_misspelled_coefficient_is_an_error() {
        let text = include_str!("../costs/default.toml").replace("launch", "lunch");
        assert!(Costs::parse(&text).unwrap_err().to_string().contains("lunch"));
    }
}
