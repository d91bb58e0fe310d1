//! The layout of coded panels: w = table[code]·scale + offset, with a scale and an offset for each column of a block of terms.

use crate::simd::{
    Isa,
    codes::{CodeTable, WORD},
};

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

/// The order of the codes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrder {
    /// A byte of each column after the other: a code of 8 bits, or the codes of 4 bits of two terms, the first one in the lower half.
    Pairs,
    /// A word of 32 bits of each column after the other: the codes of [`WORD`] terms, and where codes have 4 bits, those of as many more in the
    /// upper halves of its bytes. Codes of 8 bits are signed: unsigned ones are less by [`CodeFormat::zero`].
    Words,
}

/// Picoseconds in which a thread multiplies a row with 16 weights, of pairs and of words, by level and kind: those that were measured, on a
/// server core that reads 20 GB/s. Where there is none, codes are in pairs.
const PRICES: [(Isa, CodeKind, [f64; 2]); 1] = [(Isa::Avx512, CodeKind::Nibbles, [850.0, 1250.0])];

impl CodeOrder {
    /// Returns the cheaper order of codes of a kind at a level.
    fn of(isa: Isa, kind: CodeKind) -> CodeOrder {
        let price = PRICES.iter().find(|(of, codes, _)| (*of, *codes) == (isa, kind));
        if price.is_some_and(|(.., [pairs, words])| words < pairs) { CodeOrder::Words } else { CodeOrder::Pairs }
    }
}

/// The format of weights: the layout of a panel without the width of the machine's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFormat {
    /// The kind of codes.
    pub codes: CodeKind,
    /// Their order.
    pub order: CodeOrder,
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

    /// Returns the format with the order that is the cheapest at a level, of those that the blocks allow.
    pub fn ordered(self, isa: Isa) -> CodeFormat {
        let order = CodeOrder::of(isa, self.codes);
        if self.block.is_multiple_of(self.word()) { CodeFormat { order, ..self } } else { self }
    }

    /// Returns the format for products with integers; `None` if blocks are no whole words.
    pub fn in_words(self) -> Option<CodeFormat> {
        self.block.is_multiple_of(self.word()).then_some(CodeFormat { order: CodeOrder::Words, ..self })
    }

    /// Returns the terms of a word, if the codes are words.
    pub fn word(&self) -> usize {
        if self.nibbles() { 2 * WORD } else { WORD }
    }

    /// Returns the number that bytes of words are less by than the codes that they stand for.
    pub fn zero(&self) -> i32 {
        if self.codes == CodeKind::Unsigned { 128 } else { 0 }
    }

    /// Returns the byte of a code among those of a block of `width` columns, and the bit of that byte at which the code begins.
    pub fn place(&self, term: usize, column: usize, width: usize) -> (usize, u32) {
        match (self.order, self.nibbles()) {
            (CodeOrder::Pairs, false) => (term * width + column, 0),
            (CodeOrder::Pairs, true) => (term / 2 * width + column, term as u32 % 2 * 4),
            (CodeOrder::Words, _) => {
                let word = self.word();
                let bit = (term % word / WORD) as u32 * 4;
                ((term / word * width + column) * WORD + term % WORD, bit)
            }
        }
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
