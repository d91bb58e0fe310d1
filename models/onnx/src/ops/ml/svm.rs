//! Support vector machines: kernel functions, and votes on pairs of classes.

use eutectic_ir::{DType, Dim, NodeId, Tensor, Type};

use super::{
    linear::weighted,
    rows::{Rows, check_count, numbers},
    scores::{Classes, Transform, complement, opposites, winner},
};
use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[one("SVMRegressor", 1, regressor), many("SVMClassifier", 1, classifier)];

/// Computes the kernel function of each row and each of n support vectors: [rows n].
fn kernel(c: &mut NodeCall<'_, '_>, rows: Rows, vectors: &[f64]) -> NodeResult {
    let params = c.floats("kernel_params")?.unwrap_or_default();
    let [gamma, shift, degree] = [0, 1, 2].map(|at| params.get(at).copied().unwrap_or(0.0));
    let count = vectors.len() / rows.width.max(1);
    let shifted = |c: &mut NodeCall<'_, '_>| {
        let product = weighted(c, rows.x, vectors, count)?;
        let scaled = c.with("mul", product, gamma)?;
        c.with("add", scaled, shift)
    };
    match c.word("kernel_type")?.unwrap_or("LINEAR") {
        "LINEAR" => weighted(c, rows.x, vectors, count),
        "POLY" => {
            let base = shifted(c)?;
            c.with("pow", base, degree)
        }
        "SIGMOID" => {
            let x = shifted(c)?;
            c.apply("tanh", [x])
        }
        "RBF" => {
            let vectors = Tensor::from_f64(DType::F32, &[1, count, rows.width], vectors.iter().copied());
            let vectors = c.weights("vectors", vectors)?;
            let rows_of = rows.count(c);
            let x = c.reshape(rows.x, &[rows_of.clone(), Dim::Known(1), rows.width.into()])?;
            let distance = c.apply("sub", [x, vectors])?;
            let square = c.apply("mul", [distance, distance])?;
            let sum = c.reduce("reduce-sum", square, &[2])?;
            let sum = c.reshape(sum, &[rows_of, count.into()])?;
            let exponent = c.with("mul", sum, -gamma)?;
            c.apply("exp", [exponent])
        }
        other => Err(format!("its kernel_type `{other}` is unknown").into()),
    }
}

/// Reads the support vectors. They must have the width of the rows.
fn vectors(c: &NodeCall<'_, '_>, rows: Rows, count: usize) -> Result<Vec<f64>, NodeError> {
    let vectors = numbers(c, "support_vectors")?;
    rows.wanted(vectors.len() / count.max(1))?;
    check_count("numbers in `support_vectors`", vectors.len(), count * rows.width)?;
    Ok(vectors)
}

/// Computes Σ coefficient · kernel + rho. With `one_class`, the result is its sign.
fn regressor(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let rows = Rows::single(c)?;
    let coefficients = numbers(c, "coefficients")?;
    let supports = usize::try_from(c.int_or("n_supports", 0)?).map_err(|_| "its number of vectors is negative")?;
    let x = if supports > 0 {
        let vectors = vectors(c, rows, supports)?;
        kernel(c, rows, &vectors)?
    } else {
        rows.wanted(coefficients.len())?;
        rows.x
    };
    let product = weighted(c, x, &coefficients, 1)?;
    let y = c.with("add", product, c.floats("rho")?.and_then(|rho| rho.first().copied()).unwrap_or(0.0))?;
    if !c.flag("one_class")? {
        return Ok(y);
    }
    let inside = c.with("gt", y, 0.0)?;
    let (one, other) = (c.number(1.0, y)?, c.number(-1.0, y)?);
    c.apply("where", [inside, one, other])
}

fn classifier(c: &mut NodeCall<'_, '_>) -> Outputs {
    let classes = Classes::read(c, "classlabels_ints")?;
    let rows = Rows::single(c)?;
    let transform = Transform::read(c)?;
    if classes.count() < 2 {
        return Err("it has fewer than two classes".into());
    }
    let (place, scores) = match c.ints("vectors_per_class")?.filter(|counts| counts.iter().any(|n| *n > 0)) {
        Some(counts) => by_vectors(c, rows, &counts, transform, classes.count())?,
        None => by_planes(c, rows, transform, classes.count())?,
    };
    Ok(vec![classes.label(c, place)?, scores])
}

/// Computes the class and the scores of a linear classifier, which has a vector of coefficients for each class.
fn by_planes(
    c: &mut NodeCall<'_, '_>,
    rows: Rows,
    transform: Transform,
    classes: usize,
) -> Result<(NodeId, NodeId), NodeError> {
    let coefficients = numbers(c, "coefficients")?;
    rows.wanted(coefficients.len() / classes)?;
    let product = weighted(c, rows.x, &coefficients, classes)?;
    let scores = c.with("add", product, c.floats("rho")?.and_then(|rho| rho.first().copied()).unwrap_or(0.0))?;
    let mut place = winner(c, scores)?;
    if classes == 2 && c.floats("prob_a")?.is_none_or(|a| a.is_empty()) {
        // The larger of two scores decides, and counts as the score of the second class, as in ONNX Runtime.
        let positive = coefficients.iter().all(|x| *x >= 0.0);
        let most = c.reduce("reduce-max", scores, &[1])?;
        let most = c.reshape(most, &[rows.count(c)])?;
        let second = c.with(if positive { "ge" } else { "gt" }, most, if positive { 0.5 } else { 0.0 })?;
        let one = c.number(1, place)?;
        place = c.apply("where", [second, one, place])?;
    }
    Ok((place, transform.of(c, scores)?))
}

/// Returns the pairs of classes, sorted by the first and then by the second class.
fn pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..classes).flat_map(move |first| (first + 1..classes).map(move |second| (first, second)))
}

/// Computes the class and the scores from the decision values of all pairs of classes. The support vectors of both
/// classes decide a pair.
fn by_vectors(
    c: &mut NodeCall<'_, '_>,
    rows: Rows,
    counts: &[i64],
    transform: Transform,
    classes: usize,
) -> Result<(NodeId, NodeId), NodeError> {
    check_count("numbers in `vectors_per_class`", counts.len(), classes)?;
    let counts: Vec<usize> = counts
        .iter()
        .map(|n| u32::try_from(*n).map(|n| n as usize))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("its vectors_per_class {counts:?} has a negative number"))?;
    let starts: Vec<usize> = (0..classes).map(|class| counts[..class].iter().sum()).collect();
    let total: usize = counts.iter().sum();
    let (coefficients, rho) = (numbers(c, "coefficients")?, numbers(c, "rho")?);
    check_count("coefficients", coefficients.len(), (classes - 1) * total)?;
    check_count("numbers in `rho`", rho.len(), pairs(classes).count())?;
    let vectors = vectors(c, rows, total)?;
    let kernels = kernel(c, rows, &vectors)?;
    // In a pair, the coefficients of the first class are in row `second` − 1, and those of the second class in row
    // `first`.
    let of_pair = |(first, second): (usize, usize)| {
        let own = |vector: usize, class: usize| (starts[class]..starts[class] + counts[class]).contains(&vector);
        let coefficients = &coefficients;
        (0..total).map(move |vector| match (own(vector, first), own(vector, second)) {
            (true, _) => coefficients[(second - 1) * total + vector],
            (_, true) => coefficients[first * total + vector],
            _ => 0.0,
        })
    };
    let matrix: Vec<f64> = pairs(classes).flat_map(|pair| of_pair(pair).collect::<Vec<_>>()).collect();
    let sums = weighted(c, kernels, &matrix, rho.len())?;
    let rho_of_pairs = c.weights("rho", Tensor::from_f64(DType::F32, &[rho.len()], rho))?;
    let sums = c.apply("add", [sums, rho_of_pairs])?;
    let place = voted(c, sums, classes)?;
    let scores = match (c.floats("prob_a")?.unwrap_or_default(), c.floats("prob_b")?.unwrap_or_default()) {
        (a, _) if a.is_empty() && classes > 2 => transform.of(c, sums)?,
        (a, _) if a.is_empty() => match transform {
            Transform::None | Transform::Logistic => opposites(c, sums, transform)?,
            Transform::Probit => {
                return Err("PROBIT with one score for two classes is not supported, because ONNX Runtime returns a single score".into());
            }
            _ => complement(c, sums)?,
        },
        (a, b) => {
            let probable = probabilities(c, sums, [a, b], classes)?;
            transform.of(c, probable)?
        }
    };
    Ok((place, scores))
}

/// Returns the class with the most votes. A positive decision value is a vote for the first class of a pair, any other
/// value one for the second class.
fn voted(c: &mut NodeCall<'_, '_>, sums: NodeId, classes: usize) -> NodeResult {
    let count = pairs(classes).count();
    let mut table = |label: &str, of: fn((usize, usize)) -> usize| {
        let ones = pairs(classes).flat_map(|pair| (0..classes).map(move |class| f64::from(class == of(pair))));
        let table = Tensor::from_f64(DType::F32, &[count, classes], ones);
        c.weights(label, table)
    };
    let (first, second) = (table("first", |(first, _)| first)?, table("second", |(_, second)| second)?);
    let wins = c.with("gt", sums, 0.0)?;
    let loses = c.apply("not", [wins])?;
    let (wins, loses) = (c.cast(wins, DType::F32)?, c.cast(loses, DType::F32)?);
    let (of_first, of_second) = (c.apply("matmul", [wins, first])?, c.apply("matmul", [loses, second])?);
    let votes = c.apply("add", [of_first, of_second])?;
    winner(c, votes)
}

/// The limit on iterations of [`probabilities`].
const ROUNDS: usize = 100;

/// The smallest probability of either class of a pair.
const LEAST: f64 = 1.0e-7;

/// Computes the probabilities of classes from those of pairs (Wu, Lin and Weng, "Probability estimates for multi-class
/// classification by pairwise coupling", 2004, algorithm 2). Each row iterates until its probabilities converge.
fn probabilities(c: &mut NodeCall<'_, '_>, sums: NodeId, [a, b]: [Vec<f64>; 2], classes: usize) -> NodeResult {
    let (rows, count) = (c.dims(sums)[0], pairs(classes).count());
    check_count("numbers in `prob_a`", a.len(), count)?;
    check_count("numbers in `prob_b`", b.len(), count)?;
    let a = c.weights("prob_a", Tensor::from_f64(DType::F32, &[count], a))?;
    let b = c.weights("prob_b", Tensor::from_f64(DType::F32, &[count], b))?;
    let scaled = c.apply("mul", [sums, a])?;
    let shifted = c.apply("add", [scaled, b])?;
    let opposite = c.apply("neg", [shifted])?;
    let first = c.apply("sigmoid", [opposite])?;
    let first = c.op("clamp", &[first], &[("min", LEAST.into()), ("max", (1.0 - LEAST).into())])?;
    let one = c.number(1.0, first)?;
    let second = c.apply("sub", [one, first])?;
    // r[i][j] is the probability of class i, given that the class is i or j. The first half of the columns of `all` has
    // r[i][j] for i < j, and the second half r[j][i].
    let all = c.concat(&[first, second], 1)?;
    let mut r = vec![vec![all; classes]; classes];
    for (at, (i, j)) in pairs(classes).enumerate() {
        r[i][j] = c.slice(all, 1, at, 1)?;
        r[j][i] = c.slice(all, 1, count + at, 1)?;
    }
    let mut cells = Vec::new();
    for i in 0..classes {
        for j in 0..classes {
            cells.push(if i == j {
                let mut sum = c.full(0.0, DType::F32, &[rows, 1])?;
                for row in r.iter().enumerate().filter(|(other, _)| *other != i).map(|(_, row)| row[i]) {
                    let square = c.apply("mul", [row, row])?;
                    sum = c.apply("add", [sum, square])?;
                }
                sum
            } else {
                let product = c.apply("mul", [r[j][i], r[i][j]])?;
                c.apply("neg", [product])?
            });
        }
    }
    let q = c.concat(&cells, 1)?;
    let q = c.reshape(q, &[rows, classes, classes])?;
    let start = c.full(1.0 / classes as f64, DType::F32, &[rows, classes])?;
    let running = c.full(1.0, DType::Bool, &[rows, 1])?;
    let types: Vec<Type> = [running, start].iter().map(|x| c.ty(*x)).collect();
    let body = c.body("couple", |c| {
        let given = types.into_iter().map(|ty| c.body_input(ty)).collect::<Result<Vec<_>, _>>()?;
        let q = c.capture(q)?;
        round(c, given[0], given[1], q, classes)
    })?;
    let results = c.looped(body, ROUNDS, &[running, start], &[], None)?;
    results.get(1).copied().ok_or_else(|| NodeError("the loop of the probabilities has no results".into()))
}

/// Computes one iteration for all rows. Returns whether each row continues, and its probabilities.
fn round(c: &mut NodeCall<'_, '_>, running: NodeId, p: NodeId, q: NodeId, classes: usize) -> Outputs {
    let rows = c.dims(p)[0];
    let column = c.reshape(p, &[rows, classes, 1])?;
    let qp = c.apply("matmul", [q, column])?;
    let mut qp = c.reshape(qp, &[rows, classes])?;
    let each = c.apply("mul", [p, qp])?;
    let mut pqp = c.reduce("reduce-sum", each, &[1])?;
    let error = c.apply("sub", [qp, pqp])?;
    let error = c.apply("abs", [error])?;
    let error = c.reduce("reduce-max", error, &[1])?;
    let far = c.with("ge", error, 0.005 / classes as f64)?;
    let on = c.apply("and", [running, far])?;
    let mut next = p;
    for i in 0..classes {
        let row = c.slice(q, 1, i, 1)?;
        let row = c.reshape(row, &[rows, classes])?;
        let own = c.slice(row, 1, i, 1)?;
        let here = c.slice(qp, 1, i, 1)?;
        let distance = c.apply("sub", [pqp, here])?;
        let step = c.apply("div", [distance, own])?;
        let hit = Tensor::from_f64(DType::F32, &[1, classes], (0..classes).map(|at| f64::from(at == i)));
        let hit = c.constant(hit)?;
        let change = c.apply("mul", [step, hit])?;
        next = c.apply("add", [next, change])?;
        let whole = c.with("add", step, 1.0)?;
        let stepped = c.apply("mul", [step, own])?;
        let twice = c.with("mul", here, 2.0)?;
        let slope = c.apply("add", [stepped, twice])?;
        let rise = c.apply("mul", [step, slope])?;
        let raised = c.apply("add", [pqp, rise])?;
        let once = c.apply("div", [raised, whole])?;
        pqp = c.apply("div", [once, whole])?;
        let moved = c.apply("mul", [step, row])?;
        let moved = c.apply("add", [qp, moved])?;
        qp = c.apply("div", [moved, whole])?;
        next = c.apply("div", [next, whole])?;
    }
    let next = c.apply("where", [on, next, p])?;
    Ok(vec![on, next])
}
