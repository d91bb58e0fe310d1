//! Computes the value of a class at a place (coordinates and guards). Pointwise ops become instructions, views compose
//! index maps, and all other classes are loaded.

use eutectic_backend::{Guard, Instr, Load, ValueId};
use eutectic_ir::{
    Attr, Attrs, Dim, Op, Shape,
    eclasses::ClassId,
    index::{Atom, Index, flatten, unflatten},
    ops::{Access, Anchor, Class, Leaf, Reduction},
};

use super::{
    row_extent,
    scope::{BodyScope, KernelBuilder, Place, Where, attr},
};
use crate::plan::is_buffer;

/// The maximal number of elements of a reduction across rows that is unrolled. Each element is the result of a scan.
const MAX_UNROLLED: usize = 16;

impl KernelBuilder<'_> {
    /// Returns the value of a class at a place.
    pub(super) fn value(&mut self, class: ClassId, place: &Place, scope: &mut BodyScope) -> Result<ValueId, String> {
        let c = &self.classes.classes[class];
        let dtype = c.ty.dtype().ok_or_else(|| format!("class {class} is a tuple, and not a tensor"))?;
        if let Some(number) = c.scalar {
            let value = scope.push(Instr::Constant { value: number.into(), dtype })?;
            scope.visited.entry(class).or_insert_with(|| place.clone());
            return Ok(value);
        }
        let key = (class, place.number());
        if let Some(&value) = scope.values.get(&key) {
            return Ok(value);
        }
        let value = if !self.is_interior(class) {
            self.load(class, place, scope)?
        } else {
            if place.guards.is_empty() {
                scope.visited.entry(class).or_insert_with(|| place.clone());
            }
            let instr = self.compute(class, place, scope)?;
            match instr {
                ClassValue::Instr(instr) => {
                    let value = scope.push(*instr)?;
                    self.rounded(class, value, scope)?
                }
                ClassValue::Value(value) => value,
            }
        };
        scope.values.insert(key, value);
        Ok(value)
    }

    /// Rounds a computed value to its type, if registers hold it in a wider type and a discontinuous op observes the
    /// rounding. The rounding is a `cast` to the type that the value already has.
    fn rounded(&self, class: ClassId, value: ValueId, scope: &mut BodyScope) -> Result<ValueId, String> {
        let dtype = scope.body.instrs[value].dtype();
        let computes = matches!(self.node(class).op.def().class, Class::Pointwise | Class::Anchor(_));
        let seen = self.classes.rounds_all || self.classes.classes[class].observer.is_some();
        if !(computes && seen && dtype.register() != dtype) {
            return Ok(value);
        }
        let op = Op::named("cast").ok_or("there is no op `cast`")?;
        let attrs = Attrs::from_iter([Attr::DType(dtype)]);
        scope.push(Instr::Map { op, attrs, args: vec![value], dtype })
    }

    fn load(&mut self, class: ClassId, place: &Place, scope: &mut BodyScope) -> Result<ValueId, String> {
        let dims = self.dims(class)?;
        let slot = self.slots.iter().position(|c| *c == class).unwrap_or_else(|| {
            self.slots.push(class);
            self.slots.len() - 1
        });
        let mut at = flatten(&place.at, &dims);
        // A checked id is within its axis. This can simplify a division in the index, and so keep a row's elements
        // contiguous.
        let extent = |id: ValueId| match &scope.body.instrs[id] {
            Instr::Within { extent, .. } => extent.capacity(),
            _ => None,
        };
        let ids = at.values().into_iter();
        let known: Vec<Guard> =
            ids.filter_map(|id| Some((Index::atom(Atom::Value(id)), 0..extent(id)?.max(1)))).collect();
        if !known.is_empty() {
            at = at.under(&known, &scope.body.domain);
        }
        let dtype = self.classes.classes[class].ty.dtype().ok_or("cannot load a tuple")?;
        scope.push(Instr::Load(Load { slot, at, guards: place.guards.clone(), dtype }))
    }

    fn compute(&mut self, class: ClassId, place: &Place, scope: &mut BodyScope) -> Result<ClassValue, String> {
        let Where { at, guards } = &**place;
        let node = self.node(class);
        let dtype = self.classes.classes[class].ty.dtype().ok_or("cannot compute a tuple in a kernel")?;
        match node.op.def().class {
            Class::Pointwise if node.op.def().ids.is_some() => {
                let ids = node.op.def().ids.expect("the guard of this arm checked `ids`")(&node.attrs);
                let arg = self.value(node.operands[0], place, scope)?;
                self.within(class, (arg, Dim::Known(ids.extent), ids.from_end), guards, scope).map(ClassValue::Value)
            }
            Class::Pointwise => {
                let args = node.operands.iter().map(|&c| self.value(c, place, scope)).collect::<Result<_, _>>()?;
                Ok(ClassValue::from(Instr::Map { op: node.op, attrs: node.attrs.clone(), args, dtype }))
            }
            Class::View(_) => {
                let access = self.access(class, at, &scope.body.domain)?;
                self.read(class, access, guards, scope)
            }
            Class::Leaf(Leaf::Iota) => {
                let axis = attr(node, "axis").and_then(Attr::int).unwrap_or(-1);
                let axis = (axis.rem_euclid(at.len().max(1) as i64)) as usize;
                Ok(ClassValue::from(Instr::Coordinate { index: at[axis].clone(), dtype }))
            }
            Class::Leaf(_) if is_buffer(node.op) => self.load(class, place, scope).map(ClassValue::Value),
            Class::Anchor(Anchor::Row(row)) => {
                if let Some(how) = row.reduction().filter(|_| self.along.is_some())
                    && self.is_across(class, at, scope)?
                {
                    return self.unrolled(class, how, place, scope).map(ClassValue::Value);
                }
                if !row.is_per_row() {
                    self.check_own_element(class, at)?;
                }
                let argument = |operand: &ClassId| self.row_argument((class, *operand), at, guards, scope);
                let args = node.operands.iter().map(argument).collect::<Result<_, _>>()?;
                let attrs = node.op.row_attrs(&node.attrs);
                Ok(ClassValue::from(Instr::Row { op: node.op, attrs, args, dtype }))
            }
            Class::Anchor(_) => {
                // An empty domain reads nothing.
                let identity = scope.body.domain.contains(&0)
                    || at.iter().zip(&scope.body.domain).enumerate().all(|(i, (index, extent))| {
                        *index == Index::coord(i) || (*extent == 1 && *index == Index::default())
                    });
                if scope.above_anchor && identity {
                    Ok(ClassValue::from(Instr::Anchor { dtype }))
                } else {
                    Err("cannot read the anchor's result at another point than the one that computes it".into())
                }
            }
            Class::Leaf(_) | Class::Update(..) | Class::Composite | Class::Project | Class::Loop => {
                Err(format!("`{}` has no kernel form", node.op))
            }
        }
    }

    /// Returns whether a row operation reads elements of several rows of the row group, because its index varies along
    /// the row.
    fn is_across(&self, class: ClassId, at: &[Index], scope: &BodyScope) -> Result<bool, String> {
        let Some((axis, _)) = self.row.as_ref().filter(|_| scope.above_anchor) else {
            return Ok(false);
        };
        let (outer, _) = self.row_of(class)?;
        Ok(at[..outer.len()].iter().any(|index| index.mentions(*axis)))
    }

    /// Unrolls a short reduction across rows into a chain of pointwise combinations.
    fn unrolled(
        &mut self,
        class: ClassId,
        how: Reduction,
        place: &Place,
        scope: &mut BodyScope,
    ) -> Result<ValueId, String> {
        let node = self.node(class);
        let (outer, row) = self.row_of(class)?;
        let row = row.into_iter().collect::<Shape>();
        let row = row
            .capacity()
            .filter(|_| !row.varies())
            .ok_or("cannot unroll a reduction across rows because its extent varies at run time")?;
        let count: usize = row.iter().product();
        if !(1..=MAX_UNROLLED).contains(&count) {
            return Err(format!(
                "cannot unroll a reduction across rows over {count} elements; the count must be from 1 to \
                 {MAX_UNROLLED}"
            ));
        }
        let dtype = self.classes.classes[class].ty.dtype().ok_or("cannot reduce a tuple")?;
        let mut sum = None;
        for n in 0..count {
            let mut at = place.at[..outer.len()].to_vec();
            at.extend(unflatten(&Index::constant(n as i64), &row, &scope.body.domain));
            let element = scope.place(at, place.guards.clone());
            let value = self.value(node.operands[0], &element, scope)?;
            sum = Some(match sum {
                None => value,
                Some(sum) => {
                    scope.push(Instr::Map { op: how.op(), attrs: Attrs::default(), args: vec![sum, value], dtype })?
                }
            });
        }
        sum.ok_or_else(|| format!("cannot unroll `{}` because it has no elements", node.op))
    }

    /// Checks that a result with one value per element of the row is read at that element.
    fn check_own_element(&self, class: ClassId, at: &[Index]) -> Result<(), String> {
        let (outer, _) = self.row_of(class)?;
        let along = self.row.as_ref().map(|(axis, _)| Index::coord(*axis));
        let dims = self.dims(class)?;
        // A row of one element is read at any index, and an empty row at none.
        let one = dims.last() == Some(&1) || dims.contains(&0);
        if at.get(outer.len()) != along.as_ref() && !one {
            return Err(format!(
                "cannot fuse a reader of `{}` because a point of the reader needs an element of the row that another \
                 point computes",
                self.node(class).op
            ));
        }
        Ok(())
    }

    /// Returns the value of the operand of a row operation, over the elements of the row.
    fn row_argument(
        &mut self,
        (class, operand): (ClassId, ClassId),
        at: &[Index],
        guards: &[Guard],
        scope: &mut BodyScope,
    ) -> Result<ValueId, String> {
        let (axis, count) = self
            .row
            .clone()
            .filter(|_| scope.above_anchor)
            .ok_or("cannot fuse a reduction into an operand of an anchor")?;
        let (outer, row) = self.row_of(class)?;
        let extent = row_extent(&row)?;
        if extent != count {
            return Err(format!("cannot fuse rows of {extent} and of {count} elements"));
        }
        let row = row.into_iter().collect::<Shape>().capacity().ok_or("a row has dimensions without bounds")?;
        let mut place = at[..outer.len()].to_vec();
        if place.iter().any(|i| i.mentions(axis)) {
            return Err("cannot fuse a reduction because its reader's index varies along the row".into());
        }
        place.extend(unflatten(&Index::coord(axis), &row, &scope.body.domain));
        // A reduction reads the whole row. So guards that select points along the row do not apply to its operand.
        let only_row = |index: &Index| (0..axis).all(|other| !index.mentions(other)) && index.values().is_empty();
        let (of_row, guards): (Vec<_>, Vec<_>) = guards.iter().cloned().partition(|(index, _)| index.mentions(axis));
        if !of_row.iter().all(|(index, _)| only_row(index)) {
            return Err(
                "cannot fuse a reduction because its reader's guard varies along the row and across rows".into()
            );
        }
        let place = scope.place(place, guards);
        self.value(operand, &place, scope)
    }

    fn read(
        &mut self,
        class: ClassId,
        access: Access,
        guards: &[Guard],
        scope: &mut BodyScope,
    ) -> Result<ClassValue, String> {
        let node = self.node(class);
        let dtype = self.classes.classes[class].ty.dtype().ok_or("cannot read a tuple")?;
        let mut pieces = Vec::new();
        for piece in access.pieces {
            let Some((mut own, guards)) = narrowed(guards, piece.guards, &scope.body.domain) else { continue };
            let mut at = piece.at;
            let mut checked = None;
            if let Some((ids, ids_at)) = piece.via {
                let axis = at.iter().position(|i| *i == Index::gathered()).ok_or("a gather has no gathered axis")?;
                let extent = self.shape(node.operands[piece.operand])?[axis].clone();
                at[axis] = match self.position(node.operands[ids], &ids_at, &extent) {
                    Some(position) => position,
                    None => {
                        let of_ids = scope.place(ids_at, guards.clone());
                        let arg = self.value(node.operands[ids], &of_ids, scope)?;
                        let id = self.within(class, (arg, extent.clone(), false), &guards, scope)?;
                        checked = Some((id, extent));
                        Index::atom(Atom::Value(id))
                    }
                };
            }
            let place = scope.place(at, guards);
            let value = self.value(node.operands[piece.operand], &place, scope)?;
            // If all rows of the table are equal, the value does not depend on the id. The id is checked nevertheless.
            if let Some((id, extent)) = checked.filter(|(id, _)| !scope.body.depends(value, *id)) {
                own.push((Index::atom(Atom::Value(id)), 0..extent.capacity().unwrap_or(i64::MAX)));
            }
            pieces.push((own, value));
        }
        match (pieces.as_slice(), access.fill) {
            ([(guards, value)], _) if guards.is_empty() => Ok(ClassValue::Value(*value)),
            ([], fill) => Ok(ClassValue::from(Instr::Constant { value: fill.unwrap_or(0.0.into()), dtype })),
            (_, fill) => Ok(ClassValue::from(Instr::Select { pieces, fill: fill.unwrap_or(0.0.into()), dtype })),
        }
    }

    /// Adds a check that an id is within an extent where the guards hold, and returns the checked id. Each class has
    /// one check number. An id that already has an equal check is not checked again.
    fn within(
        &mut self,
        class: ClassId,
        (arg, extent, from_end): (ValueId, Dim, bool),
        guards: &[Guard],
        scope: &mut BodyScope,
    ) -> Result<ValueId, String> {
        if let Instr::Within { extent: known, guards: under, .. } = &scope.body.instrs[arg]
            && !from_end
            && *known == extent
            && under.iter().all(|guard| guards.contains(guard))
        {
            return Ok(arg);
        }
        let dtype = scope.body.instrs[arg].dtype();
        let instr =
            |check| Instr::Within { arg, extent: extent.clone(), from_end, check, guards: guards.to_vec(), dtype };
        // Reads by the same id share one check.
        if let Some(known) = (0..self.checks.len()).find_map(|check| scope.numbers.get(&instr(check)).copied()) {
            return Ok(known);
        }
        let check = self.checks.iter().position(|of| *of == class).unwrap_or_else(|| {
            self.checks.push(class);
            self.checks.len() - 1
        });
        scope.push(instr(check))
    }

    /// Returns the id of a class of ids at these coordinates, if it is an affine function of them and within the axis.
    fn position(&self, ids: ClassId, at: &[Index], extent: &Dim) -> Option<Index> {
        let extent = extent.known()?;
        let affine = self.positions.of(self.classes, self.plan, ids)?;
        affine.fits(&self.dims(ids).ok()?, extent).then(|| affine.at(at))
    }
}

/// Intersects `guards` with `outer`. Returns the guards that `outer` does not imply, and the merged set with one guard
/// per index map; `None` if no point of the domain satisfies them. Merging keeps the sets short: a concat of n tensors
/// is a nest of n − 1 concats, and each level adds guards.
fn narrowed(outer: &[Guard], guards: Vec<Guard>, domain: &[usize]) -> Option<(Vec<Guard>, Vec<Guard>)> {
    let (mut own, mut all) = (Vec::new(), outer.to_vec());
    for (index, range) in guards {
        let known = all.iter().position(|(other, _)| other.terms == index.terms);
        let possible = match known.map(|at| &all[at]) {
            Some((other, known)) => {
                let by = index.constant - other.constant;
                known.start + by..known.end + by
            }
            None => index.range(domain),
        };
        let both = possible.start.max(range.start)..possible.end.min(range.end);
        if both.is_empty() {
            return None;
        }
        if both != possible {
            known.map(|at| all.remove(at));
            all.push((index.clone(), both));
            own.push((index, range));
        }
    }
    Some((own, all))
}

/// The value of a class: an instruction to add, or a value that exists.
enum ClassValue {
    Instr(Box<Instr>),
    Value(ValueId),
}

impl From<Instr> for ClassValue {
    fn from(instr: Instr) -> ClassValue {
        ClassValue::Instr(Box::new(instr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_that_others_imply_are_left_out() {
        let guard = |axis, constant, range| (Index::coord(axis).plus(&Index::constant(constant)), range);
        let domain = [16, 8];
        // A concat of extents 4, 4 and 8 is a concat of (4, 4) and 8. Read the first tensor.
        let (own, both) = narrowed(&[guard(0, 0, 0..8)], vec![guard(0, 0, 0..4)], &domain).unwrap();
        assert_eq!((own, both), (vec![guard(0, 0, 0..4)], vec![guard(0, 0, 0..4)]));
        // Guards on shifted copies of one index map are merged.
        let (own, both) = narrowed(&[guard(0, 0, 4..8)], vec![guard(0, -4, 0..4)], &domain).unwrap();
        assert_eq!((own, both), (vec![], vec![guard(0, 0, 4..8)]));
        // A guard that always holds, one that never holds, and one on another axis.
        assert_eq!(narrowed(&[], vec![guard(1, 1, 0..9)], &domain), Some((vec![], vec![])));
        assert_eq!(narrowed(&[guard(0, 0, 0..4)], vec![guard(0, 0, 4..8)], &domain), None);
        assert_eq!(narrowed(&[], vec![guard(0, 0, 16..20)], &domain), None);
        let (own, both) = narrowed(&[guard(0, 0, 0..4)], vec![guard(1, -1, 0..7)], &domain).unwrap();
        assert_eq!((own, both), (vec![guard(1, -1, 0..7)], vec![guard(0, 0, 0..4), guard(1, -1, 0..7)]));
    }
}
