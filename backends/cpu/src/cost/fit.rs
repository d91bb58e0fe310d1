//! Fits the coefficients of the cost model to kernels that were measured.

use eutectic_backend::fit::{Fitted, Measured, coefficients, off};
use toml::{Table, Value};

use super::{coefficients::Costs, model::CostModel};

/// Looks for coefficients near `start` under which predictions are as near to what was measured as can be, by the mean of
/// |ln predicted/measured|: see [`eutectic_backend::fit`].
pub fn fit(start: &Costs, measured: &[Measured]) -> Option<Fitted> {
    let mut table = Table::try_from(start).ok()?;
    let paths = paths(&table);
    let numbers: Vec<f64> = paths.iter().map(|path| number(&table, path)).collect();
    let costs_of = |table: &mut Table, numbers: &[f64]| {
        paths.iter().zip(numbers).for_each(|(path, &to)| set(table, path, to));
        Costs::from_table(table.clone()).ok()
    };
    let judge = |numbers: &[f64]| costs_of(&mut table.clone(), numbers).map_or(f64::INFINITY, |c| error(&c, measured));
    let found = coefficients(&numbers, judge);
    let costs = costs_of(&mut table, &found)?;
    Some(Fitted { file: costs.print().ok()?, before: predicted(start, measured), after: predicted(&costs, measured) })
}

/// The mean of |ln predicted/measured|.
fn error(costs: &Costs, measured: &[Measured]) -> f64 {
    off(predicted(costs, measured).into_iter().zip(measured.iter().map(|m| m.seconds)))
}

/// Seconds that kernels are predicted to take.
fn predicted(costs: &Costs, measured: &[Measured]) -> Vec<f64> {
    let most = measured.iter().map(|m| m.threads).max().unwrap_or(1);
    let models: Vec<CostModel> = (1..=most).map(|threads| CostModel::new(costs.clone(), threads)).collect();
    let of =
        |m: &Measured| models.get(m.threads.max(1) - 1).map_or(f64::INFINITY, |model| model.cost(&m.kernel).seconds);
    measured.iter().map(of).collect()
}

/// The places of all coefficients.
fn paths(table: &Table) -> Vec<Vec<String>> {
    let below = |(key, value): (&String, &Value)| match value {
        Value::Float(_) => vec![vec![key.clone()]],
        Value::Table(inner) => paths(inner).into_iter().map(|rest| [vec![key.clone()], rest].concat()).collect(),
        _ => Vec::new(),
    };
    table.iter().flat_map(below).collect()
}

fn number(table: &Table, path: &[String]) -> f64 {
    match path {
        [] => f64::NAN,
        [key] => table.get(key).and_then(Value::as_float).unwrap_or(f64::NAN),
        [key, rest @ ..] => table.get(key).and_then(Value::as_table).map_or(f64::NAN, |inner| number(inner, rest)),
    }
}

fn set(table: &mut Table, path: &[String], to: f64) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), Value::Float(to));
        }
        [key, rest @ ..] => {
            if let Some(inner) = table.get_mut(key).and_then(Value::as_table_mut) {
                set(inner, rest, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eutectic_backend::{AnchorKernel, Body, Instr, Kernel, Load, Store};
    use eutectic_ir::{DType, Op, index::Index};

    /// `times` exponentials of each of n elements; without any, a copy.
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
        // On so many threads no kernel is that fast: the fit would have each of them do more than the first one does.
        let kernel = chain(1 << 16, 4);
        let seconds = CostModel::new(Costs::default(), 2).cost(&kernel).seconds / 8.0;
        let fitted = fit(&Costs::default(), &[Measured { seconds, kernel, threads: 2 }]).unwrap();
        let costs = Costs::parse(&fitted.file).unwrap();
        assert!(costs.thread <= 1.0, "{fitted:?}");
    }

    #[test]
    fn what_was_measured_is_found_again() {
        // A machine on which exponentials take three times as long, and memory gives half as much.
        let start = Costs::default();
        let mut truth = start.clone();
        truth.element.transcendental *= 3.0;
        truth.memory.dram *= 0.5;
        let model = CostModel::new(truth.clone(), 1);
        let sizes = [1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 24];
        let kernels = sizes.into_iter().flat_map(|n| [0, 1, 4].map(|times| chain(n, times)));
        let measured: Vec<Measured> =
            kernels.map(|kernel| Measured { seconds: model.cost(&kernel).seconds, kernel, threads: 1 }).collect();
        let fitted = fit(&start, &measured).unwrap();
        let error = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
        assert!(error(&fitted.before) > 1.5 && error(&fitted.after) < 1.05, "{fitted:?}");
        let costs = Costs::parse(&fitted.file).unwrap();
        let ratio = |a: f64, b: f64| (a / b).max(b / a);
        assert!(ratio(costs.element.transcendental, truth.element.transcendental) < 1.2, "{fitted:?}");
        assert!(ratio(costs.memory.dram, truth.memory.dram) < 1.2, "{fitted:?}");
        // No kernel says anything about products.
        assert_eq!(costs.product.f64, start.product.f64);
    }
}
