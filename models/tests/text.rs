//! Tests a text model from a directory: tokens, embeddings that do not depend on the batch, and damaged files.

mod common;

use std::{fs, path::Path};

use common::{difference, golden, run};
use eutectic_models::{Batch, Form, TextModel, Tokens, TokensError, random::Rng};
use serde_json::Value;

const MAX_TOKENS: usize = 12;

fn model() -> TextModel {
    TextModel::open("tiny", golden("tiny-bert"), MAX_TOKENS, "").unwrap()
}

/// Returns the text, the token ids and the embedding of each case.
fn cases() -> Vec<(String, Vec<i64>, Vec<f64>)> {
    let file: Value = serde_json::from_slice(&fs::read(golden("tiny-bert/texts.json")).unwrap()).unwrap();
    let case = |case: &Value| {
        let numbers = |name: &str| case[name].as_array().unwrap().clone();
        let ids = numbers("ids").iter().map(|id| id.as_i64().unwrap()).collect();
        let embedding = numbers("embedding").iter().map(|x| x.as_f64().unwrap()).collect();
        (case["text"].as_str().unwrap().to_string(), ids, embedding)
    };
    file["cases"].as_array().unwrap().iter().map(case).collect()
}

/// Returns the embedding of each row of a batch.
fn embed(model: &TextModel, batch: &Batch, form: Form) -> Vec<Vec<f64>> {
    let [texts, length] = batch.dims();
    let graph = model.graph(form, texts, length).unwrap();
    let inputs = ["ids", "mask"].map(|name| (name, batch.input(name).unwrap().clone()));
    run(&graph, model.weights(), &inputs)[0].chunks(32).map(<[f64]>::to_vec).collect()
}

#[test]
fn texts_are_tokenized_as_by_the_reference() {
    let model = model();
    for (text, ids, _) in cases() {
        assert_eq!(model.tokens().encode(&text).unwrap(), ids, "{text:?}");
    }
    // The tokenizer's settings for truncation and padding to five tokens are overridden.
    assert_eq!(model.tokens().encode("").unwrap().len(), 2);
    assert_eq!(model.tokens().encode(&"melt ".repeat(10_000)).unwrap().len(), MAX_TOKENS);
}

#[test]
fn embeddings_do_not_depend_on_the_batch_or_the_padding() {
    let (model, cases) = (model(), cases());
    let texts: Vec<_> = cases.iter().map(|(text, _, _)| text).collect();
    let mut batches = model.batches(&texts, 64).unwrap();
    assert_eq!(batches.iter().map(Batch::dims).collect::<Vec<_>>(), [[4, MAX_TOKENS], [1, MAX_TOKENS]]);
    for (n, text) in texts.iter().enumerate() {
        let mut alone = model.batches(&[text], 64).unwrap().remove(0);
        alone.texts = vec![n];
        batches.push(alone);
    }
    for batch in batches {
        for (&text, embedding) in batch.texts.iter().zip(embed(&model, &batch, Form::Composite)) {
            let difference = difference(&cases[text].2, &embedding);
            assert!(difference < 1e-10, "{:?} among {:?}: {difference:e}", cases[text].0, batch.texts);
        }
    }
}

/// Returns a copy of the fixture, which a test can damage.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(golden("tiny-bert").join(file), dir.path().join(file)).unwrap();
    }
    dir
}

fn error(dir: &Path) -> String {
    TextModel::open("tiny", dir, MAX_TOKENS, "fetch it").unwrap_err().to_string()
}

#[test]
fn everything_wrong_with_a_directory_is_said_at_once() {
    let nowhere = error(Path::new("/nonexistent"));
    assert!(
        ["config.json", "model.safetensors", "tokenizer.json", "fetch it"].iter().all(|f| nowhere.contains(f)),
        "{nowhere}"
    );

    let dir = copy();
    let text = fs::read_to_string(dir.path().join("config.json")).unwrap();
    let wrong = text
        .replace("\"intermediate_size\": 48", "\"intermediate_size\": 47")
        .replace("\"vocab_size\": 26", "\"vocab_size\": 20");
    fs::write(dir.path().join("config.json"), wrong).unwrap();
    let error = error(dir.path());
    for part in [
        "embeddings.word_embeddings.weight: expected f32[20 32], found f32[26 32]",
        "encoder.layer.1.output.dense.weight: expected f32[32 47], found f32[32 48]",
        "the tokenizer has ids up to 25, but the model has 20 embeddings",
    ] {
        assert!(error.contains(part), "{part:?} is not in\n{error}");
    }
}

#[test]
fn damaged_tokenizers_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    assert!(matches!(Tokens::open(&path, 9), Err(TokensError::Io { .. })));
    let whole = fs::read(golden("tiny-bert/tokenizer.json")).unwrap();
    assert!(matches!(
        Tokens::open(golden("tiny-bert/tokenizer.json"), 2),
        Err(TokensError::TooShort { special: 2, .. })
    ));
    for length in (0..whole.len() - 1).step_by(3) {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(Tokens::open(&path, 9), Err(TokensError::Format { .. })), "{length} bytes");
    }
    // These templates would make the library `tokenizers` panic.
    let text = String::from_utf8(whole.clone()).unwrap();
    for (from, to) in [("\"[SEP]\": {\n", "\"[SEB]\": {\n"), ("\"id\": \"A\"", "\"id\": \"B\"")] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Tokens::open(&path, 9).unwrap_err().to_string();
        assert!(error.contains("post-processor"), "{error}");
    }
    // Invalid JSON, which `eutectic-fuzz tokenizer` found.
    fs::write(&path, text.replacen("\"decoder\": ", "\"decoder\": :, \"rest\": ", 1)).unwrap();
    assert!(matches!(Tokens::open(&path, 9), Err(TokensError::Format { .. })));
    let mut rng = Rng::new(4);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        let at = rng.below(bytes.len());
        match rng.below(3) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => drop(bytes.remove(at)),
            _ => bytes[at] = b"0123456789,:{}[]\"n"[rng.below(18)],
        }
        fs::write(&path, &bytes).unwrap();
        match Tokens::open(&path, 9) {
            Ok(tokens) => {
                good += 1;
                if let Ok(ids) =
                    tokens.encode("Two metals melt, caf\u{e9} \u{6771} [MASK] \0 rules plan kernels freeze the")
                {
                    assert!(ids.len() <= 9);
                }
            }
            Err(_) => bad += 1,
        }
    }
    assert!(good > 50 && bad > 50, "{good} accepted, {bad} refused: the damage is not varied enough");
}
