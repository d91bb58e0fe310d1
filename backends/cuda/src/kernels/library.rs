//! Products of strided matrices by cuBLASLt, with its epilogues. Other epilogues become a map kernel over the product.

use eutectic_backend::{AnchorKernel, Instr, Kernel, Load, ValueId, axes::Nest};
use eutectic_gpu::{
    launch::{Finish, Launch, MatrixLayout, Product},
    map, ops,
};
use eutectic_ir::{DType, index::Index};

use super::{
    parts::multiplied,
    product::{Printed, ProductProblem, ProductWay},
};
use crate::dialect::CudaC;

/// Bytes of the workspace that the library may use.
pub const LIBRARY_BYTES: usize = 32 << 20;
/// For operands of 16, 32 and 64 bits, measured on an H200: operations per second, the depth at which half of that rate
/// is reached, and seconds per term for a result of few tiles.
const RATES: [(usize, f64, f64, f64); 3] =
    [(2, 7.5e14, 110.0, 1.5e-9), (4, 5.1e13, 20.0, 20e-9), (8, 5.0e13, 20.0, 20e-9)];
/// The same numbers for TF32 operands.
const TF32_RATES: (usize, f64, f64, f64) = (4, 3.8e14, 110.0, 3e-9);
/// The minimal seconds of a product with few terms.
const ENDS: f64 = 0.8e-6;
/// Activations of the library, by their keys in the op table. Its relu is left out because it turns NaN into 0.
pub const ACTIVATIONS: &[&str] = &["gelu-tanh"];

/// Returns the library's schedule, if the operands are strided matrices and the product is large enough.
pub fn ways<'a>(problem: &'a ProductProblem<'a>) -> Option<ProductWay<'a>> {
    let ProductProblem { shape, kernel, extents, .. } = problem;
    let least = shape.library?;
    let operands = [(&problem.left, multiplied(problem.lhs)), (&problem.right, multiplied(problem.rhs))];
    let tf32 = problem.unit.is_some_and(|element| element.size == 4);
    let dtype = problem.left.instrs[operands[0].1].dtype();
    let rates = RATES.iter().filter(|_| !tf32).chain([&TF32_RATES]);
    let &(_, rate, half, term) = rates.into_iter().find(|rate| dtype.is_float() && rate.0 == dtype.size())?;
    let [lhs, rhs] = [matrix(kernel, operands[0], dtype)?, matrix(kernel, operands[1], dtype)?];
    let elements = extents[..3].iter().map(|&n| n as f64).product::<f64>();
    let flops = 2.0 * elements * extents[3] as f64;
    let direct = stored(kernel, &problem.own, dtype);
    let extra = if direct.is_some() { 0.0 } else { 2e-6 + elements * 8.0 / 2.5e12 };
    let depth = extents[3] as f64;
    let busy = (flops / rate * (1.0 + half / depth)).max(ENDS + term * depth);
    (flops >= least.max(1.0)).then(|| ProductWay {
        name: format!("library{}", if direct.is_some() { "" } else { " and map" }),
        seconds: if least > 0.0 { problem.seconds(busy, 1) + extra } else { 0.0 },
        print: Box::new(move || print(problem, (dtype, tf32), [lhs, rhs], direct.clone())),
    })
}

fn print(
    problem: &ProductProblem,
    (operands, tf32): (DType, bool),
    [lhs, rhs]: [MatrixLayout; 2],
    direct: Option<ProductStore>,
) -> Printed {
    let ProductProblem { shape, kernel, extents, .. } = *problem;
    let [b, m, n, _] = extents;
    if let Some(ProductStore { result, out, finish }) = direct {
        let product = Product { extents, operands, tf32, result, lhs, rhs, out, finish };
        return Ok(vec![Launch::product(product, LIBRARY_BYTES)]);
    }
    let result = if operands == DType::F64 { DType::F64 } else { DType::F32 };
    let out = MatrixLayout { slot: kernel.slots.len(), offset: 0, strides: [m * n, n, 1] };
    let workspace = (b * m * n * result.size()).next_multiple_of(256) + LIBRARY_BYTES;
    let product = Product { extents, operands, tf32, result, lhs, rhs, out, finish: Finish::default() };
    let epilogue = Kernel { anchor: AnchorKernel::map(), ..over(kernel, result) };
    let launch = map::print_stage(&CudaC, shape, &epilogue)?;
    Ok(vec![Launch::product(product, workspace), Launch { workspace, ..launch }])
}

/// Returns the layout of a loaded matrix: contiguous along one axis, with other strides and the start at multiples of
/// 16 bytes. `None` for other operands.
pub fn matrix(kernel: &Kernel, (nest, result): (&Nest, ValueId), dtype: DType) -> Option<MatrixLayout> {
    let Instr::Load(load) = &nest.instrs[result] else { return None };
    let is_whole = load.guards.is_empty() && load.dtype == dtype && kernel.slots[load.slot].0 == dtype;
    let at = matrix_at(&load.at, load.slot, nest, dtype).filter(|_| is_whole)?;
    let [_, row, column] = at.strides;
    (row == 1 && column >= nest.domain[1] || column == 1 && row >= nest.domain[2]).then_some(at)
}

/// The destination of a product, and the epilogue that the library computes.
#[derive(Clone)]
struct ProductStore {
    result: DType,
    out: MatrixLayout,
    finish: Finish,
}

/// Returns the store of a product, if the library has its epilogue.
fn stored(kernel: &Kernel, own: &Nest, operands: DType) -> Option<ProductStore> {
    let [store] = own.stores.as_slice() else { return None };
    let result = kernel.slots[store.slot].0;
    let fits = result == operands || result == DType::F32 && operands.is_half();
    let out = row_major(&store.at, store.slot, own, result).filter(|_| fits && store.guards.is_empty())?;
    let mut finish = Finish::default();
    let mut sum = uncast(own, store.value);
    if let Instr::Map { op, attrs, args, .. } = &own.instrs[sum] {
        finish.activation = ACTIVATIONS.iter().copied().find(|&name| name == ops::key(*op, attrs));
        if finish.activation.is_some() {
            sum = uncast(own, *args.first()?);
        }
    }
    let mut terms = vec![sum];
    let mut products = 0;
    while let Some(term) = terms.pop() {
        match &own.instrs[uncast(own, term)] {
            Instr::Anchor { .. } => products += 1,
            Instr::Map { op, attrs, args, .. } if ops::key(*op, attrs) == "add" => terms.extend(args),
            Instr::Load(load) if load.guards.is_empty() && kernel.slots[load.slot].0 == result => {
                let bias = place(&load.at, load.slot, own, result).filter(|at| at.strides == [0, 0, 1]);
                match bias {
                    Some(at) if finish.bias.is_none() => finish.bias = Some((at.slot, at.offset)),
                    _ if finish.residual.is_some() => return None,
                    _ => finish.residual = Some(row_major(&load.at, load.slot, own, result)?),
                }
            }
            _ => return None,
        }
    }
    // The library has biases and activations only for results of the operands' type, and only for one matrix at a time.
    let is_plain = finish.bias.is_none() && finish.activation.is_none();
    let has = is_plain || result == operands && result != DType::F64 && own.domain[0] == 1;
    (products == 1 && has).then_some(ProductStore { result, out, finish })
}

/// Returns the operand of a chain of casts between floats of at most 32 bits. Results may have excess precision, so the
/// casts can be omitted.
fn uncast(own: &Nest, mut value: ValueId) -> ValueId {
    let is_held_as_f32 = |dtype: DType| dtype.is_float() && dtype != DType::F64;
    while let Instr::Map { op, attrs, args, dtype } = &own.instrs[value] {
        let is_none = ops::key(*op, attrs) == "none" || op.attr("to").is_some();
        match args.as_slice() {
            &[arg] if is_none && is_held_as_f32(*dtype) && is_held_as_f32(own.instrs[arg].dtype()) => value = arg,
            _ => break,
        }
    }
    value
}

/// Returns the layout of a matrix whose columns are contiguous; `None` for other maps.
fn row_major(at: &Index, slot: usize, own: &Nest, dtype: DType) -> Option<MatrixLayout> {
    let at = matrix_at(at, slot, own, dtype)?;
    (at.strides[2] == 1 && at.strides[1] >= own.domain[2]).then_some(at)
}

/// Returns the strides of an affine map, with 0 along an axis of one point. Returns `None` if the start or a stride
/// other than 1 is not a multiple of 16 bytes.
fn place(map: &Index, slot: usize, nest: &Nest, dtype: DType) -> Option<MatrixLayout> {
    let strides = map.affine(3)?;
    let mut at = MatrixLayout { slot, offset: usize::try_from(map.constant).ok()?, strides: [0; 3] };
    for ((to, stride), &extent) in at.strides.iter_mut().zip(strides).zip(&nest.domain) {
        *to = if extent == 1 { 0 } else { usize::try_from(stride).ok()? };
    }
    let aligned = |n: usize| n == 1 || (n * dtype.size()).is_multiple_of(16);
    (at.strides.into_iter().all(aligned) && (at.offset * dtype.size()).is_multiple_of(16)).then_some(at)
}

fn matrix_at(map: &Index, slot: usize, nest: &Nest, dtype: DType) -> Option<MatrixLayout> {
    let mut at = place(map, slot, nest, dtype)?;
    // The library takes no matrices that repeat a row or a column.
    if (1..3).any(|axis| nest.domain[axis] > 1 && at.strides[axis] == 0) {
        return None;
    }
    // An axis of one point takes the stride of a dense matrix.
    let [_, rows, columns] = [0, 1, 2].map(|axis| nest.domain[axis]);
    match at.strides {
        [_, 0, 0] => (at.strides[1], at.strides[2]) = (columns, 1),
        [_, 0, 1] => at.strides[1] = columns,
        [_, 1, 0] => at.strides[2] = rows,
        [_, row, 0] if columns == 1 => at.strides = [at.strides[0], row, 1],
        [_, 0, column] if rows == 1 => at.strides = [at.strides[0], 1, column],
        _ => {}
    }
    let aligned = |n: usize| n == 1 || (n * dtype.size()).is_multiple_of(16);
    at.strides.into_iter().all(aligned).then_some(at)
}

/// Returns the kernel's epilogue as a separate kernel, which reads the product from one more buffer.
fn over(kernel: &Kernel, sum: DType) -> Kernel {
    let mut own = kernel.clone();
    let domain = own.body.domain.clone();
    let at: Vec<Index> = (0..domain.len()).map(Index::coord).collect();
    let flat = eutectic_ir::index::flatten(&at, &domain);
    for instr in &mut own.body.instrs {
        if matches!(instr, Instr::Anchor { .. }) {
            // The product is stored in the type of its sums: f32, or f64 if operands have 64 bits.
            *instr = Instr::Load(Load { slot: kernel.slots.len(), at: flat.clone(), guards: Vec::new(), dtype: sum });
        }
    }
    own.slots.push((sum, domain.iter().product()));
    own
}
