// Products of few rows. Each element of the right operand is read once and multiplied with all rows. The threads of a
// block share its columns and the depth. Each reads TERMS terms of a group of columns at once, which keeps enough loads
// in flight.

// Loads terms k to k + TERMS of all rows. Terms from `end` on are zeros.
template <int TERMS, class T> FN void take_rows(const Slots& s, int b, int k, int end, T (&x)[M][TERMS]) {
    using L = Operand<0>;
    constexpr int V = L::LANES;
    if constexpr (L::ALONG && V <= TERMS) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int t = 0; t < TERMS; t += V) {
#pragma unroll
                for (int v = 0; v < V; v++) x[m][t + v] = 0;
                if (k + t < end) evaluate<0>(s, b, m, (k + t) / V, &x[m][t]);
            }
    } else if constexpr (L::ALONG) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            T of[V];
#pragma unroll
            for (int v = 0; v < V; v++) of[v] = 0;
            if (k < end) evaluate<0>(s, b, m, k / V, of);
            const int from = k % V;
#pragma unroll
            for (int part = 0; part < V; part += TERMS)
                if (from == part)
#pragma unroll
                    for (int t = 0; t < TERMS; t++) x[m][t] = of[part + t];
        }
    } else {
#pragma unroll
        for (int m = 0; m < M; m += V)
#pragma unroll
            for (int t = 0; t < TERMS; t++) {
                T of[V];
#pragma unroll
                for (int v = 0; v < V; v++) of[v] = 0;
                if (k + t < end) evaluate<0>(s, b, m / V, k + t, of);
#pragma unroll
                for (int v = 0; v < V; v++) x[m + v][t] = of[v];
            }
    }
}

// Adds COUNT numbers over the lanes of a warp whose distance is a multiple of STEP. Each exchange halves the numbers
// that a lane keeps, from `first` on. An odd count is not halved: two lanes then have equal sums, and `stores` remains
// true in one of them.
template <int COUNT, int WITH, int STEP, class T> FN void add_lanes(T* x, int& first, bool& stores) {
    if constexpr (WITH >= STEP) {
        if constexpr (COUNT % 2 == 0) {
            const bool upper = threadIdx.x & WITH;
#pragma unroll
            for (int n = 0; n < COUNT / 2; n++) {
                const T kept = upper ? x[COUNT / 2 + n] : x[n], sent = upper ? x[n] : x[COUNT / 2 + n];
                x[n] = kept + shuffle(sent, WITH);
            }
            if (upper) first += COUNT / 2;
            add_lanes<COUNT / 2, WITH / 2, STEP>(x, first, stores);
        } else {
#pragma unroll
            for (int n = 0; n < COUNT; n++) x[n] += shuffle(x[n], WITH);
            if (threadIdx.x & WITH) stores = false;
            add_lanes<COUNT, WITH / 2, STEP>(x, first, stores);
        }
    }
}
// Returns how many of COUNT numbers a lane keeps.
template <int COUNT, int WITH, int STEP> FN constexpr int kept() {
    if constexpr (WITH < STEP) return COUNT;
    else return kept<COUNT % 2 == 0 ? COUNT / 2 : COUNT, WITH / 2, STEP>();
}

// Prefetches a block's first elements of the right operand, if they are loaded without change. It runs before earlier
// kernels have ended.
template <int COLUMNS, int TERMS, int THREADS, int SPLITS> FN void ask_for_few(const Slots& s) {
    using R = Operand<1>;
    if constexpr (R::PLAIN) {
        constexpr int V = R::LANES, ABREAST = R::ALONG ? 1 : COLUMNS / V;
        // LINE threads read 16 bytes each of one cache line, and one of them prefetches it.
        constexpr int LINE = R::ALONG ? 8 : ABREAST < 8 ? ABREAST : 8;
        if (threadIdx.x % LINE != 0) return;
        const int n0 = blockIdx.x * COLUMNS, b = blockIdx.z, slice = threadIdx.x / ABREAST;
        int begin, end;
        part<R::ALONG ? V : TERMS, SPLITS>(begin, end);
        if constexpr (R::ALONG) {
            const int k = begin + slice * V;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (n0 + c < N && k < end) ask_for(s.address1(b, n0 + c, k / V));
        } else {
            const int n = n0 + threadIdx.x % ABREAST * V, k = begin + slice * TERMS;
#pragma unroll
            for (int t = 0; t < TERMS; t++)
                if (n < N && k + t < end) ask_for(s.address1(b, n / V, k + t));
        }
    }
}

// Computes a product of few rows. A block has COLUMNS columns, and its threads share the depth. If the right operand is
// contiguous along the depth, a warp reads neighbouring terms of all columns. Otherwise it reads neighbouring columns
// of some terms.
template <class T, int COLUMNS, int TERMS, int THREADS, int SPLITS, int LANES> FN void multiply_few(Slots& slots) {
    using R = Operand<1>;
    ask_for_few<COLUMNS, TERMS, THREADS, SPLITS>(slots);
    slots.follow();
    const Slots& s = slots;
    constexpr int V = R::LANES, WARPS = THREADS / 32;
    // The columns of a block form ABREAST groups, one for each of ABREAST neighbouring threads. A thread has the OWN
    // columns of its group, and takes DEEP terms at once.
    constexpr int ABREAST = R::ALONG ? 1 : COLUMNS / V, OWN = R::ALONG ? COLUMNS : V, DEEP = R::ALONG ? V : TERMS;
    constexpr int STEP = ABREAST < 32 ? ABREAST : 32, COUNT = M * OWN, KEPT = kept<COUNT, 16, STEP>();
    T* const parts = (T*)shared_memory();
    const int n0 = blockIdx.x * COLUMNS, group = threadIdx.x % ABREAST, slice = threadIdx.x / ABREAST, warp = threadIdx.x / 32;
    int begin, end;
    part<DEEP, SPLITS>(begin, end);
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
        T sums[COUNT] = {};
        for (int k = begin + slice * DEEP; k < end; k += THREADS / ABREAST * DEEP) {
            if constexpr (R::ALONG) {
                T y[OWN][V], x[M][V];
#pragma unroll
                for (int c = 0; c < OWN; c++) {
#pragma unroll
                    for (int v = 0; v < V; v++) y[c][v] = 0;
                    if (n0 + c < N) evaluate<1>(s, b, n0 + c, k / V, y[c]);
                }
                take_rows<V>(s, b, k, end, x);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int c = 0; c < OWN; c++)
#pragma unroll
                        for (int v = 0; v < V; v++) sums[m * OWN + c] += x[m][v] * y[c][v];
            } else {
                T y[TERMS][V], x[M][TERMS];
                const int n = n0 + group * V;
#pragma unroll
                for (int t = 0; t < TERMS; t++) {
#pragma unroll
                    for (int v = 0; v < V; v++) y[t][v] = 0;
                    if (n < N && k + t < end) evaluate<1>(s, b, n / V, k + t, y[t]);
                }
                take_rows<TERMS>(s, b, k, end, x);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int t = 0; t < TERMS; t++)
#pragma unroll
                        for (int v = 0; v < V; v++) sums[m * OWN + v] += x[m][t] * y[t][v];
            }
        }
        let_kernels_start();
        int first = 0;
        bool stores = true;
        add_lanes<COUNT, 16, STEP>(sums, first, stores);
        // Stores the sums of each warp. If parts of a warp have different columns, each part stores its sums.
        constexpr int PER_WARP = M * (R::ALONG ? COLUMNS : STEP * V), GROUPS = PER_WARP / COUNT;
        if (stores)
#pragma unroll
            for (int n = 0; n < KEPT; n++) parts[warp * PER_WARP + (first + n) * GROUPS + group % GROUPS] = sums[n];
        __syncthreads();
        constexpr int APART = ABREAST > 32 ? ABREAST / 32 : 1;
        for (int at = threadIdx.x; at < M * COLUMNS / LANES; at += THREADS) {
            const int m = at / (COLUMNS / LANES), n = at % (COLUMNS / LANES) * LANES;
            T row[LANES];
#pragma unroll
            for (int lane = 0; lane < LANES; lane++) {
                // `of` is the group of the column, and `of / 32` the first warp with that group.
                const int of = R::ALONG ? 0 : (n + lane) / V, c = R::ALONG ? n + lane : (n + lane) % V;
                row[lane] = 0;
                for (int w = of / 32; w < WARPS; w += APART) row[lane] += parts[w * PER_WARP + (m * OWN + c) * GROUPS + of % GROUPS];
            }
            ::finish<SPLITS, LANES>(s, b, m, n0 + n, row);
        }
        __syncthreads();
    }
}
