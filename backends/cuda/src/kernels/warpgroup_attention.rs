//! Prints the matrix products of attention by warpgroups, in the sizes that an attention needs.

/// Returns the text that follows the common text of attention, for tiles of `keys` keys and `columns` columns.
pub fn text(half: &str, keys: usize, columns: usize) -> String {
    product("multiply_scores", keys, half, false)
        + &product("multiply_weights", columns, half, true)
        + include_str!("../text/scores.cu")
        + include_str!("../text/warpgroup_attention.cu")
}

/// Returns a product of a warpgroup's 64 rows, 16 terms and `n` columns. If both operands are in shared memory, both
/// are contiguous along the terms, and `add` says whether the product adds to the sums. If the left operand is in
/// registers, the right one is contiguous along its columns, and the product adds to the sums.
fn product(name: &str, n: usize, half: &str, from_registers: bool) -> String {
    let count = n / 2;
    let list = |range: std::ops::Range<usize>| range.map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
    let sums: Vec<_> = (0..count).map(|i| format!("\"+f\"(d[{i}])")).collect();
    let (registers, sums) = (list(0..count), sums.join(", "));
    let op = format!("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{half}.{half} {{{registers}}}");
    if from_registers {
        let left = list(count..count + 4);
        return format!(
            "FN void {name}(float (&d)[{count}], const unsigned* a, u64 b, {half}) {{\n    asm volatile(\"{op}, {{{left}}}, %{}, 1, 1, 1, 1;\"\n        \
             : {sums} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}}\n",
            count + 4
        );
    }
    format!(
        "FN void {name}(float (&d)[{count}], u64 a, u64 b, bool add, {half}) {{\n    \
         asm volatile(\"{{ .reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n{op}, %{count}, %{}, add, 1, 1, 0, 0; }}\"\n        \
         : {sums} : \"l\"(a), \"l\"(b), \"r\"((int)add));\n}}\n",
        count + 2,
        count + 1
    )
}
