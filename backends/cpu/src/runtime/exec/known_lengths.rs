//! The code for runs of given lengths (extents at run time), and a cache of the code of recent runs.

use std::sync::Arc;

use eutectic_backend::BackendError;
use rustc_hash::FxHashMap;

use super::steps::BoundSteps;

/// The maximal number of sets of lengths whose code is cached.
const KEPT: usize = 1024;

/// A cache of code by lengths.
#[derive(Default)]
pub struct KnownLengths {
    /// For each set of lengths, the value of `uses` at its last use, and the code.
    sets: FxHashMap<Vec<usize>, (u64, Arc<Resolved>)>,
    last: Option<Arc<Resolved>>,
    uses: u64,
}

impl KnownLengths {
    /// Returns the code for these lengths. If it is not cached, `resolve` compiles it, given the code that was used
    /// last.
    pub fn get(
        &mut self,
        lengths: &[usize],
        resolve: impl FnOnce(Option<&Resolved>) -> Result<Resolved, BackendError>,
    ) -> Result<Arc<Resolved>, BackendError> {
        self.uses += 1;
        let resolved = match self.sets.get_mut(lengths) {
            Some((used, resolved)) => {
                *used = self.uses;
                resolved.clone()
            }
            None => {
                let resolved = Arc::new(resolve(self.last.as_deref())?);
                self.forget();
                self.sets.insert(lengths.to_vec(), (self.uses, resolved.clone()));
                resolved
            }
        };
        self.last = Some(resolved.clone());
        Ok(resolved)
    }

    /// If the cache is full, removes the less recently used half.
    fn forget(&mut self) {
        if self.sets.len() < KEPT {
            return;
        }
        let mut used: Vec<u64> = self.sets.values().map(|(used, _)| *used).collect();
        let (_, &mut median, _) = used.select_nth_unstable(KEPT / 2);
        self.sets.retain(|_, (used, _)| *used >= median);
    }
}

/// The code for runs of given lengths.
pub struct Resolved {
    pub lengths: Vec<usize>,
    /// The steps of [`Code::run`](super::code::Code::run), with thunks for these lengths. Ports, constants, parameters
    /// and packed operands are shared with the code for the maximal lengths.
    pub run: BoundSteps,
    /// [`Code::own_bytes`](super::code::Code::own_bytes), for these lengths.
    pub own_bytes: usize,
    /// [`Code::passing_bytes`](super::code::Code::passing_bytes), for these lengths.
    pub passing_bytes: usize,
    /// [`Code::scratch`](super::code::Code::scratch), for these lengths.
    pub scratch: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(lengths: &[usize]) -> Resolved {
        let lengths = lengths.to_vec();
        Resolved { lengths, run: BoundSteps::default(), own_bytes: 0, passing_bytes: 0, scratch: 0 }
    }

    #[test]
    fn lengths_that_were_used_last_are_known_and_older_ones_are_made_again() {
        let (mut known, mut made) = (KnownLengths::default(), 0);
        let mut get = |known: &mut KnownLengths, n: usize| {
            let before = made;
            let found = known.get(&[n, 1], |_| {
                made += 1;
                Ok(code(&[n, 1]))
            });
            assert_eq!(found.unwrap().lengths, [n, 1]);
            made > before
        };
        // Length 0 is used again after each other length, so the cache keeps it.
        for n in 0..3 * KEPT {
            assert!(get(&mut known, n + 1));
            assert_eq!(get(&mut known, 0), n == 0);
        }
        assert!(known.sets.len() <= KEPT);
        assert!((3 * KEPT - KEPT / 4..3 * KEPT).all(|n| !get(&mut known, n + 1)));
        assert!(get(&mut known, 1));
    }

    #[test]
    fn what_is_new_is_made_from_what_was_used_last() {
        let mut known = KnownLengths::default();
        let mut seen = Vec::new();
        for n in [1, 2, 1, 3] {
            let _ = known.get(&[n], |last| {
                seen.push(last.map(|last| last.lengths[0]));
                Ok(code(&[n]))
            });
        }
        assert_eq!(seen, [None, Some(1), Some(1)]);
        assert!(known.get(&[9], |_| Err(BackendError::Device("refused".into()))).is_err());
        assert!(known.get(&[9], |_| Ok(code(&[9]))).is_ok());
    }
}
