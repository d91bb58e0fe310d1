// The intrinsics precede this text: `text/intrinsics.cu` on the device, the shim in tests.
// Functions of every kernel: the functions of the op table, index arithmetic, accesses to memory, and reductions over
// threads.

template <class T> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };
template <int BYTES> struct Unsigned;
template <> struct Unsigned<1> { using type = unsigned; };
template <> struct Unsigned<4> { using type = unsigned; };
template <> struct Unsigned<8> { using type = u64; };

template <class T> FN T wrap_add(T a, T b) {
    if constexpr (IsFloat<T>::value) return a + b;
    else { using U = typename Unsigned<sizeof(T)>::type; return (T)((U)a + (U)b); }
}
template <class T> FN T wrap_sub(T a, T b) { using U = typename Unsigned<sizeof(T)>::type; return (T)((U)a - (U)b); }
template <class T> FN T wrap_mul(T a, T b) {
    if constexpr (IsFloat<T>::value) return a * b;
    else { using U = typename Unsigned<sizeof(T)>::type; return (T)((U)a * (U)b); }
}
// Rounds the product of an op. The compiler must not fuse it with a sum that reads it.
FN float mul_of(float a, float b) { return __fmul_rn(a, b); }
FN double mul_of(double a, double b) { return __dmul_rn(a, b); }
template <class T> FN T choose(bool when, T a, T b) { return when ? a : b; }
template <class T> FN T max_of(T a, T b) { return a > b || a != a ? a : b; }
template <class T> FN T min_of(T a, T b) { return a < b || a != a ? a : b; }
FN float max_of(float a, float b) { return larger(a, b); }
FN float min_of(float a, float b) { return smaller(a, b); }
template <class T> FN T sign_of(T x) { return x == 0 || x != x ? x : copysign((T)1, x); }
template <class T> FN T div_of(T a, T b) {
    if constexpr (!IsFloat<T>::value) {
        if (b == 0) return 0;
        if constexpr ((T)-1 < (T)0) { if (b == (T)-1) return wrap_sub((T)0, a); }
    }
    return (T)(a / b);
}
template <class T> FN T mod_of(T a, T b) {
    if constexpr (IsFloat<T>::value) {
        T r = fmod(a, b);
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    } else {
        if (b == 0) return 0;
        if constexpr ((T)-1 < (T)0) { if (b == (T)-1) return 0; }
        T r = (T)(a % b);
        return r != 0 && (r < (T)0) != (b < (T)0) ? (T)(r + b) : r;
    }
}
template <class T> FN T power_of(T a, T b) {
    if (b < (T)0) return a == (T)1 ? (T)1 : (T)(a + 1) == (T)0 ? ((b & 1) ? a : (T)1) : (T)0;
    T product = 1;
    for (; b > 0; b = (T)(b >> 1)) {
        if (b & 1) product = wrap_mul(product, a);
        a = wrap_mul(a, a);
    }
    return product;
}
template <class T> FN bool is_shift(T by) { return !(by < (T)0) && by < (T)(8 * sizeof(T)); }
template <class T> FN T shift_left(T a, T by) {
    using U = typename Unsigned<sizeof(T)>::type;
    return is_shift(by) ? (T)((U)a << (int)by) : (T)0;
}
template <class T> FN T shift_right(T a, T by) {
    return is_shift(by) ? (T)(a >> (int)by) : a < (T)0 ? (T)-1 : (T)0;
}
template <class T> FN T exp_normal(T x) { return x < (T)(sizeof(T) == 8 ? -708 : -87) ? (T)0 : exp(x); }
template <class T> FN T sigmoid(T x) { const T e = exp(-fabs(x)); return (x < 0 ? e : (T)1) / ((T)1 + e); }
// Returns x·eᵛ/(1 + eᵛ). If eᵛ is subnormal, it has fewer bits than its square root, so x is multiplied by the root
// twice.
template <class T> FN T gated(T x, T v) {
    if (v < (T)-80) { const T root = exp((T)0.5 * v); return (x * root) * root; }
    return x / ((T)1 + exp(-v));
}
template <class T> FN T gelu_tanh(T x) { return gated(x, (T)1.5957691216057308 * (x + (T)0.044715 * x * x * x)); }
// Returns x·Φ(x) within 8 units in the last place. For a = |x|, Φ(−a) = e^(−a²/2)·P(q)/(a + c) with q = (a − c)/(a + c)
// and c = 3√2. The rounding error of a² is added to the exponent. Below −12.9 Φ is subnormal, and the result has fewer
// bits.
FN float gelu_erf(float x) {
    const float c = 4.2426405f, a = smaller(fabs(x), 14.5f);
    const float t = inverse(a + c), q = (a - c) * t;
    float p = fma(fma(fma(0.00010716314f, q, 0.0022760262f), q, -0.0011038812f), q, -0.019068785f);
    p = fma(fma(fma(fma(fma(p, q, 0.084562376f), q, -0.21951781f), q, 0.4173515f), q, -0.62465477f), q, 0.7594376f);
    const float square = a * a, e = exp(-0.5f * square);
    const float tail = fma(-0.5f * fma(a, a, -square), e, e) * (p * t);
    return x * (x < 0 ? (x < -14.5f ? 0.0f : tail) : 1.0f - tail);
}
FN double gelu_erf(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752); }
// Returns x·Φ(x) for 16-bit results, with a relative error below 2⁻¹³. With z = |x| / √2 and t = 1 / (1 + 0.54 z),
// erfc(z) · exp(z²) / 2 is t · P(t) within a relative 5·10⁻⁵. P interpolates at Chebyshev's nodes for z up to 9.
FN float quick_gelu_erf(float x) {
    const float t = inverse(1.0f + 0.38183766f * fabs(x));
    const float p = t * (0.15188588f + t * (0.15905814f + t * (0.091625607f + t * (0.18858472f - t * 0.091178027f))));
    const float half = p * power_of_two(-0.72134752f * x * x);
    return x * (x < 0 ? half : 1.0f - half);
}
FN float quick_sigmoid(float x) { return inverse(1.0f + power_of_two(-1.44269504f * x)); }
FN float quick_gelu_tanh(float x) { return x * quick_sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); }
FN float round_f16(float x) { f16 y; narrow(x, y); return widen(y); }
FN float round_bf16(float x) { bf16 y; narrow(x, y); return widen(y); }
template <class T, class X> FN T saturate(X x) {
    constexpr bool has_sign = (T)-1 < (T)0;
    constexpr int bits = 8 * sizeof(T) - has_sign;
    constexpr X top = (X)(1ull << (bits - 1)) * 2;
    constexpr T most = (T)((((u64)1 << (bits - 1)) - 1) * 2 + 1);
    if (x != x) return 0;
    if (x >= top) return most;
    if (x <= (has_sign ? -top : (X)0)) return has_sign ? (T)(-most - 1) : (T)0;
    return (T)x;
}
// Return integers in the same order as the elements. NaN is the largest, and both zeros are equal.
FN int order_key(float x) {
    union { float value; int bits; } of;
    of.value = x == 0.0f ? 0.0f : x;
    return x != x ? 0x7fffffff : of.bits < 0 ? of.bits ^ 0x7fffffff : of.bits;
}
FN i64 order_key(double x) {
    union { double value; i64 bits; } of;
    of.value = x == 0.0 ? 0.0 : x;
    return x != x ? 0x7fffffffffffffffll : of.bits < 0 ? of.bits ^ 0x7fffffffffffffffll : of.bits;
}
FN int order_key(unsigned x) { return (int)(x ^ 0x80000000u); }
FN i64 order_key(i64 x) { return x; }
FN int order_key(int x) { return x; }
FN int order_key(signed char x) { return x; }
FN int order_key(unsigned char x) { return x; }

template <class I> FN I floor_div(I x, I by) { I q = x / by; return x % by < 0 ? q - 1 : q; }
template <class I> FN I floor_mod(I x, I by) { I r = x % by; return r < 0 ? r + by : r; }

struct Fault { u64 is_set; i64 step, index, check; };
// Returns the position that an id names. Ids from −`back` to −1 count from the end. An id out of range gives 0, and is
// reported if `counts` holds and it is the first one.
template <class I> FN i64 within(I index, i64 extent, i64 back, bool counts, Fault* fault, i64 step, i64 check) {
    const i64 at = index < (I)0 ? (i64)index + back : (i64)index;
    if ((u64)at < (u64)extent) return at;
    if (counts && atomicCAS(&fault->is_set, (u64)0, (u64)1) == 0) {
        fault->step = step; fault->index = (i64)index; fault->check = check;
    }
    return 0;
}

// The type of an element in registers, and conversions between it and the type in memory.
template <class T> struct InRegister { using type = T; };
template <> struct InRegister<f16> { using type = float; };
template <> struct InRegister<bf16> { using type = float; };
template <> struct InRegister<tf32> { using type = float; };
template <class T> FN T widen(T x) { return x; }
template <class T> FN void narrow(T x, T& y) { y = x; }
template <class T, class I> FN typename InRegister<T>::type load(const T* p, I at) { return widen(p[at]); }
template <class T, class I, class X> FN void store(T* p, I at, X x) { T y; narrow((typename InRegister<T>::type)x, y); p[at] = y; }

// Neighbouring elements, which the fewest possible accesses of at most 16 bytes read or write.
template <int BYTES> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = u64; };
template <> struct Word<16> { using type = Quad; };
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T of[N];
    METHOD typename InRegister<T>::type get(int n) const { return widen(of[n]); }
    template <class X> METHOD void set(int n, X x) { narrow((typename InRegister<T>::type)x, of[n]); }
};
template <int BYTES, class A, class B> FN void copy(A* to, const B* from) {
    using W = typename Word<BYTES < 16 ? BYTES : 16>::type;
#pragma unroll
    for (int n = 0; n < (BYTES + 15) / 16; n++) ((W*)to)[n] = ((const W*)from)[n];
}
template <int N, class T, class I> FN Pack<T, N> load_pack(T* p, I at, bool when) {
    Pack<T, N> pack = {};
    if (when) copy<(int)sizeof(T) * N>(&pack, p + at);
    return pack;
}
// Loads from a buffer that the kernel does not write, so the compiler may move the load across stores.
template <int N, class T, class I> FN Pack<T, N> load_pack(const T* p, I at, bool when) {
    constexpr int BYTES = (int)sizeof(T) * N;
    using W = typename Word<BYTES < 16 ? BYTES : 16>::type;
    Pack<T, N> pack = {};
    if (when) {
#pragma unroll
        for (int n = 0; n < (BYTES + 15) / 16; n++) ((W*)&pack)[n] = load_constant((const W*)(p + at) + n);
    }
    return pack;
}
template <int N, class T, class I> FN void store_pack(T* p, I at, const Pack<T, N>& pack) { copy<(int)sizeof(T) * N>(p + at, &pack); }

// The operations of reductions.
struct Sum {
    template <class T> static METHOD T of(T a, T b) { return wrap_add(a, b); }
    static METHOD bool of(bool a, bool b) { return a || b; }
};
struct Product {
    template <class T> static METHOD T of(T a, T b) { return wrap_mul(a, b); }
    static METHOD bool of(bool a, bool b) { return a && b; }
};
struct Max { template <class T> static METHOD T of(T a, T b) { return max_of(a, b); } };
struct Min { template <class T> static METHOD T of(T a, T b) { return min_of(a, b); } };

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
// Combines an element with a value atomically: by the matching atomic, or by compare-and-swap. Elements of 8 bits are
// changed within their 32-bit word.
template <class How, class T> FN void combine(T* at, T x) {
    if constexpr (IsFloat<T>::value && same<How, Sum>) {
        atomicAdd(at, x);
    } else if constexpr (!IsFloat<T>::value && sizeof(T) > 1 && !same<How, Product>) {
        using U = typename Unsigned<sizeof(T)>::type;
        if constexpr (same<How, Sum>) atomicAdd((U*)at, (U)x);
        else if constexpr (same<How, Max>) atomicMax(at, x);
        else atomicMin(at, x);
    } else if constexpr (sizeof(T) > 1) {
        union { T value; typename Unsigned<sizeof(T)>::type bits; } was, now;
        for (was.value = *at;; was.bits = now.bits) {
            now.value = How::of(was.value, x);
            if (now.bits == was.bits) return;
            now.bits = atomicCAS((decltype(now.bits)*)at, was.bits, now.bits);
            if (now.bits == was.bits) return;
        }
    } else {
        unsigned* const word = (unsigned*)((u64)at & ~3ull);
        const int shift = 8 * (int)((u64)at & 3);
        for (unsigned was = *word;;) {
            const T value = How::of((T)(was >> shift), x);
            const unsigned now = (was & ~(255u << shift)) | ((unsigned)value & 255u) << shift;
            if (now == was) return;
            const unsigned seen = atomicCAS(word, was, now);
            if (seen == was) return;
            was = seen;
        }
    }
}

template <class T> FN T exchange(T x, int with) {
    if constexpr (sizeof(T) < 4) return (T)shuffle((int)x, with);
    else return shuffle(x, with);
}
// Returns the value of another thread of the warp.
template <class T> FN T value_of(T x, int from) {
    if constexpr (sizeof(T) < 4) return (T)shuffle_from((int)x, from);
    else return shuffle_from(x, from);
}
// Returns a table that the threads of a block share. Each number stands for a separate table.
template <int NUMBER, int COUNT, class T> FN T* left() {
    __shared__ T table[COUNT];
    return table;
}
template <int NUMBER, int COUNT, class T> FN void leave(T x, int at, bool when) {
    __syncthreads();
    if (when) left<NUMBER, COUNT, T>()[at] = x;
    __syncthreads();
}
// Reduces over COUNT threads of a warp at distances of APART. Each of these threads gets the result.
template <class How, int COUNT, int APART, class T> FN T reduce_within_warp(T x) {
#pragma unroll
    for (int with = COUNT / 2; with > 0; with /= 2) x = How::of(x, exchange(x, with * APART));
    return x;
}
// Reduces over THREADS neighbouring threads per row. All threads of the block must call it, because it has barriers.
template <class How, int THREADS, int ROWS, class T> FN T reduce_along(T x) {
    x = reduce_within_warp<How, (THREADS < 32 ? THREADS : 32), 1>(x);
    if constexpr (THREADS > 32) {
        constexpr int WARPS = THREADS / 32;
        __shared__ T parts[ROWS * WARPS];
        __syncthreads();
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
        __syncthreads();
        x = reduce_within_warp<How, WARPS, 1>(parts[threadIdx.x / THREADS * WARPS + threadIdx.x % WARPS]);
    }
    return x;
}
// Reduces over all threads of BLOCKS blocks of a cluster.
template <class How, int THREADS, int BLOCKS, class T> FN T reduce_clusters(T x) {
    using W = typename Word<sizeof(T) < 4 ? 4 : sizeof(T)>::type;
    __shared__ W part;
    x = reduce_along<How, THREADS, 1>(x);
    if (threadIdx.x == 0) *(T*)&part = x;
    cluster_arrive_and_wait();
    W parts[BLOCKS];
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) parts[n] = load_of_block(&part, n);
    // No block may overwrite its value, or end, before the others have read it.
    cluster_arrive_and_wait();
    x = *(const T*)&parts[0];
#pragma unroll
    for (int n = 1; n < BLOCKS; n++) x = How::of(x, *(const T*)&parts[n]);
    return x;
}
// Reduces over every `ROWS`th thread of the block.
template <class How, int THREADS, int ROWS, class T> FN T reduce_across(T x) {
    constexpr int WITHIN = ROWS < 32 ? (THREADS < 32 / ROWS ? THREADS : 32 / ROWS) : 1, PARTS = THREADS / WITHIN;
    x = reduce_within_warp<How, WITHIN, ROWS>(x);
    if constexpr (PARTS > 1) {
        // Each warp reduces all parts. The threads of a row in the warp share this work.
        constexpr int SHARES = WITHIN < PARTS ? WITHIN : PARTS;
        __shared__ T parts[ROWS * PARTS];
        __syncthreads();
        if (threadIdx.x / ROWS % WITHIN == 0) parts[threadIdx.x / (ROWS * WITHIN) * ROWS + threadIdx.x % ROWS] = x;
        __syncthreads();
        const T* own = parts + threadIdx.x % (ROWS * SHARES);
        x = own[0];
        for (int n = SHARES; n < PARTS; n += SHARES) x = How::of(x, own[n * ROWS]);
        x = reduce_within_warp<How, SHARES, ROWS>(x);
    }
    return x;
}
