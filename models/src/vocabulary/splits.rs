//! The rules that split texts before byte pairs are merged, one row for each group of names in `tokenizer.ggml.pre`.

/// A rule that splits texts. No token spans two of the resulting parts.
pub(super) struct Splits {
    /// The names of the rule in GGUF files.
    pub names: &'static [&'static str],
    /// Regular expressions, applied one after another. Each one splits every part of the text into its matches and the
    /// text between them.
    pub patterns: &'static [&'static str],
    /// Whether texts are first normalized to Unicode normalization form C.
    pub composes: bool,
    /// Whether a part stays whole if it is itself a token, even if no sequence of merges builds that token.
    pub keeps_whole: bool,
    /// Whether prompts start with the begin token by default.
    pub adds_begin: bool,
}

/// The rule of GPT-2 (Radford et al. 2019). Its parts are contractions, white space, and words, numbers and
/// punctuation, each with the space before it.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The rule of Llama 3. Unlike that of GPT-2, it splits numbers into groups of at most three digits, and line ends from
/// other white space.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The rule of Qwen 2. Unlike that of Llama 3, it splits numbers into single digits.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The rule of GPT-4o and gpt-oss (tiktoken's o200k): words in capitals, words that end in small letters, each with a
/// contraction; numbers of at most three digits; punctuation, line ends and white space.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

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
    Splits { names: &["gpt-4o"], patterns: &[O200K], keeps_whole: true, ..PLAIN },
    Splits { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], composes: true, ..PLAIN },
];

/// Returns the rule with this name in GGUF files.
pub(super) fn named(name: &str) -> Option<&'static Splits> {
    SPLITS.iter().find(|splits| splits.names.contains(&name))
}

/// Returns the names of all rules for messages, separated by commas.
pub(super) fn names() -> String {
    SPLITS.iter().flat_map(|splits| splits.names).copied().collect::<Vec<_>>().join(", ")
}
