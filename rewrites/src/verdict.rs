//! Finds the verdict on a rule, by its name and the fingerprint of its text.

use crate::{
    proof::{Proof, Proofs},
    rule::Rule,
};

/// The maximal number of characters of a reason in a file.
const MOST: usize = 160;

impl Proofs {
    /// Returns the verdict on a rule, if the rule's text is unchanged since the verdict.
    pub fn of(&self, rule: &Rule) -> Option<&Proof> {
        self.find(&rule.name, fingerprint(rule))
    }

    /// Returns the verdict on the rule with this name and fingerprint.
    pub(crate) fn find(&self, name: &str, fingerprint: u64) -> Option<&Proof> {
        self.0.get(name).filter(|(of, _)| *of == fingerprint).map(|(_, proof)| proof)
    }

    /// Adds the verdict on a rule. The reason is shortened to one line.
    pub fn insert(&mut self, rule: &Rule, proof: Proof) {
        let line = |why: String| {
            let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
            let short: String = line.chars().take(MOST).collect();
            if short.len() < line.len() { short + " …" } else { line }
        };
        let proof = match proof {
            Proof::Reals(why) => Proof::Reals(line(why)),
            Proof::Tested(why) => Proof::Tested(line(why)),
            proof => proof,
        };
        self.0.insert(rule.name.to_string(), (fingerprint(rule), proof));
    }
}

/// Returns the FNV-1a hash of a rule's text without spaces and comments.
pub(crate) fn fingerprint(rule: &Rule) -> u64 {
    let text = &rule.source.text[rule.span.clone()];
    let words =
        text.lines().map(|line| line.split(';').next().unwrap_or_default()).flat_map(str::split_ascii_whitespace);
    let bytes = words.flat_map(|word| word.bytes().chain([b' ']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use eutectic_ir::lang::Source;

    use super::*;
    use crate::{RuleSet, proof::Claim};

    fn rules(text: &str) -> RuleSet {
        RuleSet::read(&[Source::new("own.rules", text)]).unwrap()
    }

    const RULE: &str = ";; twice\n(rule mine/twice (forall (?x bool[A..])) (=> (not (not ?x)) ?x) (eq exact))";

    #[test]
    fn what_is_written_is_read_again() {
        let set = rules(RULE);
        let rule = set.iter().next().unwrap();
        for proof in [
            Proof::Every(Claim::Bits),
            Proof::Every(Claim::Contract),
            Proof::UpTo(Claim::Contract, 3),
            Proof::Reals("range: `div` may overflow".into()),
            Proof::Tested("`erf` has no\nalgebraic normal form".into()),
        ] {
            let mut proofs = Proofs::default();
            proofs.insert(rule, proof.clone());
            let again: Proofs = proofs.to_string().parse().unwrap();
            let one_line = |proof: &Proof| proof.to_string().replace('\n', " ");
            assert_eq!(again.of(rule).map(one_line), Some(one_line(&proof)));
        }
    }

    #[test]
    fn a_changed_rule_has_no_verdict_and_a_reformatted_one_keeps_it() {
        let mut proofs = Proofs::default();
        proofs.insert(rules(RULE).iter().next().unwrap(), Proof::Every(Claim::Bits));
        let spaced = RULE.replace("(=> ", "; a comment\n  (=>   ");
        assert!(proofs.of(rules(&spaced).iter().next().unwrap()).is_some());
        let changed = RULE.replace("(not (not ?x)) ?x", "(not (not (not ?x))) (not ?x)");
        assert!(proofs.of(rules(&changed).iter().next().unwrap()).is_none());
    }

    #[test]
    fn a_line_that_is_no_verdict_is_named() {
        let wrong = "mine/a 00 bits\nmine/b 00 perhaps".parse::<Proofs>();
        assert!(wrong.unwrap_err().contains("line 2"));
    }
}
