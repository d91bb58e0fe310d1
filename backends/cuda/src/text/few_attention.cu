// Attention of few queries. It takes as long as reading keys and values, so all loads of a tile are in flight together.
// SHARE threads share a key, each with neighbouring terms. A warp computes the weights of a query. WIDE threads share
// the columns of a value.

FN constexpr int up_to_power(int n) { return n <= 1 ? 1 : 2 * up_to_power((n + 1) / 2); }

template <class T, int BT, int THREADS, int SPLITS, int LANES> FN void attend_few(const Slots& s) {
    using Q = Operand<0>;
    using K = Operand<1>;
    using V = Operand<2>;
    constexpr int TERMS = (DEPTH + K::LANES - 1) / K::LANES, SHARE = up_to_power(TERMS) < 8 ? up_to_power(TERMS) : 8;
    constexpr int EACH = (TERMS + SHARE - 1) / SHARE, ABREAST = THREADS / SHARE, TURNS = BT / ABREAST;
    constexpr int CHUNKS = COLUMNS / V::LANES, WIDE = up_to_power(CHUNKS), GROUPS = THREADS / WIDE, OWN = BT / GROUPS;
    constexpr int WARPS = THREADS / 32, WEIGHED = (QUERIES + WARPS - 1) / WARPS;
    T* const queries = (T*)shared_memory();
    T* const scores = queries + QUERIES * SHARE * EACH * K::LANES;
    T* const scales = scores + QUERIES * BT;
    T* const sums = scales + 3 * QUERIES;
    const int split = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int part = threadIdx.x % SHARE, chunk = threadIdx.x % WIDE, group = threadIdx.x / WIDE;
    int first = 0, last = KEYS;
    share_keys<BT, SPLITS>(0, split, first, last);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        constexpr int ROW = SHARE * EACH * K::LANES;
        for (int at = threadIdx.x; at < QUERIES * ROW / Q::LANES; at += THREADS) {
            const int o = Q::ALONG ? at / (ROW / Q::LANES) : at / ROW * Q::LANES, k = Q::ALONG ? at % (ROW / Q::LANES) * Q::LANES : at % ROW;
            T out[Q::LANES] = {};
            if (k < DEPTH) evaluate<0>(s, b, Q::ALONG ? o : o / Q::LANES, Q::ALONG ? k / Q::LANES : k, out);
#pragma unroll
            for (int v = 0; v < Q::LANES; v++) queries[Q::ALONG ? o * ROW + k + v : (o + v) * ROW + k] = out[v];
        }
        T of_columns[QUERIES][V::LANES] = {}, most[WEIGHED], total[WEIGHED] = {};
#pragma unroll
        for (int i = 0; i < WEIGHED; i++) most[i] = nothing<T>();
        for (int t0 = first; t0 < last; t0 += BT) {
            T keys[TURNS][EACH][K::LANES], values[OWN][V::LANES];
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const int t = t0 + turn * ABREAST + threadIdx.x / SHARE, term = i * SHARE + part;
#pragma unroll
                    for (int v = 0; v < K::LANES; v++) keys[turn][i][v] = 0;
                    if (t < last && term < TERMS) evaluate<1>(s, b, t, term, keys[turn][i]);
                }
#pragma unroll
            for (int n = 0; n < OWN; n++) {
                const int t = t0 + n * GROUPS + group;
#pragma unroll
                for (int v = 0; v < V::LANES; v++) values[n][v] = 0;
                if (t < last && chunk < CHUNKS) evaluate<2>(s, b, chunk, t, values[n]);
            }
            __syncthreads();
#pragma unroll
            for (int q = 0; q < QUERIES; q++)
#pragma unroll
                for (int turn = 0; turn < TURNS; turn++) {
                    T x = 0;
#pragma unroll
                    for (int i = 0; i < EACH; i++)
#pragma unroll
                        for (int v = 0; v < K::LANES; v++) x += queries[q * ROW + (i * SHARE + part) * K::LANES + v] * keys[turn][i][v];
#pragma unroll
                    for (int with = SHARE / 2; with > 0; with /= 2) x += shuffle(x, with);
                    if (part == 0) scores[q * BT + turn * ABREAST + threadIdx.x / SHARE] = x;
                }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < WEIGHED; i++) {
                // All threads of a warp have the same query.
                const int q = i * WARPS + warp;
                if (q >= QUERIES) break;
                T x[BT / 32], now = most[i];
#pragma unroll
                for (int j = 0; j < BT / 32; j++) {
                    const int t = t0 + j * 32 + lane;
                    T bias[1] = {};
#if HAS_BIAS
                    if (t < last) s.bias(b, s.query_of(b, q), t, bias);
#endif
                    // A hidden key is skipped, whatever its score is.
                    const T seen = hides(bias[0]) ? bias[0] : score(scores[q * BT + j * 32 + lane], (T)1) + bias[0];
                    x[j] = t >= last ? nothing<T>() : seen;
                    now = max_of(now, x[j]);
                }
#pragma unroll
                for (int with = 16; with > 0; with /= 2) now = max_of(now, shuffle(now, with));
                const T base = now == nothing<T>() ? (T)0 : now, scale = exp(most[i] - base);
                T sum = 0;
#pragma unroll
                for (int j = 0; j < BT / 32; j++) {
                    x[j] = exp(x[j] - base);
                    sum += x[j];
                    scores[q * BT + j * 32 + lane] = x[j];
                }
#pragma unroll
                for (int with = 16; with > 0; with /= 2) sum += shuffle(sum, with);
                total[i] = total[i] * scale + sum;
                most[i] = now;
                if (lane == 0) {
                    scales[q] = scale;
                    scales[QUERIES + q] = now;
                    scales[2 * QUERIES + q] = total[i];
                }
            }
            __syncthreads();
#pragma unroll
            for (int q = 0; q < QUERIES; q++) {
#pragma unroll
                for (int v = 0; v < V::LANES; v++) of_columns[q][v] *= scales[q];
#pragma unroll
                for (int n = 0; n < OWN; n++) {
                    const T weight = scores[q * BT + n * GROUPS + group];
#pragma unroll
                    for (int v = 0; v < V::LANES; v++) of_columns[q][v] += weight * values[n][v];
                }
            }
        }
        if (first >= last && threadIdx.x < QUERIES) {
            scales[QUERIES + threadIdx.x] = nothing<T>();
            scales[2 * QUERIES + threadIdx.x] = 0;
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++)
#pragma unroll
            for (int v = 0; v < V::LANES; v++)
                if (chunk < CHUNKS) sums[(group * QUERIES + q) * COLUMNS + chunk * V::LANES + v] = of_columns[q][v];
        __syncthreads();
        for (int at = threadIdx.x; at < QUERIES * COLUMNS / LANES; at += THREADS) {
            const int q = at / (COLUMNS / LANES), e = at % (COLUMNS / LANES) * LANES;
            T row[LANES] = {};
#pragma unroll
            for (int of = 0; of < GROUPS; of++)
#pragma unroll
                for (int v = 0; v < LANES; v++) row[v] += sums[(of * QUERIES + q) * COLUMNS + e + v];
            deliver<SPLITS, LANES>(s, split, b, q, e, row, scales[QUERIES + q], scales[2 * QUERIES + q]);
        }
        __syncthreads();
    }
}
