//! WGSL to SPIR-V by naga, and what naga leaves unsaid of floating point and of buffers that are one memory.

use eutectic_gpu::launch::BEFORE_SLOTS;
use naga::{
    AddressSpace, ShaderStage,
    back::spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy, Layouter},
    valid::{Capabilities, ValidationFlags, Validator},
};

use crate::dialect::{FAULT, SLOTS, WORKSPACE};

/// A buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its number.
    pub number: u32,
    /// Which of a launch's arguments says where it begins.
    pub argument: usize,
    /// How many bytes the kernel sees.
    pub bytes: u64,
}

/// A compiled text.
#[derive(Clone, Debug)]
pub struct Spirv {
    /// Its words.
    pub words: Vec<u32>,
    /// Its buffers.
    pub bindings: Vec<Binding>,
    /// Whether it takes the step's number.
    pub arguments: bool,
}

/// What a device keeps of floats: signed zeros, infinities and NaN, for each of these widths.
pub type Kept = [(u32, bool); 3];

/// Compiles a text.
///
/// # Errors
/// What naga says, which is a defect of the backend.
pub fn compile(text: &str, kept: &Kept) -> Result<Spirv, String> {
    let defect = |why: String| format!("naga does not compile a printed kernel, a defect of the backend: {why}");
    let module = naga::front::wgsl::parse_str(text).map_err(|e| defect(e.emit_to_string(text)))?;
    // Reductions are called by all threads of a block, which naga cannot see of values that were exchanged.
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
    Ok(Spirv { words: complete(&words, kept), bindings, arguments })
}

const ENTRY_POINT: u32 = 15;
const EXECUTION_MODE: u32 = 16;
const CAPABILITY: u32 = 17;
const VARIABLE: u32 = 59;
const DECORATE: u32 = 71;
const STORAGE_BUFFER: u32 = 12;
const ALIASED: u32 = 20;
const SIGNED_ZERO_INF_NAN_PRESERVE: [u32; 2] = [4466, 4461];

/// Adds that signed zeros, infinities and NaN are kept where the module has floats of that width, and that buffers may be one memory: steps in place
/// read and write the same.
fn complete(words: &[u32], kept: &Kept) -> Vec<u32> {
    let mut instructions = Vec::new();
    let mut at = 5;
    while at < words.len() {
        let length = (words[at] >> 16) as usize;
        instructions.push(&words[at..at + length]);
        at += length;
    }
    let op = |instruction: &[u32]| instruction[0] & 0xffff;
    let buffers: Vec<u32> =
        instructions.iter().filter(|i| op(i) == VARIABLE && i[3] == STORAGE_BUFFER).map(|i| i[2]).collect();
    let has_floats = |width: u32| instructions.iter().any(|i| op(i) == 22 && i[2] == width);
    let kept: Vec<u32> =
        kept.iter().filter(|(width, kept)| *kept && has_floats(*width)).map(|(width, _)| *width).collect();
    let mut all = words[..5].to_vec();
    let (mut decorated, mut moded) = (false, false);
    if !kept.is_empty() {
        all.extend([2 << 16 | CAPABILITY, SIGNED_ZERO_INF_NAN_PRESERVE[0]]);
    }
    let entry = instructions.iter().find(|i| op(i) == ENTRY_POINT).map_or(0, |i| i[2]);
    for instruction in &instructions {
        if op(instruction) == EXECUTION_MODE && !moded {
            moded = true;
            for width in &kept {
                all.extend([4 << 16 | EXECUTION_MODE, entry, SIGNED_ZERO_INF_NAN_PRESERVE[1], *width]);
            }
        }
        if op(instruction) == DECORATE && !decorated {
            decorated = true;
            buffers.iter().for_each(|buffer| all.extend([3 << 16 | DECORATE, *buffer, ALIASED]));
        }
        all.extend_from_slice(instruction);
    }
    all
}

#[cfg(test)]
mod tests {
    use eutectic_gpu::dialect::Dialect;
    use eutectic_ir::DType;

    use super::*;
    use crate::dialect::Wgsl;

    /// Every function of the library compiles.
    #[test]
    fn the_library_is_right() {
        let wgsl = Wgsl { subgroup: Some(32) };
        let all = crate::library::all();
        let body: String = all.iter().map(|name| format!("// {name}\n")).collect();
        let text = wgsl.text(&[(DType::F32, 4)], 64, "", &(body + "store_s0(0, 1.0);\n"));
        compile(&text, &[(16, true), (32, true), (64, true)]).unwrap_or_else(|e| panic!("{e}"));
        for dtype in DType::ALL {
            assert!(!wgsl.literal(1.0, dtype).is_empty());
        }
    }
}
