//! The kind of each token, and the bytes that the token adds to a text.

use std::collections::HashMap;

/// The character that stands for a space in SentencePiece.
pub(super) const SPACE: char = '▁';
/// The start and the end of the names of single-byte tokens in SentencePiece, such as `<0x0A>`.
const BYTE: (&str, &str) = ("<0x", ">");

/// A token of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The name of the token in the file.
    pub name: String,
    /// The bytes that the token adds to a text. A control token adds none.
    pub bytes: Vec<u8>,
}

/// The kinds of tokens in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary token.
    Normal,
    /// A control token, which adds no text.
    Control,
    /// A user-defined token. It is found before a text is split.
    Whole,
    /// A token for a single byte.
    Byte,
    /// A token that no text contains.
    Unused,
}

impl Kind {
    pub fn numbered(number: f64) -> Kind {
        match number as i64 {
            // Kind 2 is the unknown token. It adds no text, so it counts as a control token.
            2 | 3 => Kind::Control,
            4 => Kind::Whole,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Normal,
        }
    }
}

/// Returns the tokens of a file with their bytes. If `are_bytes`, each character of a name stands for a byte.
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

/// Returns the byte that each character stands for in GPT-2. Printable bytes stand for themselves. Characters from
/// U+0100 on stand for the unprintable bytes.
fn bytes_of_characters() -> HashMap<char, u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let printable = (0..=255).filter(is_printable).map(|byte| (char::from(byte), byte));
    let others = (0..=255_u8).filter(|byte| !is_printable(byte)).zip('\u{100}'..).map(|(byte, c)| (c, byte));
    printable.chain(others).collect()
}
