//! The table of pointwise functions, keyed by op name and element type.

use eutectic_ir::{Attr, DType, Op};

use super::{
    arithmetic::*,
    convert::cast,
    level::Isa,
    pointwise::{
        Binary, Pair, PointCall, PointFn, Then, Unary, binary, binary_baseline, binary_scalar, ternary, unary,
        unary_baseline,
    },
};

/// A function that returns a pointwise function, compiled for an instruction-set level.
type Make = fn(Isa) -> PointFn;
type NamedKernel = (&'static str, Make);

/// A pointwise op, as a function and the attributes that it uses.
#[derive(Clone, Copy)]
pub struct Point {
    /// The function.
    pub function: PointFn,
    /// The numeric attributes of the op.
    pub k: [f64; 2],
}

/// Returns the function of an op for the element types of its arguments and result.
///
/// # Errors
/// If there is no such function. The error names the op and the element types.
pub fn find(op: Op, attrs: &[Attr], args: &[DType], result: DType, isa: Isa) -> Result<Point, String> {
    let missing = || format!("`{op}` on {}", args.iter().map(|d| d.name()).collect::<Vec<_>>().join(", "));
    let number = |name: &str| op.attr(name).and_then(|at| attrs.get(at)).and_then(Attr::float);
    let word = |name: &str| op.attr(name).and_then(|at| attrs.get(at)).and_then(Attr::word);
    let k = [number("min").unwrap_or(f64::NEG_INFINITY), number("max").unwrap_or(f64::INFINITY)];
    let function = match (op.name(), args) {
        ("cast", [from]) => cast(*from, result, isa),
        (name, [.., last]) => {
            // The last argument decides, because the first argument of `where` is the condition.
            let name = word("kind").unwrap_or(name);
            let make = entries(last.register()).into_iter().find(|e| e.0 == name).ok_or_else(missing)?.1;
            make(isa)
        }
        _ => return Err(missing()),
    };
    Ok(Point { function, k })
}

/// Returns the function `outer(inner(a, b), c)` or `outer(inner(a, b))` on `f32`, if it exists. It saves a pass over
/// the elements. All binary `outer` are commutative, so the inner result may be either of its arguments.
pub fn pair(inner: Op, outer: Op, isa: Isa) -> Option<PointFn> {
    fn of<F: Binary<In = f32, Out = f32>>(outer: &str, isa: Isa) -> Option<PointFn> {
        match outer {
            "add" => Some(ternary::<Pair<F, Add<f32>>>(isa)),
            "mul" => Some(ternary::<Pair<F, Mul<f32>>>(isa)),
            _ => None,
        }
    }
    match inner.name() {
        "add" => of::<Add<f32>>(outer.name(), isa),
        "sub" => match outer.name() {
            "exp" => Some(binary::<Then<Sub<f32>, Exp<f32>>>(isa)),
            "exp-normal" => Some(binary::<Then<Sub<f32>, ExpNormal<f32>>>(isa)),
            name => of::<Sub<f32>>(name, isa),
        },
        "mul" => of::<Mul<f32>>(outer.name(), isa),
        "max" if outer.name() == "max" => Some(ternary::<Pair<Max<f32>, Max<f32>>>(isa)),
        _ => None,
    }
}

/// Returns the names of the functions for an element type: names of ops, and of kinds of activations.
pub fn names(dtype: DType) -> impl Iterator<Item = &'static str> {
    entries(dtype.register()).into_iter().map(|e| e.0).chain(["cast"])
}

fn entries(dtype: DType) -> Vec<NamedKernel> {
    match dtype {
        DType::F32 => {
            [any::<f32, Every>(), numbers::<f32, Every>(), floats_f32(), vec![Every::one::<Same<f32>>("tf32")]].concat()
        }
        DType::F64 => [any::<f64, Rare>(), numbers::<f64, Rare>(), floats_f64()].concat(),
        DType::I8 => [any::<i8, Rare>(), numbers::<i8, Rare>(), bits::<i8>()].concat(),
        DType::U8 => [any::<u8, Lowest>(), numbers::<u8, Lowest>(), bits::<u8>()].concat(),
        DType::I16 => [any::<i16, Rare>(), numbers::<i16, Rare>(), bits::<i16>()].concat(),
        DType::U16 => [any::<u16, Rare>(), numbers::<u16, Rare>(), bits::<u16>()].concat(),
        DType::I32 => [any::<i32, Lowest>(), numbers::<i32, Lowest>(), bits::<i32>()].concat(),
        DType::I64 => [any::<i64, Lowest>(), numbers::<i64, Lowest>(), bits::<i64>()].concat(),
        DType::U32 => [any::<u32, Rare>(), numbers::<u32, Rare>(), bits::<u32>()].concat(),
        DType::Bool => [any::<u8, Lowest>(), logic()].concat(),
        // Their register type is `f32`.
        DType::F16 | DType::Bf16 | DType::F8E5M2 | DType::F8E4M3 => Vec::new(),
    }
}

/// The instruction-set levels for which functions are compiled.
trait Levels {
    fn one<O: Unary>(name: &'static str) -> NamedKernel;
    fn two<O: Binary>(name: &'static str) -> NamedKernel;
    /// Returns a function that is rare in hot loops, compiled for fewer levels than `two` if there are fewer.
    fn low<O: Binary>(name: &'static str) -> NamedKernel;
}

/// All levels, for `f32`, the type of most hot loops.
struct Every;
/// Only the portable level, for other types, and for functions outside of hot loops. This keeps builds short.
struct Lowest;
/// Only the portable level, for rare types. Functions of two arguments are not vectorised.
struct Rare;

impl Levels for Every {
    fn one<O: Unary>(name: &'static str) -> NamedKernel {
        (name, unary::<O>)
    }
    fn two<O: Binary>(name: &'static str) -> NamedKernel {
        (name, binary::<O>)
    }
    fn low<O: Binary>(name: &'static str) -> NamedKernel {
        Lowest::two::<O>(name)
    }
}

impl Levels for Lowest {
    fn one<O: Unary>(name: &'static str) -> NamedKernel {
        (name, unary_baseline::<O>)
    }
    fn two<O: Binary>(name: &'static str) -> NamedKernel {
        (name, binary_baseline::<O>)
    }
    fn low<O: Binary>(name: &'static str) -> NamedKernel {
        Self::two::<O>(name)
    }
}

impl Levels for Rare {
    fn one<O: Unary>(name: &'static str) -> NamedKernel {
        Lowest::one::<O>(name)
    }
    fn two<O: Binary>(name: &'static str) -> NamedKernel {
        (name, binary_scalar::<O>)
    }
    fn low<O: Binary>(name: &'static str) -> NamedKernel {
        Self::two::<O>(name)
    }
}

fn any<T: RegisterElement, V: Levels>() -> Vec<NamedKernel> {
    vec![
        V::low::<Eq<T>>("eq"),
        V::low::<Ne<T>>("ne"),
        V::low::<Lt<T>>("lt"),
        V::low::<Le<T>>("le"),
        V::low::<Gt<T>>("gt"),
        V::low::<Ge<T>>("ge"),
        V::two::<Max<T>>("max"),
        V::two::<Min<T>>("min"),
        V::one::<Same<T>>("none"),
        ("where", select::<T>),
    ]
}

fn numbers<T: Arithmetic, V: Levels>() -> Vec<NamedKernel> {
    vec![
        V::two::<Add<T>>("add"),
        V::two::<Sub<T>>("sub"),
        V::two::<Mul<T>>("mul"),
        V::two::<Div<T>>("div"),
        ("mod", binary_scalar::<Mod<T>>),
        ("pow", binary_scalar::<Pow<T>>),
        V::one::<Neg<T>>("neg"),
        V::one::<Abs<T>>("abs"),
        Lowest::one::<Sign<T>>("sign"),
    ]
}

fn bits<T: Bits>() -> Vec<NamedKernel> {
    vec![
        Lowest::one::<BitNot<T>>("bit-not"),
        ("bit-and", binary_scalar::<BitAnd<T>>),
        ("bit-or", binary_scalar::<BitOr<T>>),
        ("bit-xor", binary_scalar::<BitXor<T>>),
        ("shift-left", binary_scalar::<ShiftLeft<T>>),
        ("shift-right", binary_scalar::<ShiftRight<T>>),
    ]
}

macro_rules! float_entries {
    ($name:ident, $t:ty, $v:ty) => {
        fn $name() -> Vec<NamedKernel> {
            vec![
                <$v>::one::<Exp<$t>>("exp"),
                <$v>::one::<ExpNormal<$t>>("exp-normal"),
                <$v>::one::<Expm1<$t>>("expm1"),
                <$v>::one::<Log<$t>>("log"),
                <$v>::one::<Log1p<$t>>("log1p"),
                <$v>::one::<Sqrt<$t>>("sqrt"),
                <$v>::one::<Rsqrt<$t>>("rsqrt"),
                <$v>::one::<Reciprocal<$t>>("reciprocal"),
                <$v>::one::<Sin<$t>>("sin"),
                <$v>::one::<Cos<$t>>("cos"),
                <$v>::one::<Tan<$t>>("tan"),
                <$v>::one::<Atan<$t>>("atan"),
                <$v>::one::<Asin<$t>>("asin"),
                <$v>::one::<Acos<$t>>("acos"),
                <$v>::one::<Sinh<$t>>("sinh"),
                <$v>::one::<Cosh<$t>>("cosh"),
                <$v>::one::<Asinh<$t>>("asinh"),
                <$v>::one::<Acosh<$t>>("acosh"),
                <$v>::one::<Atanh<$t>>("atanh"),
                <$v>::one::<Tanh<$t>>("tanh"),
                <$v>::one::<Erf<$t>>("erf"),
                <$v>::one::<Sigmoid<$t>>("sigmoid"),
                <$v>::one::<Softplus<$t>>("softplus"),
                <$v>::one::<Floor<$t>>("floor"),
                <$v>::one::<Ceil<$t>>("ceil"),
                <$v>::one::<Round<$t>>("round"),
                <$v>::one::<Clamp<$t>>("clamp"),
                <$v>::one::<IsNan<$t>>("is-nan"),
                <$v>::one::<Relu<$t>>("relu"),
                <$v>::one::<GeluErf<$t>>("gelu-erf"),
                <$v>::one::<GeluTanh<$t>>("gelu-tanh"),
                <$v>::one::<Silu<$t>>("silu"),
            ]
        }
    };
}
float_entries!(floats_f32, f32, Every);
float_entries!(floats_f64, f64, Lowest);

fn logic() -> Vec<NamedKernel> {
    vec![Lowest::one::<Not>("not"), Lowest::two::<And>("and"), Lowest::two::<Or>("or"), Lowest::two::<Xor>("xor")]
}

/// Returns the function that selects one of two elements by a condition. It depends only on the size of elements.
fn select<T>(_: Isa) -> PointFn {
    PointFn::plain(match size_of::<T>() {
        1 => select_run::<u8>,
        2 => select_run::<u16>,
        4 => select_run::<u32>,
        _ => select_run::<u64>,
    })
}

/// Selects one of two elements by a condition, for all elements.
///
/// # Safety
/// The arguments must be as [`PointCall`] states, and the machine must have the instruction set.
unsafe fn select_run<T: Copy>(c: &PointCall<'_>) {
    /// Computes all elements for one set of scalar arguments. The loop has no branches, because they would be
    /// mispredicted.
    unsafe fn run<T: Copy, const SCALAR: u8>(c: &PointCall<'_>) {
        let args = [c.args[1], c.args[2]].map(|a| a.cast::<T>());
        // SAFETY: `PointCall` has pointers to `n` elements each, or to one for a scalar argument, which do not overlap.
        // Each argument has an element, because there is a result.
        unsafe {
            let which = std::slice::from_raw_parts(c.args[0], c.n);
            let out = std::slice::from_raw_parts_mut(c.out.cast::<T>(), c.n);
            let first = args.map(|a| a.read());
            for (i, (o, which)) in out.iter_mut().zip(which).enumerate() {
                let [a, b] = [0, 1].map(|n| if SCALAR >> n & 1 == 1 { first[n] } else { args[n].add(i).read() });
                *o = if *which != 0 { a } else { b };
            }
        }
    }
    if c.n == 0 {
        return;
    }
    // SAFETY: the caller keeps this function's contract. If the condition is a scalar, all results are elements of one
    // argument.
    unsafe {
        if c.scalar & 1 == 1 {
            let n = if c.args[0].read() != 0 { 1 } else { 2 };
            let (out, from) = (c.out.cast::<T>(), c.args[n].cast::<T>());
            return match c.scalar >> n & 1 {
                1 => std::slice::from_raw_parts_mut(out, c.n).fill(from.read()),
                _ => from.copy_to_nonoverlapping(out, c.n),
            };
        }
        match c.scalar >> 1 & 3 {
            0 => run::<T, 0>(c),
            1 => run::<T, 1>(c),
            2 => run::<T, 2>(c),
            _ => run::<T, 3>(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::prefetch::Prefetch;

    /// Returns the levels that this machine has.
    fn levels() -> impl Iterator<Item = Isa> {
        [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| *isa <= Isa::detect())
    }

    /// Calls a function of one or two arguments. An argument with one element is a scalar.
    fn call(function: PointFn, args: [&[f32]; 2], out: &mut [f32]) {
        let prefetch = Prefetch::default();
        let scalar = (0..2).filter(|&i| args[i].len() == 1).map(|i| 1 << i).sum();
        let at = [args[0].as_ptr().cast(), args[1].as_ptr().cast(), std::ptr::null()];
        let call = PointCall {
            out: out.as_mut_ptr().cast(),
            args: at,
            scalar,
            n: out.len(),
            k: [0.0; 2],
            prefetch: &prefetch,
        };
        // SAFETY: each argument has as many elements as the results, or one.
        unsafe { (function.run)(&call) };
    }

    #[test]
    fn an_element_does_not_depend_on_the_others_of_its_block() {
        // The blocks of 32 elements have only moderate numbers, or one other number at each of the positions. The last
        // block is partial.
        let odd = [-88.0, -95.0, -1e9, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 120.0, -12.0];
        let mut x: Vec<f32> = (0..2_075_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 - 8.0).collect();
        for (n, x) in x[32..].chunks_mut(32).enumerate() {
            if let Some(x) = x.get_mut(n % 32) {
                *x = odd[n % odd.len()];
            }
        }
        for isa in levels() {
            let of = |name| find(Op::named(name).unwrap(), &[], &[DType::F32], DType::F32, isa).unwrap().function;
            let act = |name| entries(DType::F32).into_iter().find(|e| e.0 == name).unwrap().1(isa);
            for f in
                [of("exp"), of("exp-normal"), of("sigmoid"), of("sin"), act("silu"), act("gelu-erf"), act("gelu-tanh")]
            {
                let mut all = vec![0.0_f32; x.len()];
                call(f, [&x, &[]], &mut all);
                for (&x, y) in x.iter().zip(all) {
                    let mut alone = [0.0];
                    call(f, [&[x], &[]], &mut alone);
                    assert_eq!(alone[0].to_bits(), y.to_bits(), "{x:e}, {}", isa.name());
                }
            }
            for name in ["exp", "exp-normal"] {
                let f = pair(Op::named("sub").unwrap(), Op::named(name).unwrap(), isa).unwrap();
                let (y, zeros) = ([0.0_f32], vec![0.0_f32; x.len()]);
                let mut exp = vec![0.0_f32; x.len()];
                call(of(name), [&x, &[]], &mut exp);
                for b in [&y[..], &zeros] {
                    let mut all = vec![0.0_f32; x.len()];
                    call(f, [&x, b], &mut all);
                    assert!(all.iter().zip(&exp).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", isa.name());
                }
                let negative: Vec<f32> = x.iter().map(|x| -x).collect();
                let mut all = vec![0.0_f32; x.len()];
                call(f, [&y, &negative], &mut all);
                assert!(all.iter().zip(&exp).all(|(a, b)| a == b || a.is_nan() && b.is_nan()), "{}", isa.name());
            }
        }
    }

    #[test]
    fn angles_of_many_turns_are_those_of_the_library() {
        let x: Vec<f32> = (0..100).map(|n| [0.5, -3e6, 7e20, f32::MAX][n % 4] + n as f32).collect();
        let few = [f32::INFINITY, f32::NAN, 1.0];
        for x in [&x[..], &few] {
            for (name, exact) in [("sin", f64::sin as fn(f64) -> f64), ("cos", f64::cos), ("tan", f64::tan)] {
                for isa in [Isa::Portable, Isa::detect()] {
                    let mut out = vec![0.0_f32; x.len()];
                    let point = find(Op::named(name).unwrap(), &[], &[DType::F32], DType::F32, isa).unwrap();
                    let (prefetch, args) =
                        (Prefetch::default(), [x.as_ptr().cast(), std::ptr::null(), std::ptr::null()]);
                    let call = PointCall {
                        out: out.as_mut_ptr().cast(),
                        args,
                        scalar: 0,
                        n: x.len(),
                        k: point.k,
                        prefetch: &prefetch,
                    };
                    // SAFETY: the argument has as many elements as the results.
                    unsafe { (point.function.run)(&call) };
                    for (&x, &y) in x.iter().zip(&out) {
                        let want = exact(f64::from(x)) as f32;
                        let near = (y - want).abs() <= want.abs() * 1.2e-7;
                        assert!(near || y.is_nan() && want.is_nan(), "{name}({x:e}) = {y:e}, not {want:e}");
                    }
                }
            }
        }
    }
}
