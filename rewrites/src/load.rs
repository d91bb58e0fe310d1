//! Loads rules from a file, a folder, or a pack.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use eutectic_ir::lang::{Errors, Source};

use crate::{
    pack::{EXAMPLE, MANIFEST, Manifest, Pack, PackFile, Stamp, is_pack_file},
    proof::{self, Proofs},
    ruleset::{LoadError, Loading, RuleSet},
};

impl RuleSet {
    /// Loads a rule file, all `*.rules` files under a folder, or a pack.
    ///
    /// # Errors
    /// The errors of [`RuleSet::load_after`].
    pub fn load(path: &Path) -> Result<RuleSet, LoadError> {
        RuleSet::load_after(path, &RuleSet::default())
    }

    /// Loads rules like [`RuleSet::load`], given the rules that were loaded before. The new rules may name ops that
    /// the `known` rules declare, and a pack may need packs among them.
    ///
    /// # Errors
    /// If a file cannot be read or a rule is wrong, with all wrong rules in one error. If a pack lacks a pack that it
    /// needs, is written in a newer version of the language, or differs from its checked state.
    pub fn load_after(path: &Path, known: &RuleSet) -> Result<RuleSet, LoadError> {
        let (rules, mut errors) = RuleSet::load_partly(path, known)?;
        if errors.is_empty() { Ok(rules) } else { Err(errors.swap_remove(0)) }
    }

    /// Loads rules like [`RuleSet::load_after`]. Returns the rules that load, and errors for the rest: first files
    /// that cannot be read, then wrong rules.
    ///
    /// # Errors
    /// If the path cannot be read, or a pack cannot be used.
    pub fn load_partly(path: &Path, known: &RuleSet) -> Result<(RuleSet, Vec<LoadError>), LoadError> {
        if is_pack_file(path) {
            return RuleSet::load_pack(path, known);
        }
        if !path.is_dir() {
            return RuleSet::load_file(path, known);
        }
        let FolderFiles { manifest, sources, mut errors } = FolderFiles::read(path)?;
        let proofs = proofs_of(path).unwrap_or_else(|error| {
            errors.push(error);
            Proofs::default()
        });
        let usable = |manifest: &Manifest| match manifest.lacks(&known.packs) {
            Some(problem) => Err(LoadError::Pack { path: path.to_path_buf(), problem }),
            None => Ok(()),
        };
        manifest.iter().try_for_each(usable)?;
        let (mut rules, wrong) = RuleSet::compiled(&sources, &known.ops, &proofs, Loading::Checked);
        rules.packs.extend(manifest.map(|manifest| Pack { manifest, stamp: None }));
        if !wrong.is_empty() {
            errors.push(Errors(wrong).into());
        }
        Ok((rules, errors))
    }

    fn load_file(path: &Path, known: &RuleSet) -> Result<(RuleSet, Vec<LoadError>), LoadError> {
        let text = read_text(path).map_err(|error| LoadError::Read { path: path.to_path_buf(), error })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut errors = Vec::new();
        let proofs = proofs_of(folder).unwrap_or_else(|error| {
            errors.push(error);
            Proofs::default()
        });
        let sources = [Source::new(path.display().to_string(), text)];
        let (rules, wrong) = RuleSet::compiled(&sources, &known.ops, &proofs, Loading::Checked);
        if !wrong.is_empty() {
            errors.push(Errors(wrong).into());
        }
        Ok((rules, errors))
    }

    fn load_pack(path: &Path, known: &RuleSet) -> Result<(RuleSet, Vec<LoadError>), LoadError> {
        let text = read_text(path).map_err(|error| LoadError::Read { path: path.to_path_buf(), error })?;
        let source = Source::new(path.display().to_string(), text);
        RuleSet::read_pack(&source, known).map(|rules| (rules, Vec::new()))
    }

    /// Reads the text of a pack file, which may be embedded in a program (`include_str!`).
    ///
    /// # Errors
    /// The errors of [`RuleSet::load_after`].
    pub fn read_pack(source: &Source, known: &RuleSet) -> Result<RuleSet, LoadError> {
        let unfit = |problem| LoadError::Pack { path: source.name.to_string().into(), problem };
        let file = PackFile::read(source).map_err(|error| LoadError::Rules(Errors(vec![error])))?;
        if let Some(problem) = file.pack.lacks(&known.packs) {
            return Err(unfit(problem));
        }
        let proofs = match &file.proofs {
            Some(text) => text.parse().map_err(|problem| unfit(format!("its verdicts are damaged: {problem}")))?,
            None => Proofs::default(),
        };
        let sources = file.sources(&source.name);
        let (mut rules, wrong) = RuleSet::compiled(&sources, &known.ops, &proofs, Loading::Checked);
        if !wrong.is_empty() {
            return Err(Errors(wrong).into());
        }
        if let Some(name) = file.stamp.differs(rules.iter()) {
            return Err(unfit(format!(
                "the rule `{name}` differs from the checked one; edit the folder of the pack and run `eutectic rules pack` again"
            )));
        }
        rules.packs.push(Pack { manifest: file.pack, stamp: Some(file.stamp) });
        Ok(rules)
    }
}

impl PackFile {
    /// Returns the pack file of a folder whose rules were checked. It includes the verdicts of the folder.
    ///
    /// # Errors
    /// If a file of the folder cannot be read, or the folder has no manifest.
    pub fn of_folder(folder: &Path, stamp: Stamp) -> Result<PackFile, LoadError> {
        let FolderFiles { manifest, sources, mut errors } = FolderFiles::read(folder)?;
        if !errors.is_empty() {
            return Err(errors.swap_remove(0));
        }
        let pack = manifest.ok_or_else(|| LoadError::Pack {
            path: folder.to_path_buf(),
            problem: format!("it has no {MANIFEST}; add one, such as {EXAMPLE}"),
        })?;
        let name = |source: &Source| {
            let path = Path::new(&*source.name);
            path.strip_prefix(folder).unwrap_or(path).display().to_string().replace('\\', "/")
        };
        let files = sources.iter().map(|source| (name(source), source.text.to_string())).collect();
        let proofs = proofs_of(folder)?;
        Ok(PackFile { pack, stamp, files, proofs: (!proofs.is_empty()).then(|| proofs.to_string()) })
    }
}

/// The files of a folder of rules.
struct FolderFiles {
    /// The manifest, if the folder is a pack.
    manifest: Option<Manifest>,
    /// The rule files, in the order of their paths.
    sources: Vec<Source>,
    /// The errors of rule files that cannot be read.
    errors: Vec<LoadError>,
}

impl FolderFiles {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// If a folder or its manifest cannot be read.
    fn read(folder: &Path) -> Result<FolderFiles, LoadError> {
        let mut files = Vec::new();
        collect(folder, &mut Vec::new(), &mut files)?;
        files.sort();
        let (mut sources, mut errors) = (Vec::new(), Vec::new());
        for path in files {
            match read_text(&path) {
                Ok(text) => sources.push(Source::new(path.display().to_string(), text)),
                Err(error) => errors.push(LoadError::Read { path, error }),
            }
        }
        let path = folder.join(MANIFEST);
        let manifest = match path.exists() {
            true => {
                let text = read_text(&path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
                let manifest = Manifest::read(&Source::new(path.display().to_string(), text));
                Some(manifest.map_err(|error| LoadError::Rules(Errors(vec![error])))?)
            }
            false => None,
        };
        Ok(FolderFiles { manifest, sources, errors })
    }
}

/// Returns the verdicts on the rules of a directory; none if it has no file of verdicts.
fn proofs_of(directory: &Path) -> Result<Proofs, LoadError> {
    let path = directory.join(proof::FILE);
    if !path.exists() {
        return Ok(Proofs::default());
    }
    let text = read_text(&path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
    text.parse().map_err(|problem| LoadError::Proofs { path, problem })
}

fn read_text(path: &Path) -> io::Result<String> {
    // Reading a pipe would wait until another process writes to it.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file"));
    }
    String::from_utf8(fs::read(path)?).map_err(|e| {
        let place = format!("byte {} is not UTF-8 text", e.utf8_error().valid_up_to() + 1);
        io::Error::new(io::ErrorKind::InvalidData, place)
    })
}

fn collect(directory: &Path, seen: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> Result<(), LoadError> {
    let wrong = |error| LoadError::Read { path: directory.to_path_buf(), error };
    // Symbolic links may form cycles.
    let itself = fs::canonicalize(directory).map_err(wrong)?;
    if seen.contains(&itself) {
        return Ok(());
    }
    seen.push(itself);
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            collect(&path, seen, files)?;
        } else if path.extension().is_some_and(|e| e == "rules") {
            files.push(path);
        }
    }
    Ok(())
}
