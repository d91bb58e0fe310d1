//! Documents of the editor, the rule files that belong to them, and the forms at a position.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use eutectic::engine::{
    ir::{
        lang::{Sexp, SexpKind, Source, sexp::read},
        ops::Ops,
    },
    rewrites::{MANIFEST, RuleSet, graph_types, term_types},
};
use lsp_types::Uri;

/// The open documents by path.
pub type Open = BTreeMap<PathBuf, Arc<str>>;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rules and declarations.
    Rules,
    /// A graph, which ops may precede.
    Graph,
}

/// A document of the editor.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its address.
    pub uri: Uri,
    /// Its path, also of a document that was never saved.
    pub path: PathBuf,
    /// Its number, which grows with each change.
    pub version: i32,
    /// Its text.
    pub text: Arc<str>,
}

/// A top-level form of a document, and the part of the text from which it was read.
pub struct TopForm {
    /// The start of the part.
    pub start: usize,
    /// The form. Its positions count from `start`.
    pub form: Sexp,
}

impl Document {
    /// Returns a document.
    pub fn new(uri: Uri, version: i32, text: String) -> Document {
        let path = path_of(&uri);
        Document { uri, path, version, text: text.into() }
    }

    /// Returns the address of a path.
    pub fn address(path: &str) -> String {
        let escaped = |byte: u8| match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        format!("file://{}", path.bytes().map(escaped).collect::<String>())
    }

    /// Returns its language, by the ending of its name.
    pub fn language(&self) -> Language {
        match self.path.extension() {
            Some(ending) if ending == "graph" => Language::Graph,
            _ => Language::Rules,
        }
    }

    /// Returns the text as a source, named by the path.
    pub fn source(&self) -> Source {
        Source::new(self.path.display().to_string(), self.text.clone())
    }

    /// Returns the rule files that are loaded with the document: those of its pack, or those in its folder. Open
    /// documents replace files.
    pub fn rule_files(&self, open: &Open) -> Vec<Source> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let pack = folder.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.join(MANIFEST).exists());
        let mut paths = Vec::new();
        collect(pack.unwrap_or(folder), pack.is_some(), &mut paths);
        if self.language() == Language::Rules && !paths.contains(&self.path) {
            paths.push(self.path.clone());
        }
        paths.sort();
        // A file that cannot be read is reported where it is opened.
        let text = |path: &PathBuf| {
            if *path == self.path {
                return Some(self.text.clone());
            }
            open.get(path).cloned().or_else(|| Some(fs::read_to_string(path).ok()?.into()))
        };
        paths.iter().filter_map(|path| Some(Source::new(path.display().to_string(), text(path)?))).collect()
    }

    /// Returns the top-level form around a byte offset, if it can be read.
    pub fn form_at(&self, offset: usize) -> Option<TopForm> {
        let after = self.text.ceil_char_boundary(self.text.len().min(offset + 1));
        let start = self.text[..after].rfind("\n(").map_or(0, |at| at + 1);
        let end = self.text[offset..].find("\n(").map_or(self.text.len(), |at| offset + at);
        let forms = read(&Source::new("", &self.text[start..end])).ok()?;
        let holds = |form: &Sexp| (form.span.start..=form.span.end).contains(&(offset - start));
        let form = forms.into_iter().find(holds)?;
        Some(TopForm { start, form })
    }

    /// Returns the types of the values in a form by position, counted from the start of the form's part.
    pub fn types(&self, top: &TopForm, ops: &Ops) -> Vec<(Range<usize>, String)> {
        match top.form.call() {
            Some(("rule", _)) => {
                // A rule has a comment.
                let doc = ";; -\n";
                let text = format!("{doc}{}", &self.text[top.start..][top.form.span.clone()]);
                let (rules, _) = RuleSet::read_partly(&[Source::new("", text)], ops);
                let Some(rule) = rules.iter().find(|rule| !rule.is_definition()) else { return Vec::new() };
                let shifted = |(span, ty): (Range<usize>, String)| {
                    let at = |offset: usize| (offset + top.form.span.start).saturating_sub(doc.len());
                    (at(span.start)..at(span.end), ty)
                };
                term_types(rule).into_iter().map(shifted).collect()
            }
            Some(("graph", _)) => {
                let types = graph_types(&self.source(), ops).into_iter();
                let of_form = types.filter(|(span, _)| span.start >= top.start);
                of_form.map(|(span, ty)| (span.start - top.start..span.end - top.start, ty.to_string())).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl TopForm {
    /// Returns the expressions around an offset from the start of the form's part, the innermost one first.
    pub fn around(&self, offset: usize) -> Vec<&Sexp> {
        let mut path = vec![&self.form];
        while let Some(inner) = items(path[path.len() - 1]).iter().find(|item| {
            let span = &item.span;
            (span.start..=span.end).contains(&offset) && (offset < span.end || item.atom().is_some())
        }) {
            path.push(inner);
        }
        path.reverse();
        path
    }
}

/// Returns the items of a bracket of any kind.
pub fn items(sexp: &Sexp) -> &[Sexp] {
    match &sexp.kind {
        SexpKind::List(items) | SexpKind::Bracket(_, items) | SexpKind::Brace(items) => items,
        SexpKind::Atom(_) | SexpKind::Text(_) => &[],
    }
}

/// Returns the path of an address. One that is no file has a path that no file has.
fn path_of(uri: &Uri) -> PathBuf {
    let text = uri.as_str();
    let Some(path) = text.strip_prefix("file://") else { return PathBuf::from(text) };
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds the rule files of a folder, and those of the folders in it on request.
fn collect(folder: &Path, deep: bool, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && deep => collect(&path, deep, paths),
            Ok(kind) if !kind.is_dir() && path.extension().is_some_and(|ending| ending == "rules") => paths.push(path),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths() {
        for (uri, path) in
            [("file:///a/b%20c/%C3%A9.rules", "/a/b c/é.rules"), ("untitled:Untitled-1", "untitled:Untitled-1")]
        {
            assert_eq!(path_of(&uri.parse().expect("an address")), Path::new(path));
            assert!(!uri.starts_with("file:") || Document::address(path) == uri, "{uri}");
        }
    }
}
