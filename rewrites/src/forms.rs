//! The legal forms of the embedded rules' left sides, read from `forms.txt`.
//!
//! A rule is typed on samples, and the engine matches each legal form that its left side has in a sample. `forms.txt`
//! lists the draws of these samples, so that loading need not search for them. A form is compiled from its draw when
//! a program first has all ops of the form. If the text of a rule has changed, its forms are found on samples again.
//! A test compares the file with the rules.

use std::{collections::HashMap, fmt, str::FromStr, sync::Arc};

use eutectic_ir::Op;

use crate::{
    left::{Draw, Form},
    recipe::{Compiled, LeftSide},
    rule::Rule,
};

/// For each rule, by name, the fingerprint of its text and its forms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Forms(HashMap<String, (u64, Vec<Form>)>);

impl Forms {
    /// Returns the listed forms of a rule, if the fingerprint of its text is the listed one. They are compiled on
    /// demand.
    pub fn of(&self, rule: &Arc<Rule>, fingerprint: u64) -> Option<Vec<Compiled>> {
        let (_, forms) = self.0.get(&*rule.name).filter(|(of, _)| *of == fingerprint)?;
        let compiled = |(variant, form): (usize, &Form)| Compiled {
            rule: rule.clone(),
            left: LeftSide::listed(form.clone()),
            variant,
        };
        Some(forms.iter().enumerate().map(compiled).collect())
    }
}

impl fmt::Display for Draw {
    /// Writes the seed, and the variables that stand for empty sequences of dims.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        self.empty.iter().try_for_each(|slot| write!(f, "-{slot}"))
    }
}

impl FromStr for Draw {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Draw, Self::Err> {
        let (seed, empty) = text.split_once('-').unwrap_or((text, ""));
        let empty = empty.split('-').filter(|slot| !slot.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Draw { seed: seed.parse()?, empty })
    }
}

impl fmt::Display for Forms {
    /// Writes one line per rule, in the format of `forms.txt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rules: Vec<_> = self.0.iter().collect();
        rules.sort_by_key(|(name, _)| *name);
        rules.into_iter().try_for_each(|(name, (of, forms))| {
            write!(f, "{name} {of:016x}")?;
            for Form { draw, ops } in forms {
                let ops: Vec<&str> = ops.iter().map(|op| op.name()).collect();
                write!(f, " {draw}:{}", ops.join(","))?;
            }
            writeln!(f)
        })
    }
}

impl FromStr for Forms {
    type Err = String;

    fn from_str(text: &str) -> Result<Forms, String> {
        let form = |word: &str| {
            let (draw, ops) = word.split_once(':')?;
            let ops = ops.split(',').filter(|name| !name.is_empty()).map(Op::named).collect::<Option<_>>()?;
            Some(Form { draw: draw.parse().ok()?, ops })
        };
        let line = |line: &str| {
            let mut words = line.split(' ');
            let (name, of) = (words.next()?, u64::from_str_radix(words.next()?, 16).ok()?);
            let forms = words.map(form).collect::<Option<Vec<Form>>>().filter(|forms| !forms.is_empty())?;
            Some((name.to_string(), (of, forms)))
        };
        let lines = text.lines().enumerate();
        let rules = lines
            .map(|(n, text)| line(text).ok_or_else(|| format!("line {} does not list the forms of a rule", n + 1)));
        Ok(Forms(rules.collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RuleSet, check, verdict::fingerprint};

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules/forms.txt");

    /// Returns the forms that samples give, without the file.
    fn found() -> Vec<Compiled> {
        let rules = RuleSet::embedded().unwrap();
        rules.iter().flat_map(|rule| check::trusted(Arc::new(rule.clone())).unwrap()).collect()
    }

    fn listed(compiled: &[Compiled]) -> Forms {
        let rules = compiled.chunk_by(|a, b| a.rule.name == b.rule.name).map(|forms| {
            let rule = &forms[0].rule;
            let forms = forms.iter().map(|form| form.left.form()).collect();
            (rule.name.to_string(), (fingerprint(rule), forms))
        });
        Forms(rules.collect())
    }

    #[test]
    fn embedded_rules_are_listed_with_all_forms_that_they_have() {
        let again = "`cargo test -p eutectic-rewrites --all-features --lib -- --ignored write_the_forms` writes rewrites/rules/forms.txt";
        let (found, embedded) = (found(), RuleSet::embedded().unwrap());
        assert_eq!(std::fs::read_to_string(FILE).unwrap(), listed(&found).to_string(), "{again}");
        assert_eq!(found.len(), embedded.rules.len());
        for (found, embedded) in found.iter().zip(&embedded.rules) {
            assert!(!embedded.left.is_compiled(), "{} is compiled before it is needed", embedded.rule.name);
            assert_eq!((&found.rule.name, found.variant), (&embedded.rule.name, embedded.variant));
            assert_eq!(format!("{:?}", found.pattern()), format!("{:?}", embedded.pattern()), "{again}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_a_changed_rule_is_not_listed() {
        let forms = listed(&found());
        assert_eq!(forms.to_string().parse::<Forms>().unwrap(), forms);
        assert!("mine/a 00 1:add\nmine/b 00 perhaps".parse::<Forms>().unwrap_err().contains("line 2"));
        let rules = RuleSet::embedded().unwrap();
        let rule = Arc::new(rules.iter().next().unwrap().clone());
        assert!(forms.of(&rule, fingerprint(&rule)).is_some());
        let text = rule.source.text.replacen("(=> ", "(=>  x", 1);
        let source = eutectic_ir::lang::Source::new("changed", text);
        let changed = Arc::new(Rule { source, ..(*rule).clone() });
        assert!(forms.of(&changed, fingerprint(&changed)).is_none());
    }

    #[test]
    #[ignore = "it writes the file that another test compares"]
    fn write_the_forms() {
        std::fs::write(FILE, listed(&found()).to_string()).unwrap();
    }
}
