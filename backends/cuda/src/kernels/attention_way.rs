//! A way to compute attention.

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Units {
    /// Multiplications and additions of threads.
    Threads,
    /// Matrix units, fed by each warp for itself, in so many blocks at once on a processor.
    Warps(usize),
    /// Those of warpgroups, which read shared memory.
    Warpgroups(Groups),
}

/// How warpgroups share a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Groups {
    /// How many multiply; each has 64 queries. One more brings tiles.
    pub count: usize,
    /// Blocks that a processor runs at once.
    pub resident: usize,
    /// Tiles of keys, and of values, that are on their way at once.
    pub stages: usize,
    /// Registers of a thread that brings tiles, and of one that multiplies.
    pub registers: [usize; 2],
}

/// A way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionWay {
    /// What multiplies.
    pub units: Units,
    /// Queries of a block.
    pub queries: usize,
    /// Keys of a tile.
    pub keys: usize,
    /// Parts of the keys.
    pub splits: usize,
    /// What it takes.
    pub seconds: f64,
}

impl AttentionWay {
    /// Its name: the family, and after a comma what it chooses.
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
