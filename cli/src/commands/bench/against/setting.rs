//! The compared settings: the command as it was given, and that command with the options of each `--against`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args as _, Command, FromArgMatches, parser::ValueSource};

use super::super::args::Args;
use crate::fault::{Fault, input};

/// The program that runs a setting.
pub enum Runner {
    /// This process runs the setting.
    This,
    /// Another build of the command runs it. The field is the path of the binary.
    Binary(PathBuf),
}

/// A setting of a model to measure.
pub struct Setting {
    /// The text of `--against`. Empty for the command as it was given.
    pub options: String,
    pub runner: Runner,
    /// The arguments after the word `bench`.
    pub arguments: Vec<OsString>,
    pub args: Args,
}

/// The names of options that apply to all settings, so `--against` must not contain them.
const COMMON: [&str; 13] = [
    "against",
    "iters",
    "warmup",
    "duration",
    "sweep",
    "format",
    "csv",
    "output",
    "reference",
    "tol",
    "explain",
    "save_plan",
    "ids",
];

/// Returns the command as it was given, and then the setting of each `--against`.
///
/// # Errors
/// If the options of a setting are wrong, or if they apply to all settings.
pub fn settings(args: &Args) -> Result<Vec<Setting>, Fault> {
    // The first two arguments are the binary and `bench`.
    let given: Vec<OsString> = without(std::env::args_os().skip(2).collect(), "--against");
    let base =
        Setting { options: String::new(), runner: Runner::This, args: parsed(&given, "")?, arguments: given.clone() };
    let mut all = vec![base];
    for text in &args.against {
        let wrong = |problem: &str, help: &str| input(format!("--against \"{text}\": {problem}"), help);
        let words = shlex::split(text).ok_or_else(|| wrong("a quote is not closed", "close it"))?;
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
        let runner = match words.first() {
            None => return Err(wrong("there are no options", "as in --against \"--threads 1\"")),
            Some(first) if is_option(first) => Runner::This,
            Some(_) => Runner::Binary(PathBuf::from(words.remove(0))),
        };
        let alone = [&[args.job.program.model.clone().into_os_string()][..], &words].concat();
        let matches = command().try_get_matches_from(&alone).map_err(|error| refused(text, &error))?;
        let stated = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(id) = COMMON.iter().find(stated) {
            let flag = format!("--{} applies to all settings", id.replace('_', "-"));
            return Err(wrong(&flag, "write it outside of --against"));
        }
        let arguments = [&given[..], &words].concat();
        all.push(Setting { options: text.clone(), runner, args: parsed(&arguments, text)?, arguments });
    }
    Ok(all)
}

/// Returns the command `bench`. An option that is given twice replaces its first value, unless it may be repeated.
fn command() -> Command {
    let command = Args::augment_args(Command::new("bench").no_binary_name(true).args_override_self(true));
    command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    })
}

fn parsed(arguments: &[OsString], text: &str) -> Result<Args, Fault> {
    let matches = command().try_get_matches_from(arguments).map_err(|error| refused(text, &error))?;
    Args::from_arg_matches(&matches).map_err(|error| refused(text, &error))
}

fn refused(text: &str, error: &clap::Error) -> Fault {
    let why = error.render().to_string();
    let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
    input(
        format!("--against \"{text}\": {why}"),
        "it takes options of `eutectic bench`, such as --threads 1 or --costs FILE",
    )
}

/// Removes an option and its value from arguments.
pub fn without(arguments: Vec<OsString>, flag: &str) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == flag {
            arguments.next();
        } else if !text.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')) {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_left_out_in_both_forms() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let kept = without(words("demo --seed 3 --seeds 4 --seed=5 --threads 1"), "--seed");
        assert_eq!(kept, words("demo --seeds 4 --threads 1"));
    }
}
