//! The table of ONNX ops: each with the version of the op set from which on it has the form that is mapped here.
//!
//! A row is the whole of what the reader knows about an op; op sets that say a thing in another way have a row of their own. What
//! only moved from an attribute to an input is read from where it is ([`NodeCall::list`]).

mod activation;
mod arithmetic;
mod attention;
mod contraction;
mod control;
mod fourier;
mod generate;
mod grid_sample;
mod ids;
mod index;
mod integer;
mod layout;
mod linear_attention;
mod loss;
mod microsoft;
mod norm;
mod other;
mod pairs;
mod phases;
mod placed;
mod qlinear;
mod quantize;
mod recurrent;
mod reduction;
mod resize;
mod scatter;
mod slicing;
mod spatial;
mod volume;

use eutectic_ir::NodeId;

use super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    is_own,
};

/// The families.
const FAMILIES: &[&[OpRow]] = &[
    arithmetic::OPS,
    activation::OPS,
    layout::OPS,
    slicing::OPS,
    index::OPS,
    scatter::OPS,
    pairs::OPS,
    generate::OPS,
    reduction::OPS,
    norm::OPS,
    loss::OPS,
    contraction::OPS,
    attention::OPS,
    linear_attention::OPS,
    spatial::OPS,
    resize::OPS,
    grid_sample::OPS,
    fourier::OPS,
    quantize::OPS,
    integer::OPS,
    other::OPS,
    control::OPS,
    recurrent::OPS,
];

/// The families of other domains, by domain.
const OTHERS: &[(&str, &[OpRow])] = &[("com.microsoft", microsoft::OPS), ("com.microsoft", qlinear::OPS)];

/// Several outputs.
type Outputs = Result<Vec<NodeId>, NodeError>;

/// How an op is mapped.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// It is an op of ours without attributes.
    Op(&'static str),
    /// Its one output, from ops of ours.
    One(fn(&mut NodeCall<'_, '_>) -> NodeResult),
    /// Its outputs, in order; what is not there is not supported.
    Many(fn(&mut NodeCall<'_, '_>) -> Outputs),
}

/// An op in one of its forms.
struct OpRow {
    name: &'static str,
    /// The op set from which on it has this form.
    since: i64,
    build: Build,
}

/// An op that is one of ours.
const fn same(name: &'static str, since: i64, op: &'static str) -> OpRow {
    OpRow { name, since, build: Build::Op(op) }
}

/// An op with one output.
const fn one(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> NodeResult) -> OpRow {
    OpRow { name, since, build: Build::One(build) }
}

/// An op with several outputs.
const fn many(name: &'static str, since: i64, build: fn(&mut NodeCall<'_, '_>) -> Outputs) -> OpRow {
    OpRow { name, since, build: Build::Many(build) }
}

fn rows() -> impl Iterator<Item = &'static OpRow> {
    FAMILIES.iter().copied().flatten()
}

/// The form of an op in an op set.
///
/// # Errors
/// When there is none, in words.
pub(super) fn find(domain: &str, name: &str, opset: i64) -> Result<Build, String> {
    let mut others = OTHERS.iter().filter(|(known, _)| *known == domain).flat_map(|(_, rows)| *rows).peekable();
    if !is_own(domain) && others.peek().is_none() {
        return Err("ops of that domain are not known".into());
    }
    let of_domain = rows().filter(|_| is_own(domain)).chain(others);
    let of_name: Vec<_> = of_domain.filter(|row| row.name == name).collect();
    let forms = || of_name.iter();
    match forms().filter(|row| row.since <= opset).max_by_key(|row| row.since) {
        Some(row) => Ok(row.build),
        None => Err(match forms().map(|row| row.since).min() {
            Some(since) => format!("it is known from opset {since} on"),
            None => "there is no mapping for this op".into(),
        }),
    }
}

/// The names of all ops that have a mapping, sorted.
pub(super) fn supported() -> Vec<&'static str> {
    let mut names: Vec<_> = rows().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The name of an op, with its domain where that is not ONNX's own.
pub(super) fn qualified(domain: &str, name: &str) -> String {
    if is_own(domain) { name.into() } else { format!("{domain}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_is_there_twice_and_every_op_of_ours_exists() {
        let mut forms: Vec<_> = rows().map(|row| (row.name, row.since)).collect();
        forms.sort_unstable();
        assert!(forms.windows(2).all(|w| w[0] != w[1]));
        for row in rows() {
            if let Build::Op(op) = row.build {
                assert!(eutectic_ir::Op::named(op).is_some(), "{}: there is no op {op}", row.name);
            }
        }
    }

    #[test]
    fn the_form_is_that_of_the_op_set() {
        let of = |name, opset| find("", name, opset).map(|_| ());
        assert!(of("Add", 7).is_ok() && of("Gelu", 20).is_ok());
        assert_eq!(of("Gelu", 19), Err("it is known from opset 20 on".into()));
        assert!(find("com.microsoft", "Gelu", 17).is_ok());
        assert!(find("com.microsoft", "Add", 17).is_err() && find("com.example", "Gelu", 20).is_err());
    }
}
