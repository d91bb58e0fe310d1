//! Unpacks elements of fewer than 8 bits, which files store several per byte. Programs have no such element type. Ops
//! unpack them to `i8` or `u8`, and a backend can keep the packed bytes in memory.

use eutectic_ir::{DType, NodeId, Origin, Tensor};

use super::{
    super::{error::NodeError, stored::Packed},
    Importer, shape,
};

impl Importer<'_> {
    /// Unpacks elements from bytes: `u8[.., n]` becomes `u8` or `i8[.., n · 8 / bits]`.
    pub fn unpacked(&mut self, bytes: NodeId, packed: Packed, origin: &Origin) -> Result<NodeId, NodeError> {
        if packed.bits == 8 && !packed.signed {
            return Ok(bytes);
        }
        let dims = self.graph.ty(bytes).dims().ok_or("its packed bytes have a run-time extent")?;
        let (&last, outer) = dims.split_last().ok_or("its packed bytes have no axis")?;
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
        // Sign extension: (code xor half) − half, where half is the value of the sign bit.
        let half = 1 << (packed.bits - 1);
        let flip = self.constant(number(half, DType::U8))?;
        let flipped = self.apply("bit-xor", &[codes, flip], &[], origin)?;
        let wide = self.apply("cast", &[flipped], &[("to", DType::I8.into())], origin)?;
        let half = self.constant(number(half, DType::I8))?;
        self.apply("sub", &[wide, half], &[], origin)
    }
}
