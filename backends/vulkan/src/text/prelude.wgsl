// Functions that kernels call. A kernel's text gets the functions that it names. A section begins with a line of
// element types, for each of which its functions exist. In a section, `$D` stands for the name of the element type, and
// `$T` for the type of its values in registers.

//# f32
// 32-bit floats: elementary functions, and conversions of 16-bit floats, which are computed in 32 bits.
fn of_bits(bits: u32) -> f32 { return bitcast<f32>(bits); }
fn fabs_f32(x: f32) -> f32 { return abs(x); }
fn sqrt_f32(x: f32) -> f32 { return sqrt(x); }
fn floor_f32(x: f32) -> f32 { return floor(x); }
fn ceil_f32(x: f32) -> f32 { return ceil(x); }
fn rint_f32(x: f32) -> f32 { return round(x); }
fn copysign_f32(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}
// Divides. Devices are exact to within 2.5 units in the last place. If all numbers are normal, the remainder is exact
// and corrects the quotient.
fn div_of_f32(a: f32, b: f32) -> f32 {
    if (!(abs(a) < 1e18 && abs(b) < 1e18 && abs(b) > 1e-18)) { return a / b; }
    let r = 1.0 / b;
    let q = a * r;
    return select(q, fma(fma(-q, b, a), r, q), abs(a) > 1e-18);
}
fn sign_of_f32(x: f32) -> f32 { return select(copysign_f32(1.0, x), x, x == 0.0 || !(x == x)); }
// Returns n and y = eʳ for x = n·ln 2 + r with |r| ≤ ln 2 / 2; `rest` is y − 1. `tail` is added to r. Adding 1.5·2²³
// leaves n in the low bits and no fraction, because conversions to integers are slow.
struct Reduced { y: f32, n: i32, rest: f32 }
fn reduced(x: f32, tail: f32) -> Reduced {
    let shifted = fma(x, 1.442695, 12582912.0);
    let n = shifted - 12582912.0;
    let r = fma(n, 0.00021219444, fma(n, -0.6933594, x)) + tail;
    let p = fma(fma(fma(fma(0.0013812307, r, 0.008369408), r, 0.04166847), r, 0.16666515), r, 0.49999994);
    let rest = fma(r * r, p, r);
    return Reduced(1.0 + rest, bitcast<i32>(shifted) - 0x4b400000, rest);
}
// Returns y·2ⁿ in two steps, because 2ⁿ alone may overflow or underflow.
fn scaled(y: f32, n: i32) -> f32 {
    let half = n >> 1u;
    return y * bitcast<f32>((half + 127) << 23u) * bitcast<f32>((n - half + 127) << 23u);
}
fn exp_f32(x: f32) -> f32 {
    let part = reduced(clamp(x, -104.0, 89.0), 0.0);
    return select(scaled(part.y, part.n), x, !(x == x));
}
fn exp_normal_f32(x: f32) -> f32 { return select(exp_f32(x), 0.0, x < -87.0); }
// Returns 2ⁿ·(1 + rest) − 1 by one rounding. It computes half of the result first, because 2ⁿ may overflow where the
// result is finite.
fn expm1_f32(x: f32) -> f32 {
    let part = reduced(clamp(x, -20.0, 89.0), 0.0);
    let half = bitcast<f32>((part.n + 126) << 23u);
    let y = 2.0 * fma(part.rest, half, half - 0.5);
    return select(copysign_f32(select(y, part.rest, part.n == 0), x), x, !(x == x));
}
// Returns ln(2ᵉ·m) for m in √½..√2, given f = m − 1. With s = f/(2 + f), ln m = 2s + s³·P(s²) = f − (f²/2 − s·(f²/2 +
// s²·P(s²))).
fn log_of(f: f32, e: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z * fma(fma(fma(0.2358982, z, 0.28536928), z, 0.4000034), z, 0.6666666);
    let half = 0.5 * f * f;
    return fma(e, 0.6933594, f - (half - fma(s, half + p, e * -0.00021219444)));
}
fn log_f32(x: f32) -> f32 {
    let tiny = x < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 33554432.0, tiny)) - 0x3f3504f3u;
    let e = f32(bitcast<i32>(bits) >> 23u) - select(0.0, 25.0, tiny);
    let f = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
    var y = log_of(f, e);
    y = select(y, x, bitcast<u32>(x) == 0x7f800000u);
    y = select(y, of_bits(0xff800000u), x == 0.0);
    return select(y, of_bits(0x7fc00000u), x < 0.0 || !(x == x));
}
// Returns ln(1 + x). The rounding error of 1 + x corrects the argument of the logarithm.
fn log1p_f32(x: f32) -> f32 {
    let u = 1.0 + x;
    let lost = x - (u - 1.0);
    let bits = bitcast<u32>(u) - 0x3f3504f3u;
    let e = bitcast<i32>(bits) >> 23u;
    let f = fma(0.5 * lost, bitcast<f32>((128 - e) << 23u), bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0);
    var y = log_of(f, f32(e));
    y = select(y, x, u == 1.0 || bitcast<u32>(x) == 0x7f800000u);
    y = select(y, of_bits(0xff800000u), x == -1.0);
    return select(y, of_bits(0x7fc00000u), x < -1.0 || !(x == x));
}
fn sinh_f32(x: f32) -> f32 {
    let a = abs(x);
    let z = x * x;
    let small = fma(fma(fma(fma(2.8175026e-6, z, 0.00019836056), z, 0.0083333507), z, 0.16666667) * z, a, a);
    let part = reduced(min(a, 90.0), 0.0);
    let half = scaled(part.y, part.n - 1);
    return select(copysign_f32(select(half - 0.25 / half, small, a < 1.0), x), x, !(x == x));
}
fn cosh_f32(x: f32) -> f32 {
    let part = reduced(min(abs(x), 90.0), 0.0);
    let half = scaled(part.y, part.n - 1);
    return select(half + 0.25 / half, x, !(x == x));
}
// Returns log(1 + a + a²/(1 + √(a² + 1))) within 3 units in the last place; for large a, log a + ln 2.
fn asinh_f32(x: f32) -> f32 {
    let a = abs(x);
    let near = log1p_f32(a + a * a / (1.0 + sqrt(fma(a, a, 1.0))));
    return copysign_f32(select(near, log_f32(a) + 0.6931472, a > 4096.0), x);
}
fn acosh_f32(x: f32) -> f32 {
    let d = x - 1.0;
    let y = select(log1p_f32(d + sqrt(d * (d + 2.0))), log_f32(x) + 0.6931472, x > 4096.0);
    return select(y, of_bits(0x7fc00000u), x < 1.0);
}
fn atanh_f32(x: f32) -> f32 {
    let a = abs(x);
    let y = select(0.5 * log1p_f32(2.0 * a / (1.0 - a)), of_bits(0x7f800000u), a == 1.0);
    return select(copysign_f32(y, x), of_bits(0x7fc00000u), a > 1.0);
}
// Returns asin a − a for a ≤ 1/2.
fn asin_rest(a: f32) -> f32 {
    let z = a * a;
    return fma(fma(fma(fma(0.0422305, z, 0.024141013), z, 0.04547834), z, 0.07495233), z, 0.16666754) * z * a;
}
fn asin_f32(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 0.5;
    let root = select(a, sqrt(0.5 * (1.0 - a)), far);
    let y = root + asin_rest(root);
    return select(copysign_f32(select(y, fma(-2.0, y, 1.5707964), far), x), of_bits(0x7fc00000u), !(a <= 1.0));
}
fn acos_f32(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 0.5;
    let root = select(a, sqrt(0.5 * (1.0 - a)), far);
    let y = root + asin_rest(root);
    let near = 1.5707964 - select(y, -y, x < 0.0);
    return select(select(near, select(2.0 * y, fma(-2.0, y, 3.1415927), x < 0.0), far), of_bits(0x7fc00000u), !(a <= 1.0));
}
fn sigmoid_f32(x: f32) -> f32 {
    let e = exp_f32(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}
// Returns x·eᵛ/(1 + eᵛ). If eᵛ is subnormal, it has fewer bits than its square root, so x is multiplied by the root
// twice.
fn gated_f32(x: f32, v: f32) -> f32 {
    let root = exp_f32(0.5 * v);
    return select(x / (1.0 + exp_f32(-v)), (x * root) * root, v < -80.0);
}
fn tanh_f32(x: f32) -> f32 {
    let z = x * x;
    let p = fma(fma(fma(fma(-0.0059057646, z, 0.020805292), z, -0.053786655), z, 0.13331959), z, -0.333333);
    let large = 1.0 - 2.0 / (1.0 + exp_f32(2.0 * abs(x)));
    return select(copysign_f32(select(large, fma(x * z, p, x), abs(x) < 0.6), x), x, !(x == x));
}
// Returns erfc z for z ≥ 0 as e^(−z²)·P(q)/(z + 3) with q = (z − 3)/(z + 3).
fn erfc_positive(x: f32) -> f32 {
    let z = min(x, 10.5);
    let t = 1.0 / (z + 3.0);
    let q = (z - 3.0) * t;
    var p = fma(fma(fma(-0.0003315915, q, -0.00049534085), q, 0.0030772053), q, -0.001220758);
    p = fma(fma(fma(p, q, -0.026837409), q, 0.11952821), q, -0.31046638);
    p = fma(fma(fma(p, q, 0.5902283), q, -0.8833945), q, 1.0740069);
    let square = z * z;
    let part = reduced(-square, -fma(z, z, -square));
    return select(scaled(part.y * (p * t), part.n), x, !(x == x));
}
// Returns x·Φ(x). For a = |x|, Φ(−a) = e^(−a²/2)·P(q)/(a + c) with q = (a − c)/(a + c) and c = 3√2. Below −12.9 Φ is
// subnormal, and the result has fewer bits.
fn gelu_erf_f32(x: f32) -> f32 {
    let a = min(abs(x), 14.5);
    let t = 1.0 / (a + 4.2426405);
    let q = (a - 4.2426405) * t;
    var p = fma(fma(fma(0.00010716314, q, 0.0022760262), q, -0.0011038812), q, -0.019068785);
    p = fma(fma(fma(fma(fma(p, q, 0.084562376), q, -0.21951781), q, 0.4173515), q, -0.62465477), q, 0.7594376);
    let square = a * a;
    let part = reduced(-0.5 * square, -0.5 * fma(a, a, -square));
    let tail = select(scaled(part.y * (p * t), part.n), 0.0, x < -14.5);
    return select(x * select(1.0 - tail, tail, x < 0.0), x, !(x == x));
}
fn erf_f32(x: f32) -> f32 {
    let z = x * x;
    var p = fma(fma(fma(8.53901e-5, z, -0.000818196), z, 0.0052044378), z, -0.026860753);
    // erf x = x + x·P(x²), so the last coefficient of P is the slope of erf at 0, minus 1. The sum is rounded once.
    p = fma(fma(fma(p, z, 0.112837195), z, -0.37612635), z, 0.12837917);
    let large = copysign_f32(1.0 - erfc_positive(abs(x)), x);
    return select(select(large, fma(x, p, x), abs(x) < 0.8), x, !(x == x));
}
fn gelu_tanh_f32(x: f32) -> f32 { return gated_f32(x, 1.5957691 * (x + 0.044715 * x * x * x)); }
// Returns q and r of x = q·π/2 + r. If the quotient is small, π/2 is subtracted in four parts. Otherwise the
// significant bits of 2/π are multiplied (Payne and Hanek 1983).
struct Turned { r: f32, q: u32 }
fn turned(x: f32) -> Turned {
    if (abs(x) < 10000.0) {
        let n = round(x * 0.63661975);
        let r = ((x - n * 1.5703125) - n * 0.00048351288) - n * 3.1385729e-7;
        return Turned(r - n * 6.0771e-11, u32(i32(n)));
    }
    if (!(abs(x) <= 3.4028235e38)) { return Turned(of_bits(0x7fc00000u), 0u); }
    var bits = array<u32, 8>(0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    let e = (bitcast<u32>(x) >> 23u) & 0xffu;
    let mantissa = (bitcast<u32>(x) & 0x007fffffu) | 0x00800000u;
    // x = mantissa·2^(e − 150). The significant bits of 2/π begin 2 bits above the binary point of the product.
    let first = e - 150u + 32u + 24u - 2u;
    let word = (first - 24u) / 32u;
    let shift = (first - 24u) % 32u;
    var w: array<u32, 3>;
    for (var i = 0u; i < 3u; i += 1u) {
        let high = bits[word + i] << shift;
        w[i] = select(high | (bits[word + i + 1u] >> (32u - shift)), high, shift == 0u);
    }
    // Computes the product modulo 2^96, in digits of 16 bits.
    var digits: array<u32, 6>;
    var carry = 0u;
    let low = mantissa & 0xffffu;
    let high = mantissa >> 16u;
    for (var i = 0u; i < 6u; i += 1u) {
        let now = (w[2u - i / 2u] >> (16u * (i % 2u))) & 0xffffu;
        var before = 0u;
        if (i > 0u) { before = (w[2u - (i - 1u) / 2u] >> (16u * ((i - 1u) % 2u))) & 0xffffu; }
        let sum = now * low + carry;
        let more = before * high;
        let total = (sum & 0xffffu) + (more & 0xffffu);
        digits[i] = total & 0xffffu;
        carry = (sum >> 16u) + (more >> 16u) + (total >> 16u);
    }
    let top = (digits[5] << 16u) | digits[4];
    let rest = (digits[3] << 16u) | digits[2];
    let q = top >> 30u;
    var fraction = (top << 2u) | (rest >> 30u);
    var below = rest << 2u;
    let up = fraction >> 31u;
    if (up == 1u) {
        below = ~below + 1u;
        fraction = ~fraction + select(0u, 1u, below == 0u);
    }
    let r = (f32(fraction) * 2.3283064e-10 + f32(below) * 5.421011e-20) * 1.5707964;
    let sign = (up == 1u) != (x < 0.0);
    let turns = q + up;
    return Turned(select(r, -r, sign), select(turns, 0u - turns, x < 0.0));
}
fn sine_near(r: f32) -> f32 {
    let z = r * r;
    return fma(fma(fma(-0.00019515296, z, 0.008332161), z, -0.16666655) * z, r, r);
}
fn cosine_near(r: f32) -> f32 {
    let z = r * r;
    return fma(fma(fma(2.4433157e-5, z, -0.0013887316), z, 0.041666646) * z, z, fma(-0.5, z, 1.0));
}
fn sin_f32(x: f32) -> f32 {
    let part = turned(x);
    let y = select(sine_near(part.r), cosine_near(part.r), (part.q & 1u) == 1u);
    return select(select(y, -y, (part.q & 2u) == 2u), x, x == 0.0);
}
fn cos_f32(x: f32) -> f32 {
    let part = turned(x);
    let y = select(cosine_near(part.r), sine_near(part.r), (part.q & 1u) == 1u);
    return select(y, -y, ((part.q + 1u) & 2u) == 2u);
}
fn tan_f32(x: f32) -> f32 {
    let part = turned(x);
    let s = sine_near(part.r);
    let c = cosine_near(part.r);
    return select(select(s / c, -c / s, (part.q & 1u) == 1u), x, x == 0.0);
}
fn atan_f32(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 2.4142137;
    let middle = a > 0.41421357;
    let y = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / a, far);
    let base = select(select(0.0, 0.7853982, middle), 1.5707964, far);
    let z = y * y;
    let p = fma(fma(fma(0.080537446, z, -0.13877685), z, 0.1997771), z, -0.3333295);
    return select(copysign_f32(base + fma(p * z, y, y), x), x, !(x == x));
}
// Returns |x|ʸ = e^(y·ln |x|). The logarithm and its product with y are sums of two floats each.
fn pow_f32(x: f32, y: f32) -> f32 {
    if (y == 0.0 || x == 1.0) { return 1.0; }
    if (!(x == x) || !(y == y)) { return of_bits(0x7fc00000u); }
    let a = abs(x);
    let infinity = of_bits(0x7f800000u);
    let whole = floor(y) == y;
    let odd = whole && abs(y) < 16777216.0 && (i32(clamp(y, -16777216.0, 16777216.0)) & 1) == 1;
    var power: f32;
    if (a == 0.0 || a == infinity) {
        power = select(infinity, 0.0, (a == 0.0) == (y > 0.0));
    } else if (abs(y) == infinity) {
        power = select(select(0.0, infinity, (a > 1.0) == (y > 0.0)), 1.0, a == 1.0);
    } else {
        let tiny = a < 1.1754944e-38;
        let bits = bitcast<u32>(select(a, a * 33554432.0, tiny)) - 0x3f3504f3u;
        let e = f32(bitcast<i32>(bits) >> 23u) - select(0.0, 25.0, tiny);
        let f = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
        let d = 2.0 + f;
        let s = f / d;
        // The quotient has a remainder: f = s·d + rest. Rounding d lost (2 − d) + f.
        let high = bitcast<f32>(bitcast<u32>(s) & 0xfffff000u);
        let of_d = bitcast<f32>(bitcast<u32>(d) & 0xfffff000u);
        let rest = ((f - high * of_d) - high * (d - of_d)) - (s - high) * d - s * ((2.0 - d) + f);
        let z = s * s;
        let p = z * fma(fma(fma(0.2358982, z, 0.28536928), z, 0.4000034), z, 0.6666666);
        let small = fma(s, p, 2.0 * (rest / d)) + e * -0.00021219444;
        let large = e * 0.6933594;
        // Each sum is computed with its rounding error.
        let one = large + 2.0 * s;
        let lost = select((2.0 * s - one) + large, (large - one) + 2.0 * s, abs(large) > abs(2.0 * s));
        let log_high = one + (small + lost);
        let log_low = (one - log_high) + (small + lost);
        let most = y * log_high;
        if (!(abs(most) < 200.0)) {
            power = select(0.0, infinity, most > 0.0);
        } else {
            let y1 = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
            let l1 = bitcast<f32>(bitcast<u32>(log_high) & 0xfffff000u);
            let error = ((y1 * l1 - most) + y1 * (log_high - l1) + (y - y1) * l1) + (y - y1) * (log_high - l1);
            let at = clamp(most, -106.0, 90.0);
            let part = reduced(at, select(0.0, error + y * log_low, at == most));
            power = scaled(part.y, part.n);
        }
    }
    if (x < 0.0 && !whole && a != infinity) { return of_bits(0x7fc00000u); }
    let negative = odd && (bitcast<u32>(x) >> 31u) == 1u;
    return select(power, -power, negative);
}
fn round_f16_f32(x: f32) -> f32 { return low_f16(bits_f16(x)); }
fn round_bf16_f32(x: f32) -> f32 { return low_bf16(bits_bf16(x)); }

// Convert floats to the bits of 16-bit floats: to the nearest, ties to even.
fn bits_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let a = bits & 0x7fffffffu;
    let normal = ((a + 0xfffu + ((a >> 13u) & 1u)) - 0x38000000u) >> 13u;
    let subnormal = bitcast<u32>(bitcast<f32>(a) + 0.5) - 0x3f000000u;
    let large = select(0x7c00u, 0x7e00u, a > 0x7f800000u);
    return sign | select(select(normal, subnormal, a < 0x38800000u), large, a >= 0x477ff000u);
}
fn bits_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, !(x == x));
}
fn pair_f16(a: f32, b: f32) -> u32 { return bits_f16(a) | (bits_f16(b) << 16u); }
fn pair_bf16(a: f32, b: f32) -> u32 { return bits_bf16(a) | (bits_bf16(b) << 16u); }
fn low_f16(word: u32) -> f32 { return unpack2x16float(word).x; }
fn high_f16(word: u32) -> f32 { return unpack2x16float(word).y; }
fn low_bf16(word: u32) -> f32 { return bitcast<f32>(word << 16u); }
fn high_bf16(word: u32) -> f32 { return bitcast<f32>(word & 0xffff0000u); }

//# f64
// 64-bit floats: functions that WGSL has or that follow from these.
fn fabs_f64(x: f64) -> f64 { return abs(x); }
fn sqrt_f64(x: f64) -> f64 { return sqrt(x); }
fn floor_f64(x: f64) -> f64 { return floor(x); }
fn ceil_f64(x: f64) -> f64 { return ceil(x); }
fn rint_f64(x: f64) -> f64 { return round(x); }
fn div_of_f64(a: f64, b: f64) -> f64 { return a / b; }
fn round_f16_f64(x: f32) -> f32 { return low_f16(bits_f16(x)); }
fn round_bf16_f64(x: f32) -> f32 { return low_bf16(bits_bf16(x)); }
fn sign_of_f64(x: f64) -> f64 { return select(select(f64(-1), f64(1), x > f64(0)), x, x == f64(0) || !(x == x)); }

//# f32 f64
// Floats: operations of ops and reductions.
fn max_of_$D(a: $T, b: $T) -> $T { return select(b, a, a > b || !(a == a)); }
fn min_of_$D(a: $T, b: $T) -> $T { return select(b, a, a < b || !(a == a)); }
fn mod_of_$D(a: $T, b: $T) -> $T {
    let r = a - b * trunc(a / b);
    return select(r, r + b, r != $T(0) && (r < $T(0)) != (b < $T(0)));
}
// Multiplies. Modules request that devices do not fuse a product with a sum that reads it.
fn mul_of_$D(a: $T, b: $T) -> $T { return a * b; }
fn Sum_$D(a: $T, b: $T) -> $T { return a + b; }
fn Product_$D(a: $T, b: $T) -> $T { return a * b; }

//# i8
// Wraps a value to 8 bits with sign.
fn wrap_i8(x: i32) -> i32 { return (x << 24u) >> 24u; }

//# u8
// Wraps a value to 8 bits without sign.
fn wrap_u8(x: u32) -> u32 { return x & 0xffu; }

//# i32 u32 i64
// Arithmetic in registers of 32 and 64 bits wraps without help.
fn wrap_$D(x: $T) -> $T { return x; }

//# i8 u8 i32 u32 i64
// Integers: arithmetic that wraps on overflow.
fn wrap_add_$D(a: $T, b: $T) -> $T { return wrap_$D(a + b); }
fn wrap_sub_$D(a: $T, b: $T) -> $T { return wrap_$D(a - b); }
fn wrap_mul_$D(a: $T, b: $T) -> $T { return wrap_$D(a * b); }
fn max_of_$D(a: $T, b: $T) -> $T { return select(b, a, a > b); }
fn min_of_$D(a: $T, b: $T) -> $T { return select(b, a, a < b); }
fn power_of_$D(x: $T, y: $T) -> $T {
    var a = x;
    var b = y;
    if (b < $T(0)) {
        if (a == $T(1)) { return $T(1); }
        if (wrap_$D(a + $T(1)) == $T(0)) { return select($T(1), a, (b & $T(1)) == $T(1)); }
        return $T(0);
    }
    var product = $T(1);
    while (b > $T(0)) {
        if ((b & $T(1)) == $T(1)) { product = wrap_$D(product * a); }
        a = wrap_$D(a * a);
        b = b >> 1u;
    }
    return product;
}
fn Sum_$D(a: $T, b: $T) -> $T { return wrap_add_$D(a, b); }
fn Product_$D(a: $T, b: $T) -> $T { return wrap_mul_$D(a, b); }

//# i8 u8
// Shift counts of 8-bit integers.
fn is_shift_$D(by: $T) -> bool { return by >= $T(0) && by < $T(8); }

//# i32 u32
// Shift counts of 32-bit integers.
fn is_shift_$D(by: $T) -> bool { return by >= $T(0) && by < $T(32); }

//# i64
// Shift counts of 64-bit integers.
fn is_shift_$D(by: $T) -> bool { return by >= $T(0) && by < $T(64); }

//# i8 u8 i32 u32 i64
// Shifts by an invalid count give 0, or −1 for a negative value that is shifted right.
fn shift_left_$D(a: $T, by: $T) -> $T {
    if (is_shift_$D(by)) { return wrap_$D(a << u32(by)); }
    return $T(0);
}
fn shift_right_$D(a: $T, by: $T) -> $T {
    if (is_shift_$D(by)) { return a >> u32(by); }
    return select($T(0), wrap_$D(~$T(0)), a < $T(0));
}

//# i8 i32 i64
// Integers with sign: division by 0 gives 0, and by −1 wraps.
fn div_of_$D(a: $T, b: $T) -> $T {
    if (b == $T(0)) { return $T(0); }
    if (b == $T(-1)) { return wrap_sub_$D($T(0), a); }
    return a / b;
}
fn mod_of_$D(a: $T, b: $T) -> $T {
    if (b == $T(0) || b == $T(-1)) { return $T(0); }
    let r = a % b;
    return select(r, r + b, r != $T(0) && (r < $T(0)) != (b < $T(0)));
}

//# u8 u32
// Integers without sign: division by 0 gives 0.
fn div_of_$D(a: $T, b: $T) -> $T {
    if (b == 0u) { return 0u; }
    return a / b;
}
fn mod_of_$D(a: $T, b: $T) -> $T {
    if (b == 0u) { return 0u; }
    return a % b;
}

//# bool
// Truth values: operations of reductions.
fn Sum_bool(a: bool, b: bool) -> bool { return a | b; }
fn Product_bool(a: bool, b: bool) -> bool { return a & b; }
fn Max_bool(a: bool, b: bool) -> bool { return a | b; }
fn Min_bool(a: bool, b: bool) -> bool { return a & b; }

//# f32 f64 i8 u8 i32 u32 i64
// Numbers: operations of reductions.
fn Max_$D(a: $T, b: $T) -> $T { return max_of_$D(a, b); }
fn Min_$D(a: $T, b: $T) -> $T { return min_of_$D(a, b); }

//# f32 f64 i8 u8 i32 u32 i64 bool
// Every type: the selection of one of two values.
fn choose_$D(when: bool, a: $T, b: $T) -> $T { return select(b, a, when); }

//# i32 i64
// Index arithmetic: division towards −∞, and its remainder.
fn floor_div_$D(x: $T, by: $T) -> $T {
    let q = x / by;
    return select(q, q - $T(1), x % by < $T(0));
}
fn floor_mod_$D(x: $T, by: $T) -> $T {
    let r = x % by;
    return select(r, r + by, r < $T(0));
}

//# f32
// 32-bit floats: conversions to integers that saturate. NaN becomes 0.
fn saturate_f32_i8(x: f32) -> i32 { return select(i32(clamp(x, -128.0, 127.0)), 0, !(x == x)); }
fn saturate_f32_u8(x: f32) -> u32 { return select(u32(clamp(x, 0.0, 255.0)), 0u, !(x == x)); }
fn saturate_f32_i32(x: f32) -> i32 {
    if (!(x == x)) { return 0; }
    if (x >= 2147483648.0) { return 2147483647; }
    if (x <= -2147483648.0) { return -2147483648; }
    return i32(x);
}
fn saturate_f32_u32(x: f32) -> u32 {
    if (!(x > 0.0)) { return 0u; }
    if (x >= 4294967296.0) { return 4294967295u; }
    return u32(x);
}
fn saturate_f32_i64(x: f32) -> i64 {
    if (!(x == x)) { return 0li; }
    if (x >= 9223372036854775808.0) { return 9223372036854775807li; }
    if (x <= -9223372036854775808.0) { return -9223372036854775807li - 1li; }
    return i64(x);
}

//# f64
// 64-bit floats: conversions to integers that saturate. NaN becomes 0.
fn saturate_f64_i8(x: f64) -> i32 { return select(i32(clamp(x, f64(-128), f64(127))), 0, !(x == x)); }
fn saturate_f64_u8(x: f64) -> u32 { return select(u32(clamp(x, f64(0), f64(255))), 0u, !(x == x)); }
fn saturate_f64_i32(x: f64) -> i32 {
    if (!(x == x)) { return 0; }
    return i32(clamp(x, f64(-2147483648), f64(2147483647)));
}
fn saturate_f64_u32(x: f64) -> u32 {
    if (!(x > f64(0))) { return 0u; }
    return u32(min(x, f64(4294967295)));
}
fn saturate_f64_i64(x: f64) -> i64 {
    if (!(x == x)) { return 0li; }
    if (x >= f64(9223372036854775808.0)) { return 9223372036854775807li; }
    if (x <= f64(-9223372036854775808.0)) { return -9223372036854775807li - 1li; }
    return i64(x);
}

//# i8
// Bytes of a word as integers with sign, and back.
fn byte_i8(word: u32, at: u32) -> i32 { return bitcast<i32>(word << (24u - 8u * at)) >> 24u; }
fn bits_i8(x: i32) -> u32 { return bitcast<u32>(x) & 0xffu; }

//# u8
// Bytes of a word as integers without sign, and back.
fn byte_u8(word: u32, at: u32) -> u32 { return (word >> (8u * at)) & 0xffu; }
fn bits_u8(x: u32) -> u32 { return x & 0xffu; }

//# bool
// Bytes of a word as truth values, and back.
fn byte_bool(word: u32, at: u32) -> bool { return ((word >> (8u * at)) & 0xffu) != 0u; }
fn bits_bool(x: bool) -> u32 { return select(0u, 1u, x); }

//# i8 u8 bool
// One word of four elements.
fn four_$D(a: $T, b: $T, c: $T, d: $T) -> u32 {
    return bits_$D(a) | (bits_$D(b) << 8u) | (bits_$D(c) << 16u) | (bits_$D(d) << 24u);
}

//# i8 i32
// Ids with sign: the position that an id names, or 0 and a report if it is out of range.
fn within_$D(index: i32, extent: i32, back: i32, check: u32, counts: bool) -> i32 {
    let at = select(index, index + back, index < 0);
    if (at >= 0 && at < extent) { return at; }
    if (counts) { report(u32(index), u32(index >> 31u), check); }
    return 0;
}

//# i64
// 64-bit ids: the position that an id names, or 0 and a report if it is out of range.
fn within_i64(index: i64, extent: i64, back: i64, check: u32, counts: bool) -> i32 {
    let at = select(index, index + back, index < 0li);
    if (at >= 0li && at < extent) { return i32(at); }
    if (counts) { report(u32(index & 0xffffffffli), u32((index >> 32u) & 0xffffffffli), check); }
    return 0;
}

//# u8 u32
// Ids without sign: the position that an id names, or 0 and a report if it is out of range.
fn within_$D(index: $T, extent: $T, back: $T, check: u32, counts: bool) -> i32 {
    if (index < extent) { return i32(index); }
    if (counts) { report(index, 0u, check); }
    return 0;
}

//# i8 u8 i32 u32 i64 bool
// Conversions between integers, which keep the low bits.
fn narrow_$D_i8(x: $T) -> i32 { return wrap_i8(i32(x)); }
fn narrow_$D_u8(x: $T) -> u32 { return wrap_u8(u32(x)); }
fn narrow_$D_i32(x: $T) -> i32 { return i32(x); }
fn narrow_$D_u32(x: $T) -> u32 { return u32(x); }

//# i8 i32 bool
// Widening to 64 bits. Shifts hide from the driver that the value has 32 bits, as in `convert` of the dialect.
fn narrow_$D_i64(x: $T) -> i64 { return (i64(x) << 32u) >> 32u; }

//# u8 u32
// Widening of integers without sign to 64 bits, also by shifts.
fn narrow_$D_i64(x: u32) -> i64 { return i64((u64(x) << 32u) >> 32u); }

//# i64
// A conversion of 64-bit integers to 64 bits, which does nothing.
fn narrow_$D_i64(x: i64) -> i64 { return x; }

//# f32
// Integers in the same order as 32-bit floats. NaN is the largest, and both zeros are equal.
fn order_key_f32(x: f32) -> i32 {
    let bits = bitcast<i32>(select(x, 0.0, x == 0.0));
    return select(select(bits, bits ^ 0x7fffffff, bits < 0), 0x7fffffff, !(x == x));
}

//# f64
// Integers in the same order as 64-bit floats. NaN is the largest, and both zeros are equal.
fn order_key_f64(x: f64) -> i64 {
    let bits = bitcast<i64>(select(x, f64(0), x == f64(0)));
    return select(select(bits, bits ^ 0x7fffffffffffffffli, bits < 0li), 0x7fffffffffffffffli, !(x == x));
}

//# i8 i32 i64
// Sort keys of integers with sign are the integers themselves.
fn order_key_$D(x: $T) -> $T { return x; }

//# u8 u32
// Sort keys of integers without sign have the highest bit inverted, because keys have a sign.
fn order_key_$D(x: u32) -> i32 { return bitcast<i32>(x ^ 0x80000000u); }
