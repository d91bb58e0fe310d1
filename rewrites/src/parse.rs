//! Reads rule files: from S-expressions to [`Rule`]s, with the position of every error.

pub(crate) mod declarations;
pub(crate) mod op_form;
mod per_op;
mod sides;

use std::ops::Range;

use eutectic_ir::{
    lang::{
        LangError, Sexp, SexpKind, Source,
        sexp::{did_you_mean, nearest},
        typing::{Scope, SlotKind, is_variable},
    },
    ops::Ops,
};
use per_op::one_per_op;

use crate::{
    device::{LIMITS, LimitGuard},
    phase::{Phase, Phases, is_phase},
    rule::{Contract, Rule, Term, Variable},
};

/// A marker that an error was recorded, for early returns.
pub(crate) struct Noted;

/// The ops that rules may name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub ops: Ops,
    /// The names of ops whose declarations are wrong. Uses of these names are not reported as further errors.
    pub broken: Vec<String>,
    /// The built-in phases and those that the files declare.
    pub phases: Phases,
}

/// Returns whether a form declares an op.
pub(crate) fn is_op(form: &Sexp) -> bool {
    form.call().is_some_and(|(head, _)| head == "op")
}

/// Returns the declarations of ops in a source.
pub(crate) fn ops_of<'s>(source: &'s Source, forms: &'s [Sexp]) -> impl Iterator<Item = (&'s Source, &'s Sexp)> {
    forms.iter().filter(|form| is_op(form)).map(move |form| (source, form))
}

/// Returns the declarations of phases in a source.
pub(crate) fn phases_of<'s>(source: &'s Source, forms: &'s [Sexp]) -> impl Iterator<Item = (&'s Source, &'s Sexp)> {
    forms.iter().filter(|form| is_phase(form)).map(move |form| (source, form))
}

/// Reads the rules of a file. Wrong rules are left out and reported.
pub(crate) fn rules(source: &Source, forms: &[Sexp], known: &Known) -> (Vec<Rule>, Vec<LangError>) {
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for form in forms.iter().filter(|form| !is_op(form) && !is_phase(form)) {
        for (suffix, form) in one_per_op(form) {
            let (rule, mut wrong) = RuleReader::rule(source, &form, &suffix, known);
            rules.extend(rule);
            // A rule for several ops is read once per op. Its copies repeat the same errors, which are reported once.
            let said = |e: &LangError| errors.iter().any(|o: &LangError| o.offset() == e.offset());
            wrong.retain(|e| suffix.is_empty() || !said(e));
            errors.extend(wrong);
        }
    }
    (rules, errors)
}

/// Calls `visit` with the name of every sequence of dims that is written with dots (`B..`).
pub(crate) fn sequences<'s>(sexp: &'s Sexp, visit: &mut dyn FnMut(&'s str)) {
    match &sexp.kind {
        SexpKind::Atom(a) => {
            if let Some(name) = a.strip_suffix("..").filter(|n| is_variable(n)) {
                visit(name);
            }
        }
        SexpKind::List(items) | SexpKind::Bracket(_, items) => items.iter().for_each(|s| sequences(s, visit)),
        _ => {}
    }
}

/// The side of a rule that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleSide {
    Left,
    Right,
}

/// Reads one rule.
pub(crate) struct RuleReader<'a> {
    pub source: &'a Source,
    pub known: &'a Known,
    /// The documentation of a rule that is generated from an op's declaration. Other rules have a comment above them.
    doc: Option<String>,
    pub name: String,
    pub scope: Scope,
    pub variables: Vec<Variable>,
    /// The names with wrong declarations. Uses of these names are not reported as further errors.
    pub misdeclared: Vec<String>,
    pub lets: Vec<(String, Term)>,
    pub uses: Vec<(usize, Range<usize>)>,
    pub calls: usize,
    pub numbers: usize,
    left_numbers: usize,
    pub group: Option<String>,
    pub contract: Option<Contract>,
    errors: Vec<LangError>,
}

/// The words that start top-level forms. Graph files have `graph` and `op`, and rule files have all but `graph`.
pub const TOP_FORMS: [&str; 4] = ["rule", "op", "phase", "graph"];

/// The words that start the parts of a rule.
pub const RULE_PARTS: [&str; 13] = [
    "forall",
    "where",
    "let",
    "=>",
    "roots",
    "group",
    "eq",
    "once",
    "canonical",
    "backend",
    "device",
    "phase",
    "price",
];

/// The numeric contracts between the two sides of a rule, as rule files name them.
pub const CONTRACTS: [&str; 4] = ["exact", "ulp", "reassoc", "fast"];

const SHAPE_OF_A_RULE: &str = "(rule pack/name (forall …) (=> left right) (eq exact|(ulp n)|reassoc|fast))";

impl<'a> RuleReader<'a> {
    fn rule(source: &'a Source, form: &Sexp, suffix: &str, known: &'a Known) -> (Option<Rule>, Vec<LangError>) {
        RuleReader::new(source, known, None).all(form, suffix)
    }

    /// Reads the rule that is generated from an op's declaration.
    pub fn definition(
        source: &'a Source,
        form: &Sexp,
        known: &'a Known,
        doc: String,
    ) -> (Option<Rule>, Vec<LangError>) {
        RuleReader::new(source, known, Some(doc)).all(form, "")
    }

    fn all(mut self, form: &Sexp, suffix: &str) -> (Option<Rule>, Vec<LangError>) {
        let rule = self.read(form, suffix).ok().filter(|_| self.errors.is_empty());
        (rule, self.errors)
    }

    fn new(source: &'a Source, known: &'a Known, doc: Option<String>) -> RuleReader<'a> {
        RuleReader {
            source,
            known,
            doc,
            name: String::new(),
            scope: Scope::default(),
            variables: Vec::new(),
            misdeclared: Vec::new(),
            lets: Vec::new(),
            uses: Vec::new(),
            calls: 0,
            numbers: 0,
            left_numbers: 0,
            group: None,
            contract: None,
            errors: Vec::new(),
        }
    }

    /// Records an error at a position of the rule.
    pub fn wrong<T>(
        &mut self,
        span: Range<usize>,
        message: impl std::fmt::Display,
        help: impl Into<String>,
    ) -> Result<T, Noted> {
        self.errors.push(located(self.source, &self.name, span, message, help));
        Err(Noted)
    }

    /// Records an error that the reader of types, dims or relations returned.
    pub fn note<T>(&mut self, result: Result<T, LangError>) -> Result<T, Noted> {
        result.map_err(|mut error| {
            error.message = format!("{}: {}", self.name, error.message);
            self.errors.push(error);
            Noted
        })
    }

    fn read(&mut self, form: &Sexp, suffix: &str) -> Result<Rule, Noted> {
        let Some(("rule", items)) = form.call() else {
            self.name = "(no rule)".into();
            let guess = form.call().and_then(|(head, _)| did_you_mean(head, ["rule", "op", "phase"].into_iter()));
            let help = guess.unwrap_or_else(|| SHAPE_OF_A_RULE.into());
            return self.wrong(start(form), "this is neither a rule nor an op nor a phase", help);
        };
        self.name = "(unnamed)".into();
        let name = items.first().and_then(Sexp::atom).filter(|n| !n.starts_with([':', '?'])).unwrap_or_default();
        match name.split_once('/') {
            Some((pack, rest)) if !pack.is_empty() && !rest.is_empty() => self.name = format!("{name}{suffix}"),
            _ => {
                let at = items.first().map_or(start(form), |s| s.span.clone());
                let what = if name.is_empty() { "this rule has no name" } else { "the name of this rule has no pack" };
                return self.wrong(at, what, "name it pack/name, such as fuse/linear-act");
            }
        }
        let doc = self.doc(form);
        let mut parts = Parts::default();
        for item in &items[1..] {
            let _ = self.part(item, &mut parts);
        }
        let forall = parts.forall.take();
        self.contract = parts.contract;
        // A name that occurs as `B..` anywhere is a sequence everywhere, because a relation may omit the dots.
        sequences(form, &mut |name| {
            let _ = self.scope.slot(name, SlotKind::Dims);
        });
        if let Some(forall) = &forall {
            self.declare(forall);
        }
        let relations = self.relations(&parts);
        let roots = self.roots(&parts, form);
        let Some(contract) = parts.contract else {
            return self.wrong(
                start(form),
                "this rule has no numeric contract",
                "add (eq exact), (eq (ulp n)), (eq reassoc) or (eq fast)",
            );
        };
        Ok(Rule {
            name: self.name.as_str().into(),
            doc: doc?,
            contract,
            once: parts.once,
            backends: parts.backends,
            limits: parts.limits,
            price: parts.price.unwrap_or(1.0),
            canonical: parts.canonical,
            phase: parts.phase.unwrap_or_else(|| Phase::of_pack(name.split('/').next().unwrap_or_default())),
            source: self.source.clone(),
            span: form.span.clone(),
            relations: relations?,
            roots: roots?,
            group: self.group.is_some(),
            scope: std::mem::take(&mut self.scope),
            variables: std::mem::take(&mut self.variables),
            lets: std::mem::take(&mut self.lets),
            uses: std::mem::take(&mut self.uses),
            calls: self.calls,
            numbers: self.left_numbers,
            proof: None,
        })
    }

    /// Returns the text of the `;;` lines directly above the rule.
    fn doc(&mut self, form: &Sexp) -> Result<String, Noted> {
        if let Some(doc) = self.doc.take() {
            return Ok(doc);
        }
        let doc = comment_above(self.source, form);
        if doc.is_empty() {
            let help = "state the algebra in a `;;` comment right above it, such as `;; x · 1 = x`";
            return self.wrong(start(form), "this rule is not documented", help);
        }
        Ok(doc)
    }

    fn part<'s>(&mut self, item: &'s Sexp, parts: &mut Parts<'s>) -> Result<(), Noted> {
        let Some((head, items)) = item.call() else {
            let guess = item.atom().and_then(|word| nearest(word, RULE_PARTS.into_iter()));
            let guess = guess.map_or(String::new(), |part| format!("did you mean `({part})`? "));
            let help = format!("{guess}{SHAPE_OF_A_RULE}");
            return self.wrong(item.span.clone(), "this is not a part of a rule", help);
        };
        match head {
            "forall" if parts.forall.is_none() => parts.forall = Some(items),
            "where" => parts.relations.extend(items),
            "let" => parts.lets.push(item),
            "=>" => parts.sides.push(item),
            "roots" => parts.sides.extend(items),
            "group" if parts.group.is_none() => parts.group = Some(item),
            "eq" if parts.contract.is_none() => parts.contract = Some(self.contract(item)?),
            "backend" if parts.backends.is_empty() => match items.iter().map(Sexp::atom).collect::<Option<Vec<_>>>() {
                Some(names) if !names.is_empty() => parts.backends = names.into_iter().map(str::to_string).collect(),
                _ => {
                    let help = "write (backend cuda vulkan); `eutectic devices` lists the backends";
                    return self.wrong(item.span.clone(), "this does not name a backend", help);
                }
            },
            "device" if parts.limits.is_empty() && !items.is_empty() => {
                parts.limits = items.iter().map(|item| self.limit(item)).collect::<Result<_, _>>()?;
            }
            "phase" if parts.phase.is_none() => parts.phase = Some(self.phase(item)?),
            "price" if parts.price.is_none() => parts.price = Some(self.price(item)?),
            "once" if items.is_empty() => parts.once = true,
            "canonical" if items.is_empty() => parts.canonical = true,
            _ if RULE_PARTS.contains(&head) => {
                let help = "a rule has one `forall`, `group`, `backend`, `device`, `phase`, `price` and `eq`; `once` and `canonical` stand alone";
                let message = format!("`{head}` occurs twice or has the wrong number of arguments");
                return self.wrong(item.span.clone(), message, help);
            }
            _ => {
                let help = did_you_mean(head, RULE_PARTS.iter().copied()).unwrap_or_else(|| SHAPE_OF_A_RULE.into());
                return self.wrong(item.span.clone(), format!("`{head}` is not allowed here"), help);
            }
        }
        Ok(())
    }

    /// Reads a guard on a limit of the device.
    fn limit(&mut self, item: &Sexp) -> Result<LimitGuard, Noted> {
        if let Some((bound @ ("least" | "most"), [name, number])) = item.call()
            && let Some(limit) = name.atom().and_then(LimitGuard::named)
            && let Some(number) = number.atom().and_then(natural)
        {
            return Ok(LimitGuard { limit, least: bound == "least", number });
        }
        let known: Vec<String> = LIMITS.iter().map(|(name, unit)| format!("{name} ({unit})")).collect();
        let help = format!("write (device (least memory 8e9) (most axes 6)); the limits are {}", known.join(", "));
        self.wrong(item.span.clone(), "this is not a bound on a limit of the device", help)
    }

    fn phase(&mut self, item: &Sexp) -> Result<Phase, Noted> {
        let Some((_, [name])) = item.call() else {
            return self.wrong(item.span.clone(), "this does not name a phase", "write (phase algebra)");
        };
        let known = self.known;
        let name = name.atom().unwrap_or_default();
        match known.phases.named(name) {
            // Rules for legalization have another form: their sides are read as they are written, without insertion
            // of views.
            Some(Phase::Legalize) if !self.name.starts_with("legalize/") => self.wrong(
                item.span.clone(),
                "only rules of the pack `legalize` run in the phase `legalize`",
                "name another phase",
            ),
            Some(phase) => Ok(phase.clone()),
            None => self.wrong(item.span.clone(), format!("there is no phase `{name}`"), known.phases.help(name)),
        }
    }

    fn price(&mut self, item: &Sexp) -> Result<f64, Noted> {
        let number = item.call().and_then(|(_, items)| match items {
            [number] => number.atom()?.parse::<f64>().ok(),
            _ => None,
        });
        match number.filter(|factor| (0.01..=100.0).contains(factor)) {
            Some(factor) => Ok(factor),
            None => {
                let help = "write (price 0.8): kernels with the rule's result count as 0.8 of their predicted time";
                self.wrong(item.span.clone(), "this is not a factor from 0.01 to 100", help)
            }
        }
    }

    fn contract(&mut self, item: &Sexp) -> Result<Contract, Noted> {
        if let Some((_, [what])) = item.call() {
            match (what.atom(), what.call()) {
                (Some("exact"), _) => return Ok(Contract::Exact),
                (Some("reassoc"), _) => return Ok(Contract::Reassoc),
                (Some("fast"), _) => return Ok(Contract::Fast),
                (_, Some(("ulp", [n]))) => {
                    if let Some(n) = n.atom().and_then(|n| n.parse().ok()) {
                        return Ok(Contract::Ulp(n));
                    }
                }
                _ => {}
            }
        }
        let word = item.call().and_then(|(_, items)| items.first()?.atom().or_else(|| Some(items[0].call()?.0)));
        let guess = word.and_then(|word| did_you_mean(word, CONTRACTS.into_iter()));
        let help = "write (eq exact), (eq (ulp 4)), (eq reassoc) or (eq fast)";
        let help = guess.map_or(help.to_string(), |guess| format!("{guess} {help}"));
        self.wrong(item.span.clone(), "this is not a numeric contract", help)
    }
}

/// Returns a non-negative integer, which may be written with an exponent.
fn natural(text: &str) -> Option<u64> {
    let number = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (0.0..=9e15).contains(n))?;
    Some(number as u64)
}

/// Returns the text of the `;;` lines directly above a form.
pub(crate) fn comment_above(source: &Source, form: &Sexp) -> String {
    let before = source.text[..form.span.start].trim_end_matches([' ', '\t']);
    let lines = before.strip_suffix('\n').unwrap_or_default().lines().rev();
    let mut doc: Vec<_> =
        lines.map_while(|l| l.trim().strip_prefix(";;")).map(|l| l.trim_start_matches(';').trim()).collect();
    doc.reverse();
    doc.join("\n").trim().to_string()
}

/// Returns an error whose message starts with the rule's name.
pub(crate) fn located(
    source: &Source,
    rule: &str,
    span: Range<usize>,
    message: impl std::fmt::Display,
    help: impl Into<String>,
) -> LangError {
    source.error(span, format!("{rule}: {message}"), help)
}

/// Returns the position of a form's opening bracket. A caret under the whole form would mark no position.
fn start(form: &Sexp) -> Range<usize> {
    if form.list().is_some() { form.span.start..form.span.start + 1 } else { form.span.clone() }
}

#[derive(Default)]
struct Parts<'s> {
    forall: Option<&'s [Sexp]>,
    relations: Vec<&'s Sexp>,
    lets: Vec<&'s Sexp>,
    sides: Vec<&'s Sexp>,
    group: Option<&'s Sexp>,
    contract: Option<Contract>,
    once: bool,
    canonical: bool,
    backends: Vec<String>,
    limits: Vec<LimitGuard>,
    phase: Option<Phase>,
    price: Option<f64>,
}
