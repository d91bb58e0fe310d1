//! The formats of elements in GGUF files: one row each.

mod blocks;

/// A format of elements.
#[derive(Debug)]
pub struct Format {
    /// Its number in files.
    pub id: u32,
    /// Its name, as ggml has it.
    pub name: &'static str,
    /// Elements of a block; rows have whole blocks.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// The decoder of a block to `f32`, if there is one.
    pub(super) decoder: Option<Decoder>,
}

/// Decodes a block.
pub(super) type Decoder = fn(&[u8], &mut [f32]);

impl Format {
    const fn new(id: u32, name: &'static str, [block, bytes]: [usize; 2], decoder: Option<Decoder>) -> Format {
        Format { id, name, block, bytes, decoder }
    }

    /// Says whether there is a decoder.
    pub fn is_decoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Decodes whole blocks.
    pub(super) fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        let Some(decoder) = self.decoder else { return };
        for (bytes, values) in bytes.chunks_exact(self.bytes).zip(values.chunks_exact_mut(self.block)) {
            decoder(bytes, values);
        }
    }
}

/// All formats of ggml, by their numbers in files.
pub const FORMATS: &[Format] = &[
    Format::new(0, "F32", [1, 4], Some(blocks::f32)),
    Format::new(1, "F16", [1, 2], Some(blocks::f16)),
    Format::new(2, "Q4_0", [32, 18], Some(blocks::q4_0)),
    Format::new(3, "Q4_1", [32, 20], Some(blocks::q4_1)),
    Format::new(6, "Q5_0", [32, 22], Some(blocks::q5_0)),
    Format::new(7, "Q5_1", [32, 24], Some(blocks::q5_1)),
    Format::new(8, "Q8_0", [32, 34], Some(blocks::q8_0)),
    Format::new(9, "Q8_1", [32, 36], None),
    Format::new(10, "Q2_K", [256, 84], Some(blocks::q2_k)),
    Format::new(11, "Q3_K", [256, 110], Some(blocks::q3_k)),
    Format::new(12, "Q4_K", [256, 144], Some(blocks::q4_k)),
    Format::new(13, "Q5_K", [256, 176], Some(blocks::q5_k)),
    Format::new(14, "Q6_K", [256, 210], Some(blocks::q6_k)),
    Format::new(15, "Q8_K", [256, 292], None),
    Format::new(16, "IQ2_XXS", [256, 66], None),
    Format::new(17, "IQ2_XS", [256, 74], None),
    Format::new(18, "IQ3_XXS", [256, 98], None),
    Format::new(19, "IQ1_S", [256, 50], None),
    Format::new(20, "IQ4_NL", [32, 18], Some(blocks::iq4_nl)),
    Format::new(21, "IQ3_S", [256, 110], None),
    Format::new(22, "IQ2_S", [256, 82], None),
    Format::new(23, "IQ4_XS", [256, 136], Some(blocks::iq4_xs)),
    Format::new(24, "I8", [1, 1], None),
    Format::new(25, "I16", [1, 2], None),
    Format::new(26, "I32", [1, 4], None),
    Format::new(27, "I64", [1, 8], None),
    Format::new(28, "F64", [1, 8], None),
    Format::new(29, "IQ1_M", [256, 56], None),
    Format::new(30, "BF16", [1, 2], Some(blocks::bf16)),
    Format::new(34, "TQ1_0", [256, 54], None),
    Format::new(35, "TQ2_0", [256, 66], None),
    Format::new(39, "MXFP4", [32, 17], Some(blocks::mxfp4)),
];

/// Returns the format of a number.
pub(super) fn named(id: u32) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.id == id)
}

/// Returns the names of all formats that can be decoded.
pub(super) fn names() -> String {
    let names = FORMATS.iter().filter(|format| format.is_decoded()).map(|format| format.name);
    names.collect::<Vec<_>>().join(", ")
}
