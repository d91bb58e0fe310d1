//! Programs for tests and for measurements, with kernels of each family.

pub mod only;
pub mod sessions;

use eutectic::Graph;
use eutectic_ir::{lang::Source, text::parse};

/// A program's name and text.
pub type Case = (&'static str, &'static str);

/// Small cases: edges of tiles, all layouts of operands, biases, hidden tiles, long and short rows.
pub const SMALL: &[Case] = &[
    ("product f32", "(input x f32[70 33]) (param w f32[33 65]) (output y (matmul x w))"),
    (
        "product of transposed operands f32",
        "(input x f32[40 68]) (param w f32[64 40]) (output y (matmul (transpose x :perm [1 0]) (transpose w :perm [1 0])))",
    ),
    (
        "split product f32",
        "(input x f32[5 2048]) (param w f32[2048 72]) (param b f32[72]) (output y (linear x w b :act gelu-erf))",
    ),
    (
        "linear f16",
        "(input x f16[130 96]) (param w f16[96 136]) (param b f16[136]) (output y (linear x w b :act silu))",
    ),
    (
        "product of transposed operands bf16",
        "(input x bf16[64 72]) (param w bf16[80 64]) (output y (matmul (transpose x :perm [1 0]) (transpose w :perm [1 0])))",
    ),
    ("split product f16", "(input x f16[3 1024]) (param w f16[1024 40]) (output y (matmul x w))"),
    (
        "product of computed operands f16",
        "(input x f16[33 40]) (input z f16[33 40]) (param w f16[40 50]) (output y (matmul (mul (exp x) z) (neg w)))",
    ),
    ("batched product bf16", "(input x bf16[3 17 24]) (input z bf16[3 24 19]) (output y (matmul x z))"),
    ("product f64", "(input x f64[20 70]) (param w f64[70 30]) (output y (matmul x w))"),
    (
        "attention f32",
        "(input q f32[2 70 20]) (input k f32[2 133 20]) (input v f32[2 133 24]) (input c f32[70 133]) \
         (output y (attention q k v c :scale 0.2))",
    ),
    (
        "attention with softcap f16",
        "(input q f16[2 70 24]) (input k f16[2 133 24]) (input v f16[2 133 40]) (input c f16[2 1 133]) \
         (output y (attention q k v c :scale 0.2 :softcap 3.0))",
    ),
    (
        "causal attention of grouped heads bf16",
        "(input q bf16[4 200 32]) (input k bf16[2 200 32]) (input v bf16[2 200 32]) \
         (output y (sdpa q k v :scale 0.2 :mask causal))",
    ),
    (
        "windowed attention f32",
        "(input q f32[2 150 16]) (input k f32[2 150 16]) (input v f32[2 150 16]) \
         (output y (sdpa q k v :scale 0.2 :mask window :window 20))",
    ),
    (
        "attention of few queries f16",
        "(input q f16[4 1 64]) (input k f16[4 300 64]) (input v f16[4 300 64]) (output y (attention q k v :scale 0.1))",
    ),
    (
        "attention of one query over many keys f32",
        "(input q f32[2 1 20]) (input k f32[2 300 20]) (input v f32[2 300 72]) (output y (attention q k v :scale 0.3))",
    ),
    (
        "attention of one query over many keys, bias bf16",
        "(input q bf16[2 1 20]) (input k bf16[2 300 20]) (input v bf16[2 300 24]) (input c bf16[2 1 300]) \
         (output y (attention q k v c :scale 0.3))",
    ),
    (
        "attention f64",
        "(input q f64[1 9 5]) (input k f64[1 40 5]) (input v f64[1 40 70]) (output y (attention q k v :scale 0.3))",
    ),
    ("softmax of long rows", "(input x f32[3 5000]) (output y (softmax x :axis -1))"),
    ("softmax of rows that blocks share", "(input x f32[2 40000]) (output y (softmax x :axis -1))"),
    (
        "norm of rows that blocks share",
        "(input x f16[3 66000]) (param g f16[66000]) (param b f16[66000]) (output y (layernorm x g b :eps 1e-5))",
    ),
    ("softmax of columns", "(input x f32[50 36]) (output y (softmax x :axis 0))"),
    (
        "residual and norm",
        "(input x f16[37 96]) (input r f16[37 96]) (param g f16[96]) (param b f16[96]) (let s (add x r)) \
         (output s s) (output y (layernorm s g b :eps 1e-5))",
    ),
    ("largest of short rows", "(input x i32[300 6]) (output y (reduce-max x :axes [-1] :keep false))"),
    ("rows by number", "(input ids i64[7]) (param table f16[19 24]) (output y (exp (gather table (abs ids) :axis 0)))"),
    (
        "convolution",
        "(input x f32[1 6 17 19]) (param w f32[8 6 3 3]) (output y (conv x w :stride [2 2] :before [1 1] :after [1 1]))",
    ),
    (
        "convolution by channels",
        "(input x f32[2 6 17 19]) (param w f32[6 1 5 5]) (param b f32[6]) (output y (act \
         (conv x w b :before [2 2] :after [2 2] :groups 6) :kind silu))",
    ),
    (
        "convolution by groups f16",
        "(input x f16[2 12 9 11]) (param w f16[15 4 3 3]) (output y (conv x w :stride [2 1] :dilation [1 2] :before [1 2] :after [1 2] :groups 3))",
    ),
];

/// Products on which every applicable schedule is tried: operands along and across, edges of tiles, batches, prologues,
/// all epilogues, several stores, few rows, and a split depth.
pub const PRODUCTS: &[Case] = &[
    (
        "rows by columns, bias f16",
        "(input x f16[200 136]) (param w f16[136 264]) (param b f16[264]) (output y (linear x w b :act gelu-erf))",
    ),
    (
        "both transposed bf16",
        "(input x bf16[136 72]) (param w bf16[264 136]) (output y (matmul (transpose x :perm [1 0]) (transpose w :perm [1 0])))",
    ),
    (
        "bias, tanh gelu f16",
        "(input x f16[72 264]) (param w f16[264 96]) (param b f16[96]) (output y (linear x w b :act gelu-tanh))",
    ),
    (
        "residual, two stores f16",
        "(input x f16[130 80]) (param w f16[80 72]) (param b f16[72]) (input r f16[130 72]) \
         (let s (add (linear x w b :act none) r)) (output s s) (output y (exp s))",
    ),
    (
        "bias and residual bf16",
        "(input x bf16[130 80]) (param w bf16[80 72]) (param b bf16[72]) (input r bf16[130 72]) \
         (output y (add (linear x w b :act none) r))",
    ),
    (
        "computed left f16",
        "(input x f16[70 200]) (param g f16[200]) (param w f16[200 136]) (output y (matmul (mul (exp x) g) w))",
    ),
    ("computed right bf16", "(input x bf16[70 136]) (param w bf16[136 72]) (output y (matmul x (neg (exp w))))"),
    (
        "widened left, odd columns f16",
        "(input x f32[70 65]) (param w f16[65 51]) (output y (matmul (cast x :to f16) w))",
    ),
    ("batched f16", "(input x f16[3 72 40]) (input z f16[3 40 72]) (output y (matmul x z))"),
    (
        "split heads f16",
        "(input x f16[128 64]) (param w f16[64 96]) (output y (transpose (reshape (matmul x w) :shape [128 4 24]) :perm [1 0 2]))",
    ),
    ("deep f16", "(input x f16[64 1024]) (param w f16[1024 64]) (output y (matmul x w))"),
    (
        "one row f16",
        "(input x f16[1 520]) (param w f16[520 104]) (param b f16[104]) (output y (linear x w b :act silu))",
    ),
    (
        "three rows, transposed bf16",
        "(input x bf16[3 1032]) (param w bf16[70 1032]) (output y (matmul x (transpose w :perm [1 0])))",
    ),
    ("eight rows f32", "(input x f32[8 300]) (param w f32[300 68]) (output y (act (matmul x w) :kind relu))"),
    (
        "five rows of columns f32",
        "(input x f32[300 5]) (param w f32[66 300]) (output y (matmul (transpose x :perm [1 0]) (transpose w :perm [1 0])))",
    ),
    ("two rows, computed f16", "(input x f16[2 2 130]) (input z f16[2 130 24]) (output y (matmul (neg x) (exp z)))"),
    ("two rows f64", "(input x f64[2 70]) (param w f64[70 30]) (output y (matmul x w))"),
    (
        "epilogue tf32",
        "(input x f32[200 136]) (param w f32[136 264]) (param b f32[264]) \
         (output y (act (add (matmul-tf32 x w) b) :kind gelu-erf))",
    ),
    (
        "both transposed tf32",
        "(input x f32[136 72]) (param w f32[264 136]) \
         (output y (matmul-tf32 (transpose x :perm [1 0]) (transpose w :perm [1 0])))",
    ),
    (
        "computed, odd tf32",
        "(input x f32[70 65]) (param g f32[65]) (param w f32[65 51]) \
         (output y (matmul-tf32 (mul (exp x) (expand g :shape [70 65])) (neg w)))",
    ),
    (
        "batched, residual tf32",
        "(input x f32[3 72 40]) (input z f32[3 40 72]) (input r f32[3 72 72]) (output y (add (matmul-tf32 x z) r))",
    ),
    ("deep tf32", "(input x f32[64 1024]) (param w f32[1024 64]) (output y (matmul-tf32 x w))"),
    ("one row tf32", "(input x f32[1 520]) (param w f32[520 104]) (output y (matmul-tf32 x w))"),
    (
        "windows of channels f16",
        "(input x f16[2 20 13 14]) (param w f16[20 1 7 7]) (output y (conv x w :before [3 3] :after [3 3] :groups 20))",
    ),
    (
        "windows of three channels f16",
        "(input x f16[1 3 34 38]) (param w f16[24 3 3 3]) (param b f16[24]) \
         (output y (act (conv x w b :stride [2 2] :before [1 1] :after [1 1]) :kind silu))",
    ),
];

/// Attentions on which every applicable schedule is tried: partial tiles, narrow, odd and wide heads, transposed,
/// sliced and computed operands, all biases, hidden blocks, grouped heads, and split keys.
pub const ATTENTIONS: &[Case] = &[
    (
        "odd tiles f16",
        "(input q f16[3 77 24]) (input k f16[3 333 24]) (input v f16[3 333 24]) (output y (attention q k v :scale 0.2))",
    ),
    (
        "whole tiles bf16",
        "(input q bf16[2 192 64]) (input k bf16[2 640 64]) (input v bf16[2 640 64]) (output y (attention q k v :scale 0.125))",
    ),
    (
        "heads of 80 f16",
        "(input q f16[2 130 80]) (input k f16[2 400 80]) (input v f16[2 400 80]) (output y (attention q k v :scale 0.1))",
    ),
    (
        "heads of 14 bf16",
        "(input q bf16[2 65 14]) (input k bf16[2 200 14]) (input v bf16[2 200 14]) (output y (attention q k v :scale 0.25))",
    ),
    (
        "heads of 256 f16",
        "(input q f16[1 100 256]) (input k f16[1 260 256]) (input v f16[1 260 256]) (output y (attention q k v :scale 0.06))",
    ),
    (
        "other columns, softcap, mask of keys f16",
        "(input q f16[2 70 40]) (input k f16[2 333 40]) (input v f16[2 333 104]) (input c f16[2 1 333]) \
         (output y (attention q k v c :scale 0.2 :softcap 3.0))",
    ),
    (
        "negative scale f16",
        "(input q f16[2 70 32]) (input k f16[2 256 32]) (input v f16[2 256 32]) (output y (attention q k v :scale -0.2))",
    ),
    (
        "causal, grouped heads bf16",
        "(input q bf16[4 300 64]) (input k bf16[2 300 64]) (input v bf16[2 300 64]) \
         (output y (sdpa q k v :scale 0.125 :mask causal))",
    ),
    (
        "window f16",
        "(input q f16[2 450 32]) (input k f16[2 450 32]) (input v f16[2 450 32]) \
         (output y (sdpa q k v :scale 0.2 :mask window :window 70))",
    ),
    (
        "keep-mask f16",
        "(input q f16[2 90 32]) (input k f16[2 200 32]) (input v f16[2 200 32]) (input m bool[90 200]) \
         (output y (sdpa q k v m :scale 0.2 :mask keep))",
    ),
    (
        "positions of rows and columns f16",
        "(input q f16[2 256 64]) (input k f16[2 256 64]) (input v f16[2 256 64]) (input h f16[2 256 16]) (input w f16[2 256 16]) \
         (output y (attention q k v (reshape (add (reshape h :shape [2 256 16 1]) (reshape w :shape [2 256 1 16])) \
         :shape [2 256 256]) :scale 0.125))",
    ),
    (
        "positions of rows and columns, 14 each bf16",
        "(input q bf16[2 196 64]) (input k bf16[2 196 64]) (input v bf16[2 196 64]) (input h bf16[2 196 14]) (input w bf16[2 196 14]) \
         (output y (attention q k v (reshape (add (reshape h :shape [2 196 14 1]) (reshape w :shape [2 196 1 14])) \
         :shape [2 196 196]) :scale 0.125))",
    ),
    (
        "dense bias f16",
        "(input q f16[2 130 32]) (input k f16[2 384 32]) (input v f16[2 384 32]) (input c f16[130 384]) \
         (output y (attention q k v c :scale 0.2))",
    ),
    (
        "keys across, computed values f16",
        "(input q f16[2 70 48]) (input k f16[2 48 200]) (input v f16[2 200 48]) \
         (output y (exp (attention (neg q) (transpose k :perm [0 2 1]) (mul v v) :scale 0.2)))",
    ),
    (
        "narrowed operands bf16",
        "(input q f32[2 70 32]) (input k f32[2 200 32]) (input v f32[2 200 32]) \
         (output y (attention (cast q :to bf16) (cast k :to bf16) (cast v :to bf16) :scale 0.2))",
    ),
    (
        "heads of a product f16",
        "(input x f16[100 192]) (let h (transpose (reshape x :shape [100 3 2 32]) :perm [1 2 0 3])) \
         (output y (attention (reshape (slice h :axis 0 :at 0 :len 1) :shape [2 100 32]) (reshape (slice h :axis 0 :at 1 :len 1) :shape [2 100 32]) \
         (reshape (slice h :axis 0 :at 2 :len 1) :shape [2 100 32]) :scale 0.2))",
    ),
    (
        "one query over many keys f16",
        "(input q f16[2 1 64]) (input k f16[2 2000 64]) (input v f16[2 2000 64]) (output y (attention q k v :scale 0.125))",
    ),
    (
        "odd tiles tf32",
        "(input q f32[3 77 24]) (input k f32[3 333 24]) (input v f32[3 333 24]) (output y (attention-tf32 q k v :scale 0.2))",
    ),
    (
        "keys across, other columns, mask of keys tf32",
        "(input q f32[2 70 40]) (input k f32[2 40 333]) (input v f32[2 104 333]) (input c f32[2 70 333]) \
         (output y (attention-tf32 q (transpose k :perm [0 2 1]) (transpose v :perm [0 2 1]) c :scale 0.2))",
    ),
    (
        "few queries, computed keys tf32",
        "(input q f32[2 3 64]) (input k f16[2 640 64]) (input v f16[2 640 64]) \
         (output y (attention-tf32 q (cast k :to f32) (cast v :to f32) :scale 0.125))",
    ),
];

/// Batch, queries, keys and depth of measured attentions. If queries are many, and keys equally many, they are also
/// measured with a causal mask.
const HEADS: &[[usize; 4]] = &[
    [12, 128, 128, 32],
    [384, 128, 128, 64],
    [12, 512, 512, 64],
    [300, 196, 196, 64],
    [12, 4096, 4096, 64],
    [16, 4096, 4096, 80],
    [32, 1, 1024, 64],
    [32, 1, 8192, 128],
    [256, 1, 4096, 128],
    [32, 2048, 2048, 128],
    [32, 8192, 8192, 128],
    [64, 1024, 1024, 64],
];

/// Attention that is measured in several ways: name and text.
pub fn attentions() -> Vec<(String, String)> {
    let operands = |[b, s, t, d]: [usize; 4], dtype: &str| {
        format!("(input q {dtype}[{b} {s} {d}]) (input k {dtype}[{b} {t} {d}]) (input v {dtype}[{b} {t} {d}])")
    };
    let of = |(shape, dtype, causal): ([usize; 4], &str, bool)| {
        let [b, s, t, d] = shape;
        let (op, mask) = if causal { ("sdpa", ":mask causal") } else { ("attention", "") };
        let scale = (d as f64).powf(-0.5);
        let text = format!("{} (output y ({op} q k v :scale {scale} {mask}))", operands(shape, dtype));
        (format!("attention {b}x{s}x{t} d{d} {dtype}{}", if causal { " causal" } else { "" }), text)
    };
    let mut list = Vec::new();
    for &shape in HEADS {
        let [_, s, t, _] = shape;
        list.push(of((shape, "f16", false)));
        if s == t && s >= 1024 {
            list.push(of((shape, "f16", true)));
        }
    }
    list.extend(HEADS.iter().filter(|[_, s, ..]| (2048..8192).contains(s)).map(|&shape| of((shape, "bf16", false))));
    // The bias of SAM: relative positions of rows and of columns, which are added in f32.
    for (b, n, d, dtype, op) in [
        (12, 64, 64, "f16", "attention"),
        (16, 64, 80, "f16", "attention"),
        (300, 14, 64, "f16", "attention"),
        (400, 14, 80, "f16", "attention"),
        (12, 64, 64, "f32", "attention-tf32"),
        (300, 14, 64, "f32", "attention-tf32"),
    ] {
        let s = n * n;
        let positions = format!("(input h f32[{b} {s} {n}]) (input w f32[{b} {s} {n}])");
        let bias = format!(
            "(cast (reshape (add (reshape h :shape [{b} {s} {n} 1]) (reshape w :shape [{b} {s} 1 {n}])) :shape [{b} {s} {s}]) :to {dtype})"
        );
        let scale = f64::from(d as u32).powf(-0.5);
        let text =
            format!("{} {positions} (output y ({op} q k v {bias} :scale {scale}))", operands([b, s, s, d], dtype));
        list.push((format!("{op} {b}x{s}x{s} d{d} {dtype} positions"), text));
    }
    // A bias that is stored in memory, and the mask of a batch of texts.
    for (shape, bias) in [("300 1 196", "f16[300 1 196 196]"), ("32 12 128", "f16[32 1 1 128]")] {
        let operands: String = ["q", "k", "v"].map(|name| format!("(input {name} f16[{shape} 64])")).concat();
        let text = format!("{operands} (input bias {bias}) (output y (attention q k v bias :scale 0.125))");
        list.push((format!("attention {} d64 f16 bias", shape.replace(' ', "x")), text));
    }
    list
}

/// Rows, depth and columns of the products that are measured: of MiniLM, BERT, SAM, decoders, and square ones.
const SHAPES: &[[usize; 3]] = &[
    [128, 384, 1152],
    [128, 384, 384],
    [128, 384, 1536],
    [128, 1536, 384],
    [128, 768, 2304],
    [128, 768, 3072],
    [4096, 768, 2304],
    [4096, 768, 768],
    [4096, 768, 3072],
    [4096, 3072, 768],
    [4900, 768, 2304],
    [4900, 768, 768],
    [4096, 1280, 3840],
    [4096, 1280, 5120],
    [4096, 5120, 1280],
    [1, 2048, 2048],
    [1, 2048, 5632],
    [1, 5632, 2048],
    [1, 2048, 32000],
    [4, 2048, 8192],
    [16, 2048, 8192],
    [64, 4096, 4096],
    [512, 4096, 4096],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [197, 768, 3072],
    [1, 4096, 14336],
    [32, 4096, 14336],
    [4096, 2304, 256],
];

/// Returns the measured products, with name and text. Weights have torch's layout, columns by depth.
pub fn products() -> Vec<(String, String)> {
    let linear = |[m, k, n]: [usize; 3], dtype: &str, act: &str| {
        let text = format!(
            "(input x {dtype}[{m} {k}]) (param w {dtype}[{n} {k}]) (param b {dtype}[{n}]) \
             (output y (linear x (transpose w :perm [1 0]) b :act {act}))"
        );
        (format!("linear {m}x{k}x{n} {dtype} {act}"), text)
    };
    let mut list: Vec<_> = SHAPES.iter().map(|&shape| linear(shape, "f16", "none")).collect();
    list.extend(SHAPES[..6].iter().chain(&SHAPES[15..21]).map(|&shape| linear(shape, "f32", "none")));
    for ([m, k, n], epilogue) in
        [(SHAPES[8], false), (SHAPES[0], false), (SHAPES[24], false), (SHAPES[8], true), (SHAPES[9], false)]
    {
        let product = "(matmul-tf32 x (transpose w :perm [1 0]))";
        let y = if epilogue { format!("(act (add {product} b) :kind gelu-erf)") } else { product.into() };
        let text = format!("(input x f32[{m} {k}]) (param w f32[{n} {k}]) (param b f32[{n}]) (output y {y})");
        list.push((format!("linear {m}x{k}x{n} tf32 {}", if epilogue { "gelu-erf" } else { "none" }), text));
    }
    let large = [4096, 768, 3072];
    list.extend(["gelu-erf", "gelu-tanh", "silu"].map(|act| linear(large, "f16", act)));
    list.extend([linear(large, "f32", "gelu-erf"), linear([4096, 1280, 5120], "bf16", "gelu-erf")]);
    let others = [
        ("nn", "(input x f16[4096 768]) (param w f16[768 3072]) (output y (matmul x w))"),
        ("nn, 5632 columns of a row", "(input x f16[1 2048]) (param w f16[2048 5632]) (output y (matmul x w))"),
        (
            "nn, residual",
            "(input x f16[4096 3072]) (param w f16[3072 768]) (param b f16[768]) (input r f16[4096 768]) \
          (output y (add (linear x w b :act none) r))",
        ),
        (
            "nn, exponentials",
            "(input x f16[4096 768]) (param g f16[768]) (param w f16[768 3072]) (output y (matmul (mul (exp x) g) w))",
        ),
        ("nn, from f32", "(input x f32[4096 768]) (param w f16[768 3072]) (output y (matmul (cast x :to f16) w))"),
        (
            "nn, windows",
            "(input x f16[56 56 768]) (param w f16[768 2304]) (output y (matmul (reshape (transpose (reshape x \
          :shape [4 14 4 14 768]) :perm [0 2 1 3 4]) :shape [3136 768]) w))",
        ),
        ("nn, 3136 rows", "(input x f16[3136 768]) (param w f16[768 2304]) (output y (matmul x w))"),
        (
            "nn, f32 inside",
            "(input x f16[4096 768]) (param w f16[768 3072]) (param b f32[3072]) \
          (output y (cast (act (add (cast (matmul x w) :to f32) b) :kind gelu-erf) :to f16))",
        ),
        ("nn, f32 result", "(input x f16[4096 768]) (param w f16[768 3072]) (output y (cast (matmul x w) :to f32))"),
        (
            "nn, heads",
            "(input x f16[4096 768]) (param w f16[768 2304]) (param b f16[2304]) \
          (output y (transpose (reshape (linear x w b :act none) :shape [4096 36 64]) :perm [1 0 2]))",
        ),
    ];
    list.extend(others.map(|(name, text)| (name.to_string(), text.to_string())));
    list
}

/// Measured convolutions of exported networks: images, channels, side, result channels, window side, stride, groups.
const CONVOLUTIONS: &[[usize; 7]] = &[
    [8, 96, 56, 96, 7, 1, 96],
    [8, 384, 14, 384, 7, 1, 384],
    [8, 32, 112, 32, 3, 1, 32],
    [8, 96, 112, 96, 3, 2, 96],
    [8, 144, 56, 144, 5, 2, 144],
    [8, 672, 14, 672, 5, 1, 672],
    [8, 1152, 7, 1152, 5, 1, 1152],
    [1, 1152, 7, 1152, 5, 1, 1152],
    [8, 128, 56, 128, 3, 1, 32],
    [8, 160, 28, 160, 3, 1, 10],
    [8, 400, 7, 400, 3, 1, 25],
    [8, 3, 224, 64, 7, 2, 1],
    [8, 3, 224, 32, 3, 2, 1],
    [1, 3, 520, 64, 7, 2, 1],
    [8, 64, 56, 64, 3, 1, 1],
    [2, 320, 64, 320, 3, 1, 1],
];

/// Returns programs of these convolutions, in f32 and in f16.
pub fn convolutions() -> Vec<(String, String)> {
    let of = |([n, c, side, o, size, stride, groups], dtype): ([usize; 7], &str)| {
        let (each, pad) = (c / groups, size / 2);
        let text = format!(
            "(input x {dtype}[{n} {c} {side} {side}]) (param w {dtype}[{o} {each} {size} {size}]) (param b {dtype}[{o}]) (output y (act \
             (conv x w b :stride [{stride} {stride}] :before [{pad} {pad}] :after [{pad} {pad}] :groups {groups}) :kind silu))"
        );
        (format!("conv {n}x{c}x{side} to {o}, {size} by {stride}, {groups} {dtype}"), text)
    };
    CONVOLUTIONS.iter().flat_map(|&shape| ["f16", "f32"].map(|dtype| of((shape, dtype)))).collect()
}

/// Returns the program of a case.
pub fn graph((name, text): (&str, &str)) -> Graph {
    let whole = format!("(graph \"case\" {text})");
    parse(&Source::new(name, whole)).unwrap_or_else(|e| panic!("{name}: {e:?}"))
}
