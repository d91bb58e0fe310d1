//! Walks from the stores of a kernel down to the stores of other kernels, to find the classes that it computes and
//! reads.

use eutectic_ir::eclasses::{ClassId, EClasses};

use crate::plan::{Plan, PlanError, PlanKernel};

/// The states of a class in the current walk. The mark of a class is `Walker::turn` plus its state, so lower marks
/// belong to earlier walks.
const OPEN: u64 = 0;
const COMPUTED: u64 = 1;
const READ: u64 = 2;
const MARKS: u64 = 3;

/// Finds the classes of kernels. Marks persist between walks, so that a walk takes time in proportion to the visited
/// classes.
pub(crate) struct Walker {
    marks: Vec<u64>,
    /// The first mark of the current walk.
    turn: u64,
    /// The classes under construction, each with the next operand to visit.
    path: Vec<(ClassId, usize)>,
}

impl Walker {
    pub fn new(classes: usize) -> Walker {
        Walker { marks: vec![0; classes], turn: 0, path: Vec::new() }
    }

    /// Returns the kernel that `leader` leads, with these stores in ascending order.
    ///
    /// # Errors
    /// If a needed class has no e-node, or depends on itself.
    pub fn kernel(
        &mut self,
        classes: &EClasses,
        given: &[bool],
        plan: &Plan,
        leader: ClassId,
        stores: Vec<ClassId>,
    ) -> Result<PlanKernel, PlanError> {
        self.turn += MARKS;
        self.path.clear();
        let mut kernel =
            PlanKernel { stores, interior: Vec::with_capacity(16), reads: Vec::with_capacity(8), load: false };
        for at in 0..kernel.stores.len() {
            self.enter(classes, given, plan, leader, kernel.stores[at], &mut kernel)?;
            while let Some((class, next)) = self.path.last_mut() {
                let (class, operands) = (*class, &classes.classes[*class].nodes[plan.choice[*class]].operands);
                match operands.get(*next) {
                    Some(&operand) => {
                        *next += 1;
                        self.enter(classes, given, plan, leader, operand, &mut kernel)?;
                    }
                    None => {
                        self.path.pop();
                        self.marks[class] = self.turn + COMPUTED;
                        kernel.interior.push(class);
                    }
                }
            }
        }
        kernel.reads.sort_unstable();
        Ok(kernel)
    }

    fn enter(
        &mut self,
        classes: &EClasses,
        given: &[bool],
        plan: &Plan,
        leader: ClassId,
        class: ClassId,
        kernel: &mut PlanKernel,
    ) -> Result<(), PlanError> {
        match self.marks[class].checked_sub(self.turn) {
            Some(OPEN) => return Err(PlanError::CyclicChoice(class)),
            Some(_) => return Ok(()),
            None => {}
        }
        let c = &classes.classes[class];
        let number = c.scalar.is_some();
        let mark = if (plan.stored[class] && plan.host[class] != leader) || (given[class] && !number) {
            kernel.reads.push(class);
            READ
        } else if number {
            kernel.interior.push(class);
            COMPUTED
        } else {
            c.nodes.get(plan.choice[class]).ok_or(PlanError::NoChoice(class))?;
            self.path.push((class, 0));
            OPEN
        };
        self.marks[class] = self.turn + mark;
        Ok(())
    }
}
