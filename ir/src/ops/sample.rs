//! Samples operand types and attributes of an op from its signature, for tests.

use smallvec::SmallVec;

use super::{AttrKind, Op};
use crate::{
    Attr, Attrs, DType, Type,
    lang::{
        Bindings,
        sample::{Random, sample},
        typing::{Bound, TypePattern},
    },
};

/// The number of draws before sampling gives up, since choices may contradict each other.
const TRIES: usize = 50;

impl Op {
    /// Returns attributes and operand types that fit the signature; extents are small and often odd. Returns `None`
    /// for ops whose result type is an attribute (inputs, parameters, constants), and for `get`, whose operand no
    /// signature describes.
    pub fn sample(self, random: Random<'_>) -> Option<(Attrs, Vec<Type>)> {
        let given = |kind| matches!(kind, AttrKind::Name | AttrKind::Type | AttrKind::Tensor | AttrKind::Graph);
        if self.def().signature.is_empty() || self.def().attrs.iter().any(|a| given(a.kind)) {
            return None;
        }
        (0..TRIES).find_map(|_| self.sample_once(random))
    }

    fn sample_once(self, random: Random<'_>) -> Option<(Attrs, Vec<Type>)> {
        let signature = self.signature();
        let optional = signature.operands.len() - signature.required;
        let (present, absent) = signature.operands.split_at(signature.required + random(optional + 1));
        let patterns: SmallVec<[&TypePattern; 4]> = present.iter().collect();
        // Relations that mention a missing optional operand are ignored.
        let relations: Vec<_> =
            signature.relations.iter().filter(|r| !absent.iter().any(|p| r.mentions(p))).cloned().collect();
        let bindings = sample(&signature.scope, &patterns, &relations, Bindings::default(), random).ok()?;
        let types = present.iter().map(|p| p.value(&bindings)).collect::<Option<Vec<Type>>>()?;
        let rank = types.first().and_then(Type::as_tensor).map_or(0, |(_, s)| s.rank());
        let attrs = self.def().attrs.iter().enumerate().map(|(slot, def)| match bindings.get(slot) {
            Some(Bound::Attr(attr)) => Some(attr.clone()),
            _ => {
                let shape = bindings.attr(0).and_then(Attr::rank);
                def.kind.sample(if types.is_empty() { shape.unwrap_or(0) } else { rank }, random)
            }
        });
        let attrs = attrs.collect::<Option<Attrs>>()?;
        let operands: Vec<&Type> = types.iter().collect();
        self.infer(&attrs, &operands).is_ok().then_some((attrs, types))
    }
}

impl AttrKind {
    /// Returns a value of this kind for a first operand with `rank` axes; `None` if there is no such value.
    fn sample(self, rank: usize, random: Random<'_>) -> Option<Attr> {
        let axis = |random: Random<'_>| (rank > 0).then(|| -1 - random(rank) as i64);
        Some(match self {
            AttrKind::Int => Attr::Int(random(4) as i64),
            AttrKind::Axis => Attr::Int(axis(random)?),
            AttrKind::Axes => Attr::from([axis(random)?].as_slice()),
            AttrKind::Perm => Attr::from((-(rank as i64)..0).rev().collect::<Vec<_>>().as_slice()),
            AttrKind::Float => Attr::from([0.5, 1.0, 0.125, 2.0, 1e-3][random(5)]),
            AttrKind::Bool => Attr::Bool(random(2) == 0),
            AttrKind::Word(words) => Attr::from(words[random(words.len())]),
            AttrKind::DType => Attr::DType(DType::ALL[random(DType::ALL.len())]),
            AttrKind::Shape => Attr::from((0..random(4)).map(|_| 1 + random(4) as i64).collect::<Vec<_>>().as_slice()),
            AttrKind::Name | AttrKind::Type | AttrKind::Tensor | AttrKind::Graph => return None,
        })
    }
}
