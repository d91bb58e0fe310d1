//! Computes the index map of each store over the anchor's domain, or takes the map under which another expression reads
//! the value.

use eutectic_backend::{Guard, Instr, ValueId};
use eutectic_ir::{
    Shape,
    eclasses::ClassId,
    index::{Atom, Index, flatten, unflatten},
    ops::{Class, Order, ViewCall, Writes},
};

use super::scope::{BodyScope, KernelBuilder, Where};
use crate::domain::{invert, is_bijection};

/// A value that a kernel stores.
pub(super) struct Placed {
    /// The class that the store computes.
    pub class: ClassId,
    pub value: ValueId,
    /// The coordinates in the class.
    pub at: Vec<Index>,
    /// The guards under which the value is stored.
    pub guards: Vec<Guard>,
    /// Whether several points of the domain may write one element, and how their values combine.
    pub writes: Writes,
    /// Whether an update op writes every element, so that no old element remains.
    pub fills: bool,
}

impl KernelBuilder<'_> {
    /// Returns the class of the stored value: for an update op (`scatter`, `update-slice`) the class of the written
    /// slice, otherwise the class itself.
    pub(super) fn written(&self, class: ClassId) -> ClassId {
        if self.part_of(class).is_some() { self.node(class).operands[1] } else { class }
    }

    /// Returns the class of the tensor that an update op updates in part; `None` for other classes.
    pub(super) fn part_of(&self, class: ClassId) -> Option<ClassId> {
        if self.classes.classes[class].scalar.is_some() || !self.is_interior(class) {
            return None;
        }
        let node = self.node(class);
        matches!(node.op.def().class, Class::Update(..)).then(|| node.operands[0])
    }

    /// Rewrites the store of an update op from coordinates in the slice to coordinates in the whole tensor. Returns
    /// other stores unchanged.
    fn landed(&mut self, placed: Placed, scope: &mut BodyScope) -> Result<Placed, String> {
        let Some(whole) = self.part_of(placed.class) else { return Ok(placed) };
        if self.is_interior(whole) && self.classes.classes[whole].scalar.is_none() {
            return Err("cannot update a part of a tensor that the same kernel computes".into());
        }
        let node = self.node(placed.class);
        let Class::Update(map, writes) = node.op.def().class else { return Ok(placed) };
        let (operands, result) = (self.operand_shapes(node)?, self.shape(placed.class)?);
        let domain = scope.body.domain.clone();
        let piece = map(&ViewCall { attrs: &node.attrs, operands: &operands, result, at: &placed.at, domain: &domain });
        let (ids, ids_at) = piece.via.ok_or("an update has no index operand")?;
        let of_ids = scope.place(ids_at, Vec::new());
        let id = self.value(node.operands[ids], &of_ids, scope)?;
        let coords: Vec<_> = (0..domain.len()).map(Index::coord).collect();
        let change = |index: &Index| index.substitute(&coords, &|_| Index::atom(Atom::Value(id)), &domain);
        let at = piece.at.iter().map(change).collect();
        let of_piece: Vec<Guard> = piece.guards.iter().map(|(index, range)| (change(index), range.clone())).collect();
        let ordered = if placed.guards.is_empty() { self.in_order(id, &of_piece, result, scope) } else { None };
        let writes = if ordered.is_some() { Writes::Apart } else { writes };
        if writes != Writes::Apart && (self.anchor.is_some() || self.row.is_some()) {
            return Err(format!(
                "cannot fuse `{}` with an anchor or rows because several points may write one element",
                node.op
            ));
        }
        // The points of the domain cover the slice. So each element is written exactly once if there are as many points
        // as elements. A map such as i mod 32 mentions its axis but repeats elements. A second write would change the
        // element, for example add to it twice.
        let elements: usize = self.dims(self.written(placed.class))?.iter().product();
        if writes != Writes::Apart && scope.body.domain.iter().product::<usize>() != elements {
            return Err(format!(
                "cannot fuse `{}` because the kernel's domain differs in size from the written slice, so elements \
                 would be written more than once",
                node.op
            ));
        }
        let guards = placed.guards.into_iter().chain(of_piece).collect();
        Ok(Placed { at, guards, writes, fills: ordered.unwrap_or(false), ..placed })
    }

    /// Returns whether a scatter whose ids are ranks (positions in sorted order) writes every element of the result.
    /// Returns `None` if two elements may have one target: each row of the kernel must have its own target row, and
    /// each rank its own element there.
    fn in_order(&self, id: ValueId, guards: &[Guard], result: &Shape, scope: &BodyScope) -> Option<bool> {
        let Instr::Row { op, attrs, .. } = &scope.body.instrs[id] else { return None };
        let (order, (rows, row)) = (Order::of(*op, attrs)?, scope.body.domain.split_at(scope.body.domain.len() - 1));
        let [(index, range)] = guards else { return None };
        let extent = usize::try_from(range.end).ok().filter(|_| range.start == 0 && !result.varies())?;
        let across = result.capacity()?.iter().product::<usize>().checked_div(extent)?;
        let is_distinct = *index == Index::atom(Atom::Value(id))
            && scope.body.lengths.is_empty()
            && extent <= order.most
            && across == rows.iter().product::<usize>();
        is_distinct.then_some(extent <= row[0])
    }

    /// Returns the class whose index map is also the index map of the store of `class`. This is the stored value
    /// itself, except for an update op whose slice does not depend on the anchor. Then it is an id operand that depends
    /// on the anchor and has the extents of the slice, if there is one.
    fn guide(&self, class: ClassId) -> Result<ClassId, String> {
        let written = self.written(class);
        if self.part_of(class).is_none() || self.above.contains(&written) {
            return Ok(written);
        }
        let dims = self.dims(written)?;
        let guides =
            |operand: &&ClassId| self.above.contains(operand) && self.dims(**operand).is_ok_and(|of| of == dims);
        Ok(self.node(class).operands[1..].iter().find(guides).copied().unwrap_or(written))
    }

    /// Computes every store. Stores that depend on the anchor come first, because their index maps follow from the
    /// anchor's domain. Each other store takes the index map under which an earlier store reads its value.
    pub(super) fn place_stores(
        &mut self,
        scope: &mut BodyScope,
        domain: &Shape,
        outer: usize,
    ) -> Result<Vec<Placed>, String> {
        let outer = &scope.body.domain[..outer].to_vec();
        let mut places = Vec::new();
        let mut later = Vec::new();
        // `interior` lists operands before users, and users must be placed first.
        let position = |c: &ClassId| self.parts.interior.iter().position(|i| i == c);
        let mut stores = self.parts.stores.clone();
        stores.sort_by_cached_key(|c| std::cmp::Reverse(position(c)));
        for &class in &stores {
            let written = self.written(class);
            match self.place(self.guide(class)?, class, domain, outer)? {
                Some(Where { at, guards }) => {
                    let place = scope.place(at.clone(), guards.clone());
                    let value = self.value(written, &place, scope)?;
                    places.push(Placed { class, value, at, guards, writes: Writes::Apart, fills: false });
                }
                None => later.push(class),
            }
        }
        for class in later {
            let written = self.written(class);
            let at = match scope.visited.get(&written) {
                Some(place) => place.at.clone(),
                // Several expressions of a map kernel share one flat domain.
                None if self.anchor.is_none() && self.row.is_none() => {
                    let dims = self.dims(written)?;
                    let at: Vec<_> = (0..scope.body.domain.len()).map(Index::coord).collect();
                    unflatten(&flatten(&at, &scope.body.domain), &dims, &scope.body.domain)
                }
                None => return Err("cannot place a store that does not depend on the anchor".into()),
            };
            let place = scope.place(at.clone(), Vec::new());
            let value = self.value(written, &place, scope)?;
            places.push(Placed { class, value, at, guards: Vec::new(), writes: Writes::Apart, fills: false });
        }
        // A store that runs over no point would leave its tensor undefined. The row axis does not count: a reduction
        // over an empty row still stores a result.
        let axes = if self.row.is_some() { outer } else { &scope.body.domain };
        for Placed { class, at, guards, .. } in &places {
            let dims = self.dims(self.written(*class))?;
            if axes.contains(&0) && !dims.contains(&0) {
                return Err("cannot store a tensor with elements over an empty domain".into());
            }
            // A guarded store covers a slice; `place` has checked the whole tensor.
            if guards.is_empty() {
                self.check_cover(self.written(*class), at, domain)?;
            }
        }
        places.into_iter().map(|placed| self.landed(placed, scope)).collect()
    }

    /// Checks that the index map stores each element of the class exactly once.
    fn check_cover(&self, class: ClassId, at: &[Index], domain: &Shape) -> Result<(), String> {
        let (stored, row) = (self.shape(class)?, self.row.as_ref().map(|(axis, _)| *axis));
        if is_bijection(&flatten(at, &self.dims(class)?), domain, row, stored) {
            return Ok(());
        }
        Err(format!("a store over {domain} does not cover its tensor {stored} exactly once"))
    }

    /// Returns the index map of a stored class over the domain. Returns `None` if the class does not depend on the
    /// anchor or on the first reduction. In a map kernel only the last store has an index map here, the identity. A
    /// slice of a tensor that depends on the anchor gets guards that select its points.
    fn place(&self, class: ClassId, stored: ClassId, domain: &Shape, outer: &[usize]) -> Result<Option<Where>, String> {
        let dims = self.dims(class)?;
        let identity: Vec<_> = (0..dims.len()).map(Index::coord).collect();
        if self.anchor.is_none() && self.row.is_none() {
            return Ok(
                (Some(&stored) == self.parts.stores.last()).then_some(Where { at: identity, guards: Vec::new() })
            );
        }
        let Some((met, mut at)) = self.find_anchor(class, identity, &dims) else { return Ok(None) };
        let extents = domain.capacity().ok_or_else(|| format!("{domain} has dimensions without bounds"))?;
        let why = || format!("no bijection maps the anchor's domain {domain} to {dims:?}");
        let Some((whole, starts)) = self.part(met) else {
            let (outer, row) = match self.along {
                Some(along) if at.len() > outer.len() => {
                    at.truncate(extents.len());
                    let of_row = at.remove(along);
                    at.push(of_row);
                    (&extents[..], None)
                }
                _ => {
                    at.truncate(outer.len());
                    (outer, self.row.as_ref().map(|(axis, _)| extents[*axis]))
                }
            };
            let at = invert(&at, &dims, outer, row).ok_or_else(why)?;
            return Ok(Some(Where { at, guards: Vec::new() }));
        };
        // Combine the map of the whole tensor with that of the slice in it.
        let Some(Where { at: of_whole, mut guards }) = self.place(whole, whole, domain, outer)? else {
            return Ok(None);
        };
        if domain.varies() || self.shape(whole)?.varies() {
            return Err(format!("cannot store a part of {} because its extents vary at run time", self.shape(whole)?));
        }
        if guards.is_empty() {
            self.check_cover(whole, &of_whole, domain)?;
        }
        let (of_part, of) = (self.dims(met)?, self.dims(whole)?);
        let at = invert(&at, &dims, &of_part, None).ok_or_else(why)?;
        let inner: Vec<_> =
            of_whole.iter().zip(&starts).map(|(index, start)| index.plus(&Index::constant(-start))).collect();
        let cut = (0..of.len()).filter(|&axis| of_part[axis] < of[axis]);
        guards.extend(cut.map(|axis| (inner[axis].clone(), 0..of_part[axis] as i64)));
        let place = at.iter().map(|index| index.substitute(&inner, &|v| Index::atom(Atom::Value(v)), &extents));
        Ok(Some(Where { at: place.collect(), guards }))
    }

    /// If a class is a slice of one operand with step 1, returns this operand and the first coordinates of the slice.
    fn part(&self, class: ClassId) -> Option<(ClassId, Vec<i64>)> {
        let dims = self.dims(class).ok()?;
        let identity: Vec<_> = (0..dims.len()).map(Index::coord).collect();
        let mut access = self.access(class, &identity, &dims).ok()?;
        let piece =
            access.pieces.pop().filter(|p| access.pieces.is_empty() && p.guards.is_empty() && p.via.is_none())?;
        let of = self.node(class).operands[piece.operand];
        if access.fill.is_some() || piece.at.len() != dims.len() || self.dims(of).ok()? == dims {
            return None;
        }
        let start = |(index, axis): (&Index, usize)| match index.plus(&Index::coord(axis).times(-1)) {
            Index { terms, constant } if terms.is_empty() => Some(constant),
            // An axis of one point has no coordinate in its index.
            _ if dims[axis] == 1 && index.terms.is_empty() => Some(index.constant),
            _ => None,
        };
        let starts = piece.at.iter().zip(0..).map(start).collect::<Option<_>>()?;
        Some((of, starts))
    }

    /// Finds the anchor that an expression depends on, or a slice of a tensor that depends on the anchor. Returns the
    /// class of the anchor or slice, and the coordinates at which the expression reads it. The search passes through
    /// pointwise ops and views.
    pub(super) fn find_anchor(
        &self,
        class: ClassId,
        at: Vec<Index>,
        domain: &[usize],
    ) -> Option<(ClassId, Vec<Index>)> {
        if !self.above.contains(&class) {
            return None;
        }
        let node = self.node(class);
        match node.op.def().class {
            Class::Anchor(_) => Some((class, at)),
            Class::Pointwise => node.operands.iter().find_map(|&c| self.find_anchor(c, at.clone(), domain)),
            Class::View(_) if self.part(class).is_some() => Some((class, at)),
            Class::View(_) => {
                let access = self.access(class, &at, domain).ok()?;
                access.pieces.into_iter().find_map(|p| self.find_anchor(node.operands[p.operand], p.at, domain))
            }
            Class::Leaf(_) | Class::Update(..) | Class::Composite | Class::Project | Class::Loop => None,
        }
    }
}
