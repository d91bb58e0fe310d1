//! Evaluates ops that files declare: binds the variables of the definition to the operands and attributes of a call.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::lang::{
    DimPattern, DimsPattern,
    typing::{DTypePattern, DimsItem},
};
use eutectic_rewrites::{Rule, rule::VariableKind};

use crate::{
    call::{Case, Value},
    facts::{Res, stop},
    scope::Scope,
    shape::{Shape, Tensor, show},
    term::{Kind, Poly},
};

/// Returns the scope of a definition for a call with these attributes and operands.
pub fn bound(rule: &'static Rule, case: &Rc<Case>, attrs: &[Value], args: &[Tensor]) -> Res<Scope<'static>> {
    if !rule.relations.is_empty() {
        return stop("an op that is declared with `where` is unsupported");
    }
    let mut scope = Scope {
        rule,
        case: Rc::clone(case),
        dims: BTreeMap::new(),
        sequences: BTreeMap::new(),
        attrs: BTreeMap::new(),
        types: BTreeMap::new(),
        given: BTreeMap::new(),
    };
    let (mut attrs, mut args) = (attrs.iter(), args.iter());
    for (at, variable) in rule.variables.iter().enumerate() {
        match &variable.kind {
            VariableKind::Number(slot) | VariableKind::Attr(slot, _) => {
                let Some(value) = attrs.next() else { return stop("an attribute is missing") };
                scope.attrs.insert(*slot, value.clone());
            }
            VariableKind::Tensor { ty, .. } => {
                let Some(arg) = args.next() else { return stop("an operand is missing") };
                scope.operand(at, ty.dtype, &ty.dims, arg)?;
            }
            VariableKind::Op(..) => return stop("a definition with an op variable is unsupported"),
        }
    }
    Ok(scope)
}

impl Scope<'_> {
    fn operand(&mut self, at: usize, dtype: DTypePattern, dims: &DimsPattern, arg: &Tensor) -> Res<()> {
        if let DTypePattern::Var(slot, _) = dtype {
            // A number operand has no type, and takes that of the other operand.
            let known = self.types.get(&slot).is_some_and(|ty| &*ty.name != "number" && ty.kind != Kind::Stored);
            if !known {
                self.types.insert(slot, arg.ty.clone());
            }
        }
        self.given.insert(at, arg.clone());
        self.shape_of(dims, &arg.shape)
    }

    /// Binds the dims of a pattern to those of a shape.
    fn shape_of(&mut self, pattern: &DimsPattern, shape: &Shape) -> Res<()> {
        let items = &pattern.0;
        let many = items.iter().position(|item| matches!(item, DimsItem::Many(_)));
        let fixed = items.len() - usize::from(many.is_some());
        let Some(rest) = shape.len().checked_sub(fixed) else {
            return stop(format!("the rank of an operand differs from that of {}", show(shape)));
        };
        let mut axes = shape.iter();
        for item in items {
            match item {
                DimsItem::Many(slot) => {
                    let part: Shape = axes.by_ref().take(rest).cloned().collect();
                    match self.sequences.get(slot) {
                        Some(known) if *known != part => {
                            return stop(format!(
                                "it is undecided whether {} and {} are equal",
                                show(known),
                                show(&part)
                            ));
                        }
                        Some(_) => {}
                        None => {
                            self.sequences.insert(*slot, part);
                        }
                    }
                }
                DimsItem::One(own) => {
                    let Some(axis) = axes.next().filter(|axis| axis.rank.is_none()) else {
                        return stop(format!(
                            "an axis is inside a sequence of {}, which cannot be split there",
                            show(shape)
                        ));
                    };
                    self.extent(own, &axis.extent)?;
                }
            }
        }
        if axes.next().is_some() {
            stop(format!("the rank of an operand differs from that of {}", show(shape)))
        } else {
            Ok(())
        }
    }

    fn extent(&mut self, pattern: &DimPattern, extent: &Poly) -> Res<()> {
        if let DimPattern::Var(slot) = pattern
            && !self.dims.contains_key(slot)
        {
            self.dims.insert(*slot, extent.clone());
            return Ok(());
        }
        let own = self.dim(pattern)?;
        let difference = &own - extent;
        self.case.require(difference.clone(), "equal extents")?;
        self.case.require(&Poly::zero() - &difference, "equal extents")
    }
}
