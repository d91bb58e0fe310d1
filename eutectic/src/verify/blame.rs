//! Finds the rules, or the first kernel, that make a program's result differ.

use std::collections::BTreeSet;

use eutectic_ir::{Graph, Origin, Tensor, Type};
use eutectic_lowering::PlannedBlock;
use eutectic_rewrites::{Choice, Fp, RuleSet};

use super::{
    Precision,
    expected::{Expected, at_lengths},
    given::Given,
    judge::{Comparison, Difference, Tolerance, compare},
    probe::{self, StoredValue},
    reference::{Reference, all_results},
    walk::{Visit, Visitor, Walk},
};
use crate::{Compiler, Error, Planned, compile::bound, extract, units::PlanUnits};

/// The largest number of bytes of stored values that one run copies.
const MOST_BYTES: usize = 1 << 29;
/// The largest number of rule sets to report. Each of them alone makes the result wrong.
const MOST_SETS: usize = 4;

/// The cause of a result that differs from that of the program as written.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The part of the engine that is at fault.
    pub cause: Cause,
    /// The first kernel of a run that stores another value than the program as written.
    pub kernel: Option<BlamedKernel>,
}

/// The part of the engine that is at fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// Sets of rules. Without the rules of all sets the result is right, and with any one of the sets it is wrong. Each
    /// rule of a set is necessary for this effect.
    Rules(Vec<Vec<String>>),
    /// Kernels. The program after rewriting is right, but kernels compute something else.
    Kernels,
    /// The cause could not be found, for this reason.
    Unknown(String),
}

/// A kernel that stores another value than the program as written.
#[derive(Clone, Debug)]
pub struct BlamedKernel {
    /// The step of a run.
    pub step: usize,
    /// The call of a block that the kernel belongs to.
    pub call: usize,
    /// The kernel of that block's plan.
    pub kernel: usize,
    /// The number of earlier runs of this kernel, in a loop.
    pub time: usize,
    /// The op of the program whose value is stored.
    pub op: String,
    /// The part of the model that the op belongs to.
    pub origin: Origin,
    /// The type of the value.
    pub ty: Type,
    /// The largest difference.
    pub difference: Difference,
}

/// A program with a wrong result.
pub(crate) struct Suspect<'a> {
    pub compiler: &'a Compiler,
    pub graph: &'a Graph,
    pub planned: &'a Planned,
    pub given: &'a Given,
    pub want: &'a [Expected],
    pub tolerance: Tolerance,
    pub precision: Precision,
    pub lengths: &'a [(String, usize)],
}

impl Suspect<'_> {
    /// Finds the rules or the kernel at fault.
    ///
    /// # Errors
    /// If the parts of the program as written cannot be computed separately.
    pub fn blame(&self, reference: &mut Reference) -> Result<Blame, Error> {
        let kernel = self.first_kernel(reference)?;
        let cause = if self.rewritten_is_right(reference) { Cause::Kernels } else { self.rules()? };
        Ok(Blame { cause, kernel })
    }

    fn value(&self, name: &str) -> Option<Tensor> {
        self.given.get(0, name)
    }

    fn is_right(&self, results: &[Tensor]) -> bool {
        results.iter().zip(self.want).all(|(got, want)| compare(got, want, self.tolerance).is_right())
    }

    /// Returns whether the rewritten program of each block, computed op by op, gives the results of the block as
    /// written.
    fn rewritten_is_right(&self, reference: &mut Reference) -> bool {
        let blocks = &self.planned.blocks;
        let mut right = true;
        let walked = self.walk(&mut |visit| {
            let values = reference.block(visit.block, visit.body, visit.leaves, self.given.bounded)?;
            let PlannedBlock { classes, searched } = &blocks[visit.block];
            let chosen = extract::program(&self.graph.name, classes, &searched.plan.choice)?;
            let made = reference.block(blocks.len() + visit.block, &chosen, visit.leaves, false)?;
            for ((_, written), (_, chosen)) in visit.body.outputs().iter().zip(chosen.outputs()) {
                let pair = values[written.0 as usize].as_ref().zip(made[chosen.0 as usize].as_ref());
                right &= pair.is_some_and(|(want, got)| compare(&got.lanes[0], want, self.tolerance).is_right());
            }
            Ok(values)
        });
        walked.is_ok() && right
    }

    /// Visits the calls of the program as written.
    fn walk(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let graph = bound(self.graph)?;
        let units = PlanUnits::of(&graph)?;
        let parts = self.compiler.outlined(&units);
        Walk::new(&units, &parts, self.given, visit).run()
    }

    /// Finds the first step that stores another value than the program as written.
    fn first_kernel(&self, reference: &mut Reference) -> Result<Option<BlamedKernel>, Error> {
        let stored = probe::stored_values(self.planned)?;
        let bytes = |of: &StoredValue| self.ty(of).bytes();
        let mut rest = stored.as_slice();
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = rest.iter().take_while(|of| {
                sum += bytes(of);
                sum <= MOST_BYTES
            });
            let (here, later) = rest.split_at(fits.count().max(1));
            rest = later;
            let tensors = probe::run(self.compiler, self.planned, here, &|name| self.value(name))?;
            if let Some(found) = self.first_of(reference, here, &tensors)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn ty(&self, stored: &StoredValue) -> &Type {
        let block = &self.planned.blocks[self.planned.outlined.calls[stored.call].block];
        &block.classes.classes[stored.class].ty
    }

    /// Compares stored values with those of the program as written, call by call.
    fn first_of(
        &self,
        reference: &mut Reference,
        stored: &[StoredValue],
        tensors: &[Tensor],
    ) -> Result<Option<BlamedKernel>, Error> {
        let mut first: Option<BlamedKernel> = None;
        let mut times = vec![0; self.planned.outlined.calls.len()];
        self.walk(&mut |visit| {
            let values = reference.block(visit.block, visit.body, visit.leaves, self.given.bounded)?;
            let time = times[visit.call];
            times[visit.call] += 1;
            let of_call = stored.iter().zip(tensors).filter(|(of, _)| of.call == visit.call && of.time == time);
            for (of, got) in of_call {
                if first.as_ref().is_some_and(|first| first.step <= of.step) {
                    continue;
                }
                first = self.differs(of, got, visit, &values).or(first.take());
            }
            Ok(values)
        })?;
        Ok(first)
    }

    /// Returns the kernel if its value differs from that of every node of its class in the program as written.
    fn differs(
        &self,
        of: &StoredValue,
        got: &Tensor,
        visit: &Visit<'_>,
        values: &[Option<Expected>],
    ) -> Option<BlamedKernel> {
        let class_of = &self.planned.rewritten[visit.block].class_of;
        let nodes = visit.body.nodes().zip(class_of).filter(|(_, class)| **class == Some(of.class));
        nodes.filter_map(|((id, node), _)| Some((node, values[id.0 as usize].as_ref()?))).find_map(|(node, want)| {
            let Comparison { outside, largest, .. } = compare(got, want, self.tolerance);
            let difference = largest.filter(|_| outside > 0)?;
            let names = &self.planned.outlined.calls[of.call].origins;
            let origin = names.iter().find(|(from, _)| *from == node.origin).map_or(&node.origin, |(_, to)| to);
            Some(BlamedKernel {
                step: of.step,
                call: of.call,
                kernel: of.kernel,
                time: of.time,
                op: node.op.to_string(),
                origin: origin.clone(),
                ty: at_lengths(&node.ty, self.lengths),
                difference,
            })
        })
    }

    /// Finds the rules that make the result wrong.
    fn rules(&self) -> Result<Cause, Error> {
        let rules = self.compiler.rules();
        let defines: BTreeSet<&str> = rules.iter().filter(|r| r.defines_an_op()).map(|r| &*r.name).collect();
        let fired = self.planned.rewritten.iter().flat_map(|r| &r.statistics).filter(|s| s.changes > 0);
        let fired: BTreeSet<String> = fired.map(|s| s.name.to_string()).collect();
        let (base, others): (Vec<String>, Vec<String>) =
            fired.iter().cloned().partition(|name| defines.contains(name.as_str()));
        let with = |some: &[String]| -> Vec<String> {
            defines.iter().map(|name| name.to_string()).chain(some.iter().cloned()).collect()
        };
        let wrong = |some: &[String]| Ok::<_, Error>(self.is_right_by(&with(some))? == Some(false));
        if self.is_right_by(&with(&[]))? != Some(true) {
            // A defining rule itself is wrong, or the defining rules do not suffice. Try to leave out each rule alone.
            return self.left_out(base.iter().chain(&others));
        }
        let (mut left, mut sets) = (others, Vec::new());
        while sets.len() < MOST_SETS && wrong(&left)? {
            let set = minimal(left.clone(), &wrong)?;
            left.retain(|name| !set.contains(name));
            sets.push(set);
        }
        match sets.is_empty() {
            true => Ok(Cause::Unknown("the result is right with the rules that fired and no others".into())),
            false => Ok(Cause::Rules(sets)),
        }
    }

    /// Returns the rules whose removal alone makes the result right.
    fn left_out<'r>(&self, fired: impl Iterator<Item = &'r String>) -> Result<Cause, Error> {
        let mut sets = Vec::new();
        for rule in fired {
            let all = self.compiler.rules().iter().map(|r| r.name.to_string());
            let rest: Vec<String> = all.filter(|name| name != rule).collect();
            if self.is_right_by(&rest)? == Some(true) {
                sets.push(vec![rule.clone()]);
            }
        }
        match sets.is_empty() {
            true => {
                let why = "cannot name one rule because the result stays wrong whichever rule is left out, and also with \
                           only the rules that define ops";
                Ok(Cause::Unknown(why.into()))
            }
            false => Ok(Cause::Rules(sets)),
        }
    }

    /// Returns whether the result is right with these rules, or `None` if there is no program.
    fn is_right_by(&self, names: &[String]) -> Result<Option<bool>, Error> {
        let choice = Choice { only: names.to_vec(), fp: Fp::Fast, precision: self.precision, ..Choice::default() };
        let rules: RuleSet = match names.is_empty() {
            true => RuleSet::default(),
            false => self.compiler.rules().choose(&choice)?,
        };
        let results = self.results(rules);
        Ok(results.ok().map(|results| self.is_right(&results)))
    }

    fn results(&self, rules: RuleSet) -> Result<Vec<Tensor>, Error> {
        let mut session = self.compiler.clone().with_rules(rules).compile(self.graph)?;
        session.load_named(|name| self.value(name))?;
        all_results(&mut session, self.graph, &|name| self.value(name))
    }
}

/// Returns a minimal subset that still makes the difference (delta debugging; Zeller and Hildebrandt, 2002).
///
/// # Errors
/// The error of `differs`.
pub fn minimal<E>(mut rules: Vec<String>, differs: &dyn Fn(&[String]) -> Result<bool, E>) -> Result<Vec<String>, E> {
    let mut parts = 2;
    while rules.len() > 1 {
        let size = rules.len().div_ceil(parts);
        let mut smaller = None;
        for at in (0..rules.len()).step_by(size) {
            let end = (at + size).min(rules.len());
            let rest = [&rules[..at], &rules[end..]].concat();
            if differs(&rest)? {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => (rules, parts) = (rest, parts.saturating_sub(1).max(2)),
            None if size == 1 => break,
            None => parts = (2 * parts).min(rules.len()),
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_set_is_found() {
        let rules: Vec<String> = (0..23).map(|n| format!("r{n}")).collect();
        let needs = |wanted: &'static [&str]| {
            move |some: &[String]| Ok::<_, ()>(wanted.iter().all(|w| some.iter().any(|s| s == w)))
        };
        assert_eq!(minimal(rules.clone(), &needs(&["r7"])).unwrap(), ["r7"]);
        assert_eq!(minimal(rules, &needs(&["r0", "r11", "r22"])).unwrap(), ["r0", "r11", "r22"]);
    }
}
