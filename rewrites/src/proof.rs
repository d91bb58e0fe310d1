//! What is known of rules: the verdicts of `eutectic rules prove`, in a file beside the rules.
//!
//! A file `proofs.txt` has a line for each rule: its name, a fingerprint of its text, the verdict and, of a rule that is tested, the reason. A rule
//! whose text has changed since has no verdict.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// The name of the file in a directory of rules.
pub const FILE: &str = "proofs.txt";

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
                f.write_str("equal over the reals, any size and rank; the contract is tested, not proved: rounding, range, infinities, NaN")
            }
            Proof::UpTo(claim, most) => write!(f, "{claim} up to extents of {most}; larger ones tested"),
            Proof::Tested(why) => write!(f, "tested, not proved: {why}"),
        }
    }
}

/// The verdicts of a file.
#[derive(Clone, Debug, Default)]
pub struct Proofs(pub(crate) BTreeMap<String, (u64, Proof)>);

impl Proofs {
    /// Returns how many verdicts there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
