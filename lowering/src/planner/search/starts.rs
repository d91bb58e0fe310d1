//! Tries changes of choices. Each trial starts with some of the changed classes stored, and then decides which classes
//! around them to store.

use eutectic_ir::{
    eclasses::{ClassId, NodeChoice},
    ops::Class,
};
use rustc_hash::FxHashSet;

use super::{
    Search, flip,
    state::{Mark, Price, State},
};

/// A start may cost at most this multiple of the kernels that it replaces. Storing or inlining neighbours is not
/// expected to save more.
const FAR_OFF: f64 = 2.0;

/// The multiple, instead of `FAR_OFF`, for a start with classes for which storing was never decided. Such a start may
/// launch many more kernels than it will after these decisions. With a multiple of `FAR_OFF`, the plan of BERT-base
/// cost a fifth more on a GPU. Later starts reuse the decisions.
const FAR_OFF_UNASKED: f64 = 4.0;

/// A share of the plan's time. A change that adds less to the load program is decided without trying which of its load
/// kernels to store. Load kernels are long and slow to try, and hardly any change gains so little.
const LOADED: f64 = 1e-3;

/// Selects, by the kind ([`Class`]) of a chosen e-node's op, the classes that a trial stores at its start.
type Stores = fn(&Class) -> bool;

impl Search<'_, '_> {
    /// Tries a change of choices, unless a similar one was refused before. Returns whether it gained and was accepted.
    pub(super) fn try_choices(&mut self, choices: &[NodeChoice]) -> bool {
        if self.state.space.work() > self.full && self.likeness.is_vain(choices) {
            return false;
        }
        let gained = self.refine_choices(choices);
        self.likeness.note(choices, gained);
        gained
    }

    /// Prices a change of choices after deciding again which classes around it are stored. For example, a class that
    /// became a view should be virtual, and one that became an anchor should be stored. Returns whether the change
    /// gained and was accepted.
    fn refine_choices(&mut self, choices: &[NodeChoice]) -> bool {
        let stores: [Option<Stores>; 3] =
            [None, Some(|class| matches!(class, Class::Anchor(_))), Some(|class| !matches!(class, Class::View(_)))];
        let mark = self.state.mark();
        let several = choices.len() > 1;
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let mut starts: Vec<(Option<Stores>, f64)> = Vec::new();
        for stores in stores {
            self.start(choices, stores);
            let stored: Vec<bool> = choices.iter().map(|choice| self.state.plan().stored[choice.class]).collect();
            if seen.contains(&stored) {
                self.state.rollback(mark);
                continue;
            }
            seen.push(stored);
            // If a single class changes, only the best start is kept, because a worse start seldom ends better. With
            // several classes it often does.
            let best = starts.last().filter(|_| !several).map_or(f64::INFINITY, |(_, seconds)| *seconds);
            let most = |state: &State<'_, '_>, asked: &[bool]| {
                let seconds = far_off(state, asked, mark, several).min(best);
                Price { seconds, ..mark.price }
            };
            if let Some(price) = self.refresh(most).filter(|price| price.seconds < best) {
                if !several {
                    starts.clear();
                }
                starts.push((stores, price.seconds));
            }
            self.state.rollback(mark);
        }
        let mut refused = f64::INFINITY;
        for (stores, seconds) in starts {
            // A start that costs more than the final price of an earlier start seldom ends below that price.
            if seconds > refused {
                continue;
            }
            self.start(choices, stores);
            if self.refresh(|_, _| Price::ANY).is_none() {
                self.state.rollback(mark);
                continue;
            }
            let mut near = self.near(choices);
            // Add the classes that only this change needs and for which storing was never decided.
            near.extend(unasked(&self.state, &self.asked, mark));
            near.sort_unstable();
            near.dedup();
            // Decide about load kernels last, and only if they can still matter: they count little, and there are many
            // long ones.
            let mut later = Vec::new();
            for &class in &near {
                if self.state.is_loaded(class) {
                    later.push(class);
                } else {
                    self.flip_if_better(class);
                }
            }
            for class in later {
                if self.reaches(mark) {
                    self.flip_if_better(class);
                } else {
                    // Storing this class was not tried. Do not remember it as decided, so that later starts try it.
                    near.retain(|other| *other != class);
                }
            }
            if self.state.price.gains(mark.price) {
                self.take(mark);
                return true;
            }
            refused = refused.min(self.state.price.seconds);
            let decided: Vec<_> = near.into_iter().map(|class| (class, self.state.plan().stored[class])).collect();
            self.state.rollback(mark);
            self.remember(decided);
        }
        false
    }

    /// Stores a needed class or makes it virtual, if that lowers the price of the plan under trial.
    fn flip_if_better(&mut self, class: ClassId) {
        if self.is_free(class) && self.state.is_needed(class) {
            let before = self.state.mark();
            flip(&mut self.state, class);
            if !self.refresh(|_, _| before.price).is_some_and(|price| price.gains(before.price)) {
                self.state.rollback(before);
            }
        }
    }

    /// Returns whether storing or inlining new load kernels can still decide if the plan under trial is accepted. This
    /// is so if a new kernel cannot be built. Otherwise, the plan must gain without the cost of the load kernels, and
    /// this cost must exceed [`LOADED`].
    fn reaches(&self, mark: Mark) -> bool {
        let (price, loaded) = (self.state.price, self.state.loaded(mark));
        let without = Price { seconds: price.seconds - loaded, ..price };
        price.impossible > mark.price.impossible || (loaded > mark.price.seconds * LOADED && without.gains(mark.price))
    }

    /// Remembers, for later starts, which classes a refused start stores. Most rules that rewrite unused classes
    /// introduce the same ops, and deciding about these ops costs far more than the change itself.
    fn remember(&mut self, decided: Vec<(ClassId, bool)>) {
        for (class, stored) in decided {
            if self.is_free(class) && !self.state.is_needed(class) {
                self.state.wish(class, stored);
                self.asked[class] = true;
            }
        }
    }

    /// Applies choices. With `stores`, stores the classes that it selects and makes the others virtual.
    fn start(&mut self, choices: &[NodeChoice], stores: Option<Stores>) {
        choices.iter().for_each(|of| self.state.choose(of.class, of.node));
        let Some(stores) = stores else { return };
        for &NodeChoice { class, node } in choices {
            if self.is_free(class) {
                self.state.release(class);
                if stores(&self.state.space.classes.classes[class].nodes[node].op.def().class) {
                    self.state.store(class);
                }
            }
        }
    }
}

/// Returns the price, in seconds, above which a start is given up.
fn far_off(state: &State<'_, '_>, asked: &[bool], mark: Mark, several: bool) -> f64 {
    let all_asked = several && unasked(state, asked, mark).next().is_none();
    let (times, launches) = if all_asked { (FAR_OFF, 0.0) } else { (FAR_OFF_UNASKED, state.launches(mark)) };
    mark.price.seconds + (times - 1.0) * state.gone(mark) + launches
}

/// Returns the free classes that kernels compute now but not at `mark`, and for which storing was never decided.
fn unasked(state: &State<'_, '_>, asked: &[bool], mark: Mark) -> impl Iterator<Item = ClassId> {
    let of = move |was: bool| {
        let kernels = state.changes(mark).filter(move |(gone, _)| *gone == was);
        kernels.flat_map(|(_, kernel)| kernel.interior.iter().copied())
    };
    // Usually, storing was already decided for nearly all classes.
    let mut now: Vec<ClassId> = of(false).filter(|&class| !asked[class] && state.is_free(class)).collect();
    if !now.is_empty() {
        let before: FxHashSet<ClassId> = of(true).collect();
        now.retain(|class| !before.contains(class));
    }
    now.into_iter()
}
