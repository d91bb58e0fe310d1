//! Suggestions for unknown names.

/// Returns a question with the known name that is most similar, if one is similar enough.
pub fn did_you_mean<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    nearest(name, known).filter(|k| *k != name).map(|k| format!("did you mean `{k}`?"))
}

/// Returns a help text: the most similar name, and the known names after the words in `are`.
pub fn suggestion<'n>(name: &str, are: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    /// The maximal number of names that the text lists.
    const LISTED: usize = 24;
    let known: Vec<&str> = known.into_iter().collect();
    let guess = did_you_mean(name, known.iter().copied()).map_or(String::new(), |guess| guess + " ");
    match known.len() {
        0 => format!("{are} none"),
        n if n > LISTED => format!("{guess}{are} {} and {} more", known[..LISTED].join(", "), n - LISTED),
        _ => format!("{guess}{are} {}", known.join(", ")),
    }
}

/// Returns the most similar known name, if one is similar enough.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Jaro–Winkler similarity does not recognise swapped letters in short names.
    let swapped = |k: &str| name.len() > 2 && k.len() == name.len() && strsim::osa_distance(name, k) == 1;
    let score = |k: &str| strsim::jaro_winkler(name, k).max(if swapped(k) { 0.76 } else { 0.0 });
    let scored = known.map(|k| (score(k), k)).filter(|(score, _)| *score > 0.75);
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1))).map(|(_, k)| k)
}
