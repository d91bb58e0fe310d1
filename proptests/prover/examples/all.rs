use eutectic_prover::{Verdict, judge_all};
use eutectic_rewrites::RuleSet;
use std::{collections::BTreeMap, path::Path};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rules = match args.get(1).map(String::as_str) {
        Some("-") | None => RuleSet::embedded().unwrap(),
        Some(dir) => RuleSet::load_dir_partly(Path::new(dir)).unwrap().0,
    };
    let only = args.get(2).cloned().unwrap_or_default();
    let probes: Vec<_> = rules.probes().filter(|p| p.rule().name.contains(&*only)).collect();
    let mut packs: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    for (probe, verdict) in probes.iter().zip(judge_all(&probes)) {
        let rule = probe.rule();
        let pack = packs.entry(rule.pack().to_string()).or_default();
        pack[3] += 1;
        match verdict {
            Verdict::Proved(claim) => { pack[0] += 1; println!("PROVED {} {} {claim:?}", rule.name, rule.contract) }
            Verdict::NotProved(why) => println!("NOT {} {}: {why}", rule.name, rule.contract),
            Verdict::Refuted(c) => { pack[2] += 1; println!("REFUTED {} {:?} {:?}", rule.name, c.variables, (c.left, c.right)) }
        }
    }
    println!("{packs:?}");
}
