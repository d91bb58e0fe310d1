//! Counts n-grams of integers (`TfIdfVectorizer`).

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    super::{
        call::{NodeCall, NodeResult},
        error::NodeError,
    },
    row::{OpRow, one},
};

pub(super) const OPS: &[OpRow] = &[one("TfIdfVectorizer", 9, vectorizer)];

/// All n-grams of one length in the pool, concatenated.
struct Grams {
    length: usize,
    words: Vec<i64>,
}

/// Reads the pool: its n-grams by length, including lengths that are not counted.
fn pool(c: &NodeCall<'_, '_>) -> Result<Vec<Grams>, NodeError> {
    let words = c.ints("pool_int64s")?.ok_or(
        "its n-grams are strings, which are not supported; map words to numbers before the model runs, and pass these \
         numbers as input",
    )?;
    let starts = c.ints("ngram_counts")?.ok_or("its attribute `ngram_counts` is missing")?;
    let end = |at: usize| starts.get(at).map_or(words.len() as i64, |start| *start);
    let mut pool = Vec::new();
    for at in 0..starts.len() {
        let range = usize::try_from(starts[at]).ok().zip(usize::try_from(end(at + 1)).ok());
        let part = range.and_then(|(from, to)| words.get(from..to)).filter(|part| part.len() % (at + 1) == 0);
        let part = part.ok_or_else(|| {
            NodeError(format!("its ngram_counts {starts:?} do not fit a pool of {} words", words.len()))
        })?;
        pool.push(Grams { length: at + 1, words: part.to_vec() });
    }
    Ok(pool)
}

/// Imports `TfIdfVectorizer`: counts the n-grams of the pool in each row. Words of an n-gram are at equal distances,
/// with up to `max_skip_count` other words between neighbours.
fn vectorizer(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let number = |name: &str| {
        let value = c.int(name)?.and_then(|n| usize::try_from(n).ok());
        value.ok_or_else(|| NodeError(format!("its `{name}` is missing or negative")))
    };
    let (least, most, skips) = (number("min_gram_length")?, number("max_gram_length")?, number("max_skip_count")?);
    let pool = pool(c)?;
    let places = c.ints("ngram_indexes")?.ok_or("its attribute `ngram_indexes` is missing")?;
    let total: usize = pool.iter().map(|grams| grams.words.len() / grams.length).sum();
    if places.len() != total {
        return Err(format!("it has {} ngram_indexes for {total} n-grams; it needs one for each", places.len()).into());
    }
    if total > 1 << 20 {
        return Err(format!("it has {total} n-grams, but at most 1048576 are supported").into());
    }
    if !places.iter().all(|place| (0..1 << 20).contains(place)) {
        return Err("its ngram_indexes must be from 0 to 1048575".into());
    }
    let results = places.iter().max().map_or(0, |most| *most as usize + 1);
    let x = c.input(0)?;
    let (rows, width) = match c.dims(x)[..] {
        [width] => (1, width),
        [rows, width] => (rows, width),
        ref dims => return Err(format!("its words have extents {dims:?}; they must be [words] or [rows words]").into()),
    };
    let flat = c.reshape(x, &[rows, width])?;
    let flat = c.cast(flat, DType::I64)?;
    let mut parts = Vec::new();
    for grams in pool.iter().filter(|grams| !grams.words.is_empty()) {
        let counted = (least..=most).contains(&grams.length);
        parts.push(match counted {
            true => counts(c, flat, grams, if grams.length == 1 { 0 } else { skips })?,
            false => c.full(0.0, DType::F32, &[rows, grams.words.len() / grams.length])?,
        });
    }
    let counts = c.concat(&parts, 1)?;
    let counts = weighted(c, counts, total)?;
    // Several n-grams may share a column of the result, which is the sum of their counts.
    let ones = places.iter().flat_map(|place| (0..results).map(move |at| f64::from(at as i64 == *place)));
    let table = c.weights("places", Tensor::from_f64(DType::F32, &[total, results], ones))?;
    let y = c.apply("matmul", [counts, table])?;
    if c.rank(x) == 1 { c.reshape(y, &[results]) } else { Ok(y) }
}

/// Applies the attribute `mode` to the counts [rows n-grams].
fn weighted(c: &mut NodeCall<'_, '_>, counts: NodeId, total: usize) -> NodeResult {
    let mode = c.word("mode")?.unwrap_or("TF");
    let base = match mode {
        "TF" => return Ok(counts),
        "TFIDF" => counts,
        "IDF" => {
            let met = c.with("gt", counts, 0.0)?;
            c.cast(met, DType::F32)?
        }
        other => return Err(format!("its mode is `{other}`; it must be TF, IDF or TFIDF").into()),
    };
    match c.floats("weights")? {
        None => Ok(base),
        Some(weights) if weights.len() == total => {
            let weights = c.weights("weights", Tensor::from_f64(DType::F32, &[total], weights))?;
            c.apply("mul", [base, weights])
        }
        Some(weights) => Err(format!("it has {} weights for {total} n-grams", weights.len()).into()),
    }
}

/// Counts n-grams of one length in rows of words. Returns the counts [rows n-grams].
fn counts(c: &mut NodeCall<'_, '_>, x: NodeId, grams: &Grams, skips: usize) -> NodeResult {
    let ([rows, width], count) = ([c.dims(x)[0], c.dims(x)[1]], grams.words.len() / grams.length);
    let mut sum = c.full(0.0, DType::F32, &[rows, count])?;
    for step in 1..=skips + 1 {
        let reach = (grams.length - 1) * step;
        if reach >= width {
            break;
        }
        let starts = width - reach;
        let mut hits = None;
        for word in 0..grams.length {
            let part = c.slice(x, 1, word * step, starts)?;
            let part = c.reshape(part, &[rows, starts, 1])?;
            let wanted = (0..count).map(|gram| grams.words[gram * grams.length + word]);
            let wanted = c.constant(Tensor::from_i64(DType::I64, &[1, 1, count], wanted))?;
            let hit = c.apply("eq", [part, wanted])?;
            hits = Some(match hits {
                Some(hits) => c.apply("and", [hits, hit])?,
                None => hit,
            });
        }
        let Some(hits) = hits else { continue };
        let hits = c.cast(hits, DType::F32)?;
        let met = c.reduce("reduce-sum", hits, &[1])?;
        let met = c.reshape(met, &[rows, count])?;
        sum = c.apply("add", [sum, met])?;
    }
    Ok(sum)
}
