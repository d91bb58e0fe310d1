//! Coefficients of rankings: accesses to shared memory, and waits of threads at barriers.
//!
//! A wait takes `exchange` seconds, and an access to a byte takes 1 / `near` seconds ([`crate::cost::Costs`]).
//! Schedules choose the algorithm that ranks rows within a block by the same numbers. For very long rows,
//! `digit_merges` decides between a radix sort and merges.

use eutectic_backend::cost_table;
use serde::{Deserialize, Serialize};

cost_table! {
    /// Coefficients of rankings on a device.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct RankingCosts {
        /// Accesses per element while each thread sorts its own elements in registers. Bank conflicts are included.
        sort_accesses: Count,
        /// Accesses per element in a merge of two sorted runs. Bisections and bank conflicts are included.
        merge_accesses: Count,
        /// Additional accesses per element for the first digit of a selection, where atomics on the same count are
        /// serialised.
        first_digit_accesses: Count,
        /// Accesses per element for each digit of a selection.
        digit_accesses: Count,
        /// Accesses per element for each draw. A draw finds the next one of the first elements of a row.
        draw_accesses: Count,
        /// The maximal number of digits that usually distinguish the keys of a row. A selection ends after them.
        digits: Count,
        /// The number of waits of any ranking, for writing keys and for reading results.
        ranking_waits: Count,
        /// The number of waits of a sort before its merges.
        sort_waits: Count,
        /// The number of waits of one merge.
        merge_waits: Count,
        /// The number of waits per digit of a selection.
        digit_waits: Count,
        /// The number of waits while the elements that a selection by digits has found are gathered.
        selected_waits: Count,
        /// The number of waits per draw.
        draw_waits: Count,
        /// The number of waits per comparison of two selected elements, times the number of elements in the row. The
        /// threads of the row share the comparisons.
        comparison_waits: CountOrNone,
        /// The number of waits that take as long as access to one byte of each element of a row.
        byte_waits: Count,
        /// Accesses per element when a block sorts a tile by one digit of a radix sort.
        tile_accesses: Count,
        /// The number of waits when a block sorts a tile by one digit of a radix sort.
        tile_waits: Count,
        /// The number of merges that take as long as one digit of a radix sort. Rows that need at least as many merges per
        /// digit are sorted by digits.
        digit_merges: Count,
    }
}

impl RankingCosts {
    /// Returns the time of some work on a row of `points` elements, in waits.
    pub(crate) fn time(&self, work: Work, points: usize) -> f64 {
        work.waits + self.byte_waits * work.bytes / points.max(1) as f64
    }
}

/// The work of ranking a row in a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Bytes that the threads access in shared memory.
    pub bytes: f64,
    /// The number of waits of threads for each other.
    pub waits: f64,
}

#[cfg(test)]
impl RankingCosts {
    /// The costs of an H200 (`backends/cuda/costs/h200.toml`; a test compares them).
    pub const OF_TESTS: RankingCosts = RankingCosts {
        sort_accesses: 12.0,
        merge_accesses: 5.0,
        first_digit_accesses: 36.0,
        digit_accesses: 3.0,
        draw_accesses: 1.0,
        digits: 5.0,
        ranking_waits: 12.0,
        sort_waits: 2.0,
        merge_waits: 2.0,
        digit_waits: 1.75,
        selected_waits: 3.0,
        draw_waits: 1.2,
        comparison_waits: 0.125,
        byte_waits: 0.0375,
        tile_accesses: 60.0,
        tile_waits: 36.0,
        digit_merges: 2.0,
    };
}
