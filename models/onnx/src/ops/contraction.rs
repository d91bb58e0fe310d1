//! Matrix products, and Einstein sums, which become matrix products of views.

use eutectic_ir::{Dim, NodeId};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    layout::count,
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("MatMul", 1, matmul), one("Gemm", 7, gemm), one("Einsum", 12, einsum)];

fn matmul(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (a, b) = (c.input(0)?, c.input(1)?);
    product_of_matrices(c, a, b)
}

/// Computes a matrix product by NumPy's rules. A vector on the left is a row, and one on the right is a column. The
/// result does not have the axis that this adds.
pub(super) fn product_of_matrices(c: &mut NodeCall<'_, '_>, mut a: NodeId, mut b: NodeId) -> NodeResult {
    let (left, right) = (c.shape(a), c.shape(b));
    if let [k] = &left[..] {
        a = c.reshape(a, &[Dim::Known(1), k.clone()])?;
    }
    if let [k] = &right[..] {
        b = c.reshape(b, &[k.clone(), Dim::Known(1)])?;
    }
    let product = c.apply("matmul", [a, b])?;
    let mut dims = c.shape(product);
    let rank = dims.len();
    if right.len() == 1 {
        dims.remove(rank - 1);
    }
    if left.len() == 1 {
        dims.remove(rank - 2);
    }
    c.reshape(product, &dims)
}

/// Computes alpha·A·B + beta·C. The attributes `transA` and `transB` transpose A and B.
pub(super) fn gemm(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let mut operand = |at: usize, attr: &str| {
        let x = c.input(at)?;
        if c.flag(attr)? { c.transpose(x, &[1, 0]) } else { Ok(x) }
    };
    let (a, b) = (operand(0, "transA")?, operand(1, "transB")?);
    let (alpha, beta) = (c.float_or("alpha", 1.0)?, c.float_or("beta", 1.0)?);
    let product = c.apply("matmul", [a, b])?;
    let scaled = if alpha == 1.0 { product } else { c.with("mul", product, alpha)? };
    // As in BLAS, C is not read if beta is 0, even if it contains NaN.
    let Some(bias) = c.optional(2).filter(|_| beta != 0.0) else { return Ok(scaled) };
    let bias = if beta == 1.0 { bias } else { c.with("mul", bias, beta)? };
    c.apply("add", [scaled, bias])
}

/// An operand whose axes are named by letters.
#[derive(Clone)]
struct EinsumTerm {
    value: NodeId,
    axes: Vec<char>,
}

/// Imports `Einsum` as a sequence of batched products of two operands. Each product sums over the letters that no later
/// operand and no result has.
fn einsum(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let text: String =
        c.word("equation")?.ok_or("it has no equation")?.chars().filter(|l| !l.is_whitespace()).collect();
    let (left, right) = text.split_once("->").map_or((text.as_str(), None), |(l, r)| (l, Some(r)));
    let inputs = c.inputs();
    let names: Vec<&str> = left.split(',').collect();
    if names.len() != inputs.len() {
        return Err(
            format!("its equation `{text}` has {} operands, but the node has {}", names.len(), inputs.len()).into()
        );
    }
    // An ellipsis stands for trailing axes, which are aligned at the last one as in broadcasting.
    let rest = |named: usize, rank: usize| {
        rank.checked_sub(named).map(|n| (0..n as u32).rev().filter_map(|i| char::from_u32(0xe000 + i)))
    };
    let spelled = |axes: &str, rank: usize| -> Option<Vec<char>> {
        match axes.split_once("...") {
            Some((a, b)) => Some(a.chars().chain(rest(a.len() + b.len(), rank)?).chain(b.chars()).collect()),
            None => Some(axes.chars().collect()),
        }
    };
    let mut terms = Vec::new();
    for (axes, value) in names.into_iter().zip(inputs) {
        let rank = c.rank(value);
        let axes = spelled(axes, rank).filter(|a| a.len() == rank);
        terms.push(EinsumTerm {
            value,
            axes: axes.ok_or_else(|| format!("its term `{text}` does not fit an operand with {rank} axes"))?,
        });
    }
    let hidden = |l: &char| ('\u{e000}'..='\u{f8ff}').contains(l);
    let mut everything: Vec<char> = terms.iter().flat_map(|t| t.axes.clone()).collect();
    everything.sort_unstable();
    let mut ellipsis: Vec<char> = everything.iter().copied().filter(hidden).collect();
    ellipsis.dedup();
    ellipsis.reverse();
    let wanted: Vec<char> = match right {
        Some(axes) => {
            let named = axes.len() - axes.matches("...").count() * 3;
            spelled(axes, named + ellipsis.len()).unwrap_or_default()
        }
        // Without an arrow, the result has the letters that occur once, in alphabetical order.
        None => {
            let once = everything.chunk_by(|a, b| a == b).filter(|same| same.len() == 1 && !hidden(&same[0]));
            ellipsis.iter().copied().chain(once.map(|same| same[0])).collect()
        }
    };
    if let Some((_, _, name)) = pair(&wanted) {
        return Err(format!("its equation `{text}` names the axis {name} of its result twice").into());
    }
    let terms: Vec<EinsumTerm> = terms.into_iter().map(|t| diagonal(c, t)).collect::<Result<_, _>>()?;
    let mut terms = terms.into_iter();
    let mut all = terms.next().ok_or("it has no inputs")?;
    let rest: Vec<EinsumTerm> = terms.collect();
    for (i, next) in rest.iter().enumerate() {
        let later = |l: &char| wanted.contains(l) || rest[i + 1..].iter().any(|t| t.axes.contains(l));
        all = product(c, all, next.clone(), &later)?;
    }
    let all = summed(c, all, &|l| wanted.contains(l))?;
    arranged(c, &all, &wanted)
}

/// Finds two axes with the same letter. Returns their indices and the letter.
fn pair(axes: &[char]) -> Option<(usize, usize, char)> {
    axes.iter().enumerate().find_map(|(at, name)| {
        let other = axes[at + 1..].iter().position(|other| other == name)?;
        Some((at, at + 1 + other, *name))
    })
}

/// Replaces two axes with the same letter by their diagonal. In the n² flattened elements, the diagonal has a stride of
/// n + 1.
fn diagonal(c: &mut NodeCall<'_, '_>, mut term: EinsumTerm) -> Result<EinsumTerm, NodeError> {
    while let Some((first, second, name)) = pair(&term.axes) {
        let dims = c.dims(term.value);
        let n = dims[first];
        if dims[second] != n {
            return Err(format!("an operand has the axis {name} twice, with {n} and {} elements", dims[second]).into());
        }
        let rest: Vec<usize> = (0..dims.len()).filter(|&axis| axis != first && axis != second).collect();
        let mut extents: Vec<usize> = rest.iter().map(|&axis| dims[axis]).collect();
        let ordered = c.transpose(term.value, &[rest.as_slice(), &[first, second]].concat())?;
        extents.push(n * n);
        let flat = c.reshape(ordered, &extents)?;
        let value = match n {
            0 | 1 => flat,
            _ => c.slice_by(flat, rest.len(), 0, n, n as i64 + 1)?,
        };
        let axes = rest.iter().map(|&axis| term.axes[axis]).chain([name]).collect();
        term = EinsumTerm { value, axes };
    }
    Ok(term)
}

/// Sums over the axes whose letter `kept` rejects.
fn summed(c: &mut NodeCall<'_, '_>, term: EinsumTerm, kept: &dyn Fn(&char) -> bool) -> Result<EinsumTerm, NodeError> {
    let gone: Vec<usize> = (0..term.axes.len()).filter(|&i| !kept(&term.axes[i])).collect();
    let axes: Vec<char> = term.axes.iter().copied().filter(|l| kept(l)).collect();
    let shape = c.shape(term.value).into_iter().enumerate();
    let dims: Vec<Dim> = shape.filter(|(i, _)| !gone.contains(i)).map(|(_, n)| n).collect();
    let sum = c.reduce("reduce-sum", term.value, &gone)?;
    Ok(EinsumTerm { value: c.reshape(sum, &dims)?, axes })
}

/// Transposes a term to the given order of axes.
fn arranged(c: &mut NodeCall<'_, '_>, term: &EinsumTerm, order: &[char]) -> NodeResult {
    let at = |l: &char| {
        term.axes.iter().position(|a| a == l).ok_or_else(|| NodeError(format!("no operand has the axis {l}")))
    };
    let perm: Vec<usize> = order.iter().map(at).collect::<Result<_, _>>()?;
    c.transpose(term.value, &perm)
}

/// Multiplies two operands. An axis of both is a batch axis if `later` needs it, and otherwise the product sums over
/// it.
fn product(
    c: &mut NodeCall<'_, '_>,
    a: EinsumTerm,
    b: EinsumTerm,
    later: &dyn Fn(&char) -> bool,
) -> Result<EinsumTerm, NodeError> {
    let a = {
        let kept = |l: &char| later(l) || b.axes.contains(l);
        summed(c, a, &kept)?
    };
    let b = {
        let kept = |l: &char| later(l) || a.axes.contains(l);
        summed(c, b, &kept)?
    };
    let extent = |c: &NodeCall<'_, '_>, t: &EinsumTerm, l: &char| {
        t.axes.iter().position(|x| x == l).map(|i| c.shape(t.value)[i].clone())
    };
    let of =
        |t: &EinsumTerm, f: &dyn Fn(&char) -> bool| -> Vec<char> { t.axes.iter().copied().filter(|l| f(l)).collect() };
    let batch = of(&a, &|l| b.axes.contains(l) && later(l));
    let inner = of(&a, &|l| b.axes.contains(l) && !later(l));
    let (rows, columns) = (of(&a, &|l| !b.axes.contains(l)), of(&b, &|l| !a.axes.contains(l)));
    // Broadcasts an extent of 1 to the extent of the other operand.
    let both = |axes: &[char]| -> Result<Vec<Dim>, NodeError> {
        let side = |t: &EinsumTerm| axes.iter().map(|l| extent(c, t, l).unwrap_or(Dim::Known(1))).collect::<Vec<_>>();
        c.broadcast(&side(&a), &side(&b))
    };
    let (batch_dims, inner_dims) = (both(&batch)?, both(&inner)?);
    let own = |c: &NodeCall<'_, '_>, t: &EinsumTerm, axes: &[char]| {
        axes.iter().filter_map(|l| extent(c, t, l)).collect::<Vec<_>>()
    };
    let (row_dims, column_dims) = (own(c, &a, &rows), own(c, &b, &columns));
    let matrix = |c: &mut NodeCall<'_, '_>, t: &EinsumTerm, order: [&[char]; 3], dims: [&[Dim]; 3]| {
        let ordered = arranged(c, t, &order.concat())?;
        let whole = c.expand(ordered, &dims.concat())?;
        c.reshape(whole, &dims.map(count))
    };
    let left = matrix(c, &a, [&batch, &rows, &inner], [&batch_dims, &row_dims, &inner_dims])?;
    let right = matrix(c, &b, [&batch, &inner, &columns], [&batch_dims, &inner_dims, &column_dims])?;
    let result = c.apply("matmul", [left, right])?;
    let value = c.reshape(result, &[batch_dims, row_dims, column_dims].concat())?;
    Ok(EinsumTerm { value, axes: [batch, rows, columns].concat() })
}
