//! The options of a generation.

use crate::values::whole;

/// The element type of the keys and values in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// 16-bit floats, which take half of the memory
    F16,
    /// 32-bit floats: keys and values are not rounded, and tokens are faster on the CPU
    F32,
}

/// How a text is continued.
#[derive(clap::Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// The most tokens that are generated; the text ends earlier where the model ends it [default: 256]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub max_tokens: Option<usize>,
    /// The number that logits are divided by before a token is chosen at random; 0 chooses the likeliest one [default: 0]
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// Only the N likeliest tokens take part
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub top_k: Option<usize>,
    /// Only the likeliest tokens take part whose probabilities reach the sum P
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,
    /// Only tokens take part that have at least the share P of the likeliest one's probability
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,
    /// The number that logits of tokens that were there before are divided by [default: 1]
    #[arg(long, value_name = "X")]
    pub repeat_penalty: Option<f64>,
    /// The element type of the keys and values in the cache [default: f32]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub cache: Option<Cache>,
}

impl GenerationArgs {
    /// Returns the options that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let others = [
            ("--max-tokens", self.max_tokens.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--repeat-penalty", self.repeat_penalty.is_some()),
            ("--cache", self.cache.is_some()),
        ];
        others.into_iter().filter_map(|(flag, given)| given.then_some(flag)).chain(self.of_random_choice())
    }

    /// Returns those of them that mean something only where tokens are chosen at random.
    pub fn of_random_choice(&self) -> impl Iterator<Item = &'static str> {
        let flags =
            [("--top-k", self.top_k.is_some()), ("--top-p", self.top_p.is_some()), ("--min-p", self.min_p.is_some())];
        flags.into_iter().filter_map(|(flag, given)| given.then_some(flag))
    }
}
