//! Formats of floating-point numbers: their ranges, their encoding and their decoding.

/// The NaNs and infinities of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Infinities and NaNs as in IEEE 754: the greatest exponent encodes nothing else.
    Ieee,
    /// One NaN for each sign, with all bits of exponent and significand set, and no infinities. A number that is too
    /// large rounds to NaN, as in PyTorch and in the non-saturating mode of the OCP specification of 8-bit floats.
    NanOnly,
}

/// A format of floating-point numbers: a sign, a biased exponent, and the significand without its leading bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the exponent, at most 11.
    pub exponent: u32,
    /// Stored bits of the significand, at most 52.
    pub mantissa: u32,
    /// The NaNs and infinities.
    pub specials: Specials,
}

/// Stored bits of the significand of `f64`.
const DIGITS: u32 = 52;
/// Bias of the exponent of `f64`.
const BIAS: i32 = 1023;

impl FloatFormat {
    /// Returns the IEEE 754 format with fields of this many bits.
    pub const fn ieee(exponent: u32, mantissa: u32) -> FloatFormat {
        FloatFormat { exponent, mantissa, specials: Specials::Ieee }
    }

    /// Returns the format with fields of this many bits that has one NaN for each sign and no infinities.
    pub const fn finite(exponent: u32, mantissa: u32) -> FloatFormat {
        FloatFormat { exponent, mantissa, specials: Specials::NanOnly }
    }

    /// Returns whether the format has infinities.
    pub const fn has_infinities(self) -> bool {
        matches!(self.specials, Specials::Ieee)
    }

    /// Returns whether the format `other` represents all numbers of this format.
    pub const fn fits(self, other: FloatFormat) -> bool {
        self.exponent <= other.exponent
            && self.mantissa <= other.mantissa
            && (!self.has_infinities() || other.has_infinities())
    }

    /// Returns the exponent of the least normal number.
    pub const fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent - 1))
    }

    /// Returns the least positive number.
    pub fn least(self) -> f64 {
        self.decode(1)
    }

    /// Returns the least positive normal number.
    pub fn least_normal(self) -> f64 {
        self.decode(1 << self.mantissa)
    }

    /// Returns the greatest finite number.
    pub fn greatest(self) -> f64 {
        self.decode(self.beyond() - 1)
    }

    /// Returns the mask of the sign bit.
    const fn sign(self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    /// Returns the bits, without a sign, of the first number after the finite ones: infinity, or the only NaN.
    const fn beyond(self) -> u64 {
        match self.specials {
            Specials::Ieee => self.sign() - (1 << self.mantissa),
            Specials::NanOnly => self.sign() - 1,
        }
    }

    /// Decodes the bits of a number. A NaN becomes quiet, and keeps its sign and the remaining bits of its
    /// significand.
    pub const fn decode(self, bits: u64) -> f64 {
        if self.mantissa == DIGITS {
            return f64::from_bits(bits);
        }
        let sign = ((bits & self.sign() != 0) as u64) << 63;
        let magnitude = bits & (self.sign() - 1);
        let widened = magnitude << (DIGITS - self.mantissa);
        if magnitude >= self.beyond() {
            let digits = widened & ((1 << DIGITS) - 1);
            let is_nan = !self.has_infinities() || digits != 0;
            let quiet = (is_nan as u64) << (DIGITS - 1);
            return f64::from_bits(sign | f64::INFINITY.to_bits() | digits | quiet);
        }
        let least = self.least_exponent();
        if magnitude >> self.mantissa == 0 {
            let unit = f64::from_bits(((least - self.mantissa as i32 + BIAS) as u64) << DIGITS);
            return f64::from_bits((magnitude as f64 * unit).to_bits() | sign);
        }
        f64::from_bits(sign | (widened + (((least - 1 + BIAS) as u64) << DIGITS)))
    }

    /// Returns the bits of the nearest number. Ties round to the even significand. A number beyond the greatest becomes
    /// infinite, or NaN in formats without infinities. A NaN becomes quiet, and keeps its sign and the leading bits of
    /// its significand.
    pub fn encode(self, x: f64) -> u64 {
        if self.mantissa == DIGITS {
            return x.to_bits();
        }
        let sign = if x.is_sign_negative() { self.sign() } else { 0 };
        let shorter = DIGITS - self.mantissa;
        let digits = x.to_bits() & ((1 << DIGITS) - 1);
        if x.is_nan() {
            let quiet = 1 << (self.mantissa - 1);
            return sign | self.beyond() | digits >> shorter | quiet;
        }
        let exponent = (x.to_bits() >> DIGITS & 0x7ff) as i32 - BIAS;
        let above = exponent - self.least_exponent();
        // Numbers below the least normal one lose more bits of their significand. All numbers of narrower formats are
        // normal in `f64`, so only `f64`'s own subnormals have no leading bit, and they round to zero.
        let shift = shorter + above.min(0).unsigned_abs();
        if shift > DIGITS + 1 {
            return sign;
        }
        let significand = digits | 1 << DIGITS;
        let kept = significand >> shift;
        let (rest, half) = (significand & ((1 << shift) - 1), 1_u64 << (shift - 1));
        let up = rest > half || rest == half && kept & 1 == 1;
        // The leading bit of the significand adds one to the exponent field, and so does a carry.
        let magnitude = ((above.max(0) as u64) << self.mantissa) + kept + u64::from(up);
        sign | magnitude.min(self.beyond())
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    const F16: FloatFormat = FloatFormat::ieee(5, 10);
    const BF16: FloatFormat = FloatFormat::ieee(8, 7);
    const F32: FloatFormat = FloatFormat::ieee(8, 23);

    #[test]
    fn all_16_bit_numbers_are_those_of_the_crate_half() {
        for bits in 0..=u16::MAX {
            for (format, want) in [(F16, f16::from_bits(bits).to_f64()), (BF16, bf16::from_bits(bits).to_f64())] {
                let got = format.decode(bits.into());
                assert_eq!(got.to_bits(), want.to_bits(), "{bits:#x} of {format:?}");
                let quiet = u64::from(got.is_nan()) << (format.mantissa - 1);
                assert_eq!(format.encode(got), u64::from(bits) | quiet, "{got:e} as {format:?}");
            }
        }
    }

    #[test]
    fn middles_and_their_neighbours_round_once() {
        type Round = fn(f64) -> u16;
        let rounds: [(FloatFormat, Round); 2] =
            [(F16, |x| crate::round::to_f16(x).to_bits()), (BF16, |x| crate::round::to_bf16(x).to_bits())];
        for (format, round) in rounds {
            for bits in 0..format.beyond() {
                let (x, next) = (format.decode(bits), format.decode(bits + 1));
                // The number after the greatest would be a power of two.
                let next = if next.is_infinite() { 2_f64.powi(1 - format.least_exponent() + 1) } else { next };
                let middle = (x + next) / 2.0;
                for x in [x.next_up(), x.next_down(), middle, middle.next_up(), middle.next_down(), 1.1 * x] {
                    for x in [x, -x] {
                        assert_eq!(format.encode(x), round(x).into(), "{x:e} as {format:?}");
                    }
                }
            }
            for x in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e-300, f64::from_bits(1), f64::NAN] {
                assert_eq!(format.encode(x), round(x).into(), "{x:e} as {format:?}");
            }
        }
    }

    #[test]
    fn f32_is_that_of_rust() {
        // The stride has no common factor with powers of two, so that all low bits of significands occur.
        for bits in
            (0..=u32::MAX).step_by(99_991).chain([1, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001])
        {
            let x = f64::from(f32::from_bits(bits));
            assert_eq!(F32.decode(bits.into()).to_bits(), x.to_bits(), "{bits:#x}");
            let next = f64::from(f32::from_bits(bits.wrapping_add(1)));
            for x in [x, (x + next) / 2.0, ((x + next) / 2.0).next_up(), ((x + next) / 2.0).next_down()] {
                assert_eq!(F32.encode(x), (x as f32).to_bits().into(), "{x:e}");
            }
        }
    }

    #[test]
    fn numbers_without_infinities_end_in_nan() {
        // The 8-bit format of the OCP specification: 448 is the greatest number. 464 is halfway to the next one,
        // which is NaN.
        let format = FloatFormat::finite(4, 3);
        assert_eq!((format.least(), format.least_normal(), format.greatest()), (1.0 / 512.0, 1.0 / 64.0, 448.0));
        for bits in 0..=0xff_u64 {
            let x = format.decode(bits);
            assert_eq!((x.is_nan(), format.encode(x)), (bits & 0x7f == 0x7f, bits), "{bits:#x}");
        }
        assert_eq!([464.0, -464.0].map(|x| format.encode(x)), [0x7e, 0xfe]);
        assert_eq!([464.1, f64::INFINITY, 1e300, f64::NAN].map(|x| format.encode(x)), [0x7f; 4]);
        assert_eq!([-464.1, f64::NEG_INFINITY].map(|x| format.encode(x)), [0xff; 2]);
        assert_eq!([1.0 / 1024.0, (1.0_f64 / 1024.0).next_up(), 1e-300].map(|x| format.encode(x)), [0, 1, 0]);
    }

    #[test]
    fn a_format_fits_in_those_that_have_its_numbers() {
        let f64 = FloatFormat::ieee(11, 52);
        let pairs = [(F16, F32, true), (BF16, F32, true), (F32, f64, true), (F16, BF16, false), (BF16, F16, false)];
        for (format, other, fits) in pairs {
            assert_eq!((format.fits(other), other.fits(format)), (fits, false));
        }
    }
}
