//! Products whose matrices integers choose at run time, as those of a token's experts. Packed matrices stay packed, and the results are those
//! of a plain loop over the decoded weights.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Graph, Tensor,
    engine::{
        backend::Place,
        ir::{lang::Source, text},
    },
};

fn compiler(threads: usize) -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads, ..CpuOptions::default() })).unwrap()
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Returns a number between −1 and 1 that a 16-bit float holds exactly.
    fn float(&mut self) -> f64 {
        (self.next() % 2048) as f64 / 1024.0 - 1.0
    }
}

/// A way to store weights.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// Codes of 4 bits with a scale for each 32 terms, and perhaps an offset.
    Nibbles { offset: bool },
    /// Integers of 8 bits with a scale.
    Bytes,
    /// 16-bit floats.
    Halves,
}

/// The sizes of a product: experts, chosen ones, columns and terms.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    experts: usize,
    used: usize,
    columns: usize,
    terms: usize,
}

/// Returns the graph and the parameters, with the decoded weights.
fn product(stored: Stored, sizes: Sizes) -> (Graph, Vec<(&'static str, Tensor)>, Vec<f64>) {
    let Sizes { experts, used, columns, terms } = sizes;
    let (rows, blocks) = (experts * columns, terms / 32);
    let mut random = Random(rows as u64);
    let mut floats = |count: usize| (0..count).map(|_| random.float()).collect::<Vec<f64>>();
    let [scales, offsets] = [floats(rows * blocks), floats(rows * blocks)];
    let halves = |values: &[f64]| Tensor::from_f64(DType::F16, &[rows, blocks], values.iter().copied());
    let (weight, params, weights) = match stored {
        Stored::Halves => {
            let weights = floats(rows * terms);
            let tensor = Tensor::from_f64(DType::F16, &[rows, terms], weights.iter().copied());
            (format!("(param w f16[{rows} {terms}]) (let decoded (cast w :to f32))"), vec![("w", tensor)], weights)
        }
        Stored::Bytes => {
            let codes: Vec<i64> = (0..rows * terms).map(|_| random.next() as i64 % 255 - 127).collect();
            let tensor = Tensor::from_i64(DType::I8, &[rows, blocks, 32], codes.iter().copied());
            let weights = codes.iter().enumerate().map(|(at, code)| scales[at / 32] * *code as f64).collect();
            let text = format!(
                "(param d f16[{rows} {blocks}]) (param q i8[{rows} {blocks} 32]) \
                 (let decoded (mul (reshape (cast d :to f32) :shape [{rows} {blocks} 1]) (cast q :to f32)))"
            );
            (text, vec![("d", halves(&scales)), ("q", tensor)], weights)
        }
        Stored::Nibbles { offset } => {
            let bytes: Vec<i64> = (0..rows * terms / 2).map(|_| random.next() as i64 % 256).collect();
            let tensor = Tensor::from_i64(DType::U8, &[rows, blocks, 16], bytes.iter().copied());
            let weight = |at: usize| {
                let (block, term) = (at / 32, at % 32);
                let code = bytes[block * 16 + term % 16] >> (term / 16 * 4) & 15;
                match offset {
                    true => scales[block] * code as f64 + offsets[block],
                    false => scales[block] * (code - 8) as f64,
                }
            };
            let scale = format!("(reshape (cast d :to f32) :shape [{rows} {blocks} 1 1])");
            let code = format!(
                "(cast (bit-and (shift-right (reshape q :shape [{rows} {blocks} 1 16]) (const u8[2 1] {{ 0 4 }})) (const u8[] {{ 15 }})) :to f32)"
            );
            let (more, decoded) = match offset {
                true => (
                    format!("(param m f16[{rows} {blocks}])"),
                    format!("(add (mul {scale} {code}) (reshape (cast m :to f32) :shape [{rows} {blocks} 1 1]))"),
                ),
                false => (String::new(), format!("(mul {scale} (sub {code} (const f32[] {{ 8 }})))")),
            };
            let text = format!(
                "(param d f16[{rows} {blocks}]) {more} (param q u8[{rows} {blocks} 16]) (let decoded {decoded})"
            );
            let mut params = vec![("d", halves(&scales))];
            params.extend(offset.then(|| ("m", halves(&offsets))));
            params.push(("q", tensor));
            (text, params, (0..rows * terms).map(weight).collect())
        }
    };
    let text = format!(
        "(graph experts (dim T :least 1 :most 40) (input x f32[T 1 1 {terms}]) (input ids i64[T {used}]) {weight} \
         (let all (gather (reshape decoded :shape [{experts} {columns} {terms}]) ids :axis 0)) \
         (output y (matmul x (transpose all :perm [0 1 3 2]))))"
    );
    (text::parse(&Source::new("experts.graph", text)).unwrap_or_else(|e| panic!("{e:?}")), params, weights)
}

/// Compares results for several numbers of rows with those of a loop.
fn agrees(stored: Stored, sizes: Sizes, threads: usize) {
    let Sizes { experts, used, columns, terms } = sizes;
    let (graph, params, weights) = product(stored, sizes);
    let mut session = compiler(threads).compile(&graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| params.iter().find(|(of, _)| *of == name).map(|(_, tensor)| tensor.clone())).unwrap();
    let mut random = Random(7);
    for rows in [1, 40, 3, 17] {
        let x: Vec<f64> = (0..rows * terms).map(|_| random.float()).collect();
        // Some experts have many rows, others none.
        let ids: Vec<i64> =
            (0..rows * used).map(|_| (random.next() % experts as u64).min(random.next() % 3) as i64).collect();
        let ids: Vec<i64> = ids.into_iter().map(|id| id.min(experts as i64 - 1)).collect();
        let inputs = [
            Tensor::from_f64(DType::F32, &[rows, 1, 1, terms], x.iter().copied()),
            Tensor::from_i64(DType::I64, &[rows, used], ids.iter().copied()),
        ];
        let y = session.run(&inputs).unwrap_or_else(|e| panic!("{e}")).remove(0);
        assert_eq!(y.dims(), [rows, used, 1, columns]);
        for (at, got) in y.to_f64().iter().enumerate() {
            let (chosen, column) = (at / columns, at % columns);
            let row = ids[chosen] as usize * columns + column;
            let products = (0..terms).map(|term| x[chosen / used * terms + term] * weights[row * terms + term]);
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + f64::abs(x)));
            let bound = 1e-6 * size;
            assert!((got - sum).abs() <= bound, "{stored:?}, {sizes:?}, {rows} rows, {at}: {got}, {sum}, {bound}");
        }
    }
}

const STORED: [Stored; 4] =
    [Stored::Nibbles { offset: false }, Stored::Nibbles { offset: true }, Stored::Bytes, Stored::Halves];

#[test]
fn chosen_products_are_those_of_the_decoded_weights() {
    for stored in STORED {
        for [experts, used, columns, terms] in [[6, 2, 96, 64], [1, 1, 33, 32], [5, 3, 1, 96], [9, 4, 130, 320]] {
            agrees(stored, Sizes { experts, used, columns, terms }, 2);
        }
    }
}

/// So large that planning avoids decoding before runs.
const LARGE: Sizes = Sizes { experts: 8, used: 2, columns: 1536, terms: 1024 };

#[test]
fn large_packed_experts_are_right_on_several_threads() {
    for stored in STORED {
        agrees(stored, LARGE, 3);
    }
}

#[test]
fn packed_experts_are_neither_decoded_before_runs_nor_copied_in_them() {
    for stored in STORED {
        let (graph, params, _) = product(stored, LARGE);
        let program = compiler(1).plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
        let loaded = program.buffers.iter().filter(|buffer| matches!(buffer.place, Place::Loaded(_)));
        let loaded: usize = loaded.map(|buffer| buffer.count * buffer.dtype.size()).sum();
        assert_eq!((loaded, program.arena_bytes, program.run.len()), (0, 0, 1), "{stored:?}: {}", params.len());
    }
}
