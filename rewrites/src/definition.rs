//! Definitions of declared ops. The right side of the defining rule is built as a program for given operands.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use eutectic_ir::{
    Attr, Graph, NodeId, Op, Type,
    lang::{
        Bindings,
        typing::{Bound, solve},
    },
    ops::Definition,
};

use crate::{
    built::{insert, node_of},
    egraph::{Facts, TypeId},
    instantiate::{Instantiator, NoInstance},
    recipe::Compiled,
    rule::{OpTerm, Rule, Term, VariableKind},
};

/// The definition of a declared op by a rule.
#[derive(Clone, Debug)]
pub(crate) struct OpDefinition {
    /// The rule, in each legal form of its left side (at least one).
    pub forms: Vec<Arc<Compiled>>,
    /// The number of built-in ops to which the definition expands.
    pub size: usize,
    /// A cache of programs by operands. Without it, each level of nested definitions would build the programs of all
    /// lower levels twice.
    built: Arc<Mutex<FxHashMap<Operands, Built>>>,
}

/// The attributes and operand types for which a program is built.
type Operands = (Vec<Attr>, Vec<Type>);

/// The program, or the reason why there is none.
type Built = Result<Arc<Graph>, String>;

/// The maximal number of cached programs of one op.
const MOST_BUILT: usize = 256;

/// Returns the rule that defines a declared op. The left side is the op, and the right side its definition.
pub fn defining_rule(op: Op) -> Option<&'static Rule> {
    OpDefinition::of(op).map(OpDefinition::rule)
}

impl OpDefinition {
    /// Makes a definition from a rule, given in each legal form of its left side.
    ///
    /// # Panics
    /// If there is no form.
    pub fn new(forms: Vec<Arc<Compiled>>) -> OpDefinition {
        let mut definition = OpDefinition { forms, size: 0, built: Arc::default() };
        let size_of = |op: Op| OpDefinition::of(op).map_or(1, |definition| definition.size);
        definition.size = definition.ops().into_iter().map(size_of).fold(0, usize::saturating_add);
        definition
    }

    /// Returns the definition of a declared op.
    pub fn of(op: Op) -> Option<&'static OpDefinition> {
        op.definition()?.as_any().downcast_ref()
    }

    fn rule(&self) -> &Rule {
        &self.forms[0].rule
    }

    fn terms(&self) -> impl Iterator<Item = &Term> {
        let rule = self.rule();
        rule.roots.iter().map(|root| &root.right).chain(rule.lets.iter().map(|(_, term)| term))
    }

    /// Binds the variables of the rule as a match of its left side would.
    fn bindings(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Bindings, String> {
        let rule = self.rule();
        let mut bindings = Bindings::default();
        let slots = rule.variables.iter().filter_map(|variable| match variable.kind {
            VariableKind::Number(slot) | VariableKind::Attr(slot, _) => Some(slot),
            VariableKind::Tensor { .. } | VariableKind::Op(..) => None,
        });
        for (slot, attr) in slots.zip(attrs) {
            bindings.bind(slot, Bound::Attr(attr.clone())).map_err(|why| why.describe(&rule.scope))?;
        }
        let types: Vec<_> = rule.tensors().map(|(_, ty, _)| ty).zip(operands.iter().copied()).collect();
        let relations: Vec<_> = rule.relations.iter().map(|(relation, _)| relation.clone()).collect();
        solve(&types, &relations, &mut bindings).map_err(|why| why.describe(&rule.scope))?;
        Ok(bindings)
    }

    /// Builds the program for given attributes and operand types.
    fn build(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Graph, String> {
        let rule = self.rule();
        let members = [self.bindings(attrs, operands)?];
        let mut graph = Graph::new(&*rule.name);
        let mut leaves: Vec<NodeId> = Vec::with_capacity(operands.len());
        for ((variable, ..), ty) in rule.tensors().zip(operands) {
            let name = variable.name.trim_start_matches('?');
            leaves.push(graph.input(name, (*ty).clone()).map_err(|why| why.to_string())?);
        }
        let mut facts = Facts::default();
        let types: Vec<TypeId> = operands.iter().map(|ty| facts.type_id((*ty).clone())).collect();
        let mut builder = Instantiator::new(&mut facts, rule, &members, &types);
        builder.legal = false;
        let (top, _) = builder.term(&rule.roots[0].right, 0, None).map_err(|fault| match fault {
            NoInstance::Wrong { message, .. } => message,
            NoInstance::Inapplicable => {
                "the definition has no value for these operands, for example because of an inexact quotient".into()
            }
        })?;
        let instrs = builder.instrs;
        let nodes = insert(&mut graph, &facts, &instrs, &leaves).map_err(|why| why.to_string())?;
        graph.output("result", node_of(top, &leaves, &nodes)).map_err(|why| why.to_string())?;
        Ok(graph)
    }
}

impl Definition for OpDefinition {
    fn graph(&self, attrs: &[Attr], operands: &[&Type]) -> Built {
        let call: Operands = (attrs.to_vec(), operands.iter().copied().cloned().collect());
        let built = || self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = built().get(&call) {
            return known.clone();
        }
        // The lock is released here, because building may build other definitions.
        let graph = self.build(attrs, operands).map(Arc::new);
        let mut built = built();
        if built.len() >= MOST_BUILT {
            built.clear();
        }
        built.insert(call, graph.clone());
        graph
    }

    fn ops(&self) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::new();
        for term in self.terms() {
            term.visit(&mut |term| {
                if let Term::Call(call) = term
                    && let OpTerm::Named(op) = call.op
                {
                    ops.push(op);
                }
            });
        }
        ops
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
