// Attention on matrix units: 16 queries a warp; scores, weights and sums stay in its registers. Weights go into the second
// product as elements of the operands' type; their sums are of what they were before.

// BQ queries a block; BT keys at once; depth and columns padded to DP and EP.
template <class H, int BQ, int BT, int DP, int EP, int SPLITS, int LANES, int BIAS> FN void attend_matrices(const Slots& s) {
    constexpr int THREADS = BQ * 2, PITCH = EP + 4, STEP = 32 / sizeof(H);
    constexpr float LOG_2_E = 1.44269504f;
    using Q = Halves<0, H, BQ, DP, THREADS>;
    using K = Halves<1, H, BT, DP, THREADS>;
    using V = Halves<2, H, EP, BT, THREADS>;
    H* const queries = (H*)shared_memory();
    auto keys = [&](int turn) { return queries + Q::SIZE + turn % 2 * (K::SIZE + V::SIZE); };
    auto values = [&](int turn) { return keys(turn) + K::SIZE; };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int s0 = blockIdx.x * BQ;
    int first = 0, last = KEYS;
    share_keys<BT, SPLITS>(blockIdx.x, blockIdx.y, first, last);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        if (s0 >= s.stored_queries(b)) continue;
        float sums[EP / 8][4] = {}, most[2] = { nothing<float>(), nothing<float>() }, total[2] = {};
        int of_rows[2];
#pragma unroll
        for (int row = 0; row < 2; row++) of_rows[row] = s.query_of(b, s0 + warp * 16 + row * 8 + lane / 4);
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
        for (int t0 = first, turn = 0; t0 < last; t0 += BT, turn++) {
            copy_wait<0>();
            __syncthreads();
            const bool more = t0 + BT < last;
            if (more) {
                k.start(s, b, t0 + BT, 0, DEPTH, keys(turn + 1));
                v.start(s, b, 0, t0 + BT, KEYS, values(turn + 1));
            }
            copy_commit();
            float x[BT / 8][4] = {};
#pragma unroll
            for (int d = 0; d < DP; d += STEP) {
                unsigned y[4];
                left_fragment<Q>(y, queries, warp * 16, d);
#pragma unroll
                for (int j = 0; j < BT; j += 16) {
                    unsigned z[4];
                    right_fragment<K>(z, keys(turn), j, d);
                    multiply(x[j / 8], y, z[0], z[1], H());
                    multiply(x[j / 8 + 1], y, z[2], z[3], H());
                }
            }
            // A lane has two neighbouring keys of each eight, for two queries.
#pragma unroll
            for (int row = 0; row < 2; row++) {
                float now = most[row];
#pragma unroll
                for (int j = 0; j < BT / 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h += BIAS) {
                        const int t = t0 + j * 8 + lane % 4 * 2 + h;
#if HAS_BIAS
                        float bias[BIAS] = {};
                        if (t < KEYS) s.bias(b, of_rows[row], t / BIAS, bias);
#endif
#pragma unroll
                        for (int n = 0; n < BIAS; n++) {
                            // Scores are logarithms to base 2.
                            float& y = x[j][row * 2 + h + n];
                            y = score(y, LOG_2_E);
#if HAS_BIAS
                            // A hidden key is left out, whatever its score is.
                            y = bias[n] == nothing<float>() ? bias[n] : y + bias[n] * LOG_2_E;
#endif
                            if (KEYS % BT != 0 && t + n >= KEYS) y = nothing<float>();
                            now = max_of(now, y);
                        }
                    }
                now = max_of(now, shuffle(now, 1));
                now = max_of(now, shuffle(now, 2));
                const float base = now == nothing<float>() ? 0.0f : now, scale = power_of_two(most[row] - base);
                most[row] = now;
                total[row] *= scale;
#pragma unroll
                for (int j = 0; j < BT / 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float& y = x[j][row * 2 + h];
                        y = power_of_two(y - base);
                        total[row] += y;
                    }
#pragma unroll
                for (int j = 0; j < EP / 8; j++) {
                    sums[j][row * 2] *= scale;
                    sums[j][row * 2 + 1] *= scale;
                }
            }
#pragma unroll
            for (int t = 0; t < BT; t += STEP) {
                unsigned y[4];
                sums_fragment(y, x, t / 8, H());
#pragma unroll
                for (int e = 0; e < EP; e += 16) {
                    unsigned z[4];
                    right_fragment_of_sums<V>(z, values(turn), e, t);
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        multiply(sums[e / 8 + h], y, z[2 * h], z[2 * h + 1], H());
                    }
                }
            }
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
            float* const result = results + (warp * 16 + row * 8 + lane / 4) * PITCH;
#pragma unroll
            for (int j = 0; j < EP / 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) result[j * 8 + lane % 4 * 2 + h] = sums[j][row * 2 + h];
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
