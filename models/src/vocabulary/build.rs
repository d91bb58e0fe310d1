//! Builds vocabularies from the metadata `tokenizer.ggml.*`.

use tokenizers::{
    AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer,
    models::bpe::{BPE, Vocab},
    normalizers::{NFC, Prepend, Replace, Sequence as Normalizers},
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
};

use super::{
    pieces::{Kind, Piece, SPACE, pieces},
    splits,
};
use crate::gguf::{Gguf, Value};

/// The names of tokens that end a text or a message in published models. The metadata of a file lists only some of
/// these tokens.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
];

/// The tokenizer and the tokens of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub tokenizer: Tokenizer,
    pub pieces: Vec<Piece>,
    pub begin: Option<u32>,
    pub end: Option<u32>,
    /// The ids of tokens that end a text, sorted.
    pub ends: Vec<u32>,
    pub adds_begin: bool,
    pub adds_end: bool,
}

/// The metadata of a file, and the problems that were found in it.
struct Source<'a> {
    gguf: &'a Gguf,
    tokens: Vec<(&'a str, Kind)>,
    problems: Vec<String>,
}

pub(super) fn parts(gguf: &Gguf) -> Result<Parts, Vec<String>> {
    let mut source = Source { gguf, tokens: Vec::new(), problems: Vec::new() };
    source.read_tokens();
    let model = gguf.text("tokenizer.ggml.model").unwrap_or("(none)");
    let (tokenizer, by_default) = match model {
        "gpt2" => source.byte_pairs(),
        "llama" => (source.sentence_pieces(), true),
        other => {
            source.problems.push(format!("the tokenizer `{other}` is not supported; supported are `gpt2` and `llama`"));
            (None, false)
        }
    };
    let [begin, end, eot, eom] = ["bos", "eos", "eot", "eom"].map(|name| source.token(name));
    let mut ends: Vec<u32> = [end, eot, eom].into_iter().flatten().collect();
    let is_end = |(id, (name, _)): (usize, &(&str, Kind))| ENDS.contains(name).then_some(id as u32);
    ends.extend(source.tokens.iter().enumerate().filter_map(is_end));
    ends.sort_unstable();
    ends.dedup();
    let adds_begin = source.flag("add_bos_token", by_default);
    let adds_end = source.flag("add_eos_token", false);
    let pieces = pieces(&source.tokens, model == "gpt2");
    match (tokenizer, source.problems.is_empty()) {
        (Some(tokenizer), true) => Ok(Parts { tokenizer, pieces, begin, end, ends, adds_begin, adds_end }),
        _ => Err(source.problems),
    }
}

impl<'a> Source<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.gguf.get(&format!("tokenizer.ggml.{name}"))
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.get(name).map(Value::flag) {
            None => default,
            Some(Some(flag)) => flag,
            Some(None) => {
                self.problems.push(format!("the value `tokenizer.ggml.{name}` should be true or false"));
                default
            }
        }
    }

    /// Returns the token whose id the metadata `{name}_token_id` gives.
    fn token(&mut self, name: &str) -> Option<u32> {
        let id = self.get(&format!("{name}_token_id"))?.size();
        let known = id.filter(|id| *id < self.tokens.len()).and_then(|id| u32::try_from(id).ok());
        if known.is_none() {
            let count = self.tokens.len();
            self.problems
                .push(format!("the value `tokenizer.ggml.{name}_token_id` is out of range for {count} tokens"));
        }
        known
    }

    fn read_tokens(&mut self) {
        let texts: Vec<&str> = self.get("tokens").and_then(Value::array).map_or(Vec::new(), |a| a.texts().collect());
        if texts.is_empty() {
            self.problems.push("the value `tokenizer.ggml.tokens` should be a list of strings".into());
        }
        let kinds = self.get("token_type").and_then(Value::array);
        let kinds: Vec<Kind> = kinds.map_or(Vec::new(), |kinds| kinds.numbers().map(Kind::numbered).collect());
        if !kinds.is_empty() && kinds.len() != texts.len() {
            let counts = format!("{} kinds for {} tokens", kinds.len(), texts.len());
            self.problems.push(format!("the value `tokenizer.ggml.token_type` has {counts}"));
        }
        let kinds = kinds.into_iter().chain(std::iter::repeat(Kind::Normal));
        self.tokens = texts.into_iter().zip(kinds).collect();
    }

    fn ids(&self) -> Vocab {
        self.tokens.iter().enumerate().map(|(id, (name, _))| (name.to_string(), id as u32)).collect()
    }

    /// Builds byte-level byte-pair encoding (GPT-2): each character of a token stands for a byte.
    fn byte_pairs(&mut self) -> (Option<Tokenizer>, bool) {
        let name = self.get("pre").map_or(Some("default"), Value::text).unwrap_or("(no text)");
        let Some(splits) = splits::named(name) else {
            let known = splits::names();
            self.problems
                .push(format!("`tokenizer.ggml.pre` is `{name}`, which is not supported; supported are {known}"));
            return (None, false);
        };
        let merges = self.get("merges").and_then(Value::array);
        let pairs = |line: &str| line.split_once(' ').map(|(left, right)| (left.to_string(), right.to_string()));
        let merges: Option<Vec<_>> = merges.and_then(|merges| merges.texts().map(pairs).collect());
        let Some(merges) = merges else {
            self.problems
                .push("the value `tokenizer.ggml.merges` should be a list of pairs with a space between".into());
            return (None, false);
        };
        let model = BPE::builder().vocab_and_merges(self.ids(), merges).ignore_merges(splits.keeps_whole).build();
        let Some(mut tokenizer) = self.tokenizer(model) else { return (None, false) };
        tokenizer.with_normalizer(splits.composes.then_some(NFC));
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).into());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            split.expect("the patterns of the table are valid regular expressions").into()
        };
        let mut parts: Vec<PreTokenizerWrapper> = splits.patterns.iter().map(split).collect();
        parts.push(ByteLevel::new(false, true, false).into());
        tokenizer.with_pre_tokenizer(Some(Sequence::new(parts)));
        (Some(tokenizer), splits.adds_begin)
    }

    /// Builds SentencePiece's byte-pair encoding, in which the pair whose result has the highest score merges first.
    fn sentence_pieces(&mut self) -> Option<Tokenizer> {
        let scores = self.get("scores").and_then(Value::array).map_or(Vec::new(), |a| a.numbers().collect());
        if scores.len() != self.tokens.len() {
            let counts = format!("a list of {} numbers, it has {}", self.tokens.len(), scores.len());
            self.problems.push(format!("the value `tokenizer.ggml.scores` should be {counts}"));
            return None;
        }
        let ids = self.ids();
        let mut merges = Vec::new();
        for (id, (name, kind)) in self.tokens.iter().enumerate() {
            if *kind != Kind::Normal {
                continue;
            }
            for (at, _) in name.char_indices().skip(1) {
                let (left, right) = name.split_at(at);
                if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                    merges.push((scores[id], [*l, *r], (left.to_string(), right.to_string())));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let merges = merges.into_iter().map(|(.., pair)| pair).collect::<Vec<_>>();
        let unknown = self.token("unknown").map(|id| self.tokens[id as usize].0.to_string());
        let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
        if let Some(unknown) = unknown {
            builder = builder.unk_token(unknown);
        }
        let mut tokenizer = self.tokenizer(builder.build())?;
        let spaces = Replace::new(" ", SPACE.to_string()).expect("a space is a valid pattern");
        let mut steps: Vec<NormalizerWrapper> = vec![spaces.into()];
        if self.flag("add_space_prefix", true) {
            steps.insert(0, Prepend::new(SPACE.to_string()).into());
        }
        tokenizer.with_normalizer(Some(Normalizers::new(steps)));
        Some(tokenizer)
    }

    /// Builds a tokenizer that finds special tokens in a text before it splits the remaining text.
    fn tokenizer(&mut self, model: tokenizers::Result<BPE>) -> Option<Tokenizer> {
        match model {
            Err(problem) => {
                self.problems.push(format!("its tokens and merges do not fit each other: {problem}"));
                None
            }
            Ok(model) => {
                let mut tokenizer = Tokenizer::new(model);
                let of = |wanted: Kind| {
                    let names = self.tokens.iter().filter(move |(name, kind)| *kind == wanted && !name.is_empty());
                    names.map(move |(name, _)| AddedToken::from(*name, wanted == Kind::Control).normalized(false))
                };
                tokenizer.add_special_tokens(&of(Kind::Control).collect::<Vec<_>>());
                tokenizer.add_tokens(&of(Kind::Whole).collect::<Vec<_>>());
                Some(tokenizer)
            }
        }
    }
}
