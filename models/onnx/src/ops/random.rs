//! Random numbers. They follow from a key that is derived from the node's seed, so they are equal in each run.

use eutectic_ir::{DType, Dim, NodeId, Tensor};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        importer::shape,
    },
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("RandomUniform", 1, |c| uniform(c, Like::Shape)),
    one("RandomUniformLike", 1, |c| uniform(c, Like::Input)),
    one("RandomNormal", 1, |c| normal(c, Like::Shape)),
    one("RandomNormalLike", 1, |c| normal(c, Like::Input)),
    one("Bernoulli", 15, bernoulli),
    many("Dropout", 7, dropout),
];

/// The source of the shape and the default element type.
#[derive(Clone, Copy)]
enum Like {
    Shape,
    Input,
}

/// Returns the key for a seed. Without a seed, the key is a hash of the output's name.
fn key(c: &mut NodeCall<'_, '_>, seed: Option<u64>) -> NodeResult {
    let words = match seed {
        Some(seed) => [seed as u32, (seed >> 32) as u32],
        None => {
            let name = c.output_name(0);
            c.warn(format!("it has no seed: the numbers are those of the name of its output, `{name}`, in every run"));
            let hash = fnv(name);
            // The upper word of this key is odd, and that of a float seed is 0. So the keys differ.
            [hash as u32, (hash >> 32) as u32 | 1]
        }
    };
    c.constant(Tensor::from_i64(DType::U32, &[2], words.map(i64::from)))
}

/// Returns the 64-bit FNV-1a hash of a text. Unlike the standard library's hash, it is the same in every version of
/// Rust.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the key of a seed that is a float.
fn float_key(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let seed = c.float("seed")?.map(|seed| u64::from((seed as f32).to_bits()));
    key(c, seed)
}

/// Draws random numbers with the op `op`, in the element type that the node states.
fn draw(c: &mut NodeCall<'_, '_>, op: &str, like: Like) -> NodeResult {
    let asked = c.dtype_attr("dtype")?;
    let (dims, dtype) = match like {
        Like::Input => {
            let x = c.input(0)?;
            (c.shape(x), asked.unwrap_or(c.dtype(x)))
        }
        Like::Shape => {
            let dims =
                c.ints("shape")?.ok_or("cannot draw numbers because the node has no `shape`; add that attribute")?;
            if let Some(extent) = dims.iter().find(|&&extent| extent < 0) {
                let why =
                    format!("cannot draw numbers because an extent is {extent}; give extents that are not negative");
                return Err(why.into());
            }
            (dims.into_iter().map(Dim::Known).collect(), asked.unwrap_or(DType::F32))
        }
    };
    if !dtype.is_float() || !dtype.computes() {
        let why = format!("cannot draw numbers in {dtype}; set `dtype` to float16, bfloat16, float or double");
        return Err(why.into());
    }
    let key = float_key(c)?;
    c.op(op, &[key], &[("shape", shape(&dims)), ("dtype", dtype.into())])
}

/// Computes x·scale + offset.
fn scaled(c: &mut NodeCall<'_, '_>, x: NodeId, scale: f64, offset: f64) -> NodeResult {
    let x = if scale == 1.0 { x } else { c.with("mul", x, scale)? };
    if offset == 0.0 { Ok(x) } else { c.with("add", x, offset) }
}

fn uniform(c: &mut NodeCall<'_, '_>, like: Like) -> NodeResult {
    let (low, high) = (c.float_or("low", 0.0)?, c.float_or("high", 1.0)?);
    let x = draw(c, "random-uniform", like)?;
    scaled(c, x, high - low, low)
}

fn normal(c: &mut NodeCall<'_, '_>, like: Like) -> NodeResult {
    let (mean, scale) = (c.float_or("mean", 0.0)?, c.float_or("scale", 1.0)?);
    let x = draw(c, "random-normal", like)?;
    scaled(c, x, scale, mean)
}

/// Draws 0 or 1 for each element. The input is the probability of 1.
fn bernoulli(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let p = c.input(0)?;
    let to = c.dtype_attr("dtype")?.unwrap_or(c.dtype(p));
    let key = float_key(c)?;
    let drawn = c.apply("bernoulli", [p, key])?;
    c.cast(drawn, to)
}

/// Imports `Dropout`. In training mode, it replaces random elements by 0 and scales up the remaining ones. In
/// inference, or with a ratio of 0, it returns its input.
fn dropout(c: &mut NodeCall<'_, '_>) -> Outputs {
    let x = c.input(0)?;
    let dims = c.shape(x);
    let is_training = c.optional(2).is_some() && c.known_number(2)? != 0.0;
    let ratio = match c.optional(1) {
        _ if !is_training => 0.0,
        Some(_) => c.known_number(1)?,
        None => 0.5,
    };
    if ratio == 0.0 {
        return Ok(vec![x, c.full(1.0, DType::Bool, &dims)?]);
    }
    if !(0.0..=1.0).contains(&ratio) {
        let why = "because a ratio is from 0 to 1; export another ratio";
        return Err(format!("cannot drop {ratio} of the elements {why}").into());
    }
    let seed = c.int("seed")?.map(|seed| seed as u64);
    let key = key(c, seed)?;
    let y = c.op("dropout", &[x, key], &[("ratio", ratio.into())])?;
    let drawn = c.op("random-uniform", &[key], &[("shape", shape(&dims)), ("dtype", DType::F32.into())])?;
    Ok(vec![y, c.with("ge", drawn, ratio)?])
}
