//! WGSL as a dialect of the shared printer.

use std::collections::BTreeSet;

use eutectic_gpu::dialect::{Dialect, Team};
use eutectic_ir::{
    DType,
    ops::{Ids, Reduction},
};

use crate::{
    access::{BufferAccess, FAULT, cells},
    features::MatrixUnits,
    library::{has, names, needed, register, suffix},
};

/// The dialect WGSL for a device.
#[derive(Clone, Copy, Debug)]
pub struct Wgsl {
    /// The number of threads that exchange values in registers; `None` if they cannot.
    pub subgroup: Option<usize>,
    /// The matrix units of the device.
    pub matrices: MatrixUnits,
    /// Whether there are atomics that add floats.
    pub float_atomics: bool,
}

impl Wgsl {
    /// Returns the text of a kernel: declarations, and an entry point with blocks of `block` threads around a body.
    pub fn text(&self, slots: &[(DType, usize)], block: usize, before: &str, body: &str) -> String {
        let called: BTreeSet<&str> = names(before).chain(names(body)).collect();
        let mut own: String = BufferAccess::all(slots, &called).iter().map(BufferAccess::declaration).collect();
        own += before;
        let mut seen = BTreeSet::new();
        for name in called.iter().filter(|name| name.starts_with("along_") || name.starts_with("across_")) {
            own += &self.reduction(name, block, &mut seen);
        }
        for name in called.iter().filter(|name| name.starts_with("left_")) {
            own += &table(name);
        }
        let tables: BTreeSet<&str> = called.iter().filter_map(|name| Some(&name[name.find("cells_")?..])).collect();
        tables.into_iter().for_each(|name| own += &cells(name));
        if called.iter().any(|name| name.starts_with("within_")) {
            own += &format!("@group(0) @binding({FAULT}) {REPORT}");
        }
        let functions = needed(&[&own, body]);
        format!(
            "{functions}{own}var<private> own_thread: u32;\nvar<private> grid: vec3<u32>;\n@compute @workgroup_size({block})\n\
             fn main(@builtin(local_invocation_index) invocation: u32, @builtin(workgroup_id) of_grid: vec3<u32>, \
             @builtin(num_workgroups) all_blocks: vec3<u32>) {{\nown_thread = invocation;\ngrid = all_blocks;\n{body}}}\n"
        )
    }

    /// Returns the definition of a function that [`Dialect::reduce`] names.
    fn reduction(&self, name: &str, block: usize, seen: &mut BTreeSet<DType>) -> String {
        let mut parts = name.split('_');
        let mut next = || parts.next().unwrap_or_default();
        let (which, how) = (next(), next());
        let [threads, rows] = [next(), next()].map(|n| n.parse::<usize>().unwrap_or(1));
        let dtype = next();
        let dtype = DType::ALL.into_iter().find(|of| of.name() == dtype).unwrap_or(DType::F32);
        let (ty, suffix) = (register(dtype), dtype.name());
        // Threads exchange bools as numbers.
        let (cell, enter, leave_as) = match dtype {
            DType::Bool => ("u32", "select(0u, 1u, x)", "y != 0u"),
            _ => (ty, "x", "y"),
        };
        let mut text = String::new();
        let memory = format!("parts_{suffix}");
        let shared = |text: &mut String, seen: &mut BTreeSet<DType>| {
            if seen.insert(dtype) {
                *text += &format!("var<workgroup> {memory}: array<{cell}, {block}>;\n");
            }
        };
        let combine = |a: &str, b: &str| match (dtype, how) {
            (DType::Bool, "Max" | "Sum") => format!("{a} | {b}"),
            (DType::Bool, _) => format!("{a} & {b}"),
            _ => format!("{how}_{suffix}({a}, {b})"),
        };
        // `apart` is the distance between the threads of a row. Threads of one subgroup exchange registers, and the
        // rest uses shared memory.
        let apart = if which == "along" { 1 } else { rows };
        let group = match self.subgroup {
            Some(size) if dtype.size() <= 4 && block.is_multiple_of(size) => (size / apart).clamp(1, threads),
            _ => 1,
        };
        let exchange = |count: usize| -> String {
            let halves = std::iter::successors(Some(count / 2), |with| Some(with / 2)).take_while(|&with| with > 0);
            let other = |with| combine("y", &format!("subgroupShuffleXor(y, {}u)", with * apart));
            halves.map(|with| format!("y = {};\n", other(with))).collect()
        };
        let mut body = format!("var y = {enter};\n{}", exchange(group));
        let count = threads / group;
        if count > 1 {
            shared(&mut text, seen);
            // Each subgroup reduces all parts. The threads of a row in the subgroup share this work.
            let shares = group.min(count);
            let from = match which {
                "along" => format!("own_thread / {threads}u * {count}u + own_thread % {shares}u"),
                _ => format!("own_thread % {}u", rows * shares),
            };
            let leave = match group {
                1 => format!("{memory}[own_thread] = y;\n"),
                _ => format!(
                    "if (own_thread / {apart}u % {group}u == 0u) \
                     {{ {memory}[own_thread / {}u * {apart}u + own_thread % {apart}u] = y; }}\n",
                    apart * group
                ),
            };
            let rest = combine("y", &format!("{memory}[first + n * {apart}u]"));
            body += &format!(
                "workgroupBarrier();\n{leave}workgroupBarrier();\nlet first = {from};\ny = {memory}[first];\n\
                 for (var n = {shares}u; n < {count}u; n += {shares}u) {{ y = {rest}; }}\n{}",
                exchange(shares)
            );
        }
        text + &format!("fn {name}(x: {ty}) -> {ty} {{\n{body}return {leave_as};\n}}\n")
    }
}

/// Returns the name of a shared-memory table whose elements threads combine by atomics.
fn cells_of((table, dtype, count): (usize, DType, usize)) -> String {
    format!("cells_{table}_{}_{count}", dtype.name())
}

/// Returns the declaration of a table that [`Dialect::left`] names.
fn table(name: &str) -> String {
    let parts: Vec<&str> = name.split('_').collect();
    let dtype = DType::ALL.into_iter().find(|dtype| parts.get(2) == Some(&dtype.name())).unwrap_or(DType::F32);
    let count = parts.get(3).copied().unwrap_or("1");
    format!("var<workgroup> {name}: array<{}, {count}>;\n", register(dtype))
}

/// The text that reports faults. Each 64-bit number of the runtime's report takes two words.
const REPORT: &str = "var<storage, read_write> fault: array<atomic<u32>, 8>;
struct Arguments { number: u32 }
var<immediate> arguments: Arguments;
fn report(low: u32, high: u32, check: u32) {
    if (atomicExchange(&fault[0], 1u) == 0u) {
        atomicStore(&fault[2], arguments.number);
        atomicStore(&fault[4], low);
        atomicStore(&fault[5], high);
        atomicStore(&fault[6], check);
    }
}
";

impl Dialect for Wgsl {
    fn register(&self, dtype: DType) -> &'static str {
        register(dtype)
    }

    fn memory(&self, dtype: DType) -> &'static str {
        register(dtype)
    }

    fn integer(&self, n: i64) -> String {
        if n == i64::MIN { "(-9223372036854775807li - 1li)".into() } else { format!("({n}li)") }
    }

    fn literal(&self, value: f64, dtype: DType) -> String {
        match dtype {
            DType::F64 if (value as f32).is_finite() || value.is_finite() => format!("({value:?}lf)"),
            DType::F64 => format!("f64(of_bits({:#x}u))", (value as f32).to_bits()),
            dtype if dtype.is_float() => match value as f32 {
                finite if finite.is_normal() || finite == 0.0 && finite.is_sign_positive() => format!("({finite:?}f)"),
                other => format!("of_bits({:#x}u)", other.to_bits()),
            },
            DType::Bool => (value != 0.0).to_string(),
            DType::I64 => self.integer(value as i64),
            dtype if dtype.integers().0 == 0 => format!("{}u", value as u32),
            _ => format!("i32({})", value as i32),
        }
    }

    fn index(&self, wide: bool) -> &'static str {
        if wide { "i64" } else { "i32" }
    }

    fn conversion(&self, ty: &str) -> String {
        ty.into()
    }

    /// Converts a value, and hides from compilers that it is widened from 32 bits. llvmpipe (Mesa 22.3) otherwise
    /// compares it wrongly with a constant: `i64(i & 7) < 24li` is false. The last extent of grids, which is 1, hides
    /// the widening.
    fn convert(&self, ty: &str, x: &str) -> String {
        if ty == register(DType::I64) { format!("(i64({x}) + i64(grid.z - 1u))") } else { format!("{ty}({x})") }
    }

    fn function(&self, name: &str, dtype: DType, last: DType) -> Option<String> {
        let name = match name {
            "saturate" => format!("saturate_{}_{}", suffix(last), suffix(dtype)),
            "wrap" => format!("narrow_{}_{}", suffix(last), suffix(dtype)),
            "round_f16" | "round_bf16" => format!("{name}_f32"),
            _ => format!("{name}_{}", suffix(dtype)),
        };
        has(&name).then_some(name)
    }

    fn choose(&self, when: &str, then: &str, otherwise: &str) -> String {
        format!("select({otherwise}, {then}, {when})")
    }

    fn declare_where(&self, (ty, name): (&str, &str), when: &str, value: &str, otherwise: &str) -> String {
        format!("var {name}: {ty} = {otherwise};\nif ({when}) {{ {name} = {value}; }}")
    }

    fn declare(&self, ty: &str, name: &str, value: &str) -> String {
        format!("let {name}: {ty} = {value};")
    }

    fn variable(&self, ty: &str, name: &str, value: &str) -> String {
        format!("var {name}: {ty} = {value};")
    }

    fn array(&self, ty: &str, name: &str, count: usize) -> String {
        format!("var {name}: array<{ty}, {count}>;")
    }

    fn each(&self, name: &str, from: &str, below: usize, step: usize) -> String {
        format!("for (var {name}: i32 = {from}; {name} < {below}; {name} += {step}) {{")
    }

    fn unrolled(&self, name: &str, count: usize, body: &str) -> String {
        (0..count).map(|n| format!("{{\nconst {name} = {n};\n{body}}}\n")).collect()
    }

    fn each_point(&self, name: &str, below: usize, block: usize) -> String {
        format!(
            "for (var point = (of_grid.x + of_grid.y * grid.x) * {block}u + invocation; point < {below}u; point += grid.x * grid.y * {block}u) {{\n\
             let {name} = i32(point);"
        )
    }

    fn place(&self, thread: &str, block: &str) -> String {
        format!("let {thread} = i32(invocation);\nlet {block} = i32(of_grid.x + of_grid.y * grid.x);")
    }

    fn multiply_add(&self, a: &str, b: &str, c: &str) -> String {
        format!("fma({a}, {b}, {c})")
    }

    fn combine(&self, how: Reduction, dtype: DType, a: &str, b: &str) -> String {
        format!("{how:?}_{}({a}, {b})", suffix(dtype))
    }

    fn reduce(&self, how: Reduction, (value, dtype): (&str, DType), team: Team) -> String {
        if team.threads == 1 {
            return value.into();
        }
        let which = if team.along { "along" } else { "across" };
        format!("{which}_{how:?}_{}_{}_{}({value})", team.threads, team.rows, suffix(dtype))
    }

    fn together(&self, dtype: DType) -> usize {
        self.subgroup.filter(|_| dtype.size() <= 4).unwrap_or(1)
    }

    fn shuffle(&self, value: &str, from: &str) -> String {
        format!("subgroupShuffle({value}, u32({from}))")
    }

    fn meet(&self) -> String {
        "workgroupBarrier();".into()
    }

    fn leave(&self, (table, dtype, count): (usize, DType, usize), value: &str, at: &str, when: &str) -> String {
        format!(
            "workgroupBarrier();\nif ({when}) {{ left_{table}_{}_{count}[{at}] = {value}; }}\nworkgroupBarrier();",
            dtype.name()
        )
    }

    fn left(&self, (table, dtype, count): (usize, DType, usize), at: &str) -> String {
        format!("left_{table}_{}_{count}[{at}]", dtype.name())
    }

    fn set_cell(&self, table: (usize, DType, usize), at: &str, value: &str) -> String {
        format!("set_{}({at}, {value});", cells_of(table))
    }

    fn combine_cell(&self, how: Reduction, table: (usize, DType, usize), at: &str, value: &str) -> String {
        format!("{how:?}_into_{}(i32({at}), {value});", cells_of(table))
    }

    fn take_cell(&self, table: (usize, DType, usize), at: &str) -> String {
        format!("atomicAdd(&{}[{at}], 1)", cells_of(table))
    }

    fn cell(&self, table: (usize, DType, usize), at: &str) -> String {
        format!("get_{}({at})", cells_of(table))
    }

    fn kernel(&self, slots: &[(DType, usize)], block: usize, body: &str) -> String {
        self.text(slots, block, "", body)
    }

    fn div(&self, x: &str, by: i64, wide: bool, negative: bool) -> String {
        match (negative, wide) {
            (true, _) => format!("floor_div_{0}({x}, {0}({by}))", self.index(wide)),
            (false, false) => format!("i32(u32({x}) / {by}u)"),
            (false, true) => format!("({x} / i64({by}))"),
        }
    }

    fn modulo(&self, x: &str, by: i64, wide: bool, negative: bool) -> String {
        match (negative, wide) {
            (true, _) => format!("floor_mod_{0}({x}, {0}({by}))", self.index(wide)),
            (false, false) => format!("i32(u32({x}) % {by}u)"),
            (false, true) => format!("({x} % i64({by}))"),
        }
    }

    fn load(&self, slot: usize, at: &str) -> String {
        format!("load_s{slot}(i32({at}))")
    }

    fn load_lanes(
        &self,
        (slot, dtype): (usize, DType),
        at: &str,
        lanes: usize,
        name: &str,
        when: &str,
    ) -> (String, Vec<String>) {
        let (size, of) = (dtype.size(), suffix_in_memory(dtype));
        let bytes = lanes * size;
        // Each load takes `part` bytes, by the function `call` of the slot.
        let (part, call) = match () {
            () if bytes.is_multiple_of(16) => (16, "quad"),
            () if size < 4 && bytes >= 4 => (4, "word"),
            () => (size, "load"),
        };
        let element = if size < 4 { "u32" } else { register(dtype) };
        let ty = match call {
            "quad" => format!("vec{}<{element}>", 16 / size.max(4)),
            "word" => "u32".into(),
            _ => register(dtype).to_string(),
        };
        let count = bytes / part;
        let mut lines = vec![format!("let {name}_at = i32({at});")];
        let mut reads = String::new();
        for n in 0..count {
            lines.push(format!("var {name}_p{n}: {ty};"));
            let place =
                if part > size { format!("{name}_at / {} + {n}", part / size) } else { format!("{name}_at + {n}") };
            reads += &format!("{name}_p{n} = {call}_s{slot}({place}); ");
        }
        lines.push(if when == "true" { reads } else { format!("if ({when}) {{ {reads}}}") });
        let mut names = Vec::new();
        for lane in 0..lanes {
            let whole = |at: usize| match call {
                "quad" => format!("{name}_p{}[{}]", at / 16, at % 16 / size.max(4)),
                _ => format!("{name}_p{}", at / part),
            };
            let at = lane * size;
            let value = match size {
                _ if call == "load" => format!("{name}_p{lane}"),
                1 => format!("byte_{of}({}, {}u)", whole(at), at % 4),
                2 => format!("{}_{of}({})", if at % 4 == 0 { "low" } else { "high" }, whole(at)),
                _ => whole(at),
            };
            lines.push(format!("let {name}_{lane} = {value};"));
            names.push(format!("{name}_{lane}"));
        }
        (lines.join("\n"), names)
    }

    fn store(&self, slot: usize, at: &str, value: &str) -> String {
        format!("store_s{slot}(i32({at}), {value});")
    }

    fn store_combined(&self, how: Reduction, (slot, dtype): (usize, DType), at: &str, value: &str) -> String {
        match (how, dtype) {
            (Reduction::Sum, DType::F32) if self.float_atomics => format!("add_to_s{slot}(i32({at}), {value});"),
            _ => format!("{how:?}_into_s{slot}(i32({at}), {value});"),
        }
    }

    fn store_lanes(&self, (slot, dtype): (usize, DType), at: &str, values: &[String]) -> String {
        let (size, of) = (dtype.size(), suffix_in_memory(dtype));
        let bytes = values.len() * size;
        let words: Vec<String> = match size {
            1 if values.len() >= 4 => values.chunks(4).map(|v| format!("four_{of}({})", v.join(", "))).collect(),
            2 => values.chunks(2).map(|v| format!("pair_{of}({})", v.join(", "))).collect(),
            _ => values.to_vec(),
        };
        let (per, element) = (16 / size.max(4), if size < 4 { "u32" } else { register(dtype) });
        let statements: Vec<String> = match () {
            () if bytes.is_multiple_of(16) => words
                .chunks(per)
                .enumerate()
                .map(|(n, quad)| {
                    format!(
                        "put_quad_s{slot}(i32({at}) / {} + {n}, vec{per}<{element}>({}));",
                        16 / size,
                        quad.join(", ")
                    )
                })
                .collect(),
            () if size < 4 && bytes >= 4 => words
                .iter()
                .enumerate()
                .map(|(n, word)| format!("put_word_s{slot}(i32({at}) / {} + {n}, {word});", 4 / size))
                .collect(),
            () => values.iter().enumerate().map(|(n, value)| self.store(slot, &format!("{at} + {n}"), value)).collect(),
        };
        format!("{{ {} }}", statements.join(" "))
    }

    fn within(&self, (index, dtype): (&str, DType), ids: Ids, check: usize, counts: &str) -> String {
        let (ty, extent, back) = (register(dtype), ids.extent, if ids.from_end { ids.extent } else { 0 });
        format!("within_{}({index}, {ty}({extent}), {ty}({back}), {check}u, {counts})", suffix(dtype))
    }
}

/// Returns the name of a type in the functions that unpack words.
fn suffix_in_memory(dtype: DType) -> &'static str {
    dtype.name()
}
