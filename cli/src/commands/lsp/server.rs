//! The loop that answers the editor.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
};

use eutectic::{Error, RuleSet, engine::ir::lang::format};
use lsp_server::{Connection, ErrorCode, ExtractError, Message, Notification, Request, RequestId, Response};
use lsp_types::{
    CompletionOptions, CompletionParams, CompletionResponse, DidChangeTextDocumentParams, DidCloseTextDocumentParams,
    DidOpenTextDocumentParams, DidSaveTextDocumentParams, DocumentFormattingParams, GotoDefinitionParams,
    GotoDefinitionResponse, Hover, HoverContents, HoverParams, HoverProviderCapability, InitializeParams, Location,
    MarkupContent, MarkupKind, OneOf, PublishDiagnosticsParams, ServerCapabilities, TextDocumentPositionParams,
    TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions, TextEdit, Uri,
    notification::{
        DidChangeTextDocument, DidCloseTextDocument, DidOpenTextDocument, DidSaveTextDocument, Notification as _,
        PublishDiagnostics,
    },
    request::{Completion, Formatting, GotoDefinition, HoverRequest, Request as _},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    completion::completions,
    definition::{Definition, definition},
    document::{Document, Open},
    hover::hover,
    position::Unit,
    worker::{Job, Worker, ops_of},
};
use crate::{
    args::{LoadedRules, OwnRules},
    fault::Fault,
};

/// Serves an editor until it ends the session.
///
/// # Errors
/// If rules do not load, or the editor does not keep to the protocol.
pub fn run(own: &OwnRules) -> Result<(), Fault> {
    let LoadedRules { rules, faults, .. } = own.after(RuleSet::embedded().map_err(Error::from)?)?;
    Fault::all(faults)?;
    let broken = |error: &dyn std::fmt::Display| Fault::run(format!("cannot go on serving the editor: {error}"));
    // The thread that writes ends with the process: a test of a rule may still be about to report.
    let (connection, _threads) = Connection::stdio();
    let (id, params) = connection.initialize_start().map_err(|e| broken(&e))?;
    let params: InitializeParams = serde_json::from_value(params).map_err(|e| broken(&e))?;
    let unit =
        Unit::chosen(params.capabilities.general.as_ref().and_then(|general| general.position_encodings.as_ref()));
    let answer = json!({
        "capabilities": capabilities(unit),
        "serverInfo": { "name": "eutectic", "version": env!("CARGO_PKG_VERSION") },
    });
    connection.initialize_finish(id, answer).map_err(|e| broken(&e))?;
    let base = Arc::new(rules);
    let (jobs, received) = mpsc::channel();
    let sender = connection.sender.clone();
    // If nobody reads what is sent, the session is over.
    let worker = Worker { base: base.clone(), unit, out: Box::new(move |message| drop(sender.send(message))) };
    thread::spawn(move || worker.run(&received));
    let mut server = Server { documents: BTreeMap::new(), base, unit, jobs };
    for message in &connection.receiver {
        let answer = match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request).map_err(|e| broken(&e))? {
                    return Ok(());
                }
                Some(server.answer(request).into())
            }
            Message::Notification(notification) => server.notice(notification).map(Message::from),
            Message::Response(_) => None,
        };
        if let Some(answer) = answer {
            connection.sender.send(answer).map_err(|e| broken(&e))?;
        }
    }
    Ok(())
}

fn capabilities(unit: Unit) -> ServerCapabilities {
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::FULL),
        save: Some(lsp_types::TextDocumentSyncSaveOptions::Supported(true)),
        ..TextDocumentSyncOptions::default()
    };
    let triggers = ["(", ":", "?"].map(str::to_string).to_vec();
    ServerCapabilities {
        position_encoding: Some(unit.kind()),
        text_document_sync: Some(TextDocumentSyncCapability::Options(sync)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions { trigger_characters: Some(triggers), ..Default::default() }),
        definition_provider: Some(OneOf::Left(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        ..ServerCapabilities::default()
    }
}

/// The open documents, and the way to the thread that checks them.
struct Server {
    /// By their addresses.
    documents: BTreeMap<String, Document>,
    base: Arc<RuleSet>,
    unit: Unit,
    jobs: mpsc::Sender<Job>,
}

impl Server {
    /// Returns the answer to a request.
    fn answer(&self, request: Request) -> Response {
        match request.method.as_str() {
            HoverRequest::METHOD => {
                self.respond(request, |params: HoverParams| self.hover(&params.text_document_position_params))
            }
            Completion::METHOD => {
                self.respond(request, |params: CompletionParams| self.complete(&params.text_document_position))
            }
            GotoDefinition::METHOD => {
                self.respond(request, |params: GotoDefinitionParams| self.define(&params.text_document_position_params))
            }
            Formatting::METHOD => {
                self.respond(request, |params: DocumentFormattingParams| self.lay_out(&params.text_document.uri))
            }
            method => {
                let message = format!("cannot answer {method} because this server does not offer it");
                Response::new_err(request.id, ErrorCode::MethodNotFound as i32, message)
            }
        }
    }

    fn respond<P: DeserializeOwned, R: Serialize>(
        &self,
        request: Request,
        answer: impl FnOnce(P) -> Option<R>,
    ) -> Response {
        let (id, method): (RequestId, String) = (request.id.clone(), request.method.clone());
        match request.extract::<P>(&method) {
            Ok((id, params)) => Response::new_ok(id, answer(params)),
            Err(ExtractError::JsonError { error, .. }) => {
                Response::new_err(id, ErrorCode::InvalidParams as i32, error.to_string())
            }
            Err(ExtractError::MethodMismatch(_)) => unreachable!("the method is that of the request"),
        }
    }

    /// Takes notice of an open, changed, saved or closed document. Returns the message for a closed one.
    fn notice(&mut self, notification: Notification) -> Option<Notification> {
        let params = notification.params;
        match notification.method.as_str() {
            DidOpenTextDocument::METHOD => {
                let document = serde_json::from_value::<DidOpenTextDocumentParams>(params).ok()?.text_document;
                self.take(Document::new(document.uri, document.version, document.text), false);
            }
            DidChangeTextDocument::METHOD => {
                let changed: DidChangeTextDocumentParams = serde_json::from_value(params).ok()?;
                // The editor sends whole texts.
                let text = changed.content_changes.into_iter().next_back()?.text;
                self.take(Document::new(changed.text_document.uri, changed.text_document.version, text), false);
            }
            DidSaveTextDocument::METHOD => {
                let saved: DidSaveTextDocumentParams = serde_json::from_value(params).ok()?;
                let document = self.documents.get(saved.text_document.uri.as_str())?.clone();
                self.take(document, true);
            }
            DidCloseTextDocument::METHOD => {
                let closed: DidCloseTextDocumentParams = serde_json::from_value(params).ok()?;
                let uri = closed.text_document.uri;
                self.documents.remove(uri.as_str());
                let params = PublishDiagnosticsParams { uri, diagnostics: Vec::new(), version: None };
                return Some(Notification::new(PublishDiagnostics::METHOD.into(), params));
            }
            _ => {}
        }
        None
    }

    fn take(&mut self, document: Document, saved: bool) {
        self.documents.insert(document.uri.as_str().to_string(), document.clone());
        let job = Job { document, open: self.open(), saved };
        // The worker ends after this sender.
        let _ = self.jobs.send(job);
    }

    fn open(&self) -> Open {
        self.documents.values().map(|document| (document.path.clone(), document.text.clone())).collect()
    }

    /// Returns a document and the byte offset of a position in it.
    fn at(&self, at: &TextDocumentPositionParams) -> Option<(&Document, usize)> {
        let document = self.documents.get(at.text_document.uri.as_str())?;
        Some((document, self.unit.offset(&document.text, at.position)))
    }

    fn hover(&self, at: &TextDocumentPositionParams) -> Option<Hover> {
        let (document, offset) = self.at(at)?;
        let card = hover(document, offset, &ops_of(document, &self.open(), &self.base))?;
        let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value: card.text });
        Some(Hover { contents, range: Some(self.unit.range(&document.text, &card.span)) })
    }

    fn complete(&self, at: &TextDocumentPositionParams) -> Option<CompletionResponse> {
        let (document, offset) = self.at(at)?;
        let ops = ops_of(document, &self.open(), &self.base);
        Some(CompletionResponse::Array(completions(document, offset, &ops)))
    }

    fn define(&self, at: &TextDocumentPositionParams) -> Option<GotoDefinitionResponse> {
        let (document, offset) = self.at(at)?;
        let place = match definition(document, offset, &document.rule_files(&self.open()))? {
            Definition::Here(span) => Location::new(document.uri.clone(), self.unit.range(&document.text, &span)),
            Definition::There(source, span) => {
                let uri = Document::address(&source.name).parse().ok()?;
                Location::new(uri, self.unit.range(&source.text, &span))
            }
        };
        Some(GotoDefinitionResponse::Scalar(place))
    }

    /// Returns the edit that lays out a document, or none where it does not read.
    fn lay_out(&self, uri: &Uri) -> Option<Vec<TextEdit>> {
        let document = self.documents.get(uri.as_str())?;
        let laid_out = format(&document.source()).ok()?;
        if laid_out == *document.text {
            return Some(Vec::new());
        }
        Some(vec![TextEdit::new(self.unit.range(&document.text, &(0..document.text.len())), laid_out)])
    }
}
