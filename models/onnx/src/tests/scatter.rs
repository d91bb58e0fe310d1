//! Compares writes by index with a loop over the updates. Known ids must not become a search over all pairs of ids and
//! places.

use eutectic_ir::{DType, Tensor, interp::interpret};

use super::*;

/// A test case: the extents of the data, the ids and their extents, the extents of the updates, and the axis of
/// `ScatterElements`.
struct Case {
    dims: Vec<usize>,
    ids: Vec<i64>,
    given: Vec<usize>,
    updates: Vec<usize>,
    axis: Option<usize>,
}

impl Case {
    /// Returns the case whose ids are the grid of the given coordinates along the first axes.
    fn grid(dims: &[usize], coordinates: &[Vec<i64>]) -> Case {
        let counts: Vec<usize> = coordinates.iter().map(Vec::len).collect();
        let mut ids = vec![Vec::new()];
        for along in coordinates {
            let with = |id: &Vec<i64>| along.iter().map(|&at| [id.as_slice(), &[at]].concat()).collect::<Vec<_>>();
            ids = ids.iter().flat_map(with).collect();
        }
        Case {
            dims: dims.to_vec(),
            ids: ids.concat(),
            given: [counts.as_slice(), &[counts.len()]].concat(),
            updates: [counts.as_slice(), &dims[counts.len()..]].concat(),
            axis: None,
        }
    }

    /// Returns the data after the updates, applied one after another.
    fn wanted(&self, data: &[f64], updates: &[f64], how: &str) -> Vec<f64> {
        let mut data = data.to_vec();
        let depth = if self.axis.is_some() { self.dims.len() } else { self.given[self.given.len() - 1] };
        let row: usize = self.dims[depth..].iter().product();
        for (number, update) in updates.chunks(row).enumerate() {
            let mut place = 0;
            for at in 0..depth {
                let coordinate = match self.axis {
                    Some(axis) if at == axis => self.ids[number],
                    Some(_) => (number / self.given[at + 1..].iter().product::<usize>() % self.given[at]) as i64,
                    None => self.ids[number * depth + at],
                };
                place = place * self.dims[at] + coordinate.rem_euclid(self.dims[at] as i64) as usize;
            }
            for (old, new) in data[place * row..(place + 1) * row].iter_mut().zip(update) {
                *old = match how {
                    "add" => *old + new,
                    "mul" => *old * new,
                    "max" => old.max(*new),
                    "min" => old.min(*new),
                    _ => *new,
                };
            }
        }
        data
    }

    /// Returns a model with the node. The ids are computed from a tensor of the file.
    fn model(&self, how: &str) -> ModelProto {
        let of = |name: &str, dims: &[usize]| port(name, &dims.iter().map(|&n| n as i64).collect::<Vec<_>>());
        let ids = TensorProto { dims: self.given.iter().map(|&n| n as i64).collect(), ..integers("ids", &self.ids) };
        let reduction = word("reduction", how);
        let (op, attributes) = match self.axis {
            Some(axis) => ("ScatterElements", vec![reduction, int("axis", axis as i64)]),
            None => ("ScatterND", vec![reduction]),
        };
        let mut model = model(GraphProto {
            input: vec![of("data", &self.dims), of("updates", &self.updates)],
            output: vec![port("y", &[1])],
            initializer: vec![ids, integers("zero", &[0])],
            node: vec![
                node("Add", &["ids", "zero"], &["at"], vec![]),
                node(op, &["data", "at", "updates"], &["y"], attributes),
            ],
            ..Default::default()
        });
        model.opset_import[0].version = Some(18);
        model
    }

    /// Returns the imported model and its result.
    fn result(&self, data: &[f64], updates: &[f64], how: &str) -> (Imported, Vec<f64>) {
        let imported = import(&self.model(how)).unwrap();
        let given = |name: &str| match name {
            "data" => Some(Tensor::from_f64(DType::F32, &self.dims, data.iter().copied())),
            "updates" => Some(Tensor::from_f64(DType::F32, &self.updates, updates.iter().copied())),
            name => imported.params().unwrap().get(name).cloned(),
        };
        let result = interpret::<f64>(&imported.graph, &given).unwrap()[0].to_tensor().to_f64();
        (imported, result)
    }
}

/// Returns small numbers whose products are exact.
fn numbers(dims: &[usize], from: usize) -> Vec<f64> {
    (0..dims.iter().product()).map(|i: usize| ((i * 7 + from) % 13) as f64 - 6.0).collect()
}

/// Tests slices as exporters write them. Most of them have more ids than the import evaluates at once.
fn slices() -> Vec<Case> {
    let upto = |from: i64, to: i64, step: usize| (from..to).step_by(step).collect::<Vec<_>>();
    let columns = |dims: &[usize], axis: usize, ids: Vec<i64>| {
        let mut given = dims.to_vec();
        given[axis] = ids.len();
        let inner: usize = dims[axis + 1..].iter().product();
        let outer: usize = dims[..axis].iter().product();
        let all = (0..outer).flat_map(|_| ids.iter().flat_map(move |&id| vec![id; inner])).collect();
        Case { dims: dims.to_vec(), ids: all, given: given.clone(), updates: given, axis: Some(axis) }
    };
    vec![
        Case::grid(&[41, 43, 3], &[upto(1, 41, 1), upto(1, 43, 1), upto(0, 3, 1)]),
        Case::grid(&[37, 64, 2], &[upto(0, 37, 1), upto(1, 64, 2), vec![1]]),
        Case::grid(&[37, 65, 2], &[upto(0, 37, 1), upto(1, 64, 2), vec![1]]),
        Case::grid(&[5, 7], &[vec![-2]]),
        Case::grid(&[97, 3], &[upto(0, 97, 1).into_iter().rev().collect()]),
        columns(&[19, 31, 11], 1, upto(4, 30, 1)),
        columns(&[19, 31, 11], 1, upto(0, 31, 3).into_iter().rev().collect()),
        columns(&[2, 3], 0, vec![1]),
    ]
}

#[test]
fn known_places_are_not_looked_for_among_all_pairs() {
    for case in slices() {
        for how in ["none", "add", "mul", "max", "min"] {
            let (data, updates) = (numbers(&case.dims, 0), numbers(&case.updates, 5));
            let (imported, got) = case.result(&data, &updates, how);
            assert_eq!(got, case.wanted(&data, &updates, how), "{how} {:?} {:?}", case.dims, case.updates);
            let largest = imported.graph.nodes().map(|(_, node)| node.ty.count()).max().unwrap();
            assert!(largest <= data.len().max(case.ids.len()), "{how} {:?}: {largest}", case.dims);
        }
    }
}

#[test]
fn updates_that_share_a_place_are_combined() {
    let dims = vec![6, 2];
    let case = Case { ids: vec![4, 1, 4, -2, 0], given: vec![5, 1], updates: vec![5, 2], axis: None, dims };
    for how in ["none", "add", "mul", "max", "min"] {
        let (data, updates) = (numbers(&case.dims, 0), numbers(&case.updates, 5));
        assert_eq!(case.result(&data, &updates, how).1, case.wanted(&data, &updates, how), "{how}");
    }
}

#[test]
fn known_places_that_are_none_are_refused() {
    let refusal = |case: &Case, how: &str| import(&case.model(how)).unwrap_err().to_string();
    for how in ["none", "add"] {
        for (id, place) in [(6, "6"), (-7, "-7"), (i64::MIN, "-9223372036854775808"), (i64::MAX, "9223372036854775807")]
        {
            let rows = Case { dims: vec![6, 2], ids: vec![4, id], given: vec![2, 1], updates: vec![2, 2], axis: None };
            let told = |at: &str| {
                format!("id {place} is out of range for an axis of 6; ids must be in -6..6 (element {at} of the ids)")
            };
            assert!(refusal(&rows, how).contains(&told("[1, 0]")), "{}", refusal(&rows, how));
            let elements =
                Case { dims: vec![2, 6], ids: vec![4, id], given: vec![1, 2], updates: vec![1, 2], axis: Some(1) };
            assert!(refusal(&elements, how).contains(&told("[0, 1]")), "{}", refusal(&elements, how));
        }
        let wide = Case { dims: vec![2, 6], ids: vec![0; 3], given: vec![3, 1], updates: vec![3, 1], axis: Some(1) };
        assert!(
            refusal(&wide, how).contains("its ids have an extent of 3 along axis 0, but its data only 2"),
            "{}",
            refusal(&wide, how)
        );
    }
}
