//! Elements of fewer than 8 bits, which files keep several to a byte. Programs have no such element type: their elements are i8 or u8, taken out
//! of bytes by ops, so that a backend keeps the bytes.

use eutectic_ir::{DType, NodeId, Origin, Tensor};

use super::{
    super::{error::NodeError, stored::Packed},
    Importer, shape,
};

impl Importer<'_> {
    /// Takes the elements out of bytes: u8[.., n] becomes u8 or i8[.., n · 8 / bits].
    pub fn unpacked(&mut self, bytes: NodeId, packed: Packed, origin: &Origin) -> Result<NodeId, NodeError> {
        if packed.bits == 8 && !packed.signed {
            return Ok(bytes);
        }
        let dims = self.graph.ty(bytes).dims().ok_or("bytes of unknown extents")?;
        let (&last, outer) = dims.split_last().ok_or("bytes without an axis")?;
        let number = |n: i64, dtype: DType| Tensor::from_i64(dtype, &[], [n]);
        let to = |dims: Vec<usize>| [("shape", shape(&dims))];
        let column = self.apply("reshape", &[bytes], &to([outer, &[last, 1]].concat()), origin)?;
        let shifts = (0..packed.in_byte() as i64).map(|at| at * i64::from(packed.bits));
        let shifts = self.constant(Tensor::from_i64(DType::U8, &[packed.in_byte()], shifts))?;
        let shifted = self.apply("shift-right", &[column, shifts], &[], origin)?;
        let mask = self.constant(number((1 << packed.bits) - 1, DType::U8))?;
        let codes = self.apply("bit-and", &[shifted, mask], &[], origin)?;
        let codes = self.apply("reshape", &[codes], &to([outer, &[last * packed.in_byte()]].concat()), origin)?;
        if !packed.signed {
            return Ok(codes);
        }
        // The highest bit counts negatively: (code xor half) − half.
        let half = 1 << (packed.bits - 1);
        let flip = self.constant(number(half, DType::U8))?;
        let flipped = self.apply("bit-xor", &[codes, flip], &[], origin)?;
        let wide = self.apply("cast", &[flipped], &[("to", DType::I8.into())], origin)?;
        let half = self.constant(number(half, DType::I8))?;
        self.apply("sub", &[wide, half], &[], origin)
    }
}
