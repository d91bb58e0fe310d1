//! The verdicts of `eutectic rules prove`, which a file next to the rules lists.
//!
//! A file `proofs.txt` has one line for each rule: its name, a fingerprint of its text, the verdict, and the reason
//! if the rule is only tested. A rule whose text has changed since has no verdict.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// The name of the file in a folder of rules.
pub const FILE: &str = "proofs.txt";

/// The strength of a proved equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// Every bit of every element is equal, for all values including NaN and infinities.
    Bits,
    /// The sides satisfy everything that the rule's contract promises: equality over the reals or in ulps, the range,
    /// infinities and NaN.
    Contract,
}

/// The verdict on a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Every obligation of the contract is proved for every size and rank.
    Every(Claim),
    /// Every obligation of the contract is proved for extents up to this one.
    UpTo(Claim, usize),
    /// Both sides are the same real function for every size and rank. The text is the reason why the rest of the
    /// contract is only tested, so this is not a proof.
    Reals(String),
    /// Instances are tested. The text is the reason why there is no proof.
    Tested(String),
}

impl Claim {
    const ALL: [Claim; 2] = [Claim::Bits, Claim::Contract];

    /// Returns the word for the claim in files.
    fn word(self) -> &'static str {
        match self {
            Claim::Bits => "bits",
            Claim::Contract => "contract",
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Claim::Bits => "every bit",
            Claim::Contract => "all that the contract promises",
        })
    }
}

impl Proof {
    /// Returns whether every obligation of the contract is proved, for every size and rank or up to a bound.
    pub fn is_proof(&self) -> bool {
        matches!(self, Proof::Every(_) | Proof::UpTo(..))
    }

    /// Returns the start of the reason: the unproved obligation, or the limitation of the prover.
    pub fn cause(&self) -> Option<&str> {
        self.reason().map(|why| why.split(':').next().unwrap_or(why))
    }

    /// Returns the verdict as one line of a table, without the terms in its reason.
    pub fn brief(&self) -> String {
        match self.cause() {
            Some(cause) if matches!(self, Proof::Reals(_)) => format!("equal over the reals, not proved: {cause}"),
            Some(cause) => format!("tested, not proved: {cause}"),
            None => self.to_string(),
        }
    }

    /// Returns the reason why there is no proof.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Proof::Every(_) | Proof::UpTo(..) => None,
            Proof::Reals(why) | Proof::Tested(why) => Some(why),
        }
    }
}

impl fmt::Display for Proof {
    /// Prints the verdict for reports: the claim, and the sizes for which it is proved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proof::Every(claim) => write!(f, "proved: {claim}, any size and rank"),
            Proof::UpTo(claim, most) => write!(f, "proved: {claim}, up to extents of {most}; larger ones tested"),
            Proof::Reals(why) => write!(f, "equal over the reals, the rest of the contract tested, not proved: {why}"),
            Proof::Tested(why) => write!(f, "tested, not proved: {why}"),
        }
    }
}

/// The verdicts of a file.
#[derive(Clone, Debug, Default)]
pub struct Proofs(pub(crate) BTreeMap<String, (u64, Proof)>);

impl Proofs {
    /// Returns the number of verdicts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no verdicts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Proofs {
    /// Writes the verdicts in the format of `proofs.txt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("; Verdicts on the rules of this folder, written by `eutectic rules prove --write`.\n")?;
        self.0.iter().try_for_each(|(name, (of, proof))| {
            write!(f, "{name} {of:016x} ")?;
            match proof {
                Proof::Every(claim) => writeln!(f, "{}", claim.word()),
                Proof::UpTo(claim, most) => writeln!(f, "{}-up-to {most}", claim.word()),
                Proof::Reals(why) => writeln!(f, "reals {why}"),
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
                    ("reals", _, why) => Proof::Reals(why.unwrap_or_default().into()),
                    (_, Some(word), Some(most)) => Proof::UpTo(claim(word)?, most.parse().ok()?),
                    (word, None, None) => Proof::Every(claim(word)?),
                    _ => return None,
                };
                Some((name.to_string(), (u64::from_str_radix(of, 16).ok()?, proof)))
            };
            let wrong = || {
                format!(
                    "line {} is not a verdict: expected a rule's name, its fingerprint, and bits, contract, reals or tested",
                    n + 1
                )
            };
            let (name, verdict) = read().ok_or_else(wrong)?;
            proofs.0.insert(name, verdict);
        }
        Ok(proofs)
    }
}
