//! The op table: every op, declared once.
//!
//! An op is an [`OpDef`]: name, attributes, type signature, class, reference evaluation and cost features. The
//! builder, the verifier, the text form, rules, lowering and the interpreter read this table. No code outside of the
//! table matches on the identity of an op.

mod attention;
mod attributes;
mod class;
mod contraction;
mod control;
mod convolution;
mod declared;
pub mod eval;
mod group;
mod ids;
mod layer;
mod leaf;
mod lengths;
mod normalisation;
mod pointwise;
mod project;
mod random;
mod ranking;
mod reduction;
mod rounding;
mod row;
mod sample;
mod scan;
mod update;
mod view;

pub use attributes::{AttrDef, AttrKind, Default};
pub use class::{Access, Anchor, Class, Leaf, Piece, Reduction, ViewCall, ViewMap, Writes};
pub use control::Loop;
pub use declared::{Declaration, Declared, Definition, Ops, interned, interned_words};
pub use group::{Group, Trait};
pub use ids::{Ids, OutOfRange};
pub use lengths::LengthFn;
pub(crate) use normalisation::probabilities;
pub use ranking::Order;
pub use reduction::Monoid;
pub use rounding::Rounding;
pub use row::{RowNeeds, RowOp, RowResult};

use std::{fmt, sync::OnceLock};

use attributes::{attr, attr_or};
use eval::{Element, Eval};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Attr, DType, Tensor, Type,
    interval::{self, IntervalFn},
    lang::{Bindings, Mismatch, Signature, Source},
};

/// The families, in the order in which `eutectic ops` lists them.
const FAMILIES: &[&[OpDef]] = &[
    leaf::OPS,
    pointwise::OPS,
    view::OPS,
    ids::OPS,
    update::OPS,
    contraction::OPS,
    convolution::OPS,
    reduction::OPS,
    ranking::OPS,
    scan::OPS,
    normalisation::OPS,
    attention::OPS,
    layer::OPS,
    random::OPS,
    project::OPS,
    control::OPS,
];

/// The declaration of an op.
#[derive(Debug)]
pub struct OpDef {
    /// The name in rules and in the text form.
    pub name: &'static str,
    /// The formula, with a short description.
    pub doc: &'static str,
    /// The class for the planner.
    pub class: Class,
    /// The attributes, in the order in which nodes hold them.
    pub attrs: &'static [AttrDef],
    /// The type signature (see [`crate::lang`]). It allows broadcasting by NumPy's rules if the op does.
    pub signature: &'static str,
    /// The signature of the forms that kernels compute, if it is narrower than `signature`; otherwise empty.
    pub legal: &'static str,
    /// Whether the first two operands can be swapped.
    pub commutative: bool,
    /// The monotonicity and the symmetries of a pointwise op of one operand.
    pub traits: &'static [Trait],
    /// The integers that the operand may have; any other is an error. No rule moves or folds such an op, and kernels
    /// check each element.
    pub ids: Option<fn(&[Attr]) -> Ids>,
    /// How far the bits of a floating result may differ between kernels.
    pub rounding: Rounding,
    /// The axis of the first operand along which the kernels run, if there is one. Stored operands should have this
    /// axis last.
    pub along: Option<i64>,
    /// For each operand, the pointwise op that the kernel applies to it first. Operands beyond the list are
    /// unchanged.
    pub prologue: &'static [&'static str],
    /// Whether the rounding of a floating operand can change the result discontinuously, given the element types of
    /// operand and result. This holds for step functions and comparisons, and for conversions to integers or to types
    /// with more significant digits.
    pub observes: fn(DType, DType) -> bool,
    /// Whether the op ignores elements that another operand masks, even if they are NaN or ∞.
    pub leaves_out: bool,
    /// The reference evaluation.
    pub eval: Eval,
    /// Maps the intervals of the operands to the interval of the result.
    pub interval: IntervalFn,
    /// Maps operands that are polynomials of extents at run time to the result.
    pub lengths: LengthFn,
    /// The floating-point operations for given operand types and result type.
    pub flops: fn(&[&Type], &Type) -> f64,
}

/// An op: a row of the table, or an op that a file declares.
#[derive(Clone, Copy)]
pub struct Op(&'static Row);

/// An op, with the parsed parts of its declaration.
#[derive(Debug)]
struct Row {
    def: &'static OpDef,
    signature: Signature,
    legal: Option<Signature>,
    /// The position in the table, or a hash of the declaration. Hashes and order use it because a row's memory
    /// address may differ between runs.
    number: u64,
    declared: Option<Declared>,
}

struct Table {
    rows: Vec<Row>,
    by_name: FxHashMap<&'static str, usize>,
    groups: OnceLock<Vec<(Group, Vec<Op>)>>,
}

impl Table {
    fn groups(&'static self) -> &'static [(Group, Vec<Op>)] {
        self.groups.get_or_init(|| Group::all(self.rows.iter().map(Op)))
    }
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let parse = |def: &OpDef, text: &'static str| {
            let attrs: Vec<_> = def.attrs.iter().map(|a| a.name).collect();
            Signature::parse(&Source::new(format!("<signature of {}>", def.name), text), &attrs)
                .unwrap_or_else(|e| panic!("{}: {:?}", def.name, miette::Report::new(e)))
        };
        let row = |(number, def): (usize, &'static OpDef)| {
            let legal = (!def.legal.is_empty()).then(|| parse(def, def.legal));
            Row { def, signature: parse(def, def.signature), legal, number: number as u64, declared: None }
        };
        let rows: Vec<Row> = FAMILIES.iter().copied().flatten().enumerate().map(row).collect();
        let by_name = rows.iter().enumerate().map(|(at, row)| (row.def.name, at)).collect();
        Table { rows, by_name, groups: OnceLock::new() }
    })
}

impl Op {
    /// Returns the built-in op with this name.
    pub fn named(name: &str) -> Option<Op> {
        let table = table();
        table.by_name.get(name).map(|at| Op(&table.rows[*at]))
    }

    /// Returns every built-in op, grouped by family.
    pub fn all() -> impl Iterator<Item = Op> + Clone {
        table().rows.iter().map(Op)
    }

    /// Returns the op's declaration.
    pub fn def(self) -> &'static OpDef {
        self.0.def
    }

    /// Returns the op's name.
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// Returns the op's parsed signature.
    pub fn signature(self) -> &'static Signature {
        &self.0.signature
    }

    /// Returns the type of the op's result.
    ///
    /// # Errors
    /// If attributes or operands do not fit the signature.
    pub fn infer(self, attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
        if let Class::Project = self.def().class {
            let (Some(Attr::Int(at)), [Type::Tuple(parts)]) = (attrs.first(), operands) else {
                return Err(Mismatch::Form("`get` needs a tuple as its operand".into()));
            };
            let part = usize::try_from(*at).ok().and_then(|at| parts.get(at));
            return part
                .cloned()
                .ok_or_else(|| Mismatch::Form(format!("the tuple has no result {at}, only {} results", parts.len())));
        }
        if let Class::Loop = self.def().class {
            return control::infer(attrs, operands);
        }
        let promised = self.signature().infer(attrs, operands)?;
        if let Some(definition) = self.definition() {
            let graph = definition.graph(attrs, operands).map_err(Mismatch::Form)?;
            let made = graph.outputs().first().map(|(_, id)| graph.ty(*id));
            if let Some(made) = made.filter(|made| **made != promised) {
                let problem = format!("its definition computes {made}, but its declared result is {promised}");
                return Err(Mismatch::Form(problem));
            }
        }
        Ok(promised)
    }

    /// Returns whether kernels compute the op in this form. The pack `legalize` rewrites all other forms.
    pub fn is_legal(self, attrs: &[Attr], operands: &[&Type]) -> bool {
        self.0.legal.as_ref().is_none_or(|s| s.bind(attrs, operands).is_ok())
    }

    /// Returns the variables of the op's signature, bound for given attributes and operands.
    ///
    /// # Errors
    /// If attributes or operands do not fit the signature.
    pub fn bind(self, attrs: &[Attr], operands: &[&Type]) -> Result<Bindings, Mismatch> {
        self.signature().bind(attrs, operands)
    }

    /// Returns the first element of the operand that is out of range, if the op checks its elements.
    pub fn out_of_range<S>(self, attrs: &[Attr], operand: impl IntoIterator<Item = Element<S>>) -> Option<OutOfRange> {
        let ids = self.def().ids?(attrs);
        let wrong = |element| match element {
            Element::Int(Some(id)) if ids.place(id).is_none() => Some(OutOfRange { id, ids }),
            _ => None,
        };
        operand.into_iter().find_map(wrong)
    }

    /// Returns the value of a pointwise op of scalars, rounded to the element type of the result. Returns `None` for
    /// other ops, for integers that an `f64` does not represent, and for integers out of range. Kernels may compute a
    /// slightly different value, unless [`Op::is_settled`] holds.
    pub fn fold(self, attrs: &[Attr], operands: &[(f64, DType)], result: DType) -> Option<f64> {
        let Eval::Elements(eval) = self.def().eval else { return None };
        let element = |&(x, dtype): &(f64, DType)| match dtype.is_float() {
            true => Some(Element::Real(x)),
            false => exact_int(x).map(|n| Element::Int(Some(n))),
        };
        let operands: SmallVec<[Element<f64>; 3]> = operands.iter().map(element).collect::<Option<_>>()?;
        if self.out_of_range(attrs, operands.iter().copied()).is_some() {
            return None;
        }
        match (eval.exact)(&operands, attrs, result).store(result) {
            Element::Real(x) => Tensor::from_f64(result, &[], [x]).to_f64().pop(),
            Element::Int(n) => n.map(|n| n as f64).filter(|&x| exact_int(x).is_some()),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Op {}

impl std::hash::Hash for Op {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.number.hash(state);
    }
}

// Ops are ordered by name, so that decisions that depend on order do not depend on the table.
impl Ord for Op {
    fn cmp(&self, other: &Op) -> std::cmp::Ordering {
        self.name().cmp(other.name()).then(self.0.number.cmp(&other.0.number))
    }
}

impl PartialOrd for Op {
    fn partial_cmp(&self, other: &Op) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the integer that an `f64` holds, if the adjacent integers are representable too.
fn exact_int(x: f64) -> Option<i64> {
    (x.fract() == 0.0 && x.abs() < 2_f64.powi(53)).then_some(x as i64)
}

/// Returns the declaration of an op without attributes and arithmetic, on which other declarations build.
const fn op(name: &'static str, doc: &'static str, class: Class, signature: &'static str, eval: Eval) -> OpDef {
    OpDef {
        name,
        doc,
        class,
        attrs: &[],
        signature,
        legal: "",
        commutative: false,
        traits: &[],
        ids: None,
        rounding: Rounding::Approximate,
        along: None,
        prologue: &[],
        observes: |_, _| false,
        leaves_out: false,
        eval,
        interval: interval::any,
        lengths: lengths::none,
        flops: |_, _| 0.0,
    }
}

/// Returns `N` operations for each element of the result.
fn each<const N: usize>(_: &[&Type], result: &Type) -> f64 {
    (N * result.count()) as f64
}

/// Returns `N` operations for each element of the first operand.
fn read<const N: usize>(operands: &[&Type], _: &Type) -> f64 {
    (N * operands[0].count()) as f64
}

/// Returns the extent of an axis counted from the end; zero if it is symbolic.
fn extent(ty: &Type, axis: i64) -> f64 {
    let shape = ty.as_tensor().map(|(_, s)| s);
    shape.and_then(|s| s.get(s.position(axis)?)?.known()).map_or(0.0, |n| n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_fold_in_the_type_of_the_result() {
        let fold = |op: &str, x: &[(f64, DType)], to| Op::named(op).unwrap().fold(&[], x, to);
        let half = (0.5, DType::F32);
        assert_eq!(fold("sqrt", &[half], DType::F32), Some(f64::from(0.5_f32.sqrt())));
        assert_eq!(fold("lt", &[half, (1.0, DType::F32)], DType::Bool), Some(1.0));
        assert_eq!(fold("add", &[(250.0, DType::U8), (10.0, DType::U8)], DType::U8), Some(4.0));
        assert_eq!(fold("div", &[(1.0, DType::I64), (0.0, DType::I64)], DType::I64), Some(0.0));
        assert_eq!(fold("pow", &[(3.0, DType::I64), (39.0, DType::I64)], DType::I64), None);
        assert_eq!(fold("matmul", &[half, half], DType::F32), None);
        let id = |id: f64| {
            let attrs = [Attr::from(3), Attr::from(true)];
            Op::named("checked-id").unwrap().fold(&attrs, &[(id, DType::I64)], DType::I64)
        };
        assert_eq!([id(-1.0), id(2.0), id(3.0), id(-4.0)], [Some(2.0), Some(2.0), None, None]);
    }

    #[test]
    fn the_table_is_sound() {
        let mut names: Vec<_> = Op::all().map(Op::name).collect();
        assert_eq!(Op::named(names[0]), Op::all().next());
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]), "an op is declared twice");
        for op in Op::all() {
            assert!(op.def().doc.ends_with('.'), "{op} is not documented");
            assert!(op.def().attrs.len() < 8);
        }
    }
}
