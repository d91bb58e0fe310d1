//! Compares 64-bit integers that were converted from 32 bits with constants, where a driver had a bug.

use eutectic::{Compiler, DType, Tensor};

use crate::{bare, graph, open};

#[test]
fn widened_integers_are_compared_with_constants() {
    let Some(device) = open(bare()) else { return };
    let compiler = Compiler::new(device).unwrap_or_else(|e| panic!("{e}"));
    // The values are converted from coordinates, 32-bit integers and bools.
    let text = "(graph \"g\" (input a i32[9]) (input u u8[9]) \
        (output c (lt (iota :shape [9] :axis -1 :dtype i64) (const i64[] { 5 }))) \
        (output x (lt (cast a :to i64) (const i64[] { -3 }))) \
        (output y (ge (cast u :to i64) (const i64[] { 200 }))) \
        (output z (eq (cast (lt a (const i32[] { 0 })) :to i64) (const i64[] { 1 }))))";
    let mut session = compiler.compile(&graph(text)).unwrap_or_else(|e| panic!("{e}"));
    session.load(&[]).unwrap_or_else(|e| panic!("{e}"));
    let a = [i64::from(i32::MIN), -7, -4, -3, -2, 0, 3, 900, i64::from(i32::MAX)];
    let u = [0, 1, 199, 200, 201, 255, 7, 128, 250];
    let inputs = [Tensor::from_i64(DType::I32, &[9], a), Tensor::from_i64(DType::U8, &[9], u)];
    let got = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
    let is = |n: usize, want: &dyn Fn(usize) -> bool| {
        let want: Vec<f64> = (0..9).map(|i| f64::from(u8::from(want(i)))).collect();
        assert_eq!(got[n].to_f64(), want, "result {n}");
    };
    is(0, &|i| i < 5);
    is(1, &|i| a[i] < -3);
    is(2, &|i| u[i] >= 200);
    is(3, &|i| a[i] < 0);
}
