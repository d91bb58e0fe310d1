//! From a kernel of a plan to the description that backends price and print: expressions with composed index maps.

use eutectic_backend::{AnchorKernel, Body, EmptyRow, Guard, Instr, Kernel, Load, Store, ValueId};
use eutectic_ir::{
    Attr,
    attr::FloatBits,
    eclasses::{ClassId, EClasses, ENode},
    index::{Atom, Index, flatten, unflatten},
    ops::{Anchor, Class, Leaf, ViewCall},
};
use rustc_hash::FxHashMap;

use crate::{
    domain::{invert, is_bijection, refine},
    plan::{Plan, PlanKernel, is_buffer},
};

/// A kernel, and which class each of its slots is.
#[derive(Clone, Debug)]
pub struct Built {
    /// The description.
    pub kernel: Kernel,
    /// The class of each slot.
    pub classes: Vec<ClassId>,
    /// How many of the slots, from the first on, are read; the rest are written.
    pub reads: usize,
}

/// Builds the description of one kernel of a plan.
///
/// # Errors
/// Why there is none: more than one anchor that does not fit one kernel, rows of different lengths, a store whose place
/// does not follow from the anchor's domain by a bijection.
pub fn kernel(classes: &EClasses, plan: &Plan, parts: &PlanKernel) -> Result<Built, String> {
    let mut builder = Builder { classes, plan, parts, slots: Vec::new(), anchor: None, row: None };
    builder.build()
}

struct Builder<'a> {
    classes: &'a EClasses,
    plan: &'a Plan,
    parts: &'a PlanKernel,
    /// Classes that are read, in the order of first use.
    slots: Vec<ClassId>,
    /// The contraction-like anchor.
    anchor: Option<ClassId>,
    /// The axis of the domain that runs along a row, and its extent, in a row group.
    row: Option<(usize, usize)>,
}

/// A body under construction.
struct Scope {
    body: Body,
    values: FxHashMap<(ClassId, Vec<Index>, Vec<Guard>), ValueId>,
    /// Where each class was first visited without guards.
    visited: FxHashMap<ClassId, Vec<Index>>,
    /// Whether the anchor's result is at hand: not in the bodies of its operands.
    above_anchor: bool,
}

impl Scope {
    fn new(domain: Vec<usize>, above_anchor: bool) -> Scope {
        Scope {
            body: Body { domain, ..Body::default() },
            values: FxHashMap::default(),
            visited: FxHashMap::default(),
            above_anchor,
        }
    }

    fn push(&mut self, instr: Instr) -> ValueId {
        // Equal instructions are one value: two classes may load the same element.
        if let Some(at) = self.body.instrs.iter().position(|i| *i == instr) {
            return at;
        }
        self.body.instrs.push(instr);
        self.body.instrs.len() - 1
    }
}

impl<'a> Builder<'a> {
    fn dims(&self, class: ClassId) -> Result<Vec<usize>, String> {
        self.classes.classes[class].ty.dims().ok_or_else(|| format!("class {class} is no tensor of known extents"))
    }

    fn node(&self, class: ClassId) -> &'a ENode {
        &self.classes.classes[class].nodes[self.plan.choice[class]]
    }

    fn is_interior(&self, class: ClassId) -> bool {
        self.parts.interior.contains(&class)
    }

    fn build(&mut self) -> Result<Built, String> {
        let mut rows = None;
        for &class in self.parts.interior.iter().filter(|c| self.classes.classes[**c].scalar.is_none()) {
            match self.node(class).op.def().class {
                Class::Anchor(Anchor::Reduction(_)) => rows = Some(class),
                Class::Anchor(_) if self.anchor.is_some() => return Err("it would hold two anchors".into()),
                Class::Anchor(_) => self.anchor = Some(class),
                Class::Composite | Class::Project => {
                    return Err(format!("`{}` has no kernel form", self.node(class).op));
                }
                _ => {}
            }
        }
        let (domain, outer) = match (self.anchor, rows) {
            (Some(_), Some(_)) => return Err("it would hold an anchor and a row group".into()),
            (Some(anchor), None) => {
                let dims = self.dims(anchor)?;
                (dims.clone(), dims)
            }
            (None, Some(reduction)) => {
                let (outer, row) = self.row_of(reduction)?;
                let count = row.iter().product();
                self.row = Some((outer.len(), count));
                ([outer.as_slice(), &[count]].concat(), outer)
            }
            (None, None) => {
                let dims = self.dims(*self.parts.stores.last().ok_or("it stores nothing")?)?;
                (dims.clone(), dims)
            }
        };
        let mut scope = Scope::new(domain, true);
        let mut places = self.place_stores(&mut scope, &outer)?;
        let anchor = self.anchor_kernel(&mut scope)?;
        let refined = matches!(anchor, AnchorKernel::Map | AnchorKernel::Rows { .. });
        let axes = if refined { refine_body(&mut scope.body, &mut places, self.row) } else { 0 };
        let anchor = match anchor {
            AnchorKernel::Rows { .. } => AnchorKernel::Rows { axes },
            other => other,
        };
        self.finish(scope, anchor, places)
    }

    /// The outer extents and the row extents of a reduction.
    fn row_of(&self, reduction: ClassId) -> Result<(Vec<usize>, Vec<usize>), String> {
        let node = self.node(reduction);
        let mut outer = self.dims(node.operands[0])?;
        let axes = attr(node, "axes").and_then(Attr::ints).map_or(0, <[i64]>::len);
        let row = outer.split_off(outer.len().checked_sub(axes).ok_or("more axes are reduced than there are")?);
        Ok((outer, row))
    }

    /// Computes every store: those above the anchor first, whose place follows from the anchor's; then those that are met
    /// on the way, at the place where they were met.
    fn place_stores(
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

    fn operand_dims(&self, node: &ENode) -> Vec<Vec<usize>> {
        node.operands.iter().map(|&c| self.dims(c).unwrap_or_default()).collect()
    }

    fn anchor_kernel(&mut self, scope: &mut Scope) -> Result<AnchorKernel, String> {
        let Some(class) = self.anchor else {
            return Ok(if self.row.is_some() { AnchorKernel::Rows { axes: 1 } } else { AnchorKernel::Map });
        };
        let node = self.node(class);
        let mut bodies = Vec::new();
        for &operand in &node.operands {
            let dims = self.dims(operand)?;
            let at: Vec<_> = (0..dims.len()).map(Index::coord).collect();
            let mut inner = Scope::new(dims, false);
            let value = self.value(operand, at, Vec::new(), &mut inner)?;
            inner.body.results.push(value);
            bodies.push(inner.body);
        }
        debug_assert!(scope.above_anchor);
        let mut bodies = bodies.into_iter();
        let mut next = || bodies.next().ok_or_else(|| format!("`{}` lacks an operand", node.op));
        let number = |name: &str| FloatBits::from(attr(node, name).and_then(Attr::float).unwrap_or(0.0));
        match node.op.def().class {
            Class::Anchor(Anchor::Contraction) => Ok(AnchorKernel::Contraction { lhs: next()?, rhs: next()? }),
            Class::Anchor(Anchor::Attention) => Ok(AnchorKernel::Attention {
                query: next()?,
                key: next()?,
                value: next()?,
                bias: bodies.next(),
                scale: number("scale"),
                softcap: number("softcap"),
                empty: match attr(node, "empty").and_then(Attr::word) {
                    Some("zeros") => EmptyRow::Zeros,
                    _ => EmptyRow::Nan,
                },
            }),
            _ => Err(format!("`{}` is not built around", node.op)),
        }
    }

    /// The value of a class at `at`, where `guards` hold.
    fn value(
        &mut self,
        class: ClassId,
        at: Vec<Index>,
        guards: Vec<Guard>,
        scope: &mut Scope,
    ) -> Result<ValueId, String> {
        let c = &self.classes.classes[class];
        let dtype = c.ty.dtype().ok_or_else(|| format!("class {class} is a tuple"))?;
        if let Some(number) = c.scalar {
            let value = scope.push(Instr::Constant { value: number.into(), dtype });
            scope.visited.entry(class).or_insert(at);
            return Ok(value);
        }
        let key = (class, at, guards);
        if let Some(&value) = scope.values.get(&key) {
            return Ok(value);
        }
        let (_, at, guards) = &key;
        let value = if !self.is_interior(class) {
            self.load(class, at, guards, scope)?
        } else {
            if guards.is_empty() {
                scope.visited.entry(class).or_insert_with(|| at.clone());
            }
            let instr = self.compute(class, at, guards, scope)?;
            match instr {
                Computed::Instr(instr) => scope.push(*instr),
                Computed::Value(value) => value,
            }
        };
        scope.values.insert(key, value);
        Ok(value)
    }

    fn load(&mut self, class: ClassId, at: &[Index], guards: &[Guard], scope: &mut Scope) -> Result<ValueId, String> {
        let dims = self.dims(class)?;
        let slot = self.slots.iter().position(|c| *c == class).unwrap_or_else(|| {
            self.slots.push(class);
            self.slots.len() - 1
        });
        let at = flatten(at, &dims);
        let dtype = self.classes.classes[class].ty.dtype().ok_or("a tuple is not loaded")?;
        Ok(scope.push(Instr::Load(Load { slot, at, guards: guards.to_vec(), dtype })))
    }

    fn compute(
        &mut self,
        class: ClassId,
        at: &[Index],
        guards: &[Guard],
        scope: &mut Scope,
    ) -> Result<Computed, String> {
        let node = self.node(class);
        let dtype = self.classes.classes[class].ty.dtype().ok_or("a tuple is not computed")?;
        match node.op.def().class {
            Class::Pointwise => {
                let args = node
                    .operands
                    .iter()
                    .map(|&c| self.value(c, at.to_vec(), guards.to_vec(), scope))
                    .collect::<Result<_, _>>()?;
                Ok(Computed::from(Instr::Map { op: node.op, attrs: node.attrs.clone(), args, dtype }))
            }
            Class::View(map) => {
                let (operands, result) = (self.operand_dims(node), self.dims(class)?);
                let domain = scope.body.domain.clone();
                let access =
                    map(&ViewCall { attrs: &node.attrs, operands: &operands, result: &result, at, domain: &domain });
                self.read(node, access, &operands, guards, dtype, scope)
            }
            Class::Leaf(Leaf::Iota) => {
                let axis = attr(node, "axis").and_then(Attr::int).unwrap_or(-1);
                let axis = (axis.rem_euclid(at.len().max(1) as i64)) as usize;
                Ok(Computed::from(Instr::Coordinate { index: at[axis].clone(), dtype }))
            }
            Class::Leaf(_) if is_buffer(node.op) => self.load(class, at, guards, scope).map(Computed::Value),
            Class::Anchor(Anchor::Reduction(how)) => {
                let arg = self.row_argument(class, at, guards, scope)?;
                Ok(Computed::from(Instr::Reduce { how, arg, dtype }))
            }
            Class::Anchor(_) => {
                // Where there is no point, nothing is read.
                let identity = scope.body.domain.contains(&0)
                    || at.iter().zip(&scope.body.domain).enumerate().all(|(i, (index, extent))| {
                        *index == Index::coord(i) || (*extent == 1 && *index == Index::default())
                    });
                if scope.above_anchor && identity && guards.is_empty() {
                    Ok(Computed::from(Instr::Anchor { dtype }))
                } else {
                    Err("the anchor is read elsewhere than where it is computed".into())
                }
            }
            Class::Leaf(_) | Class::Composite | Class::Project => Err(format!("`{}` has no kernel form", node.op)),
        }
    }

    /// The value that a reduction of the row group reduces.
    fn row_argument(
        &mut self,
        class: ClassId,
        at: &[Index],
        guards: &[Guard],
        scope: &mut Scope,
    ) -> Result<ValueId, String> {
        let (axis, count) = self.row.filter(|_| scope.above_anchor).ok_or("a reduction is no prologue of an anchor")?;
        let (outer, row) = self.row_of(class)?;
        if row.iter().product::<usize>() != count {
            return Err(format!("rows of {} and of {count} elements", row.iter().product::<usize>()));
        }
        let mut place = at[..outer.len()].to_vec();
        if place.iter().any(|i| i.mentions(axis)) {
            return Err("a reduction is read at a place that changes along the row".into());
        }
        place.extend(unflatten(&Index::coord(axis), &row, &scope.body.domain));
        // The reduction takes in the whole row: what a guard says of the point where it is read says nothing of its operand.
        let only_row = |index: &Index| (0..axis).all(|other| !index.mentions(other)) && index.values().is_empty();
        let (of_row, guards): (Vec<_>, Vec<_>) = guards.iter().cloned().partition(|(index, _)| index.mentions(axis));
        if !of_row.iter().all(|(index, _)| only_row(index)) {
            return Err("a reduction is read under a guard that changes along the row and across rows".into());
        }
        self.value(self.node(class).operands[0], place, guards, scope)
    }

    fn read(
        &mut self,
        node: &ENode,
        access: eutectic_ir::ops::Access,
        operands: &[Vec<usize>],
        guards: &[Guard],
        dtype: eutectic_ir::DType,
        scope: &mut Scope,
    ) -> Result<Computed, String> {
        let mut pieces = Vec::new();
        for piece in access.pieces {
            let guards = [guards, &piece.guards].concat();
            let mut at = piece.at;
            if let Some((ids, ids_at)) = piece.via {
                let id = self.value(node.operands[ids], ids_at, guards.clone(), scope)?;
                let axis = at.iter().position(|i| *i == Index::gathered()).ok_or("a gather that gathers nowhere")?;
                let extent = operands[piece.operand][axis];
                let dtype = scope.body.instrs[id].dtype();
                let id = scope.push(Instr::Within { arg: id, extent, guards: guards.clone(), dtype });
                at[axis] = Index::atom(Atom::Value(id));
            }
            let value = self.value(node.operands[piece.operand], at, guards, scope)?;
            pieces.push((piece.guards, value));
        }
        match (pieces.as_slice(), access.fill) {
            ([(guards, value)], _) if guards.is_empty() => Ok(Computed::Value(*value)),
            (_, fill) => Ok(Computed::from(Instr::Select { pieces, fill: fill.unwrap_or(0.0).into(), dtype })),
        }
    }

    fn finish(
        &mut self,
        scope: Scope,
        anchor: AnchorKernel,
        mut places: Vec<(ClassId, ValueId, Vec<Index>)>,
    ) -> Result<Built, String> {
        places.sort_by_key(|(class, value, _)| (*value, *class));
        let reads = self.slots.len();
        let mut classes = std::mem::take(&mut self.slots);
        let mut stores = Vec::new();
        for (class, value, at) in places {
            let at = flatten(&at, &self.dims(class)?);
            stores.push(Store { slot: classes.len(), at, value });
            classes.push(class);
        }
        let slots = classes
            .iter()
            .map(|&c| {
                let ty = &self.classes.classes[c].ty;
                ty.dtype().map(|d| (d, ty.count())).ok_or("a tuple has no buffer")
            })
            .collect::<Result<_, _>>()?;
        Ok(Built { kernel: Kernel { anchor, body: scope.body, stores, slots }, classes, reads })
    }
}

/// What computing a class comes to: a new instruction, or a value that is there.
enum Computed {
    Instr(Box<Instr>),
    Value(ValueId),
}

impl From<Instr> for Computed {
    fn from(instr: Instr) -> Computed {
        Computed::Instr(Box::new(instr))
    }
}

/// An attribute of a node, by name.
pub(crate) fn attr<'n>(node: &'n ENode, name: &str) -> Option<&'n Attr> {
    node.attrs.get(node.op.attr(name)?)
}

/// Splits the axes of a domain so that its maps become affine; returns how many axes the row has become.
fn refine_body(body: &mut Body, places: &mut [(ClassId, ValueId, Vec<Index>)], row: Option<(usize, usize)>) -> usize {
    let maps = body.instrs.iter().flat_map(Instr::maps).chain(places.iter().flat_map(|p| &p.2));
    let refined = refine(maps, &body.domain);
    let axes = row.map_or(0, |(axis, _)| refined.part_of.iter().filter(|&&old| old == axis).count());
    if refined.is_same() {
        return axes;
    }
    for map in body.instrs.iter_mut().flat_map(Instr::maps_mut) {
        *map = refined.map(map).into_owned();
    }
    for (_, _, at) in places {
        at.iter_mut().for_each(|i| *i = refined.map(i).into_owned());
    }
    body.domain = refined.domain;
    axes
}
