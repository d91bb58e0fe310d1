//! The packed formats of tensors in GGUF files, one row each. A graph in text form decodes a format.
//!
//! The inputs of the graph are the fields of a block, in their byte order, for `R` rows of `B` blocks. Its output is
//! the decoded matrix. Programs contain this graph, and kernels read the fields. So no other code depends on the
//! format.

use std::sync::OnceLock;

use eutectic_ir::{DType, Dim, Graph, Type, lang::Source, text};

/// A format of tensors.
#[derive(Debug)]
pub struct Format {
    /// The number of the type in GGUF files.
    pub id: u32,
    /// The name of the type in ggml.
    pub name: &'static str,
    /// Elements of a block. A row of a matrix consists of whole blocks.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// The text of the graph that decodes the format. `None` if the format is not supported.
    text: Option<&'static str>,
    graph: OnceLock<Graph>,
}

/// A field of the blocks of a format.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name of the graph's input.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The extents of the field in one block; empty if the field is one element.
    pub dims: Vec<usize>,
    /// The offset of the field in the block, in bytes.
    pub at: usize,
}

impl Field {
    /// Returns the number of bytes that the field takes in a block.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.size()
    }
}

impl Format {
    const fn new(id: u32, name: &'static str, [block, bytes]: [usize; 2], text: Option<&'static str>) -> Format {
        Format { id, name, block, bytes, text, graph: OnceLock::new() }
    }

    /// Returns whether the format can be decoded.
    pub fn is_decoded(&self) -> bool {
        self.text.is_some()
    }

    /// Returns the graph that decodes `R` rows of `B` blocks, or `None` if the format cannot be decoded.
    pub fn graph(&self) -> Option<&Graph> {
        let text = self.text?;
        let parsed = || text::parse(&Source::new(format!("{}.graph", self.name), text));
        Some(self.graph.get_or_init(|| parsed().unwrap_or_else(|e| panic!("an embedded graph does not parse: {e}"))))
    }

    /// Returns the graph that decodes a matrix with `rows` and `columns`. Its inputs are in the order of
    /// [`Format::fields`]. Returns `None` if the format cannot be decoded.
    pub fn of_matrix(&self, [rows, columns]: [usize; 2]) -> Option<Graph> {
        let dims = [("R", rows), ("B", columns / self.block)];
        let dims = dims.map(|(name, extent)| (name.to_string(), Dim::from(extent))).into();
        Some(self.graph()?.bind_dims(&dims).expect("a format decodes any number of rows and blocks"))
    }

    /// Returns the fields of a block. The list is empty if the format cannot be decoded.
    pub fn fields(&self) -> Vec<Field> {
        let mut at = 0;
        let inputs = self.graph().into_iter().flat_map(|graph| graph.named("input").map(move |input| (graph, input)));
        let field = |(graph, (name, id)): (&Graph, (&str, _))| {
            let Type::Tensor(dtype, shape) = graph.ty(id) else { return None };
            let dims = shape.iter().skip(2).filter_map(|dim| usize::try_from(dim.known()?).ok()).collect();
            let field = Field { name: name.into(), dtype: *dtype, dims, at };
            at += field.bytes();
            Some(field)
        };
        inputs.filter_map(field).collect()
    }
}

/// The tensor formats of ggml, with their numbers in GGUF files.
pub static FORMATS: [Format; 32] = [
    Format::new(0, "F32", [1, 4], Some(include_str!("formats/f32.graph"))),
    Format::new(1, "F16", [1, 2], Some(include_str!("formats/f16.graph"))),
    Format::new(2, "Q4_0", [32, 18], Some(include_str!("formats/q4_0.graph"))),
    Format::new(3, "Q4_1", [32, 20], Some(include_str!("formats/q4_1.graph"))),
    Format::new(6, "Q5_0", [32, 22], Some(include_str!("formats/q5_0.graph"))),
    Format::new(7, "Q5_1", [32, 24], Some(include_str!("formats/q5_1.graph"))),
    Format::new(8, "Q8_0", [32, 34], Some(include_str!("formats/q8_0.graph"))),
    Format::new(9, "Q8_1", [32, 36], None),
    Format::new(10, "Q2_K", [256, 84], Some(include_str!("formats/q2_k.graph"))),
    Format::new(11, "Q3_K", [256, 110], Some(include_str!("formats/q3_k.graph"))),
    Format::new(12, "Q4_K", [256, 144], Some(include_str!("formats/q4_k.graph"))),
    Format::new(13, "Q5_K", [256, 176], Some(include_str!("formats/q5_k.graph"))),
    Format::new(14, "Q6_K", [256, 210], Some(include_str!("formats/q6_k.graph"))),
    Format::new(15, "Q8_K", [256, 292], None),
    Format::new(16, "IQ2_XXS", [256, 66], None),
    Format::new(17, "IQ2_XS", [256, 74], None),
    Format::new(18, "IQ3_XXS", [256, 98], None),
    Format::new(19, "IQ1_S", [256, 50], None),
    Format::new(20, "IQ4_NL", [32, 18], Some(include_str!("formats/iq4_nl.graph"))),
    Format::new(21, "IQ3_S", [256, 110], None),
    Format::new(22, "IQ2_S", [256, 82], None),
    Format::new(23, "IQ4_XS", [256, 136], Some(include_str!("formats/iq4_xs.graph"))),
    Format::new(24, "I8", [1, 1], None),
    Format::new(25, "I16", [1, 2], None),
    Format::new(26, "I32", [1, 4], None),
    Format::new(27, "I64", [1, 8], None),
    Format::new(28, "F64", [1, 8], None),
    Format::new(29, "IQ1_M", [256, 56], None),
    Format::new(30, "BF16", [1, 2], Some(include_str!("formats/bf16.graph"))),
    Format::new(34, "TQ1_0", [256, 54], None),
    Format::new(35, "TQ2_0", [256, 66], None),
    Format::new(39, "MXFP4", [32, 17], Some(include_str!("formats/mxfp4.graph"))),
];

/// Returns the format with this number in GGUF files.
pub(super) fn named(id: u32) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.id == id)
}

/// Returns the names of all formats that can be decoded.
pub(super) fn names() -> String {
    let names = FORMATS.iter().filter(|format| format.is_decoded()).map(|format| format.name);
    names.collect::<Vec<_>>().join(", ")
}
