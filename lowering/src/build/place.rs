//! Where stores lie: their places over the domain of the anchor, or as they are met on the way to others.

use eutectic_backend::ValueId;
use eutectic_ir::{
    eclasses::ClassId,
    index::{Index, flatten, unflatten},
    ops::{Class, ViewCall},
};

use super::{Builder, Scope};
use crate::domain::{invert, is_bijection};

impl Builder<'_> {
    /// Computes every store: those above the anchor first, whose place follows from the anchor's; then those that are met
    /// on the way, at the place where they were met.
    pub(super) fn place_stores(
        &mut self,
        scope: &mut Scope,
        outer: &[usize],
    ) -> Result<Vec<(ClassId, ValueId, Vec<Index>)>, String> {
        let mut places = Vec::new();
        let mut later = Vec::new();
        // `interior` lists operands before users: users are placed first.
        let position = |c: &ClassId| self.parts.interior.iter().position(|i| i == c);
        let mut stores = self.parts.stores.clone();
        stores.sort_by_key(|c| std::cmp::Reverse(position(c)));
        for &class in &stores {
            match self.place(class, &scope.body.domain, outer)? {
                Some(at) => {
                    let value = self.value(class, at.clone(), Vec::new(), scope)?;
                    places.push((class, value, at));
                }
                None => later.push(class),
            }
        }
        for class in later {
            let at = match scope.visited.get(&class) {
                Some(at) => at.clone(),
                // A map kernel may hold several expressions side by side, over one flat domain.
                None if self.anchor.is_none() && self.row.is_none() => {
                    let dims = self.dims(class)?;
                    let at: Vec<_> = (0..scope.body.domain.len()).map(Index::coord).collect();
                    unflatten(&flatten(&at, &scope.body.domain), &dims, &scope.body.domain)
                }
                None => return Err("a store does not depend on the anchor".into()),
            };
            let value = self.value(class, at.clone(), Vec::new(), scope)?;
            places.push((class, value, at));
        }
        // A row of no elements still has its results; a domain without points has none.
        let axes = if self.row.is_some() { outer } else { &scope.body.domain };
        for (class, _, at) in &places {
            let dims = self.dims(*class)?;
            if axes.contains(&0) && !dims.contains(&0) {
                return Err("a store lies beside a domain without points".into());
            }
            if !is_bijection(&flatten(at, &dims), &scope.body.domain, dims.iter().product()) {
                return Err("a store does not cover its tensor exactly once".into());
            }
        }
        Ok(places)
    }

    /// The coordinates of a stored class over the domain, where it lies above the anchor (or the first reduction); for
    /// a map kernel without anchor the last store's own.
    fn place(&self, class: ClassId, domain: &[usize], outer: &[usize]) -> Result<Option<Vec<Index>>, String> {
        let dims = self.dims(class)?;
        let identity: Vec<_> = (0..dims.len()).map(Index::coord).collect();
        if self.anchor.is_none() && self.row.is_none() {
            return Ok((Some(&class) == self.parts.stores.last()).then_some(identity));
        }
        let Some(mut at) = self.find_anchor(class, identity, &dims) else { return Ok(None) };
        at.truncate(outer.len());
        let row = self.row.map(|(_, count)| count);
        match invert(&at, &dims, outer, row) {
            Some(place) => Ok(Some(place)),
            None => Err(format!("{dims:?} does not follow from the anchor's domain {domain:?} by a bijection")),
        }
    }

    /// The coordinates at which an expression reads the anchor, looking through pointwise ops and views.
    fn find_anchor(&self, class: ClassId, at: Vec<Index>, domain: &[usize]) -> Option<Vec<Index>> {
        if !self.is_interior(class) || self.classes.classes[class].scalar.is_some() {
            return None;
        }
        let node = self.node(class);
        match node.op.def().class {
            Class::Anchor(_) => Some(at),
            Class::Pointwise => node.operands.iter().find_map(|&c| self.find_anchor(c, at.clone(), domain)),
            Class::View(map) => {
                let (operands, result) = (self.operand_dims(node), self.dims(class).ok()?);
                let access =
                    map(&ViewCall { attrs: &node.attrs, operands: &operands, result: &result, at: &at, domain });
                access.pieces.into_iter().find_map(|p| self.find_anchor(node.operands[p.operand], p.at, domain))
            }
            Class::Leaf(_) | Class::Composite | Class::Project => None,
        }
    }
}
