//! What can be wrong with an ONNX file: damage, missing numbers, data out of reach, ops that are not supported.

use std::{fmt, path::PathBuf};

use super::{opsets::qualified, proto::NodeProto};

/// NodeError an ONNX file is not usable.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no ONNX model, or a damaged one.
    #[error("{}: not a valid ONNX model: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Tensors whose values cannot be had.
    #[error("{}: tensors without usable values:{}", .path.display(), lines(.problems))]
    Tensors {
        /// The file.
        path: PathBuf,
        /// Each tensor with what is wrong.
        problems: Vec<String>,
    },
    /// Dimensions that have no number yet.
    #[error("{}: these dimensions have no number yet: {}", .path.display(), .open.join(", "))]
    Unbound {
        /// The file.
        path: PathBuf,
        /// Their names.
        open: Vec<String>,
    },
    /// A number was given for a dimension that the model does not have.
    #[error("{}: there is no dimension named {name}", .path.display())]
    NoSuchDim {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// An input was to be given in each run, but the file has no value for it.
    #[error("{}: no input with a default is named {name}", .path.display())]
    NoDefault {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// What the reader does not map to ops of ours: everything at once.
    #[error("{}: not supported:{}", .path.display(), lines(&Unsupported::grouped(.problems)))]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Each node with the reason.
        problems: Vec<Unsupported>,
    },
}

/// A node that cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Its op, with the domain if that is not ONNX's own.
    pub op: String,
    /// The version of its domain's op set.
    pub opset: i64,
    /// The node's name; where it has none, the name of its first output.
    pub node: String,
    /// What is missing.
    pub why: String,
}

/// How many nodes of one reason are named.
const NAMED: usize = 3;

impl Unsupported {
    /// What is wrong with a node.
    pub(super) fn at(node: &NodeProto, opset: i64, why: String) -> Unsupported {
        let names = [node.name(), node.output.first().map_or("", |o| o)];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("(no name)");
        Unsupported { op: qualified(node.domain(), node.op_type()), opset, node: name.into(), why }
    }

    /// One line for each op and reason, in the order in which they occur first.
    pub fn grouped(problems: &[Unsupported]) -> Vec<String> {
        let mut groups: Vec<(&Unsupported, Vec<&str>)> = Vec::new();
        for problem in problems {
            match groups.iter_mut().find(|(first, _)| (&first.op, &first.why) == (&problem.op, &problem.why)) {
                Some((_, nodes)) => nodes.push(&problem.node),
                None => groups.push((problem, vec![&problem.node])),
            }
        }
        let line = |(Unsupported { op, opset, why, .. }, nodes): &(&Unsupported, Vec<&str>)| {
            let rest = nodes.len().saturating_sub(NAMED);
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{op} (opset {opset}) at {}{more}: {why}", nodes[..nodes.len().min(NAMED)].join(", "))
        };
        groups.iter().map(line).collect()
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (opset {}) at {}: {}", self.op, self.opset, self.node, self.why)
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

/// NodeError one node cannot be mapped; the importer adds which node it is.
#[derive(Debug)]
pub(super) struct NodeError(pub String);

impl<T: fmt::Display> From<T> for NodeError {
    fn from(reason: T) -> NodeError {
        NodeError(reason.to_string())
    }
}
