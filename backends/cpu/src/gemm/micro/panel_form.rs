//! The layout of coded panels: w = code·scale + offset or (code + offset)·scale, with a scale and an offset for each column of a block of terms.

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
    /// Codes are unsigned integers of 2 bits.
    Bits2,
    /// Codes are unsigned integers of 3 bits.
    Bits3,
    /// Codes are unsigned integers of 5 bits.
    Bits5,
    /// Codes are unsigned integers of 6 bits.
    Bits6,
}

impl CodeKind {
    /// Returns the bits of the planes that codes are cut into, the lowest first. A byte of a plane has bits of a column's terms that follow
    /// each other, the first one's lowest.
    pub fn planes(self) -> &'static [usize] {
        match self {
            CodeKind::Nibbles => &[4],
            CodeKind::Signed | CodeKind::Unsigned => &[8],
            CodeKind::Bits2 => &[2],
            CodeKind::Bits3 => &[2, 1],
            CodeKind::Bits5 => &[4, 1],
            CodeKind::Bits6 => &[4, 2],
        }
    }

    /// Returns the bits of a code.
    pub fn bits(self) -> usize {
        self.planes().iter().sum()
    }

    /// Returns the terms of a group, for which each plane has whole bytes.
    pub fn terms(self) -> usize {
        self.planes().iter().map(|bits| 8 / bits).max().unwrap_or(1)
    }

    /// Returns the rows of bytes that a group takes.
    pub fn rows(self) -> usize {
        self.terms() * self.bits() / 8
    }
}

/// How a scale or an offset is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// As an `f32`.
    F32,
    /// As a 16-bit float.
    F16,
    /// As an integer of 8 bits.
    I8,
    /// As an integer of 8 bits, which a 16-bit float of several blocks is multiplied with.
    Levels,
}

impl NumberForm {
    /// Returns its bytes in a block.
    pub fn bytes(self) -> usize {
        match self {
            NumberForm::F32 => 4,
            NumberForm::F16 => 2,
            NumberForm::I8 | NumberForm::Levels => 1,
        }
    }

    /// Returns its bytes before a run of blocks.
    pub fn shared_bytes(self) -> usize {
        if self == NumberForm::Levels { 2 } else { 0 }
    }

    /// Returns the most bits of its significand.
    pub fn bits(self) -> usize {
        match self {
            NumberForm::F32 => 24,
            NumberForm::F16 => 11,
            NumberForm::I8 => 8,
            NumberForm::Levels => 19,
        }
    }
}

/// What becomes of a number that a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// It is multiplied with the scale.
    Scaled,
    /// The product with the scale needs no rounding, and the offset is added.
    Fused,
    /// The product with the scale is rounded, and the offset is added.
    Added,
    /// The offset is added, and the sum is multiplied with the scale.
    Centred,
}

/// The format of weights: the layout of a panel without the width of the machine's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFormat {
    /// The kind of codes.
    pub codes: CodeKind,
    /// Terms of a block, whole groups.
    pub block: usize,
    /// What becomes of codes.
    pub decoding: Decoding,
    /// How scales are kept.
    pub scale: NumberForm,
    /// How offsets are kept, if there are any.
    pub offset: Option<NumberForm>,
    /// The code that stands for 0, where no offset is kept: the offset is that of it.
    pub zero: u8,
    /// Blocks of a run, which share the floats of [`NumberForm::Levels`].
    pub run: usize,
}

impl CodeFormat {
    /// Returns whether there is a table.
    pub fn has_table(&self) -> bool {
        self.codes == CodeKind::Nibbles
    }

    /// Returns the bytes of the scales and offsets of a block of `width` columns.
    pub fn numbers_bytes(&self, width: usize) -> usize {
        width * (self.scale.bytes() + self.offset.map_or(0, NumberForm::bytes))
    }

    /// Returns the bytes of the numbers before a run.
    pub fn shared_bytes(&self, width: usize) -> usize {
        width * (self.scale.shared_bytes() + self.offset.map_or(0, NumberForm::shared_bytes))
    }

    /// Returns the bytes of a block of `width` columns.
    pub fn block_bytes(&self, width: usize) -> usize {
        self.numbers_bytes(width) + self.block * width * self.codes.bits() / 8
    }

    /// Returns the bytes of a run of `width` columns.
    pub fn run_bytes(&self, width: usize) -> usize {
        self.shared_bytes(width) + self.run * self.block_bytes(width)
    }

    /// Returns the bytes of a weight, with its share of the numbers of its block.
    pub fn weight_bytes(&self) -> f64 {
        self.run_bytes(1) as f64 / (self.run * self.block) as f64
    }
}

/// The layout of a panel: a table if there is one, then for each run the numbers that its blocks share, and block after block the scales, the
/// offsets and the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelForm {
    /// Columns.
    pub width: usize,
    /// Number of blocks, whole runs.
    pub blocks: usize,
    /// The format of weights.
    pub format: CodeFormat,
}

impl PanelForm {
    /// Returns the bytes before the first run.
    pub fn header(&self) -> usize {
        if self.format.has_table() { size_of::<CodeTable>() } else { 0 }
    }

    /// Returns the bytes before the numbers that the blocks of a run share.
    pub fn run(&self, number: usize) -> usize {
        self.header() + number * self.format.run_bytes(self.width)
    }

    /// Returns the bytes before the scales of a block.
    pub fn block(&self, number: usize) -> usize {
        let CodeFormat { run, .. } = self.format;
        let before = self.format.shared_bytes(self.width) + number % run * self.format.block_bytes(self.width);
        self.run(number / run) + before
    }

    /// Returns the bytes from the scales of a block to its codes.
    pub fn numbers(&self) -> usize {
        self.format.numbers_bytes(self.width)
    }

    /// Returns the bytes of a panel: whole lines of a cache, so that tables are aligned.
    pub fn bytes(&self) -> usize {
        self.run(self.blocks / self.format.run).next_multiple_of(align_of::<CodeTable>())
    }
}
