//! The tables of ONNX ops. A row has the name of an op, the first version of the op set for which the row holds, and
//! the op's translation.
//!
//! An op has several rows if versions of the op set define it differently. [`NodeCall::list`] reads arguments that are
//! an attribute in some versions and an input in others.

mod activation;
mod arithmetic;
mod attention;
mod blockwise;
mod contraction;
mod control;
mod decided;
mod declared;
mod determinant;
mod flex_attention;
mod fourier;
mod generate;
mod grid_sample;
mod group_query;
mod ids;
mod index;
mod integer;
mod layout;
mod linear_attention;
mod loss;
mod microsoft;
mod ml;
mod ngrams;
mod norm;
mod other;
mod pairs;
mod phases;
mod placed;
mod qlinear;
mod quantize;
mod random;
mod recurrent;
mod reduction;
mod regions;
mod resize;
mod row;
mod scatter;
mod slicing;
mod spatial;
mod training;
mod unpool;
mod volume;
mod windows;

use self::row::OpRow;
pub(super) use self::{declared::declared, row::Build};
use super::opsets::{is_own, newest};

/// The tables of ONNX's own domain, by family.
const FAMILIES: &[&[OpRow]] = &[
    arithmetic::OPS,
    activation::OPS,
    layout::OPS,
    slicing::OPS,
    index::OPS,
    scatter::OPS,
    decided::OPS,
    ngrams::OPS,
    pairs::OPS,
    generate::OPS,
    random::OPS,
    reduction::OPS,
    norm::OPS,
    loss::OPS,
    contraction::OPS,
    determinant::OPS,
    attention::OPS,
    linear_attention::OPS,
    spatial::OPS,
    unpool::OPS,
    regions::OPS,
    resize::OPS,
    grid_sample::OPS,
    fourier::OPS,
    quantize::OPS,
    integer::OPS,
    other::OPS,
    control::OPS,
    recurrent::OPS,
];

/// The tables of the domain `com.microsoft` of ONNX Runtime, by family.
const MICROSOFT: &[&[OpRow]] = &[microsoft::OPS, qlinear::OPS, blockwise::OPS, group_query::OPS, recurrent::QUANTISED];

/// A domain of ops.
struct Domain {
    name: &'static str,
    families: &'static [&'static [OpRow]],
}

/// The supported domains. The name of ONNX's own domain is empty.
const DOMAINS: &[Domain] = &[
    Domain { name: "", families: FAMILIES },
    Domain { name: "ai.onnx.ml", families: ml::FAMILIES },
    Domain { name: "ai.onnx.preview", families: &[flex_attention::OPS] },
    Domain { name: "ai.onnx.preview.training", families: &[training::OPS] },
    Domain { name: "com.microsoft", families: MICROSOFT },
];

impl Domain {
    /// Returns the domain of this name.
    fn named(name: &str) -> Option<&'static Domain> {
        DOMAINS.iter().find(|domain| domain.name == name || (domain.name.is_empty() && is_own(name)))
    }

    fn rows(&self) -> impl Iterator<Item = &'static OpRow> {
        self.families.iter().copied().flatten()
    }
}

/// Returns the translation of an op for a version of its domain's op set.
///
/// # Errors
/// If there is none. The error is the reason.
pub(super) fn find(domain: &str, name: &str, version: i64) -> Result<Build, String> {
    let (rows, newest) = Domain::named(domain).zip(newest(domain)).ok_or("the domain of this op is not supported")?;
    if version > newest {
        return Err(format!("opsets of this domain are supported up to {newest}; export the model in one of these"));
    }
    let of_name: Vec<_> = rows.rows().filter(|row| row.name == name).collect();
    let forms = || of_name.iter();
    match forms().filter(|row| row.since <= version).max_by_key(|row| row.since) {
        Some(row) => Ok(row.build),
        None => Err(match forms().map(|row| row.since).min() {
            Some(since) => {
                format!("it is supported from opset {since} on; convert the model with onnx.version_converter")
            }
            None => "this op is not supported".into(),
        }),
    }
}

/// Returns the names of the ops of ONNX's own domain that have a translation, sorted.
pub fn supported_ops() -> Vec<&'static str> {
    let mut names: Vec<_> = FAMILIES.iter().copied().flatten().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_is_there_twice_and_every_op_of_ours_exists() {
        let rows = || DOMAINS.iter().flat_map(|domain| domain.rows().map(|row| (domain.name, row)));
        let mut forms: Vec<_> = rows().map(|(domain, row)| (domain, row.name, row.since)).collect();
        forms.sort_unstable();
        assert!(forms.windows(2).all(|w| w[0] != w[1]));
        for (_, row) in rows() {
            if let Build::Op(op) = row.build {
                assert!(eutectic_ir::Op::named(op).is_some(), "{}: there is no op {op}", row.name);
            }
        }
    }

    #[test]
    fn the_form_is_that_of_the_op_set() {
        let of = |name, opset| find("", name, opset).map(|_| ());
        assert!(of("Add", 7).is_ok() && of("Gelu", 20).is_ok());
        assert_eq!(
            of("Gelu", 19),
            Err("it is supported from opset 20 on; convert the model with onnx.version_converter".into())
        );
        assert!(find("com.microsoft", "Gelu", 1).is_ok());
        assert!(find("com.microsoft", "Add", 1).is_err() && find("com.example", "Gelu", 1).is_err());
        assert!(find("ai.onnx.ml", "Scaler", 3).is_ok() && find("ai.onnx.ml", "TreeEnsemble", 4).is_err());
        assert!(find("ai.onnx.ml", "Scaler", 6).is_err_and(|why| why.contains("up to 5")));
    }
}
