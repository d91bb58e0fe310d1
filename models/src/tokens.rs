//! Tokenizes texts with a `tokenizer.json`, and groups texts of different lengths into batches of few shapes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use eutectic_ir::{DType, Tensor};
use serde_json::Value;
use tokenizers::{Tokenizer, TruncationParams};

/// A tokenizer that was read from a `tokenizer.json`.
#[derive(Clone, Debug)]
pub struct Tokens {
    path: PathBuf,
    tokenizer: Tokenizer,
    vocabulary: usize,
    max_tokens: usize,
}

/// The reason why texts cannot be tokenized.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file does not describe a tokenizer.
    #[error("cannot read {} as a tokenizer: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
    /// The limit on tokens is too low for any text, because of the special tokens.
    #[error("cannot use {} with texts of at most {max_tokens} tokens because {special} of them are special; allow at least {}", .path.display(), .special + 1)]
    TooShort {
        /// The file.
        path: PathBuf,
        /// The largest number of tokens of a text.
        max_tokens: usize,
        /// The number of special tokens that each text gets.
        special: usize,
    },
    /// A text cannot be tokenized.
    #[error("{}: cannot tokenize {text:?}: {problem}", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The start of the text.
        text: String,
        /// The reason.
        problem: String,
    },
}

impl Tokens {
    /// Reads a `tokenizer.json`. Texts are truncated to `max_tokens` tokens, which include special tokens. The file's
    /// own settings for truncation and padding are ignored.
    ///
    /// # Errors
    /// If the file cannot be read, or does not describe a tokenizer, or its special tokens alone reach `max_tokens`.
    pub fn open(path: impl AsRef<Path>, max_tokens: usize) -> Result<Tokens, TokensError> {
        let path = path.as_ref().to_path_buf();
        let bytes = std::fs::read(&path).map_err(|source| TokensError::Io { path: path.clone(), source })?;
        let format =
            |problem: tokenizers::Error| TokensError::Format { path: path.clone(), problem: problem.to_string() };
        // The crate `tokenizers` panics on some files that this check rejects.
        check_templates(&bytes).map_err(|problem| format(problem.into()))?;
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(format)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(format)?;
        let empty = tokenizer.encode("", true).map_err(format)?;
        let special = empty.len();
        if special >= max_tokens {
            return Err(TokensError::TooShort { path, max_tokens, special });
        }
        let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(format)?;
        // The post-processor has its own ids of special tokens, which may exceed the ids of the vocabulary.
        let ids = tokenizer.get_vocab(true).into_values().chain(empty.get_ids().iter().copied());
        let vocabulary = ids.max().map_or(0, |id| id as usize + 1);
        Ok(Tokens { path, tokenizer, vocabulary, max_tokens })
    }

    /// Returns the largest token id plus 1.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns the largest number of tokens of a text, including special ones.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Returns the token ids of a text, including special ones. The text may be empty.
    ///
    /// # Errors
    /// If the tokenizer fails. For example, a tokenizer without an unknown token fails on unknown characters.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, TokensError> {
        let encoding = self.tokenizer.encode_fast(text, true).map_err(|problem| TokensError::Text {
            path: self.path.clone(),
            text: text.chars().take(40).collect(),
            problem: problem.to_string(),
        })?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    /// Tokenizes texts and divides them into batches of at most `max_batch` texts.
    ///
    /// # Errors
    /// If [`Tokens::encode`] fails on a text. The error is that of the first such text.
    pub fn batches(&self, texts: &[impl AsRef<str>], max_batch: usize) -> Result<Vec<Batch>, TokensError> {
        let ids: Vec<_> = texts.iter().map(|text| self.encode(text.as_ref())).collect::<Result<_, _>>()?;
        let lengths: Vec<_> = ids.iter().map(Vec::len).collect();
        let buckets = buckets(&lengths, Buckets { max_batch, max_length: self.max_tokens });
        Ok(buckets.into_iter().map(|bucket| Batch::new(bucket, &ids)).collect())
    }
}

/// Rejects a file on which the crate `tokenizers` would panic. The template for a single text must name that text A,
/// and may only use special tokens that the file defines.
fn check_templates(file: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(file).map_err(|e| e.to_string())?;
    let mut open = vec![&file["post_processor"]];
    while let Some(part) = open.pop() {
        open.extend(part["processors"].as_array().into_iter().flatten());
        let defined = &part["special_tokens"];
        for piece in part["single"].as_array().into_iter().flatten() {
            let (token, text) = (piece["SpecialToken"]["id"].as_str(), piece["Sequence"]["id"].as_str());
            if let Some(token) = token.filter(|token| defined.get(token).is_none()) {
                return Err(format!(
                    "the template of the post-processor uses the token {token:?}, which it does not define"
                ));
            }
            if let Some(text) = text.filter(|text| *text != "A") {
                return Err(format!(
                    "the template of the post-processor for a single text uses the text {text}, but only A exists"
                ));
            }
        }
    }
    Ok(())
}

/// The limits of [`buckets`].
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The largest number of texts in a bucket.
    pub max_batch: usize,
    /// The largest length in tokens.
    pub max_length: usize,
}

/// Texts that run together in one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The indices of the texts in the list of all texts.
    pub texts: Vec<usize>,
    /// The number of tokens to which each text of the bucket is padded.
    pub length: usize,
}

/// Groups texts of the given lengths into buckets of few different shapes. Few shapes are good because each one is
/// compiled.
///
/// Lengths are padded to multiples of 16 up to 64, of 32 up to 128, of 64 up to 256 and so on. So padding is less than
/// a third of any length above 32. The texts of one padded length are divided into buckets of 2ⁿ texts, the largest
/// bucket first: eleven texts are 8 + 2 + 1. So no row of a batch is padding. Buckets of shorter lengths come first,
/// and texts of one length keep their order.
pub fn buckets(lengths: &[usize], options: Buckets) -> Vec<Bucket> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (text, &length) in lengths.iter().enumerate() {
        groups.entry(padded(length, options.max_length)).or_default().push(text);
    }
    let mut buckets = Vec::new();
    for (length, texts) in groups {
        let mut rest = texts.as_slice();
        while !rest.is_empty() {
            let fitting = rest.len().min(options.max_batch.max(1));
            let (texts, others) = rest.split_at(1 << fitting.ilog2());
            buckets.push(Bucket { texts: texts.into(), length });
            rest = others;
        }
    }
    buckets
}

/// Returns the length in tokens to which a text is padded. It is at least `length`.
fn padded(length: usize, max_length: usize) -> usize {
    let step = (length.next_power_of_two() / 4).max(16);
    length.max(1).next_multiple_of(step).min(max_length).max(length)
}

/// The token ids of several texts, padded to one length. They are the inputs of a text model.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The index of each row's text in the list of all texts.
    pub texts: Vec<usize>,
    /// Token ids, and 0 for padding: `i64[texts length]`.
    pub ids: Tensor,
    /// 1 for tokens and 0 for padding: `i64[texts length]`.
    pub mask: Tensor,
}

impl Batch {
    /// Builds the batch of a bucket. `all` has the token ids of all texts.
    fn new(bucket: Bucket, all: &[Vec<i64>]) -> Batch {
        let dims = [bucket.texts.len(), bucket.length];
        let rows = |value: fn(i64) -> i64| {
            let row = |&text: &usize| {
                let padding = bucket.length - all[text].len();
                all[text].iter().map(move |&id| value(id)).chain(std::iter::repeat_n(0, padding))
            };
            Tensor::from_i64(DType::I64, &dims, bucket.texts.iter().flat_map(row))
        };
        Batch { ids: rows(|id| id), mask: rows(|_| 1), texts: bucket.texts }
    }

    /// Returns the number of texts and the padded length in tokens.
    pub fn dims(&self) -> [usize; 2] {
        [self.ids.dims()[0], self.ids.dims()[1]]
    }

    /// Returns the value of the graph's input with that name.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        match name {
            "ids" => Some(&self.ids),
            "mask" => Some(&self.mask),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_padded_to_few_values() {
        let mut used: Vec<_> = (0..=512).map(|n| padded(n, 512)).collect();
        used.dedup();
        assert_eq!(used, [16, 32, 48, 64, 96, 128, 192, 256, 384, 512]);
        for n in 33..=512 {
            assert!((padded(n, 512) - n) * 3 < padded(n, 512), "{n}");
        }
        assert_eq!([padded(100, 100), padded(97, 100), padded(101, 100), padded(3, 8)], [100, 100, 101, 8]);
    }

    #[test]
    fn every_text_is_in_one_bucket_of_its_length() {
        let mut rng = crate::random::Rng::new(3);
        for round in 0..200 {
            let options = Buckets { max_batch: rng.below(40), max_length: 256 };
            let lengths: Vec<_> =
                (0..rng.below(60)).map(|_| rng.below(if round % 2 == 0 { 257 } else { 20 })).collect();
            let buckets = buckets(&lengths, options);
            let mut seen: Vec<_> = buckets.iter().flat_map(|b| b.texts.clone()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for bucket in buckets {
                assert!(bucket.texts.len().is_power_of_two() && bucket.texts.len() <= options.max_batch.max(1));
                assert!(bucket.texts.iter().all(|&t| padded(lengths[t], 256) == bucket.length));
            }
        }
    }

    #[test]
    fn eleven_texts_are_eight_and_two_and_one() {
        let sizes: Vec<_> =
            buckets(&[5; 11], Buckets { max_batch: 64, max_length: 256 }).iter().map(|b| b.texts.len()).collect();
        assert_eq!(sizes, [8, 2, 1]);
    }

    #[test]
    fn batches_are_padded_with_zeros_and_masked() {
        let batch = Batch::new(Bucket { texts: vec![1, 0], length: 4 }, &[vec![7, 8], vec![0, 5, 6]]);
        assert_eq!(batch.dims(), [2, 4]);
        assert_eq!(batch.input("ids").expect("an input").to_i64(), [0, 5, 6, 0, 7, 8, 0, 0]);
        assert_eq!(batch.input("mask").expect("an input").to_i64(), [1, 1, 1, 0, 1, 1, 0, 0]);
        assert!(batch.input("labels").is_none());
    }
}
