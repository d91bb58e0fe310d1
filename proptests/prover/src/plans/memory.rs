//! Tensors in memory: their extents, and the places of their elements.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use eutectic_ir::{
    DType, Dim, Type,
    eclasses::{ClassId, EClass, ENode},
};
use eutectic_lowering::{PlannedBlock, build::constant_ids};

use crate::{
    call::Case,
    facts::{Res, stop},
    shape::{Item, Tensor},
    term::{Poly, T, Term, Ty},
};

/// The classes of a block as tensors in memory.
pub struct Memory<'a> {
    case: &'a Rc<Case>,
    block: &'a PlannedBlock,
    known: RefCell<BTreeMap<ClassId, Option<Rc<Ids>>>>,
}

/// Integers that hang on positions alone and are affine in them: constant + Σ strides\[n\] · coordinate n.
pub struct Ids {
    strides: Vec<i128>,
    constant: i128,
}

impl Ids {
    /// The map through the first of some integers and its neighbours, if all others lie on it.
    fn through(dims: &[usize], ids: &[i64]) -> Option<Ids> {
        let constant = i128::from(*ids.first()?);
        let (mut inner, mut strides) = (ids.len(), Vec::new());
        for extent in dims {
            inner /= extent;
            strides.push(if *extent > 1 { i128::from(ids[inner]) - constant } else { 0 });
        }
        let at = |n: usize| {
            let mut rest = n;
            let terms = dims.iter().zip(&strides).rev().map(|(extent, stride)| {
                let own = rest % extent;
                rest /= extent;
                own as i128 * stride
            });
            constant + terms.sum::<i128>()
        };
        let found = ids.iter().enumerate().all(|(n, id)| i128::from(*id) == at(n));
        found.then_some(Ids { strides, constant })
    }

    /// The integer at an index.
    pub fn at(&self, index: &[Poly]) -> T {
        let terms = index.iter().zip(&self.strides);
        Rc::new(Term::Index(terms.fold(Poly::int(self.constant), |sum, (i, stride)| sum.plus_times(i, *stride))))
    }
}

impl<'a> Memory<'a> {
    /// The tensors of a block.
    pub fn new(case: &'a Rc<Case>, block: &'a PlannedBlock) -> Memory<'a> {
        Memory { case, block, known: RefCell::default() }
    }

    /// The class of that number.
    pub fn class(&self, class: ClassId) -> &'a EClass {
        &self.block.classes.classes[class]
    }

    /// The e-node that a plan chose for a class.
    pub fn chosen(&self, class: ClassId) -> Res<&'a ENode> {
        let chosen = self.class(class).nodes.get(self.block.searched.plan.choice[class]);
        chosen.map_or_else(|| stop("a class without a node"), Ok)
    }

    /// Returns integers of a class that do not depend on what is given, if they are affine in their positions.
    pub fn ids(&self, class: ClassId) -> Option<Rc<Ids>> {
        let of = self.class(class);
        if !of.constant || of.scalar.is_some() || of.ty.dtype() != Some(DType::I64) {
            return None;
        }
        let evaluate = || {
            let ids = constant_ids(&self.block.classes, &self.block.searched.plan, class)?;
            Ids::through(ids.dims(), &ids.to_i64()).map(Rc::new)
        };
        self.known.borrow_mut().entry(class).or_insert_with(evaluate).clone()
    }

    /// An element of a tensor in memory, by its place in row-major order.
    pub fn element(&self, class: ClassId, ty: &Ty, flat: Poly) -> Res<T> {
        match self.ids(class) {
            Some(ids) => Ok(ids.at(&unflattened(self.case, &flat, &room_of(&self.class(class).ty)?))),
            None => Ok(read(class, ty, flat)),
        }
    }

    /// A tensor in memory.
    pub fn tensor(&self, class: ClassId) -> Res<Tensor> {
        let of = &self.class(class).ty;
        let (shape, room) = (shape_of(self.case, of)?, room_of(of)?);
        let ty = Ty::fixed(of.dtype().unwrap_or(DType::F32));
        let (own, ids) = (ty.clone(), self.ids(class));
        Ok(Tensor::new(ty, shape, move |at| {
            Ok(ids.as_ref().map_or_else(|| read(class, &own, flattened(at, &room)), |ids| ids.at(at)))
        }))
    }
}

fn read(class: ClassId, ty: &Ty, flat: Poly) -> T {
    Rc::new(Term::Read(format!("x{class}").into(), ty.clone(), vec![flat]))
}

/// The extents of a tensor, with names for those that are known at run time only.
pub fn shape_of(case: &Case, ty: &Type) -> Res<Vec<Item>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a tuple is stored") };
    Ok(shape.iter().map(|dim| Item::axis(extent(case, dim))).collect())
}

/// How far the elements of a tensor lie apart in memory: each axis has room for the most that it can be.
pub fn room_of(ty: &Type) -> Res<Vec<Poly>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a tuple is stored") };
    let room = shape.iter().map(|dim| dim.capacity().map(|n| Poly::int(i128::from(n))));
    room.collect::<Option<_>>().map_or_else(|| stop("an axis without a bound"), Ok)
}

/// An extent, whose symbols keep their bounds.
pub fn extent(case: &Case, dim: &Dim) -> Poly {
    if let Some(n) = dim.known() {
        return Poly::int(i128::from(n));
    }
    let (terms, constant) = dim.split_constant();
    terms.into_iter().fold(Poly::int(i128::from(constant)), |sum, (product, c)| {
        let symbols = product.symbols();
        let of = symbols.iter().fold(Poly::int(i128::from(c)), |p, symbol| {
            let own = Poly::size(&symbol.name);
            if let Some((least, most)) = symbol.bounds {
                case.facts.note(&own - &Poly::int(i128::from(least)));
                case.facts.note(&Poly::int(i128::from(most)) - &own);
            }
            &p * &own
        });
        &sum + &of
    })
}

/// The place in memory of an element.
pub fn flattened(index: &[Poly], room: &[Poly]) -> Poly {
    room.iter().zip(index).fold(Poly::zero(), |flat, (extent, i)| &(&flat * extent) + i)
}

/// The index of an element by its place in memory.
pub fn unflattened(case: &Case, flat: &Poly, room: &[Poly]) -> Vec<Poly> {
    let (mut rest, mut index) = (flat.clone(), Vec::new());
    for (n, extent) in room.iter().enumerate().rev() {
        if n == 0 {
            index.push(std::mem::take(&mut rest));
        } else {
            let (quotient, own) = case.facts.divided(&rest, extent);
            index.push(own);
            rest = quotient;
        }
    }
    index.reverse();
    index
}
