// Attention: out[b s e] = Σ_t softmax_t(cap(scale · Σ_d q[b s d] · k[b t d]) + bias[b s t]) · v[b t e]. It is computed
// tile by tile over the keys, with the maximal score so far per query (online softmax; Milakov and Gimelshein 2018, Dao
// et al. 2022).

template <class T> FN T nothing() { return (T)as_float(0xff800000u); }

// Returns whether a bias hides a key, that is, replaces its score. Adding such a bias rounds away scores up to 2^92.
// Under guards, the bias is added to each score instead.
template <class T> FN bool hides(T bias) {
    if constexpr (GUARDED) return false;
    else if constexpr (sizeof(T) == 8) return bias <= (T)-89202980794122492566142873090593446023921664.0;
    else return bias <= -166153499473114484112975882535043072.0f;
}

// Returns the score of a product of query and key, times `unit`.
template <class T> FN T score(T product, T unit) {
    if constexpr (SOFTCAP != 0.0) return (T)SOFTCAP * unit * tanh(product * (T)(SCALE / SOFTCAP));
    return product * ((T)SCALE * unit);
}

// Sets the range of keys of a block. The keys that its queries attend to are split into SPLITS equal parts of whole
// tiles.
template <int BT, int SPLITS> FN void share_keys(int block, int split, int& first, int& last) {
    visible(block, first, last);
    const int each = ((last - first + BT - 1) / BT + SPLITS - 1) / SPLITS * BT;
    const int end = first + (split + 1) * each;
    first += split * each;
    last = end < last ? end : last;
}

// Returns a single element of an operand.
template <int WHICH> FN typename Operand<WHICH>::T element(const Slots& s, int b, int o, int k) {
    using O = Operand<WHICH>;
    typename O::T out[O::LANES], own = 0;
    evaluate<WHICH>(s, b, O::ALONG ? o : o / O::LANES, O::ALONG ? k / O::LANES : k, out);
#pragma unroll
    for (int v = 0; v < O::LANES; v++)
        if ((O::ALONG ? k : o) % O::LANES == v) own = out[v];
    return own;
}

// Recomputes some columns of a stored query without reading the values of hidden keys. The weight of a hidden key is 0,
// but 0 times NaN or infinity is NaN.
template <class T, int LANES> FN void attend_again(const Slots& s, int b, int at, int e, T* out) {
#if HAS_BIAS
    const int query = s.query_of(b, at);
    T most = nothing<T>(), total = 0, sums[LANES] = {};
#pragma unroll 1
    for (int t = 0; t < KEYS; t++) {
        T x[1];
        s.one_bias(b, query, t, x);
        if (x[0] == nothing<T>()) continue;
        if (!hides(x[0])) {
            T product = 0;
            // With `unroll 1`, NVRTC 13 crashes on operands under guards.
#pragma unroll 2
            for (int d = 0; d < DEPTH; d++) product += (T)element<0>(s, b, at, d) * (T)element<1>(s, b, t, d);
            x[0] += score(product, (T)1);
        }
        const T now = max_of(most, x[0]), base = now == nothing<T>() ? (T)0 : now, scale = exp(most - base), weight = exp(x[0] - base);
        total = total * scale + weight;
#pragma unroll
        for (int n = 0; n < LANES; n++) sums[n] = sums[n] * scale + weight * (T)element<2>(s, b, e + n, t);
        most = now;
    }
#pragma unroll
    for (int n = 0; n < LANES; n++) out[n] = sums[n] / total;
#endif
}
// An out-of-line copy of `attend_again`, for kernels that would otherwise inline it many times.
template <class T, int LANES> OUT_OF_LINE void call_again(const Slots& s, int b, int at, int e, T* out) { attend_again<T, LANES>(s, b, at, e, out); }

// Stores some columns of a query, given weighted sums, the maximal score and the sum of the weights. With SPLITS > 1,
// all of these belong to one split of the keys, and go to the workspace.
template <int SPLITS, int LANES, bool CALLS = false, class T> FN void deliver(const Slots& s, int split, int b, int at, int e, const T* sums, T most, T total) {
    if (at >= s.stored_queries(b) || e >= COLUMNS) return;
    if constexpr (SPLITS == 1) {
        const bool none = most == nothing<T>(), zeros = none && (EMPTY_IS_ZERO || KEYS == 0) || GUARDED && (none || total != total);
        T out[LANES];
#pragma unroll
        for (int n = 0; n < LANES; n++) out[n] = zeros ? (T)0 : sums[n] / total;
        if constexpr (HAS_BIAS && !GUARDED) {
            bool poisoned = false;
#pragma unroll
            for (int n = 0; n < LANES; n++) poisoned |= out[n] != out[n];
            if (poisoned && !none && total == total) {
                T again[LANES];
                if constexpr (CALLS) call_again<T, LANES>(s, b, at, e, again);
                else attend_again<T, LANES>(s, b, at, e, again);
#pragma unroll
                for (int n = 0; n < LANES; n++) out[n] = again[n];
            }
        }
        s.epilogue(b, at, e / LANES, out);
    } else {
        const i64 row = ((i64)split * B + b) * QUERIES + at;
        T* const parts = (T*)s.workspace;
#pragma unroll
        for (int n = 0; n < LANES; n++) parts[row * COLUMNS + e + n] = sums[n];
        if (e == 0) {
            T* const of_rows = parts + (i64)SPLITS * B * QUERIES * COLUMNS + 2 * row;
            of_rows[0] = most;
            of_rows[1] = total;
        }
    }
}

// Joins the splits of the keys.
template <class T, int SPLITS, int LANES, int THREADS> FN void join_keys(const Slots& s) {
    constexpr i64 ROWS = (i64)B * QUERIES, ALL = ROWS * COLUMNS;
    const T* const parts = (const T*)s.workspace;
    const T* const of_rows = parts + SPLITS * ALL;
    for (i64 at = ((i64)blockIdx.x * THREADS + threadIdx.x) * LANES; at < ALL; at += (i64)gridDim.x * THREADS * LANES) {
        const i64 row = at / COLUMNS;
        const int b = (int)(row / QUERIES), query = (int)(row % QUERIES);
        if (query >= s.stored_queries(b)) continue;
        T most = nothing<T>(), total = 0, sums[LANES] = {};
        for (int n = 0; n < SPLITS; n++) most = max_of(most, of_rows[2 * (n * ROWS + row)]);
        const T base = most == nothing<T>() ? (T)0 : most;
        for (int n = 0; n < SPLITS; n++) {
            const T weight = exp(of_rows[2 * (n * ROWS + row)] - base);
            total += weight * of_rows[2 * (n * ROWS + row) + 1];
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) sums[lane] += weight * parts[n * ALL + at + lane];
        }
        deliver<1, LANES>(s, 0, b, query, (int)(at % COLUMNS), sums, most, total);
    }
}

// Computes attention by multiply-adds. A block has BQ queries, and sixteen threads share four of them. EC columns of
// the values are processed at once. Each thread has groups of four neighbouring columns, and a remainder.
template <class T, int BQ, int BT, int DC, int EC, int SPLITS, int LANES, int BIAS> FN void attend(const Slots& s) {
    constexpr int THREADS = BQ / 4 * 16, AQ = BQ + 4, AT = BT + 4, AE = EC + 4, TE = EC / 16, TT = BT / 16;
    constexpr int REST = TE % 4, FOURS = TE - REST;
    static_assert(REST != 3, "shared memory is read by powers of two");
    T* const queries = (T*)shared_memory();
    T* const keys = queries + DC * AQ;
    T* const weights = keys + DC * AT;
    T* const values = weights + BT * AQ;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int s0 = blockIdx.x * BQ, e0 = blockIdx.y / SPLITS * EC, split = blockIdx.y % SPLITS;
    int first = 0, last = KEYS;
    share_keys<BT, SPLITS>(blockIdx.x, split, first, last);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        if (s0 >= s.stored_queries(b)) continue;
        T sums[4][TE] = {}, most[4], total[4] = {};
        int of_rows[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            most[i] = nothing<T>();
            of_rows[i] = s.query_of(b, s0 + ty * 4 + i);
        }
        for (int t0 = first; t0 < last; t0 += BT) {
            T x[4][TT] = {};
            for (int d = 0; d < DEPTH; d += DC) {
                Tile<0, BQ, DC, THREADS, 16> q;
                Tile<1, BT, DC, THREADS, 16> k;
                k.fetch(s, b, t0, d, DEPTH);
                // Queries stay in shared memory if their whole depth fits at once.
                const bool again = DEPTH > DC || t0 == first;
                if (again) q.fetch(s, b, s0, d, DEPTH);
                __syncthreads();
                if (again) q.template leave<AQ>(queries);
                k.template leave<AT>(keys);
                __syncthreads();
#pragma unroll 8
                for (int n = 0; n < DC; n++) {
                    alignas(16) T y[4], z[TT];
                    take<4>(y, queries + n * AQ + ty * 4);
                    take<TT>(z, keys + n * AT + tx * TT);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < TT; j++) x[i][j] += y[i] * z[j];
                }
            }
            Tile<2, EC, BT, THREADS> v;
            v.fetch(s, b, e0, t0, KEYS);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < TT; j += BIAS) {
                    const int t = t0 + tx * TT + j;
                    T bias[BIAS] = {};
#if HAS_BIAS
                    if (t < KEYS) s.bias(b, of_rows[i], t / BIAS, bias);
#endif
#pragma unroll
                    for (int n = 0; n < BIAS; n++) {
                        // A hidden key is skipped, whatever its score is.
                        const T seen = hides(bias[n]) ? bias[n] : score(x[i][j + n], (T)1) + bias[n];
                        x[i][j + n] = t + n >= KEYS ? nothing<T>() : seen;
                    }
                }
                T now = most[i];
#pragma unroll
                for (int j = 0; j < TT; j++) now = max_of(now, x[i][j]);
#pragma unroll
                for (int with = 8; with > 0; with /= 2) now = max_of(now, shuffle(now, with));
                const T base = now == nothing<T>() ? (T)0 : now;
                const T scale = exp(most[i] - base);
                most[i] = now;
                T sum = 0;
#pragma unroll
                for (int j = 0; j < TT; j++) {
                    x[i][j] = exp(x[i][j] - base);
                    sum += x[i][j];
                }
#pragma unroll
                for (int with = 8; with > 0; with /= 2) sum += shuffle(sum, with);
                total[i] = total[i] * scale + sum;
#pragma unroll
                for (int j = 0; j < TE; j++) sums[i][j] *= scale;
            }
            // A thread takes every sixteenth key, so that neighbouring threads write to different banks.
#pragma unroll
            for (int j = 0; j < TT; j++) {
                alignas(16) T column[4] = { x[0][j], x[1][j], x[2][j], x[3][j] };
                take<4>(weights + (j * 16 + tx) * AQ + ty * 4, column);
            }
            v.template leave<AE>(values);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < TT; j++)
#pragma unroll 8
                for (int n = 0; n < 16; n++) {
                    alignas(16) T y[4], z[TE];
                    const T* const row = values + (n * TT + j) * AE;
                    take<4>(y, weights + (j * 16 + n) * AQ + ty * 4);
#pragma unroll
                    for (int e = 0; e < FOURS; e += 4) take<4>(z + e, row + e * 16 + tx * 4);
                    if constexpr (REST > 0) take<REST>(z + FOURS, row + FOURS * 16 + tx * REST);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int e = 0; e < TE; e++) sums[i][e] += y[i] * z[e];
                }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = s0 + ty * 4 + i;
#pragma unroll
            for (int e = 0; e < FOURS; e += LANES) deliver<SPLITS, LANES, true>(s, split, b, at, e0 + e / 4 * 64 + tx * 4 + e % 4, &sums[i][e], most[i], total[i]);
            if constexpr (REST > 0) {
                // Neighbouring threads hold the columns of one store, so an exchange gives them all to one thread.
                constexpr int SHARE = LANES > REST ? LANES / REST : 1;
                alignas(16) T rest[SHARE * REST];
#pragma unroll
                for (int n = 0; n < SHARE * REST; n++) rest[n] = n < REST ? sums[i][FOURS + n] : shuffle(sums[i][FOURS + n % REST], n / REST);
#pragma unroll
                for (int e = 0; e < SHARE * REST; e += LANES)
                    if (tx % SHARE == 0) deliver<SPLITS, LANES, true>(s, split, b, at, e0 + FOURS * 16 + tx * REST + e, rest + e, most[i], total[i]);
            }
        }
    }
}
