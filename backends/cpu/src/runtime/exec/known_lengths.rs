//! The code for runs of certain lengths, and a cache of the code that recent runs had.

use std::sync::Arc;

use eutectic_backend::BackendError;
use rustc_hash::FxHashMap;

use super::steps::BoundSteps;

/// The maximal number of sets of lengths whose thunks are kept.
const KEPT: usize = 1024;

/// The code of the lengths that runs had.
#[derive(Default)]
pub struct KnownLengths {
    /// With the number of the use that was the last.
    sets: FxHashMap<Vec<usize>, (u64, Arc<Resolved>)>,
    last: Option<Arc<Resolved>>,
    uses: u64,
}

impl KnownLengths {
    /// Returns the code of some lengths. `resolve` makes code for new lengths from the code that was used last.
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

    /// Forgets the half that was not used for longest, if no more are kept.
    fn forget(&mut self) {
        if self.sets.len() < KEPT {
            return;
        }
        let mut used: Vec<u64> = self.sets.values().map(|(used, _)| *used).collect();
        let (_, &mut median, _) = used.select_nth_unstable(KEPT / 2);
        self.sets.retain(|_, (used, _)| *used >= median);
    }
}

/// The code of runs of certain lengths.
pub struct Resolved {
    pub lengths: Vec<usize>,
    /// Like [`Code::run`], with the same ports, constants, parameters and packed operands.
    pub run: BoundSteps,
    /// Like those of [`Code`].
    pub own_bytes: usize,
    pub passing_bytes: usize,
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
        // One length is used again and again.
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
