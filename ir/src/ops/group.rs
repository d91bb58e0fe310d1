//! Groups of ops for rules, so that rules need not list ops. Each op declares its groups.

use std::fmt;

use super::{AttrDef, Class, Op, RowOp, table};

/// A property of a pointwise function of one operand with respect to the order and sign of its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// x ≤ y implies f(x) ≤ f(y), and f is defined everywhere.
    Monotone,
    /// f(−x) = −f(x).
    Odd,
    /// f(−x) = f(x).
    Even,
}

/// A group of ops, by a common property and the number of their operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    kind: Kind,
    operands: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Pointwise,
    Monotone,
    Odd,
    Even,
    Reduction,
    Scan,
}

const KINDS: &[(&str, Kind)] = &[
    ("pointwise", Kind::Pointwise),
    ("monotone", Kind::Monotone),
    ("odd", Kind::Odd),
    ("even", Kind::Even),
    ("reduction", Kind::Reduction),
    ("scan", Kind::Scan),
];

impl Group {
    /// Returns the group with this name and number of operands, if an op belongs to it.
    pub fn named(name: &str, operands: usize) -> Option<Group> {
        let (_, kind) = KINDS.iter().find(|(known, _)| *known == name)?;
        let group = Group { kind: *kind, operands };
        (!group.ops().is_empty()).then_some(group)
    }

    /// Returns the names of groups.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|(name, _)| *name)
    }

    /// Returns every group with a member among `ops`, and its members.
    pub(super) fn all(ops: impl Iterator<Item = Op> + Clone) -> Vec<(Group, Vec<Op>)> {
        let most = ops.clone().map(|op| op.signature().operands.len()).max().unwrap_or(0);
        let groups = KINDS.iter().flat_map(|(_, kind)| (1..=most).map(|operands| Group { kind: *kind, operands }));
        let members = groups.map(|group| (group, ops.clone().filter(|op| group.admits(*op)).collect::<Vec<_>>()));
        members.filter(|(_, ops)| !ops.is_empty()).collect()
    }

    /// Returns the ops of the group, in the order of the table.
    pub fn ops(self) -> &'static [Op] {
        table().groups().iter().find(|(group, _)| *group == self).map_or(&[], |(_, ops)| ops)
    }

    /// Returns whether an op belongs to the group.
    pub fn contains(self, op: Op) -> bool {
        self.ops().contains(&op)
    }

    /// Returns the number of operands of the group's ops.
    pub fn operands(self) -> usize {
        self.operands
    }

    /// Returns the attributes of the group's ops if all of them have the same; otherwise none.
    pub fn attrs(self) -> &'static [AttrDef] {
        let mut attrs = self.ops().iter().map(|op| op.def().attrs);
        let first = attrs.next().unwrap_or(&[]);
        if attrs.all(|other| other == first) { first } else { &[] }
    }

    fn admits(self, op: Op) -> bool {
        let def = op.def();
        let fits = match self.kind {
            // Rules that match this group may move an op to other elements. An op that fails on some elements must
            // not be moved.
            Kind::Pointwise => matches!(def.class, Class::Pointwise) && def.ids.is_none(),
            Kind::Monotone => def.traits.contains(&Trait::Monotone),
            Kind::Odd => def.traits.contains(&Trait::Odd),
            Kind::Even => def.traits.contains(&Trait::Even),
            Kind::Reduction => op.row().is_some_and(|row| row.reduction().is_some()),
            Kind::Scan => op.row().is_some_and(RowOp::is_scan),
        };
        fits && op.signature().operands.len() == self.operands
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        write!(f, "{name} {}", self.operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn groups_are_what_the_table_says() {
        let names = |name, operands| Group::named(name, operands).unwrap().ops().iter().map(|op| op.name());
        assert!(names("pointwise", 1).any(|n| n == "cast") && names("pointwise", 1).all(|n| n != "reshape"));
        assert!(names("pointwise", 2).any(|n| n == "lt") && names("pointwise", 3).eq(["where"]));
        assert!(names("reduction", 1).all(|n| n.starts_with("reduce-")));
        assert_eq!(Group::named("pointwise", 9), None);
        assert!(Group::named("reduction", 1).unwrap().attrs().iter().any(|attr| attr.name == "axes"));
        assert!(Group::named("pointwise", 1).unwrap().attrs().is_empty());
    }

    #[test]
    fn functions_have_the_traits_that_they_declare() {
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        let values: Vec<f64> = (-400..=400).map(|n| f64::from(n) / 32.0).collect();
        for op in Op::all().filter(|op| !op.def().traits.is_empty()) {
            let attrs = op.attributes(&[], &[]).unwrap_or_else(|_| panic!("{op} has attributes without defaults"));
            let f = |x: f64| op.fold(&attrs, &[(x, DType::F64)], DType::F64).unwrap();
            for pair in values.windows(2) {
                let (x, y) = (pair[0], pair[1]);
                for of in op.def().traits {
                    match of {
                        Trait::Monotone => assert!(f(x) <= f(y), "{op} at {x}"),
                        Trait::Odd => assert!(same(f(-x), -f(x)), "{op} at {x}"),
                        Trait::Even => assert!(same(f(-x), f(x)), "{op} at {x}"),
                    }
                }
            }
        }
    }
}
