//! Prints WGSL for matrix units, or for their emulation.

use eutectic_ir::DType;

use crate::features::MatrixUnits;

/// Rows and columns of a fragment.
const SIDE: usize = 16;
/// The first line of texts with matrix units.
pub const ENABLE: &str = "enable wgpu_cooperative_matrix;\n";
/// The first line of texts whose operands are of `bf16`, for which WGSL has no type.
const BFLOAT16: &str = "//# bf16\n";

/// Returns the declarations before a kernel.
pub fn head(dtype: DType, units: &MatrixUnits) -> String {
    match units.emulated {
        false if dtype == DType::Bf16 => BFLOAT16.into(),
        false => String::new(),
        true => format!(
            "fn half_at(at: i32) -> f32 {{ let word = bitcast<u32>(memory[at / 8][at % 8 / 2]); return select(low_{dtype}(word), high_{dtype}(word), (at & 1) == 1); }}\n"
        ),
    }
}

/// Returns the declaration of a fragment of sums, with all zeros.
pub fn zeros(name: &str, units: &MatrixUnits) -> String {
    match units.emulated {
        // Each thread has half a row.
        true => format!("var {name} = array<f32, 8>();\n"),
        false => format!("var {name}: coop_mat{SIDE}x{SIDE}<f32, C>;\n"),
    }
}

/// Returns statements that load a fragment of an operand with a name and a role, from a unit of 16 bytes of shared
/// memory on. `stride` is the distance of lines (rows or columns) in such units. Emulation reads the elements only
/// where the fragment is used.
pub fn load(
    (name, role): (&str, char),
    (place, stride): (&str, usize),
    rows_are_lines: bool,
    units: &MatrixUnits,
) -> String {
    let at = format!("let {name}_at = {place};\n");
    if units.emulated {
        // The distances of rows and of columns, in elements.
        let [row, column] = if rows_are_lines { [8 * stride, 1] } else { [1, 8 * stride] };
        return at + &format!("let {name} = vec2<i32>({row}, {column});\n");
    }
    // The function whose name ends in T takes rows as lines.
    let function = if rows_are_lines { "coopLoadT" } else { "coopLoad" };
    at + &format!("let {name} = {function}<coop_mat{SIDE}x{SIDE}<f32, {role}>>(&memory[{name}_at], {stride}u);\n")
}

/// Returns a statement that adds the product of two fragments to a third.
pub fn multiply(sum: &str, x: &str, y: &str, units: &MatrixUnits) -> String {
    if !units.emulated {
        return format!("{sum} = coopMultiplyAdd({x}, {y}, {sum});\n");
    }
    format!(
        "for (var n = 0; n < 8; n += 1) {{ for (var t = 0; t < {SIDE}; t += 1) {{\n\
         {sum}[n] += half_at({x}_at * 8 + lane / 2 * {x}.x + t * {x}.y) * half_at({y}_at * 8 + t * {y}.x + (lane % 2 * 8 + n) * {y}.y);\n}} }}\n"
    )
}

/// Returns a statement that stores sums to shared memory, from a unit of 16 bytes on. `stride` is the distance of rows
/// in such units.
pub fn store(sum: &str, (name, place, stride): (&str, &str, usize), units: &MatrixUnits) -> String {
    let at = format!("let {name} = {place};\n");
    at + &match units.emulated {
        true => format!(
            "for (var n = 0; n < 8; n += 1) {{ memory[{name} + lane / 2 * {stride} + lane % 2 * 2 + n / 4][n % 4] = {sum}[n]; }}\n"
        ),
        false => format!("coopStoreT({sum}, &memory[{name}], {stride}u);\n"),
    }
}

/// Returns a statement that loads sums from memory, in the layout of [`store`].
pub fn reload(sum: &str, (name, place, stride): (&str, &str, usize), units: &MatrixUnits) -> String {
    let at = format!("let {name} = {place};\n");
    at + &match units.emulated {
        true => format!(
            "for (var n = 0; n < 8; n += 1) {{ {sum}[n] = memory[{name} + lane / 2 * {stride} + lane % 2 * 2 + n / 4][n % 4]; }}\n"
        ),
        false => format!("{sum} = coopLoadT<coop_mat{SIDE}x{SIDE}<f32, C>>(&memory[{name}], {stride}u);\n"),
    }
}

/// Returns the word of the weights `wN` and `wN+1`. Vulkan allows rounding a weight to either neighbouring 16-bit
/// number; rounding to the nearest would take ten more instructions per weight.
pub fn weights(dtype: DType, n: usize) -> String {
    let [low, high] = [n, n + 1];
    match dtype {
        DType::F16 => format!("pack2x16float(vec2<f32>(w{low}, w{high}))"),
        _ => format!("pair_{dtype}(w{low}, w{high})"),
    }
}

/// Returns a barrier of a subgroup. After it, the threads see each other's writes to shared memory.
pub fn subgroup_barrier(units: &MatrixUnits) -> &'static str {
    if units.emulated { "workgroupBarrier();\n" } else { "subgroupBarrier();\n" }
}

/// Returns an expression that is true if a condition holds for any thread of the subgroup. Emulation always takes it as
/// true.
pub fn any(condition: &str, units: &MatrixUnits) -> String {
    if units.emulated { "true".into() } else { format!("subgroupAny({condition})") }
}

/// Returns the operands' type if a text uses matrix units, and `None` otherwise.
pub fn operands(text: &str) -> Option<DType> {
    let speaks = text.contains("coop_mat");
    speaks.then(|| if text.contains(BFLOAT16) { DType::Bf16 } else { DType::F16 })
}
