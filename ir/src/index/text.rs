//! Prints index maps.

use std::fmt;

use super::{Atom, Index};

impl Index {
    /// Returns the map in readable form. `value` gives the names of the integers that are read from tensors.
    pub fn text(&self, value: &dyn Fn(usize) -> String) -> String {
        let mut parts: Vec<String> = self
            .terms
            .iter()
            .map(|(atom, c)| {
                let atom = match atom {
                    Atom::Coord(n) => format!("i{n}"),
                    Atom::Div(inner, by) => format!("({})/{by}", inner.text(value)),
                    Atom::Mod(inner, by) => format!("({})%{by}", inner.text(value)),
                    Atom::Value(n) => value(*n),
                    Atom::Extent(dim) => dim.to_string(),
                };
                if *c == 1 { atom } else { format!("{c}*{atom}") }
            })
            .collect();
        if self.constant != 0 || parts.is_empty() {
            parts.push(self.constant.to_string());
        }
        parts.join("+")
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|n| format!("v{n}")))
    }
}
