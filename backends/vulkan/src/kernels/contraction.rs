//! Products: a tile of the result in the registers of a block, operands and epilogue any expressions.

use eutectic_backend::{AnchorKernel, Kernel, axes::Nest};
use eutectic_gpu::{device::DeviceShape, dialect::Dialect, launch::Launch};

use super::parts::{Epilogue, OperandTile, PrintedOperand, matrix, sums};
use crate::{dialect::Wgsl, library::register};

/// Rows and columns of a block, its step along the depth, rows and columns of a thread, and what part of the device's rate it comes to.
struct TileForm {
    block: [usize; 2],
    depth: usize,
    thread: [usize; 2],
    rate: f64,
}

impl TileForm {
    fn threads(&self) -> usize {
        self.block[0] / self.thread[0] * (self.block[1] / self.thread[1])
    }

    fn fits(&self, shape: &DeviceShape, size: usize) -> bool {
        let [bm, bn] = self.block;
        self.threads() <= shape.threads && (bm + bn) * self.depth * size <= shape.shared
    }
}

const FORMS: [TileForm; 4] = [
    TileForm { block: [128, 128], depth: 16, thread: [8, 8], rate: 0.8 },
    TileForm { block: [64, 64], depth: 16, thread: [4, 4], rate: 0.5 },
    TileForm { block: [32, 64], depth: 16, thread: [4, 4], rate: 0.35 },
    TileForm { block: [16, 32], depth: 32, thread: [4, 4], rate: 0.12 },
];
/// Most parts of the depth that have blocks of their own.
const PARTS: usize = 16;
/// Threads of a block that adds parts.
const ADDING: usize = 128;

/// Prints it.
///
/// # Errors
/// What cannot be printed.
pub fn print(dialect: &Wgsl, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let AnchorKernel::Contraction { lhs, rhs, axes } = &kernel.anchor else { return Err(vec!["no product".into()]) };
    let sum = sums(&kernel.bodies());
    let ty = register(sum);
    let left = matrix(&Nest::of(lhs.clone()), [axes.batch, axes.rows, axes.depth]);
    let right = matrix(&Nest::of(rhs.clone()), [axes.batch, axes.depth, axes.columns]);
    let own = matrix(&Nest::new(&kernel.body, &kernel.stores), [axes.batch, axes.rows, axes.columns]);
    let ([b, m, k], n) = ([left.domain[0], left.domain[1], left.domain[2]], right.domain[2]);
    let (form, parts) = choose(shape, [b, m, n, k], sum.size());
    let TileForm { block: [bm, bn], depth: bk, thread: [tm, tn], .. } = *form;
    let threads = form.threads();
    let operands = [
        PrintedOperand::print(dialect, &left, lhs.results[0], &kernel.slots, false)?,
        PrintedOperand::print(dialect, &right, rhs.results[0], &kernel.slots, true)?,
    ];
    let epilogue = Epilogue::print(dialect, &own, &kernel.slots, 4)?;
    let [rows, columns] = [m.div_ceil(bm), n.div_ceil(bn)];
    let tiles = rows * columns;
    let each = k.div_ceil(bk).div_ceil(parts) * bk;
    let before = format!(
        "var<workgroup> left: array<vec4<{ty}>, {}>;\nvar<workgroup> right: array<vec4<{ty}>, {}>;\n",
        bk * bm / 4,
        bk * bn / 4
    );
    let mut body = dialect.place("thread", "block");
    body += &format!(
        "\nif (block >= {}) {{ return; }}\nlet tile = block % {tiles};\nlet part = block / {tiles} % {parts};\nlet b = block / {};\n\
         let m0 = tile / {columns} * {bm};\nlet n0 = tile % {columns} * {bn};\nlet tm = thread / {across} * {tm};\nlet tn = thread % {across} * {tn};\n\
         let begin = part * {each};\nlet end = min(begin + {each}, {k});\n",
        tiles * parts * b,
        tiles * parts,
        across = bn / tn,
    );
    for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
        body += &format!("var c{i}_{j} = vec4<{ty}>();\n");
    }
    body += &format!("for (var k0 = begin; k0 < end; k0 += {bk}) {{\n");
    let tile = |memory, outer, first| OperandTile { memory, outer, depth: bk, first: [first, "k0"], end: "end" };
    body += &operands[0].fetch(&tile("left", bm, "m0"), threads, ty);
    body += &operands[1].fetch(&tile("right", bn, "n0"), threads, ty);
    body += &format!("workgroupBarrier();\nfor (var kk = 0; kk < {bk}; kk += 1) {{\n");
    (0..tm / 4).for_each(|i| body += &format!("let x{i} = left[(kk * {bm} + tm) / 4 + {i}];\n"));
    (0..tn / 4).for_each(|j| body += &format!("let y{j} = right[(kk * {bn} + tn) / 4 + {j}];\n"));
    for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
        body += &format!("c{i}_{j} = fma(vec4<{ty}>(x{}[{}]), y{j}, c{i}_{j});\n", i / 4, i % 4);
    }
    body += "}\nworkgroupBarrier();\n}\n";
    body += &format!("var sums: array<vec4<{ty}>, {}>;\n", tm * tn / 4);
    for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
        body += &format!("sums[{}] = c{i}_{j};\n", i * tn / 4 + j);
    }
    let lanes = epilogue.lanes();
    body += &format!(
        "for (var i = 0; i < {tm}; i += 1) {{\nlet m = m0 + tm + i;\nfor (var j = 0; j < {tn}; j += {lanes}) {{\nlet at_n = n0 + tn + j;\n\
         if (m < {m} && at_n < {n}) {{\n"
    );
    let of = |lane: usize| format!("sums[(i * {tn} + j) / 4][j % 4 + {lane}]");
    let slot = kernel.slots.len();
    let mut slots = kernel.slots.clone();
    let elements = b * m * n;
    if parts > 1 {
        slots.push((sum, parts * elements));
        for lane in 0..lanes {
            let at = format!("((part * {b} + b) * {m} + m) * {n} + at_n + {lane}");
            body += &dialect.store(slot, &at, &of(lane));
        }
    } else {
        body += &epilogue.at(of);
    }
    body += "}\n}\n}\n";
    let workspace = if parts > 1 { parts * elements * sum.size() } else { 0 };
    let text = dialect.text(&slots, threads, &before, &body);
    let mut launches = vec![Launch { workspace, ..Launch::new(text, [tiles * parts * b, 1, 1], threads) }];
    if parts > 1 {
        // Adds the parts, in order.
        let groups = elements / lanes;
        let mut body = dialect.each_point("i", groups, ADDING);
        body +=
            &format!("let at = i * {lanes};\nlet b = at / {};\nlet m = at / {n} % {m};\nlet at_n = at % {n};\n", m * n);
        for lane in 0..lanes {
            body += &format!("var s{lane} = {ty}(0);\n");
        }
        body += &format!("for (var part = 0; part < {parts}; part += 1) {{\n");
        for lane in 0..lanes {
            body += &format!("s{lane} += {};\n", dialect.load(slot, &format!("part * {elements} + at + {lane}")));
        }
        body += "}\n";
        body += &epilogue.at(|lane| format!("s{lane}"));
        body += "}\n";
        let blocks = groups.div_ceil(ADDING).min(shape.processors * 16);
        let text = dialect.text(&slots, ADDING, "", &body);
        launches.push(Launch { workspace, ..Launch::new(text, [blocks, 1, 1], ADDING) });
    }
    Ok(launches)
}

/// The form, and in how many parts the depth is taken, that promise the least time: waves of blocks, each of so many steps.
fn choose(shape: &DeviceShape, [b, m, n, k]: [usize; 4], size: usize) -> (&'static TileForm, usize) {
    let mut best = (&FORMS[3], 1, f64::INFINITY);
    for form in FORMS.iter().filter(|form| form.fits(shape, size)) {
        let [bm, bn] = form.block;
        let blocks = (b * m.div_ceil(bm) * n.div_ceil(bn)).max(1);
        let steps = k.div_ceil(form.depth).max(1);
        let mut parts = 1;
        while parts <= PARTS && steps >= parts && (parts == 1 || parts * b * m * n * size <= shape.workspace) {
            let waves = (blocks * parts).div_ceil(shape.processors) as f64;
            let step = (bm * bn * form.depth) as f64 / form.rate + 12_000.0;
            let adding = if parts > 1 { 800_000.0 } else { 0.0 };
            let time = waves * steps.div_ceil(parts) as f64 * step + adding;
            if time < best.2 {
                best = (form, parts, time);
            }
            parts *= 2;
        }
    }
    (best.0, best.1)
}
