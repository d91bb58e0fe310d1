//! Left sides of rules: the samples that are drawn for them, and their compilation in the legal form of a sample.

use eutectic_ir::{
    Op, Shape,
    lang::{
        Bindings, LangError,
        typing::{Bound, VarId},
    },
};

use crate::{
    egraph::{Facts, TypeId},
    instantiate::{Instantiator, NoInstance},
    parse::located,
    pattern::Pattern,
    rule::Rule,
    sample::{Generic, Sample, draw},
};

/// The seed of a sample, and the variables that are bound to empty sequences of dims.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Draw {
    pub seed: u64,
    /// The variables that are bound to empty sequences of dims.
    pub empty: Vec<VarId>,
}

/// A legal form of a left side: the draw of a sample with this form, and the ops that the form names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    pub draw: Draw,
    pub ops: Vec<Op>,
}

impl Draw {
    /// Draws the sample. Returns `None` if the drawn values contradict each other.
    pub fn sample(&self, rule: &Rule) -> Option<Sample> {
        let mut bound = Bindings::default();
        for slot in &self.empty {
            bound.bind(*slot, Bound::Dims(Shape::default())).ok()?;
        }
        draw(rule, &mut Generic::new(self.seed), bound)
    }
}

/// Compiles the legal form that a left side has in the sample of a draw.
///
/// # Errors
/// If the draw gives no sample, or the left side cannot be typed or compiled in the sample.
pub(crate) fn form(rule: &Rule, draw: &Draw) -> Result<Pattern, LangError> {
    let refused = |message: &str| refuse(rule, rule.roots[0].span.clone(), message.into(), "write forms.txt again");
    let sample =
        draw.sample(rule).ok_or_else(|| refused("a draw that forms.txt lists for this rule gives no sample"))?;
    compile_left(rule, &mut Facts::default(), &sample)
}

/// Compiles a left side in the legal form that it has in a sample.
pub(crate) fn compile_left(rule: &Rule, facts: &mut Facts, sample: &Sample) -> Result<Pattern, LangError> {
    let types: Vec<TypeId> = sample.types.iter().map(|t| facts.type_id(t.clone())).collect();
    let members = [sample.bindings.clone()];
    let mut builder = Instantiator::new(facts, rule, &members, &types);
    builder.left = true;
    let mut tops = Vec::new();
    for root in &rule.roots {
        let made = builder.term(&root.left, 0, None).map_err(|fault| {
            let message = match fault {
                NoInstance::Wrong { message, .. } => message,
                NoInstance::Inapplicable => {
                    "the left side has no value, for example because of an inexact quotient".into()
                }
            };
            refuse(rule, root.span.clone(), message, "see the op's signature: `eutectic ops`")
        })?;
        tops.push(made.0);
    }
    Pattern::compile(&builder, &tops)
        .map_err(|message| refuse(rule, rule.roots[0].span.clone(), message, "split the rule, or share a subterm"))
}

/// Returns an error at a position of a rule.
pub(crate) fn refuse(rule: &Rule, span: std::ops::Range<usize>, message: String, help: &str) -> LangError {
    located(&rule.source, &rule.name, span, message, help)
}
