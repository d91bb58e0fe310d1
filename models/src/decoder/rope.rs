//! The angles of rotary embeddings: their frequencies, the scaling for long contexts, and the tables that programs read.

use eutectic_ir::{DType, Tensor};

use super::{architecture::Architecture, values::Values};
use crate::gguf::Value;

/// A tensor whose elements divide the frequencies (Llama 3.1).
const FACTORS: &str = "rope_freqs.weight";
/// Tensors whose elements divide the frequencies in short and in long contexts (LongRoPE).
const SHORT_FACTORS: &str = "rope_factors_short.weight";
const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Returns whether the tables of angles include a tensor.
pub(super) fn is_of_tables(tensor: &str) -> bool {
    [FACTORS, SHORT_FACTORS, LONG_FACTORS].contains(&tensor)
}

/// The angles of the rotations of queries and keys.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    /// The number of pairs of coordinates that are rotated.
    pub pairs: usize,
    base: f64,
    /// The number that divides positions.
    divisor: f64,
    /// The base in windowed layers, if it differs.
    window_base: Option<f64>,
    /// The divisors of the pairs' frequencies.
    factors: Option<Vec<f64>>,
    /// The ramp between pairs whose positions are divided and pairs whose positions are not.
    yarn: Option<Yarn>,
    /// The factor of the cosines and sines.
    magnitude: f64,
}

/// YaRN (Peng et al. 2023): pairs that turn often within the trained context keep their frequencies.
#[derive(Clone, Copy, Debug)]
struct Yarn {
    /// The last pair that keeps its frequency, and the first one whose frequency is divided.
    ramp: [f64; 2],
    /// The share of the kept frequencies.
    share: f64,
}

impl Yarn {
    /// Returns the share of the undivided frequency of a pair.
    fn kept(self, pair: usize) -> f64 {
        let [low, high] = self.ramp;
        let rise = (pair as f64 - low) / (high - low).max(1e-3);
        self.share * (1.0 - rise.clamp(0.0, 1.0))
    }
}

impl Rope {
    /// Reads the angles of an architecture for heads of `depth` coordinates, and caches of `positions` tokens.
    pub fn read(values: &mut Values<'_>, architecture: &Architecture, depth: usize, positions: usize) -> Rope {
        let turned = values.size_or("rope.dimension_count", depth);
        if turned > depth || !turned.is_multiple_of(2) {
            values.wrong("rope.dimension_count", &format!("an even number of at most {depth}, the head dimension"));
        }
        let kinds = ["none", "linear", "yarn", "longrope"];
        let expected = "\"none\", \"linear\", \"yarn\" or \"longrope\": other scalings of positions are not supported";
        values.fixed("rope.scaling.type", expected, |value| value.text().is_some_and(|kind| kinds.contains(&kind)));
        let kind = values.get("rope.scaling.type").and_then(Value::text).unwrap_or("linear").to_string();
        let pairs = (turned / 2).max(1);
        let base = values.number_or("rope.freq_base", 1e4);
        let divisor = values.number_or("rope.scale_linear", 1.0);
        let divisor = values.number_or("rope.scaling.factor", divisor);
        let divisor = if matches!(kind.as_str(), "linear" | "yarn") && divisor > 0.0 { divisor } else { 1.0 };
        let trained = values.size_or("context_length", 1);
        let original = values.size_or("rope.scaling.original_context_length", trained);
        let window_base = architecture.window_base.map(|base| values.number_or("rope.freq_base_swa", base));
        let mut magnitude = values.number_or("rope.scaling.attn_factor", 1.0);
        let yarn = (kind == "yarn").then(|| {
            let turns = [("rope.scaling.yarn_beta_fast", 32.0), ("rope.scaling.yarn_beta_slow", 1.0)]
                .map(|(name, default)| values.number_or(name, default));
            let share = values.number_or("rope.scaling.yarn_ext_factor", 1.0);
            magnitude *= values.number_or("rope.scaling.yarn_attn_factor", 1.0);
            if share > 0.0 {
                magnitude *= 1.0 + 0.1 * divisor.ln();
            }
            // The pair that turns so often within the context for which the model was first trained.
            let pair = |turns: f64| pairs as f64 * (original as f64 / (turns * std::f64::consts::TAU)).ln() / base.ln();
            let [first, last] = turns.map(pair);
            let [first, last] = if architecture.whole_ramp { [first.floor(), last.ceil()] } else { [first, last] };
            Yarn { ramp: [first.max(0.0), last.min((2 * pairs - 1) as f64)], share }
        });
        Rope {
            pairs,
            base,
            divisor,
            window_base,
            factors: factors(values, pairs, positions > original),
            yarn,
            magnitude,
        }
    }

    /// Returns the names of the tables of cosines and sines of a layer.
    pub fn tables(&self, is_windowed: bool) -> [&'static str; 2] {
        match self.window_base.filter(|_| is_windowed) {
            Some(_) => ["rope.window.cos", "rope.window.sin"],
            None => ["rope.cos", "rope.sin"],
        }
    }

    /// Returns the table of this name for a number of positions.
    pub fn table(&self, name: &str, positions: usize) -> Tensor {
        let window_base = self.window_base.filter(|_| name.contains("window"));
        let (base, divisor) = window_base.map_or((self.base, self.divisor), |base| (base, 1.0));
        let function = if name.ends_with("cos") { f64::cos } else { f64::sin };
        let frequency = |pair: usize| {
            let factor = self.factors.as_ref().map_or(1.0, |factors| factors[pair]);
            let whole = base.powf(-(pair as f64) / self.pairs as f64) / factor;
            let kept = self.yarn.map_or(0.0, |yarn| yarn.kept(pair));
            whole * (kept + (1.0 - kept) / divisor)
        };
        let frequencies: Vec<f64> = (0..self.pairs).map(frequency).collect();
        let angles = (0..positions).flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
        let elements = angles.map(|angle| self.magnitude * function(angle));
        Tensor::from_f64(DType::F32, &[positions, self.pairs], elements)
    }
}

/// Returns the divisors of the pairs' frequencies, if the file has any. Those of LongRoPE depend on the capacity of the
/// cache (`is_long`), so that the keys in a cache stay valid while it fills.
fn factors(values: &mut Values<'_>, pairs: usize, is_long: bool) -> Option<Vec<f64>> {
    let tensors = values.gguf.tensors();
    let has = |name: &str| tensors.contains_key(name);
    for [present, missing] in [[SHORT_FACTORS, LONG_FACTORS], [LONG_FACTORS, SHORT_FACTORS]] {
        if has(present) && !has(missing) {
            values.problems.push(format!("the tensor `{missing}` is missing, but the file has `{present}`"));
        }
    }
    if values.get("rope.scaling.type").and_then(Value::text) == Some("longrope") && !has(SHORT_FACTORS) {
        values
            .problems
            .push(format!("the scaling of positions is longrope, but the tensor `{SHORT_FACTORS}` is missing"));
    }
    let name = match (has(SHORT_FACTORS), is_long) {
        (false, _) => FACTORS,
        (true, true) => LONG_FACTORS,
        (true, false) => SHORT_FACTORS,
    };
    let factors: Option<Vec<f64>> = tensors.get(name).map(|tensor| tensor.decode().to_f64());
    let is_right = |factors: &[f64]| factors.len() == pairs && factors.iter().all(|x| x.is_finite() && *x > 0.0);
    if factors.as_ref().is_some_and(|factors| !is_right(factors)) {
        values.problems.push(format!("the tensor `{name}` should have {pairs} elements above 0"));
        return None;
    }
    factors
}
