//! Language models of GGUF files. Every division of a text into chunks gives the logits of transformers. The real
//! model, if it has been fetched (`models/scripts/fetch-smollm2.sh`), continues prompts as transformers does.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Error, GenerateOptions, Generator, Session, Stop, Tensor,
    engine::{
        ir::interp::interpret_rounded,
        models::{
            chat::Message,
            decoder::{ARCHITECTURES, CACHED, CacheType, Decoder, TOKENS},
            gguf::Gguf,
            language::LanguageModel,
            npy,
            sampling::Sampling,
        },
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

/// Returns the logits of the last of some tokens, after which the cache has `rows` rows.
fn step(session: &mut Session, ids: &[i64], at: usize, [rows, words]: [usize; 2]) -> Vec<f32> {
    session.set_length(CACHED, rows).unwrap();
    session.set_length(TOKENS, ids.len()).unwrap();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let (at, last) = ((at as i64).to_le_bytes(), (ids.len() as i64 - 1).to_le_bytes());
    let mut logits = vec![0; 4 * words];
    session.run_into(&[&bytes, &at, &last], &mut [&mut logits]).unwrap();
    Tensor::new(DType::F32, &[words], logits).unwrap().to_f64().into_iter().map(|x| x as f32).collect()
}

/// Returns the ids that the golden logits belong to.
fn golden_ids(tokens: usize, words: usize) -> Vec<i64> {
    (0..tokens as i64).map(|i| (i * i * 7 + i * 3 + 5) % words as i64).collect()
}

/// Returns the logits of one of the tokens from the reference interpreter. Keys and values of all tokens are rounded to
/// the type of the cache.
fn reference(gguf: &Gguf, cache: CacheType, [tokens, words]: [usize; 2], last: usize) -> Vec<f64> {
    let decoder = Decoder::new(gguf, Some(100)).unwrap().with_cache(cache);
    let graph = decoder.graph(tokens, decoder.config().cache_rows(tokens)).unwrap();
    let states: Vec<_> = graph.named("state").map(|(name, id)| (name.to_string(), graph.ty(id).clone())).collect();
    let given = |name: &str| match name {
        "ids" => Some(Tensor::from_i64(DType::I64, &[tokens], golden_ids(tokens, words))),
        "at" => Some(Tensor::from_i64(DType::I64, &[], [0])),
        "last" => Some(Tensor::from_i64(DType::I64, &[1], [last as i64])),
        name => match states.iter().find(|(state, _)| state == name) {
            Some((_, ty)) => {
                let dims = ty.dims().unwrap();
                Some(Tensor::from_f64(ty.dtype().unwrap(), &dims, vec![0.0; dims.iter().product()]))
            }
            None => decoder.param(name),
        },
    };
    interpret_rounded(&graph, &given).unwrap_or_else(|e| panic!("{e}"))[0].to_tensor().to_f64()
}

/// The positions of the tokens for which the reference computes logits. Some of them are the last ones of a chunk.
const REFERENCED: [usize; 4] = [7, 32, 36, 63];

/// Returns the names of the models with golden logits.
fn models() -> Vec<String> {
    let files = fs::read_dir(golden("")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.filter_map(|name| Some(name.strip_suffix(".npy")?.to_string())).collect();
    names.retain(|name| golden(&format!("{name}.gguf")).exists());
    names.sort_unstable();
    assert!(ARCHITECTURES.iter().all(|architecture| names.iter().any(|name| name == architecture.name)), "{names:?}");
    names
}

#[test]
fn chunks_of_any_length_give_what_transformers_gives() {
    for model in models() {
        let expected = npy::read(fs::read(golden(&format!("{model}.npy"))).unwrap()).unwrap();
        let gguf = Gguf::open(golden(&format!("{model}.gguf"))).unwrap();
        let extents = [expected.dims()[0], expected.dims()[1]];
        let expected = expected.to_f64();
        chunks_give(&gguf, CacheType::F32, extents, &expected, &|_| Some(1e-4));
        // The tolerance of `f16` is the change of the reference's logits when keys and values are rounded. Another
        // order of sums can turn ties the other way, which may add the same amount.
        let moved = REFERENCED.map(|last| {
            let [short, whole] = [CacheType::F16, CacheType::F32].map(|cache| reference(&gguf, cache, extents, last));
            short.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        });
        let tolerance = |token: usize| {
            let at = REFERENCED.iter().position(|&last| last == token)?;
            Some(1e-4 + 2.0 * moved[at])
        };
        chunks_give(&gguf, CacheType::F16, extents, &expected, &tolerance);
    }
}

/// Compares the logits of the tokens that have a tolerance, after chunks of several lengths.
fn chunks_give(
    gguf: &Gguf,
    cache: CacheType,
    [tokens, words]: [usize; 2],
    expected: &[f64],
    tolerance: &dyn Fn(usize) -> Option<f64>,
) {
    const CHUNKS: [&[usize]; 4] = [&[1], &[64], &[7, 1, 1, 20], &[33, 2]];
    let decoder = Decoder::new(gguf, Some(100)).unwrap().with_cache(cache);
    let mut session = compiler().compile(&decoder.program(64).unwrap()).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| decoder.param(name)).unwrap();
    let ids = golden_ids(tokens, words);
    for chunks in CHUNKS {
        let (mut at, mut compared) = (0, 0);
        for length in chunks.iter().cycle() {
            let chunk = &ids[at..(at + length).min(tokens)];
            let rows = decoder.config().cache_rows(at + chunk.len());
            let logits = step(&mut session, chunk, at, [rows, words]);
            at += chunk.len();
            let tolerance = tolerance(at - 1);
            compared += usize::from(tolerance.is_some());
            for (word, (got, want)) in logits.iter().zip(&expected[(at - 1) * words..]).enumerate() {
                let error = (f64::from(*got) - want).abs();
                let of = gguf.path().display();
                assert!(
                    tolerance.is_none_or(|tolerance| error < tolerance),
                    "{of} with {cache:?} in {chunks:?}: token {at}, word {word}: {got}, {want}, {tolerance:?}"
                );
            }
            if at == tokens {
                break;
            }
        }
        assert!(compared > 0, "{chunks:?} end with none of the tokens");
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
    // The reference continues after the end of a text; the generator stops.
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
    // Repeat with a cache that contains the text, and in another session.
    assert_eq!(generator.generate(&prompt, &options, go_on).unwrap().tokens, generated.tokens);
    // Continue after the end, token by token.
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
    // When the cache is full, one more token is chosen but not read.
    assert!(why == Stop::End || (why == Stop::Room && count == 31 - prompt.len()), "{count} {why:?}");
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let mut generator = tiny(16);
    let options = GenerateOptions { max_tokens: 1, sampling: GREEDY };
    let mut problem = |prompt: &[u32]| generator.generate(prompt, &options, go_on).unwrap_err().to_string();
    assert!(problem(&[]).contains("no tokens"));
    assert!(problem(&[96]).contains("the token 96 is out of range for the model's 96 tokens"));
    assert!(problem(&[5; 17]).contains("17 tokens, but the cache has room for 16"));
    let wrong = GenerateOptions { max_tokens: 1, sampling: Sampling { top_p: 2.0, ..GREEDY } };
    assert!(matches!(generator.generate(&[5], &wrong, go_on), Err(Error::Arguments(_))));
    // A refused prompt does not affect later ones.
    assert_eq!(generator.generate(&[5], &options, go_on).unwrap().tokens.len(), 1);
}

/// If the logits of the two most likely tokens differ by less, rounding decides.
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
