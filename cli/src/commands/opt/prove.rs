//! `opt --prove`: proves for each kernel of a plan that it computes the ops from which it was built.

use std::{io::Write, time::Instant};

use eutectic::Planned;
use eutectic_prover::{
    Sense,
    plans::{Validated, Validity, validate},
};
use serde_json::json;

use crate::{
    args::print_json,
    fault::Fault,
    format::Format,
    table::{duration, hanging, lines, several},
};

/// Proves the kernels of each block, and prints the verdicts.
///
/// # Errors
/// If a kernel is not proved to compute its ops.
pub fn print(out: &mut impl Write, planned: &Planned, format: Format) -> Result<(), Fault> {
    let start = Instant::now();
    let kernels: Vec<(usize, Validated)> = planned
        .blocks
        .iter()
        .enumerate()
        .flat_map(|(n, block)| validate(block).into_iter().map(move |v| (n, v)))
        .collect();
    let count = |is: &dyn Fn(&Validity) -> bool| kernels.iter().filter(|(_, v)| is(&v.validity)).count();
    let bits = count(&|v| *v == Validity::Valid(Sense::Bits));
    let reals = count(&|v| *v == Validity::Valid(Sense::Reals));
    if format == Format::Json {
        let row = |(block, v): &(usize, Validated)| {
            let (shown, reason) = match &v.validity {
                Validity::Valid(sense) => (Some(words(*sense)), None),
                Validity::Open(why) => (None, Some(why)),
            };
            json!({ "block": block, "kernel": v.kind, "origin": v.origin, "shown": shown, "reason": reason })
        };
        print_json(out, &kernels.iter().map(row).collect::<Vec<_>>())?;
    } else {
        for (block, v) in &kernels {
            if let Validity::Open(why) = &v.validity {
                let line = format!("{} in {}, block {block}: not proved: {why}", v.kind, v.origin);
                writeln!(out, "{}", hanging(line, 4))?;
            }
        }
        let all = several(kernels.len(), "kernel");
        let how = "at every element and for every length of their axes";
        let text = format!(
            "of {all}, {bits} compute what their ops say to the last bit, {reals} over the reals, {how}; {}",
            duration(start.elapsed())
        );
        writeln!(out, "{}", lines(text))?;
    }
    match kernels.len() - bits - reals {
        0 => Ok(()),
        open => Err(Fault::run(format!("{} not proved", several(open, "kernel")))),
    }
}

/// Returns the description of a proof's strength.
fn words(sense: Sense) -> &'static str {
    match sense {
        Sense::Bits => "equal to the last bit",
        Sense::Reals => "equal over the reals",
    }
}
