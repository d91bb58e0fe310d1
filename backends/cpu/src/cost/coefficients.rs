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
        /// Seconds to start a kernel.
        launch: Seconds,
        /// Seconds until the other threads work on a kernel.
        wake: Seconds,
        /// The speed that each further thread adds, relative to the speed of one.
        thread: Share,
    }
    tables {
        /// Bandwidths of caches and memory.
        memory: MemoryCosts,
        /// Rates of matrix products.
        product: ProductCosts,
        /// Seconds of batch-vectorised contractions.
        lanes: LaneCosts,
        /// Seconds per element.
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
        /// The largest working set in bytes that streams at the rate `l2`.
        l2_bytes: Bytes,
        /// The largest working set in bytes that streams at the rate `l3`.
        l3_bytes: Bytes,
        /// The bandwidth of one thread for working sets of at most `l2_bytes`.
        l2: BytesPerSecond,
        /// The bandwidth of one thread for working sets of at most `l3_bytes`.
        l3: BytesPerSecond,
        /// The bandwidth of one thread for larger working sets.
        dram: BytesPerSecond,
        /// The bandwidth of all threads together for working sets larger than `l3_bytes`.
        dram_all: BytesPerSecond,
        /// In passes over elements, the share of the shorter of computing time and memory time that overlaps with the
        /// longer one.
        hidden: Share,
    }
}

cost_table! {
    /// Rates of matrix products.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct ProductCosts {
        /// Operations per second of large products in `f32` and narrower floats.
        f32: OpsPerSecond,
        /// Operations per second of large products in `f64`.
        f64: OpsPerSecond,
        /// Operations per second of large products of integers.
        other: OpsPerSecond,
        /// The number of rows at which a product reaches half of the rate of large products.
        m_half: Count,
        /// The number of columns at which a product reaches half of the rate of large products.
        n_half: Count,
        /// The number of terms per sum at which a product reaches half of the rate of large products.
        k_half: Count,
        /// Seconds of a result element that a tile program computes, because its epilogue does more than micro-kernels
        /// do in registers.
        tile: Seconds,
        /// Seconds of each matrix of a batch.
        matrix: Seconds,
        /// Operations per second of a vector times a matrix in cache.
        vector: OpsPerSecond,
        /// Seconds of an 8-bit element of a packed operand. Kernels convert it when they read it.
        decode: Seconds,
        /// Seconds of a packed weight that kernels decode from a code and the scale of its block.
        code: Seconds,
        /// Operations per second of large products of 8-bit integers with packed weights that are codes.
        int8: OpsPerSecond,
    }
}

cost_table! {
    /// Seconds of operations on an element, a row or a line of elements.
    #[derive(Clone, Debug, Deserialize, Serialize)]
    pub struct ElementCosts {
        /// An element of a pass in cache over `f32`.
        cheap: Seconds,
        /// A division or a root.
        division: Seconds,
        /// An exponential, or a function that uses one.
        transcendental: Seconds,
        /// A function of the list `class.special`, such as a hyperbolic tangent or an error function.
        special: Seconds,
        /// A function without vector instructions.
        scalar: Seconds,
        /// A step of a reduction.
        reduce: Seconds,
        /// A reduced row, in addition to its elements.
        row: Seconds,
        /// A copied element of a load or store whose neighbours in the tile are not contiguous in memory.
        strided: Seconds,
        /// A copied element whose neighbours are contiguous along another axis of the tile. Squares of such elements
        /// are transposed in registers.
        square: Seconds,
        /// A stored element of a product whose neighbours in memory are stored after its cache line was evicted.
        scattered: Seconds,
        /// A run of a load that no affine map describes: the points along the innermost axis over which its map is
        /// affine.
        run: Seconds,
        /// An element of a load that is read by itself, because an index decides where its neighbours are.
        gather: Seconds,
        /// A row at an index, in a table that no cache holds. It waits for memory.
        far: Seconds,
        /// The minimal price of a value that needs no load, per element of the domain. It is paid even if the value has
        /// few elements, because each tile computes the value again.
        step: Seconds,
        /// A contiguous line of a load that is read in place.
        in_place: Seconds,
        /// A contiguous line of a load that is too short to be read in place, and is copied.
        short: Seconds,
        /// A contiguous line of a left operand that is copied for a product, without its elements.
        line: Seconds,
        /// An element of a left operand that is copied for a product.
        copy: Seconds,
        /// The factor of seconds in `f64`, relative to `f32`.
        f64: Count,
        /// The factor of seconds in 64-bit integers, relative to `f32`.
        i64: Count,
        /// The factor of seconds in all other element types, relative to `f32`.
        other: Count,
        /// The softmax of a score of attention, without the products.
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
    /// Returns the lists with their names.
    fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        let OpClasses { division, transcendental, special, scalar } = self;
        [("division", division), ("transcendental", transcendental), ("special", special), ("scalar", scalar)]
    }

    /// Returns a message for each listed name that is not the name of a function.
    fn unknown(&self) -> Vec<String> {
        let known: Vec<&str> = table::names(DType::F32).collect();
        let unknown = |(list, names): (&str, &Vec<String>)| {
            let names = names.iter().filter(|name| !known.contains(&name.as_str()));
            let problem = |name: &String| {
                let near = suggestion(name, "the functions are", known.iter().copied());
                format!("class.{list}: cannot list `{name}` because there is no function of this name; {near}")
            };
            names.map(problem).collect::<Vec<_>>()
        };
        self.lists().into_iter().flat_map(unknown).collect()
    }
}

impl Default for Costs {
    /// Returns the costs of the embedded file `costs/default.toml`.
    fn default() -> Costs {
        toml::from_str(include_str!("../../costs/default.toml")).expect("the embedded file is valid; a test checks it")
    }
}

impl Costs {
    /// Returns these costs, with the coefficients and lists of ops replaced that a file states.
    ///
    /// # Errors
    /// If the file has unknown names of coefficients or ops, or invalid values. The error lists all of them.
    pub fn over(&self, text: &str) -> Result<Costs, String> {
        let costs = costs::read(self, &self.coefficients(), text)?;
        let of_ops = OpClasses::unknown(&costs.class);
        let problems: Vec<String> = of_ops.into_iter().chain(costs.check().err()).collect();
        if problems.is_empty() { Ok(costs) } else { Err(problems.join("\n")) }
    }

    /// Reads costs from the parsed content of a file.
    ///
    /// # Errors
    /// If the table lacks a coefficient, or has an invalid value.
    pub fn from_table(table: toml::Table) -> Result<Costs, toml::de::Error> {
        let costs = Costs::deserialize(table)?;
        costs.check().map_err(toml::de::Error::custom)?;
        Ok(costs)
    }

    /// Returns the coefficients and lists, with the measurement that they come from.
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
            ("launch = -1.0", "launch", "as a coefficient"),
            ("thread = 1.5", "thread", "as a share"),
            ("lunch = 1.0", "lunch", "did you mean `launch`?"),
            ("[memory]\nhidden = 7", "memory.hidden", "as a share"),
            ("[memory]\nl3_bytes = \"1 kB\"", "memory.l3_bytes", "less than memory.l2_bytes"),
            ("[product]\nm_half = nan", "product.m_half", "as a coefficient"),
            ("[lanes]\nterm = \"3 GB/s\"", "lanes.term", "of seconds"),
            ("[element]\ncheap = inf", "element.cheap", "as a coefficient"),
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
