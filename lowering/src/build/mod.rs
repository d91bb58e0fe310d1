//! Builds a kernel's description from the classes of a plan: expressions over composed index maps, which backends price
//! and print.

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

/// The maximal number of ops of a kernel. It bounds the depth of the recursion over expressions.
const MOST_CLASSES: usize = 512;

/// A kernel's description, and the class that each of its slots holds.
#[derive(Clone, Debug)]
pub struct KernelOfClasses {
    /// The description.
    pub kernel: Kernel,
    /// The class of each slot.
    pub classes: Vec<ClassId>,
    /// The number of slots that are read. They come first; the other slots are written.
    pub reads: usize,
    /// The slots that an update op (`scatter`, `update-slice`) writes in part, each with the class that holds the
    /// remaining elements.
    pub parts: Vec<(usize, ClassId)>,
    /// For each run-time check of ids, by its number, the class of the op that requests it.
    pub checks: Vec<ClassId>,
}

/// Builds the description of one kernel of a plan, in normal form. `positions` caches the ids that earlier kernels of
/// the same e-graph evaluated. A body has at most `instrs` instructions. An op that is read under several index maps
/// takes one instruction for each map.
///
/// # Errors
/// The reason if the classes do not fit one kernel: two anchors, rows of different lengths, or a store whose index map
/// does not follow from the anchor's domain by a bijection.
pub fn kernel(
    classes: &EClasses,
    plan: &Plan,
    parts: &PlanKernel,
    positions: &Positions,
    instrs: usize,
) -> Result<KernelOfClasses, String> {
    if parts.interior.len() > MOST_CLASSES {
        return Err(format!("the kernel would compute more than {MOST_CLASSES} ops"));
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
                Class::Anchor(_) if self.anchor.is_some() => return Err("the kernel would have two anchors".into()),
                Class::Anchor(_) => self.anchor = Some(class),
                Class::Update(..) if !self.parts.stores.contains(&class) => {
                    return Err(format!(
                        "cannot fuse `{}` into its reader because the kernel of an update op must store its result",
                        self.node(class).op
                    ));
                }
                Class::Composite | Class::Project | Class::Loop => {
                    return Err(format!("`{}` has no kernel form", self.node(class).op));
                }
                _ => {}
            }
        }
        let (domain, outer) = match (self.anchor, rows) {
            (Some(_), Some(_)) => return Err("the kernel would have an anchor and a row group".into()),
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
                let written = self.shape(self.written(*self.parts.stores.last().ok_or("the kernel has no store")?))?;
                (written.clone(), written.rank())
            }
        };
        let mut scope = BodyScope::new(&domain, true, self.instrs)?;
        let places = self.place_stores(&mut scope, &domain, outer)?;
        let anchor = self.anchor_kernel(&scope)?;
        self.finish(scope, anchor, places)
    }

    /// Finds a reduction that combines results of scans across rows. Returns the extents of its result, and the axis of
    /// the result that runs along the rows of the scans. Short reductions of this form are unrolled, so that one kernel
    /// computes the states of a recurrence and sums them.
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

    /// Returns the outer extents and the row extents of a reduction, a scan or a ranking.
    fn row_of(&self, reduction: ClassId) -> Result<(Vec<Dim>, Vec<Dim>), String> {
        let node = self.node(reduction);
        let mut outer = self.shape(node.operands[0])?.to_vec();
        let axes = attr(node, "axes").and_then(Attr::ints).map_or(1, <[i64]>::len);
        let row = outer.split_off(outer.len().checked_sub(axes).ok_or("a reduction has more axes than its operand")?);
        Ok((outer, row))
    }

    fn shape(&self, class: ClassId) -> Result<&'a Shape, String> {
        let shape = self.classes.classes[class].ty.as_tensor().map(|(_, shape)| shape);
        shape.ok_or_else(|| format!("class {class} is a tuple, and not a tensor"))
    }

    fn operand_shapes(&self, node: &ENode) -> Result<Vec<Shape>, String> {
        node.operands.iter().map(|&c| self.shape(c).cloned()).collect()
    }

    /// Returns the elements of the operands that a view reads at the coordinates `at`.
    fn access(&self, class: ClassId, at: &[Index], domain: &[usize]) -> Result<Access, String> {
        let node = self.node(class);
        let Class::View(map) = node.op.def().class else { return Err(format!("`{}` is not a view", node.op)) };
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
        let kind = kind.ok_or_else(|| format!("`{}` cannot be the anchor of a kernel", node.op))?;
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
            return Err(format!("the result of `{}` has fewer axes than its domain", node.op));
        }
        let given = bodies.len();
        let needed = def.operands.iter().filter(|operand| operand.absent.is_none()).count();
        if !(needed..=def.operands.len()).contains(&given) {
            return Err(format!("`{}` has {given} operands, which do not fit the anchor `{}`", node.op, def.name));
        }
        let value =
            |name: &&str| attr(node, name).cloned().ok_or_else(|| format!("`{}` has no attribute :{name}", node.op));
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

/// Merges the axes of a row into one axis and returns its extent. Only the outermost axis may have an extent that
/// varies at run time, because then a shorter row is a prefix of the longest row.
fn row_extent(row: &[Dim]) -> Result<Dim, String> {
    let mut axes = row.iter().filter(|d| **d != Dim::Known(1));
    let extent = axes.next().cloned().unwrap_or(Dim::Known(1));
    axes.try_fold(extent, |extent, inner| match inner.varies() {
        true => Err(format!("cannot merge the axes of a row because {inner}, an inner axis, varies at run time")),
        false => Ok(&extent * inner),
    })
}
