//! Tests writes by index (scatters) and rankings of rows through the whole engine, against the interpreter. Devices
//! write and sort directly, or compare each element with all ids and each element of a row with the others.

use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
use eutectic_ir::{
    DType, Tensor,
    index::{Atom, Index, flatten},
    lang::sexp::Source,
    ops::Writes,
    text::parse,
};

use crate::{
    device::Device,
    kernels::Random,
    suite::{Check, checks},
    sweep::{Sweep, Way},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    elements_are_written_by_index,
    rows_are_written_by_index,
    computed_updates_are_written,
    updates_count_once_next_to_other_results,
    many_updates_of_few_elements,
    rows_are_ordered,
    kernels_write_in_order,
];

const OPS: [&str; 5] = ["scatter", "scatter-sum", "scatter-prod", "scatter-max", "scatter-min"];

/// Compares a graph with the interpreter, with each op and in every way.
fn agree(device: &Device, text: &dyn Fn(&str) -> String) {
    OPS.iter().for_each(|op| agree_on(device, &text(op)));
}

/// Compares a graph with the interpreter, in every way.
fn agree_on(device: &Device, text: &str) {
    let sweep = Sweep::new(device);
    let graph = parse(&Source::new("scatter.graph", format!("(graph \"g\" {text})")));
    let graph = graph.unwrap_or_else(|e| panic!("{text}: {e:?}"));
    for (seed, way) in (0..).zip(Way::ALL) {
        sweep.agrees(way, &graph, seed).unwrap_or_else(|e| panic!("{text}, {way:?}: {e}"));
    }
}

/// Returns an expression, as text, that maps integers to numbers from −1 to `extent`: all valid ids, and an invalid one
/// on each side.
fn numbers(ids: &str, dtype: &str, extent: usize) -> String {
    format!("(sub (mod {ids} (const {dtype}[] {{ {} }})) (const {dtype}[] {{ 1 }}))", extent + 2)
}

/// Writes each update at its own id. Updates have one column, lines shorter and longer than vectors, or more elements
/// than a tile.
fn elements_are_written_by_index(device: &Device) {
    for [p, n, m, q] in [[1, 1, 1, 1], [1, 5, 9, 1], [3, 7, 6, 4], [2, 3, 40, 33], [1, 4, 700, 7], [5, 300, 2, 1]] {
        for dtype in ["f32", "f16", "i64", "i8"] {
            let ids = numbers("ids", "i32", n);
            let inputs =
                format!("(input x {dtype}[{p} {n} {q}]) (input u {dtype}[{p} {m} {q}]) (input ids i32[{p} {m} {q}])");
            agree(device, &|op| format!("{inputs} (output y ({op} x u {ids}))"));
        }
    }
}

/// Writes rows: all columns of a row have the same id.
fn rows_are_written_by_index(device: &Device) {
    for [n, m, q] in [[4, 9, 3], [6, 5, 130], [3, 33, 64], [2, 3, 5000]] {
        let ids = numbers("ids", "i64", n);
        let inputs = format!("(input x f32[1 {n} {q}]) (input u f32[1 {m} {q}]) (input ids i64[{m}])");
        let rows = format!("(expand (reshape {ids} :shape [1 {m} 1]) :shape [1 {m} {q}])");
        agree(device, &|op| format!("{inputs} (output y ({op} x u {rows}))"));
    }
}

/// Writes more updates than there are elements, by threads of many blocks. An element −0 must stay −0 if nothing or
/// only −0 is added.
fn many_updates_of_few_elements(device: &Device) {
    for (dtype, [p, n, m, q]) in [
        ("f32", [1, 6, 9000, 1]),
        ("f32", [2, 3, 700, 5]),
        ("i32", [1, 300, 20_000, 1]),
        ("u32", [1, 1, 5000, 1]),
        ("f16", [1, 4, 3000, 1]),
    ] {
        let ids = numbers("ids", "i32", n);
        let inputs =
            format!("(input x {dtype}[{p} {n} {q}]) (input u {dtype}[{p} {m} {q}]) (input ids i32[{p} {m} {q}])");
        agree(device, &|op| format!("{inputs} (output y ({op} x u {ids}))"));
    }
    let zero = "(neg (expand (const f32[] { 0 }) :shape [1 5 1]))";
    let zeros = "(neg (expand (const f32[] { 0 }) :shape [1 3000 1]))";
    let ids = "(input ids i32[1 3000 1]) (let i (expand (const i32[] { 3 }) :shape [1 3000 1]))";
    agree_on(
        device,
        &format!("{ids} (output y (div (const f32[] {{ 1 }}) (scatter-sum {zero} {zeros} i))) (output z ids)"),
    );
}

/// Writes updates in a kernel with another result. The kernel's domain may be that of the other result, which has as
/// many points as the updates or a multiple. Each update must still count once.
fn updates_count_once_next_to_other_results(device: &Device) {
    let ids = numbers("ids", "i64", 33);
    for beside in [32, 64, 96] {
        agree(device, &|op| {
            format!(
                "(input x f32[1 33 1]) (input u f32[1 32 1]) (input ids i64[1 32 1]) (input z f32[{beside}]) \
                 (output a ({op} x u {ids})) (output b (neg z))"
            )
        });
    }
}

/// Writes computed updates at computed ids, into zeros and into inputs. Results are read by other ops, and equal
/// updates all count.
fn computed_updates_are_written(device: &Device) {
    let inputs = "(input x f32[2 6 3]) (input u f32[2 11 3]) (input ids i64[2 11 1])";
    let ids = format!("(let i (expand {} :shape [2 11 3]))", numbers("ids", "i64", 6));
    agree(device, &|op| {
        format!("{inputs} {ids} (output y ({op} (expand (const f32[] {{ 0 }}) :shape [2 6 3]) (neg u) i))")
    });
    agree(device, &|op| {
        format!("{inputs} {ids} (let s ({op} x (neg u) i)) (output y (softmax s :axis -1)) (output z ({op} s u i))")
    });
    agree(device, &|op| {
        let one = "(expand (reshape (slice u :axis -2 :at 0 :len 1) :shape [2 1 3]) :shape [2 11 3])";
        format!("{inputs} (output y ({op} x {one} (expand (const i64[] {{ 2 }}) :shape [2 11 3])))")
    });
}

/// Ranks rows of one element, of one vector and a part of another, and of many elements. The elements are computed, and
/// the same kernel reads the ranks.
fn rows_are_ordered(device: &Device) {
    for [rows, row, most] in [[3, 1, 1], [5, 19, 19], [70, 6, 2], [3, 700, 9]] {
        for dtype in ["f32", "f16", "u8", "i64"] {
            for descending in [false, true] {
                let x = format!("(input x {dtype}[{rows} {row}]) (input z i32[{rows} {row}])");
                let ranking = format!("(ranking (neg x) :most {most} :descending {descending})");
                let of = if dtype.starts_with('u') { ranking.replace("(neg x)", "x") } else { ranking };
                agree_on(device, &format!("{x} (output y (add {of} z))"));
            }
        }
    }
    agree_on(
        device,
        "(input x f32[3 50]) (let s (softmax x :axis -1)) (output y (ranking s :most 50 :descending true)) (output p s)",
    );
    // A sum weighted by ranks, of short rows along the outer axis of their operands.
    agree_on(
        device,
        "(input x f32[6 40]) (input z i32[6 40]) \
         (let r (ranking (transpose x :perm [-1 -2]) :most 4 :descending false)) \
         (output y (reduce-sum (mul r (transpose z :perm [-1 -2])) :axes [-1] :keep false))",
    );
}

/// Tests ordered stores independently of the planner's choices. Updates have several element types, and ids of elements
/// or of rows, some out of range. There are many updates of few elements, and two stores of one kernel.
fn kernels_write_in_order(device: &Device) {
    const TYPES: [DType; 8] =
        [DType::F32, DType::F64, DType::F16, DType::I8, DType::U8, DType::I32, DType::Bool, DType::I64];
    let shapes =
        [[1, 5, 9, 1], [3, 7, 6, 4], [2, 3, 40, 33], [1, 4, 700, 8], [5, 300, 2, 1], [2, 9, 0, 3], [3, 2, 1, 5]];
    let each = TYPES.into_iter().zip(shapes.into_iter().cycle());
    for (dtype, shape) in each.chain(shapes.map(|shape| (DType::F32, shape))) {
        [false, true].into_iter().for_each(|of_rows| write(device, dtype, shape, of_rows));
    }
}

fn write(device: &Device, dtype: DType, [p, n, m, q]: [usize; 4], of_rows: bool) {
    let mut random = Random((p * n + m * q) as u64);
    let domain = vec![p, m, q];
    let at: Vec<Index> = (0..3).map(Index::coord).collect();
    let updates = flatten(&at, &domain);
    let of_ids = if of_rows { at[1].clone() } else { updates.clone() };
    let load = |slot, at: &Index, dtype| Instr::Load(Load { slot, at: at.clone(), guards: Vec::new(), dtype });
    let instrs = vec![load(0, &of_ids, DType::I32), load(1, &updates, dtype), load(2, &updates, DType::I32)];
    let id = Index::atom(Atom::Value(0));
    let to = flatten(&[at[0].clone(), id.clone(), at[2].clone()], &[p, n, q]);
    let store = |slot, value| {
        let guards = vec![(id.clone(), 0..n as i64)];
        Store { guards, writes: Writes::InOrder, ..Store::new(slot, to.clone(), value) }
    };
    let [ids, count, places] = [if of_rows { m } else { p * m * q }, p * m * q, p * n * q];
    let types = [(DType::I32, ids), (dtype, count), (DType::I32, count), (dtype, places), (DType::I32, places)];
    let kernel = Kernel {
        anchor: AnchorKernel::map(),
        body: Body { domain, instrs, ..Body::default() },
        stores: vec![store(3, 1), store(4, 2)],
        slots: types.to_vec(),
    };
    let mut numbers = |count: usize, from: i64, below: usize| -> Vec<f64> {
        (0..count).map(|_| (from + random.below(below) as i64) as f64).collect()
    };
    let given = [numbers(ids, -1, n + 2), numbers(count, 0, 2), numbers(count, 0, 1 << 20)];
    let mut want = [vec![0.0; places], vec![0.0; places]];
    for point in 0..count {
        let (outer, inner) = (point / (m * q), point % q);
        let id = given[0][if of_rows { point / q % m } else { point }];
        if (0.0..n as f64).contains(&id) {
            let at = (outer * n + id as usize) * q + inner;
            (0..2).for_each(|which| want[which][at] = given[which + 1][point]);
        }
    }
    let tensor = |(of, (dtype, count)): (&Vec<f64>, _)| Tensor::from_f64(dtype, &[count], of.iter().copied());
    let inputs: Vec<Tensor> = given.iter().zip(types).map(tensor).collect();
    let Some(results) = device.run(&kernel, &inputs) else { return };
    let results = results.unwrap_or_else(|e| panic!("{e}: {kernel:#?}"));
    for (got, want) in results.iter().zip(&want) {
        assert!(got.to_f64() == *want, "{dtype}: {got:?}, not {want:?}: {kernel:#?}");
    }
    device.judge();
}
