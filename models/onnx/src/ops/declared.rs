//! Nodes that become an op of the user: a file of rules or a graph declares it with `(onnx DOMAIN NAME)`.

use eutectic_ir::{
    Attr, NodeId, Op,
    ops::{AttrDef, AttrKind, Default},
};

use super::super::{
    call::{NodeCall, NodeResult},
    error::NodeError,
};

/// Applies a declared op to the node's inputs. Attributes are matched by name. Underscores in ONNX names stand for
/// hyphens in declared names.
pub fn declared(call: &mut NodeCall<'_, '_>, op: Op) -> NodeResult {
    let own = op.def().attrs;
    let names: Vec<String> = own.iter().map(|def| def.name.replace('-', "_")).collect();
    if let Some(unknown) = call.attribute_names().find(|name| !names.iter().any(|known| known == name)) {
        let known = if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
        return Err(NodeError(format!("the declared op `{op}` has no attribute `{unknown}`; {known}")));
    }
    let inputs: Vec<NodeId> = (0..call.count()).map(|at| call.input(at)).collect::<Result<_, _>>()?;
    let mut attrs: Vec<(&str, Attr)> = Vec::new();
    for (def, name) in own.iter().zip(&names) {
        match attribute(call, def, name)? {
            Some(value) => attrs.push((def.name, value)),
            None if def.default == Default::None => {
                return Err(NodeError(format!(
                    "its attribute `{name}` is missing, and the declared op `{op}` has no default for it"
                )));
            }
            None => {}
        }
    }
    call.op(op, &inputs, &attrs)
}

/// Returns the value of an attribute, or `None` if the node does not have it.
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
