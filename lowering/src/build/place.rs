//! Where stores lie: their places over the domain of the anchor, or as they are met on the way to others.

use eutectic_backend::{Guard, ValueId};
use eutectic_ir::{
    Shape,
    eclasses::ClassId,
    index::{Atom, Index, flatten, unflatten},
    ops::{Class, ViewCall},
};

use super::scope::{BodyScope, KernelBuilder};
use crate::domain::{invert, is_bijection};

/// A value that is stored.
pub(super) struct Placed {
    /// What it is stored to.
    pub class: ClassId,
    /// The value.
    pub value: ValueId,
    /// Where in the class.
    pub at: Vec<Index>,
    /// Only where all of these hold.
    pub guards: Vec<Guard>,
}

impl KernelBuilder<'_> {
    /// The class whose value is stored for a class: of what a part is written anew, that part.
    pub(super) fn written(&self, class: ClassId) -> ClassId {
        if self.part_of(class).is_some() { self.node(class).operands[1] } else { class }
    }

    /// The class of which a class is a part written anew.
    pub(super) fn part_of(&self, class: ClassId) -> Option<ClassId> {
        if self.classes.classes[class].scalar.is_some() || !self.is_interior(class) {
            return None;
        }
        let node = self.node(class);
        matches!(node.op.def().class, Class::Update(_)).then(|| node.operands[0])
    }

    /// Where a value of a part that is written anew goes.
    fn landed(&mut self, placed: Placed, scope: &mut BodyScope) -> Result<Placed, String> {
        let Some(whole) = self.part_of(placed.class) else { return Ok(placed) };
        if self.is_interior(whole) {
            return Err("a part is written anew of what is not stored".into());
        }
        let node = self.node(placed.class);
        let Class::Update(map) = node.op.def().class else { return Ok(placed) };
        let (operands, result) = (self.operand_shapes(node)?, self.shape(placed.class)?);
        let domain = scope.body.domain.clone();
        let piece = map(&ViewCall { attrs: &node.attrs, operands: &operands, result, at: &placed.at, domain: &domain });
        let (ids, ids_at) = piece.via.ok_or("a part that is written at no place")?;
        let of_ids = scope.place(ids_at, Vec::new());
        let id = self.value(node.operands[ids], &of_ids, scope)?;
        let coords: Vec<_> = (0..domain.len()).map(Index::coord).collect();
        let change = |index: &Index| index.substitute(&coords, &|_| Index::atom(Atom::Value(id)), &domain);
        let at = piece.at.iter().map(change).collect();
        let guards = piece.guards.iter().map(|(index, range)| (change(index), range.clone())).collect();
        Ok(Placed { at, guards, ..placed })
    }

    /// Computes every store: those above the anchor first, whose place follows from the anchor's; then those that are met
    /// on the way, at the place where they were met.
    pub(super) fn place_stores(
        &mut self,
        scope: &mut BodyScope,
        domain: &Shape,
        outer: usize,
    ) -> Result<Vec<Placed>, String> {
        let outer = &scope.body.domain[..outer].to_vec();
        let mut places = Vec::new();
        let mut later = Vec::new();
        // `interior` lists operands before users: users are placed first.
        let position = |c: &ClassId| self.parts.interior.iter().position(|i| i == c);
        let mut stores = self.parts.stores.clone();
        stores.sort_by_cached_key(|c| std::cmp::Reverse(position(c)));
        for &class in &stores {
            let written = self.written(class);
            match self.place(written, class, &scope.body.domain, outer)? {
                Some(at) => {
                    let place = scope.place(at.clone(), Vec::new());
                    let value = self.value(written, &place, scope)?;
                    places.push(Placed { class, value, at, guards: Vec::new() });
                }
                None => later.push(class),
            }
        }
        for class in later {
            let written = self.written(class);
            let at = match scope.visited.get(&written) {
                Some(place) => place.at.clone(),
                // A map kernel may hold several expressions side by side, over one flat domain.
                None if self.anchor.is_none() && self.row.is_none() => {
                    let dims = self.dims(written)?;
                    let at: Vec<_> = (0..scope.body.domain.len()).map(Index::coord).collect();
                    unflatten(&flatten(&at, &scope.body.domain), &dims, &scope.body.domain)
                }
                None => return Err("a store does not depend on the anchor".into()),
            };
            let place = scope.place(at.clone(), Vec::new());
            let value = self.value(written, &place, scope)?;
            places.push(Placed { class, value, at, guards: Vec::new() });
        }
        // A row of no elements still has its results; a domain without points has none.
        let axes = if self.row.is_some() { outer } else { &scope.body.domain };
        for Placed { class, at, .. } in &places {
            let dims = self.dims(self.written(*class))?;
            if axes.contains(&0) && !dims.contains(&0) {
                return Err("a store lies beside a domain without points".into());
            }
            let stored = self.shape(self.written(*class))?;
            let row = self.row.as_ref().map(|(axis, _)| *axis);
            if !is_bijection(&flatten(at, &dims), domain, row, stored) {
                return Err(format!("a store over {domain} does not cover its tensor {stored} exactly once"));
            }
        }
        places.into_iter().map(|placed| self.landed(placed, scope)).collect()
    }

    /// The coordinates of a stored class over the domain, where it lies above the anchor (or the first reduction); for
    /// a map kernel without anchor the last store's own.
    fn place(
        &self,
        class: ClassId,
        stored: ClassId,
        domain: &[usize],
        outer: &[usize],
    ) -> Result<Option<Vec<Index>>, String> {
        let dims = self.dims(class)?;
        let identity: Vec<_> = (0..dims.len()).map(Index::coord).collect();
        if self.anchor.is_none() && self.row.is_none() {
            return Ok((Some(&stored) == self.parts.stores.last()).then_some(identity));
        }
        let Some(mut at) = self.find_anchor(class, identity, &dims) else { return Ok(None) };
        at.truncate(outer.len());
        let row = self.row.as_ref().map(|(axis, _)| domain[*axis]);
        match invert(&at, &dims, outer, row) {
            Some(place) => Ok(Some(place)),
            None => Err(format!("{dims:?} does not follow from the anchor's domain {domain:?} by a bijection")),
        }
    }

    /// The coordinates at which an expression reads the anchor, looking through pointwise ops and views.
    fn find_anchor(&self, class: ClassId, at: Vec<Index>, domain: &[usize]) -> Option<Vec<Index>> {
        if !self.above.contains(&class) {
            return None;
        }
        let node = self.node(class);
        match node.op.def().class {
            Class::Anchor(_) => Some(at),
            Class::Pointwise => node.operands.iter().find_map(|&c| self.find_anchor(c, at.clone(), domain)),
            Class::View(_) => {
                let access = self.access(class, &at, domain).ok()?;
                access.pieces.into_iter().find_map(|p| self.find_anchor(node.operands[p.operand], p.at, domain))
            }
            Class::Leaf(_) | Class::Update(_) | Class::Composite | Class::Project | Class::Loop => None,
        }
    }
}
