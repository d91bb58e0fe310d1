// Runs printed kernels on the host. Each thread of a block is a fiber, which yields at barriers and exchanges.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using std::fabs; using std::exp; using std::log; using std::sqrt; using std::sin; using std::cos; using std::tan; using std::atan;
using std::asin; using std::acos; using std::sinh; using std::cosh; using std::asinh; using std::acosh; using std::atanh; using std::expm1;
using std::tanh; using std::erf; using std::erfc; using std::log1p; using std::floor; using std::ceil; using std::rint; using std::pow;
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
using std::fmod; using std::copysign; using std::fma;

#define FN static inline
#define METHOD inline
#define OUT_OF_LINE static
#define KERNEL(THREADS, BLOCKS) extern "C" void
#define PARAMETER const
#define CONSTANT static const
#define __shared__ static

typedef long long i64;
typedef unsigned long long u64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct tf32 { unsigned bits; };
struct alignas(16) Quad { unsigned x, y, z, w; };
struct Place { unsigned x, y, z; };

namespace shim {
enum State { READY, AT_BLOCK, AT_WARP, DONE };
struct Fiber { void* stack; State state; Place thread; };
static Fiber fibers[1024];
static unsigned count, number;
static Place block, blocks;
static void* scheduler;
static void (*body)();
static bool spinning;
alignas(1024) static unsigned char memory[256 << 10];
alignas(64) static u64 exchanged[32][32][8];
extern "C" void shim_switch(void** save, void* to);
asm(".text\nshim_switch:\npushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\nmovq %rsp, (%rdi)\n"
    "movq %rsi, %rsp\npopq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static void give_way(State state) {
    fibers[number].state = state;
    shim_switch(&fibers[number].stack, scheduler);
}
static void begin() { body(); give_way(DONE); }

// Lets fibers continue once all fibers that wait for each other have arrived.
static bool release() {
    bool any = false, all = true;
    for (unsigned n = 0; n < count; n++) all = all && (fibers[n].state == AT_BLOCK || fibers[n].state == DONE);
    for (unsigned warp = 0; warp < count; warp += 32) {
        unsigned end = warp + 32 < count ? warp + 32 : count;
        bool here = true;
        for (unsigned n = warp; n < end; n++) here = here && (fibers[n].state == AT_WARP || fibers[n].state == DONE);
        for (unsigned n = warp; n < end; n++)
            if (fibers[n].state == AT_WARP ? here : fibers[n].state == AT_BLOCK && all) { fibers[n].state = READY; any = true; }
    }
    return any;
}
static void run_block(unsigned threads) {
    constexpr size_t STACK = 256 << 10;
    static unsigned char* stacks = (unsigned char*)aligned_alloc(4096, STACK * 1024);
    count = threads;
    memset(memory, 0xff, sizeof(memory));
    for (unsigned n = 0; n < count; n++) {
        void** top = (void**)(stacks + STACK * (n + 1)) - 2;
        *top = (void*)begin;
        for (int r = 0; r < 6; r++) *--top = nullptr;
        fibers[n] = { top, READY, { n, 0, 0 } };
    }
    bool backwards = false;
    do {
        // Alternates the order of fibers, because results that depend on it reveal a race.
        spinning = false;
        for (unsigned n = 0; n < count; n++) {
            number = backwards ? count - 1 - n : n;
            if (fibers[number].state == READY) shim_switch(&scheduler, fibers[number].stack);
        }
        backwards = !backwards;
    } while (release() || spinning);
    for (unsigned n = 0; n < count; n++)
        if (fibers[n].state != DONE) { fprintf(stderr, "thread %u waits for others that do not come\n", n); abort(); }
}
static unsigned lane() { return number % 32; }
static auto& warp() { return exchanged[number / 32]; }
static void meet() { give_way(AT_WARP); }
}  // namespace shim

#define threadIdx (shim::fibers[shim::number].thread)
#define blockIdx (shim::block)
#define gridDim (shim::blocks)
FN void __syncthreads() { shim::give_way(shim::AT_BLOCK); }
FN unsigned char* shared_memory() { return shim::memory; }
template <class T> FN T atomicCAS(T* at, T old, T now) { T was = *at; if (was == old) *at = now; return was; }
template <class T> FN T atomicAdd(T* at, T x) { T was = *at; *at += x; return was; }
template <class T> FN void atomicMax(T* at, T x) { if (x > *at) *at = x; }
template <class T> FN void atomicMin(T* at, T x) { if (x < *at) *at = x; }

FN float power_of_two(float x) { return exp2f(x); }
FN float inverse(float x) { return 1.0f / x; }
FN int min(int a, int b) { return a < b ? a : b; }
FN int max(int a, int b) { return a > b ? a : b; }
FN float larger(float a, float b) { return a > b || a != a ? a : b; }
FN float smaller(float a, float b) { return a < b || a != a ? a : b; }
FN float as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
FN double as_double(u64 bits) { double x; memcpy(&x, &bits, 8); return x; }
FN float widen(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
FN float widen(bf16 x) { return as_float((unsigned)x.bits << 16); }
FN float widen(tf32 x) { return as_float(x.bits); }
FN void narrow(float x, tf32& y) { memcpy(&y.bits, &x, 4); y.bits = (y.bits + 0x1000) & ~0x1fffu; }
FN void narrow(float x, f16& y) { _Float16 z = (_Float16)x; memcpy(&y, &z, 2); }
FN void narrow(float x, bf16& y) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    y.bits = x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class H> FN unsigned pair_of(float x, float y, H) {
    H a, b;
    narrow(x, a);
    narrow(y, b);
    return (unsigned)a.bits | (unsigned)b.bits << 16;
}
template <bool IS_SHORT> FN void wait_for_kernels_before() {}
template <class T> FN void later(T*&) {}
FN void let_kernels_start() {}
FN void ask_for(const void*) {}
template <class T> FN T load_constant(const T* p) { return *p; }
template <class T> FN T shuffle(T x, int with) {
    memcpy(shim::warp()[shim::lane()], &x, sizeof(T));
    shim::meet();
    memcpy(&x, shim::warp()[shim::lane() ^ with], sizeof(T));
    shim::meet();
    return x;
}
template <class T> FN T shuffle_from(T x, int from) {
    memcpy(shim::warp()[shim::lane()], &x, sizeof(T));
    shim::meet();
    memcpy(&x, shim::warp()[from], sizeof(T));
    shim::meet();
    return x;
}
// Copies arrive at once. Tests with racing threads find kernels that do not wait for copies.
FN void copy_async(void* to, const void* from, bool there) { if (there) memcpy(to, from, 16); else memset(to, 0, 16); }
FN void copy_commit() {}
template <int LEFT> FN void copy_wait() {}

FN void load_any(unsigned (&r)[4], const void* row, bool transposed) {
    auto& all = shim::warp();
    unsigned l = shim::lane();
    memcpy(all[l], &row, sizeof(row));
    shim::meet();
    for (unsigned i = 0; i < 4; i++) {
        unsigned short part[2];
        for (unsigned h = 0; h < 2; h++) {
            unsigned y = transposed ? l % 4 * 2 + h : l / 4, x = transposed ? l / 4 : l % 4 * 2 + h;
            const unsigned short* from;
            memcpy(&from, all[i * 8 + y], sizeof(from));
            part[h] = from[x];
        }
        memcpy(&r[i], part, 4);
    }
    shim::meet();
}
FN void load_matrices(unsigned (&r)[4], const void* row) { load_any(r, row, false); }
FN void load_transposed(unsigned (&r)[4], const void* row) { load_any(r, row, true); }
template <class H> FN float half_of(unsigned pair, unsigned which) { H x = { (unsigned short)(pair >> 16 * which) }; return widen(x); }
// Returns a number rounded towards zero to TF32.
FN float cut(unsigned bits) { return as_float(bits & ~0x1fffu); }
FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, tf32) {
    auto& all = shim::warp();
    unsigned l = shim::lane();
    for (int n = 0; n < 4; n++) all[l][n] = a[n];
    all[l][4] = b0; all[l][5] = b1;
    shim::meet();
    for (unsigned n = 0; n < 4; n++) {
        unsigned row = l / 4 + n / 2 * 8, column = l % 4 * 2 + n % 2;
        for (unsigned k = 0; k < 8; k++)
            c[n] += cut((unsigned)all[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) * cut((unsigned)all[column * 4 + k % 4][4 + k / 4]);
    }
    shim::meet();
}
template <class H> FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, H) {
    auto& all = shim::warp();
    unsigned l = shim::lane();
    for (int n = 0; n < 4; n++) all[l][n] = a[n];
    all[l][4] = b0; all[l][5] = b1;
    shim::meet();
    for (unsigned n = 0; n < 4; n++) {
        unsigned row = l / 4 + n / 2 * 8, column = l % 4 * 2 + n % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned x = (unsigned)all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], y = (unsigned)all[column * 4 + k % 8 / 2][4 + k / 8];
            c[n] += half_of<H>(x, k % 2) * half_of<H>(y, k % 2);
        }
    }
    shim::meet();
}

// Hopper: a barrier is a word of [parity | arrivals wanted | arrivals missing | bytes missing].
#define CLUSTER(BLOCKS)
struct alignas(128) Box { u64 words[16]; };
template <int COUNT> struct Boxes { Box of[COUNT]; };
struct Barrier { short parity, count, missing; unsigned char pad[2]; };
namespace shim { static int bytes_missing(u64* barrier, int change) {
    static u64* places[64];
    static int bytes[64];
    for (int n = 0; n < 64; n++) {
        if (!places[n]) places[n] = barrier;
        if (places[n] == barrier) return bytes[n] += change;
    }
    abort();
} }
FN unsigned shared_address(const void* p) { return (unsigned)((const unsigned char*)p - shim::memory); }
FN void barrier_start(u64* barrier, int count) { Barrier b = { 0, (short)count, (short)count, {} }; memcpy(barrier, &b, 8); }
FN void barriers_started() {}
FN void barrier_change(u64* barrier, int arrivals, int bytes) {
    Barrier b;
    memcpy(&b, barrier, 8);
    b.missing -= arrivals;
    if (b.missing < 0) { fprintf(stderr, "more arrive at a barrier than it waits for\n"); abort(); }
    if (shim::bytes_missing(barrier, bytes) == 0 && b.missing == 0) { b.parity ^= 1; b.missing = b.count; }
    memcpy(barrier, &b, 8);
}
FN void barrier_arrive(u64* barrier) { barrier_change(barrier, 1, 0); }
FN void barrier_arrive_at(u64* barrier, int) { barrier_arrive(barrier); }
FN void barrier_expect(u64* barrier, int bytes) { barrier_change(barrier, 1, bytes); }
FN void barrier_wait(u64* barrier, int parity) {
    for (int turn = 0;; turn++) {
        Barrier b;
        memcpy(&b, barrier, 8);
        if (b.parity != parity) return;
        if (turn > 100000) { fprintf(stderr, "thread %u waits at a barrier for what does not come\n", shim::number); abort(); }
        shim::spinning = true;
        shim::give_way(shim::READY);
    }
}
FN void cluster_arrive_and_wait() {}
FN int cluster_rank() { return 0; }
// The words of a box are its address, extents, strides in elements of the second and third axis, and lengths.
FN void copy_box(void* to, const Box* box, int x, int y, int z, u64* barrier) {
    const u64* w = box->words;
    unsigned at = shared_address(to), bytes = 0;
    if (at % 1024) { fprintf(stderr, "a box lies at %u\n", at); abort(); }
    for (u64 k = 0; k < w[8]; k++)
        for (u64 j = 0; j < w[7]; j++)
            for (u64 i = 0; i < w[6]; i++, bytes += 2) {
                u64 xx = x + i, yy = y + j, zz = z + k;
                unsigned short value = 0;
                if (xx < w[1] && yy < w[2] && zz < w[3]) value = ((const unsigned short*)w[0])[xx + yy * w[4] + zz * w[5]];
                unsigned place = at + bytes;
                memcpy(shim::memory + (place ^ place >> 3 & 112), &value, 2);
            }
    barrier_change(barrier, 0, -(int)bytes);
}
FN void copy_box_to(void* to, const Box* box, int x, int y, int z, u64* barrier, unsigned short) { copy_box(to, box, x, y, z, barrier); }
FN void shared_to_units() {}
template <int COUNT> FN void registers_down() {}
template <int COUNT> FN void registers_up() {}
FN void warpgroup_begin() {}
FN void warpgroup_commit() {}
template <int LEFT> FN void warpgroup_wait() {}
// Returns an element of a matrix that a descriptor describes, by its outer coordinate and its term.
template <bool ACROSS, class H> FN float described(u64 how, unsigned o, unsigned k) {
    unsigned start = (how & 0x3fff) << 4, far = (how >> 16 & 0x3fff) << 4, eights = (how >> 32 & 0x3fff) << 4;
    unsigned at = ACROSS ? start + o / 64 * far + o % 64 * 2 + k / 8 * eights + k % 8 * 128 : start + o / 8 * eights + o % 8 * 128 + k * 2;
    H x;
    memcpy(&x, shim::memory + (at ^ at >> 3 & 112), 2);
    return widen(x);
}
template <int N, bool A_ACROSS, bool B_ACROSS, class H> FN void warpgroup_multiply(float (&d)[N / 2], u64 a, u64 b, H) {
    const unsigned t = threadIdx.x % 128, row = t / 32 * 16 + t % 32 / 4;
    for (unsigned n = 0; n < N / 2; n++)
        for (unsigned k = 0; k < 16; k++)
            d[n] += described<A_ACROSS, H>(a, row + n / 2 % 2 * 8, k) * described<B_ACROSS, H>(b, n / 4 * 8 + t % 4 * 2 + n % 2, k);
}
