//! What is known of rules: the verdicts of `eutectic rules prove`, in a file beside the rules.
//!
//! A file `proofs.txt` has a line for each rule: its name, a fingerprint of its text, the verdict and, of a rule that is tested, the reason. A rule
//! whose text has changed since has no verdict.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::rule::Rule;

/// The name of the file in a directory of rules.
pub const FILE: &str = "proofs.txt";

/// The most letters of a reason in a file.
const MOST: usize = 160;

/// What was shown of the two sides of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// Every bit of every element is equal, for every value, NaN and infinities among them.
    Bits,
    /// Both sides are one real function wherever each part of the left side is a finite number. Rounding, overflow, infinities and NaN are tested.
    Reals,
}

/// What is known of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The claim holds for every size and rank.
    Every(Claim),
    /// The claim holds for every value, where no extent is larger than this.
    UpTo(Claim, usize),
    /// Instances were tested, and why there is no proof.
    Tested(String),
}

impl Claim {
    const ALL: [Claim; 2] = [Claim::Bits, Claim::Reals];

    /// The word in files.
    fn word(self) -> &'static str {
        match self {
            Claim::Bits => "bits",
            Claim::Reals => "reals",
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Claim::Bits => "proved",
            Claim::Reals => "equal over the reals",
        })
    }
}

impl fmt::Display for Proof {
    /// In the words of reports: what is shown, and for which sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proof::Every(Claim::Bits) => f.write_str("proved: every bit, any size and rank"),
            Proof::Every(Claim::Reals) => {
                f.write_str("equal over the reals, any size and rank; rounding, range, infinities and NaN tested")
            }
            Proof::UpTo(claim, most) => write!(f, "{claim} up to extents of {most}; larger ones tested"),
            Proof::Tested(why) => write!(f, "tested, not proved: {why}"),
        }
    }
}

/// The verdicts of a file.
#[derive(Clone, Debug, Default)]
pub struct Proofs(BTreeMap<String, (u64, Proof)>);

impl Proofs {
    /// Returns the verdict on a rule, if it was judged as it stands.
    pub fn of(&self, rule: &Rule) -> Option<&Proof> {
        self.0.get(&*rule.name).filter(|(of, _)| *of == fingerprint(rule)).map(|(_, proof)| proof)
    }

    /// Returns how many verdicts there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the verdict on a rule; of a reason, what fits into a line.
    pub fn insert(&mut self, rule: &Rule, proof: Proof) {
        let proof = match proof {
            Proof::Tested(why) => {
                let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
                let short: String = line.chars().take(MOST).collect();
                Proof::Tested(if short.len() < line.len() { short + " …" } else { line })
            }
            proof => proof,
        };
        self.0.insert(rule.name.to_string(), (fingerprint(rule), proof));
    }
}

impl fmt::Display for Proofs {
    /// As files have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("; Verdicts on the rules of this folder, written by `eutectic rules prove --write`.\n")?;
        self.0.iter().try_for_each(|(name, (of, proof))| {
            write!(f, "{name} {of:016x} ")?;
            match proof {
                Proof::Every(claim) => writeln!(f, "{}", claim.word()),
                Proof::UpTo(claim, most) => writeln!(f, "{}-up-to {most}", claim.word()),
                Proof::Tested(why) => writeln!(f, "tested {why}"),
            }
        })
    }
}

impl FromStr for Proofs {
    type Err = String;

    fn from_str(text: &str) -> Result<Proofs, String> {
        let mut proofs = Proofs::default();
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with(';')) {
            let read = || {
                let mut words = line.splitn(4, ' ');
                let (name, of, verdict) = (words.next()?, words.next()?, words.next()?);
                let more = words.next();
                let claim = |word: &str| Claim::ALL.into_iter().find(|claim| claim.word() == word);
                let proof = match (verdict, verdict.strip_suffix("-up-to"), more) {
                    ("tested", _, why) => Proof::Tested(why.unwrap_or_default().into()),
                    (_, Some(word), Some(most)) => Proof::UpTo(claim(word)?, most.parse().ok()?),
                    (word, None, None) => Proof::Every(claim(word)?),
                    _ => return None,
                };
                Some((name.to_string(), (u64::from_str_radix(of, 16).ok()?, proof)))
            };
            let wrong = || {
                format!(
                    "line {} is no verdict: expected a rule's name, its fingerprint, and bits, reals or tested",
                    n + 1
                )
            };
            let (name, verdict) = read().ok_or_else(wrong)?;
            proofs.0.insert(name, verdict);
        }
        Ok(proofs)
    }
}

/// FNV-1a of a rule's text, whatever its spaces and comments are.
fn fingerprint(rule: &Rule) -> u64 {
    let text = &rule.source.text[rule.span.clone()];
    let words = text.lines().map(|line| line.split(';').next().unwrap_or_default()).flat_map(str::split_whitespace);
    let bytes = words.flat_map(|word| word.bytes().chain([b' ']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use eutectic_ir::lang::Source;

    use super::*;
    use crate::RuleSet;

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
            Proof::Every(Claim::Reals),
            Proof::UpTo(Claim::Reals, 3),
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
