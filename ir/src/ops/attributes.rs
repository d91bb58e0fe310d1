//! The attributes that ops declare, and the form in which nodes keep them.

use std::fmt;

use smallvec::SmallVec;

use super::Op;
use crate::{
    Attr, Attrs, DType, Dim, Type,
    attr::Number,
    lang::sexp::{did_you_mean, suggestion},
};

/// An attribute that an op declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttrDef {
    /// The name, without the colon.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: AttrKind,
    /// The value if a graph does not give one. Left sides of rules always give one.
    pub default: Default,
}

/// The kind of an attribute's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttrKind {
    /// Any integer.
    Int,
    /// An axis of the first operand. Nodes keep it counted from the end.
    Axis,
    /// Distinct axes of the first operand. Nodes keep them counted from the end, in ascending order.
    Axes,
    /// A permutation of the axes of the first operand. Nodes keep it counted from the end.
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
    /// The body of a loop.
    Graph,
}

/// The default of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// No default: the attribute must be given.
    None,
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A word.
    Word(&'static str),
    /// A shape.
    Shape(&'static [i64]),
}

impl Op {
    /// Returns the position of an attribute among the node's attributes.
    pub fn attr(self, name: &str) -> Option<usize> {
        self.def().attrs.iter().position(|a| a.name == name)
    }

    /// Completes and normalises attributes given by name: defaults are added, and axes are counted from the end.
    ///
    /// # Errors
    /// If an attribute is missing, unknown or of the wrong kind. The second text is the help.
    pub fn attributes(self, given: &[(&str, Attr)], operands: &[&Type]) -> Result<Attrs, (String, String)> {
        let def = self.def();
        if let Some((name, _)) = given.iter().find(|(name, _)| self.attr(name).is_none()) {
            return Err((format!("`{}` has no attribute :{name}", def.name), AttrDef::suggestion(name, def.attrs)));
        }
        let operand = operands.first().and_then(|t| t.as_tensor()).map(|(_, s)| s.rank());
        // An op without operands counts its axes in the shape that is one of its attributes.
        let rank = operand.or_else(|| given.iter().find_map(|(_, a)| a.rank())).unwrap_or(0);
        let complete = |a: &AttrDef| {
            let given = given.iter().find(|(name, _)| *name == a.name).map(|(_, value)| value.clone());
            let value = match (given, a.default) {
                (Some(value), _) => value,
                (None, Default::Int(n)) => n.into(),
                (None, Default::Float(x)) => x.into(),
                (None, Default::Bool(b)) => b.into(),
                (None, Default::Word(w)) => w.into(),
                (None, Default::Shape(dims)) => dims.into(),
                (None, Default::None) => {
                    return Err((format!("`{}` needs :{}", def.name, a.name), format!("it is {}", a.kind)));
                }
            };
            let shown = value.to_string();
            a.kind.normalise(value, rank).ok_or_else(|| {
                (format!("`{}` cannot take {shown} for :{}", def.name, a.name), format!("it is {}", a.kind))
            })
        };
        def.attrs.iter().map(complete).collect()
    }
}

impl AttrDef {
    /// Returns a help text: the attribute with the most similar name, and all attributes.
    pub fn suggestion(name: &str, of: &[AttrDef]) -> String {
        let known: Vec<_> = of.iter().map(|a| format!(":{}", a.name)).collect();
        suggestion(&format!(":{name}"), "it takes", known.iter().map(String::as_str))
    }

    /// Returns whether the value is the default.
    pub fn is_default(&self, value: &Attr) -> bool {
        match self.default {
            Default::None => false,
            Default::Int(n) => *value == n.into(),
            Default::Float(x) => *value == x.into(),
            Default::Bool(b) => *value == b.into(),
            Default::Word(w) => value.word() == Some(w),
            Default::Shape(dims) => {
                value.shape().is_some_and(|s| s.iter().map(Dim::known).eq(dims.iter().map(|&n| Some(n))))
            }
        }
    }
}

impl AttrKind {
    /// Returns the value in the form in which nodes keep it, if the first operand has `rank` axes. Returns `None` if
    /// the value is not of this kind.
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
            (AttrKind::Float, Attr::Int(n)) => Number::from(n).into(),
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
            | (AttrKind::Tensor, value @ Attr::Tensor(_))
            | (AttrKind::Graph, value @ Attr::Graph(_)) => value,
            _ => return None,
        })
    }
}

impl AttrKind {
    /// Returns the help for a wrong value: the most similar word, and the valid values.
    pub fn help(self, given: Option<&str>) -> String {
        let words = match self {
            AttrKind::Bool => &["true", "false"],
            AttrKind::Word(words) => words,
            AttrKind::DType => return suggestion(given.unwrap_or_default(), "it is one of", DType::names()),
            _ => [].as_slice(),
        };
        let guess = given.and_then(|given| did_you_mean(given, words.iter().copied()));
        guess.map_or(String::new(), |guess| guess + " ") + &format!("it is {self}")
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
            AttrKind::Graph => f.write_str("the name of a body, which (sub NAME statement …) makes"),
        }
    }
}

/// Returns a required attribute, for declarations of ops.
pub(super) const fn attr(name: &'static str, kind: AttrKind) -> AttrDef {
    AttrDef { name, kind, default: Default::None }
}

/// Returns an attribute with a default, for declarations of ops.
pub(super) const fn attr_or(name: &'static str, kind: AttrKind, default: Default) -> AttrDef {
    AttrDef { name, kind, default }
}
