//! The schedules of attention.

/// The units that multiply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Units {
    /// Multiplications and additions of threads.
    Threads,
    /// Warp-level matrix units, with this number of blocks per processor.
    Warps(usize),
    /// Matrix units of warpgroups, which read shared memory.
    Warpgroups(Groups),
}

/// A block's division into warpgroups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Groups {
    /// The number of warpgroups that multiply, each with 64 queries. One more loads tiles.
    pub count: usize,
    /// Blocks that a processor runs at once.
    pub resident: usize,
    /// The number of key tiles, and of value tiles, in flight.
    pub stages: usize,
    /// Registers per thread of the warpgroup that loads tiles, and of those that multiply.
    pub registers: [usize; 2],
}

/// A schedule of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionWay {
    /// The units that multiply.
    pub units: Units,
    /// Queries per block.
    pub queries: usize,
    /// Keys per tile.
    pub keys: usize,
    /// The number of parts into which the keys are split.
    pub splits: usize,
    /// The predicted seconds.
    pub seconds: f64,
}

impl AttentionWay {
    /// Returns the schedule's name: the family, and its choices after a comma.
    pub fn name(&self) -> String {
        let AttentionWay { units, queries, keys, splits, .. } = self;
        let family = match units {
            Units::Threads => "threads".to_string(),
            Units::Warps(resident) => format!("warps of {queries} queries × {resident}"),
            Units::Warpgroups(Groups { count, resident, .. }) => format!("{count} warpgroups × {resident}"),
        };
        format!("attention by {family}, {keys} keys in {splits}")
    }
}
