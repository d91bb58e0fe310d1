//! The ops of `com.microsoft` on matrices that are quantised in blocks, with elements of 2, 4 or 8 bits. ONNX Runtime
//! defines them in `ContribOperators.md`.

use eutectic_ir::{DType, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
        stored::Packed,
    },
    ids,
    quantize::for_each_place,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("MatMulNBits", 1, product), one("GatherBlockQuantized", 1, gathered)];

/// Reads the number of bits per element.
fn elements(c: &NodeCall<'_, '_>) -> Result<Packed, NodeError> {
    match c.int_or("bits", 4)? {
        bits @ (2 | 4 | 8) => Ok(Packed { bits: bits as u32, signed: false }),
        bits => Err(format!("its elements have {bits} bits; 2, 4 and 8 are supported").into()),
    }
}

/// Reads an attribute that must be a positive integer.
fn positive(c: &NodeCall<'_, '_>, name: &str) -> Result<usize, NodeError> {
    let given = c.int(name)?.ok_or_else(|| format!("its attribute `{name}` is missing"))?;
    usize::try_from(given)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| NodeError(format!("its `{name}` is {given}, not a positive number")))
}

/// Computes x · Wᵀ + bias. W [N K] is quantised in blocks along K. Its codes are bytes [N, blocks, bytes of a block];
/// scales and zero points are [N, blocks].
fn product(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, bytes, scales) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (terms, columns, block) = (positive(c, "K")?, positive(c, "N")?, positive(c, "block_size")?);
    let packed = elements(c)?;
    let (blocks, to) = (terms.div_ceil(block), c.dtype(scales));
    let wanted = [columns, blocks, packed.bytes(block)];
    for (what, value, count) in [("bytes", bytes, wanted.iter().product()), ("scales", scales, columns * blocks)] {
        let given = c.dims(value);
        if given.iter().product::<usize>() != count {
            return Err(format!(
                "its {what} have extents {given:?}; K = {terms} and N = {columns} need {count} elements"
            )
            .into());
        }
    }
    let bytes = c.reshape(bytes, &wanted)?;
    let codes = c.unpacked(bytes, packed)?;
    let codes = c.slice(codes, 2, 0, block)?;
    let codes = c.cast(codes, to)?;
    let mut params = [c.reshape(scales, &[columns, blocks])?, zeros(c, 3, packed, [columns, blocks], to)?];
    let weights = match c.optional(4) {
        // The input `g_idx` has the number of the block for each index along K.
        Some(groups) => {
            let groups = c.cast(groups, DType::I64)?;
            let groups = ids::named(c, groups, blocks)?;
            for param in &mut params {
                *param = c.op("gather", &[*param, groups], &[("axis", 1.into())])?;
            }
            let codes = c.reshape(codes, &[columns, blocks * block])?;
            let codes = c.slice(codes, 1, 0, terms)?;
            decoded(c, codes, params)?
        }
        None => {
            for param in &mut params {
                *param = c.reshape(*param, &[columns, blocks, 1])?;
            }
            let weights = decoded(c, codes, params)?;
            let weights = c.reshape(weights, &[columns, blocks * block])?;
            c.slice(weights, 1, 0, terms)?
        }
    };
    let matrix = c.transpose(weights, &[1, 0])?;
    let y = c.apply("matmul", [x, matrix])?;
    match c.optional(5) {
        Some(bias) => c.apply("add", [y, bias]),
        None => Ok(y),
    }
}

/// Computes (code − zero) · scale.
fn decoded(c: &mut NodeCall<'_, '_>, codes: NodeId, [scale, zero]: [NodeId; 2]) -> NodeResult {
    let centred = c.apply("sub", [codes, zero])?;
    c.apply("mul", [centred, scale])
}

/// Reads the zero points: either numbers, or codes that are packed along the last axis. Without this input, each zero
/// point is the middle code.
fn zeros(c: &mut NodeCall<'_, '_>, at: usize, packed: Packed, dims: [usize; 2], to: DType) -> NodeResult {
    let Some(given) = c.optional(at) else {
        let middle = c.number_of(f64::from(1 << (packed.bits - 1)), to)?;
        return c.expand(middle, &dims);
    };
    let [rows, blocks] = dims;
    let zero = if c.dtype(given) == DType::U8 {
        let bytes = c.reshape(given, &[rows, packed.bytes(blocks)])?;
        let codes = c.unpacked(bytes, packed)?;
        c.slice(codes, 1, 0, blocks)?
    } else {
        c.reshape(given, &dims)?
    };
    c.cast(zero, to)
}

/// Gathers rows of a table that is quantised in blocks along an axis. If the table has bytes, they pack its elements
/// along the last axis.
fn gathered(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (table, scales) = (c.input(0)?, c.input(2)?);
    let (rank, to) = (c.rank(table), c.dtype(scales));
    let axis = c.axis(c.int_or("gather_axis", 0)?, rank)?;
    let along = c.axis(c.int_or("quantize_axis", 1)?, rank)?;
    let block = c.int_or("block_size", 128)?;
    let packed = (c.packed(table).is_none() && c.dtype(table) == DType::U8).then(|| elements(c)).transpose()?;
    if axis == along || packed.is_some() && along + 1 != rank {
        return Err(format!(
            "it has gather_axis {axis} and quantize_axis {along} of {rank} axes, which is not supported"
        )
        .into());
    }
    let index = c.cast(c.input(1)?, DType::I64)?;
    let index = ids::named(c, index, c.dims(table)[axis])?;
    let rows = |c: &mut NodeCall<'_, '_>, x: NodeId| c.op("gather", &[x, index], &[("axis", (axis as i64).into())]);
    let unpacked = |c: &mut NodeCall<'_, '_>, x: NodeId| packed.map_or(Ok(x), |packed| c.unpacked(x, packed));
    let codes = rows(c, table)?;
    let codes = unpacked(c, codes)?;
    let along = if axis < along { along + c.rank(codes) - rank } else { along };
    let scale = rows(c, scales)?;
    let (wanted, of_blocks) = (c.dims(codes), c.dims(scale));
    let zero = match (c.optional(3), packed) {
        (Some(zero), _) => {
            let zero = rows(c, zero)?;
            let zero = unpacked(c, zero)?;
            let zero = c.slice(zero, along, 0, of_blocks[along])?;
            Some(c.cast(zero, to)?)
        }
        (None, Some(packed)) => Some(c.number_of(f64::from(1 << (packed.bits - 1)), to)?),
        (None, None) => None,
    };
    let mut number = c.cast(codes, to)?;
    if let Some(mut zero) = zero {
        if c.rank(zero) != 0 {
            zero = for_each_place(c, zero, &wanted, along, block)?;
        }
        number = c.apply("sub", [number, zero])?;
    }
    let scale = for_each_place(c, scale, &wanted, along, block)?;
    c.apply("mul", [number, scale])
}
