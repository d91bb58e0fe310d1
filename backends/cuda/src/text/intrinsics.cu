// Functions that exist on the device only. The test shim implements the same functions on the host.

#define FN static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define OUT_OF_LINE static __device__ __noinline__
#define KERNEL(THREADS, BLOCKS) extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
#define PARAMETER const __grid_constant__
#define CONSTANT static __constant__

typedef long long i64;
typedef unsigned long long u64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
// A float with eleven significant bits, for matrix units.
struct tf32 { unsigned bits; };

FN float widen(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
FN float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
FN float widen(tf32 x) { return __uint_as_float(x.bits); }
FN void narrow(float x, tf32& y) { asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y.bits) : "f"(x)); }
FN void narrow(float x, f16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
FN void narrow(float x, bf16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
// Returns 2ˣ within two units in the last place. Subnormal results become 0.
FN float power_of_two(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Returns 1 / x within one unit in the last place.
FN float inverse(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Return the larger or the smaller number, or NaN if either is NaN.
FN float larger(float a, float b) { float c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
FN float smaller(float a, float b) { float c; asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
// Return two numbers rounded to 16 bits in one word, the first in the lower half.
FN unsigned pair_of(float x, float y, f16) { unsigned z; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x)); return z; }
FN unsigned pair_of(float x, float y, bf16) { unsigned z; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x)); return z; }
FN float as_float(unsigned bits) { return __uint_as_float(bits); }
FN double as_double(u64 bits) { return __longlong_as_double((i64)bits); }

// Exchange values of 4 or 8 bytes between the threads of a warp.
template <class T> FN T shuffle(T x, int with) { return __shfl_xor_sync(~0u, x, with); }
template <class T> FN T shuffle_from(T x, int from) { return __shfl_sync(~0u, x, from); }

FN unsigned char* shared_memory() {
    extern __shared__ __align__(1024) unsigned char memory[];
    return memory;
}

struct alignas(16) Quad { unsigned x, y, z, w; };

// Lets the next kernel start on free resources once all blocks of this kernel have called this function. An earlier
// start would give some processors more of the next kernel's blocks than others.
FN void let_kernels_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Waits until all earlier kernels have ended and their writes are visible. `later` keeps the compiler from moving reads
// through a pointer before this wait. A short kernel with few blocks lets the next kernel start meanwhile.
template <bool IS_SHORT> FN void wait_for_kernels_before() {
    if (IS_SHORT && gridDim.x * gridDim.y * gridDim.z <= 32) let_kernels_start();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
template <class T> FN void later(T*& p) { asm volatile("" : "+l"(p)); }

// Prefetches the cache line of an address into L2. Earlier kernels may still write the line, because their writes go to
// L2 too.
FN void ask_for(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }

// Load from memory that the kernel does not write.
FN unsigned short load_constant(const unsigned short* p) { return __ldg(p); }
FN unsigned load_constant(const unsigned* p) { return __ldg(p); }
FN u64 load_constant(const u64* p) { return __ldg(p); }
FN Quad load_constant(const Quad* p) { const uint4 q = __ldg((const uint4*)p); return { q.x, q.y, q.z, q.w }; }

// Copies 16 bytes to shared memory asynchronously, or writes zeros if `there` is false.
FN void copy_async(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> FN void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory"); }

// Loads four 8 × 8 matrices of 16-bit elements. Each lane gives the address of one of their 32 rows.
FN void load_matrices(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
FN void load_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

// Adds a product: c[16 × 8] += a[16 × 16] · b[16 × 8].
FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Adds a product: c[16 × 8] += a[16 × 8] · b[8 × 8].
FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, tf32) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
