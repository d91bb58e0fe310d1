//! Stores of a ranking's first elements at their ranks: threads visit the elements in sorted order, so that the stores
//! are coalesced.

use super::{TURNS, printer::RowPrinter, ranking::Ranking};
use crate::{emit::Emitter, lanes::SplitAxis};

impl RowPrinter<'_> {
    /// Prints the stores of a kernel whose ranking leaves positions in sorted order.
    pub(super) fn store_in_order(&mut self, ranking: &Ranking) {
        let stores = 0..self.nest.stores.len();
        let values: Vec<_> = self.nest.stores.iter().flat_map(|store| store.values()).collect();
        self.rank_for(&values);
        let one = SplitAxis { axis: 1, count: 1 };
        let mut emitter = Emitter::new(self.dialect, &self.kernel.slots, self.nest, &["row", "c"], one, "w");
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let place = ranking.keys(dialect, self.table(), &self.place_of("nth_of_row"));
        emitter.line(&dialect.declare(index, "c", &dialect.convert(index, &place)));
        emitter.set(ranking.id, vec!["nth_of_row".into()]);
        values.iter().for_each(|&value| _ = emitter.value(value));
        stores.for_each(|n| emitter.store(n));
        let most = ranking.order.most.min(self.nest.domain[1]);
        let text = dialect.in_turns(("nth_of_row", "t"), most, self.team.threads, TURNS, &emitter.text);
        self.emitter.line("if (live) {");
        self.emitter.text.push_str(&text);
        self.emitter.line("}");
        self.emitter.problems.extend(emitter.problems);
    }
}
