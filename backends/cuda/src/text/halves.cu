// Tiles of 16-bit operands in shared memory, and the fragments of them that matrix units take.

// A thread's share in a tile of 16-bit elements: rows of the depth where the operand is read along it, else rows of outer neighbours.
template <int WHICH, class H, int OUTER, int DEPTH, int THREADS> struct Halves : Tile<WHICH, OUTER, DEPTH, THREADS> {
    using Base = Tile<WHICH, OUTER, DEPTH, THREADS>;
    using O = Operand<WHICH>;
    // A pad of 16 bytes keeps eight rows in different banks.
    static constexpr int STRIDE = (O::ALONG ? DEPTH : OUTER) + 8, SIZE = (O::ALONG ? OUTER : DEPTH) * STRIDE, V = O::LANES;

    static METHOD H* spot(H* tile, int o, int k) { return tile + (O::ALONG ? o * STRIDE + k : k * STRIDE + o); }

    // Starts to read it: right into shared memory, or by way of registers where it is computed.
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

// Fragments of 16 rows of the left operand, or 16 columns of the right one, over 16 terms.
template <class L, class H> FN void left_fragment(unsigned (&r)[4], H* tile, int o, int k) {
    const int l = threadIdx.x % 32, m = o + l / 8 % 2 * 8, kk = k + l / 16 * 8;
    if constexpr (L::O::ALONG) load_matrices(r, L::spot(tile, m + l % 8, kk));
    else load_transposed(r, L::spot(tile, m, kk + l % 8));
}
template <class R, class H> FN void right_fragment(unsigned (&r)[4], H* tile, int o, int k) {
    const int l = threadIdx.x % 32, n = o + l / 16 * 8, kk = k + l / 8 % 2 * 8;
    if constexpr (R::O::ALONG) load_matrices(r, R::spot(tile, n + l % 8, kk));
    else load_transposed(r, R::spot(tile, n, kk + l % 8));
}

