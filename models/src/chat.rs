//! Chat templates: the Jinja template of a GGUF file turns messages into a prompt. It can call the functions that the
//! transformers library gives to templates.

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

/// The chat template of a GGUF file, with the tokens that begin and end a text.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    source: String,
    begin: String,
    end: String,
}

/// The reason why a chat template cannot make a prompt of messages.
#[derive(Debug, thiserror::Error)]
#[error("cannot apply the chat template of {}: {problem}", .path.display())]
pub struct ChatError {
    /// The GGUF file of the template.
    pub path: PathBuf,
    /// The error of the template engine, with the line of the template.
    pub problem: String,
}

/// The limit on the steps of a template's evaluation. Real conversations take thousands of steps; the limit stops a
/// template that loops forever.
const MOST_STEPS: u64 = 50_000_000;

impl ChatTemplate {
    /// Returns the chat template of a GGUF file, or `None` if it has none.
    pub fn new(gguf: &Gguf, vocabulary: &Vocabulary) -> Option<ChatTemplate> {
        let name = |id: Option<u32>| id.and_then(|id| vocabulary.name(id)).unwrap_or_default().to_string();
        Some(ChatTemplate {
            path: gguf.path().into(),
            source: gguf.text("tokenizer.chat_template")?.into(),
            begin: name(vocabulary.begin()),
            end: name(vocabulary.end()),
        })
    }

    /// Renders a conversation into a prompt. With `asks`, the prompt ends with the header of the assistant's message,
    /// so the model continues with its answer.
    ///
    /// # Errors
    /// If the template has an error, or if it rejects the messages.
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

/// Writes a value as compact JSON. It replaces minijinja's own filter, which escapes characters for HTML; templates of
/// language models expect none of these escapes.
fn json(value: Value) -> Result<Value, Error> {
    let text = serde_json::to_string(&value);
    text.map(Value::from_safe_string).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}
