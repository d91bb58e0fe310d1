//! Printed kernels and how they are launched.

/// A printed kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Its text.
    pub source: String,
    /// Blocks along each axis of the grid; none where there is nothing to do.
    pub grid: [usize; 3],
    /// Threads of a block.
    pub block: usize,
    /// Bytes of shared memory whose size is not in the text.
    pub shared: usize,
    /// Bytes of memory that it needs for itself while it runs.
    pub workspace: usize,
}

impl Launch {
    /// Without memory of its own.
    pub fn new(source: String, grid: [usize; 3], block: usize) -> Launch {
        Launch { source, grid, block, shared: 0, workspace: 0 }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}
