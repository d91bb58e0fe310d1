//! CUDA C++, over the functions of `text/prelude.cu`.

use eutectic_backend::DTypes;
use eutectic_gpu::dialect::{Dialect, Team};
use eutectic_ir::{
    DType,
    ops::{Ids, Reduction},
};

/// The dialect of CUDA C++.
pub struct CudaC;

/// Returns the head of a kernel's text: functions, and the struct of its arguments. The methods of the struct use the
/// arguments by name.
pub fn arguments(slots: &[(DType, usize)], before: &str, methods: &str) -> String {
    arguments_of(slots, &|_| true, before, methods)
}

/// Returns the head of the text of a kernel that writes only some of its buffers. All others are constant.
pub fn arguments_of(
    slots: &[(DType, usize)],
    is_written: &dyn Fn(usize) -> bool,
    before: &str,
    methods: &str,
) -> String {
    let of = |(n, slot): (usize, &(DType, usize))| {
        let ty = CudaC.memory(slot.0);
        if is_written(n) { format!("    {ty}* s{n};\n") } else { format!("    const {ty}* s{n};\n") }
    };
    let fields: String = slots.iter().enumerate().map(of).collect();
    let later: String = (0..slots.len()).map(|n| format!(" later(s{n});")).collect();
    let prelude = include_str!("text/prelude.cu");
    let own = "    void* workspace;\n    Fault* fault;\n    i64 step;\n";
    let follow = format!(
        "template <bool IS_SHORT = false> METHOD void follow() {{ \
         wait_for_kernels_before<IS_SHORT>(); later(workspace); later(fault);{later} }}\n"
    );
    format!("{prelude}\n{before}\nstruct Slots {{\n{own}{fields}{follow}{methods}}};\n")
}

/// Returns a method of the struct of arguments.
pub fn method(head: &str, body: &str) -> String {
    format!("METHOD {head} const {{\n{body}}}\n")
}

/// The blocks of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Threads of a block.
    pub threads: usize,
    /// The number of blocks per processor for which the compiler leaves registers.
    pub resident: usize,
}

/// Returns a kernel function whose body runs after all earlier kernels have ended.
pub fn entry(blocks: BlockShape, body: &str) -> String {
    entry_with(blocks, "", "", &format!("slots.follow(); {body}"))
}

/// Returns the function of a short kernel. If the kernel has few blocks, the next kernel starts while this one waits.
pub fn short_entry(block: usize, body: &str) -> String {
    let blocks = BlockShape { threads: block, resident: 1 };
    entry_with(blocks, "", "", &format!("slots.follow<true>(); {body}"))
}

/// Returns a kernel function with an attribute for clusters or a further parameter. The kernel may start before earlier
/// kernels have ended. Its body must therefore call `follow` of the arguments, which waits for them, before it reads or
/// writes.
pub fn entry_with(blocks: BlockShape, together: &str, parameter: &str, body: &str) -> String {
    let BlockShape { threads, resident } = blocks;
    format!(
        "KERNEL({threads}, {resident}) {together}kernel(PARAMETER Slots arguments{parameter}) {{ \
         Slots slots = arguments; {body} let_kernels_start(); }}\n"
    )
}

/// Returns the attribute for clusters of `blocks` blocks; nothing for one block.
pub fn clusters(blocks: usize) -> String {
    if blocks > 1 { format!("CLUSTER({blocks}) ") } else { String::new() }
}

/// The names of element types in memory. Kernels with other types are refused.
const TYPES: [(DType, &str); 10] = [
    (DType::F32, "float"),
    (DType::F64, "double"),
    (DType::F16, "f16"),
    (DType::Bf16, "bf16"),
    (DType::I8, "signed char"),
    (DType::U8, "unsigned char"),
    (DType::I32, "int"),
    (DType::I64, "i64"),
    (DType::U32, "unsigned"),
    (DType::Bool, "bool"),
];

/// Returns the element types that kernels can have.
pub fn dtypes() -> DTypes {
    DTypes::of(TYPES.map(|(dtype, _)| dtype))
}

/// Returns the element types that kernels combine in memory by atomics.
pub fn combined() -> DTypes {
    [DType::F16, DType::Bf16, DType::Bool].into_iter().fold(dtypes(), DTypes::without)
}

/// The templates of activations for 16-bit floats, whose functions are cheaper.
const HALF_TEMPLATES: &[(&str, &str)] = &[
    ("gelu-erf", "quick_gelu_erf($0)"),
    ("gelu-tanh", "quick_gelu_tanh($0)"),
    ("silu", "($0 * quick_sigmoid($0))"),
    ("sigmoid", "quick_sigmoid($0)"),
];

impl Dialect for CudaC {
    fn half_templates(&self) -> &'static [(&'static str, &'static str)] {
        HALF_TEMPLATES
    }

    fn register(&self, dtype: DType) -> &'static str {
        self.memory(dtype.register())
    }

    fn memory(&self, dtype: DType) -> &'static str {
        let named = TYPES.iter().find(|(known, _)| *known == dtype);
        named.unwrap_or_else(|| unreachable!("kernels of {dtype} are refused")).1
    }

    fn integer(&self, n: i64) -> String {
        if n == i64::MIN { "(-9223372036854775807ll - 1)".into() } else { format!("({n}ll)") }
    }

    fn literal(&self, value: f64, dtype: DType) -> String {
        match dtype {
            DType::F64 if value.is_finite() => format!("({value:?})"),
            DType::F64 => format!("as_double({:#x}ull)", value.to_bits()),
            dtype if dtype.is_float() => match value as f32 {
                finite if finite.is_finite() => format!("({finite:?}f)"),
                other => format!("as_float({:#x}u)", other.to_bits()),
            },
            DType::Bool => (value != 0.0).to_string(),
            DType::I64 => self.integer(value as i64),
            _ => format!("({})({}ll)", self.register(dtype), value as i64),
        }
    }

    fn index(&self, wide: bool) -> &'static str {
        if wide { "i64" } else { "int" }
    }

    fn each_point(&self, name: &str, below: usize, block: usize) -> String {
        let ty = self.index(below >= 1 << 30);
        format!(
            "for ({ty} {name} = ({ty})blockIdx.x * {block} + threadIdx.x; {name} < {below}; {name} += ({ty})gridDim.x * {block}) {{"
        )
    }

    fn place(&self, thread: &str, block: &str) -> String {
        format!("const int {thread} = threadIdx.x, {block} = blockIdx.x;")
    }

    fn function(&self, name: &str, dtype: DType, _: DType) -> Option<String> {
        Some(match name {
            // The type of the result does not follow from the arguments.
            "saturate" => format!("saturate<{}>", self.register(dtype)),
            // Conversions to narrow types wrap around.
            "wrap" => self.conversion(self.register(dtype)),
            _ => name.into(),
        })
    }

    fn reduce(&self, how: Reduction, (value, _): (&str, DType), team: Team) -> String {
        if team.blocks > 1 {
            return format!("reduce_clusters<{how:?}, {}, {}>({value})", team.threads, team.blocks);
        }
        let which = if team.along { "along" } else { "across" };
        format!("reduce_{which}<{how:?}, {}, {}>({value})", team.threads, team.rows)
    }

    fn together(&self, _: DType) -> usize {
        32
    }

    fn shuffle(&self, value: &str, from: &str) -> String {
        format!("value_of({value}, {from})")
    }

    fn meet(&self) -> String {
        "__syncthreads();".into()
    }

    fn leave(&self, (table, _, count): (usize, DType, usize), value: &str, at: &str, when: &str) -> String {
        format!("leave<{table}, {count}>({value}, {at}, {when});")
    }

    fn left(&self, (table, dtype, count): (usize, DType, usize), at: &str) -> String {
        format!("left<{table}, {count}, {}>()[{at}]", self.register(dtype))
    }

    fn combine_cell(
        &self,
        how: Reduction,
        (table, dtype, count): (usize, DType, usize),
        at: &str,
        value: &str,
    ) -> String {
        format!("combine<{how:?}>(left<{table}, {count}, {}>() + {at}, {value});", self.register(dtype))
    }

    fn take_cell(&self, (table, dtype, count): (usize, DType, usize), at: &str) -> String {
        format!("atomicAdd(left<{table}, {count}, {}>() + {at}, 1)", self.register(dtype))
    }

    fn kernel(&self, slots: &[(DType, usize)], block: usize, body: &str) -> String {
        arguments(slots, "", &method("void run()", body)) + &short_entry(block, "slots.run();")
    }

    fn kernel_of_clusters(&self, slots: &[(DType, usize)], block: usize, cluster: usize, body: &str) -> String {
        arguments(slots, "", &method("void run()", body))
            + &entry_with(
                BlockShape { threads: block, resident: 1 },
                &clusters(cluster),
                "",
                "slots.follow(); slots.run();",
            )
    }

    fn div(&self, x: &str, by: i64, wide: bool, negative: bool) -> String {
        match (negative, wide) {
            (true, _) => format!("floor_div({x}, ({}){by})", self.index(wide)),
            (false, false) => format!("(int)((unsigned){x} / {by}u)"),
            (false, true) => format!("(i64)((u64){x} / {by}ull)"),
        }
    }

    fn modulo(&self, x: &str, by: i64, wide: bool, negative: bool) -> String {
        match (negative, wide) {
            (true, _) => format!("floor_mod({x}, ({}){by})", self.index(wide)),
            (false, false) => format!("(int)((unsigned){x} % {by}u)"),
            (false, true) => format!("(i64)((u64){x} % {by}ull)"),
        }
    }

    fn load(&self, slot: usize, at: &str) -> String {
        format!("load(s{slot}, {at})")
    }

    fn load_lanes(
        &self,
        slot: (usize, DType),
        at: &str,
        lanes: usize,
        name: &str,
        when: &str,
    ) -> (String, Vec<String>) {
        let line = format!("const auto {name} = load_pack<{lanes}>(s{}, {at}, {when});", slot.0);
        (line, (0..lanes).map(|lane| format!("{name}.get({lane})")).collect())
    }

    fn store(&self, slot: usize, at: &str, value: &str) -> String {
        format!("store(s{slot}, {at}, {value});")
    }

    fn store_combined(&self, how: Reduction, (slot, _): (usize, DType), at: &str, value: &str) -> String {
        format!("combine<{how:?}>(s{slot} + {at}, {value});")
    }

    fn store_lanes(&self, slot: (usize, DType), at: &str, values: &[String]) -> String {
        let sets: String = values.iter().enumerate().map(|(n, value)| format!("pack.set({n}, {value}); ")).collect();
        let (ty, lanes) = (self.memory(slot.1), values.len());
        format!("{{ Pack<{ty}, {lanes}> pack; {sets}store_pack<{lanes}>(s{}, {at}, pack); }}", slot.0)
    }

    fn within(&self, (index, _): (&str, DType), ids: Ids, check: usize, counts: &str) -> String {
        let (extent, back) = (ids.extent, if ids.from_end { ids.extent } else { 0 });
        format!("within({index}, {extent}, {back}, {counts}, fault, step, {check})")
    }
}
