//! Tests vocabularies of GGUF files: tokens compared with SentencePiece, and damaged files.
//! `eutectic/tests/language.rs` compares byte pairs with transformers.

mod common;

use std::fs;

use common::{gguf::Writer, golden};
use eutectic_models::{gguf::Gguf, vocabulary::Vocabulary};

fn vocabulary(writer: &Writer) -> Result<Vocabulary, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, writer.bytes()).unwrap();
    Vocabulary::new(&Gguf::open(path).unwrap()).map_err(|e| e.to_string())
}

#[test]
fn scores_divide_texts_as_sentence_piece_divides_them() {
    let vocabulary = Vocabulary::new(&Gguf::open(golden("gguf/pieces.gguf")).unwrap()).unwrap();
    let texts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(golden("gguf/pieces.json")).unwrap()).unwrap();
    for entry in texts.as_array().unwrap() {
        let text = entry["text"].as_str().unwrap();
        let expected = entry["ids"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32);
        let ids = vocabulary.encode(text, true).unwrap();
        assert_eq!(ids, expected.collect::<Vec<_>>(), "{text:?}");
        // The space before the first word is part of its token.
        let back = vocabulary.decode(&ids);
        assert_eq!(back, if text.is_empty() { String::new() } else { format!(" {}", text.replace('▁', " ")) });
    }
    assert!(vocabulary.is_end(2) && !vocabulary.is_end(3));
}

/// Returns a byte-pair vocabulary with the letters a and b, a digit and some punctuation.
fn byte_pairs() -> Writer {
    let tokens = ["a", "b", "ab", "Ġ", "Ġab", "1", "<|im_end|>", "<x>", "!"];
    let writer = Writer::default().text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", &tokens);
    let writer = writer.texts("tokenizer.ggml.merges", &["a b", "Ġ ab"]);
    writer.integers("tokenizer.ggml.token_type", &[1, 1, 1, 1, 1, 1, 3, 4, 1])
}

#[test]
fn special_tokens_are_found_in_texts_and_end_them() {
    let with = |pre: &str| vocabulary(&byte_pairs().text("tokenizer.ggml.pre", pre)).unwrap();
    for pre in ["default", "gpt-2", "smollm", "llama-bpe", "gpt-4o", "qwen2"] {
        let vocabulary = with(pre);
        let ids = vocabulary.encode("ab ab11<|im_end|>a<x>!", false).unwrap();
        assert_eq!(ids, [2, 4, 5, 5, 6, 0, 7, 8], "{pre}");
        // A control token adds no text, but a user-defined one does.
        assert_eq!(vocabulary.decode(&ids), "ab ab11a<x>!");
        assert!(vocabulary.is_end(6) && !vocabulary.is_end(7), "its name says so");
        assert_eq!(vocabulary.decode(&[99]), "");
    }
    // The file names no token that begins a text.
    assert!(!with("llama-bpe").adds_begin());
    let begins =
        |writer: Writer| vocabulary(&writer.u32("tokenizer.ggml.bos_token_id", 7)).unwrap().encode("a", true).unwrap();
    assert_eq!(begins(byte_pairs().text("tokenizer.ggml.pre", "llama-bpe")), [7, 0]);
    assert_eq!(begins(byte_pairs()), [0]);
    assert_eq!(begins(byte_pairs().flag("tokenizer.ggml.add_bos_token", true)), [7, 0]);
}

#[test]
fn the_rule_of_gpt_4o_splits_texts_as_tiktoken_splits_them() {
    let golden: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(golden("gguf/o200k.json")).unwrap()).unwrap();
    let list =
        |name: &str| golden[name].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect::<Vec<_>>();
    let writer = Writer::default().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-4o");
    let writer = writer.texts("tokenizer.ggml.tokens", &list("tokens")).texts("tokenizer.ggml.merges", &list("merges"));
    let vocabulary = vocabulary(&writer).unwrap();
    for entry in golden["texts"].as_array().unwrap() {
        let text = entry["text"].as_str().unwrap();
        let expected: Vec<u32> = entry["ids"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect();
        assert_eq!(vocabulary.encode(text, true).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let error = |writer: &Writer| vocabulary(writer).expect_err("it is wrong");
    let text = error(&byte_pairs().text("tokenizer.ggml.pre", "tekken").u32("tokenizer.ggml.eos_token_id", 9));
    for wanted in
        ["`tekken`, which is not supported", "qwen2", "`tokenizer.ggml.eos_token_id` is out of range for 9 tokens"]
    {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    let text = error(&Writer::default().text("tokenizer.ggml.model", "bert"));
    assert!(text.contains("`bert` is not supported") && text.contains("list of strings"), "{text}");
    let llama = Writer::default().text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", &["a"]);
    assert!(error(&llama).contains("a list of 1 numbers, it has 0"));
    let merges = Writer::default().text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", &["a"]);
    assert!(error(&merges.clone().texts("tokenizer.ggml.merges", &["a b"])).contains("do not fit each other"));
    assert!(error(&merges.texts("tokenizer.ggml.merges", &["ab"])).contains("list of pairs"));
    assert!(
        error(
            &byte_pairs()
                .integers("tokenizer.ggml.token_type.x", &[])
                .flag("tokenizer.ggml.add_bos_token", true)
                .text("tokenizer.ggml.add_eos_token", "x")
        )
        .contains("true or false")
    );
}
