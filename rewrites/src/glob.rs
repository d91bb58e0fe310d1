//! Patterns of rule names. `*` matches any characters, also slashes and dots. `?` matches one character, and `{a,b}`
//! matches `a` or `b`. Every other character matches itself. Brackets have no special meaning, because the copies of
//! a rule for several ops are named `rule[op]`.

/// The maximal number of expansions of a pattern's braces. More expansions would exhaust the memory, and are probably
/// a mistake.
const MOST: usize = 1024;

/// The maximal number of braces of a pattern, because expanding each of them recurses.
const MOST_BRACES: usize = 64;

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The expansions of the pattern's braces.
    alternatives: Vec<String>,
}

/// The reason why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// An unmatched brace.
    #[error("the braces `{{` and `}}` are unbalanced")]
    Braces,
    /// Too many braces.
    #[error("the pattern has more than {MOST_BRACES} braces, or more than {MOST} expansions")]
    TooMany,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If braces are unbalanced, or there are too many of them or of their expansions.
    pub fn new(pattern: &str) -> Result<Glob, GlobError> {
        let mut alternatives = Vec::new();
        if pattern.matches('{').count() > MOST_BRACES {
            return Err(GlobError::TooMany);
        }
        expand("", pattern, &mut alternatives)?;
        Ok(Glob { alternatives })
    }

    /// Returns whether a name matches the pattern.
    pub fn is_match(&self, name: &str) -> bool {
        self.alternatives.iter().any(|pattern| is_match(pattern, name))
    }
}

/// Adds the expansions of `rest`, each after the text `before`, which has no braces.
fn expand(before: &str, rest: &str, into: &mut Vec<String>) -> Result<(), GlobError> {
    let Some(open) = rest.find(['{', '}']) else {
        into.push(format!("{before}{rest}"));
        return if into.len() > MOST { Err(GlobError::TooMany) } else { Ok(()) };
    };
    let (mut depth, mut from) = (0_usize, open + 1);
    let mut choices = Vec::new();
    for (at, c) in rest[open..].char_indices().map(|(n, c)| (open + n, c)) {
        match c {
            '{' => depth += 1,
            ',' if depth == 1 => {
                choices.push(&rest[from..at]);
                from = at + 1;
            }
            '}' if depth == 0 => return Err(GlobError::Braces),
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            choices.push(&rest[from..at]);
            let after = &rest[at + 1..];
            // A choice may contain braces, so it is expanded together with the text after it.
            return choices.into_iter().try_for_each(|choice| {
                expand(&format!("{before}{}", &rest[..open]), &format!("{choice}{after}"), into)
            });
        }
    }
    Err(GlobError::Braces)
}

/// Returns whether a name matches a pattern without braces. On a mismatch, only the last `*` matches one more
/// character. Extending an earlier `*` instead cannot help, because it would leave fewer characters for the last one.
fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}")).is_match(name)
    }

    /// Matches by definition: tries every split at a `*`.
    fn by_definition(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|n| by_definition(rest, &name[n..])),
            Some((c, rest)) => {
                name.split_first().is_some_and(|(d, name)| (*c == '?' || c == d) && by_definition(rest, name))
            }
        }
    }

    #[test]
    fn patterns_mean_what_their_definition_says() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut seen = [0; 2];
        for _ in 0..20_000 {
            let mut draw = |of: &[char], most| -> Vec<char> {
                let count = rng.usize(0..=most);
                (0..count).map(|_| of[rng.usize(0..of.len())]).collect()
            };
            let (pattern, name) = (draw(&['a', 'b', '*', '?', '*'], 7), draw(&['a', 'b'], 9));
            let wanted = by_definition(&pattern, &name);
            let [pattern, name] = [pattern, name].map(String::from_iter);
            assert_eq!(matches(&pattern, &name), wanted, "{pattern} {name}");
            seen[usize::from(wanted)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 2000), "{seen:?}");
    }

    #[test]
    fn names_of_rules() {
        assert!(matches("fuse/*", "fuse/mean[add]") && matches("*mean[add]", "fuse/mean[add]"));
        assert!(!matches("fuse/mean", "fuse/mean[add]") && !matches("fuse/mean[ad]", "fuse/meana"));
        assert!(matches("a.b.*", "a.b.c.d") && matches("é?", "éü"));
    }

    #[test]
    fn braces_are_choices() {
        let of = |pattern: &str| Glob::new(pattern).map(|glob| glob.alternatives);
        assert_eq!(of("x{a,b{c,}}{1,2}"), Ok(["xa1", "xa2", "xbc1", "xbc2", "xb1", "xb2"].map(String::from).to_vec()));
        assert_eq!(of("a,{}b"), Ok(vec!["a,b".into()]));
        for wrong in ["{", "}", "a{b", "a}b", "{{a}", "{a}}"] {
            assert_eq!(of(wrong), Err(GlobError::Braces), "{wrong}");
        }
        assert_eq!(of(&"{a,b}".repeat(10)).map(|all| all.len()), Ok(1024));
        for many in ["{a,b}".repeat(64), "{a}".repeat(40_000), "{".repeat(100_000)] {
            assert_eq!(of(&many), Err(GlobError::TooMany));
        }
    }
}
