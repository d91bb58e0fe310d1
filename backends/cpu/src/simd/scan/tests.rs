//! Compares scans with simple loops over rows.

use super::*;

/// Returns the scans of rows of `count` elements, each computed in `parts` parts.
fn scanned<T: Copy + Default>(
    how: Option<Reduction>,
    dtype: DType,
    args: [&[T]; 2],
    count: usize,
    parts: usize,
    order: Order,
) -> Vec<T> {
    let mut results = args[0].to_vec();
    for (row, results) in results.chunks_mut(count).enumerate() {
        let mut state = 0_u64;
        let lengths = (0..parts).map(|part| (part * count / parts, (part + 1) * count / parts));
        let lengths: Vec<_> = if order.reverse { lengths.rev().collect() } else { lengths.collect() };
        for (part, (from, to)) in lengths.into_iter().enumerate() {
            let rows = ScanRows {
                args: args.map(|arg| arg[row * count + from..].as_ptr().cast()),
                out: results[from..].as_mut_ptr().cast(),
                rows: 1,
                lanes: 1,
                count: to - from,
                states: (&raw mut state).cast(),
                first: part == 0,
                order,
            };
            // SAFETY: there are enough elements, and a state.
            unsafe { find(how, dtype, Isa::detect())(&rows) };
        }
    }
    results
}

#[test]
fn scans_in_parts_are_those_of_whole_rows() {
    for (reverse, exclusive) in [(false, false), (false, true), (true, false), (true, true)] {
        let order = Order { reverse, exclusive };
        for count in [1, 2, 7, 63, 64, 65, 128, 200, 515] {
            let x: Vec<i32> = (0..2 * count as i32).map(|n| n * 37 % 101 - 50).collect();
            for how in Reduction::ALL {
                let mut wanted = x.clone();
                for row in 0..2 {
                    let mut state = how.identity(DType::I32).int();
                    for n in 0..count {
                        let at = row * count + if reverse { count - 1 - n } else { n };
                        let next = i64::from((how.def().integers)(state, i64::from(x[at])) as i32);
                        wanted[at] = if exclusive { state } else { next } as i32;
                        state = next;
                    }
                }
                for parts in [1, 3] {
                    let given = scanned(Some(how), DType::I32, [&x, &x], count, parts, order);
                    assert_eq!(given, wanted, "{how:?} of {count} in {parts} parts, {order:?}");
                }
            }
        }
    }
}

#[test]
fn rows_that_lie_side_by_side_are_scanned_as_those_that_do_not() {
    let (lanes, count) = (37, 21);
    let x: Vec<f32> = (0..lanes * count).map(|n| (n * 37 % 101) as f32 / 64.0).collect();
    let a: Vec<f32> = x.iter().map(|x| x / 2.0).collect();
    let turned = |x: &[f32]| -> Vec<f32> { (0..lanes * count).map(|n| x[n % count * lanes + n / count]).collect() };
    for how in Reduction::ALL.map(Some).into_iter().chain([None]) {
        for (reverse, exclusive) in [(false, false), (true, true)] {
            let order = Order { reverse, exclusive };
            let wanted =
                scanned(how, DType::F32, [&turned(if how.is_none() { &a } else { &x }), &turned(&x)], count, 1, order);
            let (mut out, mut states) = (vec![0.0_f32; lanes * count], vec![0_u64; lanes]);
            let rows = ScanRows {
                args: [if how.is_none() { &a } else { &x }, &x].map(|x| x.as_ptr().cast()),
                out: out.as_mut_ptr().cast(),
                rows: 1,
                lanes,
                count,
                states: states.as_mut_ptr().cast(),
                first: true,
                order,
            };
            // SAFETY: there are enough elements and states.
            unsafe { find(how, DType::F32, Isa::detect())(&rows) };
            let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
            assert!(turned(&out).iter().zip(&wanted).all(near), "{how:?}, {order:?}");
        }
    }
}

#[test]
fn results_are_nan_from_the_first_nan_on() {
    let mut x: Vec<f32> = (0..200).map(|n| (n * 37 % 101) as f32).collect();
    x[70] = f32::NAN;
    for how in Reduction::ALL {
        let order = Order { reverse: false, exclusive: false };
        let given = scanned(Some(how), DType::F32, [&x, &x], 200, 2, order);
        assert!((0..200).all(|n| given[n].is_nan() == (n >= 70)), "{how:?}");
    }
}

#[test]
fn recurrences_of_several_rows_go_on_from_part_to_part() {
    let (rows, count) = (19, 33);
    let a: Vec<f64> = (0..rows * count).map(|n| (n % 7) as f64 / 4.0 - 0.75).collect();
    let b: Vec<f64> = (0..rows * count).map(|n| (n % 11) as f64 - 5.0).collect();
    let (mut out, mut states) = (vec![0.0; rows * count], vec![0_u64; rows]);
    let order = Order { reverse: true, exclusive: false };
    let given = ScanRows {
        args: [a.as_ptr().cast(), b.as_ptr().cast()],
        out: out.as_mut_ptr().cast(),
        rows,
        lanes: 1,
        count,
        states: states.as_mut_ptr().cast(),
        first: true,
        order,
    };
    // SAFETY: there are enough elements and states.
    unsafe { find(None, DType::F64, Isa::detect())(&given) };
    for (row, state) in states.iter().enumerate() {
        let mut h = 0.0;
        for at in (row * count..(row + 1) * count).rev() {
            h = a[at] * h + b[at];
            assert_eq!(out[at], h, "row {row}");
        }
        assert_eq!(f64::from_bits(*state), h);
        assert_eq!(scanned(None, DType::F64, [&a, &b], count, 3, order)[row * count], h);
    }
}
