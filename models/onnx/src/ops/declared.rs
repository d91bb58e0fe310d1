//! Nodes that stand for ops that files of rules or graphs declare: `(onnx DOMAIN NAME)`.

use eutectic_ir::{
    Attr, NodeId, Op,
    ops::{AttrDef, AttrKind, Default},
};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// The op on the inputs of the node, in order. Attributes go by name, where names of ONNX have underscores for hyphens.
pub fn declared(call: &mut NodeCall<'_, '_>, op: Op) -> NodeResult {
    let own = op.def().attrs;
    let names: Vec<String> = own.iter().map(|def| def.name.replace('-', "_")).collect();
    if let Some(unknown) = call.attribute_names().find(|name| !names.iter().any(|known| known == name)) {
        let known = if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
        return Err(NodeError(format!("its attribute `{unknown}` is none of `{op}`: {known}")));
    }
    let inputs: Vec<NodeId> = (0..call.count()).map(|at| call.input(at)).collect::<Result<_, _>>()?;
    let mut attrs: Vec<(&str, Attr)> = Vec::new();
    for (def, name) in own.iter().zip(&names) {
        match attribute(call, def, name)? {
            Some(value) => attrs.push((def.name, value)),
            None if def.default == Default::None => {
                return Err(NodeError(format!("it has no attribute `{name}`, for which `{op}` has no default")));
            }
            None => {}
        }
    }
    call.op(op, &inputs, &attrs)
}

/// The value of an attribute, where the node has it.
fn attribute(call: &NodeCall<'_, '_>, def: &AttrDef, name: &str) -> Result<Option<Attr>, NodeError> {
    Ok(match def.kind {
        AttrKind::Int | AttrKind::Axis => call.int(name)?.map(Attr::from),
        AttrKind::Axes | AttrKind::Perm | AttrKind::Shape => call.ints(name)?.map(|list| Attr::from(&list[..])),
        AttrKind::Float => call.float(name)?.map(Attr::from),
        AttrKind::Bool => call.int(name)?.map(|value| Attr::from(value != 0)),
        AttrKind::Word(_) | AttrKind::Name => call.word(name)?.map(Attr::from),
        AttrKind::DType => call.dtype_attr(name)?.map(Attr::from),
        AttrKind::Type | AttrKind::Tensor | AttrKind::Graph => None,
    })
}
