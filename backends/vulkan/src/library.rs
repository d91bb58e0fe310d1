//! The functions of `text/prelude.wgsl`, by name. A kernel's text gets the functions that it mentions, because WGSL has
//! neither templates nor includes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use eutectic_backend::DTypes;
use eutectic_ir::DType;

/// The types of values in registers. Kernels with other element types are refused.
const REGISTERS: [(DType, &str); 10] = [
    (DType::F32, "f32"),
    (DType::F64, "f64"),
    (DType::F16, "f32"),
    (DType::Bf16, "f32"),
    (DType::I8, "i32"),
    (DType::U8, "u32"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::U32, "u32"),
    (DType::Bool, "bool"),
];

/// Returns the element types that kernels can have.
pub fn dtypes() -> DTypes {
    DTypes::of(REGISTERS.map(|(dtype, _)| dtype))
}

/// Returns the element types that kernels combine in memory by atomics.
pub fn combined() -> DTypes {
    DTypes::of([DType::F32, DType::I8, DType::U8, DType::I32, DType::U32])
}

/// Returns the type of a value in a register.
pub fn register(dtype: DType) -> &'static str {
    let named = REGISTERS.iter().find(|(known, _)| *known == dtype);
    named.unwrap_or_else(|| unreachable!("kernels of {dtype} are refused")).1
}

/// The text of each function and struct, by name.
static FUNCTIONS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let mut functions = BTreeMap::new();
    for part in include_str!("text/prelude.wgsl").split("\n//# ").skip(1) {
        let (types, text) = part.split_once('\n').expect("a section begins with a line of types");
        for name in types.split_whitespace() {
            let dtype =
                DType::ALL.iter().find(|dtype| dtype.name() == name).expect("a section names known element types");
            let text = text.replace("$D", name).replace("$T", register(*dtype));
            for item in items(&text) {
                let name = item
                    .split_whitespace()
                    .nth(1)
                    .and_then(|head| head.split('(').next())
                    .expect("functions and structs have names");
                functions.insert(name.to_string(), item);
            }
        }
    }
    functions
});

/// Returns the functions and structs of a text. Each begins at the line of its keyword, and ends before the next one.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        match items.last_mut() {
            _ if line.starts_with("fn ") || line.starts_with("struct ") => items.push(format!("{line}\n")),
            Some(item) if !line.is_empty() => *item += &format!("{line}\n"),
            _ => {}
        }
    }
    items
}

/// Returns whether the library has a function.
pub fn has(name: &str) -> bool {
    FUNCTIONS.contains_key(name)
}

/// Returns the names that a text mentions.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// Returns the functions that texts mention, directly or through other functions.
pub fn needed(texts: &[&str]) -> String {
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut todo: Vec<&str> = texts.iter().flat_map(|text| names(text)).collect();
    while let Some(name) = todo.pop() {
        if let Some((name, text)) = FUNCTIONS.get_key_value(name)
            && taken.insert(name)
        {
            todo.extend(names(text));
        }
    }
    taken.into_iter().map(|name| FUNCTIONS[name].as_str()).collect()
}

/// Returns the suffix of a type in names of functions. 16-bit floats are computed in 32 bits.
pub fn suffix(dtype: DType) -> &'static str {
    dtype.register().name()
}

/// Returns the names of all functions.
#[cfg(test)]
pub fn all() -> Vec<&'static str> {
    FUNCTIONS.keys().map(String::as_str).collect()
}
