// Scores in the layout of matrix units. A thread has two neighbouring keys of each group of eight, for two queries that
// are eight rows apart.

constexpr float LOG_2_E = 1.44269504f;

// Prevents the compiler from moving uses of these registers before this point.
template <int N> FN void hold(float (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(x[n]) :: "memory");
}

// Loads the values of the bias that are equal for all tiles of keys into registers.
template <int BT, int BIAS> FN void keep(const Slots& s, Kept& kept, int b, const int (&of_rows)[2]) {
#if KEEPS
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2; row++)
#pragma unroll
        for (int j = 0; j < BT / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h += BIAS)
                s.keep(b, of_rows[row], j, column + h, row, (j * 2 + h) / BIAS, kept);
#endif
}

// Issues the bias's loads for a tile. They may overlap the products and sums of another tile.
template <int BT, int BIAS> FN void fetch(const Slots& s, Kept& kept, int b, const int (&of_rows)[2], int tile) {
#if FETCHES
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2; row++)
#pragma unroll
        for (int j = 0; j < BT / 8; j++) {
            // The loop reads the complete groups of eight keys of a partial tile. `bias_of_last` reads the other group.
            if (KEYS % BT != 0 && j * 8 + 8 > KEYS % BT && tile == KEYS / BT) continue;
#pragma unroll
            for (int h = 0; h < 2; h += BIAS)
                s.fetch(tile, b, of_rows[row], j, column + h, row, (j * 2 + h) / BIAS, kept);
        }
    asm volatile("" ::: "memory");
#endif
}

// Converts products of queries and the first WIDTH keys of a tile of BT keys to weights. A weight is 2 to the power of
// the score minus the maximal score so far. `scale` is the factor on earlier weights. Keys may be missing in the LAST
// tile. The bias may differ from 0 only if MIXED.
template <int BT, int WIDTH, int BIAS, bool LAST, bool MIXED>
FN void weigh(const Slots& s, const Kept& kept, int b, const int (&of_rows)[2], int tile, float (&x)[WIDTH / 2], float (&most)[2], float (&total)[2], float (&scale)[2]) {
    // If the score is a positive multiple of the product, the maximal product has the maximal score, and the factor
    // goes into the exponent.
    constexpr bool RISES = !MIXED && SOFTCAP == 0.0 && SCALE > 0.0;
    constexpr float UNIT = RISES ? (float)SCALE * LOG_2_E : 1.0f;
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float now = nothing<float>();
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h += BIAS) {
                const int t = tile * BT + j * 8 + column + h;
#if HAS_BIAS
                float bias[BIAS] = {};
                if constexpr (MIXED) {
                    if (LAST && KEYS % BT != 0 && j * 8 + 8 > KEYS % BT) s.bias_of_last(tile, b, of_rows[row], j, column + h, bias);
                    else s.bias(tile, b, of_rows[row], j, column + h, row, (j * 2 + h) / BIAS, kept, bias);
                }
#endif
#pragma unroll
                for (int n = 0; n < BIAS; n++) {
                    float& y = x[j * 4 + row * 2 + h + n];
                    if constexpr (!RISES) y = score(y, LOG_2_E);
#if HAS_BIAS
                    // A hidden key is skipped, whatever its score is. Its bias may be the least number, which would
                    // overflow if it were scaled.
                    if constexpr (MIXED) y = hides(bias[n]) ? bias[n] : fma(bias[n], LOG_2_E, y);
#endif
                    if (LAST && t + n >= KEYS) y = nothing<float>();
                    now = max_of(now, y);
                }
            }
        now = max_of(now, shuffle(now, 1));
        now = max_of(now, shuffle(now, 2));
        now = max_of(most[row], now * UNIT);
        const float base = now == nothing<float>() ? 0.0f : now;
        scale[row] = power_of_two(most[row] - base);
        most[row] = now;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float& y = x[j * 4 + row * 2 + h];
                y = power_of_two(y * UNIT - base);
                sum += y;
            }
        total[row] = total[row] * scale[row] + sum;
    }
    // The weights must be computed before this point, in parallel with the products in flight. The compiler could
    // otherwise move them after those products.
    hold(x);
}
