//! Attention: tiles of scores, the largest of each row so far kept; the bias is any expression, and blocks that it hides are left out.

use eutectic_backend::{
    AnchorKernel, AttentionAxes, EmptyRow, Kernel,
    axes::Nest,
    intervals::{Mask, Visibility},
};
use eutectic_gpu::{device::Shape, emit::Emitter, lanes::Lanes, launch::Launch};

use super::parts::{Operand, epilogue, flat, short, wide};
use crate::dialect::{CudaC, arguments, entry, method};

/// Threads of a block that joins parts of the keys.
const JOIN: usize = 128;
/// Most tiles of scores that are looked at for being hidden.
const LOOKED_AT: usize = 1 << 14;

/// Prints it.
///
/// # Errors
/// What cannot be printed.
pub fn print(shape: &Shape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let AnchorKernel::Attention { query, key, value, bias, axes, scale, softcap, empty } = &kernel.anchor else {
        return Err(vec!["no attention".into()]);
    };
    let is_wide = wide(&kernel.bodies());
    let (sum, bytes) = if is_wide { ("double", 8) } else { ("float", 4) };
    let &AttentionAxes { batch, queries, keys, depth, columns } = axes;
    let nests = [
        flat(&Nest::of(query.clone()), [batch, queries, depth]),
        flat(&Nest::of(key.clone()), [batch, keys, depth]),
        flat(&Nest::of(value.clone()), [batch, keys, columns]),
    ];
    let own = flat(&Nest::new(&kernel.body, &kernel.stores), [batch, queries, columns]);
    let ([b, s, d], t, e) = ([0, 1, 2].map(|n| nests[0].domain[n]), nests[1].domain[1], nests[2].domain[2]);
    let half = short(&[query, key, value]).filter(|_| !is_wide && d <= 256 && e <= 256);
    let up_to = |n: usize, most: usize| n.next_power_of_two().clamp(16, most);
    let (ec, dc) = (up_to(e, if is_wide { 64 } else { 128 }), up_to(d, 64));
    let few = s <= 16 || b * s.div_ceil(64) * e.div_ceil(ec) < shape.processors / 2;
    let (bq, bt) = match half {
        // Sixteen queries a warp; as many keys as leave room for the columns in registers.
        Some(_) => (if few { 16 } else { 64 }, if d.max(e) > 128 { 32 } else { 64 }),
        None => (if few { 16 } else { 64 }, if is_wide { 32 } else { 64 }),
    };
    let (epilogue, lanes) = epilogue(&own, &kernel.slots, if half.is_some() { 8 } else { (ec / 16).min(4) }, sum)?;
    let mut before = format!(
        "#define OPERANDS 3\n#define HAS_BIAS {}\nconstexpr int B = {b}, QUERIES = {s}, KEYS = {t}, DEPTH = {d}, COLUMNS = {e};\n\
         constexpr double SCALE = {:?}, SOFTCAP = {:?};\nconstexpr bool EMPTY_IS_ZERO = {};\ntemplate <int WHICH> struct Operand;\n",
        u8::from(bias.is_some()),
        scale.get(),
        softcap.get(),
        *empty == EmptyRow::Zeros,
    );
    let mut methods = epilogue;
    let mut operands = Vec::new();
    for (n, (nest, body)) in nests.iter().zip([query, key, value]).enumerate() {
        let operand = Operand::print(n, nest, body.results[0], &kernel.slots, (n == 2, sum))?;
        before += &operand.properties;
        methods += &operand.method;
        operands.push(operand);
    }
    let mut bias_lanes = 1;
    let mut hidden = None;
    if let Some(bias) = bias {
        let nest = flat(&Nest::of(bias.clone()), [batch, queries, keys]);
        let lanes = Lanes::best(&nest, &kernel.slots, 2, if half.is_some() { 2 } else { bt / 16 });
        let mut emitter = Emitter::new(&CudaC, &kernel.slots, &nest, &["b", "s", "t"], lanes, "v");
        let values = emitter.value(bias.results[0]);
        for lane in 0..lanes.count {
            emitter.line(&format!("out[{lane}] = ({sum}){};", values[lane % values.len()]));
        }
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        methods += &method(&format!("void bias(int b, int s, int t, {sum}* out)"), &emitter.text);
        bias_lanes = lanes.count;
        hidden = ranges(&nest, bias.results[0], [bq, bt]);
    }
    before += &visible(hidden.as_deref());
    let head = arguments(&kernel.slots, &before, &methods)
        + include_str!("../text/tiles.cu")
        + include_str!("../text/attention.cu");
    // Few queries: parts of the keys on processors of their own, of several tiles each.
    let chunks = if half.is_some() { e.min(1) } else { e.div_ceil(ec) };
    let blocks = (b * s.div_ceil(bq) * chunks).max(1);
    let most = (t / (2 * bt)).max(1).min(4 * shape.processors / blocks).max(1);
    let splits = if blocks < shape.processors { 1 << most.ilog2() } else { 1 };
    let workspace = if splits > 1 { splits * b * s * (e + 2) * bytes } else { 0 };
    let join = (splits > 1).then(|| {
        let call = format!("join_keys<{sum}, {splits}, {lanes}, {JOIN}>(slots);");
        let blocks = (b * s * e / lanes).div_ceil(JOIN).min(shape.processors * 16);
        Launch { workspace, ..Launch::new(head.clone() + &entry((JOIN, 1), &call), [blocks, 1, 1], JOIN) }
    });
    if let Some(half) = half {
        let (dp, ep) = (d.max(1).next_multiple_of(16), e.max(1).next_multiple_of(16));
        let shared = operands[0].shared(bq, dp) + 2 * (operands[1].shared(bt, dp) + operands[2].shared(ep, bt));
        let call = format!("attend_matrices<{half}, {bq}, {bt}, {dp}, {ep}, {splits}, {lanes}, {bias_lanes}>(slots);");
        let text = [include_str!("../text/halves.cu"), include_str!("../text/matrix_attention.cu")].concat();
        let source = head + &text + &entry((bq * 2, if d.max(e) > 64 { 1 } else { 3 }), &call);
        let grid = [s.div_ceil(bq), chunks * splits, b.min(65535)];
        let shared = shared.max(bq * (ep + 4) * 4);
        let launch = Launch { shared, workspace, ..Launch::new(source, grid, bq * 2) };
        return launches(shape, launch, join);
    }
    let call = format!("attend<{sum}, {bq}, {bt}, {dc}, {ec}, {splits}, {lanes}, {bias_lanes}>(slots);");
    let threads = bq / 4 * 16;
    let shared = (dc * (bq + bt + 8) + bt * (bq + 4) + bt * (ec + 4)) * bytes;
    let grid = [s.div_ceil(bq), chunks * splits, b.min(65535)];
    let launch = Launch {
        shared,
        workspace,
        ..Launch::new(head + &entry((threads, if is_wide { 1 } else { 512 / threads }), &call), grid, threads)
    };
    launches(shape, launch, join)
}

/// What is launched, if the device has the shared memory for it.
fn launches(shape: &Shape, launch: Launch, join: Option<Launch>) -> Result<Vec<Launch>, Vec<String>> {
    let (needs, has) = (launch.shared, shape.shared);
    match needs <= has {
        true => Ok([launch].into_iter().chain(join).collect()),
        false => {
            Err(vec![format!("attention of this depth takes {needs} bytes of shared memory; the device has {has}")])
        }
    }
}

/// For each block of queries, the keys from the first to the last tile that is not hidden; none where all are seen by all.
fn ranges(bias: &Nest, result: usize, [bq, bt]: [usize; 2]) -> Option<Vec<[usize; 2]>> {
    let [b, s, t] = [0, 1, 2].map(|n| bias.domain[n]);
    let (blocks, tiles) = (s.div_ceil(bq), t.div_ceil(bt));
    if b == 0 || blocks * tiles > LOOKED_AT || blocks * tiles == 0 {
        return None;
    }
    let results = [result];
    let mut mask = Mask::new(&bias.instrs, &results)?;
    let ranges: Vec<[usize; 2]> = (0..blocks)
        .map(|block| {
            let mut is_seen = |tile: usize| {
                let (q, k) = (block * bq, tile * bt);
                mask.of(&[0..b, q..s.min(q + bq), k..t.min(k + bt)]) != Visibility::Hidden
            };
            let first = (0..tiles).find(|&tile| is_seen(tile));
            let last = (0..tiles).rev().find(|&tile| is_seen(tile));
            first.zip(last).map_or([0, 0], |(first, last)| [first * bt, t.min((last + 1) * bt)])
        })
        .collect();
    ranges.iter().any(|range| *range != [0, t]).then_some(ranges)
}

/// The function that says which keys a block of queries looks at.
fn visible(ranges: Option<&[[usize; 2]]>) -> String {
    let Some(ranges) = ranges else { return "FN void visible(int, int&, int&) {}\n".into() };
    let list: Vec<_> = ranges.iter().map(|[first, last]| format!("{first}, {last}")).collect();
    format!(
        "CONSTANT int RANGES[] = {{ {} }};\nFN void visible(int block, int& first, int& last) {{ first = RANGES[2 * block]; last = RANGES[2 * block + 1]; }}\n",
        list.join(", ")
    )
}
