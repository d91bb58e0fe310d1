//! Ops that files declare. Their rows of the op table are made while the files are read.
//!
//! A declared op is a composite: it has a name, attributes and a type signature, and a rule defines it. The crate
//! `eutectic-rewrites` reads the declaration and gives the op its [`Definition`]. Evaluation, flops and the observed
//! operands follow from the definition.
//!
//! Rows live until the process ends, because graphs, rules and kernels copy an [`Op`], which is a reference to its
//! row. To bound the memory, each distinct declaration has only one row, however often its file is read.

use std::{
    any::Any,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::{AttrDef, Class, Op, OpDef, Row, eval::Eval, op};
use crate::{Attr, DType, Graph, Type, lang::Signature};

/// The definition of a declared op.
pub trait Definition: fmt::Debug + Send + Sync {
    /// Returns the program of the op for given attributes and operand types. It has an input for each operand, in
    /// order, and one output.
    ///
    /// # Errors
    /// The reason why the op does not take these attributes or operands.
    fn graph(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Arc<Graph>, String>;

    /// Returns the ops in the definition.
    fn ops(&self) -> Vec<Op>;

    /// Returns the definition as [`Any`], for the crate that made it.
    fn as_any(&self) -> &dyn Any;
}

/// An op as a file declares it.
#[derive(Debug)]
pub struct Declaration<'a> {
    /// The name, `pack/name`.
    pub name: &'a str,
    /// The documentation: a sentence about the result.
    pub doc: &'a str,
    /// The attributes.
    pub attrs: Vec<AttrDef>,
    /// The type signature. Its first variables are the attributes.
    pub signature: Signature,
    /// The signature as text.
    pub shown: &'a str,
    /// The text of the definition.
    pub is: &'a str,
    /// The declaration as text, from which the same declaration can be read.
    pub text: &'a str,
    /// The declared ops that the definition names.
    pub uses: &'a [Op],
    /// Domain and name of each ONNX op for which the op stands.
    pub onnx: &'a [(String, String)],
    /// File and line of the declaration.
    pub place: &'a str,
}

/// The part of an op's row that only declared ops have.
#[derive(Debug)]
pub struct Declared {
    /// The declaration as text, from which the same declaration can be read.
    pub text: String,
    /// The text of the definition.
    pub is: String,
    /// The declared ops that the definition names.
    pub uses: Vec<Op>,
    /// Domain and name of each ONNX op for which the op stands.
    pub onnx: Vec<(String, String)>,
    /// File and line of the first equal declaration that was read.
    pub place: String,
}

/// The definition of a declared op, and the properties that follow from it.
struct Defined {
    by: Box<dyn Definition>,
    hands_on: bool,
    observes: bool,
}

/// The identity of a declaration: its name, its documentation, its text, and the declared ops in the text.
type Key = (String, String, String, Vec<Op>);

/// The rows of declared ops.
static ROWS: Mutex<Option<FxHashMap<Key, Op>>> = Mutex::new(None);

/// The definitions of declared ops. They are separate from rows, because rows never change, so that an op can be a
/// key of maps.
static DEFINED: RwLock<Option<FxHashMap<Op, &'static Defined>>> = RwLock::new(None);

impl Op {
    /// Returns the op of a declaration. The op cannot be used until [`Op::define`] is called.
    pub fn declare(declaration: Declaration<'_>) -> Op {
        let Declaration { name, doc, attrs, signature, shown, is, text, uses, onnx, place } = declaration;
        let key: Key = (name.into(), doc.into(), text.into(), uses.to_vec());
        let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.get_or_insert_default();
        if let Some(known) = rows.get(&key) {
            return *known;
        }
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        let of_table = op(interned(name), interned(doc), Class::Composite, interned(shown), Eval::Defined);
        let declared =
            Declared { text: text.into(), is: is.into(), uses: uses.into(), onnx: onnx.into(), place: place.into() };
        let row = Row {
            def: Box::leak(Box::new(OpDef { attrs: Vec::leak(attrs), ..of_table })),
            signature,
            legal: None,
            number: hasher.finish(),
            declared: Some(declared),
        };
        let made = Op(Box::leak(Box::new(row)));
        rows.insert(key, made);
        made
    }

    /// Sets the definition of a declared op. Later calls have no effect, because equal declarations have equal
    /// definitions.
    pub fn define(self, by: impl Definition + 'static) {
        let ops = by.ops();
        let hands_on = ops.iter().all(|op| matches!(op.def().class, Class::Leaf(_)) || op.hands_on());
        let observes = ops.iter().any(|op| op.can_observe());
        let mut defined = DEFINED.write().unwrap_or_else(PoisonError::into_inner);
        let of_op = defined.get_or_insert_default().entry(self);
        of_op.or_insert_with(|| Box::leak(Box::new(Defined { by: Box::new(by), hands_on, observes })));
    }

    /// Returns the declaration of an op that is not built in.
    pub fn declared(self) -> Option<&'static Declared> {
        self.0.declared.as_ref()
    }

    /// Returns the definition of a declared op.
    pub fn definition(self) -> Option<&'static dyn Definition> {
        Some(&*self.defined()?.by)
    }

    fn defined(self) -> Option<&'static Defined> {
        // Returns early for built-in ops, which are the most frequent, without taking the lock.
        self.declared()?;
        DEFINED.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&self).copied()
    }

    /// Returns whether all ops in the definition pass on the rounding of their operands.
    pub(crate) fn definition_hands_on(self) -> bool {
        self.defined().is_some_and(|defined| defined.hands_on)
    }

    /// Returns whether the op's result depends discontinuously on the rounding of a floating operand
    /// ([`OpDef::observes`]). A declared op does if an op in its definition may.
    pub fn observes(self, operand: DType, result: DType) -> bool {
        match self.defined() {
            Some(defined) => defined.observes,
            None => (self.def().observes)(operand, result),
        }
    }

    fn can_observe(self) -> bool {
        let all = || DType::ALL.into_iter();
        all().filter(|from| from.is_float()).any(|from| all().any(|to| self.observes(from, to)))
    }

    /// Returns the floating-point operations of the op for given attributes and types.
    pub fn flops(self, attrs: &[Attr], operands: &[&Type], result: &Type) -> f64 {
        let Some(definition) = self.definition() else { return (self.def().flops)(operands, result) };
        let Ok(graph) = definition.graph(attrs, operands) else { return 0.0 };
        let of_node = |node: &crate::graph::Node| {
            let operands: Vec<&Type> = node.operands.iter().map(|id| graph.ty(*id)).collect();
            node.op.flops(&node.attrs, &operands, &node.ty)
        };
        graph.nodes().map(|(_, node)| of_node(node)).sum()
    }
}

/// Returns the word with static lifetime. Equal words share one copy.
pub fn interned(word: &str) -> &'static str {
    static WORDS: Mutex<Option<FxHashSet<&'static str>>> = Mutex::new(None);
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    if let Some(known) = words.get(word) {
        return known;
    }
    let made: &'static str = String::leak(word.to_owned());
    words.insert(made);
    made
}

/// Returns the list of words with static lifetime. Equal lists share one copy.
pub fn interned_words(list: &[String]) -> &'static [&'static str] {
    static LISTS: Mutex<Option<FxHashSet<&'static [&'static str]>>> = Mutex::new(None);
    let list: Vec<&'static str> = list.iter().map(|word| interned(word)).collect();
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let lists = lists.get_or_insert_default();
    if let Some(known) = lists.get(list.as_slice()) {
        return known;
    }
    let made: &'static [&'static str] = Vec::leak(list);
    lists.insert(made);
    made
}

/// The ops that a text may name: built-in ops and declared ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ops(Vec<Op>);

impl Ops {
    /// Returns the declared ops that a graph uses, also in the bodies of its loops. Each comes after the ops in its
    /// definition.
    pub fn of(graph: &Graph) -> Ops {
        let mut ops = Ops::default();
        ops.add_of(graph);
        ops
    }

    fn add_of(&mut self, graph: &Graph) {
        for (_, node) in graph.nodes() {
            node.attrs.iter().filter_map(Attr::graph).for_each(|body| self.add_of(body));
            self.add_with_parts(node.op);
        }
    }

    fn add_with_parts(&mut self, op: Op) {
        let Some(declared) = op.declared().filter(|_| !self.0.contains(&op)) else { return };
        declared.uses.iter().for_each(|part| self.add_with_parts(*part));
        self.0.push(op);
    }

    /// Adds a declared op.
    ///
    /// # Errors
    /// If another op has the name. The error is that op.
    pub fn add(&mut self, op: Op) -> Result<(), Op> {
        match self.named(op.name()) {
            Some(other) if other != op => Err(other),
            Some(_) => Ok(()),
            None => {
                self.0.push(op);
                Ok(())
            }
        }
    }

    /// Returns the op with this name.
    pub fn named(&self, name: &str) -> Option<Op> {
        Op::named(name).or_else(|| self.0.iter().copied().find(|op| op.name() == name))
    }

    /// Returns the declared ops, in the order in which they were added.
    pub fn declared(&self) -> &[Op] {
        &self.0
    }

    /// Returns all ops: the built-in ones grouped by family, then the declared ones.
    pub fn all(&self) -> impl Iterator<Item = Op> {
        Op::all().chain(self.0.iter().copied())
    }

    /// Returns the declared op that stands for this op of ONNX.
    pub fn onnx(&self, domain: &str, name: &str) -> Option<Op> {
        let stands = |op: &&Op| op.declared().is_some_and(|d| d.onnx.iter().any(|(d, n)| d == domain && n == name));
        self.0.iter().find(stands).copied()
    }
}
