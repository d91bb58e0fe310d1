//! Tests type signatures: solutions, their order, and error messages.

use eutectic_ir::{
    Attr, DType, Dim, Op, Shape, Type,
    lang::{Signature, Source},
};

fn signature(text: &str, attrs: &[&str]) -> Signature {
    Signature::parse(&Source::new("test", text), attrs).unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)))
}

fn f32s(dims: &[usize]) -> Type {
    Type::tensor(DType::F32, dims)
}

/// Returns the type of the result, or the error message.
fn infer(signature: &Signature, attrs: &[Attr], operands: &[Type]) -> Result<String, String> {
    let operands: Vec<_> = operands.iter().collect();
    signature.infer(attrs, &operands).map(|t| t.to_string()).map_err(|m| m.describe(&signature.scope))
}

#[test]
fn expressions_are_solved() {
    let halves = signature("(F float) F[B.. (* 2 H)] -> F[B.. H]", &[]);
    assert_eq!(infer(&halves, &[], &[f32s(&[3, 8])]), Ok("f32[3 4]".into()));
    assert_eq!(infer(&halves, &[], &[f32s(&[3, 7])]), Err("dimension 7 does not fit (* 2 H)".into()));
    assert_eq!(infer(&halves, &[], &[f32s(&[])]), Err("shape [] does not have the axes of [B.. (* 2 H)]".into()));
    let h = Dim::symbol("N");
    let symbolic = Type::Tensor(DType::F32, [&h * &Dim::Known(6)].into_iter().collect());
    assert_eq!(infer(&halves, &[], &[symbolic]), Ok("f32[(* 3 N)]".into()));
    let other = signature("(F float) F[(+ N 1)] F[(- M 2)] F[(/ K 3)] -> F[N M K]", &[]);
    assert_eq!(infer(&other, &[], &[f32s(&[5]), f32s(&[5]), f32s(&[5])]), Ok("f32[4 7 15]".into()));
}

#[test]
fn floors_and_remainders_are_computed_and_never_solved() {
    let parts = signature("(F float) F[N] -> F[(floor N 4) (mod N 4)]", &[]);
    assert_eq!(infer(&parts, &[], &[f32s(&[11])]), Ok("f32[2 3]".into()));
    let solved = signature("(F float) F[(floor N 4)] -> F[N]", &[]);
    assert!(infer(&solved, &[], &[f32s(&[2])]).is_err());
    let symbolic = Type::Tensor(DType::F32, [Dim::symbol("N")].into_iter().collect());
    assert!(infer(&parts, &[], &[symbolic]).is_err());
}

#[test]
fn two_unknowns_are_put_off() {
    // Neither (* G R) nor A.. B.. has a single solution until later operands are known.
    let grouped = signature("(F float) F[(* G R) D] F[G D] -> F[R]", &[]);
    assert_eq!(infer(&grouped, &[], &[f32s(&[6, 4]), f32s(&[2, 4])]), Ok("f32[3]".into()));
    assert!(infer(&grouped, &[], &[f32s(&[6, 4]), f32s(&[4, 4])]).is_err());
    assert!(infer(&grouped, &[], &[f32s(&[6, 4]), f32s(&[0, 4])]).is_err());
    let joined = signature("(F float) F[A.. B..] F[B..] -> F[A..]", &[]);
    assert_eq!(infer(&joined, &[], &[f32s(&[2, 3, 4]), f32s(&[4])]), Ok("f32[2 3]".into()));
    let never = signature("(F float) F[A.. B..] -> F[A..]", &[]);
    assert_eq!(infer(&never, &[], &[f32s(&[2])]), Err("cannot solve a shape from the bound variables".into()));
}

#[test]
fn variables_are_one_thing() {
    let matmul = signature("(F float) F[B.. M K] F[B.. K N] -> F[B.. M N]", &[]);
    assert_eq!(infer(&matmul, &[], &[f32s(&[2, 3, 4]), f32s(&[2, 4, 5])]), Ok("f32[2 3 5]".into()));
    let wrong = infer(&matmul, &[], &[f32s(&[3, 4]), f32s(&[5, 6])]);
    assert_eq!(wrong, Err("K is 4 in one place and 5 in another".into()));
    let ints = infer(&matmul, &[], &[f32s(&[3, 4]), Type::tensor(DType::I32, &[4, 6])]);
    assert_eq!(ints, Err("element type i32 does not fit float".into()));
    assert_eq!(infer(&matmul, &[], &[f32s(&[3, 4])]), Err("the op takes 2 operands, but 1 are given".into()));
}

#[test]
fn relations_solve_in_every_direction() {
    let broadcast = signature("(F any) F[A..] F[B..] -> F[C..] (broadcast A B C)", &[]);
    assert_eq!(infer(&broadcast, &[], &[f32s(&[4, 1, 3]), f32s(&[5, 1])]), Ok("f32[4 5 3]".into()));
    assert_eq!(infer(&broadcast, &[], &[f32s(&[]), f32s(&[0])]), Ok("f32[0]".into()));
    let wrong = infer(&broadcast, &[], &[f32s(&[2]), f32s(&[3])]);
    assert_eq!(wrong, Err("[2] and [3] do not broadcast because 2 and 3 differ and neither is 1".into()));
    let perm = [Attr::from([-1_i64, -3, -2].as_slice())];
    let forth = signature("(F any) F[A..] -> F[C..] (permute A perm C)", &["perm"]);
    let back = signature("(F any) F[C..] -> F[A..] (permute A perm C)", &["perm"]);
    assert_eq!(infer(&forth, &perm, &[f32s(&[2, 3, 4])]), Ok("f32[4 2 3]".into()));
    assert_eq!(infer(&back, &perm, &[f32s(&[4, 2, 3])]), Ok("f32[2 3 4]".into()));
    assert!(infer(&forth, &perm, &[f32s(&[2, 3])]).is_err());
}

#[test]
fn optional_operands_and_masks() {
    let sdpa = Op::named("sdpa").unwrap();
    let (q, k) = (f32s(&[4, 2, 8]), f32s(&[2, 3, 8]));
    let attrs = |mask: &str, window: i64| [Attr::from(1.0), Attr::from(0.0), Attr::from(mask), Attr::Int(window)];
    let infer = |mask: &str, window: i64, operand: Option<Type>| {
        let operands: Vec<&Type> = [&q, &k, &k].into_iter().chain(operand.as_ref()).collect();
        sdpa.infer(&attrs(mask, window), &operands)
            .map(|t| t.to_string())
            .map_err(|m| m.describe(&sdpa.signature().scope))
    };
    let result = Ok("f32[4 2 8]".to_string());
    let keep = Type::tensor(DType::Bool, &[2, 3]);
    assert_eq!(infer("none", 0, None), result);
    assert_eq!(infer("window", 2, None), result);
    assert_eq!(infer("keep", 0, Some(keep.clone())), result);
    assert_eq!(infer("additive", 0, Some(f32s(&[4, 1, 3]))), result);
    let wrong = [
        infer("keep", 0, None),
        infer("none", 0, Some(keep.clone())),
        infer("additive", 0, Some(keep)),
        infer("window", 0, None),
        infer("causal", 2, None),
        infer("additive", 0, Some(f32s(&[5, 3]))),
    ];
    assert!(wrong.iter().all(Result::is_err), "{wrong:?}");
}

#[test]
fn attributes_are_checked() {
    let reduce = |axes: &[i64], dims: &[usize]| {
        let op = Op::named("reduce-sum").unwrap();
        let ty = f32s(dims);
        let attrs = op.attributes(&[("axes", axes.into())], &[&ty]).map_err(|e| e.0)?;
        op.infer(&attrs, &[&ty]).map(|t| t.to_string()).map_err(|m| m.describe(&op.signature().scope))
    };
    assert_eq!(reduce(&[0, -1], &[2, 3, 4]), Ok("f32[1 3 1]".into()));
    assert!([reduce(&[], &[2]), reduce(&[1, -1], &[2, 3]), reduce(&[2], &[2, 3])].iter().all(Result::is_err));
    let slice = |at: i64, len: i64, step: i64| {
        let op = Op::named("slice").unwrap();
        let attrs = [Attr::Int(-1), Attr::Int(at), Attr::Int(len), Attr::Int(step)];
        op.infer(&attrs, &[&f32s(&[5])]).map(|t| t.to_string())
    };
    assert_eq!(slice(4, 5, -1), Ok("f32[5]".into()));
    assert_eq!(slice(5, 0, 1), Ok("f32[0]".into()));
    assert!(
        [slice(0, 6, 1), slice(0, 3, 3), slice(-1, 1, 1), slice(0, 1, 0), slice(1, 3, -1), slice(5, 5, -1)]
            .iter()
            .all(Result::is_err)
    );
    let shape: Shape = [2_i64, 3].into_iter().collect();
    let reshape = Op::named("reshape").unwrap();
    assert!(reshape.infer(&[Attr::Shape(shape)], &[&f32s(&[7])]).is_err());
}
