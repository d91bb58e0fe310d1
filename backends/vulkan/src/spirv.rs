//! Compiles WGSL to SPIR-V by naga.

use eutectic_gpu::{cache::Cache, launch::BEFORE_SLOTS};
use eutectic_ir::DType;
use naga::{
    AddressSpace, ShaderStage,
    back::spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy, Layouter},
    valid::{Capabilities, ValidationFlags, Validator},
};

use crate::{
    access::{FAULT, SLOTS, WORKSPACE},
    units,
    words::{self, FloatControl},
};

/// A buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The number of the binding.
    pub number: u32,
    /// The number of the launch's argument that is the buffer's address.
    pub argument: usize,
    /// The bytes that the kernel can access.
    pub bytes: u64,
}

/// A compiled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spirv {
    /// The words of the module.
    pub words: Vec<u32>,
    /// The buffers that the kernel accesses.
    pub bindings: Vec<Binding>,
    /// Whether the kernel takes the step's number.
    pub arguments: bool,
}

/// The version and options of the compiler. Cached results of another version are not used.
const NAGA: &str = "naga 30.0.1, arithmetic as written";

/// Returns a compiled text, from the cache if possible.
///
/// # Errors
/// Returns the errors of [`compile`].
pub fn cached(cache: Option<&Cache>, text: &str, kept: &[(u32, FloatControl)]) -> Result<Spirv, String> {
    let Some(cache) = cache else { return compile(text, kept) };
    let name = Cache::name(&[NAGA, env!("CARGO_PKG_VERSION"), &format!("{kept:?}"), text], "spv");
    if let Some(code) = cache.read(&name).and_then(|file| Spirv::from_file(&file)) {
        return Ok(code);
    }
    let code = compile(text, kept)?;
    cache.write(&name, &code.to_file());
    Ok(code)
}

impl Spirv {
    /// Returns whether the module computes in a 64-bit type.
    pub fn has(&self, dtype: DType) -> bool {
        let capability = match dtype {
            DType::F64 => words::FLOAT64,
            DType::I64 => words::INT64,
            _ => return false,
        };
        words::instructions(&self.words).any(|i| words::op(i) == words::CAPABILITY && i[1] == capability)
    }

    /// Returns the contents of a file with the bindings and the words of the module.
    fn to_file(&self) -> Vec<u8> {
        let mut words = vec![u32::from(self.arguments), self.bindings.len() as u32];
        for Binding { number, argument, bytes } in &self.bindings {
            words.extend([*number, *argument as u32, *bytes as u32, (bytes >> 32) as u32]);
        }
        words.extend(&self.words);
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn from_file(file: &[u8]) -> Option<Spirv> {
        let words: Vec<u32> = file.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (&[arguments, bindings], rest) = words.split_first_chunk()?;
        let (bindings, words) = rest.split_at_checked((bindings as usize).checked_mul(4)?)?;
        let binding = |&[number, argument, low, high]: &[u32; 4]| Binding {
            number,
            argument: argument as usize,
            bytes: u64::from(high) << 32 | u64::from(low),
        };
        let bindings = bindings.as_chunks().0.iter().map(binding).collect();
        Some(Spirv { words: words.to_vec(), bindings, arguments: arguments != 0 })
    }
}

/// Compiles a text.
///
/// # Errors
/// Returns the messages of naga, which mean a defect of the backend.
pub fn compile(text: &str, kept: &[(u32, FloatControl)]) -> Result<Spirv, String> {
    let defect = |why: String| format!("naga cannot compile a printed kernel, a defect of the backend: {why}");
    let operands = units::operands(text);
    let text = &match operands {
        Some(_) => format!("{}{text}", units::ENABLE),
        None => text.to_string(),
    };
    let module = naga::front::wgsl::parse_str(text).map_err(|e| defect(e.emit_to_string(text)))?;
    // Reductions have barriers, which all threads of a block reach. naga cannot prove this for branches on values that
    // threads exchanged, so its check is off.
    let flags = ValidationFlags::all() - ValidationFlags::CONTROL_FLOW_UNIFORMITY;
    let mut validator = Validator::new(flags, Capabilities::all());
    let info = validator.validate(&module).map_err(|e| defect(e.emit_to_string(text)))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = Options {
        lang_version: (1, 6),
        flags: WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Options::default()
    };
    let entry = PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
    let words = write_vec(&module, &info, &options, Some(&entry)).map_err(|e| defect(e.to_string()))?;
    let mut layouts = Layouter::default();
    layouts.update(module.to_ctx()).map_err(|e| defect(e.to_string()))?;
    let mut bindings = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let number = binding.binding;
        let argument = match number as usize {
            WORKSPACE => 0,
            FAULT => 1,
            slot => BEFORE_SLOTS + slot - SLOTS,
        };
        bindings.push(Binding { number, argument, bytes: u64::from(layouts[variable.ty].size) });
    }
    let arguments = module.global_variables.iter().any(|(_, v)| v.space == AddressSpace::Immediate);
    let words = words::complete(&words, kept);
    let words = operands.map_or_else(|| words.clone(), |dtype| words::with_matrices(&words, dtype));
    Ok(Spirv { words, bindings, arguments })
}

#[cfg(test)]
mod tests {
    use eutectic_gpu::dialect::Dialect;
    use eutectic_ir::DType;

    use super::*;
    use crate::{dialect::Wgsl, features::MatrixUnits};

    const KEPT: [(u32, FloatControl); 4] = [
        (16, FloatControl::SIGNED_ZEROS_INFINITIES_NAN),
        (32, FloatControl::SIGNED_ZEROS_INFINITIES_NAN),
        (64, FloatControl::SIGNED_ZEROS_INFINITIES_NAN),
        (32, FloatControl::SUBNORMALS),
    ];

    /// Every function of the library compiles.
    #[test]
    fn the_library_is_right() {
        let wgsl = Wgsl { subgroup: Some(32), matrices: MatrixUnits::default(), float_atomics: true };
        let all = crate::library::all();
        let body: String = all.iter().map(|name| format!("// {name}\n")).collect();
        let text = wgsl.text(&[(DType::F32, 4)], 64, "", &(body + "store_s0(0, 1.0);\n"));
        compile(&text, &KEPT).unwrap_or_else(|e| panic!("{e}"));
        for dtype in DType::ALL.into_iter().filter(|dtype| crate::library::dtypes().contains(*dtype)) {
            assert!(!wgsl.literal(1.0, dtype).is_empty());
        }
    }

    #[test]
    fn what_the_cache_gives_is_what_was_compiled() {
        let wgsl = Wgsl { subgroup: None, matrices: MatrixUnits::default(), float_atomics: false };
        let slots = [(DType::F64, 4), (DType::I32, 12)];
        let text = wgsl.text(&slots, 64, "", "store_s0(0, f64(load_s1(3)));\n");
        let code = compile(&text, &KEPT).unwrap_or_else(|e| panic!("{e}"));
        assert!(code.has(DType::F64) && !code.has(DType::I64));
        assert_eq!(code.bindings.iter().map(|b| (b.argument, b.bytes)).collect::<Vec<_>>(), [(3, 32), (4, 48)]);
        assert_eq!(Spirv::from_file(&code.to_file()), Some(code));
        assert_eq!(Spirv::from_file(&[1, 0, 0, 0, 200, 0, 0, 0, 1, 2, 3, 4]), None);
    }

    #[test]
    fn the_cache_is_of_the_compiler_that_is_there() {
        let lock = include_str!("../../../Cargo.lock");
        let version = lock.split("name = \"naga\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
        let naga = version.map(|version| format!("naga {version},"));
        assert!(naga.is_some_and(|naga| NAGA.starts_with(&naga)));
    }
}
