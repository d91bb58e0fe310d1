//! `rules fmt`: writes rule files and graph files in the common layout.

use std::{
    fs,
    io::{Write, stdout},
    path::{Path, PathBuf},
};

use eutectic::engine::ir::lang::{Source, format};
use miette::Report;

use crate::{
    fault::{Fault, input},
    files,
    output::{self, is_standard},
    table::several,
};

const EXAMPLES: &str = "\
Examples:
  # every *.rules and *.graph below a folder
  eutectic rules fmt my-rules
  # only says which files would change, and where; exit code 1 if there are any
  eutectic rules fmt --check my-rules model.graph
  # the text that comes in, for editors
  eutectic rules fmt - < own.rules

The line breaks of a list stay, and every comment does. Parts of rules, ops and graphs have a line each, arguments are below one another, and lists \
that do not fit 120 columns are broken. The layout of a laid-out file is the same.";

/// The files, and whether they are only checked.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Rule files, graph files, folders of them (*.rules, *.graph), or - for stdin, which goes to stdout
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
    /// Changes no file, and lists those that are laid out in another way
    #[arg(long)]
    check: bool,
}

/// Runs the command. Lays out each file that can be read, even if others cannot.
///
/// # Errors
/// If a file cannot be read or written, or its brackets do not match; with `--check`, if a file would change.
pub fn run(args: &Args) -> Result<(), Fault> {
    files::read_stdin_once(args.paths.iter().map(|path| ("an argument".to_string(), path.as_path())))?;
    let (mut faults, mut files) = (Vec::new(), Vec::new());
    for path in &args.paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        collect(path, &mut files)?;
        if files.len() == before {
            let help = "rule files are named NAME.rules, and graph files NAME.graph";
            let path = path.display();
            let problem = format!("cannot lay out {path}: this folder contains no rule files and no graph files");
            faults.push(input(problem, help));
        }
    }
    let mut changed = 0;
    for path in files {
        match lay_out(&path, args.check) {
            Ok(changes) => changed += usize::from(changes),
            Err(fault) => faults.push(fault),
        }
    }
    if args.check && changed > 0 {
        faults.push(Fault::run(format!(
            "{} would be laid out in another way; run without --check",
            several(changed, "file")
        )));
    }
    Fault::all(faults)
}

/// Returns whether the layout of a file changes. Writes the file, unless it is only checked.
fn lay_out(path: &Path, check: bool) -> Result<bool, Fault> {
    let text = files::read_text(path).map_err(|error| {
        input(format!("cannot read {}: {error}", path.display()), "name a file *.rules or *.graph, or a folder of them")
    })?;
    let name = if is_standard(path) { "<stdin>".to_string() } else { path.display().to_string() };
    let laid_out =
        format(&Source::new(name.clone(), text.clone())).map_err(|errors| Fault::Input(Report::new(errors)))?;
    let changes = laid_out != text;
    if check && changes {
        let same = laid_out.lines().zip(text.lines()).take_while(|(new, old)| new == old).count();
        writeln!(stdout().lock(), "{name}:{}", same + 1)?;
    } else if is_standard(path) && !check {
        stdout().lock().write_all(laid_out.as_bytes())?;
    } else if changes {
        output::write(path, &[laid_out.as_bytes()])?;
        writeln!(stdout().lock(), "laid out {name}")?;
    }
    Ok(changes)
}

/// Adds the rule files and graph files below a folder, in the order of their paths. Links to folders are not followed.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Fault> {
    let wrong =
        |error| input(format!("cannot read the folder {}: {error}", folder.display()), "name one that can be read");
    let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(wrong)?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(wrong)?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rules" || e == "graph") && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
