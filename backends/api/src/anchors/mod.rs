//! Anchors: the kinds of kernels. Each kind has its own file and is an entry of one table, an [`AnchorDef`].
//!
//! The normal form, the analyses, lowering, printed plans and reference implementations read the table. Only a
//! backend's kernels handle a specific anchor. They get it in a typed form, by functions such as
//! [`crate::Kernel::contraction`].

mod attention;
mod contraction;
mod map;
mod rows;

pub use self::{
    attention::{Attention, AttentionAxes, EmptyRow, ScoreForm},
    contraction::{Contraction, ContractionAxes},
};
pub use crate::kernel::{
    Along, AnchorCall, AnchorDef, AnchorKernel, AnchorKind, Beyond, GroupDef, GroupId, Layout, OperandDef, ResultDef,
    place,
};

static TABLE: [&AnchorDef; 4] = [&map::DEF, &rows::DEF, &contraction::DEF, &attention::DEF];

impl AnchorKind {
    /// Returns the anchor of this name, if there is one.
    pub fn named(name: &str) -> Option<AnchorKind> {
        AnchorKind::all().find(|kind| kind.def().name == name)
    }

    /// Returns all anchors.
    pub fn all() -> impl Iterator<Item = AnchorKind> {
        TABLE.into_iter().map(AnchorKind::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_are_consistent() {
        for def in AnchorKind::all().map(AnchorKind::def) {
            let name = def.name;
            assert!(AnchorKind::named(name).is_some_and(|kind| kind.is(def)), "`{name}` is declared twice");
            let own = def.results.first().unwrap_or_else(|| panic!("`{name}` has no result")).layout;
            assert_eq!(own.first(), Some(&0), "`{name}`: the first group leads the result");
            for (n, group) in def.groups.iter().enumerate() {
                let layouts = def.layouts(def.operands.len());
                assert!(layouts.iter().any(|layout| layout.contains(&n)), "`{name}`: nothing is over {}", group.name);
                assert_eq!(own.contains(&n), group.along != Along::Combined, "`{name}`: {}", group.name);
            }
            let absent: Vec<bool> = def.operands.iter().map(|operand| operand.absent.is_some()).collect();
            assert!(absent.is_sorted(), "`{name}`: operands that can be left out are last");
            for operand in def.operands {
                assert!(operand.beyond.iter().all(|beyond| operand.layout.contains(&beyond.group)), "{}", operand.name);
            }
        }
    }

    #[test]
    fn points_beyond_an_extent_that_are_combined_do_not_count() {
        for def in AnchorKind::all().map(AnchorKind::def) {
            let combined = (0..def.groups.len()).filter(|&group| def.groups[group].along == Along::Combined);
            for group in combined {
                let hides = |operand: &OperandDef| operand.beyond.iter().any(|beyond| beyond.group == group);
                assert!(def.operands.iter().any(hides), "`{}`: nothing hides {}", def.name, def.groups[group].name);
            }
        }
    }
}
