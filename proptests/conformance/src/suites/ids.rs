//! Tests that an id out of range ends the run with an error that names the op, the id and the extent of the axis. Also
//! tests positions of extrema and orders of rows with NaN. Each program is planned in several ways.

use eutectic::{DType, Error, Graph, Strategy, Tensor};
use eutectic_backend::BackendError;
use eutectic_ir::{interpret, lang::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    negative_ids_count_from_the_end,
    ids_of_several_axes_are_checked_one_by_one,
    an_id_is_reported_by_the_op_that_reads_by_it,
    constant_ids_are_checked_when_a_program_is_loaded,
    a_table_without_rows_has_no_ids,
    ids_of_a_table_of_equal_rows_are_checked,
    rows_with_nan_have_their_extrema_there,
    nan_is_the_largest_in_the_order_of_a_row,
];

const STRATEGIES: [Strategy; 3] = [Strategy::Unfused, Strategy::Greedy, Strategy::Local];

fn graph(text: &str) -> Graph {
    parse(&Source::new("ids.graph", format!("(graph \"ids\" {text})"))).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

fn ints(dtype: DType, dims: &[usize], of: &[i64]) -> Tensor {
    Tensor::from_i64(dtype, dims, of.iter().copied())
}

fn floats(dtype: DType, dims: &[usize], of: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, dims, of.iter().copied())
}

/// Returns the results of a graph with each strategy of planning. There are none if the device refuses the graph.
fn runs(device: &Device, graph: &Graph, inputs: &[Tensor]) -> Vec<Result<Vec<Tensor>, Error>> {
    let run = |strategy: &Strategy| {
        let mut session = device.compiler().with_strategy(*strategy).compile(graph)?;
        session.load_named(|_| None)?;
        session.run(inputs)
    };
    let results = STRATEGIES.iter().map(run);
    let is_taken = |result: &Result<Vec<Tensor>, Error>| match result {
        Err(Error::Unsupported { problems, .. }) => {
            device.refuse(|| problems.join(", "));
            false
        }
        _ => true,
    };
    results.filter(is_taken).collect()
}

/// Compares the results of a device and of the interpreter with the right ones.
fn gives(device: &Device, text: &str, inputs: &[(&str, Tensor)], want: &[&[f64]]) {
    let graph = graph(text);
    let by_name = |name: &str| inputs.iter().find(|(n, _)| *n == name).map(|(_, tensor)| tensor.clone());
    let reference = interpret::<f64>(&graph, &by_name).unwrap_or_else(|e| panic!("{text}: {e}"));
    let same = |got: &[f64], want: &[f64]| {
        got.len() == want.len() && got.iter().zip(want).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
    };
    for (value, want) in reference.iter().zip(want) {
        assert!(same(&value.to_tensor().to_f64(), want), "interpreted: {text}: {:?}", value.to_tensor());
    }
    let given: Vec<Tensor> = inputs.iter().map(|(_, tensor)| tensor.clone()).collect();
    for outputs in runs(device, &graph, &given) {
        let outputs = outputs.unwrap_or_else(|e| panic!("{text}: {e}"));
        for (got, want) in outputs.iter().zip(want) {
            assert!(same(&got.to_f64(), want), "{text} of {given:?}: {got:?}, not {want:?}");
        }
        device.judge();
    }
}

/// Checks that a run fails with an error that names the id, the extent of the axis, and the part of the model.
fn fails(device: &Device, text: &str, inputs: &[Tensor], (id, extent, part): (i64, i64, &str)) {
    for result in runs(device, &graph(text), inputs) {
        match result {
            Err(Error::Backend(BackendError::IndexOutOfRange { problem, origin })) => {
                let said = (problem.id, problem.ids.extent, origin.path());
                assert_eq!(said, (id, extent, part), "{text} of {inputs:?}");
                device.judge();
            }
            other => panic!("{text} of {inputs:?} should name the id {id}: {other:?}"),
        }
    }
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| i as f64).collect()
}

/// Gathers rows by ids of both signs: rows of one column and of many, and more ids than a tile has. The ids are also
/// stored.
fn negative_ids_count_from_the_end(device: &Device) {
    for dtype in ["i32", "i64"] {
        let of = if dtype == "i32" { DType::I32 } else { DType::I64 };
        for (rows, columns, count) in [(1, 1, 1), (3, 1, 5), (7, 33, 9), (300, 2, 700)] {
            let ids: Vec<i64> = (0..count).map(|i| (i * 5 + 3) % (2 * rows) - rows).collect();
            let row = |id: &i64| id.rem_euclid(rows) as usize;
            let want: Vec<f64> =
                ids.iter().flat_map(|id| (0..columns).map(move |c| (row(id) * columns + c) as f64)).collect();
            let places: Vec<f64> = ids.iter().map(|id| row(id) as f64).collect();
            let text = format!(
                "(input t f32[{rows} {columns}]) (input i {dtype}[{count}]) (let at (checked-id i :extent {rows})) \
                 (output y (gather t at :axis 0)) (output places at)"
            );
            let table = floats(DType::F32, &[rows as usize, columns], &numbers(rows as usize * columns));
            let given = [("t", table.clone()), ("i", ints(of, &[count as usize], &ids))];
            gives(device, &text, &given, &[&want, &places]);
            for wrong in [rows, -rows - 1, rows + (1 << 20), i64::from(i32::MIN), i64::from(i32::MAX)] {
                let mut ids = ids.clone();
                ids[count as usize / 2] = wrong;
                fails(
                    device,
                    &format!(
                        "(input t f32[{rows} {columns}]) (input i {dtype}[{count}]) \
                     (let at (checked-id i :extent {rows}) :origin model.lookup) (output y (gather t at :axis 0))"
                    ),
                    &[table.clone(), ints(of, &[count as usize], &ids)],
                    (wrong, rows, "model.lookup"),
                );
            }
        }
    }
    // All 64 bits of an id are compared, although the lower half of some ids is a valid id.
    let text = "(input t f32[4]) (input i i64[2]) (output y (gather t (checked-id i :extent 4 :from-end false) :axis 0) :origin far)";
    for wrong in [(1 << 32) + 1, -1, i64::MIN, i64::MAX] {
        let inputs = [floats(DType::F32, &[4], &numbers(4)), ints(DType::I64, &[2], &[1, wrong])];
        fails(device, text, &inputs, (wrong, 4, "far"));
    }
}

/// Reads and writes at ids that are computed from two coordinates. A coordinate out of range is an error, even if the
/// id is in range.
fn ids_of_several_axes_are_checked_one_by_one(device: &Device) {
    let flat = "(let r (checked-id (reshape (slice i :axis -1 :at 0 :len 1) :shape [3]) :extent 2) :origin rows) \
                (let c (checked-id (reshape (slice i :axis -1 :at 1 :len 1) :shape [3]) :extent 3) :origin columns) \
                (let at (add (mul r (const i64[] { 3 })) c))";
    let read =
        format!("(input t f32[2 3]) (input i i64[3 2]) {flat} (output y (gather (reshape t :shape [6]) at :axis 0))");
    let written = format!(
        "(input t f32[2 3]) (input i i64[3 2]) (input u f32[3]) {flat} \
         (output y (scatter-sum (reshape t :shape [1 6 1]) (reshape u :shape [1 3 1]) (reshape at :shape [1 3 1])))"
    );
    let table = || floats(DType::F32, &[2, 3], &numbers(6));
    let updates = || floats(DType::F32, &[3], &[10.0, 20.0, 30.0]);
    let ids = |of: &[i64]| ints(DType::I64, &[3, 2], of);
    let right = ids(&[0, 2, -1, -3, 1, -1]);
    gives(device, &read, &[("t", table()), ("i", right.clone())], &[&[2.0, 3.0, 5.0]]);
    let after = [0.0, 1.0, 12.0, 23.0, 4.0, 35.0];
    gives(device, &written, &[("t", table()), ("i", right), ("u", updates())], &[&after]);
    for (of, said) in [
        ([0, 3, 0, 0, 0, 0], (3, 3, "columns")),
        ([0, 0, 0, -4, 0, 0], (-4, 3, "columns")),
        ([0, 0, 0, 0, 2, 0], (2, 2, "rows")),
        ([1, 0, -3, 2, 0, 0], (-3, 2, "rows")),
        ([0, 0, 0, 0, 0, i64::MAX], (i64::MAX, 3, "columns")),
    ] {
        fails(device, &read, &[table(), ids(&of)], said);
        fails(device, &written, &[table(), ids(&of), updates()], said);
    }
}

/// Runs a program with two lookups, whose sum is an operand of a product. Each error names its own lookup.
fn an_id_is_reported_by_the_op_that_reads_by_it(device: &Device) {
    let text = "(input a f32[5 8]) (input b f32[9 8]) (input w f32[8 4]) (input i i64[3]) (input j i64[3]) \
                (let x (gather a i :axis 0) :origin words) (let y (gather b j :axis 0) :origin positions) \
                (output z (matmul (add x y) w) :origin layer)";
    let tensors = |i: &[i64], j: &[i64]| {
        let table = |rows: usize| floats(DType::F32, &[rows, 8], &numbers(rows * 8));
        let w = floats(DType::F32, &[8, 4], &numbers(32));
        [table(5), table(9), w, ints(DType::I64, &[3], i), ints(DType::I64, &[3], j)]
    };
    fails(device, text, &tensors(&[0, 5, 1], &[8, 8, 8]), (5, 5, "words"));
    fails(device, text, &tensors(&[0, 4, 1], &[8, 8, 9]), (9, 9, "positions"));
    fails(device, text, &tensors(&[0, 4, 1], &[8, -1, 0]), (-1, 9, "positions"));
    for result in runs(device, &graph(text), &tensors(&[0, 4, 1], &[8, 7, 0])) {
        assert!(result.is_ok(), "{result:?}");
        device.judge();
    }
}

fn constant_ids_are_checked_when_a_program_is_loaded(device: &Device) {
    for (ids, wrong) in [("{ 1 -5 0 }", -5), ("{ 3 3 3 }", 3)] {
        let text = format!(
            "(input t f32[3]) (let at (checked-id (const i64[3] {ids}) :extent 3) :origin constants) \
             (output y (gather t at :axis 0))"
        );
        fails(device, &text, &[floats(DType::F32, &[3], &numbers(3))], (wrong, 3, "constants"));
    }
    let text = "(input t f32[3]) (output y (gather t (checked-id (const i64[3] { 1 -3 -1 }) :extent 3) :axis 0))";
    gives(device, text, &[("t", floats(DType::F32, &[3], &numbers(3)))], &[&[1.0, 0.0, 2.0]]);
}

fn a_table_without_rows_has_no_ids(device: &Device) {
    let text = |count: usize| {
        format!(
            "(input t f32[0 2]) (input i i64[{count}]) (let at (checked-id i :extent 0) :origin none) (output y (gather t at :axis 0))"
        )
    };
    let table = floats(DType::F32, &[0, 2], &[]);
    gives(device, &text(0), &[("t", table.clone()), ("i", ints(DType::I64, &[0], &[]))], &[&[]]);
    fails(device, &text(2), &[table, ints(DType::I64, &[2], &[0, 0])], (0, 0, "none"));
}

/// Returns an expression, as text, for the first or the last position of each row's extremum. It has the form that the
/// ONNX importer writes.
fn place(how: &str, x: &str, rows: usize, row: usize, last: bool) -> String {
    let (reduce, nowhere) = if last { ("reduce-max", -1) } else { ("reduce-min", row as i64) };
    format!(
        "({reduce} (where (or (eq {x} ({how} {x} :axes [-1])) (is-nan {x})) (iota :shape [{rows} {row}] :axis -1 :dtype i32) \
         (const i32[] {{ {nowhere} }})) :axes [-1] :keep false)"
    )
}

const NAN: f64 = f64::NAN;

/// Gathers from tables of equal rows. The results do not depend on the ids, which must be checked nevertheless.
fn ids_of_a_table_of_equal_rows_are_checked(device: &Device) {
    let tables = [
        ("f32[]", "(reshape t :shape [1])", 1, 1),
        ("f32[]", "(expand t :shape [4])", 4, 1),
        ("f32[2]", "(expand (reshape t :shape [1 2]) :shape [4 2])", 4, 2),
        ("f32[]", "(add (const f32[4] { 1 1 1 1 }) (expand t :shape [4]))", 4, 1),
        ("f32[]", "(const f32[4] { 0 0 0 0 })", 4, 1),
    ];
    for (ty, table, rows, columns) in tables {
        let text = format!(
            "(input t {ty}) (input i i64[3]) (output y (gather {table} (checked-id i :extent {rows}) :axis 0) :origin equal)"
        );
        let t = || floats(DType::F32, if columns == 1 { &[] } else { &[2] }, &numbers(columns));
        for result in runs(device, &graph(&text), &[t(), ints(DType::I64, &[3], &[0, -1, rows - 1])]) {
            assert!(result.is_ok(), "{text}: {result:?}");
            device.judge();
        }
        for wrong in [rows, -rows - 1] {
            fails(device, &text, &[t(), ints(DType::I64, &[3], &[0, wrong, 0])], (wrong, rows, "equal"));
        }
    }
}

/// Finds extrema of rows with NaN: at each position of rows longer than a vector, in short rows, and everywhere. Other
/// rows have infinities and signed zeros.
fn rows_with_nan_have_their_extrema_there(device: &Device) {
    let inf = f64::INFINITY;
    let mut cases: Vec<Vec<Vec<f64>>> = vec![
        vec![vec![NAN, 0.0], vec![0.0, NAN], vec![NAN, NAN], vec![1.0, 0.0]],
        vec![
            vec![inf, NAN, -inf],
            vec![-inf, inf, NAN],
            vec![0.0, -0.0, 0.0],
            vec![-inf, -inf, -inf],
            vec![inf, inf, inf],
        ],
        vec![vec![NAN], vec![2.0]],
    ];
    let long =
        |at: &[usize]| (0..37).map(|i| if at.contains(&i) { NAN } else { (i * 7 % 11) as f64 }).collect::<Vec<_>>();
    cases.push((0..37).map(|at| long(&[at])).chain([long(&[]), long(&[3, 20]), long(&[36, 0])]).collect());
    cases.push(vec![(0..1000).map(|i| if i == 777 || i == 900 { NAN } else { f64::from(i) }).collect()]);
    for case in &cases {
        let (rows, row) = (case.len(), case[0].len());
        for dtype in [DType::F32, DType::F16, DType::F64] {
            let all = case.concat();
            // The expected positions are NumPy's, for values that are rounded to the element type.
            let stored = floats(dtype, &[rows, row], &all).to_f64();
            let found = |largest: bool, last: bool| -> Vec<f64> {
                let of_row = |x: &[f64]| {
                    let best =
                        x.iter().copied().fold(x[0], |a, b| if largest { f64::max(a, b) } else { f64::min(a, b) });
                    let any_nan = x.iter().any(|v| v.is_nan());
                    let is_one = |v: &f64| if any_nan { v.is_nan() } else { *v == best };
                    (if last { x.iter().rposition(is_one) } else { x.iter().position(is_one) }).expect("a place") as f64
                };
                stored.chunks(row).map(of_row).collect()
            };
            for folded in [false, true] {
                let x = floats(dtype, &[rows, row], &all);
                let (input, given) = match folded {
                    false => (format!("(input x {})", x.ty()), vec![("x", x)]),
                    // The extrema of constants are computed when the program is compiled or loaded. Only small rows are
                    // tested as constants.
                    true if all.len() > 16 => continue,
                    true => (format!("(const x {x})"), vec![]),
                };
                let outputs: Vec<String> =
                    [("reduce-max", false), ("reduce-max", true), ("reduce-min", false), ("reduce-min", true)]
                        .iter()
                        .enumerate()
                        .map(|(n, (how, last))| format!("(output y{n} {})", place(how, "x", rows, row, *last)))
                        .collect();
                let want = [found(true, false), found(true, true), found(false, false), found(false, true)];
                let want: Vec<&[f64]> = want.iter().map(Vec::as_slice).collect();
                gives(device, &format!("{input} {}", outputs.join(" ")), &given, &want);
            }
        }
    }
}

/// Ranks rows with NaN, which comes last in ascending order and first in descending order. Equal elements keep their
/// order, and so do several NaN.
fn nan_is_the_largest_in_the_order_of_a_row(device: &Device) {
    let text = "(input x f32[3 4]) (output up (ranking x :most 4 :descending false)) (output down (ranking x :most 4 :descending true))";
    let x = floats(DType::F32, &[3, 4], &[NAN, 1.0, NAN, 0.0, 2.0, 2.0, f64::INFINITY, NAN, NAN, NAN, NAN, NAN]);
    let up = [2.0, 1.0, 3.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0];
    let down = [0.0, 2.0, 1.0, 3.0, 2.0, 3.0, 1.0, 0.0, 0.0, 1.0, 2.0, 3.0];
    gives(device, text, &[("x", x)], &[&up, &down]);
}
