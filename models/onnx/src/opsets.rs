//! The op sets that a file or a function imports: a version for each domain.

use std::collections::BTreeMap;

use super::proto::OperatorSetIdProto;

/// The newest version of ONNX's own op set that the tables of ops cover.
pub const NEWEST_OPSET: i64 = 27;
/// The oldest version of ONNX's own op set that is supported. Broadcasting follows NumPy's rules since this version.
pub const OLDEST_OPSET: i64 = 7;

/// The supported domains, each with the newest version of its op set that the tables of ops cover. ONNX's own domain
/// has an empty name.
const DOMAINS: [(&str, i64); 5] = [
    ("", NEWEST_OPSET),
    ("ai.onnx.ml", 5),
    ("ai.onnx.preview", 1),
    ("ai.onnx.preview.training", 1),
    ("com.microsoft", 1),
];

/// Returns the newest version of a domain's op set that the tables of ops cover.
pub(super) fn newest(domain: &str) -> Option<i64> {
    DOMAINS.iter().find(|(name, _)| *name == domain || name.is_empty() && is_own(domain)).map(|(_, newest)| *newest)
}

/// Returns the name of an op, with its domain before it unless that is ONNX's own.
pub(super) fn qualified(domain: &str, name: &str) -> String {
    if is_own(domain) { name.into() } else { format!("{domain}.{name}") }
}

/// Returns whether a domain is ONNX's own.
pub(super) fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// The versions of op sets by domain. ONNX's own domain has an empty name.
#[derive(Clone, Debug, Default)]
pub(super) struct OpSets {
    versions: BTreeMap<String, i64>,
}

impl OpSets {
    /// Reads the op sets that a file imports.
    pub fn read(imports: &[OperatorSetIdProto]) -> OpSets {
        OpSets::default().with(imports)
    }

    /// Returns these op sets, in which the versions that a function imports replace those of the same domains.
    pub fn with(&self, imports: &[OperatorSetIdProto]) -> OpSets {
        let name = |domain: &str| if is_own(domain) { String::new() } else { domain.to_string() };
        let mut versions = self.versions.clone();
        versions.extend(imports.iter().map(|set| (name(set.domain()), set.version())));
        OpSets { versions }
    }

    /// Returns the version of ONNX's own op set, or `None` if the file does not import it.
    pub fn own(&self) -> Option<i64> {
        self.versions.get("").copied()
    }

    /// Returns the version to show for the whole file: that of ONNX's own op set, or that of the first domain.
    pub fn main(&self) -> i64 {
        self.versions.values().next().copied().unwrap_or_default()
    }

    /// Returns the version of a domain's op set. Without an import, the newest version is assumed, as in ONNX Runtime.
    pub fn version(&self, domain: &str) -> i64 {
        let domain = if is_own(domain) { "" } else { domain };
        self.versions.get(domain).copied().or_else(|| newest(domain)).unwrap_or(1)
    }

    /// Returns the versions of the op sets of all domains except ONNX's own.
    pub fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.versions.iter().filter(|(domain, _)| !domain.is_empty()).map(|(domain, version)| (&**domain, *version))
    }

    /// Returns whether no op set is imported.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}
