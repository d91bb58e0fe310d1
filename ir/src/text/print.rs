//! Prints graphs.

use std::fmt::Write;

use rustc_hash::FxHashSet;

use crate::{
    Attr, Class, Graph, NodeId,
    graph::Node,
    lang::sexp::quote,
    ops::{AttrDef, AttrKind},
};

/// What is printed beside the graph itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// The type of each value, as a comment.
    pub types: bool,
}

/// Prints a graph, one node a line; [`super::parse`] reads it back.
pub fn print(graph: &Graph, style: Style) -> String {
    let names = names(graph);
    let mut text = format!("(graph {}", quote(&graph.name));
    for extent in graph.extents() {
        let (least, most) = extent.bounds.unwrap_or_default();
        let least = if least == 0 { String::new() } else { format!(" :least {least}") };
        let _ = write!(text, "\n  (dim {extent}{least} :most {most})");
    }
    let mut comment = String::new();
    for (id, node) in graph.nodes() {
        let _ = write!(text, "{comment}\n  {}", statement(id, node, &names));
        comment = if style.types { format!(" ; {}", node.ty) } else { String::new() };
    }
    for (statement, results) in [("output", graph.outputs()), ("update", graph.updates())] {
        for (name, value) in results {
            let _ = write!(text, "{comment}\n  ({statement} {} {})", word(name), names[value.0 as usize]);
            comment = String::new();
        }
    }
    // A comment runs to the end of its line.
    text.push_str(if comment.is_empty() { ")\n" } else { "\n)\n" });
    text
}

/// The name of each value: that of an input, a parameter or a state, else its number.
fn names(graph: &Graph) -> Vec<String> {
    let own = |node: &Node| own_name(node).map(word);
    let taken: FxHashSet<String> = graph.nodes().filter_map(|(_, n)| own(n)).collect();
    let numbered = |id: NodeId| {
        let mut name = format!("v{}", id.0);
        while taken.contains(&name) {
            name.push('_');
        }
        name
    };
    graph.nodes().map(|(id, node)| own(node).unwrap_or_else(|| numbered(id))).collect()
}

fn own_name(node: &Node) -> Option<&str> {
    let first = node.op.def().attrs.first()?;
    (first.kind == AttrKind::Name).then(|| node.attrs[0].word())?
}

fn statement(id: NodeId, node: &Node, names: &[String]) -> String {
    let name = &names[id.0 as usize];
    let given = node.op.def().attrs.iter().zip(&node.attrs);
    let mut text = match node.op.def().class {
        // Leaves whose attributes stand in order; a name comes first.
        Class::Leaf(_) if node.attrs.len() <= 2 => {
            let rest = given.filter(|(def, _)| def.kind != AttrKind::Name);
            let rest: Vec<_> = rest.map(|(_, value)| value.to_string()).collect();
            format!("({} {name} {}", node.op, rest.join(" "))
        }
        _ => {
            let operands = node.operands.iter().map(|o| format!(" {}", names[o.0 as usize]));
            let attrs = given.filter(|(def, value)| !def.is_default(value)).map(attribute);
            format!("(let {name} ({}{})", node.op, operands.chain(attrs).collect::<String>())
        }
    };
    if !node.origin.path().is_empty() {
        let _ = write!(text, " :origin {}", word(node.origin.path()));
    }
    text + ")"
}

fn attribute((def, value): (&AttrDef, &Attr)) -> String {
    match (def.kind, value) {
        (AttrKind::Name, Attr::Word(name)) => format!(" :{} {}", def.name, word(name)),
        _ => format!(" :{} {value}", def.name),
    }
}

/// A name, quoted where it would not read back as one word.
fn word(name: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"()[]{}\";".contains(c);
    if !name.is_empty() && !name.starts_with(':') && name.chars().all(plain) { name.into() } else { quote(name) }
}
