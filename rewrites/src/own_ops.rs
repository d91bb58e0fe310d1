//! Ops that files declare: reads graphs that use them, and adds their definitions to a rule set.

use std::{borrow::Cow, ops::Range};

use eutectic_ir::{
    Graph, Op, Type,
    lang::{Errors, Sexp, Source, sexp},
    ops::Ops,
    text,
};

use crate::{
    declare::declare,
    definition::OpDefinition,
    parse,
    proof::Proofs,
    ruleset::{RuleSet, duplicates},
};

impl RuleSet {
    /// Returns the ops that the rule files declare.
    pub fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Returns the `known` ops and those that sources declare, without the rules of the sources. Declarations that are
    /// wrong are left out.
    pub fn read_ops(sources: &[Source], known: &Ops) -> Ops {
        let files: Vec<_> = sources.iter().filter_map(|source| Some((source, sexp::read(source).ok()?))).collect();
        let ops: Vec<_> = files.iter().flat_map(|(source, forms)| parse::ops_of(source, forms)).collect();
        declare(&ops, known, &Proofs::default()).known.ops
    }

    /// Returns the rule set with the definitions of a graph's declared ops. Ops that the set declares itself are left
    /// as they are, because `--without` may have removed their rules.
    ///
    /// # Errors
    /// If these rules declare an op of the graph differently under the same name.
    pub fn with_ops_of(&self, graph: &Graph) -> Result<Cow<'_, RuleSet>, OpClash> {
        let used = Ops::of(graph);
        let new: Vec<_> = used.declared().iter().copied().filter(|op| !self.ops.declared().contains(op)).collect();
        if new.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let mut ops = self.ops.clone();
        for op in &new {
            ops.add(*op).map_err(|other| OpClash::new(*op, other))?;
        }
        Ok(Cow::Owned(RuleSet { ops, ..self.clone() }.defining(new)))
    }

    /// Returns the rule set with the rules that define these ops. Ops without a definition add nothing.
    pub fn defining(mut self, ops: impl IntoIterator<Item = Op>) -> RuleSet {
        let definitions = ops.into_iter().filter_map(OpDefinition::of);
        self.rules.extend(definitions.flat_map(|definition| definition.forms.iter().cloned()));
        duplicates(&mut self.rules);
        self
    }
}

/// The error of two different declarations of an op with the same name.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "cannot use `{name}` of {place} because {other} declares another op of this name; give one of the two another name"
)]
pub struct OpClash {
    name: String,
    place: String,
    other: String,
}

impl OpClash {
    fn new(op: Op, other: Op) -> OpClash {
        let place = |op: Op| op.declared().map_or_else(String::new, |declared| declared.place.clone());
        OpClash { name: op.name().into(), place: place(op), other: place(other) }
    }
}

/// Reads a graph from a source that may declare ops before the graph. The graph may also use the `known` ops.
///
/// ```
/// use eutectic_ir::{lang::Source, ops::Ops};
/// use eutectic_rewrites::read_graph;
///
/// let source = Source::new("own.graph", r#"
///     (op my/squared-relu (forall (F float) (?x F[A..])) (result F[A..])
///       (is (mul (act ?x :kind relu) (act ?x :kind relu))))
///     (graph "own" (input x f32[2 3]) (output y (my/squared-relu x)))
/// "#);
/// let graph = read_graph(&source, &Ops::default()).unwrap();
/// assert!(graph.nodes().any(|(_, node)| node.op.name() == "my/squared-relu"));
/// ```
///
/// # Errors
/// All errors of the declared ops, or if there are none, those of the graph; see [`text::parse`].
pub fn read_graph(source: &Source, known: &Ops) -> Result<Graph, Errors> {
    let forms = sexp::read(source)?;
    let ops: Vec<(&Source, &Sexp)> = parse::ops_of(source, &forms).collect();
    let declared = declare(&ops, known, &Proofs::default());
    let others: Vec<&Sexp> = forms.iter().filter(|form| !parse::is_op(form)).collect();
    if !declared.errors.is_empty() {
        return Err(Errors(declared.errors));
    }
    text::parse_form(source, &others, &declared.known.ops)
}

/// Returns the type of each value of a source's graph by position, as [`text::types`]. The graph may name the ops that
/// its file declares, and the `known` ones.
pub fn graph_types(source: &Source, known: &Ops) -> Vec<(Range<usize>, Type)> {
    let Ok(forms) = sexp::read(source) else { return Vec::new() };
    let ops: Vec<(&Source, &Sexp)> = parse::ops_of(source, &forms).collect();
    let declared = declare(&ops, known, &Proofs::default());
    let others: Vec<&Sexp> = forms.iter().filter(|form| !parse::is_op(form)).collect();
    text::types(source, &others, &declared.known.ops)
}
