//! How texts are divided before byte pairs are merged: one row for each name in `tokenizer.ggml.pre`.

/// A way to divide texts.
pub(super) struct Splits {
    /// Its names in files.
    pub names: &'static [&'static str],
    /// Regular expressions, one after the other: the matches of each and the texts between them are parts for the next.
    pub patterns: &'static [&'static str],
    /// Whether texts are brought into Unicode's form NFC first.
    pub composes: bool,
    /// Whether a part that is a token is left whole.
    pub keeps_whole: bool,
    /// Whether prompts begin with the token for that, where the file does not say.
    pub adds_begin: bool,
}

/// GPT-2's own (Radford et al. 2019): contractions, words, numbers and punctuation, each with a space before it, and white space.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: as GPT-2's, with numbers of at most three digits and ends of lines by themselves.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's: Llama 3's with digits one by one.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const PLAIN: Splits = Splits { names: &[], patterns: &[GPT2], composes: false, keeps_whole: false, adds_begin: false };

const SPLITS: &[Splits] = &[
    Splits { names: &["default"], patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], ..PLAIN },
    Splits { names: &["gpt-2", "phi-2", "mpt", "olmo", "jais"], ..PLAIN },
    Splits {
        names: &["smollm", "starcoder", "refact", "codeshell", "command-r"],
        patterns: &[r"\p{N}", GPT2],
        ..PLAIN
    },
    Splits {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA3],
        keeps_whole: true,
        adds_begin: true,
        ..PLAIN
    },
    Splits { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], composes: true, ..PLAIN },
];

/// Returns the way of a name.
pub(super) fn named(name: &str) -> Option<&'static Splits> {
    SPLITS.iter().find(|splits| splits.names.contains(&name))
}

/// Returns all names.
pub(super) fn names() -> String {
    SPLITS.iter().flat_map(|splits| splits.names).copied().collect::<Vec<_>>().join(", ")
}
