//! The coefficients of the cost model, read from a file.

use eutectic_backend::{
    cost_table,
    costs::{self, CostSheet, Provenance},
};
use eutectic_ir::{DType, lang::sexp::suggestion};
use serde::{Deserialize, Serialize, de::Error};

use crate::{schedule::LaneCosts, simd::table};

cost_table! {
    /// The coefficients of the cost model, in the order of `costs/default.toml`.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct Costs {
        /// Seconds of a kernel, whatever it does.
        launch: Seconds,
        /// Seconds until the other threads work on a kernel.
        wake: Seconds,
        /// The speed-up that each further thread adds, relative to the first one.
        thread: Share,
    }
    tables {
        /// Bandwidths.
        memory: MemoryCosts,
        /// Rates of products.
        product: ProductCosts,
        /// Seconds of sums along an axis of the result.
        lanes: LaneCosts,
        /// Seconds of elements.
        element: ElementCosts,
    }
    others {
        /// The ops that are not cheap.
        class: OpClasses,
    }
}

cost_table! {
    /// Bandwidths by working set.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct MemoryCosts {
        /// Largest working set, in bytes, that streams at `l2`.
        l2_bytes: Bytes,
        /// Largest working set, in bytes, that streams at `l3`.
        l3_bytes: Bytes,
        /// Bytes a second of one thread.
        l2: BytesPerSecond,
        /// Like `l2`, beyond `l2_bytes`.
        l3: BytesPerSecond,
        /// Like `l2`, beyond `l3_bytes`.
        dram: BytesPerSecond,
        /// Like `dram`, for all threads together.
        dram_all: BytesPerSecond,
        /// The share of the shorter of computing and memory time that is hidden behind the longer one, in passes over
        /// elements.
        hidden: Share,
    }
}

cost_table! {
    /// Rates of matrix products.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct ProductCosts {
        /// Operations a second of large products, in `f32` and narrower floats.
        f32: OpsPerSecond,
        /// Like `f32`, in `f64`.
        f64: OpsPerSecond,
        /// Like `f32`, for integers.
        other: OpsPerSecond,
        /// Rows at which a product reaches half of its rate.
        m_half: Count,
        /// Columns at which it does.
        n_half: Count,
        /// Length of its sums at which it does.
        k_half: Count,
        /// Seconds per element that goes through a tile before it is stored.
        tile: Seconds,
        /// Seconds of each matrix of a batch.
        matrix: Seconds,
        /// Operations a second of a vector times a matrix in cache.
        vector: OpsPerSecond,
        /// Seconds of an element of 8 bits of a packed operand, which kernels convert as they read it.
        decode: Seconds,
        /// Seconds of a weight of a packed operand that kernels decode from a code with the scale of its block.
        code: Seconds,
        /// Operations a second of large products of integers of 8 bits with codes.
        int8: OpsPerSecond,
    }
}

cost_table! {
    /// Seconds of an element.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct ElementCosts {
        /// A pass in cache over `f32`.
        cheap: Seconds,
        /// A division or a root.
        division: Seconds,
        /// An exponential, or a function that uses one.
        transcendental: Seconds,
        /// A hyperbolic tangent, an error function.
        special: Seconds,
        /// A function that runs element by element.
        scalar: Seconds,
        /// A step of a reduction.
        reduce: Seconds,
        /// A row that is reduced, however short.
        row: Seconds,
        /// A copied element of a load or store whose neighbours are not contiguous.
        strided: Seconds,
        /// Like `strided`, if elements are contiguous along another axis of the tile: squares are transposed in
        /// registers.
        square: Seconds,
        /// A stored element of a product whose neighbours in memory are stored after its cache line was evicted.
        scattered: Seconds,
        /// A run of a load that is walked.
        run: Seconds,
        /// An element of a load that is read alone, because an index decides where its neighbours are.
        gather: Seconds,
        /// A run of a load at an index, in a buffer larger than the caches.
        far: Seconds,
        /// The minimal price of a value that needs no load, per element of the domain, however few elements it has:
        /// each tile computes it.
        step: Seconds,
        /// A line of a load that is read in place.
        in_place: Seconds,
        /// A line that is too short for that and copied.
        short: Seconds,
        /// A line of a left operand that is copied for a product.
        line: Seconds,
        /// An element of such a line.
        copy: Seconds,
        /// Factor of `f64`.
        f64: Count,
        /// Factor of 64-bit integers.
        i64: Count,
        /// Factor of the other element types.
        other: Count,
        /// A score, without its products.
        softmax: Seconds,
    }
}

/// The ops that are not cheap, by name or kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OpClasses {
    /// Ops that cost [`ElementCosts::division`].
    pub division: Vec<String>,
    /// Ops that cost [`ElementCosts::transcendental`].
    pub transcendental: Vec<String>,
    /// Ops that cost [`ElementCosts::special`].
    pub special: Vec<String>,
    /// Ops that cost [`ElementCosts::scalar`].
    pub scalar: Vec<String>,
}

impl OpClasses {
    /// Returns the lists by name.
    fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        let OpClasses { division, transcendental, special, scalar } = self;
        [("division", division), ("transcendental", transcendental), ("special", special), ("scalar", scalar)]
    }

    /// Returns a problem for each name that no function has.
    fn unknown(&self) -> Vec<String> {
        let known: Vec<&str> = table::names(DType::F32).collect();
        let unknown = |(list, names): (&str, &Vec<String>)| {
            let names = names.iter().filter(|name| !known.contains(&name.as_str()));
            let problem = |name: &String| {
                let near = suggestion(name, "the functions are", known.iter().copied());
                format!("class.{list}: `{name}` is no function; {near}")
            };
            names.map(problem).collect::<Vec<_>>()
        };
        self.lists().into_iter().flat_map(unknown).collect()
    }
}

impl Default for Costs {
    /// Returns the embedded file.
    fn default() -> Costs {
        toml::from_str(include_str!("../../costs/default.toml")).expect("the embedded file is checked by a test")
    }
}

impl Costs {
    /// Returns these costs with the coefficients and lists of ops that a file states in place of theirs.
    ///
    /// # Errors
    /// Names that are no coefficients or ops, and numbers that these cannot be: all of them.
    pub fn over(&self, text: &str) -> Result<Costs, String> {
        let costs = costs::read(self, &self.coefficients(), text)?;
        let of_ops = OpClasses::unknown(&costs.class);
        let problems: Vec<String> = of_ops.into_iter().chain(costs.check().err()).collect();
        if problems.is_empty() { Ok(costs) } else { Err(problems.join("\n")) }
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// A table that is not complete, or a number in it that no cost is.
    pub fn from_table(table: toml::Table) -> Result<Costs, toml::de::Error> {
        let costs = Costs::deserialize(table)?;
        costs.check().map_err(toml::de::Error::custom)?;
        Ok(costs)
    }

    /// Returns the coefficients and lists, with the measurement that they stem from.
    pub fn sheet(&self, provenance: Option<Provenance>) -> CostSheet {
        let lists = self.class.lists().map(|(name, ops)| ("class", name, ops.clone())).into();
        CostSheet { coefficients: self.coefficients(), lists, provenance }
    }

    fn check(&self) -> Result<(), String> {
        let checked = self
            .coefficients()
            .into_iter()
            .map(|c| c.quantity.check(c.value).map_err(|why| format!("{}: {why}", c.path())));
        let mut problems: Vec<String> = checked.filter_map(Result::err).collect();
        if self.memory.l3_bytes < self.memory.l2_bytes {
            problems.push("memory.l3_bytes: cannot be less than memory.l2_bytes because the last-level cache is the larger one; exchange them".into());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_costs_name_functions_and_are_costs() {
        let costs = Costs::default();
        assert_eq!(costs.check(), Ok(()));
        assert_eq!(costs.class.unknown(), Vec::<String>::new());
    }

    #[test]
    fn problems_of_a_file_are_named() {
        for (text, name, why) in [
            ("launch = -1.0", "launch", "as a cost"),
            ("thread = 1.5", "thread", "as a share"),
            ("lunch = 1.0", "lunch", "did you mean `launch`?"),
            ("[memory]\nhidden = 7", "memory.hidden", "as a share"),
            ("[memory]\nl3_bytes = \"1 kB\"", "memory.l3_bytes", "less than memory.l2_bytes"),
            ("[product]\nm_half = nan", "product.m_half", "as a cost"),
            ("[lanes]\nterm = \"3 GB/s\"", "lanes.term", "of seconds"),
            ("[element]\ncheap = inf", "element.cheap", "as a cost"),
            ("[class]\ndivision = [\"sqrtt\"]", "class.division", "did you mean `sqrt`?"),
        ] {
            let told = Costs::default().over(text).unwrap_err();
            assert!(told.contains(&format!("{name}: ")) && told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn a_file_keeps_the_coefficients_that_it_leaves_out() {
        let costs = Costs::default().over("[element]\nother = 7").unwrap();
        let changed =
            costs.coefficients().into_iter().zip(Costs::default().coefficients()).filter(|(a, b)| a.value != b.value);
        assert_eq!(changed.map(|(a, _)| (a.path(), a.value)).collect::<Vec<_>>(), [("element.other".to_string(), 7.0)]);
    }
}
