//! The bodies of anchors, whose groups of axes become the rows and columns of matrices.

use crate::{axes::Nest, body::Body};

/// A body over three groups of axes: those of the batch, of rows and of columns.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// The body.
    pub nest: Nest,
    /// The number of axes of each group.
    pub groups: [usize; 3],
}

/// The number of the group of rows.
pub const ROWS: usize = 1;
/// The number of the group of columns.
pub const COLUMNS: usize = 2;

impl Grouped {
    /// Returns the body of an operand.
    pub fn operand(body: &Body, groups: [usize; 3]) -> Grouped {
        Grouped { nest: Nest::of(body.clone()), groups }
    }

    /// Returns the first axis of a group.
    pub fn first(&self, group: usize) -> usize {
        self.groups[..group].iter().sum()
    }

    /// Returns the extents of a group's axes.
    pub fn extents(&self, group: usize) -> &[usize] {
        &self.nest.domain[self.first(group)..][..self.groups[group]]
    }

    /// Returns how many points a group has.
    pub fn points(&self, group: usize) -> usize {
        self.extents(group).iter().product()
    }

    /// Returns the nest with the axes of a group merged into one; `None` if that would add a division to an index map.
    pub fn merged(&self, group: usize) -> Option<Grouped> {
        self.with(group, self.nest.merged(self.first(group), self.groups[group])?)
    }

    /// Returns the nest with one axis in a group, with divisions where necessary.
    pub fn flat(&self, group: usize) -> Grouped {
        let nest = self.nest.flat(self.first(group), self.groups[group]);
        self.with(group, nest).expect("a merge into one axis always succeeds")
    }

    /// Returns the nest with one axis in a group if that adds no division, and otherwise unchanged.
    pub fn simple(self, group: usize) -> Grouped {
        self.merged(group).unwrap_or(self)
    }

    fn with(&self, group: usize, nest: Nest) -> Option<Grouped> {
        let mut groups = self.groups;
        groups[group] = 1;
        Some(Grouped { nest, groups })
    }

    /// Returns a matrix for each point of the batch, if no map gets a division by that.
    pub fn matrices(&self) -> Option<Nest> {
        Some(self.merged(COLUMNS)?.merged(ROWS)?.nest)
    }

    /// Returns the nest with the innermost batch axis merged into the rows, which are one axis, if that adds no
    /// division to a map.
    pub fn batch_into_rows(&self) -> Option<Grouped> {
        let [batch, rows, columns] = self.groups;
        let batch = batch.checked_sub(1)?;
        Some(Grouped { nest: self.nest.merged(batch, rows + 1)?, groups: [batch, 1, columns] })
    }

    /// Without the innermost axis of the batch, on which it does not depend.
    pub fn without_batch(&self) -> Grouped {
        let [batch, rows, columns] = self.groups;
        Grouped { nest: self.nest.without(batch - 1), groups: [batch - 1, rows, columns] }
    }

    /// Moves the outermost axis of the rows to the innermost position of the batch.
    pub fn rows_into_batch(&mut self) {
        self.groups[0] += 1;
        self.groups[ROWS] -= 1;
    }

    /// Returns the nest with a new batch axis, which nothing depends on.
    pub fn repeated(&self, extent: usize) -> Grouped {
        let [batch, rows, columns] = self.groups;
        Grouped { nest: self.nest.repeated(batch, extent), groups: [batch + 1, rows, columns] }
    }

    /// Returns whether all stores are strided, or at indices that are integers of the body.
    pub fn is_strided(&self) -> bool {
        let rank = self.nest.domain.len();
        self.nest.stores.iter().all(|s| s.at.affine(rank).is_some() || !s.at.values().is_empty())
    }
}
