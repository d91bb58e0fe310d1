//! Tests that no files of a crate import each other, directly or through other files. A file can then be read and
//! changed with only the files below it. Crates in [`OPEN`] do not satisfy this yet.
//!
//! Files are read as tokens. A path leads to the file that declares its name, through re-exports. A re-export is not an
//! import of the file that has it, unless that file uses the name itself.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    fs,
    path::Path,
};

use petgraph::{algo::tarjan_scc, graph::DiGraph, graph::NodeIndex, visit::EdgeRef};

mod source;

use source::{is_name, tokens_outside_tests};

/// A module of a crate: the names that lead to it.
type Module = Vec<String>;

/// A path as it is written. A `use` also has the name that it declares.
struct Mention {
    path: Vec<String>,
    name: Option<String>,
    public: bool,
}

/// The declarations and imports of a file.
struct File {
    mentions: Vec<Mention>,
    /// The names outside of `use` declarations.
    names: BTreeSet<String>,
}

type Crate = BTreeMap<Module, File>;

/// The crates in which files still import each other. The list only shrinks. In `ir`, the body of a loop is an
/// attribute, so attributes have graphs, whose nodes have attributes.
const OPEN: &[&str] = &["ir"];

#[test]
fn no_files_import_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = crates(&root);
    let mut cycles = String::new();
    let mut edges = 0;
    for name in &crates {
        let mut files = Crate::new();
        read(&root.join(name).join("src"), &[], &mut files);
        let graph = imports(&files);
        edges += graph.edge_count();
        let found = cycles_of(&graph);
        if OPEN.contains(&name.as_str()) {
            assert!(!found.is_empty(), "the files of {name} no longer import each other; remove it from the list OPEN");
            continue;
        }
        for cycle in found {
            cycles += &format!("\n  {name}: {}", cycle.join(" → "));
        }
    }
    assert!(edges > 100, "imports are not found: {edges}");
    assert!(OPEN.iter().all(|open| crates.iter().any(|name| name == open)), "the list OPEN names no crate: {OPEN:?}");
    assert!(cycles.is_empty(), "files import each other; move what they share to a file below them:{cycles}");
}

/// Returns the folders of all crates, from the root of the workspace.
fn crates(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![String::new()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_source = name == "src" || name == "target" || name.starts_with('.');
            if entry.file_type().unwrap().is_dir() && !is_source {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                if root.join(&path).join("Cargo.toml").is_file() && root.join(&path).join("src").is_dir() {
                    found.push(path.clone());
                }
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_cycle_is_found_through_modules_aliases_and_reexports() {
    let graph = |files: &[(&str, &str)]| {
        let module = |name: &str| name.split_terminator('/').map(String::from).collect::<Module>();
        let files: Crate = files.iter().map(|(name, text)| (module(name), parse(text))).collect();
        cycles_of(&imports(&files))
    };
    // The folder re-exports the declarations of its file, and a module is used by its own name.
    let root = ("", "mod a; mod b;");
    let (a, inner) = (("a", "mod inner; pub use inner::X;"), ("a/inner", "use crate::b; pub struct X(b::Y);"));
    let b = ("b", "use super::a::{self, X}; pub struct Y(X);");
    assert_eq!(graph(&[root, a, inner, b]), [["a/inner", "b", "a/inner"]]);
    // Comments, string literals and tests do not import, and a re-export is not a use.
    let b = (
        "b",
        "// crate::a::X\n/* a::X */ const Z: &str = \"crate::a::X\"; #[cfg(test)] mod t { use crate::a::X; } fn f<'a>() -> char { '\"' }",
    );
    assert!(graph(&[root, a, inner, b]).is_empty());
    let inner = ("a/inner", "use super::Z as W; pub struct X(W);");
    let a = ("a", "mod inner; pub use inner::X; pub struct Z; impl Z { fn f(_: X) {} }");
    assert_eq!(graph(&[root, a, inner]), [["a", "a/inner", "a"]]);
}

/// Reads a folder, whose modules are in the module `at`.
fn read(folder: &Path, at: &[String], files: &mut Crate) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_string();
        let module = [at, std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            read(&path, &module, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_folder = stem == "mod" || (at.is_empty() && stem == "lib");
            let text = fs::read_to_string(&path).unwrap();
            files.insert(if is_folder { at.to_vec() } else { module }, parse(&text));
        }
    }
}

/// Returns the graph of the imports between files.
fn imports(files: &Crate) -> DiGraph<String, ()> {
    let mut graph = DiGraph::new();
    let label = |module: &Module| if module.is_empty() { "lib".to_string() } else { module.join("/") };
    let nodes: BTreeMap<_, _> = files.keys().map(|module| (module, graph.add_node(label(module)))).collect();
    for (module, file) in files {
        for mention in &file.mentions {
            let hands_on = mention.public && mention.name.as_ref().is_some_and(|name| !file.names.contains(name));
            if let Some(to) = declares(files, module, &mention.path, 0).filter(|to| *to != module && !hands_on) {
                graph.update_edge(nodes[module], nodes[to], ());
            }
        }
    }
    graph
}

/// Returns the module whose file declares the target of a path in a module. Returns `None` for modules themselves, and
/// for targets outside of the crate.
fn declares<'a>(files: &'a Crate, module: &'a Module, path: &[String], depth: usize) -> Option<&'a Module> {
    let (mut at, mut rest) = (module.clone(), path);
    let child = |at: &Module, name: &str| {
        let inner = [at.as_slice(), &[name.to_string()]].concat();
        files.contains_key(&inner).then_some(inner)
    };
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {}
        name => {
            let alias = |m: &&Mention| m.name.as_deref() == Some(name) && m.path.as_slice() != path;
            if let Some(alias) = files[module].mentions.iter().find(alias).filter(|_| depth < 8) {
                return declares(files, module, &[&alias.path, &path[1..]].concat(), depth + 1);
            }
            child(&at, name)?;
        }
    }
    while let Some((name, after)) = rest.split_first() {
        match name.as_str() {
            "super" => drop(at.pop()?),
            "self" => {}
            name => match child(&at, name) {
                Some(inner) => at = inner,
                None => break,
            },
        }
        rest = after;
    }
    let (at, file) = files.get_key_value(&at)?;
    let named = rest.first()?;
    let handed_on = file.mentions.iter().find(|m| m.public && m.name.as_ref() == Some(named)).filter(|_| depth < 8);
    match handed_on {
        Some(mention) => declares(files, at, &mention.path, depth + 1),
        None => Some(at),
    }
}

/// Returns, for each strongly connected component with several files, a shortest cycle through its first file.
fn cycles_of(graph: &DiGraph<String, ()>) -> Vec<Vec<String>> {
    let groups = tarjan_scc(graph).into_iter().filter(|group| group.len() > 1);
    groups.map(|group| shortest(graph, *group.iter().min().unwrap())).collect()
}

fn shortest(graph: &DiGraph<String, ()>, start: NodeIndex) -> Vec<String> {
    let (mut from, mut queue) = (BTreeMap::new(), VecDeque::from([start]));
    while let Some(node) = queue.pop_front() {
        for next in graph.edges(node).map(|edge| edge.target()) {
            if next == start {
                let back = std::iter::successors(Some(node), |n| from.get(n).copied());
                let mut path: Vec<_> = [start].into_iter().chain(back).map(|n| graph[n].clone()).collect();
                path.reverse();
                return path;
            }
            if let Entry::Vacant(entry) = from.entry(next) {
                entry.insert(node);
                queue.push_back(next);
            }
        }
    }
    unreachable!("the node is in a cycle")
}

/// Reads a file: its paths, and the names in it.
fn parse(text: &str) -> File {
    let tokens = tokens_outside_tests(text);
    let (mut file, mut at) = (File { mentions: Vec::new(), names: BTreeSet::new() }, 0);
    let is = |n: usize, word: &str| tokens.get(n).is_some_and(|t| t == word);
    while at < tokens.len() {
        if is(at, "use") {
            let public = at > 0 && (is(at - 1, "pub") || is(at - 1, ")"));
            at = tree(&tokens, at + 1, &mut Vec::new(), public, &mut file.mentions);
        } else if is_name(&tokens[at]) {
            let mut path = vec![tokens[at].clone()];
            file.names.insert(tokens[at].clone());
            at += 1;
            while is(at, "::") && tokens.get(at + 1).is_some_and(|t| is_name(t)) {
                path.push(tokens[at + 1].clone());
                at += 2;
            }
            if path.len() > 1 {
                file.mentions.push(Mention { path, name: None, public: false });
            }
        } else {
            at += 1;
        }
    }
    file
}

/// Adds the paths of a `use` tree below the path `under`. Returns the position after the tree.
fn tree(tokens: &[String], at: usize, under: &mut Vec<String>, public: bool, into: &mut Vec<Mention>) -> usize {
    let (mut at, depth) = (at, under.len());
    while is_name(&tokens[at]) {
        under.push(tokens[at].clone());
        at += 1;
        if tokens[at] == "::" {
            at += 1;
        }
    }
    if tokens[at] == "{" {
        at += 1;
        while tokens[at] != "}" {
            // The token is a name, a comma, or the placeholder of a name in a macro.
            at = if is_name(&tokens[at]) { tree(tokens, at, under, public, into) } else { at + 1 };
        }
        at += 1;
    } else {
        let all = tokens[at] == "*";
        at += usize::from(all);
        // The loop has read `as` and the alias as names of the path.
        let mut path = under.clone();
        let alias = path.iter().position(|name| name == "as").map(|n| path.split_off(n).swap_remove(1));
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let name = if all { None } else { alias.or_else(|| path.last().cloned()) };
        if all {
            path.push("*".to_string());
        }
        into.push(Mention { path, name, public });
    }
    under.truncate(depth);
    at
}
