//! The coefficients of the cost model, read from a file.

use serde::Deserialize;

/// The coefficients; see `costs/default.toml`, which explains each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Seconds of a kernel, whatever it does.
    pub launch: f64,
    /// Seconds until the other threads work on a kernel.
    pub wake: f64,
    /// What each further thread adds, of what the first one does.
    pub thread: f64,
    /// Bandwidths.
    pub memory: Memory,
    /// Rates of products.
    pub product: Product,
    /// Seconds of elements.
    pub element: Element,
    /// Which ops are not cheap.
    pub class: Class,
}

/// Bandwidths by working set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Largest working set, in bytes, that streams at `l2`.
    pub l2_bytes: f64,
    /// Largest working set, in bytes, that streams at `l3`.
    pub l3_bytes: f64,
    /// Bytes a second of one thread.
    pub l2: f64,
    /// As `l2`, beyond `l2_bytes`.
    pub l3: f64,
    /// As `l2`, beyond `l3_bytes`.
    pub dram: f64,
    /// As `dram`, of all threads together.
    pub dram_all: f64,
    /// How much of the shorter of computing and memory time passes over elements hide behind the longer.
    pub hidden: f64,
}

/// Rates of matrix products.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Operations a second of large products, in `f32` and narrower floats.
    pub f32: f64,
    /// As `f32`, in `f64`.
    pub f64: f64,
    /// As `f32`, of integers.
    pub other: f64,
    /// Rows at which a product reaches half of its rate.
    pub m_half: f64,
    /// Columns at which it does.
    pub n_half: f64,
    /// Length of its sums at which it does.
    pub k_half: f64,
    /// Seconds of an element that goes through a tile before it is stored.
    pub tile: f64,
    /// Seconds of each matrix of a batch.
    pub matrix: f64,
    /// Operations a second of a vector times a matrix in cache.
    pub vector: f64,
}

/// Seconds of an element.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// A pass in cache over `f32`.
    pub cheap: f64,
    /// A division or a root.
    pub division: f64,
    /// An exponential and what is made of one.
    pub transcendental: f64,
    /// A hyperbolic tangent, an error function.
    pub special: f64,
    /// A function that runs element by element.
    pub scalar: f64,
    /// A step of a reduction.
    pub reduce: f64,
    /// A copied element of a load or store whose neighbours are apart.
    pub strided: f64,
    /// A run of a load that is walked.
    pub run: f64,
    /// What a value that needs no load takes at least, an element of the domain, however few it has: each tile computes it.
    pub step: f64,
    /// A line of a load that is read in place.
    pub in_place: f64,
    /// A line that is too short for that and copied.
    pub short: f64,
    /// A line of a left operand that is copied for a product.
    pub line: f64,
    /// An element of such a line.
    pub copy: f64,
    /// Factor of `f64`.
    pub f64: f64,
    /// Factor of the other element types.
    pub other: f64,
    /// A score, besides its products.
    pub softmax: f64,
}

/// Which ops are not cheap, by name or kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Those that cost [`Element::division`].
    pub division: Vec<String>,
    /// Those that cost [`Element::transcendental`].
    pub transcendental: Vec<String>,
    /// Those that cost [`Element::special`].
    pub special: Vec<String>,
    /// Those that cost [`Element::scalar`].
    pub scalar: Vec<String>,
}

impl Default for Costs {
    /// The embedded file.
    fn default() -> Costs {
        Costs::parse(include_str!("../../costs/default.toml")).expect("the embedded file is checked by a test")
    }
}

impl Costs {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Where the text is not such a file.
    pub fn parse(text: &str) -> Result<Costs, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::DType;

    use super::*;
    use crate::simd::table;

    #[test]
    fn the_embedded_costs_parse_and_name_functions_that_exist() {
        let class = Costs::default().class;
        let all = [class.division, class.transcendental, class.special, class.scalar].concat();
        let unknown: Vec<_> = all.iter().filter(|n| !table::names(DType::F32).any(|known| known == **n)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn a_misspelled_coefficient_is_an_error() {
        let text = include_str!("../../costs/default.toml").replace("launch", "lunch");
        assert!(Costs::parse(&text).unwrap_err().to_string().contains("lunch"));
    }
}
