//! Products with packed weights: in each format of GGUF files, and with zero points as ONNX has them, the weights stay packed at their own width
//! on the CPU, are decoded bit for bit, and the product is that of the decoded ones.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Dim, Graph, Tensor, Type,
    engine::{
        cpu::Isa,
        ir::{Shape, interp, lang::Source, text},
        models::gguf::format::FORMATS,
    },
};

const ROWS: usize = 264;
const COLUMNS: usize = 1024;
/// The most tokens of a run.
const TOKENS: usize = 9;

/// Numbers that look random, the same in each run.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    fn below(&mut self, most: u8) -> f64 {
        f64::from(self.next() % most)
    }

    /// Fills a parameter: any codes, and finite numbers.
    fn tensor(&mut self, name: &str, dtype: DType, dims: &[usize]) -> Tensor {
        let count = dims.iter().product();
        let numbers: Vec<f64> = match dtype {
            // The exponents of MXFP4.
            DType::U8 if name == "e" => (0..count).map(|_| 118.0 + self.below(12)).collect(),
            DType::U8 => (0..count).map(|_| f64::from(self.next())).collect(),
            DType::I8 => (0..count).map(|_| f64::from(self.next().cast_signed())).collect(),
            // Not all of the significand's bits are 0.
            _ => (0..count).map(|_| (self.below(200) - 100.0) / 192.0).collect(),
        };
        Tensor::from_f64(dtype, dims, numbers)
    }
}

/// Weights in a format.
struct Packed {
    name: String,
    /// Decodes a matrix, whose fields are its inputs.
    decoder: Graph,
    /// Bytes that are kept of a weight, at most.
    bytes: f64,
}

impl Packed {
    /// Weights in blocks of 32 as `MatMulNBits` has them: (code − zero)·scale, with or without zero points that are packed.
    fn with_zeros(bits: usize, zeros: bool) -> Packed {
        let (of_byte, mask, middle) = (8 / bits, (1 << bits) - 1, 1 << (bits - 1));
        let shifts: String = (0..of_byte).map(|n| format!(" {}", n * bits)).collect();
        let (blocks, bytes) = (COLUMNS / 32, 32 / of_byte);
        let unpack = |x: &str, dims: &str| {
            format!(
                "(bit-and (shift-right (reshape {x} :shape [{dims} 1]) (const u8[{of_byte}] {{{shifts} }})) (const u8[] {{ {mask} }}))"
            )
        };
        let codes = unpack("q", &format!("{ROWS} {blocks} {bytes}"));
        let of_blocks = unpack("z", &format!("{ROWS} {}", blocks / of_byte));
        let (input, zero) = match zeros {
            true => (
                format!("(input z u8[{ROWS} {}])", blocks / of_byte),
                format!("(cast (reshape {of_blocks} :shape [{ROWS} {blocks} 1]) :to f32)"),
            ),
            false => (String::new(), format!("(const f32[] {{ {middle}.0 }})")),
        };
        let text = format!(
            "(graph \"u{bits}\" (input q u8[{ROWS} {blocks} {bytes}]) (input d f32[{ROWS} {blocks}]) {input}
               (let code (reshape {codes} :shape [{ROWS} {blocks} 32]))
               (let scale (reshape d :shape [{ROWS} {blocks} 1]))
               (output w (reshape (mul (sub (cast code :to f32) {zero}) scale) :shape [{ROWS} {COLUMNS}])))"
        );
        let name = format!("{bits} bits, zero points: {zeros}");
        let decoder = text::parse(&Source::new(name.as_str(), text)).unwrap_or_else(|e| panic!("{e}"));
        Packed { name, decoder, bytes: bits as f64 / 8.0 + f64::from(4 + u8::from(zeros)) / 32.0 }
    }

    fn all() -> Vec<Packed> {
        let of_gguf = FORMATS.iter().filter(|format| format.is_decoded()).map(|format| {
            let decoder = format.of_matrix([ROWS, COLUMNS]).unwrap();
            // Scales of fewer bits than a byte are kept as bytes, and powers of two as `f32`.
            let bytes = format.bytes as f64 / format.block as f64 + 0.1;
            Packed { name: format.name.into(), decoder, bytes }
        });
        let of_onnx = [2, 4, 8].into_iter().flat_map(|bits| [false, true].map(|zeros| Packed::with_zeros(bits, zeros)));
        of_gguf.chain(of_onnx).collect()
    }

    fn fields(&self) -> Vec<(&str, Type)> {
        self.decoder.named("input").map(|(name, id)| (name, self.decoder.ty(id).clone())).collect()
    }

    /// x wᵀ, with a parameter for each field of w.
    fn product(&self, tokens: Dim) -> Graph {
        let mut g = Graph::new(&self.name);
        let shape: Shape = [tokens, COLUMNS.into()].into_iter().collect();
        let x = g.input("tokens", Type::Tensor(DType::F32, shape)).unwrap();
        let fields: Vec<_> = self.fields().into_iter().map(|(name, ty)| g.param(name, ty).unwrap()).collect();
        let w = g.inline(&self.decoder, &fields).unwrap()[0];
        let w = g.transpose(w, &[1, 0]).unwrap();
        let y = g.matmul(x, w).unwrap();
        g.output("y", y).unwrap();
        g
    }

    fn is_right(&self, isa: Isa) {
        let name = format!("{} {isa:?}", self.name);
        let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, isa, ..CpuOptions::default() })).unwrap();
        let mut bytes = Bytes(self.name.len() as u64);
        let tensor = |(name, ty): (&str, Type), bytes: &mut Bytes| {
            (name.to_string(), bytes.tensor(name, ty.dtype().unwrap(), &ty.dims().unwrap()))
        };
        let weights: Vec<_> = self.fields().into_iter().map(|field| tensor(field, &mut bytes)).collect();
        let weight = |name: &str| weights.iter().find(|(of, _)| of == name).map(|(_, tensor)| tensor.clone());
        // Reads a prompt in runs of many tokens, and generates one token at a time.
        let varying = self.product(Dim::between("T", 1, TOKENS as i64));
        let planned = compiler.plan(&varying).unwrap();
        assert_eq!(planned.lowered.program.run.len(), 1, "{name}");
        let mut session = compiler.compile(&varying).unwrap();
        session.load_named(weight).unwrap();
        // Panels have whole vectors of columns.
        let most = (self.bytes * (ROWS.next_multiple_of(32) * COLUMNS) as f64) as usize + 128 * ROWS.div_ceil(8);
        let kept = session.loaded().unwrap().bytes();
        assert!(kept <= most, "{name}: {kept} bytes are kept, {most} at most");
        // In each format, numbers times scales are exact, so that weights are rounded once.
        let decoded = interp::interpret::<f64>(&self.decoder, &weight).unwrap()[0].to_tensor().to_f64();
        for tokens in [1, TOKENS] {
            session.set_length("T", tokens).unwrap();
            // A token that is 1 at one place and 0 elsewhere gives the weights of that place, as they are decoded.
            for first in (0..COLUMNS).step_by(COLUMNS / 7) {
                let place = |token: usize| (first + 331 * token) % COLUMNS;
                let mut x = vec![0.0; tokens * COLUMNS];
                (0..tokens).for_each(|token| x[token * COLUMNS + place(token)] = 1.0);
                let x = Tensor::from_f64(DType::F32, &[tokens, COLUMNS], x);
                let got = session.run_named(|_| Some(x.clone())).unwrap()[0].to_f64();
                for (n, got) in got.iter().enumerate() {
                    let (token, row) = (n / ROWS, n % ROWS);
                    let want = f64::from(decoded[row * COLUMNS + place(token)] as f32);
                    assert!(*got == want, "{name}, {tokens} tokens: row {row} at {}: {got}, not {want}", place(token));
                }
            }
            let x = bytes.tensor("tokens", DType::F32, &[tokens, COLUMNS]);
            let given = |name: &str| if name == "tokens" { Some(x.clone()) } else { weight(name) };
            let got = session.run_named(given).unwrap()[0].to_f64();
            let want = interp::interpret::<f64>(&self.product(tokens.into()), &given).unwrap();
            let want = want[0].to_tensor().to_f64();
            let scale = want.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-5 * scale, "{name}, {tokens} tokens: {got} and {want}");
            }
        }
    }
}

#[test]
fn weights_of_every_format_stay_packed() {
    for packed in Packed::all() {
        // Without vectors, plans decode small matrices before.
        for isa in [Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            packed.is_right(isa);
        }
    }
}
