//! Determines the contract by which the cases of a rule are judged.

use eutectic_rewrites::{Contract, Rule};

/// Returns the contract by which a rule's cases are judged. A `fast` rule that states its domain is judged by `reassoc`
/// on this domain.
pub fn promise(rule: &Rule) -> Contract {
    if rule.contract == Contract::Fast && rule.states_its_domain() { Contract::Reassoc } else { rule.contract }
}
