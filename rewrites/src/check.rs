//! What must hold for a rule to load: sides of one type, everything on the right determined by the left, not self-feeding.
//!
//! All of it is checked on samples, with the code that runs later: what loads is what works. The packs that are part of the library
//! are only compiled when they load, for a test has checked them.

use egg::Id;
use eutectic_ir::{
    Attr, Attrs, Op, Shape, Type,
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
    parse::located,
    pattern::{Pat, Pattern},
    recipe::Compiled,
    rule::{AppliedOp, OpTerm, Phase, Rule, Variable, VariableKind},
    sample::{Generic, Sample, draw},
};

/// Draws until so many samples have a left side that is well typed.
const SAMPLES: usize = 4;
/// So many where the legal form of the left side may differ between them.
const MANY_SAMPLES: usize = 12;
/// Most legal forms of one left side.
const MOST_FORMS: usize = 8;
/// Draws at most so many.
const ATTEMPTS: u64 = 3000;
/// At most so many for one of few axes.
const NARROW_ATTEMPTS: u64 = 200;

/// A rule, typed and compiled.
struct Typed {
    samples: Vec<Sample>,
    /// Each legal form of the left side, and which of the samples has it.
    forms: Vec<(Compiled, usize)>,
}

/// Types and compiles a rule, and checks that it works.
///
/// # Errors
/// Everything for which a rule is refused once it is read.
pub(crate) fn checked(rule: Rule) -> Result<Vec<Compiled>, LangError> {
    let Typed { samples, forms } = typed(rule)?;
    for (form, sample) in &forms {
        tried(form, &samples, *sample)?;
        if !form.rule.once && !form.rule.group {
            self_feeding(form, &samples[*sample])?;
        }
    }
    Ok(forms.into_iter().map(|(form, _)| form).collect())
}

/// Types and compiles a rule that is known to work, in half the time.
///
/// # Errors
/// When its left side cannot be typed or compiled.
pub(crate) fn trusted(rule: Rule) -> Result<Vec<Compiled>, LangError> {
    Ok(typed(rule)?.forms.into_iter().map(|(form, _)| form).collect())
}

fn typed(rule: Rule) -> Result<Typed, LangError> {
    let mut facts = Facts::default();
    let (mut samples, problem) = samples(&rule, &mut facts, SAMPLES);
    if samples.is_empty() {
        let (message, span) = problem.unwrap_or_else(|| {
            let span = rule.relations.first().map_or(rule.roots[0].span.clone(), |(_, span)| span.clone());
            ("no values for its variables satisfy its types and relations".into(), span)
        });
        let help = "every rule is tested on samples; see to it that the left side is well typed for some";
        return Err(refuse(&rule, span, format!("no sample of the left side works: {message}"), help));
    }
    let mut forms = forms(&rule, &mut facts, &samples)?;
    if forms[0].1.inserted() > 0 {
        // Where something is put in to reach the legal form, narrower shapes may not need it: a form of their own.
        samples = self::samples(&rule, &mut facts, MANY_SAMPLES).0;
        samples.extend(narrow_samples(&rule, &mut facts));
        forms = self::forms(&rule, &mut facts, &samples)?;
    }
    let rule = Arc::new(rule);
    let forms = forms.into_iter().take(MOST_FORMS).enumerate();
    let forms =
        forms.map(|(variant, (sample, pattern))| (Compiled { rule: rule.clone(), pattern, variant }, sample)).collect();
    Ok(Typed { samples, forms })
}

/// Checks that a rule defines an op for each element type that the op's signature admits, and returns its forms.
///
/// # Errors
/// As [`checked`]; when the right side has another type for one of them, or none.
pub(crate) fn defining(rule: Rule) -> Result<Vec<Compiled>, LangError> {
    let forms = checked(rule)?;
    let rule = forms[0].rule.clone();
    let mut facts = Facts::default();
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        let SlotKind::DType(class) = kind else { continue };
        for dtype in class.members() {
            let mut bound = Bindings::default();
            // The slot is open.
            let _ = bound.bind(slot, Bound::DType(dtype));
            let drawn = (0..NARROW_ATTEMPTS).filter_map(|seed| drawn(&rule, seed, bound.clone()));
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
                let message = format!("the definition has no value where {} = {dtype}", rule.scope.name(slot));
                let help = "declare the element types for which it has one, such as (F float)";
                return Err(refuse(&rule, rule.roots[0].span.clone(), message, help));
            }
        }
    }
    Ok(forms)
}

/// Tries a form of the left side on all samples; it must match, and have a right side, on one of them at least.
fn tried(form: &Compiled, samples: &[Sample], own: usize) -> Result<(), LangError> {
    let mut best = Outcome::NoMatch;
    for sample in samples {
        best = best.max(right(form, sample)?);
    }
    let (rule, values) = (&form.rule, shown(&form.rule, &samples[own]));
    match best {
        Outcome::Fine => Ok(()),
        Outcome::NoMatch => {
            let message = format!("the left side does not match an instance of itself, where {values}");
            Err(refuse(rule, rule.roots[0].span.clone(), message, "state it in legal form: `eutectic ops` shows that"))
        }
        Outcome::NoInstance => {
            let message = format!("the right side has no instance where {values}");
            let help = "an attribute of it has no value: an inexact quotient, or a number where an integer must be";
            Err(refuse(rule, rule.roots[0].span.clone(), message, help))
        }
    }
}

/// How far a sample gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The left side does not match: another form, or a number that the element type does not hold.
    NoMatch,
    /// The right side has no value.
    NoInstance,
    /// Both sides have one type.
    Fine,
}

/// The legal forms of the left side that samples have, each with a sample; the one into which most is put comes first.
fn forms(rule: &Rule, facts: &mut Facts, samples: &[Sample]) -> Result<Vec<(usize, Pattern)>, LangError> {
    let mut forms: Vec<(usize, Pattern)> = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        let pattern = compile_left(rule, facts, sample)?;
        if !forms.iter().any(|(_, other)| other.same_form(&pattern)) {
            forms.push((at, pattern));
        }
    }
    forms.sort_by_key(|(at, pattern)| (std::cmp::Reverse(pattern.inserted()), *at));
    Ok(forms)
}

fn refuse(rule: &Rule, span: std::ops::Range<usize>, message: String, help: &str) -> LangError {
    located(&rule.source, &rule.name, span, message, help)
}

type Complaint = (String, std::ops::Range<usize>);

/// Samples whose left side is well typed, the most generic first, and the last problem with one that is not.
fn samples(rule: &Rule, facts: &mut Facts, count: usize) -> (Vec<Sample>, Option<Complaint>) {
    let (mut samples, mut problem) = (Vec::new(), None);
    for seed in 0..ATTEMPTS {
        let Some(sample) = drawn(rule, seed, Bindings::default()) else { continue };
        match left(rule, facts, &sample) {
            Ok(()) => samples.push(sample),
            Err(wrong) => problem = wrong.or(problem),
        }
        if samples.len() == count {
            break;
        }
    }
    (samples, problem)
}

/// Samples in which a sequence of dims is empty: one for each, and one in which all of them are. That is where nothing has to be
/// put in, and chance alone would miss it now and then.
fn narrow_samples(rule: &Rule, facts: &mut Facts) -> Vec<Sample> {
    let is_sequence = |slot: &usize| rule.scope.variables[*slot].1 == SlotKind::Dims;
    let sequences: Vec<usize> = (0..rule.scope.variables.len()).filter(is_sequence).collect();
    let each = sequences.iter().map(std::slice::from_ref).filter(|_| sequences.len() > 1);
    let mut narrow = |empty: &[usize]| {
        let mut bound = Bindings::default();
        for slot in empty {
            bound.bind(*slot, Bound::Dims(Shape::default())).ok()?;
        }
        let mut drawn = (0..NARROW_ATTEMPTS).filter_map(|seed| drawn(rule, seed, bound.clone()));
        drawn.find(|sample| left(rule, facts, sample).is_ok())
    };
    each.chain([&sequences[..]]).filter_map(&mut narrow).collect()
}

fn drawn(rule: &Rule, seed: u64, bound: Bindings) -> Option<Sample> {
    draw(rule, &mut Generic::new(seed), bound)
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
    // The pack `legalize` is about forms that are not legal.
    if rule.phase == Phase::Legalize
        && let Some((_, (Ref::Instr(at), _))) = builder.calls.iter().find(|(id, _)| root_call(rule) == Some(*id))
    {
        let instr = builder.instrs[*at].clone();
        let types: Vec<TypeId> = instr.args.iter().map(|arg| type_of(&builder, *arg)).collect();
        if builder.facts.is_legal(instr.head, &types) {
            return Err(Some(("its left side is in legal form already".into(), rule.roots[0].span.clone())));
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

/// Compiles the left side in the legal form that a generic sample has.
fn compile_left(rule: &Rule, facts: &mut Facts, sample: &Sample) -> Result<Pattern, LangError> {
    let types: Vec<TypeId> = sample.types.iter().map(|t| facts.type_id(t.clone())).collect();
    let members = [sample.bindings.clone()];
    let mut builder = Instantiator::new(facts, rule, &members, &types);
    builder.left = true;
    let mut tops = Vec::new();
    for root in &rule.roots {
        let made = builder.term(&root.left, 0, None).map_err(|fault| {
            let message = match fault {
                NoInstance::Wrong { message, .. } => message,
                NoInstance::Inapplicable => "a value on the left does not work out".into(),
            };
            refuse(rule, root.span.clone(), message, "see the op's signature: `eutectic ops`")
        })?;
        tops.push(made.0);
    }
    Pattern::compile(&builder, &tops)
        .map_err(|message| refuse(rule, rule.roots[0].span.clone(), message, "split the rule, or share a subterm"))
}

/// Checks the right side on a sample of the left, bound from scratch as a match would be.
fn right(compiled: &Compiled, sample: &Sample) -> Result<Outcome, LangError> {
    let rule = &compiled.rule;
    let Some((mut egraph, sight)) = instance(compiled, sample) else { return Ok(Outcome::NoMatch) };
    let facts = &mut egraph.analysis;
    let bindings = match guard(rule, &compiled.pattern, facts, &sight) {
        Ok(bindings) => bindings,
        Err(NoMatch::Unsolved(what, span)) => {
            let help =
                "a dim expression is solved for its one unknown: let another type, or a relation, determine the others";
            return Err(refuse(rule, span, format!("{what} cannot be solved from the left side"), help));
        }
        Err(NoMatch::Mismatch(..)) => return Ok(Outcome::NoMatch),
    };
    for (slot, span) in &rule.uses {
        if bindings.get(*slot).is_none() {
            let name = rule.scope.name(*slot);
            let help = "the right side may use what the types of the left side's tensors, its attributes and relations determine";
            return Err(refuse(rule, span.clone(), format!("nothing on the left determines `{name}`"), help));
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
            let help = "both sides must have one type for all that the left side matches";
            Err(refuse(rule, span, format!("{message} (where {})", shown(rule, sample)), help))
        }
    }
}

/// The values of a sample, for messages.
fn shown(rule: &Rule, sample: &Sample) -> String {
    let tensors = rule.tensors().zip(&sample.types).map(|((v, ..), ty)| format!("{} : {ty}", v.name));
    tensors.collect::<Vec<_>>().join(", ")
}

/// An e-graph that holds the left side of a sample in legal form, and what the guard sees of the match.
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
    for class in classes_of(&egraph, compiled.pattern.entry().1.ops()) {
        let mut sights = Vec::new();
        compiled.pattern.search(&egraph, class, &mut |m: &crate::pattern::Match| {
            sights.push(Sight::of(&compiled.pattern, &egraph, m));
            true
        });
        for candidate in sights {
            match guard(&compiled.rule, &compiled.pattern, &mut egraph.analysis, &candidate) {
                Err(NoMatch::Mismatch(..)) => sight = sight.or(Some(candidate)),
                _ => return Some((egraph, candidate)),
            }
        }
    }
    sight.map(|s| (egraph, s))
}

/// A leaf for each tensor variable.
fn leaves(rule: &Rule, sample: &Sample, egraph: &mut EGraph) -> Vec<Id> {
    let mut leaves = Vec::new();
    for ((variable, ..), ty) in rule.tensors().zip(&sample.types) {
        let (op, attrs) = leaf(variable, &variable.name, ty);
        let head = egraph.analysis.head(op, attrs);
        leaves.push(egraph.add(InternedNode { head, op, children: Default::default() }));
    }
    leaves
}

/// What stands for a tensor variable: a parameter where it must be constant, a number where it must be near one, else an
/// input.
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
    (Op::named(op).expect("the op table has leaves"), attrs)
}

/// Adds the nodes of instructions.
pub(crate) fn add(egraph: &mut EGraph, instrs: &[crate::instantiate::NodeRecipe], leaves: &[Id]) -> Vec<Id> {
    let mut ids: Vec<Id> = Vec::new();
    for instr in instrs {
        let children = instr.args.iter().map(|arg| match arg {
            Ref::Class(n) => leaves[*n],
            Ref::Instr(n) => ids[*n],
            Ref::Number(_) => unreachable!("numbers stay open on left sides only"),
        });
        let node = InternedNode { head: instr.head, op: egraph.analysis.op(instr.head), children: children.collect() };
        ids.push(egraph.add(node));
    }
    ids
}

/// Runs the rule on its own right side: one that keeps growing feeds itself.
fn self_feeding(compiled: &Compiled, sample: &Sample) -> Result<(), LangError> {
    let Some((mut source, sight)) = instance(compiled, sample) else { return Ok(()) };
    let Ok(bindings) = guard(&compiled.rule, &compiled.pattern, &mut source.analysis, &sight) else { return Ok(()) };
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
    match engine.run(compiled.rule.phase) {
        Ok(report) if report.stop != Stop::Saturated => Err(refuse(
            &compiled.rule,
            compiled.rule.roots[0].span.clone(),
            "the rule feeds itself: its right side matches its left side again, and so on".into(),
            "let the right side be of a form that the left does not match; associativity and distribution are `(once)`",
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What a rule declares and never uses.
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
        compiled.pattern.terms.iter().flatten().flat_map(|c| c.attrs.iter().flatten()).any(|t| match t {
            crate::rule::AttrTerm::Slot(s) => *s == slot,
            _ => false,
        })
    };
    let applied = |slot: usize| {
        let is_it = |call: &AppliedOp| matches!(call.op, OpTerm::Variable(s, _) if s == slot);
        compiled.pattern.terms.iter().flatten().any(is_it)
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

/// The number of nodes of a left side.
pub(crate) fn size(pattern: &Pattern) -> usize {
    pattern.nodes.iter().filter(|n| matches!(n, Pat::Op { .. })).count()
}
