//! Products by multiply-adds. Each thread has a tile of the result in registers, in vectors of four. The operands of
//! the next step are loaded into registers while this step is summed.

use eutectic_gpu::device::DeviceShape;

use super::{
    parts::OperandTile,
    product::{Product, TileForm, TilePoints, TileText},
};
use crate::library::register;

const fn form(block: [usize; 2], depth: usize, shares: [usize; 2], rate: f64) -> TileForm {
    TileForm { block, depth, shares, rate }
}

/// Elements of padding per line of a tile in shared memory. With it, threads that write a column access different
/// banks.
const PAD: usize = 4;

/// The number of unrolled terms of the depth.
const TERMS: usize = 4;

const FORMS: [TileForm; 4] = [
    form([128, 128], 16, [8, 8], 0.95),
    form([64, 64], 16, [4, 4], 0.5),
    form([32, 64], 16, [4, 4], 0.35),
    form([16, 32], 32, [4, 4], 0.12),
];

fn threads(form: &TileForm) -> usize {
    form.block[0] / form.shares[0] * (form.block[1] / form.shares[1])
}

/// Returns the tile forms that fit on a device, for sums of `size` bytes.
pub fn forms(shape: &DeviceShape, size: usize) -> Vec<TileForm> {
    let fits = |form: &TileForm| {
        let [bm, bn] = form.block;
        threads(form) <= shape.threads && (bm + bn + 2 * PAD) * form.depth * size <= shape.shared
    };
    FORMS.into_iter().filter(fits).collect()
}

/// Prints a tile.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(points: &TilePoints<'_>, product: &Product<'_>, form: &TileForm) -> Result<TileText, Vec<String>> {
    let ty = register(product.sum);
    let TileForm { block: [bm, bn], depth: bk, shares: [tm, tn], .. } = *form;
    let threads = threads(form);
    let operands = product.operands(4)?;
    let tile = |memory, outer, first| OperandTile {
        memory,
        outer,
        depth: bk,
        stride: outer + PAD,
        first: [first, "begin"],
        end: "end",
    };
    let tiles = [(&operands[0], tile("left", bm, "m0")), (&operands[1], tile("right", bn, "n0"))];
    let memory = |tile: &OperandTile<'_>| {
        format!("var<workgroup> {}: array<vec4<{ty}>, {}>;\n", tile.memory, bk * tile.stride / 4)
    };
    let before = tiles.iter().map(|(_, tile)| memory(tile)).collect();
    // A thread's groups of four columns are spaced, so that neighbouring threads read neighbouring banks.
    let across = bn / tn;
    let mut body = format!("let tm = thread / {across} * {tm};\nlet tn = thread % {across} * 4;\n");
    for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
        body += &format!("var c{i}_{j} = vec4<{ty}>();\n");
    }
    for (operand, tile) in &tiles {
        body += &operand.declare(tile, threads, ty);
        body += &operand.read(tile, tile.first, threads, ty);
    }
    body += &format!("for (var k0 = begin; k0 < end; k0 += {bk}) {{\n");
    tiles.iter().for_each(|(operand, tile)| body += &operand.write(tile, threads));
    body += "workgroupBarrier();\n";
    if product.extents[3] > bk {
        // After the last step, the first one is loaded again, because a branch here costs a fifth of the time.
        body += &format!("let k1 = select(begin, k0 + {bk}, k0 + {bk} < end);\n");
        tiles.iter().for_each(|(operand, tile)| body += &operand.read(tile, [tile.first[0], "k1"], threads, ty));
    }
    // Each iteration unrolls several terms at constant offsets, so that the next terms are loaded while these are
    // multiplied.
    let lines = [bm, bn].map(|outer| (outer + PAD) / 4);
    body += &format!("var l = tm / 4;\nvar r = tn / 4;\nfor (var kk = 0; kk < {bk}; kk += {TERMS}) {{\n");
    for term in 0..TERMS {
        body += "{\n";
        (0..tm / 4).for_each(|i| body += &format!("let x{i} = left[l + {}];\n", term * lines[0] + i));
        (0..tn / 4).for_each(|j| body += &format!("let y{j} = right[r + {}];\n", term * lines[1] + j * across));
        for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
            body += &format!("c{i}_{j} = fma(vec4<{ty}>(x{}[{}]), y{j}, c{i}_{j});\n", i / 4, i % 4);
        }
        body += "}\n";
    }
    body += &format!("l += {};\nr += {};\n", TERMS * lines[0], TERMS * lines[1]);
    body += "}\nworkgroupBarrier();\n}\n";
    body += &format!("var sums: array<vec4<{ty}>, {}>;\n", tm * tn / 4);
    for (i, j) in (0..tm).flat_map(|i| (0..tn / 4).map(move |j| (i, j))) {
        body += &format!("sums[{}] = c{i}_{j};\n", i * tn / 4 + j);
    }
    body += &format!(
        "for (var i = 0; i < {tm}; i += 1) {{\nlet m = m0 + tm + i;\nfor (var j = 0; j < {tn}; j += {}) {{\nlet at_n = n0 + tn + j / 4 * {} + j % 4;\n",
        points.lanes(),
        across * 4
    );
    body += &points.at(|lane| format!("sums[(i * {tn} + j) / 4][j % 4 + {lane}]"));
    body += "}\n}\n";
    Ok(TileText { threads, before, body })
}
