//! Declares the ops of files. Each op becomes a row of the op table and a rule that defines it.

use eutectic_ir::{
    Op,
    lang::{
        LangError, RelationCall, Sexp, SexpKind, Signature, Source, TypePattern,
        typing::{Scope, SignatureResult, SlotKind},
    },
    ops::{AttrDef, Declaration, Ops},
};
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    check,
    definition::OpDefinition,
    parse::{Known, RuleReader, comment_above, op_form::OpForm, sequences},
    proof::Proofs,
    recipe::Compiled,
    rule::Rule,
};

/// The result of declaring ops: the known ops, the defining rules, and errors.
#[derive(Default)]
pub(crate) struct DeclaredOps {
    /// The ops that rules and graphs may name after these declarations.
    pub known: Known,
    /// The rules that define the new ops.
    pub rules: Vec<Arc<Compiled>>,
    /// The errors of declarations.
    pub errors: Vec<LangError>,
}

/// Declares ops, each after the ops in its definition. Definitions may use the `given` ops, and ops of other files.
pub(crate) fn declare(forms: &[(&Source, &Sexp)], given: &Ops, proofs: &Proofs) -> DeclaredOps {
    let mut reader = Declarations {
        forms: BTreeMap::new(),
        open: Vec::new(),
        proofs,
        done: DeclaredOps { known: Known { ops: given.clone(), ..Known::default() }, ..DeclaredOps::default() },
    };
    let mut names = Vec::new();
    for (source, form) in forms {
        match OpForm::read(source, form) {
            Ok(form) => names.extend(reader.take(form)),
            Err((name, errors)) => {
                reader.done.known.broken.extend(name);
                reader.done.errors.extend(errors);
            }
        }
    }
    for name in names {
        reader.declare(name);
    }
    reader.done
}

/// The maximal number of built-in ops to which a definition may expand. Without a limit, a chain of ops that each use
/// the one before twice would expand exponentially.
const MOST_OPS: usize = 10_000;

struct Declarations<'s> {
    /// The declarations that are not yet processed.
    forms: BTreeMap<&'s str, OpForm<'s>>,
    /// The ops whose definitions are being processed, outermost first.
    open: Vec<&'s str>,
    proofs: &'s Proofs,
    done: DeclaredOps,
}

impl<'s> Declarations<'s> {
    /// Adds a declaration and returns its name, or records an error if the name is taken. A repeated equal
    /// declaration is accepted.
    fn take(&mut self, form: OpForm<'s>) -> Option<&'s str> {
        if self.is_known(&form) {
            return None;
        }
        let taken = match (self.forms.get(form.name), self.done.known.ops.named(form.name)) {
            (Some(first), _) => Some(format!("{} declares it", first.place())),
            (_, Some(op)) => Some(match op.declared() {
                Some(declared) => format!("{} declares it", declared.place),
                None => "it is built in".into(),
            }),
            (None, None) => None,
        };
        if let Some(taken) = taken {
            let help = format!("{taken}; give this op another name");
            let message = format!("{}: there is an op of this name already", form.name);
            self.done.errors.push(form.source.error(form.at.clone(), message, help));
            return None;
        }
        let bound = |op: &&(String, String)| {
            let here = self.forms.values().find(|other| other.onnx.contains(*op)).map(OpForm::place);
            here.is_some() || self.done.known.ops.onnx(&op.0, &op.1).is_some()
        };
        if let Some((domain, name)) = form.onnx.iter().find(bound) {
            let message = format!("{}: `{name}` of `{domain}` stands for another op already", form.name);
            let help = "remove one of the two `onnx` parts";
            self.done.errors.push(form.source.error(form.at.clone(), message, help));
            return None;
        }
        let name = form.name;
        self.forms.insert(name, form);
        Some(name)
    }

    /// Returns whether an op with the same declaration and the same ops in its definition is known already.
    fn is_known(&self, form: &OpForm<'s>) -> bool {
        let ops = &self.done.known.ops;
        let Some(known) = ops.named(form.name).and_then(Op::declared) else { return false };
        let same = |op: &Op| ops.named(op.name()) == Some(*op) && !self.forms.contains_key(op.name());
        known.text == form.form.to_string() && known.uses.iter().all(same)
    }

    /// Declares the op `name`, after the ops in its definition.
    fn declare(&mut self, name: &'s str) {
        let Some(form) = self.forms.get(name).cloned() else { return };
        self.open.push(name);
        for part in form.parts() {
            let Some((&part, _)) = self.forms.get_key_value(part) else { continue };
            if let Some(at) = self.open.iter().position(|open| *open == part) {
                let circle = [&self.open[at..], &[part]].concat().join(" → ");
                let message = format!("cannot define {name} because its definition uses itself: {circle}");
                let help = "define it by ops that do not use it";
                self.done.errors.push(form.source.error(form.body.span.clone(), message, help));
                self.broken(name);
                continue;
            }
            self.declare(part);
        }
        self.open.pop();
        if self.forms.remove(name).is_none() {
            return;
        }
        match self.made(&form) {
            Ok((op, forms)) => {
                self.done.rules.extend(forms);
                // The name is free, because `take` has checked it.
                let _ = self.done.known.ops.add(op);
            }
            Err(errors) => {
                self.done.errors.extend(errors);
                self.broken(name);
            }
        }
    }

    /// Records that an op's declaration is wrong, so that its uses are not reported as further errors.
    fn broken(&mut self, name: &str) {
        self.forms.remove(name);
        self.done.known.broken.push(name.into());
    }

    /// Returns the op of a declaration, and the forms of the rule that defines it.
    fn made(&self, form: &OpForm<'s>) -> Result<(Op, Vec<Arc<Compiled>>), Vec<LangError>> {
        let known = &self.done.known;
        let broken = form.parts().any(|part| known.broken.iter().any(|name| name == part));
        if broken {
            return Err(Vec::new());
        }
        let doc = comment_above(form.source, form.form);
        let mut uses: Vec<Op> = Vec::new();
        for op in form.parts().filter_map(|part| known.ops.named(part)).filter(|op| op.declared().is_some()) {
            if !uses.contains(&op) {
                uses.push(op);
            }
        }
        let attrs: Vec<AttrDef> = form.attrs.iter().map(|(_, def)| *def).collect();
        let (signature, shown) = signature(form).map_err(|error| vec![error])?;
        let op = Op::declare(Declaration {
            name: form.name,
            doc: &doc,
            attrs,
            signature,
            shown: &shown,
            is: &form.definition(),
            text: &form.form.to_string(),
            uses: &uses,
            onnx: &form.onnx,
            place: &form.place(),
        });
        let mut ops = known.ops.clone();
        let _ = ops.add(op);
        let with_it = Known { ops, ..known.clone() };
        let (rule, errors) = RuleReader::definition(form.source, &form.rule(), &with_it, doc_of(form, &doc));
        let named = |mut error: LangError| {
            error.message = error.message.replacen("decompose/", "", 1);
            error
        };
        let Some(rule) = rule.filter(|_| errors.is_empty()) else {
            return Err(errors.into_iter().map(named).collect());
        };
        let rule = Rule { proof: self.proofs.of(&rule).cloned(), ..rule };
        let forms = check::defining(Arc::new(rule)).map_err(|error| vec![named(error)])?;
        let forms: Vec<Arc<Compiled>> = forms.into_iter().map(Arc::new).collect();
        let definition = OpDefinition::new(forms.clone());
        if definition.size > MOST_OPS {
            let message =
                format!("cannot declare `{}` because it expands to {} built-in ops", form.name, definition.size);
            let help = format!("define it by fewer ops; at most {MOST_OPS} are allowed");
            return Err(vec![form.source.error(form.body.span.clone(), message, help)]);
        }
        op.define(definition);
        Ok((op, forms))
    }
}

/// Returns the documentation of the defining rule.
fn doc_of(form: &OpForm<'_>, doc: &str) -> String {
    if doc.is_empty() { format!("{} is {}", form.name, form.definition()) } else { doc.into() }
}

/// Returns the type signature of a declaration, and its text.
fn signature(form: &OpForm<'_>) -> Result<(Signature, String), LangError> {
    let mut scope = Scope::default();
    for (name, _) in &form.attrs {
        scope.variables.push(((*name).into(), SlotKind::Attr));
    }
    sequences(form.form, &mut |name| {
        let _ = scope.slot(name, SlotKind::Dims);
    });
    for (item, name, class) in &form.dtypes {
        let declared = scope.slot(name, SlotKind::DType(*class));
        declared.map_err(|_| form.wrong(&item.span, format!("`{name}` is declared twice"), "use another name"))?;
    }
    let mut operands = Vec::new();
    for (_, ty) in &form.tensors {
        operands.push(TypePattern::parse(ty, &mut scope, form.source).map_err(|error| form.located(error))?);
    }
    let result = TypePattern::parse(form.result, &mut scope, form.source).map_err(|error| form.located(error))?;
    let mut relations = Vec::new();
    for relation in &form.relations {
        let call = RelationCall::parse(relation, &mut scope, form.source);
        relations.push(call.map_err(|error| form.located(error))?);
    }
    let dtypes = form.dtypes.iter().map(|(item, ..)| item.to_string());
    let types = form.tensors.iter().map(|(_, ty)| ty.to_string());
    let end = form.relations.iter().map(|relation| unmarked(relation).to_string());
    let shown = dtypes.chain(types).chain(["->".into(), form.result.to_string()]).chain(end);
    let shown = shown.collect::<Vec<_>>().join(" ");
    let required = operands.len();
    let results = vec![SignatureResult::Pattern(result)];
    Ok((Signature { scope, operands, required, results, relations }, shown))
}

/// Returns a relation whose attribute variables are written without `?`, as a signature names attributes.
fn unmarked(sexp: &Sexp) -> Sexp {
    let all = |items: &[Sexp]| items.iter().map(unmarked).collect();
    let kind = match &sexp.kind {
        SexpKind::Atom(word) => SexpKind::Atom(word.trim_start_matches('?').into()),
        SexpKind::List(items) => SexpKind::List(all(items)),
        SexpKind::Bracket(head, items) => SexpKind::Bracket(head.clone(), all(items)),
        other => other.clone(),
    };
    Sexp { kind, span: sexp.span.clone() }
}
