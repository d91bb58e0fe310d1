//! Finds loads and stores that reach beyond their buffers. Printed kernels do not check bounds, so a kernel is checked
//! before it runs. Accesses whose index depends on data are not checked here.

use eutectic_backend::{Instr, Kernel, reductions::varying};
use eutectic_ir::index::Index;

/// Returns a description of each load and store that is independent of data and reaches beyond its buffer.
pub fn outside(kernel: &Kernel) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |what: &str, slot: usize, at: &Index, domain: &[usize]| match kernel.slots.get(slot) {
        None => problems.push(format!("cannot {what} buffer {slot} because it does not exist")),
        Some(&(_, count)) if at.affine(domain.len()).is_some() && !domain.contains(&0) => {
            let range = at.range(domain);
            if range.start < 0 || range.end > i64::try_from(count).unwrap_or(i64::MAX) {
                problems
                    .push(format!("cannot {what} buffer {slot} at index {at} because it has only {count} elements"));
            }
        }
        Some(_) => {}
    };
    for body in kernel.bodies() {
        for instr in &body.instrs {
            if let Instr::Load(load) = instr
                && load.guards.is_empty()
            {
                check("load from", load.slot, &load.at, &body.domain);
            }
        }
    }
    let domain = &kernel.body.domain;
    let row = domain.len() - kernel.row_axes().unwrap_or(0)..domain.len();
    let varies = varying(&kernel.body.instrs, row.clone());
    for store in kernel.stores.iter().filter(|store| store.guards.is_empty()) {
        let mut reached = domain.clone();
        // An empty row still has its per-row results, but no per-element ones.
        let is_of_elements = store.maps().any(|map| row.clone().any(|axis| map.mentions(axis)));
        if !is_of_elements && !store.values().into_iter().any(|value| varies[value]) {
            reached[row.clone()].iter_mut().for_each(|n| *n = (*n).max(1));
        }
        check("store to", store.slot, &store.at, &reached);
    }
    problems
}
