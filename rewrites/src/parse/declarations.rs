//! Reads the declarations of a rule: the variables of its `forall`, their required numbers, and its relations.

use std::ops::Range;

use eutectic_ir::lang::{
    DTypeClass, RelationCall, Sexp, SexpKind, TypePattern,
    sexp::did_you_mean,
    typing::{SlotKind, is_variable},
};
use eutectic_ir::ops::Group;

use super::{Noted, Parts, RuleReader};
use crate::{
    expr::{Close, Number, Wanted},
    rule::{AttrVariable, Contract, Variable, VariableKind},
};

/// The kinds of variables other than tensors, words and ops.
pub const KINDS: [&str; 8] = ["float", "int", "axis", "axes", "perm", "shape", "bool", "dtype"];

/// The forms of declarations, for error messages.
const HELP: &str = "declare (F float), (?x F[B.. N]), (?w F[K N] const), (?e float), (near ?c 0.5), (is ?c 1), (?n int), (?ax axis), \
     (?axs axes), (?p perm), (?s shape), (?k bool), (?d dtype), (?k (one-of a b)) or (?f pointwise 1)";

/// The words after a tensor's type in its declaration.
#[derive(Default)]
struct TensorFlags {
    constant: bool,
    /// Whether the tensor must not be one number everywhere.
    varied: bool,
}

fn classes() -> String {
    let names: Vec<_> = DTypeClass::names().collect();
    format!("write one or more of {}; dims need no declaration", names.join(", "))
}

impl RuleReader<'_> {
    /// Reads the declarations of `forall`. Element types come first, because the types of tensors use them.
    pub(super) fn declare(&mut self, items: &[Sexp]) {
        let (dtypes, others): (Vec<_>, Vec<_>) =
            items.iter().partition(|s| s.call().is_some_and(|(head, _)| is_variable(head)));
        for item in dtypes.into_iter().chain(others) {
            let (declared, name) = (self.declaration(item), item.call().map(|(head, _)| head));
            if let (Err(Noted), Some(name)) = (declared, name) {
                self.misdeclared.push(name.into());
            }
        }
    }

    fn declaration(&mut self, item: &Sexp) -> Result<(), Noted> {
        let Some((head, rest)) = item.call() else {
            return self.wrong(item.span.clone(), "this is not a declaration", HELP);
        };
        if let ("near" | "is", [name, _]) = (head, rest) {
            let name = name.atom().filter(|n| n.starts_with('?')).map(str::to_string);
            let Some(name) = name else {
                return self.wrong(item.span.clone(), format!("`{head}` needs a variable such as ?c"), HELP);
            };
            if self.variable(&name).is_none() {
                self.number_variable(&name, item)?;
            }
            return self.wanted(item);
        }
        if is_variable(head) {
            return self.dtype_variable(head, item, rest);
        }
        if !head.starts_with('?') || head.len() == 1 || head.ends_with("..") {
            return self.wrong(item.span.clone(), "this is not a declaration", HELP);
        }
        if self.variable(head).is_some() {
            return self.wrong(item.span.clone(), format!("`{head}` is declared twice"), "use another name");
        }
        let mut varied = false;
        let kind = match (rest, rest.first().map(|s| (&s.kind, s.atom(), s.call()))) {
            ([ty, flags @ ..], Some((SexpKind::Bracket(..), ..))) => {
                let TensorFlags { constant, varied: is_varied } = self.tensor_flags(flags)?;
                varied = is_varied;
                let ty = TypePattern::parse(ty, &mut self.scope, self.source);
                VariableKind::Tensor { ty: self.note(ty)?, constant }
            }
            ([_], Some((_, _, Some(("one-of", words))))) => {
                let Some(words) = words.iter().map(|w| w.atom().map(str::to_string)).collect::<Option<Vec<_>>>() else {
                    return self.wrong(item.span.clone(), "`one-of` needs words", "write (?k (one-of relu silu))");
                };
                self.attr_variable(head, AttrVariable::OneOf(words))
            }
            ([_, operands], Some((_, Some(name), _))) => {
                let operands = operands.atom().and_then(|n| n.parse().ok());
                let Some(group) = operands.and_then(|n| Group::named(name, n)) else {
                    let known: Vec<_> = Group::names().collect();
                    let guess = did_you_mean(name, known.iter().copied());
                    let help = format!("write (?f pointwise 1); the groups are {}", known.join(", "));
                    let help = guess.unwrap_or(help);
                    return self.wrong(item.span.clone(), "this does not name a group of ops", help);
                };
                self.scope.variables.push((head.into(), SlotKind::Op));
                VariableKind::Op(self.scope.variables.len() - 1, group)
            }
            ([_], Some((_, Some("float" | "f32" | "f64" | "f16" | "bf16"), _))) => {
                return self.number_variable(head, item);
            }
            ([word], Some((_, Some(kind), _))) => {
                let kind = self.attr_kind(word, kind)?;
                self.attr_variable(head, kind)
            }
            _ => return self.wrong(item.span.clone(), "this is not a declaration", HELP),
        };
        self.variables.push(Variable {
            name: head.into(),
            span: item.span.clone(),
            kind,
            wanted: None,
            domain: None,
            varied,
        });
        Ok(())
    }

    /// Reads the classes of an element-type variable. After an error, it may be any type, so that its uses cause no
    /// errors.
    fn dtype_variable(&mut self, name: &str, item: &Sexp, classes: &[Sexp]) -> Result<(), Noted> {
        let class = match self.class(name, item, classes) {
            Ok(class) => class,
            Err(noted) => {
                let any = DTypeClass::named("any").map(SlotKind::DType);
                any.map(|any| self.scope.slot(name, any));
                return Err(noted);
            }
        };
        match self.scope.slot(name, SlotKind::DType(class)) {
            Ok(_) => Ok(()),
            Err(_) => self.wrong(item.span.clone(), format!("`{name}` is declared twice"), "use another name"),
        }
    }

    /// Reads the words after a tensor's type.
    fn tensor_flags(&mut self, words: &[Sexp]) -> Result<TensorFlags, Noted> {
        let mut flags = TensorFlags::default();
        for word in words {
            match word.atom() {
                Some("const") => flags.constant = true,
                Some("varied") => flags.varied = true,
                other => {
                    let guess = other.and_then(|o| did_you_mean(o, ["const", "varied"].into_iter()));
                    let help = guess.as_deref().unwrap_or(HELP);
                    return self.wrong(word.span.clone(), "only `const` and `varied` may follow a type", help);
                }
            }
        }
        Ok(flags)
    }

    /// Reads the kind of an attribute variable.
    fn attr_kind(&mut self, word: &Sexp, kind: &str) -> Result<AttrVariable, Noted> {
        Ok(match kind {
            "int" => AttrVariable::Int,
            "axis" => AttrVariable::Axis,
            "axes" => AttrVariable::Axes,
            "perm" => AttrVariable::Perm,
            "shape" => AttrVariable::Shape,
            "bool" => AttrVariable::Bool,
            "dtype" => AttrVariable::DType,
            _ => {
                let guess = did_you_mean(kind, KINDS.into_iter());
                let help = guess.as_deref().unwrap_or(HELP);
                return self.wrong(word.span.clone(), format!("`{kind}` is not a kind of variable"), help);
            }
        })
    }

    /// Reads a class of element types: one name (`float`) or several (`i8 i32 i64`).
    fn class(&mut self, variable: &str, item: &Sexp, names: &[Sexp]) -> Result<DTypeClass, Noted> {
        let mut all: Option<DTypeClass> = None;
        for name in names {
            let word = name.atom().unwrap_or_default();
            let Some(class) = DTypeClass::named(word) else {
                let help = did_you_mean(word, DTypeClass::names()).unwrap_or_else(classes);
                return self.wrong(
                    name.span.clone(),
                    format!("the declaration of `{variable}` names an unknown class of element types"),
                    help,
                );
            };
            all = Some(all.map_or(class, |all| all.or(class)));
        }
        match all {
            Some(class) => Ok(class),
            None => self.wrong(item.span.clone(), format!("`{variable}` has no class of element types"), classes()),
        }
    }

    fn attr_variable(&mut self, name: &str, kind: AttrVariable) -> VariableKind {
        self.scope.variables.push((name.into(), SlotKind::Attr));
        VariableKind::Attr(self.scope.variables.len() - 1, kind)
    }

    fn number_variable(&mut self, name: &str, item: &Sexp) -> Result<(), Noted> {
        self.scope.variables.push((name.into(), SlotKind::Attr));
        let kind = VariableKind::Number(self.scope.variables.len() - 1);
        self.variables.push(Variable {
            name: name.into(),
            span: item.span.clone(),
            kind,
            wanted: None,
            domain: None,
            varied: false,
        });
        Ok(())
    }

    /// Reads a required number: `(near ?c 0.5)` or `(is ?c 0.5)`.
    fn wanted(&mut self, item: &Sexp) -> Result<(), Noted> {
        let help = "write (near ?c 0.5), or (is ?c 0.5) for exactly this number, with a number or tensor variable";
        let Some((head, [name, number])) = item.call() else {
            return self.wrong(item.span.clone(), "this needs a variable and a number", help);
        };
        if head == "near" && !self.contract.is_none_or(Contract::rounds) {
            let help = "write (is ?c 0.5), which requires exactly this number, or weaken the contract to (eq reassoc)";
            return self.wrong(item.span.clone(), "cannot use `near` in a rule with the contract exact or ulp", help);
        }
        let close = if head == "near" { Close::Near } else { Close::Held };
        let number = number.atom().and_then(Number::parse);
        let at = name.atom().and_then(|n| self.variable(n));
        match (at, number) {
            (Some(at), Some(n))
                if !matches!(self.variables[at].kind, VariableKind::Attr(..) | VariableKind::Op(..)) =>
            {
                self.variables[at].wanted = Some(Wanted { value: n.get(), close });
                Ok(())
            }
            _ => self.wrong(item.span.clone(), "this needs a variable and a number", help),
        }
    }

    /// Reads the domain of a tensor: `(positive ?x)` or `(between ?x -10 10)`. It does not restrict matches: `--fp
    /// fast` assumes that values are in the domain.
    fn domain(&mut self, item: &Sexp, at: usize, head: &str, ends: &[Sexp]) -> Result<(), Noted> {
        let help = "write (positive ?x), or (between ?x -10 10); relations are about dims, attributes and numbers";
        if self.contract != Some(Contract::Fast) {
            let what = "only a `fast` rule may restrict the values of a tensor; other rules hold for all values";
            return self.wrong(item.span.clone(), what, help);
        }
        let number = |end: &Sexp| end.atom().and_then(Number::parse).map(Number::get);
        let ends: Option<Vec<f64>> = ends.iter().map(number).collect();
        let domain = match (head, ends.as_deref()) {
            ("positive", Some([])) => (0.0, f64::INFINITY),
            ("between", Some(&[least, most])) if least < most => (least, most),
            _ => return self.wrong(item.span.clone(), "this is not a domain of a tensor", help),
        };
        let known = self.variables[at].domain.replace(domain);
        if known.is_some() {
            return self.wrong(item.span.clone(), "the domain is stated twice", help);
        }
        Ok(())
    }

    /// Returns the index of a variable among the declared ones.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|v| v.name == name)
    }

    pub(super) fn relations(&mut self, parts: &Parts<'_>) -> Result<Vec<(RelationCall, Range<usize>)>, Noted> {
        let mut relations = Vec::new();
        for item in &parts.relations {
            if let Some(("near" | "is", _)) = item.call() {
                let _ = self.wanted(item);
                continue;
            }
            if let Some((head, [name, ends @ ..])) = item.call()
                && let Some(at) =
                    name.atom().and_then(|n| self.variable(n)).filter(|at| self.variables[*at].is_tensor())
            {
                let _ = self.domain(item, at, head, ends);
                continue;
            }
            let call = RelationCall::parse(item, &mut self.scope, self.source);
            if let Ok(call) = self.note(call) {
                relations.push((call, item.span.clone()));
            }
        }
        if self.errors.is_empty() { Ok(relations) } else { Err(Noted) }
    }
}
