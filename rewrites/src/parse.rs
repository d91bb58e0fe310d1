//! Reads rule files: from S-expressions to [`Rule`]s, with every error where it stands.

use std::ops::Range;

use eutectic_ir::lang::{
    DTypeClass, LangError, RelationCall, Sexp, SexpKind, Source, TypePattern, sexp,
    typing::{Scope, SlotKind, is_variable},
};

use crate::{
    expr::Number,
    rule::{AttrVariable, Contract, Phase, Root, Rule, Term, Variable, VariableKind},
};

/// A part of the rule could not be read; the error is noted already.
pub(crate) struct Noted;

/// Reads a file. What cannot be read is left out of the rules and reported.
pub(crate) fn rules(source: &Source) -> (Vec<Rule>, Vec<LangError>) {
    let forms = match sexp::read(source) {
        Ok(forms) => forms,
        Err(errors) => return (Vec::new(), errors.0),
    };
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for form in &forms {
        for (suffix, form) in one_per_op(form) {
            let (rule, mut wrong) = Reader::rule(source, &form, &suffix);
            rules.extend(rule);
            // The copies of a rule that is one for each op repeat its errors.
            let said = |e: &LangError| errors.iter().any(|o: &LangError| o.offset() == e.offset());
            wrong.retain(|e| suffix.is_empty() || !said(e));
            errors.extend(wrong);
        }
    }
    (rules, errors)
}

/// A rule whose `(?k (one-of a b))` stands as an op's name is one rule for each word.
fn one_per_op(form: &Sexp) -> Vec<(String, Sexp)> {
    let variable = form.list().and_then(|items| items.iter().find_map(head_variable));
    let words = variable.and_then(|name| {
        let forall = form.list()?.iter().find(|s| s.call().is_some_and(|(head, _)| head == "forall"))?;
        let declaration = forall.list()?.iter().find(|d| d.call().is_some_and(|(head, _)| head == name))?;
        let (_, [kind]) = declaration.call()? else { return None };
        let ("one-of", words) = kind.call()? else { return None };
        Some((name, words.iter().map(Sexp::atom).collect::<Option<Vec<_>>>()?))
    });
    match words {
        None => vec![(String::new(), form.clone())],
        Some((name, words)) => words.into_iter().map(|w| (format!("[{w}]"), substitute(form, name, w))).collect(),
    }
}

/// Every sequence of dims that is written with its dots.
fn sequences<'s>(sexp: &'s Sexp, visit: &mut dyn FnMut(&'s str)) {
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

/// The first `?name` that stands as the head of a list of a side.
fn head_variable(sexp: &Sexp) -> Option<&str> {
    if let Some(("forall" | "where", _)) = sexp.call() {
        return None;
    }
    let items = sexp.list()?;
    match items.first()?.atom() {
        Some(name) if name.starts_with('?') => Some(name),
        _ => items.iter().find_map(head_variable),
    }
}

fn substitute(sexp: &Sexp, name: &str, word: &str) -> Sexp {
    let all = |items: &[Sexp]| {
        let declares = |s: &&Sexp| s.call().is_some_and(|(h, rest)| h == name && rest.iter().any(is_one_of));
        items.iter().filter(|s| !declares(s)).map(|s| substitute(s, name, word)).collect()
    };
    let kind = match &sexp.kind {
        SexpKind::Atom(a) if a == name => SexpKind::Atom(word.to_string()),
        SexpKind::List(items) => SexpKind::List(all(items)),
        SexpKind::Bracket(head, items) => SexpKind::Bracket(head.clone(), all(items)),
        other => other.clone(),
    };
    Sexp { kind, span: sexp.span.clone() }
}

fn is_one_of(sexp: &Sexp) -> bool {
    sexp.call().is_some_and(|(head, _)| head == "one-of")
}

/// Which side of a rule is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Reads one rule.
pub(crate) struct Reader<'a> {
    pub source: &'a Source,
    pub name: String,
    pub scope: Scope,
    pub variables: Vec<Variable>,
    pub lets: Vec<(String, Term)>,
    pub uses: Vec<(usize, Range<usize>)>,
    pub calls: usize,
    pub numbers: usize,
    left_numbers: usize,
    pub group: Option<String>,
    errors: Vec<LangError>,
}

const SHAPE_OF_A_RULE: &str = "(rule pack/name (forall …) (=> left right) (eq exact|(ulp n)|reassoc|fast))";

impl<'a> Reader<'a> {
    fn rule(source: &'a Source, form: &Sexp, suffix: &str) -> (Option<Rule>, Vec<LangError>) {
        let mut reader = Reader {
            source,
            name: String::new(),
            scope: Scope::default(),
            variables: Vec::new(),
            lets: Vec::new(),
            uses: Vec::new(),
            calls: 0,
            numbers: 0,
            left_numbers: 0,
            group: None,
            errors: Vec::new(),
        };
        let rule = reader.read(form, suffix).ok().filter(|_| reader.errors.is_empty());
        (rule, reader.errors)
    }

    /// Notes an error.
    pub fn wrong<T>(
        &mut self,
        span: Range<usize>,
        message: impl std::fmt::Display,
        help: impl Into<String>,
    ) -> Result<T, Noted> {
        self.errors.push(located(self.source, &self.name, span, message, help));
        Err(Noted)
    }

    /// Notes an error of the little language.
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
            return self.wrong(start(form), "only rules stand in a rule file", SHAPE_OF_A_RULE);
        };
        self.name = "(unnamed)".into();
        let name = items.first().and_then(Sexp::atom).filter(|n| !n.starts_with([':', '?'])).unwrap_or_default();
        match name.split_once('/') {
            Some((pack, rest)) if !pack.is_empty() && !rest.is_empty() => self.name = format!("{name}{suffix}"),
            _ => {
                let at = items.first().map_or(start(form), |s| s.span.clone());
                return self.wrong(at, "this rule has no name", "name it pack/name, such as fuse/linear-act");
            }
        }
        let doc = self.doc(form);
        let mut parts = Parts::default();
        for item in &items[1..] {
            let _ = self.part(item, &mut parts);
        }
        let forall = parts.forall.take();
        // `B..` anywhere makes `B` a sequence everywhere: in a relation it may stand without the dots.
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
                "no numeric contract",
                "add (eq exact), (eq (ulp n)), (eq reassoc) or (eq fast)",
            );
        };
        Ok(Rule {
            name: self.name.as_str().into(),
            doc: doc?,
            contract,
            once: parts.once,
            phase: Phase::of_pack(name.split('/').next().unwrap_or_default()),
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
        })
    }

    /// The `;;` lines right above the rule.
    fn doc(&mut self, form: &Sexp) -> Result<String, Noted> {
        let before = self.source.text[..form.span.start].trim_end_matches([' ', '\t']);
        let lines = before.strip_suffix('\n').unwrap_or_default().lines().rev();
        let mut doc: Vec<_> =
            lines.map_while(|l| l.trim().strip_prefix(";;")).map(|l| l.trim_start_matches(';').trim()).collect();
        doc.reverse();
        let doc = doc.join("\n").trim().to_string();
        if doc.is_empty() {
            let help = "state the algebra in a `;;` comment right above it, such as `;; x · 1 = x`";
            return self.wrong(start(form), "this rule is not documented", help);
        }
        Ok(doc)
    }

    fn part<'s>(&mut self, item: &'s Sexp, parts: &mut Parts<'s>) -> Result<(), Noted> {
        let Some((head, items)) = item.call() else {
            return self.wrong(item.span.clone(), "this does not belong in a rule", SHAPE_OF_A_RULE);
        };
        match head {
            "forall" if parts.forall.is_none() => parts.forall = Some(items),
            "where" => parts.relations.extend(items),
            "let" => parts.lets.push(item),
            "=>" => parts.sides.push(item),
            "roots" => parts.sides.extend(items),
            "group" if parts.group.is_none() => parts.group = Some(item),
            "eq" if parts.contract.is_none() => parts.contract = Some(self.contract(item)?),
            "once" if items.is_empty() => parts.once = true,
            _ => return self.wrong(item.span.clone(), format!("`{head}` does not belong here"), SHAPE_OF_A_RULE),
        }
        Ok(())
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
        self.wrong(
            item.span.clone(),
            "this is not a numeric contract",
            "write (eq exact), (eq (ulp 4)), (eq reassoc) or (eq fast)",
        )
    }

    /// Reads the declarations; element types first, because tensors speak of them.
    fn declare(&mut self, items: &[Sexp]) {
        let (dtypes, others): (Vec<_>, Vec<_>) =
            items.iter().partition(|s| s.call().is_some_and(|(head, _)| is_variable(head)));
        for item in dtypes.into_iter().chain(others) {
            let _ = self.declaration(item);
        }
    }

    fn declaration(&mut self, item: &Sexp) -> Result<(), Noted> {
        let help = "declare (F float), (?x F[B.. N]), (?w F[K N] const), (?e float), (near ?c 0.5), (?n int), (?ax axis), \
                    (?axs axes), (?p perm), (?s shape), (?k bool), (?d dtype) or (?k (one-of a b))";
        let Some((head, rest)) = item.call() else {
            return self.wrong(item.span.clone(), "this is not a declaration", help);
        };
        if let ("near", [name, _]) = (head, rest) {
            let name = name.atom().filter(|n| n.starts_with('?')).map(str::to_string);
            let Some(name) = name else { return self.wrong(item.span.clone(), "`near` wants a variable", help) };
            if self.variable(&name).is_none() {
                self.number_variable(&name, item)?;
            }
            return self.near(item);
        }
        if is_variable(head) {
            let class = rest.first().and_then(Sexp::atom).and_then(DTypeClass::named);
            let (Some(class), 1) = (class, rest.len()) else {
                return self.wrong(
                    item.span.clone(),
                    format!("`{head}` is declared as no class of element types"),
                    "the classes are any, float, int, number and the element types; dims need no declaration",
                );
            };
            return match self.scope.slot(head, SlotKind::DType(class)) {
                Ok(_) => Ok(()),
                Err(_) => self.wrong(item.span.clone(), format!("`{head}` is declared twice"), "use another name"),
            };
        }
        if !head.starts_with('?') || head.len() == 1 || head.ends_with("..") {
            return self.wrong(item.span.clone(), "this is not a declaration", help);
        }
        if self.variable(head).is_some() {
            return self.wrong(item.span.clone(), format!("`{head}` is declared twice"), "use another name");
        }
        let kind = match (rest, rest.first().map(|s| (&s.kind, s.atom(), s.call()))) {
            ([ty, flags @ ..], Some((SexpKind::Bracket(..), ..))) => {
                let constant = match flags {
                    [] => false,
                    [flag] if flag.atom() == Some("const") => true,
                    _ => return self.wrong(flags[0].span.clone(), "only `const` stands here", help),
                };
                let ty = TypePattern::parse(ty, &mut self.scope, self.source);
                VariableKind::Tensor { ty: self.note(ty)?, constant }
            }
            ([_], Some((_, _, Some(("one-of", words))))) => {
                let Some(words) = words.iter().map(|w| w.atom().map(str::to_string)).collect::<Option<Vec<_>>>() else {
                    return self.wrong(item.span.clone(), "`one-of` takes words", "(?k (one-of relu silu))");
                };
                self.attr_variable(head, AttrVariable::OneOf(words))
            }
            ([_], Some((_, Some("float" | "f32" | "f64" | "f16" | "bf16"), _))) => {
                return self.number_variable(head, item);
            }
            ([_], Some((_, Some(kind), _))) => {
                let kind = match kind {
                    "int" => AttrVariable::Int,
                    "axis" => AttrVariable::Axis,
                    "axes" => AttrVariable::Axes,
                    "perm" => AttrVariable::Perm,
                    "shape" => AttrVariable::Shape,
                    "bool" => AttrVariable::Bool,
                    "dtype" => AttrVariable::DType,
                    _ => return self.wrong(rest[0].span.clone(), format!("`{kind}` is no kind of variable"), help),
                };
                self.attr_variable(head, kind)
            }
            _ => return self.wrong(item.span.clone(), "this is not a declaration", help),
        };
        self.variables.push(Variable { name: head.into(), span: item.span.clone(), kind, near: None });
        Ok(())
    }

    fn attr_variable(&mut self, name: &str, kind: AttrVariable) -> VariableKind {
        self.scope.variables.push((name.into(), SlotKind::Attr));
        VariableKind::Attr(self.scope.variables.len() - 1, kind)
    }

    fn number_variable(&mut self, name: &str, item: &Sexp) -> Result<(), Noted> {
        self.scope.variables.push((name.into(), SlotKind::Attr));
        let kind = VariableKind::Number(self.scope.variables.len() - 1);
        self.variables.push(Variable { name: name.into(), span: item.span.clone(), kind, near: None });
        Ok(())
    }

    /// `(near ?c 0.5)`.
    fn near(&mut self, item: &Sexp) -> Result<(), Noted> {
        let help = "write (near ?c 0.5) with a number or tensor variable";
        let Some((_, [name, number])) = item.call() else {
            return self.wrong(item.span.clone(), "`near` takes a variable and a number", help);
        };
        let number = number.atom().and_then(Number::parse);
        let at = name.atom().and_then(|n| self.variable(n));
        match (at, number) {
            (Some(at), Some(n)) if !matches!(self.variables[at].kind, VariableKind::Attr(..)) => {
                self.variables[at].near = Some(n.get());
                Ok(())
            }
            _ => self.wrong(item.span.clone(), "`near` takes a variable and a number", help),
        }
    }

    /// The place of a variable among the declared ones.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|v| v.name == name)
    }

    fn relations(&mut self, parts: &Parts<'_>) -> Result<Vec<(RelationCall, Range<usize>)>, Noted> {
        let mut relations = Vec::new();
        for item in &parts.relations {
            if let Some(("near", _)) = item.call() {
                let _ = self.near(item);
                continue;
            }
            let call = RelationCall::parse(item, &mut self.scope, self.source);
            if let Ok(call) = self.note(call) {
                relations.push((call, item.span.clone()));
            }
        }
        if self.errors.is_empty() { Ok(relations) } else { Err(Noted) }
    }

    fn roots(&mut self, parts: &Parts<'_>, form: &Sexp) -> Result<Vec<Root>, Noted> {
        let mut sides = Vec::new();
        for side in &parts.sides {
            match side.call() {
                Some(("=>", [left, right])) => sides.push((left, right, side.span.clone())),
                _ => return self.wrong(side.span.clone(), "a side is (=> left right)", SHAPE_OF_A_RULE),
            }
        }
        if sides.is_empty() {
            return self.wrong(start(form), "this rule has no sides", SHAPE_OF_A_RULE);
        }
        let mut lefts = Vec::new();
        if let Some(group) = parts.group {
            let (Some(("group", [name, pattern])), [(root, ..)]) = (group.call(), sides.as_slice()) else {
                let help = "(group ?y pattern) goes with one (=> ?y right)";
                return self.wrong(group.span.clone(), "this is not a group", help);
            };
            let name = name.atom().unwrap_or_default();
            if !name.starts_with('?') || self.variable(name).is_some() || root.atom() != Some(name) {
                let help = "name the members with a variable that is not declared, and write (=> ?y right)";
                return self.wrong(group.span.clone(), "the left side of a group is its member", help);
            }
            self.group = Some(name.to_string());
            lefts.push(self.left(pattern));
        } else {
            for (left, ..) in &sides {
                lefts.push(self.left(left));
            }
        }
        self.left_numbers = self.numbers;
        self.all_on_the_left(&lefts);
        for item in &parts.lets {
            let _ = self.let_term(item);
        }
        let mut roots = Vec::new();
        for ((_, right, span), left) in sides.into_iter().zip(lefts) {
            let right = self.term(right, Side::Right);
            roots.push(Root { left: left?, right: right?, span });
        }
        Ok(roots)
    }

    fn left(&mut self, sexp: &Sexp) -> Result<Term, Noted> {
        let term = self.term(sexp, Side::Left)?;
        if !matches!(term, Term::Call(_)) {
            return self.wrong(sexp.span.clone(), "a left side is an op applied to something", "such as (add ?x ?y)");
        }
        Ok(term)
    }

    fn all_on_the_left(&mut self, lefts: &[Result<Term, Noted>]) {
        let mut seen = vec![false; self.variables.len()];
        for left in lefts {
            let Ok(left) = left else { return };
            left.visit(&mut |term| {
                if let Term::Tensor(at) = term {
                    seen[*at] = true;
                }
            });
        }
        let tensor = |v: &&Variable| matches!(v.kind, VariableKind::Tensor { .. });
        let unseen = self.variables.iter().zip(seen).filter(|(_, seen)| !seen).map(|(v, _)| v).filter(tensor);
        let unseen: Vec<_> = unseen.map(|v| (v.span.clone(), v.name.clone())).collect();
        for (span, name) in unseen {
            let _ =
                self.wrong::<()>(span, format!("`{name}` does not occur on the left"), "use it there, or remove it");
        }
    }

    fn let_term(&mut self, item: &Sexp) -> Result<(), Noted> {
        let Some((_, [name, term])) = item.call() else {
            return self.wrong(item.span.clone(), "`let` names a term", "(let ?y (op …))");
        };
        let known = |r: &Self, n: &str| r.variable(n).is_some() || r.lets.iter().any(|(l, _)| l == n);
        match name.atom() {
            Some(n) if n.starts_with('?') && !known(self, n) => {
                let term = self.term(term, Side::Right)?;
                self.lets.push((n.to_string(), term));
                Ok(())
            }
            _ => self.wrong(name.span.clone(), "this is not a new name", "name it ?y, and nothing else so"),
        }
    }
}

/// An error that names its rule.
pub(crate) fn located(
    source: &Source,
    rule: &str,
    span: Range<usize>,
    message: impl std::fmt::Display,
    help: impl Into<String>,
) -> LangError {
    source.error(span, format!("{rule}: {message}"), help)
}

/// The opening of a form: a caret under a whole rule would say nothing.
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
}
