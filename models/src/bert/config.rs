//! The configuration of a BERT encoder, as `config.json` of the transformers library holds it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, Fields, read},
    nn::Activation,
};

/// The parameters of a BERT encoder, without weights (Devlin et al. 2018, arXiv:1810.04805).
#[derive(Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// Number of token ids.
    pub vocabulary: usize,
    /// Width of the hidden state.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads per layer, a divisor of `hidden`.
    pub heads: usize,
    /// Width of the feed-forward block's inner activation, between its two linear layers.
    pub intermediate: usize,
    /// The activation between the two linear layers of a feed-forward block.
    pub activation: Activation,
    /// The largest sequence length in tokens: the rows of the table of position embeddings.
    pub positions: usize,
    /// Number of token types (segments A and B in BERT's training). The encoder takes all tokens as type 0.
    pub types: usize,
    /// The number that layer norms add to the variance.
    pub eps: f64,
}

impl BertConfig {
    /// BERT-base, uncased: 12 layers, hidden 768.
    pub fn base() -> BertConfig {
        BertConfig {
            vocabulary: 30522,
            hidden: 768,
            layers: 12,
            heads: 12,
            intermediate: 3072,
            activation: Activation::GeluErf,
            positions: 512,
            types: 2,
            eps: 1e-12,
        }
    }

    /// Reads `config.json`. Ignores fields that the encoder does not use.
    ///
    /// # Errors
    /// If the file cannot be read or is not a JSON object, or if fields are missing or wrong. The error lists all such
    /// fields.
    pub fn open(path: impl AsRef<Path>) -> Result<BertConfig, ConfigError> {
        read(path.as_ref(), "a BERT encoder", BertConfig::from_fields)
    }

    /// Builds the configuration from the fields of a JSON object.
    ///
    /// # Errors
    /// One line for each field that is missing or wrong.
    pub fn from_fields(fields: &Map<String, Value>) -> Result<BertConfig, Vec<String>> {
        let mut r = Fields::new(fields);
        let vocabulary = r.size("vocab_size", 1 << 31);
        let hidden = r.size("hidden_size", 1 << 20);
        let layers = r.size("num_hidden_layers", 1 << 12);
        let heads = r.size("num_attention_heads", 1 << 20);
        let intermediate = r.size("intermediate_size", 1 << 24);
        let positions = r.size("max_position_embeddings", 1 << 24);
        let types = r.size("type_vocab_size", 1 << 20);
        let eps = r.check("layer_norm_eps", "a number above 0 and below 1", |x: &f64| *x > 0.0 && *x < 1.0);
        let activation = r.activation("hidden_act");
        if let (Some(hidden), Some(heads)) = (hidden, heads)
            && hidden % heads != 0
        {
            r.problem("num_attention_heads", format!("a divisor of hidden_size, {hidden}"), &heads);
        }
        // These fields select variants of BERT. The encoder supports only their default values.
        r.fixed("model_type", "bert");
        r.fixed("position_embedding_type", "absolute");
        r.fixed("is_decoder", false);
        r.fixed("add_cross_attention", false);
        let config = || {
            Some(BertConfig {
                vocabulary: vocabulary?,
                hidden: hidden?,
                layers: layers?,
                heads: heads?,
                intermediate: intermediate?,
                activation: activation?,
                positions: positions?,
                types: types?,
                eps: eps?,
            })
        };
        r.done(config())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields() -> Value {
        json!({
            "vocab_size": 100, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
            "intermediate_size": 40, "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu_new", "model_type": "bert", "hidden_dropout_prob": 0.1, "position_embedding_type": null
        })
    }

    fn read(fields: &Value) -> Result<BertConfig, Vec<String>> {
        BertConfig::from_fields(fields.as_object().expect("an object"))
    }

    #[test]
    fn reads_what_is_needed_and_ignores_the_rest() {
        let config = read(&fields()).expect("it is complete");
        assert_eq!((config.hidden, config.heads, config.activation), (24, 3, Activation::GeluTanh));
    }

    #[test]
    fn lists_everything_that_is_missing_or_wrong() {
        let mut wrong = fields();
        wrong["hidden_size"] = json!(25);
        wrong["hidden_act"] = json!("quick_gelu");
        wrong["layer_norm_eps"] = json!("small");
        wrong["num_hidden_layers"] = json!(-1);
        wrong["max_position_embeddings"] = json!(1e300);
        wrong["position_embedding_type"] = json!("relative_key");
        wrong.as_object_mut().expect("an object").remove("vocab_size");
        assert_eq!(
            read(&wrong).expect_err("much is wrong"),
            [
                "vocab_size: expected an integer from 1 to 2147483648, found no such field",
                "num_hidden_layers: expected an integer from 1 to 4096, found -1",
                "max_position_embeddings: expected an integer from 1 to 16777216, found 1e+300",
                "layer_norm_eps: expected a number above 0 and below 1, found \"small\"",
                "hidden_act: expected one of gelu, gelu_python, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu, swish, \
                 tanh, found \"quick_gelu\"",
                "num_attention_heads: expected a divisor of hidden_size, 25, found 3",
                "position_embedding_type: expected \"absolute\", found \"relative_key\"",
            ]
        );
    }

    #[test]
    fn files_that_hold_no_object_are_errors() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.json");
        assert!(matches!(BertConfig::open(&path), Err(ConfigError::Io { .. })));
        for text in [b"".as_slice(), b"[1]", b"{\"a\":", b"\xff\xfe", b"null"] {
            std::fs::write(&path, text).expect("it is written");
            assert!(matches!(BertConfig::open(&path), Err(ConfigError::Json { .. })), "{text:?}");
        }
        std::fs::write(&path, "{}").expect("it is written");
        let error = BertConfig::open(&path).expect_err("nothing is there").to_string();
        assert_eq!(error.lines().count(), 10, "{error}");
    }
}
