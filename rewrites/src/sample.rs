//! Finds values for a rule's variables that satisfy its types and relations. The loader types and compiles every rule
//! on such values.
//!
//! Determined variables are solved for, and free ones are chosen by an implementation of [`Choices`]. The loader uses
//! [`Generic`], and testers of rules have their own.

use eutectic_ir::{
    Attr, DType, Dim, Op, Shape, Type,
    lang::{
        Bindings, DTypeClass,
        sample::sample,
        typing::{Bound, DTypePattern, DimPattern, DimsItem, SlotKind, Status, VarId},
    },
    ops::Group,
};

use crate::rule::{AppliedOp, AttrVariable, OpTerm, Rule, Term, VariableKind};

/// Values for all variables of a rule.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The dims, element types and attributes.
    pub bindings: Bindings,
    /// The type of each tensor variable.
    pub types: Vec<Type>,
}

/// The choice of values for variables that nothing determines.
pub trait Choices {
    /// Returns a number below `n`, where `n` is at least 1.
    fn below(&mut self, n: usize) -> usize;

    /// Returns whether relations choose values first. This finds solutions of relations that random values rarely
    /// satisfy.
    fn relations_first(&self) -> bool;

    /// Returns an element type of a class.
    fn dtype(&mut self, class: DTypeClass) -> DType;

    /// Returns an op of a group.
    fn op(&mut self, group: Group) -> Op {
        let ops = group.ops();
        ops[self.below(ops.len())]
    }

    /// Returns a dim. `extent` says whether it is part of a tensor's shape; otherwise it is an offset or a length.
    fn dim(&mut self, extent: bool) -> i64;

    /// Returns a sequence of dims. It is either new, or a suffix of one of `others` with some extents set to 1,
    /// because relations such as `broadcast` need matching shapes.
    fn sequence(&mut self, others: &[&Shape]) -> Shape {
        if !others.is_empty() && self.below(2) == 0 {
            let from = others[self.below(others.len())];
            let skipped = self.below(from.rank() + 1);
            return from[skipped..]
                .iter()
                .map(|d| if self.below(3) == 0 { Dim::Known(1) } else { d.clone() })
                .collect();
        }
        let rank = [1, 2, 2, 1, 3, 0, 1, 2, 2, 1, 3, 4][self.below(12)];
        (0..rank).map(|_| Dim::Known(self.dim(true))).collect()
    }

    /// Returns the value of a number or attribute variable.
    fn attr(&mut self, rule: &Rule, slot: VarId, bindings: &Bindings) -> Attr;

    /// Returns a shape that is related to those of the declared tensors. It is one of them: unchanged, flattened,
    /// with two axes merged, with an additional axis of extent 1 or 3, or with other extents for those of 1.
    fn shape(&mut self, rule: &Rule, bindings: &Bindings) -> Shape {
        let tensors: Vec<Shape> = rule
            .tensors()
            .filter_map(|(_, ty, _)| ty.dims.value(bindings))
            .chain((0..rule.scope.variables.len()).filter_map(|s| bindings.attr(s)?.shape().cloned()))
            .collect();
        if tensors.is_empty() {
            return Shape::default();
        }
        let from = &tensors[self.below(tensors.len())];
        let mut dims: Vec<Dim> = from.iter().cloned().collect();
        match self.below(6) {
            0 => {}
            1 => dims = vec![from.count()],
            2 if dims.len() > 1 => {
                let at = self.below(dims.len() - 1);
                let next = dims.remove(at + 1);
                dims[at] = &dims[at] * &next;
            }
            3 => dims.insert(self.below(dims.len() + 1), Dim::Known(1)),
            4 => dims.insert(0, Dim::Known(3)),
            _ => {
                let known: Vec<i64> = dims.iter().filter_map(Dim::known).collect();
                dims = known.into_iter().map(|n| Dim::Known(if n == 1 { 2 } else { n })).collect();
            }
        }
        dims.into_iter().collect()
    }

    /// Returns a random permutation of `rank` axes.
    fn permutation(&mut self, rank: usize) -> Attr {
        let mut perm: Vec<i64> = (-(rank as i64)..0).collect();
        for at in (1..perm.len()).rev() {
            perm.swap(at, self.below(at + 1));
        }
        Attr::from(&perm[..])
    }
}

/// The choices for loading rules: distinct extents, and attributes with which most ops are well typed.
pub(crate) struct Generic {
    random: fastrand::Rng,
    /// The extents that are not drawn yet. They are distinct, because accidentally equal extents would hide an error.
    extents: Vec<i64>,
    relations_first: bool,
}

impl Generic {
    /// Makes the choices for a seed. In two of three samples, extents are distinct. In the third, relations choose
    /// first.
    pub fn new(seed: u64) -> Generic {
        Generic { random: fastrand::Rng::with_seed(seed), extents: (2..14).collect(), relations_first: seed % 3 == 2 }
    }
}

impl Choices for Generic {
    fn below(&mut self, n: usize) -> usize {
        self.random.u64(..n as u64) as usize
    }

    fn relations_first(&self) -> bool {
        self.relations_first
    }

    fn dtype(&mut self, class: DTypeClass) -> DType {
        let admitted: Vec<DType> = class.members().collect();
        // Half of the choices are the first admitted type, because most rules are about `f32`.
        if self.below(2) == 0 { admitted[0] } else { admitted[self.below(admitted.len())] }
    }

    fn dim(&mut self, _: bool) -> i64 {
        if self.extents.is_empty() {
            self.extents.extend(14..26);
        }
        let at = self.random.u64(..self.extents.len() as u64) as usize;
        self.extents.remove(at)
    }

    fn attr(&mut self, rule: &Rule, slot: VarId, bindings: &Bindings) -> Attr {
        match rule.attribute(slot) {
            Some(AttrVariable::Int) => Attr::Int(self.below(4) as i64),
            Some(AttrVariable::Axis) => Attr::Int(-1 - self.below(3) as i64),
            Some(AttrVariable::Axes) => {
                let least = -1 - self.below(2) as i64;
                Attr::from(&(least..0).collect::<Vec<i64>>()[..])
            }
            Some(AttrVariable::Perm) => {
                let rank = 1 + self.below(4);
                self.permutation(rank)
            }
            Some(AttrVariable::Shape) => Attr::Shape(self.shape(rule, bindings)),
            Some(AttrVariable::Bool) => Attr::Bool(self.below(2) == 0),
            Some(AttrVariable::DType) => Attr::DType(DType::ALL[self.below(DType::ALL.len())]),
            Some(AttrVariable::OneOf(words)) => Attr::from(words[self.below(words.len())].as_str()),
            None => Attr::from(rule.wanted(slot).unwrap_or([0.5, 2.0, 0.125, 1e-5, 1.5][self.below(5)])),
        }
    }
}

/// Draws values once, given some bindings. Returns `None` if the choices contradict each other.
pub fn draw(rule: &Rule, choices: &mut dyn Choices, bound: Bindings) -> Option<Sample> {
    let mut bindings = bound;
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        if let (SlotKind::DType(class), None) = (kind, bindings.get(slot))
            && class.members().all(DType::is_float)
        {
            bindings.bind(slot, Bound::DType(choices.dtype(*class))).ok()?;
        }
    }
    for variable in &rule.variables {
        if let VariableKind::Op(slot, group) = variable.kind
            && bindings.get(slot).is_none()
        {
            op(rule, slot, group, choices, &mut bindings)?;
        }
    }
    if choices.relations_first() {
        let patterns: Vec<_> = rule.tensors().map(|(_, ty, _)| ty).collect();
        let relations: Vec<_> = rule.relations.iter().map(|(call, _)| call.clone()).collect();
        bindings = sample(&rule.scope, &patterns, &relations, bindings, &mut |n| choices.below(n)).ok()?;
    }
    // Shapes are drawn last, because they are derived from the dims.
    let mut order: Vec<usize> = (0..rule.scope.variables.len()).collect();
    order.sort_by_key(|slot| (rule.attribute(*slot) == Some(&AttrVariable::Shape), *slot));
    for slot in order {
        solve_relations(rule, &mut bindings)?;
        if bindings.get(slot).is_some() {
            continue;
        }
        let value = match rule.scope.variables[slot].1 {
            SlotKind::DType(class) => Bound::DType(choices.dtype(class)),
            SlotKind::Dim => Bound::Dim(Dim::Known(choices.dim(is_extent(rule, slot)))),
            SlotKind::Dims => {
                let others: Vec<&Shape> = (0..rule.scope.variables.len()).filter_map(|s| bindings.dims(s)).collect();
                Bound::Dims(choices.sequence(&others))
            }
            SlotKind::Attr => Bound::Attr(choices.attr(rule, slot, &bindings)),
            SlotKind::Op => return None,
        };
        bindings.bind(slot, value).ok()?;
    }
    solve_relations(rule, &mut bindings)?;
    let types = rule.tensors().map(|(_, ty, _)| ty.value(&bindings)).collect::<Option<_>>()?;
    Some(Sample { bindings, types })
}

/// Binds an op variable, and the element types of the op's operands on the left side.
fn op(rule: &Rule, slot: VarId, group: Group, choices: &mut dyn Choices, bindings: &mut Bindings) -> Option<()> {
    let op = choices.op(group);
    let variable = OpTerm::Variable(slot, group);
    let (attrs, _) = op.sample(&mut |n| choices.below(n))?;
    bindings.bind(slot, Bound::Op(op, variable.carried(&attrs))).ok()?;
    let mut applied: Vec<&AppliedOp> = Vec::new();
    for root in &rule.roots {
        root.left.visit(&mut |term| match term {
            Term::Call(call) if call.op == variable => applied.push(call),
            _ => {}
        });
    }
    let mut chosen: Vec<(VarId, DType)> = Vec::new();
    for (pattern, arg) in applied.iter().flat_map(|call| op.signature().operands.iter().zip(&call.args)) {
        let Some((of, class)) = element_type(rule, arg) else { continue };
        let dtype = match pattern.dtype {
            DTypePattern::Fixed(dtype) => dtype,
            DTypePattern::Var(slot, admitted) => {
                let known = chosen.iter().find(|(s, _)| *s == slot).map(|(_, dtype)| *dtype);
                let bound = || match bindings.get(of) {
                    Some(Bound::DType(dtype)) => Some(*dtype),
                    _ => None,
                };
                let dtype = known.or_else(bound).unwrap_or_else(|| choices.dtype(admitted));
                chosen.push((slot, dtype));
                Some(dtype).filter(|dtype| admitted.contains(*dtype))?
            }
        };
        bindings.bind(of, Bound::DType(dtype)).ok().filter(|()| class.contains(dtype))?;
    }
    Some(())
}

/// Returns the variable for the element type of a term. A view or reduction has the element type of its operand.
fn element_type(rule: &Rule, term: &Term) -> Option<(VarId, DTypeClass)> {
    match term {
        Term::Tensor(at) => match &rule.variables[*at].kind {
            VariableKind::Tensor { ty, .. } => match ty.dtype {
                DTypePattern::Var(slot, class) => Some((slot, class)),
                DTypePattern::Fixed(_) => None,
            },
            _ => None,
        },
        Term::Call(call) => element_type(rule, call.args.first()?),
        _ => None,
    }
}

/// Checks the relations, and binds the variables that they determine.
fn solve_relations(rule: &Rule, bindings: &mut Bindings) -> Option<()> {
    let mut open: Vec<_> = rule.relations.iter().collect();
    loop {
        let before = open.len();
        let mut fits = true;
        open.retain(|(call, _)| match call.solve(bindings) {
            Ok(status) => status == Status::Later,
            Err(_) => {
                fits = false;
                false
            }
        });
        if !fits {
            return None;
        }
        if open.is_empty() || open.len() == before {
            return Some(());
        }
    }
}

/// Returns whether a dim variable is part of a tensor's shape.
fn is_extent(rule: &Rule, slot: VarId) -> bool {
    rule.tensors().any(|(_, ty, _)| ty.dims.0.iter().any(|item| matches!(item, DimsItem::One(p) if mentions(p, slot))))
}

fn mentions(pattern: &DimPattern, slot: VarId) -> bool {
    match pattern {
        DimPattern::Number(_) => false,
        DimPattern::Var(s) => *s == slot,
        DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().any(|p| mentions(p, slot)),
        DimPattern::Difference(pair) | DimPattern::Quotient(pair) | DimPattern::Floor(pair) | DimPattern::Mod(pair) => {
            pair.iter().any(|p| mentions(p, slot))
        }
    }
}
