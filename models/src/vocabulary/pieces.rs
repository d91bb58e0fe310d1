//! The meaning of tokens: kinds, and the bytes that they add to texts.

use std::collections::HashMap;

/// A space, as SentencePiece writes it.
pub(super) const SPACE: char = '▁';
/// How tokens of single bytes are called where others have characters: `<0x0A>`.
const BYTE: (&str, &str) = ("<0x", ">");

/// A token.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Its name, as the file has it.
    pub name: String,
    /// The bytes that it adds to a text: none for control tokens.
    pub bytes: Vec<u8>,
}

/// The kinds of tokens, by their numbers in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of text.
    Normal,
    /// A sign that is no text.
    Control,
    /// A text that is never divided.
    Whole,
    /// A single byte.
    Byte,
    /// Not in use.
    Unused,
}

impl Kind {
    pub fn numbered(number: f64) -> Kind {
        match number as i64 {
            // The unknown token is a sign, too.
            2 | 3 => Kind::Control,
            4 => Kind::Whole,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Normal,
        }
    }
}

/// Returns the tokens of a file; where characters stand for bytes, `are_bytes` says so.
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

/// Returns the bytes that characters stand for (GPT-2): printable ones for themselves, and characters after 255 for the others.
fn bytes_of_characters() -> HashMap<char, u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let printable = (0..=255).filter(is_printable).map(|byte| (char::from(byte), byte));
    let others = (0..=255_u8).filter(|byte| !is_printable(byte)).zip('\u{100}'..).map(|(byte, c)| (c, byte));
    printable.chain(others).collect()
}
