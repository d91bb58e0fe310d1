//! Chat templates: the Jinja template of a GGUF file turns messages into a prompt. The environment is that of the
//! transformers library.

mod clock;

use std::path::PathBuf;

use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::Serialize;

use crate::{gguf::Gguf, vocabulary::Vocabulary};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The role: `system`, `user` or `assistant`, in most templates.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// Makes a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// The template of a file.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    source: String,
    begin: String,
    end: String,
}

/// The reason why messages cannot become a prompt.
#[derive(Debug, thiserror::Error)]
#[error("cannot apply the chat template of {}: {problem}", .path.display())]
pub struct ChatError {
    /// The file.
    pub path: PathBuf,
    /// The reason, with the line of the template.
    pub problem: String,
}

/// The limit on steps of a template. Conversations take thousands; the limit ends an infinite loop.
const MOST_STEPS: u64 = 50_000_000;

impl ChatTemplate {
    /// Returns the template of a file, if it has one.
    pub fn new(gguf: &Gguf, vocabulary: &Vocabulary) -> Option<ChatTemplate> {
        let name = |id: Option<u32>| id.and_then(|id| vocabulary.name(id)).unwrap_or_default().to_string();
        Some(ChatTemplate {
            path: gguf.path().into(),
            source: gguf.text("tokenizer.chat_template")?.into(),
            begin: name(vocabulary.begin()),
            end: name(vocabulary.end()),
        })
    }

    /// Returns the prompt of a conversation. If `asks`, it ends where the model's answer begins.
    ///
    /// # Errors
    /// If the template is wrong or rejects the messages.
    pub fn apply(&self, messages: &[Message], asks: bool) -> Result<String, ChatError> {
        let text = self.rendered(messages, asks);
        text.map_err(|error| ChatError { path: self.path.clone(), problem: format!("{error:#}") })
    }

    fn rendered(&self, messages: &[Message], asks: bool) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(MOST_STEPS));
        // Templates call methods of Python's strings and dictionaries.
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |problem: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, problem))
        });
        environment.add_function("strftime_now", |format: String| clock::now(&format));
        environment.add_filter("tojson", json);
        let template = environment.template_from_named_str("chat template", &self.source)?;
        template.render(context! {
            messages,
            add_generation_prompt => asks,
            bos_token => self.begin,
            eos_token => self.end,
        })
    }
}

/// Writes JSON as Python's `json.dumps` does, without escapes for HTML.
fn json(value: Value) -> Result<Value, Error> {
    let text = serde_json::to_string(&value);
    text.map(Value::from_safe_string).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}
