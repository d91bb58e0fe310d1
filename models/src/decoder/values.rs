//! Values of an architecture in the metadata of a file, with a list of everything that is wrong.

use crate::gguf::{Gguf, Value};

/// The values of an architecture that this reader uses.
const KNOWN: &[&str] = &[
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "attn_logit_softcapping",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "feed_forward_length",
    "final_logit_softcapping",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "tensor_data_layout",
    "vocab_size",
];

/// The largest extent of a model.
pub(super) const MOST: usize = 1 << 24;

/// Values of an architecture, with a list of problems.
pub(super) struct Values<'a> {
    pub gguf: &'a Gguf,
    pub of: &'a str,
    pub problems: Vec<String>,
}

impl Values<'_> {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.gguf.get(&format!("{}.{name}", self.of))
    }

    pub fn wrong(&mut self, name: &str, expected: &str) {
        let found = match self.get(name) {
            None => "it is missing".into(),
            Some(value) => format!("it is {value}"),
        };
        self.problems.push(format!("the value `{}.{name}` should be {expected}; {found}", self.of));
    }

    pub fn size(&mut self, name: &str) -> usize {
        let found = self.get(name).and_then(Value::size).filter(|n| (1..=MOST).contains(n));
        found.unwrap_or_else(|| {
            self.wrong(name, &format!("an integer from 1 to {MOST}"));
            1
        })
    }

    pub fn size_or(&mut self, name: &str, default: usize) -> usize {
        if self.get(name).is_some() { self.size(name) } else { default }
    }

    pub fn number_or(&mut self, name: &str, default: f64) -> f64 {
        let Some(value) = self.get(name) else { return default };
        value.number().filter(|x| x.is_finite() && *x >= 0.0).unwrap_or_else(|| {
            self.wrong(name, "a number that is not negative");
            default
        })
    }

    /// Checks a value that may be missing, but otherwise must satisfy `is_right`.
    pub fn fixed(&mut self, name: &str, expected: &str, is_right: impl FnOnce(&Value) -> bool) {
        if self.get(name).is_some_and(|value| !is_right(value)) {
            self.wrong(name, expected);
        }
    }

    /// Reports values that this reader does not know. If they were ignored, results could be wrong.
    pub fn unknown(&mut self) {
        let start = format!("{}.", self.of);
        let keys = self.gguf.metadata().keys().filter_map(|key| key.strip_prefix(&start));
        let unknown = keys.filter(|name| !KNOWN.contains(name));
        let problems = unknown.map(|name| format!("the key `{start}{name}` is not supported"));
        self.problems.extend(problems.collect::<Vec<_>>());
    }
}
