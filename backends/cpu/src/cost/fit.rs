//! Fits the coefficients of the cost model to measured kernels.

use eutectic_backend::{
    costs::{Coefficient, print},
    fit::{Fitted, Freedom, Measured, fitted, off},
};
use toml::{Table, Value};

use super::{coefficients::Costs, model::CostModel};
use crate::machine::Machine;

/// Searches for coefficients near `start` that minimise the mean of |ln predicted/measured| on a machine. Each
/// measurement has its own number of threads. See [`eutectic_backend::fit`].
pub fn fit(start: &Costs, machine: Machine, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
    let table = Table::try_from(start).ok()?;
    let declared = start.coefficients();
    let costs_of = |values: &[f64]| {
        let mut table = table.clone();
        declared.iter().zip(values).for_each(|(coefficient, &to)| set(&mut table, coefficient, to));
        Costs::from_table(table).ok()
    };
    let judge = |values: &[f64]| costs_of(values).map_or(f64::INFINITY, |c| error(&c, machine, measured));
    let costs = costs_of(&fitted(&declared, freedom, judge))?;
    Some(Fitted {
        file: print(&costs.sheet(None)),
        before: predicted(start, machine, measured),
        after: predicted(&costs, machine, measured),
    })
}

/// Returns the mean of |ln predicted/measured| over the measurements.
fn error(costs: &Costs, machine: Machine, measured: &[Measured]) -> f64 {
    off(predicted(costs, machine, measured).into_iter().zip(measured.iter().map(|m| m.seconds)))
}

/// Returns the predicted seconds of each measured kernel.
fn predicted(costs: &Costs, machine: Machine, measured: &[Measured]) -> Vec<f64> {
    let most = measured.iter().map(|m| m.threads).max().unwrap_or(1);
    let model = |threads| CostModel::new(costs.clone(), Machine { threads, lanes: costs.lanes, ..machine });
    let models: Vec<CostModel> = (1..=most).map(model).collect();
    let of =
        |m: &Measured| models.get(m.threads.max(1) - 1).map_or(f64::INFINITY, |model| model.cost(&m.kernel).seconds);
    measured.iter().map(of).collect()
}

fn set(table: &mut Table, coefficient: &Coefficient, to: f64) {
    let inner = match coefficient.table {
        None => Some(table),
        Some(name) => table.get_mut(name).and_then(Value::as_table_mut),
    };
    inner.and_then(|inner| inner.insert(coefficient.name.into(), Value::Float(to)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
    use eutectic_ir::{DType, Op, index::Index};

    /// Returns a kernel that applies `times` exponentials to each of n elements; for 0, a copy.
    fn chain(n: usize, times: usize) -> Kernel {
        let mut body = Body { domain: vec![n], ..Body::default() };
        body.instrs.push(Instr::Load(Load { slot: 0, at: Index::coord(0), guards: Vec::new(), dtype: DType::F32 }));
        for arg in 0..times {
            let op = Op::named("exp").unwrap();
            body.instrs.push(Instr::Map { op, attrs: [].into_iter().collect(), args: vec![arg], dtype: DType::F32 });
        }
        let stores = vec![Store::new(1, Index::coord(0), times)];
        Kernel { anchor: AnchorKernel::map(), body, stores, slots: vec![(DType::F32, n); 2] }
    }

    #[test]
    fn a_fit_is_a_file_that_can_be_read() {
        // Two threads cannot be this fast. Without the range of `thread`, the fit would give the second thread more
        // than the speed of the first.
        let kernel = chain(1 << 16, 4);
        let machine = Machine { threads: 2, ..Machine::default() };
        let seconds = CostModel::new(Costs::default(), machine).cost(&kernel).seconds / 8.0;
        let fitted =
            fit(&Costs::default(), machine, &[Measured { seconds, kernel, threads: 2 }], Freedom::Each).unwrap();
        let costs = Costs::default().over(&fitted.file).unwrap();
        assert!(costs.thread <= 1.0, "{fitted:?}");
    }

    #[test]
    fn what_was_measured_is_found_again() {
        // On the true machine, exponentials take three times as long, and memory has half the bandwidth.
        let start = Costs::default();
        let mut truth = start.clone();
        truth.element.transcendental *= 3.0;
        truth.memory.dram *= 0.5;
        let model = CostModel::new(truth.clone(), Machine::default());
        let sizes = [1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 24];
        let kernels = sizes.into_iter().flat_map(|n| [0, 1, 4].map(|times| chain(n, times)));
        let measured: Vec<Measured> =
            kernels.map(|kernel| Measured { seconds: model.cost(&kernel).seconds, kernel, threads: 1 }).collect();
        let fitted = fit(&start, Machine::default(), &measured, Freedom::Each).unwrap();
        let error = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
        assert!(error(&fitted.before) > 1.5 && error(&fitted.after) < 1.05, "{fitted:?}");
        let costs = Costs::default().over(&fitted.file).unwrap();
        let ratio = |a: f64, b: f64| (a / b).max(b / a);
        assert!(ratio(costs.element.transcendental, truth.element.transcendental) < 1.2, "{fitted:?}");
        assert!(ratio(costs.memory.dram, truth.memory.dram) < 1.2, "{fitted:?}");
        // No kernel depends on the coefficients of products.
        assert_eq!(costs.product.f64, start.product.f64);
    }

    #[test]
    fn few_measurements_move_rates_together() {
        // The true machine has half the clock rate and twice the memory bandwidth. So even functions that no measured
        // kernel calls are slower.
        let start = Costs::default();
        let mut truth = start.clone();
        let element = &mut truth.element;
        for seconds in [&mut element.cheap, &mut element.transcendental, &mut element.special, &mut element.row] {
            *seconds *= 2.0;
        }
        truth.memory.dram *= 2.0;
        let model = CostModel::new(truth.clone(), Machine::default());
        let kernels =
            [1 << 12, 1 << 14, 1 << 23, 1 << 24].into_iter().flat_map(|n| [0, 1, 4].map(|times| chain(n, times)));
        let measured: Vec<Measured> =
            kernels.map(|kernel| Measured { seconds: model.cost(&kernel).seconds, kernel, threads: 1 }).collect();
        let fitted = fit(&start, Machine::default(), &measured, Freedom::Rates).unwrap();
        let costs = Costs::default().over(&fitted.file).unwrap();
        for (name, found, wanted) in
            [("special", costs.element.special, truth.element.special), ("dram", costs.memory.dram, truth.memory.dram)]
        {
            assert!((found / wanted).ln().abs() < 0.2, "{name}: {found:e} {wanted:e}");
        }
        let ratio = |of: fn(&Costs) -> f64| of(&costs) / of(&start);
        assert!((ratio(|c| c.element.special) - ratio(|c| c.element.scalar)).abs() < 1e-9);
        // Sizes and counts keep their values, and no measured kernel depends on the coefficients of products.
        assert_eq!((costs.memory.l2_bytes, costs.element.f64), (start.memory.l2_bytes, start.element.f64));
        assert_eq!(costs.product.f32, start.product.f32);
    }
}
