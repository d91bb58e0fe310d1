// Products: out[b m n] = Σ_k lhs[b m k] · rhs[b k n], with sums of type T in registers.

// Stores one thread's part of a result. With SPLITS > 1, the sums of a split of the depth go to the workspace.
template <int SPLITS, int LANES, class T> FN void put(const Slots& s, int b, int m, int n, const T* sums) {
    if constexpr (SPLITS == 1) s.epilogue(b, m, n / LANES, sums);
    else {
        T* parts = (T*)s.workspace + (((i64)blockIdx.y * B + b) * M + m) * N + n;
        alignas(16) T row[LANES];
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) row[lane] = sums[lane];
        copy<(int)sizeof(T) * LANES>(parts, row);
    }
}

// Stores one thread's part of a result, unless the part is beyond the end of the result, which tiles may exceed.
template <int SPLITS, int LANES, class T> FN void finish(const Slots& s, int b, int m, int n, const T* sums) {
    if (m < M && n < N) put<SPLITS, LANES>(s, b, m, n, sums);
}

// Adds the sums of the splits of the depth, in order.
template <class T, int SPLITS, int LANES, int THREADS> FN void combine(const Slots& s) {
    constexpr i64 ALL = (i64)B * M * N;
    for (i64 at = ((i64)blockIdx.x * THREADS + threadIdx.x) * LANES; at < ALL; at += (i64)gridDim.x * THREADS * LANES) {
        alignas(16) T sums[LANES] = {};
#pragma unroll
        for (int split = 0; split < SPLITS; split++) {
            alignas(16) T part[LANES];
            take<LANES>(part, (const T*)s.workspace + split * ALL + at);
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) sums[lane] += part[lane];
        }
        s.epilogue((int)(at / ((i64)M * N)), (int)(at / N % M), (int)(at % N / LANES), sums);
    }
}

// Sets the range of the depth that a block takes.
template <int BK, int SPLITS> FN void part(int& begin, int& end) {
    constexpr int EACH = ((K + BK - 1) / BK + SPLITS - 1) / SPLITS * BK;
    begin = blockIdx.y * EACH;
    end = begin + EACH < K ? begin + EACH : K;
}

// Computes a product by multiply-adds, with BM × BN results per block and TM × TN per thread.
template <class T, int BM, int BN, int BK, int TM, int TN, int SPLITS, int LANES> FN void multiply_tiles(const Slots& s) {
    constexpr int THREADS = (BM / TM) * (BN / TN), AM = BM + 4, AN = BN + 4;
    constexpr int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
    T* const left = (T*)shared_memory();
    T* const right = left + 2 * BK * AM;
    const int tn = threadIdx.x % (BN / TN), tm = threadIdx.x / (BN / TN);
    constexpr int TILES = (N + BN - 1) / BN;
    const int m0 = blockIdx.x / TILES * BM, n0 = blockIdx.x % TILES * BN;
    int begin, end;
    part<BK, SPLITS>(begin, end);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        T sums[TM][TN] = {};
        Tile<0, BM, BK, THREADS> l;
        Tile<1, BN, BK, THREADS> r;
        l.fetch(s, b, m0, begin, end);
        r.fetch(s, b, n0, begin, end);
        l.template leave<AM>(left);
        r.template leave<AN>(right);
        __syncthreads();
        for (int k = begin, turn = 0; k < end; k += BK, turn ^= 1) {
            // Loads of the next tile are in flight while this one is multiplied.
            const bool more = k + BK < end;
            if (more) {
                l.fetch(s, b, m0, k + BK, end);
                r.fetch(s, b, n0, k + BK, end);
            }
#pragma unroll
            for (int kk = 0; kk < BK; kk++) {
                alignas(16) T x[TM], y[TN];
#pragma unroll
                for (int i = 0; i < TM; i += VM) take<VM>(x + i, left + (turn * BK + kk) * AM + i * (BM / TM) + tm * VM);
#pragma unroll
                for (int j = 0; j < TN; j += VN) take<VN>(y + j, right + (turn * BK + kk) * AN + j * (BN / TN) + tn * VN);
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) sums[i][j] += x[i] * y[j];
            }
            if (more) {
                l.template leave<AM>(left + (turn ^ 1) * BK * AM);
                r.template leave<AN>(right + (turn ^ 1) * BK * AN);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j += LANES)
                finish<SPLITS, LANES>(s, b, m0 + i / VM * VM * (BM / TM) + tm * VM + i % VM,
                    n0 + j / VN * VN * (BN / TN) + tn * VN + j % VN, &sums[i][j]);
    }
}
