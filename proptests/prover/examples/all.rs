use std::{collections::BTreeMap, path::Path, time::Instant};
use eutectic_prover::{Verdict, prove};
use eutectic_rewrites::RuleSet;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rules = match args.get(1).map(String::as_str) {
        Some("-") | None => RuleSet::embedded().unwrap(),
        Some(dir) => RuleSet::load_dir_partly(Path::new(dir)).unwrap().0,
    };
    let only = args.get(2).cloned().unwrap_or_default();
    let mut packs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for rule in rules.iter().filter(|r| r.name.contains(&*only)) {
        let start = Instant::now();
        let verdict = prove(rule);
        let took = start.elapsed().as_millis();
        let pack = packs.entry(rule.pack().to_string()).or_default();
        pack.1 += 1;
        match verdict {
            Verdict::Proved(claim) => { pack.0 += 1; println!("PROVED {} {} {:?} {took} ms", rule.name, rule.contract, claim) }
            Verdict::NotProved(why) => println!("NOT {} {} {took} ms: {why}", rule.name, rule.contract),
        }
    }
    println!("{packs:?} {:?}", packs.values().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)));
}
