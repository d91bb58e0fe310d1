//! Infers the type of each term of a rule, expressed in the rule's variables. Editors show these types.

use std::ops::Range;

use eutectic_ir::{
    DType, Dim, Type,
    lang::{
        Bindings,
        typing::{Bound, SlotKind},
    },
};

use crate::{
    check::samples,
    egraph::Facts,
    instantiate::Instantiator,
    rule::{Rule, Term},
    sample::Sample,
};

/// The number of samples on which a type is found. Their extents differ, so that few expressions fit all of them.
const SAMPLES: usize = 4;

/// Returns the type of each applied op of a rule and of each `let`, with its position: `F[B.. M N]`, or the type in one
/// sample where the rule's variables do not express it. Terms that have no type in a sample are left out.
pub fn term_types(rule: &Rule) -> Vec<(Range<usize>, String)> {
    let mut facts = Facts::default();
    let samples: Vec<Sample> = samples(rule, &mut facts, SAMPLES).0.into_iter().map(|(_, sample)| sample).collect();
    let Some(first) = samples.first() else { return Vec::new() };
    let mut terms: Vec<&Term> = Vec::new();
    for root in &rule.roots {
        root.left.visit(&mut |term| terms.push(term));
        root.right.visit(&mut |term| terms.push(term));
    }
    rule.lets.iter().for_each(|(_, term)| term.visit(&mut |term| terms.push(term)));
    let mut types: Vec<(Range<usize>, String)> = Vec::new();
    for term in terms {
        let Term::Call(call) = term else { continue };
        let made: Option<Vec<Type>> = samples.iter().map(|sample| type_in(rule, &mut facts, term, sample)).collect();
        let Some(made) = made else { continue };
        let in_sample = || {
            let tensors = rule.tensors().zip(&first.types).map(|((v, ..), ty)| format!("{} : {ty}", v.name));
            format!("{}, where {}", made[0], tensors.collect::<Vec<_>>().join(", "))
        };
        let shown = in_variables(rule, &made, &samples).unwrap_or_else(in_sample);
        types.push((call.span.clone(), shown));
    }
    types
}

fn type_in(rule: &Rule, facts: &mut Facts, term: &Term, sample: &Sample) -> Option<Type> {
    let types: Vec<_> = sample.types.iter().map(|ty| facts.type_id(ty.clone())).collect();
    let members = [sample.bindings.clone()];
    let mut builder = Instantiator::new(facts, rule, &members, &types);
    builder.legal = false;
    let (_, ty) = builder.term(term, 0, None).ok()?;
    Some(facts.ty(ty).clone())
}

/// Returns a type in the variables of the rule, if one expression fits all samples.
fn in_variables(rule: &Rule, types: &[Type], samples: &[Sample]) -> Option<String> {
    if let Type::Tuple(parts) = &types[0] {
        let part = |at: usize| {
            let of = |ty: &Type| match ty {
                Type::Tuple(parts) => parts.get(at).cloned(),
                Type::Tensor(..) => None,
            };
            in_variables(rule, &types.iter().map(of).collect::<Option<Vec<_>>>()?, samples)
        };
        let parts: Option<Vec<String>> = (0..parts.len()).map(part).collect();
        return Some(format!("({})", parts?.join(", ")));
    }
    let bindings: Vec<&Bindings> = samples.iter().map(|sample| &sample.bindings).collect();
    let (mut dtypes, mut dims): (Vec<DType>, Vec<&[Dim]>) = (Vec::new(), Vec::new());
    for ty in types {
        let Type::Tensor(dtype, shape) = ty else { return None };
        dtypes.push(*dtype);
        dims.push(shape);
    }
    let variables = || rule.scope.variables.iter().enumerate();
    let named = variables().find(|(slot, (_, kind))| {
        let is = |(bound, dtype): (&&Bindings, &DType)| matches!(bound.get(*slot), Some(Bound::DType(d)) if d == dtype);
        matches!(kind, SlotKind::DType(_)) && bindings.iter().zip(&dtypes).all(is)
    });
    let dtype = match named {
        Some((_, (name, _))) => name.to_string(),
        None if dtypes.iter().all(|dtype| *dtype == dtypes[0]) => dtypes[0].to_string(),
        None => return None,
    };
    let mut shape = Vec::new();
    in_dims(rule, &dims, &bindings, &mut shape).then(|| format!("{dtype}[{}]", shape.join(" ")))
}

/// Appends to `names` expressions in the rule's variables that equal `dims` in every sample. Returns whether such
/// expressions exist for all dims.
fn in_dims(rule: &Rule, dims: &[&[Dim]], bindings: &[&Bindings], names: &mut Vec<String>) -> bool {
    if dims.iter().all(|dims| dims.is_empty()) {
        return true;
    }
    let variables = || rule.scope.variables.iter().enumerate();
    for (slot, (name, _)) in variables().filter(|(_, (_, kind))| *kind == SlotKind::Dims) {
        let sequences: Option<Vec<_>> = bindings.iter().map(|bound| bound.dims(slot)).collect();
        let Some(sequences) = sequences.filter(|all| all.iter().any(|dims| dims.rank() > 0)) else { continue };
        let rests = dims.iter().zip(&sequences).map(|(dims, sequence)| dims.strip_prefix(&sequence[..]));
        let Some(rests) = rests.collect::<Option<Vec<&[Dim]>>>() else { continue };
        names.push(format!("{name}.."));
        if in_dims(rule, &rests, bindings, names) {
            return true;
        }
        names.pop();
    }
    let Some(firsts) = dims.iter().map(|dims| dims.first()).collect::<Option<Vec<&Dim>>>() else { return false };
    let Some(name) = in_dim(rule, &firsts, bindings) else { return false };
    let rests: Vec<&[Dim]> = dims.iter().map(|dims| &dims[1..]).collect();
    names.push(name);
    if in_dims(rule, &rests, bindings, names) {
        return true;
    }
    names.pop();
    false
}

/// Returns an expression for a dim: a variable, a number, or the product or the sum of two variables.
fn in_dim(rule: &Rule, dims: &[&Dim], bindings: &[&Bindings]) -> Option<String> {
    let values = |slot: usize| -> Option<Vec<Dim>> {
        let value = |bound: &&Bindings| match bound.get(slot) {
            Some(Bound::Dim(dim)) => Some(dim.clone()),
            _ => None,
        };
        bindings.iter().map(value).collect()
    };
    let variables = rule.scope.variables.iter().enumerate();
    let known: Vec<(&str, Vec<Dim>)> =
        variables.filter_map(|(slot, (name, _))| Some((name.as_ref(), values(slot)?))).collect();
    let fits = |values: &mut dyn Iterator<Item = Dim>| values.zip(dims).all(|(value, dim)| value == **dim);
    if let Some((name, _)) = known.iter().find(|(_, values)| fits(&mut values.iter().cloned())) {
        return Some(name.to_string());
    }
    if dims.iter().all(|dim| *dim == dims[0]) {
        return dims[0].known().map(|n| n.to_string());
    }
    for (at, (a, left)) in known.iter().enumerate() {
        for (b, right) in &known[at..] {
            if fits(&mut left.iter().zip(right).map(|(a, b)| a * b)) {
                return Some(format!("(* {a} {b})"));
            }
            if fits(&mut left.iter().zip(right).map(|(a, b)| a + b)) {
                return Some(format!("(+ {a} {b})"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use eutectic_ir::lang::Source;

    use super::*;
    use crate::RuleSet;

    #[track_caller]
    fn has(text: &str, wanted: &[(&str, &str)]) {
        let rules = RuleSet::read(&[Source::new("t", text)]).unwrap_or_else(|errors| panic!("{errors:?}"));
        let rule = rules.iter().next().expect("a rule");
        let types = term_types(rule);
        for (term, ty) in wanted {
            let found = types.iter().find(|(span, _)| &text[span.clone()] == *term);
            assert_eq!(found.map(|(_, ty)| ty.as_str()), Some(*ty), "{term} in {types:?}");
        }
    }

    #[test]
    fn types_are_shown_in_the_variables_of_the_rule() {
        has(
            ";; columns\n(rule a/b (forall (F float) (?x F[B.. M K]) (?w F[K N] const))
               (=> (slice (matmul ?x ?w) :axis -1 :at I :len L :step 1) (matmul ?x (slice ?w :axis -1 :at I :len L))) (eq exact))",
            &[
                ("(matmul ?x ?w)", "F[B.. M N]"),
                ("(slice (matmul ?x ?w) :axis -1 :at I :len L :step 1)", "F[B.. M L]"),
                ("(slice ?w :axis -1 :at I :len L)", "F[K L]"),
            ],
        );
        has(
            ";; heads\n(rule a/c (forall (F any) (?x F[B.. S H D])) (let ?y (reshape ?x :shape [B.. S (* H D)]))
               (=> (reshape (reshape ?x :shape [B.. S (* H D)]) :shape [B.. S 1 (* H D)]) (reshape ?y :shape [B.. S 1 (* H D)])) (eq exact))",
            &[
                ("(reshape ?x :shape [B.. S (* H D)])", "F[B.. S (* H D)]"),
                ("(reshape ?y :shape [B.. S 1 (* H D)])", "F[B.. S 1 (* H D)]"),
            ],
        );
        has(
            ";; compared\n(rule a/d (forall (F float) (?x F[A..])) (=> (not (lt ?x ?x)) (not (gt ?x ?x))) (eq exact))",
            &[("(lt ?x ?x)", "bool[A..]")],
        );
    }
}
