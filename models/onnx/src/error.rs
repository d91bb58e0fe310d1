//! Errors of ONNX files: damage, open dimensions, inaccessible data, and unsupported ops.

use std::{fmt, path::PathBuf};

use super::{opsets::qualified, proto::NodeProto};

/// Reasons why an ONNX file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not an ONNX model, or it is damaged.
    #[error("{}: not a valid ONNX model: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The defect.
        problem: String,
    },
    /// The values of some tensors cannot be read.
    #[error("{}: cannot read the values of these tensors:{}", .path.display(), lines(.problems))]
    Tensors {
        /// The file.
        path: PathBuf,
        /// One entry for each such tensor: its name and the reason.
        problems: Vec<String>,
    },
    /// Some open dimensions got no number.
    #[error("{}: cannot import the model because these dimensions have no number: {}", .path.display(), .open.join(", "))]
    Unbound {
        /// The file.
        path: PathBuf,
        /// The names of these dimensions.
        open: Vec<String>,
    },
    /// A number was given for a dimension that the model does not have.
    #[error("{}: the model has no open dimension named {name}", .path.display())]
    NoSuchDim {
        /// The file.
        path: PathBuf,
        /// The unknown name.
        name: String,
        /// The names of the model's dimensions.
        known: Vec<String>,
    },
    /// [`ImportOptions::given`](crate::ImportOptions::given) names an input without a default value.
    #[error("{}: the model has no input named {name} with a default value", .path.display())]
    NoDefault {
        /// The file.
        path: PathBuf,
        /// The unknown name.
        name: String,
        /// The names of inputs that have a default.
        known: Vec<String>,
    },
    /// Some nodes cannot be imported. The list is complete.
    #[error("{}: cannot import these nodes:{}", .path.display(), lines(&Unsupported::grouped(.problems)))]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Each such node, with the reason.
        problems: Vec<Unsupported>,
    },
}

/// A node that cannot be imported, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The op. Its domain precedes it, unless that is ONNX's own domain.
    pub op: String,
    /// The version of the op set that the file states for the op's domain.
    pub opset: i64,
    /// The name of the node, or of its first output if the node has no name.
    pub node: String,
    /// The reason why the node cannot be imported.
    pub why: String,
}

/// The number of nodes that one line of a message names. All of them have the same op and reason.
const NAMED: usize = 3;

impl Unsupported {
    /// Creates the report of a node that cannot be imported.
    pub(super) fn at(node: &NodeProto, opset: i64, why: String) -> Unsupported {
        let names = [node.name(), node.output.first().map_or("", |o| o)];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("(no name)");
        Unsupported { op: qualified(node.domain(), node.op_type()), opset, node: name.into(), why }
    }

    /// Returns one line for each pair of op and reason, in the order of the first nodes that have them.
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

/// The reason why one node cannot be imported. The importer adds the name of the node.
#[derive(Debug)]
pub(super) struct NodeError(pub String);

impl<T: fmt::Display> From<T> for NodeError {
    fn from(reason: T) -> NodeError {
        NodeError(reason.to_string())
    }
}
