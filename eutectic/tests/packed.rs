//! Products with packed weights. In each format of GGUF files, weights stay packed on the CPU, and the product equals
//! the product with decoded weights.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Dim, Graph, Tensor, Type,
    engine::{
        ir::{Shape, interp},
        models::gguf::format::{FORMATS, Format},
    },
};

const ROWS: usize = 768;
const COLUMNS: usize = 1024;
/// The largest number of tokens in a run.
const TOKENS: usize = 20;

/// A generator of pseudorandom numbers.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    fn below(&mut self, most: u8) -> f64 {
        f64::from(self.next() % most)
    }

    /// Returns a parameter with random codes and finite numbers.
    fn tensor(&mut self, name: &str, dtype: DType, dims: &[usize]) -> Tensor {
        let count = dims.iter().product();
        let numbers: Vec<f64> = match dtype {
            // The exponents of MXFP4.
            DType::U8 if name == "e" => (0..count).map(|_| 118.0 + self.below(12)).collect(),
            DType::U8 => (0..count).map(|_| f64::from(self.next())).collect(),
            DType::I8 => (0..count).map(|_| f64::from(self.next().cast_signed())).collect(),
            _ => (0..count).map(|_| (self.below(200) - 100.0) / 256.0).collect(),
        };
        Tensor::from_f64(dtype, dims, numbers)
    }
}

/// Returns x wᵀ, with a parameter for each field of w.
fn product(format: &Format, tokens: Dim) -> Graph {
    let mut g = Graph::new(format.name);
    let shape: Shape = [tokens, COLUMNS.into()].into_iter().collect();
    let x = g.input("tokens", Type::Tensor(DType::F32, shape)).unwrap();
    let fields: Vec<_> = format
        .fields()
        .iter()
        .map(|field| {
            let dims = [&[ROWS, COLUMNS / format.block], &field.dims[..]].concat();
            g.param(&field.name, Type::tensor(field.dtype, &dims)).unwrap()
        })
        .collect();
    let w = g.inline(&format.of_matrix([ROWS, COLUMNS]).unwrap(), &fields).unwrap()[0];
    let w = g.transpose(w, &[1, 0]).unwrap();
    let y = g.matmul(x, w).unwrap();
    g.output("y", y).unwrap();
    g
}

#[test]
fn weights_of_every_format_stay_packed() {
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).unwrap();
    for format in FORMATS.iter().filter(|format| format.is_decoded()) {
        let mut bytes = Bytes(u64::from(format.id));
        let fields = |graph: &Graph, bytes: &mut Bytes| -> Vec<(String, Tensor)> {
            let params = graph.named("param").map(|(name, id)| (name.to_string(), graph.ty(id).clone()));
            params
                .map(|(name, ty)| {
                    let tensor = bytes.tensor(&name, ty.dtype().unwrap(), &ty.dims().unwrap());
                    (name, tensor)
                })
                .collect()
        };
        // One run reads a prompt of many tokens, the others one token each.
        let varying = product(format, Dim::between("T", 1, TOKENS as i64));
        let planned = compiler.plan(&varying).unwrap();
        assert_eq!(planned.lowered.program.run.len(), 1, "{}", format.name);
        let weights = fields(&varying, &mut bytes);
        let mut session = compiler.compile(&varying).unwrap();
        session.load_named(|name| weights.iter().find(|(of, _)| of == name).map(|(_, tensor)| tensor.clone())).unwrap();
        // Codes are widened to 4 or 8 bits, and scales of scales to `f32`. Both together add at most 0.7 bytes per
        // weight.
        let most = ((format.bytes as f64 / format.block as f64 + 0.7) * (ROWS * COLUMNS) as f64) as usize;
        let kept = session.loaded().unwrap().bytes();
        assert!(kept <= most, "{}: {kept} bytes are kept, {most} at most", format.name);
        for tokens in [1, 3, TOKENS] {
            let x = bytes.tensor("tokens", DType::F32, &[tokens, COLUMNS]);
            session.set_length("T", tokens).unwrap();
            let given = |name: &str| match name {
                "tokens" => Some(x.clone()),
                name => weights.iter().find(|(of, _)| of == name).map(|(_, tensor)| tensor.clone()),
            };
            let got = session.run_named(given).unwrap()[0].to_f64();
            let want = interp::interpret::<f64>(&product(format, tokens.into()), &given).unwrap();
            let want = want[0].to_tensor().to_f64();
            let scale = want.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-5 * scale, "{}, {tokens} tokens: {got} and {want}", format.name);
            }
        }
    }
}
