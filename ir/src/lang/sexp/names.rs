//! Suggestions for names that are not known.

/// Returns a question for the name that was probably meant.
pub fn did_you_mean<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    nearest(name, known).filter(|k| *k != name).map(|k| format!("did you mean `{k}`?"))
}

/// Returns a suggestion: the probable name, and the known names after `are`.
pub fn suggestion<'n>(name: &str, are: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    /// More are no help.
    const LISTED: usize = 24;
    let known: Vec<&str> = known.into_iter().collect();
    let guess = did_you_mean(name, known.iter().copied()).map_or(String::new(), |guess| guess + " ");
    match known.len() {
        0 => format!("{are} none"),
        n if n > LISTED => format!("{guess}{are} {} and {} more", known[..LISTED].join(", "), n - LISTED),
        _ => format!("{guess}{are} {}", known.join(", ")),
    }
}

/// Returns the name that was probably meant.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // This measure ignores swapped letters in short names.
    let swapped = |k: &str| name.len() > 2 && k.len() == name.len() && strsim::osa_distance(name, k) == 1;
    let score = |k: &str| strsim::jaro_winkler(name, k).max(if swapped(k) { 0.76 } else { 0.0 });
    let scored = known.map(|k| (score(k), k)).filter(|(score, _)| *score > 0.75);
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1))).map(|(_, k)| k)
}
