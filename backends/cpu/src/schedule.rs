//! Costs that determine the tiles of batch-vectorised contractions. The cost model and the thunk both use them, so the
//! predicted tiles are the executed ones.

use eutectic_backend::cost_table;
use serde::{Deserialize, Serialize};

cost_table! {
    /// Seconds of the parts of a batch-vectorised contraction: one whose sums fill vectors along an axis of the result.
    /// They determine its tiles and its price.
    #[derive(Clone, Copy, Debug, Deserialize, Serialize)]
    pub struct LaneCosts {
        /// One term of a vector of 16 sums, if the operands of a tile stay in the first-level cache.
        term: Seconds,
        /// One term of a vector of 16 sums, if the operands of a tile exceed the first-level cache.
        far: Seconds,
        /// One term of a vector of 16 sums, if the tile reads a matrix larger than the first-level cache, one or two
        /// vectors of a row at a time.
        matrix: Seconds,
        /// One term of a vector of 16 sums, if the tile reads a matrix larger than all caches, few elements of each
        /// page at a time.
        memory: Seconds,
        /// The latency of a multiply-add: the time until a vector of sums can add the next term.
        latency: Seconds,
        /// One element of a tile that is computed into scratch memory, or copied there by its phase (its position
        /// modulo the stride).
        copy: Seconds,
        /// Each contiguous line of elements that `copy` counts.
        line: Seconds,
        /// One element per tile of the operand that most tiles share.
        shared: Seconds,
        /// One call of the micro-kernel, for the sums that its registers hold.
        run: Seconds,
        /// The fixed cost of one tile, to which the costs of its elements are added.
        tile: Seconds,
    }
}
