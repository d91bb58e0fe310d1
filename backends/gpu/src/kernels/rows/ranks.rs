//! Rankings in row groups. Threads write the key of each element to shared memory. The block sorts keys and positions
//! (`merges`), or selects the first ones (`selection`), and writes the rank of each element at its position.

use eutectic_backend::ValueId;

use super::{
    printer::RowPrinter,
    ranking::{Ranking, RankingWay, needed},
};

impl RowPrinter<'_> {
    /// Prints the rankings that `roots` need, before the loop over the row that computes `roots`.
    pub(super) fn rank_for(&mut self, roots: &[ValueId]) {
        let known = |id: ValueId| !self.varies[id] || self.kept[id] || self.ranked[id];
        for ranking in needed(&self.nest.instrs, roots, known) {
            self.leave_keys(&ranking);
            match ranking.way(&self.shape.rankings, self.nest.domain[1]) {
                RankingWay::Sorted => self.sort(&ranking),
                way => self.select(&ranking, way),
            }
            self.ranked[ranking.id] = true;
        }
    }

    /// Names the results of finished rankings, which are in shared memory, for a group of points.
    pub(super) fn name_ranks(&mut self) {
        for ranking in Ranking::all(&self.nest.instrs).into_iter().filter(|ranking| self.ranked[ranking.id]) {
            let ty = self.dialect.register(self.nest.instrs[ranking.id].dtype());
            let name = |lane| {
                let rank = ranking.keys(self.dialect, self.table(), &self.place(lane));
                self.dialect.convert(ty, &rank)
            };
            let names = (0..self.lanes.count).map(name).collect();
            self.emitter.set(ranking.id, names);
        }
    }

    /// Returns the number of elements in all rows of a block.
    pub(super) fn table(&self) -> usize {
        let rows = self.team.rows * if self.lanes.axis == 0 { self.lanes.count } else { 1 };
        rows * self.nest.domain[1].max(1)
    }

    /// Returns the index of one lane of a group of points in the tables of a block.
    fn place(&self, lane: usize) -> String {
        let points = self.nest.domain[1].max(1);
        match self.lanes.axis {
            0 => format!("({} * {} + {lane}) * {points} + c", self.row_of_block(), self.lanes.count),
            _ => self.place_of(&format!("c * {} + {lane}", self.lanes.count)),
        }
    }

    /// Returns the index of an element of the thread's own row in the tables of a block.
    pub(super) fn place_of(&self, point: &str) -> String {
        format!("{} * {} + {point}", self.row_of_block(), self.nest.domain[1].max(1))
    }

    fn row_of_block(&self) -> String {
        match self.team.along {
            true => format!("thread / {}", self.team.threads),
            false => format!("thread % {}", self.team.rows),
        }
    }

    fn leave_keys(&mut self, ranking: &Ranking) {
        let Some(function) = self.dialect.function("order_key", ranking.of, ranking.of) else {
            return self.emitter.problems.push(format!("cannot sort elements of {}, which have no order", ranking.of));
        };
        // All threads have read the previous contents of the table after this barrier.
        self.meet();
        self.for_groups(vec![ranking.arg], |this| {
            let partial = this.is_partial();
            if partial {
                this.emitter.line("if (within) {");
            }
            for lane in 0..this.lanes.count {
                let mut key = format!("{function}({})", this.emitter.lane(ranking.arg, lane));
                if ranking.order.descending {
                    key = format!("~{key}");
                }
                let keys = ranking.keys(this.dialect, this.table(), &this.place(lane));
                this.emitter.line(&format!("{keys} = {key};"));
            }
            if partial {
                this.emitter.line("}");
            }
        });
    }

    /// Prints a barrier of the block.
    fn meet(&mut self) {
        let line = self.dialect.meet();
        self.emitter.line(&line);
    }
}
