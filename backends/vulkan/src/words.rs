//! Patches the words of SPIR-V modules for features that naga lacks: floating-point controls, aliased buffers, and
//! matrix units.

use std::collections::{BTreeMap, BTreeSet};

use eutectic_ir::DType;

/// A property of floating-point arithmetic that a module requests: the capability, and the execution mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatControl(u32, u32);

impl FloatControl {
    pub const SIGNED_ZEROS_INFINITIES_NAN: FloatControl = FloatControl(4466, 4461);
    pub const SUBNORMALS: FloatControl = FloatControl(4464, 4459);
}

const ENTRY_POINT: u32 = 15;
const EXECUTION_MODE: u32 = 16;
pub const CAPABILITY: u32 = 17;
pub const FLOAT64: u32 = 10;
pub const INT64: u32 = 11;
const VARIABLE: u32 = 59;
const DECORATE: u32 = 71;
const STORAGE_BUFFER: u32 = 12;
const ALIASED: u32 = 20;
const NO_CONTRACTION: u32 = 42;
const NEGATE: u32 = 127;
const ADD: u32 = 129;
const SUBTRACT: u32 = 131;
const MULTIPLY: u32 = 133;
const DIVIDE: u32 = 136;
const REMAINDER: u32 = 140;
const MODULO: u32 = 141;
const VECTOR_TIMES_SCALAR: u32 = 142;

/// Returns the instructions after a module's header.
pub fn instructions(words: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = words.get(5..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = (rest.first()? >> 16).max(1) as usize;
        let (instruction, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(instruction)
    })
}

/// Returns the opcode of an instruction.
pub fn op(instruction: &[u32]) -> u32 {
    instruction[0] & 0xffff
}

/// Returns whether an instruction is arithmetic on floats. A device may otherwise reorder and fuse it, for example
/// replace (x + c) − c by x.
fn is_arithmetic(instruction: &[u32]) -> bool {
    matches!(op(instruction), NEGATE | ADD | SUBTRACT | MULTIPLY | DIVIDE | REMAINDER | MODULO | VECTOR_TIMES_SCALAR)
}

/// Returns the module with added execution modes and decorations. Special values of floats of each width in use are
/// preserved, and arithmetic is not reordered. Buffers may alias, because in-place steps read and write one buffer.
pub fn complete(words: &[u32], kept: &[(u32, FloatControl)]) -> Vec<u32> {
    let instructions: Vec<&[u32]> = instructions(words).collect();
    let buffers: Vec<u32> =
        instructions.iter().filter(|i| op(i) == VARIABLE && i[3] == STORAGE_BUFFER).map(|i| i[2]).collect();
    let has_floats = |width: u32| instructions.iter().any(|i| op(i) == 22 && i[2] == width);
    let kept: Vec<_> = kept.iter().filter(|(width, _)| has_floats(*width)).collect();
    let mut all = words[..5].to_vec();
    let (mut decorated, mut moded) = (false, false);
    let capabilities: BTreeSet<u32> = kept.iter().map(|(_, control)| control.0).collect();
    all.extend(capabilities.into_iter().flat_map(|capability| [2 << 16 | CAPABILITY, capability]));
    let entry = instructions.iter().find(|i| op(i) == ENTRY_POINT).map_or(0, |i| i[2]);
    for instruction in &instructions {
        if op(instruction) == EXECUTION_MODE && !moded {
            moded = true;
            for (width, control) in &kept {
                all.extend([4 << 16 | EXECUTION_MODE, entry, control.1, *width]);
            }
        }
        if op(instruction) == DECORATE && !decorated {
            decorated = true;
            buffers.iter().for_each(|buffer| all.extend([3 << 16 | DECORATE, *buffer, ALIASED]));
            let arithmetic = instructions.iter().filter(|i| is_arithmetic(i));
            arithmetic.for_each(|i| all.extend([3 << 16 | DECORATE, i[2], NO_CONTRACTION]));
        }
        all.extend_from_slice(instruction);
    }
    all
}

const EXTENSION: u32 = 10;
const TYPE_INT: u32 = 21;
const TYPE_FLOAT: u32 = 22;
const TYPE_POINTER: u32 = 32;
const CONSTANT: u32 = 43;
const LOAD: u32 = 61;
const STORE: u32 = 62;
const ACCESS_CHAIN: u32 = 65;
const CONTROL_BARRIER: u32 = 224;
const TYPE_MATRIX: u32 = 4456;
const LOAD_MATRIX: u32 = 4457;
const STORE_MATRIX: u32 = 4458;
const WORKGROUP: u32 = 4;
const FLOAT16: u32 = 9;
const MEMORY_MODEL_DEVICE_SCOPE: u32 = 5346;
const BFLOAT16: [u32; 2] = [5116, 5118];
/// The encoding of bfloat16, which is not an IEEE format.
const BFLOAT16_ENCODING: u32 = 0;
const NON_PRIVATE: u32 = 0x20;
/// The semantics of a barrier: acquire and release of workgroup memory, made available and visible.
const BARRIER: u32 = 0x8 | 0x100 | 0x2000 | 0x4000;
/// The `Use` operand of matrices that accumulate sums.
const SUMS: u32 = 2;

/// Returns the module with the element type of operands in matrix products, where naga uses the type of memory. Also
/// declares shared memory as visible to the workgroup, as the memory model of matrix units requires.
pub fn with_matrices(words: &[u32], dtype: DType) -> Vec<u32> {
    let all: Vec<&[u32]> = instructions(words).collect();
    let mut bound = words[3];
    let mut fresh = || {
        bound += 1;
        bound - 1
    };
    let (operand, barrier) = (fresh(), fresh());
    let constants: BTreeMap<u32, u32> = all.iter().filter(|i| op(i) == CONSTANT).map(|i| (i[2], i[3])).collect();
    let pointers: BTreeMap<u32, u32> = all.iter().filter(|i| op(i) == TYPE_POINTER).map(|i| (i[1], i[2])).collect();
    let is_memory = |i: &&&[u32]| {
        let is_pointer = matches!(op(i), VARIABLE | ACCESS_CHAIN);
        is_pointer && pointers.get(&i[1]) == Some(&WORKGROUP)
    };
    let shared: Vec<u32> = all.iter().filter(is_memory).map(|i| i[2]).collect();
    let mut new = words[..5].to_vec();
    let capabilities = match dtype {
        DType::Bf16 => vec![BFLOAT16[0], BFLOAT16[1], MEMORY_MODEL_DEVICE_SCOPE],
        _ => vec![FLOAT16, MEMORY_MODEL_DEVICE_SCOPE],
    };
    new.extend(capabilities.into_iter().flat_map(|capability| [2 << 16 | CAPABILITY, capability]));
    let (mut extended, mut declared) = (dtype != DType::Bf16, false);
    for instruction in all {
        if !extended && op(instruction) == EXTENSION {
            extended = true;
            let name: Vec<u32> =
                b"SPV_KHR_bfloat16".as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect();
            new.extend([(name.len() as u32 + 2) << 16 | EXTENSION]);
            new.extend(name);
            new.push(0);
        }
        let start = new.len();
        let mut more = None;
        match op(instruction) {
            TYPE_MATRIX if constants.get(&instruction[6]) != Some(&SUMS) => {
                if !std::mem::replace(&mut declared, true) {
                    match dtype {
                        DType::Bf16 => new.extend([4 << 16 | TYPE_FLOAT, operand, 16, BFLOAT16_ENCODING]),
                        _ => new.extend([3 << 16 | TYPE_FLOAT, operand, 16]),
                    }
                }
                let ty = new.len();
                new.extend(instruction);
                new[ty + 2] = operand;
                continue;
            }
            LOAD if shared.contains(&instruction[3]) => more = Some(4),
            STORE if shared.contains(&instruction[1]) => more = Some(3),
            LOAD_MATRIX => more = Some(6),
            STORE_MATRIX => more = Some(5),
            _ => {}
        }
        new.extend(instruction);
        if more == Some(instruction.len()) {
            new[start] += 1 << 16;
            new.push(NON_PRIVATE);
        }
        match op(instruction) {
            TYPE_INT if instruction[2..] == [32, 0] => {
                new.extend([4 << 16 | CONSTANT, instruction[1], barrier, BARRIER])
            }
            CONTROL_BARRIER => new[start + 3] = barrier,
            _ => {}
        }
    }
    new[3] = bound;
    new
}
