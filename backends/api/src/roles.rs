//! Finds out for each slot whether a kernel reads and writes it, and whether its contents are constant.

use crate::{
    body::{Instr, Slot},
    kernel::Kernel,
    program::{BufferId, Place, Program, Step},
    reductions::RowValues,
};

/// The accesses of a kernel to a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotAccess {
    /// Whether the kernel loads from the slot.
    pub read: bool,
    /// Whether the kernel stores to the slot.
    pub written: bool,
}

/// The use of a slot by a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The accesses of the step's kernel to the slot.
    pub access: SlotAccess,
    /// Whether the contents of the slot are equal in all runs.
    pub constant: bool,
}

impl Kernel {
    /// Returns the kernel's accesses to each of its slots.
    pub fn accesses(&self) -> Vec<SlotAccess> {
        let mut accesses = vec![SlotAccess::default(); self.slots.len()];
        for load in self.bodies().into_iter().flat_map(|body| &body.instrs) {
            if let Instr::Load(load) = load
                && let Some(access) = accesses.get_mut(load.slot)
            {
                access.read = true;
            }
        }
        for store in &self.stores {
            if let Some(access) = accesses.get_mut(store.slot) {
                access.written = true;
            }
        }
        accesses
    }

    /// Returns, for each value of the kernel's body, its level ([`RowValues::levels`]). If rows do not stay in fast
    /// memory, this is the number of passes over a row until the value is known.
    pub fn levels(&self) -> Vec<usize> {
        RowValues::of(&self.body.instrs).levels()
    }
}

impl Place {
    /// Returns whether the buffer's contents are equal in all runs: a parameter, a constant, or a result of the load
    /// program.
    pub fn is_constant(&self) -> bool {
        match self {
            Place::Param(_) | Place::Const(_) | Place::Loaded(_) => true,
            Place::Input(_) | Place::Arena(_) | Place::Output(_) | Place::State(_) => false,
        }
    }
}

impl Program {
    /// Returns the use of each slot by a step.
    pub fn roles(&self, step: &Step) -> Vec<Role> {
        let accesses = self.kernels[step.kernel].accesses();
        let role = |(access, &buffer): (SlotAccess, &BufferId)| Role {
            access,
            constant: self.buffers[buffer].place.is_constant(),
        };
        accesses.into_iter().zip(&step.buffers).map(role).collect()
    }

    /// Returns, for each kernel, the slots that it reads and that have constant contents in every step of the run
    /// program that launches it.
    pub fn constants(&self) -> Vec<Vec<Slot>> {
        let mut constants: Vec<Option<Vec<Slot>>> = vec![None; self.kernels.len()];
        for step in &self.run {
            let roles = self.roles(step);
            let is_constant = |slot: &Slot| roles[*slot].constant && roles[*slot].access.read;
            let of_kernel = constants[step.kernel].get_or_insert_with(|| (0..roles.len()).collect());
            of_kernel.retain(is_constant);
        }
        constants.into_iter().map(Option::unwrap_or_default).collect()
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{DType, Origin, index::Index, ops::Reduction};

    use super::*;
    use crate::{
        anchors::AnchorKernel,
        body::{Body, Load, Store},
        program::Buffer,
    };

    fn load(body: &mut Body, slot: usize, dtype: DType) -> usize {
        body.instrs.push(Instr::Load(Load { slot, at: Index::coord(0), guards: Vec::new(), dtype }));
        body.instrs.len() - 1
    }

    fn operand(slot: usize, dtype: DType) -> Body {
        let mut body = Body { domain: vec![4, 4], ..Body::default() };
        body.results = vec![load(&mut body, slot, dtype)];
        body
    }

    #[test]
    fn operands_are_read_and_weights_are_constant() {
        let mut body =
            Body { domain: vec![4, 4], instrs: vec![Instr::Anchor { dtype: DType::F32 }], ..Body::default() };
        let residual = load(&mut body, 2, DType::F32);
        let store = Store::new(2, Index::coord(0), residual);
        let kernel = Kernel {
            anchor: AnchorKernel::product(operand(0, DType::Bf16), operand(1, DType::Bf16)),
            body,
            stores: vec![store],
            slots: vec![(DType::Bf16, 16), (DType::Bf16, 16), (DType::F32, 16)],
        };
        assert_eq!(kernel.accumulator(), Some(DType::F32));
        let buffer = |dtype, place| Buffer { dtype, count: 16, place };
        let places = [Place::Input(0), Place::Param(0), Place::State(0)];
        let program = Program {
            kernels: vec![kernel],
            buffers: places.into_iter().map(|place| buffer(DType::F32, place)).collect(),
            ..Program::default()
        };
        let read = SlotAccess { read: true, written: false };
        let want = [
            Role { access: read, constant: false },
            Role { access: read, constant: true },
            Role { access: SlotAccess { read: true, written: true }, constant: false },
        ];
        assert_eq!(program.roles(&Step::new(0, vec![0, 1, 2], Origin::default())), want);
    }

    #[test]
    fn levels_count_the_reductions_that_follow_each_other() {
        let mut body = Body { domain: vec![4], ..Body::default() };
        let x = load(&mut body, 0, DType::F32);
        body.instrs.push(Instr::reduce(Reduction::Max, x, DType::F32));
        body.instrs.push(Instr::reduce(Reduction::Sum, x + 1, DType::F32));
        let kernel = Kernel { anchor: AnchorKernel::rows(1), body, stores: vec![], slots: vec![(DType::F32, 4)] };
        assert_eq!((kernel.levels(), kernel.accumulator()), (vec![0, 1, 2], None));
    }
}
