//! Tensors in memory: their extents, and the addresses of their elements.

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

/// The e-classes of a block as tensors in memory.
pub struct Memory<'a> {
    case: &'a Rc<Case>,
    block: &'a PlannedBlock,
    known: RefCell<BTreeMap<ClassId, Option<Rc<Ids>>>>,
}

/// Integers that are an affine function of their positions: constant + Σ strides\[n\] · coordinate n.
pub struct Ids {
    strides: Vec<i128>,
    constant: i128,
}

impl Ids {
    /// Fits the affine function to the first integer and its neighbours along each axis. Returns `None` if another
    /// integer differs from the function.
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

    /// Returns the integer at an index.
    pub fn at(&self, index: &[Poly]) -> T {
        let terms = index.iter().zip(&self.strides);
        Rc::new(Term::Index(terms.fold(Poly::int(self.constant), |sum, (i, stride)| sum.plus_times(i, *stride))))
    }
}

impl<'a> Memory<'a> {
    /// Makes the tensors of a block.
    pub fn new(case: &'a Rc<Case>, block: &'a PlannedBlock) -> Memory<'a> {
        Memory { case, block, known: RefCell::default() }
    }

    /// Returns the e-class with this id.
    pub fn class(&self, class: ClassId) -> &'a EClass {
        &self.block.classes.classes[class]
    }

    /// Returns the e-node that the plan chose for an e-class.
    pub fn chosen(&self, class: ClassId) -> Res<&'a ENode> {
        let chosen = self.class(class).nodes.get(self.block.searched.plan.choice[class]);
        chosen.map_or_else(|| stop("an e-class has no e-node"), Ok)
    }

    /// Returns the integers of an e-class that depends on no input, if they are an affine function of their positions.
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

    /// Returns an element of a tensor in memory, by its row-major address.
    pub fn element(&self, class: ClassId, ty: &Ty, flat: Poly) -> Res<T> {
        match self.ids(class) {
            Some(ids) => Ok(ids.at(&unflattened(self.case, &flat, &room_of(&self.class(class).ty)?))),
            None => Ok(read(class, ty, flat)),
        }
    }

    /// Returns a tensor in memory.
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

/// Returns the extents of a tensor. Those that are known only at run time are symbols.
pub fn shape_of(case: &Case, ty: &Type) -> Res<Vec<Item>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a store of a tuple is unsupported") };
    Ok(shape.iter().map(|dim| Item::axis(extent(case, dim))).collect())
}

/// Returns the allocated extent of each axis: the largest that it can be.
pub fn room_of(ty: &Type) -> Res<Vec<Poly>> {
    let Some((_, shape)) = ty.as_tensor() else { return stop("a store of a tuple is unsupported") };
    let room = shape.iter().map(|dim| dim.capacity().map(|n| Poly::int(i128::from(n))));
    room.collect::<Option<_>>().map_or_else(|| stop("an axis has no upper bound"), Ok)
}

/// Returns an extent as a polynomial, and records the bounds of its symbols.
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

/// Returns the address of an element.
pub fn flattened(index: &[Poly], room: &[Poly]) -> Poly {
    room.iter().zip(index).fold(Poly::zero(), |flat, (extent, i)| &(&flat * extent) + i)
}

/// Returns the index of an element, by its address.
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
