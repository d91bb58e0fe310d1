//! The layout of panels of codes. A weight is w = table[code]·scale + offset, with a scale and an offset for each
//! column of a block of terms.

use crate::simd::{
    Isa,
    codes::{CodeTable, WORD},
};

/// The number of vectors in a row of a panel.
pub const PANEL: usize = 2;

/// The kind of codes, which determines how they are decoded to numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Codes have 4 bits, and are indices of a table of numbers.
    Nibbles,
    /// Codes are signed integers of 8 bits.
    Signed,
    /// Codes are unsigned integers of 8 bits.
    Unsigned,
}

/// The order of the codes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrder {
    /// Row by row, one byte per column. A byte holds an 8-bit code, or the 4-bit codes of two terms, the first term in
    /// its lower half.
    Pairs,
    /// Row by row, one 32-bit word per column. The bytes of a word hold the codes of [`WORD`] terms. 4-bit codes are in
    /// the lower halves of bytes, and the upper halves hold the codes of the next [`WORD`] terms. 8-bit codes are
    /// stored as signed bytes, after [`CodeFormat::zero`] is subtracted.
    Words,
}

/// Measured picoseconds in which a thread multiplies a row with 16 weights, by instruction-set level and kind of codes:
/// in the order of pairs, and of words. The measurements are from a server core that reads 20 GB/s. Combinations that
/// are not listed use pairs.
const PRICES: [(Isa, CodeKind, [f64; 2]); 1] = [(Isa::Avx512, CodeKind::Nibbles, [850.0, 1250.0])];

impl CodeOrder {
    /// Returns the cheaper order of codes of a kind at an instruction-set level.
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
    /// The order of the codes of a block.
    pub order: CodeOrder,
    /// The number of terms of a block, which is even.
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

    /// Returns the format with the cheapest order of codes at an instruction-set level. A format whose blocks are no
    /// multiples of a word keeps its order.
    pub fn ordered(self, isa: Isa) -> CodeFormat {
        let order = CodeOrder::of(isa, self.codes);
        if self.block.is_multiple_of(self.word()) { CodeFormat { order, ..self } } else { self }
    }

    /// Returns the format with codes in words, as products with integers need it. Returns `None` if blocks are no
    /// multiples of a word.
    pub fn in_words(self) -> Option<CodeFormat> {
        self.block.is_multiple_of(self.word()).then_some(CodeFormat { order: CodeOrder::Words, ..self })
    }

    /// Returns the number of terms whose codes a 32-bit word holds.
    pub fn word(&self) -> usize {
        if self.nibbles() { 2 * WORD } else { WORD }
    }

    /// Returns the number that is subtracted from codes which are stored in words: 128 for unsigned 8-bit codes,
    /// otherwise 0.
    pub fn zero(&self) -> i32 {
        if self.codes == CodeKind::Unsigned { 128 } else { 0 }
    }

    /// Returns the position of a code in a block of `width` columns: the number of its byte, and the lowest of its bits
    /// in that byte.
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

    /// Returns the average bytes per weight, which include the scales and offsets.
    pub fn weight_bytes(&self) -> f64 {
        // A block of two columns always takes a whole number of bytes.
        self.block_bytes(2) as f64 / (2 * self.block) as f64
    }
}

/// The layout of a panel: the table of 4-bit codes, if any, and for each block its scales, its offsets and its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelForm {
    /// The number of columns.
    pub width: usize,
    /// The number of blocks of terms.
    pub blocks: usize,
    /// The format of weights.
    pub format: CodeFormat,
}

impl PanelForm {
    /// Returns the bytes before the first block.
    pub fn header(&self) -> usize {
        if self.format.nibbles() { size_of::<CodeTable>() } else { 0 }
    }

    /// Returns the byte offset of block `number`, which begins with its scales.
    pub fn block(&self, number: usize) -> usize {
        self.header() + number * self.format.block_bytes(self.width)
    }

    /// Returns the byte offset of the codes within a block, after its scales and offsets.
    pub fn numbers(&self) -> usize {
        self.format.numbers_bytes(self.width)
    }

    /// Returns the bytes of a panel. They are a multiple of a cache line, so that the table of the next panel is
    /// aligned.
    pub fn bytes(&self) -> usize {
        self.block(self.blocks).next_multiple_of(align_of::<CodeTable>())
    }
}
