//! Packs: folders of rules with a manifest, and the single files that `eutectic rules pack` makes of them.
//!
//! A folder with a file `pack.toml` is a pack. A pack file is a TOML document with the manifest, the rule files, the
//! verdicts of `proofs.txt` and a stamp. The stamp lists the fingerprint of each checked rule.

use std::{collections::BTreeMap, fmt, ops::Range, path::Path};

use eutectic_ir::lang::{LangError, Source};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::{rule::Rule, verdict::fingerprint};

/// The name of the manifest in a pack's folder.
pub const MANIFEST: &str = "pack.toml";

/// The file extension of a pack file.
pub const EXTENSION: &str = "epack";

/// The version of the rule language, of the manifest and of pack files.
pub const LANGUAGE_VERSION: u32 = 1;

/// The name of the engine among the needs of a pack.
const ENGINE: &str = "eutectic";

/// The version of the engine.
const ENGINE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// An example of a manifest, for messages.
pub(crate) const EXAMPLE: &str = "name = \"mine\", version = \"1.0.0\", language = 1";

/// The manifest of a pack: its name, its version and its needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name: lower-case letters, digits and hyphens.
    pub name: String,
    /// The version of the pack.
    pub version: Version,
    /// The version of the rule language in which the rules are written.
    pub language: u32,
    /// The packs that must be loaded before this one, and the engine (`eutectic`), each with the versions that
    /// suffice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs: BTreeMap<String, VersionReq>,
}

/// The result of checking the rules of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// The version of the engine that checked the rules.
    pub engine: String,
    /// The day of the check, such as 2026-11-30.
    pub date: String,
    /// The backends that ran the rules, besides the interpreter.
    pub backends: Vec<String>,
    /// The seed of the random instances.
    pub seed: u64,
    /// The number of instances of all rules.
    pub cases: usize,
    /// The numbers of refuted and surviving mutants; `None` if no mutants were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutants: Option<Mutants>,
    /// The number of findings of `rules lint`.
    pub findings: usize,
    /// The fingerprint of each rule, by name.
    pub rules: BTreeMap<String, String>,
}

/// The numbers of mutants, that is, of rules with a changed right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutants {
    /// The number of mutants that an instance refuted.
    pub killed: usize,
    /// The number of mutants that no instance distinguished from the rule.
    pub survivors: usize,
}

/// The contents of a pack file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackFile {
    /// The manifest.
    pub pack: Manifest,
    /// The result of the check.
    pub stamp: Stamp,
    /// The text of each file, by its path in the folder of the pack.
    pub files: BTreeMap<String, String>,
    /// The verdicts of `eutectic rules prove`, in the format of `proofs.txt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proofs: Option<String>,
}

/// A loaded pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The manifest.
    pub manifest: Manifest,
    /// The result of the check; `None` for a folder.
    pub stamp: Option<Stamp>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// If the text is not TOML, or a key is missing, unknown or of the wrong type. If the language version is newer
    /// than this engine's.
    pub fn read(source: &Source) -> Result<Manifest, LangError> {
        let language = |table: &toml::Table| table.get("language").cloned();
        let help = format!("write a manifest such as {EXAMPLE}");
        let manifest: Manifest = document(source, language, &help)?;
        manifest.checked().map_err(|problem| source.error(0..0, problem, help))?;
        Ok(manifest)
    }

    fn checked(&self) -> Result<(), String> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(fits) || self.name == ENGINE {
            return Err(format!(
                "`{}` cannot name a pack because a name has lower-case letters, digits and hyphens, and `{ENGINE}` is the engine",
                self.name
            ));
        }
        if self.language == 0 {
            return Err("there is no version 0 of the rule language; the first one is 1".into());
        }
        Ok(())
    }

    /// Returns the reason why the pack cannot be loaded after these packs; `None` if it can.
    pub(crate) fn lacks(&self, given: &[Pack]) -> Option<String> {
        if let Some(other) = given.iter().find(|pack| pack.manifest.name == self.name) {
            return Some(format!("{} is loaded already; load one of the two", other.manifest));
        }
        self.needs.iter().find_map(|(name, versions)| {
            if name == ENGINE {
                let fits = ENGINE_VERSION.parse().is_ok_and(|engine| versions.matches(&engine));
                return (!fits).then(|| {
                    format!("it needs {ENGINE} {versions}, and this is {ENGINE_VERSION}; install that version")
                });
            }
            match given.iter().find(|pack| pack.manifest.name == *name).map(|pack| &pack.manifest.version) {
                Some(version) if versions.matches(version) => None,
                Some(version) => Some(format!(
                    "it needs the pack {name} {versions}, and version {version} is loaded; load a version that fits"
                )),
                None => Some(format!(
                    "it needs the pack {name} {versions}; load that pack first: --rules PACK before this one"
                )),
            }
        })
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pack {} {}", self.name, self.version)
    }
}

impl fmt::Display for Pack {
    /// Prints the pack and its stamp on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.manifest)?;
        let Some(stamp) = &self.stamp else {
            return f.write_str("a folder, not checked by `rules pack`");
        };
        let Stamp { engine, date, cases, findings, .. } = stamp;
        write!(f, "checked by eutectic {engine} on {date}, {cases} cases, ")?;
        match stamp.mutants {
            Some(Mutants { killed, survivors }) => write!(f, "{killed} mutants refuted and {survivors} not, ")?,
            None => f.write_str("no mutants, ")?,
        }
        write!(f, "findings of `rules lint`: {findings}")
    }
}

impl PackFile {
    /// Reads a pack file.
    ///
    /// # Errors
    /// The errors of [`Manifest::read`].
    pub fn read(source: &Source) -> Result<PackFile, LangError> {
        let language = |table: &toml::Table| table.get("pack")?.as_table()?.get("language").cloned();
        let help = "run `eutectic rules pack` to write the file again";
        let file: PackFile = document(source, language, help)?;
        file.pack.checked().map_err(|problem| source.error(0..0, problem, help))?;
        Ok(file)
    }

    /// Returns the rule files, each named after the pack file and its path in the pack.
    pub(crate) fn sources(&self, path: &str) -> Vec<Source> {
        self.files.iter().map(|(name, text)| Source::new(format!("{path}:{name}"), text.as_str())).collect()
    }
}

impl fmt::Display for PackFile {
    /// Prints the text of the pack file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = toml::to_string_pretty(self).map_err(|_| fmt::Error)?;
        write!(
            f,
            "# A pack of rules for Eutectic, written by `eutectic rules pack`. Change its folder and pack again.\n\n{text}"
        )
    }
}

impl Stamp {
    /// Returns the fingerprints of rules in the format of stamps.
    pub fn fingerprints<'r>(rules: impl Iterator<Item = &'r Rule>) -> BTreeMap<String, String> {
        rules.map(|rule| (rule.name.to_string(), format!("{:016x}", fingerprint(rule)))).collect()
    }

    /// Returns the first rule that differs from the checked one, or is missing; `None` if there is none.
    pub(crate) fn differs<'r>(&self, rules: impl Iterator<Item = &'r Rule>) -> Option<String> {
        let there = Stamp::fingerprints(rules);
        let other = |(name, of): (&String, &String)| (self.rules.get(name) != Some(of)).then(|| name.clone());
        let changed = there.iter().find_map(other);
        changed.or_else(|| self.rules.keys().find(|name| !there.contains_key(*name)).cloned())
    }
}

/// Reads a TOML document after checking its language version, so that a newer version is reported before unknown
/// keys.
fn document<T: for<'d> Deserialize<'d>>(
    source: &Source,
    language: impl Fn(&toml::Table) -> Option<toml::Value>,
    help: &str,
) -> Result<T, LangError> {
    let wrong = |error: toml::de::Error| {
        let span = error.span().unwrap_or(0..0);
        source.error(within(&source.text, span), error.message().trim(), help)
    };
    let table: toml::Table = toml::from_str(&source.text).map_err(wrong)?;
    if let Some(version) = language(&table).and_then(|value| value.as_integer())
        && version > i64::from(LANGUAGE_VERSION)
    {
        let message = format!(
            "cannot read this pack because it is written in version {version} of the rule language, and eutectic {ENGINE_VERSION} reads \
             versions up to {LANGUAGE_VERSION}"
        );
        let help = "install a newer eutectic, or use an older version of the pack";
        return Err(source.error(place_of(&source.text, "language"), message, help));
    }
    toml::from_str(&source.text).map_err(wrong)
}

/// Returns the position of the first line that starts with `word`, or of the start of the text.
fn place_of(text: &str, word: &str) -> Range<usize> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    starts.into_iter().find(|at| text[*at..].starts_with(word)).map_or(0..0, |at| at..at + word.len())
}

/// Returns a span limited to the text, with its ends on character boundaries.
fn within(text: &str, span: Range<usize>) -> Range<usize> {
    let on = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = on(span.start);
    start..on(span.end).max(start)
}

/// Returns whether a path names a pack file.
pub fn is_pack_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn manifest(text: &str) -> Result<Manifest, String> {
        Manifest::read(&Source::new("pack.toml", text))
            .map_err(|e| format!("{e} ({})", e.help.as_deref().unwrap_or_default()))
    }

    fn pack(text: &str) -> Pack {
        Pack { manifest: manifest(text).unwrap(), stamp: None }
    }

    #[test]
    fn a_newer_language_is_refused_by_its_version_and_not_by_its_keys() {
        let newer = manifest("name = 'a'\nversion = '1.0.0'\nlanguage = 2\nnovelty = true\n").unwrap_err();
        assert!(
            newer.contains("version 2") && newer.contains("up to 1") && newer.contains("newer eutectic"),
            "{newer}"
        );
        let unknown = manifest("name = 'a'\nversion = '1.0.0'\nlanguage = 1\nnovelty = true\n").unwrap_err();
        assert!(unknown.contains("novelty"), "{unknown}");
        for wrong in ["name = 'A'", "name = ''", "name = 'eutectic'"] {
            let wrong = manifest(&format!("{wrong}\nversion = '1.0.0'\nlanguage = 1")).unwrap_err();
            assert!(wrong.contains("cannot name a pack"), "{wrong}");
        }
        assert!(manifest("name = 'a'\nversion = '1'\nlanguage = 1").is_err());
        assert!(manifest("name = 'a'\nversion = '1.0.0'\nlanguage = 0").is_err());
        assert!(manifest("name = 'a'\nversion = '1.0.0'").unwrap_err().contains("language"));
    }

    #[test]
    fn needs_are_packs_before_it_and_the_engine() {
        let base = pack("name = 'base'\nversion = '1.4.0'\nlanguage = 1");
        let needs =
            |needs: &str| pack(&format!("name = 'a'\nversion = '1.0.0'\nlanguage = 1\n[needs]\n{needs}")).manifest;
        assert_eq!(needs("base = '1.2'\neutectic = '>=0.1'").lacks(from_ref(&base)), None);
        let lacks = |text: &str, given: &[Pack]| needs(text).lacks(given).unwrap();
        assert!(lacks("base = '1.2'", &[]).contains("load that pack first"));
        assert!(lacks("base = '2'", from_ref(&base)).contains("version 1.4.0 is loaded"));
        assert!(lacks("eutectic = '>=99'", &[]).contains("it needs eutectic >=99"));
        assert!(base.manifest.lacks(from_ref(&base)).is_some_and(|why| why.contains("loaded already")));
    }

    #[test]
    fn places_are_within_the_text() {
        assert_eq!(within("aé", 1..2), 1..1);
        assert_eq!(within("a", 5..9), 1..1);
        assert_eq!(place_of("a\nlanguage = 2", "language"), 2..10);
    }
}
