//! Tests scans through the whole engine: along each axis, with a prologue and an epilogue, and several in one kernel.

use eutectic_ir::{lang::sexp::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
    sweep::{Sweep, Way},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    rows_are_scanned,
    columns_are_scanned,
    computed_elements_are_scanned_and_results_are_read,
    several_scans_are_one_kernel,
    infinities_and_nan_reach_later_results,
    factors_that_are_not_finite_reach_a_state_of_0,
    long_scans_are_cut,
];

const OPS: [&str; 5] = ["scan-sum", "scan-prod", "scan-max", "scan-min", "scan-linear"];

/// Compares a graph with the interpreter, in every way.
fn agree(device: &Device, text: &str) {
    let sweep = Sweep::new(device);
    let graph = parse(&Source::new("scan.graph", format!("(graph \"g\" {text})")));
    let graph = graph.unwrap_or_else(|e| panic!("{text}: {e:?}"));
    for (seed, way) in (0..).zip(Way::ALL) {
        sweep.agrees(way, &graph, seed).unwrap_or_else(|e| panic!("{text}, {way:?}: {e}"));
    }
}

/// Returns a scan of `x`. Factors of recurrences are between −1 and 1.
fn scan(op: &str, x: &str, attrs: &str) -> String {
    match op {
        "scan-linear" => format!("({op} (tanh {x}) {x} {attrs})"),
        // Products of many elements overflow, unless elements are at most 1.
        "scan-prod" => format!("({op} (cos (tanh {x})) {attrs})"),
        _ => format!("({op} {x} {attrs})"),
    }
}

/// Returns a scan of integers `x`.
fn scan_of_integers(op: &str, attrs: &str) -> String {
    if op == "scan-linear" { format!("({op} x x {attrs})") } else { format!("({op} x {attrs})") }
}

const ORDERS: [&str; 4] = ["", ":reverse true", ":exclusive true", ":reverse true :exclusive true"];

/// Scans rows of one element, rows shorter and longer than a block of the scan, many rows, and rows longer than a tile.
fn rows_are_scanned(device: &Device) {
    let floats: &[&str] = &["f32", "f16", "f64"];
    let shapes = [([1, 1], 1), ([3, 5], 1), ([2, 64], 3), ([70, 19], 1), ([5, 333], 3), ([1, 5000], 1)];
    for ([rows, row], dtypes) in shapes {
        for op in OPS {
            for order in ORDERS {
                for dtype in &floats[..dtypes] {
                    agree(device, &format!("(input x {dtype}[{rows} {row}]) (output y {})", scan(op, "x", order)));
                }
                if dtypes > 1 {
                    let dtype = if rows > 2 { "i8" } else { "i64" };
                    let scan = scan_of_integers(op, order);
                    agree(device, &format!("(input x {dtype}[{rows} {row}]) (output y {scan})"));
                }
            }
        }
    }
    agree(device, "(input x f32[1 40000]) (output y (scan-sum x)) (output z (scan-sum x :reverse true))");
    agree(device, "(input x f32[3 0]) (input z f32[0 3]) (output y (scan-sum x)) (output w (scan-max z))");
}

/// Scans along the first axis of a tensor, and along an axis in the middle.
fn columns_are_scanned(device: &Device) {
    for [outer, row, inner] in [[1, 3, 2], [2, 70, 33], [3, 5, 130], [1, 700, 9]] {
        for op in OPS {
            for order in ORDERS {
                let scan = scan(op, "x", &format!(":axis -2 {order}"));
                agree(device, &format!("(input x f32[{outer} {row} {inner}]) (output y {scan})"));
            }
        }
    }
    agree(device, "(input x f32[300 70]) (output y (scan-sum x :axis -2))");
}

/// Scans computed elements, and recurrences whose factors depend on fewer axes. Reductions, other scans and views read
/// the results.
fn computed_elements_are_scanned_and_results_are_read(device: &Device) {
    for order in ORDERS {
        let text = [
            format!("(input x f32[6 90]) (output y (softmax (scan-sum (exp (neg x)) {order}) :axis -1))"),
            format!("(input x f32[6 90]) (output y (scan-sum (scan-max (neg x) {order}) {order}))"),
            format!("(input x f32[6 90]) (output y (scan-sum (scan-max (neg x) {order})))"),
            format!("(input x f32[6 90]) (output y (mul x (reduce-max (scan-sum x {order}) :axes [-1] :keep true)))"),
            format!("(input x f32[6 90]) (output y (slice (scan-sum x {order}) :axis -1 :at 89 :len 1))"),
            format!("(input x f32[6 90]) (output y (slice (scan-sum x {order}) :axis -1 :at 89 :len 90 :step -1))"),
            format!(
                "(input a f32[6 1 1]) (input b f32[6 5 90]) (let f (expand (tanh a) :shape [6 5 90])) \
                 (output y (transpose (scan-linear f b {order}) :perm [0 2 1]))"
            ),
            format!(
                "(input a f32[90]) (input b f32[6 5 90]) (output y (scan-linear (expand (tanh a) :shape [6 5 90]) b {order}))"
            ),
            format!("(input x bool[6 90]) (output y (scan-sum (cast x :to i32) {order}))"),
        ];
        text.iter().for_each(|text| agree(device, text));
    }
}

/// Scans in one direction and in both. Also runs a selective scan, which sums the states of several channels.
fn several_scans_are_one_kernel(device: &Device) {
    agree(device, "(input x f32[9 200]) (output y (add (scan-sum x) (scan-sum x :reverse true)))");
    agree(device, "(input x f32[9 200]) (output y (sub (scan-max x) (scan-min x :exclusive false)))");
    let inputs = "(input a f32[4 3 50]) (input b f32[4 3 50]) (input c f32[4 3 50]) (let h (scan-linear (tanh a) b))";
    for last in [
        "(reduce-sum (mul c h) :axes [-2] :keep false)",
        "(add (reduce-sum (mul c h) :axes [-2] :keep true) (slice a :axis -2 :at 0 :len 1))",
        "(reduce-max (mul c h) :axes [-3] :keep false)",
        "(transpose (reduce-sum h :axes [-2] :keep false) :perm [1 0])",
        "(softmax (reduce-sum (mul c h) :axes [-2] :keep false) :axis -1)",
    ] {
        agree(device, &format!("{inputs} (output y {last})"));
    }
    // There are as many channels as steps, so that extents do not distinguish the axes.
    agree(device, "(input a f32[2 5 5]) (output y (reduce-sum (scan-sum a) :axes [-2] :keep false))");
}

/// Scans rows whose last elements are all ∞, −∞ or NaN.
fn infinities_and_nan_reach_later_results(device: &Device) {
    let at = "(lt (iota :shape [3 80] :axis -1 :dtype i32) (const i32[] { 40 }))";
    for special in ["inf", "-inf", "nan"] {
        for op in OPS {
            for order in ORDERS {
                let x = format!("(where {at} x (const f32[] {{ {special} }}))");
                agree(device, &format!("(input x f32[3 80]) (output y {})", scan(op, &x, order)));
            }
        }
    }
}

/// Runs recurrences with a factor that is infinite or NaN, and recurrences in which the product of factors overflows.
/// The state at these factors is 0 or not: 0 · ∞ must be NaN.
fn factors_that_are_not_finite_reach_a_state_of_0(device: &Device) {
    for len in [80, 5000] {
        let at = format!("(iota :shape [3 {len}] :axis -1 :dtype i32)");
        let [number, point] =
            [|x: &str| format!("(const f32[] {{ {x} }})"), |x: &str| format!("(const i32[] {{ {x} }})")];
        let late = format!("(where (lt {at} {}) {} x)", point("60"), number("0"));
        for special in ["inf", "-inf", "nan"] {
            let factor = format!("(where (eq {at} {}) {} (tanh x))", point("40"), number(special));
            for order in ORDERS {
                for added in [&late, "x"] {
                    let scan = format!("(scan-linear {factor} {added} {order})");
                    agree(device, &format!("(input x f32[3 {len}]) (output y {scan})"));
                }
            }
        }
        let factor = format!("(where (lt {at} {}) {} (tanh x))", point("60"), number("1e30"));
        agree(device, &format!("(input x f32[3 {len}]) (output y (scan-linear {factor} {late}))"));
    }
}

/// Scans rows that devices split because of their length: along rows and columns, alone, and in a kernel with other
/// ops.
fn long_scans_are_cut(device: &Device) {
    for op in ["scan-sum", "scan-max"] {
        for order in ORDERS {
            agree(device, &format!("(input x f32[1 70000]) (output y {})", scan(op, "x", order)));
            agree(
                device,
                &format!("(input x f32[2 8192 3]) (output y {})", scan(op, "x", &format!(":axis -2 {order}"))),
            );
        }
    }
    agree(
        device,
        "(input x f32[2 66000]) (let s (scan-sum (tanh x))) (output y (mul s (exp (neg x)))) (output z (scan-max x))",
    );
    agree(device, "(input x f32[65537]) (output y (scan-sum x))");
    agree(device, "(input x f32[0 70000]) (input z f32[0]) (output y (scan-sum x)) (output w (scan-linear z z))");
    agree(device, "(input x f32[3 40000]) (output y (slice (scan-sum x) :axis -1 :at 39999 :len 1))");
    agree(device, "(input x bool[1 70000]) (output y (scan-sum (cast x :to i64)))");
}
