//! Language models of GGUF files: any division of a text into chunks gives the logits of transformers, and the real model continues prompts as
//! transformers does, where it has been fetched (`models/scripts/fetch-smollm2.sh`).

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use eutectic::{
    Compiler, Cpu, CpuOptions, Error, GenerateOptions, Generator, Session, Stop, Tensor,
    engine::models::{
        chat::Message,
        decoder::{ARCHITECTURES, CACHED, CacheType, Decoder, TOKENS},
        gguf::Gguf,
        language::LanguageModel,
        npy,
        sampling::Sampling,
    },
};
use serde_json::Value;

fn repository() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect()
}

fn golden(name: &str) -> PathBuf {
    repository().join("models/golden/gguf").join(name)
}

fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).unwrap()
}

fn tiny(room: usize) -> Generator {
    let model = LanguageModel::open(golden("llama.gguf")).unwrap_or_else(|e| panic!("{e}"));
    Generator::new(model, &compiler(), room).unwrap_or_else(|e| panic!("{e}"))
}

fn json(path: PathBuf) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

/// The logits of the last of some tokens.
fn step(session: &mut Session, ids: &[i64], at: usize, words: usize) -> Vec<f32> {
    session.set_length(CACHED, at + ids.len()).unwrap();
    session.set_length(TOKENS, ids.len()).unwrap();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let (at, last) = ((at as i64).to_le_bytes(), (ids.len() as i64 - 1).to_le_bytes());
    let mut logits = vec![0; 4 * words];
    session.run_into(&[&bytes, &at, &last], &mut [&mut logits]).unwrap();
    Tensor::new(eutectic::DType::F32, &[words], logits).unwrap().to_f64().into_iter().map(|x| x as f32).collect()
}

#[test]
fn chunks_of_any_length_give_what_transformers_gives() {
    // An f16 has 11 bits: keys and values are off by up to 2⁻¹² of themselves, and scores of a hundred, as qwen2's biases make them, by 2⁻⁵. A key
    // that is missing, or another one's, moves logits by whole units.
    for (cache, tolerance) in [(CacheType::F32, 1e-4), (CacheType::F16, 5e-2)] {
        chunks_give_what_transformers_gives(cache, tolerance);
    }
}

fn chunks_give_what_transformers_gives(cache: CacheType, tolerance: f64) {
    const CHUNKS: [&[usize]; 4] = [&[1], &[64], &[7, 1, 1, 20], &[33, 2]];
    for architecture in ARCHITECTURES {
        let expected = npy::read(fs::read(golden(&format!("{}.npy", architecture.name))).unwrap()).unwrap();
        let (tokens, words) = (expected.dims()[0], expected.dims()[1]);
        let expected = expected.to_f64();
        let gguf = Gguf::open(golden(&format!("{}.gguf", architecture.name))).unwrap();
        let decoder = Decoder::new(&gguf, Some(100)).unwrap().with_cache(cache);
        let mut session = compiler().compile(&decoder.program(64).unwrap()).unwrap_or_else(|e| panic!("{e}"));
        session.load_named(|name| decoder.param(name)).unwrap();
        let ids: Vec<i64> = (0..tokens as i64).map(|i| (i * i * 7 + i * 3 + 5) % words as i64).collect();
        for chunks in CHUNKS {
            let mut at = 0;
            for length in chunks.iter().cycle() {
                let chunk = &ids[at..(at + length).min(tokens)];
                let logits = step(&mut session, chunk, at, words);
                at += chunk.len();
                for (word, (got, want)) in logits.iter().zip(&expected[(at - 1) * words..]).enumerate() {
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error < tolerance,
                        "{} with {cache:?} in {chunks:?}: token {at}, word {word}: {got}, {want}",
                        architecture.name
                    );
                }
                if at == tokens {
                    break;
                }
            }
        }
    }
}

const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 0 };

fn go_on(_: &str) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_prompt_is_continued_as_transformers_continues_it() {
    let golden = json(golden("llama.json"));
    let mut generator = tiny(128);
    let prompt = generator.model().prompt(golden["text"].as_str().unwrap()).unwrap();
    assert_eq!(prompt, ids(&golden["prompt"]));
    let expected = ids(&golden["tokens"]);
    // It goes on after the end of a text, where we stop.
    let end = expected.iter().position(|id| generator.model().vocabulary().is_end(*id)).unwrap();
    let options = GenerateOptions { max_tokens: 90, sampling: GREEDY };
    let mut pieces = String::new();
    let generated = generator.generate(&prompt, &options, |piece| {
        pieces += piece;
        ControlFlow::Continue(())
    });
    let generated = generated.unwrap();
    assert_eq!((&generated.tokens[..], generated.stop), (&expected[..=end], Stop::End));
    assert_eq!(generated.text, pieces);
    assert_eq!(generated.text, generator.model().vocabulary().decode(&generated.tokens));
    // The same again, from a cache that holds the text; and in another session.
    assert_eq!(generator.generate(&prompt, &options, go_on).unwrap().tokens, generated.tokens);
    // Beyond the end, token by token.
    let mut all = prompt.clone();
    for id in &expected {
        let logits = generator.logits(&all).unwrap();
        let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        assert_eq!(best as u32, *id, "after {} tokens", all.len());
        all.push(*id);
    }
    let written = generator.model().template().unwrap();
    let message = Message::new(" user ", " is the hat on? ");
    assert_eq!(written.apply(&[message], true).unwrap(), golden["chat"].as_str().unwrap());
    let error = written.apply(&[Message::new("system", "x")], true).unwrap_err().to_string();
    assert!(error.contains("no system here") && error.contains("llama.gguf"), "{error}");
}

#[test]
fn texts_end_where_there_is_a_reason() {
    let mut generator = tiny(30);
    let prompt = generator.model().prompt("The cat").unwrap();
    let mut stop = |max_tokens: usize, pieces: usize| {
        let mut left = pieces;
        let options = GenerateOptions { max_tokens, sampling: Sampling { temperature: 1.0, seed: 4, ..GREEDY } };
        let generated = generator.generate(&prompt, &options, |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let generated = generated.unwrap();
        (generated.tokens.len(), generated.stop)
    };
    assert_eq!(stop(0, 100), (0, Stop::Limit));
    assert_eq!(stop(3, 100), (3, Stop::Limit));
    assert_eq!(stop(9, 2).1, Stop::Caller);
    let (count, why) = stop(1000, 1000);
    // A token after the last that there is room for is chosen, and not read.
    assert!(why == Stop::End || (why == Stop::Room && count == 31 - prompt.len()), "{count} {why:?}");
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let mut generator = tiny(16);
    let options = GenerateOptions { max_tokens: 1, sampling: GREEDY };
    let mut problem = |prompt: &[u32]| generator.generate(prompt, &options, go_on).unwrap_err().to_string();
    assert!(problem(&[]).contains("no tokens"));
    assert!(problem(&[96]).contains("the token 96 is none of the model's 96"));
    assert!(problem(&[5; 17]).contains("17 tokens, there is room for 16"));
    let wrong = GenerateOptions { max_tokens: 1, sampling: Sampling { top_p: 2.0, ..GREEDY } };
    assert!(matches!(generator.generate(&[5], &wrong, go_on), Err(Error::Arguments(_))));
    // After a refusal, it goes on.
    assert_eq!(generator.generate(&[5], &options, go_on).unwrap().tokens.len(), 1);
}

/// Where the likeliest token leads by less, rounding decides.
const NEAR_TIE: f64 = 0.005;

#[test]
#[ignore = "needs target/smollm2: run models/scripts/fetch-smollm2.sh"]
fn the_real_model_is_what_transformers_makes_of_the_file() {
    let golden = json(repository().join("models/golden/smollm2/golden.json"));
    let file = repository().join("target/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
    let model = LanguageModel::open(&file).unwrap_or_else(|e| panic!("{e}"));
    for text in golden["texts"].as_array().unwrap() {
        let (text, expected) = (text["text"].as_str().unwrap(), ids(&text["ids"]));
        assert_eq!(model.prompt(text).unwrap(), expected, "{text:?}");
    }
    drop(model);
    for cache in [CacheType::F32, CacheType::F16] {
        continues_prompts(&golden, &file, cache);
    }
}

fn continues_prompts(golden: &Value, file: &Path, cache: CacheType) {
    let model = LanguageModel::open(file).unwrap_or_else(|e| panic!("{e}"));
    let mut generator = Generator::with_cache(model, &compiler(), 256, cache).unwrap_or_else(|e| panic!("{e}"));
    let (mut compared, mut speeds, mut others) = (0, Vec::new(), Vec::new());
    for prompt in golden["prompts"].as_array().unwrap() {
        let text = prompt["text"].as_str().unwrap();
        let own = match prompt["chat"].as_bool().unwrap() {
            true => generator.model().chat_prompt(&[Message::new("user", text)]),
            false => generator.model().prompt(text),
        };
        assert_eq!(own.unwrap(), ids(&prompt["ids"]), "{text:?}");
        let margins = prompt["margins"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        let mut all = ids(&prompt["ids"]);
        for (expected, margin) in ids(&prompt["tokens"]).into_iter().zip(margins) {
            let logits = generator.logits(&all).unwrap();
            let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
            compared += usize::from(margin > NEAR_TIE);
            if best != expected {
                others.push((margin, format!("{text:?} after {} tokens", all.len())));
            }
            all.push(expected);
        }
        let options = GenerateOptions { max_tokens: 16, sampling: GREEDY };
        let generated = generator.generate(&ids(&prompt["ids"]), &options, go_on).unwrap();
        speeds.push((generated.tokens.len() - 1) as f64 / generated.token_time.as_secs_f64());
    }
    speeds.sort_by(f64::total_cmp);
    println!(
        "{cache:?}: {compared} tokens compared, {:.1} a second (median); others: {others:?}",
        speeds[speeds.len() / 2]
    );
    others.retain(|(margin, _)| *margin > NEAR_TIE);
    assert!(compared > 1200 && others.is_empty(), "{cache:?}: {others:?}");
}
