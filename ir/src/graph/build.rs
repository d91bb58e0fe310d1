//! Builder methods for the common ops, so that models read as formulas. Each method calls [`Graph::apply`] with the
//! op's name.

use super::{Graph, GraphError, NodeId};
use crate::{Attr, DType, Shape};

/// Defines a method for each op. Its arguments are the operands, then the attributes with their types.
macro_rules! builders {
    ($($op:literal $method:ident($($operand:ident),* $(; $($attr:ident: $ty:ty),*)?);)*) => {
        impl Graph {
            $(
                #[doc = concat!("Adds the op `", $op, "`.\n\n# Errors\nIf operands or attributes do not fit the op's signature.")]
                pub fn $method(&mut self, $($operand: NodeId,)* $($($attr: $ty),*)?) -> Result<NodeId, GraphError> {
                    self.apply($op, &[$($operand),*], &[$($((stringify!($attr), Attr::from($attr))),*)?])
                }
            )*
        }

        #[cfg(test)]
        const BUILT: &[(&str, &[&str], &[&str])] =
            &[$(($op, &[$(stringify!($operand)),*], &[$($(stringify!($attr)),*)?])),*];
    };
}

builders! {
    "neg" neg(x);
    "abs" abs(x);
    "exp" exp(x);
    "log" log(x);
    "sqrt" sqrt(x);
    "rsqrt" rsqrt(x);
    "reciprocal" reciprocal(x);
    "sin" sin(x);
    "cos" cos(x);
    "tanh" tanh(x);
    "erf" erf(x);
    "sigmoid" sigmoid(x);
    "not" not(x);
    "and" and(a, b);
    "ne" ne(a, b);
    "add" add(a, b);
    "sub" sub(a, b);
    "mul" mul(a, b);
    "div" div(a, b);
    "max" max(a, b);
    "min" min(a, b);
    "pow" pow(a, b);
    "eq" eq(a, b);
    "lt" lt(a, b);
    "gt" gt(a, b);
    "where" select(condition, a, b);
    "cast" cast(x; to: DType);
    "act" act(x; kind: &str);
    "iota" iota(; shape: Shape, axis: i64, dtype: DType);
    "transpose" transpose(x; perm: &[i64]);
    "reshape" reshape(x; shape: Shape);
    "expand" expand(x; shape: Shape);
    "slice" slice(x; axis: i64, at: i64, len: i64);
    "pad" pad(x; axis: i64, before: i64, after: i64, value: f64);
    "concat" concat(a, b; axis: i64);
    "gather" gather(table, ids; axis: i64);
    "update-slice" update_slice(x, part, at; axis: i64);
    "matmul" matmul(a, b);
    "reduce-sum" reduce_sum(x; axes: &[i64], keep: bool);
    "reduce-max" reduce_max(x; axes: &[i64], keep: bool);
    "reduce-mean" reduce_mean(x; axes: &[i64], keep: bool);
    "softmax" softmax(x; axis: i64);
    "layernorm" layernorm(x, g, b; eps: f64);
    "rmsnorm" rmsnorm(x, g; eps: f64);
    "linear" linear(x, w, b; act: &str);
    "lora" lora(x, w, a, b; scale: f64);
    "glu" glu(p; gate: &str, act: &str);
    "rope" rope(x, cos, sin; style: &str);
    "get" get(t; index: i64);
}

#[cfg(test)]
mod tests {
    use crate::Op;

    #[test]
    fn builders_follow_the_table() {
        for &(name, operands, attrs) in super::BUILT {
            let op = Op::named(name).unwrap_or_else(|| panic!("there is no op {name}"));
            let (least, most) = (op.signature().required, op.signature().operands.len());
            assert!(
                name == "get" || (least..=most).contains(&operands.len()),
                "{name} takes {least} to {most} operands"
            );
            assert!(attrs.iter().all(|a| op.attr(a).is_some()), "{name} has no such attribute: {attrs:?}");
            let missing =
                op.def().attrs.iter().find(|a| a.default == crate::ops::Default::None && !attrs.contains(&a.name));
            assert!(missing.is_none(), "{name} needs {missing:?}");
        }
    }
}
