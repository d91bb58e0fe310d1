//! The programs that `tune` measures if no model is given.

use std::fmt::Write as _;

/// Returns programs with kernels of every kind. Their sizes are from a few elements to more than caches hold.
pub fn spread() -> Vec<String> {
    let mut programs = Vec::new();
    let mut add = |inputs: &[(&str, &str)], result: &str| {
        let mut program = format!("(graph \"{result} of {}\"\n", inputs[0].1);
        for (name, ty) in inputs {
            let (kind, name) = name.strip_prefix('%').map_or(("input", *name), |name| ("param", name));
            let _ = writeln!(program, "  ({kind} {name} {ty})");
        }
        let _ = writeln!(program, "  (output y {result}))");
        programs.push(program);
    };
    // Matrix products of vectors, of few rows and of many rows, with short and long sums, narrow and wide, and with the
    // epilogues of models.
    for (m, k, n) in [
        (1, 384, 384),
        (1, 2048, 2048),
        (1, 4096, 8192),
        (4, 512, 2048),
        (16, 384, 1536),
        (64, 64, 64),
        (128, 384, 384),
        (128, 1536, 384),
        (512, 64, 512),
        (512, 512, 16),
        (784, 256, 512),
        (1024, 1024, 1024),
        (4096, 768, 3072),
    ] {
        let (x, w) = (format!("f32[{m} {k}]"), format!("f32[{k} {n}]"));
        let (b, r) = (format!("f32[{n}]"), format!("f32[{m} {n}]"));
        add(&[("x", &x), ("%w", &w), ("%b", &b)], "(linear x w b :act none)");
        add(&[("x", &x), ("%w", &w), ("%b", &b)], "(linear x w b :act gelu-erf)");
        add(&[("x", &x), ("%w", &w), ("r", &r)], "(add (linear x w :act none) r)");
        add(&[("x", &x), ("w", &w)], "(matmul x w)");
    }
    for n in [64, 512] {
        let f64s = format!("f64[{n} {n}]");
        add(&[("x", &f64s), ("%w", &f64s)], "(matmul x w)");
    }
    // Pointwise kernels, from the data of a few cache lines to more than the last-level cache holds.
    for n in [256, 1 << 13, 1 << 17, 1 << 20, 1 << 23] {
        let ty = format!("f32[{n}]");
        let one: &[(&str, &str)] = &[("x", &ty)];
        for function in ["abs", "exp", "erf", "tanh", "sqrt", "sin"] {
            add(one, &format!("({function} x)"));
        }
        add(one, "(act x :kind silu)");
        add(one, "(mul (exp (neg (exp (neg (abs x))))) (exp x))");
        add(one, "(cast (cast x :to f16) :to f32)");
        add(&[("x", &ty), ("z", &ty)], "(add x z)");
        add(&[("x", &ty), ("z", &ty)], "(div (mul x z) (add (abs x) (const f32[] { 1.5 })))");
        let f64s = format!("f64[{n}]");
        add(&[("x", &f64s), ("z", &f64s)], "(add x z)");
    }
    // Kernels on rows: reductions, softmax, norms and rankings.
    for (m, n) in [(4, 64), (128, 128), (384, 768), (4096, 1024)] {
        let (ty, row) = (format!("f32[{m} {n}]"), format!("f32[{n}]"));
        add(&[("x", &ty)], "(reduce-sum x :axes [-1] :keep true)");
        add(&[("x", &ty)], "(softmax x :axis -1)");
        add(&[("x", &ty), ("g", &row), ("b", &row)], "(layernorm x g b :eps 1e-5)");
        add(&[("x", &ty)], &format!("(ranking x :most {n} :descending false)"));
        add(&[("x", &ty)], &format!("(ranking x :most {} :descending true)", n / 16));
        // Strided views, which are not contiguous in any order of their axes.
        add(&[("x", &ty)], "(transpose x :perm [1 0])");
        add(&[("x", &ty)], &format!("(abs (slice x :axis -1 :at 0 :len {} :step 2))", n / 2));
        add(&[("x", &ty), ("z", &ty)], "(concat x z :axis -1)");
        let (words, ids) = (format!("f32[{m} {n}]"), format!("i64[{}]", m / 2));
        add(&[("%t", &words), ("i", &ids)], "(abs (gather t i :axis 0))");
    }
    // Histograms: many elements of `u` are added to each element of `x`.
    for (elements, n) in [(256, 1 << 17), (256, 1 << 20), (1 << 16, 1 << 20)] {
        let (x, u, ids) = (format!("f32[1 {elements} 1]"), format!("f32[1 {n} 1]"), format!("i32[1 {n} 1]"));
        let id = format!("(mod i (const i32[] {{ {elements} }}))");
        add(&[("x", &x), ("u", &u), ("i", &ids)], &format!("(scatter-sum x u {id})"));
    }
    // Attention, and kernels on images.
    for (h, s, d) in [(12, 16, 32), (12, 128, 32), (8, 512, 64), (384, 128, 64), (12, 2048, 64)] {
        let ty = format!("f32[{h} {s} {d}]");
        let bias = format!("f32[{s}]");
        add(&[("q", &ty), ("k", &ty), ("v", &ty)], "(sdpa q k v :scale 0.125 :mask none)");
        add(&[("q", &ty), ("k", &ty), ("v", &ty), ("m", &bias)], "(sdpa q k v m :scale 0.125 :mask additive)");
    }
    for (c, size) in [(64, 56), (256, 14)] {
        let (x, w) = (format!("f32[1 {c} {size} {size}]"), format!("f32[{c} {c} 3 3]"));
        add(
            &[("x", &x), ("%w", &w)],
            "(conv (abs (conv x w :before [1 1] :after [1 1])) w :stride [2 2] :before [1 1] :after [1 1])",
        );
        add(&[("x", &x)], "(max-pool (abs x) :size [3 3] :stride [2 2] :before [1 1] :after [1 1])");
    }
    narrow(&mut add);
    programs
}

/// Adds matrix products that are too narrow for full vectors: convolutions with few channels per group, batches of
/// small matrices, results with few columns, and 8-bit weights that are decoded in the kernel.
fn narrow(add: &mut impl FnMut(&[(&str, &str)], &str)) {
    for (channels, size, kernel, stride, groups) in [
        (32, 112, 3, 1, 32),
        (96, 56, 3, 2, 96),
        (384, 14, 3, 1, 384),
        (384, 14, 7, 1, 384),
        (960, 7, 5, 1, 960),
        (64, 56, 3, 1, 16),
        (128, 28, 3, 1, 32),
    ] {
        let x = format!("f32[1 {channels} {size} {size}]");
        let w = format!("f32[{channels} {} {kernel} {kernel}]", channels / groups);
        let around = kernel / 2;
        let conv = format!(
            "(conv x w :stride [{stride} {stride}] :before [{around} {around}] :after [{around} {around}] :groups {groups})"
        );
        add(&[("x", &x), ("%w", &w)], &conv);
    }
    for (size, kernel, stride) in [(224, 7, 2), (112, 3, 1)] {
        let (x, w) = (format!("f32[1 3 {size} {size}]"), format!("f32[32 3 {kernel} {kernel}]"));
        let conv = format!("(conv x w :stride [{stride} {stride}] :before [1 1] :after [1 1])");
        add(&[("x", &x), ("%w", &w)], &conv);
    }
    for (batch, m, k, n) in [(64, 1, 64, 64), (1024, 4, 8, 8), (64, 8, 512, 8), (16, 1, 512, 64)] {
        let (x, w) = (format!("f32[{batch} {m} {k}]"), format!("f32[{batch} {k} {n}]"));
        add(&[("x", &x), ("z", &w)], "(matmul x z)");
    }
    for (m, k, n) in [(4096, 256, 4), (4, 256, 4096), (16384, 64, 2)] {
        let (x, w) = (format!("f32[{k} {m}]"), format!("f32[{k} {n}]"));
        add(&[("x", &x), ("z", &w)], "(matmul (transpose x :perm [1 0]) z)");
    }
    for (m, k, n) in [(1, 1024, 1024), (1, 2048, 8192), (4, 1024, 4096)] {
        let (x, w) = (format!("f32[{m} {k}]"), format!("i8[{k} {n}]"));
        add(&[("x", &x), ("%w", &w), ("%s", "f32[]")], "(matmul x (mul (cast w :to f32) s))");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_programs_of_the_spread_are_well_formed() {
        for program in super::spread() {
            assert!(super::super::parsed(&program).is_ok(), "{program}");
        }
    }
}
