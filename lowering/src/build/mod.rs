//! From a kernel of a plan to the description that backends price and print: expressions with composed index maps.

mod place;
mod positions;
mod scope;
mod value;

use place::Placed;
pub use positions::{Positions, constant_ids};
use scope::{BodyScope, KernelBuilder, attr};

use eutectic_backend::{AnchorKernel, AnchorKind, Instr, Kernel, Store};
use eutectic_ir::{
    Attr, Dim, Op, Shape,
    eclasses::{ClassId, EClasses, ENode},
    index::{Index, flatten},
    ops::{Access, Anchor, Class, RowOp, ViewCall},
};
use rustc_hash::FxHashSet;

use crate::plan::{Plan, PlanKernel};

/// Most ops of a kernel: its expressions are walked recursively.
const MOST_CLASSES: usize = 512;

/// A kernel, and which class each of its slots is.
#[derive(Clone, Debug)]
pub struct KernelOfClasses {
    /// The description.
    pub kernel: Kernel,
    /// The class of each slot.
    pub classes: Vec<ClassId>,
    /// How many of the slots, from the first on, are read; the rest are written.
    pub reads: usize,
    /// The slots of which a part is written, each with the class that the rest is of.
    pub parts: Vec<(usize, ClassId)>,
    /// The class that asks for each check of ids, by number.
    pub checks: Vec<ClassId>,
}

/// Builds the description of one kernel of a plan, in normal form. `positions` is what was learnt of ids from kernels of the same e-graph;
/// a body takes at most `instrs` instructions, because an op that is read at many places is computed at each.
///
/// # Errors
/// Why there is none: more than one anchor that does not fit one kernel, rows of different lengths, a store whose place
/// does not follow from the anchor's domain by a bijection.
pub fn kernel(
    classes: &EClasses,
    plan: &Plan,
    parts: &PlanKernel,
    positions: &Positions,
    instrs: usize,
) -> Result<KernelOfClasses, String> {
    if parts.interior.len() > MOST_CLASSES {
        return Err(format!("it would compute more than {MOST_CLASSES} ops"));
    }
    let interior = parts.interior.iter().copied().collect();
    let (above, slots, checks) = (FxHashSet::default(), Vec::new(), Vec::new());
    let mut builder = KernelBuilder {
        classes,
        plan,
        parts,
        positions,
        instrs,
        interior,
        above,
        slots,
        checks,
        anchor: None,
        row: None,
        along: None,
    };
    builder.build()
}

impl<'a> KernelBuilder<'a> {
    fn build(&mut self) -> Result<KernelOfClasses, String> {
        let mut rows = None;
        for &class in self.parts.interior.iter().filter(|c| self.classes.classes[**c].scalar.is_none()) {
            let node = self.node(class);
            if matches!(node.op.def().class, Class::Anchor(_)) || node.operands.iter().any(|c| self.above.contains(c)) {
                self.above.insert(class);
            }
            match node.op.def().class {
                Class::Anchor(Anchor::Row(_)) => rows = Some(class),
                Class::Anchor(_) if self.anchor.is_some() => return Err("it would hold two anchors".into()),
                Class::Anchor(_) => self.anchor = Some(class),
                Class::Update(..) if !self.parts.stores.contains(&class) => {
                    return Err(format!("what `{}` gives is read where it is not stored", self.node(class).op));
                }
                Class::Composite | Class::Project | Class::Loop => {
                    return Err(format!("`{}` has no kernel form", self.node(class).op));
                }
                _ => {}
            }
        }
        let (domain, outer) = match (self.anchor, rows) {
            (Some(_), Some(_)) => return Err("it would hold an anchor and a row group".into()),
            (Some(anchor), None) => (self.shape(anchor)?.clone(), self.shape(anchor)?.rank()),
            (None, Some(_)) if let Some((outer, along)) = self.reduced_scan() => {
                let mut domain: Vec<Dim> = outer.to_vec();
                let count = domain.remove(along);
                domain.push(count.clone());
                self.along = Some(along);
                self.row = Some((domain.len() - 1, count));
                let outer = domain.len() - 1;
                (domain.into_iter().collect(), outer)
            }
            (None, Some(reduction)) => {
                let (outer, row) = self.row_of(reduction)?;
                let count = row_extent(&row)?;
                self.row = Some((outer.len(), count.clone()));
                (outer.iter().chain([&count]).cloned().collect(), outer.len())
            }
            (None, None) => {
                let written = self.shape(self.written(*self.parts.stores.last().ok_or("it stores nothing")?))?;
                (written.clone(), written.rank())
            }
        };
        let mut scope = BodyScope::new(&domain, true, self.instrs)?;
        let places = self.place_stores(&mut scope, &domain, outer)?;
        let anchor = self.anchor_kernel(&scope)?;
        self.finish(scope, anchor, places)
    }

    /// Returns the outer extents of a reduction of scans' results across their rows, and the axis of these that runs along the rows. Such a reduction is
    /// written out where it is short, so that states of a recurrence are summed up where they are computed.
    fn reduced_scan(&self) -> Option<(Vec<Dim>, usize)> {
        let is_scan = |class: ClassId| self.node(class).op.row().is_some_and(RowOp::is_scan);
        let inside = || self.parts.interior.iter().rev().filter(|class| self.classes.classes[**class].scalar.is_none());
        if !inside().any(|&class| is_scan(class)) {
            return None;
        }
        inside().filter(|class| self.node(**class).op.row().is_some_and(|row| row.reduction().is_some())).find_map(
            |&class| {
                let operand = self.node(class).operands[0];
                let (outer, _) = self.row_of(class).ok()?;
                let dims = self.dims(operand).ok()?;
                let coords = (0..dims.len()).map(Index::coord).collect();
                let (_, at) = self.find_anchor(operand, coords, &dims).filter(|(met, _)| is_scan(*met))?;
                let along = (0..outer.len()).find(|&axis| at.last() == Some(&Index::coord(axis)))?;
                Some((outer, along))
            },
        )
    }

    /// The outer extents and the row extents of a reduction, or of what is ordered along the last axis.
    fn row_of(&self, reduction: ClassId) -> Result<(Vec<Dim>, Vec<Dim>), String> {
        let node = self.node(reduction);
        let mut outer = self.shape(node.operands[0])?.to_vec();
        let axes = attr(node, "axes").and_then(Attr::ints).map_or(1, <[i64]>::len);
        let row = outer.split_off(outer.len().checked_sub(axes).ok_or("more axes are reduced than there are")?);
        Ok((outer, row))
    }

    fn shape(&self, class: ClassId) -> Result<&'a Shape, String> {
        let shape = self.classes.classes[class].ty.as_tensor().map(|(_, shape)| shape);
        shape.ok_or_else(|| format!("class {class} is a tuple"))
    }

    fn operand_shapes(&self, node: &ENode) -> Result<Vec<Shape>, String> {
        node.operands.iter().map(|&c| self.shape(c).cloned()).collect()
    }

    /// Where a view reads.
    fn access(&self, class: ClassId, at: &[Index], domain: &[usize]) -> Result<Access, String> {
        let node = self.node(class);
        let Class::View(map) = node.op.def().class else { return Err(format!("`{}` is no view", node.op)) };
        let operands = self.operand_shapes(node)?;
        let call = ViewCall { attrs: &node.attrs, operands: &operands, result: self.shape(class)?, at, domain };
        map(&call).map_err(|why| format!("`{}`: {why}", node.op))
    }

    fn anchor_kernel(&mut self, scope: &BodyScope) -> Result<AnchorKernel, String> {
        let Some(class) = self.anchor else {
            return Ok(if self.row.is_some() { AnchorKernel::rows(1) } else { AnchorKernel::map() });
        };
        let node = self.node(class);
        let kind = match node.op.def().class {
            Class::Anchor(Anchor::Named(name)) => AnchorKind::named(name),
            _ => None,
        };
        let kind = kind.ok_or_else(|| format!("`{}` is not built around", node.op))?;
        let mut prologue = node.op.def().prologue.iter();
        let mut bodies = Vec::new();
        for &operand in &node.operands {
            let shape = self.shape(operand)?;
            let at: Vec<_> = (0..shape.rank()).map(Index::coord).collect();
            let mut inner = BodyScope::new(shape, false, self.instrs)?;
            let place = inner.place(at, Vec::new());
            let mut value = self.value(operand, &place, &mut inner)?;
            if let Some(name) = prologue.next() {
                let op = Op::named(name).ok_or_else(|| format!("there is no op `{name}`"))?;
                let dtype = inner.body.instrs[value].dtype();
                value = inner.push(Instr::Map { op, attrs: Default::default(), args: vec![value], dtype })?;
            }
            inner.body.results.push(value);
            bodies.push(inner.body);
        }
        let def = kind.def();
        let own = def.results.first().map_or(0, |result| result.layout.len());
        if scope.body.domain.len() + 1 < own {
            return Err(format!("`{}` has a result of fewer axes than it computes over", node.op));
        }
        let given = bodies.len();
        let needed = def.operands.iter().filter(|operand| operand.absent.is_none()).count();
        if !(needed..=def.operands.len()).contains(&given) {
            return Err(format!("`{}` has {given} operands, not those of `{}`", node.op, def.name));
        }
        let value = |name: &&str| attr(node, name).cloned().ok_or_else(|| format!("`{}` has no :{name}", node.op));
        let attrs = def.attrs.iter().map(value).collect::<Result<_, String>>()?;
        Ok(AnchorKernel::new(kind, bodies, attrs))
    }

    fn finish(
        &mut self,
        scope: BodyScope,
        anchor: AnchorKernel,
        mut places: Vec<Placed>,
    ) -> Result<KernelOfClasses, String> {
        places.sort_by_key(|place| (place.value, place.class));
        let reads = self.slots.len();
        let mut classes = std::mem::take(&mut self.slots);
        let (mut stores, mut parts) = (Vec::new(), Vec::new());
        for Placed { class, value, at, guards, writes, fills } in places {
            let at = flatten(&at, &self.dims(class)?);
            stores.push(Store { slot: classes.len(), at, guards, value, writes });
            parts.extend(self.part_of(class).filter(|_| !fills).map(|whole| (classes.len(), whole)));
            classes.push(class);
        }
        let slots = classes
            .iter()
            .map(|&c| {
                let ty = &self.classes.classes[c].ty;
                ty.dtype().map(|d| (d, ty.count())).ok_or("a tuple has no buffer")
            })
            .collect::<Result<_, _>>()?;
        let mut kernel = Kernel { anchor, body: scope.body, stores, slots };
        kernel.normalise();
        Ok(KernelOfClasses { kernel, classes, reads, parts, checks: std::mem::take(&mut self.checks) })
    }
}

/// The extent of a row of such axes, which become one: the first points of that are theirs only if no inner one varies.
fn row_extent(row: &[Dim]) -> Result<Dim, String> {
    let mut axes = row.iter().filter(|d| **d != Dim::Known(1));
    let extent = axes.next().cloned().unwrap_or(Dim::Known(1));
    axes.try_fold(extent, |extent, inner| match inner.varies() {
        true => Err(format!("a row of several axes, of which {inner}, not the outermost, varies from run to run")),
        false => Ok(&extent * inner),
    })
}
