//! The body of an anchor's operand, whose groups of axes a kernel reads as batch, rows and columns of matrices.

use crate::{axes::Nest, body::Body};

/// A body whose axes form three groups: batch, rows and columns, outermost first.
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
    /// Returns an operand's body, given the number of axes of each group.
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

    /// Returns the number of points of a group.
    pub fn points(&self, group: usize) -> usize {
        self.extents(group).iter().product()
    }

    /// Returns the body with the axes of a group merged into one; `None` if the merge would add a division to an index
    /// map.
    pub fn merged(&self, group: usize) -> Option<Grouped> {
        self.with(group, self.nest.merged(self.first(group), self.groups[group])?)
    }

    /// Returns the body with the axes of a group merged into one. Index maps get divisions if necessary.
    pub fn flat(&self, group: usize) -> Grouped {
        let nest = self.nest.flat(self.first(group), self.groups[group]);
        self.with(group, nest).expect("a merge into one axis always succeeds")
    }

    /// Returns the body with the axes of a group merged into one, or unchanged if the merge would add a division to an
    /// index map.
    pub fn simple(self, group: usize) -> Grouped {
        self.merged(group).unwrap_or(self)
    }

    fn with(&self, group: usize, nest: Nest) -> Option<Grouped> {
        let mut groups = self.groups;
        groups[group] = 1;
        Some(Grouped { nest, groups })
    }

    /// Returns the body with one axis of rows and one of columns, that is, a matrix for each point of the batch.
    /// Returns `None` if this would add a division to an index map.
    pub fn matrices(&self) -> Option<Nest> {
        Some(self.merged(COLUMNS)?.merged(ROWS)?.nest)
    }

    /// Returns the body with the innermost batch axis and the rows merged into one axis of rows. Returns `None` if
    /// there is no batch axis, or if the merge would add a division to an index map.
    pub fn batch_into_rows(&self) -> Option<Grouped> {
        let [batch, rows, columns] = self.groups;
        let batch = batch.checked_sub(1)?;
        Some(Grouped { nest: self.nest.merged(batch, rows + 1)?, groups: [batch, 1, columns] })
    }

    /// Returns the body without the innermost axis of the batch. No value may depend on that axis.
    pub fn without_batch(&self) -> Grouped {
        let [batch, rows, columns] = self.groups;
        Grouped { nest: self.nest.without(batch - 1), groups: [batch - 1, rows, columns] }
    }

    /// Counts the outermost axis of the rows as the innermost axis of the batch.
    pub fn rows_into_batch(&mut self) {
        self.groups[0] += 1;
        self.groups[ROWS] -= 1;
    }

    /// Returns the body with a new innermost batch axis. No value depends on that axis.
    pub fn repeated(&self, extent: usize) -> Grouped {
        let [batch, rows, columns] = self.groups;
        Grouped { nest: self.nest.repeated(batch, extent), groups: [batch + 1, rows, columns] }
    }

    /// Returns whether the index of each store is affine or mentions an integer of the body.
    pub fn is_strided(&self) -> bool {
        let rank = self.nest.domain.len();
        self.nest.stores.iter().all(|s| s.at.affine(rank).is_some() || !s.at.values().is_empty())
    }
}
