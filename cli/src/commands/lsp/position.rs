//! Positions of the protocol, which count lines and code units, and positions in bytes.

use std::ops::Range;

use lsp_types::{Position, PositionEncodingKind};

/// The unit of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of UTF-8.
    Utf8,
    /// Code units of UTF-16, which every client understands.
    Utf16,
}

impl Unit {
    /// Returns bytes if the client offers them.
    pub fn chosen(offered: Option<&Vec<PositionEncodingKind>>) -> Unit {
        let utf8 = offered.is_some_and(|all| all.contains(&PositionEncodingKind::UTF8));
        if utf8 { Unit::Utf8 } else { Unit::Utf16 }
    }

    /// Returns the name of the unit.
    pub fn kind(self) -> PositionEncodingKind {
        match self {
            Unit::Utf8 => PositionEncodingKind::UTF8,
            Unit::Utf16 => PositionEncodingKind::UTF16,
        }
    }

    fn length(self, text: &str) -> usize {
        match self {
            Unit::Utf8 => text.len(),
            Unit::Utf16 => text.encode_utf16().count(),
        }
    }

    /// Returns the position of a byte offset.
    pub fn position(self, text: &str, offset: usize) -> Position {
        let before = &text[..text.floor_char_boundary(offset)];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let (line, column) = (before.matches('\n').count(), self.length(&before[start..]));
        Position::new(line as u32, column as u32)
    }

    /// Returns the range of a span.
    pub fn range(self, text: &str, span: &Range<usize>) -> lsp_types::Range {
        lsp_types::Range::new(self.position(text, span.start), self.position(text, span.end))
    }

    /// Returns the byte offset of a position. A position behind the end of its line means that end.
    pub fn offset(self, text: &str, position: Position) -> usize {
        let mut start = 0;
        for _ in 0..position.line {
            match text[start..].find('\n') {
                Some(at) => start += at + 1,
                None => return text.len(),
            }
        }
        let line = text[start..].split('\n').next().unwrap_or_default();
        let mut column = 0;
        for (at, c) in line.char_indices() {
            if column >= position.character as usize {
                return start + at;
            }
            column += match self {
                Unit::Utf8 => c.len_utf8(),
                Unit::Utf16 => c.len_utf16(),
            };
        }
        start + line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_code_units() {
        let text = "a\n−𝔸b\nc";
        for (unit, column) in [(Unit::Utf8, 7), (Unit::Utf16, 3)] {
            let position = Position::new(1, column);
            assert_eq!(unit.offset(text, position), text.find('b').expect("it is there"));
            assert_eq!(unit.position(text, text.find('b').expect("it is there")), position);
            assert_eq!(unit.offset(text, Position::new(1, 99)), text.find("\nc").expect("it is there"));
            assert_eq!(unit.offset(text, Position::new(9, 0)), text.len());
        }
    }
}
