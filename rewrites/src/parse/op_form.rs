//! Splits an `(op …)` form into its parts, and reports the position of every error.

use std::ops::Range;

use eutectic_ir::{
    lang::{
        DTypeClass, LangError, Sexp, SexpKind, Source,
        sexp::{did_you_mean, suggestion},
        typing::is_variable,
    },
    ops::{AttrDef, AttrKind, Default, interned, interned_words},
};

use crate::expr::Number;

/// The form of a declaration, for error messages.
pub(crate) const SHAPE_OF_AN_OP: &str =
    "(op pack/name (forall (F float) (?x F[A..]) (?k float :default 1.0)) (result F[A..]) (is (mul ?x ?k)))";

/// The words that start the parts of a declaration.
pub const OP_PARTS: [&str; 6] = ["forall", "where", "let", "result", "is", "onnx"];

/// The kinds of attributes other than words.
const KINDS: [(&str, AttrKind); 8] = [
    ("float", AttrKind::Float),
    ("int", AttrKind::Int),
    ("axis", AttrKind::Axis),
    ("axes", AttrKind::Axes),
    ("perm", AttrKind::Perm),
    ("shape", AttrKind::Shape),
    ("bool", AttrKind::Bool),
    ("dtype", AttrKind::DType),
];

/// The parts of a declaration.
#[derive(Clone)]
pub(crate) struct OpForm<'s> {
    pub source: &'s Source,
    pub form: &'s Sexp,
    pub name: &'s str,
    /// The position of the name.
    pub at: Range<usize>,
    /// The element-type variables, each with its declaration, its name and its class.
    pub dtypes: Vec<(&'s Sexp, &'s str, DTypeClass)>,
    /// The operands in order, each with its variable and its type.
    pub tensors: Vec<(&'s str, &'s Sexp)>,
    /// The attributes in order, each with its variable and its declaration.
    pub attrs: Vec<(&'s str, AttrDef)>,
    /// The declarations without defaults, as the `forall` of a rule has them.
    forall: Vec<Sexp>,
    pub relations: Vec<&'s Sexp>,
    lets: Vec<&'s Sexp>,
    pub result: &'s Sexp,
    pub body: &'s Sexp,
    /// The domain and name of each ONNX op for which the op stands.
    pub onnx: Vec<(String, String)>,
}

/// The name of a wrong declaration, if it has one, and its errors.
type Broken = (Option<String>, Vec<LangError>);

impl<'s> OpForm<'s> {
    /// Reads a declaration.
    pub fn read(source: &'s Source, form: &'s Sexp) -> Result<OpForm<'s>, Broken> {
        let items = form.call().map_or(&[][..], |(_, items)| items);
        let name = items.first().and_then(Sexp::atom).filter(|name| is_name(name));
        let Some((name, at)) = name.zip(items.first().map(|item| item.span.clone())) else {
            let at = items.first().map_or(form.span.start..form.span.start + 1, |item| item.span.clone());
            let help = "name it pack/name, such as my/squared-relu: built-in ops have names without a slash";
            return Err((
                None,
                vec![source.error(at, "cannot declare an op without a name of the form pack/name", help)],
            ));
        };
        let mut reader = OpReader { source, name, errors: Vec::new() };
        let parts = reader.parts(form, &items[1..]);
        let read = parts.and_then(|parts| reader.op(form, at, parts));
        match read {
            Some(op) if reader.errors.is_empty() => Ok(op),
            _ => Err((Some(name.into()), reader.errors)),
        }
    }

    /// Returns the file and line of the declaration.
    pub fn place(&self) -> String {
        format!("{}:{}", self.source.name, self.source.position(self.form.span.start).0)
    }

    /// Returns the words of the definition that may be names of ops.
    pub fn parts(&self) -> impl Iterator<Item = &'s str> {
        let mut parts = Vec::new();
        heads(self.body, &mut parts);
        self.lets.iter().for_each(|item| heads(item, &mut parts));
        parts.into_iter()
    }

    /// Returns the text of the definition: its `let`s, then its value.
    pub fn definition(&self) -> String {
        let parts: Vec<String> = self.lets.iter().copied().chain([self.body]).map(ToString::to_string).collect();
        parts.join(" ")
    }

    /// Returns an error whose message starts with the op's name.
    pub fn wrong(&self, at: &Range<usize>, message: impl std::fmt::Display, help: &str) -> LangError {
        self.source.error(at.clone(), format!("{}: {message}", self.name), help)
    }

    /// Adds the op's name to an error that the reader of types, dims or relations returned.
    pub fn located(&self, mut error: LangError) -> LangError {
        error.message = format!("{}: {}", self.name, error.message);
        error
    }

    /// Returns the rule that defines the op.
    pub fn rule(&self) -> Sexp {
        let at = |kind: SexpKind| Sexp { kind, span: self.at.clone() };
        let word = |word: &str| at(SexpKind::Atom(word.into()));
        let list = |head: &str, items: Vec<Sexp>| at(SexpKind::List([vec![word(head)], items].concat()));
        let mut left: Vec<Sexp> = self.tensors.iter().map(|(name, _)| word(name)).collect();
        for (variable, def) in &self.attrs {
            left.extend([word(&format!(":{}", def.name)), word(variable)]);
        }
        let mut rule = vec![
            word("rule"),
            word(&format!("decompose/{}", self.name)),
            list("forall", self.forall.clone()),
            list("where", self.relations.iter().copied().cloned().collect()),
        ];
        rule.extend(self.lets.iter().copied().cloned());
        let sides = SexpKind::List(vec![word("=>"), list(self.name, left), self.body.clone()]);
        rule.push(Sexp { kind: sides, span: self.body.span.clone() });
        rule.push(list("eq", vec![word("exact")]));
        Sexp { kind: SexpKind::List(rule), span: self.form.span.clone() }
    }
}

/// Returns whether a word has the form `pack/name`.
fn is_name(name: &str) -> bool {
    !name.starts_with([':', '?'])
        && name.split_once('/').is_some_and(|(pack, rest)| !pack.is_empty() && !rest.is_empty())
}

/// Collects the first words of an expression's lists.
fn heads<'s>(sexp: &'s Sexp, found: &mut Vec<&'s str>) {
    if let Some(items) = sexp.list() {
        found.extend(items.first().and_then(Sexp::atom));
        items.iter().for_each(|item| heads(item, found));
    }
}

/// Returns whether a name occurs in an expression: as a word, as a sequence of dims, or before a bracket.
fn mentions(sexp: &Sexp, name: &str) -> bool {
    match &sexp.kind {
        SexpKind::Atom(word) => word.strip_suffix("..").unwrap_or(word) == name,
        SexpKind::List(items) => items.iter().any(|item| mentions(item, name)),
        SexpKind::Bracket(head, items) => head == name || items.iter().any(|item| mentions(item, name)),
        SexpKind::Text(_) | SexpKind::Brace(_) => false,
    }
}

/// The parts of the form before they are read.
#[derive(Default)]
struct Parts<'s> {
    forall: Option<&'s [Sexp]>,
    relations: Vec<&'s Sexp>,
    lets: Vec<&'s Sexp>,
    result: Option<&'s Sexp>,
    body: Option<&'s Sexp>,
    onnx: Vec<(String, String)>,
}

struct OpReader<'s> {
    source: &'s Source,
    name: &'s str,
    errors: Vec<LangError>,
}

/// The kinds of declarations in `forall`.
enum Declares<'s> {
    DType(&'s str, DTypeClass),
    Tensor(&'s str, &'s Sexp),
    Attr(&'s str, AttrDef),
}

impl<'s> OpReader<'s> {
    fn wrong<T>(&mut self, at: &Sexp, message: impl std::fmt::Display, help: impl Into<String>) -> Option<T> {
        // The caret is under the opening bracket of a form, because a caret under the whole form would mark no
        // position.
        let span = if at.list().is_some() { at.span.start..at.span.start + 1 } else { at.span.clone() };
        self.errors.push(self.source.error(span, format!("{}: {message}", self.name), help));
        None
    }

    fn parts(&mut self, form: &'s Sexp, items: &'s [Sexp]) -> Option<Parts<'s>> {
        let mut parts = Parts::default();
        for item in items {
            match item.call() {
                Some(("forall", items)) if parts.forall.is_none() => parts.forall = Some(items),
                Some(("where", items)) => parts.relations.extend(items),
                Some(("let", _)) => parts.lets.push(item),
                Some(("result", [ty])) if parts.result.is_none() => parts.result = Some(ty),
                Some(("is", [term])) if parts.body.is_none() => parts.body = Some(term),
                Some(("onnx", [domain, name])) => match (text(domain), text(name)) {
                    (Some(domain), Some(name)) => parts.onnx.push((domain.into(), name.into())),
                    _ => return self.wrong(item, "this does not name an op of ONNX", "write (onnx DOMAIN NAME)"),
                },
                Some((head, _)) if OP_PARTS.contains(&head) => {
                    let help = format!("an op has one `forall`, one `result F[A..]` and one `is`: {SHAPE_OF_AN_OP}");
                    return self.wrong(
                        item,
                        format!("cannot read `{head}` because it occurs twice or has the wrong number of arguments"),
                        help,
                    );
                }
                found => {
                    let word = found.map(|(head, _)| head).or(item.atom()).unwrap_or_default();
                    let guess = did_you_mean(word, OP_PARTS.into_iter());
                    let help = guess.unwrap_or_else(|| SHAPE_OF_AN_OP.into());
                    return self.wrong(item, "this is not a part of an op", help);
                }
            }
        }
        let missing =
            [("forall", parts.forall.is_none()), ("result", parts.result.is_none()), ("is", parts.body.is_none())];
        match missing.iter().find(|(_, missing)| *missing) {
            Some((part, _)) => {
                self.wrong(form, format!("the declaration has no `{part}`"), format!("write {SHAPE_OF_AN_OP}"))
            }
            None => Some(parts),
        }
    }

    fn op(&mut self, form: &'s Sexp, at: Range<usize>, parts: Parts<'s>) -> Option<OpForm<'s>> {
        let (result, body) = (parts.result?, parts.body?);
        let mut op = OpForm {
            source: self.source,
            form,
            name: self.name,
            at,
            dtypes: Vec::new(),
            tensors: Vec::new(),
            attrs: Vec::new(),
            forall: Vec::new(),
            relations: parts.relations,
            lets: parts.lets,
            result,
            body,
            onnx: parts.onnx,
        };
        let items = parts.forall?;
        for item in items {
            let Some((declares, plain)) = self.declaration(item) else { continue };
            op.forall.push(plain);
            match declares {
                Declares::DType(name, class) => op.dtypes.push((item, name, class)),
                Declares::Tensor(name, ty) => op.tensors.push((name, ty)),
                Declares::Attr(name, def) => op.attrs.push((name, def)),
            }
        }
        if op.tensors.is_empty() && self.errors.is_empty() {
            return self.wrong(
                form,
                "the op has no operand",
                "declare an operand, such as (?x F[A..]); constants need no op",
            );
        }
        self.all_used(items, &op);
        Some(op)
    }

    /// Reports variables that are declared but never used.
    fn all_used(&mut self, items: &'s [Sexp], op: &OpForm<'s>) {
        let computes: Vec<&Sexp> = [op.body].into_iter().chain(op.lets.iter().copied()).collect();
        let types = op.tensors.iter().map(|(_, ty)| *ty).chain([op.result]).chain(op.relations.iter().copied());
        let all: Vec<&Sexp> = types.chain(computes.iter().copied()).collect();
        for item in items {
            let Some((name, _)) = item.call() else { continue };
            let is_tensor = op.tensors.iter().any(|(tensor, _)| *tensor == name);
            let places = if is_tensor { &computes } else { &all };
            if !places.iter().any(|place| mentions(place, name)) {
                let help = format!("use it in (is …), or remove it: {}", self.name);
                let _ = self.wrong::<()>(item, format!("`{name}` is declared but never used"), help);
            }
        }
    }

    /// Returns the declared variable, and its declaration without a default.
    fn declaration(&mut self, item: &'s Sexp) -> Option<(Declares<'s>, Sexp)> {
        let help = "declare (F float), (?x F[B.. N]), or an attribute: (?e float :default 1.0), (?n int), (?ax axis), (?axs axes), \
                    (?p perm), (?s shape), (?k bool), (?d dtype) or (?k (one-of a b))";
        let Some((name, rest)) = item.call() else {
            return self.wrong(item, "this is not a declaration", help);
        };
        if is_variable(name) {
            return Some((Declares::DType(name, self.class(item, rest)?), item.clone()));
        }
        if !name.starts_with('?') || name.len() == 1 || name.ends_with("..") {
            return self.wrong(item, "an op declares only element types, operands and attributes", help);
        }
        let [kind, default @ ..] = rest else {
            return self.wrong(item, format!("the declaration of `{name}` has no kind"), help);
        };
        if let (SexpKind::Bracket(..), []) = (&kind.kind, default) {
            return Some((Declares::Tensor(name, kind), item.clone()));
        }
        if let SexpKind::Bracket(..) = &kind.kind {
            return self.wrong(
                &default[0],
                "the declaration of an operand has only a type",
                "remove the words after the type",
            );
        }
        let kind_of = match (kind.atom(), kind.call()) {
            (_, Some(("one-of", words))) => {
                let words: Option<Vec<String>> = words.iter().map(|w| w.atom().map(str::to_string)).collect();
                words.filter(|words| !words.is_empty()).map(|words| AttrKind::Word(interned_words(&words)))
            }
            (Some(word), _) => KINDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind),
            _ => None,
        };
        let Some(kind_of) = kind_of else {
            let guess = kind.atom().and_then(|word| did_you_mean(word, KINDS.iter().map(|(known, _)| *known)));
            return self.wrong(kind, "this is not a kind of attribute", guess.unwrap_or_else(|| help.into()));
        };
        let default = self.default(kind_of, default)?;
        let plain = SexpKind::List(vec![item.list()?[0].clone(), kind.clone()]);
        let def = AttrDef { name: interned(&name[1..]), kind: kind_of, default };
        Some((Declares::Attr(name, def), Sexp { kind: plain, span: item.span.clone() }))
    }

    fn class(&mut self, item: &'s Sexp, names: &'s [Sexp]) -> Option<DTypeClass> {
        let mut all: Option<DTypeClass> = None;
        for name in names {
            let word = name.atom().unwrap_or_default();
            let Some(class) = DTypeClass::named(word) else {
                let help = suggestion(word, "write one or more of", DTypeClass::names());
                return self.wrong(name, "this is not a class of element types", help);
            };
            all = Some(all.map_or(class, |all| all.or(class)));
        }
        all.or_else(|| self.wrong(item, "this element-type variable has no class", "write a class, such as (F float)"))
    }

    /// Reads `:default VALUE` if it is present.
    fn default(&mut self, kind: AttrKind, items: &'s [Sexp]) -> Option<Default> {
        let Some(key) = items.first() else { return Some(Default::None) };
        if key.atom() != Some(":default") {
            return self.wrong(key, "only a default may follow the kind", "write :default and a value");
        }
        let [_, value] = items else {
            return self.wrong(key, "this default is not one value", "write :default and a value");
        };
        let word = value.atom();
        let default = match kind {
            AttrKind::Float => word.and_then(Number::parse).map(|number| Default::Float(number.get())),
            AttrKind::Int | AttrKind::Axis => word.and_then(|word| word.parse().ok()).map(Default::Int),
            AttrKind::Bool => word.and_then(|word| word.parse().ok()).map(Default::Bool),
            AttrKind::Word(words) => words.iter().find(|known| Some(**known) == word).map(|word| Default::Word(word)),
            _ => {
                return self.wrong(
                    key,
                    format!("cannot give this attribute a default because it is {kind}"),
                    "remove the default",
                );
            }
        };
        default.or_else(|| self.wrong(value, "this is not a value of the attribute", kind.help(word)))
    }
}

fn text(sexp: &Sexp) -> Option<&str> {
    match &sexp.kind {
        SexpKind::Atom(text) | SexpKind::Text(text) => Some(text),
        _ => None,
    }
}
