//! Where stores lie: their places over the domain of the anchor, or as they are met on the way to others.

use eutectic_backend::{Guard, Instr, ValueId};
use eutectic_ir::{
    Shape,
    eclasses::ClassId,
    index::{Atom, Index, flatten, unflatten},
    ops::{Class, Order, ViewCall, Writes},
};

use super::scope::{BodyScope, KernelBuilder, Where};
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
    /// How points write to one element.
    pub writes: Writes,
    /// Whether all elements are written where a part is, so that nothing is left of the rest.
    pub fills: bool,
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
        matches!(node.op.def().class, Class::Update(..)).then(|| node.operands[0])
    }

    /// Where a value of a part that is written anew goes.
    fn landed(&mut self, placed: Placed, scope: &mut BodyScope) -> Result<Placed, String> {
        let Some(whole) = self.part_of(placed.class) else { return Ok(placed) };
        if self.is_interior(whole) && self.classes.classes[whole].scalar.is_none() {
            return Err("a part is written anew of what is not stored".into());
        }
        let node = self.node(placed.class);
        let Class::Update(map, writes) = node.op.def().class else { return Ok(placed) };
        let (operands, result) = (self.operand_shapes(node)?, self.shape(placed.class)?);
        let domain = scope.body.domain.clone();
        let piece = map(&ViewCall { attrs: &node.attrs, operands: &operands, result, at: &placed.at, domain: &domain });
        let (ids, ids_at) = piece.via.ok_or("a part that is written at no place")?;
        let of_ids = scope.place(ids_at, Vec::new());
        let id = self.value(node.operands[ids], &of_ids, scope)?;
        let coords: Vec<_> = (0..domain.len()).map(Index::coord).collect();
        let change = |index: &Index| index.substitute(&coords, &|_| Index::atom(Atom::Value(id)), &domain);
        let at = piece.at.iter().map(change).collect();
        let of_piece: Vec<Guard> = piece.guards.iter().map(|(index, range)| (change(index), range.clone())).collect();
        let ordered = if placed.guards.is_empty() { self.in_order(id, &of_piece, result, scope) } else { None };
        let writes = if ordered.is_some() { Writes::Apart } else { writes };
        if writes != Writes::Apart && (self.anchor.is_some() || self.row.is_some()) {
            return Err(format!("`{}` writes what takes a kernel of its own", node.op));
        }
        // A second write changes an element. A place such as i mod 32 mentions its axis and still repeats. Each element is covered, so the
        // numbers of points and of elements tell whether one is written twice.
        let elements: usize = self.dims(self.written(placed.class))?.iter().product();
        if writes != Writes::Apart && scope.body.domain.iter().product::<usize>() != elements {
            return Err(format!(
                "`{}` would write each element several times over the domain of another store",
                node.op
            ));
        }
        let guards = placed.guards.into_iter().chain(of_piece).collect();
        Ok(Placed { at, guards, writes, fills: ordered.unwrap_or(false), ..placed })
    }

    /// Whether the elements of rows that go where their ranks say fill the result; nothing if several may go to one place. A part that covers the
    /// rows of a kernel, and has one place across its axis for each row, has all elements of a row there.
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

    /// Returns a class that has an element for each one of a part that is written anew, and lies above the anchor if any such class does: the part, or
    /// what says where its elements go.
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
            places.push(Placed { class, value, at, guards: Vec::new(), writes: Writes::Apart, fills: false });
        }
        // A row of no elements still has its results; a domain without points has none.
        let axes = if self.row.is_some() { outer } else { &scope.body.domain };
        for Placed { class, at, guards, .. } in &places {
            let dims = self.dims(self.written(*class))?;
            if axes.contains(&0) && !dims.contains(&0) {
                return Err("a store lies beside a domain without points".into());
            }
            // Of a part, the whole was checked.
            if guards.is_empty() {
                self.check_cover(self.written(*class), at, domain)?;
            }
        }
        places.into_iter().map(|placed| self.landed(placed, scope)).collect()
    }

    /// Checks that a class is stored exactly once, at such places over the domain.
    fn check_cover(&self, class: ClassId, at: &[Index], domain: &Shape) -> Result<(), String> {
        let (stored, row) = (self.shape(class)?, self.row.as_ref().map(|(axis, _)| *axis));
        if is_bijection(&flatten(at, &self.dims(class)?), domain, row, stored) {
            return Ok(());
        }
        Err(format!("a store over {domain} does not cover its tensor {stored} exactly once"))
    }

    /// The coordinates of a stored class over the domain, where it lies above the anchor (or the first reduction); for
    /// a map kernel without anchor the last store's own. Where it is a part of what lies there, with what says which points it has.
    fn place(&self, class: ClassId, stored: ClassId, domain: &Shape, outer: &[usize]) -> Result<Option<Where>, String> {
        let dims = self.dims(class)?;
        let identity: Vec<_> = (0..dims.len()).map(Index::coord).collect();
        if self.anchor.is_none() && self.row.is_none() {
            return Ok(
                (Some(&stored) == self.parts.stores.last()).then_some(Where { at: identity, guards: Vec::new() })
            );
        }
        let Some((met, mut at)) = self.find_anchor(class, identity, &dims) else { return Ok(None) };
        let extents = domain.capacity().ok_or_else(|| format!("{domain} has open dimensions"))?;
        let why = || format!("{dims:?} does not follow from the anchor's domain {domain} by a bijection");
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
        // The place of the whole, and of the class in the part.
        let Some(Where { at: of_whole, mut guards }) = self.place(whole, whole, domain, outer)? else {
            return Ok(None);
        };
        if domain.varies() || self.shape(whole)?.varies() {
            return Err(format!("a part of {}, whose extents vary, is stored", self.shape(whole)?));
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

    /// What a class is a part of, side by side, and where it begins there.
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
            // Of an axis of one point, no coordinate is left.
            _ if dims[axis] == 1 && index.terms.is_empty() => Some(index.constant),
            _ => None,
        };
        let starts = piece.at.iter().zip(0..).map(start).collect::<Option<_>>()?;
        Some((of, starts))
    }

    /// Which anchor, or which part of what lies above it, an expression reads first, and at which coordinates, looking through pointwise ops
    /// and views.
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
