// Products of 16-bit operands by warpgroups, whose matrix units read both operands from shared memory. Some warps of a
// block load tiles, and the others multiply them some stages later. If several blocks share a processor, the epilogue
// of one overlaps the product of another.
//
// A tile in shared memory has rows of 128 bytes: 64 terms of one outer coordinate, or 64 outer neighbours of one term.
// The rows of the next 64 follow. The eight 16-byte units of a row are permuted by the row's number, which avoids bank
// conflicts.

constexpr int TERMS = 64, LINE = 64, SPAN = TERMS * LINE;

// Loads neighbours of an operand whose elements are in memory without change.
template <int WHICH, class P> FN void take_raw(const Slots& s, int b, int o, int k, P& pack) {
    if constexpr (WHICH == 0) s.raw0(b, o, k, pack);
    else s.raw1(b, o, k, pack);
}

// The tile of an operand, with OUTER × TERMS elements.
template <int WHICH, class H, int OUTER> struct Staged {
    using O = Operand<WHICH>;
    static constexpr int V = O::LANES, SIZE = OUTER * TERMS, ITEMS = SIZE / V / 128;

    // Returns the position of an element. In a row, 16 bytes of neighbours are contiguous.
    static METHOD int spot(int o, int k) {
        const int row = O::ALONG ? o : o / LINE * TERMS + k, x = O::ALONG ? k : o % LINE;
        return row * LINE + ((x / 8 ^ row % 8) * 8 | x % 8);
    }

    // Returns a descriptor for matrix units, from an outer coordinate (a multiple of 64) and a term (a multiple of 16)
    // on. It has the address bits within the block, and not those that select a block of the cluster.
    static METHOD u64 describe(const H* tile, int o, int k) {
        const unsigned at = shared_address(tile) + (O::ALONG ? o * LINE + k : o * TERMS + k * LINE) * 2;
        constexpr u64 lines = SPAN * 2 / 16, eights = 8 * LINE * 2 / 16;
        return (u64)1 << 62 | eights << 32 | (O::ALONG ? (u64)1 : lines) << 16 | (at & 0x3ffff) >> 4;
    }

    // Starts copies of COUNT rows or outer neighbours of the tile, from `from` on. `to` sends them to all blocks of a
    // cluster.
    template <int COUNT> static METHOD void copy(H* tile, const Box* box, int b, int outer, int depth, int from, u64* barrier, bool to) {
        const int z = O::BATCHED ? b : 0;
#pragma unroll
        for (int part = 0; part < (O::ALONG ? 1 : COUNT / LINE); part++) {
            const int o = from + part * LINE;
            H* const at = tile + o * LINE;
            const int x = O::ALONG ? depth : outer + o, y = O::ALONG ? outer + o : depth;
            if (to) copy_box_to(at, box, x, y, z, barrier, 3);
            else copy_box(at, box, x, y, z, barrier);
        }
    }

    Pack<H, V> values[ITEMS];

    static METHOD void place(int item, int& o, int& k) {
        const int group = threadIdx.x % 128 + item * 128;
        if constexpr (O::ALONG) { o = group / (TERMS / V); k = group % (TERMS / V) * V; }
        else { k = group / (OUTER / V); o = group % (OUTER / V) * V; }
    }
    // Evaluates this thread's share of the tile, which 128 threads evaluate together. Elements outside of the operand,
    // whose depth ends at `end`, are zeros.
    METHOD void fetch(const Slots& s, int b, int outer, int depth, int end) {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int o, k;
            place(item, o, k);
            o += outer;
            k += depth;
            const bool there = o < O::OUTER && k < end;
            if constexpr (O::RAW) {
                values[item] = {};
                if (there) take_raw<WHICH>(s, b, O::ALONG ? o : o / V, O::ALONG ? k / V : k, values[item]);
            } else {
                float of[V];
#pragma unroll
                for (int v = 0; v < V; v++) of[v] = 0;
                if (there) evaluate<WHICH>(s, b, O::ALONG ? o : o / V, O::ALONG ? k / V : k, of);
#pragma unroll
                for (int v = 0; v < V; v++) values[item].set(v, of[v]);
            }
        }
    }
    METHOD void leave(H* tile) const {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int o, k;
            place(item, o, k);
            store_pack<V>(tile, spot(o, k), values[item]);
        }
    }
};

// Gathers neighbouring columns in one thread. Four threads share each group of 8 columns of a row, and have two columns
// each. An exchange over LANES / 2 groups gives a thread LANES neighbouring columns of one group. `column` is the
// position of the first one.
template <int LANES> FN void gather_columns(const float (&pairs)[LANES / 2][2], float (&row)[LANES], int& column) {
    const int place = threadIdx.x % 4;
    const bool odd = place & 1, high = place & 2;
    if constexpr (LANES == 2) {
        row[0] = pairs[0][0]; row[1] = pairs[0][1];
        column = place * 2;
    } else {
        float fours[LANES / 4][4];
#pragma unroll
        for (int i = 0; i < LANES / 4; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float first = pairs[2 * i][h], second = pairs[2 * i + 1][h], kept = odd ? second : first;
                const float got = shuffle(odd ? first : second, 1);
                fours[i][h] = odd ? got : kept;
                fours[i][2 + h] = odd ? kept : got;
            }
        if constexpr (LANES == 4) {
#pragma unroll
            for (int n = 0; n < 4; n++) row[n] = fours[0][n];
            column = odd * 8 + high * 4;
        } else {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float kept = high ? fours[1][n] : fours[0][n], got = shuffle(high ? fours[0][n] : fours[1][n], 2);
                row[n] = high ? got : kept;
                row[4 + n] = high ? kept : got;
            }
            column = place * 8;
        }
    }
}

// Computes BM × BN results per block, and 64 × BN per warpgroup. If TOGETHER is 2, the two blocks of a cluster share
// the columns of the right operand, and each loads one half.
template <class H, int BM, int BN, int STAGES, int TOGETHER, int RESIDENT, int SPLITS, int LANES> FN void multiply_warpgroups(Slots& slots, const Box* boxes) {
    constexpr int CONSUMERS = BM / 64 * 128;
    using L = Staged<0, H, BM>;
    using R = Staged<1, H, BN>;
    constexpr bool IS_BOXED = L::O::BOXED || R::O::BOXED, IS_COMPUTED = !L::O::BOXED || !R::O::BOXED;
    constexpr int BYTES = 2 * ((L::O::BOXED ? L::SIZE : 0) + (R::O::BOXED ? R::SIZE : 0));
    H* const tiles = (H*)shared_memory();
    u64* const full = (u64*)(tiles + STAGES * (L::SIZE + R::SIZE));
    u64* const empty = full + STAGES;
    // If a processor has one block, the first of its two warpgroups starts LEAD steps ahead. While one of them stores
    // results, the other one multiplies.
    u64* const ahead = empty + STAGES;
    constexpr int LEAD = 2;
    constexpr bool IS_LED = RESIDENT == 1 && BM > 64;
    auto left = [&](int stage) { return tiles + stage * (L::SIZE + R::SIZE); };
    auto right = [&](int stage) { return left(stage) + L::SIZE; };
    const int rank = TOGETHER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_start(full + stage, (IS_BOXED ? 1 : 0) + (IS_COMPUTED ? 128 : 0));
            barrier_start(empty + stage, CONSUMERS / 32 * TOGETHER);
        }
        barrier_start(ahead, 4);
        barriers_started();
    }
    if constexpr (TOGETHER > 1) cluster_arrive_and_wait();
    else __syncthreads();
    slots.follow();
    const Slots& s = slots;
    constexpr int ROWS = ((M + BM - 1) / BM + TOGETHER - 1) / TOGETHER * TOGETHER, COLUMNS = (N + BN - 1) / BN, TILES = ROWS * COLUMNS;
    // A block takes one tile after the other. It loads the first steps of the next tile while it stores results. Blocks
    // that run at once take bands of 8 tile rows, column by column, so that they share rows and columns in the cache.
    auto place = [&](int tile, int& b, int& m0, int& n0) {
        b = tile / TILES;
        const int at = tile % TILES, band = at / (8 * COLUMNS) * 8, high = ROWS - band < 8 ? ROWS - band : 8, in_band = at % (8 * COLUMNS);
        m0 = (band + in_band % high) * BM;
        n0 = in_band / high * BN;
    };
    int begin, end;
    part<TERMS, SPLITS>(begin, end);
    // The registers per thread of the warpgroups that multiply, and of the one that loads tiles. If several blocks
    // share a processor, all threads have equally many.
    constexpr int ALL = 65536 / (CONSUMERS + 128) / 8 * 8, LEAST = IS_COMPUTED ? 152 : 24;
    constexpr int MOST = (ALL * (CONSUMERS + 128) - LEAST * 128) / CONSUMERS / 8 * 8;
    int stage = 0, turn = 0;
    auto next = [&] {
        if (++stage == STAGES) { stage = 0; turn ^= 1; }
    };
    if (threadIdx.x >= CONSUMERS) {
        if constexpr (RESIDENT == 1) registers_down<LEAST>();
        if (IS_COMPUTED || threadIdx.x == CONSUMERS) {
            for (int tile = blockIdx.x; tile < TILES * B; tile += gridDim.x) {
                int b, m0, n0;
                place(tile, b, m0, n0);
                for (int k = begin; k < end; k += TERMS, next()) {
                    L l;
                    R r;
                    if constexpr (!L::O::BOXED) l.fetch(s, b, m0, k, end);
                    if constexpr (!R::O::BOXED) r.fetch(s, b, n0, k, end);
                    barrier_wait(empty + stage, turn ^ 1);
                    if constexpr (IS_BOXED) {
                        if (threadIdx.x == CONSUMERS) {
                            barrier_expect(full + stage, BYTES);
                            if constexpr (L::O::BOXED) L::template copy<BM>(left(stage), boxes, b, m0, k, 0, full + stage, false);
                            if constexpr (R::O::BOXED)
                                R::template copy<BN / TOGETHER>(right(stage), boxes + L::O::BOXED, b, n0, k, rank * (BN / TOGETHER), full + stage, TOGETHER > 1);
                        }
                    }
                    if constexpr (IS_COMPUTED) {
                        if constexpr (!L::O::BOXED) l.leave(left(stage));
                        if constexpr (!R::O::BOXED) r.leave(right(stage));
                        shared_to_units();
                        barrier_arrive(full + stage);
                    }
                }
            }
        }
    } else {
        if constexpr (RESIDENT == 1) registers_up<(MOST < 240 ? MOST : 240)>();
        const int own = threadIdx.x / 128 * 64, lane = threadIdx.x % 32;
        auto release = [&](int of) {
            if (lane == 0) {
                if constexpr (TOGETHER == 1) barrier_arrive(empty + of);
                else for (int to = 0; to < TOGETHER; to++) barrier_arrive_at(empty + of, to);
            }
        };
        auto lead = [&](int tile) {
            if (IS_LED && own == 0 && lane == 0 && tile == blockIdx.x) barrier_arrive(ahead);
        };
        if (IS_LED && own > 0) barrier_wait(ahead, 0);
        for (int tile = blockIdx.x; tile < TILES * B; tile += gridDim.x) {
            int b, m0, n0;
            place(tile, b, m0, n0);
            float sums[BN / 2];
#pragma unroll
            for (int n = 0; n < BN / 2; n++) sums[n] = 0;
            for (int k = begin; k < end; k += TERMS, next()) {
                barrier_wait(full + stage, turn);
                warpgroup_begin();
#pragma unroll
                for (int term = 0; term < TERMS; term += 16)
                    warpgroup_multiply<BN, !L::O::ALONG, !R::O::ALONG>(sums, L::describe(left(stage), own, term), R::describe(right(stage), 0, term), H());
                warpgroup_commit();
                // The products of the previous stage are complete after this wait.
                warpgroup_wait<1>();
                if (k > begin) release(stage > 0 ? stage - 1 : STAGES - 1);
                if (k == begin + (LEAD - 1) * TERMS) lead(tile);
            }
            warpgroup_wait<0>();
            if (end > begin) release(stage > 0 ? stage - 1 : STAGES - 1);
            if (end <= begin + (LEAD - 1) * TERMS) lead(tile);
            constexpr int PAIRS = LANES < 2 ? 1 : LANES / 2;
            const int m = m0 + own + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
            for (int block = 0; block < BN / 8; block += PAIRS)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float pairs[PAIRS][2], row[2 * PAIRS];
                    int column;
#pragma unroll
                    for (int i = 0; i < PAIRS; i++)
#pragma unroll
                        for (int c = 0; c < 2; c++) pairs[i][c] = sums[(block + i) * 4 + h * 2 + c];
                    gather_columns<2 * PAIRS>(pairs, row, column);
#pragma unroll
                    for (int c = 0; c < 2 * PAIRS; c += LANES) {
                        const int mm = m + h * 8, nn = n0 + block * 8 + column + c;
                        // Without branches, the loads of all columns are in flight at once.
                        if constexpr (M % BM == 0 && N % BN == 0) put<SPLITS, LANES>(s, b, mm, nn, row + c);
                        else ::finish<SPLITS, LANES>(s, b, mm, nn, row + c);
                    }
                }
        }
    }
    // A block must not end before other blocks of its cluster have stopped writing to it.
    if constexpr (TOGETHER > 1) cluster_arrive_and_wait();
}
