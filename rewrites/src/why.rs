//! Explains why a rule does or does not change a program. It finds the best partial match of the left side, and the
//! first difference there.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use egg::Id;
use eutectic_ir::{Graph, Origin};

use crate::{
    egraph::{EGraph, classes_of},
    engine::{Engine, RuleStatistics},
    guard::{GuardMisfit, NoMatch, Sight, guard},
    optimize::{LiveNodes, Options, RewriteError, merged, saturate},
    pattern::{Match, Miss, Pat, Watch},
    recipe::Compiled,
    rule::Rule,
    ruleset::RuleSet,
};

/// The effect of a rule on a program.
#[derive(Clone, Debug)]
pub struct Why {
    /// The rule.
    pub rule: Arc<str>,
    /// The numbers of matches, applications and changes.
    pub statistics: RuleStatistics,
    /// The reason why matches were not applied or changed nothing; `None` if there are no matches or some changed the
    /// program.
    pub idle: Option<String>,
    /// The op, or the group of ops, at which the search for the left side starts.
    pub entry: String,
    /// The positions where the left side almost matches, best ones first.
    pub misses: Vec<NearMiss>,
}

/// Positions of a program where a left side almost matches, and fails for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The number of matched ops of the left side.
    pub matched: usize,
    /// The number of ops of the left side.
    pub ops: usize,
    /// The part of the rule that does not fit, as text.
    pub part: String,
    /// The position of that part: file and line.
    pub place: String,
    /// The program's value in place of that part.
    pub reason: String,
    /// The model part of each position.
    pub origins: Vec<Origin>,
}

impl Why {
    /// Adds the result of the same rule on another part of the program.
    pub fn join(&mut self, other: Why) {
        self.statistics.add(&other.statistics);
        self.idle = self.idle.take().or(other.idle).filter(|_| self.statistics.changes == 0);
        self.misses = collected(self.misses.drain(..).chain(other.misses));
    }
}

/// Merges misses with the same reason. Those with the fewest unmatched ops come first.
fn collected(misses: impl Iterator<Item = NearMiss>) -> Vec<NearMiss> {
    let mut all: Vec<NearMiss> = Vec::new();
    for mut miss in misses {
        let same = |m: &&mut NearMiss| (m.matched, &m.part, &m.reason) == (miss.matched, &miss.part, &miss.reason);
        match all.iter_mut().find(same) {
            Some(known) => known.origins.append(&mut miss.origins),
            None => all.push(miss),
        }
    }
    all.sort_by_key(|m| (m.ops - m.matched, std::cmp::Reverse(m.origins.len())));
    all
}

/// Saturates a graph with all rules, and explains the rules whose names `wanted` selects.
///
/// # Errors
/// If dims are unbound or a rule is wrong.
pub fn why(
    graph: &Graph,
    rules: &RuleSet,
    options: &Options,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Why>, RewriteError> {
    let rules = &*rules.with_ops_of(graph)?;
    let (mut engine, program, _) = saturate(graph, rules, options)?;
    let statistics = merged(std::mem::take(&mut engine.statistics));
    let named = rules.rules.chunk_by(|a, b| a.rule.name == b.rule.name).filter(|forms| wanted(&forms[0].rule.name));
    let why = named.map(|forms| {
        let rule = &forms[0].rule;
        let statistics = statistics.iter().find(|s| s.name == rule.name).cloned().unwrap_or_default();
        let misses = near_misses(forms, &mut engine, &program);
        let idle = rule.kept_off(&options.device).or_else(|| idle(rule, &statistics).map(str::to_string));
        Why { rule: rule.name.clone(), statistics, idle, entry: forms[0].pattern().entry().1.to_string(), misses }
    });
    Ok(why.collect())
}

fn idle(rule: &Rule, statistics: &RuleStatistics) -> Option<&'static str> {
    let RuleStatistics { matches, applications, changes, refused, .. } = statistics;
    match (matches, applications, changes) {
        (0, ..) => None,
        (_, 0, _) if refused == matches => Some("the right side has another type than the left side, or has none"),
        (_, 0, _) if rule.once => Some("the right side is not estimated to be cheaper at any match"),
        (_, 0, _) if rule.group => Some(
            "no two matches have equal values for the operands and attributes that all members of a group must share",
        ),
        (_, 0, _) => Some(
            "the right side has no value because a quotient is inexact or an integer attribute would get another number",
        ),
        (_, _, 0) => Some("the program already contains its right sides"),
        _ => None,
    }
}

/// The best partial matches at a class, those with the most matched ops.
#[derive(Clone)]
struct Nearest {
    /// The number of unmatched ops of the left side.
    lacking: usize,
    misses: Vec<NearMiss>,
}

fn near_misses(forms: &[Arc<Compiled>], engine: &mut Engine<'_>, program: &LiveNodes) -> Vec<NearMiss> {
    // A class that one form of the left side matches is not a miss of the other forms.
    let mut nearest: BTreeMap<Id, Option<Nearest>> = BTreeMap::new();
    for form in forms {
        for class in classes_of(&engine.egraph, form.pattern().entry().1.ops()) {
            let found = at_class(form, &mut engine.egraph, class);
            let known = nearest.entry(class).or_insert_with(|| found.clone());
            let nearer = match (&*known, &found) {
                (None, _) => false,
                (_, None) => true,
                (Some(known), Some(found)) => found.lacking < known.lacking,
            };
            if nearer {
                *known = found;
            }
        }
    }
    let at = |class: Id| program.get(engine.egraph[class].data.rank as usize).map(|(_, origin)| origin.clone());
    let placed = nearest.into_iter().filter_map(|(class, nearest)| Some((at(class).unwrap_or_default(), nearest?)));
    collected(placed.flat_map(|(origin, Nearest { misses, .. })| {
        misses.into_iter().map(move |miss| NearMiss { origins: vec![origin.clone()], ..miss })
    }))
}

/// Collects the matcher's matches, and its partial matches with the most matched ops.
#[derive(Default)]
struct Collector {
    found: Vec<Match>,
    ops: usize,
    misses: Vec<Miss>,
}

impl Watch for Collector {
    fn found(&mut self, found: &Match) -> bool {
        self.found.push(found.clone());
        true
    }

    fn missed(&mut self, ops: usize, miss: Miss) {
        if ops > self.ops {
            self.ops = ops;
            self.misses.clear();
        }
        if ops == self.ops {
            self.misses.push(miss);
        }
    }
}

/// Returns the best partial matches at a class, or `None` if the left side matches there.
fn at_class(form: &Compiled, egraph: &mut EGraph, class: Id) -> Option<Nearest> {
    let (rule, pattern) = (&*form.rule, form.pattern());
    let ops = crate::check::size(pattern);
    let mut collector = Collector::default();
    pattern.search(egraph, class, &mut collector);
    let mut misses: Vec<NearMiss> = Vec::new();
    let mut add = |matched: usize, (part, span): (String, &Range<usize>), reason: String| {
        let place = format!("{}:{}", rule.source.name, rule.source.position(span.start).0);
        let miss = NearMiss { matched, ops, part, place, reason, origins: Vec::new() };
        if !misses.contains(&miss) {
            misses.push(miss);
        }
    };
    for found in &collector.found {
        let sight = Sight::of(pattern, egraph, found);
        match guard(rule, pattern, &mut egraph.analysis, &sight) {
            Ok(_) => return None,
            Err(NoMatch::Mismatch(misfit, span)) => add(ops, (text(rule, &span), &span), misfit.reason(rule)),
            Err(NoMatch::Unsolved(what, span)) => {
                add(ops, (text(rule, &span), &span), format!("cannot solve {what} from the program"));
            }
        }
    }
    if collector.found.is_empty() {
        for miss in &collector.misses {
            let (node, reason) = miss.reason(form, egraph);
            add(collector.ops, part(form, node), reason);
        }
    }
    let lacking = misses.first().map(|m| ops - m.matched)?;
    Some(Nearest { lacking, misses })
}

/// Returns the text of a part of the rule, in one line.
fn text(rule: &Rule, span: &Range<usize>) -> String {
    rule.source.text[span.clone()].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text and the position of a node of the pattern.
fn part(form: &Compiled, node: usize) -> (String, &Range<usize>) {
    let rule = &*form.rule;
    let whole = &rule.roots[0].span;
    match &form.pattern().nodes[node] {
        Pat::Op { call: Some((call, _)), .. } => {
            let span = form.pattern().terms[*call].as_ref().map_or(whole, |call| &call.span);
            (text(rule, span), span)
        }
        Pat::Op { op, call: None, .. } => (format!("{op}, which is part of the legal form of the left side"), whole),
        Pat::Number { wanted: Some(x) } => (format!("the number {}", x.value), whole),
        Pat::Number { wanted: None } => ("a number".into(), whole),
        Pat::Tensor { .. } => {
            let span = rule.tensors().nth(node).map_or(whole, |(variable, ..)| &variable.span);
            (text(rule, span), span)
        }
    }
}

/// Returns the type of a class, and the ops that compute it.
fn described(egraph: &EGraph, class: Id) -> String {
    let class = &egraph[class];
    let mut ops: Vec<&str> = class.nodes.iter().map(|n| n.op.name()).collect();
    ops.sort_unstable();
    ops.dedup();
    format!("{} by {}", egraph.analysis.ty(class.data.ty), ops.join(" or "))
}

impl Miss {
    /// Returns the node of the pattern that does not match, and the program's value in its place.
    fn reason(&self, form: &Compiled, egraph: &EGraph) -> (usize, String) {
        match *self {
            Miss::Operands { node, has } => (node, format!("there with {has} operands")),
            Miss::Attr { node, head, attr } => {
                let name = egraph.analysis.op(head).def().attrs[attr].name;
                (node, format!("there with :{name} {}", egraph.analysis.attrs(head)[attr]))
            }
            Miss::Other { node, class } => {
                (node, format!("is bound to another value elsewhere; here it is {}", described(egraph, class)))
            }
            Miss::Class { node, class } => {
                let data = &egraph[class].data;
                let there = described(egraph, class);
                let reason = match &form.pattern().nodes[node] {
                    Pat::Op { .. } => format!("there is {there}"),
                    Pat::Tensor { constant: true, .. } if !data.constant => format!("{there} depends on an input"),
                    Pat::Tensor { varied: true, .. } if data.scalar.is_some() => format!("{there} is one number"),
                    Pat::Tensor { wanted: None, .. } => format!("{there} has another number of axes"),
                    _ if data.scalar.is_none() => format!("{there} is not one number"),
                    _ => format!("{there} is another number"),
                };
                (node, reason)
            }
        }
    }
}

impl GuardMisfit {
    fn reason(&self, rule: &Rule) -> String {
        match self {
            GuardMisfit::Legal => "the value is in legal form already".into(),
            GuardMisfit::Type(mismatch) => mismatch.describe(&rule.scope),
            GuardMisfit::Attr(value) => format!("the attribute is {value}"),
            GuardMisfit::Number(value) => format!("the number is {value}"),
            GuardMisfit::Observed(observer) => format!(
                "`{observer}` observes this value, so only `exact` rules apply; this one promises {}",
                rule.contract
            ),
            GuardMisfit::Left => "the match has other types than the left side as it is written".into(),
        }
    }
}
