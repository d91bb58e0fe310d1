//! The coefficients of the cost model, read from a file.

use serde::{Deserialize, Serialize, de::Error};

/// Refuses a number that no cost is.
fn positive(x: f64) -> Result<(), String> {
    let cost = x > 0.0 && x.is_finite();
    if cost { Ok(()) } else { Err(format!("{x} is no cost: it must be positive and finite")) }
}

/// Refuses a number that is no share of a whole.
fn share(x: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&x) { Ok(()) } else { Err(format!("{x} is no share: it lies in 0..=1")) }
}

/// Declares a part of the file: numbers, each with what it must be. They are checked once all are read: a
/// `deserialize_with` for each of them takes seconds to compile.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $number:ident: $check:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$about])* pub $number: f64,)*
        }

        impl $name {
            fn check(&self, part: &str) -> Result<(), String> {
                let numbers: &[(&str, f64, fn(f64) -> Result<(), String>)] =
                    &[$((stringify!($number), self.$number, $check)),*];
                numbers.iter().try_for_each(|(name, x, check)| check(*x).map_err(|why| format!("{part}.{name}: {why}")))
            }
        }
    };
}

/// The coefficients; see `costs/default.toml`, which explains each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Seconds of a kernel, whatever it does.
    pub launch: f64,
    /// Seconds until the other threads work on a kernel.
    pub wake: f64,
    /// What each further thread adds, of what the first one does.
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

numbers! {
    /// Bandwidths by working set.
    MemoryCosts {
        /// Largest working set, in bytes, that streams at `l2`.
        l2_bytes: positive,
        /// Largest working set, in bytes, that streams at `l3`.
        l3_bytes: positive,
        /// Bytes a second of one thread.
        l2: positive,
        /// As `l2`, beyond `l2_bytes`.
        l3: positive,
        /// As `l2`, beyond `l3_bytes`.
        dram: positive,
        /// As `dram`, of all threads together.
        dram_all: positive,
        /// How much of the shorter of computing and memory time passes over elements hide behind the longer.
        hidden: share,
    }
}

numbers! {
    /// Rates of matrix products.
    ProductCosts {
        /// Operations a second of large products, in `f32` and narrower floats.
        f32: positive,
        /// As `f32`, in `f64`.
        f64: positive,
        /// As `f32`, of integers.
        other: positive,
        /// Operations a second of sums side by side, in `f32`: along an axis of the result, a vector for each term.
        lanes: positive,
        /// Rows at which a product reaches half of its rate.
        m_half: positive,
        /// Columns at which it does.
        n_half: positive,
        /// Length of its sums at which it does.
        k_half: positive,
        /// Seconds of an element that goes through a tile before it is stored.
        tile: positive,
        /// Seconds of each matrix of a batch.
        matrix: positive,
        /// Operations a second of a vector times a matrix in cache.
        vector: positive,
        /// Seconds of an element of 8 bits of a packed operand, which kernels convert as they read it.
        decode: positive,
        /// Seconds of a weight of a packed operand that kernels decode from a code with the scale of its block.
        code: positive,
    }
}

numbers! {
    /// Seconds of an element.
    ElementCosts {
        /// A pass in cache over `f32`.
        cheap: positive,
        /// A division or a root.
        division: positive,
        /// An exponential and what is made of one.
        transcendental: positive,
        /// A hyperbolic tangent, an error function.
        special: positive,
        /// A function that runs element by element.
        scalar: positive,
        /// A step of a reduction.
        reduce: positive,
        /// A row that is reduced, however short.
        row: positive,
        /// A copied element of a load or store whose neighbours are apart.
        strided: positive,
        /// As `strided`, where neighbours along another axis of the tile lie side by side: squares are transposed in
        /// registers.
        square: positive,
        /// A stored element of a product whose neighbours in memory are stored when it has left the caches.
        scattered: positive,
        /// A run of a load that is walked.
        run: positive,
        /// An element of a load that is read by itself, because its neighbours lie wherever an index says.
        gather: positive,
        /// A run of a load that lies wherever an index says, in a buffer larger than the caches.
        far: positive,
        /// What a value that needs no load takes at least, an element of the domain, however few it has: each tile
        /// computes it.
        step: positive,
        /// A line of a load that is read in place.
        in_place: positive,
        /// A line that is too short for that and copied.
        short: positive,
        /// A line of a left operand that is copied for a product.
        line: positive,
        /// An element of such a line.
        copy: positive,
        /// Factor of `f64`.
        f64: positive,
        /// Factor of 64-bit integers.
        i64: positive,
        /// Factor of the other element types.
        other: positive,
        /// A score, besides its products.
        softmax: positive,
    }
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
        Costs::from_table(toml::from_str(text)?)
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// As of [`Costs::parse`].
    pub fn from_table(table: toml::Table) -> Result<Costs, toml::de::Error> {
        let costs = Costs::deserialize(table)?;
        costs.check().map_err(toml::de::Error::custom)?;
        Ok(costs)
    }

    fn check(&self) -> Result<(), String> {
        positive(self.launch).map_err(|why| format!("launch: {why}"))?;
        positive(self.wake).map_err(|why| format!("wake: {why}"))?;
        share(self.thread).map_err(|why| format!("thread: {why}"))?;
        self.memory.check("memory")?;
        self.product.check("product")?;
        self.element.check("element")
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
    fn a_number_that_is_none_is_named() {
        let text = include_str!("../../costs/default.toml");
        for (name, old, new, why) in [
            ("launch", "launch = ", "launch = -", "is no cost"),
            ("thread", "thread = ", "thread = 1", "is no share"),
            ("memory.hidden", "hidden = ", "hidden = 7", "is no share"),
            ("product.m_half", "\nm_half = ", "\nm_half = nan #", "is no cost"),
            ("element.cheap", "\ncheap = ", "\ncheap = inf #", "is no cost"),
        ] {
            assert!(text.contains(old), "{old}");
            let told = Costs::parse(&text.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(told.contains(&format!("{name}: ")) && told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_misspelled_coefficient_is_an_error() {
        let text = include_str!("../../costs/default.toml").replace("launch", "lunch");
        assert!(Costs::parse(&text).unwrap_err().to_string().contains("lunch"));
    }
}
