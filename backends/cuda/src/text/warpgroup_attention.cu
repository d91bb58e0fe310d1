// Attention of 16-bit operands by warpgroups, whose matrix units read shared memory (Shah et al. 2024,
// FlashAttention-3). One warpgroup of a block loads tiles of keys and values. Every other warpgroup has 64 queries,
// whose scores, weights and sums stay in its registers. The product of one tile's weights overlaps the scores and the
// softmax of the next tile. Keys are visited from the last tile, which may be partial, to the first.

constexpr int LINE = 64;

// Waits at a barrier of THREADS threads: those of the multiplying warpgroups, or all.
template <int BARRIER, int THREADS> FN void some_meet() { asm volatile("bar.sync %0, %1;" :: "n"(BARRIER), "n"(THREADS) : "memory"); }

// Warpgroups take turns at the matrix units: while one computes its products, another computes its softmax.
template <int GROUPS> FN void wait_for_turn(int group) {
    if constexpr (GROUPS > 1) asm volatile("bar.sync %0, 256;" :: "r"(group + 3) : "memory");
}
template <int GROUPS> FN void pass_turn(int to) {
    if constexpr (GROUPS > 1) asm volatile("bar.arrive %0, 256;" :: "r"(to + 3) : "memory");
}

// Arrives at a barrier once all copies of this thread so far are complete.
FN void copies_arrive(u64* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(shared_address(barrier)) : "memory");
}

// A tile of ROWS queries or keys in shared memory. Its lines of 128 bytes hold the first 64 elements of each row, and
// then the next 64. The eight 16-byte units of a line are permuted by the line's number, which avoids bank conflicts.
template <int WHICH, class H, int ROWS, int NEAR> struct Lines {
    using O = Operand<WHICH>;
    // An element of the values is addressed by column and key; an element of queries or keys, by row and depth.
    static constexpr bool OF_VALUES = WHICH == 2, BESIDE = OF_VALUES != O::ALONG;
    static constexpr int END = OF_VALUES ? O::DEPTH : O::OUTER, WIDTH = OF_VALUES ? O::OUTER : O::DEPTH;
    static constexpr int SPAN = ROWS * LINE, SIZE = (NEAR + LINE - 1) / LINE * SPAN, V = O::LANES;

    static METHOD int spot(int row, int x) { return x / LINE * SPAN + row * LINE + ((x % LINE / 8 ^ row % 8) * 8 | x % 8); }

    // Return descriptors for matrix units. `along` describes 16 terms along the lines, from a row that is a multiple of
    // 8. `across` describes 16 lines.
    static METHOD u64 along(const H* tile, int row, int x) {
        return (u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16 | (shared_address(tile) + (x / LINE * SPAN + row * LINE + x % LINE) * 2) >> 4;
    }
    static METHOD u64 across(const H* tile, int row) {
        return (u64)1 << 62 | (u64)64 << 32 | (u64)(SPAN * 2 / 16) << 16 | (shared_address(tile) + row * LINE * 2) >> 4;
    }

    // Whether the tile is copied without change, and not evaluated.
    static constexpr bool COPIED = O::PLAIN && BESIDE;

    // Arrives at a barrier once the elements that this thread loads are in shared memory.
    static METHOD void arrive(u64* barrier) {
        if constexpr (COPIED) copies_arrive(barrier);
        else {
            shared_to_units();
            barrier_arrive(barrier);
        }
    }

    // Waits until all threads have arrived. Copied elements are then visible to matrix units.
    static METHOD void wait(u64* barrier, int parity) {
        barrier_wait(barrier, parity);
        if constexpr (COPIED) shared_to_units();
    }

    // Loads rows from `first` on, by THREADS threads. Missing rows are zeros.
    template <int THREADS> static METHOD void bring(const Slots& s, int b, int first, H* tile, int thread) {
        if constexpr (!COPIED) evaluate_rows<THREADS>(s, b, first, tile, thread);
        else if (NEAR == WIDTH && first + ROWS <= END) copy_rows<THREADS, true>(s, b, first, tile, thread);
        else copy_rows<THREADS, false>(s, b, first, tile, thread);
    }

    // Each thread copies a column of units, so that addresses differ by constants and neighbouring threads read
    // neighbours.
    template <int THREADS, bool WHOLE> static METHOD void copy_rows(const Slots& s, int b, int first, H* tile, int thread) {
        constexpr int UNITS = NEAR / 8, BESIDES = UNITS % 16 == 0 ? 16 : UNITS & -UNITS, AT_ONCE = THREADS / BESIDES;
        const int own = thread / BESIDES, column = thread % BESIDES * 8;
#pragma unroll
        for (int next = 0; next < NEAR; next += BESIDES * 8)
#pragma unroll
            for (int down = 0; down < ROWS; down += AT_ONCE) {
                const int row = own + down, x = column + next;
                if (ROWS % AT_ONCE != 0 && row >= ROWS) continue;
                const void* source;
                if constexpr (OF_VALUES) source = address<WHICH>(s, b, x / V, first + row);
                else source = address<WHICH>(s, b, first + row, x / V);
                copy_async(tile + spot(own, x) + down * LINE, source, WHOLE || first + row < END && x < WIDTH);
            }
    }

    template <int THREADS> static METHOD void evaluate_rows(const Slots& s, int b, int first, H* tile, int thread) {
        // An access takes DOWN rows and BY neighbours of a row.
        constexpr int DOWN = BESIDE ? 1 : V, BY = BESIDE ? V : 1;
#pragma unroll 1
        for (int access = thread; access < ROWS * NEAR / V; access += THREADS) {
            const int row = BESIDE ? access / (NEAR / BY) : access % (ROWS / DOWN) * DOWN, x = BESIDE ? access % (NEAR / BY) * BY : access / (ROWS / DOWN);
            float of[V];
#pragma unroll
            for (int v = 0; v < V; v++) of[v] = 0;
            if (first + row < END && x < WIDTH) {
                if constexpr (OF_VALUES) evaluate<WHICH>(s, b, x / BY, (first + row) / DOWN, of);
                else evaluate<WHICH>(s, b, (first + row) / DOWN, x / BY, of);
            }
            Pack<H, V> pack;
#pragma unroll
            for (int v = 0; v < V; v++) pack.set(v, of[v]);
            if constexpr (BESIDE) store_pack<V>(tile, spot(row, x), pack);
            else {
#pragma unroll
                for (int v = 0; v < V; v++) tile[spot(row + v, x)] = pack.of[v];
            }
        }
    }
};

// Computes attention. GROUPS warpgroups have 64 queries each. Tiles have BT keys, with STAGES tiles in flight. Depth
// and columns are padded to DP and EP. BRINGS and WEIGHS are the registers per thread of the warpgroup that loads
// tiles, and of those that multiply.
template <class H, int GROUPS, int BT, int DP, int EP, int STAGES, int BRINGS, int WEIGHS, int SPLITS, int LANES, int BIAS> FN void attend_warpgroups(Slots& slots) {
    constexpr int BQ = 64 * GROUPS, CONSUMERS = 128 * GROUPS, PITCH = EP + 4;
    using Q = Lines<0, H, BQ, DP>;
    using K = Lines<1, H, BT, DP>;
    using V = Lines<2, H, BT, EP>;
    H* const queries = (H*)shared_memory();
    H* const keys = queries + Q::SIZE;
    H* const values = keys + STAGES * K::SIZE;
    constexpr int TILES = 2 * (Q::SIZE + STAGES * (K::SIZE + V::SIZE)), RESULTS = BQ * PITCH * 4;
    u64* const full_keys = (u64*)(shared_memory() + (TILES > RESULTS ? TILES : RESULTS));
    u64* const full_values = full_keys + STAGES;
    u64* const empty_keys = full_values + STAGES;
    u64* const empty_values = empty_keys + STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_start(full_keys + stage, 128);
            barrier_start(full_values + stage, 128);
            barrier_start(empty_keys + stage, CONSUMERS / 32);
            barrier_start(empty_values + stage, CONSUMERS / 32);
        }
        barriers_started();
    }
    __syncthreads();
    slots.follow();
    const Slots& s = slots;
    // Under a causal mask, the last queries attend to the most keys, so that they go first.
    const int block = gridDim.x - 1 - blockIdx.x, s0 = block * BQ;
    int first = 0, last = KEYS;
    share_keys<BT, SPLITS>(block, blockIdx.y, first, last);
    const int tiles = last > first ? (last - first + BT - 1) / BT : 0;
    // The numbers of the first and the last tile.
    const int begin = first / BT, end = begin + tiles - 1;
    if (threadIdx.x >= CONSUMERS) {
        registers_down<BRINGS>();
        const int thread = threadIdx.x - CONSUMERS;
        int key_turn = 0, value_turn = 0;
        for (int b = blockIdx.z; b < B; b += gridDim.z) {
            if (s0 >= s.stored_queries(b)) continue;
            for (int tile = 0; tile <= tiles; tile++) {
                if (tile < tiles) {
                    const int stage = key_turn % STAGES;
                    barrier_wait(empty_keys + stage, key_turn++ / STAGES & 1 ^ 1);
                    K::template bring<128>(s, b, (end - tile) * BT, keys + stage * K::SIZE, thread);
                    K::arrive(full_keys + stage);
                }
                if (tile > 0) {
                    const int stage = value_turn % STAGES;
                    barrier_wait(empty_values + stage, value_turn++ / STAGES & 1 ^ 1);
                    V::template bring<128>(s, b, (end - tile + 1) * BT, values + stage * V::SIZE, thread);
                    V::arrive(full_values + stage);
                }
            }
            if (b + gridDim.z < B) some_meet<2, CONSUMERS + 128>();
        }
    } else {
        registers_up<WEIGHS>();
        const int group = threadIdx.x / 128, lane = threadIdx.x % 32, own = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
        int turn = 0;
        if (group == 0) pass_turn<GROUPS>(0);
        auto release = [&](u64* barrier) { if (lane == 0) barrier_arrive(barrier); };
        for (int b = blockIdx.z; b < B; b += gridDim.z) {
            if (s0 >= s.stored_queries(b)) continue;
            float sums[EP / 2], most[2] = { nothing<float>(), nothing<float>() }, total[2] = {}, scale[2], x[BT / 2];
            unsigned weights[BT / 4];
#pragma unroll
            for (int n = 0; n < EP / 2; n++) sums[n] = 0;
            Q::template bring<CONSUMERS>(s, b, s0, queries, threadIdx.x);
            copy_commit();
            const int of_rows[2] = { s.query_of(b, s0 + own), s.query_of(b, s0 + own + 8) };
            Kept kept;
            keep<BT, BIAS>(s, kept, b, of_rows);
            copy_wait<0>();
            shared_to_units();
            some_meet<1, CONSUMERS>();
            auto multiply_keys = [&](int stage) {
                warpgroup_begin();
#pragma unroll
                for (int d = 0; d < DP; d += 16)
                    multiply_scores(x, Q::along(queries, group * 64, d), K::along(keys + stage * K::SIZE, 0, d), d > 0, H());
                warpgroup_commit();
            };
            auto multiply_values = [&](int stage) {
                warpgroup_begin();
#pragma unroll
                for (int t = 0; t < BT; t += 16) multiply_weights(sums, weights + t / 4, V::across(values + stage * V::SIZE, t), H());
                warpgroup_commit();
            };
            auto pack = [&] {
#pragma unroll
                for (int n = 0; n < BT / 4; n++) weights[n] = pair_of(x[2 * n], x[2 * n + 1], H());
            };
            if (tiles > 0) {
                fetch<BT, BIAS>(s, kept, b, of_rows, end);
                K::wait(full_keys + turn % STAGES, turn / STAGES & 1);
                multiply_keys(turn % STAGES);
                warpgroup_wait<0>();
                hold(x);
                release(empty_keys + turn % STAGES);
                weigh<BT, BT, BIAS, true, HAS_BIAS>(s, kept, b, of_rows, end, x, most, total, scale);
                pack();
                V::wait(full_values + turn % STAGES, turn / STAGES & 1);
                for (int tile = end - 1; tile >= begin; tile--, turn++) {
                    const int stage = turn % STAGES, next = (turn + 1) % STAGES;
                    if (!is_plain(block, tile)) fetch<BT, BIAS>(s, kept, b, of_rows, tile);
                    K::wait(full_keys + next, (turn + 1) / STAGES & 1);
                    wait_for_turn<GROUPS>(group);
                    multiply_keys(next);
                    multiply_values(stage);
                    pass_turn<GROUPS>(group + 1 < GROUPS ? group + 1 : 0);
                    warpgroup_wait<1>();
                    hold(x);
                    release(empty_keys + next);
                    if (is_plain(block, tile)) weigh<BT, BT, BIAS, false, false>(s, kept, b, of_rows, tile, x, most, total, scale);
                    else weigh<BT, BT, BIAS, false, HAS_BIAS>(s, kept, b, of_rows, tile, x, most, total, scale);
                    // This wait is a loop, so the assembler does not move the wait for the products before the softmax.
                    V::wait(full_values + next, (turn + 1) / STAGES & 1);
                    warpgroup_wait<0>();
                    hold(sums);
                    release(empty_values + stage);
#pragma unroll
                    for (int n = 0; n < EP / 2; n++) sums[n] *= scale[n / 2 % 2];
                    pack();
                }
                multiply_values(turn % STAGES);
                warpgroup_wait<0>();
                hold(sums);
                release(empty_values + turn % STAGES);
                turn++;
            }
            // Results overwrite the tiles, so all warpgroups must have read them.
            some_meet<1, CONSUMERS>();
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
            some_meet<1, CONSUMERS>();
            for (int at = threadIdx.x; at < BQ * EP / LANES; at += CONSUMERS) {
                const int m = at / (EP / LANES), e = at % (EP / LANES) * LANES;
                alignas(16) float row[LANES];
                take<LANES>(row, results + m * PITCH + e);
                deliver<SPLITS, LANES>(s, blockIdx.y, b, s0 + m, e, row, results[m * PITCH + EP], results[m * PITCH + EP + 1]);
            }
            // The next tiles must not overwrite results that are still read.
            if (b + gridDim.z < B) some_meet<2, CONSUMERS + 128>();
        }
    }
}
