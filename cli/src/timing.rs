//! Measures runs of several contenders in alternation, and computes statistics of their times.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;

use crate::fault::Fault;

/// The times of repeated runs, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Times(pub Vec<f64>);

/// Statistics of times: percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub p50_ms: f64,
    /// The 10th percentile: a tenth of the runs takes less time.
    pub p10_ms: f64,
    /// The 90th percentile: a tenth of the runs takes more time.
    pub p90_ms: f64,
    /// The 99th percentile: a hundredth of the runs takes more time.
    pub p99_ms: f64,
}

impl Times {
    /// Returns a quantile of the times, with linear interpolation. Without times, it is NaN.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = share * sorted.len().saturating_sub(1) as f64;
        let of = |at: f64| sorted.get(at as usize).copied().unwrap_or(f64::NAN);
        of(at.floor()) + (of(at.ceil()) - of(at.floor())) * at.fract()
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the median and other percentiles.
    pub fn spread(&self) -> Spread {
        let ms = |share| self.quantile(share) * 1e3;
        Spread { p50_ms: ms(0.5), p10_ms: ms(0.1), p90_ms: ms(0.9), p99_ms: ms(0.99) }
    }
}

/// One of several programs whose times are compared. A call is a run.
pub type Contender<'a> = Box<dyn FnMut() -> Result<(), Fault> + 'a>;

/// The warm-up lasts for at least this number of rounds and at least this time. Zero rounds mean no warm-up.
#[derive(Clone, Copy, Debug)]
pub struct Warmup {
    pub rounds: usize,
    pub time: Duration,
}

/// Measures all contenders in alternation, so that a drift of the clock frequency favours none of them. `iters` rounds
/// follow the warm-up. If they take longer than `limit`, the measurement stops after at least three rounds.
///
/// # Errors
/// The first error of a contender.
pub fn interleaved(
    contenders: &mut [Contender<'_>],
    warmup: Warmup,
    iters: usize,
    limit: Option<Duration>,
    progress: &ProgressBar,
) -> Result<Vec<Times>, Fault> {
    let cold = Instant::now();
    let mut round = 0;
    while round < warmup.rounds || warmup.rounds > 0 && cold.elapsed() < warmup.time {
        contenders.iter_mut().try_for_each(|run| run())?;
        round += 1;
        progress.set_position(round.min(warmup.rounds) as u64);
    }
    let begin = Instant::now();
    let mut times = vec![Times::default(); contenders.len()];
    for counted in 0..iters {
        if limit.is_some_and(|limit| counted >= 3 && begin.elapsed() > limit) {
            break;
        }
        for (run, times) in contenders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            run()?;
            times.0.push(start.elapsed().as_secs_f64());
        }
        progress.inc(1);
    }
    Ok(times)
}

/// Shows an activity on stderr if stderr is a terminal.
pub fn progress(what: &'static str, steps: Option<u64>) -> ProgressBar {
    if !stderr().is_terminal() || !anstyle_query::term_supports_ansi_color() {
        return ProgressBar::hidden();
    }
    let bar = steps.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = match (steps.is_some(), anstyle_query::no_color()) {
        (true, true) => "{spinner} {msg} {wide_bar} {pos}/{len}",
        (true, false) => "{spinner:.cyan} {msg} {wide_bar:.cyan} {pos}/{len}",
        (false, true) => "{spinner} {msg}",
        (false, false) => "{spinner:.cyan} {msg}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = bar.with_style(style).with_finish(ProgressFinish::AndClear);
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(80));
    bar
}

/// The progress of steps that take seconds: a bar on a terminal, and otherwise a line every two seconds.
pub struct Reported {
    bar: ProgressBar,
    what: &'static str,
    steps: usize,
    done: usize,
    begun: Instant,
    said: Instant,
}

impl Reported {
    /// Starts to show the progress.
    pub fn new(what: &'static str, steps: usize) -> Reported {
        let now = Instant::now();
        Reported { bar: progress(what, Some(steps as u64)), what, steps, done: 0, begun: now, said: now }
    }

    /// Records that a step is done.
    pub fn step(&mut self) {
        self.done += 1;
        self.bar.inc(1);
        if self.bar.is_hidden() && self.said.elapsed() >= Duration::from_secs(2) && self.done < self.steps {
            self.said = Instant::now();
            let left = self.begun.elapsed().mul_f64((self.steps - self.done) as f64 / self.done as f64);
            anstream::eprintln!("{}: {} of {}, about {} s left", self.what, self.done, self.steps, left.as_secs() + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let times = Times(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((times.median(), times.quantile(0.0), times.quantile(1.0)), (2.5, 1.0, 4.0));
        assert!((times.quantile(0.1) - 1.3).abs() < 1e-12);
        assert!(Times::default().median().is_nan());
    }

    #[test]
    fn contenders_take_turns_and_warmup_is_not_counted() {
        let order = std::cell::RefCell::new(String::new());
        let mut contenders: Vec<Contender<'_>> = ["a", "b"]
            .map(|name| {
                Box::new(|| {
                    order.borrow_mut().push_str(name);
                    Ok(())
                }) as Contender<'_>
            })
            .into();
        let times =
            interleaved(&mut contenders, Warmup { rounds: 1, time: Duration::ZERO }, 2, None, &ProgressBar::hidden())
                .unwrap();
        drop(contenders);
        assert_eq!(order.into_inner(), "ababab");
        assert!(times.iter().all(|t| t.0.len() == 2));
    }
}
