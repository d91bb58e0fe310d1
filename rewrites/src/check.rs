//! Checks that a rule can be loaded. Its sides must have the same type, the left side must determine everything on
//! the right, and the rule must not match its own result endlessly.
//!
//! All checks run the engine's own code on samples, so that a rule that loads also works. The embedded packs are not
//! checked when they are loaded, because a test checks them. `forms.txt` lists the samples from which their left
//! sides are compiled.

use egg::Id;
use eutectic_ir::{
    Attr, Attrs, Op, Type,
    lang::{
        Bindings, LangError,
        typing::{Bound, SlotKind},
    },
};
use std::sync::Arc;

use crate::{
    egraph::{EGraph, Facts, InternedNode, TypeId, classes_of},
    engine::{Engine, EngineLimits, Stop},
    expr::Wanted,
    guard::{NoMatch, Sight, guard},
    instantiate::{Instantiator, NoInstance, Ref},
    left::{Draw, compile_left, refuse},
    pattern::{Pat, Pattern},
    recipe::{Compiled, LeftSide},
    rule::{AppliedOp, OpTerm, Phase, Rule, Variable, VariableKind},
    sample::{Generic, Sample, draw},
};

/// The number of samples with a well-typed left side that are drawn for a rule.
const SAMPLES: usize = 4;
/// The number of samples if samples may need different legal forms of the left side.
const MANY_SAMPLES: usize = 12;
/// The maximal number of legal forms of one left side.
const MOST_FORMS: usize = 8;
/// The maximal number of draws.
const ATTEMPTS: u64 = 3000;
/// The maximal number of draws of samples with few axes.
const NARROW_ATTEMPTS: u64 = 200;

/// A rule with its samples and its compiled left sides.
struct Typed {
    samples: Vec<(Draw, Sample)>,
    /// The legal forms of the left side, each with the index of its sample.
    forms: Vec<(Compiled, usize)>,
}

/// Types and compiles a rule, and checks that it works.
///
/// # Errors
/// The first fault of the parsed rule.
pub(crate) fn checked(rule: Arc<Rule>) -> Result<Vec<Compiled>, LangError> {
    let Typed { samples, forms } = typed(rule)?;
    let samples: Vec<Sample> = samples.into_iter().map(|(_, sample)| sample).collect();
    for (form, sample) in &forms {
        tried(form, &samples, *sample)?;
        if !form.rule.once && !form.rule.group {
            self_feeding(form, &samples[*sample])?;
        }
    }
    Ok(forms.into_iter().map(|(form, _)| form).collect())
}

/// Types and compiles a rule without checking that it works, for rules that were checked before.
///
/// # Errors
/// If the rule's left side cannot be typed or compiled.
pub(crate) fn trusted(rule: Arc<Rule>) -> Result<Vec<Compiled>, LangError> {
    Ok(typed(rule)?.forms.into_iter().map(|(form, _)| form).collect())
}

fn typed(rule: Arc<Rule>) -> Result<Typed, LangError> {
    let mut facts = Facts::default();
    let (mut samples, problem) = samples(&rule, &mut facts, SAMPLES);
    if samples.is_empty() {
        let (message, span) = problem.unwrap_or_else(|| {
            let span = rule.relations.first().map_or(rule.roots[0].span.clone(), |(_, span)| span.clone());
            ("no values for its variables satisfy its types and relations".into(), span)
        });
        let help = "every rule is tested on samples; make the left side well typed for some sample";
        return Err(refuse(&rule, span, format!("the left side is well typed in no sample: {message}"), help));
    }
    let mut forms = forms(&rule, &mut facts, &samples)?;
    if forms[0].1.inserted() > 0 {
        // The legal form contains inserted views. Samples with fewer axes may not need them, and then have a separate
        // form.
        samples = self::samples(&rule, &mut facts, MANY_SAMPLES).0;
        samples.extend(narrow_samples(&rule, &mut facts));
        forms = self::forms(&rule, &mut facts, &samples)?;
    }
    let forms = forms.into_iter().take(MOST_FORMS).enumerate();
    let compiled = |(variant, (sample, pattern)): (usize, (usize, Pattern))| {
        let left = LeftSide::found(samples[sample].0.clone(), pattern);
        (Compiled { rule: rule.clone(), left, variant }, sample)
    };
    let forms = forms.map(compiled).collect();
    Ok(Typed { samples, forms })
}

/// Checks that a rule defines an op for each element type that the op's signature admits, and returns its forms.
///
/// # Errors
/// The errors of [`checked`], and an error if the right side has another type or none for an element type.
pub(crate) fn defining(rule: Arc<Rule>) -> Result<Vec<Compiled>, LangError> {
    let forms = checked(rule)?;
    let rule = forms[0].rule.clone();
    let mut facts = Facts::default();
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        let SlotKind::DType(class) = kind else { continue };
        for dtype in class.members() {
            let mut bound = Bindings::default();
            // The bindings are empty, so binding cannot fail.
            let _ = bound.bind(slot, Bound::DType(dtype));
            let drawn = (0..NARROW_ATTEMPTS).filter_map(|seed| draw(&rule, &mut Generic::new(seed), bound.clone()));
            let (mut tried, mut best) = (0, Outcome::NoMatch);
            for sample in drawn {
                if left(&rule, &mut facts, &sample).is_err() {
                    continue;
                }
                for form in &forms {
                    best = best.max(right(form, &sample)?);
                }
                tried += 1;
                if tried >= SAMPLES && best == Outcome::Fine {
                    break;
                }
            }
            if tried > 0 && best != Outcome::Fine {
                let message = format!("the definition has no value for {} = {dtype}", rule.scope.name(slot));
                let help = "declare the element types for which it has a value, such as (F float)";
                return Err(refuse(&rule, rule.roots[0].span.clone(), message, help));
            }
        }
    }
    Ok(forms)
}

/// Tries a form of the left side on all samples. It must match at least one of them, and the right side must have a
/// value there.
fn tried(form: &Compiled, samples: &[Sample], own: usize) -> Result<(), LangError> {
    let mut best = Outcome::NoMatch;
    for sample in samples {
        best = best.max(right(form, sample)?);
    }
    let (rule, values) = (&form.rule, shown(&form.rule, &samples[own]));
    match best {
        Outcome::Fine => Ok(()),
        Outcome::NoMatch => {
            let message = format!("the left side does not match an instance of itself with {values}");
            Err(refuse(
                rule,
                rule.roots[0].span.clone(),
                message,
                "write the left side in legal form, which `eutectic ops` shows",
            ))
        }
        Outcome::NoInstance => {
            let message = format!("the right side has no value for {values}");
            let help =
                "check its attributes: a quotient may be inexact, or an integer attribute may get another number";
            Err(refuse(rule, rule.roots[0].span.clone(), message, help))
        }
    }
}

/// The outcome of matching a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The left side does not match: the sample has another form, or a number that the element type cannot represent.
    NoMatch,
    /// The right side has no value.
    NoInstance,
    /// Both sides have the same type.
    Fine,
}

/// Returns the legal forms of the left side in the samples, each with the index of a sample. The form with the most
/// inserted views comes first.
fn forms(rule: &Rule, facts: &mut Facts, samples: &[(Draw, Sample)]) -> Result<Vec<(usize, Pattern)>, LangError> {
    let mut forms: Vec<(usize, Pattern)> = Vec::new();
    for (at, (_, sample)) in samples.iter().enumerate() {
        let pattern = compile_left(rule, facts, sample)?;
        if !forms.iter().any(|(_, other)| other.same_form(&pattern)) {
            forms.push((at, pattern));
        }
    }
    forms.sort_by_key(|(at, pattern)| (std::cmp::Reverse(pattern.inserted()), *at));
    Ok(forms)
}

pub(crate) type Complaint = (String, std::ops::Range<usize>);

/// Draws samples whose left side is well typed, the most generic first. Also returns the last type error of other
/// samples.
pub(crate) fn samples(rule: &Rule, facts: &mut Facts, count: usize) -> (Vec<(Draw, Sample)>, Option<Complaint>) {
    let (mut samples, mut problem) = (Vec::new(), None);
    for seed in 0..ATTEMPTS {
        let draw = Draw { seed, empty: Vec::new() };
        let Some(sample) = draw.sample(rule) else { continue };
        match left(rule, facts, &sample) {
            Ok(()) => samples.push((draw, sample)),
            Err(wrong) => problem = wrong.or(problem),
        }
        if samples.len() == count {
            break;
        }
    }
    (samples, problem)
}

/// Returns samples with empty sequences of dims: one for each sequence, and one in which all are empty. They need no
/// inserted views, and random draws rarely find them.
fn narrow_samples(rule: &Rule, facts: &mut Facts) -> Vec<(Draw, Sample)> {
    let is_sequence = |slot: &usize| rule.scope.variables[*slot].1 == SlotKind::Dims;
    let sequences: Vec<usize> = (0..rule.scope.variables.len()).filter(is_sequence).collect();
    let each = sequences.iter().map(std::slice::from_ref).filter(|_| sequences.len() > 1);
    let mut narrow = |empty: &[usize]| {
        let draws = (0..NARROW_ATTEMPTS).map(|seed| Draw { seed, empty: empty.to_vec() });
        let mut drawn = draws.filter_map(|draw| draw.sample(rule).map(|sample| (draw, sample)));
        drawn.find(|(_, sample)| left(rule, facts, sample).is_ok())
    };
    each.chain([&sequences[..]]).filter_map(&mut narrow).collect()
}

fn left(rule: &Rule, facts: &mut Facts, sample: &Sample) -> Result<(), Option<Complaint>> {
    let types: Vec<TypeId> = sample.types.iter().map(|t| facts.type_id(t.clone())).collect();
    let members = [sample.bindings.clone()];
    let mut builder = Instantiator::new(facts, rule, &members, &types);
    (builder.left, builder.legal) = (true, false);
    for root in &rule.roots {
        builder.term(&root.left, 0, None).map_err(|fault| match fault {
            NoInstance::Wrong { message, span } => Some((message, span)),
            NoInstance::Inapplicable => None,
        })?;
    }
    // Rules of the pack `legalize` must have a left side that is not legal.
    if rule.phase == Phase::Legalize
        && let Some((_, (Ref::Instr(at), _))) = builder.calls.iter().find(|(id, _)| root_call(rule) == Some(*id))
    {
        let instr = builder.instrs[*at].clone();
        let types: Vec<TypeId> = instr.args.iter().map(|arg| type_of(&builder, *arg)).collect();
        if builder.facts.is_legal(instr.head, &types) {
            return Err(Some(("the left side is in legal form already".into(), rule.roots[0].span.clone())));
        }
    }
    Ok(())
}

fn root_call(rule: &Rule) -> Option<usize> {
    match &rule.roots[0].left {
        crate::rule::Term::Call(call) => Some(call.id),
        _ => None,
    }
}

fn type_of(builder: &Instantiator<'_>, arg: Ref) -> TypeId {
    match arg {
        Ref::Class(n) => builder.types[n],
        Ref::Instr(n) => builder.instrs[n].ty,
        Ref::Number(_) => builder.types.first().copied().unwrap_or(TypeId(0)),
    }
}

/// Checks the right side on a sample of the left side. Its variables are bound from the left side alone, as in a
/// match.
fn right(compiled: &Compiled, sample: &Sample) -> Result<Outcome, LangError> {
    let rule = &compiled.rule;
    let Some((mut egraph, sight)) = instance(compiled, sample) else { return Ok(Outcome::NoMatch) };
    let facts = &mut egraph.analysis;
    let bindings = match guard(rule, compiled.pattern(), facts, &sight) {
        Ok(bindings) => bindings,
        Err(NoMatch::Unsolved(what, span)) => {
            let help = "an expression over dims is solved for one unknown only; let another type or a relation determine the others";
            return Err(refuse(rule, span, format!("cannot solve {what} from the left side"), help));
        }
        Err(NoMatch::Mismatch(..)) => return Ok(Outcome::NoMatch),
    };
    for (slot, span) in &rule.uses {
        if bindings.get(*slot).is_none() {
            let name = rule.scope.name(*slot);
            let help = "the right side may use what the types of the left side's tensors, its attributes and relations determine";
            return Err(refuse(rule, span.clone(), format!("the left side does not determine `{name}`"), help));
        }
    }
    let made = match rule.group {
        false => compiled.recipe(facts, &[&sight], &[bindings]),
        true => compiled.recipe(facts, &[&sight, &sight], &[bindings.clone(), bindings]),
    };
    match made {
        Ok(Some(_)) => Ok(Outcome::Fine),
        Ok(None) => Ok(Outcome::NoInstance),
        Err((message, span)) => {
            let help = "both sides must have one type for everything that the left side matches";
            Err(refuse(rule, span, format!("{message} (where {})", shown(rule, sample)), help))
        }
    }
}

/// Returns the types in a sample, for messages.
fn shown(rule: &Rule, sample: &Sample) -> String {
    let tensors = rule.tensors().zip(&sample.types).map(|((v, ..), ty)| format!("{} : {ty}", v.name));
    tensors.collect::<Vec<_>>().join(", ")
}

/// Returns an e-graph with the left side of a sample in legal form, and its match as the guard needs it.
fn instance(compiled: &Compiled, sample: &Sample) -> Option<(EGraph, Sight)> {
    let mut egraph = EGraph::new(Facts::default());
    let leaves = leaves(&compiled.rule, sample, &mut egraph);
    let types: Vec<TypeId> = sample.types.iter().map(|t| egraph.analysis.type_id(t.clone())).collect();
    let members = [sample.bindings.clone()];
    let mut builder = Instantiator::new(&mut egraph.analysis, &compiled.rule, &members, &types);
    for root in &compiled.rule.roots {
        builder.term(&root.left, 0, None).ok()?;
    }
    let instrs = builder.instrs;
    add(&mut egraph, &instrs, &leaves);
    egraph.rebuild();
    let mut sight: Option<Sight> = None;
    for class in classes_of(&egraph, compiled.pattern().entry().1.ops()) {
        let mut sights = Vec::new();
        compiled.pattern().search(&egraph, class, &mut |m: &crate::pattern::Match| {
            sights.push(Sight::of(compiled.pattern(), &egraph, m));
            true
        });
        for candidate in sights {
            match guard(&compiled.rule, compiled.pattern(), &mut egraph.analysis, &candidate) {
                Err(NoMatch::Mismatch(..)) => sight = sight.or(Some(candidate)),
                _ => return Some((egraph, candidate)),
            }
        }
    }
    sight.map(|s| (egraph, s))
}

/// Adds a leaf for each tensor variable.
fn leaves(rule: &Rule, sample: &Sample, egraph: &mut EGraph) -> Vec<Id> {
    let mut leaves = Vec::new();
    for ((variable, ..), ty) in rule.tensors().zip(&sample.types) {
        let (op, attrs) = leaf(variable, &variable.name, ty);
        let head = egraph.analysis.head(op, attrs);
        leaves.push(egraph.add(InternedNode { head, op, children: Default::default() }));
    }
    leaves
}

/// Returns the leaf for a tensor variable: a parameter if the variable must be constant, a number if it must be near
/// a number, and otherwise an input.
pub(crate) fn leaf(variable: &Variable, name: &str, ty: &Type) -> (Op, Attrs) {
    let (op, attrs) = match (variable.wanted, ty) {
        (Some(Wanted { value: x, .. }), Type::Tensor(dtype, shape)) => {
            let dims = shape.known().unwrap_or_default();
            let count = dims.iter().product::<usize>();
            let tensor = eutectic_ir::Tensor::from_f64(*dtype, &dims, std::iter::repeat_n(x, count));
            ("const", Attrs::from_iter([Attr::Tensor(tensor)]))
        }
        _ => {
            let constant = matches!(variable.kind, VariableKind::Tensor { constant: true, .. });
            let op = if constant { "param" } else { "input" };
            (op, Attrs::from_iter([name.into(), Attr::Type(ty.clone())]))
        }
    };
    (Op::named(op).expect("the op table has an op for each leaf"), attrs)
}

/// Adds the nodes of instructions to an e-graph.
pub(crate) fn add(egraph: &mut EGraph, instrs: &[crate::instantiate::NodeRecipe], leaves: &[Id]) -> Vec<Id> {
    let mut ids: Vec<Id> = Vec::new();
    for instr in instrs {
        let children = instr.args.iter().map(|arg| match arg {
            Ref::Class(n) => leaves[*n],
            Ref::Instr(n) => ids[*n],
            Ref::Number(_) => unreachable!("a side in legal form has no number without an element type"),
        });
        let node = InternedNode { head: instr.head, op: egraph.analysis.op(instr.head), children: children.collect() };
        ids.push(egraph.add(node));
    }
    ids
}

/// Runs the rule on its own right side. Fails if the rule does not saturate, because it then matches its own result
/// endlessly.
fn self_feeding(compiled: &Compiled, sample: &Sample) -> Result<(), LangError> {
    let Some((mut source, sight)) = instance(compiled, sample) else { return Ok(()) };
    let Ok(bindings) = guard(&compiled.rule, compiled.pattern(), &mut source.analysis, &sight) else { return Ok(()) };
    let mut egraph = EGraph::new(Facts::default());
    let leaves = leaves(&compiled.rule, sample, &mut egraph);
    let types: Vec<TypeId> = sample.types.iter().map(|t| egraph.analysis.type_id(t.clone())).collect();
    let members: [Bindings; 1] = [bindings];
    let mut builder = Instantiator::new(&mut egraph.analysis, &compiled.rule, &members, &types);
    for root in &compiled.rule.roots {
        if builder.term(&root.right, 0, sample.types.first().and_then(Type::dtype)).is_err() {
            return Ok(());
        }
    }
    let instrs = builder.instrs;
    add(&mut egraph, &instrs, &leaves);
    let rules = [Arc::new(compiled.clone())];
    let limits = EngineLimits { applications: usize::MAX, nodes: 40, iterations: 12, matches: 200 };
    let mut engine = Engine::new(egraph, &rules, limits);
    match engine.run(&compiled.rule.phase) {
        Ok(report) if report.stop != Stop::Saturated => Err(refuse(
            &compiled.rule,
            compiled.rule.roots[0].span.clone(),
            "the rule never terminates: its right side matches its left side again".into(),
            "let the right side be of a form that the left does not match; associativity and distribution are `(once)`",
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the declared variables that a rule never uses.
pub(crate) fn unused(compiled: &Compiled) -> Vec<(String, std::ops::Range<usize>)> {
    let rule = &compiled.rule;
    let mut used = vec![false; rule.scope.variables.len()];
    rule.uses.iter().for_each(|(slot, _)| used[*slot] = true);
    let numbers_on_the_left = |slot: usize| {
        let mut found = false;
        for root in &rule.roots {
            root.left.visit(&mut |t| {
                if let crate::rule::Term::Number { expr, .. } = t {
                    expr.slots(&mut |s| found |= s == slot);
                }
            });
        }
        found
    };
    let in_attrs = |slot: usize| {
        compiled.pattern().terms.iter().flatten().flat_map(|c| c.attrs.iter().flatten()).any(|t| match t {
            crate::rule::AttrTerm::Slot(s) => *s == slot,
            _ => false,
        })
    };
    let applied = |slot: usize| {
        let is_it = |call: &AppliedOp| matches!(call.op, OpTerm::Variable(s, _) if s == slot);
        compiled.pattern().terms.iter().flatten().any(is_it)
    };
    rule.variables
        .iter()
        .filter_map(|v| match &v.kind {
            VariableKind::Number(slot) | VariableKind::Attr(slot, _)
                if !used[*slot] && !in_attrs(*slot) && !numbers_on_the_left(*slot) =>
            {
                Some((v.name.clone(), v.span.clone()))
            }
            VariableKind::Op(slot, _) if !applied(*slot) => Some((v.name.clone(), v.span.clone())),
            _ => None,
        })
        .collect()
}

/// Returns the number of op nodes of a left side.
pub(crate) fn size(pattern: &Pattern) -> usize {
    pattern.nodes.iter().filter(|n| matches!(n, Pat::Op { .. })).count()
}
