// Attention on warp-level matrix units, with 16 queries per warp. Scores, weights and sums stay in registers. Weights
// are rounded to the operands' type for the second product, but their sum is of unrounded weights.

// Returns four sums of a fragment.
FN float (&fragment(float* sums))[4] { return *(float(*)[4])sums; }

// Computes the queries of a warp on the first WIDTH keys of a tile of BT.
template <class Q, class K, class V, int BT, int WIDTH, int DP, int EP, int BIAS, bool LAST, bool MIXED, class H>
FN void attend_tile(const Slots& s, Kept& kept, int b, const int (&of_rows)[2], int tile, bool more, H* queries, H* keys, H* values, float (&sums)[EP / 2], float (&most)[2], float (&total)[2]) {
    constexpr int STEP = 32 / sizeof(H);
    float x[WIDTH / 2] = {}, scale[2];
#pragma unroll
    for (int d = 0; d < DP; d += STEP) {
        unsigned y[4];
        left_fragment<Q>(y, queries, (int)threadIdx.x / 32 * 16, d);
#pragma unroll
        for (int j = 0; j < WIDTH; j += 16) {
            unsigned z[4];
            right_fragment<K>(z, keys, j, d);
#pragma unroll
            for (int h = 0; h < 2; h++) multiply(fragment(x + j / 2 + 4 * h), y, z[2 * h], z[2 * h + 1], H());
        }
    }
    weigh<BT, WIDTH, BIAS, LAST, MIXED>(s, kept, b, of_rows, tile, x, most, total, scale);
    if (more) fetch<BT, BIAS>(s, kept, b, of_rows, tile + 1);
#pragma unroll
    for (int n = 0; n < EP / 2; n++) sums[n] *= scale[n / 2 % 2];
#pragma unroll
    for (int t = 0; t < WIDTH; t += STEP) {
        unsigned y[4];
        sums_fragment(y, x + t / 2, H());
#pragma unroll
        for (int e = 0; e < EP; e += 16) {
            unsigned z[4];
            right_fragment_of_sums<V>(z, values, e, t);
#pragma unroll
            for (int h = 0; h < 2; h++) multiply(fragment(sums + e / 2 + 4 * h), y, z[2 * h], z[2 * h + 1], H());
        }
    }
}

// Computes BQ queries per block, with BT keys per tile. Depth and columns are padded to DP and EP.
template <class H, int BQ, int BT, int DP, int EP, int SPLITS, int LANES, int BIAS> FN void attend_matrices(const Slots& s) {
    constexpr int THREADS = BQ * 2, PITCH = EP + 4;
    // The keys of a partial last tile, rounded up to whole instructions.
    constexpr int CUT = KEYS % BT == 0 ? BT : (KEYS % BT + 15) / 16 * 16;
    using Q = Halves<0, H, BQ, DP, THREADS>;
    using K = Halves<1, H, BT, DP, THREADS>;
    using V = Halves<2, H, EP, BT, THREADS>;
    H* const queries = (H*)shared_memory();
    auto keys = [&](int turn) { return queries + Q::SIZE + turn % 2 * (K::SIZE + V::SIZE); };
    auto values = [&](int turn) { return keys(turn) + K::SIZE; };
    const int lane = threadIdx.x % 32, of_warp = threadIdx.x / 32 * 16, own = of_warp + lane / 4;
    const int block = blockIdx.x, s0 = block * BQ;
    int first = 0, last = KEYS;
    share_keys<BT, SPLITS>(block, blockIdx.y, first, last);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        const int stored = s.stored_queries(b);
        if (s0 >= stored) continue;
        float sums[EP / 2] = {}, most[2] = { nothing<float>(), nothing<float>() }, total[2] = {};
        Q q;
        K k;
        V v;
        q.start(s, b, s0, 0, DEPTH, queries);
        k.start(s, b, first, 0, DEPTH, keys(0));
        v.start(s, b, 0, first, KEYS, values(0));
        q.finish(queries);
        k.finish(keys(0));
        v.finish(values(0));
        copy_commit();
        const int of_rows[2] = { s.query_of(b, s0 + own), s.query_of(b, s0 + own + 8) };
        Kept kept;
        keep<BT, BIAS>(s, kept, b, of_rows);
        // A split without keys has no tile, and its bias must not be read.
        if (first < last) fetch<BT, BIAS>(s, kept, b, of_rows, first / BT);
        for (int t0 = first, turn = 0; t0 < last; t0 += BT, turn++) {
            copy_wait<0>();
            __syncthreads();
            const bool more = t0 + BT < last;
            if (more) {
                k.start(s, b, t0 + BT, 0, DEPTH, keys(turn + 1));
                v.start(s, b, 0, t0 + BT, KEYS, values(turn + 1));
            }
            copy_commit();
            const int tile = t0 / BT;
            // A warp without queries only loads keys and values.
            if (s0 + of_warp >= stored) {}
            else if (KEYS % BT != 0 && tile == KEYS / BT)
                attend_tile<Q, K, V, BT, CUT, DP, EP, BIAS, true, HAS_BIAS>(s, kept, b, of_rows, tile, more, queries, keys(turn), values(turn), sums, most, total);
            else if (is_plain(block, tile))
                attend_tile<Q, K, V, BT, BT, DP, EP, BIAS, false, false>(s, kept, b, of_rows, tile, more, queries, keys(turn), values(turn), sums, most, total);
            else
                attend_tile<Q, K, V, BT, BT, DP, EP, BIAS, false, HAS_BIAS>(s, kept, b, of_rows, tile, more, queries, keys(turn), values(turn), sums, most, total);
            if (more) {
                k.finish(keys(turn + 1));
                v.finish(values(turn + 1));
            }
        }
        copy_wait<0>();
        __syncthreads();
        float* const results = (float*)shared_memory();
#pragma unroll
        for (int row = 0; row < 2; row++) {
            total[row] += shuffle(total[row], 1);
            total[row] += shuffle(total[row], 2);
            float* const result = results + (own + row * 8) * PITCH;
#pragma unroll
            for (int j = 0; j < EP / 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) result[j * 8 + lane % 4 * 2 + h] = sums[j * 4 + row * 2 + h];
            result[EP] = most[row] / LOG_2_E;
            result[EP + 1] = total[row];
        }
        __syncthreads();
        for (int at = threadIdx.x; at < BQ * EP / LANES; at += THREADS) {
            const int m = at / (EP / LANES), e = at % (EP / LANES) * LANES;
            alignas(16) float row[LANES];
            take<LANES>(row, results + m * PITCH + e);
            deliver<SPLITS, LANES>(s, blockIdx.y, b, s0 + m, e, row, results[m * PITCH + EP], results[m * PITCH + EP + 1]);
        }
        __syncthreads();
    }
}
