//! What kernels and steps do with their slots.

use crate::{
    body::Instr,
    kernel::Kernel,
    program::{BufferId, Place, Program, Step},
    reductions::RowValues,
};

/// What a kernel does with a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotAccess {
    /// Whether it loads from it.
    pub read: bool,
    /// Whether it stores to it.
    pub written: bool,
}

/// What a step does with a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Whether its kernel reads and writes it.
    pub access: SlotAccess,
    /// Whether it holds the same in all runs.
    pub constant: bool,
}

impl Kernel {
    /// What it does with each of its slots.
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

    /// For each value of its body, how many reductions over rows follow each other up to it: as many passes over a row that does not
    /// stay, plus one for what is stored of each element, see [`RowValues::passes`].
    pub fn levels(&self) -> Vec<usize> {
        RowValues::of(&self.body.instrs).levels()
    }
}

impl Place {
    /// Whether what lies there is the same in all runs: given or computed when parameters arrive.
    pub fn is_constant(&self) -> bool {
        match self {
            Place::Param(_) | Place::Const(_) | Place::Loaded(_) => true,
            Place::Input(_) | Place::Arena(_) | Place::Output(_) | Place::State(_) => false,
        }
    }
}

impl Program {
    /// What a step does with each of its slots.
    pub fn roles(&self, step: &Step) -> Vec<Role> {
        let accesses = self.kernels[step.kernel].accesses();
        let role = |(access, &buffer): (SlotAccess, &BufferId)| Role {
            access,
            constant: self.buffers[buffer].place.is_constant(),
        };
        accesses.into_iter().zip(&step.buffers).map(role).collect()
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
