//! The coefficients of the cost model, read from a file.

use serde::{Deserialize, Deserializer, Serialize, de};

/// A number that a cost can be: positive and finite.
fn positive<'de, D: Deserializer<'de>>(text: D) -> Result<f64, D::Error> {
    let x = f64::deserialize(text)?;
    let why = || de::Error::custom(format!("{x} is no cost: it must be positive and finite"));
    (x > 0.0 && x.is_finite()).then_some(x).ok_or_else(why)
}

/// A share of a whole.
fn share<'de, D: Deserializer<'de>>(text: D) -> Result<f64, D::Error> {
    let x = f64::deserialize(text)?;
    (0.0..=1.0).contains(&x).then_some(x).ok_or_else(|| de::Error::custom(format!("{x} is no share: it lies in 0..=1")))
}

/// The coefficients; see `costs/default.toml`, which explains each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Seconds of a kernel, whatever it does.
    #[serde(deserialize_with = "positive")]
    pub launch: f64,
    /// Seconds until the other threads work on a kernel.
    #[serde(deserialize_with = "positive")]
    pub wake: f64,
    /// What each further thread adds, of what the first one does.
    #[serde(deserialize_with = "share")]
    pub thread: f64,
    /// Bandwidths.
    pub memory: MemoryCosts,
    /// Rates of products.
    pub product: ProductCosts,
    /// Seconds of elements.
    pub element: ElementCosts,
    /// Which ops are not cheap.
    pub class: OpClasses,
}

/// Bandwidths by working set.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    /// Largest working set, in bytes, that streams at `l2`.
    #[serde(deserialize_with = "positive")]
    pub l2_bytes: f64,
    /// Largest working set, in bytes, that streams at `l3`.
    #[serde(deserialize_with = "positive")]
    pub l3_bytes: f64,
    /// Bytes a second of one thread.
    #[serde(deserialize_with = "positive")]
    pub l2: f64,
    /// As `l2`, beyond `l2_bytes`.
    #[serde(deserialize_with = "positive")]
    pub l3: f64,
    /// As `l2`, beyond `l3_bytes`.
    #[serde(deserialize_with = "positive")]
    pub dram: f64,
    /// As `dram`, of all threads together.
    #[serde(deserialize_with = "positive")]
    pub dram_all: f64,
    /// How much of the shorter of computing and memory time passes over elements hide behind the longer.
    #[serde(deserialize_with = "share")]
    pub hidden: f64,
}

/// Rates of matrix products.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProductCosts {
    /// Operations a second of large products, in `f32` and narrower floats.
    #[serde(deserialize_with = "positive")]
    pub f32: f64,
    /// As `f32`, in `f64`.
    #[serde(deserialize_with = "positive")]
    pub f64: f64,
    /// As `f32`, of integers.
    #[serde(deserialize_with = "positive")]
    pub other: f64,
    /// Operations a second of sums side by side, in `f32`: along an axis of the result, a vector for each term.
    #[serde(deserialize_with = "positive")]
    pub lanes: f64,
    /// Rows at which a product reaches half of its rate.
    #[serde(deserialize_with = "positive")]
    pub m_half: f64,
    /// Columns at which it does.
    #[serde(deserialize_with = "positive")]
    pub n_half: f64,
    /// Length of its sums at which it does.
    #[serde(deserialize_with = "positive")]
    pub k_half: f64,
    /// Seconds of an element that goes through a tile before it is stored.
    #[serde(deserialize_with = "positive")]
    pub tile: f64,
    /// Seconds of each matrix of a batch.
    #[serde(deserialize_with = "positive")]
    pub matrix: f64,
    /// Operations a second of a vector times a matrix in cache.
    #[serde(deserialize_with = "positive")]
    pub vector: f64,
}

/// Seconds of an element.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ElementCosts {
    /// A pass in cache over `f32`.
    #[serde(deserialize_with = "positive")]
    pub cheap: f64,
    /// A division or a root.
    #[serde(deserialize_with = "positive")]
    pub division: f64,
    /// An exponential and what is made of one.
    #[serde(deserialize_with = "positive")]
    pub transcendental: f64,
    /// A hyperbolic tangent, an error function.
    #[serde(deserialize_with = "positive")]
    pub special: f64,
    /// A function that runs element by element.
    #[serde(deserialize_with = "positive")]
    pub scalar: f64,
    /// A step of a reduction.
    #[serde(deserialize_with = "positive")]
    pub reduce: f64,
    /// A row that is reduced, however short.
    #[serde(deserialize_with = "positive")]
    pub row: f64,
    /// A copied element of a load or store whose neighbours are apart.
    #[serde(deserialize_with = "positive")]
    pub strided: f64,
    /// As `strided`, where neighbours along another axis of the tile lie side by side: squares are transposed in registers.
    #[serde(deserialize_with = "positive")]
    pub square: f64,
    /// A stored element of a product whose neighbours in memory are stored when it has left the caches.
    #[serde(deserialize_with = "positive")]
    pub scattered: f64,
    /// A run of a load that is walked.
    #[serde(deserialize_with = "positive")]
    pub run: f64,
    /// An element of a load that is read by itself, because its neighbours lie wherever an index says.
    #[serde(deserialize_with = "positive")]
    pub gather: f64,
    /// What a value that needs no load takes at least, an element of the domain, however few it has: each tile computes it.
    #[serde(deserialize_with = "positive")]
    pub step: f64,
    /// A line of a load that is read in place.
    #[serde(deserialize_with = "positive")]
    pub in_place: f64,
    /// A line that is too short for that and copied.
    #[serde(deserialize_with = "positive")]
    pub short: f64,
    /// A line of a left operand that is copied for a product.
    #[serde(deserialize_with = "positive")]
    pub line: f64,
    /// An element of such a line.
    #[serde(deserialize_with = "positive")]
    pub copy: f64,
    /// Factor of `f64`.
    #[serde(deserialize_with = "positive")]
    pub f64: f64,
    /// Factor of 64-bit integers.
    #[serde(deserialize_with = "positive")]
    pub i64: f64,
    /// Factor of the other element types.
    #[serde(deserialize_with = "positive")]
    pub other: f64,
    /// A score, besides its products.
    #[serde(deserialize_with = "positive")]
    pub softmax: f64,
}

/// Which ops are not cheap, by name or kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OpClasses {
    /// Those that cost [`ElementCosts::division`].
    pub division: Vec<String>,
    /// Those that cost [`ElementCosts::transcendental`].
    pub transcendental: Vec<String>,
    /// Those that cost [`ElementCosts::special`].
    pub special: Vec<String>,
    /// Those that cost [`ElementCosts::scalar`].
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
    /// Where the text is not such a file, or a number in it is no cost.
    pub fn parse(text: &str) -> Result<Costs, toml::de::Error> {
        toml::from_str(text)
    }

    /// The text of a file that has these coefficients.
    ///
    /// # Errors
    /// Never for coefficients that can be parsed.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
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
