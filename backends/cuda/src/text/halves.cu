// Tiles of 16-bit or TF32 operands in shared memory, in the layout of matrix units, and fragments of them.

// A thread's share of a tile. The tile has rows of terms if the operand is contiguous along the depth, and otherwise
// rows of outer neighbours.
template <int WHICH, class H, int OUTER, int DEPTH, int THREADS> struct Halves : Tile<WHICH, OUTER, DEPTH, THREADS> {
    using Base = Tile<WHICH, OUTER, DEPTH, THREADS>;
    using O = Operand<WHICH>;
    // Padding avoids bank conflicts of simultaneous reads. These read eight rows of 16 bytes, or eight neighbours of
    // four terms. For 32-bit values of attention (WHICH == 2), the four terms are every other one, because a thread's
    // weights belong to neighbouring terms.
    static constexpr int PAD = O::ALONG || sizeof(H) == 2 ? 16 / sizeof(H) : WHICH == 2 ? 4 : 8;
    static constexpr int STRIDE = (O::ALONG ? DEPTH : OUTER) + PAD, SIZE = (O::ALONG ? OUTER : DEPTH) * STRIDE, V = O::LANES;

    static METHOD H* spot(H* tile, int o, int k) { return tile + (O::ALONG ? o * STRIDE + k : k * STRIDE + o); }

    // Starts loading the tile: directly into shared memory, or through registers if it is computed.
    METHOD void start(const Slots& s, int b, int outer, int depth, int end, H* tile) {
        if constexpr (O::PLAIN) {
#pragma unroll
            for (int item = 0; item < Base::ITEMS; item++) {
                int o, k;
                if (!Base::place(item, o, k)) continue;
                const bool there = o + outer < O::OUTER && k + depth < end;
                const int oo = there ? o + outer : 0, kk = there ? k + depth : 0;
                copy_async(spot(tile, o, k), address<WHICH>(s, b, O::ALONG ? oo : oo / V, O::ALONG ? kk / V : kk), there);
            }
        } else this->fetch(s, b, outer, depth, end);
    }
    METHOD void finish(H* tile) const {
        if constexpr (!O::PLAIN) {
#pragma unroll
            for (int item = 0; item < Base::ITEMS; item++) {
                int o, k;
                if (!Base::place(item, o, k)) continue;
                Pack<H, V> pack;
#pragma unroll
                for (int v = 0; v < V; v++) pack.set(v, this->values[item][v]);
                store_pack<V>(spot(tile, o, k), 0, pack);
            }
        }
    }
};

// Load fragments of 16 rows of the left operand, or of 16 columns of the right one, over 32 bytes of terms.
template <class L, class H> FN void left_fragment(unsigned (&r)[4], H* tile, int o, int k) {
    constexpr int UNIT = 16 / sizeof(H);
    const int l = threadIdx.x % 32, m = o + l / 8 % 2 * 8, kk = k + l / 16 * UNIT;
    if constexpr (L::O::ALONG) load_matrices(r, L::spot(tile, m + l % 8, kk));
    else if constexpr (sizeof(H) == 2) load_transposed(r, L::spot(tile, m, kk + l % 8));
    else
#pragma unroll
        for (int n = 0; n < 4; n++) r[n] = L::spot(tile, o + l / 4 + n % 2 * 8, k + l % 4 + n / 2 * UNIT)->bits;
}
template <class R, class H> FN void right_fragment(unsigned (&r)[4], H* tile, int o, int k) {
    constexpr int UNIT = 16 / sizeof(H);
    const int l = threadIdx.x % 32, n = o + l / 16 * 8, kk = k + l / 8 % 2 * UNIT;
    if constexpr (R::O::ALONG) load_matrices(r, R::spot(tile, n + l % 8, kk));
    else if constexpr (sizeof(H) == 2) load_transposed(r, R::spot(tile, n, kk + l % 8));
    else
#pragma unroll
        for (int n = 0; n < 4; n++) r[n] = R::spot(tile, o + l / 4 + n / 2 * 8, k + l % 4 + n % 2 * UNIT)->bits;
}

// Converts sums to the left operand of another product. A lane has the sums of two neighbouring columns of each eight,
// and these columns become its terms.
template <class H> FN void sums_fragment(unsigned (&r)[4], const float* x, H) {
#pragma unroll
    for (int n = 0; n < 4; n++) r[n] = pair_of(x[n * 2], x[n * 2 + 1], H());
}
FN void sums_fragment(unsigned (&r)[4], const float* x, tf32) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        tf32 y;
        narrow(x[n % 2 * 2 + n / 2], y);
        r[n] = y.bits;
    }
}
// Loads the right operand of a product whose left operand comes from `sums_fragment`, with terms in the same order.
template <class R, class H> FN void right_fragment_of_sums(unsigned (&r)[4], H* tile, int o, int k) {
    if constexpr (sizeof(H) == 2) right_fragment<R>(r, tile, o, k);
    else {
        const int l = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < 4; n++) r[n] = R::spot(tile, o + l / 4 + n / 2 * 8, k + l % 4 * 2 + n % 2)->bits;
    }
}
