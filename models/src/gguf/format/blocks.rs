//! Decoders of blocks to `f32`. Products and sums are rounded one by one and in ggml's order, so that all bits are the same.
//!
//! The layouts are those of `ggml-common.h` (<https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h>): `d` is the scale
//! of a block, `m` its offset, and the codes of a pair of halves share bytes, the first half in the low bits.

use half::{bf16, f16 as half16};

/// The half-precision number at a place.
fn half(block: &[u8], at: usize) -> f32 {
    half16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The low and the high four bits.
fn nibbles(byte: u8) -> [u8; 2] {
    [byte & 15, byte >> 4]
}

pub(super) fn f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn f16(block: &[u8], out: &mut [f32]) {
    out[0] = half(block, 0);
}

pub(super) fn bf16(block: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

/// Sixteen bytes hold the codes of 32 elements.
fn halves(codes: &[u8], out: &mut [f32], value: impl Fn(u8, usize) -> f32) {
    for (at, byte) in codes.iter().enumerate() {
        let [low, high] = nibbles(*byte);
        out[at] = value(low, at);
        out[at + 16] = value(high, at + 16);
    }
}

pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    halves(&block[2..], out, |code, _| d * (f32::from(code) - 8.0));
}

pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    halves(&block[4..], out, |code, _| d * f32::from(code) + m);
}

/// A code whose fifth bit is one of 32 in four bytes.
fn fifth(code: u8, bits: &[u8], at: usize) -> f32 {
    f32::from(code | ((bits[at / 8] >> (at % 8)) & 1) << 4)
}

pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    halves(&block[6..], out, |code, at| d * (fifth(code, &block[2..6], at) - 16.0));
}

pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    halves(&block[8..], out, |code, at| d * fifth(code, &block[4..8], at) + m);
}

pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (out, code) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(*code as i8);
    }
}

pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, m) = (half(block, 80), half(block, 82));
    for (at, out) in out.iter_mut().enumerate() {
        // Two halves of 128; in each, 32 bytes hold two bits of four rows of 32.
        let (half, shift, byte) = (at / 128, at % 128 / 32 * 2, at % 32);
        let [scale, offset] = nibbles(scales[at / 16]).map(f32::from);
        let code = (codes[half * 32 + byte] >> shift) & 3;
        *out = d * scale * f32::from(code) - m * offset;
    }
}

pub(super) fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high, codes, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (at, out) in out.iter_mut().enumerate() {
        let (part, byte) = (at / 32, at % 32);
        let n = at / 16;
        // Scales have six bits: four in the first eight bytes, two in the last four.
        let scale = nibbles(packed[n % 8])[n / 8] | ((packed[8 + n % 4] >> (n / 4 * 2)) & 3) << 4;
        let low = (codes[at / 128 * 32 + byte] >> (part % 4 * 2)) & 3;
        let missing = if (high[byte] >> part) & 1 == 0 { 4.0 } else { 0.0 };
        *out = d * (f32::from(scale) - 32.0) * (f32::from(low) - missing);
    }
}

/// The scale and the offset of a part of `Q4_K` and `Q5_K`, six bits each.
fn six_bits(packed: &[u8], part: usize) -> [f32; 2] {
    let codes = match part {
        0..4 => [packed[part] & 63, packed[part + 4] & 63],
        _ => {
            let [scale, offset] = nibbles(packed[part + 4]);
            [scale | (packed[part - 4] >> 6) << 4, offset | (packed[part] >> 6) << 4]
        }
    };
    codes.map(f32::from)
}

/// 256 elements in eight parts; `code` gives the code of an element from its four low bits.
fn in_eighths(block: &[u8], codes: &[u8], out: &mut [f32], code: impl Fn(u8, usize, usize) -> u8) {
    let (d, m, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    for (part, out) in out.chunks_exact_mut(32).enumerate() {
        let [scale, offset] = six_bits(packed, part);
        let (scale, offset) = (d * scale, m * offset);
        for (at, out) in out.iter_mut().enumerate() {
            let low = nibbles(codes[part / 2 * 32 + at])[part % 2];
            *out = scale * f32::from(code(low, part, at)) - offset;
        }
    }
}

pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    in_eighths(block, &block[16..], out, |low, _, _| low);
}

pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let high = &block[16..48];
    in_eighths(block, &block[48..], out, |low, part, at| low | ((high[at] >> part) & 1) << 4);
}

pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (at, out) in out.iter_mut().enumerate() {
        // Two halves of 128, each of four rows of 32: rows 0 and 1 have the low nibbles, rows 2 and 3 the high ones.
        let (half, row, byte) = (at / 128, at % 128 / 32, at % 32);
        let nibble = nibbles(low[half * 64 + row % 2 * 32 + byte])[row / 2];
        let code = nibble | ((high[half * 32 + byte] >> (row * 2)) & 3) << 4;
        *out = d * f32::from(scales[at / 16] as i8) * (f32::from(code) - 32.0);
    }
}

/// The values of the codes of `IQ4_NL` and `IQ4_XS`.
const UNEVEN: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

pub(super) fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    halves(&block[2..], out, |code, _| d * UNEVEN[usize::from(code)]);
}

pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high, low) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
    let parts = block[8..].chunks_exact(16).zip(out.chunks_exact_mut(32));
    for (part, (codes, out)) in parts.enumerate() {
        let scale = nibbles(low[part / 2])[part % 2] | (((high >> (2 * part)) & 3) as u8) << 4;
        let scale = d * (f32::from(scale) - 32.0);
        halves(codes, out, |code, _| scale * UNEVEN[usize::from(code)]);
    }
}

/// The doubled values of the codes of `MXFP4`, E2M1 of the OCP specification of microscaling formats.
const E2M1: [f32; 16] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

pub(super) fn mxfp4(block: &[u8], out: &mut [f32]) {
    // Half of 2^(e − 127): the table is doubled. The two least ones are subnormal.
    let exponent = u32::from(block[0]);
    let d = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    halves(&block[1..], out, |code, _| d * E2M1[usize::from(code)]);
}
