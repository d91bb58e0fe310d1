//! Chat templates: the Jinja template of a GGUF file turns messages into a prompt. It can call the functions that the
//! transformers library gives to templates.

mod clock;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use minijinja::{Environment, Error, ErrorKind, Value, context, value::Kwargs};
use serde::Serialize;
use serde_json::{
    Serializer,
    ser::{Formatter, PrettyFormatter},
};

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

/// Writes a value as JSON, like `json.dumps` of Python with `ensure_ascii=False`, which `transformers` uses. A space
/// follows each comma and colon. With `indent`, each item is on its own line instead. This filter replaces that of
/// minijinja, which writes no spaces and escapes characters for HTML.
fn json(value: Value, named: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = named.get("indent")?;
    named.assert_all_used()?;
    let mut text = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut text, Spaced)),
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let lines = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, lines))
        }
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8(text).expect("JSON is UTF-8")))
}

/// Writes JSON in one line, with the separators of Python.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of `json.dumps(x, ensure_ascii=False)` of Python 3.11, with and without `indent`.
    #[test]
    fn json_is_written_as_python_writes_it() {
        let template = |source: &str| ChatTemplate {
            path: "m.gguf".into(),
            source: source.into(),
            begin: String::new(),
            end: String::new(),
        };
        let rendered = |source: &str| template(source).apply(&[], true);
        let x = "{'a': [1, 2.5, 'ü<\"'], 'b': {}, 'c': none, 'd': [], 'e': true}";
        let line = r#"{"a": [1, 2.5, "ü<\""], "b": {}, "c": null, "d": [], "e": true}"#;
        assert_eq!(rendered(&format!("{{{{ {x} | tojson }}}}")).unwrap(), line);
        let lines = "{\n  \"a\": [\n    1,\n    true\n  ],\n  \"b\": {}\n}";
        assert_eq!(rendered("{{ {'a': [1, true], 'b': {}} | tojson(indent=2) }}").unwrap(), lines);
        assert!(rendered("{{ 1 | tojson(sort=true) }}").is_err());
    }
}
