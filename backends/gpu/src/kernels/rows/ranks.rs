//! Rankings in row groups. Threads leave the key of each element in shared memory. The block sorts keys and positions
//! (`merges`), or selects the first ones (`selection`), and leaves the rank of each element at its position.

use eutectic_backend::ValueId;

use super::{
    printer::RowPrinter,
    ranking::{Ranking, RankingWay, needed},
};

impl RowPrinter<'_> {
    /// Prints the rankings that values need, before a loop over the row that computes these.
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

    /// Names the results of rankings for a group of points, in shared memory.
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

    /// Returns how many elements the rows of a block have.
    pub(super) fn table(&self) -> usize {
        let rows = self.team.rows * if self.lanes.axis == 0 { self.lanes.count } else { 1 };
        rows * self.nest.domain[1].max(1)
    }

    /// Returns the place in a table of a lane of a group of points.
    fn place(&self, lane: usize) -> String {
        let points = self.nest.domain[1].max(1);
        match self.lanes.axis {
            0 => format!("({} * {} + {lane}) * {points} + c", self.row_of_block(), self.lanes.count),
            _ => self.place_of(&format!("c * {} + {lane}", self.lanes.count)),
        }
    }

    /// Returns the index of an element in the thread's own row.
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
            return self.emitter.problems.push(format!("a sort of {}", ranking.of));
        };
        // The old elements are read no more.
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
