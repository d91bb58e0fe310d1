//! Reads a case, runs it, and writes it with the actual results.

use std::{fmt::Write, str::FromStr};

use eutectic::{
    Compiler, Graph, Planned, RuleSet,
    engine::{
        ir::{
            lang::{Errors, Source},
            ops::Class,
            text,
        },
        lowering::{print, report::KernelReport},
        rewrites::{Choice, Fp, Phase, Precision},
    },
};

use crate::device::Device;

/// A case file.
pub struct Case<'a> {
    name: &'a str,
    choice: Choice,
    device: Device,
    /// The text above the first section.
    head: &'a str,
    /// Title and text of each section.
    sections: Vec<(&'a str, &'a str)>,
}

impl<'a> Case<'a> {
    /// Reads a case.
    ///
    /// # Errors
    /// The mistake in the text, and the correct form.
    pub fn read(name: &'a str, text: &'a str) -> Result<Case<'a>, String> {
        let mut parts = text.split("\n---- ");
        let head = parts.next().unwrap_or_default();
        let sections = parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect();
        let mut case = Case { name, choice: Choice::default(), device: Device::default(), head, sections };
        for option in head.lines().filter_map(|line| line.strip_prefix(";!")) {
            case.option(option)?;
        }
        if !head.starts_with("; ") {
            return Err("a case begins with a comment that says what it pins".into());
        }
        Ok(case)
    }

    fn option(&mut self, option: &str) -> Result<(), String> {
        let mut words = option.split_whitespace().map(String::from);
        match (words.next().as_deref(), words.collect::<Vec<_>>()) {
            (Some("only"), globs) => self.choice.only = globs,
            (Some("without"), globs) => self.choice.without = globs,
            (Some("lacks"), kinds) => self.device.lacks = kinds,
            (Some("keep"), share) => self.device.keep = number(option, &share)?,
            (Some("capacity"), bytes) => self.device.capacity = number(option, &bytes)?,
            (Some("precision"), name) => {
                let named = |precision: &Precision| name == [precision.name()];
                let found = Precision::ALL.into_iter().find(named);
                self.choice.precision = found.ok_or_else(|| format!(";!{option}: no precision of that name"))?;
            }
            (Some("fp"), fp) => {
                self.choice.fp = match fp.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    ["exact"] => Fp::Exact,
                    ["reassoc"] => Fp::Reassoc,
                    ["fast"] => Fp::Fast,
                    _ => return Err(format!(";!{option}: a contract is exact, reassoc or fast")),
                }
            }
            _ => {
                return Err(format!(
                    ";!{option}: there are `only`, `without`, `fp`, `precision`, `lacks`, `keep` and `capacity`"
                ));
            }
        }
        Ok(())
    }

    /// Returns the text of the case, with the actual results under its sections.
    ///
    /// # Errors
    /// If a part does not load or cannot be planned.
    pub fn run(&self) -> Result<String, String> {
        let graph = text::parse(&Source::new(self.name, self.head)).map_err(shown)?;
        let mut rules = RuleSet::embedded().map_err(|e| e.to_string())?;
        if let Some((_, more)) = self.sections.iter().find(|(title, _)| *title == "rules") {
            let more = RuleSet::read(&[Source::new(self.name, *more)]).map_err(shown)?;
            rules = rules.and(more).map_err(|e| e.to_string())?;
        }
        let rules = rules.choose(&self.choice).map_err(|e| e.to_string())?;
        let compiler = Compiler::from_backend(self.device.clone(), rules);
        let mut shown = self.head.trim_end().to_string();
        for (title, given) in &self.sections {
            let text = match *title {
                "rules" => given.to_string(),
                title => self.section(title, &compiler, &graph)?,
            };
            let _ = write!(shown, "\n\n---- {title}\n{}", text.trim_end());
        }
        Ok(shown + "\n")
    }

    fn section(&self, title: &str, compiler: &Compiler, graph: &Graph) -> Result<String, String> {
        let plan = || compiler.plan(graph).map_err(|e| e.to_string());
        let phase = title.strip_prefix("after ").and_then(|p| Phase::ALL.into_iter().find(|q| q.to_string() == p));
        match (title, phase) {
            ("kernels", _) => Ok(kernels(compiler, &plan()?)),
            ("plan", _) => Ok(print::program(&plan()?.lowered.program)),
            (_, Some(phase)) => {
                let blocks = compiler.after_phase(graph, phase).map_err(|e| e.to_string())?;
                Ok(blocks.iter().map(|block| text::print(block, text::Style { types: true })).collect())
            }
            _ => Err(format!("---- {title}: the sections are rules, after PHASE, kernels and plan")),
        }
    }
}

/// Parses the number of an option.
fn number<T: FromStr>(option: &str, words: &[String]) -> Result<T, String> {
    let wrong = || format!(";!{option}: one number is expected");
    if let [word] = words { word.parse().map_err(|_| wrong()) } else { Err(wrong()) }
}

/// Formats an error with its place in the case.
fn shown(error: Errors) -> String {
    format!("{:?}", miette::Report::new(error))
}

/// Returns one line for each kernel: its anchor, the fused ops, and the views through which it reads.
fn kernels(compiler: &Compiler, planned: &Planned) -> String {
    let blocks = compiler.describe(planned);
    let all = planned.outlined.calls.iter().flat_map(|call| &blocks[call.block]);
    all.map(kernel).collect()
}

fn kernel(report: &KernelReport) -> String {
    let view = |class: Class| matches!(class, Class::View(_));
    let (views, ops): (Vec<_>, Vec<_>) = report
        .fused
        .iter()
        .filter(|f| !matches!(f.op.def().class, Class::Leaf(_)))
        .partition(|f| view(f.op.def().class));
    let mut views: Vec<&str> = views.iter().map(|f| f.op.name()).collect();
    views.sort_unstable();
    views.dedup();
    let mut line = format!("{:4} {}", if report.load { "load" } else { "run" }, report.anchor);
    for fused in ops {
        let _ = write!(line, " + {}", fused.op);
    }
    if !views.is_empty() {
        let _ = write!(line, ", through {}", views.join(", "));
    }
    if report.stores > 1 {
        let _ = write!(line, ", {} results", report.stores);
    }
    line + "\n"
}
