//! Reads the terms of a rule: ops with operands and attributes, numbers and variables.

use std::ops::Range;

use eutectic_ir::{
    Attr, Class, DType, Op,
    lang::{
        Sexp, SexpKind,
        sexp::did_you_mean,
        typing::{DimPattern, DimsPattern, SlotKind, is_variable},
    },
    ops::{AttrDef, AttrKind, Default as AttrDefault, Leaf},
};

use crate::{
    expr::{Expr, Number, function},
    parse::{Noted, RuleReader, RuleSide},
    rule::{AppliedOp, AttrTerm, AttrVariable, OpTerm, Term, VariableKind},
};

impl RuleReader<'_> {
    /// Reads a term of a side.
    pub fn term(&mut self, sexp: &Sexp, side: RuleSide) -> Result<Term, Noted> {
        if let Some(atom) = sexp.atom() {
            return self.leaf(atom, &sexp.span, side);
        }
        let Some((head, items)) = sexp.call() else {
            return self.wrong(sexp.span.clone(), "this is not a term", "write (op operand … :attribute value …)");
        };
        match (head, items) {
            ("get", [index, tuple]) if index.atom().is_some_and(|a| a.parse::<i64>().is_ok()) => {
                let index = index.atom().and_then(|a| a.parse::<i64>().ok()).unwrap_or_default();
                let id = self.call_id();
                let Some(op) = Op::named("get") else {
                    return self.wrong(sexp.span.clone(), "there is no op `get`", "");
                };
                let args = vec![self.term(tuple, side)?];
                let attrs = vec![Some(AttrTerm::Value(index.into()))];
                Ok(Term::Call(AppliedOp { id, op: OpTerm::Named(op), args, attrs, span: sexp.span.clone() }))
            }
            _ if self.is_number(sexp, side) => {
                let expr = self.expression(sexp, side)?;
                Ok(self.number(expr))
            }
            _ => self.call(head, items, sexp, side),
        }
    }

    fn call_id(&mut self) -> usize {
        self.calls += 1;
        self.calls - 1
    }

    fn number(&mut self, expr: Expr) -> Term {
        self.numbers += 1;
        Term::Number { id: self.numbers - 1, expr }
    }

    fn leaf(&mut self, atom: &str, span: &Range<usize>, side: RuleSide) -> Result<Term, Noted> {
        if let (Some(name), RuleSide::Right, true) = (atom.strip_suffix(".."), side, self.group.is_some()) {
            return match self.variable(name).map(|at| (at, &self.variables[at].kind)) {
                Some((at, VariableKind::Tensor { .. })) => Ok(Term::Splat(at)),
                _ => self.wrong(span.clone(), format!("`{name}` is not a tensor variable"), "declare it in `forall`"),
            };
        }
        if side == RuleSide::Right
            && let Some(at) = self.lets.iter().position(|(name, _)| name == atom)
        {
            return Ok(Term::Let(at));
        }
        if let Some(at) = self.variable(atom)
            && let VariableKind::Tensor { .. } = self.variables[at].kind
        {
            return Ok(Term::Tensor(at));
        }
        let expr = self.expression_leaf(atom, span, side)?;
        Ok(self.number(expr))
    }

    /// Returns whether an expression is arithmetic, that is, a function of numbers.
    fn is_number(&self, sexp: &Sexp, side: RuleSide) -> bool {
        if let Some(atom) = sexp.atom() {
            let variable = self.variable(atom).map(|at| &self.variables[at].kind);
            return Number::parse(atom).is_some()
                || is_variable(atom)
                || matches!(variable, Some(VariableKind::Number(_) | VariableKind::Attr(_, AttrVariable::Int)));
        }
        match sexp.call() {
            Some(("+" | "-" | "*" | "/", _)) => true,
            Some(("offset", [_] | [_, _])) => side == RuleSide::Right && self.group.is_some(),
            Some((head, items)) => {
                function(head, items.len()).is_some() && items.iter().all(|s| self.is_number(s, side))
            }
            None => false,
        }
    }

    fn expression(&mut self, sexp: &Sexp, side: RuleSide) -> Result<Expr, Noted> {
        if let Some(atom) = sexp.atom() {
            return self.expression_leaf(atom, &sexp.span, side);
        }
        let Some((head, items)) = sexp.call() else {
            return self.wrong(
                sexp.span.clone(),
                "this is not a number",
                "write a number such as 0.5, ?s, N or (* ?s 0.5)",
            );
        };
        if let ("offset", [member, axis @ ..]) = (head, items)
            && member.atom() == self.group.as_deref()
            && side == RuleSide::Right
            && axis.len() <= 1
        {
            let last = || Ok(Expr::Number(Number::Int(-1)));
            return Ok(Expr::Offset(Box::new(axis.first().map_or_else(last, |axis| self.expression(axis, side))?)));
        }
        let Some(function) = function(head, items.len()) else {
            return self.wrong(
                sexp.span.clone(),
                format!("`{head}` is not a function of {} numbers", items.len()),
                "the functions are + - * / min max neg sqrt rsqrt reciprocal exp log pow floor",
            );
        };
        let args = items.iter().map(|s| self.expression(s, side)).collect::<Result<_, _>>()?;
        Ok(Expr::Call(function, args))
    }

    fn expression_leaf(&mut self, atom: &str, span: &Range<usize>, side: RuleSide) -> Result<Expr, Noted> {
        if let Some(number) = Number::parse(atom) {
            return Ok(Expr::Number(number));
        }
        let slot = match self.variable(atom).map(|at| &self.variables[at].kind) {
            Some(VariableKind::Number(slot) | VariableKind::Attr(slot, AttrVariable::Int | AttrVariable::Axis)) => {
                *slot
            }
            Some(VariableKind::Tensor { .. }) => {
                return self.wrong(
                    span.clone(),
                    format!("`{atom}` is a tensor, not a number"),
                    "declare it as a number: (?s float)",
                );
            }
            Some(VariableKind::Attr(..) | VariableKind::Op(..)) => {
                return self.wrong(
                    span.clone(),
                    format!("`{atom}` is not a number"),
                    "use it only as the value of an attribute",
                );
            }
            None if is_variable(atom) => match self.scope.slot(atom, SlotKind::Dim) {
                Ok(slot) => slot,
                Err(_) => return self.wrong(span.clone(), format!("`{atom}` is not a single dimension"), ""),
            },
            None if self.misdeclared.iter().any(|name| name == atom) => return Err(Noted),
            None => {
                let names = self.variables.iter().map(|v| v.name.as_str());
                let names = names.chain(self.lets.iter().map(|(n, _)| n.as_str()));
                let help = did_you_mean(atom, names).unwrap_or_else(|| {
                    "a term is a declared variable, a number, or (op operand … :attribute value …)".into()
                });
                return self.wrong(span.clone(), format!("`{atom}` is not known"), help);
            }
        };
        self.used(slot, span, side);
        Ok(Expr::Slot(slot))
    }

    fn used(&mut self, slot: usize, span: &Range<usize>, side: RuleSide) {
        if side == RuleSide::Right {
            self.uses.push((slot, span.clone()));
        }
    }

    fn call(&mut self, head: &str, items: &[Sexp], sexp: &Sexp, side: RuleSide) -> Result<Term, Noted> {
        let Some(op) = self.op(head) else {
            if self.known.broken.iter().any(|broken| broken == head) {
                return Err(Noted);
            }
            let at = sexp.list().map_or(sexp.span.clone(), |l| l[0].span.clone());
            let help = match head.starts_with('?') {
                true => Some("declare it: (?f pointwise 1), or (?f (one-of add sub))".into()),
                false => did_you_mean(head, self.known.ops.all().map(Op::name)),
            };
            let help = help.unwrap_or_else(|| "`eutectic ops` lists the ops".into());
            return self.wrong(at, format!("there is no op `{head}`"), help);
        };
        let id = self.call_id();
        let (mut args, mut attrs) = (Vec::new(), vec![None; op.attrs().len()]);
        let mut fine = true;
        let mut items = items.iter();
        while let Some(item) = items.next() {
            let done = match item.atom().and_then(|a| a.strip_prefix(':')) {
                Some(name) => self.attribute(op, name, item, items.next(), &mut attrs, side),
                None => self.term(item, side).map(|term| args.push(term)),
            };
            fine &= done.is_ok();
        }
        if !fine {
            return Err(Noted);
        }
        if let (OpTerm::Variable(slot, _), Some([name, ..])) = (op, sexp.list()) {
            self.used(slot, &name.span, side);
        }
        self.complete(op, &attrs, sexp, side)?;
        self.arity(op, &args, sexp)?;
        Ok(Term::Call(AppliedOp { id, op, args, attrs, span: sexp.span.clone() }))
    }

    /// Returns the op with a name, or the variable that stands as an op's name.
    fn op(&self, head: &str) -> Option<OpTerm> {
        match self.variable(head).map(|at| &self.variables[at].kind) {
            Some(VariableKind::Op(slot, group)) => Some(OpTerm::Variable(*slot, *group)),
            _ => self.known.ops.named(head).map(OpTerm::Named),
        }
    }

    /// Checks that all required attributes are written: on the left side all attributes, and on the right side those
    /// without a default.
    fn complete(&mut self, op: OpTerm, attrs: &[Option<AttrTerm>], sexp: &Sexp, side: RuleSide) -> Result<(), Noted> {
        let omitted = |(def, attr): (&AttrDef, &Option<AttrTerm>)| {
            let needed = attr.is_none() && (side == RuleSide::Left || def.default == AttrDefault::None);
            needed.then(|| format!(":{}", def.name))
        };
        let omitted: Vec<_> = op.attrs().iter().zip(attrs).filter_map(omitted).collect();
        if omitted.is_empty() {
            return Ok(());
        }
        let help = match side {
            RuleSide::Left => "an omitted attribute is never a wildcard: write the value, or declare a variable for it",
            RuleSide::Right => "the attribute has no default; give it a value",
        };
        let at = sexp.list().map_or(sexp.span.clone(), |l| l[0].span.clone());
        self.wrong(at, format!("`{op}` lacks {} here", omitted.join(", ")), help)
    }

    fn arity(&mut self, op: OpTerm, args: &[Term], sexp: &Sexp) -> Result<(), Noted> {
        let splat = args.iter().any(|a| matches!(a, Term::Splat(_)));
        let op = match op {
            OpTerm::Named(op) => op,
            OpTerm::Variable(_, group) if args.len() == group.operands() => return Ok(()),
            OpTerm::Variable(_, group) => {
                let message = format!("the variable is declared as {group}, but {} operands are given", args.len());
                return self.wrong(
                    sexp.span.clone(),
                    message,
                    "the number in the declaration is that of the ops' operands",
                );
            }
        };
        let signature = op.signature();
        let (least, most) = match op.def().class {
            Class::Project => (1, 1),
            Class::Loop => {
                return self.wrong(
                    sexp.span.clone(),
                    format!("cannot use `{op}` in a rule because rules neither match nor make loops"),
                    "write a rule about the ops in the body",
                );
            }
            Class::Leaf(leaf) if leaf != Leaf::Iota => {
                return self.wrong(
                    sexp.span.clone(),
                    format!("cannot use `{op}` in a rule because rules neither match nor make leaves"),
                    "match a variable, or write a number",
                );
            }
            _ => (signature.required, signature.operands.len()),
        };
        if splat || (least..=most).contains(&args.len()) {
            return Ok(());
        }
        let want = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let help = format!("its signature is {}", op.def().signature);
        self.wrong(sexp.span.clone(), format!("`{op}` takes {want} operands, but {} are given", args.len()), help)
    }

    fn attribute(
        &mut self,
        op: OpTerm,
        name: &str,
        key: &Sexp,
        value: Option<&Sexp>,
        attrs: &mut [Option<AttrTerm>],
        side: RuleSide,
    ) -> Result<(), Noted> {
        let Some(at) = op.attr(name) else {
            let help = match (op, op.attrs()) {
                (OpTerm::Variable(..), []) => {
                    "the ops of the group have different attributes, which the variable binds too".into()
                }
                (_, known) => AttrDef::suggestion(name, known),
            };
            return self.wrong(key.span.clone(), format!("`{op}` has no attribute :{name}"), help);
        };
        let kind = op.attrs()[at].kind;
        let Some(value) = value else {
            return self.wrong(
                key.span.clone(),
                format!(":{name} has no value"),
                format!("write a value after it; this attribute is {kind}"),
            );
        };
        if attrs[at].is_some() {
            return self.wrong(key.span.clone(), format!(":{name} is given twice"), "remove one of the two");
        }
        attrs[at] = Some(self.attr_term(kind, value, side)?);
        Ok(())
    }

    fn attr_term(&mut self, kind: AttrKind, value: &Sexp, side: RuleSide) -> Result<AttrTerm, Noted> {
        if let Some(name) = value.atom().filter(|a| a.starts_with('?')) {
            return self.attr_variable_use(kind, name, value, side);
        }
        match (kind, &value.kind) {
            (AttrKind::Word(words), SexpKind::Atom(w)) if words.contains(&w.as_str()) => {
                return Ok(AttrTerm::Value(w.as_str().into()));
            }
            (AttrKind::Bool, SexpKind::Atom(w)) if w == "true" || w == "false" => {
                return Ok(AttrTerm::Value((w == "true").into()));
            }
            (AttrKind::DType, SexpKind::Atom(w)) => {
                if let Ok(dtype) = w.parse::<DType>() {
                    return Ok(AttrTerm::Value(dtype.into()));
                }
                if let Some(slot) = self.scope.find(w)
                    && let SlotKind::DType(_) = self.scope.variables[slot].1
                {
                    self.used(slot, &value.span, side);
                    return Ok(AttrTerm::Slot(slot));
                }
            }
            (AttrKind::Axes | AttrKind::Perm, SexpKind::Bracket(head, items)) if head.is_empty() => {
                let ints: Option<Vec<i64>> = items.iter().map(|s| s.atom()?.parse().ok()).collect();
                if let Some(ints) = ints {
                    return self.counted_from_the_end(Attr::from(&ints[..]), ints.iter().all(|n| *n < 0), value);
                }
            }
            (AttrKind::Perm, SexpKind::List(_)) if side == RuleSide::Right => return self.perm_function(value),
            (AttrKind::Shape, SexpKind::Bracket(head, items)) if head.is_empty() => {
                let dims = DimsPattern::parse(items, &mut self.scope, self.source);
                let dims = self.note(dims)?;
                self.used_dims(items, side);
                return Ok(AttrTerm::Shape(dims));
            }
            (AttrKind::Int | AttrKind::Axis, SexpKind::Atom(w)) if w.parse::<i64>().is_ok() => {
                let n: i64 = w.parse().unwrap_or_default();
                return self.counted_from_the_end(n.into(), kind == AttrKind::Int || n < 0, value);
            }
            (AttrKind::Int | AttrKind::Axis, _) if side == RuleSide::Left && !has_variable(value) => {
                let dim = DimPattern::parse(value, &mut self.scope, self.source);
                return self.note(dim).map(AttrTerm::Dim);
            }
            (AttrKind::Int | AttrKind::Axis | AttrKind::Float, _) if self.is_number(value, side) => {
                return Ok(match (kind, self.expression(value, side)?) {
                    (AttrKind::Float, Expr::Number(n)) => AttrTerm::Value(n.get().into()),
                    (_, expr) => AttrTerm::Number(expr),
                });
            }
            _ => {}
        }
        self.wrong(value.span.clone(), "this is not a value for the attribute", kind.help(value.atom()))
    }

    fn counted_from_the_end(&mut self, value: Attr, fine: bool, at: &Sexp) -> Result<AttrTerm, Noted> {
        if fine {
            return Ok(AttrTerm::Value(value));
        }
        self.wrong(at.span.clone(), "rules count axes from the end", "−1 is the last axis, −2 the one before it")
    }

    fn used_dims(&mut self, items: &[Sexp], side: RuleSide) {
        for item in items {
            if let Some(atom) = item.atom() {
                if let Some(slot) = self.scope.find(atom.strip_suffix("..").unwrap_or(atom)) {
                    self.used(slot, &item.span, side);
                }
            } else if let Some((_, items)) = item.call() {
                self.used_dims(items, side);
            }
        }
    }

    fn attr_variable_use(&mut self, kind: AttrKind, name: &str, at: &Sexp, side: RuleSide) -> Result<AttrTerm, Noted> {
        use AttrVariable as V;
        let Some(variable) = self.variable(name) else {
            let help = did_you_mean(name, self.variables.iter().map(|v| v.name.as_str()))
                .unwrap_or_else(|| format!("declare it in `forall`; here it is {kind}"));
            return self.wrong(at.span.clone(), format!("`{name}` is not declared"), help);
        };
        let (slot, fits) = match &self.variables[variable].kind {
            VariableKind::Number(slot) => (*slot, kind == AttrKind::Float),
            VariableKind::Tensor { .. } => {
                return self.wrong(
                    at.span.clone(),
                    format!("`{name}` is a tensor, not an attribute"),
                    format!("this attribute is {kind}"),
                );
            }
            VariableKind::Op(..) => {
                return self.wrong(
                    at.span.clone(),
                    format!("`{name}` is an op, not an attribute"),
                    format!("this attribute is {kind}"),
                );
            }
            VariableKind::Attr(slot, declared) => {
                let fits = match (kind, declared) {
                    (AttrKind::Int | AttrKind::Axis, V::Int | V::Axis)
                    | (AttrKind::Axes, V::Axes)
                    | (AttrKind::Perm, V::Perm)
                    | (AttrKind::Shape, V::Shape)
                    | (AttrKind::Bool, V::Bool)
                    | (AttrKind::DType, V::DType) => true,
                    (AttrKind::Float, V::Int) => side == RuleSide::Right,
                    (AttrKind::Word(words), V::OneOf(chosen)) => chosen.iter().all(|w| words.contains(&w.as_str())),
                    _ => false,
                };
                (*slot, fits)
            }
        };
        if !fits {
            return self.wrong(
                at.span.clone(),
                format!("`{name}` is declared as another kind"),
                format!("this attribute is {kind}"),
            );
        }
        self.used(slot, &at.span, side);
        Ok(AttrTerm::Slot(slot))
    }

    fn perm_function(&mut self, value: &Sexp) -> Result<AttrTerm, Noted> {
        let mut perm = |s: &Sexp| self.attr_term(AttrKind::Perm, s, RuleSide::Right);
        match value.call() {
            Some(("compose", [p, q])) => Ok(AttrTerm::Compose(Box::new([perm(p)?, perm(q)?]))),
            Some(("inverse", [p])) => Ok(AttrTerm::Inverse(Box::new(perm(p)?))),
            _ => self.wrong(
                value.span.clone(),
                "this is not a permutation",
                "write (compose ?p ?q), (inverse ?p), ?p or [-1 -2]",
            ),
        }
    }
}

/// Returns whether an expression contains a variable that starts with a question mark.
fn has_variable(sexp: &Sexp) -> bool {
    match sexp.call() {
        Some((_, items)) => items.iter().any(has_variable),
        None => sexp.atom().is_some_and(|atom| atom.starts_with('?')),
    }
}
