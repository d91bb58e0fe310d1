// Operands of products, tile by tile. `Operand<WHICH>` has the extents, and the axis along which several elements are
// read at once. An element is addressed by an `outer` coordinate (a row of the left operand, a column of the right one)
// and a coordinate along the `depth`.

template <int WHICH> FN void evaluate(const Slots& s, int b, int o, int k, typename Operand<WHICH>::T* out) {
    if constexpr (WHICH == 0) s.operand0(b, o, k, out);
    else if constexpr (WHICH == 1) s.operand1(b, o, k, out);
#if OPERANDS > 2
    else s.operand2(b, o, k, out);
#endif
}

template <int WHICH> FN const auto* address(const Slots& s, int b, int o, int k) {
    if constexpr (WHICH == 0) return s.address0(b, o, k);
    else if constexpr (WHICH == 1) return s.address1(b, o, k);
#if OPERANDS > 2
    else return s.address2(b, o, k);
#endif
}

// A thread's share of a tile. Elements outside of the operand are zeros. Neighbouring threads read NEAR neighbours
// along the depth and then go on to the next outer coordinate. Storing these to shared memory causes fewer bank
// conflicts than storing whole rows.
template <int WHICH, int OUTER, int DEPTH, int THREADS, int NEAR = DEPTH> struct Tile {
    using O = Operand<WHICH>;
    using T = typename O::T;
    static constexpr int V = O::LANES, GROUPS = OUTER * DEPTH / V, ITEMS = (GROUPS + THREADS - 1) / THREADS;
    T values[ITEMS][V];

    static METHOD bool place(int item, int& o, int& k) {
        int group = threadIdx.x + item * THREADS;
        if constexpr (O::ALONG) { o = group / (NEAR / V) % OUTER; k = group / (NEAR / V * OUTER) * NEAR + group % (NEAR / V) * V; }
        else { k = group / (OUTER / V); o = group % (OUTER / V) * V; }
        return GROUPS % THREADS == 0 || group < GROUPS;
    }

    // Evaluates the share of a tile that begins at this position of the operand. The depth ends at `end`.
    METHOD void fetch(const Slots& s, int b, int outer, int depth, int end) {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int o, k;
            bool own = place(item, o, k);
            o += outer;
            k += depth;
#pragma unroll
            for (int v = 0; v < V; v++) values[item][v] = 0;
            if (own && o < O::OUTER && k < end) evaluate<WHICH>(s, b, O::ALONG ? o : o / V, O::ALONG ? k / V : k, values[item]);
        }
    }

    // Stores the share to shared memory, where outer neighbours are contiguous.
    template <int STRIDE> METHOD void leave(T* tile) const {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int o, k;
            if (!place(item, o, k)) continue;
#pragma unroll
            for (int v = 0; v < V; v++) {
                if constexpr (O::ALONG) tile[(k + v) * STRIDE + o] = values[item][v];
                else tile[k * STRIDE + o + v] = values[item][v];
            }
        }
    }
};

// Copies `N` neighbouring elements.
template <int N, class T> FN void take(T* to, const T* from) { copy<(int)sizeof(T) * N>(to, from); }
