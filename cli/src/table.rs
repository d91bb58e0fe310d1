//! Formats results: numbers with units, headings, and text that fits the terminal.

use std::{fmt::Display, time::Duration};

use eutectic::engine::ir::lang::sexp::is_unseen;

use crate::screen;
pub use crate::screen::{Table, table};

/// Escapes control characters in a text from a file, because the terminal would interpret them.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Returns a heading. It is bold if colours are shown.
pub fn heading(text: impl Display) -> String {
    screen::styled("1;36", &prose(text))
}

/// Returns a text. It is dimmed if colours are shown.
pub fn faint(text: impl Display) -> String {
    screen::styled("2", &text.to_string())
}

/// Breaks a paragraph between words at the terminal's width. Continuation lines have the indentation of the first line.
pub fn prose(text: impl Display) -> String {
    let text = text.to_string();
    let indent = text.len() - text.trim_start_matches(' ').len();
    hanging(text, indent)
}

/// Breaks a paragraph between words at the terminal's width. Continuation lines are indented by `indent`.
pub fn hanging(text: impl Display, indent: usize) -> String {
    screen::fit(&text.to_string(), screen::width(), indent)
}

/// Breaks each line of a text between words at the terminal's width. Continuation lines are indented by four more
/// columns.
pub fn lines(text: impl Display) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let text = text.to_string();
    text.lines().map(|line| hanging(line, indent(line) + 4)).collect::<Vec<_>>().join("\n")
}

/// Formats an integer as in `12,345`.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 kernel`, `2,000 kernels`, `3 matches`.
pub fn several(n: usize, what: &str) -> String {
    let ending = match (n, what.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", thousands(n))
}

/// Formats a number with three significant digits and a prefix: `1.23 M`, `45.6 k`, `789`.
fn scaled(x: f64, step: f64, prefixes: &[&str]) -> String {
    let (mut x, mut prefixes) = (x, prefixes.iter());
    let mut prefix = "";
    while x.abs() >= 999.5
        && let Some(next) = prefixes.next()
    {
        x /= step;
        prefix = next;
    }
    let digits = match x.abs() {
        whole if prefix.is_empty() && whole.fract() == 0.0 => 0,
        large if large >= 99.95 => 0,
        medium if medium >= 9.995 => 1,
        _ => 2,
    };
    format!("{x:.digits$} {prefix}")
}

/// Formats a number of objects: `1.23 M`.
pub fn count(n: f64) -> String {
    scaled(n, 1000.0, &["k", "M", "G", "T"]).trim_end().to_string()
}

/// Formats a number of bytes: `1.50 MiB`.
pub fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &["Ki", "Mi", "Gi", "Ti"]) + "B"
}

/// Formats a time in seconds: `1.50 ms`.
pub fn seconds(s: f64) -> String {
    match s {
        s if !s.is_finite() => "–".into(),
        s if s.abs() >= 0.9995 => format!("{s:.2} s"),
        s => {
            // The sum of an empty list of times is −0. Adding 0 makes it 0.
            let number = scaled(s * 1e9 + 0.0, 1000.0, &["µ", "m"]);
            if number.ends_with(' ') { number + "ns" } else { number + "s" }
        }
    }
}

/// Formats a duration.
pub fn duration(time: Duration) -> String {
    seconds(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([several(1, "kernel"), several(2000, "match")], ["1 kernel", "2,000 matches"]);
        assert_eq!([0.0, 12.0, 999.6, 1234.0, 45.67e6].map(count), ["0", "12", "1.00 k", "1.23 k", "45.7 M"]);
        assert_eq!([512.0, 1024.0, 1.5 * 1048576.0].map(bytes), ["512 B", "1.00 KiB", "1.50 MiB"]);
        assert_eq!(
            [-0.0, 2e-9, 1.234e-6, 0.0125, 1.0, 75.0].map(seconds),
            ["0 ns", "2 ns", "1.23 µs", "12.5 ms", "1.00 s", "75.00 s"]
        );
        assert_eq!(seconds(f64::INFINITY), "–");
    }
}
