//! Costs by which kernels are cut: a plan prices a kernel by them, and its thunk is cut by the same ones.

use eutectic_backend::cost_table;
use serde::{Deserialize, Serialize};

cost_table! {
    /// Seconds of sums that fill vectors along an axis of the result, by which tiles are chosen and priced.
    #[derive(Clone, Copy, Debug, Deserialize, Serialize)]
    pub struct LaneCosts {
        /// A term of a vector of sums, if operands stay in the first-level cache.
        term: Seconds,
        /// Like `term`, for larger operands.
        far: Seconds,
        /// Like `term`, for a matrix that exceeds the first-level cache: its rows are read one or two vectors at a
        /// time.
        matrix: Seconds,
        /// Like `term`, for a matrix that exceeds all caches: few elements of each page are read at a time.
        memory: Seconds,
        /// Until a vector of sums can take the next term.
        latency: Seconds,
        /// An element of a tile that is evaluated, or split by phase.
        copy: Seconds,
        /// A line of such elements.
        line: Seconds,
        /// An element of the operand that most tiles share.
        shared: Seconds,
        /// A line of sums.
        run: Seconds,
        /// A tile.
        tile: Seconds,
    }
}
