//! The op table: every op, declared once.
//!
//! An op is an [`OpDef`]: name, attributes, type signature, class, reference evaluation and cost features. Whatever
//! else needs to know about ops (the builder, the verifier, the text form, rules, lowering, the interpreter) reads
//! the table; nothing outside it matches on which op a node is.

mod attention;
mod contraction;
pub mod eval;
mod leaf;
mod normalisation;
mod pointwise;
mod project;
mod reduction;
mod sample;
mod view;

use std::{fmt, sync::OnceLock};

use eval::{Element, Eval};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Attr, Attrs, DType, Tensor, Type,
    index::{Atom, Index},
    lang::{Bindings, Mismatch, Signature, Source},
};

/// The families, in the order in which `eutectic ops` lists them.
const FAMILIES: &[&[OpDef]] = &[
    leaf::OPS,
    pointwise::OPS,
    view::OPS,
    contraction::OPS,
    reduction::OPS,
    normalisation::OPS,
    attention::OPS,
    project::OPS,
];

/// What an op is to the plan search and to lowering.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// Input, parameter, constant, or generated from the index alone: no operands.
    Leaf(Leaf),
    /// Each element of the result depends on the elements at the same place of the operands, all of the same shape.
    Pointwise,
    /// No arithmetic: says where each element of the result is read.
    View(fn(&ViewCall<'_>) -> Access),
    /// A kernel is built around it.
    Anchor(Anchor),
    /// Defined by a rule of the `decompose` pack; a backend may have a kernel for it all the same.
    Composite,
    /// Takes one result out of a tuple.
    Project,
}

/// The leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Given anew at each run.
    Input,
    /// Given once, when the program is loaded.
    Param,
    /// Part of the program.
    Const,
    /// The coordinate along an axis: computed in the kernel that wants it.
    Iota,
}

/// The kernel families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Anchor {
    /// Batched matrix product.
    Contraction,
    /// A reduction over trailing axes: part of a row group.
    Reduction(Reduction),
    /// Scaled dot-product attention with online softmax.
    Attention,
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// Σ x, 0 for no elements.
    Sum,
    /// Π x, 1 for no elements.
    Product,
    /// The largest; NaN if one is NaN.
    Max,
    /// The smallest; NaN if one is NaN.
    Min,
}

/// A view, asked where it reads.
pub struct ViewCall<'a> {
    /// Attributes of the node.
    pub attrs: &'a [Attr],
    /// Extents of each operand.
    pub operands: &'a [Vec<usize>],
    /// Extents of the result.
    pub result: &'a [usize],
    /// The coordinates of the result's element, as maps over `domain`.
    pub at: &'a [Index],
    /// Extents of the domain that the maps are over.
    pub domain: &'a [usize],
}

/// Where a view reads: the first piece whose guards hold, else the fill value.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// What is there if no piece applies (the value of a pad); `None` where the pieces cover everything.
    pub fill: Option<f64>,
}

/// One piece of an [`Access`].
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// All must hold: the index lies in the range.
    pub guards: Vec<(Index, std::ops::Range<i64>)>,
    /// Which operand is read.
    pub operand: usize,
    /// At which coordinates; `Atom::Value(0)` is the integer that `via` reads.
    pub at: Vec<Index>,
    /// An operand of integers that is read first, and at which coordinates (gather).
    pub via: Option<(usize, Vec<Index>)>,
}

impl Access {
    /// Reads operand 0 at `at`, always.
    pub fn direct(at: Vec<Index>) -> Access {
        Access { pieces: vec![Piece { guards: Vec::new(), operand: 0, at, via: None }], fill: None }
    }
}

/// An attribute that an op declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttrDef {
    /// Its name, without the colon.
    pub name: &'static str,
    /// What it may be.
    pub kind: AttrKind,
    /// What it is where a graph does not say (rules always say).
    pub default: Default,
}

/// What an attribute may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttrKind {
    /// Any integer.
    Int,
    /// An axis of operand 0; kept counted from the end.
    Axis,
    /// Distinct axes of operand 0; kept counted from the end, ascending.
    Axes,
    /// A permutation of the axes of operand 0; kept counted from the end.
    Perm,
    /// A number.
    Float,
    /// A truth value.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A name.
    Name,
    /// A shape.
    Shape,
    /// An element type.
    DType,
    /// A type.
    Type,
    /// A constant's value.
    Tensor,
}

/// The default of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// It must be given.
    None,
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A word.
    Word(&'static str),
}

/// The declaration of an op.
#[derive(Debug)]
pub struct OpDef {
    /// Its name, as rules and the text form write it.
    pub name: &'static str,
    /// What it computes, with the formula.
    pub doc: &'static str,
    /// What it is to the planner.
    pub class: Class,
    /// Its attributes, in the order in which nodes hold them.
    pub attrs: &'static [AttrDef],
    /// Its type signature (see [`crate::lang`]), which broadcasts the NumPy way where the op does.
    pub signature: &'static str,
    /// The form that kernels take, where it is narrower than the signature; empty where it is not.
    pub legal: &'static str,
    /// Whether its first two operands can be swapped.
    pub commutative: bool,
    /// The reference evaluation.
    pub eval: Eval,
    /// Floating-point operations for given operand types and result type.
    pub flops: fn(&[&Type], &Type) -> f64,
}

/// An op: a number in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op(u16);

struct Table {
    defs: Vec<&'static OpDef>,
    by_name: FxHashMap<&'static str, Op>,
    signatures: Vec<(Signature, Option<Signature>)>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let defs: Vec<_> = FAMILIES.iter().copied().flatten().collect();
        let by_name = defs.iter().enumerate().map(|(i, d)| (d.name, Op(i as u16))).collect();
        let parse = |def: &OpDef, text: &'static str| {
            let attrs: Vec<_> = def.attrs.iter().map(|a| a.name).collect();
            Signature::parse(&Source::new(format!("<signature of {}>", def.name), text), &attrs)
                .unwrap_or_else(|e| panic!("{}: {:?}", def.name, miette::Report::new(e)))
        };
        let signatures =
            defs.iter().map(|d| (parse(d, d.signature), (!d.legal.is_empty()).then(|| parse(d, d.legal)))).collect();
        Table { defs, by_name, signatures }
    })
}

impl Op {
    /// The op of that name.
    pub fn named(name: &str) -> Option<Op> {
        table().by_name.get(name).copied()
    }

    /// Every op, family by family.
    pub fn all() -> impl Iterator<Item = Op> {
        (0..table().defs.len() as u16).map(Op)
    }

    /// Its declaration.
    pub fn def(self) -> &'static OpDef {
        table().defs[usize::from(self.0)]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// Its parsed signature.
    pub fn signature(self) -> &'static Signature {
        &table().signatures[usize::from(self.0)].0
    }

    /// The type of its result.
    ///
    /// # Errors
    /// When attributes and operands do not fit the signature.
    pub fn infer(self, attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
        if let Class::Project = self.def().class {
            let (Some(Attr::Int(at)), [Type::Tuple(parts)]) = (attrs.first(), operands) else {
                return Err(Mismatch::Form("`get` takes a result out of a tuple".into()));
            };
            let part = usize::try_from(*at).ok().and_then(|at| parts.get(at));
            return part
                .cloned()
                .ok_or_else(|| Mismatch::Form(format!("there is no result {at} among {}", parts.len())));
        }
        self.signature().infer(attrs, operands)
    }

    /// Whether kernels take the op in this form; others are there to be rewritten by the `legalize` pack.
    pub fn is_legal(self, attrs: &[Attr], operands: &[&Type]) -> bool {
        let legal: Option<&Signature> = table().signatures[usize::from(self.0)].1.as_ref();
        legal.is_none_or(|s| s.bind(attrs, operands).is_ok())
    }

    /// The variables of its signature, bound for given attributes and operands.
    ///
    /// # Errors
    /// As [`Op::infer`].
    pub fn bind(self, attrs: &[Attr], operands: &[&Type]) -> Result<Bindings, Mismatch> {
        self.signature().bind(attrs, operands)
    }

    /// The value of a pointwise op of scalars, rounded to the element type of the result; `None` for other ops and
    /// for integers that an `f64` does not hold.
    pub fn fold(self, attrs: &[Attr], operands: &[(f64, DType)], result: DType) -> Option<f64> {
        let Eval::Elements(eval) = self.def().eval else { return None };
        let element = |&(x, dtype): &(f64, DType)| match dtype.is_float() {
            true => Some(Element::Real(x)),
            false => exact_int(x).map(|n| Element::Int(Some(n))),
        };
        let operands: SmallVec<[Element<f64>; 3]> = operands.iter().map(element).collect::<Option<_>>()?;
        match (eval.exact)(&operands, attrs, result).store(result) {
            Element::Real(x) => Tensor::from_f64(result, &[], [x]).to_f64().pop(),
            Element::Int(n) => n.map(|n| n as f64).filter(|&x| exact_int(x).is_some()),
        }
    }

    /// Position of an attribute among the node's attributes.
    pub fn attr(self, name: &str) -> Option<usize> {
        self.def().attrs.iter().position(|a| a.name == name)
    }

    /// Completes and normalises attributes given by name: defaults written out, axes counted from the end.
    ///
    /// # Errors
    /// Which attribute is missing, unknown or of the wrong kind; the second part says what would be right.
    pub fn attributes(self, given: &[(&str, Attr)], operands: &[&Type]) -> Result<Attrs, (String, String)> {
        let def = self.def();
        if let Some((name, _)) = given.iter().find(|(name, _)| self.attr(name).is_none()) {
            let known: Vec<_> = def.attrs.iter().map(|a| format!(":{}", a.name)).collect();
            let known = if known.is_empty() { "takes none".into() } else { format!("takes {}", known.join(", ")) };
            return Err((format!("`{}` has no attribute :{name}", def.name), format!("it {known}")));
        }
        let operand = operands.first().and_then(|t| t.as_tensor()).map(|(_, s)| s.rank());
        // An op without operands counts its axes in the shape that it is given.
        let rank = operand.or_else(|| given.iter().find_map(|(_, a)| a.rank())).unwrap_or(0);
        let complete = |a: &AttrDef| {
            let given = given.iter().find(|(name, _)| *name == a.name).map(|(_, value)| value.clone());
            let value = match (given, a.default) {
                (Some(value), _) => value,
                (None, Default::Int(n)) => n.into(),
                (None, Default::Float(x)) => x.into(),
                (None, Default::Bool(b)) => b.into(),
                (None, Default::Word(w)) => w.into(),
                (None, Default::None) => {
                    return Err((format!("`{}` needs :{}", def.name, a.name), format!("it is {}", a.kind)));
                }
            };
            let shown = value.to_string();
            a.kind.normalise(value, rank).ok_or_else(|| {
                (format!("`{}` takes no :{} of {shown} here", def.name, a.name), format!("it is {}", a.kind))
            })
        };
        def.attrs.iter().map(complete).collect()
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

// Ops are ordered by name, so that what is decided by order does not depend on where the table lists an op.
impl Ord for Op {
    fn cmp(&self, other: &Op) -> std::cmp::Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Op {
    fn partial_cmp(&self, other: &Op) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl AttrDef {
    /// Whether the value is the default.
    pub fn is_default(&self, value: &Attr) -> bool {
        match self.default {
            Default::None => false,
            Default::Int(n) => *value == n.into(),
            Default::Float(x) => *value == x.into(),
            Default::Bool(b) => *value == b.into(),
            Default::Word(w) => value.word() == Some(w),
        }
    }
}

impl AttrKind {
    /// The value in the form in which nodes keep it, for an operand 0 of `rank` axes; `None` where it is not of this kind.
    pub fn normalise(self, value: Attr, rank: usize) -> Option<Attr> {
        let rank = rank as i64;
        let from_end = |axis: i64| {
            let axis = if axis >= 0 { axis - rank } else { axis };
            (-rank..0).contains(&axis).then_some(axis)
        };
        Some(match (self, value) {
            (AttrKind::Axis, Attr::Int(axis)) => Attr::Int(from_end(axis)?),
            (AttrKind::Axes | AttrKind::Perm, Attr::Ints(axes)) => {
                let mut axes = axes.into_iter().map(from_end).collect::<Option<SmallVec<[i64; 6]>>>()?;
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if sorted.windows(2).any(|w| w[0] == w[1]) {
                    return None;
                }
                match self {
                    AttrKind::Axes => axes = sorted,
                    _ if axes.len() as i64 != rank => return None,
                    _ => {}
                }
                Attr::Ints(axes)
            }
            (AttrKind::Float, Attr::Int(n)) => Attr::from(n as f64),
            (AttrKind::Word(words), Attr::Word(w)) if words.contains(&&*w) => Attr::Word(w),
            (AttrKind::Shape, Attr::Ints(dims)) if dims.iter().all(|d| *d >= 0) => {
                Attr::Shape(dims.into_iter().collect())
            }
            (AttrKind::Int, value @ Attr::Int(_))
            | (AttrKind::Float, value @ Attr::Float(_))
            | (AttrKind::Bool, value @ Attr::Bool(_))
            | (AttrKind::Name, value @ Attr::Word(_))
            | (AttrKind::Shape, value @ Attr::Shape(_))
            | (AttrKind::DType, value @ Attr::DType(_))
            | (AttrKind::Type, value @ Attr::Type(_))
            | (AttrKind::Tensor, value @ Attr::Tensor(_)) => value,
            _ => return None,
        })
    }
}

impl fmt::Display for AttrKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttrKind::Int => f.write_str("an integer"),
            AttrKind::Axis => f.write_str("an axis of the first operand (−1 is the last)"),
            AttrKind::Axes => f.write_str("a list of distinct axes of the first operand, such as [-2 -1]"),
            AttrKind::Perm => f.write_str("a permutation of the first operand's axes, such as [-1 -2]"),
            AttrKind::Float => f.write_str("a number"),
            AttrKind::Bool => f.write_str("true or false"),
            AttrKind::Word(words) => write!(f, "one of {}", words.join(", ")),
            AttrKind::Name => f.write_str("a name"),
            AttrKind::Shape => f.write_str("a shape, such as [2 128]"),
            AttrKind::DType => f.write_str("an element type, such as f32"),
            AttrKind::Type => f.write_str("a type, such as f32[2 128]"),
            AttrKind::Tensor => f.write_str("a constant, such as f32[2] { 1.0 2.0 }"),
        }
    }
}

/// A required attribute, for the declarations.
const fn attr(name: &'static str, kind: AttrKind) -> AttrDef {
    AttrDef { name, kind, default: Default::None }
}

/// An attribute with a default, for the declarations.
const fn attr_or(name: &'static str, kind: AttrKind, default: Default) -> AttrDef {
    AttrDef { name, kind, default }
}

/// The integer that an `f64` holds exactly, with room on both sides.
fn exact_int(x: f64) -> Option<i64> {
    (x.fract() == 0.0 && x.abs() < 2_f64.powi(53)).then_some(x as i64)
}

/// An op without attributes that costs no arithmetic, for the declarations to build on.
const fn op(name: &'static str, doc: &'static str, class: Class, signature: &'static str, eval: Eval) -> OpDef {
    OpDef { name, doc, class, attrs: &[], signature, legal: "", commutative: false, eval, flops: |_, _| 0.0 }
}

/// `N` operations for each element of the result.
fn each<const N: usize>(_: &[&Type], result: &Type) -> f64 {
    (N * result.count()) as f64
}

/// `N` operations for each element of the first operand.
fn read<const N: usize>(operands: &[&Type], _: &Type) -> f64 {
    (N * operands[0].count()) as f64
}

/// The extent of an axis counted from the end; zero while it is symbolic.
fn extent(ty: &Type, axis: i64) -> f64 {
    let shape = ty.as_tensor().map(|(_, s)| s);
    shape.and_then(|s| s.get(s.position(axis)?)?.known()).map_or(0.0, |n| n as f64)
}

impl Index {
    /// The integer that a gather's [`Piece::via`] reads.
    pub fn gathered() -> Index {
        Index::atom(Atom::Value(0))
    }
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
