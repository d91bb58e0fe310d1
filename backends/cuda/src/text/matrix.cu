// Products on matrix units. Tiles are loaded to shared memory several steps of the depth ahead, and sums have 32 bits.

// Computes BM × BN results per block, with WM × WN warps.
template <class H, int BM, int BN, int BK, int WM, int WN, int STAGES, int SPLITS, int LANES> FN void multiply_matrices(const Slots& s) {
    constexpr int THREADS = WM * WN * 32, MI = BM / WM / 16, NI = BN / WN / 16, PITCH = BN + 4;
    using L = Halves<0, H, BM, BK, THREADS>;
    using R = Halves<1, H, BN, BK, THREADS>;
    H* const tiles = (H*)shared_memory();
    auto left = [&](int turn) { return tiles + turn % STAGES * (L::SIZE + R::SIZE); };
    auto right = [&](int turn) { return left(turn) + L::SIZE; };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int wm = warp / WN * MI * 16, wn = warp % WN * NI * 16;
    constexpr int ROWS = (M + BM - 1) / BM, COLUMNS = (N + BN - 1) / BN;
    // Blocks that run at once take bands of 8 tile rows, column by column, so that they share rows and columns in the
    // cache.
    const int band = blockIdx.x / (8 * COLUMNS) * 8, high = ROWS - band < 8 ? ROWS - band : 8, in_band = blockIdx.x % (8 * COLUMNS);
    const int m0 = (band + in_band % high) * BM, n0 = in_band / high * BN;
    int begin, end;
    part<BK, SPLITS>(begin, end);
    const int steps = end > begin ? (end - begin + BK - 1) / BK : 0;
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        float sums[MI][2 * NI][4] = {};
        L l;
        R r;
#pragma unroll
        for (int turn = 0; turn < STAGES - 1; turn++) {
            if (turn < steps) {
                l.start(s, b, m0, begin + turn * BK, end, left(turn));
                r.start(s, b, n0, begin + turn * BK, end, right(turn));
                l.finish(left(turn));
                r.finish(right(turn));
            }
            copy_commit();
        }
        for (int step = 0; step < steps; step++) {
            copy_wait<STAGES - 2>();
            __syncthreads();
            const int next = step + STAGES - 1;
            if (next < steps) {
                l.start(s, b, m0, begin + next * BK, end, left(next));
                r.start(s, b, n0, begin + next * BK, end, right(next));
            }
            copy_commit();
#pragma unroll
            for (int k = 0; k < BK; k += 32 / (int)sizeof(H)) {
                unsigned x[MI][4], y[NI][4];
#pragma unroll
                for (int i = 0; i < MI; i++) left_fragment<L>(x[i], left(step), wm + i * 16, k);
#pragma unroll
                for (int j = 0; j < NI; j++) right_fragment<R>(y[j], right(step), wn + j * 16, k);
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < 2 * NI; j++) multiply(sums[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1], H());
            }
            if (next < steps) {
                l.finish(left(next));
                r.finish(right(next));
            }
        }
        copy_wait<0>();
        __syncthreads();
        // Results go through shared memory, so that stores are coalesced.
        float* const results = (float*)shared_memory();
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < 2 * NI; j++)
#pragma unroll
                for (int h = 0; h < 4; h++)
                    results[(wm + i * 16 + lane / 4 + h / 2 * 8) * PITCH + wn + j * 8 + lane % 4 * 2 + h % 2] = sums[i][j][h];
        __syncthreads();
        for (int at = threadIdx.x; at < BM * BN / LANES; at += THREADS) {
            const int m = at / (BN / LANES), n = at % (BN / LANES) * LANES;
            alignas(16) float row[LANES];
            take<LANES>(row, results + m * PITCH + n);
            ::finish<SPLITS, LANES>(s, b, m0 + m, n0 + n, row);
        }
        __syncthreads();
    }
}
