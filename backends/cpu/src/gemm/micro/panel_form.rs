//! The layout of coded panels: w = table[code]·scale + offset, with a scale and an offset for each column of a block of terms.

use crate::simd::codes::CodeTable;

/// Vectors side by side in a panel.
pub const PANEL: usize = 2;

/// A kind of codes, which says how they become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Codes of 4 bits select from a table.
    Nibbles,
    /// Codes are signed integers of 8 bits.
    Signed,
    /// Codes are unsigned integers of 8 bits.
    Unsigned,
}

/// The format of weights: the layout of a panel without the width of the machine's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFormat {
    /// The kind of codes.
    pub codes: CodeKind,
    /// Terms of a block, an even number.
    pub block: usize,
    /// Whether scales and offsets are 16-bit floats; else they are `f32`.
    pub half: bool,
    /// Whether there are offsets.
    pub offset: bool,
}

impl CodeFormat {
    /// Returns whether codes have 4 bits, so that there is a table.
    pub fn nibbles(&self) -> bool {
        self.codes == CodeKind::Nibbles
    }

    /// Returns the bytes of a scale or an offset.
    pub fn number_bytes(&self) -> usize {
        if self.half { 2 } else { size_of::<f32>() }
    }

    /// Returns the bytes of the scales and offsets of a block of `width` columns.
    pub fn numbers_bytes(&self, width: usize) -> usize {
        width * self.number_bytes() * (1 + usize::from(self.offset))
    }

    /// Returns the bytes of a block of `width` columns.
    pub fn block_bytes(&self, width: usize) -> usize {
        self.numbers_bytes(width) + self.block * width / (1 + usize::from(self.nibbles()))
    }

    /// Returns the bytes of a weight, with its share of the numbers of its block.
    pub fn weight_bytes(&self) -> f64 {
        // Blocks of two columns have whole bytes.
        self.block_bytes(2) as f64 / (2 * self.block) as f64
    }
}

/// The layout of a panel: a table if there is one, then block after block the scales, the offsets and the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelForm {
    /// Columns.
    pub width: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// The format of weights.
    pub format: CodeFormat,
}

impl PanelForm {
    /// Returns the bytes before the first block.
    pub fn header(&self) -> usize {
        if self.format.nibbles() { size_of::<CodeTable>() } else { 0 }
    }

    /// Returns the bytes before the scales of a block.
    pub fn block(&self, number: usize) -> usize {
        self.header() + number * self.format.block_bytes(self.width)
    }

    /// Returns the bytes from the scales of a block to its codes.
    pub fn numbers(&self) -> usize {
        self.format.numbers_bytes(self.width)
    }

    /// Returns the bytes of a panel: whole lines of a cache, so that tables are aligned.
    pub fn bytes(&self) -> usize {
        self.block(self.blocks).next_multiple_of(align_of::<CodeTable>())
    }
}
