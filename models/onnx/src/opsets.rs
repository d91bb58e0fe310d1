//! The op sets of a file or a function: a version for each domain.

use std::collections::BTreeMap;

use super::proto::OperatorSetIdProto;

/// The newest version of ONNX's own op set that the table of ops covers.
pub const NEWEST_OPSET: i64 = 27;
/// The oldest one. Since then, broadcasting follows NumPy.
pub const OLDEST_OPSET: i64 = 7;

/// The known domains, each with the newest version of its op set that the table of ops covers. ONNX's own has an empty
/// name.
const DOMAINS: [(&str, i64); 5] = [
    ("", NEWEST_OPSET),
    ("ai.onnx.ml", 5),
    ("ai.onnx.preview", 1),
    ("ai.onnx.preview.training", 1),
    ("com.microsoft", 1),
];

/// Returns the newest version of a domain's op set that the table of ops covers.
pub(super) fn newest(domain: &str) -> Option<i64> {
    DOMAINS.iter().find(|(name, _)| *name == domain || name.is_empty() && is_own(domain)).map(|(_, newest)| *newest)
}

/// Returns the name of an op. It includes the domain unless that is ONNX's own.
pub(super) fn qualified(domain: &str, name: &str) -> String {
    if is_own(domain) { name.into() } else { format!("{domain}.{name}") }
}

/// Returns whether a domain is ONNX's own.
pub(super) fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// The versions by domain. ONNX's own has an empty name.
#[derive(Clone, Debug, Default)]
pub(super) struct OpSets {
    versions: BTreeMap<String, i64>,
}

impl OpSets {
    /// Reads the imports of a file.
    pub fn read(imports: &[OperatorSetIdProto]) -> OpSets {
        OpSets::default().with(imports)
    }

    /// Adds the imports of a function. If both name a domain, the version of the function is used.
    pub fn with(&self, imports: &[OperatorSetIdProto]) -> OpSets {
        let name = |domain: &str| if is_own(domain) { String::new() } else { domain.to_string() };
        let mut versions = self.versions.clone();
        versions.extend(imports.iter().map(|set| (name(set.domain()), set.version())));
        OpSets { versions }
    }

    /// Returns the version of ONNX's own op set, where the file states one.
    pub fn own(&self) -> Option<i64> {
        self.versions.get("").copied()
    }

    /// Returns the version to report for the file: that of ONNX's own op set, or of the first domain.
    pub fn main(&self) -> i64 {
        self.versions.values().next().copied().unwrap_or_default()
    }

    /// Returns the version of a domain. If the file does not state one, it is the newest, as in ONNX Runtime.
    pub fn version(&self, domain: &str) -> i64 {
        let domain = if is_own(domain) { "" } else { domain };
        self.versions.get(domain).copied().or_else(|| newest(domain)).unwrap_or(1)
    }

    /// Returns the versions of all domains but ONNX's own.
    pub fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.versions.iter().filter(|(domain, _)| !domain.is_empty()).map(|(domain, version)| (&**domain, *version))
    }

    /// Returns whether no domain is named.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}
