//! Compares two texts line by line.

use std::fmt::Write;

/// The number of context lines around a difference.
const AROUND: usize = 2;

/// Returns lines that are only in `want` after a `-`, and lines that are only in `got` after a `+`.
pub fn lines(want: &str, got: &str) -> String {
    let (want, got): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    // The length of the longest common subsequence of the remaining lines, for each pair of starts.
    let mut longest = vec![vec![0_usize; got.len() + 1]; want.len() + 1];
    for (i, a) in want.iter().enumerate().rev() {
        for (j, b) in got.iter().enumerate().rev() {
            longest[i][j] = if a == b { longest[i + 1][j + 1] + 1 } else { longest[i + 1][j].max(longest[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    while i < want.len() || j < got.len() {
        if i < want.len() && j < got.len() && want[i] == got[j] {
            all.push((' ', want[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == got.len() || (i < want.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            all.push(('-', want[i]));
            i += 1;
        } else {
            all.push(('+', got[j]));
            j += 1;
        }
    }
    let near = |at: usize| all[at.saturating_sub(AROUND)..(at + AROUND + 1).min(all.len())].iter().any(|l| l.0 != ' ');
    let mut text = String::new();
    for (at, (sign, line)) in all.iter().enumerate().filter(|(at, _)| near(*at)) {
        if *sign == ' ' && at > 0 && !near(at - 1) {
            text.push_str("  …\n");
        }
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

#[test]
fn differences_are_shown_with_what_is_around_them() {
    let want = "a\nb\nc\nd\ne\nf\ng\n";
    assert_eq!(lines(want, "a\nb\nc\nd\nE\nf\ng\nh\n"), "  …\n  c\n  d\n- e\n+ E\n  f\n  g\n+ h\n");
    assert_eq!(lines(want, want), "");
}
