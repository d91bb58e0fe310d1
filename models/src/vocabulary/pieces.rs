//! The kind of each token, and the bytes that it adds to a text.

use std::collections::HashMap;

/// The character that SentencePiece writes for a space.
pub(super) const SPACE: char = '▁';
/// The form of single-byte tokens in vocabularies of characters: `<0x0A>`.
const BYTE: (&str, &str) = ("<0x", ">");

/// A token.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Its name in the file.
    pub name: String,
    /// The bytes that it adds to a text. Control tokens add none.
    pub bytes: Vec<u8>,
}

/// The kinds of tokens, by their numbers in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of text.
    Normal,
    /// A control token, which adds no text.
    Control,
    /// A user-defined token, which is never split.
    Whole,
    /// A single byte.
    Byte,
    /// An unused token.
    Unused,
}

impl Kind {
    pub fn numbered(number: f64) -> Kind {
        match number as i64 {
            // The unknown token counts as a control token.
            2 | 3 => Kind::Control,
            4 => Kind::Whole,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Normal,
        }
    }
}

/// Returns the tokens of a file. `are_bytes` says whether characters stand for bytes.
pub(super) fn pieces(tokens: &[(&str, Kind)], are_bytes: bool) -> Vec<Piece> {
    let bytes_of = bytes_of_characters();
    let piece = |(name, kind): &(&str, Kind)| {
        let byte = name.strip_prefix(BYTE.0).and_then(|name| name.strip_suffix(BYTE.1));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes = match (kind, byte) {
            (Kind::Control | Kind::Unused, _) => Vec::new(),
            (Kind::Byte, Some(byte)) => vec![byte],
            (Kind::Whole, _) => name.as_bytes().to_vec(),
            _ if are_bytes => {
                let byte = |c: char| bytes_of.get(&c).map_or_else(|| c.to_string().into_bytes(), |byte| vec![*byte]);
                name.chars().flat_map(byte).collect()
            }
            _ => name.replace(SPACE, " ").into_bytes(),
        };
        Piece { name: name.to_string(), bytes }
    };
    tokens.iter().map(piece).collect()
}

/// Returns the byte for each character (GPT-2). Printable bytes stand for themselves. Characters after 255 stand for
/// the others.
fn bytes_of_characters() -> HashMap<char, u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let printable = (0..=255).filter(is_printable).map(|byte| (char::from(byte), byte));
    let others = (0..=255_u8).filter(|byte| !is_printable(byte)).zip('\u{100}'..).map(|(byte, c)| (c, byte));
    printable.chain(others).collect()
}
