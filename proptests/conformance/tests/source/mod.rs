//! Reads Rust files as tokens, for tests of the source.

/// Returns the tokens of a file, without items that have `#[cfg(test)]`.
pub fn tokens_outside_tests(text: &str) -> Vec<String> {
    let mut all = tokens(text);
    let mut at = 0;
    while at < all.len() {
        if ["#", "[", "cfg", "(", "test", ")", "]"]
            .iter()
            .enumerate()
            .all(|(n, word)| all.get(at + n).is_some_and(|t| t == word))
        {
            all.drain(at..after_item(&all, at + 7));
        } else {
            at += 1;
        }
    }
    all
}

/// Returns the end of the item that starts at `at`: after its braces, or after a semicolon if that comes first.
fn after_item(tokens: &[String], at: usize) -> usize {
    let mut depth = 0;
    for (n, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            ";" if depth == 0 => return n + 1,
            "{" => depth += 1,
            "}" if depth == 1 => return n + 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns whether a token is a name or a keyword.
pub fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the tokens of Rust source: words, `::`, string literals with their quotes, and each other character. Omits
/// white space, comments, character literals and the quotes of lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(c) = rest.chars().next() {
        let skip = |end: Option<usize>| end.unwrap_or(rest.len());
        let length = match c {
            '/' if rest.starts_with("//") => skip(rest.find('\n')),
            '/' if rest.starts_with("/*") => skip(rest.find("*/").map(|n| n + 2)),
            '"' => {
                let mut escaped = false;
                let end = |c: char| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                };
                let length = skip(rest[1..].find(end).map(|n| n + 2));
                tokens.push(rest[..length].to_string());
                length
            }
            // A character, as '{' or '\n', or a lifetime.
            '\'' if rest[1..].starts_with('\\') => skip(rest[3..].find('\'').map(|n| n + 4)),
            '\'' => {
                let inner = rest[1..].chars().next().map_or(0, char::len_utf8);
                if rest[1 + inner..].starts_with('\'') { inner + 2 } else { 1 }
            }
            ':' if rest.starts_with("::") => {
                tokens.push("::".to_string());
                2
            }
            c if c.is_alphanumeric() || c == '_' => {
                let end = skip(rest.find(|c: char| !(c.is_alphanumeric() || c == '_')));
                tokens.push(rest[..end].to_string());
                end
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}
