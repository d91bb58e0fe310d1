//! Reads graphs from their text form.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Attr, Class, DType, Dim, Graph, NodeId, Op, Origin, Shape, Tensor, Type,
    attr::Number,
    dim::MOST_TERMS,
    graph::SubGraph,
    lang::{
        Errors, LangError, Sexp, SexpKind, Source,
        sexp::{did_you_mean, read, suggestion},
    },
    ops::{AttrDef, AttrKind, Leaf, Ops},
};

/// Reads the graph of a source.
///
/// # Errors
/// All syntax errors, or if there are none, all unknown names, wrong attributes and wrong types. Values that depend
/// on an error are not reported again.
pub fn parse(source: &Source) -> Result<Graph, Errors> {
    let forms = read(source)?;
    if let Some(form) = forms.iter().find(|form| form.call().is_some_and(|(head, _)| head == "op")) {
        let help = "read the file by `eutectic::read_graph`, which knows the rule language";
        return Err(source
            .error(
                form.span.start..form.span.start + 1,
                "cannot read the declaration of an op because this reader knows built-in ops only",
                help,
            )
            .into());
    }
    parse_form(source, &forms.iter().collect::<Vec<_>>(), &Ops::default())
}

/// Reads the graph of a source whose declared ops `ops` are read already. `forms` are the forms after the
/// declarations.
///
/// # Errors
/// The errors of [`parse`].
pub fn parse_form(source: &Source, forms: &[&Sexp], ops: &Ops) -> Result<Graph, Errors> {
    read_graph(source, forms, ops, None).map(|parser| parser.graph)
}

/// Returns the type of each value of a graph, with the position of the value: of each application, and of each name
/// where it is defined or used. Values that depend on an error are left out. `forms` are those without declared ops.
pub fn types(source: &Source, forms: &[&Sexp], ops: &Ops) -> Vec<(Range<usize>, Type)> {
    let mut types = Vec::new();
    // Errors are ignored here, because `parse_form` returns the same ones.
    let _ = read_graph(source, forms, ops, Some(&mut types));
    types
}

fn read_graph<'a>(
    source: &'a Source,
    forms: &[&Sexp],
    ops: &'a Ops,
    types: Option<&'a mut Vec<(Range<usize>, Type)>>,
) -> Result<Parser<'a>, Errors> {
    let whole = || {
        source.error(0..source.text.len().min(1), "this is not a single graph", "write (graph \"name\" statement …)")
    };
    let [form] = forms else { return Err(whole().into()) };
    let Some(("graph", [name, statements @ ..])) = form.call() else { return Err(whole().into()) };
    let Some(name) = text(name) else {
        return Err(source
            .error(name.span.clone(), "the name of the graph is missing", "write (graph \"name\" …)")
            .into());
    };
    let mut parser = Parser { types, ..Parser::new(source, ops, Graph::new(name)) };
    statements.iter().for_each(|s| parser.statement(s));
    if parser.errors.is_empty() { Ok(parser) } else { Err(Errors(parser.errors)) }
}

/// The words that begin statements. Leaf ops begin statements, too.
pub const STATEMENTS: [&str; 5] = ["dim", "sub", "let", "output", "update"];

/// Returns the text of a word or a string.
pub(super) fn text(sexp: &Sexp) -> Option<&str> {
    match &sexp.kind {
        SexpKind::Atom(text) | SexpKind::Text(text) => Some(text),
        _ => None,
    }
}

pub(super) fn keyword(sexp: &Sexp) -> Option<&str> {
    sexp.atom()?.strip_prefix(':')
}

/// Returns the names in a `let` for several results.
fn names_of(sexp: &Sexp) -> Option<&[Sexp]> {
    match &sexp.kind {
        SexpKind::List(names) => Some(names),
        _ => None,
    }
}

pub(super) struct Parser<'a> {
    pub source: &'a Source,
    /// The ops that the text may name.
    pub ops: &'a Ops,
    pub graph: Graph,
    /// The value of each name; `None` if its definition was wrong.
    names: FxHashMap<String, Option<NodeId>>,
    /// The extents at run time by name; `None` if the declaration was wrong.
    pub extents: FxHashMap<String, Option<Dim>>,
    /// The bodies of branches and loops by name; `None` if the definition was wrong.
    pub bodies: BTreeMap<String, Option<Rc<Graph>>>,
    pub errors: Vec<LangError>,
    /// The types of values by position in the source; `None` if the caller does not request them.
    pub types: Option<&'a mut Vec<(Range<usize>, Type)>>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(source: &'a Source, ops: &'a Ops, graph: Graph) -> Parser<'a> {
        let (names, extents) = (FxHashMap::default(), FxHashMap::default());
        Parser { source, ops, graph, names, extents, bodies: BTreeMap::new(), errors: Vec::new(), types: None }
    }

    pub(super) fn wrong<T>(&mut self, at: &Sexp, message: impl Into<String>, help: impl Into<String>) -> Option<T> {
        self.errors.push(self.source.error(at.span.clone(), message, help));
        None
    }

    pub(super) fn statement(&mut self, sexp: &Sexp) {
        let help = "write (input NAME TYPE), (param NAME TYPE), (const NAME TYPE { … }), (let NAME value), \
                    (state NAME TYPE), (dim NAME :most N), \
                    (sub NAME statement …), (output NAME value) or (update STATE value)";
        let Some((head, items)) = sexp.call() else {
            return self.wrong(sexp, "this is not a statement", help).unwrap_or(());
        };
        let (items, origin) = self.origin(items);
        if let ("let", [names, value]) = (head, items)
            && let Some(list) = names_of(names)
        {
            return self.several(names, list, value, &origin);
        }
        let leaf = Op::named(head).filter(|op| matches!(op.def().class, Class::Leaf(_)));
        let Some(name) = items.first().and_then(text) else {
            return self.wrong(sexp, format!("the statement `{head}` needs a name"), help).unwrap_or(());
        };
        match (head, leaf, items) {
            ("dim", _, [_, bounds @ ..]) => self.extent(&items[0], name, bounds),
            ("sub", _, [_, statements @ ..]) => self.body(&items[0], name, statements),
            ("let", _, [_, value]) => {
                let value = self.value(value, &origin);
                self.define(&items[0], name, value);
            }
            ("output" | "update", _, [_, value]) => {
                if let Some(value) = self.value(value, &origin) {
                    let done = match head {
                        "output" => self.graph.output(name, value),
                        _ => self.graph.update(name, value),
                    };
                    if let Err(e) = done {
                        self.wrong(sexp, e.problem, e.help).unwrap_or(())
                    }
                }
            }
            (_, Some(op), _) => {
                // The name of an input is its first attribute. The name of a constant exists only in the text.
                let named = op.def().attrs.first().is_some_and(|a| a.kind == AttrKind::Name);
                let value = match self.inlined(op, name, items) {
                    Some(id) => Some(id),
                    None => self.leaf(sexp, op, &items[usize::from(!named)..], &origin),
                };
                self.define(&items[0], name, value);
            }
            _ => {
                let leaves = Op::all().filter(|op| matches!(op.def().class, Class::Leaf(_))).map(Op::name);
                let known = leaves.chain(STATEMENTS);
                let guess = did_you_mean(head, known);
                let help = guess.map_or(help.into(), |guess| format!("{guess} {help}"));
                self.wrong(sexp, format!("`{head}` is not a statement of this form"), help).unwrap_or(())
            }
        }
    }

    /// Reads `(dim NAME :least N :most N)`, an extent at run time.
    fn extent(&mut self, at: &Sexp, name: &str, mut bounds: &[Sexp]) {
        let help = "write (dim NAME :most N), or with :least N before it";
        let (mut least, mut most) = (0, None);
        while let [key, number, rest @ ..] = bounds {
            match (keyword(key), number.atom().and_then(|n| n.parse().ok()).filter(|n| *n >= 0)) {
                (Some("least"), Some(n)) => least = n,
                (Some("most"), Some(0)) => {
                    let message = format!("`{name}` is at most 0, so that its axes would always be empty");
                    return self.wrong(number, message, "write :most 1 or more").unwrap_or(());
                }
                (Some("most"), Some(n)) => most = Some(n),
                _ => return self.wrong(key, "this is not a bound of a dimension", help).unwrap_or(()),
            }
            bounds = rest;
        }
        let dim = match (most, bounds) {
            (Some(most), []) if least <= most => Some(Dim::between(name, least, most)),
            (Some(most), []) => self.wrong(at, format!("`{name}` is at least {least} and at most {most}"), help),
            _ => self.wrong(at, format!("`{name}` must have a bound :most, and each bound must have a number"), help),
        };
        let open = self.graph.symbols().iter().any(|symbol| **symbol == *name);
        if open || self.extents.insert(name.into(), dim).is_some() {
            let help = "declare a dimension once, before it is used";
            self.wrong(at, format!("cannot declare `{name}` because it is used or declared before"), help).unwrap_or(())
        }
    }

    /// Returns the parameter of this name and type that an inlined body made before, if there is one.
    fn inlined(&mut self, op: Op, name: &str, items: &[Sexp]) -> Option<NodeId> {
        let (Class::Leaf(Leaf::Param), [_, ty]) = (op.def().class, items) else { return None };
        let known = self.graph.named("param").find(|(n, _)| *n == name).map(|(_, id)| id)?;
        let ty = self.ty(ty)?;
        (ty == *self.graph.ty(known)).then_some(known)
    }

    /// Splits `:origin PATH` off the end of a statement.
    fn origin<'s>(&mut self, items: &'s [Sexp]) -> (&'s [Sexp], Origin) {
        match items {
            [rest @ .., key, path] if keyword(key) == Some("origin") => match text(path) {
                Some(path) => (rest, Origin::new(path)),
                None => {
                    self.wrong(path, "this is not a path", "write words with dots between, or a string").unwrap_or(());
                    (rest, Origin::default())
                }
            },
            _ => (items, Origin::default()),
        }
    }

    /// Records the type of a value, if the caller needs types.
    fn typed(&mut self, at: &Sexp, value: Option<NodeId>) {
        if let (Some(types), Some(value)) = (&mut self.types, value) {
            types.push((at.span.clone(), self.graph.ty(value).clone()));
        }
    }

    pub(super) fn define(&mut self, at: &Sexp, name: &str, value: Option<NodeId>) {
        self.typed(at, value);
        if !self.names.contains_key(name) {
            self.names.insert(name.to_string(), value);
        } else {
            self.wrong(at, format!("`{name}` is defined twice"), "give one of the two another name").unwrap_or(())
        }
    }

    pub(super) fn value(&mut self, sexp: &Sexp, origin: &Origin) -> Option<NodeId> {
        let value = self.known_value(sexp, origin);
        self.typed(sexp, value);
        value
    }

    fn known_value(&mut self, sexp: &Sexp, origin: &Origin) -> Option<NodeId> {
        if let Some(name) = text(sexp) {
            return match self.names.get(name) {
                Some(value) => *value,
                None => {
                    let help = match did_you_mean(name, self.names.keys().map(String::as_str)) {
                        _ if name.parse::<f64>().is_ok() => {
                            format!("a number is a constant: (const f32[] {{ {name} }})")
                        }
                        Some(guess) => guess,
                        None => "define a value before its first use".into(),
                    };
                    self.wrong(sexp, format!("there is no value `{name}` here"), help)
                }
            };
        }
        let Some((head, items)) = sexp.call() else {
            return self.wrong(sexp, "this is not a value", "write a name, or (op value … :attribute …)");
        };
        if let "if" | "while" = head {
            return self.one(sexp, origin);
        }
        let Some(op) = self.ops.named(head) else {
            let guess = did_you_mean(head, self.ops.all().map(Op::name));
            let help = guess.unwrap_or_else(|| "`eutectic ops` lists the ops".into());
            return self.wrong(sexp, format!("there is no op `{head}`"), help);
        };
        match (op.def().class, items) {
            (Class::Leaf(_), [first, ..]) if keyword(first).is_none() => self.leaf(sexp, op, items, origin),
            // `(get 0 t)`, where the index is written without its keyword.
            (Class::Project, [index, value]) if index.atom().is_some_and(|a| a.parse::<i64>().is_ok()) => {
                let (attr, _) = self.attribute(&op.def().attrs[0], std::slice::from_ref(index))?;
                let value = self.value(value, origin)?;
                self.apply(sexp, op, &[value], &[(op.def().attrs[0].name, attr)], origin)
            }
            _ => self.application(sexp, op, items, origin),
        }
    }

    /// Returns a leaf whose attributes are written in order, without their names.
    fn leaf(&mut self, sexp: &Sexp, op: Op, mut items: &[Sexp], origin: &Origin) -> Option<NodeId> {
        let mut attrs: SmallVec<[(&str, Attr); 3]> = SmallVec::new();
        for def in op.def().attrs {
            let (attr, used) = self.attribute(def, items).or_else(|| {
                let last = items.is_empty();
                if last {
                    self.wrong(sexp, format!("`{op}` needs its {}", def.name), format!("it is {}", def.kind))
                } else {
                    None
                }
            })?;
            attrs.push((def.name, attr));
            items = &items[used..];
        }
        match items.first() {
            Some(extra) => self.wrong(extra, format!("`{op}` has no further attributes"), "remove it"),
            None => self.apply(sexp, op, &[], &attrs, origin),
        }
    }

    /// Reads `(op value … :attribute …)`.
    fn application(&mut self, sexp: &Sexp, op: Op, items: &[Sexp], origin: &Origin) -> Option<NodeId> {
        let split = items.iter().position(|s| keyword(s).is_some()).unwrap_or(items.len());
        let (values, mut rest) = items.split_at(split);
        // Read all operands first, so that the errors of each of them are reported.
        let operands: Vec<_> = values.iter().map(|v| self.value(v, origin)).collect();
        let mut attrs: SmallVec<[(&str, Attr); 3]> = SmallVec::new();
        while let [key, after @ ..] = rest {
            let Some(name) = keyword(key) else {
                return self.wrong(
                    key,
                    "this operand comes after an attribute",
                    format!("move it before {}", items[split].atom().unwrap_or_default()),
                );
            };
            let Some(def) = op.def().attrs.iter().find(|a| a.name == name) else {
                return self.wrong(
                    key,
                    format!("`{op}` has no attribute :{name}"),
                    AttrDef::suggestion(name, op.def().attrs),
                );
            };
            if attrs.iter().any(|(given, _)| given == &name) {
                return self.wrong(key, format!(":{name} is given twice"), "remove one of the two");
            }
            let value = self.attribute(def, after);
            if after.is_empty() {
                return self.wrong(key, format!(":{name} has no value"), format!("write its value: {}", def.kind));
            }
            let (value, used) = value?;
            attrs.push((def.name, value));
            rest = &after[used..];
        }
        let operands: SmallVec<[NodeId; 4]> = operands.into_iter().collect::<Option<_>>()?;
        self.apply(sexp, op, &operands, &attrs, origin)
    }

    fn apply(
        &mut self,
        sexp: &Sexp,
        op: Op,
        operands: &[NodeId],
        attrs: &[(&str, Attr)],
        origin: &Origin,
    ) -> Option<NodeId> {
        match self.graph.apply_at(op, operands, attrs, origin.clone()) {
            Ok(id) => Some(id),
            Err(e) if e.operands.is_empty() => self.wrong(sexp, format!("{op}: {}", e.problem), e.help),
            Err(e) => self.wrong(sexp, format!("{op} of {}: {}", e.operands, e.problem), e.help),
        }
    }

    /// Returns the value of the attribute at the start of `items`, and the number of items that it consists of.
    fn attribute(&mut self, def: &AttrDef, items: &[Sexp]) -> Option<(Attr, usize)> {
        let first = items.first()?;
        let (atom, before) = (first.atom(), self.errors.len());
        let read = match def.kind {
            AttrKind::Int | AttrKind::Axis => atom.and_then(|a| a.parse().ok()).map(Attr::Int),
            AttrKind::Float => atom.and_then(number),
            AttrKind::Bool => atom.and_then(|a| a.parse().ok()).map(Attr::Bool),
            AttrKind::Word(words) => atom.filter(|a| words.contains(a)).map(Attr::from),
            AttrKind::Name => text(first).map(Attr::from),
            AttrKind::DType => atom.and_then(|a| a.parse().ok()).map(Attr::DType),
            AttrKind::Axes | AttrKind::Perm => integers(first).map(Attr::Ints),
            AttrKind::Shape => match &first.kind {
                SexpKind::Bracket(head, dims) if head.is_empty() => self.shape(dims).map(Attr::Shape),
                _ => None,
            },
            AttrKind::Type => self.ty(first).map(Attr::Type),
            AttrKind::Tensor => {
                let Some(SexpKind::Brace(elements)) = items.get(1).map(|s| &s.kind) else {
                    return self.wrong(first, "this is not a constant", format!(":{} is {}", def.name, def.kind));
                };
                let ty = self.ty(first)?;
                return self.tensor(&items[1], &ty, elements).map(|t| (Attr::Tensor(t), 2));
            }
            AttrKind::Graph => self.known_body(first).map(|body| Attr::Graph(SubGraph::from((*body).clone()))),
        };
        match read {
            Some(attr) => Some((attr, 1)),
            None if self.errors.len() > before => None,
            None => self.wrong(first, format!("this is not a value for :{}", def.name), def.kind.help(atom)),
        }
    }

    fn ty(&mut self, sexp: &Sexp) -> Option<Type> {
        let SexpKind::Bracket(dtype, dims) = &sexp.kind else {
            return None;
        };
        match dtype.parse::<DType>() {
            Ok(dtype) => Some(Type::Tensor(dtype, self.shape(dims)?)),
            Err(()) => {
                let help = suggestion(dtype, "the element types are", DType::names());
                self.wrong(sexp, format!("there is no element type `{dtype}`"), help)
            }
        }
    }

    fn shape(&mut self, dims: &[Sexp]) -> Option<Shape> {
        let extent = |reader: &mut Self, sexp: &Sexp| match reader.dim(sexp)? {
            Dim::Known(n) if n < 0 => reader.wrong(sexp, "this is not an extent", "write 0 or a greater number"),
            dim => Some(dim),
        };
        dims.iter().map(|d| extent(self, d)).collect::<Option<Vec<Dim>>>().map(|dims| dims.into_iter().collect())
    }

    /// Reads a dimension: a number, a symbol, or a sum, difference or product of dimensions.
    fn dim(&mut self, sexp: &Sexp) -> Option<Dim> {
        if let Some(atom) = sexp.atom() {
            if let Some(extent) = self.extents.get(atom) {
                return extent.clone();
            }
            if atom.bytes().all(|c| c.is_ascii_digit()) && atom.parse::<i64>().is_err() {
                return self.wrong(sexp, "this is not an extent", format!("the largest is {}", i64::MAX));
            }
            let number =
                atom.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && atom.parse::<f64>().is_ok();
            return match atom.parse() {
                Ok(n) => Some(Dim::Known(n)),
                Err(_) if number => self.wrong(sexp, "this is not an extent", "write an integer"),
                Err(_) => Some(Dim::symbol(atom)),
            };
        }
        let Some((op @ ("+" | "-" | "*"), [first, rest @ ..])) = sexp.call() else {
            return self.wrong(sexp, "this is not a dimension", "write a number, a name, (+ a b), (- a b) or (* a b)");
        };
        let first = self.dim(first)?;
        rest.iter().try_fold(first, |n, d| {
            let d = self.dim(d)?;
            if n.count_terms().saturating_mul(d.count_terms()) > MOST_TERMS {
                let message = format!("cannot use this dimension because it expands to more than {MOST_TERMS} terms");
                return self.wrong(sexp, message, "use a new name for a part of it");
            }
            Some(match op {
                "+" => &n + &d,
                "-" => &n - &d,
                _ => &n * &d,
            })
        })
    }

    fn tensor(&mut self, at: &Sexp, ty: &Type, elements: &[Sexp]) -> Option<Tensor> {
        let (Some(dtype), Some(dims)) = (ty.dtype(), ty.dims()) else {
            return self.wrong(
                at,
                format!("cannot read the constant because its type {ty} has no known size"),
                "write numbers as its dimensions",
            );
        };
        let count = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).filter(|n| n.checked_mul(8).is_some());
        let repeated = elements.last().and_then(Sexp::atom) == Some("...") && elements.len() > 1;
        let elements = &elements[..elements.len() - usize::from(repeated)];
        let mut bytes = Vec::new();
        for element in elements {
            let Some(element_bytes) = element.atom().and_then(|a| Tensor::element_bytes(dtype, a)) else {
                return self.wrong(
                    element,
                    format!("this is not an element of {dtype}"),
                    "write a number that the type represents",
                );
            };
            bytes.extend(element_bytes);
        }
        let Some(count) = count.filter(|&n| n == elements.len() || repeated && n > elements.len()) else {
            let help =
                if repeated { "`...` repeats the last one" } else { "write `...` after the last one to repeat it" };
            return self.wrong(at, format!("{ty} does not have {} elements", elements.len()), help);
        };
        let last = bytes[bytes.len() - if bytes.is_empty() { 0 } else { dtype.size() }..].to_vec();
        if last.len().checked_mul(count).is_none_or(|n| n > MAX_FILLED) && repeated {
            return self.wrong(at, format!("cannot fill {ty} because it is too large"), "use (expand …) of a scalar");
        }
        bytes.extend(last.repeat(count - elements.len()));
        Tensor::new(dtype, &dims, bytes).ok()
    }
}

/// The maximal number of bytes that `...` fills. Otherwise a short text could request unlimited memory.
const MAX_FILLED: usize = 1 << 30;

/// Returns a number. An integer that no `f64` represents exactly keeps all of its digits.
fn number(atom: &str) -> Option<Attr> {
    let whole = atom.parse::<i64>().ok().map(Number::from).filter(|n| n.float().is_none());
    whole.or_else(|| atom.parse::<f64>().ok().map(Number::from)).map(Attr::from)
}

fn integers(sexp: &Sexp) -> Option<SmallVec<[i64; 6]>> {
    match &sexp.kind {
        SexpKind::Bracket(head, items) if head.is_empty() => items.iter().map(|s| s.atom()?.parse().ok()).collect(),
        _ => None,
    }
}
