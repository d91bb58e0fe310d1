//! Prints graphs in their text form.

use std::fmt::Write;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    Attr, Class, Graph, NodeId, Op,
    graph::{Node, SubGraph},
    lang::sexp::quote,
    ops::{AttrDef, AttrKind, Ops},
};

/// Options of the printed form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether the type of each value follows as a comment.
    pub types: bool,
}

/// Prints a graph with one node per line. [`super::parse`] reads it back.
pub fn print(graph: &Graph, style: Style) -> String {
    let ops = Ops::of(graph);
    let mut text: String = ops.declared().iter().map(|op| declaration(*op)).collect();
    let _ = write!(text, "(graph {}", quote(&graph.name));
    for extent in graph.extents() {
        let (least, most) = extent.bounds.unwrap_or_default();
        let least = if least == 0 { String::new() } else { format!(" :least {least}") };
        let _ = write!(text, "\n  (dim {extent}{least} :most {most})");
    }
    let closed = statements(graph, style, "\n  ", &mut Bodies::default(), &mut text);
    text.push_str(if closed { ")\n" } else { "\n)\n" });
    text
}

/// Returns the declaration of an op, with its documentation.
fn declaration(op: Op) -> String {
    let doc: String = op.def().doc.lines().map(|line| format!(";; {line}\n")).collect();
    op.declared().map_or(String::new(), |declared| format!("{doc}{}\n", declared.text))
}

/// The names of the bodies that are printed already.
#[derive(Clone, Default)]
struct Bodies<'g>(FxHashMap<&'g SubGraph, String>);

/// Prints the statements of a graph, each after the separator `line`, and before them the bodies of its branches and
/// loops. Returns whether the last line has no comment, so that a closing parenthesis may follow on it.
fn statements<'g>(graph: &'g Graph, style: Style, line: &str, bodies: &mut Bodies<'g>, text: &mut String) -> bool {
    for body in graph.nodes().flat_map(|(_, node)| node.attrs.iter().filter_map(Attr::graph)) {
        if bodies.0.contains_key(body) {
            continue;
        }
        // The loops within a body have names within the body. Names of bodies and of ops must differ.
        let mut inner = bodies.clone();
        let mut of_body = String::new();
        let closed = statements(body, style, &format!("{line}  "), &mut inner, &mut of_body);
        let declared = Ops::of(graph);
        let taken = |name: &str| declared.named(name).is_some() || inner.0.values().any(|n| n == name);
        let mut name = body.name.clone();
        while name.is_empty() || taken(&name) {
            name.push('\'');
        }
        let end = if closed { ")" } else { &format!("{line})") };
        let _ = write!(text, "{line}(sub {}{of_body}{end}", word(&name));
        bodies.0.insert(body, name);
    }
    let names = names(graph);
    let mut comment = String::new();
    for (id, node) in graph.nodes() {
        let _ = write!(text, "{comment}{line}{}", statement(id, node, &names, bodies));
        comment = if style.types { format!(" ; {}", node.ty) } else { String::new() };
    }
    for (statement, results) in [("output", graph.outputs()), ("update", graph.updates())] {
        for (name, value) in results {
            let _ = write!(text, "{comment}{line}({statement} {} {})", word(name), names[value.0 as usize]);
            comment = String::new();
        }
    }
    // A parenthesis after a comment would be part of the comment.
    comment.is_empty()
}

/// Returns the name of each value: that of the input, parameter or state, and otherwise its number.
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

fn statement(id: NodeId, node: &Node, names: &[String], bodies: &Bodies<'_>) -> String {
    let name = &names[id.0 as usize];
    let given = node.op.def().attrs.iter().zip(&node.attrs);
    let mut text = match node.op.def().class {
        // The attributes of leaves are written in order, after the name if there is one.
        Class::Leaf(_) if node.attrs.len() <= 2 => {
            let rest = given.filter(|(def, _)| def.kind != AttrKind::Name);
            let rest: Vec<_> = rest.map(|(_, value)| value.to_string()).collect();
            format!("({} {name} {}", node.op, rest.join(" "))
        }
        _ => {
            let operands = node.operands.iter().map(|o| format!(" {}", names[o.0 as usize]));
            let attrs = given.filter(|(def, value)| !def.is_default(value)).map(|given| attribute(given, bodies));
            format!("(let {name} ({}{})", node.op, operands.chain(attrs).collect::<String>())
        }
    };
    if !node.origin.path().is_empty() {
        let _ = write!(text, " :origin {}", word(node.origin.path()));
    }
    text + ")"
}

fn attribute((def, value): (&AttrDef, &Attr), bodies: &Bodies<'_>) -> String {
    match (def.kind, value) {
        (_, Attr::Graph(body)) => {
            format!(" :{} {}", def.name, bodies.0.get(body).map_or(String::new(), |name| word(name)))
        }
        (AttrKind::Name, Attr::Word(name)) => format!(" :{} {}", def.name, word(name)),
        _ => format!(" :{} {value}", def.name),
    }
}

/// Returns a name, in quotes if it would not read back as one word.
fn word(name: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"()[]{}\";".contains(c);
    if !name.is_empty() && !name.starts_with(':') && name.chars().all(plain) { name.into() } else { quote(name) }
}
