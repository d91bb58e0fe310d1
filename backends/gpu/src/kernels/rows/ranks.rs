//! Rankings in row groups. Threads leave the key of each element in shared memory; the block sorts keys and places by a network, or selects the first
//! ones, and leaves at each place how many come before it.

use eutectic_backend::ValueId;
use eutectic_ir::DType;

use super::{
    printer::RowPrinter,
    ranking::{Ranking, needed, places},
};

impl RowPrinter<'_> {
    /// Prints the rankings that values need, before a loop over the row that computes these.
    pub(super) fn rank_for(&mut self, roots: &[ValueId]) {
        let known = |id: ValueId| !self.varies[id] || self.kept[id] || self.ranked[id];
        for ranking in needed(&self.nest.instrs, roots, known) {
            self.leave_keys(&ranking);
            if ranking.selects(self.nest.domain[1]) {
                self.select(&ranking)
            } else {
                self.sort(&ranking)
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
        let row = if self.team.along {
            format!("thread / {}", self.team.threads)
        } else {
            format!("thread % {}", self.team.rows)
        };
        match self.lanes.axis {
            0 => format!("({row} * {} + {lane}) * {points} + c", self.lanes.count),
            _ => format!("{row} * {points} + {}", self.point(lane)),
        }
    }

    /// Returns which element of its row a lane of a group of points is.
    fn point(&self, lane: usize) -> String {
        if self.lanes.axis == 0 { "c".into() } else { format!("(c * {} + {lane})", self.lanes.count) }
    }

    fn leave_keys(&mut self, ranking: &Ranking) {
        let Some(function) = self.dialect.function("order_key", ranking.of, ranking.of) else {
            return self.emitter.problems.push(format!("an order of {}", ranking.of));
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
                let (count, at) = (this.table(), this.place(lane));
                let places = places(this.dialect, count, &at);
                let keys = ranking.keys(this.dialect, count, &at);
                this.emitter.line(&format!("{keys} = {key};"));
                if !ranking.selects(this.nest.domain[1]) {
                    this.emitter.line(&format!("{places} = {};", this.point(lane)));
                }
            }
            if partial {
                this.emitter.line("}");
            }
        });
    }

    /// Prints the network. Each level merges sorted neighbours of equal length: its first step compares each element of the one with its
    /// mirror image in the other, and later ones halves with halves. The smaller element always goes first, so that elements that a row lacks at
    /// its end would never move: there are none.
    fn sort(&mut self, ranking: &Ranking) {
        let (points, count, block) = (self.nest.domain[1].max(1), self.table(), self.team.threads * self.team.rows);
        let (rows, pairs) = (count / points, points.next_power_of_two() / 2);
        let dialect = self.dialect;
        let [index, key] = [dialect.index(false), dialect.register(ranking.key())];
        let keys = |at: &str| ranking.keys(dialect, count, at);
        let places = |at: &str| places(dialect, count, at);
        let mut lines: Vec<String> = Vec::new();
        for level in 0..points.next_power_of_two().trailing_zeros() {
            let half = 1 << level;
            lines.push(dialect.each("step", "0", level as usize + 1, 1));
            lines.push(dialect.meet());
            let step = dialect.convert(dialect.register(DType::U32), "step");
            let by = format!("{} >> {step}", dialect.convert(index, &half.to_string()));
            lines.push(dialect.declare(index, "half", &by));
            lines.push(dialect.each("pair", "thread", rows * pairs, block));
            let to = dialect.choose("step == 0", &(2 * half - 1).to_string(), "half");
            for (ty, name, value) in [
                (index, "nth", dialect.modulo("pair", pairs as i64, false, false)),
                (index, "first", "2 * nth - (nth & (half - 1))".into()),
                (index, "second", format!("first ^ {to}")),
                (index, "own", format!("{} * {points}", dialect.div("pair", pairs as i64, false, false))),
            ] {
                lines.push(dialect.declare(ty, name, &value));
            }
            lines.push(format!("if (second < {points}) {{"));
            for (ty, name, value) in [
                (key, "a", keys("own + first")),
                (key, "b", keys("own + second")),
                (index, "p", places("own + first")),
                (index, "q", places("own + second")),
            ] {
                lines.push(dialect.declare(ty, name, &value));
            }
            // Of equal keys, the one that is there before goes first.
            lines.push("if ((b < a) || ((b == a) && (q < p))) {".into());
            for (element, value) in [
                (keys("own + first"), "b"),
                (keys("own + second"), "a"),
                (places("own + first"), "q"),
                (places("own + second"), "p"),
            ] {
                lines.push(format!("{element} = {value};"));
            }
            lines.extend(["}", "}", "}", "}"].map(String::from));
        }
        lines.push(dialect.meet());
        lines.push(dialect.each("n", "thread", count, block));
        let most = i32::try_from(ranking.order.most).unwrap_or(i32::MAX).to_string();
        let rank = if ranking.order.most < points {
            dialect.choose(&format!("nth < {most}"), "nth", &most)
        } else {
            "nth".into()
        };
        lines.push(dialect.declare(index, "nth", &dialect.modulo("n", points as i64, false, false)));
        lines.push(format!("{} = {};", keys(&format!("n - nth + {}", places("n"))), dialect.convert(key, &rank)));
        lines.push("}".into());
        lines.push(dialect.meet());
        lines.iter().for_each(|line| self.emitter.line(line));
    }

    /// Prints a barrier of the block.
    fn meet(&mut self) {
        let line = self.dialect.meet();
        self.emitter.line(&line);
    }
}
