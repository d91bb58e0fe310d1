//! The thread that loads, lints and checks documents, and publishes what it finds.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    ops::Range,
    path::Path,
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, TryRecvError},
    },
};

use eutectic::{
    BACKENDS, Compiler, Error, RuleSet, Setup,
    engine::{
        ir::{
            lang::{Errors, LangError, Source},
            ops::Ops,
        },
        rewrites::{Lint, Probe, Rule, circles, lint, read_graph},
    },
    packs,
};
use eutectic_checker::{Checker, Options, Outcome, worth};
use lsp_server::{Message, Notification};
use lsp_types::{
    Diagnostic, DiagnosticSeverity, NumberOrString, PublishDiagnosticsParams,
    notification::{Notification as _, PublishDiagnostics},
};

use super::{
    document::{Document, Language, Open},
    position::Unit,
};
use crate::findings::unknown_backends;

/// A document to look at.
pub struct Job {
    /// The document.
    pub document: Document,
    /// The other open documents.
    pub open: Open,
    /// Whether it was saved, so that its rules are tested.
    pub saved: bool,
}

/// A finding about a rule. It stays while the text of the rule does.
struct Finding {
    rule: Arc<str>,
    text: String,
    /// The marked range, counted from the start of the rule.
    span: Range<usize>,
    message: String,
    severity: DiagnosticSeverity,
    code: &'static str,
}

/// The findings about the rules of a document.
#[derive(Default)]
struct Findings {
    /// Those of `rules lint`.
    lints: Vec<Finding>,
    /// Those of tests, which take longer.
    tests: Vec<Finding>,
}

/// The rules of a document that were loaded.
struct LoadedDocument {
    /// All rules, with those of this build.
    all: RuleSet,
    /// The names of the document's own.
    own: Vec<Arc<str>>,
    errors: Vec<LangError>,
}

/// Loads, lints and checks documents.
pub struct Worker {
    /// The rules that every document may use.
    pub base: Arc<RuleSet>,
    /// The unit of columns.
    pub unit: Unit,
    /// Sends messages to the editor.
    pub out: Box<dyn Fn(Message) + Send>,
}

impl Worker {
    /// Serves jobs until their sender is gone. A job of a document replaces an earlier one of it.
    pub fn run(&self, jobs: &Receiver<Job>) {
        let mut waiting: VecDeque<Job> = VecDeque::new();
        let mut known: BTreeMap<String, Findings> = BTreeMap::new();
        loop {
            if waiting.is_empty() {
                match jobs.recv() {
                    Ok(job) => waiting.push_back(job),
                    Err(_) => return,
                }
            }
            if !drain(jobs, &mut waiting) {
                return;
            }
            let Some(job) = waiting.pop_front() else { continue };
            let findings = known.entry(job.document.uri.as_str().to_string()).or_default();
            let mut is_current =
                || drain(jobs, &mut waiting) && !waiting.iter().any(|new| new.document.uri == job.document.uri);
            if let Err(error) = self.look_at(&job, findings, &mut is_current) {
                self.log(&error);
            }
        }
    }

    /// Loads a document, lints it, and tests its rules if it was saved. Publishes what was found after each step. Ends
    /// early if the document is not current.
    ///
    /// # Errors
    /// If the processor cannot be opened, or the rules of this build are damaged.
    fn look_at(&self, job: &Job, findings: &mut Findings, is_current: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let document = &job.document;
        let files = document.rule_files(&job.open);
        if document.language() == Language::Graph {
            let ops = RuleSet::read_ops(&files, self.base.ops());
            let errors = read_graph(&document.source(), &ops).err().map_or(Vec::new(), |errors: Errors| errors.0);
            self.publish(document, self.of_loader(document, &errors));
            return Ok(());
        }
        let loaded = self.load(document, &files);
        self.report(document, &loaded, findings);
        if !loaded.errors.is_empty() || !is_current() {
            return Ok(());
        }
        findings.lints = lints(&loaded);
        self.report(document, &loaded, findings);
        if job.saved {
            findings.tests.clear();
            self.test(document, &loaded, findings, is_current)?;
        }
        Ok(())
    }

    fn load(&self, document: &Document, files: &[Source]) -> LoadedDocument {
        let (rules, mut errors) = RuleSet::read_partly(files, self.base.ops());
        let name = document.path.display().to_string();
        let own = rules.iter().filter(|r| *r.source.name == *name).map(|r| r.name.clone()).collect();
        // The files of this build's own rules are newer than the build.
        let is_open = |built_in: &str| files.iter().any(|file| Path::new(&*file.name).ends_with(built_in));
        let base = self.base.filtered(|rule| !is_open(&rule.source.name));
        let (all, taken) = base.and_partly(rules);
        errors.extend(taken);
        LoadedDocument { all, own, errors }
    }

    /// Tests the rules of a document, and publishes the findings after each rule that has some.
    fn test(
        &self,
        document: &Document,
        loaded: &LoadedDocument,
        findings: &mut Findings,
        is_current: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let (checker, backends) = tools()?;
        let probes: Vec<Probe> = loaded.all.probes().filter(|probe| loaded.own.contains(&probe.rule().name)).collect();
        for probe in probes {
            if !is_current() {
                return Ok(());
            }
            let rule = probe.rule();
            let report = checker.check(&probe).map_err(Error::from)?;
            let found = match report.outcome() {
                Outcome::Wrong => {
                    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
                    Some((failures.join("\n").trim().to_string(), DiagnosticSeverity::ERROR))
                }
                Outcome::NotChecked => {
                    let message = format!("cannot check the rule: {}", report.notes.join("; "));
                    Some((message, DiagnosticSeverity::WARNING))
                }
                _ => None,
            };
            let found =
                found.map(|(message, severity)| Finding::new(rule, &rule.span, message, severity, "rules check"));
            let worth = worth::lint(&probe.rules(), backends).map_err(Error::from)?;
            let before = findings.tests.len();
            findings.tests.extend(found.into_iter().chain(worth.iter().map(|lint| Finding::of(rule, lint))));
            if findings.tests.len() > before {
                self.report(document, loaded, findings);
            }
        }
        Ok(())
    }

    /// Publishes the errors of the loader, and the findings about rules that have not changed since.
    fn report(&self, document: &Document, loaded: &LoadedDocument, findings: &Findings) {
        let mut diagnostics = self.of_loader(document, &loaded.errors);
        let of = |finding: &Finding| {
            let rule = loaded.all.get(&finding.rule).filter(|rule| rule.text() == finding.text)?;
            let span = rule.span.start + finding.span.start..rule.span.start + finding.span.end;
            Some(self.diagnostic(document, &span, finding.message.clone(), finding.severity, finding.code))
        };
        diagnostics.extend(findings.lints.iter().chain(&findings.tests).filter_map(of));
        self.publish(document, diagnostics);
    }

    fn of_loader(&self, document: &Document, errors: &[LangError]) -> Vec<Diagnostic> {
        let name = document.path.display().to_string();
        let of = |error: &LangError| {
            let help = error.help.as_ref().map_or(String::new(), |help| format!("\nhelp: {help}"));
            let message = format!("{}{help}", error.message);
            self.diagnostic(document, &error.span(), message, DiagnosticSeverity::ERROR, "rules")
        };
        errors.iter().filter(|error| error.source_name() == name).map(of).collect()
    }

    /// Returns a diagnostic. A finding about several lines marks the first.
    fn diagnostic(
        &self,
        document: &Document,
        span: &Range<usize>,
        message: String,
        severity: DiagnosticSeverity,
        code: &str,
    ) -> Diagnostic {
        let text = &document.text;
        let start = text.floor_char_boundary(span.start);
        let end = text.ceil_char_boundary(span.end.max(start));
        let line = text[start..end].find('\n').map_or(end, |at| start + at);
        Diagnostic {
            range: self.unit.range(text, &(start..line)),
            severity: Some(severity),
            code: Some(NumberOrString::String(code.into())),
            source: Some("eutectic".into()),
            message,
            ..Diagnostic::default()
        }
    }

    fn publish(&self, document: &Document, diagnostics: Vec<Diagnostic>) {
        let (uri, version) = (document.uri.clone(), Some(document.version));
        let params = PublishDiagnosticsParams { uri, diagnostics, version };
        (self.out)(Notification::new(PublishDiagnostics::METHOD.into(), params).into());
    }

    fn log(&self, error: &Error) {
        let params = lsp_types::LogMessageParams { typ: lsp_types::MessageType::ERROR, message: error.to_string() };
        (self.out)(Notification::new(lsp_types::notification::LogMessage::METHOD.into(), params).into());
    }
}

impl Finding {
    fn new(
        rule: &Rule,
        span: &Range<usize>,
        message: String,
        severity: DiagnosticSeverity,
        code: &'static str,
    ) -> Finding {
        let at = |offset: usize| offset.saturating_sub(rule.span.start);
        let (span, text) = (at(span.start)..at(span.end), rule.text().to_string());
        Finding { rule: rule.name.clone(), text, span, message, severity, code }
    }

    fn of(rule: &Rule, lint: &Lint) -> Finding {
        Finding::new(rule, &lint.span, lint.message.clone(), DiagnosticSeverity::WARNING, "rules lint")
    }
}

/// Returns the findings of `rules lint` about the document's own rules, except those that need plans.
fn lints(loaded: &LoadedDocument) -> Vec<Finding> {
    let mut found = lint(&loaded.all);
    found.extend(circles(&loaded.all, |rule| loaded.own.contains(&rule.name)));
    found.extend(unknown_backends(&loaded.all));
    let own = found.iter().filter(|lint| loaded.own.contains(&lint.rule));
    own.filter_map(|lint| Some(Finding::of(loaded.all.get(&lint.rule)?, lint))).collect()
}

/// Moves all jobs that have come to the queue; only the last one of each document stays. Returns whether more may come.
fn drain(jobs: &Receiver<Job>, waiting: &mut VecDeque<Job>) -> bool {
    loop {
        match jobs.try_recv() {
            Ok(mut job) => {
                let same = |old: &Job| old.document.uri == job.document.uri;
                let saved = waiting.iter().any(|old| same(old) && old.saved);
                waiting.retain(|old| !same(old));
                job.saved |= saved;
                waiting.push_back(job);
            }
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

/// Returns the checker, and the compilers for which rules are to be worth their place. They are made at first use.
///
/// # Errors
/// If the processor cannot be opened.
fn tools() -> Result<&'static (Checker, Vec<Compiler>), Error> {
    static TOOLS: OnceLock<(Checker, Vec<Compiler>)> = OnceLock::new();
    if TOOLS.get().is_none() {
        let setup = Setup { threads: Some(NonZeroUsize::MIN), ..Setup::default() };
        let backend = BACKENDS[0].open(&setup)?;
        let backends = vec![Compiler::from_arc(backend.clone(), packs(&*backend)?)];
        let checker =
            Checker::new(Options { backends: backends.clone(), ..Options::default() }).map_err(Error::from)?;
        // Only this thread makes them.
        let _ = TOOLS.set((checker, backends));
    }
    Ok(TOOLS.get().expect("the tools were made"))
}

/// Returns the ops that a document may name.
pub fn ops_of(document: &Document, open: &Open, base: &RuleSet) -> Ops {
    RuleSet::read_ops(&document.rule_files(open), base.ops())
}
