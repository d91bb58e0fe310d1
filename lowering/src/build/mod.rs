//! From a kernel of a plan to the description that backends price and print: expressions with composed index maps.

mod place;
mod value;

use place::Placed;

use eutectic_backend::{AnchorKernel, Body, EmptyRow, Guard, Instr, Kernel, Store, ValueId};
use eutectic_ir::{
    Attr, Shape,
    attr::FloatBits,
    eclasses::{ClassId, EClasses, ENode},
    index::{Index, flatten},
    ops::{Access, Anchor, Class, ViewCall},
};
use rustc_hash::FxHashMap;

use crate::{
    domain::refine,
    plan::{Plan, PlanKernel},
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
    /// The slots of which a part is written, each with the class that the rest is of.
    pub parts: Vec<(usize, ClassId)>,
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
                Class::Update(_) if !self.parts.stores.contains(&class) => {
                    return Err(format!("what `{}` gives is read where it is not stored", self.node(class).op));
                }
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
                let dims = self.dims(self.written(*self.parts.stores.last().ok_or("it stores nothing")?))?;
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

    fn finish(&mut self, scope: Scope, anchor: AnchorKernel, mut places: Vec<Placed>) -> Result<Built, String> {
        places.sort_by_key(|place| (place.value, place.class));
        let reads = self.slots.len();
        let mut classes = std::mem::take(&mut self.slots);
        let (mut stores, mut parts) = (Vec::new(), Vec::new());
        for Placed { class, value, at, guards } in places {
            let at = flatten(&at, &self.dims(class)?);
            stores.push(Store { slot: classes.len(), at, guards, value });
            parts.extend(self.part_of(class).map(|whole| (classes.len(), whole)));
            classes.push(class);
        }
        let slots = classes
            .iter()
            .map(|&c| {
                let ty = &self.classes.classes[c].ty;
                ty.dtype().map(|d| (d, ty.count())).ok_or("a tuple has no buffer")
            })
            .collect::<Result<_, _>>()?;
        Ok(Built { kernel: Kernel { anchor, body: scope.body, stores, slots }, classes, reads, parts })
    }
}

/// An attribute of a node, by name.
pub(crate) fn attr<'n>(node: &'n ENode, name: &str) -> Option<&'n Attr> {
    node.attrs.get(node.op.attr(name)?)
}

/// Splits the axes of a domain so that its maps become affine; returns how many axes the row has become.
fn refine_body(body: &mut Body, places: &mut [Placed], row: Option<(usize, usize)>) -> usize {
    let maps = body.instrs.iter().flat_map(Instr::maps).chain(places.iter().flat_map(Placed::maps));
    let refined = refine(maps, &body.domain);
    let axes = row.map_or(0, |(axis, _)| refined.part_of.iter().filter(|&&old| old == axis).count());
    if refined.is_same() {
        return axes;
    }
    for map in body.instrs.iter_mut().flat_map(Instr::maps_mut) {
        *map = refined.map(map).into_owned();
    }
    for map in places.iter_mut().flat_map(Placed::maps_mut) {
        *map = refined.map(map).into_owned();
    }
    body.domain = refined.domain;
    axes
}
