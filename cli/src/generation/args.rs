//! The options of text generation.

use crate::values::whole;

/// The element type of the keys and values in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// 16-bit floats, which halve the memory of the cache and the time to read it; keys and values beyond ±65,504
    /// become infinite
    F16,
    /// 32-bit floats: keys and values are not rounded
    F32,
}

/// The options of text generation.
#[derive(clap::Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// The largest number of generated tokens; the model may end the text earlier [default: 256]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub max_tokens: Option<usize>,
    /// The number that divides logits before a random choice; 0 chooses the most likely token [default: 0]
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// Chooses only from the N most likely tokens
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub top_k: Option<usize>,
    /// Chooses only from the most likely tokens, up to a total probability of P
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,
    /// Chooses only from tokens that are at least P times as probable as the most likely one
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,
    /// The number that divides the logits of tokens that occurred before [default: 1]
    #[arg(long, value_name = "X")]
    pub repeat_penalty: Option<f64>,
    /// The element type of the keys and values in the cache [default: f16]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub cache: Option<Cache>,
}

impl GenerationArgs {
    /// Returns the names of the options that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let others = [
            ("--max-tokens", self.max_tokens.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--repeat-penalty", self.repeat_penalty.is_some()),
            ("--cache", self.cache.is_some()),
        ];
        others.into_iter().filter_map(|(flag, given)| given.then_some(flag)).chain(self.of_random_choice())
    }

    /// Returns the names of the given options that have an effect on random choices only.
    pub fn of_random_choice(&self) -> impl Iterator<Item = &'static str> {
        let flags =
            [("--top-k", self.top_k.is_some()), ("--top-p", self.top_p.is_some()), ("--min-p", self.min_p.is_some())];
        flags.into_iter().filter_map(|(flag, given)| given.then_some(flag))
    }
}
