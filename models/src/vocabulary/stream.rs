//! Converts a stream of tokens to text without splitting characters.

/// A buffer that collects the bytes of tokens until they form whole characters.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The bytes of an incomplete character, at most three.
    rest: Vec<u8>,
}

impl TextStream {
    /// Adds the bytes of a token, and returns the text that is now complete. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend(bytes);
        let mut text = String::new();
        let mut kept = 0;
        for chunk in self.rest.utf8_chunks() {
            text.push_str(chunk.valid());
            let is_last = kept + chunk.valid().len() + chunk.invalid().len() == self.rest.len();
            kept += chunk.valid().len();
            // `error_len` is `None` if further bytes could complete the character.
            let is_start = is_last && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
            if is_start {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            kept += chunk.invalid().len();
        }
        self.rest.drain(..kept);
        text
    }

    /// Ends the stream. Returns U+FFFD if a character is incomplete, and otherwise nothing.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_come_whole_however_their_bytes_are_divided() {
        let bytes = "aé東🙂\u{0301}z".as_bytes().to_vec();
        let broken = [&bytes[..], b"\xff\xe6\x9dx\xf0\x9f", &bytes].concat();
        for size in 1..=broken.len() {
            let mut stream = TextStream::default();
            let mut text: String = broken.chunks(size).map(|chunk| stream.push(chunk)).collect();
            text += &stream.finish();
            assert_eq!(text, String::from_utf8_lossy(&broken), "in parts of {size}");
        }
        let mut stream = TextStream::default();
        assert_eq!(stream.push("東".as_bytes().split_at(2).0), "");
        assert_eq!(stream.push("東".as_bytes().split_at(2).1), "東");
        assert_eq!(stream.finish(), "");
        assert_eq!(stream.push(b"\xf0\x9f\x99"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
